//! The command language of files and prompt: verb, object, selector.
//!
//! One table ([`TABLE`]) holds every command; the parser, `help`, the prompt's completion and the
//! documentation all read it. A command is first only *parsed*; [`crate::plan`] and
//! [`crate::appliance`] do what it says.

mod grammar;
mod table;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tcpstack::addr::IpCidr;
use tcpstack::tcp::congestion::CongestionControl;
use tcpstack::tcp::ecn::Ecn;

pub use grammar::{Kind, SyntaxError, complete, parse, parse_line};
pub use table::{Entry, TABLE};
pub use words::nearest;

/// One port or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSelector {
    /// The port of this number.
    One(u16),
    /// Every port.
    All,
}

impl PortSelector {
    /// Whether the selection holds `port`.
    pub fn selects(self, port: u16) -> bool {
        match self {
            Self::One(one) => one == port,
            Self::All => true,
        }
    }
}

/// What a poll core does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdlePolicy {
    /// Poll on: the lowest latency, all of a core.
    #[default]
    Busy,
    /// Give the core away between polls: for machines with few cores.
    Yield,
}

/// A setting of the MPA profile that services negotiate with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpaSetting {
    /// Whether to ask for CRCs.
    Crc(bool),
    /// Whether to ask for markers.
    Markers(bool),
    /// Highest revision.
    Revision(u8),
    /// Inbound RDMA Reads to serve at a time.
    Ird(u16),
    /// Outbound RDMA Reads at a time.
    Ord(u16),
}

/// A setting of TCP on one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpSetting {
    /// How connections find out how much their path takes.
    Congestion(CongestionControl),
    /// When they use Explicit Congestion Notification.
    Ecn(Ecn),
    /// Whether they spread what they send over the round trip.
    Pacing(bool),
}

/// A kind of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// rdma-core's rping.
    Rping,
    /// The counterpart of `ironwarp-bench`.
    Perf,
    /// Sends back what it is sent.
    Echo,
}

impl ServiceKind {
    /// Its word in the command language.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rping => "rping",
            Self::Perf => "perf",
            Self::Echo => "echo",
        }
    }
}

/// What `start SERVICE` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRequest {
    /// Which.
    pub kind: ServiceKind,
    /// Address (unspecified: all of the port's) and TCP port.
    pub local: SocketAddr,
    /// On which DPDK ports.
    pub ports: PortSelector,
    /// Most connections of one poll core at a time; the service's own choice, if not set.
    pub max_connections: Option<u32>,
}

/// What `show` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Name, address, link and offloads of ports.
    PortInfo(PortSelector),
    /// Packets and octets of ports, and what was dropped and why.
    PortStats(PortSelector),
    /// The drivers' own counters.
    PortXstats(PortSelector),
    /// The commands that lead to the present set-up.
    Config,
    /// Connections.
    Connections,
    /// Listeners.
    Listeners,
    /// Registered memory.
    Memory,
    /// Services and what they did.
    Services,
    /// Counters of TCP and iWARP.
    IwarpStats,
}

/// A parsed command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `set port N address ADDR/LEN`
    AddAddress {
        /// The port.
        port: u16,
        /// The address.
        address: IpCidr,
    },
    /// `del port N address ADDR/LEN`
    RemoveAddress {
        /// The port.
        port: u16,
        /// The address.
        address: IpCidr,
    },
    /// `set port N mtu M`
    SetMtu {
        /// The port.
        port: u16,
        /// Octets of the largest IP packet.
        mtu: u16,
    },
    /// `set port N vlan ID`
    SetVlan {
        /// The port.
        port: u16,
        /// All frames carry this tag; none, if not set.
        vlan: Option<u16>,
    },
    /// `set port N checksum-offload on|off`
    SetChecksumOffload {
        /// The port.
        port: u16,
        /// Whether to use the device's offload, if it has one.
        on: bool,
    },
    /// `set port N congestion|ecn|pacing VALUE`
    SetTcp {
        /// The port.
        port: u16,
        /// What for its connections.
        setting: TcpSetting,
    },
    /// `add route DEST/LEN via ADDR port N`
    AddRoute {
        /// The port.
        port: u16,
        /// Where to.
        destination: IpCidr,
        /// Through whom.
        gateway: IpAddr,
    },
    /// `del route DEST/LEN via ADDR port N`
    RemoveRoute {
        /// The port.
        port: u16,
        /// Where to.
        destination: IpCidr,
        /// Through whom.
        gateway: IpAddr,
    },
    /// `set idle busy|yield`
    SetIdle(IdlePolicy),
    /// `set mpa SETTING VALUE`
    SetMpa(MpaSetting),
    /// `start`
    Start,
    /// `start SERVICE ADDR:PORT`
    StartService(ServiceRequest),
    /// `stop`
    Stop,
    /// `stop SERVICE ADDR:PORT`
    StopService {
        /// Which.
        kind: ServiceKind,
        /// Where it listens.
        local: SocketAddr,
    },
    /// `quit`
    Quit,
    /// `load FILE`
    Load(PathBuf),
    /// `show ...`
    Show(Show),
    /// `clear port stats N|all`
    ClearPortStats(PortSelector),
    /// `help [VERB]`
    Help(Option<String>),
}

impl Command {
    /// The one DPDK port that it is about.
    pub fn port(&self) -> Option<u16> {
        let selector = match self {
            Self::AddAddress { port, .. }
            | Self::RemoveAddress { port, .. }
            | Self::SetMtu { port, .. }
            | Self::SetVlan { port, .. }
            | Self::SetChecksumOffload { port, .. }
            | Self::SetTcp { port, .. }
            | Self::AddRoute { port, .. }
            | Self::RemoveRoute { port, .. } => PortSelector::One(*port),
            Self::StartService(request) => request.ports,
            Self::Show(Show::PortInfo(ports) | Show::PortStats(ports) | Show::PortXstats(ports))
            | Self::ClearPortStats(ports) => *ports,
            _ => PortSelector::All,
        };
        match selector {
            PortSelector::One(port) => Some(port),
            PortSelector::All => None,
        }
    }
}
