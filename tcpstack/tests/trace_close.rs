//! Packet traces of endings: half-close, connections that nobody waits for, TIME-WAIT, keep-alive.

mod common;

use core::time::Duration;

use common::bench::{PEER_PORT, THEIRS, calm, seg};
use common::trace::Trace;
use tcpstack::config::{Keepalive, StackConfig};
use tcpstack::stack::{CloseReason, ConnectionId};

const SECOND: Duration = Duration::from_secs(1);

/// Established at 0.000 by a passive open.
fn established(config: StackConfig) -> (Trace, ConnectionId) {
    let mut trace = Trace::listening(config);
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.000 < A 1 ack 1",
    );
    let id = trace.accepted();
    (trace, id)
}

fn detach(trace: &mut Trace, id: ConnectionId) {
    let now = trace.bench.now;
    trace.bench.stack.detach(id, now);
    assert!(trace.bench.stack.info(id).is_none());
}

/// Nothing is left of any connection but the ones in TIME-WAIT.
fn assert_gone(trace: &mut Trace, time_wait: usize) {
    let stack = &mut trace.bench.stack;
    assert_eq!((stack.orphans(), stack.connections().count()), (0, 0));
    assert_eq!((stack.time_wait_len(), stack.next_event()), (time_wait, None));
}

// ---- half-close

// proves 9293-3.6.1-3
#[test]
fn a_half_closed_connection_receives_as_long_as_its_owner_wants() {
    let (mut trace, id) = established(calm());
    trace.run("0.100 = ESTABLISHED");
    trace.bench.stack.close(id);
    trace.run(
        "0.100 > FA 1 ack 1
         0.110 < A 1 ack 2
         0.110 = FIN-WAIT-2
       600.000 < PA 1+100 ack 2
       600.001 > A 2 ack 101
       600.001 = FIN-WAIT-2
       600.010 < FA 101 ack 2
       600.010 > A 2 ack 102
       600.010 = TIME-WAIT",
    );
    assert_eq!(trace.bench.read(), 100);
    trace.bench.stack.release(id);
    trace.run("660.000 < A 102 ack 2");
    assert_eq!(trace.bench.stack.time_wait_len(), 1);
    trace.run("660.100 < R 50");
    trace.bench.events();
    assert_gone(&mut trace, 0);
}

#[test]
fn both_close_at_the_same_time() {
    // RFC 9293 figure 13.
    let (mut trace, id) = established(calm());
    trace.bench.stack.close(id);
    trace.run(
        "0.000 > FA 1 ack 1
         0.010 < FA 1 ack 1
         0.010 > A 2 ack 2
         0.010 = CLOSING
         0.020 < A 2 ack 2
         0.020 = TIME-WAIT",
    );
    assert_eq!(trace.bench.stack.close_reason(id), CloseReason::Graceful);
}

// ---- let go of

#[test]
fn fin_wait_2_ends_when_nobody_waits_for_the_peer() {
    let (mut trace, id) = established(calm());
    trace.bench.send(&[100]);
    detach(&mut trace, id);
    assert_eq!(trace.bench.stack.orphans(), 1);
    trace.run(
        "0.000 > FA 101 ack 1
         0.010 < A 1 ack 101
         0.020 < A 1 ack 102
        30.000 < A 1 ack 102            # heard, but it does not close
        60.020 > RA 102 ack 1",
    );
    assert_eq!(trace.bench.stack.counters().fin_wait_2_timeouts, 1);
    assert_gone(&mut trace, 0);
}

#[test]
fn one_that_is_in_fin_wait_2_already_has_the_same_time_from_then_on() {
    let (mut trace, id) = established(StackConfig { fin_wait_2: 5 * SECOND, ..calm() });
    trace.bench.stack.close(id);
    trace.run(
        "0.000 > FA 1 ack 1
         0.010 < A 1 ack 2
        20.000 = FIN-WAIT-2",
    );
    detach(&mut trace, id);
    trace.run("25.000 > RA 2 ack 1");
    assert_gone(&mut trace, 0);
}

#[test]
fn an_ending_in_order_needs_no_owner() {
    let (mut trace, id) = established(calm());
    detach(&mut trace, id);
    trace.run(
        "0.000 > FA 1 ack 1
         0.010 < A 1 ack 2
         1.000 < FA 1 ack 2
         1.000 > A 2 ack 2",
    );
    assert_gone(&mut trace, 1);
    // And from CLOSE-WAIT over LAST-ACK.
    let (mut trace, id) = established(calm());
    trace.run(
        "0.010 < FA 1 ack 1
         0.010 > A 1 ack 2",
    );
    detach(&mut trace, id);
    trace.run(
        "0.011 > FA 1 ack 2
         0.020 < A 2 ack 2",
    );
    assert_gone(&mut trace, 0);
}

#[test]
fn a_fin_that_is_lost_is_sent_again_for_an_orphan_too() {
    let (mut trace, id) = established(calm());
    detach(&mut trace, id);
    trace.run(
        "0.000 > FA 1 ack 1
         1.000 > FA 1 ack 1
         3.000 > FA 1 ack 1
         3.010 < FA 1 ack 2
         3.010 > A 2 ack 2",
    );
    assert_gone(&mut trace, 1);
}

// proves 9293-3.6.1-2
#[test]
fn data_for_nobody_reset_the_connection() {
    let (mut trace, id) = established(calm());
    detach(&mut trace, id);
    trace.run(
        "0.000 > FA 1 ack 1
         0.003 < A 1 ack 2
         0.010 < PA 1+100 ack 2
         0.010 > RA 2 ack 101",
    );
    assert_gone(&mut trace, 0);
    // So do data that were there and not fetched.
    let (mut trace, id) = established(calm());
    trace.run("0.010 < PA 1+100 ack 1");
    detach(&mut trace, id);
    trace.run("0.010 > RA 1 ack 101");
    assert_eq!(trace.bench.stack.counters().orphans_reset, 1);
    assert_gone(&mut trace, 0);
}

#[test]
fn a_closed_window_does_not_hold_an_orphan_for_ever() {
    let (mut trace, id) =
        established(StackConfig { user_timeout: 10 * SECOND, rto_max: 2 * SECOND, ..calm() });
    trace.run("0.010 < A 1 ack 1 win 0");
    let mut frame = tcpstack::device::Device::allocate(&mut trace.bench.device).unwrap();
    tcpstack::device::Frame::push_back(&mut frame, 100);
    trace.bench.stack.send(id, frame, true).map_err(|_| "no room").unwrap();
    detach(&mut trace, id);
    // The peer answers each probe, and opens nothing.
    let end = trace.bench.now + 60 * SECOND;
    let mut last = None;
    while trace.bench.now < end && trace.bench.stack.orphans() > 0 {
        for segment in trace.bench.pass(Duration::from_millis(10)) {
            last = Some(segment.flags);
            if segment.flags == "A" {
                trace.bench.inject(&seg("A", 1, 1).window(0));
            }
        }
    }
    assert_eq!(last, Some("RA"));
    assert!(trace.bench.stack.counters().window_probes >= 3);
    trace.bench.quiet_pass(SECOND);
    assert_gone(&mut trace, 0);
}

#[test]
fn orphans_are_bounded() {
    let config = StackConfig { orphans_max: 1, ..calm() };
    let (mut trace, id) = established(config);
    detach(&mut trace, id);
    trace.run("0.000 > FA 1 ack 1");
    trace.bench.remote.1 = 6000;
    trace.bench.iss = None;
    trace.run(
        "0.003 < S 0 mss 1000
         0.003 > SA 0 ack 1 mss 1460
         0.003 < A 1 ack 1",
    );
    let id = trace.accepted();
    detach(&mut trace, id);
    trace.run("0.004 > RA 1 ack 1");
    assert_eq!((trace.bench.stack.orphans(), trace.bench.stack.counters().orphans_reset), (1, 1));
}

#[test]
fn letting_go_of_what_is_over_or_was_never_open_is_a_release() {
    let mut trace = Trace::new(calm());
    let now = trace.bench.now;
    let id = trace.bench.stack.connect((THEIRS, PEER_PORT).into(), None, now).unwrap();
    detach(&mut trace, id);
    trace.bench.turn();
    assert_gone(&mut trace, 0);
    let (mut trace, id) = established(calm());
    trace.run("0.010 < R 1");
    detach(&mut trace, id);
    trace.bench.turn();
    assert_gone(&mut trace, 0);
}

// ---- TIME-WAIT

/// In TIME-WAIT since 0.010, the peer's FIN at 1 and its last timestamp 500 if there are any.
fn in_time_wait(stamped: bool) -> Trace {
    let mut trace = Trace::listening(StackConfig { timestamps: stamped, ..calm() });
    if stamped {
        trace.run(
            "0.000 < S 0 mss 1000 ts 500:0
             0.000 > SA 0 ack 1 mss 1460 ts *:500
             0.000 < A 1 ack 1 ts 500:*",
        );
    } else {
        trace.run(
            "0.000 < S 0 mss 1000
             0.000 > SA 0 ack 1 mss 1460
             0.000 < A 1 ack 1",
        );
    }
    let id = trace.accepted();
    trace.bench.stack.close(id);
    if stamped {
        trace.run(
            "0.000 > FA 1 ack 1
             0.010 < FA 1 ack 2 ts 500:*
             0.010 > A 2 ack 2",
        );
    } else {
        trace.run(
            "0.000 > FA 1 ack 1
             0.010 < FA 1 ack 2
             0.010 > A 2 ack 2",
        );
    }
    trace.bench.stack.release(id);
    trace.bench.id = None;
    trace
}

// proves 9293-3.6.1-4
#[test]
fn time_wait_gives_way_to_a_syn_with_a_higher_number() {
    let mut trace = in_time_wait(false);
    trace.run(
        "1.000 < S 1 mss 1000            # not above the FIN: the old connection answers
         1.000 > A 2 ack 2",
    );
    let old = trace.bench.iss.take().unwrap();
    trace.bench.irs = trace.bench.irs.wrapping_add(2);
    trace.run(
        "2.000 < S 0 mss 1000
         2.000 > SA 0 ack 1 mss 1460
         2.010 < A 1 ack 1
         2.010 = ESTABLISHED",
    );
    // The new connection's numbers are far above the old one's.
    assert!((1 << 16..1 << 31).contains(&trace.bench.iss.unwrap().wrapping_sub(old)));
    assert_eq!(trace.bench.stack.time_wait_len(), 0);
    assert_eq!(trace.bench.stack.counters().time_wait_recycled, 1);
}

// proves 9293-3.6.1-5
#[test]
fn time_wait_gives_way_to_a_syn_with_a_later_timestamp() {
    let mut trace = in_time_wait(true);
    trace.run(
        "1.000 < S 1 mss 1000 ts 499:0   # older, and older ones do not count
         1.000 > A 2 ack 2",
    );
    trace.bench.iss = None;
    trace.bench.irs = trace.bench.irs.wrapping_sub(1_000_000);
    trace.run(
        "2.000 < S 0 mss 1000 ts 501:0
         2.000 > SA 0 ack 1 mss 1460 ts *:501
         2.010 < A 1 ack 1 ts 510:*
         2.010 = ESTABLISHED",
    );
    assert_eq!(trace.bench.stack.time_wait_len(), 0);
}

#[test]
fn time_wait_stays_when_there_is_no_room_for_the_next_connection() {
    let mut trace = in_time_wait(false);
    for port in 6000..6004 {
        trace.bench.remote.1 = port;
        trace.bench.iss = None;
        assert_eq!(trace.bench.recv(&seg("S", 0, 0)).len(), 1);
    }
    trace.bench.remote.1 = PEER_PORT;
    assert_eq!(trace.bench.recv(&seg("S", 100, 0)), []);
    assert_eq!((trace.bench.stack.time_wait_len(), trace.bench.stack.half_open_len()), (1, 4));
    // A retransmitted FIN still finds its answer.
    trace.bench.pass(10 * SECOND);
    assert_eq!(trace.bench.recv(&seg("FA", 1, 2)).len(), 1);
}

// ---- keep-alive

// proves 9293-3.8.4-2
// proves 9293-3.8.4-6
#[test]
fn keep_alives_ask_with_a_number_that_was_acknowledged() {
    let keepalive = Keepalive { idle: 10 * SECOND, interval: 2 * SECOND, probes: 3 };
    let (mut trace, id) = established(StackConfig { keepalive: Some(keepalive), ..calm() });
    trace.run(
        "10.000 > A 0 ack 1
         10.010 < A 1 ack 1
         20.010 > A 0 ack 1
         22.010 > A 0 ack 1
         24.010 > A 0 ack 1
         25.000 = ESTABLISHED
         26.010 > RA 1 ack 1
         26.011 = CLOSED",
    );
    assert_eq!(trace.bench.stack.close_reason(id), CloseReason::TimedOut);
}
