//! The table that finds a segment's connection by its four-tuple, in O(1).
//!
//! Open addressing with linear probing over buckets of eight octets (part of the hash and the
//! index of the key), so a look-up touches one line of buckets and one key. The hash is keyed
//! (SipHash-1-3): a peer cannot choose tuples that collide. The table doubles when it is half
//! full, which happens only when a connection is added; it is bounded by who adds.

use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::{SipHasher13, SipHasher24};

/// No entry.
const EMPTY: u32 = u32::MAX;

/// Buckets of an empty table.
const BUCKETS_MIN: usize = 64;

/// The addresses and ports of a connection; IPv4 addresses in their IPv6-mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    local: Bits,
    remote: Bits,
    /// The local port above the remote one.
    ports: u32,
}

/// An address; halves, as a `u128` would be padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bits {
    high: u64,
    low: u64,
}

impl FlowKey {
    /// The key of the connection between these sockets.
    #[inline]
    pub fn new(local: IpAddr, local_port: u16, remote: IpAddr, remote_port: u16) -> Self {
        Self {
            local: bits(local),
            remote: bits(remote),
            ports: u32::from(local_port) << 16 | u32::from(remote_port),
        }
    }

    /// The key of the connection between these sockets.
    pub fn of(local: SocketAddr, remote: SocketAddr) -> Self {
        Self::new(local.ip(), local.port(), remote.ip(), remote.port())
    }

    /// A keyed hash of it.
    #[inline]
    pub fn hash(&self, secret: &Secret) -> u64 {
        let mut hasher = secret.hasher();
        // The upper half of a mapped IPv4 address says nothing.
        if self.local.high == 0 && self.local.low >> 32 == 0xffff {
            hasher.write_u64(self.local.low << 32 | self.remote.low & 0xffff_ffff);
        } else {
            for bits in [self.local, self.remote] {
                hasher.write_u64(bits.high);
                hasher.write_u64(bits.low);
            }
        }
        hasher.write_u32(self.ports);
        hasher.finish()
    }
}

/// A key for hashes that nobody outside can compute.
#[derive(Clone, Copy)]
pub struct Secret([u8; 16]);

impl Secret {
    /// A secret of these octets, which come from a good source of randomness.
    pub fn new(octets: [u8; 16]) -> Self {
        Self(octets)
    }

    /// A hasher with this key.
    #[inline]
    pub fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_key(&self.0)
    }

    /// A slower hasher, for what an attacker can try out as often as it likes.
    pub fn strong_hasher(&self) -> SipHasher24 {
        SipHasher24::new_with_key(&self.0)
    }
}

/// Four-tuples, each with a number of the caller's (below `u32::MAX`).
pub struct FlowTable {
    secret: Secret,
    buckets: Box<[Bucket]>,
    keys: Vec<Entry>,
    free: Vec<u32>,
    len: usize,
    /// The key found last and its entry: bursts come in runs of one connection.
    last: Option<(FlowKey, u32)>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tag: u32,
    entry: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    key: FlowKey,
    /// The lower half of the hash; the upper one is the bucket's tag.
    hash: u32,
    value: u32,
}

const _: () = assert!(size_of::<Entry>() == 48);

impl FlowTable {
    /// An empty table.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            buckets: vec![Bucket { tag: 0, entry: EMPTY }; BUCKETS_MIN].into(),
            keys: Vec::new(),
            free: Vec::new(),
            len: 0,
            last: None,
        }
    }

    /// The number that was entered for `key`.
    #[inline]
    pub fn get(&mut self, key: &FlowKey) -> Option<u32> {
        if let Some((last, value)) = &self.last
            && last == key
        {
            return Some(*value);
        }
        let bucket = self.find(key, key.hash(&self.secret))?;
        let value = self.keys[self.buckets[bucket].entry as usize].value;
        self.last = Some((*key, value));
        Some(value)
    }

    /// The same, without disturbing the cache of the last one.
    pub fn peek(&self, key: &FlowKey) -> Option<u32> {
        let bucket = self.find(key, key.hash(&self.secret))?;
        Some(self.keys[self.buckets[bucket].entry as usize].value)
    }

    /// Enters `value` for `key`, in the place of what was there.
    pub fn insert(&mut self, key: FlowKey, value: u32) {
        self.last = None;
        let hash = key.hash(&self.secret);
        if let Some(bucket) = self.find(&key, hash) {
            self.keys[self.buckets[bucket].entry as usize].value = value;
            return;
        }
        if 2 * (self.len + 1) > self.buckets.len() {
            self.grow();
        }
        let entry = Entry { key, hash: lower(hash), value };
        let index = match self.free.pop() {
            Some(index) => {
                self.keys[index as usize] = entry;
                index
            }
            None => {
                make_room(&mut self.keys);
                self.keys.push(entry);
                u32::try_from(self.keys.len() - 1).expect("fewer entries than the numbers they carry")
            }
        };
        self.len += 1;
        place(&mut self.buckets, lower(hash), Bucket { tag: tag_of(hash), entry: index });
    }

    /// Takes `key` out.
    pub fn remove(&mut self, key: &FlowKey) -> Option<u32> {
        self.last = None;
        let mut hole = self.find(key, key.hash(&self.secret))?;
        let index = self.buckets[hole].entry;
        self.free.push(index);
        self.len -= 1;
        // Close the hole: move back whatever was displaced over it.
        let mask = self.buckets.len() - 1;
        let mut bucket = hole;
        loop {
            bucket = (bucket + 1) & mask;
            let moved = self.buckets[bucket];
            if moved.entry == EMPTY {
                break;
            }
            let home = home(self.keys[moved.entry as usize].hash, mask);
            if bucket.wrapping_sub(home) & mask >= bucket.wrapping_sub(hole) & mask {
                self.buckets[hole] = moved;
                hole = bucket;
            }
        }
        self.buckets[hole].entry = EMPTY;
        Some(self.keys[index as usize].value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Octets that the table takes.
    pub(crate) fn octets(&self) -> usize {
        size_of_val(&*self.buckets)
            + self.keys.capacity() * size_of::<Entry>()
            + self.free.capacity() * size_of::<u32>()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn find(&self, key: &FlowKey, hash: u64) -> Option<usize> {
        let mask = self.buckets.len() - 1;
        let mut bucket = home(lower(hash), mask);
        // At most half of the buckets are taken, so this ends.
        loop {
            let Bucket { tag, entry } = self.buckets[bucket];
            if entry == EMPTY {
                return None;
            }
            if tag == tag_of(hash) && self.keys[entry as usize].key == *key {
                return Some(bucket);
            }
            bucket = (bucket + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let mut buckets = vec![Bucket { tag: 0, entry: EMPTY }; 2 * self.buckets.len()].into_boxed_slice();
        for bucket in self.buckets.iter().filter(|bucket| bucket.entry != EMPTY) {
            place(&mut buckets, self.keys[bucket.entry as usize].hash, *bucket);
        }
        self.buckets = buckets;
    }
}

/// Lets a table grow by a quarter where `push` would double it: there is one place a connection.
pub(crate) fn make_room<T>(table: &mut Vec<T>) {
    if table.len() == table.capacity() {
        table.reserve_exact(table.len() / 4 + 16);
    }
}

fn place(buckets: &mut [Bucket], hash: u32, entry: Bucket) {
    let mask = buckets.len() - 1;
    let mut bucket = home(hash, mask);
    while buckets[bucket].entry != EMPTY {
        bucket = (bucket + 1) & mask;
    }
    buckets[bucket] = entry;
}

#[inline]
fn home(hash: u32, mask: usize) -> usize {
    // No table has more buckets than an index tells entries apart.
    hash as usize & mask
}

#[inline]
fn lower(hash: u64) -> u32 {
    u32::try_from(hash & 0xffff_ffff).expect("32 bits are left")
}

/// The upper half of the hash; the lower one chose the bucket.
#[inline]
fn tag_of(hash: u64) -> u32 {
    u32::try_from(hash >> 32).expect("32 bits are left")
}

#[inline]
fn bits(addr: IpAddr) -> Bits {
    match addr {
        IpAddr::V4(addr) => Bits { high: 0, low: 0xffff_0000_0000 | u64::from(addr.to_bits()) },
        IpAddr::V6(addr) => {
            let [a, b, c, d, e, f, g, h, low @ ..] = addr.octets();
            Bits { high: u64::from_be_bytes([a, b, c, d, e, f, g, h]), low: u64::from_be_bytes(low) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(n: u16) -> FlowKey {
        FlowKey::new(Ipv4Addr::new(192, 0, 2, 1).into(), 4791, Ipv4Addr::new(192, 0, 2, 2).into(), n)
    }

    fn table() -> FlowTable {
        FlowTable::new(Secret::new([7; 16]))
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address_only_in_form() {
        let v4 = FlowKey::of("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
        let turned = FlowKey::of("192.0.2.2:2".parse().unwrap(), "192.0.2.1:1".parse().unwrap());
        assert_ne!(v4, turned);
        let secret = Secret::new([1; 16]);
        assert_ne!(v4.hash(&secret), turned.hash(&secret));
        assert_ne!(v4.hash(&secret), v4.hash(&Secret::new([2; 16])));
    }

    #[test]
    fn many_flows_are_all_found() {
        let mut table = table();
        for n in 0..20_000 {
            table.insert(key(n), u32::from(n));
        }
        for n in (0..20_000).step_by(2) {
            assert_eq!(table.remove(&key(n)), Some(u32::from(n)));
        }
        for n in 0..20_000 {
            assert_eq!(table.get(&key(n)), (n % 2 == 1).then_some(u32::from(n)));
        }
        assert_eq!(table.len(), 10_000);
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(steps in prop::collection::vec((0u8..3, 0u16..90, 0u32..1000), 0..600)) {
            let mut table = table();
            let mut model = BTreeMap::new();
            for (kind, n, value) in steps {
                match kind {
                    0 => {
                        table.insert(key(n), value);
                        model.insert(n, value);
                    }
                    1 => prop_assert_eq!(table.remove(&key(n)), model.remove(&n)),
                    _ => prop_assert_eq!(table.get(&key(n)), model.get(&n).copied()),
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.peek(&key(n)), model.get(&n).copied());
            }
        }
    }
}
