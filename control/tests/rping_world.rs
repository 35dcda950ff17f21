//! rping between two complete workers on a simulated wire, good and bad.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use control::services::rping::client::{ClientConfig, ClientError, Report, RpingClient};
use control::services::rping::server::{RpingServer, ServerConfig, ServerCounters};
use control::services::{Service, ServiceState, Supervision};
use dataplane::sim::World;
use dataplane::verbs::{Application, Verbs};
use dataplane::worker::WorkerConfig;
use iwarp::mpa::{Profile, Revision};
use tcpstack::sim::{Chance, Faults};

/// A client on a worker, whose outcome the test sees.
#[derive(Clone)]
struct Observed(Arc<Mutex<RpingClient>>);

impl Application for Observed {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        self.0.lock().unwrap().poll(verbs)
    }
}

impl Observed {
    fn outcome(&self) -> Option<Result<Report, ClientError>> {
        self.0.lock().unwrap().outcome()
    }
}

const PORT: u16 = 7174;

fn serve(world: &mut World, profile: Profile) -> (Arc<Supervision>, Arc<ServerCounters>) {
    let local = SocketAddr::new("::".parse().unwrap(), PORT);
    let server = RpingServer::new(ServerConfig { local, profile, max_connections: 64 });
    let shared = (server.supervision(), server.counters());
    world.host(0).attach(Box::new(server));
    shared
}

fn ask(world: &mut World, config: ClientConfig) -> Observed {
    let client =
        RpingClient::new(config, Box::new(|round| assert!(round.text().starts_with("rdma-ping-")))).unwrap();
    let observed = Observed(Arc::new(Mutex::new(client)));
    world.host(1).attach(Box::new(observed.clone()));
    observed
}

/// The simulation only waits for what its hosts wait for, so the client must not wait on its own.
fn config(ipv6: bool, size: u32, count: u64) -> ClientConfig {
    let ip = if ipv6 { World::ipv6(0) } else { World::ipv4(0) };
    ClientConfig {
        size,
        count,
        first_fpdu_delay: Duration::ZERO,
        timeout: Duration::from_secs(3600),
        ..ClientConfig::new(SocketAddr::new(ip, PORT))
    }
}

fn counter(counters: &ServerCounters, name: &str) -> u64 {
    counters.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn sizes_and_profiles() {
    for (seed, ipv6) in [(1, false), (2, true)] {
        for size in [26, 64, 1460, 4000, 65_000, 65_536] {
            for profile in [
                Profile::default(),
                Profile { crc: false, ..Profile::default() },
                Profile { markers: true, ..Profile::default() },
                Profile { peer_to_peer: true, ..Profile::default() },
                Profile { ird: 1, ord: 1, ..Profile::default() },
            ] {
                let mut world = World::new(seed, Faults::default(), &WorkerConfig::default());
                let (_, counters) = serve(&mut world, profile.clone());
                let client =
                    ask(&mut world, ClientConfig { profile: profile.clone(), ..config(ipv6, size, 5) });
                let ended = world.run(Duration::from_secs(10), || client.outcome().is_some());
                ended.unwrap_or_else(|stalled| panic!("{size} octets, {profile:?}: {stalled:?}"));
                let report = client.outcome().unwrap().unwrap();
                assert_eq!(report.rounds, 5);
                assert_eq!(report.negotiated.crc, profile.crc);
                assert_eq!(counter(&counters, "rounds"), 5);
                assert_eq!(counter(&counters, "protocol_violations"), 0);
            }
        }
    }
}

#[test]
fn revision_one() {
    // It negotiates no IRD and ORD: both are what each side is set to.
    let profile = Profile { revision: Revision::V1, ..Profile::default() };
    let mut world = World::new(3, Faults::default(), &WorkerConfig::default());
    serve(&mut world, Profile::default());
    let client = ask(&mut world, ClientConfig { profile, ..config(false, 4000, 5) });
    world.run(Duration::from_secs(10), || client.outcome().is_some()).unwrap();
    assert_eq!(client.outcome().unwrap().unwrap().negotiated.revision, 1);
}

#[test]
fn many_clients_at_once() {
    let mut world = World::new(4, Faults::default(), &WorkerConfig::default());
    let (_, counters) = serve(&mut world, Profile::default());
    let clients: Vec<_> =
        (0..40).map(|index| ask(&mut world, config(index % 2 == 0, 100 + 1000 * index, 3))).collect();
    let done = || clients.iter().all(|client| client.outcome().is_some());
    world.run(Duration::from_secs(30), done).unwrap();
    assert!(clients.iter().all(|client| client.outcome().unwrap().is_ok()));
    world.pass(Duration::from_secs(1));
    assert_eq!(counter(&counters, "rounds"), 120);
    assert_eq!(counter(&counters, "connections_active"), 0);
}

#[test]
fn a_lossy_wire_only_delays() {
    for seed in 0..20 {
        let faults = Faults {
            loss: Chance::percent(2),
            duplicate: Chance::percent(2),
            reorder: Chance::percent(2),
            reorder_delay: Duration::from_micros(50),
            resegment: Chance::percent(10),
            ..Faults::link(Duration::from_micros(10), 10_000_000_000)
        };
        let mut world = World::new(seed, faults, &WorkerConfig::default());
        let (_, counters) = serve(&mut world, Profile::default());
        let client = ask(&mut world, config(seed % 2 == 0, 20_000, 10));
        let ended = world.run(Duration::from_secs(300), || client.outcome().is_some());
        ended.unwrap_or_else(|stalled| panic!("seed {seed}: {stalled:?}"));
        client.outcome().unwrap().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(counter(&counters, "rounds"), 10, "seed {seed}");
    }
}

#[test]
fn a_stopped_server_lets_its_clients_go() {
    let mut world = World::new(5, Faults::default(), &WorkerConfig::default());
    let (supervision, counters) = serve(&mut world, Profile::default());
    let client = ask(&mut world, config(false, 4000, u64::MAX));
    world.pass(Duration::from_millis(100));
    assert!(counter(&counters, "rounds") > 100);
    supervision.stop();
    world.run(Duration::from_secs(10), || client.outcome().is_some()).unwrap();
    assert!(matches!(client.outcome(), Some(Err(ClientError::Disconnected { .. }))));
    world.pass(Duration::from_secs(1));
    assert_eq!(supervision.state(), ServiceState::Stopped);
    assert_eq!(counter(&counters, "connections_active"), 0);
}
