//! Workers on a simulated wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tcpstack::addr::IpCidr;
use tcpstack::sim::{Faults, SimDevice, Wire};
use tcpstack::time::Instant;

use crate::worker::{Worker, WorkerConfig};

/// A worker of a simulation.
pub type Host = Worker<SimDevice>;

/// Two workers, their wire, and the time.
pub struct World {
    wire: Wire,
    hosts: [Host; 2],
    now: Instant,
}

/// Nothing was left to happen, or the time was up, before what was waited for came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// When.
    pub at: Instant,
}

/// Shortest step of the clock, so that turns at one instant come to an end.
const TICK: Duration = Duration::from_nanos(100);

impl World {
    /// Two hosts, 10.0.0.1 and 10.0.0.2 (fd00::1 and fd00::2), joined by a wire with `faults` both ways.
    pub fn new(seed: u64, faults: Faults, config: &WorkerConfig) -> Self {
        let wire = Wire::new(seed, faults);
        let hosts = [0, 1].map(|index| {
            let mut worker_seed = [0; 32];
            worker_seed[..8].copy_from_slice(&seed.to_be_bytes());
            worker_seed[8] = u8::try_from(index).expect("two hosts");
            let mut host = Worker::new(wire.port(index), config, worker_seed);
            for (addr, prefix) in [(Self::ipv4(index), 24), (Self::ipv6(index), 64)] {
                let cidr = IpCidr::new(addr, prefix).expect("a valid prefix");
                host.stack_mut().interface_mut().add_address(cidr).expect("an address of its own");
            }
            host
        });
        Self { wire, hosts, now: Instant::ZERO }
    }

    /// The IPv4 address of host `index`.
    pub fn ipv4(index: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + u8::try_from(index).expect("two hosts")))
    }

    /// The IPv6 address of host `index`.
    pub fn ipv6(index: usize) -> IpAddr {
        let last = 1 + u16::try_from(index).expect("two hosts");
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last))
    }

    /// The wire, to change its faults or look at it.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// A host.
    pub fn host(&mut self, index: usize) -> &mut Host {
        &mut self.hosts[index]
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Runs until `done` or until `span` has passed.
    ///
    /// # Errors
    /// When `done` did not come true.
    pub fn run(&mut self, span: Duration, mut done: impl FnMut() -> bool) -> Result<(), Stalled> {
        let end = self.now + span;
        loop {
            self.wire.advance(self.now);
            let mut busy = false;
            for host in &mut self.hosts {
                busy |= host.turn(self.now);
            }
            if done() {
                return Ok(());
            }
            // Work is done a tick later, so that a turn that finds some always ends.
            let next = if busy { Some(self.now + TICK) } else { self.next_event() };
            match next {
                Some(next) if next <= end => self.now = next.max(self.now + TICK),
                _ => return Err(Stalled { at: self.now }),
            }
        }
    }

    /// Runs for `span`, whatever happens.
    pub fn pass(&mut self, span: Duration) {
        let _ = self.run(span, || false);
        self.now = self.now.max(self.wire.now());
    }

    fn next_event(&self) -> Option<Instant> {
        let hosts = self.hosts.iter().filter_map(Worker::poll_at);
        hosts.chain(self.wire.next_delivery()).min()
    }
}
