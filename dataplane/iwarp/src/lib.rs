//! iWARP: MPA (RFC 5044, 6581), DDP (RFC 5041) and RDMAP (RFC 5040).
//!
//! Formats and state machines only: ordered octets in, FPDUs out. No I/O, no clock, no threads.

#![forbid(unsafe_code)]

pub mod memory;
pub mod mpa;
pub mod types;
pub mod wire;
pub mod work;
