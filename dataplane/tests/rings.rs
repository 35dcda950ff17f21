//! Applications behind rings: rings that run full all the time, and applications that go away.

use std::net::SocketAddr;
use std::time::Duration;

use dataplane::mem::{AccessRights, MemoryRegion};
use dataplane::sim::{Conversation, SESSION_PORT, Session, Setup, Side, World, with_seeds};
use dataplane::verbs::{Command, DisconnectReason, Event, QueuePairAttributes, Token, Verbs, VerbsError};
use iwarp::mpa::Profile;
use iwarp::work::{ReceiveRequest, SendOperation, SendRequest, Status};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcpstack::sim::{Chance, Faults};

fn link() -> Faults {
    Faults::link(Duration::from_micros(5), 10_000_000_000)
}

#[test]
fn short_rings_that_are_looked_at_now_and_then() {
    with_seeds(60, |seed| {
        let depth = 1 + usize::try_from(seed).unwrap() % 5;
        let period = Duration::from_nanos(200 + seed.wrapping_mul(7919) % 20_000);
        let faults = Faults { loss: Chance::percent(u32::try_from(seed % 3).unwrap()), ..link() };
        Conversation::hold(seed, &Setup { rings: Some((depth, period)), ..Setup::new(faults) });
    });
}

#[test]
fn several_applications_with_short_rings() {
    with_seeds(5, |seed| {
        let rings = Some((2, Duration::from_micros(3)));
        Conversation::hold(seed, &Setup { rings, pairs: 10, operations: 20, ..Setup::new(link()) });
    });
}

/// Who posts and never looks for completions finds the ring full at last; nothing piles up elsewhere.
// proves 5042-6.4.3.2-2
#[test]
fn an_application_that_takes_no_completions_is_stopped() {
    with_seeds(3, |seed| {
        let mut session = Session::connected(seed);
        let depth = u64::from(QueuePairAttributes::default().send_depth);
        let (qp, peer) = (session.sides[0].qp.unwrap(), session.sides[1].stag);
        let sg_list = session.sides[0].sg_list(0, 10);
        let mut client = session.sides[0].client.take().unwrap();
        let mut posted = 0;
        for _ in 0..100 {
            loop {
                let operation = SendOperation::Write { stag: peer, offset: 0 };
                let sg_list = sg_list.clone();
                let request = SendRequest { id: posted, operation, sg_list, signaled: true, fence: false };
                match client.post_send(qp, request) {
                    Ok(()) => posted += 1,
                    Err(error) => {
                        assert_eq!(error, VerbsError::RingFull);
                        break;
                    }
                }
            }
            session.world.pass(Duration::from_micros(100));
        }
        // Both rings, and what the queue pair holds.
        assert!(posted <= 2 * 1024 + depth + 1, "{posted} requests were taken");
        session.sides[0].client = Some(client);
        let count = usize::try_from(posted).unwrap();
        session.run(Duration::from_secs(1), |sides| sides[0].completions.len() == count).unwrap();
        let sent = session.sides[0].take_sends();
        assert_eq!(sent, (0..posted).map(|id| (id, Status::Success)).collect::<Vec<_>>());
        session.sides[0].disconnect();
        session.ends();
        session.assert_nothing_left();
    });
}

/// More is posted than the queue pair holds: the ring waits, and an abort still comes through.
#[test]
fn an_abort_does_not_wait_behind_work() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        for port in [0, 1] {
            session.world.wire().set_link(port, false);
        }
        let peer = session.sides[1].stag;
        for id in 0..500 {
            session.sides[0].post(id, SendOperation::Read { stag: peer, offset: 0 }, 0, 100);
        }
        session.sides[0].disconnect();
        session.world.pass(Duration::from_micros(10));
        session.sides[0].abort();
        let ended = |sides: &mut [Side; 2]| sides[0].ended.is_some();
        session.run(Duration::from_micros(10), ended).unwrap();
        assert_eq!(session.sides[0].ended, Some(DisconnectReason::Local));
        // Those that the queue pair had, before its end; then those that it never got.
        session.sides[0].ended = None;
        let all = |sides: &mut [Side; 2]| sides[0].completions.len() == 500;
        session.run(Duration::from_micros(100), all).unwrap();
        let sent = session.sides[0].take_sends();
        assert_eq!(sent, (0..500).map(|id| (id, Status::Flushed)).collect::<Vec<_>>());
        session.sides[1].abort();
        session.assert_nothing_left();
    });
}

#[test]
fn an_application_is_killed_amid_traffic() {
    with_seeds(60, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |bound: u32| random.next_u32() % bound;
        let mut session = Session::connected(seed);
        let victim = usize::try_from(seed % 2).unwrap();
        let other = 1 - victim;
        let stags = [0, 1].map(|side| session.sides[side].stag);
        for side in [0, 1] {
            for id in 0..10 {
                session.sides[side].receive(id, 100_000, 5000);
            }
            for id in 0..u64::from(below(50)) {
                let operation = match below(3) {
                    0 => SendOperation::Write { stag: stags[1 - side], offset: 200_000 },
                    1 => SendOperation::Read { stag: stags[1 - side], offset: 0 },
                    _ if id < 10 => SendOperation::Send { invalidate: None, solicited: false },
                    _ => SendOperation::Write { stag: stags[1 - side], offset: 210_000 },
                };
                session.sides[side].post(id, operation, 150_000, below(5000));
            }
        }
        session.world.pass(Duration::from_nanos(u64::from(below(100_000))));
        session.kill(victim);
        session.run(Duration::from_secs(1), |sides| sides[other].ended.is_some()).unwrap();
        assert_eq!(session.sides[other].ended, Some(DisconnectReason::Reset));
        assert_eq!(session.world.host(victim).connection_count(), 0);
        assert_eq!(session.world.host(victim).registration_count(), 0, "its memory is let go");
        assert_eq!(session.world.host(other).registration_count(), 1);

        // The worker goes on, for the next application: the same port, if it was the listener.
        let host = victim;
        let client = session.world.host(host).client(64);
        session.sides[victim].client = Some(client);
        session.sides[victim].events.clear();
        session.sides[0].take_sends();
        session.sides[0].take_receives();
        session.sides[1].take_sends();
        session.sides[1].take_receives();
        let domain = QueuePairAttributes::default().domain;
        let region = MemoryRegion::whole(&session.sides[victim].buffer);
        session.sides[victim].stag = session.register(victim, domain, region, AccessRights::REMOTE);
        if victim == 1 {
            let local = SocketAddr::new(World::ipv4(1), SESSION_PORT);
            let (token, profile) = (Token(1), Profile::default());
            session.sides[1].submit(Command::Listen { token, local, profile, backlog: 4 });
            session.event(1, |event| matches!(event, Event::Listening { .. }));
        }
        session.connect();
        session.sides[0].disconnect();
        assert_eq!(session.ends(), [DisconnectReason::Local, DisconnectReason::Peer]);
        session.assert_nothing_left();
    });
}

#[test]
fn an_application_is_killed_with_commands_in_its_ring() {
    with_seeds(10, |seed| {
        let mut session = Session::connected(seed);
        for index in 0..300u16 {
            let local = SocketAddr::new(World::ipv4(1), 10_000 + index);
            let (token, profile) = (Token(1), Profile::default());
            session.sides[1].submit(Command::Listen { token, local, profile, backlog: 4 });
            let domain = QueuePairAttributes::default().domain;
            let (region, rights) = (MemoryRegion::whole(&session.sides[1].buffer), AccessRights::REMOTE);
            session.sides[1].submit(Command::Register { token, domain, region, rights });
        }
        let qp = session.sides[1].qp.unwrap();
        let request = ReceiveRequest { id: 0, sg_list: session.sides[1].sg_list(0, 1) };
        let client = session.sides[1].client.as_mut().unwrap();
        while client.post_receive(qp, request.clone()).is_ok() {}
        session.kill(1);
        assert_eq!(session.world.host(1).registration_count(), 0);
        session.run(Duration::from_secs(1), |sides| sides[0].ended.is_some()).unwrap();
        // Its listeners are gone, those that were in the ring too.
        session.open(b"");
        session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        session.assert_nothing_left();
    });
}
