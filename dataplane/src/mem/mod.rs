//! Registered memory: octets that the application and the worker share.
//!
//! A [`Buffer`] is mapped memory that both sides reach only through checked copies, since either
//! may write at any time. A worker's [`Registry`] gives parts of buffers STags and checks every
//! access of every DDP Segment (RFC 5041 section 7.1, RFC 5042 section 6).

#[allow(unsafe_code)]
mod buffer;
mod registry;

pub use buffer::{AllocateError, Buffer, HugePages, OutOfBounds, WordError};
pub use registry::{RegionInfo, RegisterError, Registry, Scope};

/// A run of octets in a buffer, to be registered.
#[derive(Clone, Debug)]
pub struct MemoryRegion {
    /// The buffer.
    pub buffer: Buffer,
    /// First octet.
    pub offset: usize,
    /// Octets.
    pub len: usize,
}

impl MemoryRegion {
    /// The whole of `buffer`.
    pub fn whole(buffer: &Buffer) -> Self {
        Self { offset: 0, len: buffer.len(), buffer: buffer.clone() }
    }
}

/// What may be done with a registration; reading it as a local source is always allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessRights {
    /// Receives and Read Responses of the local application may be placed.
    pub local_write: bool,
    /// The peer may write.
    pub remote_write: bool,
    /// The peer may read.
    pub remote_read: bool,
    /// The peer may change words by Atomic Operations.
    pub remote_atomic: bool,
    /// The peer may invalidate it (Send with Invalidate).
    pub remote_invalidate: bool,
}

impl AccessRights {
    /// Local source only.
    pub const LOCAL_READ: Self = Self {
        local_write: false,
        remote_write: false,
        remote_read: false,
        remote_atomic: false,
        remote_invalidate: false,
    };

    /// Local source and sink.
    pub const LOCAL: Self = Self { local_write: true, ..Self::LOCAL_READ };

    /// Local use, and the peer may write.
    pub const REMOTE_WRITE: Self = Self { remote_write: true, ..Self::LOCAL };

    /// Local use, and the peer may read.
    pub const REMOTE_READ: Self = Self { remote_read: true, ..Self::LOCAL };

    /// Local use, and the peer may read and write.
    pub const REMOTE: Self = Self { remote_write: true, ..Self::REMOTE_READ };

    /// Local use, and the peer may carry out Atomic Operations but neither read nor write.
    pub const REMOTE_ATOMIC: Self = Self { remote_atomic: true, ..Self::LOCAL };
}
