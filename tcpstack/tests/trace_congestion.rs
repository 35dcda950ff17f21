//! Traces of congestion marks (RFC 3168, RFC 8257), and of losses that were none (RFC 3522).

mod common;

use core::time::Duration;

use common::bench::{Bench, MS, Seg, brief, plain, seg};
use tcpstack::config::StackConfig;
use tcpstack::tcp::congestion::CongestionControl;
use tcpstack::tcp::ecn::Ecn;

const NOT_ECT: u8 = 0;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// ECE, CWR and codepoint of segments.
fn marks(segments: &[Seg]) -> Vec<(bool, bool, u8)> {
    segments.iter().map(|segment| (segment.ece, segment.cwr, segment.ecn)).collect()
}

fn config() -> StackConfig {
    StackConfig { congestion: CongestionControl::NewReno, ..plain() }
}

/// ESTABLISHED by a passive open of a peer that asks for ECN.
fn established(config: StackConfig) -> Bench {
    let mut bench = Bench::new(config);
    bench.stack.listen(([192, 0, 2, 1], 4791).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0).ece().cwr());
    let answer = bench.pass(MS);
    assert_eq!(marks(&answer), [(true, false, NOT_ECT)]);
    assert_eq!(bench.recv(&seg("A", 1, 1)), []);
    bench.id = bench.stack.next_event().map(|(id, _)| id);
    assert!(bench.stack.info(bench.id()).unwrap().ecn);
    bench
}

// ---- The handshake

#[test]
fn a_peer_that_does_not_ask_gets_none() {
    for (ecn, syn) in [
        (Ecn::Request, seg("S", 0, 0)),
        (Ecn::Request, seg("S", 0, 0).ece()),
        (Ecn::Request, seg("S", 0, 0).cwr()),
        (Ecn::Off, seg("S", 0, 0).ece().cwr()),
    ] {
        let mut bench = Bench::new(StackConfig { ecn, ..config() });
        bench.stack.listen(([192, 0, 2, 1], 4791).into(), 4).unwrap();
        bench.inject(&syn);
        assert_eq!(marks(&bench.pass(MS)), [(false, false, NOT_ECT)]);
        bench.recv(&seg("A", 1, 1));
        bench.id = bench.stack.next_event().map(|(id, _)| id);
        assert_eq!(marks(&bench.send(&[100])), [(false, false, NOT_ECT)]);
        // Marks and echoes mean nothing.
        bench.recv(&seg("A", 1, 101).payload(1000).ece().ecn(CE));
        assert_eq!(marks(&bench.recv(&seg("A", 1001, 101).payload(1000))), [(false, false, NOT_ECT)]);
        assert_eq!(bench.stack.counters().ecn_reductions, 0);
    }
}

fn connected(answer: &Seg) -> (Bench, Vec<(bool, bool, u8)>) {
    let mut bench = Bench::new(StackConfig { ecn: Ecn::Request, ..config() });
    let (local, remote) = (([192, 0, 2, 1], 4791), ([192, 0, 2, 2], 5000));
    bench.id = Some(bench.stack.connect(remote.into(), Some(local.into()), bench.now).unwrap());
    let syn = marks(&bench.pass(MS));
    bench.recv(answer);
    (bench, syn)
}

#[test]
fn our_syn_asks_and_the_answer_decides() {
    let answers = [
        (seg("SA", 0, 1).ece(), ECT_0),
        (seg("SA", 0, 1), NOT_ECT),
        // Our own flags, reflected.
        (seg("SA", 0, 1).ece().cwr(), NOT_ECT),
    ];
    for (answer, codepoint) in answers {
        let (mut bench, syn) = connected(&answer);
        assert_eq!(syn, [(true, true, NOT_ECT)]);
        assert_eq!(marks(&bench.send(&[100])), [(false, false, codepoint)]);
    }
}

#[test]
fn a_repeated_syn_does_not_ask() {
    let mut bench = Bench::new(StackConfig { ecn: Ecn::Request, ..config() });
    let (local, remote) = (([192, 0, 2, 1], 4791), ([192, 0, 2, 2], 5000));
    bench.id = Some(bench.stack.connect(remote.into(), Some(local.into()), bench.now).unwrap());
    assert_eq!(marks(&bench.pass(MS)), [(true, true, NOT_ECT)]);
    assert_eq!(marks(&bench.pass(150 * MS)), [(false, false, NOT_ECT)]);
    // The answer to the first one comes late: we echo, but do not ask for marks.
    bench.recv(&seg("SA", 0, 1).ece());
    assert_eq!(marks(&bench.send(&[100])), [(false, false, NOT_ECT)]);
    bench.inject(&seg("A", 1, 101).payload(1000).ecn(CE));
    bench.inject(&seg("A", 1001, 101).payload(1000).ecn(ECT_0));
    assert_eq!(marks(&bench.turn()), [(true, false, NOT_ECT)]);
}

// ---- Sending

// proves 9293-3.8.2-3
#[test]
fn new_data_may_be_marked_and_nothing_else() {
    let mut bench = established(config());
    assert_eq!(marks(&bench.send(&[1000, 1000])), [(false, false, ECT_0); 2]);
    // A repetition, and an ACK.
    let repeated = bench.pass(200 * MS);
    assert_eq!(brief(&repeated)[0], ("PA", 1, 1, 1000));
    assert!(repeated.iter().all(|segment| segment.ecn == NOT_ECT));
    bench.inject(&seg("A", 1, 2001).payload(1000));
    bench.inject(&seg("A", 1001, 2001).payload(1000));
    assert_eq!(marks(&bench.turn()), [(false, false, NOT_ECT)]);
}

// proves 9293-3.8.2-3
#[test]
fn an_echo_halves_the_window_once_and_is_told_once() {
    let mut bench = established(config());
    bench.send(&[1000; 10]);
    let cwnd = |bench: &Bench| bench.stack.info(bench.id()).unwrap().ssthresh;
    bench.recv(&seg("A", 1, 1001).ece());
    assert_eq!(cwnd(&bench), 5000);
    bench.recv(&seg("A", 1, 2001).ece());
    bench.recv(&seg("A", 1, 10_001).ece());
    assert_eq!(cwnd(&bench), 5000);
    assert_eq!(marks(&bench.send(&[1000, 1000])), [(false, true, ECT_0), (false, false, ECT_0)]);
    assert_eq!(bench.stack.counters().ecn_reductions, 1);
    // What was sent after it is marked, too: once more.
    bench.recv(&seg("A", 1, 11_001).ece());
    assert_eq!(bench.stack.counters().ecn_reductions, 2);
}

#[test]
fn a_loss_is_told_by_cwr_on_new_data() {
    let mut bench = established(config());
    bench.send(&[1000; 8]);
    for _ in 0..3 {
        bench.recv(&seg("A", 1, 1));
    }
    bench.recv(&seg("A", 1, 8001));
    assert_eq!(bench.stack.counters().retransmissions, 1);
    assert_eq!(marks(&bench.send(&[1000, 1000])), [(false, true, ECT_0), (false, false, ECT_0)]);
}

// ---- Receiving

// proves 9293-3.8.2-3
#[test]
fn a_mark_is_echoed_until_the_peer_has_reduced() {
    let mut bench = established(config());
    let two = |bench: &mut Bench, seq: u32, first: Seg| {
        bench.inject(&Seg { seq, ..first });
        bench.inject(&seg("A", seq + 1000, 1).payload(1000).ecn(ECT_0));
        marks(&bench.turn())
    };
    let data = || seg("A", 0, 1).payload(1000);
    assert_eq!(two(&mut bench, 1, data().ecn(ECT_0)), [(false, false, NOT_ECT)]);
    assert_eq!(two(&mut bench, 2001, data().ecn(CE)), [(true, false, NOT_ECT)]);
    assert_eq!(two(&mut bench, 4001, data().ecn(ECT_0)), [(true, false, NOT_ECT)]);
    // Data carry the echo, too.
    assert_eq!(marks(&bench.send(&[100])), [(true, false, ECT_0)]);
    assert_eq!(two(&mut bench, 6001, data().ecn(ECT_0).cwr()), [(false, false, NOT_ECT)]);
    // A mark on the segment with CWR is a new one.
    assert_eq!(two(&mut bench, 8001, data().ecn(CE).cwr()), [(true, false, NOT_ECT)]);
}

#[test]
fn marks_on_repetitions_and_strays_are_not_echoed() {
    let mut bench = established(config());
    bench.recv(&seg("A", 1, 1).payload(1000).ecn(ECT_0));
    let again = bench.recv(&seg("A", 1, 1).payload(1000).ecn(CE));
    assert_eq!(marks(&again), [(false, false, NOT_ECT)]);
    bench.recv(&seg("A", 60_001, 1).payload(1000).ecn(CE));
    bench.recv(&seg("A", 1001, 1).ecn(CE));
    bench.inject(&seg("A", 1001, 1).payload(1000).ecn(ECT_0));
    assert_eq!(marks(&bench.pass(2 * MS)), [(false, false, NOT_ECT)]);
}

#[test]
fn with_dctcp_each_ack_tells_exactly_what_was_marked() {
    let mut bench = established(StackConfig { congestion: CongestionControl::Dctcp, ..config() });
    let data = |seq: u32, ecn: u8| seg("A", seq, 1).payload(1000).ecn(ecn);
    // In one burst: an ACK for what came unmarked, one for what came marked, one for the rest.
    for (seq, ecn) in [(1, ECT_0), (1001, CE), (2001, CE), (3001, CE), (4001, ECT_0)] {
        bench.inject(&data(seq, ecn));
    }
    let acks = bench.turn();
    let told: Vec<_> = acks.iter().map(|ack| (ack.ack, ack.ece)).collect();
    assert_eq!(told, [(1001, false), (4001, true), (5001, false)]);
    // Without a change one ACK is for all of them.
    for seq in [5001, 6001, 7001, 8001] {
        bench.inject(&data(seq, ECT_0));
    }
    assert_eq!(brief(&bench.turn()), [("A", 1, 9001, 0)]);
}

// ---- Losses that were none

/// With timestamps: what the peer echoes says which of two transmissions it answers.
fn timed() -> Bench {
    // The timeouts are the peer's silence here, not the path's.
    let config = StackConfig { timestamps: true, path_search: false, ..config() };
    let mut bench = Bench::new(config);
    // A thousand octets less the option.
    bench.mss = Some(1012);
    bench.stack.listen(([192, 0, 2, 1], 4791).into(), 4).unwrap();
    bench.recv(&seg("S", 0, 0).timestamps(1000, 0));
    bench.pass(MS);
    bench.recv(&seg("A", 1, 1).timestamps(1000, 0));
    bench.id = bench.stack.next_event().map(|(id, _)| id);
    bench
}

fn stamp(segment: &Seg) -> u32 {
    segment.timestamps.unwrap().0
}

#[test]
fn a_timeout_that_was_none_is_taken_back_and_nothing_more_is_repeated() {
    let mut bench = timed();
    let sent = bench.send(&[1000; 10]);
    let before = bench.stack.info(bench.id()).unwrap();
    let repeated = bench.pass(Duration::from_millis(150));
    assert!(repeated.len() > 1 && brief(&repeated).iter().all(|&segment| segment == ("PA", 1, 1, 1000)));
    assert_eq!(bench.stack.info(bench.id()).unwrap().cwnd, before.emss);
    // The original's answer was only late.
    let more = bench.recv(&seg("A", 1, 2001).timestamps(1001, stamp(&sent[0])));
    assert_eq!(more, []);
    let after = bench.stack.info(bench.id()).unwrap();
    assert_eq!((after.cwnd, after.ssthresh), (before.cwnd, before.ssthresh));
    assert_eq!(bench.stack.counters().spurious_timeouts, 1);
    // New data go on.
    assert_eq!(brief(&bench.send(&[1000])), [("PA", 10_001, 1, 1000)]);
    bench.recv(&seg("A", 1, 11_001).timestamps(1001, stamp(&sent[9])));
    assert!(bench.stack.all_acknowledged(bench.id()));
}

#[test]
fn a_timeout_that_was_one_stays() {
    let mut bench = timed();
    bench.send(&[1000; 10]);
    let repeated = bench.pass(Duration::from_millis(150));
    let more = bench.recv(&seg("A", 1, 1001).timestamps(1001, stamp(&repeated[0])));
    assert_eq!(brief(&more), [("PA", 1001, 1, 1000), ("PA", 2001, 1, 1000)]);
    assert_eq!(bench.stack.counters().spurious_timeouts, 0);
}

#[test]
fn a_recovery_from_reordering_is_taken_back() {
    let mut bench = timed();
    let sent = bench.send(&[1000; 10]);
    let before = bench.stack.info(bench.id()).unwrap();
    bench.pass(5 * MS);
    for _ in 0..2 {
        bench.recv(&seg("A", 1, 1).timestamps(1001, stamp(&sent[0])));
    }
    let repeated = bench.recv(&seg("A", 1, 1).timestamps(1001, stamp(&sent[0])));
    assert_eq!(brief(&repeated), [("PA", 1, 1, 1000)]);
    assert!(stamp(&repeated[0]) > stamp(&sent[0]));
    bench.recv(&seg("A", 1, 5001).timestamps(1001, stamp(&sent[0])));
    let after = bench.stack.info(bench.id()).unwrap();
    assert_eq!((after.cwnd, after.ssthresh), (before.cwnd, before.ssthresh));
    assert_eq!(bench.stack.counters().spurious_recoveries, 1);
}

// ---- What arrives twice (RFC 2883, RFC 3708)

fn with_sack() -> Bench {
    let config = StackConfig { sack: true, ..config() };
    Bench::established_with(config, |bench| bench.sack_permitted = true)
}

#[test]
fn data_that_came_before_are_reported_once() {
    let mut bench = with_sack();
    bench.recv(&seg("A", 1, 1).payload(1000));
    assert_eq!(bench.recv(&seg("A", 1, 1).payload(1000))[0].sack, [(1, 1001)]);
    bench.inject(&seg("A", 1001, 1).payload(1000));
    bench.inject(&seg("A", 2001, 1).payload(1000));
    assert_eq!(bench.turn()[0].sack, []);
}

/// A block of no octets would be none.
#[test]
fn a_fin_that_came_before_is_reported_as_the_octet_it_takes() {
    let mut bench = with_sack();
    bench.recv(&seg("A", 1, 1).payload(1000));
    bench.recv(&seg("FA", 1001, 1));
    assert_eq!(bench.recv(&seg("FA", 1001, 1))[0].sack, [(1001, 1002)]);
}

#[test]
fn early_data_that_come_again_are_reported_before_the_block_that_has_them() {
    let mut bench = with_sack();
    for seq in [1001, 2001, 5001] {
        bench.recv(&seg("A", seq, 1).payload(1000));
    }
    let twice = bench.recv(&seg("A", 1001, 1).payload(1000));
    assert_eq!((twice[0].ack, &twice[0].sack[..]), (1, &[(1001, 2001), (1001, 3001), (5001, 6001)][..]));
    let next = bench.recv(&seg("A", 7001, 1).payload(1000));
    assert_eq!(next[0].sack[0], (7001, 8001));
}

#[test]
fn a_repetition_that_came_twice_takes_the_recovery_back() {
    let mut bench = with_sack();
    bench.send(&[1000; 10]);
    let before = bench.stack.info(bench.id()).unwrap();
    // The first one is overtaken by three others.
    for end in [2001, 3001, 4001] {
        bench.recv(&seg("A", 1, 1).sack(&[(1001, end)]));
    }
    assert_eq!(bench.stack.counters().retransmissions, 1);
    bench.recv(&seg("A", 1, 4001));
    bench.recv(&seg("A", 1, 10_001));
    assert_eq!(bench.stack.info(bench.id()).unwrap().ssthresh, 5000);
    bench.send(&[1000; 4]);
    bench.recv(&seg("A", 1, 10_001).sack(&[(1, 1001)]));
    assert_eq!(bench.stack.info(bench.id()).unwrap().ssthresh, before.ssthresh);
    let counters = bench.stack.counters();
    assert_eq!((counters.arrived_twice, counters.spurious_recoveries), (1, 1));
    assert_eq!(counters.retransmissions, 1);
}
