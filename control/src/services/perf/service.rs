//! The `perf` service: listens, makes memory for each connection, and plays its [`Part`].

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use dataplane::verbs::{
    Application, Command, DisconnectReason, Event, ListenerId, QueuePairAttributes, QueuePairCompletion,
    QueuePairId, Token, Verbs,
};
use iwarp::mpa::Profile;
use iwarp::types::{ProtectionDomain, Stag};

use super::channel::{Arena, Channel, ChannelError};
use super::message::{Hello, Refusal, Welcome};
use super::part::Part;
use crate::services::counters::ServerCounters;
use crate::services::{Service, ServiceState, Supervision};

/// What the service needs to know.
#[derive(Clone, Debug)]
pub struct PerfConfig {
    /// Where it listens.
    pub local: SocketAddr,
    /// What it negotiates.
    pub profile: Profile,
    /// What it gives away at most.
    pub limits: Limits,
}

/// What the service gives away at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Octets of memory at the same time.
    pub octets: usize,
}

impl Default for Limits {
    /// Room for perftest's most queue pairs, and 1 GiB.
    fn default() -> Self {
        Self { connections: 16_384, octets: 1 << 30 }
    }
}

/// What the service tells its owner about connections that went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A connection broke the exchange and was aborted.
    Broken(ChannelError),
    /// A connection ended otherwise than in order.
    Lost(DisconnectReason),
}

/// The application.
#[derive(Debug)]
pub struct PerfService {
    config: PerfConfig,
    notices: Option<Sender<Notice>>,
    supervision: Arc<Supervision>,
    counters: Arc<ServerCounters>,
    listener: Option<ListenerId>,
    /// It was told to end, and is about to.
    stopping: bool,
    sessions: Vec<Option<Session>>,
    /// Free places in `sessions`.
    free: Vec<u32>,
    /// Place of each queue pair's session, by the queue pair's index.
    places: Vec<u32>,
    /// Places of the sessions that get a turn at the next poll, each once.
    ready: Vec<u32>,
    /// The same while they have their turns; kept for its capacity.
    turns: Vec<u32>,
    /// Octets that the sessions hold.
    octets: usize,
    /// Counts sessions, to tell an answer to an earlier one.
    generation: u32,
    /// Commands that had no room yet.
    commands: VecDeque<Command>,
}

impl PerfService {
    /// A service that begins to listen when it is polled first.
    pub fn new(config: PerfConfig) -> Self {
        let listen = Command::Listen {
            token: Token::default(),
            local: config.local,
            profile: config.profile.clone(),
            backlog: BACKLOG,
        };
        Self {
            config,
            notices: None,
            supervision: Arc::default(),
            counters: Arc::new(ServerCounters::new("transfers", "octets")),
            listener: None,
            stopping: false,
            sessions: Vec::new(),
            free: Vec::new(),
            places: Vec::new(),
            ready: Vec::new(),
            turns: Vec::new(),
            octets: 0,
            generation: 0,
            commands: VecDeque::from([listen]),
        }
    }

    /// Tells `notices` what happens.
    pub fn with_notices(mut self, notices: Sender<Notice>) -> Self {
        self.notices = Some(notices);
        self
    }

    /// Its counters; transfers and octets are those of connections that ended, in both directions.
    pub fn counters(&self) -> Arc<ServerCounters> {
        Arc::clone(&self.counters)
    }

    /// Connections, those that are not up yet included.
    pub fn connections(&self) -> usize {
        self.sessions.len() - self.free.len()
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Listening { listener, .. } => {
                self.listener = Some(listener);
                self.supervision.set(ServiceState::Listening);
            }
            Event::ListenFailed { error, .. } => {
                self.supervision.fail(format!("perf cannot listen on {}: {error}", self.config.local));
            }
            Event::ConnectRequest { qp, private_data, .. } => self.request(qp, &private_data),
            Event::Registered { token, stag } => self.registered(token, stag),
            Event::RegisterFailed { token, .. } => {
                if let Some(session) = self.find(token).and_then(|place| self.remove(place)) {
                    self.reject(session.qp, Refusal::Busy);
                }
            }
            Event::Established { qp, .. } => {
                self.counters.accepted.fetch_add(1, Ordering::Relaxed);
                if let Some(place) = self.place(qp) {
                    self.wake(place);
                }
            }
            Event::Disconnected { qp, reason } => {
                if !matches!(reason, DisconnectReason::Peer | DisconnectReason::Local) {
                    self.tell(Notice::Lost(reason));
                }
                if let Some(place) = self.place(qp) {
                    self.leave(place);
                }
            }
            Event::Deregistered { token, .. } => {
                if let Some(place) = self.find(token) {
                    self.remove(place);
                }
            }
            // Nothing connects from here.
            Event::ConnectFailed { .. } => {}
        }
    }

    fn request(&mut self, qp: QueuePairId, private_data: &[u8]) {
        let hello = match Hello::parse(private_data) {
            Ok(hello) => hello,
            Err(refusal) => return self.reject(qp, refusal),
        };
        let octets = Arena::octets(&hello.plan);
        let full = self.stopping
            || self.connections() >= self.config.limits.connections
            || octets > self.config.limits.octets - self.octets;
        // req 5042-6.3.6-1: memory of its own for each peer.
        let arena = if full { None } else { Arena::allocate(&hello.plan).ok() };
        let Some(arena) = arena else { return self.reject(qp, Refusal::Busy) };
        self.octets += octets;
        self.generation = self.generation.wrapping_add(1);
        let region = arena.region();
        let state = State::Registering { hello, arena };
        let place = self.insert(Session { qp, generation: self.generation, octets, state });
        let token = Token(u64::from(self.generation) << 32 | u64::from(place));
        let (domain, rights) = (domain(place), Arena::rights(&hello.plan));
        self.commands.push_back(Command::Register { token, domain, region, rights });
    }

    fn registered(&mut self, token: Token, stag: Stag) {
        let Some(place) = self.find(token) else { return };
        let Some(session) = &mut self.sessions[place as usize] else { return };
        let State::Registering { hello, arena } = std::mem::replace(&mut session.state, State::Leaving)
        else {
            // The peer left meanwhile.
            self.commands.push_back(Command::Deregister { token, stag });
            return;
        };
        self.commands.push_back(Command::Accept {
            qp: session.qp,
            private_data: Welcome::Accepted(arena.area(stag)).emit(),
            attributes: QueuePairAttributes { domain: domain(place), ..arena.attributes(&hello.plan) },
            receives: arena.receives(stag),
        });
        let channel = Channel::new(session.qp, hello.plan, arena, stag, hello.area);
        let part = Part::new(&channel);
        session.state = State::Up(Box::new(Up { channel, part, is_ready: false }));
    }

    fn completion(&mut self, completed: &QueuePairCompletion, verbs: &mut dyn Verbs) {
        let Some(place) = self.place(completed.qp) else { return };
        let Some(Up { channel, part, .. }) = self.up_at(place) else { return };
        let result = channel.take(verbs, completed).and_then(|arrival| part.arrive(channel, verbs, arrival));
        match result {
            Ok(()) => self.wake(place),
            Err(error) => self.give_up(place, error),
        }
    }

    /// Gives each ready session its turn; true when one of them did something.
    fn turn(&mut self, verbs: &mut dyn Verbs) -> bool {
        let mut busy = false;
        let mut turns = std::mem::replace(&mut self.ready, std::mem::take(&mut self.turns));
        for place in turns.drain(..) {
            let Some(up) = self.up_at(place) else { continue };
            up.is_ready = false;
            let Up { channel, part, .. } = up;
            let result = part.turn(channel, verbs).and_then(|sent| Ok(channel.flush(verbs)? || sent));
            match result {
                Ok(worked) => {
                    busy |= worked;
                    if part.wants_turn(channel) || !channel.is_flushed() {
                        self.wake(place);
                    }
                }
                Err(error) => self.give_up(place, error),
            }
        }
        self.turns = turns;
        busy
    }

    fn wake(&mut self, place: u32) {
        if let Some(up) = self.up_at(place)
            && !up.is_ready
        {
            up.is_ready = true;
            self.ready.push(place);
        }
    }

    /// Ends a connection that cannot go on; its registration stays until it is gone.
    fn give_up(&mut self, place: u32, error: ChannelError) {
        let Some(session) = &mut self.sessions[place as usize] else { return };
        let State::Up(up) = &session.state else { return };
        count(&self.counters, up);
        let qp = session.qp;
        session.state = State::Broken { stag: up.channel.stag() };
        // Flushed requests are what the end of a connection looks like; its reason follows.
        if !error.is_flush() {
            self.counters.violations.fetch_add(1, Ordering::Relaxed);
            self.tell(Notice::Broken(error));
            self.commands.push_back(Command::Abort { qp });
        }
    }

    /// The queue pair is gone: the memory goes once it is no longer registered.
    fn leave(&mut self, place: u32) {
        let Some(session) = &mut self.sessions[place as usize] else { return };
        let token = Token(u64::from(session.generation) << 32 | u64::from(place));
        let stag = match &session.state {
            State::Up(up) => {
                count(&self.counters, up);
                Some(up.channel.stag())
            }
            State::Broken { stag } => Some(*stag),
            // `registered` withdraws it.
            State::Registering { .. } => None,
            State::Leaving => return,
        };
        session.state = State::Leaving;
        if let Some(stag) = stag {
            self.commands.push_back(Command::Deregister { token, stag });
        }
    }

    /// Ends everything, as the supervisor asked; true when that is done.
    fn stop(&mut self) -> bool {
        if !self.stopping {
            self.stopping = true;
            self.commands.extend(self.listener.take().map(|listener| Command::Unlisten { listener }));
            let qps = self.sessions.iter().flatten().map(|session| session.qp);
            self.commands.extend(qps.map(|qp| Command::Abort { qp }));
        }
        self.connections() == 0 && self.commands.is_empty()
    }

    fn reject(&mut self, qp: QueuePairId, refusal: Refusal) {
        self.counters.rejected.fetch_add(1, Ordering::Relaxed);
        let private_data = Welcome::Refused(refusal).emit();
        self.commands.push_back(Command::Reject { qp, private_data });
    }

    fn insert(&mut self, session: Session) -> u32 {
        let index = session.qp.index as usize;
        let place = self.free.pop().unwrap_or_else(|| {
            self.sessions.push(None);
            u32::try_from(self.sessions.len() - 1).expect("sessions are limited")
        });
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        self.places[index] = place;
        self.sessions[place as usize] = Some(session);
        self.counters.active.fetch_add(1, Ordering::Relaxed);
        place
    }

    fn remove(&mut self, place: u32) -> Option<Session> {
        let session = self.sessions.get_mut(place as usize)?.take()?;
        self.free.push(place);
        self.octets -= session.octets;
        self.counters.active.fetch_sub(1, Ordering::Relaxed);
        Some(session)
    }

    fn tell(&self, notice: Notice) {
        if let Some(notices) = &self.notices {
            // Nobody listens any more when the owner ends first.
            let _ = notices.send(notice);
        }
    }

    /// The place of a queue pair's session.
    fn place(&self, qp: QueuePairId) -> Option<u32> {
        let place = *self.places.get(qp.index as usize)?;
        let session = self.sessions.get(place as usize)?.as_ref()?;
        (session.qp == qp).then_some(place)
    }

    /// The place of the session that a command was for.
    fn find(&self, token: Token) -> Option<u32> {
        let generation = u32::try_from(token.0 >> 32).ok()?;
        let place = u32::try_from(token.0 & u64::from(u32::MAX)).ok()?;
        let session = self.sessions.get(place as usize)?.as_ref()?;
        (session.generation == generation).then_some(place)
    }

    fn up_at(&mut self, place: u32) -> Option<&mut Up> {
        match self.sessions.get_mut(place as usize)?.as_mut()?.state {
            State::Up(ref mut up) => Some(up),
            State::Registering { .. } | State::Broken { .. } | State::Leaving => None,
        }
    }
}

impl Application for PerfService {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        if self.supervision.state() == ServiceState::Stopped {
            return false;
        }
        let mut busy = false;
        for _ in 0..EVENTS_A_POLL {
            let Some(event) = verbs.next_event() else { break };
            busy = true;
            self.event(event);
        }
        for _ in 0..COMPLETIONS_A_POLL {
            let Some(completed) = verbs.next_completion() else { break };
            busy = true;
            self.completion(&completed, verbs);
        }
        busy |= self.turn(verbs);
        while let Some(command) = self.commands.pop_front() {
            if verbs.submit(command.clone()).is_err() {
                self.commands.push_front(command);
                break;
            }
            busy = true;
        }
        if self.supervision.is_stopping() && self.stop() {
            self.supervision.set(ServiceState::Stopped);
        }
        busy
    }
}

impl Service for PerfService {
    fn supervision(&self) -> Arc<Supervision> {
        Arc::clone(&self.supervision)
    }
}

/// Counts what a connection did that ends.
fn count(counters: &ServerCounters, Up { channel, part, .. }: &Up) {
    let plan = channel.plan();
    let messages = part.messages(plan);
    counters.units.fetch_add(messages, Ordering::Relaxed);
    counters.octets.fetch_add(messages.saturating_mul(plan.size.into()), Ordering::Relaxed);
}

/// Connections that wait to be established at most.
const BACKLOG: u32 = 1024;

/// Bounds on one poll, so that the worker's turn stays short.
const EVENTS_A_POLL: usize = 64;
const COMPLETIONS_A_POLL: usize = 1024;

/// Of a queue pair without a session.
const NOWHERE: u32 = u32::MAX;

#[derive(Debug)]
struct Session {
    qp: QueuePairId,
    generation: u32,
    octets: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Its memory is being registered.
    Registering { hello: Hello, arena: Arena },
    /// Accepted; requests may complete even before the event that says it is established.
    Up(Box<Up>),
    /// Broke the exchange; the end of its Stream is awaited.
    Broken { stag: Stag },
    /// Gone; its memory is registered still.
    Leaving,
}

#[derive(Debug)]
struct Up {
    channel: Channel,
    part: Part,
    /// Whether it is among the sessions that get a turn.
    is_ready: bool,
}

/// Of its own for each session: no peer reaches another's memory, even if it guessed an STag.
// req 5042-6.1.1-1
fn domain(place: u32) -> ProtectionDomain {
    ProtectionDomain(place.into())
}

#[cfg(test)]
mod tests {
    use dataplane::mem::{AccessRights, Buffer};
    use dataplane::verbs::{CommandRingFull, Verbs, VerbsError};
    use iwarp::work::{ReceiveRequest, SendRequest};
    use tcpstack::time::Instant;

    use super::super::message::{Area, Mode, Operation, Plan};
    use super::*;

    /// Writes down what the service asks for.
    #[derive(Default)]
    struct Recorder {
        events: VecDeque<Event>,
        commands: Vec<Command>,
    }

    impl Verbs for Recorder {
        fn post_send(&mut self, _: QueuePairId, _: SendRequest) -> Result<(), VerbsError> {
            Ok(())
        }

        fn post_receive(&mut self, _: QueuePairId, _: ReceiveRequest) -> Result<(), VerbsError> {
            Ok(())
        }

        fn submit(&mut self, command: Command) -> Result<(), CommandRingFull> {
            self.commands.push(command);
            Ok(())
        }

        fn next_completion(&mut self) -> Option<QueuePairCompletion> {
            None
        }

        fn next_event(&mut self) -> Option<Event> {
            self.events.pop_front()
        }

        fn now(&self) -> Instant {
            Instant::ZERO
        }
    }

    /// What the service registers for a peer, and the domain of the queue pair that it accepts.
    fn welcome(
        service: &mut PerfService,
        index: u32,
        operation: Operation,
    ) -> (ProtectionDomain, ProtectionDomain, AccessRights, Buffer) {
        let plan = Plan {
            operation,
            mode: Mode::Bandwidth,
            both_ways: true,
            size: 64,
            depth: 4,
            receive_depth: 4,
            moderation: 1,
        };
        let private_data = Hello { plan, area: Area::default() }.emit().to_vec();
        let qp = QueuePairId { index, generation: 0 };
        let (listener, remote) = (ListenerId(0), service.config.local);
        let mut verbs = Recorder::default();
        verbs.events.push_back(Event::ConnectRequest { listener, qp, remote, depths: None, private_data });
        service.poll(&mut verbs);
        let Some(Command::Register { token, domain, region, rights }) = verbs.commands.pop() else {
            panic!("memory is registered first")
        };
        verbs.events.push_back(Event::Registered { token, stag: Stag(index + 1) });
        service.poll(&mut verbs);
        let Some(Command::Accept { attributes, .. }) = verbs.commands.pop() else { panic!("not accepted") };
        (domain, attributes.domain, rights, region.buffer)
    }

    fn service() -> PerfService {
        let mut service = PerfService::new(PerfConfig {
            local: SocketAddr::from(([10, 0, 0, 1], 4791)),
            profile: Profile::default(),
            limits: Limits { connections: 10, octets: 1 << 20 },
        });
        service.poll(&mut Recorder::default());
        service
    }

    // proves 5042-6.1.1-1, 5042-6.3.6-1
    #[test]
    fn each_peer_has_a_protection_domain_and_memory_of_its_own() {
        let mut service = service();
        let peers: Vec<_> = (0..3).map(|index| welcome(&mut service, index, Operation::Write)).collect();
        for (at, (domain, of_queue_pair, _, buffer)) in peers.iter().enumerate() {
            assert_eq!(domain, of_queue_pair);
            for (other, _, _, other_buffer) in &peers[..at] {
                assert_ne!(domain, other);
                buffer.store_u8(0, 7);
                assert_eq!(other_buffer.load_u8(0), 0);
                buffer.store_u8(0, 0);
            }
        }
    }

    // proves 5042-6.3.5-1, 5042-6.4.5-1
    #[test]
    fn a_peer_may_do_what_its_test_does_and_no_more() {
        let mut service = service();
        let rights = |remote_write, remote_read| AccessRights {
            local_write: true,
            remote_write,
            remote_read,
            remote_invalidate: false,
            remote_atomic: false,
        };
        assert_eq!(welcome(&mut service, 0, Operation::Write).2, rights(true, false));
        assert_eq!(welcome(&mut service, 1, Operation::Read).2, rights(false, true));
        assert_eq!(welcome(&mut service, 2, Operation::Send).2, rights(false, false));
    }
}
