//! How many connections one source may open: a token bucket a source prefix, in a table of a
//! fixed size.
//!
//! A bucket is one number: the time at which it will be full again. A new connection moves it
//! on by the time that a token takes to come, and is refused when that would be further ahead
//! than the whole burst takes. A bucket whose time has passed is full, and forgetting it loses
//! nothing; when all of a set are in use, the one that is full first gives way.

use core::hash::Hasher;
use core::net::IpAddr;
use core::time::Duration;

use crate::config::SourceLimit;
use crate::flow::Secret;
use crate::time::Instant;

/// Buckets in which one source may be: those of its set.
const WAYS: usize = 4;

/// The octets of an IPv6 address that name a source: a /64 is one site's to use.
const IPV6_PREFIX: usize = 8;

/// The limit of all sources; without one it takes no memory.
pub(crate) struct Sources {
    secret: Secret,
    sets: Box<[[Bucket; WAYS]]>,
    /// From one token to the next.
    interval: Duration,
    /// How long an empty bucket takes to be full.
    burst: Duration,
}

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// A hash of the source.
    source: u64,
    full_at: Instant,
}

impl Sources {
    /// All buckets full.
    pub(crate) fn new(limit: Option<SourceLimit>, secret: Secret) -> Self {
        let Some(SourceLimit { per_second, burst, sources }) = limit else {
            return Self { secret, sets: Box::default(), interval: Duration::ZERO, burst: Duration::ZERO };
        };
        let sets = (sources.max(WAYS) / WAYS).next_power_of_two();
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self {
            secret,
            sets: vec![[Bucket::default(); WAYS]; sets].into(),
            interval,
            burst: interval * burst.max(1),
        }
    }

    /// Whether a connection from `source` is allowed now; if so it is counted.
    pub(crate) fn allow(&mut self, source: IpAddr, now: Instant) -> bool {
        if self.sets.is_empty() {
            return true;
        }
        let hash = self.hash(source);
        let mask = self.sets.len() - 1;
        let set = usize::try_from(hash & mask as u64).expect("below the mask");
        let set = &mut self.sets[set];
        let found = set.iter().position(|bucket| bucket.source == hash);
        let bucket = match found {
            Some(index) => &mut set[index],
            None => {
                let bucket = set.iter_mut().min_by_key(|bucket| bucket.full_at).expect("four ways");
                *bucket = Bucket { source: hash, full_at: now };
                bucket
            }
        };
        let full_at = bucket.full_at.max(now) + self.interval;
        if full_at - now > self.burst {
            return false;
        }
        bucket.full_at = full_at;
        true
    }

    fn hash(&self, source: IpAddr) -> u64 {
        let mut hasher = self.secret.hasher();
        match source {
            IpAddr::V4(addr) => hasher.write(&addr.octets()),
            IpAddr::V6(addr) => hasher.write(&addr.octets()[..IPV6_PREFIX]),
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn sources(per_second: u32, burst: u32, sources: usize) -> Sources {
        Sources::new(Some(SourceLimit { per_second, burst, sources }), Secret::new([8; 16]))
    }

    fn at(ms: u64) -> Instant {
        Instant::from_micros(1000 * ms)
    }

    fn v4(last: u32) -> IpAddr {
        IpAddr::V4((0xc000_0200 + last).into())
    }

    #[test]
    fn a_burst_and_then_so_many_a_second() {
        let mut sources = sources(10, 3, 64);
        let mut taken = |ms| (0..5).filter(|_| sources.allow(v4(1), at(ms))).count();
        assert_eq!([taken(0), taken(99), taken(100), taken(300), taken(10_000)], [3, 0, 1, 2, 3]);
    }

    #[test]
    fn sources_are_prefixes_and_do_not_share() {
        let mut sources = sources(1, 1, 64);
        let v6 = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(sources.allow(v4(1), at(0)) && sources.allow(v4(2), at(0)));
        assert!(!sources.allow(v4(1), at(0)));
        assert!(sources.allow(v6("2001:db8::1"), at(0)));
        assert!(!sources.allow(v6("2001:db8::2"), at(0)));
        assert!(sources.allow(v6("2001:db8:0:1::1"), at(0)));
    }

    #[test]
    fn without_a_limit_all_is_allowed() {
        let mut sources = Sources::new(None, Secret::new([8; 16]));
        assert!((0..10_000).all(|_| sources.allow(v4(1), at(0))));
    }

    #[test]
    fn old_sources_give_way_and_the_busiest_stays() {
        let mut sources = sources(1, 10, 4);
        assert!((0..10).all(|_| sources.allow(v4(0), at(0))));
        for other in 1..1000 {
            assert!(sources.allow(v4(other), at(0)));
            assert!(!sources.allow(v4(0), at(0)), "the table forgot whom it limits");
        }
    }

    proptest! {
        /// Against a bucket of whole tokens for each source, in a table that holds all.
        #[test]
        fn behaves_as_token_buckets(
            steps in prop::collection::vec((0u32..4, 0u64..40), 0..300),
            burst in 1u32..6,
        ) {
            // A token comes each 20 ms; the model counts in milliseconds.
            let mut sources = sources(50, burst, 4096);
            let mut model: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            let (mut now, full) = (0, 20 * u64::from(burst));
            for (source, span) in steps {
                now += span;
                let (credit, last) = model.entry(source).or_insert((full, now));
                *credit = (*credit + now - *last).min(full);
                *last = now;
                let allowed = *credit >= 20;
                if allowed {
                    *credit -= 20;
                }
                prop_assert_eq!(sources.allow(v4(source), at(now)), allowed);
            }
        }
    }
}
