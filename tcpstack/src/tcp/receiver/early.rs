//! What came out of order: frames beyond a gap, and what SACK reports of them.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::{EarlyBudget, Placement, len_of, octets};
use crate::device::Frame;
use crate::seq::SeqNumber;
use crate::tcp::options::{SACK_BLOCKS_MAX, SackBlock};

/// A frame beyond a gap.
#[derive(Debug)]
pub(super) struct Kept<F> {
    pub(super) seq: SeqNumber,
    frame: F,
}

impl<F: Frame> Kept<F> {
    pub(super) fn end(&self) -> SeqNumber {
        self.seq + len_of(&self.frame)
    }
}

/// What came out of order.
#[derive(Debug)]
pub(super) struct Early<F> {
    /// Frames beyond RCV.NXT in their order; they do not overlap.
    pub(super) frames: VecDeque<Kept<F>>,
    /// What they cover, merged: `frames` seen as SACK blocks, in their order.
    pub(super) blocks: VecDeque<SackBlock>,
    /// Start of the segment that came last into `frames`.
    newest: SeqNumber,
    /// Data that came twice, not yet told.
    pub(super) duplicate: Option<SackBlock>,
}

impl<F> Default for Early<F> {
    fn default() -> Self {
        Self {
            frames: VecDeque::new(),
            blocks: VecDeque::new(),
            newest: SeqNumber::default(),
            duplicate: None,
        }
    }
}

impl<F: Frame> Early<F> {
    /// Keeps a frame beyond a gap, less what is there already.
    // req 9293-3.10.7.4-3
    pub(super) fn keep(&mut self, mut seq: SeqNumber, mut frame: F, budget: &mut EarlyBudget) -> Placement {
        let at = self.frames.partition_point(|kept| kept.seq.at_or_before(seq));
        if let Some(before) = at.checked_sub(1).and_then(|before| self.frames.get(before)) {
            let overlap = before.end().since(seq);
            if overlap >= len_of(&frame) {
                return Placement::Duplicate;
            }
            frame.trim_front(octets(overlap));
            seq += overlap;
        }
        let end = seq + len_of(&frame);
        // Frames behind it that it covers give way to it; one that it overlaps keeps its part.
        while self.frames.get(at).is_some_and(|after| after.end().at_or_before(end)) {
            self.frames.remove(at);
            budget.used -= 1;
        }
        if let Some(after) = self.frames.get(at) {
            frame.truncate(octets(after.seq.since(seq)));
            if len_of(&frame) == 0 {
                return Placement::Duplicate;
            }
        }
        if budget.used >= budget.total_max || self.frames.len() >= budget.connection_max {
            // Had it covered another one, there would be room: nothing is lost here but itself.
            return Placement::EarlyFull;
        }
        let end = seq + len_of(&frame);
        if at == self.frames.len() {
            self.frames.push_back(Kept { seq, frame });
        } else {
            self.frames.insert(at, Kept { seq, frame });
        }
        budget.used += 1;
        self.newest = seq;
        self.cover(SackBlock { start: seq, end });
        Placement::Early
    }

    /// The next frame that begins at or before `nxt`, less what lies before it.
    pub(super) fn take_due(&mut self, nxt: SeqNumber, budget: &mut EarlyBudget) -> Option<F> {
        while let Some(Kept { seq, mut frame }) = self.frames.pop_front_if(|kept| kept.seq.at_or_before(nxt))
        {
            budget.used -= 1;
            let old = nxt.since(seq);
            if old < len_of(&frame) {
                frame.trim_front(octets(old));
                return Some(frame);
            }
        }
        None
    }

    /// RCV.NXT has moved to `nxt`: what lies before it is reported no more.
    pub(super) fn uncover(&mut self, nxt: SeqNumber) {
        while self.blocks.front().is_some_and(|block| block.end.at_or_before(nxt)) {
            self.blocks.pop_front();
        }
        if let Some(block) = self.blocks.front_mut() {
            block.start = block.start.max(nxt);
        }
    }

    /// The blocks of the SACK option: what came twice, then the early data.
    pub(super) fn take_reports(&mut self) -> ArrayVec<SackBlock, SACK_BLOCKS_MAX> {
        let blocks = self.sack_blocks();
        match self.duplicate.take() {
            None => blocks,
            // The block that it lies in, if there is one, must be the next (RFC 2883 section 4.2).
            Some(twice) => {
                let holds = |block: &&SackBlock| {
                    block.start.at_or_before(twice.start) && twice.end.at_or_before(block.end)
                };
                let within = blocks.iter().filter(holds);
                let others = blocks.iter().filter(|block| !holds(block));
                let all = core::iter::once(&twice).chain(within).chain(others);
                all.take(SACK_BLOCKS_MAX).copied().collect()
            }
        }
    }

    /// Whether there is something for the SACK option.
    pub(super) fn has_reports(&self) -> bool {
        !self.frames.is_empty() || self.duplicate.is_some()
    }

    /// Octets of the heap, frames not included.
    pub(super) fn octets(&self) -> usize {
        size_of::<Self>()
            + self.frames.capacity() * size_of::<Kept<F>>()
            + self.blocks.capacity() * size_of::<SackBlock>()
    }

    /// Frames kept.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// The early data for the SACK option, the newest block first (RFC 2018 section 4).
    fn sack_blocks(&self) -> ArrayVec<SackBlock, SACK_BLOCKS_MAX> {
        let holds_newest =
            |block: &&SackBlock| block.start.at_or_before(self.newest) && self.newest.before(block.end);
        let first = self.blocks.iter().find(holds_newest);
        let others = self.blocks.iter().filter(|block| !holds_newest(block));
        first.into_iter().chain(others).take(SACK_BLOCKS_MAX).copied().collect()
    }

    /// Merges `new` into the blocks.
    fn cover(&mut self, new: SackBlock) {
        let mut at = self.blocks.partition_point(|block| block.end.before(new.start));
        let mut merged = new;
        while let Some(block) = self.blocks.get(at)
            && block.start.at_or_before(merged.end)
        {
            merged = SackBlock { start: merged.start.min(block.start), end: merged.end.max(block.end) };
            // The usual case, a block that grows, changes it in place.
            let swallows_next =
                self.blocks.get(at + 1).is_some_and(|next| next.start.at_or_before(merged.end));
            if !swallows_next {
                self.blocks[at] = merged;
                return;
            }
            self.blocks.remove(at);
        }
        at = at.min(self.blocks.len());
        self.blocks.insert(at, merged);
    }
}
