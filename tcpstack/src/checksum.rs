//! The Internet checksum (RFC 1071), in pieces that can be added up.
//!
//! [`sum`] runs over whole payloads, so it is written for LLVM to vectorise: it adds 32-bit
//! words in the host's byte order into 64-bit lanes, which cannot overflow, and folds once
//! at the end. The ones' complement sum does not depend on the byte order but for one swap.

use pulp::{Arch, NullaryFnOnce};

/// Words that one round of [`sum`] adds, each to its own lane.
const LANES: usize = 16;

/// Octets from which it pays to look what vectors the processor has.
const LONG: usize = 256;

/// The ones' complement sum of `octets`, as 16-bit words in network order, folded to 16 bits.
///
/// An odd last octet counts as if a zero octet followed, so only the last piece of what is
/// summed with [`combine`] may have an odd length.
pub fn sum(octets: &[u8]) -> u32 {
    if octets.len() < LONG { sum_lanes(octets) } else { Arch::new().dispatch(Lanes(octets)) }
}

/// [`sum_lanes`], to be compiled for each kind of vectors.
struct Lanes<'a>(&'a [u8]);

impl NullaryFnOnce for Lanes<'_> {
    type Output = u32;

    #[inline(always)]
    fn call(self) -> u32 {
        sum_lanes(self.0)
    }
}

#[inline(always)]
fn sum_lanes(octets: &[u8]) -> u32 {
    let (rounds, rest) = octets.as_chunks::<{ 4 * LANES }>();
    let mut lanes = [0u64; LANES];
    for round in rounds {
        let (words, _) = round.as_chunks::<4>();
        for (lane, word) in lanes.iter_mut().zip(words) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    // 2^32 words a lane would be needed to overflow: more than any frame has.
    let mut total: u64 = lanes.iter().sum();

    let (words, rest) = rest.as_chunks::<4>();
    for word in words {
        total += u64::from(u32::from_ne_bytes(*word));
    }
    let mut last = [0u8; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_ne_bytes(last));

    u32::from(u16::from_be(fold(total)))
}

/// The sum of two pieces; the first has an even number of octets.
pub fn combine(first: u32, second: u32) -> u32 {
    u32::from(fold(u64::from(first) + u64::from(second)))
}

/// The value of the checksum field for what was summed: zero for a sum that includes a good checksum.
pub fn finish(sum: u32) -> u16 {
    !fold(u64::from(sum))
}

/// The checksum field's new value when a 16-bit word under it changes (RFC 1624 equation 3).
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    finish(u32::from(!checksum) + u32::from(!old) + u32::from(new))
}

/// Adds the carries back in until 16 bits are left.
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    u16::try_from(sum).expect("three folds of 33 bits leave 16")
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
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0x1_ffff_ffff), naive(&[0, 1, 0xff, 0xff, 0xff, 0xff]));
        assert_eq!(combine(0xffff, 0xffff), 0xffff);
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
