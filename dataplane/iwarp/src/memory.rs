//! What a Stream needs of registered memory: access checks, Placement and fetching.
//!
//! The engine implements [`Memory`] over real buffers (`dataplane::mem`); tests over vectors.

use crate::atomic::AtomicOperation;
use crate::types::{ProtectionDomain, Stag, StreamId};

/// On whose behalf memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The Stream's protection domain.
    pub domain: ProtectionDomain,
    /// The Stream.
    pub stream: StreamId,
}

/// What an access wants to do; each needs its own right on the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The local application's buffer is the source of a message.
    LocalRead,
    /// The local application's buffer takes an untagged message or a Read Response.
    LocalWrite,
    /// The peer's RDMA Write.
    RemoteWrite,
    /// The peer's RDMA Read.
    RemoteRead,
    /// The peer's Atomic Operation.
    RemoteAtomic,
}

/// Why an access was refused (RFC 5041 section 7.1, RFC 5040 section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// No buffer has this STag, or it was invalidated.
    InvalidStag,
    /// The octets are not all within the buffer.
    BaseOrBounds,
    /// The buffer does not allow this operation.
    AccessRights,
    /// The buffer belongs to another Stream or protection domain.
    NotAssociated,
    /// Offset plus length exceeds 2^64 - 1.
    OffsetWrap,
    /// The word of an Atomic Operation is not on a 64-bit boundary of the host's memory.
    Misaligned,
}

/// Registered memory.
///
/// Each method checks everything, each time: STag, protection domain and Stream, right,
/// bounds. Octets are addressed by STag and Tagged Offset, for local access too.
pub trait Memory {
    /// Says whether `len` octets at `offset` may be accessed, without touching them.
    ///
    /// # Errors
    /// The first check that failed.
    fn check(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        len: u32,
    ) -> Result<(), AccessError>;

    /// Writes `octets` at `offset`: Placement.
    ///
    /// # Errors
    /// The first check that failed; nothing is written then.
    fn place(
        &mut self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        octets: &[u8],
    ) -> Result<(), AccessError>;

    /// Reads the octets at `offset` into `out`.
    ///
    /// # Errors
    /// The first check that failed; `out` is unchanged then.
    fn fetch(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), AccessError>;

    /// Says whether an Atomic Operation of the peer may change the word at `offset`.
    ///
    /// # Errors
    /// The first check that failed, alignment last.
    fn check_atomic(&self, who: Accessor, stag: Stag, offset: u64) -> Result<(), AccessError>;

    /// Reads, changes and writes back the word at `offset` for the peer, and returns what it was.
    ///
    /// Nothing else that changes the word by an Atomic Operation, on whatever core and for whatever
    /// Stream, comes in between.
    ///
    /// # Errors
    /// The first check that failed; the word is unchanged then.
    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError>;

    /// Withdraws a buffer from remote access, as Send with Invalidate asks.
    ///
    /// # Errors
    /// When the buffer is not one that this Stream may invalidate.
    fn invalidate(&mut self, who: Accessor, stag: Stag) -> Result<(), AccessError>;
}
