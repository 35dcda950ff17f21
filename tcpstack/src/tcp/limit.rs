//! A limit on how often something is done in a second.

use core::time::Duration;

use crate::time::Instant;

/// Counts within seconds that begin with the first use after the last one.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateLimit {
    /// When the second began, if anything was allowed in it.
    since: Instant,
    used: u32,
}

impl RateLimit {
    /// Whether one more is allowed now; if so it is counted.
    pub(crate) fn allow(&mut self, per_second: u32, now: Instant) -> bool {
        if self.used == 0 || now - self.since >= Duration::from_secs(1) {
            self.since = now;
            self.used = 0;
        }
        if self.used >= per_second {
            return false;
        }
        self.used += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_a_second() {
        let mut limit = RateLimit::default();
        for second in 0..3 {
            let now = Instant::from_micros(second * 1_000_000);
            assert!(limit.allow(2, now) && limit.allow(2, now) && !limit.allow(2, now));
            assert!(!limit.allow(2, now + Duration::from_millis(999)));
        }
        assert!(!RateLimit::default().allow(0, Instant::ZERO));
    }
}
