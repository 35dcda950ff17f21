//! Registered memory for tests: vectors, with every check that [`Memory`] asks for.

#![allow(dead_code, reason = "each user needs another part")]

use std::cell::RefCell;
use std::collections::BTreeMap;

use iwarp::atomic::{AtomicOperation, WORD_LEN};
use iwarp::memory::{AccessError, Accessor, Memory, Operation};
use iwarp::types::{ProtectionDomain, Stag, StreamId};

/// The Stream of most tests.
pub(crate) const WHO: Accessor = Accessor { domain: ProtectionDomain(1), stream: StreamId(1) };

pub(crate) struct Region {
    pub(crate) domain: ProtectionDomain,
    pub(crate) allowed: Vec<Operation>,
    /// In a cell, because an Atomic Operation needs no more than a shared reference.
    pub(crate) octets: RefCell<Vec<u8>>,
}

/// Registered memory of one side.
#[derive(Default)]
pub(crate) struct TestMemory {
    pub(crate) regions: BTreeMap<Stag, Region>,
    next: u32,
}

impl TestMemory {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Registers `len` zero octets for every operation.
    pub(crate) fn register(&mut self, len: usize) -> Stag {
        use Operation::{LocalRead, LocalWrite, RemoteAtomic, RemoteRead, RemoteWrite};
        self.register_for(len, &[LocalRead, LocalWrite, RemoteRead, RemoteWrite, RemoteAtomic])
    }

    pub(crate) fn register_for(&mut self, len: usize, allowed: &[Operation]) -> Stag {
        self.next += 1;
        let stag = Stag(self.next << 8);
        let region =
            Region { domain: WHO.domain, allowed: allowed.to_vec(), octets: RefCell::new(vec![0; len]) };
        self.regions.insert(stag, region);
        stag
    }

    pub(crate) fn octets(&self, stag: Stag) -> Vec<u8> {
        self.regions[&stag].octets.borrow().clone()
    }

    pub(crate) fn octets_mut(&mut self, stag: Stag) -> &mut [u8] {
        self.regions.get_mut(&stag).unwrap().octets.get_mut()
    }

    pub(crate) fn deregister(&mut self, stag: Stag) {
        self.regions.remove(&stag);
    }

    fn find(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        len: usize,
    ) -> Result<usize, AccessError> {
        let region = self.regions.get(&stag).ok_or(AccessError::InvalidStag)?;
        if region.domain != who.domain {
            return Err(AccessError::NotAssociated);
        }
        if !region.allowed.contains(&operation) {
            return Err(AccessError::AccessRights);
        }
        let end = offset.checked_add(len as u64).ok_or(AccessError::OffsetWrap)?;
        if end > region.octets.borrow().len() as u64 {
            return Err(AccessError::BaseOrBounds);
        }
        Ok(usize::try_from(offset).unwrap())
    }
}

impl Memory for TestMemory {
    fn check(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        len: u32,
    ) -> Result<(), AccessError> {
        self.find(who, operation, stag, offset, len as usize).map(|_| ())
    }

    fn place(
        &mut self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        octets: &[u8],
    ) -> Result<(), AccessError> {
        let at = self.find(who, operation, stag, offset, octets.len())?;
        self.octets_mut(stag)[at..at + octets.len()].copy_from_slice(octets);
        Ok(())
    }

    fn fetch(
        &self,
        who: Accessor,
        operation: Operation,
        stag: Stag,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), AccessError> {
        let at = self.find(who, operation, stag, offset, out.len())?;
        out.copy_from_slice(&self.regions[&stag].octets.borrow()[at..at + out.len()]);
        Ok(())
    }

    fn check_atomic(&self, who: Accessor, stag: Stag, offset: u64) -> Result<(), AccessError> {
        let at = self.find(who, Operation::RemoteAtomic, stag, offset, WORD_LEN as usize)?;
        // As if each buffer began on a boundary.
        if at % WORD_LEN as usize == 0 { Ok(()) } else { Err(AccessError::Misaligned) }
    }

    fn atomic(
        &self,
        who: Accessor,
        stag: Stag,
        offset: u64,
        operation: AtomicOperation,
    ) -> Result<u64, AccessError> {
        self.check_atomic(who, stag, offset)?;
        let mut octets = self.regions[&stag].octets.borrow_mut();
        let word = octets[usize::try_from(offset).unwrap()..].first_chunk_mut().unwrap();
        let original = u64::from_ne_bytes(*word);
        *word = operation.apply(original).to_ne_bytes();
        Ok(original)
    }

    fn invalidate(&mut self, who: Accessor, stag: Stag) -> Result<(), AccessError> {
        let region = self.regions.get(&stag).ok_or(AccessError::InvalidStag)?;
        if region.domain != who.domain {
            return Err(AccessError::NotAssociated);
        }
        self.deregister(stag);
        Ok(())
    }
}
