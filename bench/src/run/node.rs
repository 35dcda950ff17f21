//! One end: a port, a worker on the thread that started the EAL, and what runs on it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use control::services::perf::{self, Limits, PerfConfig, PerfService};
use control::services::rping::server::{RpingServer, ServerConfig};
use control::services::{Service, ServiceState, rping};
use core_affinity::CoreId;
use dataplane::port::dpdk::{Eal, Port, PortConfig, PortQueue, Tsc};
use dataplane::verbs::Application;
use dataplane::worker::{Clock, Idle, Worker, WorkerConfig};
use iwarp::mpa::Profile;
use tcpstack::addr::IpCidr;

use super::child::Child;
use super::job::{self, Job, Place};
use super::machine::Machine;
use super::{RunError, profile, system};
use crate::cli::{self, Common, LocalAddress, Options, Placement, RpingOptions};

/// One end.
pub(super) struct Node {
    port: Port,
    worker: Worker<PortQueue>,
    clock: TscClock,
    /// Frames in use before anything was sent.
    frames: usize,
    placement: Placement,
    /// Whether idle loops let others run.
    yields: bool,
    local: IpAddr,
    /// Where an application of its own core may run.
    app_core: Option<CoreId>,
}

/// The poll loop's clock.
#[derive(Clone, Copy)]
pub(super) struct TscClock(Tsc);

impl Clock for TscClock {
    fn now(&self) -> tcpstack::time::Instant {
        self.0.now()
    }
}

impl Node {
    /// One end over the first port that the EAL options make.
    pub(super) fn open(
        eal: &Eal,
        machine: &Machine,
        local: LocalAddress,
        common: &Common,
    ) -> Result<Self, RunError> {
        let (id, _) = eal.port_names().into_iter().next().ok_or(RunError::NoPort)?;
        let (port, mut queues) = eal.open(id, &config(common))?;
        let queue = queues.pop().ok_or(RunError::NoPort)?;
        Self::new(eal, machine, port, queue, local, common)
    }

    /// Two ends whose ports are joined by rings.
    pub(super) fn ring_pair(
        eal: &Eal,
        machine: &Machine,
        locals: [LocalAddress; 2],
        common: &Common,
    ) -> Result<[Self; 2], RunError> {
        let pair = eal.ring_pair(["bench_a", "bench_b"], &config(common))?;
        let [(first, mut of_first), (second, mut of_second)] = pair;
        let queue = of_first.pop().ok_or(RunError::NoPort)?;
        let first = Self::new(eal, machine, first, queue, locals[0], common)?;
        let queue = of_second.pop().ok_or(RunError::NoPort)?;
        let second = Self::new(eal, machine, second, queue, locals[1], common)?;
        Ok([first, second])
    }

    fn new(
        eal: &Eal,
        machine: &Machine,
        port: Port,
        queue: PortQueue,
        local: LocalAddress,
        common: &Common,
    ) -> Result<Self, RunError> {
        let idle = match common.idle {
            cli::Idle::Busy => Idle::Busy,
            cli::Idle::Yield => Idle::Yield,
        };
        let config = WorkerConfig { idle, ..WorkerConfig::default() };
        let mut worker = Worker::new(queue, &config, seed()?);
        let LocalAddress { address, prefix } = local;
        let cidr =
            IpCidr::new(address, prefix).map_err(|error| RunError::Prefix { address, prefix, error })?;
        let interface = worker.stack_mut().interface_mut();
        interface.add_address(cidr).map_err(|error| RunError::Address { address, error })?;
        if let Some(gateway) = common.gateway {
            let address = any(gateway);
            let everywhere =
                IpCidr::new(address, 0).map_err(|error| RunError::Prefix { address, prefix: 0, error })?;
            interface
                .add_route(everywhere, gateway)
                .map_err(|error| RunError::Address { address: gateway, error })?;
        }
        let frames = worker.device().frames_in_use();
        let clock = TscClock(Tsc::new(eal));
        let app_core = machine.beside_this();
        let (placement, yields) = (common.app, common.idle == cli::Idle::Yield);
        Ok(Self { port, worker, clock, frames, placement, yields, local: address, app_core })
    }

    /// Offers `perf` and `rping` until the flag is set.
    pub(super) fn serve(
        mut self,
        common: &Common,
        outstanding_reads: u16,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), RunError> {
        let port = common.port.unwrap_or(perf::PORT);
        let supervisions = self.attach_services(common, outstanding_reads, port);
        let Self { worker, clock, .. } = &mut self;
        let begin = clock.now();
        let starting = || supervisions.iter().any(|service| service.state() == ServiceState::Starting);
        while starting() && clock.now() - begin < LINK_PATIENCE {
            worker.turn(clock.now());
        }
        if let Some(failed) = supervisions.iter().find(|service| service.state() != ServiceState::Listening) {
            let error = failed.error().unwrap_or("a service does not listen");
            return Err(RunError::Service(error.to_owned()));
        }
        let mut out = io::stdout();
        if common.child {
            writeln!(out, "{READY}").and_then(|()| out.flush()).map_err(|error| system("stdout", error))?;
            end_with_input(Arc::clone(stop));
        } else {
            let text = format!(
                "perf listens on TCP port {port} of {}, rping on {}; Ctrl-C ends",
                self.port.name(),
                rping::TCP_PORT_DEFAULT
            );
            writeln!(out, "{text}").map_err(|error| system("stdout", error))?;
        }
        self.worker.run(&self.clock, stop);
        self.close()
    }

    /// Runs the tests against `remote`.
    pub(super) fn measure(
        mut self,
        options: &Options,
        remote: SocketAddr,
        profile: Profile,
        place: Place<'_>,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<(), RunError> {
        await_link(&self.port)?;
        let job = Job::tests(options, remote, profile, self.mtu(), place, interrupt)?;
        let result = self.run(job);
        // A failed test says more than the frames that it left.
        result.and_then(|()| self.close())
    }

    /// Runs rping against `remote`.
    pub(super) fn ping(
        mut self,
        options: &RpingOptions,
        remote: SocketAddr,
        child: Option<&mut Child>,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<(), RunError> {
        await_link(&self.port)?;
        let profile = profile(&options.common, READS_OF_RPING);
        let job = Job::ping(options, remote, profile, child, interrupt)?;
        let result = self.run(job);
        result.and_then(|()| self.close())
    }

    /// Polls this end until the job is done.
    fn run(&mut self, job: Job) -> Result<(), RunError> {
        let Job { application, reporter, done } = job;
        match self.placement {
            Placement::Worker => {
                self.worker.attach(application);
                self.worker.run(&self.clock, &done);
            }
            Placement::Ring => {
                let elsewhere = self.spawn(application, &done);
                self.worker.run(&self.clock, &done);
                elsewhere.join().map_err(|_| RunError::NoResult)?;
            }
        }
        job::result(reporter)
    }

    /// An application on a thread of its own, pinned to another core where there is one.
    fn spawn(
        &mut self,
        mut application: Box<dyn Application + Send>,
        done: &Arc<AtomicBool>,
    ) -> thread::JoinHandle<()> {
        let mut client = self.worker.client(RING_DEPTH);
        let done = Arc::clone(done);
        let core = self.app_core;
        let yields = core.is_none() || self.yields;
        thread::spawn(move || {
            if let Some(core) = core {
                core_affinity::set_for_current(core);
            }
            while !done.load(Ordering::Relaxed) && client.is_connected() {
                if !application.poll(&mut client) && yields {
                    thread::yield_now();
                }
            }
        })
    }

    /// Polls both ends in turn until the job, which runs on the first, is done.
    pub(super) fn run_both(mut ends: [Self; 2], job: Job, options: &Common) -> Result<(), RunError> {
        let Job { application, reporter, done } = job;
        let [harness, service] = &mut ends;
        service.attach_services(options, READS_MAX, perf::PORT);
        let clock = harness.clock;
        let elsewhere = match harness.placement {
            Placement::Worker => {
                harness.worker.attach(application);
                None
            }
            Placement::Ring => Some(harness.spawn(application, &done)),
        };
        while !done.load(Ordering::Relaxed) {
            harness.worker.turn(clock.now());
            service.worker.turn(clock.now());
        }
        if let Some(thread) = elsewhere {
            thread.join().map_err(|_| RunError::NoResult)?;
        }
        job::result(reporter)?;
        let begin = clock.now();
        while clock.now() - begin < DRAIN_TIME {
            harness.worker.turn(clock.now());
            service.worker.turn(clock.now());
        }
        let [harness, service] = ends;
        harness.close()?;
        service.close()
    }

    fn attach_services(
        &mut self,
        common: &Common,
        outstanding_reads: u16,
        port: u16,
    ) -> [Arc<control::services::Supervision>; 2] {
        let any = any(self.local);
        let profile = profile(common, outstanding_reads);
        let config = PerfConfig {
            local: SocketAddr::new(any, port),
            profile: profile.clone(),
            limits: Limits { octets: SERVICE_OCTETS, ..Limits::default() },
        };
        let perf = PerfService::new(config);
        let rping = RpingServer::new(ServerConfig {
            local: SocketAddr::new(any, rping::TCP_PORT_DEFAULT),
            profile,
            max_connections: RPING_CONNECTIONS,
        });
        let supervisions = [perf.supervision(), rping.supervision()];
        self.worker.attach(Box::new(perf));
        self.worker.attach(Box::new(rping));
        supervisions
    }

    /// Looks for frames that nobody gave back.
    fn close(mut self) -> Result<(), RunError> {
        self.worker.shut_down(&self.clock);
        let allowed = self.frames + FRAMES_WITH_DEVICE;
        let frames = self.worker.device().frames_in_use();
        if frames > allowed {
            let port = self.port.name().to_owned();
            return Err(RunError::Leak { frames: frames - self.frames, port });
        }
        Ok(())
    }

    pub(super) fn mtu(&self) -> usize {
        self.port.capabilities().mtu
    }

    /// The port, in words.
    pub(super) fn describe(&self) -> String {
        format!("{} ({})", self.port.name(), self.port.driver())
    }
}

/// What a child says when it listens.
pub(super) const READY: &str = "ready";

/// rping reads and writes one at a time.
const READS_OF_RPING: u16 = 1;

/// Reads that the service takes at a time, if it is not told.
const READS_MAX: u16 = 128;

const RPING_CONNECTIONS: u32 = 16;

/// Memory for tests, of all connections.
const SERVICE_OCTETS: usize = 2 << 30;

/// Requests and completions that may wait between an application and its worker.
const RING_DEPTH: usize = 4096;

/// Frames that a device may keep after the last one was sent: it frees them with later ones.
const FRAMES_WITH_DEVICE: usize = 1024 + 64;

/// How long the last acknowledgements of an ended test may take.
const DRAIN_TIME: Duration = Duration::from_millis(20);

const LINK_PATIENCE: Duration = Duration::from_secs(5);

fn config(common: &Common) -> PortConfig {
    PortConfig { mtu: common.mtu, ..PortConfig::default() }
}

/// The unspecified address of a family.
fn any(family: IpAddr) -> IpAddr {
    match family {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Secret randomness for sequence numbers, ports and STags.
fn seed() -> Result<[u8; 32], RunError> {
    let mut seed = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut seed))
        .map_err(|error| system("/dev/urandom", error))?;
    Ok(seed)
}

/// A software link comes up when its other end connects.
#[expect(clippy::disallowed_methods, reason = "before the worker runs, this thread may wait")]
fn await_link(port: &Port) -> Result<(), RunError> {
    let begin = Instant::now();
    while !port.link().up {
        if begin.elapsed() > LINK_PATIENCE {
            return Err(RunError::LinkDown(port.name().to_owned()));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A child ends with its parent, however that ends: its standard input is closed then.
fn end_with_input(stop: Arc<AtomicBool>) {
    thread::spawn(move || {
        // Nothing is ever written to it; an error is an end too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        stop.store(true, Ordering::Relaxed);
    });
}
