//! What services with one listener and a fixed buffer for each connection have in common.
//!
//! A [`Server`] accepts connections up to its limit, gives each a registered buffer that no peer can reach
//! directly, and hands what is delivered to its [`Protocol`]. Buffers are kept for later connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::verbs::{
    Application, Command, Event, ListenerId, QueuePairAttributes, QueuePairCompletion, QueuePairId, Token,
    Verbs,
};
use iwarp::mpa::{Negotiated, Profile};
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{CompletedOperation, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};

use super::counters::ServerCounters;
use super::outbox::Outbox;
use super::{Service, ServiceState, Supervision};

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Address (unspecified: all of the port's) and TCP port.
    pub local: SocketAddr,
    /// What to negotiate.
    pub profile: Profile,
    /// Most connections at a time; further ones are rejected.
    pub max_connections: u32,
}

/// Room for one connection: our own octets, `receives` receive buffers one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Octets of all.
    pub slot_len: usize,
    /// Where the first receive buffer is.
    pub receive_offset: u64,
    /// Octets of a receive buffer.
    pub receive_len: u32,
    /// Receive buffers, at most 128.
    pub receives: u64,
    /// Most sends that are not completed.
    pub send_depth: u32,
}

impl Layout {
    /// Where receive buffer `index` is.
    pub fn receive_at(&self, index: u64) -> u64 {
        self.receive_offset + index * u64::from(self.receive_len)
    }
}

/// A delivered Send, in receive buffer `index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// Which receive buffer.
    pub index: u64,
    /// Octets.
    pub len: u32,
}

/// The peer broke the protocol; its connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// What a server does with its connections.
pub trait Protocol: Send {
    /// Where one connection is in the exchange.
    type State: Send;

    /// A connection's buffer.
    const LAYOUT: Layout;

    /// What is counted, in the plural.
    const UNIT: &'static str;

    /// A connection is up.
    ///
    /// # Errors
    /// When this cannot work with what was negotiated.
    fn begin(negotiated: &Negotiated) -> Result<Self::State, Violation>;

    /// The peer's Send was delivered. Its buffer is the protocol's until [`Link::post_receive`].
    ///
    /// # Errors
    /// When the peer must not send this now.
    fn received(state: &mut Self::State, receive: Receive, link: &mut Link<'_>) -> Result<(), Violation>;

    /// A signaled request is done; `tag` is its own.
    fn done(state: &mut Self::State, tag: u8, link: &mut Link<'_>);
}

/// A protocol's access to one of its connections.
pub struct Link<'a> {
    qp: QueuePairId,
    index: usize,
    stag: Stag,
    layout: Layout,
    buffer: &'a Buffer,
    outbox: &'a mut Outbox,
    counters: &'a ServerCounters,
    verbs: &'a mut dyn Verbs,
}

impl Link<'_> {
    /// Copies octets of the connection's buffer.
    ///
    /// # Panics
    /// When they are not all within the layout.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let offset = usize::try_from(offset).expect("an offset within the buffer");
        self.buffer.read(offset, out).expect("octets within the buffer");
    }

    /// Posts a request on `len` octets of the buffer at `offset`; it is [`Protocol::done`] if it has a tag.
    ///
    /// # Panics
    /// When the tag is not below 128.
    pub fn post_send(&mut self, operation: SendOperation, offset: u64, len: u32, tag: Option<u8>) {
        let tag_of_id = tag.unwrap_or(0);
        assert!(tag_of_id < ID_SEND, "tags have 7 bits");
        let request = SendRequest {
            id: request_id(self.index, ID_SEND | tag_of_id),
            operation,
            sg_list: SgList::from_iter([Sge { stag: self.stag, offset, len }]),
            signaled: tag.is_some(),
            fence: false,
        };
        self.outbox.send(self.verbs, self.qp, request);
    }

    /// Posts receive buffer `index` again.
    pub fn post_receive(&mut self, index: u64) {
        let request = receive_request(&self.layout, self.index, self.stag, index);
        self.outbox.receive(self.verbs, self.qp, request);
    }

    /// Counts one unit of `octets`.
    pub fn count(&self, octets: u32) {
        self.counters.units.fetch_add(1, Ordering::Relaxed);
        self.counters.octets.fetch_add(u64::from(octets), Ordering::Relaxed);
    }
}

/// The server: one listener of one worker.
pub struct Server<P: Protocol> {
    config: ServerConfig,
    supervision: Arc<Supervision>,
    counters: Arc<ServerCounters>,
    listener: Listener,
    slots: Vec<Slot<P::State>>,
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
struct Slot<S> {
    buffer: Buffer,
    /// Where the buffer is registered, once it is.
    stag: Option<Stag>,
    connection: Option<Connection<S>>,
}

struct Connection<S> {
    qp: QueuePairId,
    phase: Phase<S>,
}

enum Phase<S> {
    /// The slot's memory is being registered; accepted after that.
    Registering,
    /// Accepted, but not known to be up. Sends may be seen before that, as many as receives are posted.
    Accepting(Vec<Receive>),
    /// The protocol's.
    Up(S),
    /// Ending; nothing counts any more.
    Closing,
}

/// Connections that wait to be established, while clients start in parallel.
const BACKLOG: u32 = 128;

/// Events and completions taken in one poll, so that other applications of the worker have their turn.
const BURST_MAX: usize = 64;

/// Request ids: the slot above 8 bits, below them a receive buffer's index or a send's tag.
const ID_SHIFT: u32 = 8;
const ID_SEND: u8 = 0x80;

/// The token of the Listen command; slots use their index.
const LISTEN: Token = Token(u64::MAX);

impl<P: Protocol> Server<P> {
    const LAYOUT_IS_SOUND: () = {
        let layout = P::LAYOUT;
        assert!(layout.receives <= ID_SEND as u64);
        let receives = layout.receive_len as u64 * layout.receives;
        assert!(layout.receive_offset + receives <= layout.slot_len as u64);
    };

    /// A server that begins to listen when it is first polled.
    pub fn new(config: ServerConfig) -> Self {
        let () = Self::LAYOUT_IS_SOUND;
        Self {
            config,
            supervision: Arc::default(),
            counters: Arc::new(ServerCounters::new(P::UNIT, "octets_each_way")),
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
            Event::Established { qp, negotiated, .. } => self.established(qp, &negotiated, verbs),
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

    fn connect_request(&mut self, qp: QueuePairId, verbs: &mut dyn Verbs) {
        let Some(slot) = self.take_slot() else { return self.reject(qp, verbs) };
        self.counters.active.fetch_add(1, Ordering::Relaxed);
        self.by_qp.insert(qp, slot);
        self.slots[slot].connection = Some(Connection { qp, phase: Phase::Registering });
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
        let buffer = Buffer::allocate(P::LAYOUT.slot_len, HugePages::Never).ok()?;
        self.slots.push(Slot { buffer, stag: None, connection: None });
        Some(self.slots.len() - 1)
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

    fn reject(&mut self, qp: QueuePairId, verbs: &mut dyn Verbs) {
        self.counters.rejected.fetch_add(1, Ordering::Relaxed);
        self.outbox.submit(verbs, Command::Reject { qp, private_data: Vec::new() });
    }

    fn accept(&mut self, slot: usize, qp: QueuePairId, stag: Stag, verbs: &mut dyn Verbs) {
        self.set_phase(slot, Phase::Accepting(Vec::new()));
        let Layout { receives, send_depth, .. } = P::LAYOUT;
        let command = Command::Accept {
            qp,
            private_data: Vec::new(),
            attributes: QueuePairAttributes {
                domain: ProtectionDomain::default(),
                send_depth,
                receive_depth: u32::try_from(receives).expect("a few"),
            },
            receives: (0..receives).map(|index| receive_request(&P::LAYOUT, slot, stag, index)).collect(),
        };
        self.outbox.submit(verbs, command);
    }

    fn established(&mut self, qp: QueuePairId, negotiated: &Negotiated, verbs: &mut dyn Verbs) {
        let Some(slot) = self.by_qp.get(&qp).copied() else { return };
        self.counters.accepted.fetch_add(1, Ordering::Relaxed);
        let Some(connection) = &mut self.slots[slot].connection else { return };
        let Phase::Accepting(early) = &mut connection.phase else { return };
        let early = std::mem::take(early);
        match P::begin(negotiated) {
            Ok(state) => connection.phase = Phase::Up(state),
            Err(Violation) => return self.violation(slot, verbs),
        }
        for receive in early {
            self.received(slot, receive, verbs);
        }
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
            return self.set_phase(slot, Phase::Closing);
        }
        let low = completion.id.to_be_bytes()[7];
        if matches!(completion.operation, CompletedOperation::ReceiveImmediate { .. }) {
            // No protocol of these has any.
            self.violation(slot, verbs);
        } else if matches!(completion.operation, CompletedOperation::Receive { .. }) {
            let receive = Receive { index: u64::from(low), len: completion.len };
            self.received(slot, receive, verbs);
        } else if let Some((Phase::Up(state), mut link)) = self.link(slot, verbs) {
            P::done(state, low & !ID_SEND, &mut link);
        }
    }

    fn received(&mut self, slot: usize, receive: Receive, verbs: &mut dyn Verbs) {
        let result = match self.link(slot, verbs) {
            Some((Phase::Up(state), mut link)) => P::received(state, receive, &mut link),
            Some((Phase::Accepting(early), _)) => {
                early.push(receive);
                Ok(())
            }
            _ => Ok(()),
        };
        if result.is_err() {
            self.violation(slot, verbs);
        }
    }

    /// The peer does not speak the protocol.
    fn violation(&mut self, slot: usize, verbs: &mut dyn Verbs) {
        self.counters.violations.fetch_add(1, Ordering::Relaxed);
        self.set_phase(slot, Phase::Closing);
        if let Some(connection) = &self.slots[slot].connection {
            self.outbox.submit(verbs, Command::Disconnect { qp: connection.qp });
        }
    }

    /// A connection's phase, and what its protocol may do.
    fn link<'a>(
        &'a mut self,
        slot: usize,
        verbs: &'a mut dyn Verbs,
    ) -> Option<(&'a mut Phase<P::State>, Link<'a>)> {
        let Slot { buffer, stag, connection } = &mut self.slots[slot];
        let Connection { qp, phase } = connection.as_mut()?;
        let link = Link {
            qp: *qp,
            index: slot,
            stag: (*stag)?,
            layout: P::LAYOUT,
            buffer,
            outbox: &mut self.outbox,
            counters: &self.counters,
            verbs,
        };
        Some((phase, link))
    }

    /// Ends the listener and all connections, and then gives the memory back.
    fn wind_down(&mut self, verbs: &mut dyn Verbs) {
        match self.listener {
            Listener::Up(listener) => {
                self.outbox.submit(verbs, Command::Unlisten { listener });
                self.listener = Listener::Down;
                for slot in &mut self.slots {
                    let Some(connection) = &mut slot.connection else { continue };
                    if !matches!(connection.phase, Phase::Registering) {
                        connection.phase = Phase::Closing;
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

    fn set_phase(&mut self, slot: usize, phase: Phase<P::State>) {
        if let Some(connection) = &mut self.slots[slot].connection {
            connection.phase = phase;
        }
    }
}

impl<P: Protocol> Application for Server<P> {
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

impl<P: Protocol> Service for Server<P> {
    fn supervision(&self) -> Arc<Supervision> {
        Arc::clone(&self.supervision)
    }
}

fn receive_request(layout: &Layout, slot: usize, stag: Stag, index: u64) -> ReceiveRequest {
    let sge = Sge { stag, offset: layout.receive_at(index), len: layout.receive_len };
    let index = u8::try_from(index).expect("at most 128 receive buffers");
    ReceiveRequest { id: request_id(slot, index), sg_list: SgList::from_iter([sge]) }
}

fn request_id(slot: usize, low: u8) -> u64 {
    (slot as u64) << ID_SHIFT | u64::from(low)
}
