//! How long a peer may be silent: the user timeout (RFC 9293 section 3.8.3, RFC 5482), and the
//! retransmission timeout of a path that hardly ever changes.

mod common;

use core::time::Duration;

use common::bench::{Bench, calm, plain, seg};
use tcpstack::config::StackConfig;
use tcpstack::device::{Device, Frame};
use tcpstack::stack::CloseReason;
use tcpstack::tcp::state::State;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Passes time until the connection is over; how long that took, within `limit`.
fn given_up_after(bench: &mut Bench, limit: Duration) -> Option<Duration> {
    let start = bench.now;
    while bench.now - start < limit {
        bench.quiet_pass(10 * MS);
        if bench.state() == State::Closed {
            assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::TimedOut);
            return Some(bench.now - start);
        }
    }
    None
}

// proves 9293-3.8.3-2
#[test]
fn a_connection_may_have_a_timeout_of_its_own() {
    for (span, least, most) in [(2 * SECOND, 1990 * MS, 2100 * MS), (30 * SECOND, 29 * SECOND, 31 * SECOND)] {
        let mut bench = Bench::established(plain());
        let (id, now) = (bench.id(), bench.now);
        bench.stack.set_user_timeout(id, span, now);
        bench.send(&[100]);
        let after = given_up_after(&mut bench, 200 * SECOND).unwrap();
        assert!((least..most).contains(&after), "{after:?}");
    }
}

/// The timer that runs was set when the timeout was another one.
#[test]
fn a_timeout_that_is_made_shorter_holds_at_once() {
    let mut bench = Bench::established(plain());
    bench.send(&[100]);
    bench.quiet_pass(50 * SECOND);
    assert_eq!(bench.state(), State::Established);
    let (id, now) = (bench.id(), bench.now);
    bench.stack.set_user_timeout(id, 20 * SECOND, now);
    assert!(given_up_after(&mut bench, SECOND).is_some());
}

/// The peer answers each question about its closed window, for longer than the user timeout, which
/// is shorter than the interval to which the questions back off.
// proves 9293-3.8.6.1-3
#[test]
fn a_peer_that_answers_probes_is_alive() {
    let config = StackConfig { user_timeout: 5 * SECOND, rto_max: 60 * SECOND, ..calm() };
    let mut bench = Bench::established(config);
    bench.recv(&seg("A", 1, 1).window(0));
    let mut frame = bench.device.allocate().unwrap();
    frame.push_back(100);
    let id = bench.id();
    bench.stack.send(id, frame, true).map_err(|_| "no room").unwrap();
    let (mut probes, end) = (0, bench.now + 300 * SECOND);
    while bench.now < end {
        for segment in bench.pass(10 * MS) {
            probes += 1;
            assert_eq!((segment.flags, segment.payload.len()), ("A", 0));
            bench.inject(&seg("A", 1, 1).window(0));
        }
    }
    assert_eq!(bench.state(), State::Established);
    assert!(probes >= 60, "{probes}");
    // One that does not answer any more is given up, and not a minute later.
    let after = given_up_after(&mut bench, 200 * SECOND).unwrap();
    assert!((4 * SECOND..8 * SECOND).contains(&after), "{after:?}");
}

/// The same when data are in flight that the window no longer takes.
#[test]
fn a_peer_that_closes_its_window_over_data_in_flight_is_alive() {
    let config = StackConfig { user_timeout: 5 * SECOND, rto_max: 60 * SECOND, ..calm() };
    let mut bench = Bench::established(config);
    bench.send(&[100]);
    let end = bench.now + 300 * SECOND;
    while bench.now < end {
        bench.inject(&seg("A", 1, 1).window(0));
        while bench.now < end && !bench.pass(10 * MS).iter().any(|segment| segment.flags == "PA") {}
    }
    assert_eq!(bench.state(), State::Established);
    let after = given_up_after(&mut bench, 200 * SECOND).unwrap();
    assert!((3 * SECOND..8 * SECOND).contains(&after), "{after:?}");
}

/// A hundred round trips without any variation, and then one that is a little longer.
#[test]
fn a_small_step_of_a_long_steady_path_is_no_loss() {
    for sack in [false, true] {
        let config = StackConfig { sack, rto_initial: SECOND, ..plain() };
        let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = sack);
        for number in 0..103 {
            bench.send(&[100]);
            let again = bench.pass(if number < 100 { 100 * MS } else { 103 * MS });
            // The handshake took no time, so that the first ones are sent again.
            assert!(number < 20 || again.is_empty(), "{number}: {again:?}");
            bench.recv(&seg("A", 1, 1 + 100 * (number + 1)));
        }
    }
}
