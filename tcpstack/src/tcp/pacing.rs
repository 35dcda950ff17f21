//! Pacing: a window goes out over its round trip, not in one burst at its beginning.
//!
//! A connection earns octets with time, at a little more than its window a round trip, and may
//! save up a quantum of them: what the timer wheel's ticks need to keep the rate, or two
//! segments. The first unacknowledged record is never held back when it goes again, but paid for.
//! When there are no octets left the wheel wakes it. One division a turn, none a segment.

use super::connection::{Connection, NEVER};
use crate::device::Frame;
use crate::time::Instant;

/// Parts of an octet that are counted, as a shift.
const PART_SHIFT: u32 = 8;

/// Time whose octets may be saved up, four ticks of the wheel: it rounds up, and wakes late.
const QUANTUM_NS: u64 = 4 << 15;

/// Segments that may be saved up on slow paths.
const QUANTUM_SEGMENTS: u32 = 2;

/// What a connection may send now, and when it may go on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pacer {
    /// Earned and not spent, in parts of an octet; the last segment may leave it below zero.
    credit: i64,
    /// The time up to which it was earned.
    earned_to: Instant,
    /// When data may go on, if they are held back; [`NEVER`] otherwise.
    pub(crate) wake_at: Instant,
}

impl Pacer {
    /// With nothing saved up.
    pub(crate) fn new() -> Self {
        Self { credit: 0, earned_to: Instant::ZERO, wake_at: NEVER }
    }

    /// Earns what `window` octets a round trip give up to `now`.
    pub(crate) fn earn(&mut self, window: u64, srtt_ns: u64, mss: u32, now: Instant) {
        self.wake_at = NEVER;
        let elapsed_ns = now.as_nanos().saturating_sub(self.earned_to.as_nanos());
        let earned = parts(window, elapsed_ns, srtt_ns);
        if earned == 0 {
            // Not yet a part of an octet: the time counts later.
            return;
        }
        self.earned_to = now;
        let quantum = parts(window, QUANTUM_NS, srtt_ns).max(i64::from(QUANTUM_SEGMENTS * mss) << PART_SHIFT);
        self.credit = self.credit.saturating_add(earned).min(quantum);
    }

    /// Whether data may go; if not, `wake_at` says when.
    #[inline]
    pub(crate) fn admits(&mut self, window: u64, srtt_ns: u64, now: Instant) -> bool {
        if self.credit > 0 {
            return true;
        }
        let missing = u64::try_from(1 - self.credit).expect("there is no credit");
        let wait_ns = u128::from(missing) * u128::from(srtt_ns);
        let wait_ns = wait_ns.div_ceil(u128::from(window.max(1)) << PART_SHIFT);
        let wait_ns = u64::try_from(wait_ns).unwrap_or(u64::MAX);
        self.wake_at = Instant::from_nanos(now.as_nanos().saturating_add(wait_ns));
        false
    }

    /// Whether data were held back until now; they are no longer.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        let due = self.wake_at <= now;
        if due {
            self.wake_at = NEVER;
        }
        due
    }

    /// Octets were sent.
    #[inline]
    pub(crate) fn spend(&mut self, octets: u32) {
        self.credit -= i64::from(octets) << PART_SHIFT;
    }
}

impl<F: Frame> Connection<F> {
    /// A turn to send begins.
    pub(crate) fn pace(&mut self, now: Instant) {
        let srtt_ns = self.rto.srtt_ns();
        self.pacer.earn(self.congestion.pacing_window(), srtt_ns.max(1), self.emss, now);
    }

    /// Whether a record has to wait for its time.
    #[inline]
    pub(crate) fn is_held_back(&mut self, index: usize, now: Instant) -> bool {
        let srtt_ns = self.rto.srtt_ns();
        // Without a round trip there is no rate. The first one again is what all others wait for.
        if srtt_ns == 0 || (index == 0 && self.sender.has_outstanding()) {
            return false;
        }
        !self.pacer.admits(self.congestion.pacing_window(), srtt_ns, now)
    }
}

/// What `window` octets a round trip are in `span_ns`, in parts of an octet.
fn parts(window: u64, span_ns: u64, srtt_ns: u64) -> i64 {
    let parts = (u128::from(window) << PART_SHIFT) * u128::from(span_ns) / u128::from(srtt_ns);
    // Half of the range, so that sums fit.
    i64::try_from(parts).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    const MSS: u32 = 1000;

    /// Octets that go out in `span_ns` when there is always something to send.
    fn run(window: u64, srtt_ns: u64, step_ns: u64, span_ns: u64) -> u64 {
        let mut pacer = Pacer::new();
        let mut sent = 0;
        let start = Instant::from_nanos(1 << 40);
        pacer.earn(window, srtt_ns, MSS, start);
        pacer.credit = 0;
        let mut now = start;
        while now.as_nanos() < start.as_nanos() + span_ns {
            pacer.earn(window, srtt_ns, MSS, now);
            while pacer.admits(window, srtt_ns, now) {
                pacer.spend(MSS);
                sent += u64::from(MSS);
            }
            assert!(pacer.wake_at > now);
            now += Duration::from_nanos(step_ns);
        }
        sent
    }

    #[test]
    fn a_window_takes_a_round_trip() {
        // 100 segments in 10 ms, looked at each microsecond or each tick.
        for step_ns in [1000, 32_768, 65_536] {
            let sent = run(100_000, 10_000_000, step_ns, 100_000_000);
            assert!(sent.abs_diff(1_000_000) <= 8000, "{step_ns}: {sent}");
        }
    }

    #[test]
    fn after_a_pause_there_is_a_quantum_and_no_more() {
        let mut pacer = Pacer::new();
        let burst = |pacer: &mut Pacer, window, srtt_ns, now| {
            pacer.earn(window, srtt_ns, MSS, now);
            let mut segments = 0;
            while pacer.admits(window, srtt_ns, now) {
                pacer.spend(MSS);
                segments += 1;
            }
            segments
        };
        // 131 us of 100 KB in 1 ms are 13 segments.
        assert_eq!(burst(&mut pacer, 100_000, 1_000_000, Instant::from_nanos(1 << 50)), 14);
        // On a slow path two.
        assert_eq!(burst(&mut pacer, 10_000, 100_000_000, Instant::from_nanos(1 << 51)), 2);
    }

    #[test]
    fn it_wakes_when_there_is_something_to_spend() {
        let mut pacer = Pacer::new();
        let (window, srtt_ns) = (10_000, 10_000_000);
        let mut now = Instant::from_nanos(1 << 40);
        pacer.earn(window, srtt_ns, MSS, now);
        for _ in 0..10 {
            while pacer.admits(window, srtt_ns, now) {
                pacer.spend(MSS);
            }
            let wake_at = pacer.wake_at;
            assert!(wake_at - now <= Duration::from_millis(1));
            now = wake_at + Duration::from_nanos(4000);
            pacer.earn(window, srtt_ns, MSS, now);
            assert!(pacer.admits(window, srtt_ns, now));
        }
    }

    proptest! {
        /// However seldom or often it is looked at, no more goes out than the rate allows, and
        /// nothing overflows.
        #[test]
        fn never_more_than_the_rate(
            window in 1u64..1 << 32, srtt_ns in 1u64..1 << 36, step_ns in 1000u64..10_000_000,
        ) {
            let mut pacer = Pacer::new();
            let start = Instant::from_nanos(1 << 40);
            pacer.earn(window, srtt_ns, MSS, start);
            let first = pacer.credit;
            let mut spent: i64 = 0;
            for step in 1..100 {
                let now = Instant::from_nanos(start.as_nanos() + step * step_ns);
                pacer.earn(window, srtt_ns, MSS, now);
                for _ in 0..100 {
                    if !pacer.admits(window, srtt_ns, now) {
                        prop_assert!(pacer.wake_at >= now);
                        break;
                    }
                    pacer.spend(MSS);
                    spent += i64::from(MSS) << PART_SHIFT;
                }
                let most = first.saturating_add(parts(window, step * step_ns, srtt_ns));
                prop_assert!(spent <= most.saturating_add(i64::from(MSS) << PART_SHIFT));
            }
        }
    }
}
