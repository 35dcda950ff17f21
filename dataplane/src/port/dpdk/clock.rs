//! Time from the processor's time-stamp counter: the poll loop's clock, read once a turn.

use tcpstack::time::Instant;

use super::Eal;

/// The time-stamp counter as a clock with nanoseconds; copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Tsc {
    origin: u64,
    hz: u64,
    /// Nanoseconds a cycle, as a fixed-point number with [`FRACTION`] fractional bits.
    nanos: u64,
}

impl Tsc {
    /// A clock that starts now; the EAL knows the counter's frequency.
    pub fn new(_eal: &Eal) -> Self {
        // SAFETY: returns a number that `rte_eal_init` measured; an `Eal` shows that it ran.
        let hz = unsafe { dpdk_sys::rte_get_tsc_hz() };
        assert!(hz > 0, "the EAL measured the time-stamp counter's frequency");
        let nanos = (u128::from(NANOS) << FRACTION) / u128::from(hz);
        let nanos = u64::try_from(nanos).expect("a counter faster than 1 Hz");
        Self { origin: Self::cycles(), hz, nanos }
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    pub fn now(&self) -> Instant {
        let cycles = Self::cycles().saturating_sub(self.origin);
        let nanos = (u128::from(cycles) * u128::from(self.nanos)) >> FRACTION;
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The counter itself.
    #[inline]
    pub fn cycles() -> u64 {
        // SAFETY: reads a register, no precondition.
        unsafe { dpdk_sys::iw_tsc() }
    }

    /// Cycles a second.
    pub fn hz(&self) -> u64 {
        self.hz
    }
}

const NANOS: u64 = 1_000_000_000;
/// Enough that the rounding is below a microsecond a day.
const FRACTION: u32 = 40;
