//! Traces of RACK-TLP (RFC 8985): losses told by time, and probes of the tail.

mod common;

use core::time::Duration;

use common::bench::{Bench, MS, Seg, brief, plain, seg};
use tcpstack::config::StackConfig;
use tcpstack::tcp::congestion::CongestionControl;
use tcpstack::time::Instant;

/// A timeout that is far from what takes a few round trips.
const RTO: Duration = Duration::from_millis(200);

/// ESTABLISHED over a path of 10 ms with SACK; ten segments of 1000 octets may go.
fn established() -> Bench {
    established_with(true)
}

fn established_with(rack: bool) -> Bench {
    let congestion = CongestionControl::NewReno;
    let config = StackConfig { sack: true, rto_min: RTO, congestion, rack, ..plain() };
    let mut bench = Bench::new(config);
    bench.sack_permitted = true;
    bench.stack.listen(([192, 0, 2, 1], 4791).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0));
    // Our address is asked for, too.
    assert_eq!(bench.pass(10 * MS).len(), 1);
    bench.recv(&seg("A", 1, 1));
    bench.id = bench.stack.next_event().map(|(id, _)| id);
    assert_eq!(bench.stack.info(bench.id()).unwrap().srtt, Some(10 * MS));
    bench
}

/// What is sent meanwhile, and how long after now: in milliseconds, rounded.
fn timed(bench: &mut Bench, span: Duration) -> Vec<(u64, u32)> {
    let start = bench.now;
    let of = |(at, segment): (Instant, Seg)| {
        let after = (at - start + MS / 2).as_millis();
        (u64::try_from(after).unwrap(), segment.seq)
    };
    bench.pass_timed(span).into_iter().map(of).collect()
}

fn seqs(segments: &[Seg]) -> Vec<u32> {
    segments.iter().map(|segment| segment.seq).collect()
}

fn ssthresh(bench: &Bench) -> u32 {
    bench.stack.info(bench.id()).unwrap().ssthresh
}

// ---- The tail (section 7)

#[test]
fn a_lost_tail_is_probed_for_and_repaired_without_a_timeout() {
    let mut bench = established();
    bench.send(&[1000; 3]);
    bench.pass(10 * MS);
    // The second and the third one are lost. Two round trips later the last one goes again ...
    bench.recv(&seg("A", 1, 1001));
    assert_eq!(timed(&mut bench, 31 * MS), [(20, 2001)]);
    // ... and its answer shows that the one before is lost.
    assert_eq!(seqs(&bench.recv(&seg("A", 1, 1001).sack(&[(2001, 3001)]))), [1001]);
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 3001));
    assert_eq!(bench.pass(500 * MS), []);
    let counters = bench.stack.counters();
    assert_eq!((counters.tail_probes, counters.rack_lost, counters.fast_recoveries), (1, 1, 1));
    assert_eq!((counters.timeouts, counters.retransmissions), (0, 2));
}

#[test]
fn without_it_the_tail_waits_for_the_timeout() {
    let mut bench = established_with(false);
    bench.send(&[1000; 3]);
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 1001));
    assert_eq!(timed(&mut bench, 250 * MS), [(210, 1001)]);
    assert_eq!(bench.stack.counters().tail_probes, 0);
}

#[test]
fn a_loss_that_the_probe_has_repaired_reduces_the_window_once() {
    let mut bench = established();
    bench.send(&[1000; 10]);
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 9001));
    // One is in flight, whose acknowledgment may be delayed by a millisecond.
    assert_eq!(timed(&mut bench, 31 * MS), [(21, 9001)]);
    bench.recv(&seg("A", 1, 10_001));
    assert_eq!(ssthresh(&bench), u32::MAX);
    // That both arrived would have been told by now.
    bench.send(&[1000]);
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 11_001));
    let reduced = ssthresh(&bench);
    assert!(reduced <= 10_000, "{reduced}");
    bench.send(&[1000]);
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 12_001));
    assert_eq!(ssthresh(&bench), reduced);
    let counters = bench.stack.counters();
    assert_eq!((counters.tail_probes, counters.tail_losses_repaired), (1, 1));
    assert_eq!((counters.timeouts, counters.fast_recoveries), (0, 0));
}

#[test]
fn a_probe_that_was_not_needed_reduces_nothing() {
    // The receiver says that it came twice, by a D-SACK or by a mere duplicate.
    for twice in [seg("A", 1, 10_001).sack(&[(9001, 10_001)]), seg("A", 1, 10_001)] {
        let mut bench = established();
        bench.send(&[1000; 10]);
        bench.pass(10 * MS);
        bench.recv(&seg("A", 1, 9001));
        assert_eq!(timed(&mut bench, 25 * MS), [(21, 9001)]);
        bench.recv(&seg("A", 1, 10_001));
        bench.recv(&twice);
        bench.send(&[1000]);
        bench.pass(10 * MS);
        bench.recv(&seg("A", 1, 11_001));
        assert_eq!(ssthresh(&bench), u32::MAX);
        assert_eq!(bench.stack.counters().tail_losses_repaired, 0);
    }
}

#[test]
fn new_data_are_the_better_probe() {
    let mut bench = established();
    // Ten may go; the eleventh waits for the congestion window.
    assert_eq!(bench.send(&[1000; 12]).len(), 10);
    assert_eq!(timed(&mut bench, 30 * MS), [(20, 10_001)]);
    bench.recv(&seg("A", 1, 1).sack(&[(10_001, 11_001)]));
    // All ten before it are lost; the first one goes at once.
    let counters = bench.stack.counters();
    assert_eq!((counters.rack_lost, counters.tail_probes, counters.fast_recoveries), (10, 1, 1));
    assert_eq!(counters.timeouts, 0);
}

#[test]
fn the_peers_window_holds_for_probes_too() {
    let mut bench = established();
    bench.recv(&seg("A", 1, 1).window(3000));
    assert_eq!(bench.send(&[1000; 4]).len(), 3);
    assert_eq!(timed(&mut bench, 30 * MS), [(20, 2001)]);
}

#[test]
fn a_tail_is_probed_once_and_then_it_is_the_timeouts() {
    let mut bench = established();
    bench.send(&[1000; 2]);
    // The timeout begins again with the probe.
    assert_eq!(timed(&mut bench, 300 * MS), [(20, 1001), (230, 1)]);
    let counters = bench.stack.counters();
    assert_eq!((counters.tail_probes, counters.timeouts), (1, 1));
}

#[test]
fn new_data_put_the_probe_off() {
    let mut bench = established();
    bench.send(&[1000; 2]);
    assert_eq!(bench.pass(15 * MS), []);
    bench.send(&[1000]);
    assert_eq!(timed(&mut bench, 30 * MS), [(20, 2001)]);
}

// ---- Losses told by time (section 6)

#[test]
fn a_repetition_that_is_lost_goes_again_without_a_timeout() {
    let mut bench = established();
    bench.send(&[1000; 14]);
    bench.pass(10 * MS);
    let mut sent = Vec::new();
    for end in (2001..=10_001).step_by(1000) {
        sent.extend(seqs(&bench.recv(&seg("A", 1, 1).sack(&[(1001, end)]))));
    }
    // The first one again; new data follow it.
    assert!(sent.contains(&1) && sent.contains(&10_001), "{sent:?}");
    assert_eq!(sent.iter().filter(|&&seq| seq == 1).count(), 1);
    bench.pass(10 * MS);
    // What was sent after the repetition has arrived, and the repetition has not.
    let again = bench.recv(&seg("A", 1, 1).sack(&[(1001, *sent.iter().max().unwrap() + 1000)]));
    assert_eq!(brief(&again)[0], ("PA", 1, 1, 1000));
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 15_001));
    let counters = bench.stack.counters();
    assert_eq!((counters.rack_lost, counters.retransmissions), (2, 2));
    assert_eq!((counters.timeouts, counters.fast_recoveries), (0, 1));
}

#[test]
fn fewer_than_three_segments_beyond_a_hole_are_enough_after_the_reordering_window() {
    let mut bench = established();
    bench.send(&[1000; 2]);
    bench.pass(10 * MS);
    assert_eq!(bench.recv(&seg("A", 1, 1).sack(&[(1001, 2001)])), []);
    // A quarter of the round trip.
    assert_eq!(timed(&mut bench, 9 * MS), [(3, 1)]);
    let counters = bench.stack.counters();
    assert_eq!((counters.rack_lost, counters.fast_recoveries, counters.tail_probes), (1, 1, 0));
}

#[test]
fn what_comes_within_the_reordering_window_is_not_lost() {
    let mut bench = established();
    bench.send(&[1000; 2]);
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 1).sack(&[(1001, 2001)]));
    assert_eq!(bench.pass(2 * MS), []);
    bench.recv(&seg("A", 1, 2001));
    assert_eq!(bench.pass(300 * MS), []);
    assert_eq!(bench.stack.counters().rack_lost, 0);
}

#[test]
fn three_segments_beyond_a_hole_mean_a_loss_until_there_was_reordering() {
    for reordered in [false, true] {
        let mut bench = established();
        if reordered {
            bench.send(&[1000; 2]);
            bench.pass(10 * MS);
            bench.recv(&seg("A", 1, 1).sack(&[(1001, 2001)]));
            bench.recv(&seg("A", 1, 2001));
        } else {
            bench.send(&[1000; 2]);
            bench.pass(10 * MS);
            bench.recv(&seg("A", 1, 2001));
        }
        bench.send(&[1000; 6]);
        bench.pass(10 * MS);
        let at_once = seqs(&bench.recv(&seg("A", 1, 2001).sack(&[(3001, 7001)])));
        let later = timed(&mut bench, 5 * MS);
        if reordered {
            assert_eq!((at_once, later), (vec![], vec![(3, 2001)]));
        } else {
            assert_eq!((at_once, later), (vec![2001], vec![]));
        }
    }
}

#[test]
fn each_round_trip_with_a_dsack_widens_the_reordering_window() {
    let mut bench = established();
    let mut una = 1;
    let mut waited = Vec::new();
    for _ in 0..6 {
        bench.send(&[1000; 2]);
        bench.pass(10 * MS);
        bench.recv(&seg("A", 1, una).sack(&[(una + 1000, una + 2000)]));
        let repeated = timed(&mut bench, 15 * MS);
        assert_eq!(repeated.len(), 1);
        waited.push(repeated[0].0);
        // It was late, not lost.
        bench.recv(&seg("A", 1, una + 2000));
        bench.recv(&seg("A", 1, una + 2000).sack(&[(una, una + 1000)]));
        una += 2000;
    }
    // Quarters of 10 ms, and SRTT at most.
    assert_eq!(waited, [3, 5, 8, 10, 10, 10]);
}

/// Two acknowledgments of three are lost: the blocks of the third are no reordering.
#[test]
fn blocks_that_come_together_are_no_reordering() {
    let mut bench = established();
    bench.send(&[1000; 6]);
    bench.pass(10 * MS);
    bench.recv(&seg("A", 1, 1).sack(&[(5001, 6001), (3001, 4001)]));
    assert_eq!(seqs(&bench.recv(&seg("A", 1, 1).sack(&[(1001, 2001), (5001, 6001), (3001, 4001)]))), []);
    // The one at 1001 came late indeed, so three do not mean a loss any more.
    let mut bench = established();
    bench.send(&[1000; 6]);
    bench.pass(10 * MS);
    let all = seg("A", 1, 1).sack(&[(5001, 6001), (3001, 4001), (1001, 2001)]);
    assert_eq!(seqs(&bench.recv(&all)), [1, 2001, 4001]);
}

#[test]
fn a_timeout_leaves_alone_what_was_sent_lately() {
    let mut bench = established();
    bench.send(&[1000; 3]);
    // The probe at 20 ms moves the timeout to 230 ms.
    bench.pass(225 * MS);
    bench.send(&[1000; 2]);
    assert_eq!(timed(&mut bench, 10 * MS), [(5, 1)]);
    assert_eq!(bench.stack.info(bench.id()).unwrap().in_flight, 3000);
    // All others that are lost follow when there is room; the late ones have arrived.
    bench.recv(&seg("A", 1, 1001));
    let rest: Vec<u32> = seqs(&bench.turn());
    assert!(rest.is_empty());
    bench.recv(&seg("A", 1, 5001));
    assert_eq!(bench.pass(500 * MS), []);
    assert_eq!(bench.stack.counters().timeouts, 1);
}
