//! What an application asks of a worker, and what it is told.
//!
//! The same [`Verbs`] serve an application that runs on the worker itself (direct calls) and
//! one on a core of its own (rings): posting is synchronous, everything that takes time is a
//! [`Command`] answered by an [`Event`].

use std::net::SocketAddr;

use iwarp::atomic::AtomicOperation;
use iwarp::mpa::{Negotiated, PeerDepths, Profile};
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{Completion, PostError, ReceiveRequest, SendRequest};
use tcpstack::time::Instant;

use crate::mem::{AccessRights, MemoryRegion};

/// A queue pair of one worker. Never reused: a stale id names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuePairId {
    /// Place in the worker's table.
    pub index: u32,
    /// Counts the queue pairs that had this place.
    pub generation: u32,
}

/// A listener of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// The application's own number for a command; its answer carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// Sizes and protection of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuePairAttributes {
    /// Its protection domain. The numbers, of 32 bits, are the application's own: the same one names
    /// another domain elsewhere.
    pub domain: ProtectionDomain,
    /// Most send requests that are not completed.
    pub send_depth: u32,
    /// Most receive requests that are not completed.
    pub receive_depth: u32,
}

impl Default for QueuePairAttributes {
    fn default() -> Self {
        Self { domain: ProtectionDomain(0), send_depth: 128, receive_depth: 128 }
    }
}

/// What an application asks for; the event that answers it is named with each.
#[derive(Clone, Debug)]
pub enum Command {
    /// Listen on an address: [`Event::Listening`] or [`Event::ListenFailed`].
    Listen {
        /// Comes back in the answer.
        token: Token,
        /// Address (unspecified: all of the port's) and TCP port.
        local: SocketAddr,
        /// What to negotiate with peers.
        profile: Profile,
        /// Most connections that are not yet established.
        backlog: u32,
    },
    /// Stop listening; established connections go on. No answer.
    Unlisten {
        /// The listener.
        listener: ListenerId,
    },
    /// Connect to a peer: [`Event::Established`] or [`Event::ConnectFailed`].
    Connect {
        /// Comes back in the answer.
        token: Token,
        /// The peer.
        remote: SocketAddr,
        /// What to negotiate.
        profile: Profile,
        /// At most 512 octets for the peer's application.
        private_data: Vec<u8>,
        /// The queue pair's attributes.
        attributes: QueuePairAttributes,
        /// Receives to post before the peer can send.
        receives: Vec<ReceiveRequest>,
    },
    /// Accept a [`Event::ConnectRequest`]: [`Event::Established`] or [`Event::Disconnected`].
    Accept {
        /// The request's queue pair.
        qp: QueuePairId,
        /// At most 512 octets for the peer's application.
        private_data: Vec<u8>,
        /// The queue pair's attributes.
        attributes: QueuePairAttributes,
        /// Receives to post before the peer can send.
        receives: Vec<ReceiveRequest>,
    },
    /// Refuse a [`Event::ConnectRequest`]. No answer.
    Reject {
        /// The request's queue pair.
        qp: QueuePairId,
        /// At most 512 octets for the peer's application.
        private_data: Vec<u8>,
    },
    /// Register memory for all Streams of a protection domain: [`Event::Registered`] or
    /// [`Event::RegisterFailed`].
    Register {
        /// Comes back in the answer.
        token: Token,
        /// The protection domain, of this application's own ones.
        domain: ProtectionDomain,
        /// The octets.
        region: MemoryRegion,
        /// What may be done with them.
        rights: AccessRights,
    },
    /// Register memory for one Stream alone: [`Event::Registered`] or [`Event::RegisterFailed`].
    /// When the Stream ends nobody can reach it any more, but it stays until it is withdrawn.
    RegisterForStream {
        /// Comes back in the answer.
        token: Token,
        /// The Stream's queue pair.
        qp: QueuePairId,
        /// The octets.
        region: MemoryRegion,
        /// What may be done with them.
        rights: AccessRights,
    },
    /// Withdraw a registration: [`Event::Deregistered`], after which no octet is placed or read.
    Deregister {
        /// Comes back in the answer.
        token: Token,
        /// The registration.
        stag: Stag,
    },
    /// End a Stream once what was posted is sent: [`Event::Disconnected`].
    Disconnect {
        /// The queue pair.
        qp: QueuePairId,
    },
    /// End a Stream at once: [`Event::Disconnected`].
    Abort {
        /// The queue pair.
        qp: QueuePairId,
    },
}

/// What an application is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// A listener is up.
    Listening {
        /// Of the command.
        token: Token,
        /// Its id.
        listener: ListenerId,
    },
    /// A listener could not be made.
    ListenFailed {
        /// Of the command.
        token: Token,
        /// Why.
        error: ListenError,
    },
    /// A peer wants to connect: answer with [`Command::Accept`] or [`Command::Reject`].
    ConnectRequest {
        /// The listener it came to.
        listener: ListenerId,
        /// The queue pair it will have.
        qp: QueuePairId,
        /// The peer.
        remote: SocketAddr,
        /// Its IRD and ORD, where it said them (RFC 6581 section 9.1).
        // req 6581-9.1-1
        depths: Option<PeerDepths>,
        /// Its private data.
        private_data: Vec<u8>,
    },
    /// A Stream is up; work may be posted.
    Established {
        /// Of the command that asked for it; zero on the accepting side.
        token: Token,
        /// The queue pair.
        qp: QueuePairId,
        /// The peer's private data (empty on the accepting side).
        private_data: Vec<u8>,
        /// What was negotiated.
        negotiated: Negotiated,
        /// The peer's own IRD and ORD, where it said them.
        // req 6581-9.1-10
        depths: Option<PeerDepths>,
    },
    /// A connection could not be made.
    ConnectFailed {
        /// Of the command.
        token: Token,
        /// Why.
        error: ConnectError,
        /// The peer's IRD and ORD, where it said them with a Reject.
        depths: Option<PeerDepths>,
        /// What the peer gave with a Reject.
        private_data: Vec<u8>,
    },
    /// Memory is registered; its Tagged Offsets start at 0.
    Registered {
        /// Of the command.
        token: Token,
        /// Its STag.
        stag: Stag,
    },
    /// Memory could not be registered.
    RegisterFailed {
        /// Of the command.
        token: Token,
        /// Why.
        error: crate::mem::RegisterError,
    },
    /// Memory is no longer registered.
    Deregistered {
        /// Of the command.
        token: Token,
        /// Whether there was such a registration.
        found: bool,
    },
    /// A Stream ended. All its requests have completed before this.
    Disconnected {
        /// The queue pair, which is gone.
        qp: QueuePairId,
        /// Why.
        reason: DisconnectReason,
    },
}

/// Why there is no listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// Another listener has the address and TCP port.
    #[error("address in use")]
    AddressInUse,
    /// The port does not have the address.
    #[error("not an address of this port")]
    AddressNotAvailable,
    /// A listener needs a TCP port and a backlog of at least one.
    #[error("a listener needs a TCP port and a backlog of at least 1")]
    Invalid,
    /// The worker's table of listeners is full.
    #[error("too many listeners")]
    TooMany,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No route or no local address of the family.
    #[error("no route to the peer")]
    NoRoute,
    /// The address names no single host, or the TCP port is zero.
    #[error("not the address of a host")]
    NotAHost,
    /// The next hop, a gateway or the peer itself, does not answer ARP or NDP.
    #[error("the next hop does not answer ARP or NDP")]
    Unreachable,
    /// The next hop is there, but the peer does not answer.
    #[error("the peer does not answer")]
    TimedOut,
    /// The peer refused the TCP connection.
    #[error("connection refused")]
    Refused,
    /// The peer's application rejected the MPA Request.
    #[error("rejected by the peer's application")]
    Rejected,
    /// The peer's MPA Reply broke the protocol or cannot be agreed to.
    #[error("MPA start-up failed: {0}")]
    Mpa(#[from] iwarp::mpa::MpaError),
    /// The peer closed or reset the connection during start-up.
    #[error("closed by the peer during start-up")]
    ClosedByPeer,
    /// The application or a stop of the worker ended the attempt.
    #[error("given up on this side")]
    Aborted,
    /// The worker is at its limit of connections, or out of local TCP ports.
    #[error("too many connections")]
    TooMany,
    /// Private data beyond what an MPA frame can carry.
    #[error("private data is too long")]
    PrivateDataTooLong,
}

/// Why a Stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// Asked for here.
    #[error("closed locally")]
    Local,
    /// The peer closed in order.
    #[error("closed by the peer")]
    Peer,
    /// The peer reset the TCP connection.
    #[error("reset by the peer")]
    Reset,
    /// The peer no longer answers.
    #[error("the peer does not answer")]
    TimedOut,
    /// The peer broke the protocol; it was sent a Terminate.
    #[error("{0}")]
    Error(iwarp::error::StreamError),
    /// The peer sent a Terminate.
    #[error("terminated by the peer: {0}")]
    Terminated(iwarp::wire::terminate::TerminateCode),
    /// The private data of an Accept is beyond what an MPA Reply can carry.
    #[error("private data is too long")]
    PrivateDataTooLong,
    /// The worker was stopped.
    #[error("stopped")]
    Stopped,
}

/// A command was not taken because the ring to the worker is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command ring to the worker is full")]
pub struct CommandRingFull;

/// Why work was not taken. Nothing was queued then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbsError {
    /// The request or the queue's state does not allow it.
    Post(PostError),
    /// The ring to the worker is full; poll completions and try again.
    RingFull,
    /// No such queue pair (any more).
    UnknownQueuePair,
}

/// A completion and its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairCompletion {
    /// The queue pair.
    pub qp: QueuePairId,
    /// The completion.
    pub completion: Completion,
}

/// An application's access to a worker.
pub trait Verbs {
    /// Posts to a send queue.
    ///
    /// # Errors
    /// Says why nothing was queued.
    fn post_send(&mut self, qp: QueuePairId, request: SendRequest) -> Result<(), VerbsError>;

    /// Posts an addition to a word of the peer's, at `offset` of its registration `stag`. The completion
    /// has what the word was.
    ///
    /// # Errors
    /// Says why nothing was queued.
    fn post_fetch_add(
        &mut self,
        qp: QueuePairId,
        id: u64,
        (stag, offset): (Stag, u64),
        add: u64,
    ) -> Result<(), VerbsError> {
        self.post_send(qp, SendRequest::atomic(id, stag, offset, AtomicOperation::fetch_add(add)))
    }

    /// Posts a replacement of a word of the peer's by `swap`, if it is `compare`. The completion has what
    /// the word was.
    ///
    /// # Errors
    /// Says why nothing was queued.
    fn post_cmp_swap(
        &mut self,
        qp: QueuePairId,
        id: u64,
        (stag, offset): (Stag, u64),
        compare: u64,
        swap: u64,
    ) -> Result<(), VerbsError> {
        self.post_send(qp, SendRequest::atomic(id, stag, offset, AtomicOperation::cmp_swap(compare, swap)))
    }

    /// Posts 8 octets for a completion of the peer's, which cost it a receive request.
    ///
    /// # Errors
    /// Says why nothing was queued.
    fn post_immediate(
        &mut self,
        qp: QueuePairId,
        id: u64,
        data: [u8; 8],
        solicited: bool,
    ) -> Result<(), VerbsError> {
        self.post_send(qp, SendRequest::immediate(id, data, solicited))
    }

    /// Posts to a receive queue.
    ///
    /// # Errors
    /// Says why nothing was queued.
    fn post_receive(&mut self, qp: QueuePairId, request: ReceiveRequest) -> Result<(), VerbsError>;

    /// Hands a command to the worker.
    ///
    /// # Errors
    /// When the command ring is full; nothing happened then.
    fn submit(&mut self, command: Command) -> Result<(), CommandRingFull>;

    /// The next completion of this application's queue pairs, in order per queue.
    fn next_completion(&mut self) -> Option<QueuePairCompletion>;

    /// The next event of this application.
    fn next_event(&mut self) -> Option<Event>;

    /// The worker's clock, as of its current turn.
    fn now(&self) -> Instant;
}

/// An application, polled by the worker it runs on or by a core of its own.
pub trait Application {
    /// Takes what happened and posts what is next; never blocks. True when there was
    /// something to do. Polled when anything arrived at the worker, and every few looks at the port
    /// when nothing did.
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool;
}
