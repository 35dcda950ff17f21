//! Atomic Operations on 64-bit words: what each makes of a value (RFC 7306 section 5.1).
//!
//! Values are numbers here: memory holds them in the host's order, messages in the network's.

/// Octets of the word that an Atomic Operation is about.
pub const WORD_LEN: u32 = 8;

/// An Atomic Operation and its operands. Each also returns the value from before.
// req 7306-5-3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds, field by field.
    FetchAdd {
        /// What is added.
        add: u64,
        /// Each bit that is set is the highest of a field, and nothing is carried out of it; 0 makes the
        /// whole word one field.
        mask: u64,
    },
    /// Replaces bits, if others are as expected.
    CmpSwap {
        /// The new bits.
        swap: u64,
        /// Which bits are replaced.
        swap_mask: u64,
        /// The bits that are expected.
        compare: u64,
        /// Which bits are compared; none: they are always as expected.
        compare_mask: u64,
    },
}

impl AtomicOperation {
    /// Adds to the whole word, modulo 2^64.
    pub const fn fetch_add(add: u64) -> Self {
        Self::FetchAdd { add, mask: 0 }
    }

    /// Replaces the whole word if it is `compare`.
    pub const fn cmp_swap(compare: u64, swap: u64) -> Self {
        Self::CmpSwap { swap, swap_mask: u64::MAX, compare, compare_mask: u64::MAX }
    }

    /// Replaces the whole word, whatever it is: a CmpSwap that compares nothing.
    pub const fn swap(swap: u64) -> Self {
        Self::CmpSwap { swap, swap_mask: u64::MAX, compare: 0, compare_mask: 0 }
    }

    /// What the word becomes when it is `original`.
    pub const fn apply(self, original: u64) -> u64 {
        match self {
            Self::FetchAdd { add, mask } => {
                // Without their highest bits, fields add up into those and no further; the highest bits
                // themselves add without a carry.
                let highest = mask | (1 << 63);
                ((original & !highest) + (add & !highest)) ^ ((original ^ add) & highest)
            }
            // req 7306-5.1.2-1
            Self::CmpSwap { swap, swap_mask, compare, compare_mask } => {
                if (compare ^ original) & compare_mask == 0 {
                    (original & !swap_mask) | (swap & swap_mask)
                } else {
                    original
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// FetchAdd bit by bit, as section 5.1.1 describes it.
    fn added_bit_by_bit(original: u64, add: u64, mask: u64) -> u64 {
        let (mut result, mut carry) = (0, 0);
        for bit in 0..64 {
            let sum = carry + ((original >> bit) & 1) + ((add >> bit) & 1);
            result |= (sum & 1) << bit;
            carry = if (mask >> bit) & 1 == 1 { 0 } else { sum >> 1 };
        }
        result
    }

    #[test]
    fn fetch_add_without_mask_wraps() {
        assert_eq!(AtomicOperation::fetch_add(5).apply(7), 12);
        assert_eq!(AtomicOperation::fetch_add(2).apply(u64::MAX), 1);
        assert_eq!(AtomicOperation::fetch_add(u64::MAX).apply(7), 6, "adds -1");
    }

    // proves 7306-5-3
    #[test]
    fn fetch_add_carries_nothing_out_of_a_field() {
        let two_words = AtomicOperation::FetchAdd { add: 0x0000_0002_0000_0001, mask: 0x8000_0000_8000_0000 };
        assert_eq!(two_words.apply(0xffff_ffff_ffff_ffff), 0x0000_0001_0000_0000);
        let single_bits = AtomicOperation::FetchAdd { add: 0b0101, mask: u64::MAX };
        assert_eq!(single_bits.apply(0b0011), 0b0110);
    }

    // proves 7306-5-3, 7306-5.1.2-1
    #[test]
    fn cmp_swap_swaps_what_is_masked_if_what_is_masked_matches() {
        assert_eq!(AtomicOperation::cmp_swap(3, 9).apply(3), 9);
        assert_eq!(AtomicOperation::cmp_swap(3, 9).apply(4), 4);
        assert_eq!(AtomicOperation::swap(9).apply(1234), 9);
        let masked = AtomicOperation::CmpSwap {
            swap: 0xaaaa,
            swap_mask: 0x00ff,
            compare: 0x1200,
            compare_mask: 0xff00,
        };
        assert_eq!(masked.apply(0x1234), 0x12aa);
        assert_eq!(masked.apply(0x1334), 0x1334);
    }

    proptest! {
        // proves 7306-5-3
        #[test]
        fn fetch_add_is_the_rfcs_addition(original: u64, add: u64, mask in prop_oneof![
            Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>(), (0..64).prop_map(|bit| 1_u64 << bit),
        ]) {
            let sum = AtomicOperation::FetchAdd { add, mask }.apply(original);
            prop_assert_eq!(sum, added_bit_by_bit(original, add, mask));
        }

        // proves 7306-5.1.2-1
        #[test]
        fn cmp_swap_changes_masked_bits_or_none(
            original: u64, swap: u64, swap_mask: u64, compare: u64, compare_mask: u64,
        ) {
            let of = |compare| AtomicOperation::CmpSwap { swap, swap_mask, compare, compare_mask };
            let swapped = of(original ^ (compare & !compare_mask)).apply(original);
            prop_assert_eq!((swapped ^ swap) & swap_mask, 0);
            prop_assert_eq!((swapped ^ original) & !swap_mask, 0);
            if (compare ^ original) & compare_mask != 0 {
                prop_assert_eq!(of(compare).apply(original), original);
            }
        }
    }
}
