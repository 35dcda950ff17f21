//! Sequence numbers: arithmetic modulo 2^32 (RFC 9293 section 3.4), here and nowhere else.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence or acknowledgment number.
///
/// There is no total order on a circle, so it has no `Ord`: comparisons say what they mean and
/// hold for numbers less than 2^31 apart, which windows of at most 1 GiB guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(u32);

impl SeqNumber {
    /// The number with this value on the wire.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The value on the wire.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Whether this comes before `other`.
    pub const fn before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Whether this comes after `other`.
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// Whether this is `other` or comes before it.
    pub const fn at_or_before(self, other: Self) -> bool {
        !other.before(self)
    }

    /// Whether this is `other` or comes after it.
    pub const fn at_or_after(self, other: Self) -> bool {
        !self.before(other)
    }

    /// Whether `start <= self < start + len`.
    pub const fn is_within(self, start: Self, len: u32) -> bool {
        self.0.wrapping_sub(start.0) < len
    }

    /// Octets from `earlier` to this, or zero when `earlier` comes later.
    pub const fn since(self, earlier: Self) -> u32 {
        if self.before(earlier) { 0 } else { self.0.wrapping_sub(earlier.0) }
    }

    /// The later one of the two.
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// The earlier one of the two.
    pub const fn min(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    fn add(self, octets: u32) -> Self {
        Self(self.0.wrapping_add(octets))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, octets: u32) {
        *self = *self + octets;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;

    fn sub(self, octets: u32) -> Self {
        Self(self.0.wrapping_sub(octets))
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_circle_closes() {
        let last = SeqNumber::new(u32::MAX);
        assert_eq!(last + 1, SeqNumber::new(0));
        assert!(last.before(last + 1));
        assert!((last + 1).after(last));
        assert!(last.at_or_before(last) && last.at_or_after(last));
        assert_eq!((last + 10).since(last), 10);
        assert_eq!(last.since(last + 10), 0);
        assert!(!last.is_within(last, 0));
        assert!((last + 4).is_within(last, 5));
        assert!(!(last + 5).is_within(last, 5));
        assert_eq!(last.max(last + 1), last + 1);
        assert_eq!(last.min(last + 1), last);
    }

    proptest! {
        #[test]
        fn order_follows_distance(start: u32, distance in 1u32..0x8000_0000) {
            let start = SeqNumber::new(start);
            let end = start + distance;
            prop_assert!(start.before(end) || distance == 0x8000_0000);
            prop_assert_eq!(end.since(start), distance);
            prop_assert_eq!(end - distance, start);
            prop_assert!(!end.before(start));
        }
    }
}
