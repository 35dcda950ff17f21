//! How large the receive window is: it begins small and grows with what the application takes.
//!
//! Once a round trip the window becomes a few times of what the application took during it, if that
//! is more: an application that takes little gets no more, and neither does a peer that sends
//! little. The round-trip time is that of our own segments, the handshake's at least, which under
//! load may be too short. So the times are taken, too, in which the peer sends beyond the edge that
//! it knew when they began: by then it has heard from us, and when the window is what holds it up
//! they are not longer than a round trip.
//!
//! The window never shrinks. What all windows of a stack have grown by has a bound.

use core::time::Duration;

use super::Receiver;
use crate::device::Frame;
use crate::seq::SeqNumber;
use crate::tcp::connection::{Connection, NEVER};
use crate::tcp::input::Context;
use crate::time::Instant;

/// Round trips' worth of octets that the window is to hold: the peer hears of it a round trip late,
/// and may send twice as much in the next.
const WINDOW_ROUND_TRIPS: u32 = 4;

/// By how much round trips under load may be longer than in the handshake: if the shortest time that
/// a window took is no longer than that, it was one.
const LOADED_ROUND_TRIPS: u64 = 8;

/// Octets by which the windows of all connections have grown, and by how many they may.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowBudget {
    pub(crate) used: u64,
    pub(crate) max: u64,
}

impl WindowBudget {
    /// Takes up to `wanted` octets.
    fn take(&mut self, wanted: u32) -> u32 {
        let left = u32::try_from(self.max.saturating_sub(self.used)).unwrap_or(u32::MAX);
        let taken = wanted.min(left);
        self.used += u64::from(taken);
        taken
    }
}

/// What is being measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// When the round trip is over; [`NEVER`] as long as its time is not known.
    until: Instant,
    /// Up to where the application had released the data when it began.
    pub(super) released: SeqNumber,
    /// The edge of a window that is being timed.
    pub(super) edge: SeqNumber,
    /// Since when; zero before the first one.
    edge_since: Instant,
    /// The shortest time in nanoseconds that a window took, 4.3 s at most.
    least_ns: u32,
}

impl Default for Round {
    fn default() -> Self {
        let (zero, start) = (SeqNumber::default(), Instant::ZERO);
        Self { until: start, released: zero, edge: zero, edge_since: start, least_ns: u32::MAX }
    }
}

impl<F: Frame> Receiver<F> {
    /// Whether there is something to be learnt from the data that have just come.
    #[inline]
    pub(crate) fn is_round_over(&self, now: Instant) -> bool {
        now >= self.round.until || self.nxt.at_or_after(self.round.edge)
    }

    /// Ends a round; `rtt_ns` is the round-trip time, zero when unknown.
    fn end_round(&mut self, rtt_ns: u64, budget: &mut WindowBudget, now: Instant) {
        let round = &mut self.round;
        if self.nxt.at_or_after(round.edge) {
            if round.edge_since != Instant::ZERO {
                let span_ns = (now - round.edge_since).as_nanos();
                round.least_ns = round.least_ns.min(u32::try_from(span_ns).unwrap_or(u32::MAX));
            }
            (round.edge, round.edge_since) = (self.edge, now);
        }
        if now < round.until && round.until != NEVER {
            return;
        }
        let least_ns = u64::from(round.least_ns);
        let is_known = round.least_ns != u32::MAX;
        let loaded = is_known && (rtt_ns == 0 || least_ns < LOADED_ROUND_TRIPS * rtt_ns);
        let rtt_ns = if loaded { rtt_ns.max(least_ns) } else { rtt_ns };
        round.until = if rtt_ns == 0 { NEVER } else { now + Duration::from_nanos(rtt_ns) };
        let released = self.nxt - self.unreleased;
        let taken = released.since(core::mem::replace(&mut round.released, released));
        let wanted = taken.saturating_mul(WINDOW_ROUND_TRIPS).min(self.limit);
        if wanted > self.window_max {
            let grown = budget.take(wanted - self.window_max);
            self.window_max += grown;
            self.grown += grown;
        }
    }
}

impl<F: Frame> Connection<F> {
    /// A round of the receive window is over.
    #[cold]
    pub(crate) fn tune_window(&mut self, context: &mut Context<'_>) {
        // That of our own segments, the handshake's at least, or what the peer's echoes prove: those
        // are coarse, but of now.
        let echoed = self.timestamps.as_ref().map_or(0, |state| state.least_rtt_ns(context.now));
        let rtt_ns = self.rto.srtt_ns().max(echoed);
        self.receiver.end_round(rtt_ns, context.windows, context.now);
    }
}
