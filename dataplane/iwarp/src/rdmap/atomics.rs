//! Atomic Operations, both ways (RFC 7306 section 5).
//!
//! ```text
//! requester   -- Atomic Request, queue 1, between the Read Requests -->   responder
//!             <-- Atomic Response, queue 3, in the order of Requests --
//! ```
//!
//! A Request takes a place among the peer's Reads, counted in the same IRD, and is carried out when its
//! Response is built: after the Responses to what came before it, and never when the Stream has ended.
//!
//! Section 7's table of orders follows from this, and from what else is done the moment it is delivered.

use std::collections::VecDeque;

use super::RdmapError;
use super::endpoint::Endpoint;
use super::reads::{InboundRead, PeerRequest};
use super::send_queue::{Entry, Queued, Ticket};
use crate::ddp::segmenter::Cut;
use crate::ddp::untagged::UntaggedReceiver;
use crate::ddp::{Payload, Queue, sg_list};
use crate::error::{LocalError, StreamError};
use crate::memory::{AccessError, Memory, Operation};
use crate::wire::atomic::{
    ATOMIC_REQUEST_LEN, ATOMIC_RESPONSE_LEN, AtomicRequest, AtomicResponse, UnknownOperation,
};
use crate::wire::ddp::Header;
use crate::wire::rdmap::{Opcode, QUEUE_ATOMIC_RESPONSE, QUEUE_READ_REQUEST};
use crate::wire::terminate::Terminate;
use crate::work::{Sge, Status};

/// [`ATOMIC_REQUEST_LEN`], as lengths of messages are counted.
pub(super) const ATOMIC_REQUEST_OCTETS: u32 = 52;
const _: () = assert!(ATOMIC_REQUEST_OCTETS as usize == ATOMIC_REQUEST_LEN);

/// [`ATOMIC_RESPONSE_LEN`], as lengths of messages are counted.
const ATOMIC_RESPONSE_OCTETS: u32 = 12;
const _: () = assert!(ATOMIC_RESPONSE_OCTETS as usize == ATOMIC_RESPONSE_LEN);

/// An Atomic whose Response has not arrived.
pub(super) struct OutboundAtomic {
    ticket: Ticket,
    /// The MSN of its Request: unique among what is outstanding, and what a Terminate would show.
    request_id: u32,
    /// Where the original value goes.
    sink: Option<Sge>,
}

/// Our Atomics, oldest first, and with them untagged queue 3; with our Reads at most ORD, which the
/// sender sees to.
pub(super) struct OutboundAtomics {
    ring: VecDeque<OutboundAtomic>,
    queue: UntaggedReceiver,
    /// The Response that is arriving.
    header: [u8; ATOMIC_RESPONSE_LEN],
}

impl OutboundAtomics {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            ring: VecDeque::with_capacity(limit),
            queue: UntaggedReceiver::new(Queue::AtomicResponse),
            header: [0; ATOMIC_RESPONSE_LEN],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.ring.clear();
    }

    /// Checks and takes a segment of the oldest Atomic's Response, which is the buffer of its queue; the
    /// Response when that was the last one.
    // req 7306-5-5, 7306-5.2.2-1, 7306-5.2.2-6, 7306-8.2-2: a place for each Atomic of ours.
    fn place<P: Payload>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
    ) -> Result<Option<AtomicResponse>, StreamError> {
        let len = payload.len();
        let capacity = (!self.ring.is_empty()).then_some(ATOMIC_RESPONSE_OCTETS);
        self.queue.check(msn, offset, len as usize, capacity)?;
        let at = offset as usize;
        payload.gather(&mut self.header[at..at + len as usize]);
        match self.queue.placed(len, last) {
            None => Ok(None),
            Some(ATOMIC_RESPONSE_OCTETS) => Ok(Some(AtomicResponse::parse(&self.header))),
            Some(_) => Err(RdmapError::AtomicResponseLength.into()),
        }
    }
}

/// The peer's Atomics.
impl Endpoint {
    /// Takes a segment of an Atomic Request; a whole one waits for its turn to be answered.
    // req 7306-5.2.1-5, 7306-5.2.1-6, 7306-5.2.1-7, 7306-5.4-4, 7306-5.4-6
    #[cold]
    pub(super) fn atomic_request<P: Payload, M: Memory>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
        memory: &M,
    ) -> Result<(), StreamError> {
        let Some(header) = self.peer_reads.place_atomic(last, msn, offset, payload)? else {
            return Ok(());
        };
        // req 7306-5.2.1-8
        let request =
            AtomicRequest::parse(header).map_err(|UnknownOperation(_)| RdmapError::UnknownAtomic)?;
        // req 7306-5.1.1-1, 7306-5.1.1-2, 7306-5.1.2-2, 7306-5.1.2-3, 7306-5.1.2-4, 7306-5.1.2-5
        // req 7306-5.2.1-2, 7306-8.2-5, 7306-8.2-6
        memory.check_atomic(self.who, request.stag, request.offset).map_err(RdmapError::AtomicTarget)?;
        // req 7306-5.2.1-12, 7306-5.4-9, 7306-5.4-5, 7306-5.4-7, 7306-7-1, 7306-7-2
        self.peer_reads.push(InboundRead { request: PeerRequest::Atomic(request), msn });
        Ok(())
    }

    // req 7306-5.2.2-2, 7306-5.2.2-3, 7306-5.2.2-4, 7306-5.2.2-8, 7306-5.4-10
    pub(super) fn plan_atomic_response(&self) -> (Header, Cut) {
        let cut = Cut { offset: 0, len: ATOMIC_RESPONSE_OCTETS, last: true };
        let msn = self.outgoing.atomic_msn;
        (self.untagged(Opcode::AtomicResponse, 0, QUEUE_ATOMIC_RESPONSE, msn, true), cut)
    }

    /// Carries an Atomic out and writes its Response.
    // req 7306-5.2.1-13
    #[cold]
    pub(super) fn fill_atomic_response<M: Memory>(
        &self,
        request: &AtomicRequest,
        payload: &mut [u8],
        memory: &M,
    ) -> Result<(), AccessError> {
        let original = memory.atomic(self.who, request.stag, request.offset, request.operation)?;
        payload.copy_from_slice(&AtomicResponse { request_id: request.request_id, original }.emit());
        Ok(())
    }
}

/// Our own Atomics.
impl Endpoint {
    // req 7306-5.2.1-3, 7306-5.2.1-4, 7306-5.2.1-9, 7306-5.2.1-10, 7306-5.2.1-11
    pub(super) fn plan_atomic_request(&self) -> (Header, Cut) {
        let cut = Cut { offset: 0, len: ATOMIC_REQUEST_OCTETS, last: true };
        let msn = self.outgoing.read_msn;
        (self.untagged(Opcode::AtomicRequest, 0, QUEUE_READ_REQUEST, msn, true), cut)
    }

    /// Writes the next request's Atomic Request.
    #[cold]
    pub(super) fn fill_atomic_request<M: Memory>(
        &self,
        entry: &Entry,
        payload: &mut [u8],
        memory: &M,
    ) -> Result<(), AccessError> {
        let (Queued::Atomic { stag, offset }, Some(operation)) = (entry.operation, self.sends.next_word())
        else {
            return Ok(());
        };
        sg_list::check_all(memory, self.who, Operation::LocalWrite, &entry.sg_list)?;
        let request_id = self.outgoing.read_msn;
        payload.copy_from_slice(&AtomicRequest { request_id, stag, offset, operation }.emit());
        Ok(())
    }

    /// The next request's Atomic Request is built: its Response is awaited.
    #[cold]
    pub(super) fn built_atomic_request(&mut self, sink: Option<Sge>) {
        let request_id = self.outgoing.read_msn;
        self.outgoing.read_msn = request_id.wrapping_add(1);
        self.atomics.ring.push_back(OutboundAtomic { ticket: self.sends.next_ticket(), request_id, sink });
        self.sends.requested_next();
    }

    /// Takes a segment of an Atomic Response; a whole one completes the oldest Atomic.
    #[cold]
    pub(super) fn atomic_response<P: Payload, M: Memory>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
        memory: &mut M,
    ) -> Result<(), StreamError> {
        let response = match self.atomics.place(last, msn, offset, payload) {
            Ok(None) => return Ok(()),
            Ok(Some(response)) => Ok(response),
            Err(error) => Err(error),
        };
        let Some(atomic) = self.atomics.ring.front() else { return response.map(|_| ()) };
        let (ticket, sink) = (atomic.ticket, atomic.sink);
        let response = match response {
            Ok(response) if response.request_id == atomic.request_id => response,
            other => {
                self.sends.doom(ticket, Status::RemoteError);
                return Err(other.err().unwrap_or(RdmapError::AtomicResponseId.into()));
            }
        };
        if let Some(sink) = sink {
            let octets = response.original.to_ne_bytes();
            let placed = memory.place(self.who, Operation::LocalWrite, sink.stag, sink.offset, &octets);
            if let Err(error) = placed {
                self.sends.doom(ticket, Status::LocalAccess);
                return Err(LocalError::RequestBuffer(error).into());
            }
        }
        self.atomics.ring.pop_front();
        // req 7306-5.2.2-7, 7306-5.4-1, 7306-5.4-8
        self.sends.answered(ticket, response.original, &mut self.completions);
        Ok(())
    }

    /// The Atomic whose Request a Terminate of the peer shows.
    pub(super) fn refused_atomic(&self, terminate: &Terminate) -> Option<Ticket> {
        let header = Header::parse(terminate.cause.as_ref()?.header.octets(), self.version).ok()?;
        let Header::Untagged { ulp_control, queue: QUEUE_READ_REQUEST, msn, .. } = header else {
            return None;
        };
        let opcode = Opcode::parse_control(ulp_control, self.version).ok()?;
        let mut outstanding = self.atomics.ring.iter();
        let found = outstanding.find(|it| opcode == Opcode::AtomicRequest && it.request_id == msn)?;
        Some(found.ticket)
    }
}
