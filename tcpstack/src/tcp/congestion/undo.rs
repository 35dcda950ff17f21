//! Taking back what a loss did that was none.
//!
//! Eifel (RFC 3522, RFC 4015): the first acknowledgment of something sent again tells by its
//! timestamp which of the two it answers: an echo older than the repetition is the original's.
//! D-SACK (RFC 2883, RFC 3708): all that was sent again arrived twice. That comes a round trip
//! later, but holds for paths whose round trips are shorter than a tick of the timestamp clock.

use super::cubic::Memory;
use super::{Congestion, Flight, Phase, Window};
use crate::seq::SeqNumber;
use crate::tcp::options::SackBlock;

/// What was before a reduction that may turn out to be wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    cwnd: u32,
    ssthresh: u32,
    recover: SeqNumber,
    memory: Memory,
    /// Whether a timeout was the cause.
    timeout: bool,
    /// An acknowledgment has come that could prove it by its timestamp.
    answered: bool,
    /// TSval of the first repetition, once it was sent.
    stamp: Option<u32>,
    /// Octets sent again.
    repeated: u32,
    /// Octets of them that came twice.
    twice: u32,
    /// SND.UNA at the reduction: what was sent again lies between here and the recovery point.
    from: SeqNumber,
    /// All of that was acknowledged, when SND.NXT was `until`: reports may come up to there.
    repaired: bool,
    until: SeqNumber,
}

impl Undo {
    /// Whether an acknowledgment that echoes `echoed` answers what was sent first.
    ///
    /// One in the same tick of the clock may answer either, which is no proof.
    fn is_proved(&self, echoed: Option<u32>) -> bool {
        let (Some(stamp), Some(echoed)) = (self.stamp, echoed) else { return false };
        SeqNumber::new(echoed).before(SeqNumber::new(stamp))
    }

    fn all_came_twice(&self) -> bool {
        self.repeated > 0 && self.twice >= self.repeated
    }
}

/// The D-SACK of an acknowledgment, if its first block is one (RFC 2883 section 4).
pub(crate) fn arrived_twice(blocks: &[SackBlock], ack: SeqNumber) -> Option<SackBlock> {
    let first = *blocks.first()?;
    let is_within =
        |block: &SackBlock| first.start.at_or_after(block.start) && first.end.at_or_before(block.end);
    let reports = first.end.at_or_before(ack) || blocks.get(1).is_some_and(is_within);
    (reports && first.start.before(first.end)).then_some(first)
}

impl Congestion {
    /// `octets` were sent again, at `stamp` of the timestamp clock.
    pub fn repeated(&mut self, octets: u32, stamp: Option<u32>) {
        if let Some(undo) = &mut self.undo {
            undo.repeated = undo.repeated.saturating_add(octets);
            undo.stamp = undo.stamp.or(stamp);
        }
    }

    /// A block arrived twice. `Some` when that was the last of what was sent again: nothing was
    /// lost; true when a timeout had seemed to tell of it.
    #[cold]
    pub fn arrived_twice(&mut self, block: SackBlock) -> Option<bool> {
        let undo = self.undo.as_mut()?;
        if block.start.before(undo.from) || block.end.after(self.recover) {
            return None;
        }
        undo.twice = undo.twice.saturating_add(block.end.since(block.start));
        // A recovery ends first.
        if self.phase == Phase::Open { self.restore() } else { None }
    }

    /// Keeps what is about to be changed.
    pub(super) fn remember(&mut self, timeout: bool, flight: &Flight) {
        // A window that is falling already is none to come back to.
        if self.phase != Phase::Open {
            self.undo = None;
            return;
        }
        let Window { cwnd, ssthresh, .. } = self.window;
        self.undo = Some(Box::new(Undo {
            cwnd,
            ssthresh,
            recover: self.recover,
            memory: self.algorithm.memory(),
            timeout,
            answered: false,
            stamp: None,
            repeated: 0,
            twice: 0,
            from: flight.una,
            repaired: false,
            until: flight.nxt,
        }));
    }

    /// An acknowledgment of something new. `Some` when its timestamp proves that nothing was lost,
    /// and the window is as before; true when a timeout had seemed to tell of it.
    #[cold]
    pub(super) fn settle(&mut self, acked: u32, flight: &Flight) -> Option<bool> {
        let undo = self.undo.as_mut()?;
        if flight.echo {
            // Where there are marks, there was congestion whatever else turns out.
            self.undo = None;
            return None;
        }
        // Only the first one after the repetition tells.
        if undo.stamp.is_some() && !undo.answered {
            undo.answered = true;
            if undo.is_proved(flight.echoed) {
                return Some(self.take_back(acked, flight));
            }
        }
        if undo.repaired && flight.una.at_or_after(undo.until) {
            self.undo = None;
        } else if !undo.repaired && flight.una.at_or_after(self.recover) {
            (undo.repaired, undo.until) = (true, flight.nxt);
        }
        None
    }

    /// If all that was sent again came twice: the window grows to where it was, without a burst.
    pub(super) fn restore(&mut self) -> Option<bool> {
        let undo = self.undo.take_if(|undo| undo.all_came_twice())?;
        self.window.ssthresh = self.window.ssthresh.max(undo.ssthresh).max(undo.cwnd);
        self.algorithm.recall(undo.memory);
        Some(undo.timeout)
    }

    fn take_back(&mut self, acked: u32, flight: &Flight) -> bool {
        let Some(undo) = self.undo.take() else { return false };
        // RFC 4015 section 3.2 step 8: no burst.
        let outstanding = flight.nxt.since(flight.una);
        let cwnd = undo.cwnd.min(outstanding.saturating_add(acked.max(self.initial)));
        let ssthresh = if cwnd < undo.cwnd { undo.ssthresh.max(undo.cwnd) } else { undo.ssthresh };
        self.window.ssthresh = ssthresh;
        self.window.set(cwnd);
        self.algorithm.recall(undo.memory);
        self.recover = undo.recover;
        (self.phase, self.reduced) = (Phase::Open, false);
        undo.timeout
    }
}
