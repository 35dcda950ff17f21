//! The retransmission timeout (RFC 6298), on a clock of nanoseconds.
//!
//! The margin over the smoothed round trip is the least timeout at least, not only what RTTVAR says:
//! on a long steady path that one comes to nothing, and any step of the delay would seem a loss.
//!
//! Karn's rule is the caller's: it takes no sample of a segment that was sent twice. The
//! back-off lives on until the next sample, over any number of retransmissions.

use core::time::Duration;

/// The clock's granularity G: what the timer wheel rounds to.
const GRANULARITY_NS: u64 = 50_000;

/// Where data begin after a lost SYN (RFC 6298 section 5, step 5.7).
const AFTER_SYN_LOSS: Duration = Duration::from_secs(3);

/// Estimates the round-trip time and derives the timeout.
#[derive(Clone, Debug)]
pub struct Rto {
    srtt_ns: u64,
    rttvar_ns: u64,
    /// The timeout without back-off, in microseconds.
    base_us: u32,
    /// Its bounds, 71 minutes at most.
    min_us: u32,
    max_us: u32,
    /// Doublings since the last sample.
    backoff: u8,
    sampled: bool,
}

impl Rto {
    /// Nothing known yet but the bounds: `min <= rto <= max`.
    pub fn new(initial: Duration, min: Duration, max: Duration) -> Self {
        let (min_us, max_us) = (micros(min), micros(max).max(micros(min)));
        // req 9293-3.8.1-1
        Self {
            srtt_ns: 0,
            rttvar_ns: 0,
            base_us: micros(initial).clamp(min_us, max_us),
            min_us,
            max_us,
            backoff: 0,
            sampled: false,
        }
    }

    /// Takes a round-trip time into account; ends the back-off.
    pub fn sample(&mut self, rtt: Duration) {
        let rtt_ns = nanos(rtt);
        if self.sampled {
            // Beta is 1/4 and alpha is 1/8; RTTVAR first, with the old SRTT.
            let error_ns = self.srtt_ns.abs_diff(rtt_ns);
            self.rttvar_ns = self.rttvar_ns - self.rttvar_ns / 4 + error_ns / 4;
            self.srtt_ns = self.srtt_ns - self.srtt_ns / 8 + rtt_ns / 8;
        } else {
            self.sampled = true;
            self.srtt_ns = rtt_ns;
            self.rttvar_ns = rtt_ns / 2;
        }
        let margin_ns =
            self.rttvar_ns.saturating_mul(4).max(GRANULARITY_NS).max(u64::from(self.min_us) * 1000);
        let base_us = self.srtt_ns.saturating_add(margin_ns).div_ceil(1000);
        self.base_us = u32::try_from(base_us).unwrap_or(u32::MAX).clamp(self.min_us, self.max_us);
        self.backoff = 0;
    }

    /// The timer expired: doubles the timeout.
    pub fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// The handshake is over and its SYN was lost: a guess below three seconds is no good.
    pub fn syn_was_lost(&mut self) {
        if !self.sampled {
            self.backoff = 0;
            self.base_us = self.base_us.max(micros(AFTER_SYN_LOSS)).clamp(self.min_us, self.max_us);
        }
    }

    /// The timeout now.
    pub fn value(&self) -> Duration {
        let doubled_us = u64::from(self.base_us) << self.backoff.min(30);
        Duration::from_nanos(doubled_us.min(u64::from(self.max_us)) * 1000)
    }

    /// The timeout without back-off.
    pub fn base(&self) -> Duration {
        Duration::from_nanos(u64::from(self.base_us) * 1000)
    }

    /// The smoothed round-trip time, zero without a sample.
    #[inline]
    pub fn srtt_ns(&self) -> u64 {
        self.srtt_ns
    }

    /// The smoothed round-trip time, once there was a sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.sampled.then_some(Duration::from_nanos(self.srtt_ns))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    fn rto() -> Rto {
        Rto::new(Duration::from_secs(1), 5 * MS, Duration::from_secs(60))
    }

    #[test]
    fn begins_with_the_initial_value() {
        assert_eq!(rto().value(), Duration::from_secs(1));
        assert_eq!(rto().srtt(), None);
    }

    #[test]
    fn the_first_sample_sets_everything() {
        let mut rto = rto();
        rto.sample(100 * MS);
        assert_eq!(rto.srtt(), Some(100 * MS));
        assert_eq!(rto.value(), 300 * MS);
    }

    #[test]
    fn further_samples_are_smoothed() {
        let mut rto = rto();
        rto.sample(80 * MS);
        rto.sample(160 * MS);
        // RTTVAR = 3/4 * 40 + 1/4 * 80 = 50, SRTT = 7/8 * 80 + 1/8 * 160 = 90.
        assert_eq!(rto.srtt(), Some(90 * MS));
        assert_eq!(rto.value(), 290 * MS);
    }

    #[test]
    fn the_margin_is_the_minimum_at_least() {
        for srtt in [Duration::from_micros(10), MS, 100 * MS] {
            let mut rto = rto();
            for _ in 0..100 {
                rto.sample(srtt);
            }
            // What RTTVAR and rounding leave of it is little.
            assert!(rto.value() >= srtt + 5 * MS && rto.value() < srtt + 6 * MS, "{:?}", rto.value());
        }
    }

    // proves 9293-3.8.1-1
    #[test]
    fn back_off_doubles_until_the_next_sample() {
        let mut rto = rto();
        rto.sample(Duration::from_micros(10));
        let base = rto.value();
        assert_eq!((base, rto.base()), (Duration::from_micros(5010), base));
        for doubled in [2, 4, 8, 16] {
            rto.back_off();
            assert_eq!(rto.value(), doubled * base);
        }
        for _ in 0..300 {
            rto.back_off();
        }
        assert_eq!((rto.value(), rto.base()), (Duration::from_secs(60), base));
        rto.sample(Duration::from_micros(10));
        assert_eq!(rto.value(), base);
    }

    #[test]
    fn a_lost_syn_makes_cautious_until_there_is_a_sample() {
        let mut lost = rto();
        lost.back_off();
        lost.syn_was_lost();
        assert_eq!(lost.value(), Duration::from_secs(3));
        lost.sample(MS);
        lost.syn_was_lost();
        assert_eq!(lost.value(), 6 * MS);
    }

    proptest! {
        #[test]
        fn stays_within_its_bounds(samples in prop::collection::vec(any::<u64>(), 0..50), backoffs: u8) {
            let mut rto = rto();
            for sample in samples {
                rto.sample(Duration::from_nanos(sample));
                prop_assert!(rto.value() >= 5 * MS && rto.value() <= Duration::from_secs(60));
            }
            for _ in 0..backoffs {
                rto.back_off();
                prop_assert!(rto.value() >= 5 * MS && rto.value() <= Duration::from_secs(60));
            }
        }
    }
}
