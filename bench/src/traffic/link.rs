//! A leg's connections: from registering their memory to withdrawing it.

use std::collections::VecDeque;

use control::services::perf::channel::{Arena, Channel};
use control::services::perf::message::{Hello, Plan, Welcome};
use dataplane::verbs::{Command, ConnectError, Event, QueuePairId, Token, Verbs};
use iwarp::mpa::Negotiated;
use iwarp::types::{ProtectionDomain, Stag};

use super::{Peer, TrafficError};
use crate::plan::Leg;

/// The connections of one leg.
#[derive(Debug)]
pub(super) struct Links {
    plan: Plan,
    peer: Peer,
    links: Vec<Link>,
    /// Place of each queue pair's connection, by the queue pair's index.
    places: Vec<u32>,
    /// Connections that are up, and that are gone.
    up: usize,
    gone: usize,
    /// Closing or aborting: nothing new is begun.
    closing: bool,
    negotiated: Option<Negotiated>,
    /// Connections that are being made.
    connecting: usize,
    /// Those that wait until fewer are.
    waiting: VecDeque<Token>,
    /// Commands that had no room yet.
    commands: VecDeque<Command>,
}

#[derive(Debug)]
enum Link {
    Registering(Arena),
    Waiting(Arena, Stag),
    Connecting(Arena, Stag),
    Up(Box<Channel>),
    Closing(QueuePairId, Stag),
    Deregistering,
    Gone,
}

/// Connections that are being made at a time: a service's backlog drops the SYNs of more than 1024, and the next ones
/// come after ever longer timeouts.
const CONNECTING_MAX: usize = 512;

impl Links {
    /// Begins to connect.
    pub(super) fn open(leg: &Leg, peer: &Peer) -> Result<Self, TrafficError> {
        let mut links = Self {
            plan: leg.plan,
            peer: peer.clone(),
            links: Vec::new(),
            places: Vec::new(),
            up: 0,
            gone: 0,
            closing: false,
            negotiated: None,
            connecting: 0,
            waiting: VecDeque::new(),
            commands: VecDeque::new(),
        };
        for place in 0..leg.queue_pairs {
            let arena = Arena::allocate(&leg.plan)?;
            links.commands.push_back(Command::Register {
                token: Token(place.into()),
                domain: ProtectionDomain::default(),
                region: arena.region(),
                rights: Arena::rights(&leg.plan),
            });
            links.links.push(Link::Registering(arena));
        }
        Ok(links)
    }

    /// Itself, leaving nothing behind.
    pub(super) fn take(&mut self) -> Self {
        let nothing = Self {
            plan: self.plan,
            peer: self.peer.clone(),
            links: Vec::new(),
            places: Vec::new(),
            up: 0,
            gone: 0,
            closing: true,
            negotiated: None,
            connecting: 0,
            waiting: VecDeque::new(),
            commands: VecDeque::new(),
        };
        std::mem::replace(self, nothing)
    }

    /// Takes events and hands over commands; true when there was one.
    pub(super) fn poll(&mut self, verbs: &mut dyn Verbs) -> Result<bool, TrafficError> {
        let mut busy = false;
        while let Some(event) = verbs.next_event() {
            busy = true;
            self.event(event)?;
        }
        while let Some(command) = self.commands.pop_front() {
            if verbs.submit(command.clone()).is_err() {
                self.commands.push_front(command);
                break;
            }
            busy = true;
        }
        Ok(busy)
    }

    /// Ends all connections in order.
    pub(super) fn close(&mut self) {
        self.leave(|qp| Command::Disconnect { qp });
    }

    /// Ends all connections at once.
    pub(super) fn abort(&mut self) {
        self.leave(|qp| Command::Abort { qp });
    }

    pub(super) fn are_up(&self) -> bool {
        self.up == self.links.len()
    }

    pub(super) fn are_gone(&self) -> bool {
        self.gone == self.links.len()
    }

    /// What the first connection negotiated.
    ///
    /// # Panics
    /// Before one is up.
    pub(super) fn negotiated(&self) -> Negotiated {
        self.negotiated.expect("a connection is up")
    }

    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    /// The connection of a queue pair.
    pub(super) fn channel_of(&mut self, qp: QueuePairId) -> Option<(usize, &mut Channel)> {
        let place = *self.places.get(qp.index as usize)? as usize;
        match self.links.get_mut(place)? {
            Link::Up(channel) if channel.qp() == qp => Some((place, channel)),
            _ => None,
        }
    }

    /// A connection that is up.
    pub(super) fn channel(&mut self, place: usize) -> Option<&mut Channel> {
        match self.links.get_mut(place)? {
            Link::Up(channel) => Some(channel),
            _ => None,
        }
    }

    fn event(&mut self, event: Event) -> Result<(), TrafficError> {
        let remote = self.peer.remote;
        match event {
            Event::Registered { token, stag } => {
                let Some(link) = self.by_token(token) else { return Ok(()) };
                if let Link::Registering(arena) = std::mem::replace(link, Link::Deregistering) {
                    if self.closing {
                        self.commands.push_back(Command::Deregister { token, stag });
                    } else {
                        self.wait(token, arena, stag);
                        self.connect_next();
                    }
                }
            }
            Event::RegisterFailed { token, error } => {
                self.forget(token);
                self.unless_closing(error.into())?;
            }
            Event::Established { token, qp, private_data, negotiated, .. } => {
                return self.established(token, qp, &private_data, negotiated);
            }
            Event::ConnectFailed { token, error, private_data, .. } => {
                self.connecting -= 1;
                self.connect_next();
                if let Some(Link::Connecting(_, stag)) = self.by_token(token) {
                    let stag = *stag;
                    self.deregister(token, stag);
                }
                let refused = match (error, Welcome::parse(&private_data)) {
                    (ConnectError::Rejected, Ok(Welcome::Refused(refusal))) => {
                        TrafficError::Refused { remote, refusal }
                    }
                    _ => TrafficError::Connect { remote, error },
                };
                self.unless_closing(refused)?;
            }
            Event::Disconnected { qp, reason } => {
                let Some(place) = self.links.iter().position(|link| link.qp() == Some(qp)) else {
                    return Ok(());
                };
                let token = Token(place as u64);
                if let Link::Closing(_, stag) = self.links[place] {
                    self.deregister(token, stag);
                } else if let Link::Up(channel) = &self.links[place] {
                    let stag = channel.stag();
                    self.deregister(token, stag);
                    return Err(TrafficError::Disconnected(reason));
                }
            }
            Event::Deregistered { token, .. } => self.forget(token),
            // Nothing listens here.
            Event::Listening { .. } | Event::ListenFailed { .. } | Event::ConnectRequest { .. } => {}
        }
        Ok(())
    }

    fn wait(&mut self, token: Token, arena: Arena, stag: Stag) {
        if let Some(link) = self.by_token(token) {
            *link = Link::Waiting(arena, stag);
            self.waiting.push_back(token);
        }
    }

    /// Connects those whose turn it is.
    fn connect_next(&mut self) {
        while self.connecting < CONNECTING_MAX
            && let Some(token) = self.waiting.pop_front()
        {
            let Some(link) = self.by_token(token) else { continue };
            if let Link::Waiting(arena, stag) = std::mem::replace(link, Link::Gone) {
                self.connecting += 1;
                self.connect(token, arena, stag);
            }
        }
    }

    fn connect(&mut self, token: Token, arena: Arena, stag: Stag) {
        let hello = Hello { plan: self.plan, area: arena.area(stag) };
        self.commands.push_back(Command::Connect {
            token,
            remote: self.peer.remote,
            profile: self.peer.profile.clone(),
            private_data: hello.emit().to_vec(),
            attributes: arena.attributes(&self.plan),
            receives: arena.receives(stag),
        });
        if let Some(link) = self.by_token(token) {
            *link = Link::Connecting(arena, stag);
        }
    }

    fn established(
        &mut self,
        token: Token,
        qp: QueuePairId,
        private_data: &[u8],
        negotiated: Negotiated,
    ) -> Result<(), TrafficError> {
        self.connecting -= 1;
        self.connect_next();
        let remote = self.peer.remote;
        let (plan, closing) = (self.plan, self.closing);
        let Some(link) = self.by_token(token) else { return Ok(()) };
        let Link::Connecting(arena, stag) = std::mem::replace(link, Link::Gone) else { return Ok(()) };
        let welcome = Welcome::parse(private_data);
        let area = match welcome {
            Ok(Welcome::Accepted(area)) if !closing => area,
            _ => {
                *link = Link::Closing(qp, stag);
                self.commands.push_back(Command::Abort { qp });
                return match welcome {
                    _ if closing => Ok(()),
                    Ok(Welcome::Refused(refusal)) => Err(TrafficError::Refused { remote, refusal }),
                    Ok(Welcome::Accepted(_)) => Ok(()),
                    Err(error) => Err(TrafficError::NotPerf { remote, error }),
                };
            }
        };
        *link = Link::Up(Box::new(Channel::new(qp, plan, arena, stag, area)));
        self.negotiated.get_or_insert(negotiated);
        self.up += 1;
        let index = qp.index as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, u32::MAX);
        }
        self.places[index] = u32::try_from(token.0).unwrap_or(u32::MAX);
        Ok(())
    }

    fn leave(&mut self, command: impl Fn(QueuePairId) -> Command) {
        self.closing = true;
        for token in std::mem::take(&mut self.waiting) {
            if let Some(Link::Waiting(_, stag)) = self.by_token(token) {
                let stag = *stag;
                self.deregister(token, stag);
            }
        }
        for link in &mut self.links {
            if let Link::Up(channel) = link {
                let (qp, stag) = (channel.qp(), channel.stag());
                *link = Link::Closing(qp, stag);
                self.commands.push_back(command(qp));
            }
        }
    }

    fn deregister(&mut self, token: Token, stag: Stag) {
        if let Some(link) = self.by_token(token) {
            *link = Link::Deregistering;
            self.commands.push_back(Command::Deregister { token, stag });
        }
    }

    fn forget(&mut self, token: Token) {
        if let Some(link) = self.by_token(token)
            && !matches!(link, Link::Gone)
        {
            *link = Link::Gone;
            self.gone += 1;
        }
    }

    fn unless_closing(&self, error: TrafficError) -> Result<(), TrafficError> {
        if self.closing { Ok(()) } else { Err(error) }
    }

    fn by_token(&mut self, token: Token) -> Option<&mut Link> {
        self.links.get_mut(usize::try_from(token.0).ok()?)
    }
}

impl Link {
    fn qp(&self) -> Option<QueuePairId> {
        match self {
            Self::Up(channel) => Some(channel.qp()),
            Self::Closing(qp, _) => Some(*qp),
            Self::Registering(_)
            | Self::Waiting(..)
            | Self::Connecting(..)
            | Self::Deregistering
            | Self::Gone => None,
        }
    }
}
