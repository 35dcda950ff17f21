//! The wire swallows everything for up to a second: traffic goes on where it was, soon after.

use std::time::Duration;

use dataplane::sim::{Conversation, Setup, with_seeds};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcpstack::sim::{Faults, Outages};

/// Slow enough that the traffic takes some 100 ms.
fn link() -> Faults {
    Faults::link(Duration::from_micros(50), 20_000_000)
}

/// A number in `range`.
fn within(random: &mut ChaCha8Rng, range: std::ops::Range<u64>) -> u64 {
    range.start + random.next_u64() % (range.end - range.start)
}

/// Cuts the directions that `ports` send in once, and joins them again.
fn interrupted(seed: u64, ports: &[usize]) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let setup = Setup { ipv6: seed % 2 == 1, ..Setup::new(link()) };
    let mut conversation = Conversation::new(seed, &setup);
    conversation.world.pass(Duration::from_micros(within(&mut random, 0..60_000)));
    for &port in ports {
        conversation.world.wire().set_link(port, false);
    }
    conversation.world.pass(Duration::from_millis(within(&mut random, 1..1000)));
    for &port in ports {
        conversation.world.wire().set_link(port, true);
    }
    // Timeouts double: the next attempt comes after as long as the silence was.
    conversation.complete(Duration::from_secs(5));
    conversation.finish(&link());
}

#[test]
fn a_black_hole_both_ways() {
    with_seeds(60, |seed| interrupted(seed, &[0, 1]));
}

#[test]
fn a_black_hole_one_way() {
    with_seeds(60, |seed| interrupted(seed, &[usize::try_from(seed % 3 / 2).unwrap()]));
}

#[test]
fn one_outage_after_the_other() {
    with_seeds(30, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let lasting = Duration::from_millis(within(&mut random, 1..300));
        let good = Duration::from_millis(within(&mut random, 50..300));
        let outages = Some(Outages { every: good + lasting, lasting });
        let mut setup = Setup::new(Faults { outages, ..link() });
        // Attempts that become rarer and rarer could all fall into outages.
        setup.config.stack.rto_max = Duration::from_secs(1);
        let mut conversation = Conversation::new(seed, &setup);
        conversation.complete(Duration::from_secs(120));
        // A connection that cannot be closed in time is reset, and that reset could be lost.
        conversation.world.wire().set_faults(&link());
        conversation.finish(&link());
    });
}
