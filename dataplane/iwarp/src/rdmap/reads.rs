//! RDMA Reads: ours that the peer has to answer, and the peer's that we have to (RFC 5040
//! section 5.2). Both are answered in order, so both are queues. The peer's Atomic Operations
//! (RFC 7306 section 5) stand in line with its Reads.

use std::collections::VecDeque;

use super::RdmapError;
use super::atomics::ATOMIC_REQUEST_OCTETS;
use super::send_queue::Ticket;
use crate::ddp::untagged::UntaggedReceiver;
use crate::ddp::{DdpError, Payload, Queue};
use crate::error::StreamError;
use crate::types::Stag;
use crate::wire::atomic::{ATOMIC_REQUEST_LEN, AtomicRequest};
use crate::wire::rdmap::{Opcode, READ_REQUEST_LEN, ReadRequest};

/// [`READ_REQUEST_LEN`], as lengths of messages are counted.
pub(crate) const READ_REQUEST_OCTETS: u32 = 28;
const _: () = assert!(READ_REQUEST_OCTETS as usize == READ_REQUEST_LEN);

/// A Read whose Response has not wholly arrived.
pub(crate) struct OutboundRead {
    /// The request; none for the RTR indication, which nobody posted.
    pub(crate) ticket: Option<Ticket>,
    pub(crate) sink_stag: Stag,
    pub(crate) sink_offset: u64,
    pub(crate) len: u32,
    /// Octets that were placed: `0 <= received <= len`.
    pub(crate) received: u32,
}

impl OutboundRead {
    /// Accepts a segment of the Response for Placement, or says why not.
    ///
    /// Every segment is bound to what was asked for, not only the message's first and last.
    #[inline]
    pub(crate) fn check(&self, stag: Stag, offset: u64, len: u32, last: bool) -> Result<(), RdmapError> {
        // req 5041-5.2-10: without payload, STag and TO mean nothing.
        if len > 0 {
            // req 5040-5.2.2-7
            if stag != self.sink_stag {
                return Err(RdmapError::ResponseStag);
            }
            if offset != self.sink_offset.wrapping_add(u64::from(self.received)) {
                return Err(RdmapError::ResponseOffset);
            }
        }
        let left = self.len - self.received;
        if len > left {
            return Err(RdmapError::ResponseTooLong);
        }
        if last && len < left {
            return Err(RdmapError::ResponseTooShort);
        }
        Ok(())
    }
}

/// Our Reads, oldest first; at most ORD of them, which the sender sees to.
pub(crate) struct OutboundReads {
    ring: VecDeque<OutboundRead>,
}

impl OutboundReads {
    pub(crate) fn new(limit: usize) -> Self {
        Self { ring: VecDeque::with_capacity(limit) }
    }

    pub(crate) fn push(&mut self, read: OutboundRead) {
        self.ring.push_back(read);
    }

    pub(crate) fn front(&self) -> Option<&OutboundRead> {
        self.ring.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut OutboundRead> {
        self.ring.front_mut()
    }

    pub(crate) fn pop(&mut self) -> Option<OutboundRead> {
        self.ring.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.ring.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether a posted Read is outstanding: what a fence waits for.
    pub(crate) fn any_posted(&self) -> bool {
        self.ring.back().is_some_and(|read| read.ticket.is_some())
    }
}

/// What the peer asked for.
pub(crate) enum PeerRequest {
    Read(ReadRequest),
    Atomic(AtomicRequest),
}

/// A Read or Atomic of the peer that is not wholly answered.
pub(crate) struct InboundRead {
    pub(crate) request: PeerRequest,
    /// MSN of its Request.
    pub(crate) msn: u32,
}

impl InboundRead {
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.request, PeerRequest::Atomic(_))
    }
}

/// The peer's Reads and Atomics, oldest first, and with them untagged queue 1.
pub(crate) struct InboundReads {
    ring: VecDeque<InboundRead>,
    limit: usize,
    queue: UntaggedReceiver,
    /// Of the Request that is arriving.
    opcode: Option<Opcode>,
    /// The Request that is arriving; complete after its last segment. A Read's is shorter.
    header: [u8; ATOMIC_REQUEST_LEN],
}

impl InboundReads {
    /// Serves up to `limit` Reads and Atomics at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            ring: VecDeque::with_capacity(limit),
            limit,
            queue: UntaggedReceiver::new(Queue::ReadRequest),
            opcode: None,
            header: [0; ATOMIC_REQUEST_LEN],
        }
    }

    /// Checks and takes a segment of a Read Request; the request when that was the last one.
    pub(crate) fn place<P: Payload>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
    ) -> Result<Option<InboundRead>, StreamError> {
        match self.place_header(Opcode::ReadRequest, READ_REQUEST_OCTETS, last, msn, offset, payload)? {
            None => Ok(None),
            Some(READ_REQUEST_OCTETS) => {
                Ok(Some(InboundRead { request: PeerRequest::Read(self.last_header()), msn }))
            }
            Some(_) => Err(RdmapError::ReadRequestLength.into()),
        }
    }

    /// Checks and takes a segment of an Atomic Request; its header when that was the last one.
    pub(crate) fn place_atomic<P: Payload>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
    ) -> Result<Option<&[u8; ATOMIC_REQUEST_LEN]>, StreamError> {
        match self.place_header(Opcode::AtomicRequest, ATOMIC_REQUEST_OCTETS, last, msn, offset, payload)? {
            None => Ok(None),
            Some(ATOMIC_REQUEST_OCTETS) => Ok(Some(&self.header)),
            Some(_) => Err(RdmapError::AtomicRequestLength.into()),
        }
    }

    /// Checks and takes a segment of a Request; the message's length when that was the last one.
    ///
    /// The buffers of this queue are headers, as many as IRD.
    // req 5040-5.2.2-3, 5040-6.1-5
    // req 7306-5.2.2-5: what was negotiated is the sum of Reads and Atomics.
    fn place_header<P: Payload>(
        &mut self,
        opcode: Opcode,
        header_len: u32,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
    ) -> Result<Option<u32>, StreamError> {
        let len = payload.len();
        let capacity = (self.ring.len() < self.limit).then_some(header_len);
        self.queue.check(msn, offset, len as usize, capacity)?;
        // req 5041-4.3-4: the octet that holds the opcode is the same in all segments.
        if *self.opcode.get_or_insert(opcode) != opcode {
            return Err(RdmapError::UnexpectedOpcode.into());
        }
        let at = offset as usize;
        payload.gather(&mut self.header[at..at + len as usize]);
        let message_len = self.queue.placed(len, last);
        if last {
            self.opcode = None;
        }
        Ok(message_len)
    }

    /// Queues a Read that is delivered and allowed.
    pub(crate) fn push(&mut self, read: InboundRead) {
        self.ring.push_back(read);
    }

    /// The Read to answer next.
    pub(crate) fn front(&self) -> Option<&InboundRead> {
        self.ring.front()
    }

    pub(crate) fn pop(&mut self) {
        self.ring.pop_front();
    }

    /// Forgets all Reads but the first `keep`.
    pub(crate) fn truncate(&mut self, keep: usize) {
        self.ring.truncate(keep);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The Read Request that was complete last.
    pub(crate) fn last_header(&self) -> ReadRequest {
        ReadRequest::parse(self.header.first_chunk::<READ_REQUEST_LEN>().expect("it is shorter"))
    }
}

/// The Terminate that the peer may send: untagged queue 2, which has one buffer.
pub(crate) struct TerminateReceiver {
    queue: UntaggedReceiver,
    octets: [u8; Self::CAPACITY as usize],
}

impl TerminateReceiver {
    /// More than any Terminate has; what a sender adds beyond is its error.
    const CAPACITY: u32 = 64;

    pub(crate) fn new() -> Self {
        Self { queue: UntaggedReceiver::new(Queue::Terminate), octets: [0; Self::CAPACITY as usize] }
    }

    /// Checks and takes a segment; the message when that was the last one.
    // req 5040-5.4-4, 5040-5.4-5
    pub(crate) fn place<P: Payload>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
    ) -> Result<Option<&[u8]>, DdpError> {
        let len = payload.len();
        self.queue.check(msn, offset, len as usize, Some(Self::CAPACITY))?;
        let at = offset as usize;
        payload.gather(&mut self.octets[at..at + len as usize]);
        Ok(self.queue.placed(len, last).map(|len| &self.octets[..len as usize]))
    }
}
