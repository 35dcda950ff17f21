//! Two hosts on a simulated wire, driven by a plain loop on a virtual clock.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses a part of it")]

pub mod bench;
pub mod hostile;
pub mod path;
pub mod stream;
pub mod tap;
pub mod trace;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use tap::Tap;
use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device};
use tcpstack::sim::{Faults, PortConfig, Wire};
use tcpstack::stack::{CloseReason, ConnectionId, Events, Stack};
use tcpstack::time::Instant;

/// A host: its end of the wire, its stack, and the events it reported, by connection.
pub struct Host {
    pub device: Tap,
    pub stack: Stack<Tap>,
    pub events: Vec<(ConnectionId, Events)>,
}

/// Two hosts and the wire between them.
pub struct World {
    pub wire: Wire,
    pub hosts: [Host; 2],
    pub now: Instant,
}

/// IP version of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V4,
    V6,
}

/// The address of a host.
pub fn ip(version: Version, host: usize) -> IpAddr {
    match (version, host) {
        (Version::V4, host) => [192, 0, 2, u8::try_from(host).unwrap() + 1].into(),
        (Version::V6, host) => [0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::try_from(host).unwrap() + 1].into(),
    }
}

/// A socket of a host.
pub fn socket(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new(ip(Version::V4, host), port)
}

/// A config for tests: everything may happen soon.
pub fn config() -> StackConfig {
    StackConfig { rto_initial: Duration::from_millis(100), ..StackConfig::default() }
}

impl World {
    /// Two hosts with default ports.
    pub fn new(seed: u64, faults: Faults, config: &StackConfig) -> Self {
        Self::with_ports(seed, faults, [config, config], [PortConfig::new(0), PortConfig::new(1)])
    }

    pub fn with_ports(seed: u64, faults: Faults, configs: [&StackConfig; 2], ports: [PortConfig; 2]) -> Self {
        Self::on(Wire::new(seed, faults), seed, configs, ports)
    }

    /// On a wire that has no ports yet; `seed` is the stacks'.
    pub fn on(wire: Wire, seed: u64, configs: [&StackConfig; 2], ports: [PortConfig; 2]) -> Self {
        let mut number = 0;
        let hosts = ports.map(|port| {
            let device = Tap::new(wire.add_port(port));
            let mut stack_seed = [0; 32];
            stack_seed[..8].copy_from_slice(&seed.to_le_bytes());
            stack_seed[8] = u8::try_from(number).unwrap();
            let capabilities = device.capabilities().clone();
            let mut stack = Stack::new(configs[number].clone(), &capabilities, stack_seed);
            let interface = stack.interface_mut();
            interface.add_address(IpCidr::new(ip(Version::V4, number), 24).unwrap()).unwrap();
            interface.add_address(IpCidr::new(ip(Version::V6, number), 64).unwrap()).unwrap();
            number += 1;
            Host { device, stack, events: Vec::new() }
        });
        let mut world = Self { wire, hosts, now: Instant::ZERO };
        // Past the announcements of the addresses.
        world.run_for(Duration::from_secs(2));
        world
    }

    /// Lets both hosts work at the current time.
    pub fn turn(&mut self) {
        self.wire.advance(self.now);
        for host in &mut self.hosts {
            let mut burst = Burst::new();
            loop {
                host.device.receive_burst(&mut burst);
                if burst.is_empty() {
                    break;
                }
                for frame in burst.drain(..) {
                    host.stack.receive(frame, &mut host.device, self.now);
                }
            }
            while let Some(event) = host.stack.next_event() {
                host.events.push(event);
            }
            host.stack.transmit(&mut host.device, self.now);
        }
    }

    /// Jumps to the next time at which something can happen, but not beyond `limit`.
    pub fn jump(&mut self, limit: Instant) {
        let next = self.hosts.iter().filter_map(|host| host.stack.poll_at(self.now));
        let next = next.chain(self.wire.next_delivery()).min().unwrap_or(limit);
        // What is due now was just looked at: it waits for the wire or a little time.
        self.now = next.max(self.now + Duration::from_micros(1)).min(limit);
    }

    /// Runs for a time, with the given work each turn.
    pub fn run(&mut self, span: Duration, mut work: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now + span;
        loop {
            self.turn();
            if work(self) {
                return true;
            }
            // What the work asked for goes out now.
            for host in &mut self.hosts {
                host.stack.transmit(&mut host.device, self.now);
            }
            if self.now >= limit {
                return false;
            }
            self.jump(limit);
        }
    }

    /// Runs for a time.
    pub fn run_for(&mut self, span: Duration) {
        self.run(span, |_| false);
    }

    /// The events of a connection so far, as one set; they are taken.
    pub fn take_events(&mut self, host: usize, id: ConnectionId) -> Events {
        let mut all = Events::NONE;
        self.hosts[host].events.retain(|&(of, events)| {
            if of == id {
                all.insert(events);
            }
            of != id
        });
        all
    }

    /// Host 0 connects to host 1, which listens on `port`; both ids.
    pub fn establish(&mut self, version: Version, port: u16) -> (ConnectionId, ConnectionId) {
        let remote = SocketAddr::new(ip(version, 1), port);
        let listener = self.hosts[1].stack.listen(remote, 16).unwrap();
        let client = self.hosts[0].stack.connect(remote, None, self.now).unwrap();
        let mut server = None;
        let done = self.run(Duration::from_secs(60), |world| {
            server = server.or(world.hosts[1]
                .events
                .iter()
                .find(|(id, _)| world.hosts[1].stack.listener_of(*id) == Some(listener))
                .map(|&(id, _)| id));
            server.is_some()
                && world.hosts[0]
                    .events
                    .iter()
                    .any(|(id, events)| *id == client && events.contains(Events::CONNECTED))
        });
        assert!(done, "no connection within a minute");
        let server = server.unwrap();
        assert_eq!(self.hosts[1].stack.listener_of(server), Some(listener));
        assert_eq!(self.hosts[0].stack.listener_of(client), None);
        self.hosts[1].stack.unlisten(listener);
        (client, server)
    }

    pub fn reason(&self, host: usize, id: ConnectionId) -> CloseReason {
        self.hosts[host].stack.close_reason(id)
    }

    /// Nothing is left anywhere: neither frames nor connections.
    pub fn assert_clean(&mut self) {
        self.run_for(Duration::from_secs(120));
        for host in &self.hosts {
            assert_eq!(host.stack.connections().count(), 0, "a connection is left");
            assert_eq!(host.stack.half_open_len(), 0, "a half-open connection is left");
            assert_eq!(host.stack.time_wait_len(), 0, "a TIME-WAIT is left");
            assert_eq!(host.stack.early_frames(), 0, "an early frame is left");
        }
        assert_eq!(self.wire.underway(), 0);
        assert_eq!(self.wire.outstanding(), 0, "a frame has leaked");
    }
}

/// The seeds of a sweep: one given by the environment, or all of `0..count`.
pub fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("TCP_SEED") {
        Ok(seed) => vec![seed.parse().expect("TCP_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Runs `test` for each seed; a failure names its seed and how to repeat it.
pub fn sweep(binary: &str, name: &str, count: u64, test: impl Fn(u64)) {
    for seed in seeds(count) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(seed)));
        if let Err(cause) = result {
            eprintln!(
                "seed {seed} fails; repeat with: TCP_SEED={seed} cargo test -p tcpstack --test {binary} {name}"
            );
            std::panic::resume_unwind(cause);
        }
    }
}
