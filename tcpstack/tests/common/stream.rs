//! An application that sends a known sequence of octets and checks the one that it receives.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcpstack::device::{Device, Frame};
use tcpstack::stack::{ConnectionId, SendError, Stack};

/// One end of a connection under test.
pub struct Stream {
    pub id: ConnectionId,
    /// Which sequence this end sends; it receives the other one.
    side: u8,
    rng: ChaCha8Rng,
    pub to_send: u64,
    pub sent: u64,
    pub received: u64,
    /// Octets received and not released.
    held: usize,
    /// Whether records have random sizes, or all the EMSS.
    pub ragged: bool,
    /// Whether what is received is released by and by.
    pub slow: bool,
    /// Whether to close when all is sent.
    pub closes: bool,
    closed: bool,
}

/// The octet at `offset` of a side's sequence.
pub fn octet(side: u8, offset: u64) -> u8 {
    let mixed = offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    u8::try_from(mixed).unwrap() ^ side
}

impl Stream {
    pub fn new(id: ConnectionId, side: u8, to_send: u64, seed: u64) -> Self {
        Self {
            id,
            side,
            rng: ChaCha8Rng::seed_from_u64(seed ^ u64::from(side) << 32),
            to_send,
            sent: 0,
            received: 0,
            held: 0,
            ragged: false,
            slow: false,
            closes: true,
            closed: false,
        }
    }

    /// Receives and sends what can be.
    pub fn work<D: Device>(&mut self, stack: &mut Stack<D>, device: &mut D) {
        self.receive(stack);
        self.send(stack, device);
        if self.closes && self.sent == self.to_send && !self.closed {
            stack.close(self.id);
            self.closed = true;
        }
    }

    fn receive<D: Device>(&mut self, stack: &mut Stack<D>) {
        if self.slow && self.rng.next_u32().is_multiple_of(4) {
            return;
        }
        while let Some(frame) = stack.receive_payload(self.id) {
            assert!(!frame.bytes().is_empty());
            for &octet_received in frame.bytes() {
                assert_eq!(octet_received, octet(1 - self.side, self.received), "at octet {}", self.received);
                self.received += 1;
            }
            self.held += frame.bytes().len();
        }
        let release = if self.slow {
            usize::try_from(self.rng.next_u32()).unwrap() % (self.held + 1)
        } else {
            self.held
        };
        stack.release_window(self.id, release);
        self.held -= release;
    }

    fn send<D: Device>(&mut self, stack: &mut Stack<D>, device: &mut D) {
        while self.sent < self.to_send && stack.send_room(self.id) > 0 {
            let max = stack.emss(self.id);
            let len = if self.ragged { 1 + usize::try_from(self.rng.next_u32()).unwrap() % max } else { max };
            let left = usize::try_from(self.to_send - self.sent).unwrap();
            let len = len.min(left);
            let Some(mut frame) = device.allocate() else { return };
            frame.push_back(len);
            for (offset, place) in (self.sent..).zip(frame.bytes_mut()) {
                *place = octet(self.side, offset);
            }
            let push = self.rng.next_u32().is_multiple_of(3) || len == left;
            match stack.send(self.id, frame, push) {
                Ok(()) => self.sent += u64::try_from(len).unwrap(),
                Err(SendError::Full(_)) => panic!("there was room"),
                Err(other) => panic!("{:?}", core::mem::discriminant(&other)),
            }
        }
    }
}
