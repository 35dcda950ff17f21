//! The Atomic Request and Atomic Response headers (RFC 7306 section 5.2); each is a whole message.

use super::array;
use crate::atomic::AtomicOperation;
use crate::types::Stag;

/// Octets of an Atomic Request header.
pub const ATOMIC_REQUEST_LEN: usize = 52;

/// Octets of an Atomic Response header.
pub const ATOMIC_RESPONSE_LEN: usize = 12;

/// The Atomic Operation Request header.
///
/// ```text
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                      Reserved (Not Used)              |AOpCode|
/// |                       Request Identifier                      |
/// |                          Remote STag                          |
/// |                 Remote Tagged Offset (64 bits)                |
/// |                   Add or Swap Data (64 bits)                  |
/// |                   Add or Swap Mask (64 bits)                  |
/// |                     Compare Data (64 bits)                    |
/// |                     Compare Mask (64 bits)                    |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// The requester's number for it; its Response carries it.
    pub request_id: u32,
    /// The responder's buffer.
    pub stag: Stag,
    /// Where in it the word is.
    pub offset: u64,
    /// What to do with the word.
    pub operation: AtomicOperation,
}

/// No Atomic Operation has this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOperation(pub u8);

impl AtomicRequest {
    /// Reads the header.
    ///
    /// # Errors
    /// When the Atomic Operation Code is not one of figure 5.
    pub fn parse(octets: &[u8; ATOMIC_REQUEST_LEN]) -> Result<Self, UnknownOperation> {
        let word = |at| u64::from_be_bytes(array(octets, at));
        let [.., code] = array::<4>(octets, field::CODE);
        // req 7306-5.2.1-1
        let operation = match code & code::BITS {
            code::FETCH_ADD => AtomicOperation::FetchAdd { add: word(field::DATA), mask: word(field::MASK) },
            code::CMP_SWAP => AtomicOperation::CmpSwap {
                swap: word(field::DATA),
                swap_mask: word(field::MASK),
                compare: word(field::COMPARE),
                compare_mask: word(field::COMPARE_MASK),
            },
            code => return Err(UnknownOperation(code)),
        };
        Ok(Self {
            request_id: u32::from_be_bytes(array(octets, field::REQUEST_ID)),
            stag: Stag(u32::from_be_bytes(array(octets, field::STAG))),
            offset: word(field::OFFSET),
            operation,
        })
    }

    /// The header's octets.
    pub fn emit(&self) -> [u8; ATOMIC_REQUEST_LEN] {
        let (code, data, mask, compare, compare_mask) = match self.operation {
            // What a FetchAdd has no use for has values of its own.
            AtomicOperation::FetchAdd { add, mask } => (code::FETCH_ADD, add, mask, 0, u64::MAX),
            AtomicOperation::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                (code::CMP_SWAP, swap, swap_mask, compare, compare_mask)
            }
        };
        let mut out = [0; ATOMIC_REQUEST_LEN];
        out[field::CODE..field::REQUEST_ID].copy_from_slice(&u32::from(code).to_be_bytes());
        out[field::REQUEST_ID..field::STAG].copy_from_slice(&self.request_id.to_be_bytes());
        out[field::STAG..field::OFFSET].copy_from_slice(&self.stag.0.to_be_bytes());
        out[field::OFFSET..field::DATA].copy_from_slice(&self.offset.to_be_bytes());
        out[field::DATA..field::MASK].copy_from_slice(&data.to_be_bytes());
        out[field::MASK..field::COMPARE].copy_from_slice(&mask.to_be_bytes());
        out[field::COMPARE..field::COMPARE_MASK].copy_from_slice(&compare.to_be_bytes());
        out[field::COMPARE_MASK..].copy_from_slice(&compare_mask.to_be_bytes());
        out
    }
}

/// The Atomic Operation Response header.
///
/// ```text
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// |                  Original Request Identifier                  |
/// |              Original Remote Data Value (64 bits)             |
/// +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// The Request's identifier.
    pub request_id: u32,
    /// The word's value before the operation.
    pub original: u64,
}

impl AtomicResponse {
    /// Reads the header; any octets are one.
    pub fn parse(octets: &[u8; ATOMIC_RESPONSE_LEN]) -> Self {
        Self {
            request_id: u32::from_be_bytes(array(octets, field::ORIGINAL_ID)),
            original: u64::from_be_bytes(array(octets, field::ORIGINAL)),
        }
    }

    /// The header's octets.
    pub fn emit(&self) -> [u8; ATOMIC_RESPONSE_LEN] {
        let mut out = [0; ATOMIC_RESPONSE_LEN];
        out[field::ORIGINAL_ID..field::ORIGINAL].copy_from_slice(&self.request_id.to_be_bytes());
        out[field::ORIGINAL..].copy_from_slice(&self.original.to_be_bytes());
        out
    }
}

/// Atomic Operation Codes.
mod code {
    /// The bits of its octet that hold the code.
    pub(super) const BITS: u8 = 0x0f;
    pub(super) const FETCH_ADD: u8 = 0;
    pub(super) const CMP_SWAP: u8 = 2;
}

/// Where the fields start.
mod field {
    pub(super) const CODE: usize = 0;
    pub(super) const REQUEST_ID: usize = 4;
    pub(super) const STAG: usize = 8;
    pub(super) const OFFSET: usize = 12;
    pub(super) const DATA: usize = 20;
    pub(super) const MASK: usize = 28;
    pub(super) const COMPARE: usize = 36;
    pub(super) const COMPARE_MASK: usize = 44;
    pub(super) const ORIGINAL_ID: usize = 0;
    pub(super) const ORIGINAL: usize = 4;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CMP_SWAP: AtomicRequest = AtomicRequest {
        request_id: 0x0102_0304,
        stag: Stag(0x1112_1314),
        offset: 0x2122_2324_2526_2728,
        operation: AtomicOperation::CmpSwap {
            swap: 0x3132_3334_3536_3738,
            swap_mask: 0x4142_4344_4546_4748,
            compare: 0x5152_5354_5556_5758,
            compare_mask: 0x6162_6364_6566_6768,
        },
    };
    const CMP_SWAP_OCTETS: [u8; ATOMIC_REQUEST_LEN] = [
        0, 0, 0, 2, 0x01, 0x02, 0x03, 0x04, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27,
        0x28, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
        0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
    ];

    // proves 7306-5.2.1-1
    #[test]
    fn a_cmp_swap_has_the_layout_of_figure_4() {
        assert_eq!(CMP_SWAP.emit(), CMP_SWAP_OCTETS);
        assert_eq!(AtomicRequest::parse(&CMP_SWAP_OCTETS), Ok(CMP_SWAP));
    }

    // proves 7306-5.2.1-1
    #[test]
    fn a_fetch_add_leaves_the_compare_fields_as_figure_5_says() {
        let operation = AtomicOperation::FetchAdd { add: 5, mask: 0x80 };
        let octets = AtomicRequest { operation, ..CMP_SWAP }.emit();
        assert_eq!(octets[..4], [0; 4]);
        assert_eq!(octets[20..36], [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!(octets[36..44], [0; 8]);
        assert_eq!(octets[44..], [0xff; 8]);
    }

    #[test]
    fn a_response_has_the_layout_of_figure_6() {
        let response = AtomicResponse { request_id: 0x0102_0304, original: 0x1112_1314_1516_1718 };
        let octets = [1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
        assert_eq!(response.emit(), octets);
        assert_eq!(AtomicResponse::parse(&octets), response);
    }

    #[test]
    fn the_reserved_bits_are_ignored_and_other_codes_are_refused() {
        let mut octets = CMP_SWAP_OCTETS;
        octets[..3].fill(0xff);
        for code in 0..=u8::MAX {
            octets[3] = code;
            let parsed = AtomicRequest::parse(&octets);
            match code & 0x0f {
                0 => assert!(matches!(parsed.unwrap().operation, AtomicOperation::FetchAdd { .. })),
                2 => assert_eq!(parsed, Ok(CMP_SWAP)),
                unknown => assert_eq!(parsed, Err(UnknownOperation(unknown))),
            }
        }
    }

    fn any_operation() -> impl Strategy<Value = AtomicOperation> {
        prop_oneof![
            any::<(u64, u64)>().prop_map(|(add, mask)| AtomicOperation::FetchAdd { add, mask }),
            any::<(u64, u64, u64, u64)>().prop_map(|(swap, swap_mask, compare, compare_mask)| {
                AtomicOperation::CmpSwap { swap, swap_mask, compare, compare_mask }
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_emitted_parses_back(
            request_id: u32, stag: u32, offset: u64, operation in any_operation(), original: u64,
        ) {
            let request = AtomicRequest { request_id, stag: Stag(stag), offset, operation };
            prop_assert_eq!(AtomicRequest::parse(&request.emit()), Ok(request));
            let response = AtomicResponse { request_id, original };
            prop_assert_eq!(AtomicResponse::parse(&response.emit()), response);
        }

        #[test]
        fn any_octets_parse_or_fail_and_are_emitted_again(head: [u8; 32], tail: [u8; 20]) {
            let mut octets = [0; ATOMIC_REQUEST_LEN];
            octets[..32].copy_from_slice(&head);
            octets[32..].copy_from_slice(&tail);
            if let Ok(request) = AtomicRequest::parse(&octets) {
                octets[..3].fill(0);
                octets[3] &= 0x0f;
                if octets[3] == 0 {
                    octets[36..44].fill(0);
                    octets[44..].fill(0xff);
                }
                prop_assert_eq!(request.emit(), octets);
            }
            let response = octets.first_chunk().unwrap();
            prop_assert_eq!(&AtomicResponse::parse(response).emit(), response);
        }
    }
}
