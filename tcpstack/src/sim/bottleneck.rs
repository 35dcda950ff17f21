//! A router behind a port: a slower link, and in front of it a queue that drops and marks.

use core::time::Duration;

use smoltcp::wire::Ipv4Packet;

use super::mangle::TcpLayout;
use crate::time::Instant;

/// A slower link on the way, with a queue of its own in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// Speed of the link, in bits a second.
    pub bandwidth: u64,
    /// Octets that may wait; what finds no room is dropped.
    pub queue: usize,
    /// Packets of ECN-capable flows that find more octets than this waiting are marked.
    pub mark_above: Option<usize>,
}

/// What became of a frame at the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passage {
    /// It leaves at this time.
    Leaves(Instant),
    /// The same, with a congestion mark.
    Marked(Instant),
    /// There was no room.
    Full,
}

impl Bottleneck {
    /// Puts a frame that comes at `now` into the queue; the link is free at `free_at`.
    pub(super) fn pass(&self, octets: &mut [u8], free_at: Instant, now: Instant) -> Passage {
        let nanos = (free_at - now).as_nanos();
        let waiting =
            usize::try_from(nanos * u128::from(self.bandwidth) / 8_000_000_000).unwrap_or(usize::MAX);
        if waiting + octets.len() > self.queue {
            return Passage::Full;
        }
        let bits = u64::try_from(octets.len()).expect("a length fits u64") * 8;
        let leaves = free_at.max(now) + Duration::from_nanos(bits * 1_000_000_000 / self.bandwidth.max(1));
        if self.mark_above.is_some_and(|limit| waiting > limit) && mark(octets) {
            return Passage::Marked(leaves);
        }
        Passage::Leaves(leaves)
    }
}

/// Sets Congestion Experienced on a packet of an ECN-capable flow; false on others.
fn mark(octets: &mut [u8]) -> bool {
    let Some(TcpLayout { ip, ipv6, .. }) = TcpLayout::of(octets) else { return false };
    let bits = if ipv6 { 0x30 } else { 0x03 };
    if octets[ip + 1] & bits == 0 {
        return false;
    }
    octets[ip + 1] |= bits;
    if !ipv6 {
        Ipv4Packet::new_unchecked(&mut octets[ip..]).fill_checksum();
    }
    true
}
