//! Two whole endpoints over a wire that loses, reorders, duplicates and corrupts: memory is the same
//! on both sides in the end, each request completes once and in order, and no frame leaks.
//!
//! `IRONWARP_SEED=n` repeats one run; `IRONWARP_SEEDS=n` sets how many are run.

use std::time::Duration;

use dataplane::sim::{Conversation, Setup, with_seeds};
use iwarp::mpa::{Profile, Revision};
use tcpstack::sim::{BurstLoss, Chance, Faults};

fn link() -> Faults {
    Faults::link(Duration::from_micros(5), 10_000_000_000)
}

/// Both plans are carried out, checked, and the connection closed in order.
fn converse(seed: u64, faults: Faults, profile: &Profile, ipv6: bool, len_max: usize) {
    let setup = Setup { profile: profile.clone(), ipv6, len_max, ..Setup::new(faults) };
    Conversation::hold(seed, &setup);
}

#[test]
fn a_perfect_wire() {
    with_seeds(10, |seed| {
        converse(seed, link(), &Profile::default(), seed % 2 == 1, 100_000);
    });
}

// proves 5041-3-4, 5041-3-13
#[test]
fn loss_reordering_and_duplication_of_two_percent() {
    with_seeds(1000, |seed| {
        let faults = Faults {
            loss: Chance::percent(2),
            reorder: Chance::percent(2),
            reorder_delay: Duration::from_micros(200),
            duplicate: Chance::percent(2),
            ..link()
        };
        converse(seed, faults, &Profile::default(), seed % 2 == 1, 20_000);
    });
}

#[test]
fn bursts_tails_replays_and_a_middlebox() {
    with_seeds(100, |seed| {
        let faults = Faults {
            burst_loss: Some(BurstLoss { enter: Chance::ppm(3000), leave: Chance::percent(20) }),
            tail_loss: Chance::percent(5),
            replay: Chance::percent(2),
            resegment: Chance::percent(10),
            jitter: Duration::from_micros(20),
            ..link()
        };
        converse(seed, faults, &Profile::default(), false, 20_000);
    });
}

#[test]
fn corruption_that_the_tcp_checksum_finds() {
    with_seeds(50, |seed| {
        let faults = Faults { corrupt: Chance::percent(2), ..link() };
        converse(seed, faults, &Profile::default(), seed % 2 == 1, 20_000);
    });
}

#[test]
fn frames_and_rings_run_out() {
    with_seeds(50, |seed| {
        let faults = Faults {
            allocate_failure: Chance::percent(5),
            transmit_refusal: Chance::percent(10),
            loss: Chance::percent(1),
            ..link()
        };
        converse(seed, faults, &Profile::default(), false, 20_000);
    });
}

#[test]
fn every_kind_of_start_up() {
    with_seeds(8, |seed| {
        for revision in [Revision::V1, Revision::V2] {
            for peer_to_peer in [false, true] {
                let profile = Profile {
                    revision,
                    crc: seed % 2 == 0,
                    peer_to_peer: peer_to_peer && revision == Revision::V2,
                    ..Profile::default()
                };
                converse(seed, link(), &profile, false, 5_000);
            }
        }
    });
}

/// Bits turned under a TCP checksum made to fit: only the MPA CRC can find it, and then nothing of that
/// FPDU may be placed.
// proves 5044-6-1
#[test]
fn corruption_that_only_the_mpa_crc_finds() {
    with_seeds(100, |seed| {
        let faults = Faults { corrupt_repaired: Chance::ppm(20_000), ..link() };
        let setup = Setup::new(faults);
        let mut conversation = Conversation::new(seed, &setup);
        // Each side checks its memory once all is complete; otherwise the Stream ends with an error.
        conversation.settle(Duration::from_secs(120));
    });
}
