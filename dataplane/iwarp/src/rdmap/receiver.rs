//! What the peer sends: checks, Placement and Delivery (RFC 5040 sections 5 and 7.2). What RFC 7306
//! adds is in `atomics` and `immediate`.
//!
//! A segment is looked at in one order, whatever it is: DDP header, opcode and its queue, then
//! the checks of its buffer; only then is anything placed. The first violation ends reception
//! and becomes a Terminate that shows the segment.

use super::RdmapError;
use super::endpoint::{Endpoint, Phase};
use super::reads::PeerRequest;
use super::receive_queue::SendSegment;
use crate::ddp::{DdpError, Payload, Queue, tagged};
use crate::error::StreamError;
use crate::memory::{Memory, Operation};
use crate::mpa::RtrKind;
use crate::types::Stag;
use crate::wire::ddp::{FormatError, HEADER_LEN_MAX, Header};
use crate::wire::rdmap::{ControlError, Opcode, READ_REQUEST_LEN, ReadRequest};
use crate::wire::terminate::{Cause, RemoteProtection, Terminate, TerminateCode, TerminatedHeader};
use crate::work::{CompletedOperation, Status};

/// What the first FPDU may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstFpdu {
    /// It is past, or its arrival changes nothing: this is the Initiator.
    Arrived,
    /// Any; it allows this Responder to send.
    Any,
    /// The negotiated RTR indication, which is not for the application.
    Rtr(RtrKind),
}

/// A received DDP Segment.
pub(crate) trait ReceivedSegment {
    /// Octets, header included.
    fn len(&self) -> usize;

    /// The DDP header and maybe more, or all that there is; put together in `scratch` if need be.
    fn head<'a>(&'a self, scratch: &'a mut [u8; HEADER_LEN_MAX]) -> &'a [u8];

    /// What follows the first `header_len` octets, of which there are as many.
    fn payload(&self, header_len: usize) -> impl Payload;
}

impl Endpoint {
    /// Takes the next segment that MPA delivered.
    #[inline]
    pub(crate) fn receive<S: ReceivedSegment, M: Memory>(&mut self, segment: &S, memory: &mut M) {
        if let Err(error) = self.accept(segment, memory) {
            self.refuse(error, segment);
        }
    }

    /// MPA found an error and delivers nothing more.
    ///
    /// If that was the first FPDU, a Responder has received no valid one and stays silent.
    // req 5041-7-1
    pub(crate) fn receive_failed(&mut self, error: StreamError) {
        self.terminate(error, None);
    }

    #[inline]
    fn accept<S: ReceivedSegment, M: Memory>(
        &mut self,
        segment: &S,
        memory: &mut M,
    ) -> Result<(), StreamError> {
        self.outgoing.allow();
        let mut scratch = [0; HEADER_LEN_MAX];
        let header =
            Header::parse(segment.head(&mut scratch), self.version).map_err(|error| match error {
                FormatError::Truncated => DdpError::Truncated,
                FormatError::Version { tagged: true } => DdpError::TaggedVersion,
                FormatError::Version { tagged: false } => DdpError::UntaggedVersion,
            })?;
        let queue = match header {
            Header::Tagged { .. } => None,
            Header::Untagged { queue, .. } => Some(Queue::from_number(queue)?).map(|_| queue),
        };
        let opcode = self.opcode(header.ulp_control(), queue)?;
        let payload = segment.payload(header.len());
        if self.first_fpdu != FirstFpdu::Arrived && self.accept_first(opcode, &header, &payload)? {
            return Ok(());
        }
        // req 5041-5.2-4, 5041-5.3-1
        // req 5041-4.2-3, 5041-4.2-8: RDMAP has the header at hand, STag and all.
        match (opcode, header) {
            (Opcode::Write, Header::Tagged { stag, offset, .. }) => {
                self.write(stag, offset, &payload, memory)
            }
            (Opcode::ReadResponse, Header::Tagged { last, stag, offset, .. }) => {
                self.read_response(last, stag, offset, &payload, memory)
            }
            (
                Opcode::Send
                | Opcode::SendInvalidate
                | Opcode::SendSolicited
                | Opcode::SendSolicitedInvalidate,
                Header::Untagged { last, ulp_word, msn, offset, .. },
            ) => {
                let segment = SendSegment { opcode, last, msn, offset };
                self.send(&segment, Stag(ulp_word), &payload, memory)
            }
            (Opcode::ReadRequest, Header::Untagged { last, msn, offset, .. }) => {
                self.read_request(last, msn, offset, &payload, memory)
            }
            (Opcode::Terminate, Header::Untagged { last, msn, offset, .. }) => {
                self.terminated_by_peer(last, msn, offset, &payload)
            }
            (Opcode::AtomicRequest, Header::Untagged { last, msn, offset, .. }) => {
                self.atomic_request(last, msn, offset, &payload, memory)
            }
            (Opcode::AtomicResponse, Header::Untagged { last, msn, offset, .. }) => {
                self.atomic_response(last, msn, offset, &payload, memory)
            }
            (
                Opcode::ImmediateData | Opcode::ImmediateDataSolicited,
                Header::Untagged { last, msn, offset, .. },
            ) => self.immediate(&SendSegment { opcode, last, msn, offset }, &payload),
            _ => Err(RdmapError::UnexpectedOpcode.into()),
        }
    }

    /// Holds the first FPDU against what was negotiated; true when it is dealt with thereby.
    fn accept_first<P: Payload>(
        &mut self,
        opcode: Opcode,
        header: &Header,
        payload: &P,
    ) -> Result<bool, StreamError> {
        let expected = core::mem::replace(&mut self.first_fpdu, FirstFpdu::Arrived);
        let FirstFpdu::Rtr(kind) = expected else { return Ok(false) };
        match (kind, opcode, *header) {
            // An Initiator that cannot go on says so instead (RFC 6581 section 9).
            (_, Opcode::Terminate, _) => Ok(false),
            (RtrKind::Write, Opcode::Write, Header::Tagged { last: true, .. }) if payload.len() == 0 => {
                Ok(true)
            }
            (RtrKind::Send, Opcode::Send, Header::Untagged { last: true, msn, offset, .. })
                if payload.len() == 0 =>
            {
                self.receives.pass_over(msn, offset)?;
                Ok(true)
            }
            // Answered as any other.
            (RtrKind::Read, Opcode::ReadRequest, Header::Untagged { last: true, .. })
                if reads_nothing(payload) =>
            {
                Ok(false)
            }
            _ => Err(RdmapError::UnexpectedRtr.into()),
        }
    }

    /// The opcode, if it belongs on this queue (none: a tagged buffer).
    // req 5040-7.2-2, 5040-7.2-3, 7306-8.2-1, 7306-8.2-3, 7306-8.2-4
    #[inline]
    fn opcode(&self, control: u8, queue: Option<u32>) -> Result<Opcode, RdmapError> {
        let opcode = Opcode::parse_control(control, self.version).map_err(|error| match error {
            ControlError::Version => RdmapError::Version,
            ControlError::Opcode => RdmapError::UnexpectedOpcode,
        })?;
        if opcode.queue() != queue {
            return Err(RdmapError::UnexpectedOpcode);
        }
        Ok(opcode)
    }

    // req 5040-5.1-3: nobody is told.
    #[inline]
    fn write<P: Payload, M: Memory>(
        &mut self,
        stag: Stag,
        offset: u64,
        payload: &P,
        memory: &mut M,
    ) -> Result<(), StreamError> {
        let len = payload.len();
        tagged::place(memory, self.who, Operation::RemoteWrite, stag, offset, len, payload.pieces())
            .map_err(|error| DdpError::Tagged(error).into())
    }

    // req 5041-4.3-3, 5041-4.3-5, 5041-5.4-3: the word that comes with the last segment counts.
    // req 5040-5.5-5, 5040-5.5-12
    #[inline]
    fn send<P: Payload, M: Memory>(
        &mut self,
        segment: &SendSegment,
        invalidate: Stag,
        payload: &P,
        memory: &mut M,
    ) -> Result<(), StreamError> {
        let Some(len) = self.receives.place(segment, payload, memory, self.who)? else {
            return Ok(());
        };
        let (invalidates, solicited) = match segment.opcode {
            Opcode::SendInvalidate => (true, false),
            Opcode::SendSolicited => (false, true),
            Opcode::SendSolicitedInvalidate => (true, true),
            _ => (false, false),
        };
        let invalidated = invalidates.then_some(invalidate);
        if let Some(stag) = invalidated {
            // req 5040-5.3-13, 5040-7.2-4, 5040-7.2-5
            memory.invalidate(self.who, stag).map_err(RdmapError::Invalidate)?;
        }
        let operation = CompletedOperation::Receive { invalidated, solicited };
        self.receives.deliver(operation, len, &mut self.completions);
        Ok(())
    }

    // req 5040-5.2.2-4, 5040-5.5-6
    #[inline]
    fn read_response<P: Payload, M: Memory>(
        &mut self,
        last: bool,
        stag: Stag,
        offset: u64,
        payload: &P,
        memory: &mut M,
    ) -> Result<(), StreamError> {
        let len = payload.len();
        let read = self.reads.front_mut().ok_or(RdmapError::UnsolicitedResponse)?;
        let ticket = read.ticket;
        let placed = match read.check(stag, offset, len, last) {
            Err(error) => Err((Status::RemoteError, StreamError::Rdmap(error))),
            Ok(()) => {
                tagged::place(memory, self.who, Operation::LocalWrite, stag, offset, len, payload.pieces())
                    .map_err(|error| (Status::LocalAccess, DdpError::Tagged(error).into()))
            }
        };
        if let Err((status, error)) = placed {
            if let Some(ticket) = ticket {
                self.sends.doom(ticket, status);
            }
            return Err(error);
        }
        read.received += len;
        if last {
            self.reads.pop();
            if let Some(ticket) = ticket {
                // req 5040-5.5-15, 5040-5.5-17
                self.sends.end(ticket, Status::Success, &mut self.completions);
            }
        }
        Ok(())
    }

    // req 5040-5.2.1-3, 5040-5.2.1-4, 5040-5.2.1-5, 5040-5.2.1-9, 5040-5.2.1-13
    // req 5040-5.5-7, 5040-5.5-13
    fn read_request<P: Payload, M: Memory>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
        memory: &mut M,
    ) -> Result<(), StreamError> {
        let Some(read) = self.peer_reads.place(last, msn, offset, payload)? else { return Ok(()) };
        // req 5040-5.2.1-16
        if let PeerRequest::Read(request) = &read.request
            && request.len > 0
        {
            // req 5040-5.2.1-15, 5040-7.2-7, 5040-7.2-8, 5040-7.2-9, 5040-7.2-10, 5040-7.2-11
            memory
                .check(
                    self.who,
                    Operation::RemoteRead,
                    request.source_stag,
                    request.source_offset,
                    request.len,
                )
                .map_err(RdmapError::ReadSource)?;
        }
        self.peer_reads.push(read);
        Ok(())
    }

    // req 5040-5.4-6, 5040-5.4-7, 5040-5.4-9
    fn terminated_by_peer<P: Payload>(
        &mut self,
        last: bool,
        msn: u32,
        offset: u32,
        payload: &P,
    ) -> Result<(), StreamError> {
        let Some(octets) = self.terminate_in.place(last, msn, offset, payload)? else { return Ok(()) };
        let Some(terminate) = Terminate::parse(octets) else {
            // A Terminate is not answered with a Terminate.
            self.end_in_error(RdmapError::MalformedTerminate.into());
            return Ok(());
        };
        if let Some(ticket) = self.refused_atomic(&terminate) {
            self.sends.doom(ticket, Status::RemoteError);
        } else if refuses_read(&terminate)
            && let Some(ticket) = self.reads.front().and_then(|read| read.ticket)
        {
            self.sends.doom(ticket, Status::RemoteError);
        }
        self.terminate_received = Some(terminate.code);
        self.end(Phase::Terminated);
        Ok(())
    }

    /// Ends reception, with a Terminate that shows the segment as RFC 5040 figure 10 says.
    // req 5041-7.1-7, 5041-7.1-8, 5041-8.3-4, 5040-4.8-4, 5040-4.8-5
    #[cold]
    fn refuse<S: ReceivedSegment>(&mut self, error: StreamError, segment: &S) {
        let shows_segment = match error.terminate_code() {
            TerminateCode::RemoteProtection(_)
            | TerminateCode::RemoteOperation(_)
            | TerminateCode::Tagged(_)
            | TerminateCode::Untagged(_) => true,
            TerminateCode::LocalCatastrophic
            | TerminateCode::DdpCatastrophic
            | TerminateCode::Mpa(_)
            | TerminateCode::Undefined(_) => false,
        };
        let mut scratch = [0; HEADER_LEN_MAX];
        let head = segment.head(&mut scratch);
        let head = &head[..head.len().min(HEADER_LEN_MAX)];
        let header = TerminatedHeader::of(head).filter(|_| shows_segment);
        let cause = header.map(|header| Cause {
            segment_len: u16::try_from(segment.len()).unwrap_or(u16::MAX),
            header,
            read_request: matches!(error, StreamError::Rdmap(RdmapError::ReadSource(_)))
                .then(|| self.peer_reads.last_header()),
        });
        self.terminate(error, cause);
    }
}

impl ReceivedSegment for &[u8] {
    #[inline]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn head<'a>(&'a self, _scratch: &'a mut [u8; HEADER_LEN_MAX]) -> &'a [u8] {
        self
    }

    #[inline]
    fn payload(&self, header_len: usize) -> impl Payload {
        &self[header_len..]
    }
}

impl Payload for &[u8] {
    #[inline]
    fn len(&self) -> u32 {
        u32::try_from((**self).len()).unwrap_or(u32::MAX)
    }

    #[inline]
    fn gather(&self, out: &mut [u8]) {
        out.copy_from_slice(self);
    }

    #[inline]
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(*self).filter(|piece| !piece.is_empty())
    }
}

/// Whether a Read Request asks for no octets.
fn reads_nothing<P: Payload>(payload: &P) -> bool {
    let mut octets = [0; READ_REQUEST_LEN];
    payload.len() as usize == READ_REQUEST_LEN && {
        payload.gather(&mut octets);
        ReadRequest::parse(&octets).len == 0
    }
}

/// Whether a Terminate of the peer is about a Read Request of ours; Reads are looked at in
/// order, so that the oldest without a Response is meant.
fn refuses_read(terminate: &Terminate) -> bool {
    match terminate.code {
        TerminateCode::RemoteProtection(code) => code != RemoteProtection::CannotInvalidate,
        _ => terminate.cause.as_ref().is_some_and(|cause| cause.read_request.is_some()),
    }
}
