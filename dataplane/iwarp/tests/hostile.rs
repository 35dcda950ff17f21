//! A peer that sends anything with a good CRC: nothing panics, nothing is written but what the
//! peer was granted, and each request completes once.

mod common;

use std::collections::BTreeSet;

use common::*;
use iwarp::atomic::AtomicOperation;
use iwarp::memory::Operation;
use iwarp::mpa::{Negotiated, Role, RtrKind};
use iwarp::stream::StreamState;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::wire::Version;
use iwarp::wire::atomic::AtomicRequest;
use iwarp::wire::ddp::Header;
use iwarp::wire::rdmap::ReadRequest;
use iwarp::work::SendRequest;
use proptest::prelude::*;

/// The peer's memory map: what it may write, and what it may not.
struct Ground {
    rig: Rig,
    /// Regions whose octets must stay as they are.
    closed: Vec<Stag>,
    /// All STags there are.
    stags: Vec<Stag>,
}

const REGION_LEN: usize = 64;

fn ground(negotiated: &Negotiated) -> Ground {
    use Operation::{LocalRead, LocalWrite, RemoteAtomic, RemoteRead, RemoteWrite};
    let mut rig = Rig::with(negotiated);
    let open = rig.memory.register_for(REGION_LEN, &[RemoteWrite, RemoteAtomic]);
    let readable = rig.memory.register_for(REGION_LEN, &[RemoteRead, LocalRead]);
    let private = rig.memory.register_for(REGION_LEN, &[LocalRead]);
    let foreign = rig.memory.register_for(REGION_LEN, &[RemoteWrite, RemoteRead, RemoteAtomic, LocalWrite]);
    rig.memory.regions.get_mut(&foreign).unwrap().domain = ProtectionDomain(2);
    // Receives and sinks are for one way in each: the application's own request.
    let buffers = rig.memory.register_for(REGION_LEN, &[LocalWrite]);
    for id in 0..3 {
        rig.stream.post_receive(receive(id, &[sge(buffers, id * 16, 10)])).unwrap();
    }
    let sinks = rig.memory.register_for(REGION_LEN, &[LocalWrite]);
    let mut atomic = SendRequest::atomic(10, PEER_STAG, 0, AtomicOperation::fetch_add(1));
    atomic.sg_list = list(&[sge(sinks, 0, 8)]);
    rig.stream.post_send(atomic).unwrap();
    for id in 11..13 {
        let sink = sge(sinks, (id - 10) * 16, 10);
        rig.stream.post_send(read(id, sink, PEER_STAG, 0)).unwrap();
    }
    rig.stream.post_send(send(13, &[sge(readable, 0, 40)])).unwrap();
    let stags = vec![open, readable, private, foreign, buffers, sinks, Stag(0), Stag(0xdead_beef)];
    Ground { rig, closed: vec![readable, private, foreign], stags }
}

/// Near values are what finds a missing check.
fn near(limit: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0..=limit + 2,
        1 => any::<u64>(),
        1 => (0_u64..70).prop_map(|it| u64::MAX - it),
    ]
}

fn any_header() -> impl Strategy<Value = (bool, u8, usize, u64, u32, u32, u64)> {
    let opcode = prop_oneof![8 => 0_u8..8, 3 => 8_u8..12, 1 => 12_u8..16];
    (any::<bool>(), opcode, 0_usize..8, near(REGION_LEN as u64), 0_u32..4, 0_u32..4, near(28))
}

#[derive(Clone, Debug)]
enum Step {
    /// A segment with plausible fields.
    Segment { last: bool, control: u8, stag: usize, to: u64, queue: u32, msn: u32, mo: u64, payload: Vec<u8> },
    /// A Read Request that is well-formed.
    Read { msn: u32, stag: usize, offset: u64, len: u32 },
    /// An Atomic Request that is well-formed but maybe for its operation.
    Atomic { msn: u32, stag: usize, offset: u64, code: u8 },
    /// A ULPDU of any octets.
    Anything(Vec<u8>),
    /// Octets without a good CRC.
    Noise(Vec<u8>),
    /// This side sends some FPDUs.
    Build(usize),
    /// The application withdraws a region.
    Deregister(usize),
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

fn take(ground: &mut Ground, step: &Step, cut: usize) {
    let rig = &mut ground.rig;
    let ulpdu = match *step {
        Step::Segment { last, control, stag, to, queue, msn, mo, ref payload } => {
            let stag = ground.stags[stag];
            let header = if matches!(control & 0x0f, 0 | 2) {
                Header::Tagged { last, ulp_control: control, stag, offset: to }
            } else {
                let offset = u32::try_from(mo).unwrap_or(u32::MAX);
                Header::Untagged { last, ulp_control: control, ulp_word: stag.0, queue, msn, offset }
            };
            ulpdu(header, payload)
        }
        Step::Read { msn, stag, offset, len } => {
            let request = ReadRequest {
                sink_stag: PEER_STAG,
                sink_offset: u64::MAX - 20,
                len,
                source_stag: ground.stags[stag],
                source_offset: offset,
            };
            ulpdu(read_request_header(msn), &request.emit())
        }
        Step::Atomic { msn, stag, offset, code } => {
            let operation = AtomicOperation::swap(u64::MAX);
            let request = AtomicRequest { request_id: msn, stag: ground.stags[stag], offset, operation };
            let mut octets = request.emit();
            octets[3] = code;
            ulpdu(atomic_request_header(msn), &octets)
        }
        Step::Anything(ref octets) => octets.clone(),
        Step::Noise(ref octets) => return rig.stream.receive(octets.clone(), &mut rig.memory),
        Step::Build(count) => {
            for _ in 0..count {
                rig.next_sent();
            }
            return;
        }
        Step::Deregister(index) => return rig.memory.deregister(ground.stags[index]),
    };
    let mut fpdu = rig.fpdu(&ulpdu);
    let rest = fpdu.split_off(cut.min(fpdu.len()));
    rig.stream.receive(fpdu, &mut rig.memory);
    rig.stream.receive(rest, &mut rig.memory);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    // proves 5040-8.1.1-2, 5040-8.1.1-4, 5041-8.3.1-2, 5041-8.3.1-4
    #[test]
    fn a_hostile_peer_writes_only_what_it_may(
        negotiated in any_negotiated(),
        steps in proptest::collection::vec((any_step(), 0_usize..80), 1..40),
    ) {
        let mut ground = ground(&negotiated);
        let mut completed = Vec::new();
        for (step, cut) in &steps {
            take(&mut ground, step, *cut);
            completed.extend(ground.rig.completions());
            for stag in &ground.closed {
                let region = ground.rig.memory.regions.get(stag);
                prop_assert!(region.is_none_or(|region| region.octets.borrow().iter().all(|&it| it == 0)));
            }
            // Requests have gaps of 6 octets between them.
            for stag in &ground.stags[4..6] {
                let Some(region) = ground.rig.memory.regions.get(stag) else { continue };
                for (at, octet) in region.octets.borrow().iter().enumerate() {
                    prop_assert!(*octet == 0 || at % 16 < 10, "octet {at} was never granted");
                }
            }
        }

        // The end, however it comes: the rest completes, each request once.
        let terminating = ground.rig.stream.state() == StreamState::Terminating;
        if terminating {
            ground.rig.sent();
            prop_assert_eq!(ground.rig.stream.state(), StreamState::Terminated);
        }
        ground.rig.stream.llp_closed();
        completed.extend(ground.rig.completions());
        let ids: Vec<u64> = completed.iter().map(|it| it.id).collect();
        let receives: Vec<u64> = ids.iter().copied().filter(|id| *id < 10).collect();
        let sends: Vec<u64> = ids.iter().copied().filter(|id| *id >= 10).collect();
        prop_assert_eq!(receives, [0, 1, 2]);
        prop_assert_eq!(sends, [10, 11, 12, 13]);
        prop_assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    }

    #[test]
    fn any_octets_never_panic(
        segments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
        crc in any::<bool>(),
    ) {
        let negotiated = Negotiated { crc, ..negotiated(Role::Responder) };
        let mut ground = ground(&negotiated);
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
        let mut ground = ground(&negotiated(Role::Initiator));
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
