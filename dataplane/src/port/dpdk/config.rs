//! What is asked of a port, and the sums that follow from it: buffer sizes and pool sizes.

use tcpstack::device::{BURST_MAX, HEADROOM};

/// Largest MTU that a port needs no permission for.
pub(super) const MTU_DEFAULT: u16 = 1500;
/// Ethernet header and two VLAN tags: what surrounds an IP packet in a buffer.
pub(super) const LINK_MAX: u16 = 14 + 2 * 4;
/// DPDK's customary buffer: 2048 octets for a frame. Several drivers take nothing smaller.
const ROOM_MIN: u16 = 2048;
/// Mbufs that an lcore keeps to itself, a pool.
pub(super) const CACHE: u32 = 128;

/// What is asked of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Queue pairs, one for each worker.
    pub queues: u16,
    /// Largest IP packet; the port's own when `None`.
    pub mtu: Option<u16>,
    /// Receive descriptors a queue; brought to what the device takes.
    pub receive_descriptors: u16,
    /// Transmit descriptors a queue; brought to what the device takes.
    pub transmit_descriptors: u16,
    /// Received frames that the stack may keep, a queue: out of order, or parts of an FPDU.
    pub receive_held: u32,
    /// Sent frames that may wait for their acknowledgement, a queue.
    pub transmit_held: u32,
    /// Frames for control traffic, a queue.
    pub control_reserve: u32,
    /// Octets for a frame in a buffer when the MTU alone doesn't tell.
    pub frame_room: Option<u16>,
    /// Offloads to use where the device has them.
    pub offloads: Offloads,
    /// Receive frames for other addresses too.
    pub promiscuous: bool,
    /// The Ethernet address to use instead of the device's.
    pub mac: Option<[u8; 6]>,
}

/// Offloads to use where the device has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// IPv4 and TCP checksums of received frames.
    pub receive_checksum: bool,
    /// IPv4 and TCP checksums of transmitted frames.
    pub transmit_checksum: bool,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self {
            queues: 1,
            mtu: None,
            receive_descriptors: 1024,
            transmit_descriptors: 1024,
            receive_held: 4096,
            transmit_held: 8192,
            control_reserve: 512,
            frame_room: None,
            offloads: Offloads { receive_checksum: true, transmit_checksum: true },
            promiscuous: false,
            mac: None,
        }
    }
}

/// Mbufs in each of a queue's pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolSizes {
    pub(super) receive: u32,
    pub(super) data: u32,
    pub(super) control: u32,
}

impl PoolSizes {
    /// Adds up where mbufs can be. `rings`: with the device, (receive, transmit). `shared_with_peer`: the wire hands
    /// the very mbuf over (ring ports).
    pub(super) fn new(config: &PortConfig, rings: (u32, u32), lcores: u32, shared_with_peer: bool) -> Self {
        let burst = u32::try_from(BURST_MAX).expect("a small constant");
        let (receive_ring, transmit_ring) = rings;
        // An lcore's cache grows to one and a half times its size before it is flushed.
        let caches = lcores * CACHE * 3 / 2;
        // Over rings our data frames are what the peer receives, and keeps.
        let peer = if shared_with_peer { burst + config.receive_held } else { 0 };
        Self {
            // With the device, in the burst in work, kept by the stack.
            receive: receive_ring + burst + config.receive_held + caches,
            // Unacknowledged, with the device (it frees late), the queue's stock, the burst in work.
            data: config.transmit_held + transmit_ring + 2 * burst + peer + caches,
            // In use, with the device: a ring full of ACKs is possible.
            control: config.control_reserve + transmit_ring + peer + caches,
        }
    }
}

/// Octets of an mbuf's buffer, so that a frame of `mtu` fits in one mbuf.
///
/// `device_min` is the least that the device wants for a frame, `asked` what the configuration wants.
pub(super) fn buffer_room(mtu: u16, device_min: u32, asked: Option<u16>) -> u16 {
    let headroom = u32::try_from(HEADROOM).expect("a small constant");
    let frame = u32::from(mtu) + u32::from(LINK_MAX);
    let room = frame.max(u32::from(ROOM_MIN)).max(device_min).max(u32::from(asked.unwrap_or(0)));
    // Whole pairs of cache lines, so that each buffer starts alike.
    u16::try_from((room + headroom).next_multiple_of(128)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_the_mtu_fits_in_one_buffer() {
        assert_eq!(buffer_room(1500, 0, None), 2176);
        for mtu in [68, 1500, 2026, 2027, 9000, 16_000, 65_000] {
            assert!(
                usize::from(buffer_room(mtu, 0, None)) >= HEADROOM + usize::from(mtu + LINK_MAX),
                "{mtu}"
            );
        }
        assert_eq!(buffer_room(u16::MAX, 0, None), u16::MAX);
        assert!(usize::from(buffer_room(1500, 0, Some(16_384))) >= 16_384 + HEADROOM);
        assert!(buffer_room(1500, 4000, None) >= 4128);
    }

    #[test]
    fn pools_cover_their_sums() {
        let config =
            PortConfig { receive_held: 10, transmit_held: 20, control_reserve: 5, ..PortConfig::default() };
        let sizes = PoolSizes::new(&config, (1024, 512), 2, false);
        assert_eq!(
            sizes,
            PoolSizes { receive: 1024 + 32 + 10 + 384, data: 20 + 512 + 64 + 384, control: 5 + 512 + 384 }
        );
        let shared = PoolSizes::new(&config, (1024, 512), 2, true);
        assert_eq!((shared.receive, shared.data), (sizes.receive, sizes.data + 42));
    }
}
