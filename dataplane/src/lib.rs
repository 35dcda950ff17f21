//! The Ironwarp engine: an iWARP data plane on poll-mode cores.
//!
//! ```text
//! application core      worker core                                 NIC queue
//!   Client  <- rings ->   worker: Stream (iwarp) <-> Stack (tcpstack) <-> port::PortQueue
//!                                   |
//!                                  mem: registered memory
//! ```
//!
//! A worker owns one queue of a port, its mbufs, connections, timers and registrations, and shares
//! nothing of that with any other core. Applications reach it through [`verbs`], either on the worker
//! itself or over rings. Unsafe code is confined to [`port`] and [`mem`].

#![deny(unsafe_code)]

pub mod mem;
#[cfg(feature = "dpdk")]
pub mod port;
mod rings;
#[cfg(feature = "sim")]
pub mod sim;
pub mod verbs;
pub mod worker;

pub use rings::Client;
