//! MPA Request and Reply Frames, as formats: input is a frame up to the enhanced data.

use iwarp::wire::mpa::{ENHANCED_LEN, Enhanced, FRAME_LEN_MAX, FormatError, HEADER_LEN, Header, Kind};

pub(super) fn run(input: &[u8]) {
    let Some((octets, rest)) = input.split_first_chunk::<HEADER_LEN>() else { return };
    header(octets);
    if let Some(data) = rest.first_chunk() {
        enhanced(*data);
    }
}

fn header(octets: &[u8; HEADER_LEN]) {
    let len = u16::from_be_bytes([octets[18], octets[19]]);
    let header = match Header::parse(octets) {
        Ok(header) => header,
        Err(FormatError::Key) => {
            assert!(![Kind::Request, Kind::Reply].iter().any(|kind| octets.starts_with(kind.key())));
            return;
        }
        Err(FormatError::PrivateDataLength(said)) => {
            assert_eq!(said, len);
            assert!(len > 512 || (len < 4 && octets[17] >= 2 && octets[16] & 0x10 != 0));
            return;
        }
    };
    assert_eq!(header.frame_len(), HEADER_LEN + usize::from(len));
    assert!(header.frame_len() <= FRAME_LEN_MAX);
    // All is written as it was, but for what is reserved: four bits, S before revision 2, R in a Request.
    let mut written = *octets;
    written[16] &= 0xf0;
    written[16] &= if octets[17] < 2 { !0x10 } else { !0 };
    written[16] &= if header.kind == Kind::Request { !0x20 } else { !0 };
    assert_eq!(header.emit(), written);
    assert_eq!(Header::parse(&written), Ok(header));
}

fn enhanced(octets: [u8; ENHANCED_LEN]) {
    let data = Enhanced::parse(octets);
    let mut written = octets;
    if data.peer_to_peer.is_none() {
        assert_eq!(octets[0] & 0x80, 0);
        written[0] &= 0x3f;
        written[2] &= 0x3f;
    }
    assert_eq!(data.emit(), written);
    assert_eq!(Enhanced::parse(written), data);
}
