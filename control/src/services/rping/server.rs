//! The serving side: what `rping -s` does, for many clients at once and any size.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::verbs::{
    Application, Command, Event, ListenerId, QueuePairAttributes, QueuePairCompletion, QueuePairId, Token,
    Verbs,
};
use iwarp::mpa::Profile;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{CompletedOperation, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};

use super::{ADVERTISEMENT_LEN, Advertisement, SIZE_MAX};
use crate::services::outbox::Outbox;
use crate::services::{Service, ServiceState, Supervision};

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Address (unspecified: all of the port's) and TCP port.
    pub local: SocketAddr,
    /// What to negotiate. rping needs an `ord` of at least 1.
    pub profile: Profile,
    /// Most connections at a time; further ones are rejected.
    pub max_connections: u32,
}

/// What a server counts, readable from other threads.
#[derive(Debug, Default)]
pub struct ServerCounters {
    accepted: AtomicU64,
    rejected: AtomicU64,
    active: AtomicU64,
    rounds: AtomicU64,
    octets: AtomicU64,
    violations: AtomicU64,
}

impl ServerCounters {
    /// Each counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("connections_accepted", &self.accepted),
            ("connections_rejected", &self.rejected),
            ("connections_active", &self.active),
            ("rounds", &self.rounds),
            ("octets_each_way", &self.octets),
            ("protocol_violations", &self.violations),
        ]
        .into_iter()
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}

/// The server: one listener of one worker.
///
/// A connection costs one registered buffer of [`SLOT_LEN`] octets, which no peer can reach directly; buffers
/// are kept for later connections.
#[derive(Debug)]
pub struct RpingServer {
    config: ServerConfig,
    supervision: Arc<Supervision>,
    counters: Arc<ServerCounters>,
    listener: Listener,
    slots: Vec<Slot>,
    /// Slots with memory and without a connection.
    free: Vec<usize>,
    by_qp: BTreeMap<QueuePairId, usize>,
    outbox: Outbox,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listener {
    Idle,
    Asked,
    Up(ListenerId),
    Down,
}

/// Room for one connection.
#[derive(Debug)]
struct Slot {
    buffer: Buffer,
    /// Where the buffer is registered, once it is.
    stag: Option<Stag>,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    qp: QueuePairId,
    state: State,
}

/// Where a connection is in the exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The slot's memory is being registered; accepted after that.
    Registering,
    /// Accepted, but not known to be up. The first Send may be seen before that.
    Accepting { early: Option<Receive> },
    /// For the client's source.
    AwaitSource,
    /// Reading `size` octets of it.
    Reading { size: u32 },
    /// Told to go ahead; for the client's sink of at least `size` octets.
    AwaitSink { size: u32 },
    /// Ending; nothing counts any more.
    Closing,
}

/// A delivered Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Receive {
    index: u64,
    len: u32,
}

/// Layout of a slot's buffer: our Sends (all zero), the client's Sends, its data.
const OUTGOING_OFFSET: u64 = 0;
const INCOMING_OFFSET: u64 = 16;
const DATA_OFFSET: u64 = 64;

/// The client has one Send under way at a time; the second receive keeps one posted while the first is read.
const RECEIVES: u64 = 2;

/// Octets of a connection's buffer.
pub const SLOT_LEN: usize = 64 + SIZE_MAX as usize;

/// A Read, or a Write and two Sends, with room for completions not yet seen.
const SEND_DEPTH: u32 = 8;

/// Established connections wait for these while `rping` clients start in parallel.
const BACKLOG: u32 = 128;

/// Events and completions taken in one poll, so that other applications of the worker have their turn.
const BURST_MAX: usize = 64;

/// Request ids: the slot above, what it is below.
const ID_SHIFT: u32 = 8;
const ID_READ: u64 = 0x10;
const ID_SEND: u64 = 0x11;
const ID_WRITE: u64 = 0x12;

/// The token of the Listen command; slots use their index.
const LISTEN: Token = Token(u64::MAX);

impl RpingServer {
    /// A server that begins to listen when it is first polled.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            supervision: Arc::default(),
            counters: Arc::default(),
            listener: Listener::Idle,
            slots: Vec::new(),
            free: Vec::new(),
            by_qp: BTreeMap::new(),
            outbox: Outbox::default(),
        }
    }

    /// Its counters.
    pub fn counters(&self) -> Arc<ServerCounters> {
        Arc::clone(&self.counters)
    }

    fn event(&mut self, event: &Event, verbs: &mut dyn Verbs) {
        match *event {
            Event::Listening { listener, .. } => {
                self.listener = Listener::Up(listener);
                self.supervision.set(ServiceState::Listening);
            }
            Event::ListenFailed { error, .. } => {
                self.listener = Listener::Down;
                self.supervision.fail(error.to_string());
            }
            Event::ConnectRequest { qp, .. } => self.connect_request(qp, verbs),
            Event::Registered { token, stag } => self.registered(token, stag, verbs),
            Event::RegisterFailed { token, .. } => {
                if let Some(slot) = self.slot_of_token(token) {
                    self.give_up(slot, verbs);
                }
            }
            Event::Established { qp, negotiated, .. } => {
                let Some(slot) = self.by_qp.get(&qp).copied() else { return };
                count(&self.counters.accepted, 1);
                let State::Accepting { early } = self.connection(slot).state else { return };
                self.connection(slot).state = State::AwaitSource;
                if negotiated.ord == 0 {
                    // The exchange is made of RDMA Reads, and this peer serves none.
                    self.violation(slot, verbs);
                } else if let Some(receive) = early {
                    self.received(slot, receive, verbs);
                }
            }
            Event::Disconnected { qp, .. } => {
                let Some(slot) = self.by_qp.remove(&qp) else { return };
                self.slots[slot].connection = None;
                // A slot that is still being registered becomes free when that is answered.
                if self.slots[slot].stag.is_some() {
                    self.free.push(slot);
                }
                self.counters.active.fetch_sub(1, Ordering::Relaxed);
            }
            Event::ConnectFailed { .. } | Event::Deregistered { .. } => {}
        }
    }

    fn registered(&mut self, token: Token, stag: Stag, verbs: &mut dyn Verbs) {
        let Some(slot) = self.slot_of_token(token) else {
            // The server wound down in the meantime.
            return self.outbox.submit(verbs, Command::Deregister { token, stag });
        };
        self.slots[slot].stag = Some(stag);
        match &self.slots[slot].connection {
            Some(connection) if !self.supervision.is_stopping() => {
                self.accept(slot, connection.qp, stag, verbs);
            }
            _ => self.give_up(slot, verbs),
        }
    }

    /// Rejects the connection that waits for this slot, if it still does, and frees the slot. A slot that
    /// could not be registered is registered with its next connection.
    fn give_up(&mut self, slot: usize, verbs: &mut dyn Verbs) {
        if let Some(connection) = self.slots[slot].connection.take() {
            self.by_qp.remove(&connection.qp);
            self.counters.active.fetch_sub(1, Ordering::Relaxed);
            self.reject(connection.qp, verbs);
        }
        self.free.push(slot);
    }

    fn connect_request(&mut self, qp: QueuePairId, verbs: &mut dyn Verbs) {
        let Some(slot) = self.take_slot() else { return self.reject(qp, verbs) };
        self.counters.active.fetch_add(1, Ordering::Relaxed);
        self.by_qp.insert(qp, slot);
        self.slots[slot].connection = Some(Connection { qp, state: State::Registering });
        match self.slots[slot].stag {
            Some(stag) => self.accept(slot, qp, stag, verbs),
            None => {
                let command = Command::Register {
                    token: Token(slot as u64),
                    domain: ProtectionDomain::default(),
                    region: MemoryRegion::whole(&self.slots[slot].buffer),
                    rights: AccessRights::LOCAL,
                };
                self.outbox.submit(verbs, command);
            }
        }
    }

    /// A free slot, or a new one within the limit.
    fn take_slot(&mut self) -> Option<usize> {
        if self.supervision.is_stopping() {
            return None;
        }
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() >= self.config.max_connections as usize {
            return None;
        }
        let buffer = Buffer::allocate(SLOT_LEN, HugePages::Never).ok()?;
        self.slots.push(Slot { buffer, stag: None, connection: None });
        Some(self.slots.len() - 1)
    }

    fn reject(&mut self, qp: QueuePairId, verbs: &mut dyn Verbs) {
        count(&self.counters.rejected, 1);
        self.outbox.submit(verbs, Command::Reject { qp, private_data: Vec::new() });
    }

    fn accept(&mut self, slot: usize, qp: QueuePairId, stag: Stag, verbs: &mut dyn Verbs) {
        self.connection(slot).state = State::Accepting { early: None };
        let command = Command::Accept {
            qp,
            private_data: Vec::new(),
            attributes: QueuePairAttributes {
                domain: ProtectionDomain::default(),
                send_depth: SEND_DEPTH,
                receive_depth: u32::try_from(RECEIVES).expect("a few"),
            },
            receives: (0..RECEIVES).map(|index| receive_request(slot, stag, index)).collect(),
        };
        self.outbox.submit(verbs, command);
    }

    fn completion(&mut self, completion: &QueuePairCompletion, verbs: &mut dyn Verbs) {
        let QueuePairCompletion { qp, completion } = completion;
        let slot = usize::try_from(completion.id >> ID_SHIFT).ok();
        let current = slot.and_then(|slot| self.slots.get(slot)).and_then(|slot| slot.connection.as_ref());
        // Answers of a connection that is gone may be among those of the slot's next one.
        let (Some(slot), Some(connection)) = (slot, current) else { return };
        if connection.qp != *qp {
            return;
        }
        if completion.status != Status::Success {
            // The Stream is ending, and its end will be told.
            self.connection(slot).state = State::Closing;
            return;
        }
        match (completion.operation, connection.state) {
            (CompletedOperation::Receive { .. }, _) => {
                let index = completion.id & ((1 << ID_SHIFT) - 1);
                self.received(slot, Receive { index, len: completion.len }, verbs);
            }
            (CompletedOperation::Read, State::Reading { size }) => {
                self.connection(slot).state = State::AwaitSink { size };
                self.send(slot, verbs);
            }
            _ => {}
        }
    }

    /// The client sent where its source or its sink is.
    fn received(&mut self, slot: usize, receive: Receive, verbs: &mut dyn Verbs) {
        let Some(stag) = self.slots[slot].stag else { return };
        let state = self.connection(slot).state;
        if let State::Accepting { early: None } = state {
            self.connection(slot).state = State::Accepting { early: Some(receive) };
            return;
        }
        if state == State::Closing {
            return;
        }
        let mut octets = [0; ADVERTISEMENT_LEN as usize];
        let offset = usize::try_from(incoming_offset(receive.index)).expect("within the slot");
        self.slots[slot].buffer.read(offset, &mut octets).expect("the layout is within the slot");
        let peer = Advertisement::parse(&octets);
        let in_bounds = receive.len == ADVERTISEMENT_LEN
            && (1..=SIZE_MAX).contains(&peer.size)
            && peer.offset.checked_add(u64::from(peer.size)).is_some();
        let data = |len| sg_list(Sge { stag, offset: DATA_OFFSET, len });
        let (id, operation, sg_list) = match state {
            State::AwaitSource if in_bounds => {
                self.connection(slot).state = State::Reading { size: peer.size };
                let operation = SendOperation::Read { stag: peer.stag, offset: peer.offset };
                (ID_READ, operation, data(peer.size))
            }
            State::AwaitSink { size } if in_bounds && peer.size >= size => {
                self.connection(slot).state = State::AwaitSource;
                count(&self.counters.rounds, 1);
                count(&self.counters.octets, u64::from(size));
                let operation = SendOperation::Write { stag: peer.stag, offset: peer.offset };
                (ID_WRITE, operation, data(size))
            }
            _ => return self.violation(slot, verbs),
        };
        let qp = self.connection(slot).qp;
        self.outbox.receive(verbs, qp, receive_request(slot, stag, receive.index));
        let signaled = id == ID_READ;
        let id = request_id(slot, id);
        self.outbox.send(verbs, qp, SendRequest { id, operation, sg_list, signaled, fence: false });
        if !signaled {
            // The Write is placed before this is delivered, so the client need not be told separately.
            self.send(slot, verbs);
        }
    }

    /// Go ahead, or written: both are a Send whose content does not matter.
    fn send(&mut self, slot: usize, verbs: &mut dyn Verbs) {
        let Some(stag) = self.slots[slot].stag else { return };
        let request = SendRequest {
            id: request_id(slot, ID_SEND),
            operation: SendOperation::Send { invalidate: None, solicited: false },
            sg_list: sg_list(Sge { stag, offset: OUTGOING_OFFSET, len: ADVERTISEMENT_LEN }),
            signaled: false,
            fence: false,
        };
        let qp = self.connection(slot).qp;
        self.outbox.send(verbs, qp, request);
    }

    /// The client does not speak rping.
    fn violation(&mut self, slot: usize, verbs: &mut dyn Verbs) {
        count(&self.counters.violations, 1);
        self.connection(slot).state = State::Closing;
        let qp = self.connection(slot).qp;
        self.outbox.submit(verbs, Command::Disconnect { qp });
    }

    /// Ends the listener and all connections, and then gives the memory back.
    fn wind_down(&mut self, verbs: &mut dyn Verbs) {
        match self.listener {
            Listener::Up(listener) => {
                self.outbox.submit(verbs, Command::Unlisten { listener });
                self.listener = Listener::Down;
                for slot in &mut self.slots {
                    if let Some(connection) = &mut slot.connection
                        && connection.state != State::Registering
                    {
                        connection.state = State::Closing;
                        self.outbox.submit(verbs, Command::Disconnect { qp: connection.qp });
                    }
                }
            }
            Listener::Idle => self.listener = Listener::Down,
            // The answer is needed to take it back.
            Listener::Asked => return,
            Listener::Down => {}
        }
        if !self.by_qp.is_empty() {
            return;
        }
        for (index, slot) in self.slots.drain(..).enumerate() {
            if let Some(stag) = slot.stag {
                self.outbox.submit(verbs, Command::Deregister { token: Token(index as u64), stag });
            }
        }
        self.free.clear();
        if self.outbox.is_empty() {
            self.supervision.set(ServiceState::Stopped);
        }
    }

    fn slot_of_token(&self, token: Token) -> Option<usize> {
        usize::try_from(token.0).ok().filter(|slot| *slot < self.slots.len())
    }

    fn connection(&mut self, slot: usize) -> &mut Connection {
        self.slots[slot].connection.as_mut().expect("the slot has a connection")
    }
}

impl Application for RpingServer {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        let mut busy = self.outbox.flush(verbs);
        if self.listener == Listener::Idle && !self.supervision.is_stopping() {
            self.listener = Listener::Asked;
            let ServerConfig { local, profile, .. } = self.config.clone();
            self.outbox.submit(verbs, Command::Listen { token: LISTEN, local, profile, backlog: BACKLOG });
            busy = true;
        }
        for _ in 0..BURST_MAX {
            let Some(completion) = verbs.next_completion() else { break };
            self.completion(&completion, verbs);
            busy = true;
        }
        for _ in 0..BURST_MAX {
            let Some(event) = verbs.next_event() else { break };
            self.event(&event, verbs);
            busy = true;
        }
        if self.supervision.is_stopping() {
            self.wind_down(verbs);
        }
        busy
    }
}

impl Service for RpingServer {
    fn supervision(&self) -> Arc<Supervision> {
        Arc::clone(&self.supervision)
    }
}

fn receive_request(slot: usize, stag: Stag, index: u64) -> ReceiveRequest {
    let sge = Sge { stag, offset: incoming_offset(index), len: ADVERTISEMENT_LEN };
    ReceiveRequest { id: request_id(slot, index), sg_list: sg_list(sge) }
}

fn incoming_offset(index: u64) -> u64 {
    INCOMING_OFFSET + index * u64::from(ADVERTISEMENT_LEN)
}

fn request_id(slot: usize, what: u64) -> u64 {
    (slot as u64) << ID_SHIFT | what
}

fn sg_list(sge: Sge) -> SgList {
    SgList::from_iter([sge])
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

const _: () = {
    assert!(INCOMING_OFFSET + RECEIVES * ADVERTISEMENT_LEN as u64 <= DATA_OFFSET);
    assert!(SLOT_LEN as u64 == DATA_OFFSET + SIZE_MAX as u64);
    assert!(RECEIVES < ID_READ);
};
