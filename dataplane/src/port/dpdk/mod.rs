//! Ports over DPDK: the environment ([`Eal`]), ports ([`Port`]), their queue pairs ([`PortQueue`]) and
//! frames that are mbufs ([`DpdkFrame`]).
//!
//! ```text
//! Eal ---- open ----> Port            control side: link, statistics, information
//!  |                   |  `---------> PortQueue (one a worker) : Device
//!  |                   |                |- receive pool  -> PMD -> DpdkFrame
//!  |                   |                |- data pool     -> allocate()
//!  |                   |                `- control pool  -> allocate_control()
//!  `-- environment <---'   everything holds a reference; the last one cleans up
//! ```
//!
//! What keeps this sound, in one place:
//! - A [`DpdkFrame`] or [`DpdkHeld`] owns one reference of its mbuf and nothing else. Mempools are therefore
//!   never freed while the process uses DPDK: a closed queue's pools are kept and reused ([`pool`](self)).
//! - A port is stopped and closed when its [`Port`] and all its queues are gone, so no poll can run on a
//!   closed port.
//! - The EAL's memory is unmapped only on the main lcore's thread, after everything else that refers to
//!   the environment is gone and every mbuf is back in its pool; otherwise that is left to process exit.
//! - Octets of a received frame may lie in memory that the driver shares with a device or (memif, vhost-user)
//!   another process. A peer that writes a buffer after handing it over breaks the wire's contract as a
//!   faulty NIC would; such wires are for peers that are trusted that far.

#![allow(unsafe_code, reason = "the engine's edge to C")]

mod args;
mod clock;
mod config;
mod eal;
mod error;
mod frame;
mod launch;
mod pool;
mod port;
mod queue;
mod quirks;
mod ring;
mod stats;
mod stop;

pub use clock::Tsc;
pub use config::{Offloads, PortConfig};
pub use eal::{Eal, Lcores, RegisteredThread, Registrar};
pub use error::{EalError, Errno, LaunchError, LcorePanic, PortError};
pub use frame::{DpdkFrame, DpdkHeld};
pub use launch::LcoreHandle;
pub use port::{LinkStatus, Port, Rss};
pub use queue::{PortQueue, QueueCounters};
pub use stats::PortStats;
