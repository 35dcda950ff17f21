//! Two whole endpoints over a wire that loses, reorders, duplicates and corrupts: memory is the same
//! on both sides in the end, each request completes once and in order, and no frame leaks.
//!
//! `IRONWARP_SEED=n` repeats one run; `IRONWARP_SEEDS=n` sets how many are run.

use std::net::SocketAddr;
use std::time::Duration;

use dataplane::sim::{End, Plan, Traffic, World};
use dataplane::verbs::DisconnectReason;
use dataplane::worker::WorkerConfig;
use iwarp::mpa::Profile;
use tcpstack::sim::{BurstLoss, Chance, Faults};

const PORT: u16 = 4791;

/// Runs `scenario` with many seeds; a failure names the seed and how to repeat it.
fn with_seeds(name: &str, count_default: u64, scenario: impl Fn(u64)) {
    let number = |variable| std::env::var(variable).ok().and_then(|it| it.parse::<u64>().ok());
    let seeds = match number("IRONWARP_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("IRONWARP_SEEDS").unwrap_or(count_default),
    };
    for seed in seeds {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scenario(seed)));
        if let Err(panic) = run {
            eprintln!(
                "seed {seed} failed; repeat it with:\n  \
                 IRONWARP_SEED={seed} cargo test -p dataplane --test faulty_wire {name}"
            );
            std::panic::resume_unwind(panic);
        }
    }
}

fn link() -> Faults {
    Faults::link(Duration::from_micros(5), 10_000_000_000)
}

/// Both plans are carried out, checked, and the connection closed in order.
fn converse(seed: u64, faults: Faults, profile: &Profile, ipv6: bool, len_max: usize) {
    let mut world = World::new(seed, faults, &WorkerConfig::default());
    let plans = [Plan::new(seed, 40, len_max), Plan::new(!seed, 40, len_max)];
    let address = if ipv6 { World::ipv6(1) } else { World::ipv4(1) };
    let remote = SocketAddr::new(address, PORT);
    let (server, served) = Traffic::new(
        End::Listen(SocketAddr::new(address, PORT)),
        profile.clone(),
        plans[1].clone(),
        plans[0].clone(),
    );
    world.host(1).attach(Box::new(server));
    world.run(Duration::from_secs(1), || served.lock().unwrap().listening).expect("a listener");

    let (client, connected) =
        Traffic::new(End::Connect(remote), profile.clone(), plans[0].clone(), plans[1].clone());
    world.host(0).attach(Box::new(client));
    let both = || {
        let (client, server) = (connected.lock().unwrap(), served.lock().unwrap());
        assert_eq!((client.failures, server.failures), (0, 0), "{client:?} {server:?}");
        assert_eq!((client.ended, server.ended), (None, None));
        client.complete && server.complete
    };
    let result = world.run(Duration::from_secs(120), both);
    assert!(result.is_ok(), "stalled: {:?} {:?}", connected.lock().unwrap(), served.lock().unwrap());

    connected.lock().unwrap().finish = true;
    let ended = || connected.lock().unwrap().ended.is_some() && served.lock().unwrap().ended.is_some();
    assert!(world.run(Duration::from_secs(60), ended).is_ok(), "both ends see the end");
    assert_eq!(connected.lock().unwrap().ended, Some(DisconnectReason::Local));
    assert_eq!(served.lock().unwrap().ended, Some(DisconnectReason::Peer));

    world.wire().set_faults(&link());
    world.pass(Duration::from_secs(300));
    assert_eq!(world.host(0).connection_count(), 0);
    assert_eq!(world.host(1).connection_count(), 0);
    assert_eq!(world.wire().outstanding(), 0, "no frame is left anywhere");
}

#[test]
fn a_perfect_wire() {
    with_seeds("a_perfect_wire", 10, |seed| {
        converse(seed, link(), &Profile::default(), seed % 2 == 1, 100_000);
    });
}

#[test]
fn loss_reordering_and_duplication_of_two_percent() {
    with_seeds("loss_reordering_and_duplication_of_two_percent", 1000, |seed| {
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
    with_seeds("bursts_tails_replays_and_a_middlebox", 100, |seed| {
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
    with_seeds("corruption_that_the_tcp_checksum_finds", 50, |seed| {
        let faults = Faults { corrupt: Chance::percent(2), ..link() };
        converse(seed, faults, &Profile::default(), seed % 2 == 1, 20_000);
    });
}

#[test]
fn frames_and_rings_run_out() {
    with_seeds("frames_and_rings_run_out", 50, |seed| {
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
    use iwarp::mpa::Revision;
    with_seeds("every_kind_of_start_up", 8, |seed| {
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
    with_seeds("corruption_that_only_the_mpa_crc_finds", 100, |seed| {
        let faults = Faults { corrupt_repaired: Chance::ppm(20_000), ..link() };
        let mut world = World::new(seed, faults, &WorkerConfig::default());
        let plans = [Plan::new(seed, 40, 20_000), Plan::new(!seed, 40, 20_000)];
        let remote = SocketAddr::new(World::ipv4(1), PORT);
        let profile = Profile::default();
        let (server, served) =
            Traffic::new(End::Listen(remote), profile.clone(), plans[1].clone(), plans[0].clone());
        world.host(1).attach(Box::new(server));
        world.run(Duration::from_secs(1), || served.lock().unwrap().listening).expect("a listener");
        let (client, connected) =
            Traffic::new(End::Connect(remote), profile, plans[0].clone(), plans[1].clone());
        world.host(0).attach(Box::new(client));
        // Traffic checks its memory once all is complete; otherwise the Stream ends with an error.
        let settled = || {
            let (client, server) = (connected.lock().unwrap(), served.lock().unwrap());
            let over = client.ended.is_some() || client.connect_error.is_some();
            over || (client.complete && server.complete)
        };
        assert!(world.run(Duration::from_secs(120), settled).is_ok(), "it comes to an end");
    });
}
