//! Segments of any content in any state: nothing panics, nothing leaks, and what the peer really
//! sent is delivered unharmed as long as the connection lives.

mod common;

use common::bench::{Bench, MS};
use common::hostile::{SITUATIONS, Shot, assert_ends, config, fire, situation};
use proptest::prelude::*;
use smoltcp::wire::IpProtocol;
use tcpstack::device::Frame;
use tcpstack::stack::ConnectionId;

fn near() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => 0u32..3,
        4 => 0u32..3000,
        2 => (0u32..100).prop_map(|offset| 0u32.wrapping_sub(offset)),
        1 => any::<u32>(),
    ]
}

fn shot() -> impl Strategy<Value = Shot> {
    let options = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(any::<u8>(), 0..=40),
        1 => prop::collection::vec(prop_oneof![0u8..9, Just(10u8), any::<u8>()], 0..=40),
    ];
    let flags = prop_oneof![3 => Just(0x10u8), 2 => Just(0x18u8), 1 => Just(0x11u8), 2 => any::<u8>()];
    (flags, near(), near(), any::<u16>(), options, 0usize..1400, prop::option::weighted(0.05, 0u8..16))
        .prop_map(|(flags, seq, ack, window, options, payload, header_words)| Shot {
            flags,
            seq,
            ack,
            window,
            options,
            payload,
            header_words,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_segments_in_any_state(
        kind in 0..SITUATIONS,
        rich: bool,
        shots in prop::collection::vec((shot(), 0u32..4), 1..60),
    ) {
        let mut bench = situation(kind, config(rich));
        // Where there is none yet, one that is no connection's.
        let none = ConnectionId { index: u32::MAX, generation: 0 };
        let id = bench.id.unwrap_or(none);
        for (shot, pause) in shots {
            fire(&mut bench, &shot);
            if pause > 1 {
                bench.quiet_pass((pause - 1) * 3 * MS);
            }
            while let Some(frame) = bench.stack.receive_payload(id) {
                prop_assert!(!frame.bytes().is_empty());
                bench.stack.release_window(id, frame.bytes().len());
            }
            while bench.stack.next_event().is_some() {}
        }
        assert_ends(&mut bench);
    }

    #[test]
    fn any_octets_as_a_segment(octets in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut bench = Bench::established(config(true));
        bench.inject_ip(IpProtocol::Tcp, &octets);
        bench.quiet_pass(MS);
    }
}
