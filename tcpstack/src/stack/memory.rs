//! What connections cost: octets of the heap, from sizes and capacities.

use super::{Slot, Stack};
use crate::device::Device;
use crate::tcp::connection::Connection;

/// Octets that a stack's connections take, frames not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The connections themselves.
    pub connections: usize,
    /// Their places in the tables of connections, flows, timers and neighbours' waiters, free ones
    /// included, and in the queues of work and events.
    pub tables: usize,
    /// Their queues of frames and records, of the length that they once had.
    pub queues: usize,
}

impl<D: Device> Stack<D> {
    /// What connections take now; looks at each of them.
    pub fn memory_use(&self) -> MemoryUse {
        let live = || self.connections.iter().filter_map(|place| place.connection.as_deref());
        let tables = self.connections.capacity() * size_of::<Slot<D::Frame>>()
            + self.free.capacity() * size_of::<u32>()
            + self.work.capacity() * size_of::<u32>()
            + (self.events.capacity() + self.waiting.capacity()) * size_of::<super::ConnectionId>()
            + self.flows.octets()
            + self.timers.octets();
        MemoryUse {
            connections: live().count() * size_of::<Connection<D::Frame>>(),
            tables,
            queues: live().map(Connection::queue_octets).sum(),
        }
    }
}
