//! One connection whose two applications are the test itself, request by request.

use std::net::SocketAddr;
use std::time::Duration;

use iwarp::mpa::Profile;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{Completion, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};
use tcpstack::sim::Faults;

use super::{Stalled, World};
use crate::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use crate::rings::Client;
use crate::verbs::{
    Command, DisconnectReason, Event, ListenerId, QueuePairAttributes, QueuePairId, Token, Verbs,
};
use crate::worker::WorkerConfig;

/// The TCP port that side 1 listens on.
pub const SESSION_PORT: u16 = 4791;

/// Octets of each side's buffer.
pub const SESSION_BUFFER_LEN: usize = 256 << 10;

/// Messages that a side's rings hold.
const RING_DEPTH: usize = 1024;

/// Longest wait for what is expected to happen soon.
const PATIENCE: Duration = Duration::from_secs(30);

/// One side: an application behind rings, its memory, and what it was told so far.
pub struct Side {
    /// Its rings; none once it went away.
    pub client: Option<Client>,
    /// Its memory.
    pub buffer: Buffer,
    /// Names the whole buffer, which the peer may read and write.
    pub stag: Stag,
    /// Its queue pair, the latest.
    pub qp: Option<QueuePairId>,
    /// Completions not yet looked at, in order.
    pub completions: Vec<Completion>,
    /// Events not yet looked at, in order.
    pub events: Vec<Event>,
    /// How the Stream ended.
    pub ended: Option<DisconnectReason>,
}

/// Two sides and the world that they are in.
pub struct Session {
    /// The world.
    pub world: World,
    /// The sides: 0 connects to 1.
    pub sides: [Side; 2],
    /// Side 1's listener.
    pub listener: ListenerId,
}

impl Side {
    fn new(world: &mut World, host: usize) -> Self {
        let buffer = Buffer::allocate(SESSION_BUFFER_LEN, HugePages::Never).expect("memory for a simulation");
        Self {
            client: Some(world.host(host).client(RING_DEPTH)),
            buffer,
            stag: Stag(0),
            qp: None,
            completions: Vec::new(),
            events: Vec::new(),
            ended: None,
        }
    }

    /// Takes what came through the rings. True when there was something.
    pub fn poll(&mut self) -> bool {
        let before = (self.completions.len(), self.events.len());
        let Some(client) = &mut self.client else { return false };
        while let Some(completed) = client.next_completion() {
            assert_eq!(self.ended, None, "nothing completes after the end");
            self.completions.push(completed.completion);
        }
        while let Some(event) = client.next_event() {
            match &event {
                Event::Established { qp, .. } => self.qp = Some(*qp),
                Event::Disconnected { qp, reason } if self.qp == Some(*qp) => self.ended = Some(*reason),
                _ => {}
            }
            self.events.push(event);
        }
        before != (self.completions.len(), self.events.len())
    }

    /// The first event that `is` what is looked for, taken out.
    pub fn take_event(&mut self, is: impl Fn(&Event) -> bool) -> Option<Event> {
        let at = self.events.iter().position(is)?;
        Some(self.events.remove(at))
    }

    /// Hands a command to the worker.
    ///
    /// # Panics
    /// When the application went away or its ring is full.
    pub fn submit(&mut self, command: Command) {
        self.client.as_mut().expect("the application is there").submit(command).expect("a long ring");
    }

    /// Ends the Stream in order.
    ///
    /// # Panics
    /// When there is none.
    pub fn disconnect(&mut self) {
        let qp = self.qp.expect("connected");
        self.submit(Command::Disconnect { qp });
    }

    /// Ends the Stream at once.
    ///
    /// # Panics
    /// When there is none.
    pub fn abort(&mut self) {
        let qp = self.qp.expect("connected");
        self.submit(Command::Abort { qp });
    }

    /// Posts a Send, Write or Read whose local octets are in the side's buffer.
    ///
    /// # Panics
    /// When there is no Stream or the ring is full.
    pub fn post(&mut self, id: u64, operation: SendOperation, offset: u64, len: u32) {
        let sg_list = self.sg_list(offset, len);
        let request = SendRequest { id, operation, sg_list, signaled: true, fence: false };
        let qp = self.qp.expect("connected");
        self.client.as_mut().expect("the application is there").post_send(qp, request).expect("a long ring");
    }

    /// Posts a Send.
    pub fn send(&mut self, id: u64, offset: u64, len: u32) {
        self.post(id, SendOperation::Send { invalidate: None, solicited: false }, offset, len);
    }

    /// Posts a buffer for one Send of the peer.
    ///
    /// # Panics
    /// When there is no Stream or the ring is full.
    pub fn receive(&mut self, id: u64, offset: u64, len: u32) {
        let request = ReceiveRequest { id, sg_list: self.sg_list(offset, len) };
        let qp = self.qp.expect("connected");
        self.client
            .as_mut()
            .expect("the application is there")
            .post_receive(qp, request)
            .expect("a long ring");
    }

    /// Octets of the side's buffer, by its own STag.
    pub fn sg_list(&self, offset: u64, len: u32) -> SgList {
        SgList::from_iter([Sge { stag: self.stag, offset, len }])
    }

    /// The octets of the side's buffer.
    ///
    /// # Panics
    /// When they are beyond its end.
    pub fn octets(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.buffer.read(offset, &mut octets).expect("within the buffer");
        octets
    }

    /// Ids and statuses of the completed Sends, Writes and Reads, taken out.
    pub fn take_sends(&mut self) -> Vec<(u64, Status)> {
        self.take_completions(|it| !is_receive(it))
    }

    /// Ids and statuses of the completed receives, taken out.
    pub fn take_receives(&mut self) -> Vec<(u64, Status)> {
        self.take_completions(is_receive)
    }

    fn take_completions(&mut self, is: impl Fn(&Completion) -> bool) -> Vec<(u64, Status)> {
        let taken = self.completions.iter().filter(|it| is(it)).map(|it| (it.id, it.status)).collect();
        self.completions.retain(|it| !is(it));
        taken
    }
}

fn is_receive(completion: &Completion) -> bool {
    completion.operation.is_receive()
}

impl Session {
    /// A world in which both sides have registered their buffers, side 0's filled with 0x50 and side
    /// 1's with 0x51, and side 1 listens with `profile`.
    ///
    /// # Panics
    /// When that does not succeed.
    pub fn listening(seed: u64, faults: Faults, config: &WorkerConfig, profile: &Profile) -> Self {
        let mut world = World::new(seed, faults, config);
        let sides = [Side::new(&mut world, 0), Side::new(&mut world, 1)];
        let mut session = Self { world, sides, listener: ListenerId(u32::MAX) };
        for (index, octet) in [(0, 0x50), (1, 0x51)] {
            session.sides[index].buffer.fill(0, SESSION_BUFFER_LEN, octet).expect("all of the buffer");
            let domain = QueuePairAttributes::default().domain;
            let region = MemoryRegion::whole(&session.sides[index].buffer);
            session.sides[index].stag = session.register(index, domain, region, AccessRights::REMOTE);
        }
        let local = SocketAddr::new(World::ipv4(1), SESSION_PORT);
        let (token, profile) = (Token(1), profile.clone());
        session.sides[1].submit(Command::Listen { token, local, profile, backlog: 16 });
        let event = session.event(1, |event| matches!(event, Event::Listening { .. }));
        if let Event::Listening { listener, .. } = event {
            session.listener = listener;
        }
        session
    }

    /// The same with a connection, on a wire without faults.
    ///
    /// # Panics
    /// When that does not succeed.
    pub fn connected(seed: u64) -> Self {
        let link = Faults::link(Duration::from_micros(5), 10_000_000_000);
        let mut session = Self::listening(seed, link, &WorkerConfig::default(), &Profile::default());
        session.connect();
        session
    }

    /// Begins a connection from side 0 to side 1.
    pub fn open(&mut self, private_data: &[u8]) {
        self.sides[0].ended = None;
        self.sides[1].ended = None;
        self.sides[0].submit(Command::Connect {
            token: Token(2),
            remote: SocketAddr::new(World::ipv4(1), SESSION_PORT),
            profile: Profile::default(),
            private_data: private_data.to_vec(),
            attributes: QueuePairAttributes::default(),
            receives: Vec::new(),
        });
    }

    /// Waits until side 1 is asked; its queue pair and the private data.
    ///
    /// # Panics
    /// When it is not asked.
    pub fn request(&mut self) -> (QueuePairId, Vec<u8>) {
        match self.event(1, |event| matches!(event, Event::ConnectRequest { .. })) {
            Event::ConnectRequest { qp, private_data, .. } => (qp, private_data),
            other => panic!("{other:?} is not what was looked for"),
        }
    }

    /// Connects side 0 to side 1.
    ///
    /// # Panics
    /// When that does not succeed.
    pub fn connect(&mut self) {
        self.open(b"");
        let (qp, _) = self.request();
        let attributes = QueuePairAttributes::default();
        self.sides[1].submit(Command::Accept {
            qp,
            private_data: Vec::new(),
            attributes,
            receives: Vec::new(),
        });
        for side in [0, 1] {
            self.event(side, |event| matches!(event, Event::Established { .. }));
        }
    }

    /// Registers memory for a side.
    ///
    /// # Panics
    /// When that does not succeed.
    pub fn register(
        &mut self,
        side: usize,
        domain: ProtectionDomain,
        region: MemoryRegion,
        rights: AccessRights,
    ) -> Stag {
        self.sides[side].submit(Command::Register { token: Token(0), domain, region, rights });
        match self.event(side, |event| matches!(event, Event::Registered { .. })) {
            Event::Registered { stag, .. } => stag,
            other => panic!("{other:?} is not what was looked for"),
        }
    }

    /// Lets a side's application go away, as if it was killed.
    pub fn kill(&mut self, side: usize) {
        self.sides[side].client = None;
        self.world.poll_idly();
    }

    /// Runs until a side is told of an event.
    ///
    /// # Panics
    /// When it is not.
    pub fn event(&mut self, side: usize, is: impl Fn(&Event) -> bool) -> Event {
        let mut found = None;
        let result = self.run(PATIENCE, |sides| {
            found = sides[side].take_event(&is);
            found.is_some()
        });
        let events = &self.sides[side].events;
        found.unwrap_or_else(|| panic!("side {side} was not told: {result:?}, {events:?}"))
    }

    /// Runs until `done` or until `span` has passed.
    ///
    /// # Errors
    /// When `done` did not come true.
    pub fn run(
        &mut self,
        span: Duration,
        mut done: impl FnMut(&mut [Side; 2]) -> bool,
    ) -> Result<(), Stalled> {
        let sides = &mut self.sides;
        let end = self.world.now() + span;
        loop {
            let mut took = false;
            let result = self.world.run(end.saturating_since(self.world.now()), || {
                took = sides.iter_mut().fold(false, |took, side| took | side.poll());
                done(sides)
            });
            // Rings that are empty again can make a worker go on.
            if result.is_ok() || !took {
                return result;
            }
        }
    }

    /// Runs until both sides know of the end, and returns what they were told.
    ///
    /// # Panics
    /// When one is not told.
    pub fn ends(&mut self) -> [DisconnectReason; 2] {
        let result = self.run(PATIENCE, |sides| sides.iter().all(|side| side.ended.is_some()));
        self.sides.each_ref().map(|side| side.ended.unwrap_or_else(|| panic!("no end: {result:?}")))
    }

    /// Asserts that nothing is left but side 1's listener and the registrations.
    ///
    /// # Panics
    /// When something is left.
    pub fn assert_nothing_left(mut self) {
        self.world.assert_nothing_left();
        for side in &mut self.sides {
            side.poll();
            assert_eq!(side.completions, [], "completions that nobody expected");
        }
    }
}
