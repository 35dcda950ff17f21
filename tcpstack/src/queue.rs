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
    sent: u64,
}

impl<F: Frame> TransmitQueue<F> {
    /// An empty queue for at most `limit` frames; all memory is taken here.
    pub fn new(limit: usize) -> Self {
        Self { staged: Burst::new(), waiting: VecDeque::with_capacity(limit), limit, refused: 0, sent: 0 }
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// The frame, when the queue is full; that is counted.
    #[inline]
    pub fn push(&mut self, frame: F) -> Result<(), F> {
        if self.room() == 0 {
            self.refused += 1;
            return Err(frame);
        }
        if self.waiting.is_empty() && !self.staged.is_full() {
            self.staged.push(frame);
        } else {
            self.waiting.push_back(frame);
        }
        Ok(())
    }

    /// Whether the frame pushed last made a whole burst, which the device may as well have now,
    /// while its octets are in the nearest cache.
    #[inline]
    pub fn is_burst(&self) -> bool {
        self.staged.is_full() && self.waiting.is_empty()
    }

    /// Hands frames to the device in bursts until the queue is empty or the device is full.
    ///
    /// Returns how many the device took.
    pub fn flush<D: Device<Frame = F>>(&mut self, device: &mut D) -> usize {
        let mut sent = 0;
        while !self.is_empty() {
            let fill = self.staged.remaining_capacity().min(self.waiting.len());
            if fill > 0 {
                self.staged.extend(self.waiting.drain(..fill));
            }
            let offered = self.staged.len();
            device.transmit_burst(&mut self.staged);
            sent += offered - self.staged.len();
            if !self.staged.is_empty() {
                break;
            }
        }
        self.sent += sent as u64;
        sent
    }

    /// How many frames the device took, ever.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Drops all frames.
    pub fn clear(&mut self) {
        self.staged.clear();
        self.waiting.clear();
    }

    /// Frames in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.staged.len() + self.waiting.len()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frames that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    /// How often a frame was refused because the queue was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Faults, PortConfig, SimDevice, SimFrame, Wire};
    use crate::time::Instant;

    fn bench(transmit_ring: usize) -> (Wire, SimDevice, SimDevice) {
        let wire = Wire::new(1, Faults::default());
        let mut config = PortConfig::new(0);
        config.transmit_ring = transmit_ring;
        (wire.clone(), wire.add_port(config), wire.port(1))
    }

    fn numbered(device: &mut SimDevice, number: u8) -> SimFrame {
        let mut frame = device.allocate().unwrap();
        frame.push_back(60);
        frame.bytes_mut().fill(number);
        frame
    }

    #[test]
    fn frames_leave_in_order_whatever_the_device_takes() {
        let (wire, mut device, mut peer) = bench(5);
        let mut queue = TransmitQueue::new(100);
        for number in 0..100 {
            queue.push(numbered(&mut device, number)).unwrap();
            assert_eq!(queue.is_burst(), number == 31);
        }
        let mut received = Vec::new();
        while !queue.is_empty() {
            assert_eq!(queue.flush(&mut device), 5);
            wire.advance(Instant::ZERO);
            let mut burst = Burst::new();
            peer.receive_burst(&mut burst);
            received.extend(burst.iter().map(|frame| frame.bytes()[0]));
        }
        assert_eq!(received, (0..100).collect::<Vec<_>>());
        assert_eq!((queue.sent(), wire.outstanding()), (100, 0));
    }

    #[test]
    fn a_full_queue_gives_the_frame_back_and_counts() {
        let (_, mut device, _) = bench(1);
        let mut queue = TransmitQueue::new(2);
        for number in 0..2 {
            queue.push(numbered(&mut device, number)).unwrap();
        }
        let refused = queue.push(numbered(&mut device, 2)).unwrap_err();
        assert_eq!((refused.bytes()[0], queue.refused(), queue.len()), (2, 1, 2));
        // What the device did not take still counts.
        assert_eq!(queue.flush(&mut device), 1);
        assert_eq!((queue.len(), queue.room()), (1, 1));
    }

    #[test]
    fn clearing_gives_all_frames_back() {
        let (wire, mut device, _) = bench(1);
        let mut queue = TransmitQueue::new(50);
        for number in 0..50 {
            queue.push(numbered(&mut device, number)).unwrap();
        }
        queue.flush(&mut device);
        queue.clear();
        wire.advance(Instant::ZERO);
        assert_eq!((queue.len(), device.data_pool().outstanding()), (0, 0));
    }
}
