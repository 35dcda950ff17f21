//! Neighbours: which Ethernet address an IP address on the link has.

/// Names an entry of the neighbour table, as it was when it was resolved.
///
/// It goes stale when the neighbour's Ethernet address changes or the entry is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborHandle {
    index: u16,
    generation: u16,
}

impl NeighborHandle {
    /// The handle of no neighbour; it is never current.
    pub(crate) const NONE: Self = Self { index: u16::MAX, generation: 0 };
}
