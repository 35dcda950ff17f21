//! Running a scenario with many seeds, and saying how to repeat the one that failed.

use std::any::type_name;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tcpstack::sim::Wire;

thread_local! {
    /// Of the scenario that runs on this thread, for the names of its captures.
    static LABEL: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs a test's `scenario` with `count` seeds, counted from 0; a failure names the seed and the
/// command that repeats it, and leaves captures of the [`World`](super::World)'s ports.
///
/// `IRONWARP_SEED=n` in the environment runs one seed only, `IRONWARP_SEEDS=n` as many.
///
/// # Panics
/// As the scenario does.
pub fn with_seeds<S: Fn(u64)>(count: u64, scenario: S) {
    let number = |variable| std::env::var(variable).ok().and_then(|it| it.parse::<u64>().ok());
    let seeds = match number("IRONWARP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("IRONWARP_SEEDS").unwrap_or(count),
    };
    let (binary, test) = names::<S>();
    for seed in seeds {
        LABEL.set(Some(format!("{binary}-{test}-seed{seed}")));
        let run = catch_unwind(AssertUnwindSafe(|| scenario(seed)));
        LABEL.set(None);
        if let Err(panic) = run {
            eprintln!(
                "seed {seed} failed; repeat it with:\n  \
                 IRONWARP_SEED={seed} cargo test -p dataplane --test {binary} {test}"
            );
            resume_unwind(panic);
        }
    }
}

/// Writes what the first `ports` ports saw to files for tcpdump or Wireshark, and says where.
pub(super) fn save_captures(wire: &Wire, ports: usize) {
    let label = LABEL.with_borrow(|label| label.clone()).unwrap_or_else(|| "world".to_owned());
    for port in 0..ports {
        let Some(capture) = wire.take_capture(port) else { continue };
        let path = std::env::temp_dir().join(format!("ironwarp-{label}-port{port}.pcap"));
        match std::fs::write(&path, capture.octets()) {
            Ok(()) => eprintln!("captured: {}", path.display()),
            Err(error) => eprintln!("cannot write {}: {error}", path.display()),
        }
    }
}

/// The test binary and the test that a scenario is from: a closure's type is named after both.
fn names<S>() -> (&'static str, String) {
    let (binary, path) = type_name::<S>().split_once("::").unwrap_or(("unknown", ""));
    (binary, path.replace("::{{closure}}", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_named_after_its_test() {
        fn names_of<S: Fn(u64)>(_: S) -> (&'static str, String) {
            names::<S>()
        }
        let (binary, test) = names_of(|_| {});
        assert_eq!(binary, "dataplane");
        assert_eq!(test, "sim::seeds::tests::a_scenario_is_named_after_its_test");
    }

    #[test]
    fn one_failure_ends_it_with_the_scenarios_panic() {
        let ran = RefCell::new(Vec::new());
        let run = catch_unwind(AssertUnwindSafe(|| {
            with_seeds(5, |seed| {
                ran.borrow_mut().push(seed);
                assert_ne!(seed, 2, "that one");
            });
        }));
        assert!(run.unwrap_err().downcast_ref::<String>().unwrap().contains("that one"));
        assert_eq!(ran.into_inner(), [0, 1, 2]);
    }
}
