//! Connecting and disconnecting, with traffic, five hundred times: nothing is left of it.

use std::time::Duration;

use dataplane::mem::{AccessRights, MemoryRegion};
use dataplane::sim::{Session, Side, with_seeds};
use dataplane::verbs::{Command, DisconnectReason, Event, QueuePairAttributes, Token};
use iwarp::work::{SendOperation, Status};

const ROUNDS: u64 = 500;

#[test]
fn five_hundred_connections() {
    with_seeds(1, |seed| {
        let mut session = Session::connected(seed);
        session.sides[0].abort();
        session.ends();
        let registrations = [0, 1].map(|host| session.world.host(host).registration_count());
        assert_eq!(registrations, [1, 1]);
        for round in 0..ROUNDS {
            session.connect();
            let domain = QueuePairAttributes::default().domain;
            let region = MemoryRegion::whole(&session.sides[1].buffer);
            let stag = session.register(1, domain, region, AccessRights::REMOTE);
            session.sides[1].receive(round, 100_000, 3000);
            session.sides[1].receive(round + 1, 100_000, 3000);
            session.sides[0].receive(round, 100_000, 3000);
            session.world.pass(Duration::from_micros(1));
            session.sides[0].post(1, SendOperation::Write { stag, offset: 0 }, 0, 5000);
            session.sides[0].post(2, SendOperation::Read { stag, offset: 0 }, 50_000, 5000);
            session.sides[0].send(3, 0, 3000);
            let done =
                |sides: &mut [Side; 2]| sides[0].completions.len() == 3 && !sides[1].completions.is_empty();
            session.run(Duration::from_secs(1), done).unwrap();
            session.sides[1].submit(Command::Deregister { token: Token(1), stag });
            // Every way to end it, from either side.
            let (closer, other) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
            let abort = round % 4 >= 2;
            if abort {
                session.sides[closer].abort();
            } else {
                session.sides[closer].disconnect();
            }
            let ends = session.ends();
            assert_eq!(ends[closer], DisconnectReason::Local);
            let expected = if abort { DisconnectReason::Reset } else { DisconnectReason::Peer };
            assert_eq!(ends[other], expected);
            let done = Status::Success;
            assert_eq!(session.sides[0].take_sends(), [(1, done), (2, done), (3, done)]);
            assert_eq!(session.sides[0].take_receives(), [(round, Status::Flushed)]);
            assert_eq!(session.sides[1].take_receives(), [(round, done), (round + 1, Status::Flushed)]);
            session.event(1, |event| matches!(event, Event::Deregistered { found: true, .. }));
        }
        let registrations = [0, 1].map(|host| session.world.host(host).registration_count());
        assert_eq!(registrations, [1, 1]);
        let established = session.world.host(0).counters().streams_established;
        assert_eq!(established, ROUNDS + 1);
        session.assert_nothing_left();
    });
}
