//! Packet traces of handshakes: half-open connections, simultaneous open, lost SYNs.

mod common;

use core::time::Duration;

use common::bench::{OURS, PEER_PORT, PORT, THEIRS, plain};
use common::trace::Trace;
use tcpstack::config::{StackConfig, SynCookies};
use tcpstack::stack::{CloseReason, Events};

fn opening(config: StackConfig) -> Trace {
    let mut trace = Trace::new(config);
    let bench = &mut trace.bench;
    let id = bench.stack.connect((THEIRS, PEER_PORT).into(), Some((OURS, PORT).into()), bench.now).unwrap();
    bench.id = Some(id);
    trace
}

/// What the stack has of connections: half-open ones and others.
fn kept(trace: &Trace) -> (usize, usize) {
    (trace.bench.stack.half_open_len(), trace.bench.stack.connections().count())
}

// ---- SYN-RECEIVED after LISTEN

#[test]
fn a_syn_makes_no_connection_before_its_answer_is_acknowledged() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460 win 20000",
    );
    assert_eq!(kept(&trace), (1, 0));
    trace.run("0.010 < A 1 ack 1");
    assert_eq!(kept(&trace), (0, 1));
    let id = trace.accepted();
    let info = trace.bench.stack.info(id).unwrap();
    assert_eq!(info.srtt, Some(Duration::from_millis(10)));
    assert_eq!((info.cwnd, info.emss, info.snd_wnd), (10_000, 1000, 60_000));
}

#[test]
fn a_syn_ack_is_sent_again_with_back_off_and_given_up_with_a_reset() {
    let config = StackConfig { syn_ack_retries: 3, ..plain() };
    let mut trace = Trace::listening(config);
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.100 > SA 0 ack 1 mss 1460
         0.300 > SA 0 ack 1 mss 1460
         0.700 > SA 0 ack 1 mss 1460
         1.500 > RA 1 ack 1",
    );
    assert_eq!(kept(&trace), (0, 0));
    let counters = trace.bench.stack.counters();
    assert_eq!((counters.half_open_expired, counters.timeouts, counters.resets_sent), (1, 3, 1));
    // Too late: nobody remembers.
    trace.run(
        "2.000 < A 1 ack 1
         2.000 > R 1",
    );
}

#[test]
fn data_and_fin_may_come_with_the_acknowledgment() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < FA 1+100 ack 1
         0.010 > A 1 ack 102
         0.010 = CLOSE-WAIT",
    );
    assert_eq!(trace.bench.read(), 100);
}

#[test]
fn the_next_segment_does_when_the_acknowledgment_is_lost() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.020 < PA 1+100 ack 1
         0.021 > A 1 ack 101
         0.021 = ESTABLISHED",
    );
}

#[test]
fn a_repeated_syn_repeats_the_answer_so_many_times() {
    let config = StackConfig { challenge_acks: 2, ..plain() };
    let mut trace = Trace::listening(config);
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < S 0 mss 1000
         0.010 > SA 0 ack 1 mss 1460
         0.020 < S 0 mss 1000
         0.020 > SA 0 ack 1 mss 1460
         0.030 < S 0 mss 1000
         0.040 < S 0 mss 1000
         0.100 > SA 0 ack 1 mss 1460
         0.110 < S 0 mss 1000
         0.110 > SA 0 ack 1 mss 1460
         0.120 < A 1 ack 1",
    );
    assert_eq!(trace.bench.stack.counters().challenge_acks_limited, 2);
    // A SYN,ACK was lost, it seems: one segment, and no sample of the round trip.
    let id = trace.accepted();
    let info = trace.bench.stack.info(id).unwrap();
    assert_eq!((info.cwnd, info.srtt, info.rto), (1000, None, Duration::from_secs(3)));
}

#[test]
fn a_syn_that_comes_twice_makes_cautious() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < S 0 mss 1000
         0.010 > SA 0 ack 1 mss 1460
         0.020 < A 1 ack 1",
    );
    let id = trace.accepted();
    let info = trace.bench.stack.info(id).unwrap();
    assert_eq!((info.cwnd, info.srtt), (1000, None));
}

// proves 9293-3.10.7.4-4
// proves 9293-3.10.7.4-5
// proves 9293-3.10.7.4-6
#[test]
fn a_reset_in_syn_received_must_hit_the_next_octet() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < R 2                     # in the window: challenged
         0.010 > A 1 ack 1
         0.020 < R 20001                 # beyond it
         0.030 < R 0
         0.040 < RA 1 ack 1",
    );
    assert_eq!(kept(&trace), (0, 0));
    assert_eq!(trace.bench.stack.next_event(), None);
    trace.run(
        "0.050 < A 1 ack 1
         0.050 > R 1",
    );
}

#[test]
fn a_syn_in_the_window_leads_back_to_listen_and_one_beyond_it_is_challenged() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < S 30000 mss 1000
         0.010 > A 1 ack 1
         0.020 < S 500 mss 1000",
    );
    assert_eq!(kept(&trace), (0, 0));
}

#[test]
fn an_impossible_acknowledgment_in_syn_received_is_reset() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < A 1 ack 0
         0.010 > R 0
         0.020 < A 1 ack 2
         0.020 > R 2",
    );
    assert_eq!(kept(&trace), (1, 0));
    trace.run(
        "0.030 < A 20001 ack 1           # not in the window
         0.030 > A 1 ack 1
         0.040 < - 1+10                  # without ACK: nothing
         0.050 < SA 0 ack 1              # no SYN of ours has asked for this
         0.050 > A 1 ack 1
         0.060 < A 1 ack 1
         0.060 = ESTABLISHED",
    );
}

#[test]
fn timestamps_are_checked_from_the_first_acknowledgment_on() {
    let mut trace = Trace::listening(StackConfig { timestamps: true, ..plain() });
    trace.run(
        "0.000 < S 0 mss 1000 ts 500:0
         0.000 > SA 0 ack 1 mss 1460 ts *:500
         0.010 < A 1 ack 1                        # none: dropped
         0.020 < A 1 ack 1 ts 499:*               # older: answered
         0.020 > A 1 ack 1 ts *:500
         0.030 < S 0 mss 1000 ts 510:0            # the SYN again, later
         0.030 > SA 0 ack 1 mss 1460 ts *:510
         0.040 < A 1 ack 1 ts 520:*
         0.040 = ESTABLISHED",
    );
    let counters = trace.bench.stack.counters();
    assert_eq!((counters.timestamps_missing, counters.paws), (1, 1));
}

#[test]
fn no_listener_no_connection_whatever_was_half_open() {
    let mut trace = Trace::new(plain());
    let listener = trace.bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460",
    );
    trace.bench.stack.unlisten(listener);
    trace.run(
        "0.010 < A 1 ack 1
         0.010 > R 1",
    );
    assert_eq!(kept(&trace), (0, 0));
}

#[test]
fn a_connection_is_not_opened_twice_while_it_is_half_open() {
    let mut trace = Trace::listening(plain());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460",
    );
    let bench = &mut trace.bench;
    let again = bench.stack.connect((THEIRS, PEER_PORT).into(), Some((OURS, PORT).into()), bench.now);
    assert_eq!(again, Err(tcpstack::stack::ConnectError::InUse));
}

// ---- without room

#[test]
fn a_full_connection_table_keeps_the_half_open_one_waiting() {
    let config = StackConfig { connections_max: 1, ..plain() };
    let mut trace = Trace::listening(config);
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460",
    );
    let bench = &mut trace.bench;
    let other = bench.stack.connect((THEIRS, 99).into(), None, bench.now).unwrap();
    trace.run("0.010 < A 1 ack 1");
    assert_eq!(kept(&trace), (1, 1));
    let now = trace.bench.now;
    trace.bench.stack.abort(other, now);
    trace.bench.stack.release(other);
    trace.run(
        "0.100 > SA 0 ack 1 mss 1460
         0.110 < A 1 ack 1
         0.110 = ESTABLISHED",
    );
}

#[test]
fn without_cookies_a_syn_that_finds_no_room_is_dropped() {
    let config = StackConfig { half_open_max: 1, syn_cookies: SynCookies::Off, ..plain() };
    let mut trace = Trace::listening(config);
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460",
    );
    trace.bench.remote.1 = 6000;
    trace.run("0.010 < S 0 mss 1000");
    assert_eq!(trace.bench.stack.counters().half_open_full, 1);
}

// ---- SYN-SENT

// proves 9293-3.5-1
// proves 9293-3.5-2
#[test]
fn both_open_at_the_same_time() {
    // RFC 9293 figure 8.
    let mut trace = opening(plain());
    trace.run(
        "0.000 > S 0 mss 1460 ws 0
         0.010 < S 0 mss 1000
         0.010 > SA 0 ack 1 mss 1460
         0.010 = SYN-RECEIVED
         0.020 < SA 0 ack 1 mss 1000
         0.020 > A 1 ack 1
         0.020 = ESTABLISHED",
    );
    assert!(trace.bench.events().contains(Events::CONNECTED));
}

#[test]
fn a_syn_is_sent_again_with_back_off_and_given_up() {
    let mut trace = opening(StackConfig { syn_retries: 4, ..plain() });
    trace.run(
        "0.000 > S 0 mss 1460 ws 0
         0.100 > S 0 mss 1460 ws 0
         0.300 > S 0 mss 1460 ws 0
         0.700 > S 0 mss 1460 ws 0
         1.500 > S 0 mss 1460 ws 0
         3.110 = CLOSED",
    );
    assert_eq!(trace.bench.stack.close_reason(trace.bench.id()), CloseReason::TimedOut);
}
