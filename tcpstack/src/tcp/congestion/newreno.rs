//! NewReno's window (RFC 5681): one segment more a round trip, half after a loss.

/// The state of NewReno: what the next segment of growth has gathered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NewReno {
    /// Octets acknowledged since the window grew last.
    acknowledged: u32,
}

impl NewReno {
    /// Octets by which the window grows in congestion avoidance.
    #[inline]
    pub(crate) fn avoid(&mut self, acked: u32, cwnd: u32, mss: u32) -> u32 {
        self.acknowledged = self.acknowledged.saturating_add(acked);
        if self.acknowledged < cwnd {
            return 0;
        }
        self.acknowledged -= cwnd;
        mss
    }

    /// The window after a loss with `octets` in flight (RFC 5681 equation 4).
    pub(crate) fn reduce(&mut self, octets: u32) -> u32 {
        self.acknowledged = 0;
        octets / 2
    }

    /// Growth begins anew.
    pub(crate) fn restart(&mut self) {
        self.acknowledged = 0;
    }
}
