//! A peer that sends anything with a good CRC: nothing panics, nothing is written but what the
//! peer was granted, and each request completes once.

mod common;

use common::hostile::{Ground, REGION_LEN, Step};
use common::negotiated;
use iwarp::mpa::{Negotiated, Role, RtrKind};
use iwarp::wire::Version;
use proptest::prelude::*;

/// Near values are what finds a missing check.
fn near(limit: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..=limit + 2,
        1 => any::<u64>(),
        1 => (0_u64..70).prop_map(|it| u64::MAX - it),
    ]
}

fn any_header() -> impl Strategy<Value = (bool, u8, usize, u64, u32, u32, u64)> {
    let opcode = prop_oneof![8 => 0_u8..12, 1 => 12_u8..16];
    (any::<bool>(), opcode, 0_usize..8, near(REGION_LEN as u64), 0_u32..4, 0_u32..4, near(28))
}

fn any_step() -> impl Strategy<Value = Step> {
    let payload = proptest::collection::vec(1_u8.., 0..40);
    let segment = (any_header(), payload).prop_map(|((last, opcode, stag, to, queue, msn, mo), payload)| {
        // Mostly on the queue that the opcode is for.
        let own = match opcode {
            1 | 10 => 1,
            7 => 2,
            11 => 3,
            _ => 0,
        };
        let queue = if queue == 3 { 3 } else { own };
        Step::Segment { last, control: 0x40 | opcode, stag, to, queue, msn, mo, payload }
    });
    let read = (0_u32..4, 0_usize..8, near(REGION_LEN as u64), 0_u32..70)
        .prop_map(|(msn, stag, offset, len)| Step::Read { msn, stag, offset, len });
    let atomic = (0_u32..4, 0_usize..8, near(REGION_LEN as u64 / 8), 0_u8..4)
        .prop_map(|(msn, stag, word, code)| Step::Atomic { msn, stag, offset: word.wrapping_mul(8), code });
    prop_oneof![
        12 => segment,
        3 => read,
        3 => atomic,
        1 => proptest::collection::vec(any::<u8>(), 0..60).prop_map(Step::Anything),
        1 => proptest::collection::vec(any::<u8>(), 1..60).prop_map(Step::Noise),
        6 => (0_usize..4).prop_map(Step::Build),
        1 => (0_usize..6).prop_map(Step::Deregister),
        2 => (0_u8..4).prop_map(Step::Post),
        1 => Just(Step::Close),
    ]
}

fn any_negotiated() -> impl Strategy<Value = Negotiated> {
    let rtr = prop_oneof![
        3 => Just(None),
        1 => Just(Some(RtrKind::Send)),
        1 => Just(Some(RtrKind::Write)),
        1 => Just(Some(RtrKind::Read)),
    ];
    (any::<bool>(), rtr, any::<bool>(), 0_u16..3).prop_map(|(initiator, rtr, receive_markers, ird)| {
        let role = if initiator { Role::Initiator } else { Role::Responder };
        Negotiated { rtr, receive_markers, ird, ..negotiated(role) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    // proves 5040-8.1.1-2, 5040-8.1.1-4, 5041-8.3.1-2, 5041-8.3.1-4
    #[test]
    fn a_hostile_peer_writes_only_what_it_may(
        negotiated in any_negotiated(),
        steps in proptest::collection::vec((any_step(), 0_usize..80), 1..40),
    ) {
        let mut ground = Ground::new(&negotiated);
        for (step, cut) in &steps {
            ground.take(step, *cut);
            ground.check();
        }
        ground.finish();
    }

    #[test]
    fn any_octets_never_panic(
        segments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
        crc in any::<bool>(),
    ) {
        let negotiated = Negotiated { crc, ..negotiated(Role::Responder) };
        let mut ground = Ground::new(&negotiated);
        for segment in segments {
            ground.rig.stream.receive(segment, &mut ground.rig.memory);
            ground.rig.next_sent();
        }
    }

    /// Without a CRC the first two octets say how long the rest is, and then anything goes.
    #[test]
    fn any_ulpdu_never_panics(
        ulpdus in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 1..10),
        fix_version in any::<bool>(),
    ) {
        let mut ground = Ground::new(&negotiated(Role::Initiator));
        ground.rig.sent();
        for mut ulpdu in ulpdus {
            if fix_version && ulpdu.len() > 1 {
                ulpdu[0] = ulpdu[0] & !3 | Version::Ietf as u8;
                ulpdu[1] = ulpdu[1] & 0x3f | 0x40;
            }
            ground.rig.deliver_ulpdu(&ulpdu);
            ground.rig.sent();
        }
    }
}
