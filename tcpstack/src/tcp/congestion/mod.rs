//! Congestion control: what all algorithms share. Slow start and congestion avoidance
//! (RFC 5681), fast retransmit and recovery (RFC 6582), limited transmit (RFC 3042), initial
//! window of ten (RFC 6928), unused windows (RFC 7661), congestion marks (RFC 3168).
//!
//! | file | what |
//! | --- | --- |
//! | `algorithm` | the choice of an algorithm |
//! | `newreno`, `cubic`, `dctcp` | how the window grows, and by how much it falls |
//! | `hystart` | the end of the first slow start |
//! | `undo` | reductions taken back |
//!
//! The window falls over a round trip as RFC 6937 (PRR) says when SACK tells what arrived, and
//! for marks; without SACK it is inflated during recovery. It counts octets, and it only counts:
//! what is sent again, and when, is decided by the [`sender`](super::sender) from what these
//! functions return.

mod algorithm;
mod cubic;
mod dctcp;
mod hystart;
mod newreno;
mod undo;

use core::time::Duration;

pub use algorithm::CongestionControl;

use crate::seq::SeqNumber;
use crate::time::{Coarse, Instant};
use algorithm::Algorithm;
use cubic::Cubic;
use dctcp::Dctcp;
use hystart::{Growth, HyStart};
use newreno::NewReno;
use undo::Undo;

pub(crate) use undo::arrived_twice;

/// Duplicate ACKs that mean a loss (RFC 5681 section 3.2).
const DUPLICATES_MAX: u32 = 3;

/// Segments by which one ACK may open the window in slow start, unless they are paced. Bursts
/// are acknowledged as a whole, so the limit is HyStart++'s L = 8 (RFC 9406 section 4.2), not one.
const SLOW_START_SEGMENTS: u32 = 8;

/// Least window after a loss, in segments (RFC 5681 equation 4).
const SSTHRESH_SEGMENTS: u32 = 2;

/// How long a window stays that was not filled: the Non-Validated Period (RFC 7661 section 4.2).
const NON_VALIDATED: Duration = Duration::from_secs(300);

/// What an acknowledgment asks of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Response {
    /// Go on as the window allows.
    Proceed,
    /// The same; the window falls because of a congestion mark.
    Reduced,
    /// Send the first unacknowledged segment again, now.
    RetransmitFirst,
    /// Nothing was lost: what is in flight is still underway.
    Undone {
        /// A timeout had seemed to tell of the loss.
        timeout: bool,
    },
    /// Nothing was lost, as turned out when all was acknowledged.
    Restored {
        /// A timeout had seemed to tell of the loss.
        timeout: bool,
    },
}

/// The sequence space at the moment of an acknowledgment, and what that one said.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// SND.UNA, after the acknowledgment.
    pub una: SeqNumber,
    /// SND.NXT.
    pub nxt: SeqNumber,
    /// Octets that were in flight before the acknowledgment.
    pub octets: u32,
    /// Octets in flight after it.
    pub pipe: u32,
    /// Octets that it reported for the first time, SACK blocks included.
    pub delivered: u32,
    /// The time.
    pub now: Instant,
    /// The smoothed round-trip time, zero when there is none.
    pub srtt_ns: u64,
    /// The round-trip time that it measured.
    pub rtt: Option<Duration>,
    /// TSecr, with timestamps.
    pub echoed: Option<u32>,
    /// Whether it tells of a congestion mark (ECE).
    pub echo: bool,
}

#[cfg(test)]
impl Flight {
    /// Nothing in flight at `una`.
    fn at(una: SeqNumber) -> Self {
        Self {
            una,
            nxt: una,
            octets: 0,
            pipe: 0,
            delivered: 0,
            now: Instant::ZERO,
            srtt_ns: 0,
            rtt: None,
            echoed: None,
            echo: false,
        }
    }
}

/// The window that the algorithms work on, in octets.
#[derive(Clone, Copy, Debug)]
struct Window {
    cwnd: u32,
    ssthresh: u32,
    /// SMSS.
    mss: u32,
    /// The most that it may reach.
    max: u32,
}

impl Window {
    /// Sets the congestion window within its bounds.
    fn set(&mut self, cwnd: u32) {
        self.cwnd = cwnd.clamp(self.mss, self.max.max(self.mss));
    }
}

/// Whether the window is falling, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is not.
    Open,
    /// A congestion mark was echoed; nothing is known to be lost.
    Marked,
    /// Fast recovery from a loss.
    Recovery,
}

/// The state of congestion control of one connection.
#[derive(Clone, Debug)]
pub struct Congestion {
    window: Window,
    algorithm: Algorithm,
    hystart: HyStart,
    /// The window of the first data.
    initial: u32,
    /// Duplicate ACKs in a row.
    duplicates: u32,
    /// SND.NXT when the last loss or mark was found; those before it are part of the same event.
    recover: SeqNumber,
    phase: Phase,
    /// Whether losses are told by SACK, not by counting duplicates.
    sack: bool,
    /// What is sent is paced: no acknowledgment causes a burst.
    pub(super) paced: bool,
    /// Losses are told by time, and no number of duplicates means one (RFC 8985).
    pub(super) rack: bool,
    /// The window fell, and the peer is to be told by CWR.
    pub(super) reduced: bool,
    /// In flight when the window began to fall: RecoverFS.
    recover_flight: u32,
    /// Delivered since then.
    delivered: u32,
    /// Sent since then.
    sent: u32,
    /// Most octets in flight since the window before `used_until` was sent.
    used: u32,
    used_until: SeqNumber,
    /// When half of the window was in use last.
    validated_at: Coarse,
    /// What the last reduction changed, as long as it may have been wrong.
    undo: Option<Box<Undo>>,
}

impl Congestion {
    /// The state after a handshake that began with `iss`.
    pub fn new(
        which: CongestionControl,
        mss: u32,
        initial_window: u32,
        max: u32,
        sack: bool,
        iss: SeqNumber,
    ) -> Self {
        let max = max.max(mss);
        let initial = initial_window.clamp(mss, max);
        Self {
            window: Window { cwnd: initial, ssthresh: u32::MAX, mss, max },
            algorithm: Algorithm::new(which, iss + 1),
            hystart: HyStart::new(iss + 1),
            initial,
            duplicates: 0,
            recover: iss,
            phase: Phase::Open,
            sack,
            paced: false,
            rack: false,
            reduced: false,
            recover_flight: 1,
            delivered: 0,
            sent: 0,
            used: 0,
            used_until: iss,
            validated_at: Coarse::default(),
            undo: None,
        }
    }

    /// `segments` full ones, within the bounds of RFC 6928 section 2 for ten of them.
    pub fn initial_window(mss: u32, segments: u32) -> u32 {
        let least = (2 * mss).max(1460 * segments);
        (segments * mss).min(least)
    }

    /// New data were acknowledged: `acked` octets.
    #[inline]
    pub fn acknowledge(&mut self, acked: u32, flight: Flight) -> Response {
        self.duplicates = 0;
        self.algorithm.observe(acked, &flight);
        if self.undo.is_some()
            && let Some(timeout) = self.settle(acked, &flight)
        {
            return Response::Undone { timeout };
        }
        if self.phase != Phase::Open {
            return self.acknowledge_reducing(acked, &flight);
        }
        if flight.echo && self.reduce_marked(&flight) {
            return Response::Reduced;
        }
        // Sequence numbers live on a circle: what is far behind would seem to be ahead.
        if self.undo.is_none() {
            self.recover = self.recover.max(flight.una - 1);
        }
        self.grow(acked, &flight);
        Response::Proceed
    }

    /// A duplicate ACK arrived (RFC 5681 section 2); `lost` when SACK shows a loss.
    pub fn duplicate(&mut self, flight: Flight, lost: bool) -> Response {
        self.duplicates = self.duplicates.saturating_add(1);
        if self.phase == Phase::Recovery {
            if self.sack {
                self.reduce_proportionally(&flight);
            } else {
                // One more segment has left the network.
                self.window.set(self.window.cwnd.saturating_add(self.window.mss));
            }
            return Response::Proceed;
        }
        let enough = lost || (!self.rack && self.duplicates == DUPLICATES_MAX);
        if !enough || (self.phase == Phase::Open && !flight.una.after(self.recover)) {
            if self.phase == Phase::Marked {
                self.reduce_proportionally(&flight);
            } else if flight.echo && self.reduce_marked(&flight) {
                return Response::Reduced;
            }
            return Response::Proceed;
        }
        if self.phase == Phase::Open {
            self.remember(false, &flight);
            let threshold = self.algorithm.lose(self.window.cwnd, self.loss_flight(&flight));
            self.lower_threshold(threshold);
        }
        // A mark and a loss in one window are one event (RFC 3168 section 6.1.2).
        self.fall(Phase::Recovery, &flight);
        if !self.sack {
            self.window.set(self.window.ssthresh.saturating_add(DUPLICATES_MAX * self.window.mss));
        }
        Response::RetransmitFirst
    }

    /// A loss probe has repaired a loss (RFC 8985 section 7.4.2): the window falls, once a window.
    #[cold]
    pub(super) fn repaired(&mut self, flight: Flight) {
        if self.phase != Phase::Open || !flight.una.after(self.recover) {
            return;
        }
        let threshold = self.algorithm.lose(self.window.cwnd, self.loss_flight(&flight));
        self.lower_threshold(threshold);
        self.undo = None;
        self.fall(Phase::Marked, &flight);
    }

    /// Octets were sent, again or for the first time.
    #[inline]
    pub fn sent(&mut self, octets: u32) {
        if self.phase != Phase::Open {
            self.sent = self.sent.saturating_add(octets);
        }
    }

    /// A turn to send has ended with `octets` in flight: what of the window is in use.
    #[inline]
    pub fn used(&mut self, una: SeqNumber, nxt: SeqNumber, octets: u32) {
        if octets > self.used || una.at_or_after(self.used_until) {
            (self.used, self.used_until) = (octets, nxt);
        }
    }

    /// The retransmission timer expired; `again` when it did so before for the same data.
    // req 9293-3.8.2-1
    pub fn timeout(&mut self, flight: Flight, again: bool) {
        if !again {
            self.remember(true, &flight);
            let threshold = self.algorithm.time_out(self.window.cwnd, self.loss_flight(&flight));
            self.lower_threshold(threshold);
        }
        self.window.cwnd = self.window.mss;
        self.recover = flight.nxt;
        self.phase = Phase::Open;
        self.duplicates = 0;
        self.reduced = true;
    }

    /// Nothing was sent for longer than the timeout (RFC 5681 section 4.1).
    pub fn restart(&mut self, initial_window: u32) {
        let restart = initial_window.max(self.window.mss);
        if self.window.cwnd <= restart {
            return;
        }
        self.keep_threshold();
        self.window.cwnd = restart;
        self.algorithm.restart();
    }

    /// The path takes only smaller segments now.
    pub fn set_mss(&mut self, mss: u32) {
        self.window.mss = mss;
    }

    /// Octets that may be in flight now.
    #[inline]
    pub fn window(&self) -> u32 {
        if self.phase != Phase::Open {
            return self.window.cwnd;
        }
        // Limited transmit: the first two duplicates let one new segment go each.
        self.window.cwnd + self.window.mss * self.duplicates.min(DUPLICATES_MAX - 1)
    }

    /// Octets a round trip at which to pace: more than the window, so that it stays the limit,
    /// and twice of it while it may double.
    #[inline]
    pub fn pacing_window(&self) -> u64 {
        let Window { cwnd, ssthresh, .. } = self.window;
        let cwnd = u64::from(cwnd);
        if self.window.cwnd < ssthresh { 2 * cwnd } else { cwnd + cwnd / 4 }
    }

    /// The congestion window.
    pub fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// The slow start threshold.
    pub fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    /// Which algorithm governs the window.
    pub fn which(&self) -> CongestionControl {
        self.algorithm.which()
    }

    /// Whether a loss is being repaired by fast recovery.
    pub fn in_recovery(&self) -> bool {
        self.phase == Phase::Recovery
    }

    /// Octets of the heap.
    pub(super) fn octets(&self) -> usize {
        self.undo.as_deref().map_or(0, size_of_val)
    }

    #[inline]
    fn grow(&mut self, acked: u32, flight: &Flight) {
        let used = flight.octets.max(self.used);
        // A window that the application does not fill must not grow (RFC 7661 section 4.3).
        if used.saturating_mul(2) < self.window.cwnd {
            self.algorithm.pause(flight.now);
            if self.validated_at.age(flight.now) > NON_VALIDATED {
                self.decay(flight.now);
            }
            return;
        }
        self.validated_at = Coarse::of(flight.now);
        let Window { cwnd, ssthresh, mss, .. } = self.window;
        let grown = if cwnd < ssthresh {
            self.slow_start(acked, flight)
        } else if used.saturating_add(2 * mss) < cwnd {
            // In congestion avoidance the window must really have been the limit.
            self.algorithm.pause(flight.now);
            0
        } else {
            self.algorithm.avoid(&self.window, acked, flight)
        };
        if grown > 0 {
            self.window.set(cwnd.saturating_add(grown));
        }
    }

    fn slow_start(&mut self, acked: u32, flight: &Flight) -> u32 {
        let Window { cwnd, ssthresh, mss, .. } = self.window;
        let acked = if self.paced { acked } else { acked.min(SLOW_START_SEGMENTS * mss) };
        // Later slow starts know where to end (RFC 9406 section 4.3).
        if ssthresh != u32::MAX {
            return acked.min(ssthresh - cwnd);
        }
        match self.hystart.acknowledge(flight.una, flight.nxt, flight.rtt) {
            Growth::Full => acked,
            Growth::Quarter => acked / 4,
            Growth::Done => {
                self.window.ssthresh = cwnd;
                0
            }
        }
    }

    /// An acknowledgment while the window falls.
    #[cold]
    fn acknowledge_reducing(&mut self, acked: u32, flight: &Flight) -> Response {
        let Window { ssthresh, mss, .. } = self.window;
        let outstanding = flight.nxt.since(flight.una);
        if flight.una.at_or_after(self.recover) {
            // Leave, and after a loss without a burst (RFC 6582 section 3.2 step 3, option 1).
            let burstless = outstanding.max(mss) + mss;
            let loss = self.phase == Phase::Recovery;
            self.window.set(if loss { ssthresh.min(burstless) } else { ssthresh });
            self.phase = Phase::Open;
            let restored = self.restore();
            return restored.map_or(Response::Proceed, |timeout| Response::Restored { timeout });
        }
        if self.phase == Phase::Marked {
            self.reduce_proportionally(flight);
            return Response::Proceed;
        }
        if self.sack {
            self.reduce_proportionally(flight);
            return Response::RetransmitFirst;
        }
        // A partial one: the next hole begins here; deflate by what left the network.
        let deflated = self.window.cwnd.saturating_sub(acked) + if acked >= mss { mss } else { 0 };
        self.window.set(deflated);
        Response::RetransmitFirst
    }

    /// A congestion mark was echoed; true when the window falls for it, once a window of data.
    // req 9293-3.8.2-3
    #[cold]
    fn reduce_marked(&mut self, flight: &Flight) -> bool {
        if !flight.una.after(self.recover) {
            return false;
        }
        let threshold = self.algorithm.mark(self.window.cwnd, self.loss_flight(flight));
        self.lower_threshold(threshold);
        // Where there are marks, there was congestion whatever else turns out.
        self.undo = None;
        self.fall(Phase::Marked, flight);
        true
    }

    /// The window begins to fall to the threshold.
    fn fall(&mut self, phase: Phase, flight: &Flight) {
        self.phase = phase;
        self.recover = flight.nxt;
        self.reduced = true;
        (self.recover_flight, self.delivered, self.sent) = (flight.octets.max(1), 0, 0);
        self.reduce_proportionally(flight);
    }

    /// RFC 6937 section 3.1, with its slow start reduction bound.
    fn reduce_proportionally(&mut self, flight: &Flight) {
        let Window { ssthresh, mss, .. } = self.window;
        self.delivered = self.delivered.saturating_add(flight.delivered);
        let room = if flight.pipe > ssthresh {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            let share = share.div_ceil(u64::from(self.recover_flight));
            u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(self.sent)
        } else {
            let limit = self.delivered.saturating_sub(self.sent).max(flight.delivered) + mss;
            (ssthresh - flight.pipe).min(limit)
        };
        self.window.set(flight.pipe.saturating_add(room));
    }

    /// What was in flight when a loss was found. Acknowledgments that came in the same burst have
    /// lowered it without a chance to fill it again: what was in use before them counts.
    fn loss_flight(&self, flight: &Flight) -> u32 {
        flight.octets.max(self.used.min(self.window.cwnd))
    }

    fn lower_threshold(&mut self, threshold: u32) {
        self.window.ssthresh = threshold.clamp(SSTHRESH_SEGMENTS * self.window.mss, u32::MAX - 1);
    }

    /// The threshold remembers most of a window that was not needed (RFC 7661 section 4.4.3).
    fn keep_threshold(&mut self) {
        let most = self.window.cwnd - self.window.cwnd / 4;
        self.window.ssthresh = self.window.ssthresh.max(most);
    }

    /// The window was not filled for too long to be believed (RFC 7661 section 4.4.3).
    #[cold]
    fn decay(&mut self, now: Instant) {
        self.validated_at = Coarse::of(now);
        self.keep_threshold();
        self.window.cwnd = (self.window.cwnd / 2).max(self.initial).min(self.window.cwnd);
        self.algorithm.restart();
    }
}

#[cfg(test)]
mod tests;
