//! CUBIC (RFC 9438, which replaces RFC 8312): a window that is a function of the time since the
//! last loss, and never grows slower than a NewReno of the same average would.
//!
//! ```text
//!  W_cubic(t) = C (t - K)^3 + W_max         C = 0.4 segments/s^3
//!  K = cbrt((W_max - cwnd_epoch) / C)       the window is W_max again after K
//! ```
//!
//! Integers only, so that a run gives the same on every machine: windows in octets, time in
//! units of 1024 ns. A cube root is taken once an epoch, a division when the window grows.

use super::{Flight, Window};
use crate::time::Instant;

/// Nanoseconds of a unit of time, as a shift.
const UNIT_SHIFT: u32 = 10;

/// Longest `|t - K|` in units, 137 s: the cube of it times C fits, and the window has long met
/// its bounds.
const SPAN_MAX: u64 = 1 << 27;

/// C a unit cubed, times 2^88: 0.4 * (2^10 / 10^9)^3 * 2^88.
const C_SCALED: u128 = (1 << 119) / (5 * 10u128.pow(27));

/// The cube of a span keeps its bits above these; below them it is no octet.
const CUBE_SHIFT: u32 = 24;

/// 1 / C in units cubed: 2.5 * (10^9 / 2^10)^3.
const UNITS_CUBED: u128 = 5 * 10u128.pow(27) / (1 << 31);

/// alpha_cubic = 3 (1 - beta) / (1 + beta) with beta = 0.7, as a fraction.
const ALPHA: (u64, u64) = (9, 17);

/// The state of CUBIC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cubic {
    /// W_max in octets; zero when there was no loss that tells it.
    w_max: u32,
    /// cwnd_prior: the window before the last reduction.
    prior: u32,
    /// W_est: the window of the NewReno to compare with.
    w_est: u32,
    /// K in units.
    k: u32,
    /// Whether the epoch has begun: with the first acknowledgment in congestion avoidance.
    begun: bool,
    /// When it began, later by the time that the application left the window unused.
    epoch: Instant,
    /// The last acknowledgment of the epoch.
    last: Instant,
    /// Octets acknowledged times octets missing to the target, since the window grew last.
    credit: u64,
    /// Octets acknowledged times alpha since W_est grew last, in seventeenths.
    credit_est: u64,
}

/// What a reduction changes; zeros for the other algorithms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    w_max: u32,
    prior: u32,
    begun: bool,
}

impl Cubic {
    /// Octets by which the window grows in congestion avoidance.
    pub(crate) fn avoid(&mut self, window: &Window, acked: u32, flight: &Flight) -> u32 {
        let (cwnd, mss) = (window.cwnd, window.mss);
        if !self.begun {
            self.begin(window, flight.now);
        }
        // Without an acknowledgment for two round trips the window was idle (RFC 9438 section 5.8).
        let rtt_ns = flight.srtt_ns;
        let silent_ns = flight.now.as_nanos().saturating_sub(self.last.as_nanos());
        if silent_ns > rtt_ns.saturating_mul(2) {
            self.epoch = Instant::from_nanos(self.epoch.as_nanos().saturating_add(silent_ns));
        }
        self.last = flight.now;

        // RFC 9438 section 4.2: the window is to be at the target in a round trip from now.
        let ahead = flight.now.as_nanos().saturating_sub(self.epoch.as_nanos()).saturating_add(rtt_ns);
        let target = self.window_at(ahead >> UNIT_SHIFT, mss).clamp(cwnd, cwnd.saturating_add(cwnd / 2));
        self.credit += u64::from(acked) * u64::from(target - cwnd);
        let segment = u64::from(cwnd) * u64::from(mss);
        let mut grown = 0;
        if self.credit >= segment {
            let segments = u32::try_from(self.credit / segment).unwrap_or(u32::MAX);
            self.credit %= segment;
            grown = segments.saturating_mul(mss).min(target - cwnd);
        }
        self.estimate(cwnd, mss, acked);
        // RFC 9438 section 4.3: in the Reno-friendly region W_est is the window.
        grown.max(self.w_est.saturating_sub(cwnd))
    }

    /// An acknowledgment while the application does not fill the window: its time stands still.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.epoch += now - self.last;
        self.last = now;
    }

    /// The window after a loss or a mark with `octets` in flight.
    pub(crate) fn reduce(&mut self, cwnd: u32, octets: u32) -> u32 {
        self.begun = false;
        self.prior = cwnd;
        // Fast convergence: who gets less than before makes room for others (section 4.7).
        self.w_max = if cwnd < self.w_max { scaled(cwnd, 17, 20) } else { cwnd };
        scaled(octets, 7, 10)
    }

    /// A timeout: the next epoch begins where slow start ends, with K = 0 (section 4.8).
    pub(crate) fn timeout(&mut self, cwnd: u32, octets: u32) -> u32 {
        let ssthresh = self.reduce(cwnd, octets);
        self.w_max = 0;
        ssthresh
    }

    /// The window was set anew: what comes is another epoch.
    pub(crate) fn restart(&mut self) {
        self.begun = false;
    }

    /// What [`Cubic::reduce`] and [`Cubic::timeout`] change.
    pub(crate) fn memory(&self) -> Memory {
        Memory { w_max: self.w_max, prior: self.prior, begun: self.begun }
    }

    /// Takes back a reduction. The epoch goes on if no other one has begun since.
    pub(crate) fn recall(&mut self, memory: Memory) {
        (self.w_max, self.prior) = (memory.w_max, memory.prior);
        self.begun = memory.begun && !self.begun;
    }

    fn begin(&mut self, window: &Window, now: Instant) {
        let cwnd = window.cwnd;
        (self.credit, self.credit_est) = (0, 0);
        self.w_est = cwnd;
        if cwnd < self.w_max {
            self.k = k(self.w_max - cwnd, window.mss);
        } else {
            (self.w_max, self.k) = (cwnd, 0);
        }
        (self.begun, self.epoch, self.last) = (true, now, now);
    }

    /// W_cubic of a time in units since the epoch began.
    fn window_at(&self, t: u64, mss: u32) -> u32 {
        let k = u64::from(self.k);
        let span = u128::from(t.abs_diff(k).min(SPAN_MAX));
        let cube = (span * span * span) >> CUBE_SHIFT;
        let octets = (cube * C_SCALED * u128::from(mss)) >> 64;
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        if t >= k { self.w_max.saturating_add(octets) } else { self.w_max.saturating_sub(octets) }
    }

    /// W_est grows by alpha a window, and by a whole segment once it is where NewReno was.
    fn estimate(&mut self, cwnd: u32, mss: u32, acked: u32) {
        let (over, under) = if self.w_est < self.prior { ALPHA } else { (ALPHA.1, ALPHA.1) };
        self.credit_est += u64::from(acked) * over;
        let segment = u64::from(cwnd) * under;
        if self.credit_est >= segment {
            let segments = u32::try_from(self.credit_est / segment).unwrap_or(u32::MAX);
            self.credit_est %= segment;
            self.w_est = self.w_est.saturating_add(segments.saturating_mul(mss));
        }
    }
}

/// `octets * over / under`, for fractions below one.
fn scaled(octets: u32, over: u64, under: u64) -> u32 {
    u32::try_from(u64::from(octets) * over / under).expect("a fraction is below one")
}

/// K in units, for a window that lacks `missing` octets of W_max.
fn k(missing: u32, mss: u32) -> u32 {
    let cubed = u128::from(missing) * UNITS_CUBED / u128::from(mss);
    cube_root(cubed)
}

/// The cube root of a number below 2^96, rounded down.
fn cube_root(number: u128) -> u32 {
    let mut root: u32 = 0;
    for bit in (0..32).rev() {
        let trial = u128::from(root | 1 << bit);
        if trial * trial * trial <= number {
            root |= 1 << bit;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seq::SeqNumber;
    use core::time::Duration;
    use proptest::prelude::*;

    const MSS: u32 = 1000;
    const SECOND: u64 = 1_000_000_000;

    fn window(segments: u32) -> Window {
        Window { cwnd: segments * MSS, ssthresh: segments * MSS, mss: MSS, max: u32::MAX }
    }

    fn flight(now_ns: u64, rtt_ns: u64) -> Flight {
        Flight { now: Instant::from_nanos(now_ns), srtt_ns: rtt_ns, ..Flight::at(SeqNumber::new(0)) }
    }

    /// A whole window is acknowledged each round trip, in pieces of two segments.
    fn round(cubic: &mut Cubic, window: &mut Window, now_ns: u64, rtt_ns: u64) {
        let acks = (window.cwnd / (2 * MSS)).max(1);
        for ack in 0..acks {
            let now_ns = now_ns + rtt_ns * u64::from(ack) / u64::from(acks);
            window.cwnd += cubic.avoid(window, 2 * MSS, &flight(now_ns, rtt_ns));
        }
    }

    #[test]
    fn k_is_the_time_to_the_old_window() {
        // 1000 segments, beta 0.7: K = cbrt(300 / 0.4) = 9.0856 s.
        let seconds = f64::from(k(300 * MSS, MSS)) * 1024e-9;
        assert!((seconds - 9.0856).abs() < 1e-3, "{seconds}");
        assert_eq!(k(0, MSS), 0);
    }

    #[test]
    fn the_window_is_the_cubic_function() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.reduce(1000 * MSS, 1000 * MSS), 700 * MSS);
        cubic.begin(&window(700), Instant::ZERO);
        for (t, segments) in [(0.0, 700.0), (1.0, 788.5), (5.0, 972.7), (9.0856, 1000.0), (15.0, 1082.8)] {
            let units = (0u32..).find(|units| f64::from(*units) * 1024e-9 >= t).unwrap();
            let got = f64::from(cubic.window_at(u64::from(units), MSS)) / f64::from(MSS);
            assert!((got - segments).abs() < 0.2, "W({t}) = {got}");
        }
    }

    #[test]
    fn the_window_follows_the_function() {
        // 100 ms round trips: well above the friendly region.
        let mut cubic = Cubic::default();
        cubic.reduce(1000 * MSS, 1000 * MSS);
        let mut window = window(700);
        let rtt_ns = SECOND / 10;
        for number in 0..90 {
            round(&mut cubic, &mut window, number * rtt_ns, rtt_ns);
            let t = ((number + 1) * rtt_ns) >> UNIT_SHIFT;
            let wanted = cubic.window_at(t, MSS);
            assert!(window.cwnd.abs_diff(wanted) < 12 * MSS, "{number}: {} {wanted}", window.cwnd);
        }
        // Flat around W_max, which it reaches after 9 s.
        assert!(window.cwnd.abs_diff(1000 * MSS) < 3 * MSS, "{}", window.cwnd);
    }

    #[test]
    fn short_round_trips_are_the_friendly_region() {
        // After a loss at 100 segments NewReno would gain one segment a round trip; alpha makes
        // the average the same from 70 instead of 50.
        let mut cubic = Cubic::default();
        cubic.reduce(100 * MSS, 100 * MSS);
        let mut window = window(70);
        let rtt_ns = SECOND / 10_000;
        for number in 0..34 {
            round(&mut cubic, &mut window, number * rtt_ns, rtt_ns);
        }
        // 34 * 9/17 = 18 segments.
        assert!(window.cwnd.abs_diff(88 * MSS) <= MSS, "{}", window.cwnd);
        // Beyond cwnd_prior it is one a round trip.
        while window.cwnd < 101 * MSS {
            round(&mut cubic, &mut window, 34 * rtt_ns, rtt_ns);
        }
        let before = window.cwnd;
        for _ in 0..10 {
            round(&mut cubic, &mut window, 40 * rtt_ns, rtt_ns);
        }
        assert!((window.cwnd - before).abs_diff(10 * MSS) <= MSS, "{}", window.cwnd - before);
    }

    #[test]
    fn a_smaller_window_at_the_next_loss_makes_room() {
        let mut cubic = Cubic::default();
        cubic.reduce(1000 * MSS, 1000 * MSS);
        cubic.reduce(800 * MSS, 800 * MSS);
        assert_eq!(cubic.w_max, 680 * MSS);
        cubic.reduce(900 * MSS, 900 * MSS);
        assert_eq!(cubic.w_max, 900 * MSS);
    }

    #[test]
    fn after_a_timeout_the_epoch_begins_at_its_own_window() {
        let mut cubic = Cubic::default();
        assert_eq!(cubic.timeout(1000 * MSS, 1000 * MSS), 700 * MSS);
        cubic.begin(&window(700), Instant::ZERO);
        assert_eq!((cubic.w_max, cubic.k), (700 * MSS, 0));
    }

    #[test]
    fn time_without_use_does_not_count() {
        let rtt_ns = SECOND / 10;
        let grown = |pause: u64| {
            let mut cubic = Cubic::default();
            cubic.reduce(1000 * MSS, 1000 * MSS);
            let mut window = window(700);
            for number in 0..10 {
                round(&mut cubic, &mut window, number * rtt_ns, rtt_ns);
            }
            // Silence, then acknowledgments of a trickle, then silence.
            cubic.pause(Instant::from_nanos(SECOND + pause));
            for number in 10..20 {
                round(&mut cubic, &mut window, 2 * pause + number * rtt_ns, rtt_ns);
            }
            window.cwnd
        };
        assert!(grown(0).abs_diff(grown(60 * SECOND)) < 10 * MSS);
    }

    proptest! {
        #[test]
        fn cube_roots_are_rounded_down(number in 0u128..1 << 96) {
            let root = u128::from(cube_root(number));
            prop_assert!(root.pow(3) <= number && number < (root + 1).pow(3));
        }

        /// Any window, segment and time: no overflow, no way back, and half the window at most.
        #[test]
        fn growth_is_bounded(
            w_max in 1u32..1 << 30, cwnd in 64u32..1 << 30, mss in 64u32..65_536,
            times in prop::collection::vec((any::<u32>(), 0u32..1 << 30), 1..20), rtt_ns in 0u64..1 << 40,
        ) {
            let mut cubic = Cubic::default();
            cubic.reduce(w_max, w_max);
            let mut window = Window { cwnd, ssthresh: 0, mss, max: 1 << 30 };
            let mut now = Instant::ZERO;
            for (later, acked) in times {
                now += Duration::from_micros(u64::from(later));
                let acked = acked.min(window.cwnd);
                let flight = Flight { now, srtt_ns: rtt_ns, ..Flight::at(SeqNumber::new(0)) };
                let grown = cubic.avoid(&window, acked, &flight);
                prop_assert!(grown <= window.cwnd / 2 + mss);
                window.cwnd = window.cwnd.saturating_add(grown).min(window.max);
            }
        }
    }
}
