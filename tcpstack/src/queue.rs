//! The frames that wait for the device: a bounded queue, emptied in bursts.

use std::collections::VecDeque;

use crate::device::{Burst, Device, Frame};

/// A bounded first-in first-out queue of frames to be transmitted.
#[derive(Debug)]
pub struct TransmitQueue<F> {
    /// Frames offered to the device that it has not taken yet; they go before the others.
    staged: Burst<F>,
    waiting: VecDeque<F>,
    limit: usize,
    refused: u64,
}

impl<F: Frame> TransmitQueue<F> {
    /// An empty queue for at most `limit` frames; all memory is taken here.
    pub fn new(limit: usize) -> Self {
        Self { staged: Burst::new(), waiting: VecDeque::with_capacity(limit), limit, refused: 0 }
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// The frame, when the queue is full; that is counted.
    pub fn push(&mut self, frame: F) -> Result<(), F> {
        if self.room() == 0 {
            self.refused += 1;
            return Err(frame);
        }
        self.waiting.push_back(frame);
        Ok(())
    }

    /// Hands frames to the device in bursts until the queue is empty or the device is full.
    ///
    /// Returns how many the device took.
    pub fn flush<D: Device<Frame = F>>(&mut self, device: &mut D) -> usize {
        let mut sent = 0;
        loop {
            let fill = self.staged.remaining_capacity().min(self.waiting.len());
            self.staged.extend(self.waiting.drain(..fill));
            let offered = self.staged.len();
            if offered == 0 {
                return sent;
            }
            device.transmit_burst(&mut self.staged);
            sent += offered - self.staged.len();
            if !self.staged.is_empty() {
                return sent;
            }
        }
    }

    /// Drops all frames.
    pub fn clear(&mut self) {
        self.staged.clear();
        self.waiting.clear();
    }

    /// Frames in the queue.
    pub fn len(&self) -> usize {
        self.staged.len() + self.waiting.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frames that still fit.
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    /// How often a frame was refused because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}
