//! DCTCP (RFC 8257): the window falls by as much as the share of octets that was marked.
//!
//! It grows as NewReno does, and a loss is a loss; without ECN at the peer nothing else is left.

use super::{Flight, NewReno};
use crate::seq::SeqNumber;

/// Alpha of one.
const ONE: u32 = 1 << 20;

/// The estimation gain g is 1/16 (RFC 8257 section 4.2), as a shift.
const GAIN_SHIFT: u32 = 4;

/// The state of DCTCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dctcp {
    pub(crate) growth: NewReno,
    /// DCTCP.Alpha, [`ONE`] for one.
    alpha: u32,
    /// DCTCP.WindowEnd.
    window_end: SeqNumber,
    /// DCTCP.BytesAcked.
    acked: u32,
    /// DCTCP.BytesMarked.
    marked: u32,
}

impl Dctcp {
    /// The state of a connection whose data begin after `una`.
    pub(crate) fn new(una: SeqNumber) -> Self {
        Self { growth: NewReno::default(), alpha: ONE, window_end: una, acked: 0, marked: 0 }
    }

    /// Takes an acknowledgment into account (RFC 8257 section 3.3, steps 1 to 8).
    #[inline]
    pub(crate) fn observe(&mut self, acked: u32, flight: &Flight) {
        self.acked = self.acked.saturating_add(acked);
        if flight.echo {
            self.marked = self.marked.saturating_add(acked);
        }
        if flight.una.at_or_before(self.window_end) {
            return;
        }
        let share = u64::from(self.marked) * u64::from(ONE) / u64::from(self.acked.max(1));
        let share = u32::try_from(share).expect("no more is marked than acknowledged");
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (share >> GAIN_SHIFT);
        self.window_end = flight.nxt;
        (self.acked, self.marked) = (0, 0);
    }

    /// The window after a mark (step 9).
    pub(crate) fn reduce_marked(&mut self, cwnd: u32) -> u32 {
        self.growth.restart();
        let cut = u64::from(cwnd) * u64::from(self.alpha) / (2 * u64::from(ONE));
        cwnd - u32::try_from(cut).expect("alpha is at most one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1000;

    /// Ten acknowledgments with nine segments underway after each: one window, of which `marked` are echoed.
    fn window(dctcp: &mut Dctcp, una: &mut SeqNumber, marked: u32) {
        for segment in 0..10 {
            *una += MSS;
            let flight = Flight { nxt: *una + 9 * MSS, echo: segment < marked, ..Flight::at(*una) };
            dctcp.observe(MSS, &flight);
        }
    }

    fn alpha_after(windows: u32, marked: u32) -> f64 {
        let mut una = SeqNumber::new(u32::MAX - 5000);
        let mut dctcp = Dctcp::new(una);
        for _ in 0..windows {
            window(&mut dctcp, &mut una, marked);
        }
        f64::from(dctcp.alpha) / f64::from(ONE)
    }

    #[test]
    fn alpha_converges_to_the_share_that_is_marked() {
        for (marked, share) in [(0, 0.0), (1, 0.1), (5, 0.5), (10, 1.0)] {
            let alpha = alpha_after(200, marked);
            assert!((alpha - share).abs() < 0.001, "{marked}: {alpha}");
        }
    }

    #[test]
    fn alpha_decays_by_a_sixteenth_a_window() {
        // The first window ends with its first acknowledgment: there is none before it.
        let wanted = (1.0f64 - 1.0 / 16.0).powi(11);
        let alpha = alpha_after(11, 0);
        assert!((alpha - wanted).abs() < 0.001, "{alpha} {wanted}");
    }

    #[test]
    fn the_window_falls_by_half_of_alpha() {
        let mut dctcp = Dctcp::new(SeqNumber::new(0));
        assert_eq!(dctcp.reduce_marked(100 * MSS), 50 * MSS);
        dctcp.alpha = ONE / 10;
        assert!(dctcp.reduce_marked(100 * MSS).abs_diff(95 * MSS) <= 1);
        dctcp.alpha = 0;
        assert_eq!(dctcp.reduce_marked(100 * MSS), 100 * MSS);
    }

    proptest! {
        #[test]
        fn alpha_is_a_share(acks in prop::collection::vec((any::<u16>(), any::<bool>()), 0..200)) {
            let mut una = SeqNumber::new(0);
            let mut dctcp = Dctcp::new(una);
            for (acked, echo) in acks {
                una += u32::from(acked);
                let flight = Flight { nxt: una + 50_000, echo, ..Flight::at(una) };
                dctcp.observe(u32::from(acked), &flight);
                prop_assert!(dctcp.alpha <= ONE);
                prop_assert!(dctcp.reduce_marked(10_000) >= 5000);
            }
        }
    }
}
