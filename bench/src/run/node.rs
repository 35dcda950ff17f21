//! One end: a port, a worker on the thread that started the EAL, and what runs on it.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use control::services::perf::{self, Limits, PerfConfig, PerfService};
use control::services::rping::server::{RpingServer, ServerConfig};
use control::services::{Service, ServiceState, rping};
use core_affinity::CoreId;
use dataplane::port::dpdk::{Port, PortQueue};
use dataplane::verbs::Application;
use dataplane::worker::{Clock, Idle, Worker, WorkerConfig};
use iwarp::mpa::Profile;
use tcpstack::addr::IpCidr;

use super::child::Child;
use super::end::{End, LINK_PATIENCE, Rest};
use super::job::{self, Job, Place};
use super::link;
use super::machine::Machine;
use super::{RunError, profile, system};
use crate::cli::{self, Common, LocalAddress, Options, Placement, RpingOptions};
use crate::plan::Leg;

/// One end with a worker on it.
pub(super) struct Node {
    worker: Worker<PortQueue>,
    end: Rest,
    placement: Placement,
    /// Whether idle loops let others run.
    yields: bool,
    local: IpAddr,
    /// Where an application of its own core may run.
    app_core: Option<CoreId>,
}

impl Node {
    /// A fresh worker on an end.
    pub(super) fn new(
        end: End,
        machine: &Machine,
        local: LocalAddress,
        common: &Common,
    ) -> Result<Self, RunError> {
        let End { queue, rest: end } = end;
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
        let app_core = machine.beside_this();
        let (placement, yields) = (common.app, common.idle == cli::Idle::Yield);
        Ok(Self { worker, end, placement, yields, local: address, app_core })
    }

    /// Offers `perf` and `rping` until the flag is set; `announce` is called when they listen.
    pub(super) fn serve(
        mut self,
        common: &Common,
        outstanding_reads: u16,
        announce: impl FnOnce(&Port) -> Result<(), RunError>,
        stop: &AtomicBool,
    ) -> Result<End, RunError> {
        let port = common.port.unwrap_or(perf::PORT);
        let supervisions = self.attach_services(common, outstanding_reads, port);
        let Self { worker, end: Rest { clock, .. }, .. } = &mut self;
        let begin = clock.now();
        let starting = || supervisions.iter().any(|service| service.state() == ServiceState::Starting);
        while starting() && clock.now() - begin < LINK_PATIENCE {
            worker.poll(clock);
        }
        if let Some(failed) = supervisions.iter().find(|service| service.state() != ServiceState::Listening) {
            let error = failed.error().unwrap_or("a service does not listen");
            return Err(RunError::Service(error.to_owned()));
        }
        announce(&self.end.port)?;
        self.worker.run(&self.end.clock, stop);
        self.close()
    }

    /// Runs the tests against `remote`.
    pub(super) fn measure(
        mut self,
        options: &Options,
        legs: &[Leg],
        remote: SocketAddr,
        profile: Profile,
        place: Place<'_>,
        interrupt: &Arc<AtomicBool>,
    ) -> Result<End, RunError> {
        self.end.await_link()?;
        let job = Job::tests(options, legs, remote, profile, self.end.mtu(), place, interrupt);
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
        self.end.await_link()?;
        let profile = profile(&options.common, READS_OF_RPING);
        let job = Job::ping(options, remote, profile, child, interrupt)?;
        let result = self.run(job);
        result.and_then(|()| self.close()).map(drop)
    }

    /// Polls this end until the job is done.
    fn run(&mut self, job: Job) -> Result<(), RunError> {
        let Job { application, reporter, done, on_link_lost } = job;
        let elsewhere = match self.placement {
            Placement::Worker => {
                self.worker.attach(application);
                None
            }
            Placement::Ring => Some(self.spawn(application, &done)),
        };
        let Self { worker, end: Rest { port, clock, .. }, app_core, .. } = self;
        thread::scope(|scope| {
            let watcher =
                on_link_lost.map(|on_lost| scope.spawn(|| link::watch(port, *app_core, &done, on_lost)));
            worker.run(clock, &done);
            if let Some(watcher) = watcher {
                watcher.thread().unpark();
            }
        });
        if let Some(thread) = elsewhere {
            thread.join().map_err(|_| RunError::NoResult)?;
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
    pub(super) fn run_both(mut ends: [Self; 2], job: Job, options: &Common) -> Result<[End; 2], RunError> {
        let Job { application, reporter, done, .. } = job;
        let [harness, service] = &mut ends;
        service.attach_services(options, READS_MAX, perf::PORT);
        let clock = harness.end.clock;
        let elsewhere = match harness.placement {
            Placement::Worker => {
                harness.worker.attach(application);
                None
            }
            Placement::Ring => Some(harness.spawn(application, &done)),
        };
        while !done.load(Ordering::Relaxed) {
            harness.worker.poll(&clock);
            service.worker.poll(&clock);
        }
        if let Some(thread) = elsewhere {
            thread.join().map_err(|_| RunError::NoResult)?;
        }
        job::result(reporter)?;
        Self::drain(&mut ends);
        let [harness, service] = &mut ends;
        Worker::shut_down_both(&mut harness.worker, &mut service.worker, &clock);
        // What each said last is still in the other's ring.
        Self::drain(&mut ends);
        let [harness, service] = ends;
        Ok([harness.close()?, service.close()?])
    }

    /// Lets both ends take what is under way between them.
    fn drain([harness, service]: &mut [Self; 2]) {
        let clock = harness.end.clock;
        let begin = clock.now();
        let mut busy = true;
        while clock.now() - begin < if busy { DRAIN_MAX } else { DRAIN_TIME } {
            busy = harness.worker.turn(clock.now()) | service.worker.turn(clock.now());
            // Looked at only when all seems quiet, for it walks the pools.
            busy = busy
                || harness.end.frames_beyond(harness.worker.device()) > 0
                || service.end.frames_beyond(service.worker.device()) > 0;
        }
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

    /// Ends the worker and looks for frames that nobody gave back.
    fn close(mut self) -> Result<End, RunError> {
        let clock = self.end.clock;
        self.worker.shut_down(&clock);
        // The last words of thousands of connections do not fit into a device's ring at once.
        let begin = clock.now();
        while self.end.frames_beyond(self.worker.device()) > 0 && clock.now() - begin < DRAIN_MAX {
            if !self.worker.turn(clock.now()) {
                thread::yield_now();
            }
        }
        // While the worker still has what it holds.
        self.end.check_frames(self.worker.device())?;
        Ok(End { queue: self.worker.into_device(), rest: self.end })
    }
}

/// rping reads and writes one at a time.
const READS_OF_RPING: u16 = 1;

/// Reads that the service takes at a time, if it is not told.
const READS_MAX: u16 = 128;

const RPING_CONNECTIONS: u32 = 16;

/// Memory for tests, of all connections.
const SERVICE_OCTETS: usize = 2 << 30;

/// Requests and completions that may wait between an application and its worker.
const RING_DEPTH: usize = 4096;

/// How long the last acknowledgements of an ended test may take.
const DRAIN_TIME: Duration = Duration::from_millis(20);

/// The same with thousands of connections.
const DRAIN_MAX: Duration = Duration::from_secs(2);

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
