//! A Stream with memory that a peer may write, and memory that it may not; what a hostile peer and
//! the application do; and what must hold whatever they do.

use iwarp::atomic::AtomicOperation;
use iwarp::memory::Operation;
use iwarp::mpa::Negotiated;
use iwarp::stream::StreamState;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::wire::atomic::AtomicRequest;
use iwarp::wire::ddp::Header;
use iwarp::wire::rdmap::{Opcode, ReadRequest};
use iwarp::wire::terminate::Terminate;
use iwarp::work::Completion;

use super::{
    PEER_STAG, Rig, Sent, atomic_request_header, read, read_request_header, receive, send, sge, ulpdu, write,
};

pub(crate) const REGION_LEN: usize = 64;

/// Octets from a request's buffer to the next one's, of which the first are granted.
const SLOT_LEN: u64 = 16;
const GRANTED_LEN: u32 = 10;

/// What an incomplete FPDU may keep: the longest one, and its Markers.
const PENDING_MAX: usize = (2 + 65_535_usize).next_multiple_of(4) + 4 + 4 * 130;

/// The peer's memory map: what it may write, and what it may not.
pub(crate) struct Ground {
    pub(crate) rig: Rig,
    /// Regions whose octets must stay as they are.
    closed: Vec<Stag>,
    /// All STags there are.
    pub(crate) stags: Vec<Stag>,
    /// Requests so far: receives, sends.
    posted: [u64; 2],
    completed: [u64; 2],
    /// The Terminate that was sent.
    terminate: Option<Terminate>,
}

/// What happens next.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A segment with plausible fields.
    Segment { last: bool, control: u8, stag: usize, to: u64, queue: u32, msn: u32, mo: u64, payload: Vec<u8> },
    /// A Read Request that is well-formed.
    Read { msn: u32, stag: usize, offset: u64, len: u32 },
    /// An Atomic Request that is well-formed but maybe for its operation.
    Atomic { msn: u32, stag: usize, offset: u64, code: u8 },
    /// A ULPDU of any octets.
    Anything(Vec<u8>),
    /// Octets without a good CRC.
    Noise(Vec<u8>),
    /// This side sends some FPDUs.
    Build(usize),
    /// The application withdraws a region.
    Deregister(usize),
    /// The application posts a receive, a Send, a Write or a Read.
    Post(u8),
    /// The application closes.
    Close,
}

impl Ground {
    pub(crate) fn new(negotiated: &Negotiated) -> Self {
        use Operation::{LocalRead, LocalWrite, RemoteAtomic, RemoteRead, RemoteWrite};
        let mut rig = Rig::with(negotiated);
        let open = rig.memory.register_for(REGION_LEN, &[RemoteWrite, RemoteAtomic]);
        let readable = rig.memory.register_for(REGION_LEN, &[RemoteRead, LocalRead]);
        let private = rig.memory.register_for(REGION_LEN, &[LocalRead]);
        let foreign =
            rig.memory.register_for(REGION_LEN, &[RemoteWrite, RemoteRead, RemoteAtomic, LocalWrite]);
        rig.memory.regions.get_mut(&foreign).unwrap().domain = ProtectionDomain(2);
        // Receives and sinks are for one way in each: the application's own request.
        let buffers = rig.memory.register_for(REGION_LEN, &[LocalWrite]);
        let sinks = rig.memory.register_for(REGION_LEN, &[LocalWrite]);
        let stags = vec![open, readable, private, foreign, buffers, sinks, Stag(0), Stag(0xdead_beef)];
        let closed = vec![readable, private, foreign];
        let mut ground = Self { rig, closed, stags, posted: [0; 2], completed: [0; 2], terminate: None };
        for what in [0, 0, 0, 3, 3, 3, 1] {
            ground.post(what);
        }
        ground
    }

    /// Takes a step; what the peer sends arrives in two pieces, `cut` octets in the first.
    pub(crate) fn take(&mut self, step: &Step, cut: usize) {
        let rig = &mut self.rig;
        let ulpdu = match *step {
            Step::Segment { last, control, stag, to, queue, msn, mo, ref payload } => {
                let stag = self.stags[stag];
                let header = if matches!(control & 0x0f, 0 | 2) {
                    Header::Tagged { last, ulp_control: control, stag, offset: to }
                } else {
                    let offset = u32::try_from(mo).unwrap_or(u32::MAX);
                    Header::Untagged { last, ulp_control: control, ulp_word: stag.0, queue, msn, offset }
                };
                ulpdu(header, payload)
            }
            Step::Read { msn, stag, offset, len } => {
                let request = ReadRequest {
                    sink_stag: PEER_STAG,
                    sink_offset: u64::MAX - 20,
                    len,
                    source_stag: self.stags[stag],
                    source_offset: offset,
                };
                ulpdu(read_request_header(msn), &request.emit())
            }
            Step::Atomic { msn, stag, offset, code } => {
                let operation = AtomicOperation::swap(u64::MAX);
                let request = AtomicRequest { request_id: msn, stag: self.stags[stag], offset, operation };
                let mut octets = request.emit();
                octets[3] = code;
                ulpdu(atomic_request_header(msn), &octets)
            }
            Step::Anything(ref octets) => octets.clone(),
            Step::Noise(ref octets) => return rig.stream.receive(octets.clone(), &mut rig.memory),
            Step::Build(count) => {
                for _ in 0..count {
                    self.send_one();
                }
                return;
            }
            Step::Deregister(index) => return rig.memory.deregister(self.stags[index]),
            Step::Post(what) => return self.post(what),
            Step::Close => return rig.stream.close(),
        };
        let mut fpdu = rig.fpdu(&ulpdu);
        let rest = fpdu.split_off(cut.min(fpdu.len()));
        rig.stream.receive(fpdu, &mut rig.memory);
        rig.stream.receive(rest, &mut rig.memory);
    }

    /// Posts a receive, a Send, a Write or a Read, if there is room.
    fn post(&mut self, what: u8) {
        let stream = &mut self.rig.stream;
        let queue = usize::from(what != 0);
        let id = self.posted[queue];
        let place = |stag| sge(stag, id % 4 * SLOT_LEN, GRANTED_LEN);
        let posted = match what {
            0 => stream.post_receive(receive(id, &[place(self.stags[4])])),
            1 => stream.post_send(send(id, &[sge(self.stags[1], 0, 40)])),
            2 => stream.post_send(write(id, &[sge(self.stags[1], 0, 64)], PEER_STAG, 0)),
            _ => stream.post_send(read(id, place(self.stags[5]), PEER_STAG, 0)),
        };
        self.posted[queue] += u64::from(posted.is_ok());
    }

    /// This side sends one FPDU, if it has one.
    fn send_one(&mut self) -> bool {
        let Some(Sent { opcode, payload, .. }) = self.rig.next_sent() else { return false };
        assert!(self.terminate.is_none(), "a Terminate is the last that is sent");
        if opcode == Opcode::Terminate {
            self.terminate = Terminate::parse(&payload);
            let error = self.rig.stream.error().expect("a reason for the Terminate");
            let said = self.terminate.as_ref().expect("a whole Terminate");
            assert_eq!(said.code, error.terminate_code());
        }
        true
    }

    fn count(&mut self, completion: Completion) {
        let queue = usize::from(!completion.operation.is_receive());
        assert_eq!(completion.id, self.completed[queue], "once and in order");
        self.completed[queue] += 1;
        assert!(self.completed[queue] <= self.posted[queue]);
    }

    /// What must hold at any time: nothing is written that was not granted, and little is kept.
    pub(crate) fn check(&mut self) {
        for completion in self.rig.completions() {
            self.count(completion);
        }
        let regions = &self.rig.memory.regions;
        for stag in &self.closed {
            let region = regions.get(stag);
            assert!(
                region.is_none_or(|region| region.octets.borrow().iter().all(|&it| it == 0)),
                "{stag} is closed"
            );
        }
        for stag in &self.stags[4..6] {
            let Some(region) = regions.get(stag) else { continue };
            for (octet, at) in region.octets.borrow().iter().zip(0..) {
                let granted = at % SLOT_LEN < u64::from(GRANTED_LEN);
                assert!(*octet == 0 || granted, "octet {at} of {stag} was never granted");
            }
        }
        assert!(self.rig.stream.pending_octets() <= PENDING_MAX);
    }

    /// The end, however it comes: the Terminate that is due goes out, and each request completes once.
    pub(crate) fn finish(mut self) {
        if self.rig.stream.state() == StreamState::Terminating {
            while self.send_one() {}
            assert_eq!(self.rig.stream.state(), StreamState::Terminated);
            assert!(self.terminate.is_some());
        }
        self.rig.stream.llp_closed();
        self.check();
        assert_eq!(self.completed, self.posted);
        assert_eq!(self.rig.stream.pending_octets(), 0);
    }
}
