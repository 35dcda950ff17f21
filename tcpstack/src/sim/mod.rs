//! A simulated wire for tests: ports joined by a seeded, faulty link on a virtual clock.
//!
//! Everything follows from one `u64` seed and the calls made, so each run can be repeated. A loop
//! over two stacks advances the [`Wire`], lets each stack receive and transmit on its
//! [`SimDevice`], and jumps to the earliest of the stacks' timers and [`Wire::next_delivery`].
//!
//! The parts behave like a NIC where that matters to what is tested: a transmitted frame stays
//! referenced until it has left the transmit ring, receive rings and pools run full, checksums
//! are computed and verified by the port if it is told to, and every buffer is accounted for
//! ([`Wire::outstanding`]).

mod bottleneck;
mod device;
mod faults;
mod frame;
mod mangle;
mod pcap;
mod wire;

pub use bottleneck::Bottleneck;
pub use device::{PortConfig, SimDevice};
pub use faults::{BurstLoss, Chance, Faults, Outages};
pub use frame::{SimFrame, SimHeld, SimPool};
pub use mangle::{corrupt, repair_tcp_checksum, split_tcp_segment};
pub use pcap::Pcap;
pub use wire::{Wire, WireCounters};

#[cfg(test)]
mod tests;
