//! RDMAP's Control field and Read Request header (RFC 5040 section 4, RFC 7306 section 4).
//!
//! ```text
//!  0 1 2 3 4 5 6 7
//! +-+-+-+-+-+-+-+-+
//! | RV|Rsv| Opcode|      RDMAP Control: the first octet that DDP reserves for its ULP
//! +-+-+-+-+-+-+-+-+
//! ```
//!
//! The Terminate header is in `terminate`.

use super::{Version, array};
use crate::types::Stag;

/// What an RDMA Message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate Data.
    ImmediateData = 8,
    /// Immediate Data with Solicited Event.
    ImmediateDataSolicited = 9,
    /// Atomic Request.
    AtomicRequest = 10,
    /// Atomic Response.
    AtomicResponse = 11,
}

/// Why an RDMAP Control octet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// The RDMAP version is not the Stream's.
    Version,
    /// No message has this opcode.
    Opcode,
}

/// The untagged queue of Sends and Immediate Data.
pub const QUEUE_SEND: u32 = 0;
/// The untagged queue of Read and Atomic Requests.
pub const QUEUE_READ_REQUEST: u32 = 1;
/// The untagged queue of the Terminate.
pub const QUEUE_TERMINATE: u32 = 2;
/// The untagged queue of Atomic Responses.
pub const QUEUE_ATOMIC_RESPONSE: u32 = 3;

impl Opcode {
    /// Reads an RDMAP Control octet.
    ///
    /// # Errors
    /// The version is looked at first.
    pub const fn parse_control(octet: u8, version: Version) -> Result<Self, ControlError> {
        if octet >> 6 != version.bits() {
            return Err(ControlError::Version);
        }
        // req 5040-4.1-9: the two reserved bits are not looked at.
        Ok(match octet & 0x0f {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            8 => Self::ImmediateData,
            9 => Self::ImmediateDataSolicited,
            10 => Self::AtomicRequest,
            11 => Self::AtomicResponse,
            _ => return Err(ControlError::Opcode),
        })
    }

    /// The RDMAP Control octet of this message.
    pub const fn control(self, version: Version) -> u8 {
        // req 5040-4.1-2
        // req 5040-4.1-8
        // req 7306-4.1-1
        version.bits() << 6 | self as u8
    }

    /// The untagged queue that this message uses; none when it is tagged.
    pub const fn queue(self) -> Option<u32> {
        // req 5040-4.1-5
        // req 5040-4.1-7
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::Send
            | Self::SendInvalidate
            | Self::SendSolicited
            | Self::SendSolicitedInvalidate
            | Self::ImmediateData
            | Self::ImmediateDataSolicited => Some(QUEUE_SEND),
            // req 7306-5.2-1
            Self::ReadRequest | Self::AtomicRequest => Some(QUEUE_READ_REQUEST),
            Self::Terminate => Some(QUEUE_TERMINATE),
            // req 7306-5.2-2
            Self::AtomicResponse => Some(QUEUE_ATOMIC_RESPONSE),
        }
    }
}

/// Octets of a Read Request header.
pub const READ_REQUEST_LEN: usize = 28;

/// The RDMA Read Request header, which is the whole message.
///
/// ```text
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                     Data Sink STag (SinkSTag)                 |
/// |                Data Sink Tagged Offset (SinkTO, 64 bits)      |
/// |                 RDMA Read Message Size (RDMARDSZ)             |
/// |                    Data Source STag (SrcSTag)                 |
/// |               Data Source Tagged Offset (SrcTO, 64 bits)      |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The requester's buffer.
    pub sink_stag: Stag,
    /// Where in it the first octet goes.
    pub sink_offset: u64,
    /// Octets to read.
    pub len: u32,
    /// The responder's buffer.
    pub source_stag: Stag,
    /// Where in it the first octet is.
    pub source_offset: u64,
}

impl ReadRequest {
    /// Reads the header; any octets are one.
    pub fn parse(octets: &[u8; READ_REQUEST_LEN]) -> Self {
        Self {
            sink_stag: Stag(u32::from_be_bytes(array(octets, field::SINK_STAG))),
            sink_offset: u64::from_be_bytes(array(octets, field::SINK_OFFSET)),
            len: u32::from_be_bytes(array(octets, field::LEN)),
            source_stag: Stag(u32::from_be_bytes(array(octets, field::SOURCE_STAG))),
            source_offset: u64::from_be_bytes(array(octets, field::SOURCE_OFFSET)),
        }
    }

    /// The header's octets.
    pub fn emit(&self) -> [u8; READ_REQUEST_LEN] {
        // req 5040-4.4-1
        let mut out = [0; READ_REQUEST_LEN];
        out[field::SINK_STAG..field::SINK_OFFSET].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        out[field::SINK_OFFSET..field::LEN].copy_from_slice(&self.sink_offset.to_be_bytes());
        out[field::LEN..field::SOURCE_STAG].copy_from_slice(&self.len.to_be_bytes());
        out[field::SOURCE_STAG..field::SOURCE_OFFSET].copy_from_slice(&self.source_stag.0.to_be_bytes());
        out[field::SOURCE_OFFSET..].copy_from_slice(&self.source_offset.to_be_bytes());
        out
    }
}

/// Where the Read Request's fields start.
mod field {
    pub(super) const SINK_STAG: usize = 0;
    pub(super) const SINK_OFFSET: usize = 4;
    pub(super) const LEN: usize = 12;
    pub(super) const SOURCE_STAG: usize = 16;
    pub(super) const SOURCE_OFFSET: usize = 20;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // proves 5040-4.1-2, 5040-4.1-8, 5040-4.1-9, 7306-4.1-1
    #[test]
    fn every_control_octet_is_an_opcode_or_refused() {
        for octet in 0..=u8::MAX {
            match Opcode::parse_control(octet, Version::Ietf) {
                Ok(opcode) => assert_eq!(opcode.control(Version::Ietf), octet & !0x30),
                Err(ControlError::Version) => assert_ne!(octet >> 6, 1),
                Err(ControlError::Opcode) => assert!(octet & 0x0f >= 12),
            }
        }
        assert_eq!(Opcode::parse_control(0x43, Version::Ietf), Ok(Opcode::Send));
        assert_eq!(Opcode::parse_control(0x03, Version::Rdmac), Ok(Opcode::Send));
        assert_eq!(Opcode::parse_control(0x43, Version::Rdmac), Err(ControlError::Version));
    }

    // proves 5040-4.1-5, 5040-4.1-7, 7306-5.2-1, 7306-5.2-2
    #[test]
    fn messages_use_the_queues_of_the_rfc() {
        assert_eq!(Opcode::Write.queue(), None);
        assert_eq!(Opcode::ReadResponse.queue(), None);
        assert_eq!(Opcode::SendSolicitedInvalidate.queue(), Some(0));
        assert_eq!(Opcode::ReadRequest.queue(), Some(1));
        assert_eq!(Opcode::Terminate.queue(), Some(2));
        assert_eq!(Opcode::AtomicResponse.queue(), Some(3));
    }

    // proves 5040-4.4-1
    #[test]
    fn read_request_has_the_layout_of_figure_6() {
        let request = ReadRequest {
            sink_stag: Stag(0x0102_0304),
            sink_offset: 0x1112_1314_1516_1718,
            len: 0x2122_2324,
            source_stag: Stag(0x3132_3334),
            source_offset: 0x4142_4344_4546_4748,
        };
        let octets = [
            0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
            0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
        ];
        assert_eq!(request.emit(), octets);
        assert_eq!(ReadRequest::parse(&octets), request);
    }

    /// What a Linux siw's rping asks for.
    #[test]
    fn a_real_read_request_parses() {
        let octets = [
            0xf2, 0xea, 0x62, 0x00, 0x00, 0x00, 0x56, 0x1b, 0x48, 0xd0, 0x25, 0x50, 0, 0, 0, 0x40, 0xfb,
            0xd8, 0x4f, 0x00, 0x00, 0x00, 0x56, 0x0c, 0xf7, 0x3f, 0x03, 0x70,
        ];
        let request = ReadRequest {
            sink_stag: Stag(0xf2ea_6200),
            sink_offset: 0x561b_48d0_2550,
            len: 64,
            source_stag: Stag(0xfbd8_4f00),
            source_offset: 0x560c_f73f_0370,
        };
        assert_eq!(ReadRequest::parse(&octets), request);
    }

    proptest! {
        #[test]
        fn any_read_request_is_emitted_again(octets: [u8; READ_REQUEST_LEN]) {
            prop_assert_eq!(ReadRequest::parse(&octets).emit(), octets);
        }
    }
}
