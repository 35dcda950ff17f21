//! Wire formats: one file a format, octets to closed types and back.
//!
//! Reserved bits, versions and flags are settled here: the layers above see enums, not bits.
//! Parsing never panics and never allocates, whatever the octets; what a type emits parses
//! back to it. Each header is short and read once, so a format has a `parse` into its meaning
//! and no separate view.

pub mod atomic;
pub mod ddp;
pub mod mpa;
pub mod rdmap;
pub mod terminate;

/// The version that DDP and RDMAP headers of a Stream carry.
///
/// Both layers use the same one, in both directions; MPA's revision decides it (RFC 5044
/// appendix C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The RDMA Consortium's protocols, agreed on with MPA revision 0.
    Rdmac = 0,
    /// RFC 5040 and RFC 5041.
    #[default]
    Ietf = 1,
}

impl Version {
    /// The two-bit field's value.
    const fn bits(self) -> u8 {
        match self {
            Self::Rdmac => 0,
            Self::Ietf => 1,
        }
    }
}

/// The `N` octets at `at`; the caller has proved that they are there.
fn array<const N: usize>(octets: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&octets[at..at + N]);
    array
}
