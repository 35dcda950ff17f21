//! MPA Request and Reply Frames (RFC 5044 section 7.1.1, RFC 6581 sections 6 and 9).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |          Key: "MPA ID Req Frame" or "MPA ID Rep Frame"        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |M|C|R|S| Res   |     Rev       |          PD_Length            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |A|B|        IRD                |C|D|        ORD                |   if S is set
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                          Private Data                         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! What the two sides make of each other's frames is in `crate::mpa`. FPDUs are there too.

use super::array;

/// Octets in front of the private data.
pub const HEADER_LEN: usize = 20;

/// Octets of the enhanced connection establishment data, which PD_Length counts.
pub const ENHANCED_LEN: usize = 4;

/// Most octets of private data, enhanced data included.
pub const PRIVATE_DATA_MAX: usize = 512;

/// Octets of the longest frame.
pub const FRAME_LEN_MAX: usize = HEADER_LEN + PRIVATE_DATA_MAX;

/// Octets of the key, which starts a frame.
pub const KEY_LEN: usize = 16;

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The Initiator's.
    Request,
    /// The Responder's.
    Reply,
}

impl Kind {
    /// The key that starts the frame.
    pub const fn key(self) -> &'static [u8; KEY_LEN] {
        // req 5044-7.1.1-1
        // req 5044-7.1.1-3
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// A frame up to its private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which frame it is.
    pub kind: Kind,
    /// M: the sender requires Markers in FPDUs sent to it.
    pub markers: bool,
    /// C: the sender prefers CRCs.
    pub crc: bool,
    /// R: the connection is rejected; only a Reply says so.
    pub rejected: bool,
    /// S: the private data begins with [`Enhanced`]; never below revision 2.
    pub enhanced: bool,
    /// Rev: any; it is for the receiver to say which it can work with.
    pub revision: u8,
    /// PD_Length, at most [`PRIVATE_DATA_MAX`].
    pub private_data_len: u16,
}

/// Why octets are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatError {
    /// The key is neither frame's.
    Key,
    /// PD_Length is beyond 512, or too small for the enhanced data that S announces.
    PrivateDataLength(u16),
}

impl Header {
    /// Reads the fixed part of a frame.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(octets: &[u8; HEADER_LEN]) -> Result<Self, FormatError> {
        let key: [u8; KEY_LEN] = array(octets, 0);
        let kind = [Kind::Request, Kind::Reply]
            .into_iter()
            .find(|kind| *kind.key() == key)
            .ok_or(FormatError::Key)?;
        let flags = octets[field::FLAGS];
        let revision = octets[field::REVISION];
        let private_data_len = u16::from_be_bytes(array(octets, field::PRIVATE_DATA_LEN));
        // req 5044-7.1.1-13: the reserved bits are not looked at; S is one of them in revision 1.
        // req 6581-6-1
        let enhanced = revision >= 2 && flags & flag::ENHANCED != 0;
        let len = usize::from(private_data_len);
        // req 5044-7.1.1-18
        // req 5044-7.1.2-18
        if len > PRIVATE_DATA_MAX || (enhanced && len < ENHANCED_LEN) {
            return Err(FormatError::PrivateDataLength(private_data_len));
        }
        Ok(Self {
            kind,
            markers: flags & flag::MARKERS != 0,
            crc: flags & flag::CRC != 0,
            rejected: kind == Kind::Reply && flags & flag::REJECTED != 0,
            enhanced,
            revision,
            private_data_len,
        })
    }

    /// The header's octets.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..KEY_LEN].copy_from_slice(self.kind.key());
        out[field::FLAGS] = [
            (self.markers, flag::MARKERS),
            (self.crc, flag::CRC),
            (self.rejected, flag::REJECTED),
            (self.enhanced, flag::ENHANCED),
        ]
        .into_iter()
        .fold(0, |flags, (set, flag)| if set { flags | flag } else { flags });
        out[field::REVISION] = self.revision;
        out[field::PRIVATE_DATA_LEN..].copy_from_slice(&self.private_data_len.to_be_bytes());
        out
    }

    /// Octets of the whole frame.
    pub fn frame_len(&self) -> usize {
        HEADER_LEN + usize::from(self.private_data_len)
    }
}

/// Which FPDU tells the Responder that the Initiator is ready to receive (RFC 6581 section 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtrKind {
    /// A zero-length Send.
    Send,
    /// A zero-length RDMA Write.
    Write,
    /// A zero-length RDMA Read.
    Read,
}

/// A set of [`RtrKind`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RtrKinds {
    /// Has [`RtrKind::Send`].
    pub send: bool,
    /// Has [`RtrKind::Write`].
    pub write: bool,
    /// Has [`RtrKind::Read`].
    pub read: bool,
}

impl RtrKinds {
    /// All three.
    pub const ALL: Self = Self { send: true, write: true, read: true };

    /// The set of one kind.
    pub const fn only(kind: RtrKind) -> Self {
        Self {
            send: matches!(kind, RtrKind::Send),
            write: matches!(kind, RtrKind::Write),
            read: matches!(kind, RtrKind::Read),
        }
    }

    /// What both sets have.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// The kind to use of a set: a Write takes no resources of the peer, a Read takes a place
    /// in its IRD, a Send a receive buffer's sequence number.
    pub const fn preferred(self) -> Option<RtrKind> {
        match self {
            Self { write: true, .. } => Some(RtrKind::Write),
            Self { read: true, .. } => Some(RtrKind::Read),
            Self { send: true, .. } => Some(RtrKind::Send),
            _ => None,
        }
    }
}

/// An IRD or ORD as declared: 14 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(u16);

impl Depth {
    /// All ones: the ULPs settle it themselves.
    pub const NOT_NEGOTIATED: Self = Self(0x3fff);

    /// The most that can be declared.
    pub const MAX: u16 = 0x3ffe;

    /// Declares a depth; one beyond [`Depth::MAX`] is declared as that.
    pub const fn new(depth: u16) -> Self {
        if depth > Self::MAX { Self(Self::MAX) } else { Self(depth) }
    }

    /// The declared depth, unless it is not negotiated.
    pub const fn negotiated(self) -> Option<u16> {
        if self.0 == Self::NOT_NEGOTIATED.0 { None } else { Some(self.0) }
    }
}

/// The enhanced RDMA connection establishment data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// The sender's Inbound RDMA Read Queue Depth.
    pub ird: Depth,
    /// The sender's Outbound RDMA Read Queue Depth.
    pub ord: Depth,
    /// A: the peer-to-peer model, with the RTR indications of B, C and D; else client-server.
    pub peer_to_peer: Option<RtrKinds>,
}

impl Enhanced {
    /// Reads the data; any octets are some.
    pub fn parse(octets: [u8; ENHANCED_LEN]) -> Self {
        let [ird, ord] = [0, 2].map(|at| u16::from_be_bytes(array(&octets, at)));
        // req 6581-9.2-15: without A, the others say nothing.
        let peer_to_peer = (ird & enhanced::A != 0).then_some(RtrKinds {
            send: ird & enhanced::B != 0,
            write: ord & enhanced::C != 0,
            read: ord & enhanced::D != 0,
        });
        Self { ird: Depth(ird & enhanced::DEPTH), ord: Depth(ord & enhanced::DEPTH), peer_to_peer }
    }

    /// The data's octets.
    pub fn emit(&self) -> [u8; ENHANCED_LEN] {
        // req 6581-9-1
        let (mut ird, mut ord) = (self.ird.0, self.ord.0);
        // req 6581-9.2-14
        if let Some(kinds) = self.peer_to_peer {
            ird |= enhanced::A;
            ird |= if kinds.send { enhanced::B } else { 0 };
            ord |= if kinds.write { enhanced::C } else { 0 };
            ord |= if kinds.read { enhanced::D } else { 0 };
        }
        let [a, b] = ird.to_be_bytes();
        let [c, d] = ord.to_be_bytes();
        [a, b, c, d]
    }
}

/// Where the fields start.
mod field {
    pub(super) const FLAGS: usize = 16;
    pub(super) const REVISION: usize = 17;
    pub(super) const PRIVATE_DATA_LEN: usize = 18;
}

/// The flags octet.
mod flag {
    pub(super) const MARKERS: u8 = 0x80;
    pub(super) const CRC: u8 = 0x40;
    pub(super) const REJECTED: u8 = 0x20;
    pub(super) const ENHANCED: u8 = 0x10;
}

/// Bits in the IRD (A and B) and ORD (C and D) words.
mod enhanced {
    pub(super) const A: u16 = 0x8000;
    pub(super) const B: u16 = 0x4000;
    pub(super) const C: u16 = 0x8000;
    pub(super) const D: u16 = 0x4000;
    pub(super) const DEPTH: u16 = 0x3fff;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(key: &[u8; 16], rest: [u8; 4]) -> [u8; HEADER_LEN] {
        let mut octets = [0; HEADER_LEN];
        octets[..16].copy_from_slice(key);
        octets[16..].copy_from_slice(&rest);
        octets
    }

    /// Linux siw's request with `mpa_crc_required`, as captured.
    // proves 5044-7.1.1-1
    #[test]
    fn a_real_request_parses_and_is_made() {
        let octets =
            frame(b"\x4d\x50\x41\x20\x49\x44\x20\x52\x65\x71\x20\x46\x72\x61\x6d\x65", [0x50, 2, 0, 4]);
        let header = Header {
            kind: Kind::Request,
            markers: false,
            crc: true,
            rejected: false,
            enhanced: true,
            revision: 2,
            private_data_len: 4,
        };
        assert_eq!(Header::parse(&octets), Ok(header));
        assert_eq!(header.emit(), octets);
        assert_eq!(header.frame_len(), 24);
    }

    /// Linux siw's rejecting reply, as captured.
    // proves 5044-7.1.1-3
    #[test]
    fn a_real_rejection_parses_and_is_made() {
        let octets =
            frame(b"\x4d\x50\x41\x20\x49\x44\x20\x52\x65\x70\x20\x46\x72\x61\x6d\x65", [0x30, 2, 0, 4]);
        let header = Header::parse(&octets).unwrap();
        assert_eq!(header.kind, Kind::Reply);
        assert!(header.rejected && header.enhanced && !header.crc);
        assert_eq!(header.emit(), octets);
    }

    /// siw sets a reserved bit for its own "GSO expected".
    // proves 5044-7.1.1-13, 6581-6-1
    #[test]
    fn reserved_bits_are_ignored() {
        let siw_gso = Header::parse(&frame(b"MPA ID Req Frame", [0x18, 2, 0, 4])).unwrap();
        assert_eq!(siw_gso.emit()[16], 0x10);
        // Revision 1 does not know S, and R means nothing in a Request.
        let old = Header::parse(&frame(b"MPA ID Req Frame", [0x3f, 1, 0, 0])).unwrap();
        assert!(!old.enhanced && !old.rejected);
    }

    // proves 5044-7.1.1-18, 5044-7.1.2-18
    #[test]
    fn impossible_private_data_lengths_are_refused() {
        let len = |rest| Header::parse(&frame(b"MPA ID Rep Frame", rest));
        assert!(len([0, 1, 0x02, 0x00]).is_ok());
        assert_eq!(len([0, 1, 0x02, 0x01]), Err(FormatError::PrivateDataLength(513)));
        assert_eq!(len([0x10, 2, 0, 3]), Err(FormatError::PrivateDataLength(3)));
        assert!(len([0x10, 2, 0, 4]).is_ok());
        assert!(len([0x10, 1, 0, 3]).is_ok());
    }

    #[test]
    fn another_key_is_refused() {
        assert_eq!(Header::parse(&frame(b"MPA ID Ref Frame", [0, 1, 0, 0])), Err(FormatError::Key));
    }

    /// siw in peer-to-peer mode, as captured: request, then reply.
    // proves 6581-9-1
    #[test]
    fn real_enhanced_data_parses_and_is_made() {
        let offer = RtrKinds { send: false, write: true, read: true };
        let request = Enhanced { ird: Depth::new(1), ord: Depth::new(1), peer_to_peer: Some(offer) };
        assert_eq!(Enhanced::parse([0x80, 0x01, 0xc0, 0x01]), request);
        assert_eq!(request.emit(), [0x80, 0x01, 0xc0, 0x01]);
        let reply = Enhanced { peer_to_peer: Some(RtrKinds::only(RtrKind::Write)), ..request };
        assert_eq!(reply.emit(), [0x80, 0x01, 0x80, 0x01]);
    }

    // proves 6581-9.2-14, 6581-9.2-15
    #[test]
    fn without_a_the_other_flags_say_nothing() {
        let data = Enhanced::parse([0x40, 0x02, 0xc0, 0x03]);
        assert_eq!(data.peer_to_peer, None);
        assert_eq!(data.emit(), [0, 2, 0, 3]);
    }

    #[test]
    fn depths_are_14_bits() {
        assert_eq!(Depth::new(0x3fff).negotiated(), Some(0x3ffe));
        assert_eq!(Depth::NOT_NEGOTIATED.negotiated(), None);
        assert_eq!(Enhanced::parse([0x3f, 0xff, 0, 0]).ird, Depth::NOT_NEGOTIATED);
    }

    proptest! {
        #[test]
        fn any_header_parses_or_fails_and_is_emitted_again(
            request: bool, flags: u8, revision: u8, len in prop_oneof![0..520_u16, any::<u16>()],
        ) {
            let kind = if request { Kind::Request } else { Kind::Reply };
            let [high, low] = len.to_be_bytes();
            if let Ok(header) = Header::parse(&frame(kind.key(), [flags, revision, high, low])) {
                prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
                prop_assert!(header.frame_len() <= FRAME_LEN_MAX);
            }
        }

        #[test]
        fn any_octets_never_panic(octets: [u8; HEADER_LEN]) {
            let _ = Header::parse(&octets);
        }

        #[test]
        fn any_enhanced_data_is_emitted_again(octets: [u8; ENHANCED_LEN]) {
            let data = Enhanced::parse(octets);
            if data.peer_to_peer.is_some() {
                prop_assert_eq!(data.emit(), octets);
            }
            prop_assert_eq!(Enhanced::parse(data.emit()), data);
        }
    }
}
