//! Traces of one stack against a peer made by hand: data both ways, windows, losses.

mod common;

use core::time::Duration;

use common::bench::{Bench, MS, Seg, brief, plain, seg};
use tcpstack::config::StackConfig;
use tcpstack::stack::{CloseReason, Events};
use tcpstack::tcp::state::State;

// ---- ESTABLISHED: receiving

// proves 9293-3.8.6.3-1
// proves 9293-3.8.6.3-2
// proves 9293-3.10.7.4-1
#[test]
fn one_segment_is_acknowledged_late_and_a_burst_once() {
    let mut bench = Bench::established(plain());
    assert_eq!(bench.recv(&seg("A", 1, 1).payload(1000)), []);
    assert_eq!(brief(&bench.pass(2 * MS)), [("A", 1, 1001, 0)]);
    for number in 0..7 {
        bench.inject(&seg("A", 1001 + 1000 * number, 1).payload(1000));
    }
    assert_eq!(brief(&bench.turn()), [("A", 1, 8001, 0)]);
    assert_eq!(bench.read(), 8000);
}

#[test]
fn an_ack_rides_on_data() {
    let mut bench = Bench::established(plain());
    bench.inject(&seg("PA", 1, 1).payload(100));
    assert_eq!(brief(&bench.send(&[50])), [("PA", 1, 101, 50)]);
    assert_eq!(bench.pass(3 * MS), []);
}

// proves 9293-3.10.7.4-3
#[test]
fn a_gap_is_told_at_once_and_so_is_its_filling() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("A", 1001, 1).payload(1000))), [("A", 1, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("A", 3001, 1).payload(1000))), [("A", 1, 1, 0)]);
    assert_eq!(bench.stack.early_frames(), 2);
    assert_eq!(bench.read(), 0);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1).payload(1000))), [("A", 1, 2001, 0)]);
    assert_eq!(bench.read(), 2000);
    assert_eq!(brief(&bench.recv(&seg("A", 2001, 1).payload(1000))), [("A", 1, 4001, 0)]);
    assert_eq!((bench.read(), bench.stack.early_frames()), (2000, 0));
}

// proves 9293-3.10.7.4-12
#[test]
fn each_segment_beyond_a_gap_gets_its_own_ack() {
    let mut bench = Bench::established(plain());
    for number in 1..5 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(1000));
    }
    assert_eq!(brief(&bench.turn()), [("A", 1, 1, 0); 4]);
}

#[test]
fn overlaps_are_trimmed() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).payload(1000));
    bench.recv(&seg("A", 501, 1).payload(1000));
    assert_eq!(bench.read(), 1500);
    // Wholly old: told at once.
    assert_eq!(brief(&bench.recv(&seg("A", 501, 1).payload(1000))), [("A", 1, 1501, 0)]);
    assert_eq!(bench.read(), 0);
}

#[test]
fn sack_blocks_tell_the_newest_first() {
    let config = StackConfig { sack: true, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = true);
    let blocks = |segments: Vec<Seg>| segments[0].sack.clone();
    assert_eq!(blocks(bench.recv(&seg("A", 1001, 1).payload(1000))), [(1001, 2001)]);
    assert_eq!(blocks(bench.recv(&seg("A", 3001, 1).payload(1000))), [(3001, 4001), (1001, 2001)]);
    assert_eq!(blocks(bench.recv(&seg("A", 2001, 1).payload(1000))), [(1001, 4001)]);
    assert_eq!(bench.recv(&seg("A", 1, 1).payload(1000))[0].sack, []);
}

// proves 9293-3.4-1, 9293-3.8.6.1-1, 9293-3.8.6.1-2
#[test]
fn a_closed_window_still_takes_acks_and_answers_probes() {
    let config = StackConfig { receive_window: 3000, ..plain() };
    let mut bench = Bench::established(config);
    bench.send(&[100]);
    for number in 0..3 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(1000));
    }
    let ack = bench.turn();
    assert_eq!((ack[0].ack, ack[0].window), (3001, 0));
    for _ in 0..20 {
        // With an octet, and with an old number.
        let answer = bench.recv(&seg("A", 3001, 1).payload(1));
        assert_eq!((answer[0].ack, answer[0].window), (3001, 0));
        let answer = bench.recv(&seg("A", 3000, 1));
        assert_eq!((answer[0].ack, answer[0].window), (3001, 0));
    }
    assert!(!bench.stack.all_acknowledged(bench.id()));
    bench.recv(&seg("A", 3001, 101).payload(1));
    assert!(bench.stack.all_acknowledged(bench.id()));
}

// proves 9293-3.8.6-1
// proves 9293-3.8.6.2.2-1
#[test]
fn the_window_opens_by_two_segments_or_not_at_all() {
    let config = StackConfig { receive_window: 10_000, ..plain() };
    let mut bench = Bench::established(config);
    for number in 0..10 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(1000));
    }
    assert_eq!(bench.turn()[0].window, 0);
    let id = bench.id();
    bench.read();
    bench.stack.release_window(id, 2919);
    assert_eq!(bench.turn(), []);
    bench.stack.release_window(id, 1);
    let update = bench.turn();
    assert_eq!((update.len(), update[0].ack, update[0].window), (1, 10_001, 2920));
}

#[test]
fn data_beyond_the_window_are_cut_off() {
    let config = StackConfig { receive_window: 1500, ..plain() };
    let mut bench = Bench::established(config);
    bench.recv(&seg("A", 1, 1).payload(1000));
    let ack = bench.recv(&seg("FA", 1001, 1).payload(1000));
    assert_eq!((ack[0].ack, ack[0].window), (1501, 0));
    assert_eq!(bench.read(), 1500);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(brief(&bench.recv(&seg("A", 5001, 1).payload(10))), [("A", 1, 1501, 0)]);
}

#[test]
fn early_frames_are_bounded() {
    let config = StackConfig { early_frames_max: 2, ..plain() };
    let mut bench = Bench::established(config);
    for number in 1..5 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(500));
    }
    bench.turn();
    assert_eq!(bench.stack.early_frames(), 2);
    assert_eq!(bench.stack.counters().early_dropped, 2);
}

// ---- ESTABLISHED: sending

#[test]
fn the_initial_window_is_ten_segments() {
    let mut bench = Bench::established(plain());
    let sent = bench.send(&[1000; 14]);
    assert_eq!(sent.len(), 10);
    assert_eq!(sent[9].seq, 9001);
    // Each segment is one record, and an acknowledgment of two lets four more go.
    assert_eq!(brief(&bench.recv(&seg("A", 1, 2001))).len(), 4);
}

// proves 9293-3.7.4-2
#[test]
fn records_keep_their_boundaries() {
    let mut bench = Bench::established(plain());
    let sent = bench.send(&[1, 999, 17, 1000]);
    assert_eq!(
        brief(&sent),
        [("PA", 1, 1, 1), ("PA", 2, 1, 999), ("PA", 1001, 1, 17), ("PA", 1018, 1, 1000)]
    );
    // A timeout sends them again just so, as the window of one segment lets them go.
    assert_eq!(bench.pass(7 * MS), sent[0..2]);
    assert_eq!(bench.recv(&seg("A", 1, 2)), []);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), sent[2..4]);
}

// proves 9293-3.8.1-1
#[test]
fn timeouts_back_off_and_give_up_only_after_the_user_timeout() {
    let mut bench = Bench::established(plain());
    bench.send(&[100]);
    let start = bench.now;
    let mut times = Vec::new();
    while bench.state() != State::Closed {
        for segment in bench.pass(MS) {
            if segment.flags == "PA" {
                assert_eq!((segment.seq, segment.payload.len()), (1, 100));
                times.push((bench.now - start).as_millis());
            }
        }
    }
    // The handshake took no time, so the first timeout is the minimum.
    assert!(times[0] <= 7, "{times:?}");
    for pair in times.windows(3) {
        let (first, second) = (pair[1] - pair[0], pair[2] - pair[1]);
        assert!(second.abs_diff(2 * first) <= 3 || second >= 59_000, "{times:?}");
    }
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::TimedOut);
    assert!((bench.now - start) >= Duration::from_secs(100));
}

#[test]
fn three_duplicates_send_the_first_segment_again() {
    let mut bench = Bench::established(plain());
    bench.send(&[1000; 10]);
    bench.now += Duration::from_micros(100);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), []);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), []);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), []);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1001))), [("PA", 1001, 1, 1000)]);
    assert_eq!(bench.stack.counters().fast_recoveries, 1);
    // A partial ACK shows the next hole.
    assert_eq!(brief(&bench.recv(&seg("A", 1, 3001))), [("PA", 3001, 1, 1000)]);
    bench.recv(&seg("A", 1, 10_001));
    assert!(bench.stack.all_acknowledged(bench.id()));
    assert_eq!(bench.stack.counters().retransmissions, 2);
    assert_eq!(bench.stack.counters().timeouts, 0);
}

#[test]
fn a_changed_window_is_no_duplicate() {
    let mut bench = Bench::established(plain());
    bench.send(&[1000; 10]);
    for number in 0..10 {
        assert_eq!(bench.recv(&seg("A", 1, 1).window(50_000 + number)), []);
    }
    assert_eq!(bench.stack.counters().fast_recoveries, 0);
}

#[test]
fn sack_repairs_all_holes_in_one_round_trip() {
    let config = StackConfig { sack: true, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = true);
    bench.send(&[1000; 10]);
    bench.now += Duration::from_micros(100);
    // The first and the third are lost.
    let mut repaired = Vec::new();
    for blocks in [
        &[(1001, 2001)][..],
        &[(3001, 4001), (1001, 2001)],
        &[(3001, 5001), (1001, 2001)],
        &[(3001, 6001), (1001, 2001)],
        &[(3001, 8001), (1001, 2001)],
        &[(3001, 10_001), (1001, 2001)],
    ] {
        repaired.extend(bench.recv(&seg("A", 1, 1).sack(blocks)));
    }
    assert_eq!(brief(&repaired), [("PA", 1, 1, 1000), ("PA", 2001, 1, 1000)]);
    bench.recv(&seg("A", 1, 2001).sack(&[(3001, 10_001)]));
    bench.recv(&seg("A", 1, 10_001));
    assert!(bench.stack.all_acknowledged(bench.id()));
    assert_eq!(bench.stack.counters().retransmissions, 2);
}

#[test]
fn sack_blocks_of_nonsense_are_ignored() {
    let config = StackConfig { sack: true, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = true);
    bench.send(&[1000; 4]);
    for blocks in [[(5000, 9000)], [(3001, 1001)], [(0, 4001)], [(2_000_000_000, 4_000_000_000)]] {
        assert_eq!(bench.recv(&seg("A", 1, 1).sack(&blocks)), []);
    }
    bench.recv(&seg("A", 1, 4001));
    assert!(bench.stack.all_acknowledged(bench.id()));
}

// proves 9293-3.8.6-5
// proves 9293-3.8.6.1-1
// proves 9293-3.8.6.1-3
// proves 9293-3.8.6.1-4
#[test]
fn a_closed_window_is_probed_with_back_off_for_ever() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).window(0));
    assert_eq!(bench.send(&[100]), []);
    let mut gaps = Vec::new();
    let mut last = bench.now;
    for _ in 0..20 {
        while bench.pass(MS).is_empty() {}
        gaps.push((bench.now - last).as_millis());
        last = bench.now;
        // The probe is of an old number, and it is answered.
        assert_eq!(bench.recv(&seg("A", 1, 1).window(0)), []);
    }
    assert!(gaps[0] <= 7 && gaps[1] >= 9 && gaps[19] >= 59_000, "{gaps:?}");
    assert!(bench.now.as_nanos() > 100_000_000_000);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1).window(100))), [("PA", 1, 1, 100)]);
}

// proves 9293-3.8.6.2.1-1
#[test]
fn a_window_smaller_than_a_record_is_used_after_a_while() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).window(300));
    assert_eq!(bench.send(&[1000]), []);
    assert_eq!(brief(&bench.pass(7 * MS)), [("A", 1, 1, 300)]);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 301))), [("PA", 301, 1, 700)]);
}

// proves 9293-3.8.6-2
// proves 9293-3.8.6-3
#[test]
fn a_shrunk_window_stops_new_data() {
    let mut bench = Bench::established(plain());
    bench.send(&[1000; 4]);
    bench.recv(&seg("A", 1, 1001).window(1000));
    assert_eq!(bench.send(&[500]), []);
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 1000);
    // What is in flight beyond it is not given up for that.
    bench.recv(&seg("A", 1, 4001).window(1000));
    assert!(bench.stack.all_acknowledged(bench.id()) || bench.stack.unsent(bench.id()) == 0);
}

#[test]
fn an_old_segment_does_not_change_the_window() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).payload(100).window(5000));
    bench.send(&[100]);
    bench.recv(&seg("A", 101, 101).payload(100).window(4000));
    // Overtaken on the way: an older ACK, from before.
    bench.recv(&seg("A", 101, 1).window(9000));
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 4000);
}

#[test]
fn room_comes_back_as_an_event() {
    let config = StackConfig { send_ahead: 0, ..plain() };
    let mut bench = Bench::established(config);
    bench.send(&[1000; 10]);
    let id = bench.id();
    assert_eq!(bench.stack.send_room(id), 0);
    bench.events();
    bench.recv(&seg("A", 1, 1001));
    assert!(bench.events().contains(Events::WRITABLE));
    assert!(bench.stack.send_room(id) >= 1000);
}
