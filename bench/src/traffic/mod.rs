//! The harness as an application: runs legs one after the other over connections of their own.
//!
//! ```text
//! per connection:  Register -> Connect (Hello / Welcome) -> the leg's Task -> Disconnect -> Deregister
//! ```
//!
//! A worker polls it, or a core of its own; what it finds out goes to the owner as [`Notice`]s.

mod bandwidth;
mod latency;
mod link;
mod verify;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use control::services::connect_hint;
use control::services::perf::channel::{Arrival, Channel, ChannelError};
use control::services::perf::message::{Malformed, Mismatch, Mode, Refusal};
use dataplane::mem::{AllocateError, RegisterError};
use dataplane::verbs::{Application, ConnectError, DisconnectReason, Verbs};
use iwarp::mpa::{Negotiated, Profile};
use tcpstack::time::Instant;

pub use bandwidth::BandwidthSummary;

use bandwidth::Bandwidth;
use latency::Latency;
use link::Links;
use verify::Verify;

use crate::plan::Leg;
use crate::stats::Latencies;

/// Where the harness connects to, and how.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its `perf` service.
    pub remote: SocketAddr,
    /// What to negotiate.
    pub profile: Profile,
}

/// What the owner is told.
#[derive(Debug)]
pub enum Notice {
    /// A leg's connections are up; they all have the same profile.
    Connected {
        /// The leg, counted from 0.
        leg: usize,
        /// What the first one negotiated.
        negotiated: Negotiated,
    },
    /// A leg is done.
    Done {
        /// The leg, counted from 0.
        leg: usize,
        /// What it came to.
        outcome: Outcome,
    },
    /// A leg failed; nothing more is run.
    Failed {
        /// The leg, counted from 0.
        leg: usize,
        /// Why.
        error: TrafficError,
    },
    /// All is closed; nothing more comes.
    Ended,
    /// The process of the peer is gone; said by who watches it, not by the harness.
    PeerGone,
    /// The link of this port is down, and was for a while; said by who watches it.
    LinkLost(String),
}

/// What a leg came to.
#[derive(Debug)]
pub enum Outcome {
    /// A bandwidth test.
    Bandwidth(BandwidthSummary),
    /// A latency test's round trips.
    Latency(Latencies),
    /// Every octet of these messages was compared.
    Verified {
        /// Messages, both ways.
        messages: u64,
        /// Their octets.
        octets: u64,
    },
}

/// Why a leg failed.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// No memory.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The worker did not take it.
    #[error("cannot register memory: {0}")]
    Register(#[from] RegisterError),
    /// There is no connection.
    #[error("cannot connect to {remote}: {error}{}", connect_hint(*error))]
    Connect {
        /// The peer.
        remote: SocketAddr,
        /// Why.
        error: ConnectError,
    },
    /// The service does not take part.
    #[error("{remote} refuses the test: {refusal}")]
    Refused {
        /// The peer.
        remote: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// There is no perf service there.
    #[error("{remote} is no perf service: {error}")]
    NotPerf {
        /// The peer.
        remote: SocketAddr,
        /// Why.
        error: Malformed,
    },
    /// The connection ended during the test.
    #[error("the connection ended during the test: {0}")]
    Disconnected(DisconnectReason),
    /// The test itself.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// An octet changed on its way.
    #[error("data validation failed at the {at}: {mismatch}")]
    Mismatch {
        /// Which end saw it.
        at: &'static str,
        /// Where it is.
        mismatch: Mismatch,
    },
    /// Messages are missing, or there are more than were sent.
    #[error("{sent} Sends were sent by the {by}, {received} received")]
    Lost {
        /// Which end sent them.
        by: &'static str,
        /// How many it sent.
        sent: u64,
        /// How many arrived.
        received: u64,
    },
    /// A completion or message that had to come did not.
    #[error("nothing moved for {} s while {doing}", STALL.as_secs())]
    Stalled {
        /// What was to be done.
        doing: &'static str,
    },
    /// The user's wish.
    #[error("interrupted")]
    Interrupted,
}

/// The application.
#[derive(Debug)]
pub struct Harness {
    peer: Peer,
    legs: Vec<Leg>,
    /// The leg that runs.
    current: usize,
    notices: Sender<Notice>,
    interrupt: Arc<AtomicBool>,
    state: State,
    /// When anything happened last.
    moved: Instant,
}

#[derive(Debug)]
enum State {
    /// The next leg begins with the next poll.
    Between,
    /// Connections come up.
    Opening(Links),
    /// All are up.
    Running(Links, Box<Task>),
    /// Connections go, since then; whether this was the last leg.
    Closing { links: Links, since: Instant, last: bool },
    /// Nothing is left.
    Ended,
}

impl Harness {
    /// A harness that begins with its first poll and tells `notices` what comes of it.
    pub fn new(peer: Peer, legs: Vec<Leg>, notices: Sender<Notice>, interrupt: Arc<AtomicBool>) -> Self {
        let (current, state, moved) = (0, State::Between, Instant::ZERO);
        Self { peer, legs, current, notices, interrupt, state, moved }
    }

    /// Whether all is done and closed.
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    fn advance(&mut self, verbs: &mut dyn Verbs) -> Result<bool, TrafficError> {
        let now = verbs.now();
        let mut busy = false;
        match &mut self.state {
            State::Between => {
                let Some(leg) = self.legs.get(self.current) else {
                    self.end();
                    return Ok(false);
                };
                self.moved = now;
                self.state = State::Opening(Links::open(leg, &self.peer)?);
                return Ok(true);
            }
            State::Opening(links) => {
                busy |= links.poll(verbs)?;
                if links.are_up() {
                    let leg = &self.legs[self.current];
                    let negotiated = links.negotiated();
                    self.notices.send(Notice::Connected { leg: self.current, negotiated }).ok();
                    let mut links = links.take();
                    let task = Task::begin(leg, &mut links, now);
                    self.state = State::Running(links, Box::new(task));
                }
            }
            State::Running(links, task) => {
                busy |= links.poll(verbs)?;
                while let Some(completed) = verbs.next_completion() {
                    busy = true;
                    if let Some((index, channel)) = links.channel_of(completed.qp) {
                        match channel.take(verbs, &completed) {
                            Ok(arrival) => task.arrive(index, channel, verbs, arrival, now)?,
                            // The Stream ended; why is told after its last completion.
                            Err(error) if error.is_flush() => {}
                            Err(error) => return Err(error.into()),
                        }
                    }
                }
                busy |= task.turn(links, verbs, now)?;
                if let Some(outcome) = task.outcome() {
                    self.notices.send(Notice::Done { leg: self.current, outcome }).ok();
                    let mut links = links.take();
                    links.close();
                    self.current += 1;
                    let last = self.current == self.legs.len();
                    self.state = State::Closing { links, since: now, last };
                }
            }
            State::Closing { links, since, last } => {
                while verbs.next_completion().is_some() {}
                busy |= links.poll(verbs)?;
                if links.are_gone() || now - *since > CLOSE_MAX {
                    let last = *last;
                    self.state = State::Between;
                    if last {
                        self.end();
                    }
                    return Ok(true);
                }
            }
            State::Ended => return Ok(false),
        }
        if busy {
            self.moved = now;
        } else if now - self.moved > STALL {
            return Err(TrafficError::Stalled { doing: self.state.doing() });
        }
        Ok(busy)
    }

    /// Tells the owner why, and closes what is open.
    fn fail(&mut self, error: TrafficError, now: Instant) {
        // The owner may be gone; then nobody cares.
        self.notices.send(Notice::Failed { leg: self.current, error }).ok();
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Opening(mut links) | State::Running(mut links, _) => {
                links.abort();
                self.state = State::Closing { links, since: now, last: true };
            }
            State::Between | State::Closing { .. } | State::Ended => self.end(),
        }
    }

    fn end(&mut self) {
        self.state = State::Ended;
        self.notices.send(Notice::Ended).ok();
    }
}

impl Application for Harness {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        let interrupted = self.interrupt.load(Ordering::Relaxed)
            && !matches!(self.state, State::Ended | State::Closing { last: true, .. });
        let result = if interrupted { Err(TrafficError::Interrupted) } else { self.advance(verbs) };
        match result {
            Ok(busy) => busy,
            Err(error) => {
                self.fail(error, verbs.now());
                true
            }
        }
    }
}

impl State {
    fn doing(&self) -> &'static str {
        match self {
            Self::Opening(_) => "connecting",
            Self::Running(..) => "running the test",
            Self::Closing { .. } => "closing the connections",
            Self::Between | Self::Ended => "doing nothing",
        }
    }
}

/// Longer silence than any retransmission makes on a wire that works.
const STALL: Duration = Duration::from_secs(20);

/// Connections that do not close in this time are left to the worker.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// What runs over a leg's connections.
#[derive(Debug)]
enum Task {
    Bandwidth(Bandwidth),
    Latency(Latency),
    Verify(Verify),
}

impl Task {
    fn begin(leg: &Leg, links: &mut Links, now: Instant) -> Self {
        match leg.plan.mode {
            Mode::Bandwidth => Self::Bandwidth(Bandwidth::begin(leg, links, now)),
            Mode::Latency => Self::Latency(Latency::begin(leg)),
            Mode::Verify => Self::Verify(Verify::begin(leg)),
        }
    }

    fn arrive(
        &mut self,
        index: usize,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
        arrival: Arrival,
        now: Instant,
    ) -> Result<(), TrafficError> {
        match self {
            Self::Bandwidth(task) => task.arrive(index, channel, verbs, arrival, now),
            Self::Latency(task) => task.arrive(channel, verbs, arrival, now),
            Self::Verify(task) => task.arrive(index, channel, verbs, arrival),
        }
    }

    fn turn(&mut self, links: &mut Links, verbs: &mut dyn Verbs, now: Instant) -> Result<bool, TrafficError> {
        match self {
            Self::Bandwidth(task) => task.turn(links, verbs, now),
            Self::Latency(task) => task.turn(links, verbs, now),
            Self::Verify(task) => task.turn(links, verbs),
        }
    }

    fn outcome(&mut self) -> Option<Outcome> {
        match self {
            Self::Bandwidth(task) => task.summary().map(Outcome::Bandwidth),
            Self::Latency(task) => task.latencies().map(Outcome::Latency),
            Self::Verify(task) => task.verified(),
        }
    }
}

#[cfg(test)]
mod tests;
