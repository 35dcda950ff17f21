//! iWARP: MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040, 7306).
//!
//! Formats and state machines only: ordered octets in, FPDUs out. No I/O, no clock, no threads.

#![forbid(unsafe_code)]

pub mod atomic;
pub mod crc;
pub mod ddp;
pub mod error;
pub mod memory;
pub mod mpa;
pub mod rdmap;
pub mod stream;
pub mod types;
pub mod wire;
pub mod work;

#[cfg(test)]
extern crate self as iwarp;
#[cfg(test)]
#[path = "../tests/common/memory.rs"]
mod testing;
