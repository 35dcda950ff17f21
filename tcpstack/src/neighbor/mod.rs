//! Neighbours: which Ethernet address an IP address on the link has, and whether it still answers.
//!
//! [`table`] is the one state machine for both IP versions, after RFC 4861 section 7.3;
//! `arp` (RFC 826) and `ndp` (RFC 4861) turn packets into what it hears and its questions into
//! packets. It learns from requests to us and from answers; announcements nobody asked for
//! change only entries that are there already.

pub(crate) mod arp;
pub(crate) mod ndp;
pub(crate) mod table;

pub use table::{NeighborConfig, NeighborHandle, NeighborInfo, NeighborState};
