//! Two workers without an engine: applications meet over perfect Streams that move one request a step.
//!
//! Memory is checked as the engine does it. Rings can be made to refuse, and each step of time is the test's.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use dataplane::mem::{Registry, Scope};
use dataplane::verbs::{
    Command, CommandRingFull, ConnectError, DisconnectReason, Event, ListenerId, QueuePairCompletion,
    QueuePairId, Verbs, VerbsError,
};
use iwarp::memory::{Accessor, Memory, Operation};
use iwarp::mpa::{Negotiated, Profile, Role};
use iwarp::types::{ProtectionDomain, StreamId};
use iwarp::work::{
    CompletedOperation, Completion, ReceiveRequest, SendOperation, SendRequest, SgList, Status,
};
use tcpstack::time::Instant;

/// The world of both sides.
#[derive(Clone)]
pub(crate) struct Fabric(Rc<RefCell<Inner>>);

/// One side's access to its worker.
pub(crate) struct MockVerbs {
    fabric: Fabric,
    side: usize,
    /// Every so many calls is refused as if a ring were full; 0 for never.
    pub(crate) refuse_every: u32,
    calls: Cell<u32>,
}

struct Inner {
    now: Instant,
    sides: [Side; 2],
    pairs: BTreeMap<QueuePairId, Pair>,
    next_pair: u32,
    register_failures: u32,
}

struct Side {
    memory: Registry,
    events: VecDeque<Event>,
    completions: VecDeque<QueuePairCompletion>,
    listener: Option<Profile>,
}

/// One end of a connection; its peer is the pair of the other side with `peer`'s id.
struct Pair {
    side: usize,
    peer: QueuePairId,
    up: bool,
    offer: Option<Offer>,
    sends: VecDeque<SendRequest>,
    receives: VecDeque<ReceiveRequest>,
    closing: bool,
}

/// What a connecting side waits with.
struct Offer {
    token: dataplane::verbs::Token,
    profile: Profile,
}

const ACCESSOR: Accessor = Accessor { domain: ProtectionDomain(0), stream: StreamId(0) };

impl Fabric {
    pub(crate) fn new() -> Self {
        let side = |seed| Side {
            memory: Registry::new(64, [seed; 32]),
            events: VecDeque::new(),
            completions: VecDeque::new(),
            listener: None,
        };
        Self(Rc::new(RefCell::new(Inner {
            now: Instant::from_micros(1),
            sides: [side(1), side(2)],
            pairs: BTreeMap::new(),
            next_pair: 0,
            register_failures: 0,
        })))
    }

    /// Side 0 or 1.
    pub(crate) fn verbs(&self, side: usize) -> MockVerbs {
        MockVerbs { fabric: self.clone(), side, refuse_every: 0, calls: Cell::new(0) }
    }

    pub(crate) fn advance(&self, span: std::time::Duration) {
        self.0.borrow_mut().now += span;
    }

    /// Lets the next registrations fail.
    pub(crate) fn fail_registrations(&self, count: u32) {
        self.0.borrow_mut().register_failures = count;
    }

    /// Registrations of a side.
    pub(crate) fn registrations(&self, side: usize) -> usize {
        self.0.borrow().sides[side].memory.regions().count()
    }

    /// Connections that exist.
    pub(crate) fn connections(&self) -> usize {
        self.0.borrow().pairs.len() / 2
    }

    /// Cuts all connections, as a reset does.
    pub(crate) fn cut(&self) {
        let mut inner = self.0.borrow_mut();
        let ids: Vec<_> = inner.pairs.keys().copied().collect();
        for id in ids {
            inner.end(id, DisconnectReason::Reset);
        }
    }

    /// Executes one request of each connection's ends. True when there was one.
    pub(crate) fn step(&self) -> bool {
        let mut inner = self.0.borrow_mut();
        let ids: Vec<_> = inner.pairs.keys().copied().collect();
        let mut moved = false;
        for id in ids {
            moved |= inner.step(id);
        }
        moved
    }
}

impl Inner {
    fn step(&mut self, id: QueuePairId) -> bool {
        let Some(pair) = self.pairs.get_mut(&id) else { return false };
        if !pair.up {
            return false;
        }
        let (side, peer) = (pair.side, pair.peer);
        let Some(request) = pair.sends.pop_front() else {
            let closing = pair.closing;
            if closing {
                self.end_both(id, DisconnectReason::Local, DisconnectReason::Peer);
            }
            return closing;
        };
        let operation = request.operation.completed();
        let result = match request.operation {
            SendOperation::Send { .. } => self.carry_send(side, peer, &request.sg_list),
            SendOperation::Write { stag, offset } => self.gather(side, &request.sg_list).and_then(|octets| {
                let memory = &mut self.sides[1 - side].memory;
                memory
                    .place(ACCESSOR, Operation::RemoteWrite, stag, offset, &octets)
                    .map_err(|_| Status::RemoteError)
            }),
            SendOperation::Read { stag, offset } => {
                let sink = request.sg_list[0];
                let mut octets = vec![0; sink.len as usize];
                let source = &self.sides[1 - side].memory;
                source
                    .fetch(ACCESSOR, Operation::RemoteRead, stag, offset, &mut octets)
                    .map_err(|_| Status::RemoteError)
                    .and_then(|()| {
                        let memory = &mut self.sides[side].memory;
                        memory
                            .place(ACCESSOR, Operation::LocalWrite, sink.stag, sink.offset, &octets)
                            .map_err(|_| Status::LocalAccess)
                    })
            }
            SendOperation::Immediate { data, solicited } => {
                self.carry_immediate(side, peer, CompletedOperation::ReceiveImmediate { data, solicited })
            }
            SendOperation::Atomic { .. } => unreachable!("no service grants these"),
        };
        let len = request.sg_list.iter().map(|sge| sge.len).sum();
        let status = result.err().unwrap_or(Status::Success);
        if request.signaled || status != Status::Success {
            self.complete(side, id, Completion { id: request.id, operation, status, len });
        }
        if status != Status::Success {
            self.end(id, DisconnectReason::Reset);
        }
        true
    }

    fn carry_send(&mut self, side: usize, peer: QueuePairId, list: &SgList) -> Result<(), Status> {
        let octets = self.gather(side, list)?;
        let Some(receive) = self.pairs.get_mut(&peer).and_then(|pair| pair.receives.pop_front()) else {
            return Err(Status::RemoteError);
        };
        let len = u32::try_from(octets.len()).unwrap();
        let sink = receive.sg_list[0];
        let operation = CompletedOperation::Receive { invalidated: None, solicited: false };
        let mut completion = Completion { id: receive.id, operation, status: Status::Success, len };
        if len > sink.len {
            completion.status = Status::LengthError;
            self.complete(1 - side, peer, completion);
            return Err(Status::RemoteError);
        }
        let memory = &mut self.sides[1 - side].memory;
        memory.place(ACCESSOR, Operation::LocalWrite, sink.stag, sink.offset, &octets).unwrap();
        self.complete(1 - side, peer, completion);
        Ok(())
    }

    fn carry_immediate(
        &mut self,
        side: usize,
        peer: QueuePairId,
        operation: CompletedOperation,
    ) -> Result<(), Status> {
        let receive = self.pairs.get_mut(&peer).and_then(|pair| pair.receives.pop_front());
        let receive = receive.ok_or(Status::RemoteError)?;
        let completion = Completion { id: receive.id, operation, status: Status::Success, len: 8 };
        self.complete(1 - side, peer, completion);
        Ok(())
    }

    fn gather(&self, side: usize, list: &SgList) -> Result<Vec<u8>, Status> {
        let mut octets = Vec::new();
        for sge in list {
            let mut part = vec![0; sge.len as usize];
            let memory = &self.sides[side].memory;
            memory
                .fetch(ACCESSOR, Operation::LocalRead, sge.stag, sge.offset, &mut part)
                .map_err(|_| Status::LocalAccess)?;
            octets.extend(part);
        }
        Ok(octets)
    }

    fn complete(&mut self, side: usize, qp: QueuePairId, completion: Completion) {
        self.sides[side].completions.push_back(QueuePairCompletion { qp, completion });
    }

    fn end(&mut self, id: QueuePairId, reason: DisconnectReason) {
        self.end_both(id, reason, reason);
    }

    fn end_both(&mut self, id: QueuePairId, own: DisconnectReason, other: DisconnectReason) {
        let Some(peer) = self.pairs.get(&id).map(|pair| pair.peer) else { return };
        for (id, reason) in [(id, own), (peer, other)] {
            let Some(pair) = self.pairs.remove(&id) else { continue };
            if let Some(Offer { token, .. }) = pair.offer {
                let error = ConnectError::ClosedByPeer;
                let event = Event::ConnectFailed { token, error, depths: None, private_data: Vec::new() };
                self.sides[pair.side].events.push_back(event);
                continue;
            }
            for receive in pair.receives {
                let operation = CompletedOperation::Receive { invalidated: None, solicited: false };
                let completion = Completion { id: receive.id, operation, status: Status::Flushed, len: 0 };
                self.complete(pair.side, id, completion);
            }
            for send in pair.sends {
                let operation = send.operation.completed();
                let completion = Completion { id: send.id, operation, status: Status::Flushed, len: 0 };
                self.complete(pair.side, id, completion);
            }
            self.sides[pair.side].events.push_back(Event::Disconnected { qp: id, reason });
        }
    }

    fn execute(&mut self, side: usize, command: Command) {
        match command {
            Command::Listen { token, profile, .. } => {
                self.sides[side].listener = Some(profile);
                self.sides[side].events.push_back(Event::Listening { token, listener: ListenerId(7) });
            }
            Command::Unlisten { .. } => self.sides[side].listener = None,
            Command::Connect { token, remote, profile, receives, .. } => {
                if self.sides[1 - side].listener.is_none() {
                    let error = ConnectError::Refused;
                    let event = Event::ConnectFailed { token, error, depths: None, private_data: Vec::new() };
                    return self.sides[side].events.push_back(event);
                }
                let offer = Offer { token, profile };
                let (own, peer) = (self.next_id(), self.next_id());
                let end = |side, peer, offer, receives| Pair {
                    side,
                    peer,
                    up: false,
                    offer,
                    sends: VecDeque::new(),
                    receives,
                    closing: false,
                };
                self.pairs.insert(own, end(side, peer, Some(offer), receives.into()));
                self.pairs.insert(peer, end(1 - side, own, None, VecDeque::new()));
                let event = Event::ConnectRequest {
                    listener: ListenerId(7),
                    qp: peer,
                    remote,
                    depths: None,
                    private_data: Vec::new(),
                };
                self.sides[1 - side].events.push_back(event);
            }
            Command::Accept { qp, receives, .. } => self.accept(side, qp, receives),
            Command::Reject { qp, .. } => {
                let Some(peer) = self.pairs.remove(&qp).map(|pair| pair.peer) else { return };
                let peer = self.pairs.remove(&peer).unwrap();
                let token = peer.offer.unwrap().token;
                let error = ConnectError::Rejected;
                let event = Event::ConnectFailed { token, error, depths: None, private_data: Vec::new() };
                self.sides[peer.side].events.push_back(event);
            }
            Command::Register { token, domain, region, rights } => {
                if self.register_failures > 0 {
                    self.register_failures -= 1;
                    let error = dataplane::mem::RegisterError::OutOfBounds;
                    return self.sides[side].events.push_back(Event::RegisterFailed { token, error });
                }
                let stag = self.sides[side].memory.register(domain, Scope::Domain, region, rights).unwrap();
                self.sides[side].events.push_back(Event::Registered { token, stag });
            }
            Command::RegisterForStream { .. } => unreachable!("no service does that"),
            Command::Deregister { token, stag } => {
                let found = self.sides[side].memory.deregister(stag);
                self.sides[side].events.push_back(Event::Deregistered { token, found });
            }
            Command::Disconnect { qp } => {
                if let Some(pair) = self.pairs.get_mut(&qp) {
                    pair.closing = true;
                }
            }
            Command::Abort { qp } => {
                self.end_both(qp, DisconnectReason::Local, DisconnectReason::Reset);
            }
        }
    }

    fn accept(&mut self, side: usize, qp: QueuePairId, receives: Vec<ReceiveRequest>) {
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        pair.up = true;
        pair.receives = receives.into();
        let peer = pair.peer;
        let acceptor = self.sides[side].listener.clone().unwrap_or_default();
        let pair = self.pairs.get_mut(&peer).unwrap();
        pair.up = true;
        let Offer { token, profile } = pair.offer.take().unwrap();
        let negotiated = |role, ird, ord| Negotiated {
            role,
            revision: 2,
            crc: true,
            send_markers: false,
            receive_markers: false,
            ird,
            ord,
            rtr: None,
        };
        let (ird, ord) = (profile.ird.min(acceptor.ord), profile.ord.min(acceptor.ird));
        self.sides[side].events.push_back(Event::Established {
            token: dataplane::verbs::Token(0),
            qp,
            private_data: Vec::new(),
            negotiated: negotiated(Role::Responder, ord, ird),
            depths: None,
        });
        self.sides[1 - side].events.push_back(Event::Established {
            token,
            qp: peer,
            private_data: Vec::new(),
            negotiated: negotiated(Role::Initiator, ird, ord),
            depths: None,
        });
    }

    fn next_id(&mut self) -> QueuePairId {
        self.next_pair += 1;
        QueuePairId { index: self.next_pair, generation: 0 }
    }
}

impl MockVerbs {
    fn is_refused(&self) -> bool {
        self.calls.set(self.calls.get() + 1);
        self.refuse_every > 0 && self.calls.get().is_multiple_of(self.refuse_every)
    }

    /// Posts as an application would that the test plays itself.
    pub(crate) fn has_pair(&self, qp: QueuePairId) -> bool {
        self.fabric.0.borrow().pairs.contains_key(&qp)
    }
}

impl Verbs for MockVerbs {
    fn post_send(&mut self, qp: QueuePairId, request: SendRequest) -> Result<(), VerbsError> {
        if self.is_refused() {
            return Err(VerbsError::RingFull);
        }
        let mut inner = self.fabric.0.borrow_mut();
        let pair = inner.pairs.get_mut(&qp).ok_or(VerbsError::UnknownQueuePair)?;
        pair.sends.push_back(request);
        Ok(())
    }

    fn post_receive(&mut self, qp: QueuePairId, request: ReceiveRequest) -> Result<(), VerbsError> {
        if self.is_refused() {
            return Err(VerbsError::RingFull);
        }
        let mut inner = self.fabric.0.borrow_mut();
        let pair = inner.pairs.get_mut(&qp).ok_or(VerbsError::UnknownQueuePair)?;
        pair.receives.push_back(request);
        Ok(())
    }

    fn submit(&mut self, command: Command) -> Result<(), CommandRingFull> {
        if self.is_refused() {
            return Err(CommandRingFull);
        }
        self.fabric.0.borrow_mut().execute(self.side, command);
        Ok(())
    }

    fn next_completion(&mut self) -> Option<QueuePairCompletion> {
        self.fabric.0.borrow_mut().sides[self.side].completions.pop_front()
    }

    /// A Stream's end is told after its last completion, as the engine does it.
    fn next_event(&mut self) -> Option<Event> {
        let side = &mut self.fabric.0.borrow_mut().sides[self.side];
        if side.completions.is_empty() { side.events.pop_front() } else { None }
    }

    fn now(&self) -> Instant {
        self.fabric.0.borrow().now
    }
}
