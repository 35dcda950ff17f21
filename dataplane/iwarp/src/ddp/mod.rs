//! DDP (RFC 5041): which DDP Segments may be placed, and how messages are cut into them.
//!
//! - `untagged`: MSN and MO checks of the untagged queues (section 7.1)
//! - `tagged`: Placement of a segment's payload into a tagged buffer
//! - `sg_list`: Placement and fetching over a scatter/gather list
//! - `segmenter`: cuts a message into segments of at most MULPDU (section 5.2)
//!
//! The LLP hands segments over in order and once, so that a message is placed front to back and
//! exactly one MSN and one MO are acceptable at any time.

use core::fmt;

use crate::memory::AccessError;
use crate::wire::rdmap::{QUEUE_ATOMIC_RESPONSE, QUEUE_READ_REQUEST, QUEUE_SEND, QUEUE_TERMINATE};

pub(crate) mod segmenter;
pub(crate) mod sg_list;
pub(crate) mod tagged;
pub(crate) mod untagged;

/// The payload of a received DDP Segment, which may lie in several pieces of memory.
pub(crate) trait Payload {
    /// Octets.
    fn len(&self) -> u32;

    /// Copies the payload, which is as long as `out`, into it.
    fn gather(&self, out: &mut [u8]);

    /// The payload's pieces, in order.
    fn pieces(&self) -> impl Iterator<Item = &[u8]>;
}

/// The untagged queues that RDMAP uses (RFC 5040 section 4.1, figure 4; RFC 7306 figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Queue 0: Sends and Immediate Data.
    Send,
    /// Queue 1: RDMA Read Requests and Atomic Requests.
    ReadRequest,
    /// Queue 2: the Terminate Message.
    Terminate,
    /// Queue 3: Atomic Responses.
    AtomicResponse,
}

impl Queue {
    /// The queue of a Queue Number.
    pub(crate) const fn from_number(number: u32) -> Result<Self, DdpError> {
        match number {
            QUEUE_SEND => Ok(Self::Send),
            QUEUE_READ_REQUEST => Ok(Self::ReadRequest),
            QUEUE_TERMINATE => Ok(Self::Terminate),
            QUEUE_ATOMIC_RESPONSE => Ok(Self::AtomicResponse),
            _ => Err(DdpError::InvalidQueue),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "Send",
            Self::ReadRequest => "Read Request",
            Self::Terminate => "Terminate",
            Self::AtomicResponse => "Atomic Response",
        })
    }
}

/// What is wrong with a DDP Segment of the peer (RFC 5041 section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DdpError {
    /// The ULPDU ends within its DDP header.
    #[error("DDP Segment is shorter than its header")]
    Truncated,
    /// A tagged segment of another DDP version.
    #[error("tagged DDP Segment of an unknown DDP version")]
    TaggedVersion,
    /// An untagged segment of another DDP version.
    #[error("untagged DDP Segment of an unknown DDP version")]
    UntaggedVersion,
    /// A tagged segment does not fit its buffer, or may not be placed there.
    #[error("tagged DDP Segment refused: {0}")]
    Tagged(AccessError),
    /// A Queue Number other than 0 to 3.
    #[error("untagged DDP Segment on an unknown queue")]
    InvalidQueue,
    /// The next message of a queue has no buffer: no receive posted, more Reads and Atomics than IRD,
    /// or an Atomic Response that no Atomic Request of ours waits for.
    #[error("no buffer for the next message on the {0} queue")]
    NoBuffer(Queue),
    /// The MSN is not that of the next message.
    #[error("unexpected MSN on the {0} queue")]
    MsnRange(Queue),
    /// The MO does not continue the message.
    #[error("unexpected message offset on the {0} queue")]
    InvalidOffset(Queue),
    /// The message exceeds the buffer that it consumes.
    #[error("message is too long for its buffer on the {0} queue")]
    MessageTooLong(Queue),
    /// The receive request's own buffer was refused: a local fault.
    #[error("the receive buffer was refused: {0}")]
    ReceiveBuffer(AccessError),
}
