//! STags: which octets a Stream may reach, and how.
//!
//! An STag is a 24-bit index and an 8-bit key. Both are random, so that an STag cannot be guessed
//! from another (RFC 5042 section 6.1.1), and yet a look-up is one table access: the low bits of the
//! index are the slot, the others and the key must match what the slot holds.
//!
//! ```text
//!  31                    8 7      0
//! +------------+----------+--------+
//! |   random   |   slot   |  key   |
//! +------------+----------+--------+
//! |<----- index (24) ---->|
//! ```

use iwarp::atomic::{AtomicOperation, WORD_LEN};
use iwarp::memory::{AccessError, Accessor, Memory, Operation};
use iwarp::types::{ProtectionDomain, Stag, StreamId};
use rand_chacha::ChaCha20Rng;
use rand_core::{RngCore, SeedableRng};

use super::buffer::WordError;
use super::{AccessRights, MemoryRegion};

const KEY_BITS: u32 = 8;
const INDEX_BITS: u32 = 24;

/// Which Streams may use a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of its protection domain.
    Domain,
    /// One Stream only.
    Stream(StreamId),
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The region is not within its buffer.
    #[error("the region is not within its buffer")]
    OutOfBounds,
    /// There is no such Stream of this application (any more, or yet).
    #[error("there is no such Stream")]
    NoStream,
    /// All slots are in use.
    #[error("the worker's {limit} registrations are all in use")]
    TooMany {
        /// The table's size.
        limit: usize,
    },
}

/// What a registration is, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Its STag.
    pub stag: Stag,
    /// Its protection domain; the upper 32 bits are the application's number on its worker.
    pub domain: ProtectionDomain,
    /// Octets.
    pub len: usize,
    /// What may be done with it.
    pub rights: AccessRights,
    /// Whether the peer invalidated it.
    pub invalidated: bool,
}

/// One worker's registrations.
pub struct Registry {
    /// A power of two of them.
    slots: Vec<Option<Registration>>,
    /// Slots without a registration, in no particular order.
    free: Vec<u32>,
    random: ChaCha20Rng,
}

struct Registration {
    stag: Stag,
    domain: ProtectionDomain,
    scope: Scope,
    rights: AccessRights,
    /// Invalidated by the peer: known still, so that the application can deregister it.
    invalidated: bool,
    region: MemoryRegion,
}

impl Registry {
    /// A registry for up to `limit` registrations (rounded up to a power of two, at most 2^24).
    ///
    /// # Panics
    /// When `limit` is 0 or more than 2^24.
    pub fn new(limit: usize, seed: [u8; 32]) -> Self {
        assert!((1..=1 << INDEX_BITS).contains(&limit), "1 to 2^24 registrations");
        let count = limit.next_power_of_two();
        let slots = (0..count).map(|_| None).collect();
        let free = (0..u32::try_from(count).expect("at most 2^24")).collect();
        Self { slots, free, random: ChaCha20Rng::from_seed(seed) }
    }

    /// Gives a region an STag; its Tagged Offsets start at 0.
    ///
    /// # Errors
    /// When the region is not within its buffer, or the table is full.
    // req 5040-8.1.1-5, 5040-8.1.1-6, 5040-8.1.2-2, 5041-8.2-3, 5041-8.3-1, 5041-8.3-2, 5041-8.3.1-5
    // req 5041-8.3.1-6
    pub fn register(
        &mut self,
        domain: ProtectionDomain,
        scope: Scope,
        region: MemoryRegion,
        rights: AccessRights,
    ) -> Result<Stag, RegisterError> {
        // req 5041-8.3.2-5, 5042-7.3-1: a region holds its buffer, which none has but whom it was given.
        let end = region.offset.checked_add(region.len).ok_or(RegisterError::OutOfBounds)?;
        if end > region.buffer.len() {
            return Err(RegisterError::OutOfBounds);
        }
        let Some(choices) = u32::try_from(self.free.len()).ok().filter(|&count| count > 0) else {
            return Err(RegisterError::TooMany { limit: self.slots.len() });
        };
        let choice = self.random.next_u32() % choices;
        let slot = self.free.swap_remove(choice as usize);
        let stag = self.name(slot);
        self.slots[slot as usize] =
            Some(Registration { stag, domain, scope, rights, invalidated: false, region });
        Ok(stag)
    }

    /// Withdraws a registration; no octet of it is placed or read afterwards. False when there
    /// is none of this STag.
    // req 5040-8.1.1-5, 5040-8.1.1-6, 5040-8.1.1-7, 5041-8.3-1, 5041-8.3-2, 5041-8.3.1-5, 5041-8.3.1-7
    // req 5042-6.2.2-2
    pub fn deregister(&mut self, stag: Stag) -> bool {
        let slot = self.slot_of(stag);
        if self.slots[slot].as_ref().is_none_or(|it| it.stag != stag) {
            return false;
        }
        self.slots[slot] = None;
        self.free.push(u32::try_from(slot).expect("at most 2^24 slots"));
        true
    }

    /// All registrations.
    pub fn regions(&self) -> impl Iterator<Item = RegionInfo> {
        self.slots.iter().flatten().map(|it| RegionInfo {
            stag: it.stag,
            domain: it.domain,
            len: it.region.len,
            rights: it.rights,
            invalidated: it.invalidated,
        })
    }

    /// An STag for a slot: random but for the slot's bits, never 0.
    // req 5040-8.1.1-9, 5040-8.1.1-10
    fn name(&mut self, slot: u32) -> Stag {
        let slot_mask = u32::try_from(self.slots.len() - 1).expect("at most 2^24 slots");
        loop {
            let random = self.random.next_u32();
            let index = ((random >> KEY_BITS) & !slot_mask) | slot;
            let stag = (index << KEY_BITS) | (random & ((1 << KEY_BITS) - 1));
            if stag != 0 {
                return Stag(stag);
            }
        }
    }

    fn slot_of(&self, stag: Stag) -> usize {
        (stag.0 >> KEY_BITS) as usize & (self.slots.len() - 1)
    }

    /// The one access check: the registration and the offset in its buffer.
    // req 5041-7.1-6: every check of a Tagged Segment's STag, rights and bounds is here.
    // req 5041-8.3.1-1, 5041-8.3.1-4, 5042-6.2.1-1
    fn resolve(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        len: usize,
    ) -> Result<(&Registration, usize), AccessError> {
        let found = self.find(who, stag)?;
        let allowed = match operation {
            Operation::LocalRead => true,
            Operation::LocalWrite => found.rights.local_write,
            Operation::RemoteWrite => found.rights.remote_write,
            Operation::RemoteRead => found.rights.remote_read,
            Operation::RemoteAtomic => found.rights.remote_atomic,
        };
        if !allowed {
            return Err(AccessError::AccessRights);
        }
        // req 5040-8.1.1-4
        let end = offset.checked_add(len as u64).ok_or(AccessError::OffsetWrap)?;
        if end > found.region.len as u64 {
            return Err(AccessError::BaseOrBounds);
        }
        let offset = usize::try_from(offset).map_err(|_| AccessError::BaseOrBounds)?;
        Ok((found, found.region.offset + offset))
    }

    /// The check of an Atomic Operation: the registration and where in its buffer the word is.
    // req 7306-5.1.1-1, 7306-5.1.2-2, 7306-8.2-6: of the host's memory, however the region lies in it.
    fn resolve_word(
        &self,
        who: Accessor,
        stag: Stag,
        offset: u64,
    ) -> Result<(&Registration, usize), AccessError> {
        let (found, at) = self.resolve(who, Operation::RemoteAtomic, stag, offset, WORD_LEN as usize)?;
        found.region.buffer.check_word(at).map_err(word_refused)?;
        Ok((found, at))
    }

    /// The registration, when `who` may use it at all.
    fn find(&self, who: Accessor, stag: Stag) -> Result<&Registration, AccessError> {
        let found = self.slots[self.slot_of(stag)].as_ref().ok_or(AccessError::InvalidStag)?;
        if found.stag != stag || found.invalidated {
            return Err(AccessError::InvalidStag);
        }
        // req 5041-8.2-1, 5041-8.2-2, 5041-8.3.1-2, 5041-8.3.1-3, 5042-6.1.1-2, 5042-6.1.1-3
        let in_scope = match found.scope {
            Scope::Domain => true,
            Scope::Stream(stream) => stream == who.stream,
        };
        // req 5040-8.1.1-2, 5040-8.1.1-3
        if found.domain != who.domain || !in_scope {
            return Err(AccessError::NotAssociated);
        }
        Ok(found)
    }
}

impl Memory for Registry {
    fn check(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        self.resolve(who, operation, stag, offset, len as usize).map(|_| ())
    }

    // The one copy of a payload: from the received frame to registered memory.
    fn place(
        &mut self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        octets: &[u8],
    ) -> Result<(), AccessError> {
        let (found, at) = self.resolve(who, operation, stag, offset, octets.len())?;
        found.region.buffer.write(at, octets).map_err(|_| AccessError::BaseOrBounds)
    }

    fn fetch(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        let (found, at) = self.resolve(who, operation, stag, offset, out.len())?;
        found.region.buffer.read(at, out).map_err(|_| AccessError::BaseOrBounds)
    }

    fn check_atomic(&self, who: Accessor, stag: Stag, offset: u64) -> Result<(), AccessError> {
        self.resolve_word(who, stag, offset).map(|_| ())
    }

    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        let (found, at) = self.resolve_word(who, stag, offset)?;
        found.region.buffer.update_u64(at, operation).map_err(word_refused)
    }

    fn invalidate(&mut self, who: Accessor, stag: Stag) -> Result<(), AccessError> {
        let found = self.find(who, stag)?;
        if !found.rights.remote_invalidate {
            return Err(AccessError::AccessRights);
        }
        let slot = self.slot_of(stag);
        if let Some(registration) = &mut self.slots[slot] {
            registration.invalidated = true;
        }
        Ok(())
    }
}

fn word_refused(error: WordError) -> AccessError {
    match error {
        WordError::OutOfBounds(_) => AccessError::BaseOrBounds,
        WordError::Misaligned { .. } => AccessError::Misaligned,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Buffer, HugePages};

    const WHO: Accessor = Accessor { domain: ProtectionDomain(1), stream: StreamId(7) };

    fn registry(limit: usize) -> Registry {
        Registry::new(limit, [3; 32])
    }

    fn region(len: usize) -> MemoryRegion {
        MemoryRegion::whole(&Buffer::allocate(len, HugePages::Never).unwrap())
    }

    fn register(registry: &mut Registry, rights: AccessRights) -> Stag {
        registry.register(WHO.domain, Scope::Domain, region(100), rights).unwrap()
    }

    // proves 5040-8.1.1-5
    #[test]
    fn placed_octets_are_in_the_buffer_where_the_offset_says() {
        let mut registry = registry(4);
        let buffer = Buffer::allocate(100, HugePages::Never).unwrap();
        let part = MemoryRegion { buffer: buffer.clone(), offset: 40, len: 20 };
        let stag = registry.register(WHO.domain, Scope::Domain, part, AccessRights::REMOTE_WRITE).unwrap();
        registry.place(WHO, Operation::RemoteWrite, stag, 18, b"ab").unwrap();
        let mut out = [0; 2];
        buffer.read(58, &mut out).unwrap();
        assert_eq!(&out, b"ab");
        registry.fetch(WHO, Operation::LocalRead, stag, 18, &mut out).unwrap();
        assert_eq!(&out, b"ab");
    }

    // proves 5040-8.1.1-4, 5041-8.3-1, 5041-8.3.1-4, 5041-8.3.1-5, 5042-6.2.1-1
    #[test]
    fn bounds_are_those_of_the_region_not_of_the_buffer() {
        let mut registry = registry(4);
        let buffer = Buffer::allocate(100, HugePages::Never).unwrap();
        let part = MemoryRegion { buffer, offset: 40, len: 20 };
        let stag = registry.register(WHO.domain, Scope::Domain, part, AccessRights::REMOTE).unwrap();
        let check = |offset, len| registry.check(WHO, Operation::RemoteRead, stag, offset, len);
        assert_eq!(check(0, 20), Ok(()));
        assert_eq!(check(20, 0), Ok(()));
        assert_eq!(check(0, 21), Err(AccessError::BaseOrBounds));
        assert_eq!(check(21, 0), Err(AccessError::BaseOrBounds));
        assert_eq!(check(u64::MAX, 1), Err(AccessError::OffsetWrap));
        assert_eq!(check(u64::MAX - 4, 4), Err(AccessError::BaseOrBounds));
    }

    // proves 5040-8.1.1-6, 5041-8.3.1-6
    #[test]
    fn each_operation_needs_its_own_right() {
        let mut registry = registry(8);
        let rights = [AccessRights::LOCAL_READ, AccessRights::REMOTE_WRITE, AccessRights::REMOTE_READ];
        let [local, write, read] = rights.map(|it| register(&mut registry, it));
        let check = |operation, stag| registry.check(WHO, operation, stag, 0, 1);
        let denied = Err(AccessError::AccessRights);
        assert_eq!(check(Operation::LocalRead, local), Ok(()));
        assert_eq!(check(Operation::LocalWrite, local), denied);
        assert_eq!(check(Operation::RemoteWrite, write), Ok(()));
        assert_eq!(check(Operation::RemoteRead, write), denied);
        assert_eq!(check(Operation::RemoteRead, read), Ok(()));
        assert_eq!(check(Operation::RemoteWrite, read), denied);
    }

    // proves 7306-5.2.1-2, 7306-8.2-6
    #[test]
    fn an_atomics_word_is_aligned_in_memory_not_in_its_region() {
        let mut registry = registry(4);
        let region = MemoryRegion { offset: 4, len: 96, ..region(100) };
        let buffer = region.buffer.clone();
        let rights = AccessRights::REMOTE_ATOMIC;
        let stag = registry.register(WHO.domain, Scope::Domain, region.clone(), rights).unwrap();
        let add = |offset| registry.atomic(WHO, stag, offset, AtomicOperation::fetch_add(3));
        assert_eq!(add(4), Ok(0));
        assert_eq!(add(4), Ok(3));
        assert_eq!(buffer.load_u64(8), Ok(6));
        for offset in [0, 8, 3, 80] {
            assert_eq!(add(offset), Err(AccessError::Misaligned));
        }
        assert_eq!(add(92), Err(AccessError::BaseOrBounds), "half of it is beyond the region");
        assert_eq!(add(u64::MAX - 3), Err(AccessError::OffsetWrap));
        let other = registry.register(WHO.domain, Scope::Domain, region, AccessRights::REMOTE).unwrap();
        assert_eq!(registry.check_atomic(WHO, other, 4), Err(AccessError::AccessRights));
        assert_eq!(buffer.load_u64(8), Ok(6));
    }

    // proves 5040-8.1.1-2, 5040-8.1.1-3, 5041-8.2-4, 5041-8.3.1-2, 5041-8.3.1-3, 5042-6.1.1-2
    // proves 5042-6.1.1-3
    #[test]
    fn other_domains_and_streams_are_refused() {
        let mut registry = registry(4);
        let scope = Scope::Stream(StreamId(7));
        let stag = registry.register(WHO.domain, scope, region(9), AccessRights::REMOTE).unwrap();
        let as_other = |who| registry.check(who, Operation::RemoteWrite, stag, 0, 1);
        assert_eq!(as_other(WHO), Ok(()));
        assert_eq!(
            as_other(Accessor { domain: ProtectionDomain(2), ..WHO }),
            Err(AccessError::NotAssociated)
        );
        assert_eq!(as_other(Accessor { stream: StreamId(8), ..WHO }), Err(AccessError::NotAssociated));
    }

    // proves 5040-8.1.1-5, 5040-8.1.1-6, 5040-8.1.1-7, 5040-8.1.2-2, 5041-8.3-1, 5041-8.3-2, 5041-8.3.1-5
    // proves 5041-8.3.2-3, 5042-3-2
    #[test]
    fn a_stag_is_dead_after_deregistration_and_its_slot_gets_another() {
        let mut registry = registry(1);
        let first = register(&mut registry, AccessRights::REMOTE);
        assert_eq!(
            registry.register(WHO.domain, Scope::Domain, region(1), AccessRights::LOCAL),
            Err(RegisterError::TooMany { limit: 1 })
        );
        assert!(registry.deregister(first));
        assert!(!registry.deregister(first));
        let second = register(&mut registry, AccessRights::REMOTE);
        assert_ne!(first, second);
        assert_eq!(registry.check(WHO, Operation::RemoteRead, first, 0, 1), Err(AccessError::InvalidStag));
    }

    #[test]
    fn an_invalidated_stag_is_good_for_deregistration_only() {
        let mut registry = registry(4);
        let fixed = register(&mut registry, AccessRights::REMOTE);
        assert_eq!(registry.invalidate(WHO, fixed), Err(AccessError::AccessRights));
        let rights = AccessRights { remote_invalidate: true, ..AccessRights::REMOTE };
        let stag = register(&mut registry, rights);
        registry.invalidate(WHO, stag).unwrap();
        for operation in [Operation::RemoteWrite, Operation::LocalRead] {
            let result = registry.check(WHO, operation, stag, 0, 1);
            assert_eq!(result, Err(AccessError::InvalidStag));
        }
        assert_eq!(registry.invalidate(WHO, stag), Err(AccessError::InvalidStag));
        assert!(registry.deregister(stag));
    }

    // proves 5040-8.1.1-9, 5040-8.1.1-10
    #[test]
    fn stags_are_sparse_and_differ_by_seed() {
        let mut one = Registry::new(1024, [1; 32]);
        let mut two = Registry::new(1024, [2; 32]);
        let shared = region(1);
        let take = |registry: &mut Registry| {
            registry.register(WHO.domain, Scope::Domain, shared.clone(), AccessRights::LOCAL).unwrap()
        };
        let ones: Vec<_> = (0..100).map(|_| take(&mut one)).collect();
        let twos: Vec<_> = (0..100).map(|_| take(&mut two)).collect();
        assert!(ones.iter().filter(|&it| twos.contains(it)).count() < 2);
        let steps = ones.windows(2).filter(|it| it[0].0.abs_diff(it[1].0) < 1 << KEY_BITS).count();
        assert!(steps < 5, "neighbouring STags must not follow each other");
    }

    // proves 5041-8.3.2-5, 5042-7.3-1
    #[test]
    fn a_region_beyond_its_buffer_is_refused() {
        let mut registry = registry(1);
        for (offset, len) in [(0, 101), (101, 0), (usize::MAX, 2)] {
            let beyond = MemoryRegion { offset, len, ..region(100) };
            let result = registry.register(WHO.domain, Scope::Domain, beyond, AccessRights::LOCAL);
            assert_eq!(result, Err(RegisterError::OutOfBounds));
        }
    }
}
