//! Which algorithm governs a connection's window: how it grows, and by how much it falls.

use super::cubic::Memory;
use super::{Cubic, Dctcp, Flight, NewReno, Window};
use crate::seq::SeqNumber;
use crate::time::Instant;

/// How a connection finds out how much the path takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681 and RFC 6582: the standard, slow on long fast paths.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 8257: for data centres whose switches mark early and whose hosts all speak it. It needs
    /// ECN, and changes how marks are echoed.
    Dctcp,
}

impl CongestionControl {
    /// The name in configurations and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Dctcp => "dctcp",
        }
    }
}

/// The state of an algorithm; a match instead of a table of functions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Algorithm {
    NewReno(NewReno),
    Cubic(Cubic),
    Dctcp(Dctcp),
}

impl Algorithm {
    pub(super) fn new(which: CongestionControl, una: SeqNumber) -> Self {
        match which {
            CongestionControl::NewReno => Self::NewReno(NewReno::default()),
            CongestionControl::Cubic => Self::Cubic(Cubic::default()),
            CongestionControl::Dctcp => Self::Dctcp(Dctcp::new(una)),
        }
    }

    pub(super) fn which(&self) -> CongestionControl {
        match self {
            Self::NewReno(_) => CongestionControl::NewReno,
            Self::Cubic(_) => CongestionControl::Cubic,
            Self::Dctcp(_) => CongestionControl::Dctcp,
        }
    }

    /// Sees each acknowledgment of something new, whatever else is going on.
    #[inline]
    pub(super) fn observe(&mut self, acked: u32, flight: &Flight) {
        if let Self::Dctcp(dctcp) = self {
            dctcp.observe(acked, flight);
        }
    }

    /// Octets by which the window grows in congestion avoidance.
    #[inline]
    pub(super) fn avoid(&mut self, window: &Window, acked: u32, flight: &Flight) -> u32 {
        match self {
            Self::NewReno(growth) | Self::Dctcp(Dctcp { growth, .. }) => {
                growth.avoid(acked, window.cwnd, window.mss)
            }
            Self::Cubic(cubic) => cubic.avoid(window, acked, flight),
        }
    }

    /// An acknowledgment while the application does not fill the window.
    #[inline]
    pub(super) fn pause(&mut self, now: Instant) {
        if let Self::Cubic(cubic) = self {
            cubic.pause(now);
        }
    }

    /// The threshold after a loss with `octets` in flight.
    pub(super) fn lose(&mut self, cwnd: u32, octets: u32) -> u32 {
        match self {
            Self::NewReno(growth) | Self::Dctcp(Dctcp { growth, .. }) => growth.reduce(octets),
            Self::Cubic(cubic) => cubic.reduce(cwnd, octets),
        }
    }

    /// The threshold after a congestion mark.
    pub(super) fn mark(&mut self, cwnd: u32, octets: u32) -> u32 {
        match self {
            Self::NewReno(_) | Self::Cubic(_) => self.lose(cwnd, octets),
            Self::Dctcp(dctcp) => dctcp.reduce_marked(cwnd),
        }
    }

    /// The threshold after a timeout.
    pub(super) fn time_out(&mut self, cwnd: u32, octets: u32) -> u32 {
        match self {
            Self::Cubic(cubic) => cubic.timeout(cwnd, octets),
            Self::NewReno(_) | Self::Dctcp(_) => self.lose(cwnd, octets),
        }
    }

    /// What a reduction is about to change, to be taken back maybe.
    pub(super) fn memory(&self) -> Memory {
        match self {
            Self::Cubic(cubic) => cubic.memory(),
            Self::NewReno(_) | Self::Dctcp(_) => Memory::default(),
        }
    }

    /// Takes back a reduction.
    pub(super) fn recall(&mut self, memory: Memory) {
        if let Self::Cubic(cubic) = self {
            cubic.recall(memory);
        }
    }

    /// The window was set anew by something else.
    pub(super) fn restart(&mut self) {
        match self {
            Self::NewReno(growth) | Self::Dctcp(Dctcp { growth, .. }) => growth.restart(),
            Self::Cubic(cubic) => cubic.restart(),
        }
    }
}
