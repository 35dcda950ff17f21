//! Stream octets in the segments they came in, until their FPDU is whole.

use std::collections::VecDeque;

use super::Segment;

/// Most segments that one incomplete FPDU may keep: an FPDU of 16 KiB over frames of 1500
/// octets. Beyond that its octets are copied, so that a peer that sends single octets does
/// not hold the receiver's frames.
pub(super) const SEGMENTS_MAX: usize = 16;

/// Octets in stream order: those spilled, then those of the segments but for the first
/// `skip`.
#[derive(Debug)]
pub(super) struct Held<B> {
    /// Empty, or part of an FPDU whose rest is in the segments or has yet to come.
    spilled: Vec<u8>,
    segments: VecDeque<B>,
    /// `skip <` length of the first segment, or 0 if there is none.
    skip: usize,
    /// All octets: `spilled` and segments without `skip`.
    len: usize,
}

impl<B: Segment> Held<B> {
    pub(super) const fn new() -> Self {
        Self { spilled: Vec::new(), segments: VecDeque::new(), skip: 0, len: 0 }
    }

    /// Appends a segment without its first `skip` octets; some are only left out of the first one.
    pub(super) fn push(&mut self, segment: B, skip: usize) {
        debug_assert!(skip == 0 || self.len == 0, "nothing is left out in the middle");
        let len = segment.octets().len() - skip;
        if len > 0 {
            self.skip += skip;
            self.len += len;
            self.segments.push_back(segment);
        }
    }

    /// Drops the first `count` octets, and the segments that end with them.
    ///
    /// `count` is 0 or reaches beyond what is spilled: whole FPDUs are consumed.
    pub(super) fn consume(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.len -= count;
        self.skip += count - self.spilled.len();
        self.spilled = Vec::new();
        while let Some(first) = self.segments.front() {
            let len = first.octets().len();
            if self.skip < len {
                return;
            }
            self.skip -= len;
            self.segments.pop_front();
        }
    }

    /// Copies all octets out of the segments and drops those, if they are too many.
    ///
    /// Only for when all octets are of one FPDU that is not whole.
    pub(super) fn bound(&mut self) {
        if self.segments.len() <= SEGMENTS_MAX {
            return;
        }
        for segment in self.segments.drain(..) {
            self.spilled.extend_from_slice(&segment.octets()[self.skip..]);
            self.skip = 0;
        }
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The first `count` octets, if they are in one place.
    #[inline]
    pub(super) fn contiguous(&self, count: usize) -> Option<&[u8]> {
        if !self.spilled.is_empty() {
            return None;
        }
        self.segments.front()?.octets()[self.skip..].get(..count)
    }

    /// The octets from `at` to the end of the place they are in, at most `max`; there are some.
    pub(super) fn run(&self, at: usize, max: usize) -> &[u8] {
        let rest = self.rest(at);
        &rest[..rest.len().min(max)]
    }

    /// Copies the octets from `at` on; they are there.
    pub(super) fn gather(&self, mut at: usize, mut out: &mut [u8]) {
        while !out.is_empty() {
            let run = self.run(at, out.len());
            let (head, tail) = out.split_at_mut(run.len());
            head.copy_from_slice(run);
            at += run.len();
            out = tail;
        }
    }

    /// Looks from the front each time: an FPDU is in few places.
    fn rest(&self, mut at: usize) -> &[u8] {
        if let Some(rest) = self.spilled.get(at..)
            && !rest.is_empty()
        {
            return rest;
        }
        at = at - self.spilled.len() + self.skip;
        for segment in &self.segments {
            let octets = segment.octets();
            if let Some(rest) = octets.get(at..)
                && !rest.is_empty()
            {
                return rest;
            }
            at -= octets.len();
        }
        panic!("only octets that are held are asked for");
    }
}
