//! The receiving side of one untagged queue: MSN and MO (RFC 5041 sections 4.3, 5.4 and 7.1).

use super::{DdpError, Queue};

/// Follows one untagged queue of the peer.
#[derive(Clone, Debug)]
pub(crate) struct UntaggedReceiver {
    queue: Queue,
    /// MSN of the message that arrives now, or next.
    msn: u32,
    /// Octets of it that were placed; also the only acceptable MO.
    received: u32,
}

impl UntaggedReceiver {
    // req 5041-4.3-9
    pub(crate) const fn new(queue: Queue) -> Self {
        Self { queue, msn: 1, received: 0 }
    }

    /// Accepts a segment for Placement, or says why not. `capacity` is the size of the buffer
    /// that the message consumes, if there is one.
    ///
    /// Zero-length segments are checked as well, because they consume a buffer too.
    // req 5041-7.1-1, 5040-5.3-10, 5040-7.2-1, 5040-7.2-6, 5041-7.1-2, 5041-7.1-5
    #[inline]
    pub(crate) fn check(
        &self,
        msn: u32,
        offset: u32,
        len: usize,
        capacity: Option<u32>,
    ) -> Result<(), DdpError> {
        if msn != self.msn {
            return Err(DdpError::MsnRange(self.queue));
        }
        let capacity = capacity.ok_or(DdpError::NoBuffer(self.queue))?;
        if offset != self.received {
            return Err(DdpError::InvalidOffset(self.queue));
        }
        if len > capacity.saturating_sub(offset) as usize {
            return Err(DdpError::MessageTooLong(self.queue));
        }
        Ok(())
    }

    /// Counts a placed segment; the message's length when it was the last one.
    // req 5041-5.4-1, 5041-5.4-2
    #[inline]
    pub(crate) fn placed(&mut self, len: u32, last: bool) -> Option<u32> {
        self.received += len;
        if !last {
            return None;
        }
        let message_len = self.received;
        self.received = 0;
        // req 5041-4.3-8, 5041-4.3-10
        self.msn = self.msn.wrapping_add(1);
        Some(message_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: Queue = Queue::Send;

    // proves 5041-4.3-9
    #[test]
    fn the_first_msn_is_one() {
        let receiver = UntaggedReceiver::new(QUEUE);
        assert_eq!(receiver.check(0, 0, 1, Some(10)), Err(DdpError::MsnRange(QUEUE)));
        assert_eq!(receiver.check(1, 0, 1, Some(10)), Ok(()));
        assert_eq!(receiver.check(2, 0, 1, Some(10)), Err(DdpError::MsnRange(QUEUE)));
    }

    // proves 5041-4.3-8
    #[test]
    fn each_message_raises_the_msn_by_one() {
        let mut receiver = UntaggedReceiver::new(QUEUE);
        assert_eq!(receiver.placed(3, false), None);
        assert_eq!(receiver.check(2, 3, 1, Some(10)), Err(DdpError::MsnRange(QUEUE)));
        assert_eq!(receiver.placed(4, true), Some(7));
        assert_eq!(receiver.check(1, 0, 1, Some(10)), Err(DdpError::MsnRange(QUEUE)));
        assert_eq!(receiver.check(2, 0, 1, Some(10)), Ok(()));
    }

    // proves 5041-4.3-10
    #[test]
    fn the_msn_wraps_to_zero() {
        let mut receiver = UntaggedReceiver { queue: QUEUE, msn: u32::MAX, received: 0 };
        assert_eq!(receiver.placed(0, true), Some(0));
        assert_eq!(receiver.check(0, 0, 0, Some(0)), Ok(()));
    }

    // proves 5041-7.1-1
    #[test]
    fn a_segment_must_continue_its_message_within_its_buffer() {
        let mut receiver = UntaggedReceiver::new(QUEUE);
        assert_eq!(receiver.check(1, 0, 1, None), Err(DdpError::NoBuffer(QUEUE)));
        assert_eq!(receiver.check(1, 1, 1, Some(10)), Err(DdpError::InvalidOffset(QUEUE)));
        assert_eq!(receiver.check(1, u32::MAX, 1, Some(10)), Err(DdpError::InvalidOffset(QUEUE)));
        assert_eq!(receiver.check(1, 0, 11, Some(10)), Err(DdpError::MessageTooLong(QUEUE)));
        assert_eq!(receiver.check(1, 0, 10, Some(10)), Ok(()));
        receiver.placed(8, false);
        assert_eq!(receiver.check(1, 0, 1, Some(10)), Err(DdpError::InvalidOffset(QUEUE)));
        assert_eq!(receiver.check(1, 8, 3, Some(10)), Err(DdpError::MessageTooLong(QUEUE)));
        assert_eq!(receiver.check(1, 8, 2, Some(10)), Ok(()));
    }

    // proves 5040-5.3-10
    #[test]
    fn a_zero_length_message_needs_a_buffer_too() {
        let receiver = UntaggedReceiver::new(QUEUE);
        assert_eq!(receiver.check(1, 0, 0, None), Err(DdpError::NoBuffer(QUEUE)));
        assert_eq!(receiver.check(1, 0, 0, Some(0)), Ok(()));
    }
}
