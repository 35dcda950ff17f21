//! Memory is withdrawn while the peer writes to it or reads from it: not an octet of it is touched
//! after `Deregistered`, and the Stream ends with the prescribed Terminate.

use std::time::Duration;

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::sim::{Session, with_seeds};
use dataplane::verbs::{Command, DisconnectReason, Event, QueuePairAttributes, Token};
use iwarp::error::{DdpError, LocalError, RdmapError, StreamError};
use iwarp::memory::AccessError;
use iwarp::types::Stag;
use iwarp::wire::terminate::{RemoteProtection, TaggedBuffer, TerminateCode};
use iwarp::work::{SendOperation, Status};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Octets of the memory that is withdrawn.
const LEN: usize = 64 << 10;

/// Requests; together they take far longer than the withdrawal.
const REQUESTS: u64 = 100;

/// What the memory that is withdrawn holds at first.
const BEFORE: u8 = 0x11;

/// What the application puts there afterwards.
const AFTER: u8 = 0x22;

/// A session, and memory of `side`'s that is about to be withdrawn.
struct Scene {
    session: Session,
    side: usize,
    buffer: Buffer,
    stag: Stag,
    delay: Duration,
}

impl Scene {
    fn new(seed: u64, side: usize) -> Self {
        let mut session = Session::connected(seed);
        let buffer = Buffer::allocate(LEN, HugePages::Never).unwrap();
        buffer.fill(0, LEN, BEFORE).unwrap();
        let domain = QueuePairAttributes::default().domain;
        let region = MemoryRegion::whole(&buffer);
        let stag = session.register(side, domain, region, AccessRights::REMOTE);
        let random = ChaCha8Rng::seed_from_u64(seed).next_u64();
        Self { session, side, buffer, stag, delay: Duration::from_nanos(random % 120_000) }
    }

    /// Lets time pass, withdraws the memory and changes it.
    fn withdraw(&mut self) {
        self.session.world.pass(self.delay);
        self.session.sides[self.side].submit(Command::Deregister { token: Token(9), stag: self.stag });
        let event = self.session.event(self.side, |event| matches!(event, Event::Deregistered { .. }));
        assert!(matches!(event, Event::Deregistered { found: true, token: Token(9) }));
        self.buffer.fill(0, LEN, AFTER).unwrap();
    }

    /// Both ends, and that the withdrawn memory is as the application left it.
    fn ends(&mut self) -> [DisconnectReason; 2] {
        let ends = self.session.ends();
        let mut octets = vec![0; LEN];
        self.buffer.read(0, &mut octets).unwrap();
        assert!(octets.iter().all(|&octet| octet == AFTER), "placed after Deregistered");
        ends
    }
}

/// All requests of a side, each once and in order, first those that were done.
fn assert_in_order(sent: &[(u64, Status)]) {
    let ids: Vec<_> = sent.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, (0..REQUESTS).collect::<Vec<_>>());
    assert!(sent.is_sorted_by_key(|(_, status)| *status != Status::Success), "{sent:?}");
}

// proves 5041-8.3-2, 5041-8.3.1-6, 5041-8.3.1-7, 5042-6.2.2-2
#[test]
fn of_the_sink_of_the_peers_writes() {
    with_seeds(60, |seed| {
        let mut scene = Scene::new(seed, 1);
        for id in 0..REQUESTS {
            let write = SendOperation::Write { stag: scene.stag, offset: id % 7 * 8192 };
            scene.session.sides[0].post(id, write, 0, 8192);
        }
        scene.withdraw();
        assert_eq!(
            scene.ends(),
            [
                DisconnectReason::Terminated(TerminateCode::Tagged(TaggedBuffer::InvalidStag)),
                DisconnectReason::Error(StreamError::Ddp(DdpError::Tagged(AccessError::InvalidStag))),
            ]
        );
        assert_in_order(&scene.session.sides[0].take_sends());
        scene.session.assert_nothing_left();
    });
}

// proves 5041-8.3.1-6
#[test]
fn of_the_source_of_the_peers_reads() {
    with_seeds(60, |seed| {
        let mut scene = Scene::new(seed, 1);
        for id in 0..REQUESTS {
            let read = SendOperation::Read { stag: scene.stag, offset: id % 7 * 8192 };
            scene.session.sides[0].post(id, read, id * 2000, 2000);
        }
        scene.withdraw();
        assert_eq!(
            scene.ends(),
            [
                DisconnectReason::Terminated(TerminateCode::RemoteProtection(RemoteProtection::InvalidStag)),
                DisconnectReason::Error(StreamError::Rdmap(RdmapError::ReadSource(AccessError::InvalidStag))),
            ]
        );
        let reader = &mut scene.session.sides[0];
        assert!(reader.octets(0, 200_000).iter().all(|&octet| octet != AFTER), "read after Deregistered");
        let sent = reader.take_sends();
        assert_in_order(&sent);
        for (id, status) in &sent {
            if *status == Status::Success {
                let octets = reader.octets(usize::try_from(*id).unwrap() * 2000, 2000);
                assert!(octets.iter().all(|&octet| octet == BEFORE), "Read {id} is not whole");
            }
        }
        // The Terminate shows which Read was refused.
        let refused = sent.iter().find(|(_, status)| *status != Status::Success);
        assert_eq!(refused.map(|(_, status)| *status), Some(Status::RemoteError));
        scene.session.assert_nothing_left();
    });
}

#[test]
fn of_the_sink_of_own_reads() {
    with_seeds(60, |seed| {
        let mut scene = Scene::new(seed, 0);
        let (own, peer) = (scene.stag, scene.session.sides[1].stag);
        let whole = std::mem::replace(&mut scene.session.sides[0].stag, own);
        for id in 0..REQUESTS {
            let read = SendOperation::Read { stag: peer, offset: id * 2000 };
            scene.session.sides[0].post(id, read, id % 7 * 8192, 8192);
        }
        scene.session.sides[0].stag = whole;
        scene.withdraw();
        let ends = scene.ends();
        let invalid = TerminateCode::Tagged(TaggedBuffer::InvalidStag);
        match ends {
            // A Response arrived for memory that was gone.
            [DisconnectReason::Error(error), DisconnectReason::Terminated(code)] if code == invalid => {
                assert_eq!(error, StreamError::Ddp(DdpError::Tagged(AccessError::InvalidStag)));
            }
            // The next Read was not even sent.
            [
                DisconnectReason::Error(error),
                DisconnectReason::Terminated(TerminateCode::LocalCatastrophic),
            ] => {
                let refused = LocalError::RequestBuffer(AccessError::InvalidStag);
                assert_eq!(error, StreamError::Local(refused));
            }
            other => panic!("{other:?}"),
        }
        let sent = scene.session.sides[0].take_sends();
        assert_in_order(&sent);
        assert!(sent.iter().any(|(_, status)| *status == Status::LocalAccess), "{sent:?}");
        scene.session.assert_nothing_left();
    });
}

#[test]
fn of_the_source_of_own_writes() {
    with_seeds(60, |seed| {
        let mut scene = Scene::new(seed, 0);
        let (own, peer) = (scene.stag, scene.session.sides[1].stag);
        let whole = std::mem::replace(&mut scene.session.sides[0].stag, own);
        for id in 0..REQUESTS {
            let write = SendOperation::Write { stag: peer, offset: id * 2000 };
            scene.session.sides[0].post(id, write, id % 7 * 8192, 8192);
        }
        scene.session.sides[0].stag = whole;
        scene.withdraw();
        let refused = LocalError::RequestBuffer(AccessError::InvalidStag);
        assert_eq!(
            scene.ends(),
            [
                DisconnectReason::Error(StreamError::Local(refused)),
                DisconnectReason::Terminated(TerminateCode::LocalCatastrophic),
            ]
        );
        let sink = scene.session.sides[1].octets(0, 256 << 10);
        assert!(sink.iter().all(|&octet| octet != AFTER), "sent after Deregistered");
        let sent = scene.session.sides[0].take_sends();
        assert_in_order(&sent);
        let failed = sent.iter().find(|(_, status)| *status != Status::Success);
        assert_eq!(failed.map(|(_, status)| *status), Some(Status::LocalAccess));
        scene.session.assert_nothing_left();
    });
}
