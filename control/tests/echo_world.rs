//! The echo service between two complete workers on a simulated wire, in MPA revision 1 and 2.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::services::echo::{EchoServer, MESSAGES_MAX, SIZE_MAX};
use control::services::server::ServerConfig;
use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::sim::World;
use dataplane::verbs::{
    Application, Command, DisconnectReason, Event, QueuePairAttributes, QueuePairId, Token, Verbs,
};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::{Profile, Revision};
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{CompletedOperation, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};
use tcpstack::sim::Faults;

const PORT: u16 = 7471;

/// Sends `total` messages, at most `window` at a time, and compares what comes back.
struct Caller {
    profile: Profile,
    buffer: Buffer,
    stag: Option<Stag>,
    qp: Option<QueuePairId>,
    window: u32,
    total: u32,
    len: u32,
    sent: u32,
    echoed: u32,
    end: Option<DisconnectReason>,
}

impl Caller {
    fn new(profile: Profile, window: u32, total: u32, len: u32) -> Self {
        let buffer = Buffer::allocate((2 * SLOT * window) as usize, HugePages::Never).unwrap();
        Self { profile, buffer, stag: None, qp: None, window, total, len, sent: 0, echoed: 0, end: None }
    }

    fn sg_list(&self, place: u32) -> SgList {
        let stag = self.stag.unwrap();
        SgList::from_iter([Sge { stag, offset: u64::from(place * SLOT), len: self.len }])
    }

    fn receive(&self, number: u32) -> ReceiveRequest {
        ReceiveRequest { id: number.into(), sg_list: self.sg_list(self.window + number % self.window) }
    }

    fn octets(&self, number: u32) -> Vec<u8> {
        (0..self.len).map(|index| (number * 31 + index).to_be_bytes()[3]).collect()
    }

    fn send(&mut self, verbs: &mut dyn Verbs) {
        let Some(qp) = self.qp else { return };
        while self.sent < self.total && self.sent < self.echoed + self.window {
            let place = self.sent % self.window;
            self.buffer.write((place * SLOT) as usize, &self.octets(self.sent)).unwrap();
            let request = SendRequest {
                id: self.sent.into(),
                operation: SendOperation::Send { invalidate: None, solicited: false },
                sg_list: self.sg_list(place),
                signaled: false,
                fence: false,
            };
            verbs.post_send(qp, request).unwrap();
            self.sent += 1;
        }
    }
}

/// Octets between two messages in the caller's buffer.
const SLOT: u32 = 8192;

impl Application for Caller {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        if self.stag.is_none() && self.end.is_none() {
            let region = MemoryRegion::whole(&self.buffer);
            let (domain, rights) = (ProtectionDomain::default(), AccessRights::LOCAL);
            verbs.submit(Command::Register { token: Token(1), domain, region, rights }).unwrap();
        }
        while let Some(it) = verbs.next_completion() {
            let CompletedOperation::Receive { .. } = it.completion.operation else { continue };
            if it.completion.status != Status::Success {
                continue;
            }
            assert_eq!(it.completion.id, u64::from(self.echoed), "in order");
            assert_eq!(it.completion.len, self.len);
            let mut octets = vec![0; self.len as usize];
            let place = self.window + self.echoed % self.window;
            self.buffer.read((place * SLOT) as usize, &mut octets).unwrap();
            assert_eq!(octets, self.octets(self.echoed));
            let again = self.receive(self.echoed + self.window);
            self.echoed += 1;
            verbs.post_receive(it.qp, again).unwrap();
            if self.echoed == self.total {
                verbs.submit(Command::Disconnect { qp: it.qp }).unwrap();
            }
        }
        while let Some(event) = verbs.next_event() {
            match event {
                Event::Registered { stag, .. } => {
                    self.stag = Some(stag);
                    let connect = Command::Connect {
                        token: Token(2),
                        remote: SocketAddr::new(World::ipv4(0), PORT),
                        profile: self.profile.clone(),
                        private_data: Vec::new(),
                        attributes: QueuePairAttributes::default(),
                        receives: (0..self.window).map(|number| self.receive(number)).collect(),
                    };
                    verbs.submit(connect).unwrap();
                }
                Event::Established { qp, .. } => self.qp = Some(qp),
                Event::Disconnected { reason, .. } => {
                    self.qp = None;
                    self.end = Some(reason);
                }
                other => panic!("{other:?}"),
            }
        }
        self.send(verbs);
        false
    }
}

/// Runs a caller against the service; how many messages came back, and how it ended.
fn call(caller: Caller) -> (u32, DisconnectReason) {
    let mut world = World::new(1, Faults::default(), &WorkerConfig::default());
    let local = SocketAddr::new("0.0.0.0".parse().unwrap(), PORT);
    let config = ServerConfig { local, profile: Profile::default(), max_connections: 1 };
    world.host(0).attach(Box::new(EchoServer::new(config)));

    struct Shared(Arc<Mutex<Caller>>);
    impl Application for Shared {
        fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
            self.0.lock().unwrap().poll(verbs)
        }
    }
    let caller = Arc::new(Mutex::new(caller));
    world.host(1).attach(Box::new(Shared(Arc::clone(&caller))));
    world.run(Duration::from_secs(10), || caller.lock().unwrap().end.is_some()).expect("it ends");
    let caller = caller.lock().unwrap();
    (caller.echoed, caller.end.unwrap())
}

#[test]
fn messages_come_back_in_both_revisions() {
    for revision in [Revision::V1, Revision::V2] {
        for (window, len) in [(1, 16), (MESSAGES_MAX, 16), (MESSAGES_MAX, SIZE_MAX), (3, 0)] {
            let profile = Profile { revision, ..Profile::default() };
            let ended = call(Caller::new(profile, window, 50, len));
            assert_eq!(ended, (50, DisconnectReason::Local), "{revision:?}, {window} times {len}");
        }
    }
}

#[test]
fn what_is_too_long_ends_the_connection() {
    let (echoed, reason) = call(Caller::new(Profile::default(), 1, 1, SIZE_MAX + 1));
    assert_eq!(echoed, 0);
    assert!(matches!(reason, DisconnectReason::Terminated(_)), "{reason}");
}
