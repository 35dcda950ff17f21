//! Ends of connections: from both sides at once, at once in each phase, and a peer that vanishes.

use std::time::Duration;

use dataplane::sim::{Session, Side, with_seeds};
use dataplane::verbs::{Command, ConnectError, DisconnectReason, Event, QueuePairAttributes, Token};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::Profile;
use iwarp::work::{SendOperation, Status};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcpstack::sim::{Chance, Faults};

fn link() -> Faults {
    Faults::link(Duration::from_micros(5), 10_000_000_000)
}

/// Posts some work on both sides; how much on each.
fn post_work(session: &mut Session, random: &mut ChaCha8Rng) -> [u64; 2] {
    let mut below = |bound: u32| random.next_u32() % bound;
    let counts = [u64::from(below(10)), u64::from(below(10))];
    for (side, count) in counts.into_iter().enumerate() {
        for id in 0..20 {
            session.sides[side].receive(id, 100_000, 5000);
        }
        let stag = session.sides[1 - side].stag;
        for id in 0..count {
            let operation = match below(3) {
                0 => SendOperation::Write { stag, offset: 200_000 },
                1 => SendOperation::Read { stag, offset: 0 },
                _ => SendOperation::Send { invalidate: None, solicited: false },
            };
            session.sides[side].post(id, operation, 150_000, below(5000));
        }
    }
    counts
}

/// Each request completed once and in order, and none after one that was not done.
fn assert_in_order(completed: &[(u64, Status)], count: u64) {
    let ids: Vec<_> = completed.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (0..count).collect::<Vec<_>>());
    assert!(completed.iter().all(|(_, status)| matches!(status, Status::Success | Status::Flushed)));
    assert!(completed.is_sorted_by_key(|(_, status)| *status == Status::Flushed), "{completed:?}");
}

fn assert_all_completed(session: &mut Session, counts: [u64; 2]) {
    for (side, count) in counts.into_iter().enumerate() {
        assert_in_order(&session.sides[side].take_sends(), count);
        assert_in_order(&session.sides[side].take_receives(), 20);
    }
}

#[test]
fn both_sides_disconnect_at_once() {
    with_seeds(100, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let faults = Faults { loss: Chance::percent(u32::try_from(seed % 3).unwrap()), ..link() };
        let profile = Profile::default();
        let mut session = Session::listening(seed, faults, &WorkerConfig::default(), &profile);
        session.connect();
        let counts = post_work(&mut session, &mut random);
        session.world.pass(Duration::from_nanos(u64::from(random.next_u32() % 100_000)));
        session.sides[0].disconnect();
        session.world.pass(Duration::from_nanos(u64::from(random.next_u32() % 20_000)));
        session.sides[1].poll();
        if session.sides[1].ended.is_none() {
            session.sides[1].disconnect();
        }
        let ends = session.ends();
        assert_eq!(ends[0], DisconnectReason::Local);
        assert!(matches!(ends[1], DisconnectReason::Local | DisconnectReason::Peer), "{ends:?}");
        assert_all_completed(&mut session, counts);
        session.assert_nothing_left();
    });
}

/// A disconnect says "once what was posted is sent": all of it counts that was posted before.
// proves 5041-3-10, 5041-3-11
#[test]
fn what_was_posted_before_a_disconnect_is_done() {
    with_seeds(50, |seed| {
        let mut session = Session::connected(seed);
        let stag = session.sides[1].stag;
        for id in 0..60 {
            session.sides[1].receive(id, 100_000, 5000);
        }
        session.world.pass(Duration::from_micros(10));
        let count = 1 + seed % 100;
        for id in 0..count {
            let operation = match id % 3 {
                0 => SendOperation::Write { stag, offset: 200_000 },
                1 => SendOperation::Read { stag, offset: 0 },
                _ => SendOperation::Send { invalidate: None, solicited: false },
            };
            session.sides[0].post(id, operation, 150_000, 4000);
        }
        session.sides[0].disconnect();
        assert_eq!(session.ends(), [DisconnectReason::Local, DisconnectReason::Peer]);
        let sent = session.sides[0].take_sends();
        assert_eq!(sent, (0..count).map(|id| (id, Status::Success)).collect::<Vec<_>>());
        let delivered = session.sides[1].take_receives();
        let sends = (0..count).filter(|id| id % 3 == 2).count();
        assert_eq!(delivered.iter().filter(|(_, status)| *status == Status::Success).count(), sends);
        session.assert_nothing_left();
    });
}

#[test]
fn an_abort_amid_traffic() {
    with_seeds(100, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut session = Session::connected(seed);
        let counts = post_work(&mut session, &mut random);
        session.world.pass(Duration::from_nanos(u64::from(random.next_u32() % 100_000)));
        let (aborter, other) = if seed % 2 == 0 { (0, 1) } else { (1, 0) };
        session.sides[aborter].abort();
        let ends = session.ends();
        assert_eq!((ends[aborter], ends[other]), (DisconnectReason::Local, DisconnectReason::Reset));
        assert_all_completed(&mut session, counts);
        session.assert_nothing_left();
    });
}

#[test]
fn an_abort_while_the_application_decides() {
    with_seeds(5, |seed| {
        let config = WorkerConfig::default();
        let mut session = Session::listening(seed, link(), &config, &Profile::default());
        session.open(b"");
        let (qp, _) = session.request();
        session.sides[1].submit(Command::Abort { qp });
        let ended = session.event(1, |event| matches!(event, Event::Disconnected { .. }));
        assert!(matches!(ended, Event::Disconnected { reason: DisconnectReason::Local, .. }));
        let failed = session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        assert!(matches!(failed, Event::ConnectFailed { error: ConnectError::ClosedByPeer, .. }));
        session.assert_nothing_left();
    });
}

#[test]
fn an_abort_while_it_closes_in_order() {
    with_seeds(50, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut session = Session::connected(seed);
        let counts = post_work(&mut session, &mut random);
        session.sides[0].disconnect();
        session.world.pass(Duration::from_nanos(u64::from(random.next_u32() % 30_000)));
        session.sides[0].abort();
        let ends = session.ends();
        assert_eq!(ends[0], DisconnectReason::Local);
        assert!(matches!(ends[1], DisconnectReason::Peer | DisconnectReason::Reset), "{ends:?}");
        assert_all_completed(&mut session, counts);
        // Whatever is said of a Stream that is gone is not heard.
        let qp = session.sides[0].qp.unwrap();
        session.sides[0].submit(Command::Disconnect { qp });
        session.sides[0].submit(Command::Abort { qp });
        session.assert_nothing_left();
    });
}

#[test]
fn an_initiator_goes_away_in_each_phase() {
    with_seeds(60, |seed| {
        let config = WorkerConfig::default();
        let mut session = Session::listening(seed, link(), &config, &Profile::default());
        session.open(b"");
        // From before ARP to full operation, most of which takes a multiple of the 5 us to the peer.
        session.world.pass(Duration::from_micros(seed));
        session.kill(0);
        session.world.pass(Duration::from_millis(1));
        session.sides[1].poll();
        if let Some(Event::ConnectRequest { qp, .. }) =
            session.sides[1].take_event(|event| matches!(event, Event::ConnectRequest { .. }))
        {
            let attributes = QueuePairAttributes::default();
            let receives = Vec::new();
            session.sides[1].submit(Command::Accept { qp, private_data: Vec::new(), attributes, receives });
        }
        session.assert_nothing_left();
    });
}

// proves 5041-3-4, 5041-6.2.2-1
#[test]
fn a_peer_that_vanishes_amid_traffic() {
    with_seeds(30, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut config = WorkerConfig::default();
        config.stack.user_timeout = Duration::from_secs(2);
        let mut session = Session::listening(seed, link(), &config, &Profile::default());
        session.connect();
        let stag = session.sides[1].stag;
        session.world.pass(Duration::from_nanos(u64::from(random.next_u32() % 100_000)));
        for port in [0, 1] {
            session.world.wire().set_link(port, false);
        }
        for id in 0..10 {
            let operation = match id % 2 {
                0 => SendOperation::Read { stag, offset: 0 },
                _ => SendOperation::Write { stag, offset: 200_000 },
            };
            session.sides[0].post(id, operation, 150_000, 4000);
        }
        session.sides[0].receive(0, 100_000, 5000);
        let begin = session.world.now();
        let ended = |sides: &mut [Side; 2]| sides[0].ended.is_some();
        session.run(Duration::from_secs(10), ended).unwrap();
        assert_eq!(session.sides[0].ended, Some(DisconnectReason::TimedOut));
        let took = session.world.now() - begin;
        assert!(took <= Duration::from_millis(2100), "{took:?}");
        let sent = session.sides[0].take_sends();
        assert_eq!(sent, (0..10).map(|id| (id, Status::Flushed)).collect::<Vec<_>>());
        assert_eq!(session.sides[0].take_receives(), [(0, Status::Flushed)]);
        // The other side knows only if something of its own was not acknowledged.
        session.sides[1].poll();
        assert!(matches!(session.sides[1].ended, None | Some(DisconnectReason::TimedOut)));
        session.sides[1].abort();
        session.assert_nothing_left();
    });
}

#[test]
fn a_peer_that_vanishes_while_it_closes_in_order() {
    with_seeds(20, |seed| {
        let mut session = Session::connected(seed);
        for port in [0, 1] {
            session.world.wire().set_link(port, false);
        }
        session.sides[0].send(0, 0, 100);
        session.sides[0].disconnect();
        let limit = WorkerConfig::default().limits.close_timeout + Duration::from_millis(100);
        let ended = |sides: &mut [Side; 2]| sides[0].ended.is_some();
        session.run(limit, ended).unwrap();
        assert_eq!(session.sides[0].ended, Some(DisconnectReason::Local));
        assert_eq!(session.sides[0].take_sends(), [(0, Status::Success)]);
        session.sides[1].abort();
        session.assert_nothing_left();
    });
}

#[test]
fn there_is_no_such_peer() {
    with_seeds(3, |seed| {
        let config = WorkerConfig::default();
        let mut session = Session::listening(seed, link(), &config, &Profile::default());
        session.world.wire().set_link(1, false);
        session.open(b"");
        let failed = session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        let Event::ConnectFailed { error, .. } = failed else { unreachable!() };
        assert_eq!(error, ConnectError::Unreachable, "nobody answers ARP");
        session.assert_nothing_left();
    });
}

#[test]
fn an_address_that_names_no_host_is_no_lack_of_connections() {
    let mut session = Session::listening(1, link(), &WorkerConfig::default(), &Profile::default());
    for (remote, expected) in [
        ("127.0.0.1:7174", ConnectError::NotAHost),
        ("224.0.0.1:7174", ConnectError::NotAHost),
        ("203.0.113.1:7174", ConnectError::NoRoute),
    ] {
        session.sides[0].submit(Command::Connect {
            token: Token(1),
            remote: remote.parse().unwrap(),
            profile: Profile::default(),
            private_data: Vec::new(),
            attributes: QueuePairAttributes::default(),
            receives: Vec::new(),
        });
        let failed = session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        let Event::ConnectFailed { error, .. } = failed else { unreachable!() };
        assert_eq!(error, expected, "{remote}");
    }
    session.assert_nothing_left();
}
