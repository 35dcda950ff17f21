//! Traces of path MTU discovery: by what routers say (RFC 1191, RFC 8201), and where they say
//! nothing (RFC 4821).

mod common;

use core::time::Duration;

use common::bench::{Bench, MS, Seg, brief, plain, seg};
use tcpstack::config::StackConfig;
use tcpstack::device::{Device, Frame};

/// EMSS of a link of 1500 octets, of 1024 and of 552, over IPv4 without options.
const FULL: usize = 1460;
const BASE: usize = 984;
const LEAST: usize = 512;

const RAISE: Duration = Duration::from_secs(601);

fn established() -> Bench {
    // Timeouts come after 100, 300 and 700 ms, then every second at last.
    let config = StackConfig { rto_min: 100 * MS, rto_max: Duration::from_secs(1), ..plain() };
    Bench::established_with(config, |bench| bench.mss = Some(1460))
}

/// Queues a record as long as the path search wants it, as an FPDU would be.
fn send_offered(bench: &mut Bench) -> Vec<Seg> {
    let mut frame = bench.device.allocate().unwrap();
    let id = bench.id();
    let mut outlet = bench.stack.outlet(id).unwrap();
    frame.push_back(outlet.emss());
    frame.bytes_mut().fill(0x55);
    assert!(outlet.send(frame, true).is_ok());
    bench.turn()
}

/// Queues records until one is a probe of `len`; those before are acknowledged.
fn probe(bench: &mut Bench, seq: &mut u32) -> usize {
    let sent = send_offered(bench);
    let [segment] = &sent[..] else { panic!("{:?}", brief(&sent)) };
    assert_eq!(segment.seq, *seq);
    *seq += u32::try_from(segment.payload.len()).unwrap();
    segment.payload.len()
}

fn acknowledge(bench: &mut Bench, seq: u32) {
    bench.recv(&seg("A", 1, seq));
    assert!(bench.stack.all_acknowledged(bench.id()));
}

fn emss(bench: &Bench) -> usize {
    bench.stack.emss(bench.id())
}

#[test]
fn the_third_timeout_cuts_to_the_base_and_no_octet_is_missing() {
    let mut bench = established();
    assert_eq!(brief(&bench.send(&[FULL; 2])).len(), 2);
    let again = bench.pass(200 * MS);
    assert_eq!(brief(&again), [("PA", 1, 1, FULL)]);
    let again = bench.pass(200 * MS);
    assert_eq!(brief(&again), [("PA", 1, 1, FULL)]);
    assert_eq!(emss(&bench), FULL);
    let again = bench.pass(400 * MS);
    assert_eq!(brief(&again), [("A", 1, 1, BASE), ("PA", 985, 1, FULL - BASE)]);
    assert_eq!(emss(&bench), BASE);
    assert_eq!(bench.stack.counters().black_holes, 1);
    // All of what was queued is there, in pieces.
    let more = bench.recv(&seg("A", 1, 1461));
    assert_eq!(brief(&more), [("A", 1461, 1, BASE), ("PA", 2445, 1, FULL - BASE)]);
    acknowledge(&mut bench, 2921);
}

#[test]
fn three_more_cut_to_the_least_and_then_it_is_no_black_hole() {
    let mut bench = established();
    bench.send(&[FULL]);
    bench.pass(Duration::from_secs(20));
    assert_eq!((emss(&bench), bench.stack.counters().black_holes), (LEAST, 2));
    let again = bench.pass(Duration::from_secs(2));
    assert!(!again.is_empty() && again.iter().all(|segment| segment.payload.len() == LEAST));
}

#[test]
fn short_segments_that_find_no_answer_are_no_black_hole() {
    let mut bench = established();
    bench.send(&[LEAST]);
    bench.pass(Duration::from_secs(20));
    assert_eq!((emss(&bench), bench.stack.counters().black_holes), (FULL, 0));
}

#[test]
fn without_path_search_nothing_is_cut() {
    let config = StackConfig { path_search: false, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.mss = Some(1460));
    bench.send(&[FULL]);
    bench.pass(Duration::from_secs(20));
    assert_eq!(emss(&bench), FULL);
}

/// After an outage the first probe is as long as segments were before.
#[test]
fn an_outage_costs_one_round_trip_of_short_segments() {
    let mut bench = established();
    bench.send(&[FULL]);
    bench.pass(1000 * MS);
    assert_eq!(emss(&bench), BASE);
    bench.recv(&seg("A", 1, 985));
    acknowledge(&mut bench, 1461);
    let mut seq = 1461;
    assert_eq!(probe(&mut bench, &mut seq), FULL);
    // Only one at a time, and nothing else is longer.
    assert_eq!(probe(&mut bench, &mut seq), BASE);
    acknowledge(&mut bench, seq);
    assert_eq!(emss(&bench), FULL);
    let counters = bench.stack.counters();
    assert_eq!((counters.path_probes, counters.path_probes_passed, counters.path_probes_lost), (1, 1, 0));
}

/// A record that fits the EMSS is no probe; the next longer one is.
#[test]
fn a_probe_waits_for_a_record_that_is_long_enough() {
    let mut bench = established();
    bench.send(&[FULL]);
    bench.pass(1000 * MS);
    bench.recv(&seg("A", 1, 985));
    acknowledge(&mut bench, 1461);
    assert_eq!(brief(&bench.send(&[100])), [("PA", 1461, 1, 100)]);
    acknowledge(&mut bench, 1561);
    assert_eq!((emss(&bench), bench.stack.counters().path_probes), (BASE, 0));
    let mut seq = 1561;
    assert_eq!(probe(&mut bench, &mut seq), FULL);
}

/// Black holes of each width: all octets arrive, and the search ends within a thirtieth of it.
#[test]
fn the_search_finds_what_the_path_takes() {
    for room in [LEAST, 700, BASE, 985, 1100, 1300, 1420, FULL] {
        let mut bench = established();
        for _ in 0..400 {
            let mut sent = send_offered(&mut bench);
            let mut arrived = sent[0].seq;
            let mut turns = 0;
            while !bench.stack.all_acknowledged(bench.id()) {
                sent.sort_by_key(|segment| segment.seq);
                let before = arrived;
                for segment in sent.iter().filter(|segment| segment.payload.len() <= room) {
                    if segment.seq == arrived {
                        arrived += u32::try_from(segment.payload.len()).unwrap();
                    }
                }
                sent = if arrived > before { bench.recv(&seg("A", 1, arrived)) } else { bench.pass(20 * MS) };
                turns += 1;
                assert!(turns < 1000, "{room}: it stands still at {arrived}");
            }
        }
        let found = emss(&bench);
        assert!(found <= room && room <= found + found / 32 + 1, "{found} of {room}");
        let counters = bench.stack.counters();
        assert!(counters.path_probes_lost <= 3 * 8, "{room}: {}", counters.path_probes_lost);
    }
}

/// RFC 1191 section 6.3: what a router said holds for ten minutes, then more is tried.
#[test]
fn what_a_router_said_is_doubted_after_ten_minutes() {
    let mut bench = established();
    bench.send(&[FULL]);
    bench.inject_icmp(4, 1200, 1);
    bench.turn();
    assert_eq!(emss(&bench), 1160);
    acknowledge(&mut bench, 1461);
    let mut seq = 1461;
    bench.pass(Duration::from_secs(590));
    for _ in 0..3 {
        assert_eq!(probe(&mut bench, &mut seq), 1160);
        acknowledge(&mut bench, seq);
    }
    bench.pass(RAISE - Duration::from_secs(590));
    assert_eq!(probe(&mut bench, &mut seq), 1160);
    acknowledge(&mut bench, seq);
    assert_eq!(probe(&mut bench, &mut seq), FULL);
    acknowledge(&mut bench, seq);
    assert_eq!(emss(&bench), FULL);
}

/// A router said 1200, that is doubted by now, and a segment of that size has passed: the next is a probe.
fn limited_by_a_router(bench: &mut Bench) -> u32 {
    bench.send(&[FULL]);
    bench.inject_icmp(4, 1200, 1);
    bench.turn();
    acknowledge(bench, 1461);
    bench.pass(RAISE);
    let mut seq = 1461;
    assert_eq!(probe(bench, &mut seq), 1160);
    acknowledge(bench, seq);
    seq
}

/// A router that answers a probe saves the search.
#[test]
fn a_router_s_word_on_a_probe_is_taken_at_once() {
    let mut bench = established();
    let mut seq = limited_by_a_router(&mut bench);
    let probed = seq;
    assert_eq!(probe(&mut bench, &mut seq), FULL);
    bench.inject_icmp(4, 1400, probed);
    let again = bench.turn();
    assert_eq!(brief(&again), [("A", probed, 1, 1160), ("PA", probed + 1160, 1, 300)]);
    assert_eq!(emss(&bench), 1160);
    acknowledge(&mut bench, seq);
    assert_eq!(probe(&mut bench, &mut seq), 1360);
    acknowledge(&mut bench, seq);
    assert_eq!(emss(&bench), 1360);
}

/// A window that had no room for a full record may have room for a shorter one.
#[test]
fn shorter_segments_tell_the_application_that_there_is_room() {
    let config = StackConfig { send_ahead: 0, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.mss = Some(1460));
    bench.recv(&seg("A", 1, 1).window(2600));
    bench.send(&[FULL]);
    assert_eq!(bench.stack.send_room(bench.id()), 0);
    bench.events();
    bench.inject_icmp(4, 1000, 1);
    bench.turn();
    assert!(bench.stack.send_room(bench.id()) >= 960);
    assert!(bench.events().contains(tcpstack::stack::Events::WRITABLE));
}

#[test]
fn a_lost_probe_costs_no_window() {
    let config = StackConfig { sack: true, rto_max: Duration::from_secs(1), ..plain() };
    let mut bench = Bench::established_with(config, |bench| {
        bench.mss = Some(1460);
        bench.sack_permitted = true;
    });
    let mut seq = limited_by_a_router(&mut bench);
    let probed = seq;
    assert_eq!(probe(&mut bench, &mut seq), FULL);
    let (from, mut again) = (seq, Vec::new());
    let before = bench.stack.info(bench.id()).unwrap();
    for _ in 0..4 {
        assert_eq!(probe(&mut bench, &mut seq), 1160);
    }
    bench.now += MS;
    for count in 1..=4 {
        again.extend(bench.recv(&seg("A", 1, probed).sack(&[(from, from + count * 1160)])));
    }
    assert_eq!(brief(&again), [("A", probed, 1, 1160), ("PA", probed + 1160, 1, 300)]);
    let after = bench.stack.info(bench.id()).unwrap();
    assert_eq!((after.cwnd, after.ssthresh), (before.cwnd, before.ssthresh));
    let counters = bench.stack.counters();
    assert_eq!((counters.path_probes_lost, counters.fast_recoveries), (1, 0));
    acknowledge(&mut bench, seq);
}
