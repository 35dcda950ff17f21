//! DDP Segment headers (RFC 5041 section 4).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//!                                 +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//!                                 |1|L| Rsvd  | DV|    RsvdULP    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                              STag                             |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                          TO (64 bits)                         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//!
//!                                 +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//!                                 |0|L| Rsvd  | DV| RsvdULP[0:7]  |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                         RsvdULP[8:39]                         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               QN                              |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                              MSN                              |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               MO                              |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! What the ULP's octets mean is `rdmap`'s business.

use super::{Version, array};
use crate::types::Stag;

/// Octets of a tagged header.
pub const HEADER_LEN_TAGGED: usize = 14;

/// Octets of an untagged header.
pub const HEADER_LEN_UNTAGGED: usize = 18;

/// Octets of the longest header: what to gather before parsing.
pub const HEADER_LEN_MAX: usize = HEADER_LEN_UNTAGGED;

/// A DDP Segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The payload goes to a Tagged Buffer.
    Tagged {
        /// Whether this is the last segment of its message.
        last: bool,
        /// The ULP's octet: RDMAP Control.
        ulp_control: u8,
        /// The Data Sink's buffer.
        stag: Stag,
        /// Tagged Offset of the payload's first octet.
        offset: u64,
    },
    /// The payload goes to an Untagged Buffer.
    Untagged {
        /// Whether this is the last segment of its message.
        last: bool,
        /// The ULP's first octet: RDMAP Control.
        ulp_control: u8,
        /// The ULP's other four octets: RDMAP's Invalidate STag.
        ulp_word: u32,
        /// Queue Number.
        queue: u32,
        /// Message Sequence Number.
        msn: u32,
        /// Message Offset of the payload's first octet.
        offset: u32,
    },
}

/// Why octets are not a DDP Segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The DDP version is not the Stream's; the two buffer models have codes of their own.
    Version {
        /// The T bit.
        tagged: bool,
    },
    /// The ULPDU is shorter than its header.
    Truncated,
}

impl Header {
    /// Reads the header at the start of a DDP Segment; the payload follows it.
    ///
    /// # Errors
    /// Says what is wrong; the version is looked at first.
    #[inline]
    pub fn parse(segment: &[u8], version: Version) -> Result<Self, FormatError> {
        let control = *segment.first().ok_or(FormatError::Truncated)?;
        let tagged = control & control::TAGGED != 0;
        // req 5041-4.1-8: the reserved bits are not looked at.
        // req 5041-4.1-10
        if control & control::VERSION != version.bits() {
            return Err(FormatError::Version { tagged });
        }
        let last = control & control::LAST != 0;
        if tagged {
            let octets: &[u8; HEADER_LEN_TAGGED] = segment.first_chunk().ok_or(FormatError::Truncated)?;
            Ok(Self::Tagged {
                last,
                ulp_control: octets[field::ULP_CONTROL],
                stag: Stag(u32::from_be_bytes(array(octets, field::STAG))),
                offset: u64::from_be_bytes(array(octets, field::TAGGED_OFFSET)),
            })
        } else {
            let octets: &[u8; HEADER_LEN_UNTAGGED] = segment.first_chunk().ok_or(FormatError::Truncated)?;
            Ok(Self::Untagged {
                last,
                ulp_control: octets[field::ULP_CONTROL],
                ulp_word: u32::from_be_bytes(array(octets, field::ULP_WORD)),
                queue: u32::from_be_bytes(array(octets, field::QUEUE)),
                msn: u32::from_be_bytes(array(octets, field::MSN)),
                offset: u32::from_be_bytes(array(octets, field::MESSAGE_OFFSET)),
            })
        }
    }

    /// Writes the header to the start of `out` and returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Header::len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8], version: Version) -> usize {
        match *self {
            // req 5041-4.2-1, 5041-4.4-1
            // req 5041-4.2-2
            Self::Tagged { last, ulp_control, stag, offset } => {
                // req 5041-4.1-1
                out[field::CONTROL] = control::TAGGED | control::octet(last, version);
                out[field::ULP_CONTROL] = ulp_control;
                out[field::STAG..field::TAGGED_OFFSET].copy_from_slice(&stag.0.to_be_bytes());
                out[field::TAGGED_OFFSET..HEADER_LEN_TAGGED].copy_from_slice(&offset.to_be_bytes());
            }
            // req 5041-4.3-1, 5041-4.4-1
            // req 5041-4.3-2
            Self::Untagged { last, ulp_control, ulp_word, queue, msn, offset } => {
                // req 5041-4.1-2
                out[field::CONTROL] = control::octet(last, version);
                out[field::ULP_CONTROL] = ulp_control;
                out[field::ULP_WORD..field::QUEUE].copy_from_slice(&ulp_word.to_be_bytes());
                out[field::QUEUE..field::MSN].copy_from_slice(&queue.to_be_bytes());
                out[field::MSN..field::MESSAGE_OFFSET].copy_from_slice(&msn.to_be_bytes());
                out[field::MESSAGE_OFFSET..HEADER_LEN_UNTAGGED].copy_from_slice(&offset.to_be_bytes());
            }
        }
        self.len()
    }

    /// Octets of this header.
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::Tagged { .. } => HEADER_LEN_TAGGED,
            Self::Untagged { .. } => HEADER_LEN_UNTAGGED,
        }
    }

    /// Whether this is the last segment of its message.
    pub const fn last(&self) -> bool {
        match *self {
            Self::Tagged { last, .. } | Self::Untagged { last, .. } => last,
        }
    }

    /// The ULP's octet: RDMAP Control.
    pub const fn ulp_control(&self) -> u8 {
        match *self {
            Self::Tagged { ulp_control, .. } | Self::Untagged { ulp_control, .. } => ulp_control,
        }
    }
}

/// The length that the header starting with `control` has, of whatever version.
pub(super) const fn header_len(control: u8) -> usize {
    if control & control::TAGGED == 0 { HEADER_LEN_UNTAGGED } else { HEADER_LEN_TAGGED }
}

/// Bits of the DDP Control field.
mod control {
    use crate::wire::Version;

    pub(super) const TAGGED: u8 = 0x80;
    pub(super) const LAST: u8 = 0x40;
    pub(super) const VERSION: u8 = 0x03;

    pub(super) const fn octet(last: bool, version: Version) -> u8 {
        // req 5041-4.1-9
        if last { LAST | version.bits() } else { version.bits() }
    }
}

/// Where the fields start.
mod field {
    pub(super) const CONTROL: usize = 0;
    pub(super) const ULP_CONTROL: usize = 1;
    pub(super) const STAG: usize = 2;
    pub(super) const TAGGED_OFFSET: usize = 6;
    pub(super) const ULP_WORD: usize = 2;
    pub(super) const QUEUE: usize = 6;
    pub(super) const MSN: usize = 10;
    pub(super) const MESSAGE_OFFSET: usize = 14;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A Linux siw's Send, second segment of three (its octets on the wire).
    const SEND: [u8; 18] = [0x01, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0x05, 0x90];
    const SEND_HEADER: Header =
        Header::Untagged { last: false, ulp_control: 0x43, ulp_word: 0, queue: 0, msn: 1, offset: 1424 };

    /// A Linux siw's zero-length RDMA Write that says it is ready to receive.
    const WRITE: [u8; 14] = [0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    const WRITE_HEADER: Header = Header::Tagged { last: true, ulp_control: 0x40, stag: Stag(1), offset: 0 };

    // proves 5041-4.2-1, 5041-4.2-2, 5041-4.3-1, 5041-4.3-2, 5041-4.1-1, 5041-4.1-2, 5041-4.1-9
    #[test]
    fn headers_of_a_real_peer_parse_and_are_made() {
        for (octets, header) in [(&SEND[..], SEND_HEADER), (&WRITE[..], WRITE_HEADER)] {
            assert_eq!(Header::parse(octets, Version::Ietf), Ok(header));
            let mut out = [0xff; HEADER_LEN_MAX];
            let len = header.emit(&mut out, Version::Ietf);
            assert_eq!(&out[..len], octets);
            assert!(out[len..].iter().all(|&octet| octet == 0xff));
        }
    }

    #[test]
    fn every_truncation_is_found() {
        for octets in [&SEND[..], &WRITE[..]] {
            for len in 0..octets.len() {
                assert_eq!(Header::parse(&octets[..len], Version::Ietf), Err(FormatError::Truncated));
            }
        }
    }

    // proves 5041-4.1-10
    #[test]
    fn another_version_is_refused_even_when_truncated() {
        assert_eq!(Header::parse(&[0xc0], Version::Ietf), Err(FormatError::Version { tagged: true }));
        assert_eq!(Header::parse(&[0x42], Version::Ietf), Err(FormatError::Version { tagged: false }));
        assert_eq!(Header::parse(&SEND, Version::Rdmac), Err(FormatError::Version { tagged: false }));
    }

    // proves 5041-4.1-8
    #[test]
    fn reserved_bits_are_ignored_and_sent_as_zero() {
        let mut octets = SEND;
        octets[0] |= 0x3c;
        let header = Header::parse(&octets, Version::Ietf).unwrap();
        assert_eq!(header, SEND_HEADER);
        let mut out = [0; HEADER_LEN_MAX];
        header.emit(&mut out, Version::Ietf);
        assert_eq!(out, SEND);
    }

    fn any_version() -> impl Strategy<Value = Version> {
        prop_oneof![Just(Version::Rdmac), Just(Version::Ietf)]
    }

    fn any_header() -> impl Strategy<Value = Header> {
        let tagged = any::<(bool, u8, u32, u64)>().prop_map(|(last, ulp_control, stag, offset)| {
            Header::Tagged { last, ulp_control, stag: Stag(stag), offset }
        });
        let untagged = any::<(bool, u8, u32, u32, u32, u32)>().prop_map(
            |(last, ulp_control, ulp_word, queue, msn, offset)| Header::Untagged {
                last,
                ulp_control,
                ulp_word,
                queue,
                msn,
                offset,
            },
        );
        prop_oneof![tagged, untagged]
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_back(header in any_header(), version in any_version()) {
            let mut out = [0; HEADER_LEN_MAX];
            let len = header.emit(&mut out, version);
            prop_assert_eq!(len, header.len());
            prop_assert_eq!(Header::parse(&out[..len], version), Ok(header));
        }

        #[test]
        fn any_octets_parse_or_fail_and_are_emitted_again(
            mut octets in proptest::collection::vec(any::<u8>(), 0..40),
            version in any_version(),
        ) {
            if let Ok(header) = Header::parse(&octets, version) {
                octets[0] &= 0xc3; // reserved bits are not kept
                let mut out = [0; HEADER_LEN_MAX];
                let len = header.emit(&mut out, version);
                prop_assert_eq!(&out[..len], &octets[..len]);
            }
        }
    }
}
