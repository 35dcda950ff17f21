//! What a lost tail costs, from end to end (RFC 8985 sections 6 and 7).

mod common;

use core::time::Duration;

use common::path::{Path, PathPlan, large};
use tcpstack::config::StackConfig;
use tcpstack::device::{Device, Frame};
use tcpstack::sim::{Chance, Faults};

const RTT: Duration = Duration::from_millis(1);

/// Hosts look this often, and a timer's tick is 33 us.
const TURN: Duration = Duration::from_micros(20);
const MARGIN: Duration = Duration::from_micros(300);

/// Where one segment alone is in flight its acknowledgment may take this much longer.
const DELAYED_ACK: Duration = Duration::from_micros(100);

/// A request of `arriving` segments that arrive and `lost` ones that do not, at first. How long after
/// the last thing heard before (an acknowledgment, or else the request) all of it had arrived.
fn repaired_after(arriving: u64, lost: u64) -> Duration {
    let plan = PathPlan { rtt: RTT, poll: TURN, ..PathPlan::default() };
    let mut path = Path::new(plan, &StackConfig { delayed_ack: DELAYED_ACK, ..large() });
    path.add_flow();
    // SRTT is RTT, as every second segment is acknowledged at once, and nothing is underway.
    for _ in 0..50 {
        path.flows[0].left = 2 * 1448;
        path.run(3 * RTT);
    }
    path.flows[0].left = 0;
    let (before, mut began) = (path.flows[0].received, path.now);
    let timeouts = path.stacks[0].counters().timeouts;
    send(&mut path, arriving);
    path.run(5 * TURN);
    // RACK does not believe in a repetition's round trip that is shorter than all before it, as one
    // segment's is when only pairs were measured.
    let good = Faults::link(RTT / 2 + TURN, plan.host);
    path.wire.set_port_faults(0, Faults { loss: Chance::ALWAYS, ..good.clone() });
    send(&mut path, lost);
    path.run(10 * TURN);
    path.wire.set_port_faults(0, good);
    while path.flows[0].received < before + (arriving + lost) * 1448 {
        path.run(TURN);
        assert!(path.now - began < 100 * RTT, "never repaired");
    }
    if arriving > 0 {
        began += RTT;
    }
    assert_eq!(path.stacks[0].counters().timeouts, timeouts, "{arriving} {lost}");
    path.now - began
}

fn send(path: &mut Path, segments: u64) {
    let client = path.flows[0].client;
    for _ in 0..segments {
        let mut frame = path.devices[0].allocate().unwrap();
        frame.push_back(1448);
        path.stacks[0].send(client, frame, true).map_err(|_| "no room").unwrap();
    }
}

/// The probe is the lost segment itself: it leaves two round trips after the last acknowledgment.
#[test]
fn the_last_segment_costs_two_round_trips() {
    for arriving in [0, 2, 4, 8] {
        let took = repaired_after(arriving, 1);
        let most = 2 * RTT + RTT / 2 + 2 * DELAYED_ACK + MARGIN;
        assert!(took <= most, "{arriving} {took:?}");
    }
}

/// The probe's answer shows the others; they leave when it comes, or a reordering window later. More
/// of them than three take more round trips, as the window has nearly ended (RFC 6937).
#[test]
fn several_cost_the_probes_own_round_trip_and_the_reordering_window_more() {
    for arriving in [0, 2, 6] {
        for lost in [2, 3] {
            let took = repaired_after(arriving, lost);
            let most = 2 * RTT + RTT + RTT / 4 + RTT / 2 + MARGIN;
            assert!(took <= most, "{arriving} {lost} {took:?}");
        }
    }
}
