//! DDP Segment headers: input is one octet for the Stream's version and a segment.

use iwarp::wire::Version;
use iwarp::wire::ddp::{FormatError, HEADER_LEN_MAX, HEADER_LEN_TAGGED, HEADER_LEN_UNTAGGED, Header};

pub(super) fn run(input: &[u8]) {
    let Some((&choice, segment)) = input.split_first() else { return };
    let version = if choice & 1 == 0 { Version::Ietf } else { Version::Rdmac };
    let tagged = segment.first().is_some_and(|control| control & 0x80 != 0);
    let len = if tagged { HEADER_LEN_TAGGED } else { HEADER_LEN_UNTAGGED };
    match Header::parse(segment, version) {
        Ok(header) => {
            assert_eq!(header.len(), len);
            assert_eq!(matches!(header, Header::Tagged { .. }), tagged);
            assert_eq!((header.last(), header.ulp_control()), (segment[0] & 0x40 != 0, segment[1]));
            // All is written as it was, but for four reserved bits.
            let mut written = segment[..len].to_vec();
            written[0] &= !0x3c;
            let mut out = [0xee; HEADER_LEN_MAX];
            assert_eq!(header.emit(&mut out, version), len);
            assert_eq!(out[..len], written);
            assert_eq!(Header::parse(&out[..len], version), Ok(header));
        }
        Err(FormatError::Version { tagged: said }) => {
            assert_eq!(said, tagged);
            assert_ne!(segment[0] & 0x03, version as u8);
        }
        Err(FormatError::Truncated) => assert!(segment.len() < len),
    }
}
