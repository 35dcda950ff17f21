//! Workers on a simulated wire.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tcpstack::addr::IpCidr;
use tcpstack::sim::{Faults, SimDevice, Wire};
use tcpstack::time::Instant;

use super::seeds;
use crate::worker::{Clock, Worker, WorkerConfig};

/// A worker of a simulation.
pub type Host = Worker<SimDevice>;

/// Something else that has turns: an application behind rings, a strange host on the wire.
pub trait Actor {
    /// Does what there is to do at `now`; true when there was something. `stirred` says whether a
    /// worker did something in this turn.
    fn turn(&mut self, now: Instant, stirred: bool) -> bool;

    /// When it has something to do again at the latest, if nothing happens before.
    fn poll_at(&self) -> Option<Instant>;
}

/// Two workers, their wire, and the time.
///
/// Captures what both ports send and receive; a World that is dropped by a panic writes that to
/// the directory for temporary files.
pub struct World {
    wire: Wire,
    hosts: [Host; 2],
    actors: Vec<Box<dyn Actor>>,
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

/// Turns of [`World::poll_idly`]: beyond what workers count for their housekeeping.
const IDLE_POLLS: usize = 300;

/// Turns in five minutes without traffic: the ageing of neighbours and the like.
const IDLE_TURNS_MAX: u64 = 500;

impl World {
    /// Two hosts, 10.0.0.1 and 10.0.0.2 (fd00::1 and fd00::2), joined by a wire with `faults` both ways.
    pub fn new(seed: u64, faults: Faults, config: &WorkerConfig) -> Self {
        let wire = Wire::new(seed, faults);
        let hosts = [0, 1].map(|index| {
            let mut worker_seed = [0; 32];
            worker_seed[..8].copy_from_slice(&seed.to_be_bytes());
            worker_seed[8] = u8::try_from(index).expect("two hosts");
            let mut host = Worker::new(wire.port(index), config, worker_seed);
            wire.start_capture(index);
            for (addr, prefix) in [(Self::ipv4(index), 24), (Self::ipv6(index), 64)] {
                let cidr = IpCidr::new(addr, prefix).expect("a valid prefix");
                host.stack_mut().interface_mut().add_address(cidr).expect("an address of its own");
            }
            host
        });
        Self { wire, hosts, actors: Vec::new(), now: Instant::ZERO }
    }

    /// The IPv4 address of host `index`; 2 and up are free for others on the wire.
    pub fn ipv4(index: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + u8::try_from(index).expect("few hosts")))
    }

    /// The IPv6 address of host `index`.
    pub fn ipv6(index: usize) -> IpAddr {
        let last = 1 + u16::try_from(index).expect("few hosts");
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

    /// Lets something else have turns too.
    pub fn add_actor(&mut self, actor: Box<dyn Actor>) {
        self.actors.push(actor);
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
            let busy = self.turn();
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
        let end = self.now + span;
        let _ = self.run(span, || false);
        self.now = self.now.max(end);
    }

    /// Takes turns as a busy-polling loop does that finds nothing: for what workers do only every so
    /// many of them.
    pub fn poll_idly(&mut self) {
        for _ in 0..IDLE_POLLS {
            self.turn();
            self.now += TICK;
        }
    }

    /// Shuts a host's worker down, while the other and the wire go on.
    pub fn shut_down(&mut self, index: usize) {
        let [first, second] = &mut self.hosts;
        let (host, other) = if index == 0 { (first, second) } else { (second, first) };
        let clock = Running { wire: &self.wire, other: RefCell::new(other), now: Cell::new(self.now) };
        host.shut_down(&clock);
        self.now = clock.now.get();
    }

    /// Asserts that nothing is left once timers had the time to run off: no connection, no frame,
    /// and next to nothing to do.
    ///
    /// # Panics
    /// When something is left.
    pub fn assert_nothing_left(&mut self) {
        // Beyond the lifetime of TIME-WAIT and every time limit of a worker.
        self.pass(Duration::from_secs(300));
        let counts = [0, 1].map(|index| self.hosts[index].connection_count());
        assert_eq!(counts, [0, 0], "connections are left");
        let tcp = [0, 1].map(|index| self.hosts[index].stack().connections().count());
        assert_eq!(tcp, [0, 0], "TCP connections are left");
        assert_eq!(self.wire.outstanding(), 0, "frames are left");
        let turns = [0, 1].map(|index| self.hosts[index].counters().turns);
        self.pass(Duration::from_secs(300));
        for (host, before) in self.hosts.iter().zip(turns) {
            let turns = host.counters().turns - before;
            assert!(turns <= IDLE_TURNS_MAX, "{turns} turns in five minutes without traffic");
        }
    }

    /// One turn of everything. True when there was something to do.
    fn turn(&mut self) -> bool {
        self.wire.advance(self.now);
        let mut busy = false;
        for host in &mut self.hosts {
            busy |= host.turn(self.now);
        }
        let stirred = busy;
        for actor in &mut self.actors {
            busy |= actor.turn(self.now, stirred);
        }
        busy
    }

    fn next_event(&self) -> Option<Instant> {
        let hosts = self.hosts.iter().filter_map(Worker::poll_at);
        let actors = self.actors.iter().filter_map(|actor| actor.poll_at());
        hosts.chain(actors).chain(self.wire.next_delivery()).min()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            seeds::save_captures(&self.wire, self.hosts.len());
        }
    }
}

/// A clock that moves the rest of the world whenever it is read.
struct Running<'a> {
    wire: &'a Wire,
    other: RefCell<&'a mut Host>,
    now: Cell<Instant>,
}

impl Clock for Running<'_> {
    fn now(&self) -> Instant {
        let now = self.now.get() + Duration::from_micros(1);
        self.now.set(now);
        self.wire.advance(now);
        self.other.borrow_mut().turn(now);
        now
    }
}
