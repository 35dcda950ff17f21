//! Queue pairs and the phases of their connections.
//!
//! ```text
//! active:   Connecting -> Requesting ----------------> Streaming -> Closing -> (gone)
//! passive:  AwaitingRequest -> AwaitingDecision -----> Streaming -> Closing -> (gone)
//! ```

use iwarp::memory::Accessor;
use iwarp::mpa::{Initiator, Negotiated, Profile, Request, Responder, Segment};
use iwarp::stream::Stream;
use iwarp::work::ReceiveRequest;
use tcpstack::device::Frame;
use tcpstack::stack::ConnectionId;

use super::clients::ClientId;
use crate::verbs::{DisconnectReason, ListenerId, QueuePairAttributes, QueuePairId, Token};

/// A received frame as the Stream sees it: ordered octets.
pub(super) struct Payload<F>(pub(super) F);

impl<F: Frame> Segment for Payload<F> {
    fn octets(&self) -> &[u8] {
        self.0.bytes()
    }
}

/// One connection and what became of it so far.
pub(super) struct Pair<F: Frame> {
    pub(super) id: QueuePairId,
    pub(super) connection: ConnectionId,
    pub(super) client: ClientId,
    /// Of the Connect command; zero on the accepting side.
    pub(super) token: Token,
    pub(super) phase: Phase<F>,
    /// Whether it is in the worker's output queue.
    pub(super) in_output: bool,
}

/// Where a connection is between TCP's SYN and its end.
pub(super) enum Phase<F: Frame> {
    /// TCP is connecting.
    Connecting(Box<Offer>),
    /// The MPA Request is sent, its Reply awaited.
    Requesting(Box<(Initiator, Offer)>),
    /// TCP is up, the MPA Request awaited.
    AwaitingRequest(ListenerId, Box<Responder>),
    /// The application decides about the MPA Request.
    AwaitingDecision(Box<Request>),
    /// Full Operation Phase.
    Streaming(Box<Streaming<F>>),
    /// The application knows of the end; TCP is finishing.
    Closing,
}

/// What a Connect command asked for.
pub(super) struct Offer {
    pub(super) profile: Profile,
    pub(super) private_data: Vec<u8>,
    pub(super) attributes: QueuePairAttributes,
    pub(super) receives: Vec<ReceiveRequest>,
}

/// A Stream in Full Operation Phase.
pub(super) struct Streaming<F: Frame> {
    pub(super) stream: Stream<Payload<F>>,
    /// On whose behalf it accesses memory.
    pub(super) accessor: Accessor,
    pub(super) negotiated: Negotiated,
    /// Why it ends, once that is decided.
    pub(super) ending: Option<DisconnectReason>,
    /// Whether the time to get the last octets out is running.
    pub(super) closing: bool,
}

impl<F: Frame> Phase<F> {
    /// For display.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Connecting(_) => "connecting",
            Self::Requesting(_) => "mpa-request-sent",
            Self::AwaitingRequest(..) => "awaiting-mpa-request",
            Self::AwaitingDecision(_) => "awaiting-accept",
            Self::Streaming(streaming) if streaming.ending.is_some() => "terminating",
            Self::Streaming(_) => "full-operation",
            Self::Closing => "closing",
        }
    }
}

/// The pairs of a worker, placed by their connection's index.
pub(super) struct Pairs<F: Frame> {
    slots: Vec<Option<Box<Pair<F>>>>,
    len: usize,
}

impl<F: Frame> Pairs<F> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn insert(&mut self, pair: Pair<F>) {
        let index = pair.id.index as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        let previous = self.slots[index].replace(Box::new(pair));
        assert!(previous.is_none(), "a connection's slot is reused only after its pair is gone");
        self.len += 1;
    }

    pub(super) fn remove(&mut self, id: QueuePairId) -> Option<Box<Pair<F>>> {
        self.find(id)?;
        self.len -= 1;
        self.slots[id.index as usize].take()
    }

    pub(super) fn find(&mut self, id: QueuePairId) -> Option<&mut Pair<F>> {
        self.slots.get_mut(id.index as usize)?.as_deref_mut().filter(|pair| pair.id == id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Pair<F>> {
        self.slots.iter().flatten().map(Box::as_ref)
    }

    pub(super) fn ids(&self) -> Vec<QueuePairId> {
        self.iter().map(|pair| pair.id).collect()
    }
}

/// A connection's id as applications see it.
pub(super) fn pair_id(connection: ConnectionId) -> QueuePairId {
    QueuePairId { index: connection.index, generation: connection.generation }
}
