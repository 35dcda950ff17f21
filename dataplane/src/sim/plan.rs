//! Plans of traffic that both ends can compute: what each operation is, and which octets it moves.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Send into the peer's next receive.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
}

/// One operation of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it is.
    pub kind: Kind,
    /// Octets of all steps before it: its place in every area.
    pub offset: usize,
    /// Octets.
    pub len: usize,
}

/// What one end does: a seeded sequence of operations that ends with an empty Send, so that its
/// Delivery says that all before it was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    seed: u64,
    /// The operations, in order.
    pub steps: Vec<Step>,
    /// Octets of all operations.
    pub octets: usize,
}

impl Plan {
    /// `operations` operations of at most `len_max` octets, most of them short.
    pub fn new(seed: u64, operations: usize, len_max: usize) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut offset = 0;
        let mut steps = Vec::with_capacity(operations + 1);
        for _ in 0..operations {
            let kind = [Kind::Send, Kind::Write, Kind::Read][random.next_u32() as usize % 3];
            let bound = if random.next_u32().is_multiple_of(4) { len_max } else { len_max.min(2000) };
            let len = random.next_u32() as usize % (bound + 1);
            steps.push(Step { kind, offset, len });
            offset += len;
        }
        steps.push(Step { kind: Kind::Send, offset, len: 0 });
        Self { seed, steps, octets: offset }
    }

    /// The source octet at `position`.
    pub fn octet(&self, position: usize) -> u8 {
        let mixed = (position as u64 ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.to_be_bytes()[0]
    }

    /// The source octets from `position` on.
    pub fn octets_at(&self, position: usize, len: usize) -> Vec<u8> {
        (position..position + len).map(|at| self.octet(at)).collect()
    }

    /// Where in the peer's source (of `peer_octets` octets) a Read of this plan begins.
    pub fn read_offset(step: &Step, peer_octets: usize) -> usize {
        step.offset % (peer_octets.saturating_sub(step.len) + 1)
    }

    /// How long a Read can be: not longer than the peer's source.
    pub fn read_len(step: &Step, peer_octets: usize) -> usize {
        step.len.min(peer_octets)
    }

    /// The Sends, in order.
    pub fn sends(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| step.kind == Kind::Send)
    }
}
