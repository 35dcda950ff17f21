//! Numbers that an outsider must not guess: initial sequence numbers (RFC 6528), ephemeral
//! ports (RFC 6056 section 3.3.4) and offsets of the timestamp clock (RFC 7323 section 5.4).

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use crate::flow::{FlowKey, Secret};
use crate::seq::SeqNumber;
use crate::time::Instant;

/// What sets the hashes of one four-tuple apart.
const ISN: u8 = 1;
const TIMESTAMP: u8 = 2;
const PORT: u8 = 3;

/// The initial sequence number of a connection.
// req 9293-3.4.1-1: a clock of 4 us, and a function of the four-tuple.
// req 9293-3.4.1-2: the function is keyed.
pub(crate) fn initial_sequence_number(secret: &Secret, key: &FlowKey, now: Instant) -> SeqNumber {
    let clock = low_word(now.as_micros() / 4);
    SeqNumber::new(clock.wrapping_add(low_word(mix(secret, ISN, key.hash(secret)))))
}

/// What is added to the timestamp clock on a connection.
pub(crate) fn timestamp_offset(secret: &Secret, key: &FlowKey) -> u32 {
    low_word(mix(secret, TIMESTAMP, key.hash(secret)))
}

/// How many destinations can be told apart by the counters of their ports (RFC 6056 section 3.3.4).
pub(crate) const PORT_COUNTERS: usize = 64;

/// What ephemeral ports are chosen for (RFC 6056 section 3.3.4): one host's connections to one
/// destination say nothing about those to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortDestination {
    hash: u64,
}

impl PortDestination {
    /// Connections from `local` to `remote`.
    pub(crate) fn new(secret: &Secret, local: IpAddr, remote: SocketAddr) -> Self {
        let key = FlowKey::new(local, 0, remote.ip(), remote.port());
        Self { hash: mix(secret, PORT, key.hash(secret)) }
    }

    /// The counter that the destination uses: `< PORT_COUNTERS`.
    pub(crate) fn counter(self) -> usize {
        usize::try_from(self.hash >> 32).unwrap_or_default() % PORT_COUNTERS
    }

    /// The ports to try, each once: from a hashed offset, which `turn` moves on.
    pub(crate) fn ports(self, range: &RangeInclusive<u16>, turn: u32) -> impl Iterator<Item = u16> + use<> {
        let (first, last) = (*range.start(), *range.end());
        let count = u32::from(last.saturating_sub(first)) + 1;
        let offset = low_word(self.hash).wrapping_add(turn) % count;
        (0..count).map(move |step| {
            let port = u32::from(first) + (offset + step) % count;
            u16::try_from(port).expect("within the range")
        })
    }
}

/// Five seeds from one, by hashing it with different numbers.
pub(crate) fn split_seed(seed: [u8; 32]) -> [[u8; 16]; 5] {
    let mut seeds = [[0; 16]; 5];
    let (key, data) = seed.split_at(16);
    let secret = Secret::new(key.try_into().expect("half of 32"));
    for (part, number) in seeds.as_flattened_mut().chunks_mut(8).zip(0u8..) {
        let mut hasher = secret.hasher();
        hasher.write(data);
        hasher.write_u8(number);
        part.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    seeds
}

fn mix(secret: &Secret, purpose: u8, hash: u64) -> u64 {
    let mut hasher = secret.hasher();
    hasher.write_u8(purpose);
    hasher.write_u64(hash);
    hasher.finish()
}

fn low_word(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).expect("32 bits are left")
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use std::collections::BTreeSet;

    fn secret() -> Secret {
        Secret::new([3; 16])
    }

    fn key(port: u16) -> FlowKey {
        FlowKey::new([10, 0, 0, 1].into(), port, [10, 0, 0, 2].into(), 80)
    }

    // proves 9293-3.4.1-1
    // proves 9293-3.4.1-2
    #[test]
    fn isns_follow_the_clock_and_differ_by_tuple_and_key() {
        let isn = initial_sequence_number(&secret(), &key(1), Instant::ZERO);
        let later = initial_sequence_number(&secret(), &key(1), Instant::ZERO + Duration::from_secs(1));
        assert_eq!(later.since(isn), 250_000);
        assert_ne!(isn, initial_sequence_number(&secret(), &key(2), Instant::ZERO));
        assert_ne!(isn, initial_sequence_number(&Secret::new([4; 16]), &key(1), Instant::ZERO));
    }

    fn to(port: u16) -> PortDestination {
        PortDestination::new(&secret(), [10, 0, 0, 1].into(), SocketAddr::from(([10, 0, 0, 2], port)))
    }

    #[test]
    fn every_port_is_tried_once() {
        let ports = |turn| to(80).ports(&(100..=199), turn);
        let mut all: Vec<_> = ports(7).collect();
        assert_eq!(all[0] - 100, (ports(6).next().unwrap() - 100 + 1) % 100);
        all.sort_unstable();
        assert_eq!(all, (100..=199).collect::<Vec<_>>());
    }

    #[test]
    fn a_range_of_one_port_and_of_all() {
        assert_eq!(to(80).ports(&(5..=5), 0).count(), 1);
        assert_eq!(to(80).ports(&(0..=65535), 0).count(), 65536);
    }

    /// What one destination sees of the ports does not tell it about another.
    #[test]
    fn destinations_begin_at_places_of_their_own() {
        let firsts: BTreeSet<_> = (0..100).map(|port| to(port).ports(&(0..=65535), 0).next()).collect();
        assert!(firsts.len() > 95);
        let counters: BTreeSet<_> = (0..1000).map(|port| to(port).counter()).collect();
        assert_eq!(counters.len(), PORT_COUNTERS);
        let other =
            PortDestination::new(&Secret::new([4; 16]), [10, 0, 0, 1].into(), ([10, 0, 0, 2], 80).into());
        assert_ne!(other.ports(&(0..=65535), 0).next(), to(80).ports(&(0..=65535), 0).next());
    }
}
