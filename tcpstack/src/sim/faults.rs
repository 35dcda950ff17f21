//! What can go wrong on a simulated wire, and how often.

use core::time::Duration;
use std::collections::VecDeque;

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use super::bottleneck::Bottleneck;

/// A probability in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);
    /// Each time.
    pub const ALWAYS: Self = Self(1_000_000);

    /// `ppm` in a million.
    pub const fn ppm(ppm: u32) -> Self {
        Self(ppm)
    }

    /// `percent` in a hundred.
    pub const fn percent(percent: u32) -> Self {
        Self(percent * 10_000)
    }

    /// One throw; takes no decision when the outcome is certain.
    pub(crate) fn strikes(self, decisions: &mut Decisions) -> bool {
        match self.0 {
            0 => false,
            1_000_000.. => true,
            _ if decisions.are_over() => false,
            ppm => decisions.below(1_000_000) < u64::from(ppm),
        }
    }
}

/// Loss in bursts (Gilbert and Elliott's model): in the bad state everything is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstLoss {
    /// Chance per frame to enter the bad state.
    pub enter: Chance,
    /// Chance per frame to leave it.
    pub leave: Chance,
}

/// Periods in which a direction of the wire swallows everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outages {
    /// From the start of one to the start of the next.
    pub every: Duration,
    /// How long each lasts; shorter than `every`.
    pub lasting: Duration,
}

/// The properties and faults of one direction of a wire. The default is perfect and instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Time from the last bit sent to the last bit received.
    pub delay: Duration,
    /// Up to this much more, frame by frame, without changing their order.
    pub jitter: Duration,
    /// Speed of the link, in bits a second; unlimited without.
    pub bandwidth: Option<u64>,
    /// A router with a slower link on the way.
    pub bottleneck: Option<Bottleneck>,
    /// Frames that can be underway at once; more are dropped.
    pub queue_limit: Option<usize>,
    /// Frames longer than this (link header included) vanish.
    pub frame_len_max: Option<usize>,
    /// A router reports the TCP segments that vanish so to their sender by ICMP.
    pub report_too_long: bool,
    /// Loss of single frames.
    pub loss: Chance,
    /// Loss in bursts.
    pub burst_loss: Option<BurstLoss>,
    /// Loss of a frame behind which the sender has queued no other.
    pub tail_loss: Chance,
    /// Periods in which all is lost.
    pub outages: Option<Outages>,
    /// Frames that are overtaken by up to `reorder_delay` worth of others.
    pub reorder: Chance,
    /// Greatest extra delay of a reordered frame.
    pub reorder_delay: Duration,
    /// Frames that arrive twice.
    pub duplicate: Chance,
    /// Frames in whose wake an old frame, maybe of another connection, arrives again.
    pub replay: Chance,
    /// Frames with one bit turned and all checksums left as they were.
    pub corrupt: Chance,
    /// TCP segments with one bit of payload turned and the TCP checksum made to fit.
    pub corrupt_repaired: Chance,
    /// TCP segments that a middlebox cuts in two.
    pub resegment: Chance,
    /// Calls for a fresh frame that fail as if the pool were empty.
    pub allocate_failure: Chance,
    /// Bursts of which the port takes only a part, as if its ring were full.
    pub transmit_refusal: Chance,
}

impl Faults {
    /// A direction with this delay and bandwidth, and no faults.
    pub fn link(delay: Duration, bandwidth: u64) -> Self {
        Self { delay, bandwidth: Some(bandwidth), ..Self::default() }
    }

    /// The same link without what makes frames get lost or change.
    pub fn without_faults(&self) -> Self {
        let Self { delay, jitter, bandwidth, bottleneck, .. } = *self;
        Self { delay, jitter, bandwidth, bottleneck, ..Self::default() }
    }
}

/// Where a wire's decisions come from.
#[derive(Clone, Debug)]
pub(crate) enum Decisions {
    Seeded(Box<ChaCha8Rng>),
    /// An octet each; when they run out nothing goes wrong any more.
    Given(VecDeque<u8>),
}

impl Decisions {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded(Box::new(ChaCha8Rng::seed_from_u64(seed)))
    }

    fn are_over(&self) -> bool {
        matches!(self, Self::Given(octets) if octets.is_empty())
    }

    /// A number in `0..bound`; the bias does not matter here.
    fn below(&mut self, bound: u64) -> u64 {
        match self {
            Self::Seeded(rng) => rng.next_u64() % bound.max(1),
            // In proportion: a small octet is a small number.
            Self::Given(octets) => bound.saturating_mul(octets.pop_front().unwrap_or(0).into()) >> 8,
        }
    }

    /// An index into a slice of `len > 0` elements.
    pub(crate) fn index_below(&mut self, len: usize) -> usize {
        let bound = u64::try_from(len).expect("a length fits u64");
        usize::try_from(self.below(bound)).expect("less than a usize")
    }

    /// A time in `0..=longest`.
    pub(crate) fn up_to(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX - 1);
        if nanos == 0 { Duration::ZERO } else { Duration::from_nanos(self.below(nanos + 1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_decisions_are_in_proportion_and_then_nothing_goes_wrong() {
        let mut decisions = Decisions::Given(VecDeque::from([31, 32, 0, 255, 128]));
        let eighth = Chance::ppm(125_000);
        assert!(eighth.strikes(&mut decisions));
        assert!(!eighth.strikes(&mut decisions));
        assert!(!Chance::NEVER.strikes(&mut decisions) && Chance::ALWAYS.strikes(&mut decisions));
        assert_eq!([decisions.index_below(10), decisions.index_below(10)], [0, 9]);
        assert_eq!(decisions.up_to(Duration::from_nanos(99)), Duration::from_nanos(50));
        assert!(!eighth.strikes(&mut decisions));
        assert_eq!((decisions.index_below(10), decisions.up_to(Duration::MAX)), (0, Duration::ZERO));
    }
}
