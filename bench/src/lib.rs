//! The Ironwarp harness: how fast is iWARP over this port, measured as perftest does it.
//!
//! ```text
//! cli -> plan (legs) -> traffic (an Application, over dyn Verbs) -> outcome -> stats -> report
//!                          |                                          ^
//!                     run: port, worker, loopback            calibrate: what the cores cost today
//! ```
//!
//! Below TCP, [`raw`] measures the wire by itself.
//!
//! The other end is [`control::services::perf`], in an appliance, in a second process of the harness
//! (`--loopback`), or in the same thread (`--wire ring`).

#![forbid(unsafe_code)]

pub mod calibrate;
pub mod cli;
pub mod host;
pub mod json;
pub mod plan;
pub mod raw;
pub mod report;
pub mod run;
pub mod stats;
pub mod traffic;

#[cfg(test)]
mod mock;
