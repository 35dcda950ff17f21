use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use control::services::perf::message::{Operation, Plan};
use control::services::perf::{Limits, Notice as ServiceNotice, PerfConfig, PerfService};
use control::services::{Service, ServiceState};

use super::*;
use crate::mock::{Fault, MockVerbs, World};
use crate::plan::{Amount, Test};

/// A harness and a service in one world.
struct Pair {
    world: Rc<RefCell<World>>,
    harness: Harness,
    service: PerfService,
    verbs: [MockVerbs; 2],
    notices: mpsc::Receiver<Notice>,
    service_notices: mpsc::Receiver<ServiceNotice>,
    interrupt: Arc<AtomicBool>,
    nanos_a_turn: u64,
}

impl Pair {
    fn new(legs: Vec<Leg>, seed: u64) -> Self {
        Self::limited(legs, seed, Limits::default())
    }

    fn limited(legs: Vec<Leg>, seed: u64, limits: Limits) -> Self {
        let remote: SocketAddr = "192.0.2.1:18515".parse().unwrap();
        let profile = Profile::default();
        let (sender, notices) = mpsc::channel();
        let (service_sender, service_notices) = mpsc::channel();
        let interrupt = Arc::new(AtomicBool::new(false));
        let peer = Peer { remote, profile: profile.clone() };
        let mut service =
            PerfService::new(PerfConfig { local: remote, profile, limits }).with_notices(service_sender);
        let world = World::new(seed);
        let mut verbs = [World::verbs(&world, 0), World::verbs(&world, 1)];
        while service.supervision().state() != ServiceState::Listening {
            service.poll(&mut verbs[1]);
        }
        let harness = Harness::new(peer, legs, sender, Arc::clone(&interrupt));
        Self { world, harness, service, verbs, notices, service_notices, interrupt, nanos_a_turn: 500 }
    }

    fn turn(&mut self) {
        let [harness, service] = &mut self.verbs;
        self.harness.poll(harness);
        self.service.poll(service);
        self.world.borrow_mut().step(self.nanos_a_turn);
    }

    /// Runs until the harness is done; what it said.
    fn run(&mut self) -> Vec<Notice> {
        for _ in 0..20_000_000 {
            if self.harness.is_ended() {
                break;
            }
            self.turn();
        }
        assert!(self.harness.is_ended(), "it ends");
        // The service still has to hear of the end.
        for _ in 0..1000 {
            self.turn();
        }
        self.notices.try_iter().collect()
    }

    /// Runs legs that must succeed, and that must leave nothing behind.
    fn outcomes(legs: Vec<Leg>, seed: u64) -> Vec<Outcome> {
        let count = legs.len();
        let mut pair = Self::new(legs, seed);
        let mut outcomes = Vec::new();
        for notice in pair.run() {
            match notice {
                Notice::Done { leg, outcome } => {
                    assert_eq!(leg, outcomes.len());
                    outcomes.push(outcome);
                }
                Notice::Failed { leg, error } => panic!("leg {leg}: {error}"),
                Notice::Connected { negotiated, .. } => assert!(negotiated.crc),
                Notice::Ended | Notice::PeerGone | Notice::LinkLost(_) => {}
            }
        }
        assert_eq!(outcomes.len(), count);
        assert_eq!(pair.world.borrow().registrations(), 0, "no memory stays registered");
        assert_eq!(pair.service.connections(), 0);
        assert_eq!(pair.service_notices.try_iter().count(), 0, "the service saw nothing wrong");
        outcomes
    }

    /// Runs legs one of which must fail.
    fn error(&mut self) -> String {
        let notices = self.run();
        assert!(matches!(notices.last(), Some(Notice::Ended)));
        let error = notices.into_iter().find_map(|notice| match notice {
            Notice::Failed { error, .. } => Some(error.to_string()),
            _ => None,
        });
        error.expect("it fails")
    }
}

#[test]
fn thousands_of_connections_are_made_a_backlog_at_a_time() {
    let mut pair = Pair::new(vec![Leg { queue_pairs: 1500, ..leg(Test::WriteBw, 64, 2) }], 5);
    let mut most = 0;
    while !pair.harness.is_ended() {
        pair.turn();
        most = most.max(pair.world.borrow().requested());
    }
    assert!((400..=512).contains(&most), "{most} at a time");
    assert!(pair.notices.try_iter().any(|notice| matches!(notice, Notice::Done { .. })));
    for _ in 0..1000 {
        pair.turn();
    }
    assert_eq!(pair.world.borrow().registrations(), 0);
}

#[test]
fn the_service_counts_what_it_did_and_what_it_cannot_see() {
    for (leg, both_ends) in [
        (leg(Test::WriteBw, 100, 50), 50),
        (leg(Test::ReadBw, 100, 50), 50),
        (leg(Test::SendBw, 100, 50), 50),
        // Each message is answered by one.
        (leg(Test::WriteLat, 100, 50), 100),
        (leg(Test::SendLat, 100, 50), 100),
        (leg(Test::ReadLat, 100, 50), 50),
        (Leg { warm_up: 7, ..leg(Test::WriteBw, 100, 50) }, 57),
    ] {
        let mut pair = Pair::new(vec![leg], 3);
        pair.run();
        let counters = pair.service.counters();
        let count = |wanted| counters.iter().find(|(name, _)| *name == wanted).map(|(_, count)| count);
        let expected = [
            ("connections_accepted", 1),
            ("connections_rejected", 0),
            ("connections_active", 0),
            ("transfers", both_ends),
            ("octets", both_ends * 100),
            ("protocol_violations", 0),
        ];
        for (name, expected) in expected {
            assert_eq!(count(name), Some(expected), "{name} of {}", leg.test.name());
        }
    }
}

fn leg(test: Test, size: u32, messages: u64) -> Leg {
    let latency = test.is_latency();
    let plan = Plan {
        operation: test.operation(),
        mode: if latency { Mode::Latency } else { Mode::Bandwidth },
        both_ways: false,
        size,
        depth: if latency { 1 } else { 16 },
        receive_depth: 32,
        moderation: if latency { 1 } else { 8 },
    };
    Leg { test, plan, queue_pairs: 1, amount: Amount::Messages(messages), warm_up: 0 }
}

fn both_ways(leg: Leg) -> Leg {
    Leg { plan: Plan { both_ways: true, ..leg.plan }, ..leg }
}

fn verify(leg: Leg) -> Leg {
    Leg { plan: Plan { mode: Mode::Verify, ..leg.plan }, ..leg }
}

fn messages(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Bandwidth(summary) => summary.messages,
        Outcome::Verified { messages, .. } => *messages,
        Outcome::Latency(_) => panic!("no bandwidth: {outcome:?}"),
    }
}

const BANDWIDTH: [Test; 3] = [Test::WriteBw, Test::ReadBw, Test::SendBw];
const LATENCY: [Test; 3] = [Test::WriteLat, Test::ReadLat, Test::SendLat];
const SIZES: [u32; 8] = [1, 2, 63, 64, 65, 4096, 4097, 70_000];

#[test]
fn every_test_completes_at_every_size() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        let legs: Vec<Leg> = Test::ALL.into_iter().map(|test| leg(test, size, 100)).collect();
        for (outcome, leg) in Pair::outcomes(legs.clone(), seed as u64).into_iter().zip(legs) {
            match outcome {
                Outcome::Latency(latencies) => {
                    let summary = latencies.finish(1);
                    assert_eq!(summary.count, 100, "{leg:?}");
                    assert!(summary.min > 0.0);
                }
                outcome => assert_eq!(messages(&outcome), 100, "{leg:?}"),
            }
        }
    }
}

#[test]
fn every_octet_is_compared_in_both_directions() {
    for (seed, size) in SIZES.into_iter().enumerate() {
        for test in BANDWIDTH {
            let one_way = verify(leg(test, size, 70));
            let outcomes = Pair::outcomes(vec![one_way, both_ways(one_way)], seed as u64);
            assert_eq!(messages(&outcomes[0]), 70);
            assert_eq!(messages(&outcomes[1]), 140);
        }
    }
}

#[test]
fn both_directions_count_both() {
    for test in BANDWIDTH {
        let many = Leg { queue_pairs: 5, warm_up: 20, ..both_ways(leg(test, 500, 200)) };
        for seed in 0..5 {
            assert_eq!(messages(&Pair::outcomes(vec![many], seed)[0]), 2 * 5 * 200);
        }
    }
}

#[test]
fn sends_never_outrun_the_receives() {
    // The mock panics when a Send finds no receive.
    for receive_depth in [1, 2, 3, 5, 31] {
        let mut leg = both_ways(leg(Test::SendBw, 300, 300));
        leg.plan.receive_depth = receive_depth;
        for seed in 0..10 {
            assert_eq!(messages(&Pair::outcomes(vec![leg], seed)[0]), 600);
        }
    }
}

#[test]
fn a_time_ends_a_test() {
    for test in BANDWIDTH {
        let timed = Leg { amount: Amount::Time(Duration::from_millis(1)), ..leg(test, 64, 0) };
        for leg in [timed, both_ways(timed)] {
            let [Outcome::Bandwidth(summary)] = Pair::outcomes(vec![leg], 1)[..] else { panic!() };
            assert!(summary.messages > 100, "{summary:?}");
            assert!(summary.elapsed >= Duration::from_millis(1), "{summary:?}");
            assert!(summary.peak >= summary.rate(), "{summary:?}");
        }
    }
    for test in LATENCY {
        let timed = Leg { amount: Amount::Time(Duration::from_millis(1)), warm_up: 7, ..leg(test, 64, 0) };
        let Some(Outcome::Latency(latencies)) = Pair::outcomes(vec![timed], 1).pop() else { panic!() };
        assert!(latencies.finish(2).count > 10);
    }
}

#[test]
fn a_changed_octet_is_found_wherever_it_happens() {
    for test in BANDWIDTH {
        for (side, way) in [(0, both_ways as fn(Leg) -> Leg), (1, both_ways)] {
            let mut pair = Pair::new(vec![verify(way(leg(test, 600, 64)))], 3);
            pair.world.borrow_mut().fault = Fault::Corrupt { side, len: 600 };
            let error = pair.error();
            assert!(error.contains("octet 300"), "{test:?} from {side}: {error}");
            let at = if side == 0 { "service" } else { "harness" };
            assert!(error.contains(at), "{test:?} from {side}: {error}");
        }
    }
}

#[test]
fn a_lost_message_is_no_hang() {
    for test in Test::ALL {
        let mut pair = Pair::new(vec![leg(test, 64, 1000)], 1);
        pair.world.borrow_mut().fault = Fault::Stop { at: 50 };
        pair.nanos_a_turn = 100_000;
        assert!(pair.error().contains("nothing moved"), "{test:?}");
    }
}

#[test]
fn a_lost_connection_says_why() {
    for test in Test::ALL {
        let mut pair = Pair::new(vec![leg(test, 64, 1000)], 1);
        pair.world.borrow_mut().fault = Fault::Reset { at: 50 };
        let error = pair.error();
        assert!(error.contains("reset by the peer"), "{test:?}: {error}");
        assert_eq!(pair.world.borrow().registrations(), 0);
    }
}

#[test]
fn a_service_without_memory_refuses() {
    let limits = Limits { connections: 3, octets: 1 << 20 };
    let mut pair = Pair::limited(vec![leg(Test::WriteBw, 8 << 20, 1)], 1, limits);
    assert!(pair.error().contains("no connection or memory left"));
    let many = Leg { queue_pairs: 4, ..leg(Test::WriteBw, 64, 1) };
    let mut pair = Pair::limited(vec![many], 1, limits);
    assert!(pair.error().contains("no connection or memory left"));
    assert_eq!(pair.world.borrow().registrations(), 0, "the other three are closed too");
    assert_eq!(pair.service.connections(), 0);
}

#[test]
fn a_plan_beyond_the_limits_is_refused() {
    let mut bad = leg(Test::WriteBw, 64, 1);
    bad.plan.moderation = bad.plan.depth + 1;
    let error = Pair::new(vec![bad], 1).error();
    assert!(error.contains("beyond the service's limits"), "{error}");
}

#[test]
fn nobody_there_is_said() {
    let mut pair = Pair::new(vec![leg(Test::WriteBw, 64, 1)], 1);
    pair.service.supervision().stop();
    while pair.service.supervision().state() != ServiceState::Stopped {
        let [_, service] = &mut pair.verbs;
        pair.service.poll(service);
    }
    let error = pair.error();
    assert!(error.contains("connection refused (its host is there, but no such service listens)"), "{error}");
}

#[test]
fn an_interrupt_closes_everything() {
    for test in [Test::WriteBw, Test::SendLat] {
        let mut pair = Pair::new(vec![leg(test, 64, u64::MAX)], 1);
        for _ in 0..500 {
            pair.turn();
        }
        pair.interrupt.store(true, Ordering::Relaxed);
        assert!(pair.error().contains("interrupted"));
        assert_eq!(pair.world.borrow().registrations(), 0);
        assert_eq!(pair.service.connections(), 0);
    }
}

#[test]
fn a_service_that_is_stopped_leaves_nothing() {
    let many = Leg { queue_pairs: 3, ..leg(Test::ReadBw, 64, u64::MAX) };
    let mut pair = Pair::new(vec![many], 1);
    for _ in 0..500 {
        pair.turn();
    }
    pair.service.supervision().stop();
    assert!(pair.error().contains("closed by the peer"));
    assert_eq!(pair.service.supervision().state(), ServiceState::Stopped);
    assert_eq!(pair.world.borrow().registrations(), 0);
}

#[test]
fn a_harness_that_talks_nonsense_is_cut_off() {
    // A Verify round out of order is not what the service's part allows.
    let mut bad = verify(leg(Test::SendBw, 64, 4));
    bad.plan.operation = Operation::Send;
    let mut pair = Pair::new(vec![bad], 1);
    pair.world.borrow_mut().fault = Fault::Corrupt { side: 0, len: 40 };
    let error = pair.error();
    assert!(error.contains("octet 32"), "{error}");
}
