//! Why a Stream ended in error, and what the peer is told of it.
//!
//! Each layer names its own violations; [`StreamError::terminate_code`] is the one place that maps
//! them to a Terminate's layer, error type and error code.

use core::fmt;

pub use crate::ddp::DdpError;
use crate::memory::AccessError;
use crate::mpa::MpaError;
pub use crate::rdmap::RdmapError;
use crate::wire::terminate::{
    RemoteOperation, RemoteProtection, TaggedBuffer, TerminateCode, UntaggedBuffer,
};

/// The first error of a Stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// The peer broke MPA.
    #[error("{0}")]
    Mpa(#[from] MpaError),
    /// The peer broke DDP.
    #[error("{0}")]
    Ddp(#[from] DdpError),
    /// The peer broke RDMAP.
    #[error("{0}")]
    Rdmap(#[from] RdmapError),
    /// The fault is on this side.
    #[error("{0}")]
    Local(#[from] LocalError),
}

/// A fault of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The buffer of a posted Send, Write or Read was refused.
    #[error("the buffer of a send request was refused: {0}")]
    RequestBuffer(AccessError),
    /// The application ended the Stream.
    #[error("ended by the application")]
    Aborted,
}

impl StreamError {
    /// What a Terminate says about this.
    // req 5041-7.2-1, 5040-4.8-3
    pub const fn terminate_code(self) -> TerminateCode {
        match self {
            Self::Mpa(error) => error.terminate_code(),
            Self::Ddp(error) => ddp_code(error),
            Self::Rdmap(error) => rdmap_code(error),
            Self::Local(LocalError::RequestBuffer(_) | LocalError::Aborted) => {
                TerminateCode::LocalCatastrophic
            }
        }
    }
}

const fn ddp_code(error: DdpError) -> TerminateCode {
    TerminateCode::Untagged(match error {
        // A ULPDU Length below that of the header: the FPDU as such is wrong. MPA has the closest code.
        DdpError::Truncated => return TerminateCode::Mpa(crate::wire::terminate::Mpa::MarkerMismatch),
        DdpError::TaggedVersion => return TerminateCode::Tagged(TaggedBuffer::InvalidVersion),
        DdpError::Tagged(error) => return TerminateCode::Tagged(tagged_code(error)),
        DdpError::ReceiveBuffer(_) => return TerminateCode::DdpCatastrophic,
        DdpError::UntaggedVersion => UntaggedBuffer::InvalidVersion,
        DdpError::InvalidQueue => UntaggedBuffer::InvalidQueue,
        DdpError::NoBuffer(_) => UntaggedBuffer::NoBuffer,
        DdpError::MsnRange(_) => UntaggedBuffer::MsnRange,
        DdpError::InvalidOffset(_) => UntaggedBuffer::InvalidOffset,
        DdpError::MessageTooLong(_) => UntaggedBuffer::MessageTooLong,
    })
}

const fn tagged_code(error: AccessError) -> TaggedBuffer {
    match error {
        // DDP has no code for a missing right: the STag names no buffer that allows Placement.
        AccessError::InvalidStag | AccessError::AccessRights => TaggedBuffer::InvalidStag,
        // Only the words of Atomic Operations have an alignment to keep.
        AccessError::BaseOrBounds | AccessError::Misaligned => TaggedBuffer::BaseOrBounds,
        AccessError::NotAssociated => TaggedBuffer::NotAssociated,
        AccessError::OffsetWrap => TaggedBuffer::OffsetWrap,
    }
}

const fn rdmap_code(error: RdmapError) -> TerminateCode {
    TerminateCode::RemoteOperation(match error {
        // req 7306-5.1.1-3, 7306-5.1.2-6, 7306-8.2-7
        RdmapError::AtomicTarget(AccessError::Misaligned) => RemoteOperation::StreamCatastrophic,
        RdmapError::ReadSource(error) | RdmapError::AtomicTarget(error) => {
            return TerminateCode::RemoteProtection(match error {
                AccessError::InvalidStag => RemoteProtection::InvalidStag,
                AccessError::BaseOrBounds => RemoteProtection::BaseOrBounds,
                AccessError::AccessRights => RemoteProtection::AccessRights,
                AccessError::NotAssociated => RemoteProtection::NotAssociated,
                AccessError::OffsetWrap => RemoteProtection::OffsetWrap,
                AccessError::Misaligned => RemoteProtection::Unspecified,
            });
        }
        RdmapError::Invalidate(_) => {
            return TerminateCode::RemoteProtection(RemoteProtection::CannotInvalidate);
        }
        // To this side's DDP, a Read's sink is a tagged buffer for exactly what was asked.
        RdmapError::ResponseStag => return TerminateCode::Tagged(TaggedBuffer::InvalidStag),
        RdmapError::ResponseOffset | RdmapError::ResponseTooLong => {
            return TerminateCode::Tagged(TaggedBuffer::BaseOrBounds);
        }
        // req 6581-9.2-11
        RdmapError::UnexpectedRtr => return MpaError::NoMatchingRtr.terminate_code(),
        RdmapError::Version => RemoteOperation::InvalidVersion,
        // An operation within Atomic Requests is much like an opcode.
        RdmapError::UnexpectedOpcode | RdmapError::UnsolicitedResponse | RdmapError::UnknownAtomic => {
            RemoteOperation::UnexpectedOpcode
        }
        RdmapError::ReadRequestLength
        | RdmapError::ResponseTooShort
        | RdmapError::MalformedTerminate
        | RdmapError::AtomicRequestLength
        | RdmapError::AtomicResponseLength
        | RdmapError::AtomicResponseId
        | RdmapError::ImmediateLength => RemoteOperation::Unspecified,
    })
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidStag => "invalid STag",
            Self::BaseOrBounds => "base or bounds violation",
            Self::AccessRights => "access rights violation",
            Self::NotAssociated => "STag of another Stream or protection domain",
            Self::OffsetWrap => "tagged offset wraps",
            Self::Misaligned => "not on a 64-bit boundary",
        })
    }
}
