//! Two hundred queue pairs at once, all with mixed traffic.

use std::time::Duration;

use dataplane::sim::{Conversation, Setup, with_seeds};
use tcpstack::sim::{Chance, Faults};

fn setup(operations: usize, faults: Faults) -> Setup {
    Setup { pairs: 200, operations, len_max: 10_000, ..Setup::new(faults) }
}

#[test]
fn on_a_perfect_wire() {
    with_seeds(2, |seed| {
        Conversation::hold(seed, &setup(10, Faults::link(Duration::from_micros(5), 10_000_000_000)));
    });
}

#[test]
fn with_losses_and_a_short_queue() {
    with_seeds(1, |seed| {
        let faults = Faults {
            loss: Chance::percent(1),
            queue_limit: Some(200),
            ..Faults::link(Duration::from_micros(20), 1_000_000_000)
        };
        Conversation::hold(seed, &setup(4, faults));
    });
}
