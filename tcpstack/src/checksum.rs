//! The Internet checksum (RFC 1071), in pieces that can be added up.
//!
//! The ones' complement sum does not depend on the byte order but for one swap, so everything is
//! added in the host's order and swapped once, when it is folded. [`sum`] runs over whole payloads:
//! `wide` adds them with AVX2 where the processor has it, [`sum_words`] elsewhere in a form that
//! LLVM vectorises.

use core::net::IpAddr;

/// Octets from which it pays to look what vectors the processor has.
const LONG: usize = 256;

/// The ones' complement sum of `octets`, as 16-bit words in network order, folded to 16 bits.
///
/// An odd last octet counts as if a zero octet followed, so only the last piece of what is
/// summed with [`combine`] may have an odd length.
#[inline]
pub fn sum(octets: &[u8]) -> u32 {
    let total = if octets.len() < LONG { sum_words(octets) } else { wide::sum(octets) };
    u32::from(u16::from_be(fold(fold_wide(total))))
}

/// Not folded, in the host's order.
#[inline]
fn sum_words(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks::<4>();
    // 2^32 words would be needed to overflow: more than any frame has.
    let words: u64 = words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum();
    let last = match *rest {
        [] => [0; 4],
        [a] => [a, 0, 0, 0],
        [a, b] => [a, b, 0, 0],
        [a, b, c, ..] => [a, b, c, 0],
    };
    words + u64::from(u32::from_ne_bytes(last))
}

/// The same for fewer octets than a vector has, without a loop.
#[cfg(target_arch = "x86_64")]
#[inline]
fn sum_tail(mut rest: &[u8]) -> u64 {
    let mut total = 0;
    if let Some((words, behind)) = rest.split_first_chunk::<16>() {
        total += sum_words(words);
        rest = behind;
    }
    if let Some((words, behind)) = rest.split_first_chunk::<8>() {
        total += sum_words(words);
        rest = behind;
    }
    if let Some((word, behind)) = rest.split_first_chunk::<4>() {
        total += sum_words(word);
        rest = behind;
    }
    total + sum_words(rest)
}

/// With AVX2: one multiply-add for sixteen words of 16 bits.
#[cfg(target_arch = "x86_64")]
mod wide {
    use pulp::x86::V3;
    use pulp::{NullaryFnOnce, cast, i32x8};

    /// Octets of a vector.
    const VECTOR: usize = 32;
    /// Accumulators, so that additions need not wait for each other.
    const LANES: usize = 4;
    /// The multiply-add takes words as signed: flipping the sign bit takes this off each, which is
    /// added again at the end.
    const OFFSET: u64 = 1 << 15;
    const SIGN: i16 = i16::MIN;
    /// Vectors that one lane can take two words of each without an overflow.
    const VECTORS_MAX: usize = 1 << 14;

    pub(super) fn sum(octets: &[u8]) -> u64 {
        match V3::try_new() {
            Some(simd) => simd.vectorize(Rounds { simd, octets }),
            None => super::sum_words(octets),
        }
    }

    struct Rounds<'a> {
        simd: V3,
        octets: &'a [u8],
    }

    impl NullaryFnOnce for Rounds<'_> {
        type Output = u64;

        #[inline(always)]
        fn call(self) -> u64 {
            let Self { simd, octets } = self;
            let (vectors, rest) = octets.as_chunks::<VECTOR>();
            let sign = simd.splat_i16x16(SIGN);
            let one = simd.splat_i16x16(1);
            let add = |lanes: i32x8, vector: &[u8; VECTOR]| {
                let words = simd.xor_i16x16(cast(*vector), sign);
                let pairs = simd.avx2._mm256_madd_epi16(cast(words), cast(one));
                cast(simd.avx2._mm256_add_epi32(cast(lanes), pairs))
            };
            let mut total = super::sum_tail(rest);
            for vectors in vectors.chunks(VECTORS_MAX) {
                let (rounds, others) = vectors.as_chunks::<LANES>();
                let mut lanes = [simd.splat_i32x8(0); LANES];
                for round in rounds {
                    for (lanes, vector) in lanes.iter_mut().zip(round) {
                        *lanes = add(*lanes, vector);
                    }
                }
                for vector in others {
                    lanes[0] = add(lanes[0], vector);
                }
                // All of them together have taken no more than one could.
                let add = |a: i32x8, b: i32x8| cast(simd.avx2._mm256_add_epi32(cast(a), cast(b)));
                let lanes: [i32; 8] = cast(lanes.into_iter().fold(simd.splat_i32x8(0), add));
                let signed: i64 = lanes.iter().map(|&lane| i64::from(lane)).sum();
                let taken_off = OFFSET * (VECTOR / 2) as u64 * vectors.len() as u64;
                total += signed.wrapping_add_unsigned(taken_off).cast_unsigned();
            }
            total
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod wide {
    pub(super) use super::sum_words as sum;
}

/// The sum over the pseudo-header (RFC 9293 section 3.1, RFC 8200 section 8.1) of `len` octets of
/// protocol `protocol` between two addresses.
#[inline]
pub fn of_pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u32 {
    let len = u32::try_from(len).expect("a packet is shorter than 4 GiB");
    of_address(source) + of_address(destination) + u32::from(protocol) + (len >> 16) + (len & 0xffff)
}

/// Not folded.
#[inline]
fn of_address(addr: IpAddr) -> u32 {
    match addr {
        IpAddr::V4(addr) => (addr.to_bits() >> 16) + (addr.to_bits() & 0xffff),
        IpAddr::V6(addr) => addr.segments().map(u32::from).iter().sum(),
    }
}

/// The sum of two pieces; the first has an even number of octets.
///
/// Not folded: 2^16 pieces would be needed to overflow.
#[inline]
pub const fn combine(first: u32, second: u32) -> u32 {
    first + second
}

/// The value of the checksum field for what was summed: zero for a sum that includes a good checksum.
#[inline]
pub fn finish(sum: u32) -> u16 {
    !fold(sum)
}

/// The checksum field's new value when a 16-bit word under it changes (RFC 1624 equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    finish(u32::from(!checksum) + u32::from(!old) + u32::from(new))
}

/// Adds the carries back in until 16 bits are left.
#[inline]
fn fold(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    u16::try_from(sum).expect("two folds of 32 bits leave 16")
}

/// The same down to 32 bits.
#[inline]
fn fold_wide(sum: u64) -> u32 {
    let [low, high] = [sum & 0xffff_ffff, sum >> 32].map(|half| u32::try_from(half).expect("32 bits"));
    let (sum, carry) = low.overflowing_add(high);
    // With a carry the sum is below the highest number by one at least.
    sum + u32::from(carry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 1, word by word.
    fn naive(octets: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in octets.chunks(2) {
            sum += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
        }
        while sum > 0xffff {
            sum = (sum >> 16) + (sum & 0xffff);
        }
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn the_rfc_example() {
        // RFC 1071 section 3.
        let octets = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&octets), 0xddf2);
        assert_eq!(finish(sum(&octets)), !0xddf2);
    }

    #[test]
    fn the_largest_carries_fold() {
        assert_eq!(sum(&vec![0xff; 65_536]), 0xffff);
        assert_eq!(sum(&[]), 0);
        assert_eq!((fold(u32::MAX), fold_wide(u64::MAX)), (0xffff, u32::MAX));
        assert_eq!(fold(fold_wide(0x1_ffff_ffff)), naive(&[0, 1, 0xff, 0xff, 0xff, 0xff]));
        assert_eq!(finish(combine(0xffff, 0xffff)), 0);
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_sum_and_smoltcp(octets in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert_eq!(sum(&octets), u32::from(naive(&octets)));
            // A sum of zero has two names in ones' complement.
            let smoltcp = smoltcp::wire::checksum::data(&octets);
            prop_assert!(sum(&octets) % 0xffff == u32::from(smoltcp) % 0xffff);
        }

        #[test]
        fn pieces_add_up(octets in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..150) {
            let cut = (2 * cut).min(octets.len() & !1);
            let (first, second) = octets.split_at(cut);
            prop_assert_eq!(finish(combine(sum(first), sum(second))), finish(sum(&octets)));
        }

        #[test]
        fn an_update_equals_a_fresh_sum(mut octets in prop::collection::vec(any::<u8>(), 20), new: u16) {
            octets[0] |= 1; // a sum of zero does not occur under a version nibble
            let before = finish(sum(&octets));
            let old = u16::from_be_bytes([octets[4], octets[5]]);
            octets[4..6].copy_from_slice(&new.to_be_bytes());
            prop_assert_eq!(update(before, old, new), finish(sum(&octets)));
        }
    }
}
