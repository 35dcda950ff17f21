//! What `ironwarp-bench` talks to: the `perf` service, and what it shares with the harness.
//!
//! One connection is one test of one size. The harness says in the MPA Request what it wants, the service
//! makes memory for it and says in the Reply where that is. The test's own messages and the few that
//! steer it then share the Stream, set apart by Solicited Event:
//!
//! ```text
//! harness                                      service
//!   MPA Request (Hello: plan, memory)   ->
//!                                       <-  MPA Reply (Welcome: memory)
//!   Start (both ways only)              ->
//!   Writes, Reads or Sends              <->  Credit for Sends, as receives are posted again
//!   Finish                              ->
//!                                       <-  Finished: all of it is delivered
//! ```
//!
//! A peer never has more Sends in flight than receives are posted for: iWARP has no "receiver not ready",
//! and a Send that finds no receive ends the Stream (RFC 5041 section 7.1).

pub mod channel;
pub mod message;
pub mod pattern;
pub mod pump;

mod part;
mod service;

pub use service::{Limits, Notice, PerfConfig, PerfService};

/// The TCP port, perftest's.
pub const PORT: u16 = 18_515;
