//! Mapped memory that an application and a worker share.
//!
//! No reference to the octets is ever made, because another thread may write them at any time:
//! access is by copy, after one checked offset calculation ([`Buffer::address_of`]). Two threads that
//! copy the same octets at the same time get an unspecified mix of old and new ones, as with
//! any RDMA buffer; order is made by completions, or by the atomic accesses to octets and words.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use iwarp::atomic::AtomicOperation;

/// Whether to back a buffer by huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Ordinary pages.
    #[default]
    Never,
    /// 2 MiB pages when the host has enough of them, else ordinary ones.
    Try,
}

/// A buffer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AllocateError {
    /// A buffer has at least one octet.
    #[error("a buffer of no octets")]
    Empty,
    /// The operating system refused.
    #[error("cannot map {len} octets of memory: {error}; free memory or ask for less")]
    Map {
        /// What was asked for.
        len: usize,
        /// The system's reason.
        error: std::io::Error,
    },
}

/// An access reached beyond the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} octets at {offset} are not within a buffer of {size}")]
pub struct OutOfBounds {
    /// First octet asked for.
    pub offset: usize,
    /// Octets asked for.
    pub len: usize,
    /// Octets of the buffer.
    pub size: usize,
}

/// An access to a word was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WordError {
    /// It is not within the buffer.
    #[error("{0}")]
    OutOfBounds(#[from] OutOfBounds),
    /// It is not on a 64-bit boundary; buffers themselves begin on one.
    #[error("the word at {offset} is not on a 64-bit boundary")]
    Misaligned {
        /// Its first octet.
        offset: usize,
    },
}

/// Shared memory; clones name the same octets, which live until the last clone is gone.
#[derive(Clone, Debug)]
pub struct Buffer(Arc<Mapping>);

impl Buffer {
    /// Maps `len` octets, all zero and already backed by memory.
    ///
    /// # Errors
    /// When `len` is 0 or the operating system has no memory to give.
    // req 5042-6.3.2-1, 5042-appendix-A-4
    pub fn allocate(len: usize, pages: HugePages) -> Result<Self, AllocateError> {
        if len == 0 {
            return Err(AllocateError::Empty);
        }
        let huge = match pages {
            HugePages::Try => Mapping::new(len, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB, HUGE_PAGE).ok(),
            HugePages::Never => None,
        };
        let mapping = match huge {
            Some(mapping) => mapping,
            None => Mapping::new(len, 0, PAGE).map_err(|error| AllocateError::Map { len, error })?,
        };
        Ok(Self(Arc::new(mapping)))
    }

    /// Octets.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Never: a buffer has at least one octet.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies `octets` to `offset`.
    ///
    /// # Errors
    /// When they are not all within the buffer; nothing is written then.
    pub fn write(&self, offset: usize, octets: &[u8]) -> Result<(), OutOfBounds> {
        let target = self.address_of(offset, octets.len())?;
        // SAFETY: `address_of` proved that `octets.len()` octets from `target` are within the mapping,
        // which is readable and writable while `self` lives. `octets` cannot overlap it, since
        // no reference into a mapping is ever made.
        unsafe { ptr::copy_nonoverlapping(octets.as_ptr(), target.as_ptr(), octets.len()) };
        Ok(())
    }

    /// Copies the octets at `offset` to `out`.
    ///
    /// # Errors
    /// When they are not all within the buffer; `out` is unchanged then.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let source = self.address_of(offset, out.len())?;
        // SAFETY: as in `write`, with source and target exchanged.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Sets `len` octets at `offset` to `value`.
    ///
    /// # Errors
    /// When they are not all within the buffer; nothing is written then.
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), OutOfBounds> {
        let target = self.address_of(offset, len)?;
        // SAFETY: `address_of` proved that `len` octets from `target` are within the mapping.
        unsafe { ptr::write_bytes(target.as_ptr(), value, len) };
        Ok(())
    }

    /// The octet at `offset`, read with acquire order: octets placed before it are seen after it.
    ///
    /// # Panics
    /// When `offset` is beyond the buffer.
    pub fn load_u8(&self, offset: usize) -> u8 {
        self.atomic(offset).load(Ordering::Acquire)
    }

    /// Sets the octet at `offset` with release order.
    ///
    /// # Panics
    /// When `offset` is beyond the buffer.
    pub fn store_u8(&self, offset: usize, value: u8) {
        self.atomic(offset).store(value, Ordering::Release);
    }

    /// The word at `offset`, in the host's order, read with acquire order.
    ///
    /// # Errors
    /// When it is not within the buffer or not on a 64-bit boundary.
    pub fn load_u64(&self, offset: usize) -> Result<u64, WordError> {
        Ok(self.word(offset)?.load(Ordering::Acquire))
    }

    /// Carries out an Atomic Operation on the word at `offset`, which is a number in the host's order, and
    /// returns what it was.
    ///
    /// One indivisible step to all others that do the same, whatever their core: local applications,
    /// and workers for their peers.
    ///
    /// # Errors
    /// When the word is not within the buffer or not on a 64-bit boundary.
    // req 7306-5-1, 7306-5.3-1, 7306-5.4-2
    // req 7306-5-2, 7306-5.4-3: by the processor's own instructions, so to local applications too.
    pub fn update_u64(&self, offset: usize, operation: AtomicOperation) -> Result<u64, WordError> {
        let word = self.word(offset)?;
        if let AtomicOperation::FetchAdd { add, mask: 0 } = operation {
            return Ok(word.fetch_add(add, Ordering::AcqRel));
        }
        let mut original = word.load(Ordering::Acquire);
        // Repeated only when somebody else's operation came in between.
        while let Err(other) = word.compare_exchange_weak(
            original,
            operation.apply(original),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            original = other;
        }
        Ok(original)
    }

    /// Says whether there is a word at `offset`.
    pub(super) fn check_word(&self, offset: usize) -> Result<(), WordError> {
        self.word(offset).map(|_| ())
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64, WordError> {
        let word = self.address_of(offset, size_of::<AtomicU64>())?.cast::<u64>();
        if !word.is_aligned() {
            return Err(WordError::Misaligned { offset });
        }
        // SAFETY: `address_of` proved that the eight octets are within the mapping, which is readable and
        // writable as long as `self` lives; they are aligned as an AtomicU64, which was just checked; and
        // no reference to plain octets of a mapping is ever made. Copies that meet a word while it
        // changes get any mix of octets, as the head of this module says.
        Ok(unsafe { AtomicU64::from_ptr(word.as_ptr()) })
    }

    fn atomic(&self, offset: usize) -> &AtomicU8 {
        let octet = self.address_of(offset, 1).expect("an offset within the buffer");
        // SAFETY: the octet is within the mapping, which lives as long as `self`, and an AtomicU8
        // has no alignment to keep.
        unsafe { AtomicU8::from_ptr(octet.as_ptr()) }
    }

    /// The one offset calculation: where `len` octets at `offset` begin.
    fn address_of(&self, offset: usize, len: usize) -> Result<NonNull<u8>, OutOfBounds> {
        let size = self.0.len;
        if offset > size || len > size - offset {
            return Err(OutOfBounds { offset, len, size });
        }
        // SAFETY: `offset <= size`, so the result is within the mapping or one past its end.
        Ok(unsafe { self.0.address.add(offset) })
    }
}

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

#[derive(Debug)]
struct Mapping {
    address: NonNull<u8>,
    /// Octets that may be used; `len <= mapped`.
    len: usize,
    /// Octets that were mapped, a multiple of the page size.
    mapped: usize,
}

impl Mapping {
    fn new(len: usize, flags: libc::c_int, page: usize) -> Result<Self, std::io::Error> {
        let mapped = len
            .checked_next_multiple_of(page)
            .ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice touches nothing
        // that exists; the result is checked before use.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | flags,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).expect("mmap never maps page 0 unasked");
        Ok(Self { address, len, mapped })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `address` and `mapped` are what mmap gave, and the last `Buffer` is gone, so
        // nothing can reach the octets any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.mapped) };
    }
}

// SAFETY: `address` is owned by this value alone, and munmap may run on any thread.
unsafe impl Send for Mapping {}

// SAFETY: through `&Mapping` octets are only copied, or accessed as AtomicU8 or AtomicU64; no reference to
// plain octets is made, so threads cannot break each other's aliasing. `len` never changes.
unsafe impl Sync for Mapping {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_come_back_as_written() {
        let buffer = Buffer::allocate(10_000, HugePages::Try).unwrap();
        buffer.write(9_990, b"0123456789").unwrap();
        let mut out = [0; 10];
        buffer.read(9_990, &mut out).unwrap();
        assert_eq!(&out, b"0123456789");
        assert_eq!(buffer.load_u8(9_999), b'9');
        buffer.store_u8(9_999, b'x');
        buffer.read(9_990, &mut out).unwrap();
        assert_eq!(&out, b"012345678x");
    }

    // proves 5042-6.3.2-1, 5042-appendix-A-4
    #[test]
    fn a_buffer_begins_with_zeros_even_where_another_was() {
        for _ in 0..4 {
            let buffer = Buffer::allocate(3 * PAGE, HugePages::Never).unwrap();
            let mut octets = vec![1; 3 * PAGE];
            buffer.read(0, &mut octets).unwrap();
            assert!(octets.iter().all(|&octet| octet == 0));
            buffer.fill(0, 3 * PAGE, 0xee).unwrap();
        }
    }

    // proves 5041-8.3.1-4, 5042-6.2.1-1
    #[test]
    fn no_access_reaches_beyond_the_buffer() {
        let buffer = Buffer::allocate(16, HugePages::Never).unwrap();
        for (offset, len) in [(0, 17), (16, 1), (17, 0), (usize::MAX, 1), (1, usize::MAX)] {
            let error = Err(OutOfBounds { offset, len, size: 16 });
            assert_eq!(buffer.fill(offset, len, 1), error);
        }
        assert_eq!(buffer.write(15, b"ab"), Err(OutOfBounds { offset: 15, len: 2, size: 16 }));
        assert_eq!(buffer.read(16, &mut []), Ok(()));
        assert_eq!(buffer.load_u8(15), 0, "a refused write leaves nothing behind");
    }

    #[test]
    fn a_word_is_a_number_in_the_hosts_order() {
        let buffer = Buffer::allocate(24, HugePages::Never).unwrap();
        buffer.write(8, &7_u64.to_ne_bytes()).unwrap();
        assert_eq!(buffer.load_u64(8), Ok(7));
        assert_eq!(buffer.update_u64(8, AtomicOperation::fetch_add(5)), Ok(7));
        assert_eq!(buffer.update_u64(8, AtomicOperation::cmp_swap(11, 1)), Ok(12));
        assert_eq!(buffer.update_u64(8, AtomicOperation::cmp_swap(12, 0x0102)), Ok(12));
        let mask = AtomicOperation::FetchAdd { add: 0xff, mask: 0x80 };
        assert_eq!(buffer.update_u64(8, mask), Ok(0x0102));
        let mut out = [0; 24];
        buffer.read(0, &mut out).unwrap();
        assert_eq!(out[8..16], 0x0101_u64.to_ne_bytes());
        assert_eq!((&out[..8], &out[16..]), (&[0; 8][..], &[0; 8][..]), "and nothing else changed");
    }

    // proves 7306-5.1.1-2, 7306-5.1.2-4
    #[test]
    fn only_whole_words_on_a_boundary_are_changed() {
        let buffer = Buffer::allocate(24, HugePages::Never).unwrap();
        let add = AtomicOperation::fetch_add(u64::MAX);
        for offset in (1..16).filter(|offset| offset % 8 != 0) {
            assert_eq!(buffer.update_u64(offset, add), Err(WordError::Misaligned { offset }));
        }
        for offset in [17, 24, usize::MAX] {
            let beyond = OutOfBounds { offset, len: 8, size: 24 };
            assert_eq!(buffer.update_u64(offset, add), Err(WordError::OutOfBounds(beyond)));
        }
        let mut out = [1; 24];
        buffer.read(0, &mut out).unwrap();
        assert_eq!(out, [0; 24]);
    }

    // proves 7306-5-1, 7306-5.3-1, 7306-5.4-2
    #[test]
    fn no_update_is_lost_between_cores() {
        const ROUNDS: u64 = 20_000;
        let buffer = Buffer::allocate(8, HugePages::Never).unwrap();
        // Each half counts by itself, each by another operation.
        let low = AtomicOperation::FetchAdd { add: 1, mask: 1 << 31 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        buffer.update_u64(0, AtomicOperation::fetch_add(1 << 32)).unwrap();
                        buffer.update_u64(0, low).unwrap();
                        let mut word = buffer.load_u64(0).unwrap();
                        loop {
                            let swap = AtomicOperation::cmp_swap(word, word.wrapping_add(1 << 32));
                            match buffer.update_u64(0, swap).unwrap() {
                                original if original == word => break,
                                other => word = other,
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(buffer.load_u64(0), Ok(((4 * ROUNDS) << 32) | (2 * ROUNDS)));
    }

    #[test]
    fn a_buffer_has_octets() {
        assert!(matches!(Buffer::allocate(0, HugePages::Never), Err(AllocateError::Empty)));
        assert!(matches!(Buffer::allocate(usize::MAX, HugePages::Never), Err(AllocateError::Map { .. })));
    }
}
