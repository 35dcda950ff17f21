//! A worker is shut down: all Streams end, in order where the peers go along, and all is given back.

use std::time::Duration;

use dataplane::sim::{Session, with_seeds};
use dataplane::verbs::{DisconnectReason, Event};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::Profile;
use iwarp::work::{SendOperation, Status};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcpstack::sim::Faults;

#[test]
fn amid_traffic() {
    with_seeds(40, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut session = Session::connected(seed);
        let (stopped, other) = if seed % 2 == 0 { (0, 1) } else { (1, 0) };
        let stags = [0, 1].map(|side| session.sides[side].stag);
        for side in [0, 1] {
            session.sides[side].receive(7, 100_000, 5000);
            for id in 0..50 {
                let operation = SendOperation::Write { stag: stags[1 - side], offset: 200_000 };
                session.sides[side].post(id, operation, 150_000, 5000);
            }
        }
        session.world.pass(Duration::from_nanos(u64::from(random.next_u32() % 50_000)));
        let begin = session.world.now();
        session.world.shut_down(stopped);
        // With a peer that goes along it takes no time.
        let took = session.world.now() - begin;
        assert!(took < Duration::from_millis(100), "{took:?}");
        assert_eq!(session.world.host(stopped).connection_count(), 0);
        session.sides[stopped].poll();
        assert!(!session.sides[stopped].client.as_ref().unwrap().is_connected());
        assert_eq!(session.ends()[stopped], DisconnectReason::Stopped);
        let end = session.sides[other].ended.unwrap();
        assert!(matches!(end, DisconnectReason::Peer | DisconnectReason::Reset), "{end:?}");
        for side in &mut session.sides {
            let sent = side.take_sends();
            assert_eq!(sent.iter().map(|(id, _)| *id).collect::<Vec<_>>(), (0..50).collect::<Vec<_>>());
            assert!(sent.is_sorted_by_key(|(_, status)| *status != Status::Success));
            assert_eq!(side.take_receives(), [(7, Status::Flushed)]);
        }
        session.assert_nothing_left();
    });
}

#[test]
fn with_a_peer_that_is_gone() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        for port in [0, 1] {
            session.world.wire().set_link(port, false);
        }
        let begin = session.world.now();
        session.world.shut_down(0);
        let took = session.world.now() - begin;
        assert!(took < Duration::from_millis(600), "{took:?}");
        session.sides[0].poll();
        assert_eq!(session.sides[0].ended, Some(DisconnectReason::Stopped));
        session.sides[1].abort();
        session.assert_nothing_left();
    });
}

#[test]
fn while_a_connection_is_being_made() {
    with_seeds(40, |seed| {
        let link = Faults::link(Duration::from_micros(5), 10_000_000_000);
        let config = WorkerConfig::default();
        let mut session = Session::listening(seed, link, &config, &Profile::default());
        session.open(b"");
        session.world.pass(Duration::from_micros(seed));
        let stopped = usize::try_from(seed % 2).unwrap();
        session.world.shut_down(stopped);
        assert_eq!(session.world.host(stopped).connection_count(), 0);
        if stopped == 1 {
            let failed = session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
            assert!(matches!(failed, Event::ConnectFailed { .. }));
        }
        session.assert_nothing_left();
    });
}
