//! What the algorithms make of a path: goodput, queues and fairness over a simulated bottleneck.
//!
//! Each takes seconds of simulated time. More seeds and longer times:
//! `TCP_LONG=1 cargo test --release -p tcpstack --test congestion`

mod common;

use core::time::Duration;

use common::path::{Path, PathPlan, jain, large};
use tcpstack::config::StackConfig;
use tcpstack::sim::{Bottleneck, Chance, Faults};
use tcpstack::tcp::TcpCounters;
use tcpstack::tcp::congestion::CongestionControl::{self, Cubic, Dctcp, NewReno};
use tcpstack::tcp::ecn::Ecn;

const MS: Duration = Duration::from_millis(1);

fn with(congestion: CongestionControl) -> StackConfig {
    StackConfig { congestion, ..large() }
}

/// The same, and both sides ask for ECN.
fn marking(congestion: CongestionControl) -> StackConfig {
    StackConfig { ecn: Ecn::Request, ..with(congestion) }
}

/// Seeds, and by how much longer than usual to run.
fn effort() -> (u64, u32) {
    if std::env::var_os("TCP_LONG").is_some() { (10, 4) } else { (1, 1) }
}

/// Goodput of one flow in thousandths of the bottleneck, after a time to settle.
fn goodput(plan: PathPlan, congestion: CongestionControl, span: Duration) -> u64 {
    let mut path = Path::new(plan, &with(congestion));
    path.add_flow();
    path.run(span / 2);
    path.utilization(span)
}

/// Loss, round trip and algorithm against the least goodput, in thousandths of 1 Gb/s. Headers
/// take 40 of them. Where losses are the limit it is about half of what the algorithms' formulas
/// say: chance moves the losses about, and one that hits a repetition costs a timeout.
const TABLE: [(u64, u32, u64, u64); 10] = [
    // RTT in ms, loss in ppm, NewReno, CUBIC
    (1, 0, 900, 900),
    (1, 100, 800, 800),
    (1, 1000, 350, 350),
    (1, 10_000, 100, 100),
    (20, 0, 550, 900),
    (20, 10, 200, 300),
    (20, 100, 35, 35),
    (20, 10_000, 2, 2),
    (100, 0, 200, 200),
    (100, 100, 5, 7),
];

#[test]
fn goodput_by_loss_and_round_trip() {
    let (seeds, factor) = effort();
    let mut failures = Vec::new();
    for (rtt_ms, loss_ppm, newreno, cubic) in TABLE {
        for (algorithm, least) in [(NewReno, newreno), (Cubic, cubic)] {
            for seed in 1..=seeds {
                let rtt = Duration::from_millis(rtt_ms);
                let plan = PathPlan { seed, rtt, loss_ppm, ..PathPlan::default() };
                let span = factor
                    * match rtt_ms {
                        1 => 300 * MS,
                        20 => 1000 * MS,
                        _ => 2000 * MS,
                    };
                let got = goodput(plan, algorithm, span);
                if got < least {
                    failures.push((algorithm.name(), rtt_ms, loss_ppm, seed, got, least));
                }
            }
        }
    }
    assert_eq!(failures, [], "algorithm, RTT in ms, loss in ppm, seed, goodput, least one");
}

/// With a loss in 20 000 over 100 ms the formulas say 172 segments for NewReno and 315 for CUBIC.
#[test]
fn cubic_is_faster_than_newreno_on_a_long_path() {
    let of = |algorithm| -> u64 {
        let plan = |seed| PathPlan { seed, rtt: 100 * MS, loss_ppm: 50, ..PathPlan::default() };
        (1..=2).map(|seed| goodput(plan(seed), algorithm, 10_000 * MS)).sum()
    };
    let (newreno, cubic) = (of(NewReno), of(Cubic));
    assert!(cubic * 2 > newreno * 3, "{cubic} {newreno}");
}

#[test]
fn cubic_is_as_fast_as_newreno_where_round_trips_are_short() {
    for loss_ppm in [1000, 10_000] {
        let plan = PathPlan { rtt: MS, loss_ppm, ..PathPlan::default() };
        let newreno = goodput(plan, NewReno, 500 * MS);
        let cubic = goodput(plan, Cubic, 500 * MS);
        assert!(cubic * 10 > newreno * 9, "{cubic} {newreno}");
    }
}

#[test]
fn hystart_ends_slow_start_before_a_long_queue_is_full() {
    for algorithm in [NewReno, Cubic] {
        // Twelve times what fills the path; slow start would fill that, too.
        let plan = PathPlan { bandwidth: 100_000_000, queue: 3_000_000, ..PathPlan::default() };
        let mut path = Path::new(plan, &with(algorithm));
        path.add_flow();
        path.run(1000 * MS);
        let info = path.info(0);
        assert!(info.ssthresh != u32::MAX && info.ssthresh as usize > plan.bdp(), "{info:?}");
        assert_eq!(path.wire.counters().lost_queue_full, 0);
        assert!(path.utilization(1000 * MS) > 940);
    }
}

#[test]
fn dctcp_keeps_the_queue_at_the_mark() {
    // 62.5 KB fill the path; the rest waits.
    let plan = PathPlan {
        rtt: Duration::from_micros(500),
        queue: 500_000,
        mark_above: Some(30_000),
        ..PathPlan::default()
    };
    let mut path = Path::new(plan, &marking(Dctcp));
    path.add_flow();
    path.run(200 * MS);
    assert!(path.utilization(300 * MS) > 930);
    assert_eq!(path.wire.counters().lost_queue_full, 0);
    assert_eq!(path.stacks[0].counters().retransmissions, 0);
    // 30 KB at 1 Gb/s are 240 us; bursts make it a little more.
    let srtt = path.info(0).srtt.unwrap();
    assert!(srtt > Duration::from_micros(650) && srtt < Duration::from_micros(850), "{srtt:?}");
    // The window hardly moves: less than a tenth of it.
    let windows: Vec<u32> = (0..50)
        .map(|_| {
            path.run(Duration::from_micros(770));
            path.info(0).cwnd
        })
        .collect();
    let (least, most) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
    assert!(most - least < most / 10, "{least} {most}");
}

#[test]
fn marks_do_what_losses_would_without_any() {
    for algorithm in [NewReno, Cubic, Dctcp] {
        let plan = PathPlan {
            bandwidth: 200_000_000,
            rtt: 2 * MS,
            queue: 400_000,
            mark_above: Some(60_000),
            ..PathPlan::default()
        };
        let mut path = Path::new(plan, &marking(algorithm));
        path.add_flow();
        path.run(500 * MS);
        assert!(path.utilization(1000 * MS) > 850, "{algorithm:?}");
        assert!(path.stacks[0].counters().ecn_reductions > 2);
        assert!(path.stacks[1].counters().ecn_marks_received > 2);
        assert_eq!(path.wire.counters().lost_queue_full, 0);
        assert_eq!(path.stacks[0].counters().retransmissions, 0);
    }
}

#[test]
fn without_ecn_dctcp_is_newreno() {
    let plan =
        PathPlan { bandwidth: 100_000_000, queue: 200_000, mark_above: Some(30_000), ..PathPlan::default() };
    let run = |algorithm| {
        let config = StackConfig { ecn: Ecn::Off, ..with(algorithm) };
        let mut path = Path::new(plan, &config);
        path.add_flow();
        path.run(2000 * MS)
    };
    assert_eq!(run(Dctcp), run(NewReno));
}

/// Two flows, the second of which comes when the first has all: a fair share for both.
fn shares(plan: PathPlan, config: &StackConfig, unit: Duration) -> Vec<u64> {
    let mut path = Path::new(plan, config);
    path.add_flow();
    path.run(2 * unit);
    path.add_flow();
    path.run(6 * unit);
    path.run(4 * unit)
}

#[test]
fn two_flows_share_a_queue_that_drops() {
    let (seeds, _) = effort();
    for algorithm in [NewReno, Cubic] {
        for seed in 1..=seeds {
            let plan = PathPlan { seed, bandwidth: 100_000_000, queue: 250_000, ..PathPlan::default() };
            let shares = shares(plan, &with(algorithm), 1000 * MS);
            assert!(jain(&shares) > 80, "{algorithm:?} {seed} {shares:?}");
        }
    }
}

#[test]
fn two_flows_share_a_queue_that_marks() {
    for algorithm in [NewReno, Cubic, Dctcp] {
        let plan = PathPlan {
            rtt: Duration::from_micros(200),
            queue: 250_000,
            mark_above: Some(30_000),
            ..PathPlan::default()
        };
        let shares = shares(plan, &marking(algorithm), 100 * MS);
        assert!(jain(&shares) > 90, "{algorithm:?} {shares:?}");
        assert!(shares.iter().sum::<u64>() > 45_000_000, "{algorithm:?} {shares:?}");
    }
}

#[test]
fn a_late_answer_takes_the_timeout_back() {
    // The path becomes slower all at once, by more than the timeout expects.
    let plan = PathPlan { bandwidth: 100_000_000, ..PathPlan::default() };
    let mut path = Path::new(plan, &with(Cubic));
    path.add_flow();
    path.run(300 * MS);
    let before = path.info(0);
    let slow = Faults { delay: 300 * MS, ..Faults::default() };
    path.wire.set_port_faults(1, slow);
    path.run(600 * MS);
    let counters = path.stacks[0].counters().clone();
    assert!(counters.timeouts > 0);
    assert_eq!(counters.spurious_timeouts, 1);
    // What had been repeated by then, and no more.
    assert_eq!(counters.retransmissions, counters.timeouts);
    assert!(path.info(0).cwnd >= before.cwnd, "{before:?} {:?}", path.info(0));
}

#[test]
fn a_paced_window_takes_its_round_trip() {
    let octets_a_millisecond = |pacing| {
        let config = StackConfig { pacing, ..with(Cubic) };
        let mut path = Path::new(PathPlan::default(), &config);
        path.add_flow();
        (0..20).map(|_| path.run(MS)[0]).max().unwrap()
    };
    // Ten segments in 20 ms, sent at twice that rate; or all at once.
    assert_eq!(octets_a_millisecond(false), 10 * 1448);
    // A quantum of two segments, and one that its time has come for.
    assert!(octets_a_millisecond(true) <= 3 * 1448);
}

#[test]
fn pacing_makes_do_with_a_short_queue() {
    for algorithm in [NewReno, Cubic] {
        let goodput = |pacing| {
            // A twenty-fifth of what fills the path.
            let plan = PathPlan { queue: 100_000, ..PathPlan::default() };
            let config = StackConfig { pacing, ..with(algorithm) };
            let mut path = Path::new(plan, &config);
            path.add_flow();
            path.utilization(1000 * MS)
        };
        let (paced, bursts) = (goodput(true), goodput(false));
        assert!(paced > 2 * bursts && paced > 300, "{algorithm:?} {paced} {bursts}");
    }
}

#[test]
fn pacing_costs_no_goodput() {
    for (bandwidth, rtt_us, loss_ppm) in
        [(10_000_000_000, 200, 0), (1_000_000_000, 1000, 0), (100_000_000, 2000, 1000)]
    {
        let goodput = |pacing| {
            let rtt = Duration::from_micros(rtt_us);
            let plan = PathPlan { bandwidth, rtt, loss_ppm, ..PathPlan::default() };
            let config = StackConfig { pacing, ..with(Cubic) };
            let mut path = Path::new(plan, &config);
            path.add_flow();
            path.run(50 * MS);
            path.utilization(if bandwidth > 1_000_000_000 { 50 * MS } else { 300 * MS })
        };
        let (paced, bursts) = (goodput(true), goodput(false));
        assert!(paced * 100 >= bursts * 95, "{bandwidth} {paced} {bursts}");
    }
}

#[test]
fn reordering_over_short_round_trips_is_found_out() {
    // Two in a hundred frames are overtaken, by more than three others, and three mean a loss.
    let config = StackConfig { rack: false, ..with(Cubic) };
    let plan = PathPlan { rtt: Duration::from_micros(200), ..PathPlan::default() };
    let mut path = Path::new(plan, &config);
    path.add_flow();
    let faults = Faults {
        reorder: Chance::percent(2),
        reorder_delay: Duration::from_micros(200),
        ..Faults::link(plan.rtt / 2, plan.bandwidth)
    };
    path.wire.set_port_faults(0, faults);
    path.run(200 * MS);
    let counters = path.stacks[0].counters().clone();
    assert!(path.stacks[0].counters().fast_recoveries > 10, "{counters:?}");
    assert!(counters.spurious_recoveries * 10 > counters.fast_recoveries * 8, "{counters:?}");
    assert!(path.utilization(200 * MS) > 800);
}

#[test]
fn reordering_is_waited_for_once_it_was_seen() {
    // Three in a hundred frames are overtaken by up to a hundred others.
    let plan = PathPlan { rtt: MS, ..PathPlan::default() };
    let mut path = Path::new(plan, &with(Cubic));
    path.add_flow();
    let faults = Faults {
        reorder: Chance::percent(3),
        reorder_delay: MS,
        ..Faults::link(plan.rtt / 2, plan.bandwidth)
    };
    path.wire.set_port_faults(0, faults);
    path.run(100 * MS);
    let before = path.stacks[0].counters().clone();
    assert!(before.arrived_twice > 0, "{before:?}");
    path.run(300 * MS);
    let counters = path.stacks[0].counters();
    assert_eq!(counters.retransmissions, before.retransmissions);
    assert_eq!(counters.timeouts, 0);
    assert!(path.utilization(200 * MS) > 900);
}

/// Octets of eight flows at 10 Gb/s that lose segments, and what their sender counted.
fn lossy(rack: bool, loss_ppm: u32, seed: u64) -> (u64, TcpCounters) {
    let plan = PathPlan { seed, bandwidth: 10_000_000_000, rtt: MS, ..PathPlan::default() };
    let mut path = Path::new(plan, &StackConfig { rack, ..with(Cubic) });
    for _ in 0..8 {
        path.add_flow();
    }
    let bottleneck = Bottleneck { bandwidth: plan.bandwidth, queue: plan.queue, mark_above: None };
    let faults = Faults {
        loss: Chance::ppm(loss_ppm),
        bottleneck: Some(bottleneck),
        ..Faults::link(plan.rtt / 2, plan.bandwidth)
    };
    path.wire.set_port_faults(0, faults);
    let octets = path.run(400 * MS).iter().sum();
    (octets, path.stacks[0].counters().clone())
}

#[test]
fn losses_told_by_time_leave_nearly_nothing_to_timeouts() {
    let (seeds, _) = effort();
    for seed in 1..=seeds {
        let mut timeouts = (0, 0);
        for loss_ppm in [10_000, 30_000] {
            let (slower, without) = lossy(false, loss_ppm, seed);
            let (faster, with) = lossy(true, loss_ppm, seed);
            assert!(faster > slower, "{seed} {loss_ppm} {faster} {slower}");
            // What is lost is sent again, and nothing else: nothing is reordered here.
            assert_eq!(with.arrived_twice, 0, "{seed} {loss_ppm}");
            timeouts = (timeouts.0 + without.timeouts, timeouts.1 + with.timeouts);
        }
        assert!(timeouts.0 > 10 && timeouts.1 * 10 <= timeouts.0, "{seed} {timeouts:?}");
    }
}
