//! Congestion control: slow start, congestion avoidance, fast retransmit and NewReno fast
//! recovery (RFC 5681, RFC 6582), limited transmit (RFC 3042), initial window of ten (RFC 6928).
//! With SACK the window during recovery follows RFC 6937 (PRR) instead of being inflated.
//!
//! It counts octets, and it only counts: what is sent again, and when, is decided by the
//! [`sender`](super::sender) from what these functions return.

use crate::seq::SeqNumber;

/// Duplicate ACKs that mean a loss (RFC 5681 section 3.2).
const DUPLICATES_MAX: u32 = 3;

/// Segments by which one ACK may open the window in slow start. Bursts are acknowledged
/// as a whole, so the limit is HyStart++'s L = 8 (RFC 9406 section 4.2) and not one.
const SLOW_START_SEGMENTS: u32 = 8;

/// Least window after a loss, in segments (RFC 5681 equation 4).
const SSTHRESH_SEGMENTS: u32 = 2;

/// What an acknowledgment asks of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Response {
    /// Go on as the window allows.
    Proceed,
    /// Send the first unacknowledged segment again, now.
    RetransmitFirst,
}

/// The sequence space at the moment of an acknowledgment.
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
}

/// The state of congestion control of one connection.
#[derive(Clone, Debug)]
pub struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    /// SMSS.
    mss: u32,
    /// Octets acknowledged in congestion avoidance since the window grew last.
    acknowledged: u32,
    /// Duplicate ACKs in a row.
    duplicates: u32,
    /// SND.NXT when the last loss was found; losses before it are part of the same event.
    recover: SeqNumber,
    in_recovery: bool,
    /// Whether losses are told by SACK, not by counting duplicates.
    sack: bool,
    /// In flight when the recovery began: RecoverFS.
    recover_flight: u32,
    /// Delivered since then.
    delivered: u32,
    /// Sent since then.
    sent: u32,
    /// Most octets that the window may reach.
    max: u32,
}

impl Congestion {
    /// The state after a handshake that began with `iss`.
    pub fn new(mss: u32, initial_window: u32, max: u32, sack: bool, iss: SeqNumber) -> Self {
        Self {
            cwnd: initial_window.min(max).max(mss),
            ssthresh: u32::MAX,
            mss,
            acknowledged: 0,
            duplicates: 0,
            recover: iss,
            in_recovery: false,
            sack,
            recover_flight: 0,
            delivered: 0,
            sent: 0,
            max: max.max(mss),
        }
    }

    /// `segments` full ones, within the bounds of RFC 6928 section 2 for ten of them.
    pub fn initial_window(mss: u32, segments: u32) -> u32 {
        let least = (2 * mss).max(1460 * segments);
        (segments * mss).min(least)
    }

    /// New data were acknowledged: `acked` octets.
    pub fn acknowledge(&mut self, acked: u32, flight: Flight) -> Response {
        self.duplicates = 0;
        if !self.in_recovery {
            // A window that the application does not fill must not grow (RFC 7661 section 4.3).
            if flight.octets.saturating_mul(2) >= self.cwnd {
                self.grow(acked, flight.octets);
            }
            return Response::Proceed;
        }
        let outstanding = flight.nxt.since(flight.una);
        if flight.una.at_or_after(self.recover) {
            // A full acknowledgment: leave, without a burst (RFC 6582 section 3.2 step 3, option 1).
            self.in_recovery = false;
            self.cwnd = self.ssthresh.min(outstanding.max(self.mss) + self.mss);
            return Response::Proceed;
        }
        if self.sack {
            self.reduce_proportionally(flight);
            return Response::RetransmitFirst;
        }
        // A partial one: the next hole begins here; deflate by what left the network.
        self.cwnd = self.cwnd.saturating_sub(acked);
        if acked >= self.mss {
            self.cwnd += self.mss;
        }
        self.cwnd = self.cwnd.max(self.mss);
        Response::RetransmitFirst
    }

    /// A duplicate ACK arrived (RFC 5681 section 2); `lost` when SACK shows a loss.
    pub fn duplicate(&mut self, flight: Flight, lost: bool) -> Response {
        self.duplicates = self.duplicates.saturating_add(1);
        if self.in_recovery {
            if self.sack {
                self.reduce_proportionally(flight);
            } else {
                // One more segment has left the network.
                self.cwnd = self.cwnd.saturating_add(self.mss).min(self.max);
            }
            return Response::Proceed;
        }
        let enough = lost || self.duplicates == DUPLICATES_MAX;
        if !enough || !flight.una.after(self.recover) {
            return Response::Proceed;
        }
        self.halve(flight.octets);
        self.recover = flight.nxt;
        self.in_recovery = true;
        if self.sack {
            (self.recover_flight, self.delivered, self.sent) = (flight.octets.max(1), 0, 0);
            self.reduce_proportionally(flight);
        } else {
            self.cwnd = self.ssthresh + DUPLICATES_MAX * self.mss;
        }
        Response::RetransmitFirst
    }

    /// Octets were sent, again or for the first time.
    #[inline]
    pub fn sent(&mut self, octets: u32) {
        if self.in_recovery {
            self.sent = self.sent.saturating_add(octets);
        }
    }

    /// The retransmission timer expired; `again` when it did so before for the same data.
    // req 9293-3.8.2-1
    pub fn timeout(&mut self, flight: Flight, again: bool) {
        if !again {
            self.halve(flight.octets);
        }
        self.cwnd = self.mss;
        self.recover = flight.nxt;
        self.in_recovery = false;
        self.duplicates = 0;
        self.acknowledged = 0;
    }

    /// Nothing was sent for longer than the timeout (RFC 5681 section 4.1).
    pub fn restart(&mut self, initial_window: u32) {
        self.cwnd = self.cwnd.min(initial_window.max(self.mss));
        self.acknowledged = 0;
    }

    /// The path takes only smaller segments now.
    pub fn shrink_mss(&mut self, mss: u32) {
        self.mss = mss;
    }

    /// Octets that may be in flight now.
    pub fn window(&self) -> u32 {
        if self.in_recovery {
            return self.cwnd;
        }
        // Limited transmit: the first two duplicates let one new segment go each.
        self.cwnd + self.mss * self.duplicates.min(DUPLICATES_MAX - 1)
    }

    /// The congestion window.
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// The slow start threshold.
    pub fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Whether a loss is being repaired by fast recovery.
    pub fn in_recovery(&self) -> bool {
        self.in_recovery
    }

    fn grow(&mut self, acked: u32, flight: u32) {
        if self.cwnd < self.ssthresh {
            self.cwnd = self.cwnd.saturating_add(acked.min(SLOW_START_SEGMENTS * self.mss)).min(self.max);
            return;
        }
        // In congestion avoidance the window must really have been the limit.
        if flight.saturating_add(2 * self.mss) < self.cwnd {
            return;
        }
        self.acknowledged = self.acknowledged.saturating_add(acked);
        if self.acknowledged >= self.cwnd {
            self.acknowledged -= self.cwnd;
            self.cwnd = (self.cwnd + self.mss).min(self.max);
        }
    }

    /// RFC 6937 section 3.1, with its slow start reduction bound.
    fn reduce_proportionally(&mut self, flight: Flight) {
        self.delivered = self.delivered.saturating_add(flight.delivered);
        let room = if flight.pipe > self.ssthresh {
            let share = u64::from(self.delivered) * u64::from(self.ssthresh);
            let share = share.div_ceil(u64::from(self.recover_flight));
            u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(self.sent)
        } else {
            let limit = self.delivered.saturating_sub(self.sent).max(flight.delivered) + self.mss;
            (self.ssthresh - flight.pipe).min(limit)
        };
        self.cwnd = flight.pipe.saturating_add(room).max(self.mss).min(self.max);
    }

    fn halve(&mut self, flight: u32) {
        self.ssthresh = (flight / 2).max(SSTHRESH_SEGMENTS * self.mss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    fn congestion() -> Congestion {
        Congestion::new(MSS, 10 * MSS, 1 << 24, false, SeqNumber::new(0))
    }

    fn flight(una: u32, nxt: u32, octets: u32) -> Flight {
        let (una, nxt) = (SeqNumber::new(una), SeqNumber::new(nxt));
        Flight { una, nxt, octets, pipe: nxt.since(una), delivered: MSS }
    }

    #[test]
    fn the_initial_window_follows_rfc_6928() {
        assert_eq!(Congestion::initial_window(1460, 10), 14600);
        assert_eq!(Congestion::initial_window(536, 10), 5360);
        assert_eq!(Congestion::initial_window(8960, 10), 17920);
    }

    // proves 9293-3.8.2-1
    #[test]
    fn slow_start_grows_by_what_is_acknowledged() {
        let mut congestion = congestion();
        assert_eq!(congestion.acknowledge(2 * MSS, flight(2001, 10_001, 10 * MSS)), Response::Proceed);
        assert_eq!(congestion.cwnd(), 12 * MSS);
        let _ = congestion.acknowledge(100 * MSS, flight(102_001, 110_001, 12 * MSS));
        assert_eq!(congestion.cwnd(), 20 * MSS);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut congestion = congestion();
        let _ = congestion.acknowledge(MSS, flight(1001, 1001, MSS));
        assert_eq!(congestion.cwnd(), 10 * MSS);
    }

    #[test]
    fn congestion_avoidance_grows_by_one_segment_a_window() {
        let mut congestion = congestion();
        congestion.timeout(flight(1, 20_001, 20 * MSS), false);
        assert_eq!((congestion.cwnd(), congestion.ssthresh()), (MSS, 10 * MSS));
        for _ in 0..9 {
            let _ = congestion.acknowledge(MSS, flight(30_001, 50_000, congestion.cwnd()));
        }
        assert_eq!(congestion.cwnd(), 10 * MSS);
        for _ in 0..10 {
            let _ = congestion.acknowledge(MSS, flight(40_001, 60_000, congestion.cwnd()));
        }
        assert_eq!(congestion.cwnd(), 11 * MSS);
    }

    #[test]
    fn two_duplicates_let_two_new_segments_go() {
        let mut congestion = congestion();
        for segments in [11, 12] {
            assert_eq!(congestion.duplicate(flight(1, 10_001, 10 * MSS), false), Response::Proceed);
            assert_eq!(congestion.window(), segments * MSS);
        }
        assert_eq!(congestion.cwnd(), 10 * MSS);
    }

    #[test]
    fn the_third_duplicate_enters_recovery_and_partial_acks_stay_in_it() {
        let mut congestion = congestion();
        let lost = flight(1, 10_001, 10 * MSS);
        let _ = congestion.duplicate(lost, false);
        let _ = congestion.duplicate(lost, false);
        assert_eq!(congestion.duplicate(lost, false), Response::RetransmitFirst);
        assert!(congestion.in_recovery());
        assert_eq!((congestion.ssthresh(), congestion.window()), (5 * MSS, 8 * MSS));
        assert_eq!(congestion.duplicate(lost, false), Response::Proceed);
        assert_eq!(congestion.window(), 9 * MSS);
        let partial = flight(3001, 10_001, 10 * MSS);
        assert_eq!(congestion.acknowledge(3 * MSS, partial), Response::RetransmitFirst);
        assert_eq!(congestion.window(), 7 * MSS);
        assert_eq!(congestion.acknowledge(7 * MSS, flight(10_001, 12_001, 7 * MSS)), Response::Proceed);
        assert!(!congestion.in_recovery());
        assert_eq!(congestion.cwnd(), 3 * MSS);
    }

    #[test]
    fn duplicates_of_a_repaired_loss_start_no_second_recovery() {
        let mut congestion = congestion();
        congestion.timeout(flight(1, 10_001, 10 * MSS), false);
        for _ in 0..5 {
            assert_eq!(congestion.duplicate(flight(5001, 10_001, 5 * MSS), false), Response::Proceed);
        }
        assert!(!congestion.in_recovery());
    }

    #[test]
    fn a_second_timeout_of_the_same_data_leaves_the_threshold() {
        let mut congestion = congestion();
        congestion.timeout(flight(1, 10_001, 10 * MSS), false);
        congestion.timeout(flight(1, 10_001, MSS), true);
        assert_eq!((congestion.cwnd(), congestion.ssthresh()), (MSS, 5 * MSS));
    }

    #[test]
    fn idleness_restarts_from_the_initial_window() {
        let mut congestion = congestion();
        let _ = congestion.acknowledge(8 * MSS, flight(8001, 10_001, 10 * MSS));
        congestion.restart(10 * MSS);
        assert_eq!(congestion.cwnd(), 10 * MSS);
    }
}
