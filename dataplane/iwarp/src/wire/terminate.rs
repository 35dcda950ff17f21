//! The Terminate header (RFC 5040 section 4.8) and all its codes, of every layer.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | Layer | EType |   Error Code  |M|D|R|        Reserved         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  DDP Segment Length  (if any) |                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//! |     Terminated DDP Header, Terminated RDMA Header (if any)    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! The codes come from RFC 5040 figure 9, RFC 5041 section 7.2, RFC 5044 section 8 and
//! RFC 6581 section 8. Which error has which code is decided elsewhere, in one place.

use core::fmt;

use arrayvec::ArrayVec;

use super::ddp;
use super::rdmap::{READ_REQUEST_LEN, ReadRequest};

/// Defines an enum of error codes: name, value on the wire, words.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $code:literal, $words:literal;)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("Code ", stringify!($code), ": ", $words, ".")] $variant = $code,)+
        }

        impl $name {
            const fn from_octet(octet: u8) -> Option<Self> {
                match octet {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            const fn words(self) -> &'static str {
                match self {
                    $(Self::$variant => $words,)+
                }
            }

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant,)+];
        }
    };
}

codes! {
    /// RDMA layer, Remote Protection Error.
    RemoteProtection {
        InvalidStag = 0x00, "invalid STag";
        BaseOrBounds = 0x01, "base or bounds violation";
        AccessRights = 0x02, "access rights violation";
        NotAssociated = 0x03, "STag not associated with the RDMAP Stream";
        OffsetWrap = 0x04, "TO wrap";
        CannotInvalidate = 0x09, "STag cannot be invalidated";
        Unspecified = 0xff, "unspecified error";
    }
}

codes! {
    /// RDMA layer, Remote Operation Error.
    RemoteOperation {
        InvalidVersion = 0x05, "invalid RDMAP version";
        UnexpectedOpcode = 0x06, "unexpected opcode";
        StreamCatastrophic = 0x07, "catastrophic error, localized to the RDMAP Stream";
        GlobalCatastrophic = 0x08, "catastrophic error, global";
        CannotInvalidate = 0x09, "STag cannot be invalidated";
        Unspecified = 0xff, "unspecified error";
    }
}

codes! {
    /// DDP layer, Tagged Buffer Error.
    TaggedBuffer {
        InvalidStag = 0x00, "invalid STag";
        BaseOrBounds = 0x01, "base or bounds violation";
        NotAssociated = 0x02, "STag not associated with the DDP Stream";
        OffsetWrap = 0x03, "TO wrap";
        InvalidVersion = 0x04, "invalid DDP version";
    }
}

codes! {
    /// DDP layer, Untagged Buffer Error.
    UntaggedBuffer {
        InvalidQueue = 0x01, "invalid queue number";
        NoBuffer = 0x02, "invalid MSN, no buffer available";
        MsnRange = 0x03, "invalid MSN, out of range";
        InvalidOffset = 0x04, "invalid MO";
        MessageTooLong = 0x05, "message too long for the available buffer";
        InvalidVersion = 0x06, "invalid DDP version";
    }
}

codes! {
    /// LLP layer, MPA Error.
    Mpa {
        Closed = 0x01, "TCP connection closed, terminated or lost";
        Crc = 0x02, "MPA CRC error";
        MarkerMismatch = 0x03, "MPA marker and ULPDU length disagree";
        InvalidStartup = 0x04, "invalid MPA Request or Reply Frame";
        LocalCatastrophic = 0x05, "local catastrophic error";
        InsufficientIrd = 0x06, "insufficient IRD resources";
        NoMatchingRtr = 0x07, "no matching RTR option";
    }
}

/// What a Terminate says went wrong: layer, error type and error code together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminateCode {
    /// RDMA layer, Local Catastrophic Error; it has no code.
    LocalCatastrophic,
    /// RDMA layer, Remote Protection Error.
    RemoteProtection(RemoteProtection),
    /// RDMA layer, Remote Operation Error.
    RemoteOperation(RemoteOperation),
    /// DDP layer, Local Catastrophic.
    DdpCatastrophic,
    /// DDP layer, Tagged Buffer Error.
    Tagged(TaggedBuffer),
    /// DDP layer, Untagged Buffer Error.
    Untagged(UntaggedBuffer),
    /// LLP layer, MPA Error.
    Mpa(Mpa),
    /// What a peer sent that no RFC defines.
    Undefined(UndefinedCode),
}

/// A layer, error type and error code that no RFC defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndefinedCode {
    layer_and_type: u8,
    code: u8,
}

impl TerminateCode {
    /// The first two octets of the Terminate header.
    const fn octets(self) -> [u8; 2] {
        // req 5040-4.8-3
        match self {
            Self::LocalCatastrophic => [0x00, 0],
            Self::RemoteProtection(code) => [0x01, code as u8],
            Self::RemoteOperation(code) => [0x02, code as u8],
            // req 5041-7.2-1
            Self::DdpCatastrophic => [0x10, 0],
            Self::Tagged(code) => [0x11, code as u8],
            Self::Untagged(code) => [0x12, code as u8],
            Self::Mpa(code) => [0x20, code as u8],
            Self::Undefined(UndefinedCode { layer_and_type, code }) => [layer_and_type, code],
        }
    }

    /// What the first two octets mean, if an RFC defines it.
    fn defined(layer_and_type: u8, code: u8) -> Option<Self> {
        match layer_and_type {
            0x00 => Some(Self::LocalCatastrophic),
            0x01 => RemoteProtection::from_octet(code).map(Self::RemoteProtection),
            0x02 => RemoteOperation::from_octet(code).map(Self::RemoteOperation),
            0x10 if code == 0 => Some(Self::DdpCatastrophic),
            0x11 => TaggedBuffer::from_octet(code).map(Self::Tagged),
            0x12 => UntaggedBuffer::from_octet(code).map(Self::Untagged),
            0x20 => Mpa::from_octet(code).map(Self::Mpa),
            _ => None,
        }
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LocalCatastrophic => f.write_str("RDMAP local catastrophic error"),
            Self::RemoteProtection(code) => write!(f, "RDMAP remote protection error: {}", code.words()),
            Self::RemoteOperation(code) => write!(f, "RDMAP remote operation error: {}", code.words()),
            Self::DdpCatastrophic => f.write_str("DDP local catastrophic error"),
            Self::Tagged(code) => write!(f, "DDP tagged buffer error: {}", code.words()),
            Self::Untagged(code) => write!(f, "DDP untagged buffer error: {}", code.words()),
            Self::Mpa(code) => write!(f, "LLP error: {}", code.words()),
            Self::Undefined(UndefinedCode { layer_and_type, code }) => write!(
                f,
                "undefined error: layer {}, type {}, code {code:#04x}",
                layer_and_type >> 4,
                layer_and_type & 0x0f
            ),
        }
    }
}

/// The header of the DDP Segment that caused a Terminate, octet by octet.
///
/// Not parsed, because its version may be what was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminatedHeader(ArrayVec<u8, { ddp::HEADER_LEN_MAX }>);

impl TerminatedHeader {
    /// Takes the header at the start of a DDP Segment; none if the segment is shorter than it.
    pub fn of(segment: &[u8]) -> Option<Self> {
        let len = ddp::header_len(*segment.first()?);
        let mut octets = ArrayVec::new();
        octets.try_extend_from_slice(segment.get(..len)?).ok()?;
        Some(Self(octets))
    }

    /// The header.
    pub fn octets(&self) -> &[u8] {
        &self.0
    }
}

/// What a Terminate tells about the segment that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// DDP Segment Length.
    pub segment_len: u16,
    /// The segment's DDP header.
    pub header: TerminatedHeader,
    /// What the segment asked for, when it is a Read Request.
    pub read_request: Option<ReadRequest>,
}

/// Octets of the longest Terminate header.
pub const TERMINATE_LEN_MAX: usize = CONTROL_LEN + SEGMENT_LEN_LEN + ddp::HEADER_LEN_MAX + READ_REQUEST_LEN;

/// The Terminate header, which is the whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminate {
    /// What went wrong.
    pub code: TerminateCode,
    /// The segment that caused it, if there is one to show (RFC 5040 figure 10).
    pub cause: Option<Cause>,
}

impl Terminate {
    /// Reads a Terminate; none if it is too short to say anything.
    ///
    /// A `Cause` that is cut short or makes no sense is left out: it only serves diagnosis.
    ///
    /// siw on little-endian machines swaps layer and error type and mirrors the M, D and R
    /// bits. Both are undone here, and nowhere else, when the octets can't be meant otherwise.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let &[layer_and_type, code, header_control, _] = octets.first_chunk::<CONTROL_LEN>()?;
        // req 5040-4.8-6: the reserved bits only tell siw's layout from the RFC's.
        let mirrored = header_control & bits::ALL == 0 && header_control & bits::ALL_MIRRORED != 0;
        let has = |bit: u8| header_control & if mirrored { bit.reverse_bits() } else { bit } != 0;

        let swapped = layer_and_type.rotate_left(4);
        let undefined = TerminateCode::Undefined(UndefinedCode { layer_and_type, code });
        let (first, second) = if mirrored { (swapped, layer_and_type) } else { (layer_and_type, swapped) };
        let code = TerminateCode::defined(first, code)
            .or_else(|| TerminateCode::defined(second, code))
            .unwrap_or(undefined);
        let cause = Cause::parse(&octets[CONTROL_LEN..], has(bits::D), has(bits::R));
        Some(Self { code, cause })
    }

    /// The header's octets.
    pub fn emit(&self) -> ArrayVec<u8, TERMINATE_LEN_MAX> {
        let mut out = ArrayVec::new();
        // req 5040-4.8-1
        // req 5040-4.8-2
        out.extend(self.code.octets());
        let Some(cause) = &self.cause else {
            out.extend([0, 0]);
            return out;
        };
        // req 5040-4.8-7
        // req 5040-4.8-8
        // req 5040-4.8-9
        // req 5040-4.8-10
        let r = if cause.read_request.is_some() { bits::R } else { 0 };
        out.extend([bits::M | bits::D | r, 0]);
        out.extend(cause.segment_len.to_be_bytes());
        out.extend(cause.header.octets().iter().copied());
        if let Some(request) = &cause.read_request {
            out.extend(request.emit());
        }
        out
    }
}

impl Cause {
    /// Reads what follows the Terminate Control field.
    fn parse(octets: &[u8], d: bool, r: bool) -> Option<Self> {
        if !d {
            return None;
        }
        let (&segment_len, rest) = octets.split_first_chunk::<SEGMENT_LEN_LEN>()?;
        let header = TerminatedHeader::of(rest)?;
        let read_request = if r { rest[header.0.len()..].first_chunk() } else { None };
        Some(Self {
            segment_len: u16::from_be_bytes(segment_len),
            header,
            read_request: read_request.map(ReadRequest::parse),
        })
    }
}

const CONTROL_LEN: usize = 4;
const SEGMENT_LEN_LEN: usize = 2;

/// The header control bits, in their octet.
mod bits {
    pub(super) const M: u8 = 0x80;
    pub(super) const D: u8 = 0x40;
    pub(super) const R: u8 = 0x20;
    pub(super) const ALL: u8 = M | D | R;
    pub(super) const ALL_MIRRORED: u8 = ALL.reverse_bits();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::Stag;

    fn all_codes() -> Vec<TerminateCode> {
        let mut codes = vec![TerminateCode::LocalCatastrophic, TerminateCode::DdpCatastrophic];
        codes.extend(RemoteProtection::ALL.iter().map(|&code| TerminateCode::RemoteProtection(code)));
        codes.extend(RemoteOperation::ALL.iter().map(|&code| TerminateCode::RemoteOperation(code)));
        codes.extend(TaggedBuffer::ALL.iter().map(|&code| TerminateCode::Tagged(code)));
        codes.extend(UntaggedBuffer::ALL.iter().map(|&code| TerminateCode::Untagged(code)));
        codes.extend(Mpa::ALL.iter().map(|&code| TerminateCode::Mpa(code)));
        codes
    }

    fn tagged_cause() -> Cause {
        let header = [0x81, 0x40, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0x10, 0];
        Cause { segment_len: 1442, header: TerminatedHeader::of(&header).unwrap(), read_request: None }
    }

    fn read_cause() -> Cause {
        let header = [0x41, 0x41, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        let read_request = ReadRequest {
            sink_stag: Stag(1),
            sink_offset: 2,
            len: 3,
            source_stag: Stag(4),
            source_offset: 5,
        };
        Cause {
            segment_len: 46,
            header: TerminatedHeader::of(&header).unwrap(),
            read_request: Some(read_request),
        }
    }

    // proves 5040-4.8-3, 5041-7.2-1
    #[test]
    fn every_code_is_emitted_parsed_and_named() {
        let mut names = std::collections::BTreeSet::new();
        for code in all_codes() {
            for cause in [None, Some(tagged_cause()), Some(read_cause())] {
                let terminate = Terminate { code, cause };
                assert_eq!(Terminate::parse(&terminate.emit()), Some(terminate));
            }
            assert!(names.insert(code.to_string()), "{code} names two codes");
        }
        let code = TerminateCode::Untagged(UntaggedBuffer::MsnRange);
        assert_eq!(code.to_string(), "DDP untagged buffer error: invalid MSN, out of range");
    }

    // proves 5040-4.8-1, 5040-4.8-2, 5040-4.8-6, 5040-4.8-7, 5040-4.8-8, 5040-4.8-9, 5040-4.8-10
    #[test]
    fn a_refused_read_request_is_shown_with_all_three_headers() {
        let code = TerminateCode::RemoteProtection(RemoteProtection::AccessRights);
        let octets = Terminate { code, cause: Some(read_cause()) }.emit();
        assert_eq!(octets.len(), TERMINATE_LEN_MAX);
        assert_eq!(octets[..6], [0x01, 0x02, 0xe0, 0x00, 0x00, 0x2e]);
        assert_eq!(octets[6..24], *read_cause().header.octets());
        assert_eq!(octets[24..28], [0, 0, 0, 1]);
    }

    #[test]
    fn a_terminate_without_a_cause_is_four_octets() {
        let octets = Terminate { code: TerminateCode::Mpa(Mpa::Crc), cause: None }.emit();
        assert_eq!(octets[..], [0x20, 0x02, 0, 0]);
    }

    #[test]
    fn truncation_leaves_the_code() {
        let terminate =
            Terminate { code: TerminateCode::Tagged(TaggedBuffer::BaseOrBounds), cause: Some(read_cause()) };
        let octets = terminate.emit();
        for len in 0..4 {
            assert_eq!(Terminate::parse(&octets[..len]), None);
        }
        for len in 4..octets.len() {
            let parsed = Terminate::parse(&octets[..len]).unwrap();
            assert_eq!(parsed.code, terminate.code);
            assert_ne!(parsed.cause, terminate.cause);
        }
    }

    /// siw on a little-endian machine, as captured: an RDMA Write out of bounds.
    #[test]
    fn siw_terminate_for_a_tagged_segment() {
        let octets =
            [0x11, 0x01, 0x03, 0x00, 0x05, 0x94, 0x81, 0x40, 9, 8, 7, 6, 0, 0, 0, 0, 0, 0, 0x05, 0x94];
        let terminate = Terminate::parse(&octets).unwrap();
        assert_eq!(terminate.code, TerminateCode::Tagged(TaggedBuffer::BaseOrBounds));
        let cause = terminate.cause.unwrap();
        assert_eq!(cause.segment_len, 1428);
        assert_eq!(cause.header.octets(), &octets[6..]);
    }

    /// siw on a little-endian machine, as captured: a Send longer than its receive buffer.
    #[test]
    fn siw_terminate_for_an_untagged_segment() {
        let octets =
            [0x21, 0x02, 0x03, 0x00, 0x05, 0x90, 0x01, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let terminate = Terminate::parse(&octets).unwrap();
        assert_eq!(terminate.code, TerminateCode::Untagged(UntaggedBuffer::NoBuffer));
        assert_eq!(terminate.cause.unwrap().segment_len, 1424);
    }

    /// Read as the RFC has it, this would be an MPA error about IRD.
    #[test]
    fn siw_terminate_for_an_opcode_is_told_by_its_mirrored_bits() {
        let mut octets = vec![0x20, 0x06, 0x03, 0x00, 0x00, 0x12, 0x41, 0x4f];
        octets.resize(24, 0);
        let terminate = Terminate::parse(&octets).unwrap();
        assert_eq!(terminate.code, TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode));
    }

    #[test]
    fn siw_terminate_without_headers_is_swapped_only_if_otherwise_undefined() {
        let crc = Terminate::parse(&[0x02, 0x02, 0, 0]).unwrap();
        assert_eq!(crc.code, TerminateCode::Mpa(Mpa::Crc));
        let version = Terminate::parse(&[0x02, 0x05, 0, 0]).unwrap();
        assert_eq!(version.code, TerminateCode::RemoteOperation(RemoteOperation::InvalidVersion));
    }

    #[test]
    fn an_undefined_code_is_reported_as_it_came() {
        let terminate = Terminate::parse(&[0x35, 0x77, 0, 0]).unwrap();
        assert_eq!(terminate.code.to_string(), "undefined error: layer 3, type 5, code 0x77");
        assert_eq!(terminate.emit()[..], [0x35, 0x77, 0, 0]);
    }

    proptest! {
        #[test]
        fn any_octets_parse_or_fail_and_are_stable(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Some(terminate) = Terminate::parse(&octets) {
                let _ = terminate.code.to_string();
                prop_assert_eq!(Terminate::parse(&terminate.emit()), Some(terminate));
            }
        }
    }
}
