//! A device over rings of frames in this process: a frame goes from one end to the other as it is.

#![allow(unreachable_pub, dead_code, reason = "each bench uses a part of it")]

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use tcpstack::device::{
    BURST_MAX, Burst, Capabilities, ChecksumLayout, ChecksumStatus, Device, Frame, HEADROOM, Held,
};

/// Octets of a buffer, headroom included.
const BUFFER: usize = 2048;

/// Frames that a ring holds; more are not taken.
const RING: usize = 512;

type Shared<T> = Rc<RefCell<T>>;

/// Buffers that are free; the one that was used last comes first.
#[derive(Clone)]
pub struct Pool(Shared<Vec<Rc<[u8]>>>);

impl Pool {
    pub fn new(buffers: usize) -> Self {
        Self(Rc::new(RefCell::new((0..buffers).map(|_| Rc::from([0; BUFFER])).collect())))
    }

    pub fn allocate(&self) -> Option<RingFrame> {
        let buffer = self.0.borrow_mut().pop()?;
        Some(RingFrame {
            buffer: Buffer { octets: Some(buffer), pool: self.clone() },
            start: HEADROOM,
            end: HEADROOM,
        })
    }
}

/// One reference to a buffer; the last one puts it back.
struct Buffer {
    octets: Option<Rc<[u8]>>,
    pool: Pool,
}

impl Buffer {
    #[inline]
    fn octets(&self) -> &Rc<[u8]> {
        self.octets.as_ref().expect("only dropped buffers have none")
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self { octets: self.octets.clone(), pool: self.pool.clone() }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(octets) = self.octets.take()
            && Rc::strong_count(&octets) == 1
        {
            self.pool.0.borrow_mut().push(octets);
        }
    }
}

pub struct RingFrame {
    buffer: Buffer,
    start: usize,
    end: usize,
}

impl Frame for RingFrame {
    type Held = RingHeld;

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.buffer.octets()[self.start..self.end]
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        let octets = self.buffer.octets.as_mut().and_then(Rc::get_mut).expect("the buffer is held elsewhere");
        &mut octets[self.start..self.end]
    }

    fn headroom(&self) -> usize {
        self.start
    }

    fn tailroom(&self) -> usize {
        BUFFER - self.end
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

    fn hold(&self, skip: usize) -> RingHeld {
        RingHeld(Self { buffer: self.buffer.clone(), start: self.start + skip, end: self.end })
    }

    fn checksum_status(&self) -> ChecksumStatus {
        ChecksumStatus::Unknown
    }

    fn request_checksum(&mut self, _: ChecksumLayout) {
        unreachable!("the device offers no offload");
    }
}

pub struct RingHeld(RingFrame);

impl Held for RingHeld {
    type Frame = RingFrame;

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn reclaim(self) -> Result<RingFrame, Self> {
        if Rc::strong_count(self.0.buffer.octets()) > 1 { Err(self) } else { Ok(self.0) }
    }
}

/// One end of a pair of rings.
pub struct Ring {
    capabilities: Capabilities,
    pool: Pool,
    incoming: Shared<VecDeque<RingFrame>>,
    outgoing: Shared<VecDeque<RingFrame>>,
}

impl Ring {
    /// Two ends, each with this many buffers; MTU 1500, no offloads.
    pub fn pair(buffers: usize) -> [Self; 2] {
        let rings: [Shared<VecDeque<RingFrame>>; 2] =
            [(); 2].map(|()| Rc::new(RefCell::new(VecDeque::with_capacity(RING))));
        [0, 1].map(|end: u8| Self {
            capabilities: Capabilities {
                mac: [2, 0, 0, 0, 0, end + 1],
                mtu: 1500,
                receive_checksum: false,
                transmit_checksum: false,
            },
            pool: Pool::new(buffers),
            incoming: Rc::clone(&rings[usize::from(end)]),
            outgoing: Rc::clone(&rings[usize::from(1 - end)]),
        })
    }
}

impl Device for Ring {
    type Frame = RingFrame;

    #[inline]
    fn receive_burst(&mut self, frames: &mut Burst<RingFrame>) {
        let mut ring = self.incoming.borrow_mut();
        let count = ring.len().min(BURST_MAX - frames.len());
        frames.extend(ring.drain(..count));
    }

    #[inline]
    fn transmit_burst(&mut self, frames: &mut Burst<RingFrame>) {
        let mut ring = self.outgoing.borrow_mut();
        let room = frames.len().min(RING - ring.len());
        ring.extend(frames.drain(..room));
    }

    fn allocate(&mut self) -> Option<RingFrame> {
        self.pool.allocate()
    }

    fn allocate_control(&mut self) -> Option<RingFrame> {
        self.pool.allocate()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}
