//! RDMAP's Control field and Read Request header: input is one octet for the Stream's version, a
//! Control octet, and a Read Request.

use iwarp::wire::Version;
use iwarp::wire::rdmap::{ControlError, Opcode, ReadRequest};

pub(super) fn run(input: &[u8]) {
    let &[choice, control, ref request @ ..] = input else { return };
    let version = if choice & 1 == 0 { Version::Ietf } else { Version::Rdmac };
    match Opcode::parse_control(control, version) {
        Ok(opcode) => {
            // All is written as it was, but for two reserved bits.
            assert_eq!(opcode.control(version), control & !0x30);
            assert!(opcode.queue().is_none_or(|queue| queue < 4));
        }
        Err(ControlError::Version) => assert_ne!(control >> 6, version as u8),
        Err(ControlError::Opcode) => assert!(control & 0x0f > Opcode::AtomicResponse as u8),
    }
    if let Some(octets) = request.first_chunk() {
        assert_eq!(ReadRequest::parse(octets).emit(), *octets);
    }
}
