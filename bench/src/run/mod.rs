//! Runs what the command line asks for: ports, workers, the second process of a loopback, and the words
//! in between.

mod bare;
mod child;
mod end;
mod job;
mod link;
mod loopback;
mod machine;
mod node;
mod reporter;
mod service;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use control::eal::{self, EalOptionError};
use control::services::{perf, rping};
use dataplane::mem::AllocateError;
use dataplane::port::dpdk::{Eal, EalError, PortError};
use iwarp::mpa::{Profile, Revision};
use signal_hook::consts::signal::{SIGINT, SIGTERM};
use signal_hook::flag;
use tcpstack::addr::CidrError;
use tcpstack::interface::InterfaceError;

use crate::cli::{Common, Invocation, LocalAddress, Options, RpingOptions, Switch, Task};
use crate::host::{self, HostError};
use crate::json;
use crate::plan::{self, PlanError};
use crate::raw::RawError;
use crate::traffic::TrafficError;

use end::End;
use job::{PingError, Place};
use machine::{Calibration, Machine};
use node::Node;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// DPDK itself.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// DPDK's options.
    #[error(transparent)]
    EalOption(#[from] EalOptionError),
    /// The port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The EAL options make no port.
    #[error("the EAL options make no port: give a --vdev, or -a with a NIC's address")]
    NoPort,
    /// The port's other end is not there.
    #[error("the link of {0} is down: is its other end running?")]
    LinkDown(String),
    /// The port's other end went away.
    #[error("the link of {0} went down during the test: its other end ended, or the cable was pulled")]
    LinkLost(String),
    /// An address.
    #[error("{address}: {error}")]
    Address {
        /// The address.
        address: IpAddr,
        /// Why.
        error: InterfaceError,
    },
    /// A prefix.
    #[error("{address}/{prefix}: {error}")]
    Prefix {
        /// The address.
        address: IpAddr,
        /// The prefix.
        prefix: u8,
        /// Why.
        error: CidrError,
    },
    /// The peer.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The file for the results.
    #[error("{}: {error}; give --out_json_file another path", path.display())]
    Results {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A test.
    #[error("{test}, {size} octets: {error}")]
    Traffic {
        /// Which.
        test: &'static str,
        /// Octets of its messages.
        size: u32,
        /// Why.
        error: TrafficError,
    },
    /// rping.
    #[error("rping: {0}")]
    Rping(#[from] PingError),
    /// The bare wire.
    #[error(transparent)]
    Raw(#[from] RawError),
    /// Options.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Memory.
    #[error(transparent)]
    Allocate(#[from] AllocateError),
    /// The service of this process cannot listen.
    #[error("{0}")]
    Service(String),
    /// A file or a stream of the system.
    #[error("{what}: {error}")]
    System {
        /// Which.
        what: String,
        /// Why.
        error: io::Error,
    },
    /// The second process.
    #[error("the other end of the loopback {0}")]
    Child(String),
    /// The worker ended without a result.
    #[error("the worker ended before the test did")]
    NoResult,
    /// Frames that nobody gave back.
    #[error("{frames} frames of {port} were not given back: a leak")]
    Leak {
        /// How many more than there may be.
        frames: usize,
        /// Whose.
        port: String,
    },
}

impl RunError {
    /// Whether the command line is at fault, which is found out before DPDK starts.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Host(_) | Self::Results { .. })
    }
}

/// Runs it to its end.
///
/// # Errors
/// Why it did not get there.
pub fn run(invocation: &Invocation) -> Result<(), RunError> {
    check_results(&invocation.task)?;
    // Before the EAL pins this thread to one of them.
    let machine = Machine::new();
    let interrupt = interrupt()?;
    match &invocation.task {
        Task::Measure(options) if options.common.loopback => loopback::measure(options, &machine, &interrupt),
        Task::Rping(options) if options.common.loopback => loopback::ping(options, &machine, &interrupt),
        Task::Measure(options) => measure(&invocation.eal, options, &machine, &interrupt),
        Task::Rping(options) => {
            let remote = remote_of(options)?;
            let eal = start_eal(&invocation.eal)?;
            let end = End::open(&eal, &options.common)?;
            let node = Node::new(end, &machine, local_of(&options.common), &options.common)?;
            node.ping(options, remote, None, &interrupt)
        }
    }
}

/// Tests against another host, or being that host.
fn measure(
    eal: &[String],
    options: &Options,
    machine: &Machine,
    interrupt: &Arc<AtomicBool>,
) -> Result<(), RunError> {
    let common = &options.common;
    let remote = match &options.host {
        Some(host) => Some(resolve(host, common.port.unwrap_or(perf::PORT), common)?),
        None => None,
    };
    let eal = start_eal(eal)?;
    let end = End::open(&eal, common)?;
    let Some(remote) = remote else {
        let serve = if common.child { service::obey } else { service::stand };
        return serve(end, machine, common, options.outstanding_reads, interrupt);
    };
    let legs = plan::legs(options)?;
    let calibration = Calibration::begin(machine.here_and_beside());
    let place = Place {
        wire: end.rest.describe(),
        cores: machine.describe_here(),
        ping_pong_ns: calibration.nanos(),
        child: None,
        documents: None,
    };
    let node = Node::new(end, machine, local_of(common), common)?;
    node.measure(options, &legs, remote, profile(common, options.outstanding_reads), place, interrupt)?;
    calibration.end()
}

/// Starts DPDK, unless another process has its files.
fn start_eal(arguments: &[String]) -> Result<Eal, RunError> {
    eal::check_prefix(arguments)?;
    Ok(Eal::init(arguments)?)
}

/// The first signal sets the flag, a second one ends the process at once.
fn interrupt() -> Result<Arc<AtomicBool>, RunError> {
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&interrupt))
            .map_err(|error| system("signals", error))?;
    }
    on_signals(&interrupt)?;
    Ok(interrupt)
}

/// Sets the flag when a signal asks for the end.
fn on_signals(flag: &Arc<AtomicBool>) -> Result<(), RunError> {
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(flag)).map_err(|error| system("signals", error))?;
    }
    Ok(())
}

/// What to negotiate.
fn profile(common: &Common, outstanding_reads: u16) -> Profile {
    let profile = Profile::default();
    Profile {
        revision: if common.mpa_rev == 1 { Revision::V1 } else { Revision::V2 },
        crc: common.crc == Switch::On,
        peer_to_peer: common.peer_to_peer,
        ord: outstanding_reads,
        ird: outstanding_reads.max(profile.ird),
        ..profile
    }
}

fn remote_of(options: &RpingOptions) -> Result<SocketAddr, RunError> {
    let port = options.common.port.unwrap_or(rping::TCP_PORT_DEFAULT);
    match options.host.as_ref().or(options.address.as_ref()) {
        Some(host) => resolve(host, port, &options.common),
        None => Err(HostError::Unknown(String::new()).into()),
    }
}

/// A host's address of the family that our own is of.
fn resolve(host: &str, port: u16, common: &Common) -> Result<SocketAddr, RunError> {
    // A name that is unknown has no addresses.
    let addresses = (host, port).to_socket_addrs().into_iter().flatten();
    let addresses: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
    let address = host::choose(host, &addresses, local_of(common), common.gateway)?;
    Ok(SocketAddr::new(address, port))
}

/// This end's address, which the command line was checked for.
fn local_of(common: &Common) -> LocalAddress {
    common.local.expect("without a loopback there is an address")
}

fn system(what: impl Into<String>, error: io::Error) -> RunError {
    RunError::System { what: what.into(), error }
}

/// Results that cannot be written are no reason to measure.
fn check_results(task: &Task) -> Result<(), RunError> {
    let Task::Measure(options) = task else { return Ok(()) };
    let Some(path) = json_file(options) else { return Ok(()) };
    json::check_writable(&path).map_err(|error| RunError::Results { path, error })
}

/// perftest's default for JSON.
fn json_file(options: &Options) -> Option<PathBuf> {
    match &options.out_json_file {
        Some(file) => Some(file.clone()),
        None => options.out_json.then(|| PathBuf::from("perftest_out.json")),
    }
}
