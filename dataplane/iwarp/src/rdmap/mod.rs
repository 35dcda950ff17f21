//! RDMAP (RFC 5040, 7306): the messages of a Stream, both ways, above DDP and below the application.
//!
//! - `endpoint`: one end of a Stream: its state, and how it ends
//! - `receiver`: checks, Placement and Delivery of what the peer sends
//! - `sender`: which message goes out next, segment by segment
//! - `send_queue`, `receive_queue`, `completion_queue`: posted work, and its completions in order
//! - `reads`: Reads outstanding at the peer, and the peer's Reads and Atomics to answer
//! - `atomics`: Atomic Operations, both ways
//! - `immediate`: Immediate Data, both ways
//!
//! Nothing here allocates after construction: every queue has the size that was negotiated or
//! asked for.

use crate::memory::AccessError;

mod atomics;
mod completion_queue;
mod endpoint;
mod immediate;
mod reads;
mod receive_queue;
mod receiver;
mod send_queue;
mod sender;

pub(crate) use endpoint::Endpoint;
pub use endpoint::{StreamLimits, StreamState};
pub(crate) use receiver::ReceivedSegment;

/// What is wrong with an RDMA Message of the peer (RFC 5040 section 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmapError {
    /// Another RDMAP version.
    #[error("unknown RDMAP version")]
    Version,
    /// The opcode is reserved, is not for this queue or buffer model, or changes within a message.
    #[error("unexpected RDMAP opcode")]
    UnexpectedOpcode,
    /// A Read Request is shorter than its header.
    #[error("Read Request is shorter than its header")]
    ReadRequestLength,
    /// A Read Request's Data Source was refused.
    #[error("Read Request refused: {0}")]
    ReadSource(AccessError),
    /// The STag of a Send with Invalidate was refused.
    #[error("Send with Invalidate refused: {0}")]
    Invalidate(AccessError),
    /// A Read Response that no outstanding Read asked for.
    #[error("unsolicited Read Response")]
    UnsolicitedResponse,
    /// A Read Response to another STag than the Read's sink.
    #[error("Read Response names another STag than the Read")]
    ResponseStag,
    /// A Read Response segment that does not continue the Response.
    #[error("Read Response does not continue at the expected tagged offset")]
    ResponseOffset,
    /// A Read Response with more octets than the Read asked for.
    #[error("Read Response is longer than the Read")]
    ResponseTooLong,
    /// A Read Response that ends before what the Read asked for.
    #[error("Read Response is shorter than the Read")]
    ResponseTooShort,
    /// The first FPDU is not the RTR indication that was negotiated.
    #[error("the first FPDU is not the negotiated RTR indication")]
    UnexpectedRtr,
    /// An Atomic Request is shorter than its header.
    #[error("Atomic Request is shorter than its header")]
    AtomicRequestLength,
    /// An Atomic Request with an Atomic Operation Code that RFC 7306 does not define.
    #[error("unknown Atomic Operation")]
    UnknownAtomic,
    /// The word of an Atomic Request was refused.
    #[error("Atomic Request refused: {0}")]
    AtomicTarget(AccessError),
    /// An Atomic Response is shorter than its header.
    #[error("Atomic Response is shorter than its header")]
    AtomicResponseLength,
    /// An Atomic Response with another identifier than the Request that it answers.
    #[error("Atomic Response answers another Request than the oldest")]
    AtomicResponseId,
    /// Immediate Data of other than 8 octets.
    #[error("Immediate Data is not of 8 octets")]
    ImmediateLength,
    /// A Terminate too short to say anything.
    #[error("malformed Terminate")]
    MalformedTerminate,
}
