//! An application that carries out a [`Plan`] and checks what the peer's plan did to its memory.
//!
//! Its one buffer has four areas, in which every step has a place of its own:
//!
//! ```text
//! | source (own plan) | read sink (own plan) | write sink (peer's) | receive sink (peer's) |
//! ```

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use iwarp::mpa::Profile;
use iwarp::types::Stag;
use iwarp::work::{CompletedOperation, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};

use super::plan::{Kind, Plan};
use crate::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use crate::verbs::{
    Application, Command, ConnectError, DisconnectReason, Event, QueuePairAttributes, QueuePairId, Token,
    Verbs,
};

/// Send requests outstanding at most.
const SEND_DEPTH: u32 = 16;

/// Which end of the connection an application is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Waits for the peer on this address.
    Listen(SocketAddr),
    /// Connects to this address.
    Connect(SocketAddr),
}

/// What became of it, for the test to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the listener is up.
    pub listening: bool,
    /// Own steps completed.
    pub steps_done: usize,
    /// Sends of the peer delivered.
    pub receives_done: usize,
    /// Whether all of both plans is done.
    pub complete: bool,
    /// Completions other than success.
    pub failures: usize,
    /// How the Stream ended.
    pub ended: Option<DisconnectReason>,
    /// Why no connection was made.
    pub connect_error: Option<ConnectError>,
    /// Whether the peer could not be found; it tries again when the test takes this back.
    pub unreachable: bool,
    /// Set by the test: disconnect now.
    pub finish: bool,
}

/// The application.
pub struct Traffic {
    end: End,
    profile: Profile,
    plan: Plan,
    peer: Plan,
    buffer: Buffer,
    stag: Option<Stag>,
    peer_stag: Option<Stag>,
    qp: Option<QueuePairId>,
    started: bool,
    next_step: usize,
    disconnecting: bool,
    reopen: bool,
    outcome: Arc<Mutex<Outcome>>,
}

impl Traffic {
    /// An application for one end; the other has the plans exchanged.
    ///
    /// # Panics
    /// When there is no memory for its buffer.
    pub fn new(end: End, profile: Profile, plan: Plan, peer: Plan) -> (Self, Arc<Mutex<Outcome>>) {
        let len = 2 * plan.octets + 2 * peer.octets + 1;
        let buffer = Buffer::allocate(len, HugePages::Never).expect("memory for a simulation");
        buffer.write(0, &plan.octets_at(0, plan.octets)).expect("the source is the first area");
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let traffic = Self {
            end,
            profile,
            plan,
            peer,
            buffer,
            stag: None,
            peer_stag: None,
            qp: None,
            started: false,
            next_step: 0,
            disconnecting: false,
            reopen: false,
            outcome: Arc::clone(&outcome),
        };
        (traffic, outcome)
    }

    fn read_sink(&self) -> usize {
        self.plan.octets
    }

    fn write_sink(&self) -> usize {
        2 * self.plan.octets
    }

    fn receive_sink(&self) -> usize {
        2 * self.plan.octets + self.peer.octets
    }

    fn outcome(&self) -> std::sync::MutexGuard<'_, Outcome> {
        self.outcome.lock().expect("no test thread panicked with the lock")
    }

    fn sge(&self, offset: usize, len: usize) -> SgList {
        let stag = self.stag.expect("registered before work is posted");
        let sge = Sge { stag, offset: offset as u64, len: u32::try_from(len).expect("short") };
        SgList::from_iter([sge])
    }

    fn receives(&self) -> Vec<ReceiveRequest> {
        let at = |offset, len| self.sge(self.receive_sink() + offset, len);
        self.peer
            .sends()
            .zip(0..)
            .map(|(step, id)| ReceiveRequest { id, sg_list: at(step.offset, step.len) })
            .collect()
    }

    fn attributes(&self) -> QueuePairAttributes {
        let receive_depth = u32::try_from(self.peer.sends().count()).expect("a short plan");
        QueuePairAttributes { send_depth: SEND_DEPTH, receive_depth, ..QueuePairAttributes::default() }
    }

    fn private_data(&self) -> Vec<u8> {
        self.stag.expect("registered before connecting").0.to_be_bytes().to_vec()
    }

    fn take_private_data(&mut self, octets: &[u8]) {
        if let Ok(stag) = octets.try_into() {
            self.peer_stag = Some(Stag(u32::from_be_bytes(stag)));
        }
    }

    fn open(&self) -> Command {
        let profile = self.profile.clone();
        match self.end {
            End::Listen(local) => Command::Listen { token: Token(2), local, profile, backlog: 16 },
            End::Connect(remote) => Command::Connect {
                token: Token(3),
                remote,
                profile,
                private_data: self.private_data(),
                attributes: self.attributes(),
                receives: self.receives(),
            },
        }
    }

    fn handle(&mut self, event: Event, verbs: &mut dyn Verbs) {
        let submitted = match event {
            Event::Registered { stag, .. } => {
                self.stag = Some(stag);
                verbs.submit(self.open())
            }
            Event::Listening { .. } => {
                self.outcome().listening = true;
                Ok(())
            }
            Event::ConnectRequest { qp, private_data, .. } => {
                self.take_private_data(&private_data);
                verbs.submit(Command::Accept {
                    qp,
                    private_data: self.private_data(),
                    attributes: self.attributes(),
                    receives: self.receives(),
                })
            }
            Event::Established { qp, private_data, .. } => {
                self.take_private_data(&private_data);
                self.qp = Some(qp);
                Ok(())
            }
            // A wire bad enough can lose all attempts to find the peer.
            Event::ConnectFailed { error: ConnectError::Unreachable | ConnectError::TimedOut, .. } => {
                self.outcome().unreachable = true;
                self.reopen = true;
                Ok(())
            }
            Event::ConnectFailed { error, .. } => {
                self.outcome().connect_error = Some(error);
                Ok(())
            }
            Event::Disconnected { reason, .. } => {
                self.qp = None;
                self.outcome().ended = Some(reason);
                Ok(())
            }
            Event::ListenFailed { .. } | Event::RegisterFailed { .. } | Event::Deregistered { .. } => {
                panic!("a simulation's set-up does not fail: {event:?}")
            }
        };
        submitted.expect("a command ring is longer than what a simulation asks");
    }

    fn post_steps(&mut self, qp: QueuePairId, verbs: &mut dyn Verbs) -> bool {
        let Some(peer_stag) = self.peer_stag else { return false };
        let mut busy = false;
        while let Some(step) = self.plan.steps.get(self.next_step).copied() {
            let (operation, sg_list) = match step.kind {
                Kind::Send => {
                    let operation = SendOperation::Send { invalidate: None, solicited: false };
                    (operation, self.sge(step.offset, step.len))
                }
                Kind::Write => {
                    let sink = 2 * self.peer.octets + step.offset;
                    let operation = SendOperation::Write { stag: peer_stag, offset: sink as u64 };
                    (operation, self.sge(step.offset, step.len))
                }
                Kind::Read => {
                    let source = Plan::read_offset(&step, self.peer.octets);
                    let len = Plan::read_len(&step, self.peer.octets);
                    let operation = SendOperation::Read { stag: peer_stag, offset: source as u64 };
                    (operation, self.sge(self.read_sink() + step.offset, len))
                }
            };
            let id = self.next_step as u64;
            let request = SendRequest { id, operation, sg_list, signaled: true, fence: false };
            if verbs.post_send(qp, request).is_err() {
                break;
            }
            self.next_step += 1;
            busy = true;
        }
        busy
    }

    fn completed(&self, id: u64, operation: CompletedOperation, status: Status) {
        let mut outcome = self.outcome();
        if status != Status::Success {
            outcome.failures += 1;
            return;
        }
        let count = if operation.is_receive() { &mut outcome.receives_done } else { &mut outcome.steps_done };
        assert_eq!(id, *count as u64, "each completion comes once, and in order of posting");
        *count += 1;
        let done = outcome.steps_done == self.plan.steps.len();
        outcome.complete = done && outcome.receives_done == self.peer.sends().count();
        if outcome.complete {
            drop(outcome);
            self.check_memory();
        }
    }

    /// Compares every octet of all areas with what the two plans say.
    fn check_memory(&self) {
        let source = self.plan.octets_at(0, self.plan.octets);
        self.expect(0, &source, "source");
        let mut sinks = vec![0; self.plan.octets];
        for step in self.plan.steps.iter().filter(|step| step.kind == Kind::Read) {
            let len = Plan::read_len(step, self.peer.octets);
            let octets = self.peer.octets_at(Plan::read_offset(step, self.peer.octets), len);
            sinks[step.offset..step.offset + len].copy_from_slice(&octets);
        }
        self.expect(self.read_sink(), &sinks, "read sink");
        self.expect(self.write_sink(), &self.peer_octets(Kind::Write), "write sink");
        self.expect(self.receive_sink(), &self.peer_octets(Kind::Send), "receive sink");
    }

    fn peer_octets(&self, kind: Kind) -> Vec<u8> {
        let mut octets = vec![0; self.peer.octets];
        for step in self.peer.steps.iter().filter(|step| step.kind == kind) {
            let place = step.offset..step.offset + step.len;
            octets[place].copy_from_slice(&self.peer.octets_at(step.offset, step.len));
        }
        octets
    }

    fn expect(&self, offset: usize, expected: &[u8], area: &str) {
        let mut octets = vec![0; expected.len()];
        self.buffer.read(offset, &mut octets).expect("an area of the buffer");
        if let Some(at) = octets.iter().zip(expected).position(|(is, should)| is != should) {
            panic!("{area}: octet {at} is {:#04x}, not {:#04x}", octets[at], expected[at]);
        }
    }
}

impl Application for Traffic {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        let mut busy = false;
        if !self.started {
            self.started = true;
            let region = MemoryRegion::whole(&self.buffer);
            let rights = AccessRights::REMOTE;
            let domain = QueuePairAttributes::default().domain;
            verbs
                .submit(Command::Register { token: Token(1), domain, region, rights })
                .expect("an empty command ring");
        }
        while let Some(completed) = verbs.next_completion() {
            busy = true;
            let it = completed.completion;
            self.completed(it.id, it.operation, it.status);
        }
        while let Some(event) = verbs.next_event() {
            busy = true;
            self.handle(event, verbs);
        }
        if self.reopen && !self.outcome().unreachable {
            self.reopen = false;
            busy |= verbs.submit(self.open()).is_ok();
        }
        if let Some(qp) = self.qp {
            busy |= self.post_steps(qp, verbs);
            if self.outcome().finish && !self.disconnecting {
                self.disconnecting = true;
                busy |= verbs.submit(Command::Disconnect { qp }).is_ok();
            }
        }
        busy
    }
}
