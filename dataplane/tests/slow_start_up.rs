//! Peers that begin MPA's start-up and do not get on with it: their time is limited from the beginning,
//! however busy they look.

use std::net::SocketAddr;
use std::time::Duration;

use dataplane::sim::{Ending, SESSION_PORT, Script, Session, Stranger, World, with_seeds};
use dataplane::verbs::{Command, ConnectError, Event, QueuePairAttributes, Token};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::{Initiator, Profile};
use tcpstack::sim::Faults;
use tcpstack::stack::CloseReason;
use tcpstack::time::Instant;

const LIMIT: Duration = Duration::from_secs(3);

fn listening(seed: u64) -> Session {
    let link = Faults::link(Duration::from_micros(5), 10_000_000_000);
    let mut config = WorkerConfig::default();
    config.limits.startup_timeout = LIMIT;
    Session::listening(seed, link, &config, &Profile::default())
}

/// Lets the stranger send these parts, and asserts that it is thrown out in time.
fn thrown_out(seed: u64, parts: Vec<Vec<u8>>, gap: Duration) {
    let mut session = listening(seed);
    let (mut stranger, log) = Stranger::new(&session.world, seed);
    let script = Script { parts, gap, ending: Ending::Silence };
    let now = session.world.now();
    stranger.connect(SocketAddr::new(World::ipv4(1), SESSION_PORT), script, now);
    session.world.add_actor(Box::new(stranger));
    session.world.pass(Duration::from_millis(1));
    assert_eq!(session.world.host(1).connection_count(), 1);
    let ended = || !log.borrow().closed.is_empty();
    session.world.run(LIMIT + Duration::from_millis(1), ended).unwrap();
    let (at, reason) = log.borrow().closed[0];
    assert_eq!(reason, CloseReason::Reset);
    assert!(at - now >= LIMIT && at - now <= LIMIT + Duration::from_millis(1), "{:?}", at - now);
    assert_eq!(session.world.host(1).counters().mpa_startups_failed, 1);
    session.sides[1].poll();
    assert!(session.sides[1].events.is_empty(), "the application never heard of it");
    session.assert_nothing_left();
}

fn request() -> Vec<u8> {
    Initiator::start(Profile::default(), b"some private data").unwrap().1
}

// proves 5044-7.1.2-17, 5044-7.1.2-21
#[test]
fn half_a_request_and_then_silence() {
    let request = request();
    with_seeds(request.len() as u64, |seed| {
        let half = request[..usize::try_from(seed).unwrap()].to_vec();
        thrown_out(seed, vec![half], Duration::ZERO);
    });
}

// proves 5044-7.1.2-21
#[test]
fn an_octet_now_and_then() {
    with_seeds(3, |seed| {
        let octets = request().iter().map(|&octet| vec![octet]).collect();
        thrown_out(seed, octets, Duration::from_millis(200));
    });
}

#[test]
fn an_octet_now_and_then_is_fine_while_there_is_time() {
    with_seeds(3, |seed| {
        let mut session = listening(seed);
        let (mut stranger, _) = Stranger::new(&session.world, seed);
        let parts = request().iter().map(|&octet| vec![octet]).collect();
        let script = Script { parts, gap: Duration::from_millis(20), ending: Ending::Abort };
        let now = session.world.now();
        stranger.connect(SocketAddr::new(World::ipv4(1), SESSION_PORT), script, now);
        session.world.add_actor(Box::new(stranger));
        let (_, private_data) = session.request();
        assert_eq!(private_data, b"some private data");
        session.event(1, |event| matches!(event, Event::Disconnected { .. }));
        session.assert_nothing_left();
    });
}

#[test]
fn half_a_reply_and_then_silence() {
    with_seeds(20, |seed| {
        let mut session = listening(seed);
        let (mut stranger, _) = Stranger::new(&session.world, seed);
        let reply = b"MPA ID Rep Frame\x40\x02\x00\x04\x00\x00\x00\x00";
        let parts = vec![reply[..usize::try_from(seed).unwrap()].to_vec()];
        let script = Script { parts, gap: Duration::ZERO, ending: Ending::Silence };
        stranger.listen(7000, vec![script]);
        session.world.add_actor(Box::new(stranger));
        let begin: Instant = session.world.now();
        session.sides[0].submit(Command::Connect {
            token: Token(2),
            remote: SocketAddr::new(World::ipv4(2), 7000),
            profile: Profile::default(),
            private_data: Vec::new(),
            attributes: QueuePairAttributes::default(),
            receives: Vec::new(),
        });
        let failed = session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        assert!(matches!(failed, Event::ConnectFailed { error: ConnectError::TimedOut, .. }), "{failed:?}");
        let took = session.world.now() - begin;
        assert!(took >= LIMIT && took <= LIMIT + Duration::from_millis(1), "{took:?}");
        session.assert_nothing_left();
    });
}

// proves 5044-8-5
#[test]
fn what_is_no_request_is_thrown_out_at_once() {
    with_seeds(3, |seed| {
        let mut session = listening(seed);
        let (mut stranger, log) = Stranger::new(&session.world, seed);
        let script =
            Script { parts: vec![b"GET / HTTP/1.1".to_vec()], gap: Duration::ZERO, ending: Ending::Silence };
        let now = session.world.now();
        stranger.connect(SocketAddr::new(World::ipv4(1), SESSION_PORT), script, now);
        session.world.add_actor(Box::new(stranger));
        let ended = || !log.borrow().closed.is_empty();
        session.world.run(Duration::from_millis(10), ended).unwrap();
        assert_eq!(log.borrow().closed[0].1, CloseReason::Reset);
        assert_eq!(session.world.host(1).counters().mpa_startups_failed, 1);
        session.assert_nothing_left();
    });
}
