//! The command line: `ironwarp-bench [EAL options] -- TEST [options] [HOST]`, in perftest's words.
//!
//! Without a `--` everything is the harness's, since `--loopback` chooses the EAL options itself.

mod values;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use control::address::AddressError;
use control::eal::EalOptionError;
use control::services::rping;

pub use values::{LocalAddress, Octets};

use crate::plan::{self, PlanError, RawTest, Test};

/// What to do.
#[derive(Debug)]
pub struct Invocation {
    /// Arguments for the EAL, as given.
    pub eal: Vec<String>,
    /// The rest.
    pub task: Task,
}

/// What the harness is asked for.
#[derive(Debug)]
pub enum Task {
    /// perftest's tests; without HOST and loopback: be the server.
    Measure(Box<Options>),
    /// rping's client.
    Rping(Box<RpingOptions>),
}

/// Options of the tests.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ironwarp-bench",
    version,
    about = "Measures iWARP over a DPDK port, in perftest's words.",
    long_about = LONG_ABOUT,
    override_usage = "ironwarp-bench [EAL options] -- [TEST] [options] [HOST]\n       \
                      ironwarp-bench --loopback [TEST] [options]\n       \
                      ironwarp-bench [EAL options] -- rping [options] [HOST]"
)]
pub struct Options {
    /// What to measure; `all` (the default with --loopback) runs the six tests in turn.
    #[arg(value_enum)]
    pub test: Option<TestName>,

    /// The peer: an Ironwarp appliance with the `perf` service, or an `ironwarp-bench` without HOST.
    pub host: Option<String>,

    /// Octets of a message, e.g. 64, 64k or 1m, up to 8m [default: 65536 for bandwidth, 2 for latency].
    #[arg(short, long, value_name = "SIZE", value_parser = values::test_size)]
    pub size: Option<Octets>,

    /// All sizes: the powers of two from 2 B to 8 MiB.
    #[arg(short, long, conflicts_with = "size")]
    pub all: bool,

    /// Messages a queue pair, up to 10^9 [default: 5000 for write_bw, else 1000; with -a fewer large ones].
    #[arg(short = 'n', long = "iters", value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub iterations: Option<u64>,

    /// Measure for so many seconds instead of so many messages.
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iterations",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub duration: Option<u32>,

    /// Most messages in flight, a queue pair (bandwidth).
    #[arg(short, long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub tx_depth: u32,

    /// Most receives posted, a queue pair (send_bw; fewer for large messages).
    #[arg(short, long, value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub rx_depth: u32,

    /// Ask for a completion every N messages [default: 100, for messages above 8 KiB 1].
    #[arg(short = 'Q', long = "cq-mod", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cq_mod: Option<u32>,

    /// Queue pairs (bandwidth).
    #[arg(short, long = "qp", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub queue_pairs: u32,

    /// Most outstanding RDMA Reads, a queue pair: what is negotiated as ORD.
    #[arg(short, long = "outs", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=0x3ffe))]
    pub outstanding_reads: u16,

    /// Measure both directions at once (bandwidth).
    #[arg(short, long)]
    pub bidirectional: bool,

    /// Print the whole distribution (latency).
    #[arg(short = 'H', long)]
    pub report_histogram: bool,

    /// Report Gb/s (10^9 bits) instead of MiB/s.
    #[arg(long = "report_gbits")]
    pub report_gbits: bool,

    /// Write the results as JSON, to perftest_out.json.
    #[arg(long = "out_json")]
    pub out_json: bool,

    /// Write the results as JSON, to this file.
    #[arg(long = "out_json_file", value_name = "FILE")]
    pub out_json_file: Option<PathBuf>,

    /// Before each measurement, send messages whose every octet is compared.
    #[arg(long = "data_validation")]
    pub data_validation: bool,

    /// Run some messages before those that are measured.
    #[arg(long = "perform_warm_up")]
    pub warm_up: bool,

    /// Right before and after each test, measure the bare wire below TCP, and print the ratio (--loopback).
    #[arg(long, conflicts_with_all = ["all", "bidirectional"])]
    pub raw: bool,

    /// Accepted as perftest has it, and always so: iWARP connects over TCP.
    #[arg(short = 'R', long = "rdma_cm", hide = true)]
    pub rdma_cm: bool,

    /// What all tasks share.
    #[command(flatten)]
    pub common: Common,
}

/// Options of `rping`, in rping's words.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ironwarp-bench rping",
    about = "Pings an rping server (rdma-core's, or an appliance's) over RDMA.",
    disable_version_flag = true
)]
pub struct RpingOptions {
    /// The server.
    #[arg(conflicts_with = "address")]
    pub host: Option<String>,

    /// The server, as rping has it.
    #[arg(short, long, value_name = "ADDRESS")]
    pub address: Option<String>,

    /// Rounds.
    #[arg(short = 'C', long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,

    /// Octets of a round: 26 to 65536.
    #[arg(short = 'S', long, value_name = "SIZE", default_value = "64", value_parser = values::round_size)]
    pub size: Octets,

    /// Compare what comes back.
    #[arg(short = 'V', long)]
    pub validate: bool,

    /// Print each round's data.
    #[arg(short, long)]
    pub verbose: bool,

    /// Accepted as rping has it, and always so.
    #[arg(short = 'c', hide = true)]
    pub client: bool,

    /// What all tasks share.
    #[command(flatten)]
    pub common: Common,
}

/// Options that all tasks share.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// TCP port of the peer [default: 18515, for rping 7174]; not with --loopback.
    #[arg(short, long, value_name = "PORT", conflicts_with = "loopback",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Run both ends on this machine.
    #[arg(long)]
    pub loopback: bool,

    /// What joins the two ends of --loopback [default: memif].
    #[arg(long, value_enum)]
    pub wire: Option<Wire>,

    /// Octets of the largest IP packet, 576 to 9600 [default: the port's; with --loopback 1500].
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u16).range(576..=9600))]
    pub mtu: Option<u16>,

    /// Whether to ask for CRCs; used if either side asks.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub crc: Switch,

    /// This end's IP address and prefix, e.g. 192.0.2.2/24 (without --loopback).
    #[arg(long, value_name = "ADDRESS[/PREFIX]", conflicts_with = "loopback")]
    pub local: Option<LocalAddress>,

    /// The router to peers beyond the local prefix.
    #[arg(long, value_name = "ADDRESS", requires = "local")]
    pub gateway: Option<IpAddr>,

    /// What a worker with nothing to do does: poll on, or let others run first.
    #[arg(long, value_enum, default_value_t = Idle::Busy)]
    pub idle: Idle,

    /// The MPA revision to offer.
    #[arg(long, value_name = "1|2", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub mpa_rev: u8,

    /// Ask for MPA's peer-to-peer model (revision 2).
    #[arg(long)]
    pub peer_to_peer: bool,

    /// Where the test runs: on the worker's core, or on one of its own behind rings.
    #[arg(long, value_enum, default_value_t = Placement::Worker)]
    pub app: Placement,

    /// Print `ready` and end with standard input: the second process of --loopback.
    #[arg(long, hide = true)]
    pub child: bool,
}

const LONG_ABOUT: &str = "\
Measures iWARP over a DPDK port, in perftest's words.

With --loopback both ends run on this machine and all is chosen for you:
    ironwarp-bench --loopback                        the six tests over memif, two processes
    ironwarp-bench --loopback write_lat -s 8 -H      one of them
    ironwarp-bench --loopback --wire ring send_bw    one process, one core, no port's cost
    ironwarp-bench --loopback write_lat --raw        and the bare wire before and after it
    ironwarp-bench --loopback raw_bw                 the bare wire alone (raw_lat, raw_bw)
With HOST it connects from a port that the EAL options make to an appliance's perf service:
    ironwarp-bench -l 1 -a 0000:01:00.0 -- write_bw --local 192.0.2.2/24 192.0.2.1
Without HOST it is such a service itself.

Bandwidth ends when the peer says that it has got everything. Latency is half a round trip for Writes \
and Sends and a whole one for Reads. t_stdev is computed in full precision, where perftest truncates.";

/// A test's name on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum TestName {
    /// Bandwidth of RDMA Writes.
    WriteBw,
    /// Latency of RDMA Writes.
    WriteLat,
    /// Bandwidth of RDMA Reads.
    ReadBw,
    /// Latency of RDMA Reads.
    ReadLat,
    /// Bandwidth of Sends.
    SendBw,
    /// Latency of Sends.
    SendLat,
    /// Latency of a 64-octet frame below TCP (--loopback).
    RawLat,
    /// Bandwidth of whole frames below TCP (--loopback).
    RawBw,
    /// All of iWARP's six.
    All,
}

impl TestName {
    /// The iWARP tests it stands for.
    pub fn tests(self) -> Vec<Test> {
        match self {
            Self::WriteBw => vec![Test::WriteBw],
            Self::WriteLat => vec![Test::WriteLat],
            Self::ReadBw => vec![Test::ReadBw],
            Self::ReadLat => vec![Test::ReadLat],
            Self::SendBw => vec![Test::SendBw],
            Self::SendLat => vec![Test::SendLat],
            Self::RawLat | Self::RawBw => Vec::new(),
            Self::All => Test::ALL.to_vec(),
        }
    }

    /// The test of the bare wire that it stands for.
    pub fn raw(self) -> Option<RawTest> {
        match self {
            Self::RawLat => Some(RawTest::Latency),
            Self::RawBw => Some(RawTest::Bandwidth),
            _ => None,
        }
    }
}

/// What joins the two ends of a loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Wire {
    /// DPDK rings in one process, both ends on one core.
    Ring,
    /// Shared memory between two processes.
    Memif,
    /// vhost-user and virtio-user between two processes.
    Vhost,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// What an idle worker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// Polls on.
    Busy,
    /// Lets other threads run before it polls again.
    Yield,
}

/// Where an application runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Placement {
    /// On the worker itself: lowest latency.
    Worker,
    /// On a thread of its own, behind rings.
    Ring,
}

/// Why the command line makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The parser's own error, or its answer to `--help`.
    #[error(transparent)]
    Clap(#[from] clap::Error),
    /// The EAL takes text only.
    #[error("an EAL option is not valid Unicode: {0:?}")]
    NotUnicode(OsString),
    /// DPDK would not take them.
    #[error(transparent)]
    Eal(#[from] EalOptionError),
    /// EAL options and `--loopback`.
    #[error("--loopback chooses the EAL options itself; leave out those before `--`")]
    EalWithLoopback,
    /// A port is needed.
    #[error("there is no port: give EAL options before `--` (for instance --vdev or -a), or use --loopback")]
    NoPort,
    /// A port needs an address.
    #[error("this end has no address: give --local ADDRESS/PREFIX, or use --loopback")]
    NoLocal,
    /// Somebody to talk to.
    #[error("{0} needs a HOST to connect to, or --loopback")]
    NoHost(&'static str),
    /// Two peers.
    #[error("HOST and --loopback exclude each other: the loopback is its own peer")]
    HostWithLoopback,
    /// A wire without both ends.
    #[error("--wire is for --loopback: without it the EAL options say which port to use")]
    WireWithoutLoopback,
    /// There must be somebody who answers.
    #[error("raw_lat, raw_bw and --raw need --loopback: only there the other end answers below TCP")]
    RawWithoutLoopback,
    /// Frames are all alike.
    #[error("raw_lat and raw_bw take -n or -D only: frames of 64 octets, or of the MTU, one way")]
    RawOptions,
    /// Frames in flight have no latency each.
    #[error("{0}")]
    RawHistogram(PlanError),
    /// An address that no host has.
    #[error("--local {0}")]
    Local(AddressError),
    /// A gateway that cannot be reached directly.
    #[error("--gateway {gateway} is in no network of --local {}/{}", local.address, local.prefix)]
    Gateway {
        /// The gateway.
        gateway: IpAddr,
        /// This end.
        local: LocalAddress,
    },
    /// The model came with revision 2.
    #[error("--peer-to-peer needs --mpa-rev 2")]
    PeerToPeerRevision,
    /// A service of its own has the TCP port.
    #[error("--port {}: rping listens there; choose another one for perf", rping::TCP_PORT_DEFAULT)]
    PortOfRping,
    /// The options of the test do not go together.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl Invocation {
    /// Reads a command line, the program's name first.
    ///
    /// # Errors
    /// When it makes no sense, with what to do about it.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, CliError> {
        let mut arguments: Vec<OsString> = arguments.into_iter().collect();
        let program = if arguments.is_empty() { "ironwarp-bench".into() } else { arguments.remove(0) };
        let (eal, own) = match arguments.iter().position(|argument| argument == "--") {
            Some(at) => {
                let own = arguments.split_off(at + 1);
                arguments.truncate(at);
                (arguments, own)
            }
            None => (Vec::new(), arguments),
        };
        let eal = eal
            .into_iter()
            .map(|argument| argument.into_string().map_err(CliError::NotUnicode))
            .collect::<Result<Vec<_>, _>>()?;
        let rping = own.iter().position(|argument| argument == "rping");
        let task = if let Some(at) = rping {
            let mut words = own;
            words.remove(at);
            Task::Rping(Box::new(RpingOptions::try_parse_from(std::iter::once(program).chain(words))?))
        } else {
            Task::Measure(Box::new(Options::try_parse_from(std::iter::once(program).chain(own))?))
        };
        let invocation = Self { eal, task };
        invocation.check()?;
        Ok(invocation)
    }

    /// Whether there is no peer: then this is the service.
    pub fn is_server(&self) -> bool {
        match &self.task {
            Task::Measure(options) => options.host.is_none() && !options.common.loopback,
            Task::Rping(_) => false,
        }
    }

    fn check(&self) -> Result<(), CliError> {
        if let Task::Measure(options) = &self.task {
            check_raw(options)?;
        }
        let (common, host) = match &self.task {
            Task::Measure(options) => (&options.common, options.host.is_some()),
            Task::Rping(options) => (&options.common, options.host.is_some() || options.address.is_some()),
        };
        if common.peer_to_peer && common.mpa_rev < 2 {
            return Err(CliError::PeerToPeerRevision);
        }
        if common.loopback {
            if host {
                return Err(CliError::HostWithLoopback);
            }
            if !self.eal.is_empty() {
                return Err(CliError::EalWithLoopback);
            }
        } else {
            if common.wire.is_some() {
                return Err(CliError::WireWithoutLoopback);
            }
            if self.eal.is_empty() {
                return Err(CliError::NoPort);
            }
            control::eal::check(&self.eal)?;
            check_addresses(common)?;
        }
        match &self.task {
            Task::Rping(_) if !host && !common.loopback => Err(CliError::NoHost("rping")),
            Task::Measure(_) if self.is_server() => match common.port {
                Some(rping::TCP_PORT_DEFAULT) => Err(CliError::PortOfRping),
                _ => Ok(()),
            },
            // Not only when the port is open is it too late to say that a test makes no sense.
            Task::Measure(options) => Ok(plan::legs(options).map(drop)?),
            Task::Rping(_) => Ok(()),
        }
    }
}

fn check_raw(options: &Options) -> Result<(), CliError> {
    let test = options.test.and_then(TestName::raw);
    if (test.is_some() || options.raw) && !options.common.loopback {
        return Err(CliError::RawWithoutLoopback);
    }
    if test.is_none() {
        return Ok(());
    }
    let shaped = options.size.is_some() || options.all || options.queue_pairs > 1;
    if shaped || options.bidirectional || options.data_validation || options.raw {
        return Err(CliError::RawOptions);
    }
    if test == Some(RawTest::Bandwidth) && options.report_histogram {
        return Err(CliError::RawHistogram(PlanError::HistogramOfBandwidth));
    }
    Ok(())
}

/// This end's address and its gateway: one that a host can have, and one that it can reach.
fn check_addresses(common: &Common) -> Result<(), CliError> {
    let local = common.local.ok_or(CliError::NoLocal)?;
    let network = local.cidr();
    control::address::check(network).map_err(CliError::Local)?;
    match common.gateway {
        Some(gateway) if !network.contains(gateway) || gateway == local.address => {
            Err(CliError::Gateway { gateway, local })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
