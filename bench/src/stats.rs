//! Figures out of samples: latency distributions and rates.

use std::time::Duration;

use hdrhistogram::Histogram;
use tcpstack::time::Instant;

/// Latencies of a run.
///
/// Samples are kept as they are while the test runs, and counted by [`Latencies::finish`]: a histogram is
/// 200 KiB, and walking through it between two messages would cost the cache that the test measures.
#[derive(Debug)]
pub struct Latencies {
    /// Nanoseconds, in the order measured; never grows beyond its first capacity.
    samples: Vec<u32>,
    histogram: Histogram<u64>,
    moments: Moments,
    max: u64,
    min: u64,
}

impl Latencies {
    /// Room for `expected` samples, as far as memory is given for them.
    pub fn new(expected: u64) -> Self {
        let room = usize::try_from(expected).unwrap_or(usize::MAX).min(SAMPLES_KEPT);
        let histogram = Histogram::new_with_bounds(1, NANOS_MAX, SIGNIFICANT_DIGITS)
            .expect("these bounds and digits are supported");
        Self {
            samples: Vec::with_capacity(room),
            histogram,
            moments: Moments::default(),
            max: 0,
            min: u64::MAX,
        }
    }

    /// Takes a sample.
    pub fn record(&mut self, latency: Duration) {
        match u32::try_from(latency.as_nanos()) {
            Ok(nanos) if self.samples.len() < self.samples.capacity() => self.samples.push(nanos),
            _ => self.count(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX)),
        }
    }

    /// Counts what was recorded. Each sample is divided by `divisor`: 2 makes half round trips.
    pub fn finish(mut self, divisor: u32) -> LatencySummary {
        for nanos in std::mem::take(&mut self.samples) {
            self.count(nanos.into());
        }
        let scale = f64::from(divisor.max(1)) * 1e3;
        let micros = |nanos: u64| nanos as f64 / scale;
        let at = |quantile| micros(self.histogram.value_at_quantile(quantile).min(self.max));
        let distribution = self
            .histogram
            .iter_recorded()
            .map(|step| Step {
                micros: micros(step.value_iterated_to()),
                count: step.count_at_value(),
                percentile: step.percentile(),
            })
            .collect();
        let count = self.moments.count;
        LatencySummary {
            count,
            min: if count == 0 { 0.0 } else { micros(self.min) },
            max: micros(self.max),
            median: at(0.5),
            mean: self.moments.mean / scale,
            stdev: self.moments.stdev() / scale,
            p99: at(0.99),
            p999: at(0.999),
            distribution,
        }
    }

    fn count(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos);
        self.moments.add(nanos as f64);
        self.max = self.max.max(nanos);
        self.min = self.min.min(nanos);
    }
}

/// What a latency run came to, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencySummary {
    /// Samples.
    pub count: u64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Half of them are no greater.
    pub median: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub stdev: f64,
    /// 99 % are no greater.
    pub p99: f64,
    /// 99.9 % are no greater.
    pub p999: f64,
    /// The recorded values, to three digits, in rising order.
    pub distribution: Vec<Step>,
}

/// A value of a distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The value.
    pub micros: f64,
    /// Samples of it.
    pub count: u64,
    /// How many percent are no greater.
    pub percentile: f64,
}

/// The best rate that a run had for a while.
#[derive(Debug)]
pub struct Peak {
    /// When the present stretch began, and what was done by then.
    began: Instant,
    done: u64,
    /// A stretch has at least this many messages and this much time.
    messages: u64,
    span: Duration,
    best: f64,
}

impl Peak {
    /// Begins to watch; stretches are at least `messages` and `span` long.
    pub fn new(now: Instant, messages: u64, span: Duration) -> Self {
        Self { began: now, done: 0, messages: messages.max(1), span: span.max(SPAN_MIN), best: 0.0 }
    }

    /// Says that `done` messages were complete at `now`.
    pub fn update(&mut self, done: u64, now: Instant) {
        let (messages, span) = (done - self.done, now - self.began);
        if messages >= self.messages && span >= self.span {
            self.best = self.best.max(messages as f64 / span.as_secs_f64());
            (self.began, self.done) = (now, done);
        }
    }

    /// Messages a second in the best stretch; 0 when the run was too short for one.
    pub fn best(&self) -> f64 {
        self.best
    }
}

/// Samples that are kept as they are: 16 MiB of them. Later ones are counted at once.
const SAMPLES_KEPT: usize = 4 << 20;

const SIGNIFICANT_DIGITS: u8 = 3;

/// Longer latencies than an hour count as that.
const NANOS_MAX: u64 = 3_600_000_000_000;

/// Completions come in batches and the clock is read once a turn: shorter stretches measure just that.
const SPAN_MIN: Duration = Duration::from_micros(100);

/// Mean and spread, updated sample by sample without loss (Welford's method).
#[derive(Debug, Default)]
struct Moments {
    count: u64,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Of the whole population, as perftest divides by the number of samples.
    fn stdev(&self) -> f64 {
        if self.count == 0 { 0.0 } else { (self.squares / self.count as f64).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(nanos: &[u64], room: u64, divisor: u32) -> LatencySummary {
        let mut latencies = Latencies::new(room);
        for &nanos in nanos {
            latencies.record(Duration::from_nanos(nanos));
        }
        latencies.finish(divisor)
    }

    fn assert_close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= expected.abs() / 500.0, "{found} is not about {expected}");
    }

    #[test]
    fn figures_are_those_of_the_samples() {
        let samples: Vec<u64> = (1..=1000).map(|number| number * 1000).collect();
        let figures = summary(&samples, 1000, 1);
        assert_eq!(figures.count, 1000);
        assert_close(figures.min, 1.0);
        assert_close(figures.max, 1000.0);
        assert_close(figures.median, 500.0);
        assert_close(figures.mean, 500.5);
        assert_close(figures.p99, 990.0);
        assert_close(figures.p999, 999.0);
        // The population's: sqrt((n^2 - 1) / 12).
        assert_close(figures.stdev, 288.675);
    }

    #[test]
    fn a_small_spread_is_not_lost() {
        let figures = summary(&[1000, 1001, 1002, 1003], 4, 1);
        assert!((figures.stdev - 0.001_118).abs() < 1e-6, "{}", figures.stdev);
    }

    #[test]
    fn half_round_trips_are_half_of_everything() {
        let whole = summary(&[800, 1200, 5000], 3, 1);
        let half = summary(&[800, 1200, 5000], 3, 2);
        for (whole, half) in [
            (whole.min, half.min),
            (whole.max, half.max),
            (whole.median, half.median),
            (whole.mean, half.mean),
            (whole.stdev, half.stdev),
            (whole.p999, half.p999),
        ] {
            assert_close(half, whole / 2.0);
        }
    }

    #[test]
    fn samples_beyond_the_room_count_alike() {
        let samples: Vec<u64> = (1..=100).map(|number| number * 777).collect();
        assert_eq!(summary(&samples, 100, 1).distribution, summary(&samples, 10, 1).distribution);
        let long = summary(&[10_000_000_000, 1000], 2, 1);
        assert_close(long.max, 1e7);
    }

    #[test]
    fn no_samples_make_no_figures() {
        let figures = summary(&[], 0, 1);
        assert_eq!((figures.count, figures.min, figures.max, figures.stdev), (0, 0.0, 0.0, 0.0));
    }

    #[test]
    fn the_peak_is_the_best_stretch() {
        let at = |micros| Instant::from_micros(micros);
        let mut peak = Peak::new(at(0), 10, Duration::from_micros(200));
        peak.update(5, at(500));
        assert_eq!(peak.best(), 0.0, "too few messages");
        peak.update(10, at(1000));
        assert_close(peak.best(), 10_000.0);
        peak.update(60, at(1100));
        assert_close(peak.best(), 10_000.0);
        peak.update(110, at(1250));
        assert_close(peak.best(), 400_000.0);
        peak.update(120, at(2250));
        assert_close(peak.best(), 400_000.0);
    }
}
