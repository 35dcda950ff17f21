//! Ports: where frames come from and go to.
//!
//! The engine is written against [`tcpstack::device::Device`]; here are the implementations over real
//! and software NICs. The simulated wire is in `tcpstack::sim`.

pub mod dpdk;
