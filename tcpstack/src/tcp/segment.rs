//! The TCP header (RFC 9293 section 3.1): what the fast path needs of it, read once.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |          Source Port          |       Destination Port        |
//! |                        Sequence Number                        |
//! |                    Acknowledgment Number                      |
//! | Offset| Rsrvd |C|E|U|A|P|R|S|F|            Window             |
//! |           Checksum            |         Urgent Pointer        |
//! |                      [Options], then data                     |
//! ```
//!
//! Options are parsed by [`options`](super::options), and only where they matter.

use core::ops::BitOr;

use crate::checksum;
use crate::seq::SeqNumber;

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;

/// Most octets of options.
pub const OPTIONS_MAX: usize = 40;

/// Where the checksum is in the header.
pub(crate) const CHECKSUM: core::ops::Range<usize> = 16..18;

/// The control bits that this implementation looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push function.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer field is significant.
    pub const URG: Self = Self(0x20);
    /// A congestion mark is echoed (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);
    /// None.
    pub const NONE: Self = Self(0);

    /// The bits of both, where an operator cannot be used.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other`'s bits are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other`'s bits is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

/// A header's meaning, without its checksum and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK; means something only with [`Flags::ACK`].
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// SEG.WND as on the wire, not scaled.
    pub window: u16,
    /// Octets of header and options: `20 <= header_len <= 60`.
    pub header_len: usize,
    /// Octets of data.
    pub payload_len: u32,
}

/// A segment whose header does not fit its octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Segment {
    /// Reads the header of a whole segment.
    ///
    /// # Errors
    /// When the octets are fewer than the header says, or its length is below the least.
    #[inline]
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        let (header, _) = octets.split_first_chunk::<HEADER_LEN>().ok_or(Malformed)?;
        let [s0, s1, d0, d1, q0, q1, q2, q3, a0, a1, a2, a3, offset, flags, w0, w1, ..] = *header;
        let header_len = usize::from(offset >> 4) * 4;
        if header_len < HEADER_LEN || header_len > octets.len() {
            return Err(Malformed);
        }
        Ok(Self {
            source_port: u16::from_be_bytes([s0, s1]),
            destination_port: u16::from_be_bytes([d0, d1]),
            seq: SeqNumber::new(u32::from_be_bytes([q0, q1, q2, q3])),
            ack: SeqNumber::new(u32::from_be_bytes([a0, a1, a2, a3])),
            flags: Flags(flags),
            window: u16::from_be_bytes([w0, w1]),
            header_len,
            payload_len: u32::try_from(octets.len() - header_len).map_err(|_| Malformed)?,
        })
    }

    /// The options' octets in the segment that this was parsed from.
    pub fn options<'a>(&self, octets: &'a [u8]) -> &'a [u8] {
        &octets[HEADER_LEN..self.header_len]
    }

    /// SEG.LEN: the data, and one for each of SYN and FIN.
    pub fn sequence_len(&self) -> u32 {
        self.payload_len
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }
}

/// The fields of a header to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The first octet's sequence number.
    pub seq: SeqNumber,
    /// The acknowledgment number; zero without [`Flags::ACK`].
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// The window, already scaled.
    pub window: u16,
}

impl Header {
    /// Octets that [`Header::emit`] writes with these options.
    pub const fn len(options: &[u8]) -> usize {
        HEADER_LEN + options.len()
    }

    /// Writes the header to the front of `out`, the checksum field zero, and returns the checksum's
    /// sum over it: to read what was just written in other pieces would have to wait for the writes.
    ///
    /// # Panics
    /// When `out` is too short, or the options are too long or no multiple of four.
    #[inline(always)]
    pub fn emit(&self, out: &mut [u8], options: &[u8]) -> u32 {
        assert!(
            options.len() <= OPTIONS_MAX && options.len().is_multiple_of(4),
            "options are padded and fit"
        );
        let words = u8::try_from(Self::len(options) / 4).expect("at most 15 words");
        let mut header = [0; HEADER_LEN];
        header[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.seq.value().to_be_bytes());
        header[8..12].copy_from_slice(&self.ack.value().to_be_bytes());
        header[12] = words << 4;
        header[13] = self.flags.0;
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[..HEADER_LEN].copy_from_slice(&header);
        let halves = |number: SeqNumber| (number.value() >> 16) + (number.value() & 0xffff);
        let mut sum = u32::from(self.source_port)
            + u32::from(self.destination_port)
            + halves(self.seq)
            + halves(self.ack)
            + u32::from(u16::from_be_bytes([words << 4, self.flags.0]))
            + u32::from(self.window);
        if !options.is_empty() {
            out[HEADER_LEN..][..options.len()].copy_from_slice(options);
            sum += checksum::sum(options);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use smoltcp::wire::TcpPacket;

    const BYTES: [u8; 28] = [
        0xbf, 0x00, 0x00, 0x50, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0x60, 0x1a, 0x01, 0x23, 0x00,
        0x00, 0x00, 0x00, 0x03, 0x03, 0x0c, 0x01, 0xaa, 0x00, 0x00, 0xff,
    ];

    fn header() -> Header {
        Header {
            source_port: 48896,
            destination_port: 80,
            seq: SeqNumber::new(0x0123_4567),
            ack: SeqNumber::new(0x89ab_cdef),
            flags: Flags::SYN | Flags::ACK | Flags::PSH,
            window: 0x0123,
        }
    }

    #[test]
    fn deconstruct() {
        let segment = Segment::parse(&BYTES).unwrap();
        let header = header();
        assert_eq!((segment.source_port, segment.destination_port), (48896, 80));
        assert_eq!((segment.seq, segment.ack, segment.window), (header.seq, header.ack, header.window));
        assert_eq!(segment.flags, header.flags);
        assert_eq!((segment.header_len, segment.payload_len, segment.sequence_len()), (24, 4, 5));
        assert_eq!(segment.options(&BYTES), &[3, 3, 12, 1]);
    }

    #[test]
    fn construct() {
        let mut out = BYTES;
        out[..24].fill(0xa5);
        let sum = header().emit(&mut out, &[3, 3, 12, 1]);
        assert_eq!(out, BYTES);
        assert_eq!(checksum::finish(sum), checksum::finish(checksum::sum(&BYTES[..24])));
    }

    #[test]
    fn truncation_at_every_length() {
        for len in 0..24 {
            assert_eq!(Segment::parse(&BYTES[..len]), Err(Malformed), "{len}");
        }
        for len in 24..=28 {
            assert_eq!(Segment::parse(&BYTES[..len]).unwrap().payload_len as usize, len - 24);
        }
    }

    #[test]
    fn a_header_length_below_the_least_is_malformed() {
        let mut octets = BYTES;
        octets[12] = 0x40;
        assert_eq!(Segment::parse(&octets), Err(Malformed));
    }

    proptest! {
        #[test]
        fn any_octets_are_read_as_smoltcp_reads_them(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            let ours = Segment::parse(&octets);
            match TcpPacket::new_checked(&octets[..]) {
                Ok(theirs) => {
                    // smoltcp does not mind a header length below 20.
                    if theirs.header_len() < 20 {
                        prop_assert!(ours.is_err());
                        return Ok(());
                    }
                    let ours = ours.unwrap();
                    prop_assert_eq!(ours.source_port, theirs.src_port());
                    prop_assert_eq!(ours.destination_port, theirs.dst_port());
                    prop_assert_eq!(ours.seq.value(), theirs.seq_number().0.cast_unsigned());
                    prop_assert_eq!(ours.ack.value(), theirs.ack_number().0.cast_unsigned());
                    prop_assert_eq!(ours.flags.contains(Flags::SYN), theirs.syn());
                    prop_assert_eq!(ours.flags.contains(Flags::FIN), theirs.fin());
                    prop_assert_eq!(ours.flags.contains(Flags::RST), theirs.rst());
                    prop_assert_eq!(ours.flags.contains(Flags::ACK), theirs.ack());
                    prop_assert_eq!(ours.flags.contains(Flags::PSH), theirs.psh());
                    prop_assert_eq!(ours.flags.contains(Flags::ECE), theirs.ece());
                    prop_assert_eq!(ours.flags.contains(Flags::CWR), theirs.cwr());
                    prop_assert_eq!(ours.window, theirs.window_len());
                    prop_assert_eq!(ours.header_len, usize::from(theirs.header_len()));
                    prop_assert_eq!(ours.payload_len as usize, theirs.payload().len());
                }
                Err(_) => prop_assert!(ours.is_err()),
            }
        }
    }
}
