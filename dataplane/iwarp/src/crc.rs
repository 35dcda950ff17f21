//! The MPA CRC: CRC32C (RFC 5044 section 4.4).
//!
//! The `crc32c` and `crc-fast` crates compute it, each where it is the faster one. For FPDUs of a
//! frame's size neither is fast on a CPU without AVX-512, since most of such a length is one chain of
//! dependent instructions there: [`lanes`] runs three chains side by side, in half the time.

/// Up to this length one chain is over before anything else has begun.
const TINY_MAX: usize = 64;

/// Up to this length `crc-fast` is faster on every CPU.
const SHORT_MAX: usize = 256;

/// The CRC32C of `octets`. On the wire its least significant octet comes first.
pub fn crc32c(octets: &[u8]) -> u32 {
    // req 5044-4.4-10
    if octets.len() > TINY_MAX && (octets.len() <= SHORT_MAX || has_wide_registers()) {
        with_crc_fast(octets)
    } else {
        lanes::crc32c(octets)
    }
}

/// A function of its own, for its registers and stack would burden the other way too.
#[inline(never)]
fn with_crc_fast(octets: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(octets)
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
        self.0 = ::crc32c::crc32c_append(self.0, octets);
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

/// CRC32C in three lanes, with the CPU's own instruction.
///
/// A block is cut in three parts of equal length. The CRC registers of the first two are moved past
/// the octets that follow them (multiplied by x to the power of their bits, modulo the polynomial)
/// and added to that of the third:
///
/// ```text
/// |<--- LEN --->|<--- LEN --->|<--- LEN --->|
///     lane 0        lane 1        lane 2
/// ```
#[cfg(all(target_arch = "x86_64", target_feature = "sse4.2", target_feature = "pclmulqdq"))]
mod lanes {
    use safe_arch::{crc32_u8, crc32_u32, crc32_u64, m128i, mul_i64_carryless_m128i};

    /// The polynomial, least significant bit first, without its highest term.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    /// Octets of each lane that one round of the loop takes.
    const STRIDE: usize = 32;

    pub(super) fn crc32c(octets: &[u8]) -> u32 {
        let mut crc = u64::from(u32::MAX);
        // Three of these are all but four octets of an FPDU in a full segment at an MTU of 1500.
        let rest = blocks::<480>(&mut crc, octets);
        let rest = blocks::<64>(&mut crc, rest);
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            crc = crc32_u64(crc, u64::from_le_bytes(*word));
        }
        let mut crc = low(crc);
        let (words, rest) = rest.as_chunks::<4>();
        for word in words {
            crc = crc32_u32(crc, u32::from_le_bytes(*word));
        }
        !rest.iter().fold(crc, |crc, octet| crc32_u8(crc, *octet))
    }

    /// Takes blocks of three times `LEN` octets and returns the rest.
    fn blocks<'a, const LEN: usize>(crc: &mut u64, mut octets: &'a [u8]) -> &'a [u8] {
        const { assert!(LEN.is_multiple_of(STRIDE)) };
        while octets.len() >= 3 * LEN {
            let (first, others) = octets.split_at(LEN);
            let (second, others) = others.split_at(LEN);
            let (third, rest) = others.split_at(LEN);
            let mut lanes = [*crc, 0, 0];
            let strides = first.as_chunks::<STRIDE>().0.iter().zip(second.as_chunks::<STRIDE>().0);
            for ((first, second), third) in strides.zip(third.as_chunks::<STRIDE>().0) {
                for at in (0..STRIDE).step_by(8) {
                    lanes[0] = crc32_u64(lanes[0], word(first, at));
                    lanes[1] = crc32_u64(lanes[1], word(second, at));
                    lanes[2] = crc32_u64(lanes[2], word(third, at));
                }
            }
            let moved =
                multiply(lanes[0], const { shift(2 * LEN) }) ^ multiply(lanes[1], const { shift(LEN) });
            // The instruction reduces the products modulo the polynomial.
            *crc = crc32_u64(0, moved) ^ lanes[2];
            octets = rest;
        }
        octets
    }

    #[inline(always)]
    fn word(stride: &[u8; STRIDE], at: usize) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = stride[at..] else { unreachable!("a stride is whole words") };
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// The carry-less product.
    fn multiply(register: u64, factor: u64) -> u64 {
        let product: [u64; 2] =
            mul_i64_carryless_m128i::<0>(m128i::from([register, 0]), m128i::from([factor, 0])).into();
        product[0]
    }

    /// What moves a register past `octets`: x^(8 octets - 33). Of the 33, the reducing instruction
    /// multiplies by x^32, and the product of two values in this bit order stands one bit too low.
    const fn shift(octets: usize) -> u64 {
        let mut power = 8 * octets - 33;
        // x^0: the highest coefficient is the least significant bit.
        let mut value: u32 = 1 << 31;
        while power > 0 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            power -= 1;
        }
        value as u64
    }

    fn low(crc: u64) -> u32 {
        u32::try_from(crc).expect("the instruction leaves 32 bits")
    }
}

/// For CPUs of other kinds, or a build that does not assume the instructions.
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse4.2", target_feature = "pclmulqdq")))]
mod lanes {
    pub(super) use ::crc32c::crc32c;
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
