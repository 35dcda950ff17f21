//! Work requests that an application posts, and the completions that answer them.

use arrayvec::ArrayVec;

use crate::atomic::AtomicOperation;
use crate::types::Stag;

/// Most scatter/gather elements of one work request.
pub const SGE_MAX: usize = 6;

/// A run of octets in a registered buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// The buffer.
    pub stag: Stag,
    /// Tagged Offset of the first octet.
    pub offset: u64,
    /// Octets.
    pub len: u32,
}

/// A scatter/gather list; its elements' lengths add up to at most 2^32 - 1.
pub type SgList = ArrayVec<Sge, SGE_MAX>;

/// What a send work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOperation {
    /// Send, optionally with Invalidate and with Solicited Event (RFC 5040 section 5.3).
    Send {
        /// The peer's STag to invalidate on Delivery.
        invalidate: Option<Stag>,
        /// Ask for an event at the peer.
        solicited: bool,
    },
    /// RDMA Write of the scatter/gather list to the peer's buffer.
    Write {
        /// The peer's Data Sink buffer.
        stag: Stag,
        /// Tagged Offset in it.
        offset: u64,
    },
    /// RDMA Read from the peer's buffer into the list's one element.
    Read {
        /// The peer's Data Source buffer.
        stag: Stag,
        /// Tagged Offset in it.
        offset: u64,
    },
    /// Atomic Operation on a word of the peer's (RFC 7306 section 5). The word's original value comes
    /// in the completion and, in the host's order, in the list's one element of 8 octets if there is one.
    Atomic {
        /// The peer's buffer.
        stag: Stag,
        /// Tagged Offset in it; on a 64-bit boundary of the peer's memory.
        offset: u64,
        /// What to do with the word.
        operation: AtomicOperation,
    },
    /// Immediate Data for a receive of the peer (RFC 7306 section 6); the list is empty.
    Immediate {
        /// The 8 octets.
        data: [u8; 8],
        /// Ask for an event at the peer.
        solicited: bool,
    },
}

impl SendOperation {
    /// What its completion is called.
    pub const fn completed(&self) -> CompletedOperation {
        match self {
            Self::Send { .. } => CompletedOperation::Send,
            Self::Write { .. } => CompletedOperation::Write,
            Self::Read { .. } => CompletedOperation::Read,
            Self::Atomic { .. } => CompletedOperation::Atomic { original: 0 },
            Self::Immediate { .. } => CompletedOperation::Immediate,
        }
    }
}

/// A request on the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The application's own id; comes back in the completion.
    pub id: u64,
    /// What to do.
    pub operation: SendOperation,
    /// The local octets: source of a Send or Write, sink of a Read or Atomic.
    pub sg_list: SgList,
    /// Whether success is reported too; failure always is.
    pub signaled: bool,
    /// Wait until all earlier Reads and Atomics of this queue are complete.
    pub fence: bool,
}

impl SendRequest {
    /// An Atomic Operation, reported, without a local sink for the original value.
    pub fn atomic(id: u64, stag: Stag, offset: u64, operation: AtomicOperation) -> Self {
        let operation = SendOperation::Atomic { stag, offset, operation };
        Self { id, operation, sg_list: SgList::new(), signaled: true, fence: false }
    }

    /// Immediate Data, reported.
    pub fn immediate(id: u64, data: [u8; 8], solicited: bool) -> Self {
        let operation = SendOperation::Immediate { data, solicited };
        Self { id, operation, sg_list: SgList::new(), signaled: true, fence: false }
    }
}

/// A request on the receive queue: a buffer for one Send of the peer, or for one Immediate Data,
/// which leaves its octets alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The application's own id; comes back in the completion.
    pub id: u64,
    /// Where the message goes, element after element.
    pub sg_list: SgList,
}

/// What was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletedOperation {
    /// A Send of any kind left (its buffer may be used again).
    Send,
    /// An RDMA Write left (its buffer may be used again); says nothing about the peer.
    Write,
    /// An RDMA Read's data is placed and delivered.
    Read,
    /// An Atomic Operation is done and its Response delivered.
    Atomic {
        /// The word before it; 0 without success.
        original: u64,
    },
    /// Immediate Data left.
    Immediate,
    /// A Send of the peer was delivered.
    Receive {
        /// The local STag that the peer's Send with Invalidate withdrew.
        invalidated: Option<Stag>,
        /// Whether the peer asked for an event.
        solicited: bool,
    },
    /// Immediate Data of the peer was delivered.
    ReceiveImmediate {
        /// Its 8 octets.
        data: [u8; 8],
        /// Whether the peer asked for an event.
        solicited: bool,
    },
}

impl CompletedOperation {
    /// Whether it was a receive request.
    pub const fn is_receive(&self) -> bool {
        matches!(self, Self::Receive { .. } | Self::ReceiveImmediate { .. })
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Success,
    /// Not done: the Stream ended first (RFC 5040 section 6, "flushed").
    Flushed,
    /// The request's own buffer was refused.
    LocalAccess,
    /// The peer refused the request with a Terminate, or it broke the protocol.
    RemoteError,
    /// The peer's Send was longer than the receive request.
    LengthError,
}

/// The answer to one posted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's id.
    pub id: u64,
    /// What it was.
    pub operation: CompletedOperation,
    /// How it ended.
    pub status: Status,
    /// Octets of the message.
    pub len: u32,
}

// Two to a cache line, on the rings that they cross.
const _: () = assert!(size_of::<Completion>() <= 32);

/// Why a request was not taken. Nothing was queued then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is at its depth; wait for completions.
    QueueFull,
    /// The list adds up to more than 2^32 - 1 octets, or it is not what the operation needs: one element
    /// for a Read, at most one of 8 octets for an Atomic, none for Immediate Data.
    BadSgList,
    /// The Stream negotiated an ORD of 0, which allows no Reads and no Atomics.
    NoReads,
}
