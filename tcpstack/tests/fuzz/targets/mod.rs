//! What is fuzzed, one function a target: octets in, panic when something is wrong.
//!
//! `tcpstack/fuzz` runs them under libFuzzer; the test beside this folder over the inputs that are kept.

mod connection;
mod ethernet_ip_tcp;
mod half_open;
mod icmp;
mod ndp_arp;
mod pair;
mod tcp_options;

/// A target: its name, and what takes an input.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets.
pub(crate) const TARGETS: &[Target] = &[
    ("connection", connection::run),
    ("ethernet_ip_tcp", ethernet_ip_tcp::run),
    ("half_open", half_open::run),
    ("icmp", icmp::run),
    ("ndp_arp", ndp_arp::run),
    ("pair", pair::run),
    ("tcp_options", tcp_options::run),
];
