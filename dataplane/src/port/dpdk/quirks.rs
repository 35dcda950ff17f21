//! What drivers need that DPDK's device information does not tell: from the driver's name and from the options of
//! the `--vdev` that made the port.

use super::args::Vdev;

/// What a driver needs of the port's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quirks {
    /// The MTU is not set in the device: it refuses more than 1500 and yet passes frames as long as the buffers, or
    /// has no notion of it, or leaves it to the kernel's interface.
    pub(super) mtu_left_alone: bool,
    /// Longest frame that passes whole, link header included.
    pub(super) frame_max: Option<u32>,
    /// How to make that longer.
    pub(super) remedy: &'static str,
    /// Octets that each receive buffer must have for a frame.
    pub(super) buffer_min: u32,
    /// Mbufs that a queue keeps, whatever number of descriptors it is given.
    pub(super) ring: u32,
}

impl Quirks {
    pub(super) fn new(driver: &str, vdev: Option<&Vdev>) -> Self {
        let number = |key: &str, usual: u32| {
            vdev.and_then(|vdev| vdev.option(key)).and_then(|value| value.parse().ok()).unwrap_or(usual)
        };
        let alone = Self { mtu_left_alone: true, ..Self::default() };
        match driver {
            // A frame longer than a memif buffer goes out as a chain of buffers, and the driver (22.11 to at least
            // 25.03) leaves a stale "next" mark behind when a shorter one follows: frames get joined. With
            // mbufs of just the buffers' size its quick paths apply on both ways.
            "net_memif" => {
                let buffer = number("bsize", 2048);
                let ring = 1u32.checked_shl(number("rsize", 10)).unwrap_or(0);
                let remedy = "its buffers are shorter; add e.g. bsize=9728 to the --vdev of both sides";
                Self { frame_max: Some(buffer), remedy, buffer_min: buffer, ring, ..alone }
            }
            "net_af_packet" => {
                let frame = number("framesz", 2048);
                let remedy = "its kernel ring has shorter frames; add e.g. framesz=16384,blocksz=65536,framecnt=1024 to the \
                              --vdev";
                Self {
                    frame_max: Some(frame.saturating_sub(PACKET_HEADER)),
                    remedy,
                    buffer_min: frame,
                    ..alone
                }
            }
            "net_vhost" | "net_ring" | "net_pcap" | "net_null" | "net_tap" => alone,
            _ => Self::default(),
        }
    }
}

/// What the kernel puts before each frame of a packet ring, rounded up.
const PACKET_HEADER: u32 = 80;

#[cfg(test)]
mod tests {
    use super::super::args::EalArgs;
    use super::*;

    fn quirks(driver: &str, vdev: &str) -> Quirks {
        let args = EalArgs::parse(&[format!("--vdev={vdev}")]);
        Quirks::new(driver, args.vdevs.first())
    }

    #[test]
    fn options_decide() {
        let memif = quirks("net_memif", "net_memif0,role=server");
        assert_eq!((memif.frame_max, memif.buffer_min, memif.ring), (Some(2048), 2048, 1024));
        let memif = quirks("net_memif", "net_memif0,bsize=9728,rsize=12");
        assert_eq!((memif.frame_max, memif.buffer_min, memif.ring), (Some(9728), 9728, 4096));
        assert_eq!(quirks("net_memif", "net_memif0,rsize=99,bsize=x").ring, 0);
        let packet = quirks("net_af_packet", "net_af_packet0,iface=x,framesz=16384");
        assert_eq!((packet.frame_max, packet.buffer_min), (Some(16_304), 16_384));
        assert_eq!(Quirks::new("net_af_packet", None).frame_max, Some(1968));
        assert_eq!(Quirks::new("net_mlx5", None), Quirks::default());
        assert!(Quirks::new("net_vhost", None).mtu_left_alone);
    }
}
