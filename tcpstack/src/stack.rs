//! The TCP/IP host of one core: connections, listeners, and the way from and to the device.
//!
//! A loop calls [`Stack::receive`] for each frame of a burst, then lets the application act on
//! [`Stack::next_event`], then calls [`Stack::transmit`], which sends everything that has become
//! due: data, acknowledgments for the whole burst, and what the timers ask for.
//!
//! Nothing is looked for: a segment finds its connection by hash, the timer wheel knows whose
//! time has come, and two queues of numbers, in which each connection is at most once, tell
//! which have something to send and which to say. `open` has LISTEN and active opens, `half_open`
//! passive ones, `application` the other calls, `orphan` connections that nobody waits for, `time_wait`
//! what is left of connections.

mod application;
mod half_open;
mod memory;
mod open;
mod orphan;
mod stateless;
mod time_wait;
mod types;

pub use application::Outlet;
pub use memory::MemoryUse;

use std::collections::VecDeque;

pub use types::{
    CloseReason, ConnectError, ConnectionId, ConnectionInfo, Events, ListenError, ListenerId, SendError,
};

use crate::checksum;
use crate::config::StackConfig;
use crate::device::{Capabilities, ChecksumStatus, Device, Frame};
use crate::flow::{FlowKey, FlowTable, Secret};
use crate::icmp::{IcmpError, IcmpErrorKind};
use crate::interface::{Ingress, Interface, TcpDatagram};
use crate::queue::TransmitQueue;
use crate::seq::SeqNumber;
use crate::tcp::TcpCounters;
use crate::tcp::connection::{Connection, NEVER};
use crate::tcp::cookie::Cookies;
use crate::tcp::half_open::HalfOpenTable;
use crate::tcp::input::{Context, Outcome, Reset};
use crate::tcp::isn::{self, PORT_COUNTERS};
use crate::tcp::limit::RateLimit;
use crate::tcp::output::{Egress, Progress};
use crate::tcp::receiver::{EarlyBudget, WindowBudget};
use crate::tcp::segment::Segment;
use crate::tcp::source::Sources;
use crate::tcp::state::State;
use crate::tcp::time_wait::TimeWait;
use crate::tcp::timers::Expired;
use crate::time::Instant;
use crate::timer::TimerWheel;
use open::Listeners;
use stateless::Way;

/// Set in the flow table's numbers for entries of the TIME-WAIT table.
const TIME_WAIT: u32 = 1 << 31;

/// Set in the flow table's numbers for entries of the table of half-open connections.
const HALF_OPEN: u32 = TIME_WAIT | 1 << 30;

/// See the module's head.
pub struct Stack<D: Device> {
    config: StackConfig,
    interface: Interface,
    out: TransmitQueue<D::Frame>,
    offload: bool,
    connections: Vec<Slot<D::Frame>>,
    /// Free places in `connections`.
    free: Vec<u32>,
    flows: FlowTable,
    listeners: Listeners,
    time_wait: TimeWait,
    half_open: HalfOpenTable,
    cookies: Cookies,
    sources: Sources,
    timers: TimerWheel,
    /// Connections with something to send, or that have to look whether they have.
    work: VecDeque<u32>,
    /// Connections with events.
    events: VecDeque<ConnectionId>,
    /// Connections that wait for a neighbour, and the interface's count when it was last looked at.
    waiting: Vec<ConnectionId>,
    resolutions: u64,
    early: EarlyBudget,
    windows: WindowBudget,
    secret: Secret,
    /// Each moves on with the ephemeral ports that were tried for its destinations.
    port_turns: [u32; PORT_COUNTERS],
    /// Connections that the application has let go of and that are not over.
    orphans: usize,
    resets: RateLimit,
    counters: TcpCounters,
}

/// The way out of the stack, in which a connection is borrowed: a macro, as a method would borrow the connection too.
macro_rules! egress {
    ($stack:ident, $device:ident, $now:ident) => {
        Egress {
            device: $device,
            interface: &mut $stack.interface,
            out: &mut $stack.out,
            counters: &mut $stack.counters,
            config: &$stack.config,
            now: $now,
            offload: $stack.offload,
        }
    };
}

/// A place for a connection.
struct Slot<F: Frame> {
    generation: u32,
    connection: Option<Box<Connection<F>>>,
}

impl<D: Device> Stack<D> {
    /// A host without addresses; all its randomness follows from `seed`.
    pub fn new(config: StackConfig, capabilities: &Capabilities, seed: [u8; 32]) -> Self {
        let [interface_seed, isn_seed, flow_seed, cookie_seed, source_seed] = isn::split_seed(seed);
        let [low, ..] = interface_seed.as_chunks::<8>().0 else { unreachable!("sixteen octets") };
        Self {
            interface: Interface::new(capabilities, config.interface.clone(), u64::from_le_bytes(*low)),
            out: TransmitQueue::new(config.transmit_queue),
            offload: capabilities.transmit_checksum,
            connections: Vec::new(),
            free: Vec::new(),
            flows: FlowTable::new(Secret::new(flow_seed)),
            listeners: Listeners::new(config.listeners_max),
            time_wait: TimeWait::new(config.time_wait_max),
            half_open: HalfOpenTable::new(config.half_open_max),
            cookies: Cookies::new(Secret::new(cookie_seed)),
            sources: Sources::new(config.source_limit, Secret::new(source_seed)),
            timers: TimerWheel::new(Instant::ZERO),
            work: VecDeque::new(),
            events: VecDeque::new(),
            waiting: Vec::new(),
            resolutions: 0,
            early: EarlyBudget {
                used: 0,
                total_max: config.early_frames_total,
                connection_max: config.early_frames_max,
            },
            windows: WindowBudget { used: 0, max: config.receive_window_total },
            secret: Secret::new(isn_seed),
            port_turns: [0; PORT_COUNTERS],
            orphans: 0,
            resets: RateLimit::default(),
            counters: TcpCounters::default(),
            config,
        }
    }

    /// The layers below TCP: addresses, routes, neighbours, counters.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// The same, to be changed.
    pub fn interface_mut(&mut self) -> &mut Interface {
        &mut self.interface
    }

    /// What TCP saw, sent and dropped.
    pub fn counters(&self) -> &TcpCounters {
        &self.counters
    }

    /// Four-tuples that segments are known by: connections, half-open ones and TIME-WAIT.
    pub fn flows_len(&self) -> usize {
        self.flows.len()
    }

    /// Connections in TIME-WAIT.
    pub fn time_wait_len(&self) -> usize {
        self.time_wait.len()
    }

    /// Frames kept beyond gaps, of all connections.
    pub fn early_frames(&self) -> usize {
        self.early.used
    }

    /// Octets by which the receive windows of all connections have grown.
    pub fn windows_grown(&self) -> u64 {
        self.windows.used
    }

    /// Takes one received frame.
    #[inline]
    pub fn receive(&mut self, frame: D::Frame, device: &mut D, now: Instant) {
        match self.interface.receive(frame, device, &mut self.out, now) {
            Ingress::Tcp(datagram) => self.receive_segment(datagram, device, now),
            Ingress::TransportError(error) => self.receive_error(&error, now),
            Ingress::Consumed => {}
        }
    }

    /// Sends all that is due; to be called once a turn, after the burst and the application.
    ///
    /// Returns whether the device took anything.
    pub fn transmit(&mut self, device: &mut D, now: Instant) -> bool {
        self.poll_timers(device, now);
        self.send_ready(device, now)
    }

    /// The first half of [`Stack::transmit`]: does what the timers ask for. A loop that turns more
    /// often than timers matter may leave it out of most turns.
    ///
    /// Connections whose time has come are sent for in [`Stack::send_ready`].
    pub fn poll_timers(&mut self, device: &mut D, now: Instant) {
        self.interface.poll(device, &mut self.out, now);
        while let Some(index) = self.timers.expire(now) {
            self.expire(index, device, now);
        }
        while let Some(index) = self.time_wait.expired(now) {
            self.forget_time_wait(index);
        }
        self.expire_half_open(device, now);
    }

    /// The second half of [`Stack::transmit`]: sends what connections have to send.
    #[inline]
    pub fn send_ready(&mut self, device: &mut D, now: Instant) -> bool {
        let sent_before = self.out.sent();
        if self.interface.resolutions() != self.resolutions {
            self.resolutions = self.interface.resolutions();
            for id in core::mem::take(&mut self.waiting) {
                // Some may be gone by now, and their places taken.
                if let Some(connection) = self.connection_mut(id) {
                    connection.waiting = false;
                    self.add_work(id.index);
                }
            }
        }
        // Each of those that are in the queue now has one turn.
        for _ in 0..self.work.len() {
            let Some(index) = self.work.pop_front() else { break };
            self.output(index, device, now);
        }
        self.out.flush(device);
        self.out.sent() != sent_before
    }

    /// Whether [`Stack::send_ready`] has something to do at once.
    #[inline]
    pub fn has_ready(&self) -> bool {
        !self.work.is_empty() || !self.out.is_empty()
    }

    /// When [`Stack::transmit`] must be called again at the latest, if nothing is received.
    pub fn poll_at(&self, now: Instant) -> Option<Instant> {
        if self.has_ready() {
            return Some(now);
        }
        [self.timers.next(), self.time_wait.next(), self.half_open.next(), self.interface.poll_at()]
            .into_iter()
            .flatten()
            .min()
    }

    #[inline]
    fn receive_segment(&mut self, datagram: TcpDatagram<D::Frame>, device: &mut D, now: Instant) {
        let octets = datagram.frame.bytes();
        let Ok(segment) = Segment::parse(octets) else {
            self.counters.malformed += 1;
            return;
        };
        // req 9293-3.1-3
        let good = match datagram.checksum {
            ChecksumStatus::Good => true,
            ChecksumStatus::Bad => false,
            ChecksumStatus::Unknown => checksum_is_good(&datagram),
        };
        if !good {
            self.counters.checksum_bad += 1;
            return;
        }
        self.counters.segments_received += 1;
        let key = FlowKey::new(
            datagram.destination,
            segment.destination_port,
            datagram.source,
            segment.source_port,
        );
        match self.flows.get(&key) {
            Some(index) if index & TIME_WAIT == 0 => self.arrives(index, &segment, datagram, device, now),
            Some(index) if index & HALF_OPEN == HALF_OPEN => {
                self.arrives_half_open(index & !HALF_OPEN, &segment, datagram, device, now);
            }
            Some(index) => self.arrives_in_time_wait(index & !TIME_WAIT, &segment, &datagram, device, now),
            None => self.arrives_for_listener(&segment, datagram, device, now),
        }
    }

    #[inline]
    fn arrives(
        &mut self,
        index: u32,
        segment: &Segment,
        datagram: TcpDatagram<D::Frame>,
        device: &mut D,
        now: Instant,
    ) {
        let TcpDatagram { frame, source, destination, ecn, source_mac, .. } = datagram;
        let Some(connection) = slot(&mut self.connections, index) else { return };
        if connection.ecn.turns(ecn) && connection.owes_ack_before(segment) {
            // For what came before the marks changed (RFC 8257 section 3.2).
            connection.send_ack(&mut egress!(self, device, now));
        }
        let mut context = Context {
            now,
            config: &self.config,
            counters: &mut self.counters,
            early: &mut self.early,
            windows: &mut self.windows,
            ecn,
        };
        let before = connection.state;
        let outcome = connection.arrives(segment, frame, &mut context);
        let after = connection.state;
        if outcome == Outcome::AckNow {
            connection.ack.now = true;
            let mut egress = egress!(self, device, now);
            if connection.template.is_some() {
                connection.send_ack(&mut egress);
            }
        }
        if !connection.in_work {
            connection.in_work = true;
            self.work.push_back(index);
        }
        // The short way ends here for nearly all.
        if before == after && matches!(outcome, Outcome::Continue | Outcome::AckNow) {
            self.publish(index);
            return;
        }
        match outcome {
            Outcome::Continue | Outcome::AckNow => {}
            Outcome::Reset(reset) => {
                self.send_reset(reset, segment, (destination, source, source_mac), device, now);
            }
            Outcome::Close(reason) => self.finish(index, before, reason),
        }
        self.changed(index, before, now);
        self.publish(index);
    }

    /// What follows from a change of state.
    #[cold]
    fn changed(&mut self, index: u32, before: State, now: Instant) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        let after = connection.state;
        if before == State::SynReceived && after.is_synchronized() {
            if let Some(listener) = connection.listener {
                if self.listeners.established(listener) {
                    self.counters.accepted += 1;
                } else {
                    // Nobody is there any more who would take it.
                    self.reset_and_finish(index, before, CloseReason::Aborted);
                    return;
                }
            } else {
                self.counters.opened += 1;
            }
        } else if before == State::SynSent && after.is_synchronized() {
            self.counters.opened += 1;
        }
        match after {
            State::TimeWait if before != State::TimeWait => self.enter_time_wait(index, now),
            State::FinWait2 if before != State::FinWait2 => self.linger(index, now),
            _ => {}
        }
    }

    /// Ends a connection: `before` is the state in which the reason came up.
    fn finish(&mut self, index: u32, before: State, reason: CloseReason) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        self.orphans -= usize::from(connection.released);
        connection.end(reason, &mut self.early, &mut self.windows);
        self.flows.remove(&connection.key());
        self.timers.clear(index);
        connection.wheel_at = NEVER;
        self.counters.closed += 1;
        if before == State::SynReceived
            && let Some(listener) = connection.listener
        {
            // The application never knew of it (RFC 9293 section 3.10.7.4, return to LISTEN).
            self.listeners.gave_up(listener);
            connection.released = true;
        } else {
            connection.events.insert(Events::CLOSED);
        }
        self.publish(index);
        self.free_if_done(index);
    }

    /// Ends a connection and tells the peer with the next turn.
    fn reset_and_finish(&mut self, index: u32, before: State, reason: CloseReason) {
        if let Some(connection) = slot(&mut self.connections, index) {
            connection.reset_due = before != State::SynSent;
        }
        self.add_work(index);
        self.finish(index, before, reason);
    }

    /// An ICMP error about a segment of ours (RFC 9293 section 3.9.2.2, RFC 5927).
    // req 9293-3.9.2.2-1
    #[cold]
    fn receive_error(&mut self, error: &IcmpError, now: Instant) {
        let key = FlowKey::new(error.local, error.local_port, error.remote, error.remote_port);
        let index = match self.flows.get(&key) {
            Some(index) if index & TIME_WAIT == 0 => index,
            Some(index) if index & HALF_OPEN == HALF_OPEN => {
                self.receive_error_half_open(index & !HALF_OPEN, error, now);
                return;
            }
            _ => {
                self.counters.icmp_ignored += 1;
                return;
            }
        };
        let Some(connection) = slot(&mut self.connections, index) else { return };
        // Whoever knows what is in flight has seen our segments.
        let quoted = SeqNumber::new(error.sequence);
        if !(quoted.at_or_after(connection.sender.una) && quoted.before(connection.sender.nxt)) {
            self.counters.icmp_ignored += 1;
            return;
        }
        match error.kind {
            // req 9293-3.9.2.2-4, as RFC 5927 section 5.2 tempers it: only before the handshake is over.
            IcmpErrorKind::Refused if connection.state == State::SynSent => {
                self.finish(index, State::SynSent, CloseReason::Refused);
            }
            IcmpErrorKind::PacketTooBig { mtu } if mtu < connection.mtu => {
                connection.shrink_mtu(mtu, &self.config, now);
                self.counters.path_mtu_reduced += 1;
                self.interface.update_path_mtu(error.remote, mtu, now);
                self.add_work(index);
                self.publish(index);
            }
            IcmpErrorKind::PacketTooBig { mtu } if connection.refuse_probe(quoted, mtu) => {
                self.interface.update_path_mtu(error.remote, mtu, now);
                self.add_work(index);
            }
            // req 9293-3.9.2.2-3
            _ => {
                connection.soft_errors = connection.soft_errors.saturating_add(1);
                self.counters.icmp_soft_errors += 1;
            }
        }
    }

    /// The time of a connection has come, or what was its time before it moved.
    fn expire(&mut self, index: u32, device: &mut D, now: Instant) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        connection.wheel_at = NEVER;
        let before = connection.state;
        let mut egress = egress!(self, device, now);
        match connection.expire(now, &self.config, egress.counters) {
            Expired::Nothing if !connection.pacer.take_due(now) && !connection.ack.is_due(now) => {
                self.schedule(index);
                return;
            }
            Expired::Nothing => {}
            Expired::Resend => self.publish(index),
            Expired::Probe => connection.send_probe(&mut egress),
            Expired::Squeeze => connection.squeeze(&mut egress),
            Expired::GiveUp(reason) => {
                // A peer that never answered gets nothing; one that did may still be there.
                self.reset_and_finish(index, before, reason);
                return;
            }
        }
        self.add_work(index);
        self.schedule(index);
    }

    /// Lets a connection send what it may.
    #[inline]
    fn output(&mut self, index: u32, device: &mut D, now: Instant) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        connection.in_work = false;
        let mut egress = egress!(self, device, now);
        let progress = connection.output(&mut egress);
        let before = connection.state;
        match progress {
            Progress::Done => {}
            Progress::Again => {
                connection.in_work = true;
                self.work.push_back(index);
            }
            Progress::Waiting | Progress::Unreachable => {
                if before == State::SynSent && progress == Progress::Unreachable {
                    self.finish(index, before, CloseReason::Unreachable);
                    return;
                }
                // What is queued waits; if it waits too long, the timer ends it.
                if before != State::Closed {
                    connection.arm(now);
                } else {
                    connection.reset_due = false;
                }
                if !connection.waiting && progress == Progress::Waiting {
                    connection.waiting = true;
                    let generation = self.connections[index as usize].generation;
                    self.waiting.push(ConnectionId { index, generation });
                }
            }
        }
        self.schedule(index);
        self.free_if_done(index);
    }

    /// Makes sure that the wheel looks at the connection in time.
    #[inline]
    fn schedule(&mut self, index: u32) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        // A deadline that moved away is found out when the old one comes: cheaper than moving it.
        let deadline = connection.deadline();
        if deadline < connection.wheel_at {
            connection.wheel_at = deadline;
            self.timers.set(index, deadline);
        }
    }

    fn add_work(&mut self, index: u32) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        if !connection.in_work {
            connection.in_work = true;
            self.work.push_back(index);
        }
    }

    /// Puts a connection with events into their queue.
    #[inline]
    fn publish(&mut self, index: u32) {
        let Some(Slot { generation, connection: Some(connection) }) =
            self.connections.get_mut(index as usize)
        else {
            return;
        };
        if connection.events.is_empty() {
            return;
        }
        if connection.released {
            self.orphan_event(index);
        } else if !connection.in_events {
            connection.in_events = true;
            self.events.push_back(ConnectionId { index, generation: *generation });
        }
    }

    /// Frees the slot of a connection that is over, released, and has nothing left to send.
    #[inline]
    fn free_if_done(&mut self, index: u32) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        if !connection.released || connection.in_work || !connection.state.is_over() {
            return;
        }
        self.timers.clear(index);
        let place = &mut self.connections[index as usize];
        place.connection = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
    }
}

#[inline]
fn slot<F: Frame>(connections: &mut [Slot<F>], index: u32) -> Option<&mut Connection<F>> {
    connections.get_mut(index as usize)?.connection.as_deref_mut()
}

/// Whether pseudo-header and segment add up.
#[inline]
fn checksum_is_good<F: Frame>(datagram: &TcpDatagram<F>) -> bool {
    let octets = datagram.frame.bytes();
    let TcpDatagram { source, destination, .. } = *datagram;
    let pseudo = checksum::of_pseudo_header(source, destination, PROTOCOL, octets.len());
    checksum::finish(checksum::combine(pseudo, checksum::sum(octets))) == 0
}

/// TCP's number in the pseudo-header.
const PROTOCOL: u8 = 6;
