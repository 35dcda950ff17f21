//! What a service counts, readable from other threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a service on one worker.
#[derive(Debug)]
pub struct ServerCounters {
    unit: &'static str,
    octets_name: &'static str,
    pub(super) accepted: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) active: AtomicU64,
    pub(super) units: AtomicU64,
    pub(super) octets: AtomicU64,
    pub(super) violations: AtomicU64,
}

impl ServerCounters {
    /// All at zero, with the names of what is done and of its octets.
    pub(super) fn new(unit: &'static str, octets_name: &'static str) -> Self {
        Self {
            unit,
            octets_name,
            accepted: AtomicU64::default(),
            rejected: AtomicU64::default(),
            active: AtomicU64::default(),
            units: AtomicU64::default(),
            octets: AtomicU64::default(),
            violations: AtomicU64::default(),
        }
    }

    /// Each counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("connections_accepted", &self.accepted),
            ("connections_rejected", &self.rejected),
            ("connections_active", &self.active),
            (self.unit, &self.units),
            (self.octets_name, &self.octets),
            ("protocol_violations", &self.violations),
        ]
        .into_iter()
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}
