//! A frame that is an mbuf.
//!
//! ```text
//!           buf_addr        data_off                          buf_len
//! rte_mbuf ---> |<- headroom ->|<- data_len = window ->|<- tailroom ->|
//! ```
//!
//! Who may touch what: an mbuf has at most one [`DpdkFrame`]; that one, or the driver and the peer's port it
//! was handed to, writes its metadata (data_off, lengths, flags). Any number of [`DpdkHeld`] share its octets;
//! they read the reference count and remembered octets only. So a sender can keep octets for
//! retransmission while the peer of a ring port, who got the very same mbuf, trims it. Octets are written
//! only at a count of one.

use core::ptr::NonNull;
use core::slice;
use core::sync::atomic::{AtomicU16, Ordering};

use dpdk_sys::rte_mbuf;
use tcpstack::device::{ChecksumLayout, ChecksumStatus, Frame, HEADROOM, Held};

/// A whole packet in one direct mbuf, as [`tcpstack::device::Frame`].
///
/// Owns one reference of the mbuf. Its layout is a pointer's, so that a burst of frames is an array that
/// drivers take and fill.
#[repr(transparent)]
pub struct DpdkFrame {
    /// Invariant: live; [`is_plain`].
    mbuf: NonNull<rte_mbuf>,
}

/// Octets of a frame that was sent, as [`tcpstack::device::Held`].
///
/// Owns one reference of the mbuf.
pub struct DpdkHeld {
    mbuf: NonNull<rte_mbuf>,
    /// `data .. data + len` lies in the mbuf's buffer.
    data: NonNull<u8>,
    len: u16,
}

/// A received packet that is no [`DpdkFrame`] yet: chained, or in somebody else's buffer.
pub(super) struct Irregular {
    /// Invariant: live; owns one reference of each segment.
    mbuf: NonNull<rte_mbuf>,
}

// SAFETY: the mbuf is owned, not borrowed. Its metadata is written by the frame's owner alone (module head), its
// octets only at a count of one, the count is atomic, and pools that it can return to take mbufs from any
// thread (`Pool` makes them multi-producer). Mempools outlive all frames (`pool`, `eal`).
unsafe impl Send for DpdkFrame {}

// SAFETY: as for the frame; besides, a held reference reads only octets that nobody writes while the count is
// above one, and becomes a frame (which may write) only at a count of one, read with Acquire.
unsafe impl Send for DpdkHeld {}

impl DpdkFrame {
    /// Takes over a reference; `Err` when the packet isn't one direct segment.
    ///
    /// # Safety
    /// `mbuf` is a live packet, and the caller gives up one reference of each of its segments and all
    /// other use of its metadata.
    pub(super) unsafe fn adopt(mbuf: NonNull<rte_mbuf>) -> Result<Self, Irregular> {
        // SAFETY: live, as the caller promises.
        if unsafe { is_plain(mbuf) } { Ok(Self { mbuf }) } else { Err(Irregular { mbuf }) }
    }

    /// Gives up the frame; the reference is the caller's.
    pub(super) fn into_raw(self) -> *mut rte_mbuf {
        core::mem::ManuallyDrop::new(self).mbuf.as_ptr()
    }

    fn data_off(&self) -> u16 {
        // SAFETY: `DATA_OFF` is a u16 in a live mbuf, and only this frame's owner writes it.
        unsafe { field::<u16>(self.mbuf, DATA_OFF).read() }
    }

    fn data_len(&self) -> u16 {
        // SAFETY: `DATA_LEN` is a u16 in a live mbuf, and only this frame's owner writes it.
        unsafe { field::<u16>(self.mbuf, DATA_LEN).read() }
    }

    fn buf_len(&self) -> u16 {
        // SAFETY: `BUF_LEN` is a u16 in a live mbuf that nobody writes after the pool was made.
        unsafe { field::<u16>(self.mbuf, BUF_LEN).read() }
    }

    fn data(&self) -> NonNull<u8> {
        // SAFETY: a direct mbuf's `buf_addr` is set when its pool is made and never null; `data_off <= buf_len` (the
        // invariant), so the sum stays in the buffer.
        unsafe { buf_addr(self.mbuf).add(usize::from(self.data_off())) }
    }

    /// Moves the window; the one place that writes lengths, so that they agree.
    fn set_window(&mut self, data_off: u16, len: u16) {
        debug_assert!(u32::from(data_off) + u32::from(len) <= u32::from(self.buf_len()));
        // SAFETY: fields of these widths in a live mbuf; `&mut self` is the only user of its metadata.
        unsafe {
            field::<u16>(self.mbuf, DATA_OFF).write(data_off);
            field::<u16>(self.mbuf, DATA_LEN).write(len);
            field::<u32>(self.mbuf, PKT_LEN).write(u32::from(len));
        }
    }

    /// Asks for the headers, which are looked at next, to be in the nearest cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing as far as the program can tell, from whatever address.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(
                self.data().as_ptr().cast(),
            );
        }
    }

    fn references(&self) -> u16 {
        // SAFETY: live for as long as `self` owns a reference.
        unsafe { references(self.mbuf) }
    }
}

impl Frame for DpdkFrame {
    type Held = DpdkHeld;

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the window lies in the buffer (the invariant) of a live mbuf. Octets are only written through
        // `bytes_mut`, which needs this frame as `&mut`, or by its driver before we got it.
        unsafe { slice::from_raw_parts(self.data().as_ptr(), usize::from(self.data_len())) }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        assert_eq!(self.references(), 1, "a held frame is not written");
        // SAFETY: as for `bytes`; nobody else has a reference, so nobody reads meanwhile, and no new one can be
        // made while `self` is borrowed.
        unsafe { slice::from_raw_parts_mut(self.data().as_ptr(), usize::from(self.data_len())) }
    }

    #[inline]
    fn headroom(&self) -> usize {
        usize::from(self.data_off())
    }

    #[inline]
    fn tailroom(&self) -> usize {
        usize::from(self.buf_len() - self.data_off() - self.data_len())
    }

    #[inline]
    fn push_front(&mut self, len: usize) {
        assert!(len <= self.headroom(), "the window grows into its headroom");
        let len = narrow(len);
        self.set_window(self.data_off() - len, self.data_len() + len);
    }

    #[inline]
    fn trim_front(&mut self, len: usize) {
        assert!(len <= usize::from(self.data_len()), "only the window is trimmed");
        let len = narrow(len);
        self.set_window(self.data_off() + len, self.data_len() - len);
    }

    #[inline]
    fn push_back(&mut self, len: usize) {
        assert!(len <= self.tailroom(), "the window grows into its tailroom");
        self.set_window(self.data_off(), self.data_len() + narrow(len));
    }

    #[inline]
    fn truncate(&mut self, len: usize) {
        if len < usize::from(self.data_len()) {
            self.set_window(self.data_off(), narrow(len));
        }
    }

    fn hold(&self, skip: usize) -> DpdkHeld {
        let len = usize::from(self.data_len());
        assert!(skip <= len, "only the window is held");
        assert!(self.references() < REFERENCES_MAX, "a frame is held a few times only");
        // SAFETY: a live mbuf that we have a reference of, so the count doesn't go through zero.
        unsafe { dpdk_sys::iw_mbuf_hold(self.mbuf.as_ptr()) };
        // SAFETY: `skip` stays in the window, and that in the buffer.
        let data = unsafe { self.data().add(skip) };
        DpdkHeld { mbuf: self.mbuf, data, len: narrow(len - skip) }
    }

    fn checksum_status(&self) -> ChecksumStatus {
        // SAFETY: fields of these widths in a live mbuf whose metadata is ours.
        let (flags, packet_type) = unsafe {
            (field::<u64>(self.mbuf, OL_FLAGS).read(), field::<u32>(self.mbuf, PACKET_TYPE).read())
        };
        verdict(flags, packet_type)
    }

    fn request_checksum(&mut self, layout: ChecksumLayout) {
        let network =
            if layout.ipv6 { dpdk_sys::IW_TX_IPV6 } else { dpdk_sys::IW_TX_IPV4 | dpdk_sys::IW_TX_IP_CKSUM };
        // SAFETY: a live mbuf whose metadata is ours.
        unsafe {
            dpdk_sys::iw_mbuf_tx_offload(
                self.mbuf.as_ptr(),
                network | dpdk_sys::IW_TX_TCP_CKSUM,
                layout.link_len,
                u16::from(layout.network_len),
                layout.transport_len,
            );
        }
    }
}

impl Drop for DpdkFrame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: gives back the one reference that this frame owns; its mbuf stands alone (the invariant).
        unsafe { dpdk_sys::iw_pktmbuf_free_seg(self.mbuf.as_ptr()) };
    }
}

impl core::fmt::Debug for DpdkFrame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DpdkFrame")
            .field("len", &self.data_len())
            .field("references", &self.references())
            .finish()
    }
}

impl core::fmt::Debug for DpdkHeld {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DpdkHeld").field("len", &self.len).finish()
    }
}

impl Held for DpdkHeld {
    type Frame = DpdkFrame;

    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the octets lie in the buffer of an mbuf that our reference keeps; with it and another one, or
        // with it alone and no frame, nobody passes the assertion in `bytes_mut`.
        unsafe { slice::from_raw_parts(self.data.as_ptr(), usize::from(self.len)) }
    }

    fn reclaim(self) -> Result<DpdkFrame, Self> {
        // SAFETY: live for as long as `self` owns a reference.
        if unsafe { references(self.mbuf) } != 1 {
            return Err(self);
        }
        // Whoever had the frame since (driver, ring peer) may have trimmed it and left flags: all is set anew.
        // SAFETY: ours is the only reference, so there is no frame and nobody else writes metadata; the
        // Acquire above makes what they wrote visible. The offset is in the buffer as `data` is.
        let data_off = unsafe { self.data.offset_from(buf_addr(self.mbuf)) };
        let data_off = u16::try_from(data_off).expect("held octets lie in the buffer");
        // SAFETY: as above; `data_off + len` is in the buffer, and the mbuf is direct (from a `DpdkFrame`).
        unsafe { dpdk_sys::iw_mbuf_rewind(self.mbuf.as_ptr(), data_off, self.len) };
        let frame = DpdkFrame { mbuf: self.mbuf };
        // The reference is the frame's now.
        core::mem::forget(self);
        Ok(frame)
    }
}

impl Drop for DpdkHeld {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: gives back the one reference that we own, of an mbuf that stands alone.
        unsafe { dpdk_sys::iw_pktmbuf_free_seg(self.mbuf.as_ptr()) };
    }
}

impl Irregular {
    /// Octets of the whole packet.
    pub(super) fn len(&self) -> usize {
        // SAFETY: a u32 in a live mbuf that is ours.
        let len = unsafe { field::<u32>(self.mbuf, PKT_LEN).read() };
        usize::try_from(len).unwrap_or(usize::MAX)
    }

    /// Copies the whole packet into a fresh frame; `false` when it doesn't fit or its lengths don't add up.
    pub(super) fn copy_into(&self, frame: &mut DpdkFrame) -> bool {
        let len = self.len();
        if len > frame.tailroom() {
            return false;
        }
        frame.push_back(len);
        let octets = frame.bytes_mut();
        let count = u32::try_from(len).expect("it fits in a buffer");
        // SAFETY: reads a live packet that is ours, and writes at most `count` octets to a slice of that length.
        unsafe { dpdk_sys::iw_mbuf_copy_out(self.mbuf.as_ptr(), count, octets.as_mut_ptr().cast()) != 0 }
    }
}

impl Drop for Irregular {
    fn drop(&mut self) {
        // SAFETY: gives back the references of all segments, which we own.
        unsafe { dpdk_sys::iw_pktmbuf_free(self.mbuf.as_ptr()) };
    }
}

/// One direct segment with a window inside its buffer: what a [`DpdkFrame`] is.
///
/// # Safety
/// `mbuf` is live and nobody else writes its metadata.
#[inline]
pub(super) unsafe fn is_plain(mbuf: NonNull<rte_mbuf>) -> bool {
    // SAFETY: fields of these widths in a live mbuf.
    unsafe {
        let end =
            u32::from(field::<u16>(mbuf, DATA_OFF).read()) + u32::from(field::<u16>(mbuf, DATA_LEN).read());
        field::<u16>(mbuf, NB_SEGS).read() == 1
            && field::<u64>(mbuf, OL_FLAGS).read()
                & (dpdk_sys::IW_MBUF_F_INDIRECT | dpdk_sys::IW_MBUF_F_EXTERNAL)
                == 0
            && end <= u32::from(field::<u16>(mbuf, BUF_LEN).read())
            && u32::from(field::<u16>(mbuf, DATA_LEN).read()) == field::<u32>(mbuf, PKT_LEN).read()
    }
}

/// # Safety
/// `mbuf` is live.
unsafe fn references(mbuf: NonNull<rte_mbuf>) -> u16 {
    // SAFETY: an aligned u16 in a live mbuf that everybody accesses atomically. Acquire: pairs with the release
    // of the reference that others had, so that their reads and writes come before ours.
    unsafe { AtomicU16::from_ptr(field::<u16>(mbuf, REFCNT)).load(Ordering::Acquire) }
}

/// # Safety
/// `mbuf` is live.
unsafe fn buf_addr(mbuf: NonNull<rte_mbuf>) -> NonNull<u8> {
    // SAFETY: a pointer in a live mbuf, set once when the pool is made, to a buffer that begins behind it.
    unsafe { NonNull::new_unchecked(field::<*mut u8>(mbuf, BUF_ADDR).read()) }
}

/// A pointer to a field of an mbuf.
///
/// # Safety
/// `mbuf` is live, and a `T` lies at `offset`.
#[inline]
unsafe fn field<T>(mbuf: NonNull<rte_mbuf>, offset: usize) -> *mut T {
    // SAFETY: the offset is inside the structure.
    unsafe { mbuf.as_ptr().cast::<u8>().add(offset).cast::<T>() }
}

/// What a driver's flags say. A driver that verified TCP but says nothing of the IPv4 header leaves it to us,
/// except for IPv6, which has no header checksum.
fn verdict(flags: u64, packet_type: u32) -> ChecksumStatus {
    let network = flags & dpdk_sys::IW_RX_IP_CKSUM_MASK;
    let transport = flags & dpdk_sys::IW_RX_L4_CKSUM_MASK;
    if network == dpdk_sys::IW_RX_IP_CKSUM_BAD || transport == dpdk_sys::IW_RX_L4_CKSUM_BAD {
        return ChecksumStatus::Bad;
    }
    // "None": not filled in, yet the data is known to be good (a virtual wire from the same host). Software
    // would find it wrong.
    if transport == dpdk_sys::IW_RX_L4_CKSUM_NONE {
        return ChecksumStatus::Good;
    }
    let network_good = network == dpdk_sys::IW_RX_IP_CKSUM_GOOD
        || network == dpdk_sys::IW_RX_IP_CKSUM_NONE
        || packet_type & dpdk_sys::IW_PTYPE_L3_MASK == dpdk_sys::IW_PTYPE_L3_IPV6;
    if transport == dpdk_sys::IW_RX_L4_CKSUM_GOOD && network_good {
        ChecksumStatus::Good
    } else {
        ChecksumStatus::Unknown
    }
}

/// A length that is known to be at most a buffer's.
fn narrow(len: usize) -> u16 {
    u16::try_from(len).expect("buffers are shorter than 64 KiB")
}

/// Far above any use, far below where the 16-bit count wraps.
const REFERENCES_MAX: u16 = 1 << 14;

const BUF_ADDR: usize = dpdk_sys::IW_MBUF_BUF_ADDR as usize;
const DATA_OFF: usize = dpdk_sys::IW_MBUF_DATA_OFF as usize;
const REFCNT: usize = dpdk_sys::IW_MBUF_REFCNT as usize;
const NB_SEGS: usize = dpdk_sys::IW_MBUF_NB_SEGS as usize;
const OL_FLAGS: usize = dpdk_sys::IW_MBUF_OL_FLAGS as usize;
const PACKET_TYPE: usize = dpdk_sys::IW_MBUF_PACKET_TYPE as usize;
const PKT_LEN: usize = dpdk_sys::IW_MBUF_PKT_LEN as usize;
const DATA_LEN: usize = dpdk_sys::IW_MBUF_DATA_LEN as usize;
const BUF_LEN: usize = dpdk_sys::IW_MBUF_BUF_LEN as usize;

// The widths that `field` is called with, and a fresh mbuf's headroom.
const _: () = {
    assert!(dpdk_sys::IW_MBUF_DATA_OFF_WIDTH == 2 && dpdk_sys::IW_MBUF_DATA_LEN_WIDTH == 2);
    assert!(dpdk_sys::IW_MBUF_REFCNT_WIDTH == 2 && dpdk_sys::IW_MBUF_NB_SEGS_WIDTH == 2);
    assert!(dpdk_sys::IW_MBUF_BUF_LEN_WIDTH == 2 && dpdk_sys::IW_MBUF_PKT_LEN_WIDTH == 4);
    assert!(dpdk_sys::IW_MBUF_OL_FLAGS_WIDTH == 8 && dpdk_sys::IW_MBUF_PACKET_TYPE_WIDTH == 4);
    assert!(dpdk_sys::IW_MBUF_HEADROOM as usize >= HEADROOM);
    assert!(size_of::<DpdkFrame>() == size_of::<*mut rte_mbuf>());
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_verdicts() {
        use dpdk_sys::*;
        let ipv6 = IW_PTYPE_L3_IPV6;
        for (flags, packet_type, wanted) in [
            (0, 0, ChecksumStatus::Unknown),
            (IW_RX_L4_CKSUM_GOOD | IW_RX_IP_CKSUM_GOOD, 0, ChecksumStatus::Good),
            (IW_RX_L4_CKSUM_GOOD, 0, ChecksumStatus::Unknown),
            (IW_RX_L4_CKSUM_GOOD, ipv6, ChecksumStatus::Good),
            (IW_RX_L4_CKSUM_GOOD | IW_RX_IP_CKSUM_BAD, 0, ChecksumStatus::Bad),
            (IW_RX_L4_CKSUM_BAD | IW_RX_IP_CKSUM_GOOD, ipv6, ChecksumStatus::Bad),
            (IW_RX_L4_CKSUM_NONE, 0, ChecksumStatus::Good),
            (IW_RX_IP_CKSUM_GOOD, 0, ChecksumStatus::Unknown),
            // A sender's own flags, as a ring hands them over, say nothing.
            (IW_TX_IPV4 | IW_TX_IP_CKSUM | IW_TX_TCP_CKSUM, 0, ChecksumStatus::Unknown),
        ] {
            assert_eq!(verdict(flags, packet_type), wanted, "{flags:#x}");
        }
    }
}
