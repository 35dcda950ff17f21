//! SEGMENT ARRIVES (RFC 9293 section 3.10.7) with the checks of RFC 5961 and RFC 7323.
//!
//! A segment that is next in order on an established connection takes a short way through
//! [`Connection::arrives`]; everything else goes through the RFC's steps, in its order.

use core::time::Duration;

use arrayvec::ArrayVec;

use super::congestion::{Flight, Response, arrived_twice};
use super::connection::{Connection, NEVER};
use super::counters::TcpCounters;
use super::options::{Options, SACK_BLOCKS_MAX, SackBlock, TIMESTAMPS_LEN, Timestamps, leading_timestamps};
use super::receiver::{EarlyBudget, Placement, WindowBudget};
use super::segment::{Flags, HEADER_LEN, Segment};
use super::state::{Event, State};
use super::timers::Timer;
use crate::config::StackConfig;
use crate::device::Frame;
use crate::seq::SeqNumber;
use crate::stack::{CloseReason, Events};
use crate::time::{Coarse, Instant};

/// After this long without a segment TS.Recent may have wrapped (RFC 7323 section 5.5).
const TIMESTAMP_VALID: Duration = Duration::from_secs(24 * 24 * 3600);

/// What input needs of the stack.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a StackConfig,
    pub(crate) counters: &'a mut TcpCounters,
    pub(crate) early: &'a mut EarlyBudget,
    pub(crate) windows: &'a mut WindowBudget,
    /// The segment's two ECN bits.
    pub(crate) ecn: u8,
}

/// A reset in answer to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) seq: SeqNumber,
    /// With it the reset carries an ACK.
    pub(crate) ack: Option<SeqNumber>,
}

impl Reset {
    /// The reset that the sender of `segment` accepts (RFC 9293 section 3.10.7.1).
    pub(crate) fn answering(segment: &Segment) -> Self {
        if segment.flags.contains(Flags::ACK) {
            Self { seq: segment.ack, ack: None }
        } else {
            Self { seq: SeqNumber::default(), ack: Some(segment.seq + segment.sequence_len()) }
        }
    }
}

/// What the stack does after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Nothing, or what the connection's own state asks for.
    Continue,
    /// Send an ACK now, not at the end of the burst.
    AckNow,
    /// Send a reset in answer.
    Reset(Reset),
    /// End the connection.
    Close(CloseReason),
}

impl<F: Frame> Connection<F> {
    /// Processes a segment of this connection; `frame` shows it from its header on.
    #[inline]
    pub(crate) fn arrives(&mut self, segment: &Segment, mut frame: F, context: &mut Context<'_>) -> Outcome {
        if self.state == State::SynSent {
            return self.arrives_in_syn_sent(segment, frame, context);
        }
        if let Some(outcome) = self.check_timestamps(segment, frame.bytes(), context) {
            return outcome;
        }

        let predicted = self.state == State::Established
            && segment.flags.contains(Flags::ACK)
            && !segment.flags.intersects(Flags::SYN | Flags::FIN | Flags::RST | Flags::URG)
            && segment.seq == self.receiver.nxt
            && segment.payload_len <= self.receiver.window()
            && !self.receiver.has_gap()
            && !self.receiver.fin_seen();
        if !predicted {
            return self.arrives_otherwise(segment, frame, context);
        }
        if let Some(outcome) = self.process_ack(segment, frame.bytes(), context) {
            return outcome;
        }
        if segment.payload_len > 0 {
            frame.trim_front(segment.header_len);
            self.take_marks(segment.flags, context);
            self.take_next(segment.payload_len, frame, context);
        }
        Outcome::Continue
    }

    /// Data that begin at RCV.NXT, fit the window and fill no gap.
    #[inline]
    fn take_next(&mut self, len: u32, frame: F, context: &mut Context<'_>) {
        if self.receiver.accept_next(len, frame).is_err() {
            context.counters.receive_queue_full += 1;
            return;
        }
        context.counters.octets_received += u64::from(len);
        self.events.insert(Events::READABLE);
        self.ack.note(len, context.now, context.config.delayed_ack);
        if self.receiver.is_round_over(context.now) {
            self.tune_window(context);
        }
    }

    /// The steps of RFC 9293 section 3.10.7.4 for all segments that were not predicted.
    #[cold]
    fn arrives_otherwise(&mut self, segment: &Segment, frame: F, context: &mut Context<'_>) -> Outcome {
        if self.state == State::Closed {
            return Outcome::Continue;
        }
        // First: the sequence number. In a closed window the data are no good, but the rest is
        // (req 9293-3.4-1).
        let acceptable = self.receiver.is_acceptable(segment.seq, segment.sequence_len());
        let closed = self.receiver.window() == 0 && segment.seq == self.receiver.nxt;
        if !acceptable && !closed {
            return self.unacceptable(segment, context);
        }

        // Second: RST (RFC 5961 section 3).
        if segment.flags.contains(Flags::RST) {
            if segment.seq != self.receiver.nxt {
                // req 9293-3.10.7.4-5
                // req 9293-3.10.7.4-6
                return self.challenge(context);
            }
            // req 9293-3.10.7.4-4, 9293-3.5.3-1
            context.counters.resets_received += 1;
            let refused = self.state == State::SynReceived && self.listener.is_none();
            return Outcome::Close(if refused { CloseReason::Refused } else { CloseReason::Reset });
        }

        // Fourth: SYN (RFC 5961 section 4).
        if segment.flags.contains(Flags::SYN) {
            // req 9293-3.10.7.4-7
            // req 9293-3.10.7.4-8
            return self.challenge(context);
        }

        // Fifth: ACK.
        if !segment.flags.contains(Flags::ACK) {
            return Outcome::Continue;
        }
        if self.state == State::SynReceived {
            if !(segment.ack.after(self.sender.una) && segment.ack.at_or_before(self.sender.nxt)) {
                return Outcome::Reset(Reset { seq: segment.ack, ack: None });
            }
            self.synchronized(segment, context);
        } else if let Some(outcome) = self.process_ack(segment, frame.bytes(), context) {
            return outcome;
        }
        if self.sender.fin_acknowledged() {
            match self.state {
                State::FinWait1 | State::Closing | State::LastAck => self.step(Event::FinAcknowledged),
                _ => {}
            }
            if self.state == State::Closed {
                return Outcome::Close(CloseReason::Graceful);
            }
        }

        // Seventh and eighth: the text and FIN.
        self.take_text(segment, frame, closed && segment.sequence_len() > 0, context)
    }

    fn take_text(
        &mut self,
        segment: &Segment,
        mut frame: F,
        closed: bool,
        context: &mut Context<'_>,
    ) -> Outcome {
        if !self.state.may_receive() {
            // Beyond the peer's FIN there is nothing to take; a repeated FIN is acknowledged.
            if segment.sequence_len() > 0 {
                self.ack.now = true;
            }
            return Outcome::Continue;
        }
        if segment.flags.contains(Flags::FIN) {
            self.receiver.note_fin(segment.seq + segment.payload_len);
        }
        let mut outcome = Outcome::Continue;
        if closed && segment.payload_len > 0 {
            // A window probe: every one is answered.
            context.counters.out_of_window += 1;
            outcome = Outcome::AckNow;
        } else if segment.payload_len > 0 {
            frame.trim_front(segment.header_len);
            let len = segment.payload_len;
            match self.receiver.accept(segment.seq, frame, context.early) {
                Placement::InOrder { octets, news } => {
                    self.take_marks(segment.flags, context);
                    context.counters.octets_received += u64::from(octets);
                    self.events.insert(Events::READABLE);
                    self.ack.note(octets, context.now, context.config.delayed_ack);
                    // RFC 5681 section 4.2: a gap that is filled, even in part, is told at once.
                    self.ack.now |= news;
                    if self.receiver.is_round_over(context.now) {
                        self.tune_window(context);
                    }
                }
                // req 9293-3.10.7.4-12
                Placement::Early => {
                    self.take_marks(segment.flags, context);
                    self.ack.full = self.ack.full.max(len);
                    context.counters.early_kept += 1;
                    outcome = Outcome::AckNow;
                }
                Placement::EarlyFull => {
                    context.counters.early_dropped += 1;
                    outcome = Outcome::AckNow;
                }
                Placement::Duplicate => {
                    context.counters.duplicates += 1;
                    self.receiver.note_duplicate(segment.seq, len);
                    outcome = Outcome::AckNow;
                }
                Placement::OutOfWindow => {
                    context.counters.out_of_window += 1;
                    outcome = Outcome::AckNow;
                }
                Placement::Full => context.counters.receive_queue_full += 1,
            }
        }
        if self.receiver.take_fin() {
            self.step(Event::FinReceived);
            self.events.insert(Events::PEER_CLOSED);
            self.ack.now = true;
        }
        outcome
    }

    /// SYN-SENT (RFC 9293 section 3.10.7.3).
    #[cold]
    fn arrives_in_syn_sent(&mut self, segment: &Segment, frame: F, context: &mut Context<'_>) -> Outcome {
        let acknowledges = segment.flags.contains(Flags::ACK);
        if acknowledges && !(segment.ack.after(self.iss) && segment.ack.at_or_before(self.sender.nxt)) {
            if segment.flags.contains(Flags::RST) {
                return Outcome::Continue;
            }
            return Outcome::Reset(Reset { seq: segment.ack, ack: None });
        }
        if segment.flags.contains(Flags::RST) {
            if !acknowledges {
                return Outcome::Continue;
            }
            context.counters.resets_received += 1;
            return Outcome::Close(CloseReason::Refused);
        }
        if !segment.flags.contains(Flags::SYN) {
            return Outcome::Continue;
        }
        let options = Options::parse(segment.options(frame.bytes()));
        self.take_syn(segment.seq, &options, context.now, context.config);
        self.ecn.take_syn(segment.flags, self.retries > 0);
        if !acknowledges {
            // req 9293-3.5-1: both open at the same time.
            self.step(Event::SynCrossed);
            self.sender.set_window(segment.seq, segment.ack, u32::from(segment.window));
            self.syn_due = true;
            return Outcome::Continue;
        }
        self.synchronized(segment, context);
        // Data on a SYN,ACK are allowed, if rare; the peer's window of a SYN is not scaled.
        self.ack.now = true;
        if segment.payload_len > 0 || segment.flags.contains(Flags::FIN) {
            let text = Segment { seq: segment.seq + 1, ..*segment };
            return self.take_text(&text, frame, false, context);
        }
        Outcome::Continue
    }

    /// Our SYN was acknowledged and the peer's has come.
    fn synchronized(&mut self, segment: &Segment, context: &mut Context<'_>) {
        let (sent_at, clean) = (self.sent_at, self.retries == 0 && self.sent_at != NEVER);
        self.sender.acknowledge(segment.ack, context.now);
        // req 9293-3.8.1-1: Karn's algorithm holds for SYNs too.
        if clean {
            self.rto.sample(context.now - sent_at);
        }
        self.establish(context.config, context.now);
        let scale = if segment.flags.contains(Flags::SYN) { 0 } else { self.sender.scale };
        self.sender.set_window(segment.seq, segment.ack, u32::from(segment.window) << scale);
        self.heard_at = context.now;
        let role = if self.listener.is_some() { Events::ACCEPTED } else { Events::CONNECTED };
        self.events.insert(role);
        self.events.insert(Events::WRITABLE);
    }

    /// The acknowledgment and the window of an acceptable segment. `Some` ends the processing.
    #[inline]
    fn process_ack(
        &mut self,
        segment: &Segment,
        octets: &[u8],
        context: &mut Context<'_>,
    ) -> Option<Outcome> {
        let now = context.now;
        let ack = segment.ack;
        // RFC 5961 section 5.
        // req 9293-3.10.7.4-9, 9293-3.10.7.4-10
        if ack.after(self.sender.nxt) || ack.before(self.sender.una - self.sender.wnd_max) {
            // req 9293-3.10.7.4-11
            context.counters.ack_unacceptable += 1;
            return Some(self.challenge(context));
        }
        self.heard_at = now;
        let window = u32::from(segment.window) << self.sender.scale;
        let blocks = self.sack_blocks(segment, octets);
        if ack == self.sender.una && window == self.sender.wnd && blocks.is_empty() && segment.payload_len > 0
        {
            // The other side only sends: nothing is new.
            self.sender.update_window(segment.seq, ack, window);
            return None;
        }

        let echo = segment.flags.contains(Flags::ECE) && self.ecn.capable();
        let room_before = self.send_room(context.config);
        let flight_before = self.sender.flight();
        let outstanding = self.sender.has_outstanding();
        let rack = self.sender.rack.on;
        if rack {
            self.rack_begin(now);
        }
        let mut delivered = if blocks.is_empty() { 0 } else { self.sender.mark_sacked(&blocks) };
        let reported = delivered > 0;
        let twice = arrived_twice(&blocks, ack);
        if let Some(block) = twice {
            context.counters.arrived_twice += 1;
            if rack {
                self.rack_arrived_twice(block);
            }
            if let Some(timeout) = self.congestion.arrived_twice(block) {
                count_spurious(timeout, context.counters);
            }
        }
        let mut lost = !rack && reported && self.sender.judge_lost(self.emss);

        if ack.after(self.sender.una) {
            let acknowledged = self.sender.acknowledge(ack, now);
            delivered += acknowledged.octets - acknowledged.reported;
            let coarse = || self.timestamps.and_then(|state| state.rtt(now));
            if let Some(rtt) = acknowledged.rtt.or_else(coarse) {
                self.rto.sample(rtt);
                self.rack_measured();
            }
            if rack {
                lost = self.rack_judge(now, context.counters);
            }
            self.retries = 0;
            self.progress_at = now;
            self.progressed = true;
            let flight = Flight {
                rtt: acknowledged.rtt,
                echoed: self.timestamps.as_ref().map(|state| state.echoed),
                echo,
                ..self.flight(flight_before, delivered, now)
            };
            let was_in_recovery = self.congestion.in_recovery();
            let mut response = self.congestion.acknowledge(acknowledged.octets, flight);
            let undone = matches!(response, Response::Undone { .. });
            if lost && !was_in_recovery && !self.congestion.in_recovery() && !undone {
                response = self.congestion.duplicate(flight, true);
            }
            self.respond(response, was_in_recovery, now, context.counters);
            if self.rack_has_probe() && self.rack_probe_answered(ack, twice, false) {
                context.counters.tail_losses_repaired += 1;
                self.congestion.repaired(flight);
            }
            // RFC 6298 section 5: restarted by what is new (5.3), stopped when all is told (5.2).
            self.rto_at = now + self.rto.value();
            self.timer =
                if self.sender.has_outstanding() { Timer::Retransmit(self.rto_at) } else { Timer::Off };
            self.sender.set_window(segment.seq, ack, window);
            if rack {
                self.rack_end(was_in_recovery, now);
            }
        } else {
            let changed = self.sender.update_window(segment.seq, ack, window);
            // RFC 5681 section 2, and RFC 6675 section 2 with SACK.
            let duplicate = if self.sack {
                reported
            } else {
                ack == self.sender.una
                    && outstanding
                    && segment.payload_len == 0
                    && !changed
                    && !segment.flags.contains(Flags::FIN)
            };
            if rack && reported {
                lost = self.rack_judge(now, context.counters);
            }
            if duplicate {
                let flight = Flight { echo, ..self.flight(flight_before, delivered, now) };
                let was_in_recovery = self.congestion.in_recovery();
                let response = self.congestion.duplicate(flight, lost);
                self.respond(response, was_in_recovery, now, context.counters);
            }
            if rack && reported {
                self.rack_end(self.congestion.in_recovery(), now);
            }
            if self.rack_has_probe() && !reported {
                let bare = blocks.is_empty() && !changed && segment.payload_len == 0;
                self.rack_probe_answered(ack, twice, bare);
            }
            if changed && matches!(self.timer, Timer::Persist { .. }) && window > 0 {
                self.timer = Timer::Off;
            }
        }
        if room_before == 0 && self.send_room(context.config) > 0 {
            self.events.insert(Events::WRITABLE);
        }
        None
    }

    pub(super) fn respond(
        &mut self,
        response: Response,
        was_in_recovery: bool,
        now: Instant,
        counters: &mut TcpCounters,
    ) {
        match response {
            Response::Proceed => return,
            Response::Reduced => {
                counters.ecn_reductions += 1;
                return;
            }
            Response::Undone { timeout } => {
                self.sender.resume();
                return count_spurious(timeout, counters);
            }
            Response::Restored { timeout } => return count_spurious(timeout, counters),
            Response::RetransmitFirst => {}
        }
        if !was_in_recovery {
            counters.fast_recoveries += 1;
            self.recovery_at = now;
            if self.sender.rack.on {
                self.rack_recover();
            }
        }
        if self.sender.rack.on {
            // What is lost, and nothing else, goes again.
            return;
        }
        // With SACK the first hole is repaired once; without, a partial ACK always shows a new one.
        let since = (self.sack && was_in_recovery).then_some(self.recovery_at);
        self.sender.repeat_first(since);
    }

    pub(crate) fn flight(&self, octets: u32, delivered: u32, now: Instant) -> Flight {
        Flight {
            una: self.sender.una,
            nxt: self.sender.nxt,
            octets,
            pipe: self.sender.flight(),
            delivered,
            now,
            srtt_ns: self.rto.srtt_ns(),
            rtt: None,
            echoed: None,
            echo: false,
        }
    }

    /// The SACK blocks of a segment; none without options beyond the timestamps.
    #[inline]
    fn sack_blocks(&self, segment: &Segment, octets: &[u8]) -> ArrayVec<SackBlock, SACK_BLOCKS_MAX> {
        let plain = if self.timestamps.is_some() { HEADER_LEN + TIMESTAMPS_LEN } else { HEADER_LEN };
        if !self.sack || segment.header_len <= plain {
            return ArrayVec::new();
        }
        Options::parse(segment.options(octets)).sack
    }

    /// RFC 7323 section 5.3 (PAWS) and 4.3. `Some` ends the processing.
    #[inline]
    fn check_timestamps(
        &mut self,
        segment: &Segment,
        octets: &[u8],
        context: &mut Context<'_>,
    ) -> Option<Outcome> {
        let state = self.timestamps.as_mut()?;
        if segment.flags.intersects(Flags::RST) {
            return None;
        }
        let options = segment.options(octets);
        let Some(Timestamps { value, echo }) =
            leading_timestamps(options).or_else(|| Options::parse(options).timestamps)
        else {
            context.counters.timestamps_missing += 1;
            return Some(Outcome::Continue);
        };
        state.echoed = echo;
        // Timestamps live on a circle just as sequence numbers do.
        let (value_seq, recent_seq) = (SeqNumber::new(value), SeqNumber::new(state.recent));
        if value_seq.before(recent_seq) {
            if state.recent_at.age(context.now) < TIMESTAMP_VALID {
                context.counters.paws += 1;
                return Some(self.challenge(context));
            }
            state.recent = value;
            state.recent_at = Coarse::of(context.now);
        } else if segment.seq.at_or_before(state.last_ack) {
            state.recent = value;
            state.recent_at = Coarse::of(context.now);
        }
        None
    }

    /// Not in the window: an ACK sets a well-meaning peer right.
    #[cold]
    fn unacceptable(&mut self, segment: &Segment, context: &mut Context<'_>) -> Outcome {
        if segment.flags.contains(Flags::RST) {
            return Outcome::Continue;
        }
        if self.state == State::SynReceived && segment.flags.contains(Flags::SYN) && segment.seq == self.irs {
            let acknowledges = segment.flags.contains(Flags::ACK)
                && segment.ack.after(self.sender.una)
                && segment.ack.at_or_before(self.sender.nxt);
            if acknowledges {
                // Both opened: this is the peer's answer to our SYN (RFC 9293 figure 8, line 6).
                self.synchronized(segment, context);
                self.ack.now = true;
                return Outcome::Continue;
            }
            // The peer's SYN again: our answer was lost.
            if self.challenge.allow(context.config.challenge_acks, context.now) {
                self.syn_due = true;
            }
            return Outcome::Continue;
        }
        if segment.payload_len > 0 || segment.flags.contains(Flags::FIN) {
            // The peer sends again what we have: it missed our ACK (or probes a window).
            let old = (segment.seq + segment.sequence_len()).at_or_before(self.receiver.nxt);
            if old {
                context.counters.duplicates += 1;
                self.receiver.note_duplicate(segment.seq, segment.sequence_len());
            } else {
                context.counters.out_of_window += 1;
            }
            if !segment.flags.contains(Flags::SYN) {
                self.heard_at = context.now;
                return Outcome::AckNow;
            }
        }
        self.heard_at = context.now;
        // Probes and keep-alives look like this; their number is limited, lest two hosts that
        // disagree answer each other for ever.
        self.challenge(context)
    }

    /// A challenge ACK (RFC 5961 section 3.2), within its limit.
    fn challenge(&mut self, context: &mut Context<'_>) -> Outcome {
        if !self.challenge.allow(context.config.challenge_acks, context.now) {
            context.counters.challenge_acks_limited += 1;
            return Outcome::Continue;
        }
        context.counters.challenge_acks += 1;
        Outcome::AckNow
    }
}

/// A loss that was none.
fn count_spurious(timeout: bool, counters: &mut TcpCounters) {
    let kind = if timeout { &mut counters.spurious_timeouts } else { &mut counters.spurious_recoveries };
    *kind += 1;
}
