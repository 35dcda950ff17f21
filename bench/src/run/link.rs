//! Watches a port's link while a test runs over it.
//!
//! TCP alone notices a dead peer only when its retransmissions have come to nothing, many seconds later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use core_affinity::CoreId;
use dataplane::port::dpdk::Port;

/// Looks at the link until the flag is set; calls `on_lost` when it is down and does not come up again.
pub(super) fn watch(port: &mut Port, core: Option<CoreId>, done: &AtomicBool, on_lost: impl FnOnce(String)) {
    // Beside the poll loop, which this would hold up.
    if let Some(core) = core {
        core_affinity::set_for_current(core);
    }
    let mut patience = Patience::default();
    while !done.load(Ordering::Relaxed) {
        if patience.is_over(port.link().up) {
            return on_lost(port.name().to_owned());
        }
        thread::park_timeout(INTERVAL);
    }
}

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(100);

/// Looks in a row that find the link down before it is given up: a moment is for TCP to bridge.
const LOOKS_MAX: u32 = 7;

/// Counts looks that find the link down.
#[derive(Default)]
struct Patience(u32);

impl Patience {
    fn is_over(&mut self, up: bool) -> bool {
        self.0 = if up { 0 } else { self.0 + 1 };
        self.0 >= LOOKS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_link_that_stays_down_is_lost() {
        let mut patience = Patience::default();
        let mut looks = |up, count| (0..count).any(|_| patience.is_over(up));
        assert!(!looks(true, 100));
        assert!(!looks(false, LOOKS_MAX - 1));
        assert!(!looks(true, 1), "it came back in time");
        assert!(!looks(false, LOOKS_MAX - 1));
        assert!(looks(false, 1));
        assert!(INTERVAL * LOOKS_MAX <= Duration::from_secs(1), "ends within about 2 s, closing included");
    }
}
