//! Two hosts without a wire: `Verbs` that move the octets themselves, in random order across directions.
//!
//! Stands in for a worker in tests of applications. It is strict where the engine is: depths, rights and
//! bounds hold, and a Send that finds no receive ends the connection.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use dataplane::mem::{AccessRights, MemoryRegion};
use dataplane::verbs::{
    Command, CommandRingFull, ConnectError, DisconnectReason, Event, ListenerId, QueuePairAttributes,
    QueuePairCompletion, QueuePairId, Token, Verbs, VerbsError,
};
use iwarp::mpa::{Initiator, Negotiated, Profile, Responder};
use iwarp::types::Stag;
use iwarp::work::{
    CompletedOperation, Completion, PostError, ReceiveRequest, SendOperation, SendRequest, Sge, Status,
};
use tcpstack::time::Instant;

/// Both hosts; clone the handles from [`World::verbs`].
pub(crate) struct World {
    now: u64,
    hosts: [Host; 2],
    connections: Vec<Connection>,
    /// Of the pseudo-random order.
    seed: u64,
    /// Messages carried, of the test and beside it.
    carried: u64,
    /// What is to go wrong.
    pub(crate) fault: Fault,
}

/// What goes wrong in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// An octet of the first message from this side that has at least so many octets changes.
    Corrupt {
        side: usize,
        len: u32,
    },
    /// This message is never carried, nor any after it on its connection.
    Stop {
        at: u64,
    },
    /// The connection ends when this message is carried.
    Reset {
        at: u64,
    },
}

#[derive(Default)]
struct Host {
    regions: BTreeMap<Stag, (MemoryRegion, AccessRights)>,
    events: VecDeque<Event>,
    completions: VecDeque<QueuePairCompletion>,
    listening: bool,
    stags: u32,
}

struct Connection {
    token: Token,
    private_data: Vec<u8>,
    ends: [End; 2],
    state: ConnectionState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Requested,
    Up,
    Stuck,
    Gone,
}

#[derive(Default)]
struct End {
    attributes: QueuePairAttributes,
    sends: VecDeque<SendRequest>,
    receives: VecDeque<ReceiveRequest>,
}

pub(crate) struct MockVerbs {
    world: Rc<RefCell<World>>,
    side: usize,
}

impl World {
    /// Two hosts; the first connects, the second accepts.
    pub(crate) fn new(seed: u64) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            now: 0,
            hosts: Default::default(),
            connections: Vec::new(),
            seed: seed.wrapping_mul(2).wrapping_add(1),
            carried: 0,
            fault: Fault::None,
        }))
    }

    pub(crate) fn verbs(world: &Rc<RefCell<Self>>, side: usize) -> MockVerbs {
        MockVerbs { world: Rc::clone(world), side }
    }

    /// Lets time pass and carries some messages.
    pub(crate) fn step(&mut self, nanos: u64) {
        self.now += nanos;
        for _ in 0..self.random(40) {
            if self.connections.is_empty() {
                return;
            }
            let index = self.random(self.connections.len() as u64);
            let index = usize::try_from(index).unwrap();
            let side = usize::from(self.random(2) == 1);
            self.carry(index, side);
        }
    }

    /// Connections that are being made.
    pub(crate) fn requested(&self) -> usize {
        self.connections.iter().filter(|it| it.state == ConnectionState::Requested).count()
    }

    pub(crate) fn registrations(&self) -> usize {
        self.hosts.iter().map(|host| host.regions.len()).sum()
    }

    fn carry(&mut self, index: usize, side: usize) {
        let connection = &mut self.connections[index];
        if connection.state != ConnectionState::Up {
            return;
        }
        let Some(request) = connection.ends[side].sends.pop_front() else { return };
        self.carried += 1;
        match self.fault {
            Fault::Stop { at } if self.carried >= at => {
                connection.state = ConnectionState::Stuck;
                return;
            }
            Fault::Reset { at } if self.carried >= at => {
                self.end(index, [DisconnectReason::Reset; 2]);
                return;
            }
            _ => {}
        }
        let len = request.sg_list.iter().map(|sge| sge.len).sum();
        let (operation, octets) = match request.operation {
            SendOperation::Write { .. } => (CompletedOperation::Write, self.gather(side, &request.sg_list)),
            SendOperation::Send { .. } => (CompletedOperation::Send, self.gather(side, &request.sg_list)),
            SendOperation::Read { stag, offset } => {
                assert!(self.hosts[1 - side].regions[&stag].1.remote_read, "the source can be read");
                (CompletedOperation::Read, self.gather(1 - side, &[Sge { stag, offset, len }]))
            }
            SendOperation::Atomic { .. } | SendOperation::Immediate { .. } => {
                unreachable!("the harness posts none")
            }
        };
        let from = if operation == CompletedOperation::Read { 1 - side } else { side };
        let octets = self.damage(from, len, octets);
        match request.operation {
            SendOperation::Write { stag, offset } => {
                assert!(self.hosts[1 - side].regions[&stag].1.remote_write, "the sink can be written");
                self.scatter(1 - side, &[Sge { stag, offset, len }], &octets);
            }
            SendOperation::Read { .. } => self.scatter(side, &request.sg_list, &octets),
            SendOperation::Send { solicited, .. } => {
                let Some(receive) = self.connections[index].ends[1 - side].receives.pop_front() else {
                    panic!("a Send of {len} octets from side {side} found no receive");
                };
                let room: u32 = receive.sg_list.iter().map(|sge| sge.len).sum();
                assert!(room >= len, "a Send of {len} octets found a receive of {room}");
                self.scatter(1 - side, &receive.sg_list, &octets);
                let operation = CompletedOperation::Receive { invalidated: None, solicited };
                self.complete(index, 1 - side, receive.id, operation, Status::Success, len);
            }
            SendOperation::Atomic { .. } | SendOperation::Immediate { .. } => {}
        }
        if request.signaled {
            self.complete(index, side, request.id, operation, Status::Success, len);
        }
    }

    fn damage(&mut self, from: usize, len: u32, mut octets: Vec<u8>) -> Vec<u8> {
        if let Fault::Corrupt { side, len: least } = self.fault
            && side == from
            && len >= least
        {
            self.fault = Fault::None;
            let at = octets.len() / 2;
            octets[at] ^= 0x10;
        }
        octets
    }

    fn gather(&self, side: usize, list: &[Sge]) -> Vec<u8> {
        let mut octets = Vec::new();
        for sge in list {
            let (region, _) = &self.hosts[side].regions[&sge.stag];
            let mut part = vec![0; sge.len as usize];
            region.buffer.read(region.offset + usize::try_from(sge.offset).unwrap(), &mut part).unwrap();
            octets.extend(part);
        }
        octets
    }

    fn scatter(&self, side: usize, list: &[Sge], octets: &[u8]) {
        let mut rest = octets;
        for sge in list {
            let (part, after) = rest.split_at(rest.len().min(sge.len as usize));
            let (region, _) = &self.hosts[side].regions[&sge.stag];
            region.buffer.write(region.offset + usize::try_from(sge.offset).unwrap(), part).unwrap();
            rest = after;
        }
    }

    fn complete(
        &mut self,
        index: usize,
        side: usize,
        id: u64,
        operation: CompletedOperation,
        status: Status,
        len: u32,
    ) {
        let completion = Completion { id, operation, status, len };
        let qp = qp(index, side);
        self.hosts[side].completions.push_back(QueuePairCompletion { qp, completion });
    }

    fn end(&mut self, index: usize, reasons: [DisconnectReason; 2]) {
        self.connections[index].state = ConnectionState::Gone;
        for (side, reason) in reasons.into_iter().enumerate() {
            let end = std::mem::take(&mut self.connections[index].ends[side]);
            for send in end.sends {
                self.complete(index, side, send.id, CompletedOperation::Send, Status::Flushed, 0);
            }
            let operation = CompletedOperation::Receive { invalidated: None, solicited: false };
            for receive in end.receives {
                self.complete(index, side, receive.id, operation, Status::Flushed, 0);
            }
            let qp = qp(index, side);
            self.hosts[side].events.push_back(Event::Disconnected { qp, reason });
        }
    }

    fn submit(&mut self, side: usize, command: Command) {
        match command {
            Command::Listen { token, .. } => {
                self.hosts[side].listening = true;
                self.hosts[side].events.push_back(Event::Listening { token, listener: ListenerId(0) });
            }
            Command::Unlisten { .. } => self.hosts[side].listening = false,
            Command::Connect { token, private_data, attributes, receives, remote, .. } => {
                if !self.hosts[1 - side].listening {
                    let event = Event::ConnectFailed {
                        token,
                        error: ConnectError::Refused,
                        depths: None,
                        private_data: vec![],
                    };
                    self.hosts[side].events.push_back(event);
                    return;
                }
                let index = self.connections.len();
                let mut ends: [End; 2] = Default::default();
                ends[side] = End { attributes, receives: receives.into(), ..End::default() };
                let state = ConnectionState::Requested;
                self.connections.push(Connection { token, private_data: private_data.clone(), ends, state });
                self.hosts[1 - side].events.push_back(Event::ConnectRequest {
                    listener: ListenerId(0),
                    qp: qp(index, 1 - side),
                    remote,
                    depths: None,
                    private_data,
                });
            }
            Command::Accept { qp: id, private_data, attributes, receives } => {
                let index = index(id);
                let connection = &mut self.connections[index];
                assert!(connection.state == ConnectionState::Requested, "accepted once");
                connection.state = ConnectionState::Up;
                connection.ends[side] = End { attributes, receives: receives.into(), ..End::default() };
                for end in &connection.ends {
                    assert!(end.receives.len() <= end.attributes.receive_depth as usize, "receives fit");
                }
                let token = connection.token;
                let [initiator, responder] = negotiated(&connection.private_data, &private_data);
                self.hosts[side].events.push_back(Event::Established {
                    token: Token(0),
                    qp: id,
                    private_data: vec![],
                    negotiated: responder,
                    depths: None,
                });
                self.hosts[1 - side].events.push_back(Event::Established {
                    token,
                    qp: qp(index, 1 - side),
                    private_data,
                    negotiated: initiator,
                    depths: None,
                });
            }
            Command::Reject { qp: id, private_data } => {
                let connection = &mut self.connections[index(id)];
                connection.state = ConnectionState::Gone;
                let token = connection.token;
                let error = ConnectError::Rejected;
                self.hosts[1 - side].events.push_back(Event::ConnectFailed {
                    token,
                    error,
                    depths: None,
                    private_data,
                });
            }
            Command::Register { token, region, rights, .. }
            | Command::RegisterForStream { token, region, rights, .. } => {
                let host = &mut self.hosts[side];
                host.stags += 1;
                let stag = Stag(host.stags << 8 | u32::try_from(side).unwrap() << 31);
                host.regions.insert(stag, (region, rights));
                host.events.push_back(Event::Registered { token, stag });
            }
            Command::Deregister { token, stag } => {
                let found = self.hosts[side].regions.remove(&stag).is_some();
                self.hosts[side].events.push_back(Event::Deregistered { token, found });
            }
            Command::Disconnect { qp } | Command::Abort { qp } => {
                let index = index(qp);
                // What was posted before an orderly end is sent first.
                while matches!(command, Command::Disconnect { .. })
                    && self.connections[index].state == ConnectionState::Up
                    && !self.connections[index].ends[side].sends.is_empty()
                {
                    self.carry(index, side);
                }
                let state = self.connections[index].state;
                if state != ConnectionState::Gone && state != ConnectionState::Requested {
                    let mut reasons = [DisconnectReason::Peer; 2];
                    reasons[side] = DisconnectReason::Local;
                    self.end(index, reasons);
                }
            }
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below.max(1)
    }

    fn post<T>(queue: &mut VecDeque<T>, depth: u32, request: T) -> Result<(), VerbsError> {
        if queue.len() >= depth as usize {
            return Err(VerbsError::Post(PostError::QueueFull));
        }
        queue.push_back(request);
        Ok(())
    }

    /// The end of a queue pair that takes requests now.
    fn end_of(&mut self, side: usize, id: QueuePairId) -> Result<&mut End, VerbsError> {
        if self.random(16) == 0 {
            return Err(VerbsError::RingFull);
        }
        assert_eq!(id, qp(index(id), side), "one of this host's queue pairs");
        let connection = self.connections.get_mut(index(id)).ok_or(VerbsError::UnknownQueuePair)?;
        match connection.state {
            ConnectionState::Gone => Err(VerbsError::UnknownQueuePair),
            _ => Ok(&mut connection.ends[side]),
        }
    }
}

impl Verbs for MockVerbs {
    fn post_send(&mut self, qp: QueuePairId, request: SendRequest) -> Result<(), VerbsError> {
        let mut world = self.world.borrow_mut();
        let end = world.end_of(self.side, qp)?;
        World::post(&mut end.sends, end.attributes.send_depth, request)
    }

    fn post_receive(&mut self, qp: QueuePairId, request: ReceiveRequest) -> Result<(), VerbsError> {
        let mut world = self.world.borrow_mut();
        let end = world.end_of(self.side, qp)?;
        World::post(&mut end.receives, end.attributes.receive_depth, request)
    }

    fn submit(&mut self, command: Command) -> Result<(), CommandRingFull> {
        let mut world = self.world.borrow_mut();
        if world.random(8) == 0 {
            return Err(CommandRingFull);
        }
        world.submit(self.side, command);
        Ok(())
    }

    fn next_completion(&mut self) -> Option<QueuePairCompletion> {
        self.world.borrow_mut().hosts[self.side].completions.pop_front()
    }

    /// A Stream's end is told after its last completion, as the engine does it.
    fn next_event(&mut self) -> Option<Event> {
        let host = &mut self.world.borrow_mut().hosts[self.side];
        if host.completions.is_empty() { host.events.pop_front() } else { None }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.world.borrow().now)
    }
}

fn qp(index: usize, side: usize) -> QueuePairId {
    let index = u32::try_from(2 * index + side).unwrap();
    QueuePairId { index, generation: index + 7 }
}

fn index(qp: QueuePairId) -> usize {
    qp.index as usize / 2
}

/// What two ends with default profiles agree on.
fn negotiated(request_data: &[u8], reply_data: &[u8]) -> [Negotiated; 2] {
    let (mut initiator, request) = Initiator::start(Profile::default(), request_data).unwrap();
    let mut responder = Responder::new(Profile::default());
    let (_, request) = responder.receive(&request).unwrap();
    let (reply, responder) = request.expect("a whole request").accept(reply_data).unwrap();
    let (_, outcome) = initiator.receive(&reply).unwrap();
    match outcome {
        Some(iwarp::mpa::InitiatorOutcome::Accepted { negotiated, .. }) => [negotiated, responder],
        other => panic!("not accepted: {other:?}"),
    }
}
