//! One end of a test's connection: its memory, its receives, and the messages beside the test's own.
//!
//! The memory of each end is one registration:
//!
//! ```text
//! | receive slots | message slots | sink slots | source slots |
//!   for Sends       for Message's   the peer     own Writes and Sends,
//!                   own Sends       writes,      the peer's Reads
//!                                   own Reads
//! ```
//!
//! A test's message number `n` uses slot `n` modulo the slots, at both ends.

use std::collections::VecDeque;

use dataplane::mem::{AccessRights, AllocateError, Buffer, HugePages, MemoryRegion};
use dataplane::verbs::{QueuePairAttributes, QueuePairCompletion, QueuePairId, Verbs, VerbsError};
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{
    CompletedOperation, PostError, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status,
};

use super::message::{Area, MESSAGE_LEN, Malformed, Message, Mismatch, Mode, Operation, Plan};
use super::pattern::{self, Sender};

/// Memory for one end of a connection.
#[derive(Debug)]
pub struct Arena {
    buffer: Buffer,
    layout: Layout,
}

impl Arena {
    /// Octets that [`Arena::allocate`] takes for `plan`.
    pub fn octets(plan: &Plan) -> usize {
        Layout::new(plan).len
    }

    /// Memory for one end of `plan`.
    ///
    /// # Errors
    /// When the system has none to give.
    pub fn allocate(plan: &Plan) -> Result<Self, AllocateError> {
        let layout = Layout::new(plan);
        Ok(Self { buffer: Buffer::allocate(layout.len, HugePages::Try)?, layout })
    }

    /// What to register, with [`Arena::rights`].
    pub fn region(&self) -> MemoryRegion {
        MemoryRegion::whole(&self.buffer)
    }

    /// What the peer does with it in such a test, and no more.
    // req 5042-6.4.5-1: nor can the peer invalidate it.
    // req 5042-6.3.5-1
    pub const fn rights(plan: &Plan) -> AccessRights {
        match plan.operation {
            Operation::Write => AccessRights::REMOTE_WRITE,
            Operation::Read => AccessRights::REMOTE_READ,
            Operation::Send => AccessRights::LOCAL,
        }
    }

    /// What the peer is told.
    pub fn area(&self, stag: Stag) -> Area {
        Area { stag, sink: self.layout.sink as u64, source: self.layout.source as u64 }
    }

    /// The receives to post before the peer can send.
    pub fn receives(&self, stag: Stag) -> Vec<ReceiveRequest> {
        (0..self.layout.receives).map(|slot| self.layout.receive(stag, slot)).collect()
    }

    /// Attributes of the queue pair.
    pub fn attributes(&self, plan: &Plan) -> QueuePairAttributes {
        QueuePairAttributes {
            domain: ProtectionDomain::default(),
            send_depth: plan.depth + MESSAGES_MAX,
            receive_depth: self.layout.receives,
        }
    }
}

/// One end of a test's connection, once its queue pair is known.
#[derive(Debug)]
pub struct Channel {
    qp: QueuePairId,
    plan: Plan,
    arena: Arena,
    stag: Stag,
    remote: Area,
    /// To be sent as soon as the queue has room.
    outbox: VecDeque<Message>,
    /// Where the next message is put together.
    message_slot: usize,
    /// Receives to be posted again: slot, and whether a Send of the test used it.
    reposts: VecDeque<(u32, bool)>,
    /// Receives posted for Sends of the test, the first ones included.
    granted: u64,
    /// What the peer knows of them.
    announced: u64,
}

/// What a completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// All own messages of the test before this number are done.
    Sent(u64),
    /// A Send of the test; its slot goes back with [`Channel::repost`].
    Data {
        /// The receive slot.
        slot: u32,
        /// Octets.
        len: u32,
    },
    /// A message beside the test's own.
    Message(Message),
    /// Nothing that anyone waits for.
    Nothing,
}

/// Why a test cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// A request failed.
    #[error("{} failed: {}", name(*operation), reason(*status))]
    Failed {
        /// What.
        operation: CompletedOperation,
        /// How.
        status: Status,
    },
    /// The peer sent what is not in the exchange.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The peer sent what does not belong there.
    #[error("the peer sent a message that does not belong to this test")]
    Unexpected,
    /// A request was refused for good.
    #[error("a request was refused: {0:?}")]
    Refused(PostError),
}

impl ChannelError {
    /// Whether it only shows that the Stream ended, for a reason that an event tells.
    pub fn is_flush(&self) -> bool {
        matches!(self, Self::Failed { status: Status::Flushed, .. })
    }
}

impl Channel {
    /// One end of a connection whose memory is registered as `stag`.
    pub fn new(qp: QueuePairId, plan: Plan, arena: Arena, stag: Stag, remote: Area) -> Self {
        let granted = arena.layout.credits.into();
        let receives = arena.layout.receives as usize;
        Self {
            qp,
            plan,
            stag,
            remote,
            outbox: VecDeque::with_capacity(MESSAGES_MAX as usize),
            message_slot: 0,
            reposts: VecDeque::with_capacity(receives),
            granted,
            announced: granted,
            arena,
        }
    }

    /// Posts message number `sequence` of the test; false when there is no room now.
    ///
    /// # Errors
    /// When it is refused for good.
    pub fn post(
        &mut self,
        verbs: &mut dyn Verbs,
        sequence: u64,
        signaled: bool,
    ) -> Result<bool, ChannelError> {
        // An answer allows the peer to send again: the receive for that goes first.
        if !self.reposts.is_empty() {
            return Ok(false);
        }
        let layout = &self.arena.layout;
        let place = layout.place(sequence);
        let (operation, offset) = match self.plan.operation {
            Operation::Write => {
                let operation =
                    SendOperation::Write { stag: self.remote.stag, offset: self.remote.sink + place as u64 };
                (operation, layout.source)
            }
            Operation::Read => {
                let operation =
                    SendOperation::Read { stag: self.remote.stag, offset: self.remote.source + place as u64 };
                (operation, layout.sink)
            }
            Operation::Send => (SendOperation::Send { invalidate: None, solicited: false }, layout.source),
        };
        let sg_list = single(self.stag, offset + place, self.plan.size);
        let request = SendRequest { id: sequence, operation, sg_list, signaled, fence: false };
        taken(verbs.post_send(self.qp, request))
    }

    /// Sends `message` as soon as there is room, after what is posted already.
    pub fn say(&mut self, message: Message) {
        self.outbox.push_back(message);
    }

    /// What a completion of this queue pair means.
    ///
    /// # Errors
    /// When the request failed, or the peer sent nonsense.
    pub fn take(
        &mut self,
        verbs: &mut dyn Verbs,
        completed: &QueuePairCompletion,
    ) -> Result<Arrival, ChannelError> {
        let completion = &completed.completion;
        if completion.status != Status::Success {
            let (operation, status) = (completion.operation, completion.status);
            return Err(ChannelError::Failed { operation, status });
        }
        match completion.operation {
            CompletedOperation::Receive { solicited: true, .. } => {
                let slot = receive_slot(completion.id);
                let mut octets = [0; MESSAGE_LEN];
                let len = MESSAGE_LEN.min(completion.len as usize);
                self.arena
                    .buffer
                    .read(self.arena.layout.receive_offset(slot), &mut octets[..len])
                    .map_err(|_| ChannelError::Unexpected)?;
                self.post_again(verbs, slot, false)?;
                Ok(Arrival::Message(Message::parse(&octets[..len])?))
            }
            CompletedOperation::Receive { solicited: false, .. } => {
                Ok(Arrival::Data { slot: receive_slot(completion.id), len: completion.len })
            }
            CompletedOperation::ReceiveImmediate { .. } => Err(ChannelError::Unexpected),
            _ if completion.id == MESSAGE_ID => Ok(Arrival::Nothing),
            _ => Ok(Arrival::Sent(completion.id + 1)),
        }
    }

    /// Posts the receive slot of an [`Arrival::Data`] again, and tells the peer in time.
    ///
    /// # Errors
    /// When it is refused for good.
    pub fn repost(&mut self, verbs: &mut dyn Verbs, slot: u32) -> Result<(), ChannelError> {
        self.post_again(verbs, slot, true)
    }

    /// Posts what had no room before; true when there was something.
    ///
    /// # Errors
    /// When it is refused for good.
    pub fn flush(&mut self, verbs: &mut dyn Verbs) -> Result<bool, ChannelError> {
        if self.outbox.is_empty() && self.reposts.is_empty() && self.granted == self.announced {
            return Ok(false);
        }
        let mut busy = false;
        while let Some(&(slot, counts)) = self.reposts.front() {
            let request = self.arena.layout.receive(self.stag, slot);
            if !taken(verbs.post_receive(self.qp, request))? {
                break;
            }
            self.granted += u64::from(counts);
            self.reposts.pop_front();
            busy = true;
        }
        if self.granted - self.announced >= self.arena.layout.credit_batch {
            self.announced = self.granted;
            if self.plan.mode == Mode::Bandwidth {
                self.outbox.push_back(Message::Credit { total: self.granted });
            }
        }
        // What is said next may allow the peer to send again: its receives go first.
        if !self.reposts.is_empty() {
            return Ok(busy);
        }
        while let Some(message) = self.outbox.front() {
            if !self.send(verbs, *message)? {
                break;
            }
            self.outbox.pop_front();
            busy = true;
        }
        Ok(busy)
    }

    /// Fills the source slots of `count` messages from `first` on.
    pub fn provide(&self, sender: Sender, first: u64, count: u32) {
        for sequence in first..first + u64::from(count) {
            let layout = &self.arena.layout;
            let offset = layout.source + layout.place(sequence);
            pattern::write(&self.arena.buffer, offset, self.plan.size as usize, sender, sequence)
                .expect("slots are within the arena");
        }
    }

    /// Compares the sink slots of `count` messages from `first` on.
    pub fn examine(&self, sender: Sender, first: u64, count: u32) -> Option<Mismatch> {
        let layout = &self.arena.layout;
        (first..first + u64::from(count)).find_map(|sequence| {
            let offset = layout.sink + layout.place(sequence);
            pattern::compare(&self.arena.buffer, offset, self.plan.size as usize, sender, sequence)
                .expect("slots are within the arena")
        })
    }

    /// Compares the receive slot of an [`Arrival::Data`] with message number `sequence`.
    ///
    /// # Errors
    /// When the message has another length.
    pub fn examine_receive(
        &self,
        slot: u32,
        len: u32,
        sender: Sender,
        sequence: u64,
    ) -> Result<Option<Mismatch>, ChannelError> {
        if len != self.plan.size {
            return Err(ChannelError::Unexpected);
        }
        let offset = self.arena.layout.receive_offset(slot);
        pattern::compare(&self.arena.buffer, offset, len as usize, sender, sequence)
            .map_err(|_| ChannelError::Unexpected)
    }

    /// The last octet of the first sink slot: what a Write latency test polls.
    pub fn last_sink_octet(&self) -> u8 {
        self.arena.buffer.load_u8(self.arena.layout.sink + self.plan.size as usize - 1)
    }

    /// Sets the last octet of the first source slot.
    pub fn set_last_source_octet(&self, value: u8) {
        self.arena.buffer.store_u8(self.arena.layout.source + self.plan.size as usize - 1, value);
    }

    /// Whether nothing waits for room.
    pub fn is_flushed(&self) -> bool {
        self.outbox.is_empty() && self.reposts.is_empty()
    }

    /// The queue pair.
    pub fn qp(&self) -> QueuePairId {
        self.qp
    }

    /// What both ends agreed on.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The registration.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// Messages of the test that have a slot of their own at the same time.
    pub fn slots(&self) -> u32 {
        self.arena.layout.slots
    }

    /// Sends that the peer takes before it returns a credit.
    pub fn first_credits(&self) -> u32 {
        self.arena.layout.credits
    }

    fn post_again(&mut self, verbs: &mut dyn Verbs, slot: u32, counts: bool) -> Result<(), ChannelError> {
        if self.reposts.is_empty() {
            let request = self.arena.layout.receive(self.stag, slot);
            if taken(verbs.post_receive(self.qp, request))? {
                self.granted += u64::from(counts);
                return Ok(());
            }
        }
        self.reposts.push_back((slot, counts));
        Ok(())
    }

    fn send(&mut self, verbs: &mut dyn Verbs, message: Message) -> Result<bool, ChannelError> {
        let offset = self.arena.layout.messages + self.message_slot * ALIGN;
        self.arena.buffer.write(offset, &message.emit()).expect("slots are within the arena");
        let request = SendRequest {
            id: MESSAGE_ID,
            operation: SendOperation::Send { invalidate: None, solicited: true },
            sg_list: single(self.stag, offset, MESSAGE_SGE_LEN),
            signaled: false,
            // A Send may overtake the Reads before it, and both of these say that all is done.
            fence: matches!(message, Message::Finish { .. } | Message::Finished { .. }),
        };
        let sent = taken(verbs.post_send(self.qp, request))?;
        if sent {
            self.message_slot = (self.message_slot + 1) % MESSAGES_MAX as usize;
        }
        Ok(sent)
    }
}

/// Most messages beside the test's own that wait in one direction: two credits, `Start` and `Finish`
/// or their answers, with as much again to spare.
const MESSAGES_MAX: u32 = 8;

/// Receives beside the credited ones: two unread credits, `Start` and `Finish` can be under way.
const MESSAGE_RECEIVES: u32 = 4;

/// The request id of a message beside the test's own.
const MESSAGE_ID: u64 = u64::MAX;

/// Slots begin on cache lines and hold a message each.
const ALIGN: usize = 64;

/// Small messages go round in a page, as perftest's do.
const BANDWIDTH_OCTETS: usize = 4096;

/// Receives of large Sends take no more than this (but at least two messages), to stay in the cache.
const RECEIVE_OCTETS: usize = 512 << 10;

/// A verified round takes no more than this (but at least two messages): it is compared in one go.
const ROUND_OCTETS: usize = 4 << 20;

const _: () = assert!(MESSAGE_LEN <= ALIGN && MESSAGE_LEN == MESSAGE_SGE_LEN as usize);

/// A message's length in a scatter/gather element.
const MESSAGE_SGE_LEN: u32 = 40;

/// Where things are in an arena; the same at both ends of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    receive_stride: usize,
    receives: u32,
    /// Receives that the peer may use for Sends of the test.
    credits: u32,
    /// Receives after which the peer is told; at most two such messages are under way.
    credit_batch: u64,
    messages: usize,
    sink: usize,
    source: usize,
    stride: usize,
    /// A power of two.
    slots: u32,
    len: usize,
}

impl Layout {
    fn new(plan: &Plan) -> Self {
        let stride = (plan.size as usize).next_multiple_of(ALIGN);
        let fitting = |octets: usize| u32::try_from(octets / stride).unwrap_or(u32::MAX);
        let slots = match plan.mode {
            Mode::Latency => 1,
            Mode::Bandwidth => fitting(BANDWIDTH_OCTETS).max(1),
            Mode::Verify => fitting(ROUND_OCTETS).max(2).min(plan.depth),
        };
        let slots = 1 << slots.ilog2();
        let credits = match (plan.operation, plan.mode) {
            (Operation::Write | Operation::Read, _) => 0,
            (Operation::Send, Mode::Bandwidth) => fitting(RECEIVE_OCTETS).max(2).min(plan.receive_depth),
            (Operation::Send, Mode::Latency | Mode::Verify) => slots,
        };
        let receives = credits + MESSAGE_RECEIVES;
        let receive_stride = if credits == 0 { ALIGN } else { stride };
        let messages = receives as usize * receive_stride;
        let sink = messages + MESSAGES_MAX as usize * ALIGN;
        let source = sink + slots as usize * stride;
        Self {
            receive_stride,
            receives,
            credits,
            credit_batch: u64::from(credits / 2).max(1),
            messages,
            sink,
            source,
            stride,
            slots,
            len: source + slots as usize * stride,
        }
    }

    fn receive(&self, stag: Stag, slot: u32) -> ReceiveRequest {
        let len = u32::try_from(self.receive_stride).unwrap_or(u32::MAX);
        ReceiveRequest { id: slot.into(), sg_list: single(stag, self.receive_offset(slot), len) }
    }

    fn receive_offset(&self, slot: u32) -> usize {
        slot as usize * self.receive_stride
    }

    /// Offset of a message's slot among its kind.
    fn place(&self, sequence: u64) -> usize {
        let [.., a, b, c, d] = sequence.to_be_bytes();
        let low = u32::from_be_bytes([a, b, c, d]);
        (low & (self.slots - 1)) as usize * self.stride
    }
}

fn single(stag: Stag, offset: usize, len: u32) -> SgList {
    let mut list = SgList::new();
    list.push(Sge { stag, offset: offset as u64, len });
    list
}

/// Our own receive ids are slots.
fn receive_slot(id: u64) -> u32 {
    u32::try_from(id).unwrap_or(u32::MAX)
}

/// Whether a request was queued; a queue pair that is gone takes nothing, and says so by an event.
fn taken(posted: Result<(), VerbsError>) -> Result<bool, ChannelError> {
    match posted {
        Ok(()) => Ok(true),
        Err(VerbsError::RingFull | VerbsError::UnknownQueuePair | VerbsError::Post(PostError::QueueFull)) => {
            Ok(false)
        }
        Err(VerbsError::Post(error)) => Err(ChannelError::Refused(error)),
    }
}

fn name(operation: CompletedOperation) -> &'static str {
    match operation {
        CompletedOperation::Send => "a Send",
        CompletedOperation::Write => "an RDMA Write",
        CompletedOperation::Read => "an RDMA Read",
        CompletedOperation::Atomic { .. } => "an Atomic Operation",
        CompletedOperation::Immediate => "Immediate Data",
        CompletedOperation::Receive { .. } | CompletedOperation::ReceiveImmediate { .. } => "a receive",
    }
}

fn reason(status: Status) -> &'static str {
    match status {
        Status::Success => "no reason",
        Status::Flushed => "the Stream ended first",
        Status::LocalAccess => "its own buffer was refused",
        Status::RemoteError => "the peer refused it",
        Status::LengthError => "the message was longer than the receive",
    }
}
