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
//! outside of this account: they are not acknowledged and may be dropped. `tuning` lets the window
//! grow.

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::options::{SACK_BLOCKS_MAX, SackBlock};
use crate::device::Frame;
use crate::seq::SeqNumber;
use early::Early;
use tuning::Round;

mod early;
mod tuning;

pub(crate) use tuning::WindowBudget;

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

/// The receiving half of a connection.
#[derive(Debug)]
pub(crate) struct Receiver<F> {
    /// RCV.NXT.
    pub(crate) nxt: SeqNumber,
    /// RCV.NXT + RCV.WND as last advertised.
    edge: SeqNumber,
    /// Octets before RCV.NXT that the application has not released.
    unreleased: u32,
    /// Most octets of the window, now; it grows with each good round, up to `limit`.
    window_max: u32,
    limit: u32,
    /// By how much it has grown.
    grown: u32,
    round: Round,
    /// How far the window must open before that is worth saying.
    step: u32,
    scale: u8,
    /// Whether there are frames beyond a gap.
    gap: bool,
    /// Frames in order, not fetched by the application.
    ready: VecDeque<F>,
    ready_max: u32,
    /// The sequence number of the peer's FIN, once one was seen.
    fin: Option<SeqNumber>,
    /// What came out of order; most connections never need it.
    early: Option<Box<Early<F>>>,
}

impl<F: Frame> Receiver<F> {
    /// The receiver before the peer's SYN has come.
    pub(crate) fn new(window_max: u32, limit: u32, ready_max: usize) -> Self {
        Self {
            nxt: SeqNumber::default(),
            edge: SeqNumber::default(),
            unreleased: 0,
            window_max,
            limit,
            grown: 0,
            round: Round::default(),
            step: window_max / 2,
            scale: 0,
            gap: false,
            ready: VecDeque::new(),
            ready_max: u32::try_from(ready_max).unwrap_or(u32::MAX),
            fin: None,
            early: None,
        }
    }

    /// Takes the peer's SYN: `irs` is its sequence number, `mss` the one that we announce.
    pub(crate) fn synchronize(&mut self, irs: SeqNumber, mss: u32, scale: u8) {
        self.nxt = irs + 1;
        self.edge = self.nxt + self.syn_window().into();
        // No more than the field can say.
        self.limit = self.limit.min(u32::from(u16::MAX) << scale);
        self.window_max = self.window_max.min(self.limit);
        (self.round.released, self.round.edge) = (self.nxt, self.nxt);
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
        if self.ready.len() >= self.ready_max as usize {
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
            let placement = self.early.get_or_insert_default().keep(seq, frame, budget);
            self.gap |= placement == Placement::Early;
            return placement;
        }
        if self.accept_next(len, frame).is_err() {
            return Placement::Full;
        }
        let filled = self.gap;
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
        self.early.get_or_insert_default().duplicate = Some(SackBlock { start: seq, end: seq + len });
    }

    /// Whether there is something for the SACK option.
    pub(crate) fn has_reports(&self) -> bool {
        self.early.as_ref().is_some_and(|early| early.has_reports())
    }

    /// The blocks of the SACK option: what came twice, then the early data.
    pub(crate) fn take_reports(&mut self) -> ArrayVec<SackBlock, SACK_BLOCKS_MAX> {
        self.early.as_mut().map_or_else(ArrayVec::new, |early| early.take_reports())
    }

    /// Whether frames wait beyond a gap.
    #[inline]
    pub(crate) fn has_gap(&self) -> bool {
        self.gap
    }

    /// Whether the end of the peer's data is known.
    #[inline]
    pub(crate) fn fin_seen(&self) -> bool {
        self.fin.is_some()
    }

    /// Most octets that the window may come to.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Octets that the application has not released.
    pub(crate) fn unreleased(&self) -> u32 {
        self.unreleased
    }

    /// Gives back the memory of queues that are empty.
    pub(crate) fn trim(&mut self) {
        self.ready.shrink_to_fit();
        self.early.take_if(|early| !early.has_reports());
    }

    /// Octets of the heap for the queues, their frames not included.
    pub(crate) fn octets(&self) -> usize {
        self.ready.capacity() * size_of::<F>() + self.early.as_deref().map_or(0, Early::octets)
    }

    /// Drops the early frames, and the memory that was kept for more: nothing will come any more.
    pub(crate) fn discard_early(&mut self, budget: &mut EarlyBudget, windows: &mut WindowBudget) {
        windows.used -= u64::from(core::mem::take(&mut self.grown));
        if let Some(early) = self.early.take() {
            budget.used -= early.len();
        }
        self.gap = false;
    }

    /// The edge that the free space allows.
    #[inline]
    fn target(&self) -> SeqNumber {
        self.nxt + self.window_max.saturating_sub(self.unreleased)
    }

    /// Moves the early frames that are due to `ready`.
    fn advance(&mut self, budget: &mut EarlyBudget) {
        let Some(early) = &mut self.early else { return };
        while let Some(frame) = early.take_due(self.nxt, budget) {
            let len = len_of(&frame);
            self.nxt += len;
            self.unreleased += len;
            self.ready.push_back(frame);
        }
        early.uncover(self.nxt);
        self.gap = early.len() > 0;
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
