//! The worker: one poll loop on one core, with its own queue, connections, timers and memory table.
//!
//! A turn takes a burst from the port, feeds the Streams, takes what applications ask, builds FPDUs
//! while windows let them go, and sends. Nothing in it blocks, locks or allocates once traffic
//! is steady.

mod clients;
mod connection;
mod counters;
mod engine;
mod handle;
mod pair;
mod requests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iwarp::mpa::Profile;
use tcpstack::config::StackConfig;
use tcpstack::device::Device;
use tcpstack::stack::Stack;
use tcpstack::time::Instant;

pub use counters::WorkerCounters;
pub use handle::{ConnectionSummary, ListenerSummary, Query, QueryError, Reply, WorkerHandle};

use crate::mem::Registry;
use crate::rings::Client;
use crate::verbs::{Application, DisconnectReason};
use clients::ClientId;
use engine::Engine;
use handle::QueryEnd;
use requests::Direct;

/// What a worker does when a turn found nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls on: lowest latency, one core at full load.
    #[default]
    Busy,
    /// Gives the core to other threads, and after a while naps for some microseconds. For hosts
    /// with few cores; costs latency.
    Yield,
}

/// Bounds of a worker.
// req 5041-8.3.2-3, 5042-3-2, 5042-6.4.1-1
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections, in whatever phase. Default 16,384.
    pub connections_max: usize,
    /// Most registrations, a power of two. Default 16,384.
    pub registrations_max: usize,
    /// Time for MPA start-up, from TCP's handshake to the Reply. Default 10 s.
    pub startup_timeout: Duration,
    /// Time for TCP to close in order before it is reset. Default 5 s.
    pub close_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 16_384,
            registrations_max: 16_384,
            startup_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// Settings of a worker.
#[derive(Clone, Debug, Default)]
pub struct WorkerConfig {
    /// TCP and what is below it.
    pub stack: StackConfig,
    /// Bounds.
    pub limits: Limits,
    /// What to do when there is nothing to do.
    pub idle: Idle,
}

/// A clock for [`Worker::run`].
pub trait Clock {
    /// The time now.
    fn now(&self) -> Instant;
}

/// A listener and whose it is.
struct Listener {
    client: ClientId,
    profile: Profile,
    local: SocketAddr,
    listener: tcpstack::stack::ListenerId,
}

/// One poll-mode core's whole state. Owned by the thread that runs it.
pub struct Worker<D: Device> {
    engine: Engine<D>,
    applications: Vec<(ClientId, Box<dyn Application + Send>)>,
    queries: QueryEnd,
    idle: Idle,
    /// When timers and commands are looked at next.
    tick_at: Instant,
    /// How often they were looked at.
    ticks: u64,
    /// Turns in a row that looked for arrivals alone.
    quiet_turns: u32,
}

/// Time between looks at timers and commands: short against every timer there is, long against a turn.
const TICK: Duration = Duration::from_micros(4);

/// Ticks between looks at queries and for applications that went away.
const HOUSEKEEPING_TICKS: u64 = 16;

/// Turns of [`Worker::poll`] in a row that look for arrivals alone.
const QUIET_TURNS_MAX: u32 = 16;

/// Idle turns with a mere yield before [`Idle::Yield`] naps.
const YIELDS_BEFORE_NAP: u32 = 200;

/// How long [`Idle::Yield`] naps.
const NAP: Duration = Duration::from_micros(50);

/// How long a stopping worker waits for TCP to close in order.
const STOP_GRACE: Duration = Duration::from_millis(500);

impl<D: Device> Worker<D> {
    /// A worker over one queue of a port. `seed` makes its initial sequence numbers, ports and STags
    /// unpredictable: it must be secret, except in simulations.
    pub fn new(device: D, config: &WorkerConfig, seed: [u8; 32]) -> Self {
        let stack = Stack::new(config.stack.clone(), device.capabilities(), seed);
        let memory = Registry::new(config.limits.registrations_max, memory_seed(seed));
        Self {
            engine: Engine::new(device, stack, memory, config.limits.clone()),
            applications: Vec::new(),
            queries: QueryEnd::new(),
            idle: config.idle,
            tick_at: Instant::ZERO,
            ticks: 0,
            quiet_turns: 0,
        }
    }

    /// Runs an application on this worker, without a ring in between.
    pub fn attach(&mut self, application: Box<dyn Application + Send>) {
        let client = self.engine.clients.add_local();
        self.applications.push((client, application));
    }

    /// The rings for an application on a core of its own; `depth` requests and completions may wait.
    ///
    /// # Panics
    /// When `depth` is 0.
    pub fn client(&mut self, depth: usize) -> Client {
        self.engine.clients.add_ring(depth).1
    }

    /// Access from other threads: counters, tables, settings.
    pub fn handle(&self) -> WorkerHandle {
        self.queries.handle()
    }

    /// The stack, for addresses and routes.
    pub fn stack_mut(&mut self) -> &mut Stack<D> {
        &mut self.engine.stack
    }

    /// The stack, to look at.
    pub fn stack(&self) -> &Stack<D> {
        &self.engine.stack
    }

    /// The port's queue.
    pub fn device(&self) -> &D {
        &self.engine.device
    }

    /// The port's queue back, for another worker; connections that are left are forgotten.
    pub fn into_device(self) -> D {
        self.engine.device
    }

    /// What was counted so far.
    pub fn counters(&self) -> &WorkerCounters {
        &self.engine.counters
    }

    /// Connections, in whatever phase.
    pub fn connection_count(&self) -> usize {
        self.engine.pairs.len()
    }

    /// Registrations of memory.
    pub fn registration_count(&self) -> usize {
        self.engine.memory.regions().count()
    }

    /// One turn at `now`, which never goes back. True when there was something to do.
    pub fn turn(&mut self, now: Instant) -> bool {
        self.tick_at = now;
        self.engine.fetch();
        self.advance(now)
    }

    /// The turn of a loop that does nothing else. As long as nothing arrives it is a look at the port
    /// and the rings; clock, timers and applications have theirs every few of them.
    #[inline]
    pub fn poll(&mut self, clock: &impl Clock) -> bool {
        let arrived = self.engine.fetch() || self.engine.clients.have_work();
        if !arrived && self.quiet_turns < QUIET_TURNS_MAX {
            self.quiet_turns += 1;
            self.engine.counters.turns += 1;
            return false;
        }
        let busy = self.advance(clock.now());
        self.quiet_turns = if self.engine.has_more() { QUIET_TURNS_MAX } else { 0 };
        busy
    }

    /// A turn after the look at the port.
    fn advance(&mut self, now: Instant) -> bool {
        let engine = &mut self.engine;
        engine.now = now;
        engine.counters.turns += 1;
        let mut busy = engine.receive();
        let is_tick = now >= self.tick_at;
        if is_tick {
            self.tick_at = now + TICK;
            engine.poll_timers();
            busy |= engine.take_commands();
        }
        busy |= engine.take_work();
        for (client, application) in &mut self.applications {
            busy |= application.poll(&mut Direct { engine, client: *client });
        }
        busy |= engine.build_output();
        busy |= engine.transmit();
        busy |= engine.clients.flush();
        if is_tick {
            engine.clients.tell_time(now);
            self.ticks += 1;
            if self.ticks.is_multiple_of(HOUSEKEEPING_TICKS) {
                engine.reap_clients();
                self.queries.serve(engine);
            }
        }
        engine.counters.busy_turns += u64::from(busy);
        busy
    }

    /// When the next turn is due at the latest, if nothing arrives before. `None`: never.
    pub fn poll_at(&self) -> Option<Instant> {
        self.engine.poll_at()
    }

    /// Turns until `stop`, then closes all connections and returns.
    pub fn run(&mut self, clock: &impl Clock, stop: &AtomicBool) {
        match self.idle {
            Idle::Busy => {
                while !stop.load(Ordering::Relaxed) {
                    self.poll(clock);
                }
            }
            Idle::Yield => self.run_yielding(clock, stop),
        }
        self.shut_down(clock);
    }

    fn run_yielding(&mut self, clock: &impl Clock, stop: &AtomicBool) {
        let mut idle_turns = 0;
        while !stop.load(Ordering::Relaxed) {
            if self.turn(clock.now()) {
                idle_turns = 0;
                continue;
            }
            idle_turns += 1;
            if idle_turns < YIELDS_BEFORE_NAP {
                std::thread::yield_now();
            } else {
                // With naps in between, the usual number of turns is too long for someone who asks.
                self.queries.serve(&mut self.engine);
                nap();
            }
        }
    }

    /// Closes all connections: in order where the peers go along within 500 ms, else by reset.
    pub fn shut_down(&mut self, clock: &impl Clock) {
        let start = clock.now();
        self.close_all();
        while self.engine.pairs.len() > 0 && clock.now() - start < STOP_GRACE {
            if !self.turn(clock.now()) {
                std::thread::yield_now();
            }
        }
        self.abort_all(clock);
    }

    /// The same for two workers of one thread, each the other's peer.
    pub fn shut_down_both(a: &mut Self, b: &mut Self, clock: &impl Clock) {
        let start = clock.now();
        a.close_all();
        b.close_all();
        while a.engine.pairs.len() + b.engine.pairs.len() > 0 && clock.now() - start < STOP_GRACE {
            a.turn(clock.now());
            b.turn(clock.now());
        }
        a.abort_all(clock);
        b.abort_all(clock);
    }

    fn close_all(&mut self) {
        // Nothing new begins.
        self.engine.limits.connections_max = 0;
        for id in self.engine.pairs.ids() {
            self.engine.end_stream(id, DisconnectReason::Stopped);
            self.engine.close_for_good(id);
        }
    }

    fn abort_all(&mut self, clock: &impl Clock) {
        for id in self.engine.pairs.ids() {
            self.engine.abort(id, DisconnectReason::Stopped);
        }
        self.turn(clock.now());
        self.engine.clients.close(clock.now());
    }
}

#[expect(clippy::disallowed_methods, reason = "Idle::Yield is for hosts where others need the core")]
fn nap() {
    std::thread::sleep(NAP);
}

/// A seed of its own for STags, so that they say nothing about sequence numbers.
fn memory_seed(mut seed: [u8; 32]) -> [u8; 32] {
    for octet in &mut seed {
        *octet ^= 0x5a;
    }
    seed
}
