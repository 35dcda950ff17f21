//! The MPA CRC: CRC32C (RFC 5044 section 4.4).
//!
//! Two crates compute it. Measured for FPDUs of a frame's size on a CPU without AVX-512,
//! `crc32c` needs two thirds of `crc-fast`'s time; for short FPDUs, and wherever its wide
//! registers exist, `crc-fast` is ahead.

/// Up to this length `crc-fast` is faster on every CPU.
const SHORT_MAX: usize = 256;

/// The CRC32C of `octets`. On the wire its least significant octet comes first.
pub fn crc32c(octets: &[u8]) -> u32 {
    // req 5044-4.4-10
    if octets.len() <= SHORT_MAX || has_wide_registers() {
        crc_fast::crc32_iscsi(octets)
    } else {
        crc32c::crc32c(octets)
    }
}

/// A CRC32C of octets that are not in one place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc(u32);

impl Crc {
    /// The CRC of nothing.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Takes the next octets.
    pub fn update(&mut self, octets: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, octets);
    }

    /// The CRC of all octets so far.
    pub const fn finish(self) -> u32 {
        self.0
    }
}

/// Whether `crc-fast` has its fastest code here; the answer is cached.
#[cfg(target_arch = "x86_64")]
fn has_wide_registers() -> bool {
    std::is_x86_feature_detected!("avx512vl") && std::is_x86_feature_detected!("vpclmulqdq")
}

#[cfg(not(target_arch = "x86_64"))]
const fn has_wide_registers() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // proves 5044-4.4-10
    #[test]
    fn iscsi_examples() {
        // RFC 3720 appendix B.4, as numbers.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    proptest! {
        #[test]
        fn all_ways_agree(octets in proptest::collection::vec(any::<u8>(), 0..2000), cut: prop::sample::Index) {
            let expected = bitwise(&octets);
            prop_assert_eq!(crc32c(&octets), expected);
            prop_assert_eq!(crc_fast::crc32_iscsi(&octets), expected);
            prop_assert_eq!(::crc32c::crc32c(&octets), expected);
            let (front, back) = octets.split_at(cut.index(octets.len() + 1));
            let mut crc = Crc::new();
            crc.update(front);
            crc.update(back);
            prop_assert_eq!(crc.finish(), expected);
        }
    }

    /// CRC32C as its polynomial says.
    fn bitwise(octets: &[u8]) -> u32 {
        !octets.iter().fold(!0, |crc: u32, &octet| {
            (0..8).fold(
                crc ^ u32::from(octet),
                |crc, _| {
                    if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
                },
            )
        })
    }
}
