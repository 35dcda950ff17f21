//! Frames over plain memory, from pools that know how many are out.

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::device::{ChecksumLayout, ChecksumStatus, Frame, HEADROOM, Held};

/// What a fresh frame's octets hold, so that reading unspecified content shows.
const POISON: u8 = 0xa5;

/// A pool of equal buffers with a limit.
#[derive(Clone, Debug)]
pub struct SimPool(Rc<PoolState>);

#[derive(Debug)]
struct PoolState {
    room: usize,
    limit: usize,
    outstanding: Cell<usize>,
    refused: Cell<u64>,
    /// Buffers that came back, to be used again.
    spare: RefCell<Vec<Box<[u8]>>>,
}

impl SimPool {
    /// A pool of `limit` buffers with room for windows of `room` octets behind the headroom.
    pub fn new(limit: usize, room: usize) -> Self {
        Self(Rc::new(PoolState {
            room,
            limit,
            outstanding: Cell::new(0),
            refused: Cell::new(0),
            spare: RefCell::default(),
        }))
    }

    /// An empty frame with [`HEADROOM`] octets in front, or `None` when all buffers are out.
    pub fn allocate(&self) -> Option<SimFrame> {
        if self.0.outstanding.get() >= self.0.limit {
            self.0.refused.set(self.0.refused.get() + 1);
            return None;
        }
        self.0.outstanding.set(self.0.outstanding.get() + 1);
        let recycled = self.0.spare.borrow_mut().pop();
        let mut octets = recycled.unwrap_or_else(|| vec![0; HEADROOM + self.0.room].into_boxed_slice());
        octets.fill(POISON);
        let buffer = Rc::new(Buffer { octets, pool: Rc::clone(&self.0) });
        Some(SimFrame {
            buffer,
            start: HEADROOM,
            end: HEADROOM,
            status: ChecksumStatus::Unknown,
            layout: None,
        })
    }

    /// A frame whose window holds `octets`; `None` when there is no buffer or they do not fit.
    pub fn frame(&self, octets: &[u8]) -> Option<SimFrame> {
        let mut frame = self.allocate()?;
        if octets.len() > frame.tailroom() {
            return None;
        }
        frame.push_back(octets.len());
        frame.bytes_mut().copy_from_slice(octets);
        Some(frame)
    }

    /// Buffers that are out: in frames or held.
    pub fn outstanding(&self) -> usize {
        self.0.outstanding.get()
    }

    /// Buffers in all.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How often there was none.
    pub fn refused(&self) -> u64 {
        self.0.refused.get()
    }
}

#[derive(Debug)]
struct Buffer {
    octets: Box<[u8]>,
    pool: Rc<PoolState>,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.outstanding.set(self.pool.outstanding.get() - 1);
        self.pool.spare.borrow_mut().push(core::mem::take(&mut self.octets));
    }
}

/// A frame of a [`SimPool`].
#[derive(Debug)]
pub struct SimFrame {
    buffer: Rc<Buffer>,
    /// The window in the buffer.
    start: usize,
    end: usize,
    status: ChecksumStatus,
    layout: Option<ChecksumLayout>,
}

impl SimFrame {
    /// The checksums that the port shall fill in.
    pub fn requested_checksum(&self) -> Option<ChecksumLayout> {
        self.layout
    }

    /// Sets what [`Frame::checksum_status`] reports.
    pub fn set_checksum_status(&mut self, status: ChecksumStatus) {
        self.status = status;
    }
}

impl Frame for SimFrame {
    type Held = SimHeld;

    fn bytes(&self) -> &[u8] {
        &self.buffer.octets[self.start..self.end]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let buffer = Rc::get_mut(&mut self.buffer).expect("the buffer is held elsewhere");
        &mut buffer.octets[self.start..self.end]
    }

    fn headroom(&self) -> usize {
        self.start
    }

    fn tailroom(&self) -> usize {
        self.buffer.octets.len() - self.end
    }

    fn push_front(&mut self, len: usize) {
        self.start = self.start.checked_sub(len).expect("the headroom is large enough");
    }

    fn trim_front(&mut self, len: usize) {
        assert!(len <= self.end - self.start, "the window is shorter than {len} octets");
        self.start += len;
    }

    fn push_back(&mut self, len: usize) {
        assert!(len <= self.tailroom(), "the tailroom is smaller than {len} octets");
        self.end += len;
    }

    fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    fn hold(&self, skip: usize) -> SimHeld {
        assert!(skip <= self.end - self.start, "the window is shorter than {skip} octets");
        SimHeld { buffer: Rc::clone(&self.buffer), start: self.start + skip, end: self.end }
    }

    fn checksum_status(&self) -> ChecksumStatus {
        self.status
    }

    fn request_checksum(&mut self, layout: ChecksumLayout) {
        self.layout = Some(layout);
    }
}

/// A second reference to a [`SimFrame`]'s octets.
#[derive(Debug)]
pub struct SimHeld {
    buffer: Rc<Buffer>,
    start: usize,
    end: usize,
}

impl Held for SimHeld {
    type Frame = SimFrame;

    fn bytes(&self) -> &[u8] {
        &self.buffer.octets[self.start..self.end]
    }

    fn reclaim(self) -> Result<SimFrame, Self> {
        if Rc::strong_count(&self.buffer) > 1 {
            return Err(self);
        }
        let Self { buffer, start, end } = self;
        Ok(SimFrame { buffer, start, end, status: ChecksumStatus::Unknown, layout: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_and_shrinks_at_both_ends() {
        let pool = SimPool::new(1, 64);
        let mut frame = pool.frame(b"payload").unwrap();
        frame.push_front(2);
        frame.bytes_mut()[..2].copy_from_slice(b"h:");
        frame.push_back(1);
        *frame.bytes_mut().last_mut().unwrap() = b'!';
        assert_eq!(frame.bytes(), b"h:payload!");
        frame.trim_front(2);
        frame.truncate(3);
        frame.truncate(30);
        assert_eq!(frame.bytes(), b"pay");
        assert_eq!((frame.headroom(), frame.tailroom()), (HEADROOM, 64 - 3));
    }

    #[test]
    fn every_buffer_is_accounted_for() {
        let pool = SimPool::new(2, 64);
        let frame = pool.frame(b"one").unwrap();
        let held = frame.hold(1);
        drop(frame);
        let _second = pool.allocate().unwrap();
        assert_eq!((pool.outstanding(), pool.refused()), (2, 0));
        assert!(pool.allocate().is_none());
        assert_eq!(pool.refused(), 1);
        drop(held);
        assert_eq!(pool.outstanding(), 1);
    }

    #[test]
    fn a_held_frame_comes_back_only_when_nobody_uses_it() {
        let pool = SimPool::new(1, 64);
        let mut frame = pool.frame(b"payload").unwrap();
        frame.push_front(4);
        let held = frame.hold(4);
        let held = held.reclaim().unwrap_err();
        assert_eq!(held.bytes(), b"payload");
        drop(frame);
        let mut frame = held.reclaim().unwrap();
        assert_eq!(frame.headroom(), HEADROOM);
        frame.bytes_mut()[0] = b'P';
        assert_eq!(frame.bytes(), b"Payload");
    }

    #[test]
    #[should_panic = "held elsewhere"]
    fn a_held_frame_is_not_written() {
        let pool = SimPool::new(1, 64);
        let mut frame = pool.frame(b"payload").unwrap();
        let _held = frame.hold(0);
        frame.bytes_mut()[0] = 0;
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(SimPool::new(1, 4).frame(b"payload").is_none());
    }
}
