//! Which message goes out next, and its segments (RFC 5040 sections 5 and 5.5).
//!
//! Messages are interleaved, segments of different messages never are: the message that is
//! being sent is finished first, even before a Terminate, so that the peer can still make sense
//! of it. Between messages, answers to the peer's Reads and Atomics and posted requests take turns
//! while both are waiting. What RFC 7306 adds is in `atomics` and `immediate`.

use super::RdmapError;
use super::endpoint::{Endpoint, Phase};
use super::reads::{InboundRead, OutboundRead, PeerRequest, READ_REQUEST_OCTETS};
use super::send_queue::{Entry, Queued};
use crate::ddp::segmenter::{Cut, cut};
use crate::ddp::sg_list::{self, SgCursor};
use crate::error::LocalError;
use crate::memory::{AccessError, Memory, Operation};
use crate::mpa::RtrKind;
use crate::types::Stag;
use crate::wire::Version;
use crate::wire::ddp::{HEADER_LEN_MAX, HEADER_LEN_TAGGED, HEADER_LEN_UNTAGGED, Header};
use crate::wire::rdmap::{
    Opcode, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE, READ_REQUEST_LEN, ReadRequest,
};
use crate::wire::terminate::{Cause, TerminatedHeader};
use crate::work::Status;

/// The messages that can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// The RTR indication, before anything else.
    Rtr(RtrKind),
    /// The next posted request's.
    Request,
    /// The answer to the peer's oldest Read or Atomic.
    Response,
    Terminate,
}

/// An FPDU to build.
pub(crate) struct Plan {
    message: Message,
    header: Header,
    cut: Cut,
}

impl Plan {
    /// Octets of the ULPDU.
    #[inline]
    pub(crate) fn ulpdu_len(&self) -> usize {
        self.header.len() + self.cut.len as usize
    }
}

/// Where the send side is.
pub(crate) struct Outgoing {
    /// False in a Responder until the Initiator's first FPDU arrived.
    may_send: bool,
    rtr: Option<RtrKind>,
    /// The message of which some, but not all, segments are built.
    in_progress: Option<Message>,
    /// Octets of it that are built.
    progress: u32,
    /// Where in the request's list the next octet is.
    cursor: SgCursor,
    /// Whether a Response goes before a request when both wait.
    response_turn: bool,
    pub(super) send_msn: u32,
    /// Of Read and Atomic Requests.
    pub(super) read_msn: u32,
    /// Of Atomic Responses.
    pub(super) atomic_msn: u32,
    /// Whether the FPDU that was built last ended its message.
    message_ended: bool,
}

impl Outgoing {
    /// With the RTR indication to send, if this is the Initiator and there is one.
    pub(crate) fn new(may_send: bool, rtr: Option<RtrKind>) -> Self {
        Self {
            may_send,
            rtr,
            in_progress: None,
            progress: 0,
            cursor: SgCursor::default(),
            response_turn: false,
            // req 5041-4.3-9
            send_msn: 1,
            read_msn: 1,
            atomic_msn: 1,
            message_ended: true,
        }
    }

    /// The peer's first FPDU arrived.
    #[inline]
    pub(super) fn allow(&mut self) {
        self.may_send = true;
    }

    pub(super) fn may_send(&self) -> bool {
        self.may_send
    }

    /// Forgets the message that is being sent.
    pub(super) fn stop(&mut self) {
        self.rtr = None;
        self.end_message();
    }

    /// Whether no message is being sent and no RTR indication is due.
    pub(super) fn is_idle(&self) -> bool {
        self.in_progress.is_none() && self.rtr.is_none()
    }

    /// How many Responses are being sent.
    pub(super) fn responses_in_progress(&self) -> usize {
        usize::from(self.in_progress == Some(Message::Response))
    }

    fn end_message(&mut self) {
        self.in_progress = None;
        self.progress = 0;
        self.cursor = SgCursor::default();
    }
}

impl Endpoint {
    /// Whether there is an FPDU to build now.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.choose().is_some()
    }

    /// The next FPDU, of at most `mulpdu` octets of ULPDU.
    #[inline]
    pub(crate) fn plan(&self, mulpdu: usize) -> Option<Plan> {
        let message = self.choose()?;
        let (header, cut) = match message {
            Message::Rtr(kind) => self.plan_rtr(kind),
            Message::Request => self.plan_request(mulpdu)?,
            Message::Response => self.plan_response(self.peer_reads.front()?, mulpdu),
            Message::Terminate => self.plan_terminate()?,
        };
        Some(Plan { message, header, cut })
    }

    /// Writes a planned FPDU's ULPDU: the one copy of its payload.
    ///
    /// # Errors
    /// The memory that the payload is in was refused; nothing is sent then.
    #[inline]
    pub(crate) fn fill<M: Memory>(
        &mut self,
        plan: &Plan,
        ulpdu: &mut [u8],
        memory: &M,
    ) -> Result<(), AccessError> {
        // req 5040-3.1-1, 5040-6.1-1
        let header_len = plan.header.emit(ulpdu, self.version);
        let payload = &mut ulpdu[header_len..];
        // req 5040-4.2-1
        match plan.message {
            Message::Rtr(RtrKind::Read) => payload.copy_from_slice(&rtr_read().emit()),
            Message::Rtr(RtrKind::Send | RtrKind::Write) => {}
            Message::Request => return self.fill_request(plan.cut, payload, memory),
            Message::Response => match self.peer_reads.front().map(|read| &read.request) {
                Some(PeerRequest::Read(request)) if !payload.is_empty() => {
                    let at = request.source_offset.wrapping_add(u64::from(plan.cut.offset));
                    memory.fetch(self.who, Operation::RemoteRead, request.source_stag, at, payload)?;
                }
                Some(PeerRequest::Atomic(request)) => {
                    return self.fill_atomic_response(request, payload, memory);
                }
                Some(PeerRequest::Read(_)) | None => {}
            },
            Message::Terminate => {
                if let Phase::Terminating(octets) = &self.phase {
                    payload.copy_from_slice(octets);
                }
            }
        }
        Ok(())
    }

    /// A planned FPDU could not be filled: the Stream ends, and a Terminate goes out instead.
    // req 5040-7.1-2
    #[cold]
    pub(crate) fn fill_failed(&mut self, plan: &Plan, error: AccessError) {
        match plan.message {
            Message::Request => self.fail_request(error),
            Message::Response => self.fail_response(error),
            Message::Rtr(_) | Message::Terminate => {}
        }
    }

    /// Takes note that a planned FPDU is built.
    #[inline]
    pub(crate) fn built(&mut self, plan: &Plan) {
        self.outgoing.message_ended = plan.cut.last;
        if !plan.cut.last {
            self.outgoing.in_progress = Some(plan.message);
            self.outgoing.progress += plan.cut.len;
            return;
        }
        self.outgoing.end_message();
        match plan.message {
            Message::Rtr(kind) => self.built_rtr(kind),
            Message::Request => self.built_request(),
            // req 5040-5.2.2-6, 5040-5.5-16
            Message::Response => {
                if self.peer_reads.front().is_some_and(InboundRead::is_atomic) {
                    self.outgoing.atomic_msn = self.outgoing.atomic_msn.wrapping_add(1);
                }
                self.peer_reads.pop();
                self.outgoing.response_turn = false;
            }
            // req 5040-5.4-8
            Message::Terminate => self.end(Phase::Terminated),
        }
    }

    /// Whether the FPDU that was built last ended its message.
    pub(crate) fn message_ended(&self) -> bool {
        self.outgoing.message_ended
    }

    #[inline]
    fn choose(&self) -> Option<Message> {
        let outgoing = &self.outgoing;
        if !outgoing.may_send {
            return None;
        }
        // req 5041-5.3-2, 5041-4.1-5
        if outgoing.in_progress.is_some() {
            return outgoing.in_progress;
        }
        match self.phase {
            Phase::Operating | Phase::Closing => {}
            Phase::Terminating(_) => return Some(Message::Terminate),
            Phase::Terminated | Phase::Closed => return None,
        }
        // req 6581-5-1, 6581-9.2-9
        if let Some(kind) = outgoing.rtr {
            return Some(Message::Rtr(kind));
        }
        // req 5040-5.5-8, 5040-5.5-14: what arrives meanwhile does not wait for the Response.
        let request = self.request_is_ready();
        if !self.peer_reads.is_empty() && (outgoing.response_turn || !request) {
            return Some(Message::Response);
        }
        request.then_some(Message::Request)
    }

    /// Whether the next posted request may be sent now. Later ones wait with it.
    // req 5040-5.5-9, 5040-5.1-6, 5040-5.1-7, 5040-5.2.1-8, 5040-5.3-8
    #[inline]
    fn request_is_ready(&self) -> bool {
        let Some(entry) = self.sends.next() else { return false };
        if entry.fence && (self.reads.any_posted() || !self.atomics.is_empty()) {
            return false;
        }
        // req 5040-6.1-4
        !matches!(entry.operation, Queued::Read { .. } | Queued::Atomic { .. })
            || self.reads.len() + self.atomics.len() < self.ord
    }

    fn plan_rtr(&self, kind: RtrKind) -> (Header, Cut) {
        match kind {
            RtrKind::Send => (self.untagged(Opcode::Send, 0, QUEUE_SEND, 1, true), WHOLE),
            RtrKind::Write => (self.tagged(Opcode::Write, RTR_STAG, 0, true), WHOLE),
            RtrKind::Read => {
                let cut = Cut { len: READ_REQUEST_OCTETS, ..WHOLE };
                (self.untagged(Opcode::ReadRequest, 0, QUEUE_READ_REQUEST, 1, true), cut)
            }
        }
    }

    #[inline]
    fn plan_request(&self, mulpdu: usize) -> Option<(Header, Cut)> {
        let entry = self.sends.next()?;
        let progress = self.outgoing.progress;
        Some(match entry.operation {
            // req 5040-5.3-1, 5040-5.3-2, 5040-5.3-7, 5040-5.3-9, 5040-5.3-11, 5040-5.3-12
            Queued::Send { invalidate, solicited } => {
                let opcode = match (invalidate, solicited) {
                    (None, false) => Opcode::Send,
                    (Some(_), false) => Opcode::SendInvalidate,
                    (None, true) => Opcode::SendSolicited,
                    (Some(_), true) => Opcode::SendSolicitedInvalidate,
                };
                let cut = cut(entry.len, progress, mulpdu, HEADER_LEN_UNTAGGED);
                // req 5040-4.1-3, 5040-4.1-10
                let word = invalidate.map_or(0, |stag| stag.0);
                let msn = self.outgoing.send_msn;
                let mut header = self.untagged(opcode, word, QUEUE_SEND, msn, cut.last);
                if let Header::Untagged { offset, .. } = &mut header {
                    // req 5041-5.2-5, 5041-4.1-6
                    *offset = cut.offset;
                }
                (header, cut)
            }
            // req 5040-5.1-1, 5040-5.1-2, 5040-5.1-5, 5040-5.1-8, 5040-5.1-9
            Queued::Write { stag, offset } => {
                let cut = cut(entry.len, progress, mulpdu, HEADER_LEN_TAGGED);
                // req 5041-5.2-6, 5041-5.2-7, 5041-4.2-11
                let offset = offset.wrapping_add(u64::from(cut.offset));
                (self.tagged(Opcode::Write, stag, offset, cut.last), cut)
            }
            // req 5040-5.2.1-1, 5040-5.2.1-2, 5040-5.2.1-6, 5040-5.2.1-7, 5040-5.2.1-11
            Queued::Read { .. } => {
                let msn = self.outgoing.read_msn;
                let cut = Cut { len: READ_REQUEST_OCTETS, ..WHOLE };
                (self.untagged(Opcode::ReadRequest, 0, QUEUE_READ_REQUEST, msn, true), cut)
            }
            Queued::Atomic { .. } => self.plan_atomic_request(),
            Queued::Immediate { solicited, .. } => self.plan_immediate(solicited),
        })
    }

    // req 5040-4.4-2, 5040-5.2-1, 5040-5.2.2-1, 5040-5.2.2-2, 5040-5.2.2-8, 5040-5.2.1-17
    fn plan_response(&self, read: &InboundRead, mulpdu: usize) -> (Header, Cut) {
        let PeerRequest::Read(request) = &read.request else { return self.plan_atomic_response() };
        let cut = cut(request.len, self.outgoing.progress, mulpdu, HEADER_LEN_TAGGED);
        let offset = request.sink_offset.wrapping_add(u64::from(cut.offset));
        (self.tagged(Opcode::ReadResponse, request.sink_stag, offset, cut.last), cut)
    }

    // req 5040-5.4-1, 5040-5.4-2, 5040-5.4-3
    fn plan_terminate(&self) -> Option<(Header, Cut)> {
        let Phase::Terminating(octets) = &self.phase else { return None };
        let cut = Cut { len: u32::try_from(octets.len()).unwrap_or(0), ..WHOLE };
        Some((self.untagged(Opcode::Terminate, 0, QUEUE_TERMINATE, 1, true), cut))
    }

    // req 5040-4.1-1, 5040-4.1-4, 5040-4.1-6, 5041-4.2-5, 5041-4.2-7, 5041-4.2-9, 5041-4.2-10, 5041-4.2-4
    fn tagged(&self, opcode: Opcode, stag: Stag, offset: u64, last: bool) -> Header {
        Header::Tagged { last, ulp_control: opcode.control(self.version), stag, offset }
    }

    // req 5040-4.1-1, 5040-4.1-4, 5040-4.1-6, 5041-4.3-6, 5041-4.3-7, 5041-4.3-11, 5041-4.3-12
    pub(super) fn untagged(&self, opcode: Opcode, ulp_word: u32, queue: u32, msn: u32, last: bool) -> Header {
        let ulp_control = opcode.control(self.version);
        // req 5041-4.3-13
        Header::Untagged { last, ulp_control, ulp_word, queue, msn, offset: 0 }
    }

    #[inline]
    fn fill_request<M: Memory>(
        &mut self,
        cut: Cut,
        payload: &mut [u8],
        memory: &M,
    ) -> Result<(), AccessError> {
        let Some(entry) = self.sends.next() else { return Ok(()) };
        let list = &entry.sg_list;
        match entry.operation {
            Queued::Send { .. } | Queued::Write { .. } => {}
            Queued::Read { .. } => {
                sg_list::check_all(memory, self.who, Operation::LocalWrite, list)?;
                if let Some(read) = read_request(entry) {
                    payload.copy_from_slice(&read.emit());
                }
                return Ok(());
            }
            Queued::Atomic { .. } => return self.fill_atomic_request(entry, payload, memory),
            Queued::Immediate { data, .. } => {
                payload.copy_from_slice(&data);
                return Ok(());
            }
        }
        if cut.offset == 0 && !cut.last {
            // A bad list is found before a message is half sent.
            sg_list::check_all(memory, self.who, Operation::LocalRead, list)?;
        }
        sg_list::gather(memory, self.who, list, &mut self.outgoing.cursor, payload)
    }

    /// The next request's own buffer was refused.
    fn fail_request(&mut self, error: AccessError) {
        self.outgoing.end_message();
        let ticket = self.sends.next_ticket();
        self.sends.doom(ticket, Status::LocalAccess);
        self.terminate(LocalError::RequestBuffer(error).into(), None);
    }

    /// The source of a Response was withdrawn since its Request was accepted. The Terminate shows
    /// a Read's Request, with what is left of it.
    fn fail_response(&mut self, error: AccessError) {
        let sent = self.outgoing.progress;
        self.outgoing.end_message();
        let front = self.peer_reads.front();
        // req 7306-8.1-1: about an Atomic it shows no header.
        let (reason, cause) = match front.map(|read| (&read.request, read.msn)) {
            Some((PeerRequest::Read(request), msn)) => {
                (RdmapError::ReadSource(error), response_cause(request, msn, sent, self.version))
            }
            Some((PeerRequest::Atomic(_), _)) | None => (RdmapError::AtomicTarget(error), None),
        };
        self.peer_reads.pop();
        self.terminate(reason.into(), cause);
    }

    fn built_rtr(&mut self, kind: RtrKind) {
        self.outgoing.rtr = None;
        match kind {
            RtrKind::Write => {}
            RtrKind::Send => self.outgoing.send_msn = 2,
            RtrKind::Read => {
                self.outgoing.read_msn = 2;
                let ReadRequest { sink_stag, sink_offset, len, .. } = rtr_read();
                self.reads.push(OutboundRead { ticket: None, sink_stag, sink_offset, len, received: 0 });
            }
        }
    }

    #[inline]
    fn built_request(&mut self) {
        self.outgoing.response_turn = true;
        let Some(entry) = self.sends.next() else { return };
        match entry.operation {
            // req 5041-4.3-8, 5041-4.3-10
            // req 7306-6.3-7
            Queued::Send { .. } | Queued::Immediate { .. } => {
                self.outgoing.send_msn = self.outgoing.send_msn.wrapping_add(1);
            }
            Queued::Write { .. } => {}
            Queued::Read { .. } => {
                self.outgoing.read_msn = self.outgoing.read_msn.wrapping_add(1);
                if let Some(ReadRequest { sink_stag, sink_offset, len, .. }) = read_request(entry) {
                    let ticket = Some(self.sends.next_ticket());
                    self.reads.push(OutboundRead { ticket, sink_stag, sink_offset, len, received: 0 });
                }
                self.sends.requested_next();
                return;
            }
            Queued::Atomic { .. } => {
                let sink = entry.sg_list.first().copied();
                return self.built_atomic_request(sink);
            }
        }
        // req 5040-5.5-10
        self.sends.sent_next(&mut self.completions);
    }
}

/// A message of one segment without payload.
const WHOLE: Cut = Cut { offset: 0, len: 0, last: true };

/// Octets of a Read Request's DDP Segment.
const READ_REQUEST_SEGMENT_LEN: u16 = 46;
const _: () = assert!(READ_REQUEST_SEGMENT_LEN as usize == HEADER_LEN_UNTAGGED + READ_REQUEST_LEN);

/// What an RTR indication names; nobody looks at it. Linux's siw uses the same.
const RTR_STAG: Stag = Stag(1);

/// The RTR indication that is a Read.
const fn rtr_read() -> ReadRequest {
    ReadRequest { sink_stag: RTR_STAG, sink_offset: 0, len: 0, source_stag: RTR_STAG, source_offset: 0 }
}

/// A posted Read's header; none for other requests.
// req 5040-4.4-3, 5040-4.4-4, 5040-5.2.1-12, 5040-5.2.1-14
fn read_request(request: &Entry) -> Option<ReadRequest> {
    let Queued::Read { stag, offset } = request.operation else { return None };
    let sink = request.sg_list.first()?;
    Some(ReadRequest {
        sink_stag: sink.stag,
        sink_offset: sink.offset,
        len: sink.len,
        source_stag: stag,
        source_offset: offset,
    })
}

/// Shows a Read Request of which `sent` octets are answered (RFC 5040 section 4.8).
fn response_cause(request: &ReadRequest, msn: u32, sent: u32, version: Version) -> Option<Cause> {
    let header = Header::Untagged {
        last: true,
        ulp_control: Opcode::ReadRequest.control(version),
        ulp_word: 0,
        queue: QUEUE_READ_REQUEST,
        msn,
        offset: 0,
    };
    let mut octets = [0; HEADER_LEN_MAX];
    let len = header.emit(&mut octets, version);
    Some(Cause {
        segment_len: READ_REQUEST_SEGMENT_LEN,
        header: TerminatedHeader::of(&octets[..len])?,
        read_request: Some(ReadRequest {
            sink_offset: request.sink_offset.wrapping_add(u64::from(sent)),
            len: request.len - sent,
            source_offset: request.source_offset.wrapping_add(u64::from(sent)),
            ..*request
        }),
    })
}
