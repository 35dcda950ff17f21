//! What it costs today to move a cache line between two cores.
//!
//! On a shared host this changes tenfold within seconds, and with it every figure between cores. So it is
//! measured and printed with each run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use core_affinity::CoreId;

/// A round trip of one cache line between two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingPong {
    /// The cores.
    pub cores: (usize, usize),
    /// The median of some batches of round trips.
    pub round_trip: Duration,
}

/// Measures the round trip between two cores; nothing, when a thread cannot be pinned to one of them.
///
/// Takes some milliseconds. The median of short batches holds even when something else polls on one of
/// the cores, since then only the batches during which the two threads take turns are long.
pub fn ping_pong(first: CoreId, second: CoreId) -> Option<PingPong> {
    let line = Arc::new(Line::default());
    let echo = {
        let line = Arc::clone(&line);
        thread::spawn(move || {
            let pinned = core_affinity::set_for_current(second);
            line.turn.store(if pinned { 0 } else { END }, Ordering::Release);
            if pinned {
                line.echo();
            }
        })
    };
    let ping = thread::spawn(move || {
        let pinned = core_affinity::set_for_current(first);
        let medians = if pinned { line.measure() } else { None };
        line.turn.store(END, Ordering::Release);
        medians
    });
    let round_trip = ping.join().ok().flatten();
    echo.join().ok()?;
    Some(PingPong { cores: (first.id, second.id), round_trip: round_trip? })
}

/// Batches, and round trips in each: 20 ms at the slowest that was seen.
const BATCHES: usize = 41;
const ROUNDS: u32 = 1000;

/// The echo is not there yet, or does not come.
const NOT_YET: u32 = u32::MAX;
const END: u32 = u32::MAX - 1;

/// A batch takes no longer than this, should one of the threads never run.
const BATCH_MAX: Duration = Duration::from_millis(200);

/// A counter alone on its cache line; even numbers are the pinger's turn.
#[repr(align(128))]
struct Line {
    turn: AtomicU32,
}

impl Default for Line {
    fn default() -> Self {
        Self { turn: AtomicU32::new(NOT_YET) }
    }
}

impl Line {
    fn echo(&self) {
        loop {
            match self.turn.load(Ordering::Acquire) {
                END => return,
                odd if odd % 2 == 1 => self.answer(odd),
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn answer(&self, odd: u32) {
        // Fails only when the pinger has ended meanwhile, which must not be undone.
        let _ = self.turn.compare_exchange(odd, odd + 1, Ordering::AcqRel, Ordering::Relaxed);
    }

    #[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
    fn measure(&self) -> Option<Duration> {
        let limit = Instant::now() + BATCH_MAX;
        while self.turn.load(Ordering::Acquire) == NOT_YET {
            if Instant::now() > limit {
                return None;
            }
            std::hint::spin_loop();
        }
        let mut batches = Vec::with_capacity(BATCHES);
        let mut turn = 0;
        for _ in 0..BATCHES {
            let began = Instant::now();
            for _ in 0..ROUNDS {
                if self.turn.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
                    return None;
                }
                turn += 2;
                let mut spins = 0_u32;
                while self.turn.load(Ordering::Acquire) != turn {
                    spins += 1;
                    if spins.is_multiple_of(1 << 20) && began.elapsed() > BATCH_MAX {
                        return None;
                    }
                    std::hint::spin_loop();
                }
            }
            batches.push(began.elapsed() / ROUNDS);
        }
        batches.sort_unstable();
        Some(batches[BATCHES / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_have_a_round_trip() {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let [first, second, ..] = cores[..] else { return };
        // On a loaded host the threads may not get to run together: then there is no figure.
        if let Some(figure) = ping_pong(first, second) {
            assert_eq!(figure.cores, (first.id, second.id));
            assert!(figure.round_trip > Duration::ZERO);
        }
    }
}
