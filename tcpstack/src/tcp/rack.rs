//! RACK-TLP (RFC 8985): losses told by time, and a probe for the tail that nobody answers.
//!
//! RACK: a record is lost when one that was sent later has arrived and the reordering window has
//! passed. That holds for repetitions just as for what was sent once. First transmissions lie in
//! the order of their times as they lie in the sequence space, so a cursor ([`Sender::judged_to`])
//! passes over them once; repetitions wait in a queue of their own, in the order of their times:
//!
//! ```text
//!  sent once    [ lost ][ sacked ][ lost ] cursor -> [ waits ][ ... ][ newest delivered ]
//!  sent again   repeats: front -> (time, seq) (time, seq) ...
//! ```
//!
//! TLP: when no acknowledgment comes for two round trips, one record more is sent, so that its
//! answer shows what was lost. Both need SACK; without it losses are RFC 6582's.

use core::time::Duration;
use std::collections::VecDeque;

use super::connection::{Connection, NEVER};
use super::counters::TcpCounters;
use super::options::SackBlock;
use super::sender::{Fin, Record, Sender};
use super::timers::{Expired, Timer};
use crate::device::Frame;
use crate::seq::SeqNumber;
use crate::time::Instant;

/// Segments' worth of octets beyond a hole that mean a loss when there was no reordering yet:
/// more than these (DupThresh less one).
const REPORTED_SEGMENTS: u32 = 2;

/// Recoveries after which a window that D-SACKs have widened is narrow again (section 6.2 step 4).
const PERSIST_RECOVERIES: u8 = 16;

/// The greatest reordering window, in quarters of the least round-trip time; SRTT bounds it, too.
const QUARTERS_MAX: u8 = 200;

/// For how long the least round-trip time is believed: one to two of these.
const LEAST_RTT_SPAN: Duration = Duration::from_secs(10);

/// PTO when there is no SRTT (section 7.2).
const PROBE_INITIAL: Duration = Duration::from_secs(1);

/// By how much PTO exceeds SRTT at least: on the shortest paths a peer's turn takes longer.
const PROBE_MARGIN_NS: u64 = 50_000;

/// What goes next, whatever the congestion window says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgent {
    /// Nothing.
    None,
    /// The first record, again.
    First,
    /// The first one that is lost.
    Lost,
    /// A loss probe: the next record that the peer's window takes, or the last one again.
    Tail,
}

/// A loss probe in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailProbe {
    /// TLP.end_seq: SND.NXT when it was sent.
    end: SeqNumber,
    /// TLP.is_retrans.
    again: bool,
}

/// What is known of the newest record delivered, and of reordering.
#[derive(Debug)]
pub(crate) struct Rack {
    /// Whether losses are told by time: SACK was agreed on, and the configuration wants it.
    pub(super) on: bool,
    /// RACK.xmit_ts: when the newest of the delivered records was sent.
    newest_at: Instant,
    /// RACK.end_seq.
    newest_end: SeqNumber,
    /// When the newest record of the current acknowledgment was sent, or zero.
    latest: Instant,
    /// RACK.rtt.
    rtt_ns: u64,
    /// RACK.min_RTT of this span and of the one before, `u32::MAX` without a sample; longer ones
    /// count as 4.2 s.
    least_rtt_ns: [u32; 2],
    span_began: Instant,
    /// What was sent again; none as long as nothing was.
    repeats: Option<Box<Repeats>>,
    /// Whether any of that is perhaps in flight.
    repeating: bool,
    /// RACK.fack before the current acknowledgment.
    fack: SeqNumber,
    /// RACK.reordering_seen.
    reordered: bool,
    /// RACK.reo_wnd_mult.
    quarters: u8,
    /// RACK.reo_wnd_persist.
    persist: u8,
    /// When those will be lost that wait for the reordering window; [`NEVER`] when none does.
    deadline: Instant,
    /// SND.NXT at a timeout, until all of that is acknowledged.
    timed_out: Option<SeqNumber>,
    probe: Option<TailProbe>,
    /// There was a round-trip time since the last probe.
    measured: bool,
    /// SND.NXT when the probe was scheduled.
    scheduled: SeqNumber,
    /// TLP.max_ack_delay.
    ack_delay_ns: u32,
}

/// What was sent again: kept apart, as most connections never do it.
#[derive(Debug, Default)]
struct Repeats {
    /// Perhaps in flight: when, and which, in the order of time.
    sent: VecDeque<(Instant, SeqNumber)>,
    /// Acknowledgments of what was sent again at this time or later are no proof of its arrival.
    believed_before: Instant,
    /// The same of what is only reported.
    aged_before: Instant,
    /// RACK.dsack_round.
    twice_round: Option<SeqNumber>,
}

impl Rack {
    /// Nothing known, and off until the handshake is over.
    pub(super) fn new(iss: SeqNumber) -> Self {
        Self {
            on: false,
            newest_at: Instant::ZERO,
            newest_end: iss,
            latest: Instant::ZERO,
            rtt_ns: 0,
            least_rtt_ns: [u32::MAX; 2],
            span_began: Instant::ZERO,
            repeats: None,
            repeating: false,
            fack: iss,
            reordered: false,
            quarters: 1,
            persist: 0,
            deadline: NEVER,
            timed_out: None,
            probe: None,
            measured: false,
            scheduled: iss,
            ack_delay_ns: 0,
        }
    }

    /// The handshake is over; `srtt_ns` is what it told of the round-trip time, or zero.
    pub(super) fn start(&mut self, on: bool, srtt_ns: u64, ack_delay: Duration) {
        (self.on, self.measured) = (on, srtt_ns > 0);
        self.ack_delay_ns = u32::try_from(ack_delay.as_nanos()).unwrap_or(u32::MAX);
        if srtt_ns > 0 {
            (self.rtt_ns, self.least_rtt_ns[0]) = (srtt_ns, short(srtt_ns));
        }
    }

    /// A record was acknowledged that no block had reported (section 6.2 steps 2 and 3).
    #[inline]
    pub(super) fn deliver(&mut self, sent_at: Instant, end: SeqNumber, again: bool) {
        self.arrived(sent_at, end, again, |repeats| repeats.believed_before);
    }

    /// A block reports a record.
    ///
    /// Its echo says nothing, whatever section 6.2 step 2 has: above a hole it is that of what came
    /// before the hole (RFC 7323 section 4.3). Else the answer to a probe would show no loss.
    #[inline]
    pub(super) fn report(&mut self, sent_at: Instant, end: SeqNumber, again: bool) {
        self.arrived(sent_at, end, again, |repeats| repeats.aged_before);
    }

    #[inline]
    fn arrived(
        &mut self,
        sent_at: Instant,
        end: SeqNumber,
        again: bool,
        believed_before: impl Fn(&Repeats) -> Instant,
    ) {
        if again {
            if self.repeats.as_ref().is_none_or(|repeats| sent_at >= believed_before(repeats)) {
                return;
            }
        } else if end.before(self.fack) {
            self.reordered = true;
        }
        self.latest = self.latest.max(sent_at);
        if sent_at > self.newest_at || (sent_at == self.newest_at && end.after(self.newest_end)) {
            (self.newest_at, self.newest_end) = (sent_at, end);
        }
    }

    /// A record was sent again.
    #[cold]
    pub(super) fn repeated(&mut self, seq: SeqNumber, now: Instant) {
        if self.on {
            self.repeats().sent.push_back((now, seq));
            self.repeating = true;
        }
    }

    /// A loss probe is on its way.
    #[cold]
    pub(super) fn probed(&mut self, end: SeqNumber, again: bool) {
        self.probe = Some(TailProbe { end, again });
        self.measured = false;
    }

    /// Gives back memory that is not needed now.
    pub(super) fn trim(&mut self) {
        self.repeats.take_if(|repeats| repeats.sent.is_empty());
    }

    /// Octets of the heap.
    pub(super) fn octets(&self) -> usize {
        let of = |repeats: &Repeats| {
            size_of::<Repeats>() + repeats.sent.capacity() * size_of::<(Instant, SeqNumber)>()
        };
        self.repeats.as_deref().map_or(0, of)
    }

    /// Nothing is in flight any more.
    pub(super) fn clear(&mut self) {
        (self.repeats, self.repeating) = (None, false);
        (self.deadline, self.timed_out, self.probe) = (NEVER, None, None);
    }

    /// Ends an acknowledgment: takes the round trip of the newest record that it delivered.
    #[inline]
    fn settle(&mut self, now: Instant) {
        if self.latest == Instant::ZERO {
            return;
        }
        let rtt_ns = now.as_nanos().saturating_sub(self.latest.as_nanos());
        self.latest = Instant::ZERO;
        self.rtt_ns = rtt_ns;
        if now.saturating_since(self.span_began) > LEAST_RTT_SPAN {
            self.span_began = now;
            self.least_rtt_ns = [u32::MAX, self.least_rtt_ns[0]];
        }
        self.least_rtt_ns[0] = self.least_rtt_ns[0].min(short(rtt_ns));
    }

    /// RACK.min_RTT, once there was a sample.
    fn least_rtt_ns(&self) -> Option<u64> {
        let least_ns = self.least_rtt_ns[0].min(self.least_rtt_ns[1]);
        (least_ns != u32::MAX).then_some(u64::from(least_ns))
    }

    fn repeats(&mut self) -> &mut Repeats {
        self.repeats.get_or_insert_default()
    }

    /// A D-SACK came (section 6.2 step 4): wider by a quarter, once a round trip.
    #[cold]
    fn arrived_twice(&mut self, block: SackBlock, una: SeqNumber, nxt: SeqNumber) {
        // A probe that was not needed says nothing about reordering.
        if self.probe.is_some_and(|probe| probe.again && probe.end == block.end) {
            return;
        }
        let repeats = self.repeats();
        if repeats.twice_round.is_none_or(|end| una.at_or_after(end)) {
            repeats.twice_round = Some(nxt);
            self.quarters = (self.quarters + 1).min(QUARTERS_MAX);
            self.persist = PERSIST_RECOVERIES;
        }
    }

    /// A recovery is over.
    #[cold]
    fn left_recovery(&mut self, una: SeqNumber) {
        if let Some(repeats) = &mut self.repeats {
            repeats.twice_round = repeats.twice_round.filter(|&end| una.before(end));
        }
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 1;
        }
    }

    /// How long after its sending a record is lost, if a newer one has arrived: RACK.rtt and the
    /// reordering window. `certain` when nothing speaks for reordering but its possibility.
    fn patience(&self, certain: bool, srtt_ns: u64) -> Duration {
        let window_ns = if certain && !self.reordered {
            0
        } else {
            let quarter_ns = self.least_rtt_ns().unwrap_or(0) / 4;
            (u64::from(self.quarters) * quarter_ns).min(srtt_ns)
        };
        Duration::from_nanos(self.rtt_ns + window_ns)
    }

    /// Whether a record was sent before the newest one delivered (RACK_sent_after).
    fn is_older(&self, sent_at: Instant, end: SeqNumber) -> bool {
        sent_at < self.newest_at || (sent_at == self.newest_at && end.before(self.newest_end))
    }
}

impl<F: Frame> Sender<F> {
    /// Judges what was sent before the newest record delivered (section 6.2 step 5); returns how
    /// many records are lost now that were not.
    #[cold]
    pub(super) fn judge_by_time(&mut self, patience: Duration, now: Instant) -> u32 {
        let mut found = 0;
        let mut waits = false;
        self.judged_to = self.judged_to.max(self.una);
        for index in self.index_of(self.judged_to)..self.resend {
            let record = &self.records[index];
            if !(record.sacked || record.retransmitted || record.lost) {
                if !self.rack.is_older(record.sent_at, record.end()) {
                    break;
                }
                if now < record.sent_at + patience {
                    waits = true;
                    break;
                }
                self.lose(index);
                found += 1;
            }
            self.judged_to = self.records[index].end();
        }
        while let Some(&(sent_at, seq)) = self.rack.repeats.as_ref().and_then(|repeats| repeats.sent.front())
        {
            let index = self.index_of(seq);
            let record = self.records.get(index).filter(|_| index < self.resend);
            let in_flight = |record: &&Record<F>| {
                record.seq == seq && record.sent_at == sent_at && !record.sacked && !record.lost
            };
            if let Some(record) = record.filter(in_flight) {
                if !self.rack.is_older(sent_at, record.end()) {
                    break;
                }
                if now < sent_at + patience {
                    waits = true;
                    break;
                }
                self.lose(index);
                found += 1;
            }
            self.rack.repeats().sent.pop_front();
        }
        self.rack.repeating = self.rack.repeats.as_ref().is_some_and(|repeats| !repeats.sent.is_empty());
        // Then all are lost that were sent before it.
        self.rack.deadline = if waits { self.rack.newest_at + patience } else { NEVER };
        found
    }

    /// A timeout (section 6.3): the first record is lost, and of the others those that were sent
    /// long enough ago.
    pub(super) fn time_out(&mut self, patience: Duration, now: Instant) {
        let given_up = self.resend;
        self.resend = self.sent;
        if self.fin == Fin::Sent {
            self.fin = Fin::Pending;
        }
        (self.sacked, self.lost) = (0, 0);
        for (index, record) in self.records.range_mut(..self.sent).enumerate() {
            // The receiver may have dropped what it reported (RFC 2018 section 8).
            let reported = core::mem::take(&mut record.sacked);
            // A repetition that was reported has left the queue and would not be judged again.
            record.lost |= index == 0 || index >= given_up || (reported && record.retransmitted);
            record.lost |= record.sent_at + patience <= now;
            self.lost += if record.lost { record.len } else { 0 };
        }
        (self.sacked_to, self.judged_to, self.lost_from) = (self.una, self.una, self.una);
        self.urgent = if self.lost > 0 { Urgent::Lost } else { Urgent::None };
        (self.rack.timed_out, self.rack.probe, self.rack.deadline) = (Some(self.nxt), None, NEVER);
    }

    /// Whether RACK has anything to judge: something above a hole, something sent again, or
    /// something that waits.
    #[inline]
    fn has_suspects(&self) -> bool {
        self.sacked > 0 || self.rack.repeating || self.rack.deadline != NEVER
    }

    pub(super) fn lose(&mut self, index: usize) {
        let record = &mut self.records[index];
        record.lost = true;
        let (seq, len) = (record.seq, record.len);
        self.lost_from = if self.lost == 0 { seq } else { self.lost_from.min(seq) };
        self.lost += len;
    }

    /// The first record that is lost.
    pub(super) fn first_lost(&mut self) -> Option<usize> {
        let first = self.index_of(self.lost_from);
        let index = first + self.records.range(first..).position(|record| record.lost)?;
        self.lost_from = self.records[index].seq;
        Some(index)
    }

    /// The record that goes next, whatever the congestion window says.
    #[cold]
    pub(super) fn next_urgent(&mut self) -> Option<usize> {
        match self.urgent {
            Urgent::None => None,
            Urgent::First => Some(0),
            Urgent::Lost => self.first_lost(),
            Urgent::Tail => {
                let fits = |record: &Record<F>| record.end().since(self.una) <= self.wnd;
                if self.records.get(self.sent).is_some_and(fits) {
                    return Some(self.sent);
                }
                self.sent.checked_sub(1)
            }
        }
    }

    /// The first record that ends after `seq`; SND.UNA may lie in the middle of it.
    pub(super) fn index_of(&self, seq: SeqNumber) -> usize {
        self.records.partition_point(|record| record.end().at_or_before(seq))
    }

    /// Whether a loss probe may be needed: all that was sent is in flight, for all that is known.
    fn may_lose_tail(&self) -> bool {
        self.sent > 0 && self.resend == self.sent && self.sacked == 0 && self.lost == 0
    }
}

impl<F: Frame> Connection<F> {
    /// An acknowledgment begins to be processed.
    #[inline]
    pub(super) fn rack_begin(&mut self, now: Instant) {
        self.sender.rack.fack = self.sender.sacked_to;
        if self.sender.rack.repeating {
            self.believe(now);
        }
    }

    /// What the blocks and the acknowledgment number say was taken into account: which records are
    /// lost? True if any is.
    #[inline]
    pub(super) fn rack_judge(&mut self, now: Instant, counters: &mut TcpCounters) -> bool {
        self.sender.rack.settle(now);
        if self.sender.has_suspects() {
            self.judge(now, counters);
        }
        self.sender.lost > 0 && !self.only_probe_lost()
    }

    /// A D-SACK came.
    #[cold]
    pub(super) fn rack_arrived_twice(&mut self, block: SackBlock) {
        let (una, nxt) = (self.sender.una, self.sender.nxt);
        self.sender.rack.arrived_twice(block, una, nxt);
    }

    /// A round-trip time was measured.
    #[inline]
    pub(super) fn rack_measured(&mut self) {
        self.sender.rack.measured = true;
    }

    /// An acknowledgment was processed: recoveries end, timers are set.
    #[inline]
    pub(super) fn rack_end(&mut self, was_in_recovery: bool, now: Instant) {
        let una = self.sender.una;
        let over = self.sender.rack.timed_out.is_some_and(|end| una.at_or_after(end));
        if over || (was_in_recovery && !self.congestion.in_recovery()) {
            self.sender.rack.timed_out = self.sender.rack.timed_out.filter(|_| !over);
            self.sender.rack.left_recovery(una);
        }
        self.time_losses(now);
    }

    /// A recovery begins: the first loss is repaired at once, and there is no tail to probe.
    #[cold]
    pub(super) fn rack_recover(&mut self) {
        self.sender.rack.probe = None;
        self.sender.urgent = Urgent::Lost;
    }

    /// The answer to a loss probe (section 7.4.2); true when the probe has repaired a loss.
    ///
    /// `twice` is the D-SACK that came with it, `bare` says that it is a duplicate without SACK.
    #[cold]
    pub(super) fn rack_probe_answered(
        &mut self,
        ack: SeqNumber,
        twice: Option<SackBlock>,
        bare: bool,
    ) -> bool {
        let Some(probe) = self.sender.rack.probe else { return false };
        if ack.before(probe.end) {
            return false;
        }
        let needless = twice.is_some_and(|block| block.end == probe.end);
        let repaired = probe.again && !needless && ack.after(probe.end);
        if !probe.again || needless || bare || repaired {
            self.sender.rack.probe = None;
        }
        repaired
    }

    /// Whether a loss probe is in flight.
    #[inline]
    pub(super) fn rack_has_probe(&self) -> bool {
        self.sender.rack.probe.is_some()
    }

    /// Something was sent: if it was new, the probe comes later (section 7.2).
    #[inline]
    pub(super) fn rack_sent(&mut self, now: Instant) {
        if self.sender.rack.on && self.sender.rack.scheduled != self.sender.nxt {
            self.time_losses(now);
        }
    }

    /// Sets the timer that finds the next loss: the reordering window's, the probe's, or that of
    /// the retransmission timeout (section 8).
    fn time_losses(&mut self, now: Instant) {
        let rack = &mut self.sender.rack;
        rack.scheduled = self.sender.nxt;
        if !matches!(self.timer, Timer::Retransmit(_) | Timer::Reorder(_) | Timer::Tail(_)) {
            return;
        }
        if rack.deadline != NEVER {
            self.timer = Timer::Reorder(rack.deadline);
            return;
        }
        let probes = rack.measured && rack.probe.is_none() && rack.timed_out.is_none();
        if probes && self.sender.may_lose_tail() && !self.congestion.in_recovery() {
            self.timer = Timer::Tail((now + self.probe_timeout()).min(self.rto_at));
        } else if !matches!(self.timer, Timer::Retransmit(_)) {
            self.timer = Timer::Retransmit(self.rto_at);
        }
    }

    /// PTO (section 7.2), not yet bounded by the retransmission timeout.
    fn probe_timeout(&self) -> Duration {
        let srtt_ns = self.rto.srtt_ns();
        if srtt_ns == 0 {
            return PROBE_INITIAL;
        }
        let delay_ns = if self.sender.sent == 1 { self.sender.rack.ack_delay_ns } else { 0 };
        Duration::from_nanos(srtt_ns + srtt_ns.max(PROBE_MARGIN_NS) + u64::from(delay_ns))
    }

    /// The reordering window has passed for all that were sent before the newest one delivered.
    #[cold]
    pub(super) fn reordering_timeout(&mut self, now: Instant, counters: &mut TcpCounters) -> Expired {
        let octets = self.sender.flight();
        self.judge(now, counters);
        self.rto_at = now + self.rto.value();
        self.timer = Timer::Retransmit(self.rto_at);
        if self.sender.lost > 0 && !self.only_probe_lost() && !self.congestion.in_recovery() {
            let flight = self.flight(octets, 0, now);
            let response = self.congestion.duplicate(flight, true);
            self.respond(response, false, now, counters);
        }
        self.time_losses(now);
        if self.sender.lost > 0 { Expired::Resend } else { Expired::Nothing }
    }

    /// Nobody has answered for too long: one record more (section 7.3), and then the
    /// retransmission timeout.
    #[cold]
    pub(super) fn tail_timeout(&mut self, now: Instant, counters: &mut TcpCounters) -> Expired {
        self.rto_at = now + self.rto.value();
        self.timer = Timer::Retransmit(self.rto_at);
        if !self.sender.may_lose_tail() {
            return Expired::Nothing;
        }
        counters.tail_probes += 1;
        self.sender.urgent = Urgent::Tail;
        Expired::Resend
    }

    /// What is left when a timeout has come: those sent lately may still arrive.
    #[cold]
    pub(super) fn rack_time_out(&mut self, now: Instant) {
        let patience = self.sender.rack.patience(true, self.rto.srtt_ns());
        self.sender.time_out(patience, now);
    }

    #[cold]
    fn judge(&mut self, now: Instant, counters: &mut TcpCounters) {
        let recovers = self.congestion.in_recovery() || self.sender.rack.timed_out.is_some();
        let certain = recovers || self.sender.sacked > REPORTED_SEGMENTS * self.emss;
        let patience = self.sender.rack.patience(certain, self.rto.srtt_ns());
        counters.rack_lost += u64::from(self.sender.judge_by_time(patience, now));
    }

    /// Finds out up to when what was sent again may have been sent, if its arrival is to be
    /// believed (section 6.2 step 2): a round trip ago, and not after what the echo answers.
    #[cold]
    fn believe(&mut self, now: Instant) {
        let least_ns = self.sender.rack.least_rtt_ns().unwrap_or(0);
        let by_age_ns = (now.as_nanos() + 1).saturating_sub(least_ns);
        let by_echo = self.timestamps.map_or(NEVER, |state| state.echoed_before(now));
        let by_age = Instant::from_nanos(by_age_ns);
        let repeats = self.sender.rack.repeats();
        (repeats.believed_before, repeats.aged_before) = (by_echo.min(by_age), by_age);
    }
}

/// A round-trip time in 32 bits, 4.2 s at most.
fn short(rtt_ns: u64) -> u32 {
    u32::try_from(rtt_ns).unwrap_or(u32::MAX).min(u32::MAX - 1)
}

#[cfg(test)]
mod tests;
