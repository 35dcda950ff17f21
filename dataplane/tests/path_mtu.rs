//! A router takes only shorter frames than the link, and reports the others by ICMP: FPDUs are cut
//! shorter, and what was already built arrives too.

use std::time::Duration;

use dataplane::sim::{Conversation, Setup, with_seeds};
use tcpstack::sim::{Chance, Faults};

fn link() -> Faults {
    Faults::link(Duration::from_micros(5), 1_000_000_000)
}

/// The same with room for packets of `mtu` octets only.
fn narrow(mtu: u64) -> Faults {
    let frame_len_max = Some(14 + usize::try_from(mtu).unwrap());
    Faults { frame_len_max, report_too_long: true, ..link() }
}

/// A path MTU by seed, as low as the IP version allows to be told.
fn mtu(seed: u64, ipv6: bool) -> u64 {
    let lowest = if ipv6 { 1280 } else { 576 };
    lowest + seed.wrapping_mul(7919) % (1500 - lowest)
}

#[test]
fn a_path_that_is_narrow_from_the_begin() {
    with_seeds(40, |seed| {
        let ipv6 = seed % 2 == 1;
        Conversation::hold(seed, &Setup { ipv6, ..Setup::new(narrow(mtu(seed, ipv6))) });
    });
}

// proves 5041-3-2, 5041-3-3
#[test]
fn a_path_that_becomes_narrow_under_way() {
    with_seeds(60, |seed| {
        let ipv6 = seed % 2 == 1;
        let mut conversation = Conversation::new(seed, &Setup { ipv6, ..Setup::new(link()) });
        conversation.world.pass(Duration::from_micros(seed.wrapping_mul(131) % 2000));
        conversation.world.wire().set_faults(&narrow(mtu(seed, ipv6)));
        conversation.complete(Duration::from_secs(10));
        conversation.finish(&link());
    });
}

#[test]
fn a_narrow_path_with_losses() {
    with_seeds(40, |seed| {
        let faults = Faults { loss: Chance::percent(2), ..narrow(mtu(seed, false)) };
        Conversation::hold(seed, &Setup::new(faults));
    });
}
