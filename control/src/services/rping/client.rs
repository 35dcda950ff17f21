//! The asking side: what `rping -c` does.

use std::net::SocketAddr;
use std::time::Duration;

use dataplane::mem::{AccessRights, AllocateError, Buffer, HugePages, MemoryRegion, RegisterError};
use dataplane::verbs::{
    Application, Command, ConnectError, DisconnectReason, Event, QueuePairAttributes, QueuePairCompletion,
    QueuePairId, Token, Verbs,
};
use iwarp::mpa::{Negotiated, Profile};
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::work::{Completion, ReceiveRequest, SendOperation, SendRequest, SgList, Sge, Status};
use tcpstack::time::Instant;

use super::{ADVERTISEMENT_LEN, Advertisement, fill_pattern};
use crate::services::connect_hint;
use crate::services::outbox::Outbox;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server.
    pub remote: SocketAddr,
    /// What to negotiate. rping needs an `ird` of at least 1.
    pub profile: Profile,
    /// Octets of a round: [`super::SIZE_MIN`] to [`super::SIZE_MAX`], at most 65,535 towards `rping -s`.
    pub size: u32,
    /// Rounds.
    pub count: u64,
    /// Whether to compare what comes back.
    pub validate: bool,
    /// How long to keep silent on a fresh connection. An accepting siw can miss an FPDU that follows its
    /// MPA Reply at once.
    pub first_fpdu_delay: Duration,
    /// How long the peer may take for any one step.
    pub timeout: Duration,
}

impl ClientConfig {
    /// What `rping -c` does by itself, with 50 ms of patience for siw.
    pub fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            profile: Profile::default(),
            size: 64,
            count: 1,
            validate: true,
            first_fpdu_delay: Duration::from_millis(50),
            timeout: Duration::from_secs(5),
        }
    }
}

/// One round trip.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Counted from 0.
    pub number: u64,
    /// What came back.
    pub data: &'a [u8],
    /// From the first Send to the server's last.
    pub elapsed: Duration,
}

impl Round<'_> {
    /// The data up to its first zero octet, as `rping -v` prints it behind `ping data: `.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        let end = self.data.iter().position(|octet| *octet == 0).unwrap_or(self.data.len());
        String::from_utf8_lossy(&self.data[..end])
    }
}

/// What a client did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Rounds.
    pub rounds: u64,
    /// Octets each way.
    pub octets: u64,
    /// What MPA agreed on.
    pub negotiated: Negotiated,
}

/// Why a client did not do all its rounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Memory could not be registered.
    #[error("cannot register memory: {0}")]
    Register(RegisterError),
    /// There is no connection.
    #[error("cannot connect to {remote}: {error}{}", connect_hint(*error))]
    Connect {
        /// The server.
        remote: SocketAddr,
        /// Why.
        error: ConnectError,
    },
    /// The peer serves no RDMA Reads to, or asks none of, us.
    #[error("the peer negotiated IRD 0: rping's server reads from us, which needs one RDMA Read at least")]
    NoReads,
    /// The connection ended early.
    #[error("the connection ended in round {round}: {reason}")]
    Disconnected {
        /// Counted from 0.
        round: u64,
        /// Why.
        reason: DisconnectReason,
    },
    /// A step took too long.
    #[error("no answer within {timeout:?} in round {round}, waiting for {step}")]
    TimedOut {
        /// Counted from 0.
        round: u64,
        /// The limit.
        timeout: Duration,
        /// What did not come.
        step: &'static str,
    },
    /// The peer said something that is not rping.
    #[error("the peer does not follow rping in round {round}: {what}")]
    Violation {
        /// Counted from 0.
        round: u64,
        /// What.
        what: &'static str,
    },
    /// Other data came back than was offered.
    #[error("round {round}: octet {offset} came back as {found:#04x} instead of {expected:#04x}")]
    Mismatch {
        /// Counted from 0.
        round: u64,
        /// The first octet that differs.
        offset: usize,
        /// What was offered.
        expected: u8,
        /// What came back.
        found: u8,
    },
    /// One of our own requests failed.
    #[error("round {round}: a request failed: {status:?}")]
    Request {
        /// Counted from 0.
        round: u64,
        /// How.
        status: Status,
    },
}

/// What is called with each round.
pub type OnRound = Box<dyn FnMut(&Round<'_>) + Send>;

/// The client: one connection.
///
/// Poll it until [`RpingClient::outcome`] says something.
pub struct RpingClient {
    config: ClientConfig,
    on_round: OnRound,
    memory: Memory,
    outbox: Outbox,
    state: State,
    /// When the present step began.
    step_began: Instant,
    round_began: Instant,
    round: u64,
    qp: Option<QueuePairId>,
    negotiated: Option<Negotiated>,
    error: Option<ClientError>,
}

/// Buffers, and their STags once registered.
struct Memory {
    messages: Buffer,
    source: Buffer,
    sink: Buffer,
    stags: [Option<Stag>; REGIONS],
    /// The pattern of this round, and room to compare with.
    expected: Vec<u8>,
    found: Vec<u8>,
}

const REGIONS: usize = 3;
const MESSAGES: usize = 0;
const SOURCE: usize = 1;
const SINK: usize = 2;

/// Layout of the messages: both advertisements, then the receives.
const SOURCE_ADVERTISEMENT_OFFSET: u64 = 0;
const SINK_ADVERTISEMENT_OFFSET: u64 = 16;
const INCOMING_OFFSET: u64 = 32;
const MESSAGES_LEN: usize = 64;
const RECEIVES: u64 = 2;

const SEND_DEPTH: u32 = 8;

/// Ids of Sends; receives have their index.
const ID_SEND: u64 = 0x10;

const CONNECT: Token = Token(REGIONS as u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    Registering,
    Connecting,
    /// Silent until then.
    Settling {
        until: Instant,
    },
    AwaitGoAhead,
    AwaitWritten,
    Disconnecting,
    Deregistering,
    Finished,
}

impl RpingClient {
    /// A client that connects when it is first polled. `on_round` is called with each round's data.
    ///
    /// # Errors
    /// When there is no memory for its buffers.
    ///
    /// # Panics
    /// When the size or count is 0.
    pub fn new(config: ClientConfig, on_round: OnRound) -> Result<Self, AllocateError> {
        assert!(config.size > 0 && config.count > 0, "at least one octet and round");
        let size = config.size as usize;
        Ok(Self {
            on_round,
            memory: Memory {
                messages: Buffer::allocate(MESSAGES_LEN, HugePages::Never)?,
                source: Buffer::allocate(size, HugePages::Never)?,
                sink: Buffer::allocate(size, HugePages::Never)?,
                stags: [None; REGIONS],
                expected: vec![0; size],
                found: vec![0; size],
            },
            config,
            outbox: Outbox::default(),
            state: State::Start,
            step_began: Instant::ZERO,
            round_began: Instant::ZERO,
            round: 0,
            qp: None,
            negotiated: None,
            error: None,
        })
    }

    /// How it ended; nothing, while it goes on.
    pub fn outcome(&self) -> Option<Result<Report, ClientError>> {
        if self.state != State::Finished {
            return None;
        }
        match (&self.error, self.negotiated) {
            (Some(error), _) => Some(Err(error.clone())),
            (None, Some(negotiated)) => {
                let octets = self.round * u64::from(self.config.size);
                Some(Ok(Report { rounds: self.round, octets, negotiated }))
            }
            (None, None) => unreachable!("without an error there was a connection"),
        }
    }

    /// Makes the client expect another octet than it offered.
    #[cfg(test)]
    pub(super) fn corrupt_expectation(&mut self, offset: usize) {
        self.memory.expected[offset] = 0xff;
    }

    fn event(&mut self, event: Event, verbs: &mut dyn Verbs) {
        match (self.state, event) {
            (State::Registering, Event::Registered { token, stag }) => {
                if let Some(region) = region(token) {
                    self.memory.stags[region] = Some(stag);
                }
                if self.memory.stags.iter().all(Option::is_some) {
                    self.connect(verbs);
                }
            }
            (_, Event::RegisterFailed { error, .. }) => self.fail(ClientError::Register(error), verbs),
            (State::Connecting, Event::Established { token: CONNECT, qp, negotiated, .. }) => {
                self.qp = Some(qp);
                self.negotiated = Some(negotiated);
                if negotiated.ird == 0 {
                    return self.fail(ClientError::NoReads, verbs);
                }
                self.enter(State::Settling { until: verbs.now() + self.config.first_fpdu_delay }, verbs);
            }
            // It came up after we had given it up.
            (_, Event::Established { token: CONNECT, qp, .. }) => {
                self.outbox.submit(verbs, Command::Abort { qp });
            }
            (_, Event::ConnectFailed { token: CONNECT, error, .. }) => {
                let remote = self.config.remote;
                self.fail(ClientError::Connect { remote, error }, verbs);
            }
            (state, Event::Disconnected { qp, reason }) if self.qp == Some(qp) => {
                self.qp = None;
                if state != State::Disconnecting {
                    self.error.get_or_insert(ClientError::Disconnected { round: self.round, reason });
                }
                self.deregister(verbs);
            }
            (State::Deregistering, Event::Deregistered { token, .. }) => {
                if let Some(region) = region(token) {
                    self.memory.stags[region] = None;
                }
                if self.memory.stags.iter().all(Option::is_none) {
                    self.enter(State::Finished, verbs);
                }
            }
            _ => {}
        }
    }

    fn register(&mut self, verbs: &mut dyn Verbs) {
        self.enter(State::Registering, verbs);
        let memory = &self.memory;
        let regions = [
            (MESSAGES, &memory.messages, AccessRights::LOCAL),
            (SOURCE, &memory.source, AccessRights::REMOTE_READ),
            (SINK, &memory.sink, AccessRights::REMOTE_WRITE),
        ];
        for (region, buffer, rights) in regions {
            let command = Command::Register {
                token: Token(region as u64),
                domain: ProtectionDomain::default(),
                region: MemoryRegion::whole(buffer),
                rights,
            };
            self.outbox.submit(verbs, command);
        }
    }

    fn connect(&mut self, verbs: &mut dyn Verbs) {
        self.write_advertisement(SOURCE_ADVERTISEMENT_OFFSET, SOURCE);
        self.write_advertisement(SINK_ADVERTISEMENT_OFFSET, SINK);
        self.enter(State::Connecting, verbs);
        let command = Command::Connect {
            token: CONNECT,
            remote: self.config.remote,
            profile: self.config.profile.clone(),
            private_data: Vec::new(),
            attributes: QueuePairAttributes {
                domain: ProtectionDomain::default(),
                send_depth: SEND_DEPTH,
                receive_depth: u32::try_from(RECEIVES).expect("a few"),
            },
            receives: (0..RECEIVES).map(|index| self.receive_request(index)).collect(),
        };
        self.outbox.submit(verbs, command);
    }

    fn write_advertisement(&self, at: u64, region: usize) {
        let advertisement = Advertisement { offset: 0, stag: self.stag(region), size: self.config.size };
        let at = usize::try_from(at).expect("a small offset");
        self.memory.messages.write(at, &advertisement.emit()).expect("the layout is within the buffer");
    }

    /// Offers the next round's data.
    fn begin_round(&mut self, verbs: &mut dyn Verbs) {
        let Memory { source, sink, expected, .. } = &mut self.memory;
        fill_pattern(self.round, expected);
        source.write(0, expected).expect("the buffer has the size of a round");
        sink.fill(0, sink.len(), 0).expect("all of the buffer");
        self.round_began = verbs.now();
        self.enter(State::AwaitGoAhead, verbs);
        self.send(SOURCE_ADVERTISEMENT_OFFSET, verbs);
    }

    fn send(&mut self, offset: u64, verbs: &mut dyn Verbs) {
        let Some(qp) = self.qp else { return };
        let sge = Sge { stag: self.stag(MESSAGES), offset, len: ADVERTISEMENT_LEN };
        let request = SendRequest {
            id: ID_SEND,
            operation: SendOperation::Send { invalidate: None, solicited: false },
            sg_list: SgList::from_iter([sge]),
            signaled: false,
            fence: false,
        };
        self.outbox.send(verbs, qp, request);
    }

    fn completion(
        &mut self,
        QueuePairCompletion { qp, completion }: QueuePairCompletion,
        verbs: &mut dyn Verbs,
    ) {
        if self.qp != Some(qp) {
            return;
        }
        let Completion { id, operation, status, len } = completion;
        match status {
            Status::Success => {}
            // The reason comes with the end of the Stream.
            Status::Flushed | Status::RemoteError => return,
            _ => return self.fail(ClientError::Request { round: self.round, status }, verbs),
        }
        if !operation.is_receive() {
            return;
        }
        if len != ADVERTISEMENT_LEN {
            let what = "a Send that is not of 16 octets";
            return self.fail(ClientError::Violation { round: self.round, what }, verbs);
        }
        match self.state {
            State::AwaitGoAhead => {
                self.outbox.receive(verbs, qp, self.receive_request(id));
                self.enter(State::AwaitWritten, verbs);
                self.send(SINK_ADVERTISEMENT_OFFSET, verbs);
            }
            State::AwaitWritten => {
                self.outbox.receive(verbs, qp, self.receive_request(id));
                self.end_round(verbs);
            }
            State::Disconnecting | State::Deregistering | State::Finished => {}
            _ => {
                let what = "a Send that nothing asked for";
                self.fail(ClientError::Violation { round: self.round, what }, verbs);
            }
        }
    }

    fn end_round(&mut self, verbs: &mut dyn Verbs) {
        let Memory { sink, expected, found, .. } = &mut self.memory;
        sink.read(0, found).expect("the buffer has the size of a round");
        if self.config.validate
            && let Some(offset) = (0..found.len()).find(|&offset| found[offset] != expected[offset])
        {
            let (expected, found) = (expected[offset], found[offset]);
            return self.fail(ClientError::Mismatch { round: self.round, offset, expected, found }, verbs);
        }
        let elapsed = verbs.now() - self.round_began;
        (self.on_round)(&Round { number: self.round, data: found, elapsed });
        self.round += 1;
        if self.round < self.config.count {
            self.begin_round(verbs);
        } else {
            self.disconnect(verbs);
        }
    }

    fn disconnect(&mut self, verbs: &mut dyn Verbs) {
        match self.qp {
            Some(qp) => {
                self.enter(State::Disconnecting, verbs);
                self.outbox.submit(verbs, Command::Disconnect { qp });
            }
            None => self.deregister(verbs),
        }
    }

    fn deregister(&mut self, verbs: &mut dyn Verbs) {
        if matches!(self.state, State::Deregistering | State::Finished) {
            return;
        }
        if self.memory.stags.iter().all(Option::is_none) {
            return self.enter(State::Finished, verbs);
        }
        self.enter(State::Deregistering, verbs);
        for (region, stag) in self.memory.stags.iter().enumerate() {
            if let Some(stag) = *stag {
                self.outbox.submit(verbs, Command::Deregister { token: Token(region as u64), stag });
            }
        }
    }

    /// Ends for a reason; the first one counts.
    fn fail(&mut self, error: ClientError, verbs: &mut dyn Verbs) {
        self.error.get_or_insert(error);
        if !matches!(self.state, State::Disconnecting | State::Deregistering | State::Finished) {
            self.disconnect(verbs);
        }
    }

    /// Acts on the time that passed. True when it did.
    fn check_time(&mut self, verbs: &mut dyn Verbs) -> bool {
        let now = verbs.now();
        if let State::Settling { until } = self.state {
            let due = now >= until;
            if due {
                self.begin_round(verbs);
            }
            return due;
        }
        if now - self.step_began < self.config.timeout {
            return false;
        }
        let step = match self.state {
            State::Registering => "the worker to register memory",
            State::Connecting => "the connection",
            State::AwaitGoAhead => "the server to read and go ahead",
            State::AwaitWritten => "the server to write",
            // Nobody is there to end it in order with.
            State::Disconnecting => {
                if let Some(qp) = self.qp.take() {
                    self.outbox.submit(verbs, Command::Abort { qp });
                }
                self.deregister(verbs);
                return true;
            }
            State::Deregistering => {
                self.enter(State::Finished, verbs);
                return true;
            }
            State::Start | State::Settling { .. } | State::Finished => return false,
        };
        let timeout = self.config.timeout;
        self.error.get_or_insert(ClientError::TimedOut { round: self.round, timeout, step });
        if let Some(qp) = self.qp.take() {
            self.outbox.submit(verbs, Command::Abort { qp });
        }
        self.deregister(verbs);
        true
    }

    fn enter(&mut self, state: State, verbs: &mut dyn Verbs) {
        self.state = state;
        self.step_began = verbs.now();
    }

    fn receive_request(&self, index: u64) -> ReceiveRequest {
        let offset = INCOMING_OFFSET + index * u64::from(ADVERTISEMENT_LEN);
        let sge = Sge { stag: self.stag(MESSAGES), offset, len: ADVERTISEMENT_LEN };
        ReceiveRequest { id: index, sg_list: SgList::from_iter([sge]) }
    }

    fn stag(&self, region: usize) -> Stag {
        self.memory.stags[region].expect("all memory is registered before there is a connection")
    }
}

impl Application for RpingClient {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        let mut busy = self.outbox.flush(verbs);
        if self.state == State::Start {
            self.register(verbs);
            busy = true;
        }
        while let Some(completion) = verbs.next_completion() {
            self.completion(completion, verbs);
            busy = true;
        }
        while let Some(event) = verbs.next_event() {
            self.event(event, verbs);
            busy = true;
        }
        self.check_time(verbs) || busy
    }
}

fn region(token: Token) -> Option<usize> {
    usize::try_from(token.0).ok().filter(|region| *region < REGIONS)
}

const _: () = assert!(INCOMING_OFFSET + RECEIVES * ADVERTISEMENT_LEN as u64 <= MESSAGES_LEN as u64);
