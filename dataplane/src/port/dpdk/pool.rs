//! Mempools of mbufs.
//!
//! A frame returns to its pool whenever its holder drops it, on whatever thread, and knows nothing of the queue
//! it came from. So a pool is never freed while DPDK runs: a closed queue's pools stay in the environment's list,
//! and the next queue that wants such a pool gets one in which every mbuf is back.

use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::Arc;

use arrayvec::ArrayVec;
use dpdk_sys::{rte_mbuf, rte_mempool};
use tcpstack::device::{BURST_MAX, Burst};

use super::config::CACHE;
use super::eal::Environment;
use super::error::{Errno, PortError};
use super::frame::DpdkFrame;

/// A pool for the use of one queue; any thread may give mbufs back.
pub(super) struct Pool {
    /// Valid while the environment lives.
    raw: NonNull<rte_mempool>,
    environment: Arc<Environment>,
}

/// A pool in the environment's list.
pub(super) struct PoolRecord {
    raw: NonNull<rte_mempool>,
    shape: Shape,
    leased: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    frames: u32,
    room: u16,
    socket: i32,
}

// SAFETY: mempools are made multi-producer and multi-consumer, with caches per lcore that only their own thread uses;
// DPDK lets any thread take, give back and count.
unsafe impl Send for Pool {}
// SAFETY: as above; the record's pointer is only used to count.
unsafe impl Send for PoolRecord {}

impl Pool {
    /// A pool of `frames` mbufs with buffers of `room` octets, headroom included.
    pub(super) fn new(
        environment: &Arc<Environment>,
        purpose: &'static str,
        frames: u32,
        room: u16,
        socket: i32,
    ) -> Result<Self, PortError> {
        let shape = Shape { frames, room, socket };
        let mut state = environment.lock();
        let idle = state.pools.iter_mut().find(|pool| !pool.leased && pool.shape == shape && pool.at_rest());
        if let Some(record) = idle {
            record.leased = true;
            return Ok(Self { raw: record.raw, environment: Arc::clone(environment) });
        }
        let name = format!("iw_{purpose}_{}", state.next_name());
        let name = CString::new(name).expect("no NUL in a purpose");
        // SAFETY: a NUL-terminated name, and numbers that are checked by the callee. Its default handler is the ring
        // with multiple producers and consumers, as `Send` above relies on.
        let raw = unsafe { dpdk_sys::rte_pktmbuf_pool_create(name.as_ptr(), frames, CACHE, 0, room, socket) };
        let Some(raw) = NonNull::new(raw) else {
            return Err(PortError::Memory { pool: purpose, frames, room, error: Errno::last() });
        };
        state.pools.push(PoolRecord { raw, shape, leased: true });
        Ok(Self { raw, environment: Arc::clone(environment) })
    }

    /// An empty frame.
    #[inline]
    pub(super) fn take(&self) -> Option<DpdkFrame> {
        // SAFETY: a live pool of mbufs; the result is null or a fresh mbuf with one reference, which is ours.
        let mbuf = NonNull::new(unsafe { dpdk_sys::iw_pktmbuf_alloc(self.raw.as_ptr()) })?;
        // SAFETY: fresh, see above.
        unsafe { DpdkFrame::adopt(mbuf) }.ok()
    }

    /// Fills up `frames` in one go, or not at all.
    #[inline]
    pub(super) fn take_bulk(&self, frames: &mut Burst<DpdkFrame>) -> bool {
        let mut mbufs = [core::ptr::null_mut::<rte_mbuf>(); BURST_MAX];
        let wanted = frames.remaining_capacity();
        let count = u32::try_from(wanted).expect("at most BURST_MAX");
        // SAFETY: a live pool of mbufs, and room for `count` pointers.
        if unsafe { dpdk_sys::iw_pktmbuf_alloc_bulk(self.raw.as_ptr(), mbufs.as_mut_ptr(), count) } != 0 {
            return false;
        }
        for mbuf in &mbufs[..wanted] {
            let mbuf = NonNull::new(*mbuf).expect("a whole bulk was allocated");
            // SAFETY: fresh mbufs with one reference each, which is ours.
            if let Ok(frame) = unsafe { DpdkFrame::adopt(mbuf) } {
                frames.push(frame);
            }
        }
        true
    }

    /// Mbufs that are not in the pool. Exact when no other thread takes or gives.
    pub(super) fn in_use(&self) -> usize {
        in_use(self.raw)
    }

    /// For queue set-up.
    pub(super) fn as_ptr(&self) -> *mut rte_mempool {
        self.raw.as_ptr()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.environment.lock();
        if let Some(record) = state.pools.iter_mut().find(|pool| pool.raw == self.raw) {
            record.leased = false;
        }
    }
}

impl PoolRecord {
    /// Whether every mbuf is back.
    pub(super) fn at_rest(&self) -> bool {
        in_use(self.raw) == 0
    }
}

/// Gives frames back, as many as possible at once.
pub(super) fn release(frames: &mut Burst<DpdkFrame>) {
    let mut mbufs: ArrayVec<*mut rte_mbuf, BURST_MAX> = frames.drain(..).map(DpdkFrame::into_raw).collect();
    let count = u32::try_from(mbufs.len()).expect("at most BURST_MAX");
    // SAFETY: `count` mbufs, of each of which we give up the reference that its frame owned.
    unsafe { dpdk_sys::rte_pktmbuf_free_bulk(mbufs.as_mut_ptr(), count) };
}

fn in_use(pool: NonNull<rte_mempool>) -> usize {
    // SAFETY: pools live as long as the environment, which the caller has a reference of (or is).
    let count = unsafe { dpdk_sys::rte_mempool_in_use_count(pool.as_ptr()) };
    usize::try_from(count).unwrap_or(usize::MAX)
}
