//! HyStart++ (RFC 9406): leaves the first slow start when round-trip times begin to grow, by way
//! of a Conservative Slow Start (CSS) that finds out whether they really do.

use core::time::Duration;

use crate::seq::SeqNumber;

/// RTT samples that make a round's least one good enough: N_RTT_SAMPLE.
const SAMPLES: u8 = 8;

/// Rounds of CSS before congestion avoidance: CSS_ROUNDS.
const CSS_ROUNDS: u8 = 5;

/// Nanoseconds of a unit of time, as a shift.
const UNIT_SHIFT: u32 = 10;

/// MIN_RTT_THRESH, 4 ms in units.
const THRESHOLD_MIN: u32 = 4_000_000 >> UNIT_SHIFT;

/// MAX_RTT_THRESH, 16 ms in units.
const THRESHOLD_MAX: u32 = 16_000_000 >> UNIT_SHIFT;

/// MIN_RTT_DIVISOR, as a shift.
const DIVISOR_SHIFT: u32 = 3;

/// How slow start goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    /// By what is acknowledged.
    Full,
    /// CSS: by a fourth of it (CSS_GROWTH_DIVISOR).
    Quarter,
    /// No more: the threshold is where the window is.
    Done,
}

/// The state of HyStart++.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HyStart {
    /// The round ends when this is acknowledged.
    window_end: SeqNumber,
    /// lastRoundMinRTT in units of 1024 ns.
    last_min: u32,
    /// currentRoundMinRTT.
    current_min: u32,
    /// cssBaselineMinRtt.
    baseline: u32,
    /// RTT samples of the round.
    samples: u8,
    /// Rounds of CSS, while in it.
    css: Option<u8>,
}

impl HyStart {
    /// The state of a connection whose data begin after `una`.
    pub(crate) fn new(una: SeqNumber) -> Self {
        Self {
            window_end: una,
            last_min: u32::MAX,
            current_min: u32::MAX,
            baseline: u32::MAX,
            samples: 0,
            css: None,
        }
    }

    /// An acknowledgment in slow start, with the round trip that it measured.
    pub(crate) fn acknowledge(&mut self, una: SeqNumber, nxt: SeqNumber, rtt: Option<Duration>) -> Growth {
        if let Some(rtt) = rtt {
            let units = u32::try_from(rtt.as_nanos() >> UNIT_SHIFT).unwrap_or(u32::MAX);
            self.current_min = self.current_min.min(units);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES {
            self.judge();
        }
        if una.at_or_after(self.window_end) {
            self.last_min = core::mem::replace(&mut self.current_min, u32::MAX);
            (self.samples, self.window_end) = (0, nxt);
            if let Some(rounds) = &mut self.css {
                *rounds += 1;
                if *rounds >= CSS_ROUNDS {
                    return Growth::Done;
                }
            }
        }
        if self.css.is_some() { Growth::Quarter } else { Growth::Full }
    }

    fn judge(&mut self) {
        if self.css.is_some() {
            // It was jitter: back to slow start.
            if self.current_min < self.baseline {
                (self.css, self.baseline) = (None, u32::MAX);
            }
            return;
        }
        let threshold = (self.last_min >> DIVISOR_SHIFT).clamp(THRESHOLD_MIN, THRESHOLD_MAX);
        if self.last_min != u32::MAX && self.current_min >= self.last_min.saturating_add(threshold) {
            (self.css, self.baseline) = (Some(0), self.current_min);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Rounds {
        hystart: HyStart,
        una: SeqNumber,
    }

    impl Rounds {
        fn new() -> Self {
            let una = SeqNumber::new(u32::MAX - 20);
            Self { hystart: HyStart::new(una), una }
        }

        /// A round of ten acknowledgments with this round-trip time; the last one's answer.
        fn round(&mut self, rtt: Duration) -> Growth {
            let end = self.una + 10;
            let mut growth = Growth::Full;
            for _ in 0..10 {
                self.una += 1;
                // What is sent meanwhile is acknowledged in the next round.
                let nxt = end + 10;
                growth = self.hystart.acknowledge(self.una, nxt, Some(rtt));
                if growth == Growth::Done {
                    break;
                }
            }
            // The first round of all ends with its first acknowledgment.
            self.hystart.window_end = self.una + 10;
            growth
        }
    }

    #[test]
    fn steady_round_trips_stay_in_slow_start() {
        let mut rounds = Rounds::new();
        for _ in 0..20 {
            assert_eq!(rounds.round(20 * MS), Growth::Full);
        }
    }

    #[test]
    fn growing_round_trips_lead_through_css_to_congestion_avoidance() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS);
        rounds.round(20 * MS);
        // The threshold is 20 ms / 8, but at least 4 ms.
        assert_eq!(rounds.round(23 * MS), Growth::Full);
        assert_eq!(rounds.round(27 * MS), Growth::Quarter);
        for _ in 0..3 {
            assert_eq!(rounds.round(27 * MS), Growth::Quarter);
        }
        assert_eq!(rounds.round(28 * MS), Growth::Done);
    }

    #[test]
    fn a_long_path_has_a_threshold_of_sixteen_milliseconds() {
        let mut rounds = Rounds::new();
        rounds.round(200 * MS);
        rounds.round(200 * MS);
        assert_eq!(rounds.round(215 * MS), Growth::Full);
        rounds.round(200 * MS);
        assert_eq!(rounds.round(217 * MS), Growth::Quarter);
    }

    #[test]
    fn jitter_leads_back_to_slow_start() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS);
        rounds.round(20 * MS);
        assert_eq!(rounds.round(25 * MS), Growth::Quarter);
        assert_eq!(rounds.round(21 * MS), Growth::Full);
        assert_eq!(rounds.hystart.css, None);
    }

    #[test]
    fn few_samples_tell_nothing() {
        let mut rounds = Rounds::new();
        rounds.round(20 * MS);
        rounds.round(20 * MS);
        for sample in 0..7 {
            let growth = rounds.hystart.acknowledge(rounds.una, rounds.una + 10, Some(50 * MS));
            assert_eq!(growth, Growth::Full, "{sample}");
        }
        assert_eq!(rounds.hystart.acknowledge(rounds.una, rounds.una + 10, None), Growth::Full);
        assert_eq!(rounds.hystart.acknowledge(rounds.una, rounds.una + 10, Some(50 * MS)), Growth::Quarter);
    }
}
