//! A Stream under test, its memory, and a far end that can send anything.

#![allow(dead_code, reason = "each test crate needs another part")]

pub(crate) mod hostile;
pub(crate) mod memory;

use iwarp::error::StreamError;
use iwarp::mpa::{Deframer, Framer, Negotiated, Role, RtrKind};
use iwarp::stream::{Stream, StreamLimits, StreamState};
use iwarp::types::Stag;
use iwarp::wire::Version;
use iwarp::wire::ddp::{HEADER_LEN_MAX, Header};
use iwarp::wire::rdmap::{
    Opcode, QUEUE_ATOMIC_RESPONSE, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE, ReadRequest,
};
use iwarp::wire::terminate::{Terminate, TerminateCode};
use iwarp::work::{Completion, PostError, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};

use memory::{TestMemory, WHO};

pub(crate) const LIMITS: StreamLimits = StreamLimits { send_depth: 16, receive_depth: 16 };

/// IRD and ORD of most tests.
pub(crate) const DEPTH: u16 = 2;

/// EMSS of most tests: MULPDU 194, payload 176 untagged and 180 tagged.
pub(crate) const EMSS: usize = 200;
pub(crate) const TAGGED_MAX: usize = 180;
pub(crate) const UNTAGGED_MAX: usize = 176;

pub(crate) fn negotiated(role: Role) -> Negotiated {
    Negotiated {
        role,
        revision: 2,
        crc: true,
        send_markers: false,
        receive_markers: false,
        ird: DEPTH,
        ord: DEPTH,
        rtr: None,
    }
}

pub(crate) fn negotiated_rtr(role: Role, kind: RtrKind) -> Negotiated {
    Negotiated { rtr: Some(kind), ..negotiated(role) }
}

pub(crate) fn sge(stag: Stag, offset: u64, len: u32) -> Sge {
    Sge { stag, offset, len }
}

pub(crate) fn list(elements: &[Sge]) -> SgList {
    elements.iter().copied().collect()
}

fn request(id: u64, operation: SendOperation, elements: &[Sge]) -> SendRequest {
    SendRequest { id, operation, sg_list: list(elements), signaled: true, fence: false }
}

pub(crate) fn send(id: u64, elements: &[Sge]) -> SendRequest {
    request(id, SendOperation::Send { invalidate: None, solicited: false }, elements)
}

pub(crate) fn write(id: u64, elements: &[Sge], stag: Stag, offset: u64) -> SendRequest {
    request(id, SendOperation::Write { stag, offset }, elements)
}

pub(crate) fn read(id: u64, sink: Sge, stag: Stag, offset: u64) -> SendRequest {
    request(id, SendOperation::Read { stag, offset }, &[sink])
}

pub(crate) fn receive(id: u64, elements: &[Sge]) -> ReceiveRequest {
    ReceiveRequest { id, sg_list: list(elements) }
}

/// A segment of a Send, the only and last one of its message unless changed.
pub(crate) fn send_header(msn: u32) -> Header {
    untagged(Opcode::Send, QUEUE_SEND, msn)
}

pub(crate) fn read_request_header(msn: u32) -> Header {
    untagged(Opcode::ReadRequest, QUEUE_READ_REQUEST, msn)
}

pub(crate) fn atomic_request_header(msn: u32) -> Header {
    untagged(Opcode::AtomicRequest, QUEUE_READ_REQUEST, msn)
}

pub(crate) fn atomic_response_header(msn: u32) -> Header {
    untagged(Opcode::AtomicResponse, QUEUE_ATOMIC_RESPONSE, msn)
}

pub(crate) fn immediate_header(msn: u32) -> Header {
    untagged(Opcode::ImmediateData, QUEUE_SEND, msn)
}

pub(crate) fn terminate_header() -> Header {
    untagged(Opcode::Terminate, QUEUE_TERMINATE, 1)
}

pub(crate) fn untagged(opcode: Opcode, queue: u32, msn: u32) -> Header {
    let ulp_control = opcode.control(Version::Ietf);
    Header::Untagged { last: true, ulp_control, ulp_word: 0, queue, msn, offset: 0 }
}

pub(crate) fn tagged(opcode: Opcode, stag: Stag, offset: u64) -> Header {
    Header::Tagged { last: true, ulp_control: opcode.control(Version::Ietf), stag, offset }
}

/// The same segment, with more of its message to come.
pub(crate) fn not_last(mut header: Header) -> Header {
    match &mut header {
        Header::Tagged { last, .. } | Header::Untagged { last, .. } => *last = false,
    }
    header
}

/// The same segment at another MO.
pub(crate) fn at(mut header: Header, mo: u32) -> Header {
    if let Header::Untagged { offset, .. } = &mut header {
        *offset = mo;
    }
    header
}

/// The same segment with another word behind its control octets.
pub(crate) fn with_word(mut header: Header, word: u32) -> Header {
    if let Header::Untagged { ulp_word, .. } = &mut header {
        *ulp_word = word;
    }
    header
}

/// The same segment with another RDMAP control octet.
pub(crate) fn with_control(mut header: Header, octet: u8) -> Header {
    match &mut header {
        Header::Tagged { ulp_control, .. } | Header::Untagged { ulp_control, .. } => *ulp_control = octet,
    }
    header
}

pub(crate) fn ulpdu(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; HEADER_LEN_MAX];
    let len = header.emit(&mut octets, Version::Ietf);
    octets.truncate(len);
    octets.extend_from_slice(payload);
    octets
}

/// A received segment, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) header: Header,
    pub(crate) opcode: Opcode,
    pub(crate) payload: Vec<u8>,
}

/// A Stream, its memory, and a hand-made peer.
pub(crate) struct Rig {
    pub(crate) stream: Stream<Vec<u8>>,
    pub(crate) memory: TestMemory,
    framer: Framer,
    deframer: Deframer<Vec<u8>>,
}

impl Rig {
    pub(crate) fn new(role: Role) -> Self {
        Self::with(&negotiated(role))
    }

    pub(crate) fn with(negotiated: &Negotiated) -> Self {
        Self {
            stream: Stream::new(negotiated, WHO, LIMITS),
            memory: TestMemory::new(),
            framer: Framer::new(negotiated.crc, negotiated.receive_markers),
            deframer: Deframer::new(negotiated.crc, negotiated.send_markers),
        }
    }

    /// A Responder whose peer has sent a Write of no octets, so that it may send.
    pub(crate) fn responder() -> Self {
        let mut rig = Self::new(Role::Responder);
        rig.deliver(tagged(Opcode::Write, Stag(1), 0), &[]);
        rig
    }

    /// The peer sends a DDP Segment.
    pub(crate) fn deliver(&mut self, header: Header, payload: &[u8]) {
        self.deliver_ulpdu(&ulpdu(header, payload));
    }

    pub(crate) fn deliver_ulpdu(&mut self, ulpdu: &[u8]) {
        let fpdu = self.fpdu(ulpdu);
        self.stream.receive(fpdu, &mut self.memory);
    }

    pub(crate) fn fpdu(&mut self, ulpdu: &[u8]) -> Vec<u8> {
        let mut fpdu = vec![0; self.framer.fpdu_len(ulpdu.len())];
        self.framer.frame(&mut fpdu, ulpdu.len(), |out| out.copy_from_slice(ulpdu));
        fpdu
    }

    /// The next FPDU that the Stream sends, if any.
    pub(crate) fn next_sent(&mut self) -> Option<Sent> {
        let octets = self.next_ulpdu()?;
        let header = Header::parse(&octets, Version::Ietf).unwrap();
        let opcode = Opcode::parse_control(header.ulp_control(), Version::Ietf).unwrap();
        Some(Sent { header, opcode, payload: octets[header.len()..].to_vec() })
    }

    /// The ULPDU of the next FPDU that the Stream sends, if any.
    pub(crate) fn next_ulpdu(&mut self) -> Option<Vec<u8>> {
        let mut out = vec![0xee; EMSS];
        let ready = self.stream.has_output();
        let len = self.stream.build(&mut out, EMSS, &self.memory);
        assert_eq!(len > 0, ready, "has_output says whether build builds");
        out.truncate(len);
        self.deframer.push(out);
        let ulpdu = self.deframer.next().expect("what a Stream sends is valid")?;
        let mut octets = vec![0; ulpdu.len()];
        ulpdu.gather(0, &mut octets);
        Some(octets)
    }

    /// Everything that the Stream sends now.
    pub(crate) fn sent(&mut self) -> Vec<Sent> {
        core::iter::from_fn(|| self.next_sent()).collect()
    }

    pub(crate) fn sent_opcodes(&mut self) -> Vec<Opcode> {
        self.sent().iter().map(|sent| sent.opcode).collect()
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        core::iter::from_fn(|| self.stream.next_completion()).collect()
    }

    pub(crate) fn statuses(&mut self) -> Vec<(u64, Status)> {
        self.completions().iter().map(|completion| (completion.id, completion.status)).collect()
    }

    pub(crate) fn post_receive(&mut self, id: u64, len: usize) -> Stag {
        let stag = self.memory.register(len);
        let sge = sge(stag, 0, len.try_into().unwrap());
        self.stream.post_receive(receive(id, &[sge])).unwrap();
        stag
    }

    /// Posts a Send of `len` octets that count up.
    pub(crate) fn post_send(&mut self, id: u64, len: usize) -> Stag {
        let (stag, sge) = self.source(len);
        self.stream.post_send(send(id, &[sge])).unwrap();
        stag
    }

    /// Posts a Read of `len` octets from a buffer of the peer's; its sink.
    pub(crate) fn post_read(&mut self, id: u64, len: usize) -> Stag {
        let stag = self.memory.register(len);
        let sink = sge(stag, 0, len.try_into().unwrap());
        self.stream.post_send(read(id, sink, PEER_STAG, 0)).unwrap();
        stag
    }

    /// A buffer of octets that count up, whole.
    pub(crate) fn source(&mut self, len: usize) -> (Stag, Sge) {
        let stag = self.memory.register(len);
        self.memory.octets_mut(stag).copy_from_slice(&counting(len));
        (stag, sge(stag, 0, len.try_into().unwrap()))
    }

    pub(crate) fn try_post(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.stream.post_send(request)
    }

    /// The Stream found this error, and its next and last FPDU is the Terminate for it.
    #[track_caller]
    pub(crate) fn assert_terminates(
        &mut self,
        error: impl Into<StreamError>,
        code: TerminateCode,
    ) -> Terminate {
        assert_eq!(self.stream.error(), Some(error.into()));
        assert_eq!(self.stream.state(), StreamState::Terminating);
        let sent = self.sent();
        let [terminate] = &sent[..] else { panic!("one Terminate, not {sent:?}") };
        assert_eq!(terminate.header, terminate_header());
        assert_eq!(self.stream.state(), StreamState::Terminated);
        assert!(self.stream.is_drained());
        let terminate = Terminate::parse(&terminate.payload).unwrap();
        assert_eq!(terminate.code, code);
        terminate
    }

    /// Nothing is wrong so far.
    #[track_caller]
    pub(crate) fn assert_operating(&self) {
        assert_eq!(self.stream.error(), None);
        assert_eq!(self.stream.state(), StreamState::Operating);
    }
}

/// What tests ask of a Terminate.
pub(crate) trait Shown {
    /// It shows this segment.
    fn assert_shows(&self, segment: &[u8], header_len: usize);
}

impl Shown for Terminate {
    #[track_caller]
    fn assert_shows(&self, segment: &[u8], header_len: usize) {
        let cause = self.cause.as_ref().expect("the segment is shown");
        assert_eq!(usize::from(cause.segment_len), segment.len());
        assert_eq!(cause.header.octets(), &segment[..header_len]);
    }
}

/// The STag of a buffer at the peer.
pub(crate) const PEER_STAG: Stag = Stag(0x9900);

pub(crate) fn counting(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

pub(crate) fn read_of(len: u32, source: Stag, offset: u64) -> ReadRequest {
    ReadRequest {
        sink_stag: PEER_STAG,
        sink_offset: 0x1_0000_0000,
        len,
        source_stag: source,
        source_offset: offset,
    }
}
