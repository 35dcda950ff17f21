//! A lightweight TCP/IP host for one poll-mode core.
//!
//! Frames come in and go out through the [`device`] traits; time is an argument. There is no
//! I/O, no thread and no clock in here, so a plain loop can drive it (see feature `sim`).

#![forbid(unsafe_code)]

pub mod addr;
pub mod checksum;
pub mod config;
pub mod counters;
pub mod device;
pub mod ethernet;
pub mod flow;
pub mod header;
pub mod icmp;
pub mod interface;
mod ip;
pub mod neighbor;
pub mod queue;
pub mod seq;
#[cfg(feature = "sim")]
pub mod sim;
pub mod stack;
pub mod tcp;
pub mod time;
pub mod timer;
