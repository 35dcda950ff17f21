//! The application refuses a peer, with private data that says why.

use std::time::Duration;

use dataplane::sim::{Session, with_seeds};
use dataplane::verbs::{Command, ConnectError, DisconnectReason, Event, QueuePairAttributes};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::Profile;
use tcpstack::sim::Faults;

fn listening(seed: u64) -> Session {
    let link = Faults::link(Duration::from_micros(5), 10_000_000_000);
    Session::listening(seed, link, &WorkerConfig::default(), &Profile::default())
}

fn octets(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at as u64 ^ seed) % 251).unwrap()).collect()
}

#[test]
fn the_peer_gets_the_private_data() {
    with_seeds(20, |seed| {
        let mut session = listening(seed);
        let lens = [0, 1, 17, 508];
        let request = octets(seed, lens[usize::try_from(seed).unwrap() % 4]);
        let answer = octets(!seed, lens[usize::try_from(seed / 4).unwrap() % 4]);
        session.open(&request);
        let (qp, private_data) = session.request();
        assert_eq!(private_data, request);
        session.sides[1].submit(Command::Reject { qp, private_data: answer.clone() });
        let failed = session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        let Event::ConnectFailed { error, private_data, .. } = failed else { unreachable!() };
        assert_eq!(error, ConnectError::Rejected);
        assert_eq!(private_data, answer);
        // The next one is welcome.
        session.connect();
        session.sides[1].disconnect();
        assert_eq!(session.ends(), [DisconnectReason::Peer, DisconnectReason::Local]);
        session.assert_nothing_left();
    });
}

#[test]
fn a_stream_that_is_up_cannot_be_rejected() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        let qp = session.sides[1].qp.unwrap();
        session.sides[1].receive(1, 0, 10);
        session.sides[1].submit(Command::Reject { qp, private_data: Vec::new() });
        session.world.pass(Duration::from_millis(1));
        session.sides[0].send(1, 0, 10);
        session.run(Duration::from_secs(1), |sides| !sides[1].completions.is_empty()).unwrap();
        session.sides[0].disconnect();
        assert_eq!(session.ends(), [DisconnectReason::Local, DisconnectReason::Peer]);
        session.sides[0].take_sends();
        session.sides[1].take_receives();
        session.assert_nothing_left();
    });
}

#[test]
fn a_decision_that_never_comes_is_made_by_the_clock() {
    with_seeds(5, |seed| {
        let mut session = listening(seed);
        session.open(b"");
        let (qp, _) = session.request();
        let begin = session.world.now();
        let failed = session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        assert!(matches!(
            failed,
            Event::ConnectFailed { error: ConnectError::TimedOut | ConnectError::ClosedByPeer, .. }
        ));
        let waited = session.world.now() - begin;
        let limit = WorkerConfig::default().limits.startup_timeout;
        assert!(waited <= limit + Duration::from_millis(1), "{waited:?}");
        let ended = session.event(1, |event| matches!(event, Event::Disconnected { .. }));
        assert!(matches!(ended, Event::Disconnected { qp: ended, .. } if ended == qp));
        // Too late now.
        let attributes = QueuePairAttributes::default();
        session.sides[1].submit(Command::Accept {
            qp,
            private_data: Vec::new(),
            attributes,
            receives: Vec::new(),
        });
        session.assert_nothing_left();
    });
}
