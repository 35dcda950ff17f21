//! Segments of any content in any state: nothing panics, nothing leaks, and what the peer really
//! sent is delivered unharmed as long as the connection lives.

mod common;

use common::bench::{Bench, MS, OURS, PEER_PORT, PORT, THEIRS, plain, seg};
use proptest::prelude::*;
use smoltcp::wire::IpProtocol;
use tcpstack::checksum;
use tcpstack::config::{StackConfig, SynCookies};
use tcpstack::device::Frame;
use tcpstack::stack::ConnectionId;

/// A segment whose numbers are near what matters, or anywhere.
#[derive(Clone, Debug)]
struct Shot {
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    options: Vec<u8>,
    payload: usize,
    header_words: Option<u8>,
}

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

fn fire(bench: &mut Bench, shot: &Shot) {
    let mut options = shot.options.clone();
    options.resize(options.len().next_multiple_of(4), 0);
    let words = shot.header_words.unwrap_or(u8::try_from(5 + options.len() / 4).unwrap());
    let mut octets = Vec::new();
    octets.extend_from_slice(&PEER_PORT.to_be_bytes());
    octets.extend_from_slice(&PORT.to_be_bytes());
    octets.extend_from_slice(&bench.irs.wrapping_add(shot.seq).to_be_bytes());
    octets.extend_from_slice(&bench.iss.unwrap_or(0).wrapping_add(shot.ack).to_be_bytes());
    octets.extend_from_slice(&[words << 4, shot.flags]);
    octets.extend_from_slice(&shot.window.to_be_bytes());
    octets.extend_from_slice(&[0, 0, 0, 7]);
    octets.extend_from_slice(&options);
    octets.resize(octets.len() + shot.payload.min(1400 - options.len()), 0x55);
    let addresses = checksum::combine(checksum::sum(&OURS), checksum::sum(&THEIRS));
    let pseudo = checksum::combine(addresses, 6 + u32::try_from(octets.len()).unwrap());
    let sum = checksum::finish(checksum::combine(pseudo, checksum::sum(&octets)));
    octets[16..18].copy_from_slice(&sum.to_be_bytes());
    bench.inject_ip(IpProtocol::Tcp, &octets);
}

fn config(rich: bool) -> StackConfig {
    StackConfig { sack: rich, timestamps: rich, early_frames_max: 8, ..plain() }
}

/// A listener that keeps nothing of a SYN, and one that keeps a little.
fn half_open(syn_cookies: SynCookies) -> Bench {
    let mut bench = Bench::new(StackConfig { syn_cookies, half_open_max: 4, ..config(true) });
    bench.stack.listen((OURS, PORT).into(), 2).unwrap();
    (bench.scale, bench.sack_permitted) = (Some(3), true);
    bench.recv(&seg("S", 0, 0));
    bench
}

/// A bench in one of several states.
fn bench(kind: u8) -> Bench {
    match kind {
        8 => return half_open(SynCookies::Off),
        9 => return half_open(SynCookies::UnderPressure),
        10 => return half_open(SynCookies::Always),
        _ => {}
    }
    if kind == 0 {
        let mut bench = Bench::new(config(true));
        let remote = (THEIRS, PEER_PORT).into();
        let id = bench.stack.connect(remote, Some((OURS, PORT).into()), bench.now).unwrap();
        bench.id = Some(id);
        bench.pass(MS);
        return bench;
    }
    let mut bench =
        Bench::established_with(config(kind.is_multiple_of(2)), |bench| bench.sack_permitted = true);
    let id = bench.id();
    match kind {
        1 | 2 => {}
        3 => drop(bench.send(&[1000; 5])),
        4 => bench.stack.close(id),
        11 => {
            bench.send(&[1000; 3]);
            bench.stack.detach(id, bench.now);
        }
        5 => drop(bench.recv(&seg("FA", 1, 1))),
        6 => {
            bench.send(&[100; 3]);
            bench.stack.close(id);
            bench.recv(&seg("FA", 1, 1));
        }
        _ => {
            bench.stack.close(id);
            bench.recv(&seg("FA", 1, 2));
            bench.recv(&seg("A", 2, 2));
        }
    }
    bench
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_segments_in_any_state(
        kind in 0u8..12,
        shots in prop::collection::vec((shot(), 0u32..4), 1..60),
    ) {
        let mut bench = bench(kind);
        // Where there is none yet, one that is no connection's.
        let none = ConnectionId { index: u32::MAX, generation: 0 };
        let id = bench.id.unwrap_or(none);
        bench.stack.listen((OURS, PORT).into(), 2).unwrap_or_else(|_| bench_listener());
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
        // All ends when everybody has let go, also of what came last.
        bench.quiet_pass(MS);
        let all: Vec<_> = bench.stack.connections().collect();
        for id in all {
            bench.stack.release(id);
        }
        bench.quiet_pass(500_000 * MS);
        prop_assert_eq!(bench.stack.connections().count(), 0);
        prop_assert_eq!((bench.stack.half_open_len(), bench.stack.orphans()), (0, 0));
        prop_assert_eq!(bench.stack.time_wait_len(), 0);
        prop_assert_eq!(bench.stack.early_frames(), 0);
        prop_assert_eq!(bench.wire.outstanding(), 0);
    }

    #[test]
    fn any_octets_as_a_segment(octets in prop::collection::vec(any::<u8>(), 0..100)) {
        let mut bench = Bench::established(config(true));
        bench.inject_ip(IpProtocol::Tcp, &octets);
        bench.quiet_pass(MS);
    }
}

/// The listener that the bench has already.
fn bench_listener() -> tcpstack::stack::ListenerId {
    tcpstack::stack::ListenerId { index: 0, generation: 0 }
}
