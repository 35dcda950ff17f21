//! Packet traces of attacks from off the path (RFC 5961, RFC 5927): forged resets, SYNs, ACKs and
//! ICMP errors, one by one and in floods. Each is told apart by one number, answered at most so
//! many times a second, and nothing grows.

mod common;

use core::time::Duration;

use common::bench::{Bench, calm, seg};
use common::trace::Trace;
use tcpstack::config::StackConfig;
use tcpstack::stack::CloseReason;

/// Established at 0.000, and 1000 octets are in flight.
fn sending(config: StackConfig) -> Trace {
    let mut trace = Trace::listening(config);
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.000 < A 1 ack 1",
    );
    trace.accepted();
    assert_eq!(trace.bench.send(&[1000]).len(), 1);
    trace
}

// proves 9293-3.10.7.4-4
// proves 9293-3.10.7.4-5
// proves 9293-3.10.7.4-6
#[test]
fn a_forged_reset_needs_the_exact_number() {
    let mut trace = sending(calm());
    trace.run(
        "0.001 < R 20001                 # beyond the window: nothing
         0.001 < R 0
         0.001 < R 20000                 # in it: asked whether it was meant
         0.001 > A 1001 ack 1
         0.001 < RA 2 ack 1
         0.001 > A 1001 ack 1
         0.001 = ESTABLISHED
         0.002 < R 1                     # the peer, which was asked, knows
         0.002 = CLOSED",
    );
    assert_eq!(trace.bench.stack.close_reason(trace.bench.id()), CloseReason::Reset);
}

// proves 9293-3.10.7.4-7
// proves 9293-3.10.7.4-8
#[test]
fn a_peer_that_started_again_is_found_out_by_its_answer() {
    // RFC 9293 figure 9, as RFC 5961 section 4.2 has it: its SYN is challenged, and its reset in
    // answer to that is exact.
    let mut trace = sending(calm());
    trace.run(
        "0.001 < S 4000 mss 1000
         0.001 > A 1001 ack 1
         0.001 = ESTABLISHED
         0.002 < R 1
         0.002 = CLOSED",
    );
    trace.bench.iss = None;
    trace.bench.irs = trace.bench.irs.wrapping_add(4000);
    trace.bench.events();
    trace.run(
        "1.000 < S 0 mss 1000
         1.000 > SA 0 ack 1 mss 1460",
    );
}

// proves 9293-3.10.7.4-9
// proves 9293-3.10.7.4-10
// proves 9293-3.10.7.4-11
#[test]
fn forged_data_need_an_acknowledgment_in_the_right_range() {
    let mut trace = sending(calm());
    trace.run(
        "0.001 < A 1+10 ack 1002         # of what was never sent
         0.001 > A 1001 ack 1
         0.001 < A 1+10 ack 4294907296   # 60001 octets ago, where the window was 60000
         0.001 > A 1001 ack 1
         0.001 < A 1+10 ack 4294907297
         0.002 > A 1001 ack 11",
    );
    assert_eq!(trace.bench.stack.counters().ack_unacceptable, 2);
}

#[test]
fn challenges_are_limited_by_connection() {
    // RFC 5961 section 7; a limit for all connections would tell an attacker of one about others.
    let mut trace = Trace::listening(StackConfig { challenge_acks: 2, ..calm() });
    let mut isses = Vec::new();
    for port in [6000, 6001] {
        (trace.bench.remote.1, trace.bench.iss) = (port, None);
        trace.bench.recv(&seg("S", 0, 0));
        trace.bench.recv(&seg("A", 1, 1));
        isses.push((port, trace.bench.iss));
    }
    for (port, iss) in isses {
        (trace.bench.remote.1, trace.bench.iss) = (port, iss);
        trace.run(
            "0.002 < R 2
             0.002 > A 1 ack 1
             0.002 < S 2
             0.002 > A 1 ack 1
             0.002 < R 2
             0.002 < A 1+10 ack 5",
        );
    }
    assert_eq!(trace.bench.stack.counters().challenge_acks_limited, 4);
    (trace.bench.remote.1, trace.bench.iss) = (6001, trace.bench.iss);
    trace.run(
        "1.100 < R 2
         1.100 > A 1 ack 1",
    );
}

/// Sends what `forge` makes of a number many times; returns how many answers came in the second.
fn flood(bench: &mut Bench, count: u32, mut forge: impl FnMut(&mut Bench, u32)) -> usize {
    let before = bench.now;
    let mut answers = 0;
    for number in 0..count {
        forge(bench, number);
        if number % 32 == 31 {
            answers += bench.turn().len();
            bench.now += Duration::from_micros(100);
        }
    }
    answers += bench.turn().len();
    assert!(bench.now - before < Duration::from_secs(1));
    answers
}

/// After a flood the connection goes on, and no frame is kept.
fn assert_unharmed(trace: &mut Trace) {
    let bench = &mut trace.bench;
    bench.recv(&seg("A", 1, 1001));
    assert!(bench.stack.all_acknowledged(bench.id()));
    bench.recv(&seg("PA", 1, 1001).payload(100));
    assert_eq!(bench.read(), 100);
    bench.quiet_pass(Duration::from_secs(1));
    assert_eq!(bench.wire.outstanding(), 0);
}

#[test]
fn a_flood_of_resets_is_answered_by_few_and_ends_nothing() {
    let config = StackConfig { challenge_acks: 10, ..calm() };
    let mut trace = sending(config);
    // All numbers but the one: in and around the window.
    let answers = flood(&mut trace.bench, 50_000, |bench, number| {
        bench.inject(&seg("R", number + 2, 0));
    });
    assert_eq!(answers, 10);
    assert_eq!(trace.bench.stack.counters().challenge_acks_limited, 19_999 - 10);
    assert_unharmed(&mut trace);
}

#[test]
fn a_flood_of_syns_to_a_connection_is_answered_by_few() {
    let config = StackConfig { challenge_acks: 10, ..calm() };
    let mut trace = sending(config);
    let answers = flood(&mut trace.bench, 20_000, |bench, number| {
        bench.inject(&seg("S", number * 7919, 0));
    });
    assert_eq!(answers, 10);
    assert_eq!(trace.bench.stack.half_open_len(), 0);
    assert_unharmed(&mut trace);
}

#[test]
fn a_flood_to_closed_ports_is_answered_by_few() {
    let mut trace = sending(StackConfig { resets: 20, ..calm() });
    let own = trace.bench.remote;
    flood(&mut trace.bench, 20_000, |bench, number| {
        bench.remote.1 = u16::try_from(number % 60_000).unwrap() + 5001;
        let flags = if number % 2 == 0 { "A" } else { "RA" };
        bench.inject(&seg(flags, number, number));
    });
    trace.bench.remote = own;
    assert_eq!((trace.bench.elsewhere, trace.bench.stack.counters().resets_sent), (20, 20));
    assert_unharmed(&mut trace);
}

// proves 9293-3.9.2.2-3
#[test]
fn a_flood_of_icmp_errors_changes_nothing() {
    let mut trace = sending(calm());
    let before = trace.bench.stack.info(trace.bench.id()).unwrap();
    let answers = flood(&mut trace.bench, 20_000, |bench, number| {
        let code = [0, 1, 2, 3, 9, 13][number as usize % 6];
        // In flight, acknowledged, and anywhere.
        let seq = [1, 0, number.wrapping_mul(65_537)][number as usize % 3];
        bench.inject_icmp(code, 0, seq);
    });
    assert_eq!(answers, 0);
    let after = trace.bench.stack.info(trace.bench.id()).unwrap();
    assert_eq!((after.state, after.emss, after.cwnd), (before.state, before.emss, before.cwnd));
    assert_unharmed(&mut trace);
}

#[test]
fn a_forged_path_mtu_shrinks_segments_no_further_than_the_least() {
    let mut trace = sending(calm());
    flood(&mut trace.bench, 2000, |bench, number| {
        bench.inject_icmp(4, u16::try_from(1100u32.saturating_sub(number)).unwrap(), 1);
    });
    assert_eq!(trace.bench.stack.emss(trace.bench.id()), 512);
    assert_unharmed(&mut trace);
}

#[test]
fn icmp_errors_do_not_end_what_is_half_open() {
    let mut trace = Trace::listening(calm());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460",
    );
    for code in [1, 2, 3, 13] {
        trace.bench.inject_icmp(code, 0, 0);
        trace.bench.inject_icmp(code, 0, 7);
    }
    trace.bench.inject_icmp(4, 800, 0);
    trace.run(
        "1.000 > SA 0 ack 1 mss 760
         1.010 < A 1 ack 1
         1.010 = ESTABLISHED",
    );
    let counters = trace.bench.stack.counters();
    assert_eq!((counters.icmp_soft_errors, counters.icmp_ignored), (4, 4));
    assert_eq!(trace.bench.stack.emss(trace.bench.id()), 760);
}
