//! A queue pair of a port: what a worker polls.

use core::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;
use dpdk_sys::rte_mbuf;
use tcpstack::device::{BURST_MAX, Burst, Capabilities, Device};

use super::frame::{self, DpdkFrame};
use super::pool::{self, Pool};
use super::port::PortShared;

/// One receive and one transmit queue with their mempools. One thread uses it at a time.
pub struct PortQueue {
    // Field order is drop order: the frames in stock go back first, the port may close, then the pools are
    // marked idle.
    /// Frames taken from the data pool in one go, handed out one by one.
    stock: Burst<DpdkFrame>,
    queue: u16,
    counters: QueueCounters,
    capabilities: Capabilities,
    shared: Arc<PortShared>,
    pools: Pools,
}

/// Each kind of traffic has a budget that the others can't use up.
pub(super) struct Pools {
    /// What the driver receives into.
    pub(super) receive: Pool,
    /// What we send, kept until acknowledged.
    pub(super) data: Pool,
    /// What keeps a network alive: ARP, ICMP, SYN, ACK, RST.
    pub(super) control: Pool,
}

/// What a queue pair saw since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames received.
    pub received: u64,
    /// Frames that the port took for transmission.
    pub transmitted: u64,
    /// Received packets that were chained or in a foreign buffer and were copied into one frame.
    pub gathered: u64,
    /// Received packets that were dropped because they don't fit in one frame or none was free.
    pub dropped: u64,
    /// Calls in which the port did not take every frame.
    pub transmit_full: u64,
    /// Times that no data frame was free.
    pub data_exhausted: u64,
    /// Times that no control frame was free.
    pub control_exhausted: u64,
}

impl QueueCounters {
    /// All counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("received", self.received),
            ("transmitted", self.transmitted),
            ("gathered", self.gathered),
            ("dropped", self.dropped),
            ("transmit_full", self.transmit_full),
            ("data_exhausted", self.data_exhausted),
            ("control_exhausted", self.control_exhausted),
        ]
        .into_iter()
    }
}

impl PortQueue {
    pub(super) fn new(shared: Arc<PortShared>, queue: u16, pools: Pools, capabilities: Capabilities) -> Self {
        Self { stock: Burst::new(), queue, counters: QueueCounters::default(), capabilities, shared, pools }
    }

    /// The number of the queue pair in its port.
    pub fn index(&self) -> u16 {
        self.queue
    }

    /// The id of its port.
    pub fn port(&self) -> u16 {
        self.shared.id
    }

    /// What it saw.
    pub fn counters(&self) -> &QueueCounters {
        &self.counters
    }

    /// Mbufs of this queue's pools that are with the device, the stack or a ring peer; for leak checks. Walks all
    /// lcores' caches, so not for a poll loop; exact when nobody else takes or gives.
    pub fn frames_in_use(&self) -> usize {
        let Pools { receive, data, control } = &self.pools;
        receive.in_use() + data.in_use() + control.in_use() - self.stock.len()
    }

    /// The rare part of receiving: some packet isn't a frame as it is.
    #[cold]
    fn adopt_each(&mut self, frames: &mut Burst<DpdkFrame>, mbufs: &[NonNull<rte_mbuf>]) {
        for &mbuf in mbufs {
            // SAFETY: the driver handed these mbufs over, one reference each; each is adopted once.
            let packet = match unsafe { DpdkFrame::adopt(mbuf) } {
                Ok(frame) => {
                    frames.push(frame);
                    continue;
                }
                Err(packet) => packet,
            };
            let gathered =
                self.pools.receive.take().and_then(|mut frame| packet.copy_into(&mut frame).then_some(frame));
            match gathered {
                Some(frame) => {
                    self.counters.gathered += 1;
                    frames.push(frame);
                }
                None => self.counters.dropped += 1,
            }
        }
    }
}

impl Device for PortQueue {
    type Frame = DpdkFrame;

    /// Vector drivers receive in multiples of four: call it with room for a whole burst.
    #[inline]
    fn receive_burst(&mut self, frames: &mut Burst<DpdkFrame>) {
        let present = frames.len();
        let room = frames.remaining_capacity();
        // SAFETY: `present <= capacity`, so the pointer stays in the array or at its end.
        let fresh: *mut *mut rte_mbuf = unsafe { frames.as_mut_ptr().add(present) }.cast();
        let most = u16::try_from(room).expect("at most BURST_MAX");
        // SAFETY: a started port (`shared`) and one of its queues, which only `&mut self` polls. `fresh` has room for
        // `most` pointers; a frame's layout is a pointer's.
        let received = unsafe { dpdk_sys::iw_eth_rx_burst(self.shared.id, self.queue, fresh, most) };
        let received = usize::from(received);
        assert!(received <= room, "a driver fills no more than it was offered");
        if received == 0 {
            return;
        }
        self.counters.received += u64::try_from(received).expect("at most BURST_MAX");
        // SAFETY: the driver wrote `received` non-null pointers there.
        let mbufs = unsafe { core::slice::from_raw_parts(fresh.cast::<NonNull<rte_mbuf>>(), received) };
        // SAFETY: live packets, handed over to us.
        if mbufs.iter().all(|&mbuf| unsafe { frame::is_plain(mbuf) }) {
            // SAFETY: each is an mbuf of which we own a reference, and plain: that is a frame.
            unsafe { frames.set_len(present + received) };
            frames[present..].iter().for_each(DpdkFrame::prefetch);
        } else {
            // Out of the array first, where the frames are going to be.
            let mbufs: ArrayVec<NonNull<rte_mbuf>, BURST_MAX> = mbufs.iter().copied().collect();
            self.adopt_each(frames, &mbufs);
        }
    }

    #[inline]
    fn transmit_burst(&mut self, frames: &mut Burst<DpdkFrame>) {
        let offered = frames.len();
        if offered == 0 {
            return;
        }
        let count = u16::try_from(offered).expect("at most BURST_MAX");
        let mbufs: *mut *mut rte_mbuf = frames.as_mut_ptr().cast();
        // SAFETY: a started port and one of its queues, which only `&mut self` uses; `count` pointers to live mbufs.
        // The driver takes over the references of as many as it returns.
        let taken = unsafe { dpdk_sys::iw_eth_tx_burst(self.shared.id, self.queue, mbufs, count) };
        let taken = usize::from(taken);
        assert!(taken <= offered, "a driver takes no more than it was offered");
        // SAFETY: the first `taken` frames are the driver's now and must not be dropped: the rest is moved over
        // them, and the length says what is left.
        unsafe {
            let first = frames.as_mut_ptr();
            frames.set_len(0);
            first.copy_from(first.add(taken), offered - taken);
            frames.set_len(offered - taken);
        }
        self.counters.transmitted += u64::try_from(taken).expect("at most BURST_MAX");
        self.counters.transmit_full += u64::from(taken < offered);
    }

    #[inline]
    fn allocate(&mut self) -> Option<DpdkFrame> {
        if self.stock.is_empty() && !self.pools.data.take_bulk(&mut self.stock) {
            // The last few of the pool, which are less than a bulk.
            let frame = self.pools.data.take();
            self.counters.data_exhausted += u64::from(frame.is_none());
            return frame;
        }
        self.stock.pop()
    }

    #[inline]
    fn allocate_control(&mut self) -> Option<DpdkFrame> {
        let frame = self.pools.control.take();
        self.counters.control_exhausted += u64::from(frame.is_none());
        frame
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}

impl Drop for PortQueue {
    fn drop(&mut self) {
        pool::release(&mut self.stock);
    }
}
