//! Time as the stack sees it: nanoseconds on a monotonic clock that the caller reads.

use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point on the caller's monotonic clock, in nanoseconds since an arbitrary origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Microseconds since the origin, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The time since `earlier`, or zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A point in time in four octets, to 1.07 s: for what lies minutes or days back.
///
/// It wraps after 146 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coarse(u32);

impl Coarse {
    /// Nanoseconds of a unit, as a shift.
    const SHIFT: u32 = 30;

    /// The unit that `now` is in.
    #[inline]
    pub(crate) fn of(now: Instant) -> Self {
        Self(u32::try_from((now.0 >> Self::SHIFT) & 0xffff_ffff).expect("32 bits are left"))
    }

    /// How long ago it was; up to a unit more or less than exactly.
    #[inline]
    pub(crate) fn age(self, now: Instant) -> Duration {
        Duration::from_nanos(u64::from(Self::of(now).0.wrapping_sub(self.0)) << Self::SHIFT)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of the clock (584 years).
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Zero when `earlier` is later.
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}
