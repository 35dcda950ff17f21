//! Captures in the classic pcap format with nanosecond time stamps, kept in memory.

use crate::time::Instant;

/// Magic number of the variant with nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// Link type Ethernet.
const ETHERNET: u32 = 1;
/// Longest frame kept whole.
const SNAPLEN: u32 = 262_144;

/// A capture that grows in memory; write [`Pcap::octets`] to a file to look at it.
#[derive(Clone, Debug)]
pub struct Pcap(Vec<u8>);

impl Pcap {
    /// A capture of nothing yet.
    pub fn new() -> Self {
        let mut octets = Vec::new();
        octets.extend(MAGIC.to_le_bytes());
        octets.extend(2u16.to_le_bytes());
        octets.extend(4u16.to_le_bytes());
        // Time zone and accuracy are zero by convention.
        octets.extend([0; 8]);
        octets.extend(SNAPLEN.to_le_bytes());
        octets.extend(ETHERNET.to_le_bytes());
        Self(octets)
    }

    /// Appends a frame.
    pub fn record(&mut self, at: Instant, frame: &[u8]) {
        let seconds = u32::try_from(at.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX);
        let nanos = u32::try_from(at.as_nanos() % 1_000_000_000).expect("less than a second");
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX).min(SNAPLEN);
        for word in [seconds, nanos, len, len] {
            self.0.extend(word.to_le_bytes());
        }
        self.0.extend(frame.iter().take(usize::try_from(len).unwrap_or(usize::MAX)));
    }

    /// The file's content.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl Default for Pcap {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_records_have_their_places() {
        let mut pcap = Pcap::new();
        assert_eq!(pcap.octets().len(), 24);
        assert_eq!(pcap.octets()[..8], [0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0]);
        assert_eq!(pcap.octets()[20], 1);
        pcap.record(Instant::from_nanos(2_000_000_007), b"frame");
        let record = &pcap.octets()[24..];
        assert_eq!(record[..8], [2, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(record[8..16], [5, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(&record[16..], b"frame");
    }
}
