//! Two stacks over the simulated wire: every octet arrives once and in order, whatever the wire
//! does; nothing is sent beyond the window; every run ends; no frame leaks.

mod common;

use core::time::Duration;

use common::stream::Stream;
use common::{Version, World, config, sweep};
use tcpstack::config::StackConfig;
use tcpstack::sim::{BurstLoss, Chance, Faults, PortConfig};
use tcpstack::stack::{CloseReason, Events};

/// 100 us there, at 10 Gb/s.
fn link() -> Faults {
    Faults::link(Duration::from_micros(100), 10_000_000_000)
}

struct Plan {
    version: Version,
    octets: [u64; 2],
    ragged: bool,
    slow: bool,
    limit: Duration,
    /// Faults that begin when the connection is established.
    later: Option<Faults>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            version: Version::V4,
            octets: [200_000, 0],
            ragged: false,
            slow: false,
            limit: Duration::from_secs(600),
            later: None,
        }
    }
}

/// Runs streams to their ends on both sides; returns the time that it took.
fn transfer(world: &mut World, seed: u64, plan: &Plan) -> Duration {
    let (client, server) = world.establish(plan.version, 4791);
    if let Some(faults) = &plan.later {
        world.wire.set_faults(faults);
    }
    let mut streams =
        [Stream::new(client, 0, plan.octets[0], seed), Stream::new(server, 1, plan.octets[1], seed)];
    for stream in &mut streams {
        (stream.ragged, stream.slow) = (plan.ragged, plan.slow);
    }
    let start = world.now;
    let mut closed = [false; 2];
    let done = world.run(plan.limit, |world| {
        for (host, stream) in streams.iter_mut().enumerate() {
            let Host { device, stack, .. } = &mut world.hosts[host];
            stream.work(stack, device);
            closed[host] |= world.take_events(host, stream.id).contains(Events::CLOSED);
        }
        closed == [true; 2]
    });
    let states = [0, 1].map(|host| world.hosts[host].stack.info(streams[host].id));
    assert!(done, "not done: {} {} {states:#?}", streams[0].received, streams[1].received);
    let took = world.now - start;
    for (host, stream) in streams.iter_mut().enumerate() {
        // What came with the last turn.
        let Host { device, stack, .. } = &mut world.hosts[host];
        stream.slow = false;
        stream.work(stack, device);
        assert_eq!(world.reason(host, stream.id), CloseReason::Graceful);
        assert_eq!(stream.received, plan.octets[1 - host]);
        assert!(world.hosts[host].stack.all_acknowledged(stream.id));
        world.hosts[host].stack.release(stream.id);
    }
    took
}

use common::Host;

#[test]
fn bulk_one_way_over_a_clean_wire() {
    let mut world = World::new(1, link(), &config());
    let took = transfer(&mut world, 1, &Plan { octets: [10_000_000, 0], ..Plan::default() });
    // 8 ms at line rate, plus slow start; a stall would take a timeout at least.
    assert!(took < Duration::from_millis(30), "{took:?}");
    assert_eq!(world.hosts[0].stack.counters().retransmissions, 0);
    assert_eq!(world.hosts[0].stack.counters().timeouts, 0);
    world.assert_clean();
}

#[test]
fn bulk_both_ways_over_ipv6_with_offloads() {
    let ports = [PortConfig::new(0).offloads(), PortConfig::new(1).offloads()];
    let config = config();
    let mut world = World::with_ports(2, link(), [&config, &config], ports);
    let plan = Plan { version: Version::V6, octets: [3_000_000, 2_000_000], ..Plan::default() };
    transfer(&mut world, 2, &plan);
    assert_eq!(world.hosts[0].stack.counters().retransmissions, 0);
    world.assert_clean();
}

#[test]
fn jumbo_frames_to_a_host_without_them() {
    let config = config();
    let ports = [PortConfig::new(0).mtu(9000), PortConfig::new(1)];
    let mut world = World::with_ports(3, link(), [&config, &config], ports);
    transfer(&mut world, 3, &Plan { octets: [1_000_000, 1_000_000], ..Plan::default() });
    world.assert_clean();
}

fn bare() -> StackConfig {
    StackConfig { timestamps: false, sack: false, ..config() }
}

fn lossy(seed: u64, faults: Faults, config: &StackConfig, plan: &Plan) {
    let mut world = World::new(seed, faults, config);
    transfer(&mut world, seed, plan);
    world.wire.set_faults(&link());
    world.assert_clean();
}

#[test]
fn uniform_loss() {
    sweep("pair", "uniform_loss", 20, |seed| {
        let faults = Faults { loss: Chance::percent(3), ..link() };
        let plan = Plan { octets: [400_000, 100_000], ragged: seed % 2 == 0, ..Plan::default() };
        lossy(seed, faults.clone(), &config(), &plan);
        lossy(seed, faults, &bare(), &plan);
    });
}

#[test]
fn heavy_loss() {
    sweep("pair", "heavy_loss", 6, |seed| {
        // The handshake's few tries may all be lost, and without timestamps the back-off goes on
        // and on (Karn): so that is made short here.
        let later = Some(Faults { loss: Chance::percent(25), ..link() });
        let patient =
            |config| StackConfig { rto_max: Duration::from_secs(2), user_timeout: Duration::MAX, ..config };
        let plan = Plan { octets: [60_000, 60_000], later, ..Plan::default() };
        lossy(seed, link(), &patient(config()), &plan);
        lossy(seed, link(), &patient(bare()), &plan);
    });
}

#[test]
fn everything_at_once() {
    sweep("pair", "everything_at_once", 25, |seed| {
        let faults = Faults {
            jitter: Duration::from_micros(20),
            loss: Chance::percent(1),
            burst_loss: (seed % 3 == 0)
                .then_some(BurstLoss { enter: Chance::ppm(3000), leave: Chance::percent(20) }),
            tail_loss: Chance::percent(1),
            reorder: Chance::percent(3),
            reorder_delay: Duration::from_micros(300),
            duplicate: Chance::percent(1),
            replay: Chance::percent(1),
            resegment: Chance::percent(2),
            allocate_failure: Chance::percent(1),
            transmit_refusal: Chance::percent(5),
            queue_limit: (seed % 4 == 0).then_some(40),
            ..link()
        };
        let plan = Plan {
            version: if seed % 2 == 0 { Version::V4 } else { Version::V6 },
            octets: [200_000, 200_000],
            ragged: seed % 3 != 0,
            slow: seed % 5 == 0,
            ..Plan::default()
        };
        let config = StackConfig {
            receive_window: if seed % 7 == 0 { 8000 } else { 1 << 20 },
            timestamps: seed % 2 == 0,
            sack: seed % 4 < 3,
            ..config()
        };
        lossy(seed, faults, &config, &plan);
    });
}

#[test]
fn corruption_is_found_by_the_checksum() {
    sweep("pair", "corruption_is_found_by_the_checksum", 10, |seed| {
        // ARP has no checksum: what is corrupted there is Ethernet's to find, which is not simulated.
        let later = Some(Faults { corrupt: Chance::percent(2), ..link() });
        lossy(seed, link(), &config(), &Plan { octets: [200_000, 100_000], later, ..Plan::default() });
    });
}

#[test]
fn a_slow_reader_closes_and_opens_the_window() {
    sweep("pair", "a_slow_reader_closes_and_opens_the_window", 10, |seed| {
        let config = StackConfig { receive_window: 20_000, ..config() };
        let mut world = World::new(seed, link(), &config);
        let plan = Plan { octets: [500_000, 100_000], slow: true, ragged: seed % 2 == 0, ..Plan::default() };
        transfer(&mut world, seed, &plan);
        world.assert_clean();
    });
}

#[test]
fn a_window_smaller_than_two_segments() {
    for window in [200, 1000, 1460, 2000] {
        let small = StackConfig { receive_window: window, ..config() };
        let config = config();
        let ports = [PortConfig::new(0), PortConfig::new(1)];
        let mut world = World::with_ports(5, link(), [&config, &small], ports);
        transfer(&mut world, 5, &Plan { octets: [50_000, 50_000], ..Plan::default() });
        world.assert_clean();
    }
}

#[test]
fn outages_end_and_the_transfer_goes_on() {
    let outages =
        tcpstack::sim::Outages { every: Duration::from_secs(1), lasting: Duration::from_millis(300) };
    let faults = Faults { outages: Some(outages), ..Faults::link(Duration::from_micros(100), 10_000_000) };
    lossy(6, faults, &config(), &Plan { octets: [3_000_000, 0], ..Plan::default() });
}

#[test]
fn a_tiny_transmit_ring_and_pool() {
    let config = config();
    let mut tight = PortConfig::new(0);
    tight.transmit_ring = 4;
    tight.data_frames = 24;
    tight.control_frames = 4;
    let mut world = World::with_ports(7, link(), [&config, &config], [tight, PortConfig::new(1)]);
    transfer(&mut world, 7, &Plan { octets: [500_000, 500_000], ..Plan::default() });
    world.assert_clean();
}
