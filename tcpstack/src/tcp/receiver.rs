//! The receive sequence space: data in order, frames beyond a gap, and the window.
//!
//! ```text
//!        released by the application
//!        |        in `ready` or with the application
//!        |        |          RCV.NXT       advertised edge
//!        v        v          v             v
//! ------ | ------ | -------- | - - [early] | ------
//!                  unreleased    window
//! ```
//!
//! Frames are kept as they came, trimmed by their windows, never copied. What the application
//! has not released stays taken from the window; the edge never moves back
//! (RFC 9293 section 3.8.6, with the silly window avoidance of 3.8.6.2.2). Early frames are
//! outside of this account: they are not acknowledged and may be dropped.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::options::{SACK_BLOCKS_MAX, SackBlock};
use crate::device::Frame;
use crate::seq::SeqNumber;

/// How many frames may be kept beyond gaps, and how many are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EarlyBudget {
    pub(crate) used: usize,
    pub(crate) total_max: usize,
    pub(crate) connection_max: usize,
}

/// What became of a segment's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// It was next in order; `news` when the peer waits to hear of it: early frames became due
    /// with it, or not all of it was inside the window.
    InOrder { octets: u32, news: bool },
    /// It is kept beyond a gap.
    Early,
    /// All of it had come before.
    Duplicate,
    /// Nothing of it is inside the window.
    OutOfWindow,
    /// There is no room for early frames.
    EarlyFull,
    /// The application has not fetched enough of what there is.
    Full,
}

/// A frame beyond a gap.
#[derive(Debug)]
struct Early<F> {
    seq: SeqNumber,
    frame: F,
}

impl<F: Frame> Early<F> {
    fn end(&self) -> SeqNumber {
        self.seq + len_of(&self.frame)
    }
}

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver<F> {
    /// RCV.NXT.
    pub(crate) nxt: SeqNumber,
    /// RCV.NXT + RCV.WND as last advertised.
    edge: SeqNumber,
    /// Octets before RCV.NXT that the application has not released.
    unreleased: u32,
    /// Most octets of the window.
    window_max: u32,
    /// How far the window must open before that is worth saying.
    step: u32,
    scale: u8,
    /// Frames in order, not fetched by the application.
    ready: VecDeque<F>,
    ready_max: usize,
    /// Frames beyond RCV.NXT in their order; they do not overlap.
    early: VecDeque<Early<F>>,
    /// What they cover, merged: `early` seen as SACK blocks, in their order.
    blocks: VecDeque<SackBlock>,
    /// Start of the segment that came last into `early`.
    newest: SeqNumber,
    /// The sequence number of the peer's FIN, once one was seen.
    fin: Option<SeqNumber>,
    /// Data that came twice, not yet told.
    duplicate: Option<SackBlock>,
}

impl<F: Frame> Receiver<F> {
    /// The receiver before the peer's SYN has come.
    pub(crate) fn new(window_max: u32, ready_max: usize) -> Self {
        Self {
            nxt: SeqNumber::default(),
            edge: SeqNumber::default(),
            unreleased: 0,
            window_max,
            step: window_max / 2,
            scale: 0,
            ready: VecDeque::new(),
            ready_max,
            early: VecDeque::new(),
            blocks: VecDeque::new(),
            newest: SeqNumber::default(),
            fin: None,
            duplicate: None,
        }
    }

    /// Takes the peer's SYN: `irs` is its sequence number, `mss` the one that we announce.
    pub(crate) fn synchronize(&mut self, irs: SeqNumber, mss: u32, scale: u8) {
        self.nxt = irs + 1;
        self.edge = self.nxt + self.syn_window().into();
        // No more than the field can say.
        self.window_max = self.window_max.min(u32::from(u16::MAX) << scale);
        self.step = (2 * mss).min(self.window_max / 2).max(1);
        self.scale = scale;
    }

    /// The window of a SYN, which is never scaled.
    pub(crate) fn syn_window(&self) -> u16 {
        u16::try_from(self.window_max).unwrap_or(u16::MAX)
    }

    /// The shift that lets 16 bits say `window_max`.
    pub(crate) fn scale_for(window_max: u32) -> u8 {
        (0..super::options::WINDOW_SCALE_MAX)
            .find(|shift| window_max >> shift <= u32::from(u16::MAX))
            .unwrap_or(super::options::WINDOW_SCALE_MAX)
    }

    /// RCV.WND: what the peer may send beyond RCV.NXT.
    pub(crate) fn window(&self) -> u32 {
        self.edge.since(self.nxt)
    }

    /// Whether the segment is where RFC 9293 section 3.4 wants it; `len` is SEG.LEN.
    pub(crate) fn is_acceptable(&self, seq: SeqNumber, len: u32) -> bool {
        let window = self.window();
        match (len, window) {
            (0, 0) => seq == self.nxt,
            (0, _) => seq.is_within(self.nxt, window),
            (_, 0) => false,
            _ => seq.is_within(self.nxt, window) || (seq + (len - 1)).is_within(self.nxt, window),
        }
    }

    /// Takes in-order data without a second look: the caller knows that they begin at RCV.NXT,
    /// fit the window and that nothing is early. Gives the frame back when the queue is full.
    #[inline]
    pub(crate) fn accept_next(&mut self, len: u32, frame: F) -> Result<(), F> {
        if self.ready.len() >= self.ready_max {
            return Err(frame);
        }
        self.nxt += len;
        self.unreleased += len;
        self.ready.push_back(frame);
        Ok(())
    }

    /// Takes the data of an acceptable segment: `frame` shows them, the first is `seq`.
    pub(crate) fn accept(&mut self, mut seq: SeqNumber, mut frame: F, budget: &mut EarlyBudget) -> Placement {
        let len = len_of(&frame);
        let old = self.nxt.since(seq);
        if old >= len {
            return Placement::Duplicate;
        }
        frame.trim_front(octets(old));
        seq += old;
        // Nothing beyond the window, and nothing beyond the end.
        let limit = self.fin.map_or(self.edge, |fin| self.edge.min(fin));
        frame.truncate(octets(limit.since(seq)));
        let cut = len_of(&frame) < len - old;
        let len = len_of(&frame);
        if len == 0 {
            return Placement::OutOfWindow;
        }
        if seq != self.nxt {
            return self.keep(seq, frame, budget);
        }
        if self.accept_next(len, frame).is_err() {
            return Placement::Full;
        }
        let filled = !self.early.is_empty();
        if filled {
            self.advance(budget);
        }
        Placement::InOrder { octets: len, news: filled || cut }
    }

    /// Notes the peer's FIN at `seq`; a second one at another place is ignored.
    pub(crate) fn note_fin(&mut self, seq: SeqNumber) {
        if self.fin.is_none() && seq.at_or_after(self.nxt) && seq.at_or_before(self.edge) {
            self.fin = Some(seq);
        }
    }

    /// Steps over the FIN when all data before it have come; true once.
    pub(crate) fn take_fin(&mut self) -> bool {
        if self.fin != Some(self.nxt) {
            return false;
        }
        self.nxt += 1;
        true
    }

    /// The next frame in order.
    pub(crate) fn fetch(&mut self) -> Option<F> {
        self.ready.pop_front()
    }

    /// The application has consumed `octets`; true when the peer should hear of it at once.
    // req 9293-3.8.6.1-2: nothing but this opens the window.
    pub(crate) fn release(&mut self, octets: u32) -> bool {
        self.unreleased = self.unreleased.saturating_sub(octets);
        self.update_due()
    }

    /// Whether the window has opened so far that the peer should be told now.
    pub(crate) fn update_due(&self) -> bool {
        let opened = self.target().since(self.edge);
        // As long as the peer has half of the window to use, an update can ride on an ACK.
        opened >= self.step && (opened >= self.window_max / 2 || self.window() < self.window_max / 2)
    }

    /// The window field for a segment that is being sent; moves the edge.
    #[inline]
    // req 9293-3.8.6-1
    // req 9293-3.8.6.2.2-1
    pub(crate) fn advertise(&mut self) -> u16 {
        let target = self.target();
        let edge = if target.since(self.edge) >= self.step { target } else { self.edge };
        let field = u16::try_from(edge.since(self.nxt) >> self.scale).unwrap_or(u16::MAX);
        // The shift rounds down, so the peer may see a little less than we accept.
        self.edge = self.edge.max(self.nxt + (u32::from(field) << self.scale));
        field
    }

    /// Notes that data came again, to be told once (RFC 2883 section 4).
    pub(crate) fn note_duplicate(&mut self, seq: SeqNumber, len: u32) {
        self.duplicate = Some(SackBlock { start: seq, end: seq + len });
    }

    /// Whether there is something for the SACK option.
    pub(crate) fn has_reports(&self) -> bool {
        self.has_gap() || self.duplicate.is_some()
    }

    /// The blocks of the SACK option: what came twice, then the early data.
    pub(crate) fn take_reports(&mut self) -> ArrayVec<SackBlock, SACK_BLOCKS_MAX> {
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

    /// The early data for the SACK option, the newest block first (RFC 2018 section 4).
    fn sack_blocks(&self) -> ArrayVec<SackBlock, SACK_BLOCKS_MAX> {
        let holds_newest =
            |block: &&SackBlock| block.start.at_or_before(self.newest) && self.newest.before(block.end);
        let first = self.blocks.iter().find(holds_newest);
        let others = self.blocks.iter().filter(|block| !holds_newest(block));
        first.into_iter().chain(others).take(SACK_BLOCKS_MAX).copied().collect()
    }

    /// Whether frames wait beyond a gap.
    #[inline]
    pub(crate) fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether the end of the peer's data is known.
    #[inline]
    pub(crate) fn fin_seen(&self) -> bool {
        self.fin.is_some()
    }

    /// Most octets of the window.
    pub(crate) fn window_max(&self) -> u32 {
        self.window_max
    }

    /// Octets that the application has not released.
    pub(crate) fn unreleased(&self) -> u32 {
        self.unreleased
    }

    /// Drops the early frames: nothing will fill the gap any more.
    pub(crate) fn discard_early(&mut self, budget: &mut EarlyBudget) {
        budget.used -= self.early.len();
        self.early.clear();
        self.blocks.clear();
    }

    /// The edge that the free space allows.
    #[inline]
    fn target(&self) -> SeqNumber {
        self.nxt + self.window_max.saturating_sub(self.unreleased)
    }

    /// Keeps a frame beyond a gap, less what is there already.
    // req 9293-3.10.7.4-3
    fn keep(&mut self, mut seq: SeqNumber, mut frame: F, budget: &mut EarlyBudget) -> Placement {
        let at = self.early.partition_point(|early| early.seq.at_or_before(seq));
        if let Some(before) = at.checked_sub(1).and_then(|before| self.early.get(before)) {
            let overlap = before.end().since(seq);
            if overlap >= len_of(&frame) {
                return Placement::Duplicate;
            }
            frame.trim_front(octets(overlap));
            seq += overlap;
        }
        let end = seq + len_of(&frame);
        // Frames behind it that it covers give way to it; one that it overlaps keeps its part.
        while self.early.get(at).is_some_and(|after| after.end().at_or_before(end)) {
            self.early.remove(at);
            budget.used -= 1;
        }
        if let Some(after) = self.early.get(at) {
            frame.truncate(octets(after.seq.since(seq)));
            if len_of(&frame) == 0 {
                return Placement::Duplicate;
            }
        }
        if budget.used >= budget.total_max || self.early.len() >= budget.connection_max {
            // Had it covered another one, there would be room: nothing is lost here but itself.
            return Placement::EarlyFull;
        }
        let end = seq + len_of(&frame);
        if at == self.early.len() {
            self.early.push_back(Early { seq, frame });
        } else {
            self.early.insert(at, Early { seq, frame });
        }
        budget.used += 1;
        self.newest = seq;
        self.cover(SackBlock { start: seq, end });
        Placement::Early
    }

    /// Moves the early frames that are due to `ready`.
    fn advance(&mut self, budget: &mut EarlyBudget) {
        while let Some(early) = self.early.front()
            && early.seq.at_or_before(self.nxt)
        {
            let Some(Early { seq, mut frame }) = self.early.pop_front() else { return };
            budget.used -= 1;
            let old = self.nxt.since(seq);
            let len = len_of(&frame);
            if old >= len {
                continue;
            }
            frame.trim_front(octets(old));
            self.nxt += len - old;
            self.unreleased += len - old;
            self.ready.push_back(frame);
        }
        while self.blocks.front().is_some_and(|block| block.end.at_or_before(self.nxt)) {
            self.blocks.pop_front();
        }
        if let Some(block) = self.blocks.front_mut() {
            block.start = block.start.max(self.nxt);
        }
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

fn len_of<F: Frame>(frame: &F) -> u32 {
    u32::try_from(frame.bytes().len()).expect("a frame is shorter than 4 GiB")
}

fn octets(len: u32) -> usize {
    len as usize
}

#[cfg(test)]
mod tests;
