//! The set-up that commands have asked for: addresses, routes, services.
//!
//! It exists apart from what runs, so that a file can be checked without starting, `stop` and `start`
//! come back to the same set-up, and `show config` gives the commands that lead to it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use iwarp::mpa::{Profile, Revision};
use tcpstack::addr::IpCidr;
use tcpstack::tcp::congestion::CongestionControl;
use tcpstack::tcp::ecn::Ecn;

use crate::address::{self, AddressError};
use crate::commands::{
    Command, IdlePolicy, MpaSetting, PortSelector, ServiceKind, ServiceRequest, TcpSetting,
};

/// Ports of one process: DPDK's own limit.
pub const PORTS_MAX: u16 = 32;

/// Addresses of one port; more have no use, and the stack looks through them one by one.
pub const ADDRESSES_MAX: usize = 16;

/// What is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    ports: BTreeMap<u16, PortPlan>,
    services: Vec<ServicePlan>,
    idle: IdlePolicy,
    mpa: MpaPlan,
    running: bool,
}

/// What is set up for one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// Its addresses.
    pub addresses: Vec<IpCidr>,
    /// Its routes through gateways.
    pub routes: Vec<RoutePlan>,
    /// Octets of the largest IP packet; the device's own choice, if not set.
    pub mtu: Option<u16>,
    /// The VLAN that its frames belong to, if any.
    pub vlan: Option<u16>,
    /// Whether to do without the device's checksum offload.
    pub software_checksums: bool,
    /// How its connections behave.
    pub tcp: TcpPlan,
}

/// How a port's connections behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpPlan {
    /// How they find out how much their path takes.
    pub congestion: CongestionControl,
    /// When they use Explicit Congestion Notification.
    pub ecn: Ecn,
    /// Whether they spread what they send over the round trip.
    pub pacing: bool,
}

/// A route through a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Where to.
    pub destination: IpCidr,
    /// Through whom.
    pub gateway: IpAddr,
}

/// A service, and how it negotiates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePlan {
    /// What was asked for.
    pub request: ServiceRequest,
    /// The settings at that time.
    pub mpa: MpaPlan,
}

/// What services negotiate in MPA's start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpaPlan {
    /// Whether to ask for CRCs.
    pub crc: bool,
    /// Whether to ask for markers.
    pub markers: bool,
    /// Highest revision.
    pub revision: u8,
    /// Inbound RDMA Reads to serve at a time.
    pub ird: u16,
    /// Outbound RDMA Reads at a time.
    pub ord: u16,
}

impl Default for MpaPlan {
    fn default() -> Self {
        let Profile { revision, crc, markers, ird, ord, .. } = Profile::default();
        Self { crc, markers, revision: revision.number(), ird, ord }
    }
}

/// A command cannot be followed in the present set-up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// DPDK has no such port.
    #[error("there is no port {0}; port numbers are from 0 to {last}", last = PORTS_MAX - 1)]
    NoSuchPort(u16),
    /// The options for DPDK make no such port.
    #[error("there is no port {port}: the `eal` lines make {}", Made(ports))]
    NoPortMade {
        /// The port.
        port: u16,
        /// The names of those that they make.
        ports: Vec<String>,
    },
    /// A service listens on an address that no port of it has.
    #[error("{} the address {address} to listen on; give it one with `set port N address`", Where(*port))]
    NoSuchListenAddress {
        /// The address.
        address: IpAddr,
        /// The port, when it listens on one only.
        port: Option<u16>,
    },
    /// An address that no single host can have.
    #[error("{0}")]
    NotAHost(#[from] AddressError),
    /// The port has the address already.
    #[error("port {0} has the address {1} already")]
    DuplicateAddress(u16, IpAddr),
    /// The port does not have the address.
    #[error("port {0} does not have the address {1}; see `show config`")]
    NoSuchAddress(u16, IpCidr),
    /// The port's table of addresses is full.
    #[error("port {0} has {ADDRESSES_MAX} addresses already, which is the most")]
    TooManyAddresses(u16),
    /// A gateway that cannot be reached directly.
    #[error("the gateway {1} is in no network of port {0}; first give the port an address in its network")]
    GatewayNotOnLink(u16, IpAddr),
    /// A destination and a gateway of different IP versions.
    #[error("{0} and the gateway {1} are of different IP versions")]
    GatewayFamily(IpCidr, IpAddr),
    /// The port has a route to the network already.
    #[error("port {0} has a route to {1} already")]
    DuplicateRoute(u16, IpCidr),
    /// The port does not have the route.
    #[error("port {0} has no route to {dest} via {gateway}; see `show config`", dest = .1.destination, gateway = .1.gateway)]
    NoSuchRoute(u16, RoutePlan),
    /// Something that only works before `start`.
    #[error("this cannot be changed while the poll cores run; `stop` first")]
    Running,
    /// `start` once more.
    #[error("the poll cores run already")]
    AlreadyStarted,
    /// `stop` before `start`.
    #[error("the poll cores do not run; `start` first")]
    NotStarted,
    /// A service is there already.
    #[error("{kind} at {1} is started already", kind = .0.word())]
    ServiceExists(ServiceKind, SocketAddr),
    /// Another service has the TCP port.
    #[error("{kind} has {1}; choose another TCP port", kind = .0.word())]
    AddressInUse(ServiceKind, SocketAddr),
    /// No such service.
    #[error("there is no {kind} at {1}; see `show service`", kind = .0.word())]
    NoSuchService(ServiceKind, SocketAddr),
}

struct Made<'a>(&'a [String]);

impl fmt::Display for Made<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none; add a virtual one with --vdev, for example --vdev net_tap0");
        }
        let ports: Vec<String> =
            self.0.iter().zip(0..).map(|(name, port)| format!("{port} ({name})")).collect();
        f.write_str(&ports.join(", "))
    }
}

struct Where(Option<u16>);

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(port) => write!(f, "port {port} has not"),
            None => f.write_str("no port has"),
        }
    }
}

impl Plan {
    /// Takes a command's effect over. Commands that only ask or that need no set-up change nothing.
    ///
    /// # Errors
    /// Says why the command cannot be followed; nothing is changed then.
    pub fn apply(&mut self, command: &Command) -> Result<(), PlanError> {
        match command {
            Command::AddAddress { port, address } => self.add_address(*port, *address)?,
            Command::RemoveAddress { port, address } => self.remove_address(*port, *address)?,
            Command::AddRoute { port, destination, gateway } => {
                self.add_route(*port, RoutePlan { destination: *destination, gateway: *gateway })?;
            }
            Command::RemoveRoute { port, destination, gateway } => {
                self.remove_route(*port, RoutePlan { destination: *destination, gateway: *gateway })?;
            }
            Command::SetMtu { port, mtu } => {
                self.check_stopped()?;
                self.port_mut(*port)?.mtu = Some(*mtu);
            }
            Command::SetVlan { port, vlan } => {
                self.check_stopped()?;
                self.port_mut(*port)?.vlan = *vlan;
            }
            Command::SetChecksumOffload { port, on } => {
                self.check_stopped()?;
                self.port_mut(*port)?.software_checksums = !on;
            }
            Command::SetTcp { port, setting } => {
                self.check_stopped()?;
                self.port_mut(*port)?.tcp.set(*setting);
            }
            Command::SetIdle(idle) => {
                self.check_stopped()?;
                self.idle = *idle;
            }
            Command::SetMpa(setting) => self.mpa.set(*setting),
            Command::StartService(request) => self.start_service(request)?,
            Command::StopService { kind, local } => {
                let known = self.services.iter().position(|service| service.is(*kind, *local));
                let index = known.ok_or(PlanError::NoSuchService(*kind, *local))?;
                self.services.remove(index);
            }
            Command::Start if self.running => return Err(PlanError::AlreadyStarted),
            Command::Start => self.running = true,
            Command::Stop if !self.running => return Err(PlanError::NotStarted),
            Command::Stop => self.running = false,
            Command::Show(_)
            | Command::ClearPortStats(_)
            | Command::Help(_)
            | Command::Load(_)
            | Command::Quit => {}
        }
        Ok(())
    }

    /// The ports that something is set up for.
    pub fn ports(&self) -> impl Iterator<Item = (u16, &PortPlan)> {
        self.ports.iter().map(|(port, plan)| (*port, plan))
    }

    /// What is set up for a port.
    pub fn port(&self, port: u16) -> Option<&PortPlan> {
        self.ports.get(&port)
    }

    /// The services, in the order in which they were started.
    pub fn services(&self) -> &[ServicePlan] {
        &self.services
    }

    /// What poll cores do without work.
    pub fn idle(&self) -> IdlePolicy {
        self.idle
    }

    /// The settings for services that are started from now on.
    pub fn mpa(&self) -> MpaPlan {
        self.mpa
    }

    /// Whether `start` came, and no `stop` since.
    pub fn is_running(&self) -> bool {
        self.running
    }

    fn add_address(&mut self, port: u16, address: IpCidr) -> Result<(), PlanError> {
        address::check(address)?;
        let host = address.addr();
        let plan = self.port_mut(port)?;
        if plan.addresses.iter().any(|known| known.addr() == host) {
            return Err(PlanError::DuplicateAddress(port, host));
        }
        if plan.addresses.len() == ADDRESSES_MAX {
            return Err(PlanError::TooManyAddresses(port));
        }
        plan.addresses.push(address);
        Ok(())
    }

    fn remove_address(&mut self, port: u16, address: IpCidr) -> Result<(), PlanError> {
        let missing = PlanError::NoSuchAddress(port, address);
        let plan = self.ports.get_mut(&port).ok_or(missing.clone())?;
        let index = plan.addresses.iter().position(|known| *known == address).ok_or(missing)?;
        plan.addresses.remove(index);
        // As the stack does it: a route goes with the last address that had its gateway on the link.
        let PortPlan { addresses, routes, .. } = plan;
        routes.retain(|route| is_on_link(addresses, route.gateway));
        Ok(())
    }

    fn add_route(&mut self, port: u16, route: RoutePlan) -> Result<(), PlanError> {
        let RoutePlan { destination, gateway } = route;
        if destination.addr().is_ipv4() != gateway.is_ipv4() {
            return Err(PlanError::GatewayFamily(destination, gateway));
        }
        let plan = self.port_mut(port)?;
        if !is_on_link(&plan.addresses, gateway) {
            return Err(PlanError::GatewayNotOnLink(port, gateway));
        }
        if plan.routes.iter().any(|known| known.destination == destination) {
            return Err(PlanError::DuplicateRoute(port, destination));
        }
        plan.routes.push(route);
        Ok(())
    }

    fn remove_route(&mut self, port: u16, route: RoutePlan) -> Result<(), PlanError> {
        let missing = PlanError::NoSuchRoute(port, route);
        let plan = self.ports.get_mut(&port).ok_or(missing.clone())?;
        let index = plan.routes.iter().position(|known| *known == route).ok_or(missing)?;
        plan.routes.remove(index);
        Ok(())
    }

    fn start_service(&mut self, request: &ServiceRequest) -> Result<(), PlanError> {
        let same = self.services.iter().map(|service| &service.request).find(|other| {
            other.local == request.local
                && (other.ports == request.ports
                    || other.ports == PortSelector::All
                    || request.ports == PortSelector::All)
        });
        match same {
            Some(other) if other.kind == request.kind => {
                Err(PlanError::ServiceExists(request.kind, request.local))
            }
            Some(other) => Err(PlanError::AddressInUse(other.kind, request.local)),
            None => {
                self.services.push(ServicePlan { request: request.clone(), mpa: self.mpa });
                Ok(())
            }
        }
    }

    fn check_stopped(&self) -> Result<(), PlanError> {
        if self.running { Err(PlanError::Running) } else { Ok(()) }
    }

    fn port_mut(&mut self, port: u16) -> Result<&mut PortPlan, PlanError> {
        if port >= PORTS_MAX {
            return Err(PlanError::NoSuchPort(port));
        }
        Ok(self.ports.entry(port).or_default())
    }
}

/// The commands that lead to this set-up, one a line.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.idle == IdlePolicy::Yield {
            writeln!(f, "set idle yield")?;
        }
        for (port, plan) in &self.ports {
            if let Some(mtu) = plan.mtu {
                writeln!(f, "set port {port} mtu {mtu}")?;
            }
            if let Some(vlan) = plan.vlan {
                writeln!(f, "set port {port} vlan {vlan}")?;
            }
            if plan.software_checksums {
                writeln!(f, "set port {port} checksum-offload off")?;
            }
            plan.tcp.write(*port, f)?;
            for address in &plan.addresses {
                writeln!(f, "set port {port} address {address}")?;
            }
            for route in &plan.routes {
                writeln!(f, "add route {} via {} port {port}", route.destination, route.gateway)?;
            }
        }
        let mut mpa = MpaPlan::default();
        for ServicePlan { request, mpa: wanted } in &self.services {
            mpa.write_changes(wanted, f)?;
            mpa = *wanted;
            write!(f, "start {} {}", request.kind.word(), request.local)?;
            if let PortSelector::One(port) = request.ports {
                write!(f, " port {port}")?;
            }
            if let Some(max_connections) = request.max_connections {
                write!(f, " max-connections {max_connections}")?;
            }
            writeln!(f)?;
        }
        mpa.write_changes(&self.mpa, f)?;
        if self.running {
            writeln!(f, "start")?;
        }
        Ok(())
    }
}

impl ServicePlan {
    /// Whether it is the service of that kind and address.
    pub fn is(&self, kind: ServiceKind, local: SocketAddr) -> bool {
        self.request.kind == kind && self.request.local == local
    }
}

impl MpaPlan {
    /// The profile to listen with.
    pub fn profile(&self) -> Profile {
        Profile {
            revision: if self.revision == 1 { Revision::V1 } else { Revision::V2 },
            crc: self.crc,
            markers: self.markers,
            ird: self.ird,
            ord: self.ord,
            ..Profile::default()
        }
    }

    fn set(&mut self, setting: MpaSetting) {
        match setting {
            MpaSetting::Crc(crc) => self.crc = crc,
            MpaSetting::Markers(markers) => self.markers = markers,
            MpaSetting::Revision(revision) => self.revision = revision,
            MpaSetting::Ird(ird) => self.ird = ird,
            MpaSetting::Ord(ord) => self.ord = ord,
        }
    }

    /// The commands that make `wanted` of `self`.
    fn write_changes(&self, wanted: &Self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on| if on { "on" } else { "off" };
        if self.crc != wanted.crc {
            writeln!(f, "set mpa crc {}", switch(wanted.crc))?;
        }
        if self.markers != wanted.markers {
            writeln!(f, "set mpa markers {}", switch(wanted.markers))?;
        }
        if self.revision != wanted.revision {
            writeln!(f, "set mpa revision {}", wanted.revision)?;
        }
        if self.ird != wanted.ird {
            writeln!(f, "set mpa ird {}", wanted.ird)?;
        }
        if self.ord != wanted.ord {
            writeln!(f, "set mpa ord {}", wanted.ord)?;
        }
        Ok(())
    }
}

impl TcpPlan {
    fn set(&mut self, setting: TcpSetting) {
        match setting {
            TcpSetting::Congestion(congestion) => self.congestion = congestion,
            TcpSetting::Ecn(ecn) => self.ecn = ecn,
            TcpSetting::Pacing(pacing) => self.pacing = pacing,
        }
    }

    /// The commands that make this of the defaults.
    fn write(&self, port: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { congestion, ecn, pacing } = *self;
        let default = Self::default();
        if congestion != default.congestion {
            writeln!(f, "set port {port} congestion {}", congestion.name())?;
        }
        if ecn != default.ecn {
            let when = match ecn {
                Ecn::Off => "off",
                Ecn::Accept => "accept",
                Ecn::Request => "request",
            };
            writeln!(f, "set port {port} ecn {when}")?;
        }
        if pacing {
            writeln!(f, "set port {port} pacing on")?;
        }
        Ok(())
    }
}

/// Whether a gateway can be reached directly.
fn is_on_link(addresses: &[IpCidr], gateway: IpAddr) -> bool {
    addresses.iter().any(|address| address.contains(gateway)) || is_link_local(gateway)
}

/// Link-local addresses are on every link, so no address of the port has to say so.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => false,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::parse_line;

    fn plan(lines: &str) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        for line in lines.lines() {
            if let Some(command) = parse_line(line).unwrap() {
                plan.apply(&command)?;
            }
        }
        Ok(plan)
    }

    #[test]
    fn show_config_leads_to_the_same_plan() {
        let first = plan(
            "set idle yield
             set port 0 mtu 9000
             set port 0 address 10.77.0.1/24
             set port 0 address fd77::1/64
             set port 1 address 10.78.0.1/24
             add route 0.0.0.0/0 via 10.78.0.254 port 1
             start rping 0.0.0.0:7174
             set mpa crc off
             set mpa revision 1
             set port 1 vlan 7
             set port 1 checksum-offload off
             set port 1 congestion dctcp
             set port 1 ecn request
             set port 1 pacing on
             set port 0 congestion newreno
             set port 0 ecn off
             start perf [::]:18515 port 0 max-connections 9
             set mpa crc on
             set mpa ord 3
             start",
        )
        .unwrap();
        let shown = first.to_string();
        assert_eq!(plan(&shown).unwrap(), first, "{shown}");
        assert!(shown.contains("set mpa crc off\nset mpa revision 1\nstart perf"));
        assert!(first.is_running());
    }

    #[test]
    fn services_keep_the_settings_of_their_time() {
        let plan = plan("start rping 0.0.0.0:1\nset mpa crc off\nstart rping 0.0.0.0:2").unwrap();
        assert!(plan.services()[0].mpa.crc);
        assert!(!plan.services()[1].mpa.crc);
        assert!(!plan.mpa().crc);
    }

    #[test]
    fn what_contradicts_the_set_up_is_refused() {
        let refused = |lines: &str| plan(lines).unwrap_err();
        let endpoint: SocketAddr = "0.0.0.0:7174".parse().unwrap();
        assert_eq!(refused("set port 32 address 10.0.0.1/8"), PlanError::NoSuchPort(32));
        assert!(matches!(refused("set port 0 address 127.0.0.1/8"), PlanError::NotAHost(_)));
        assert!(matches!(refused("set port 0 address 10.0.0.0/8"), PlanError::NotAHost(_)));
        assert_eq!(
            refused("set port 0 address 10.0.0.1/8\nset port 0 address 10.0.0.1/16"),
            PlanError::DuplicateAddress(0, [10, 0, 0, 1].into())
        );
        assert!(matches!(refused("del port 0 address 10.0.0.1/8"), PlanError::NoSuchAddress(0, _)));
        assert_eq!(
            refused("add route 0.0.0.0/0 via 10.0.0.1 port 0"),
            PlanError::GatewayNotOnLink(0, [10, 0, 0, 1].into())
        );
        assert!(matches!(refused("add route ::/0 via 10.0.0.1 port 0"), PlanError::GatewayFamily(..)));
        let route = "set port 0 address 10.0.0.1/8\nadd route 0.0.0.0/0 via 10.0.0.2 port 0\n";
        let missing = |line| matches!(refused(&format!("{route}{line}")), PlanError::NoSuchRoute(..));
        assert!(missing("del route 0.0.0.0/0 via 10.0.0.3 port 0"));
        assert!(missing("del route 11.0.0.0/8 via 10.0.0.2 port 0"));
        assert!(missing("del route 0.0.0.0/0 via 10.0.0.2 port 1"));
        assert_eq!(refused("start\nset port 0 mtu 1500"), PlanError::Running);
        assert_eq!(refused("start\nset idle yield"), PlanError::Running);
        assert_eq!(refused("start\nstart"), PlanError::AlreadyStarted);
        assert_eq!(refused("stop"), PlanError::NotStarted);
        assert_eq!(
            refused("start rping 0.0.0.0:7174 port 1\nstart rping 0.0.0.0:7174"),
            PlanError::ServiceExists(ServiceKind::Rping, endpoint)
        );
        assert_eq!(
            refused("start rping 0.0.0.0:7174\nstart perf 0.0.0.0:7174 port 3"),
            PlanError::AddressInUse(ServiceKind::Rping, endpoint)
        );
        assert_eq!(
            refused("stop rping 0.0.0.0:7174"),
            PlanError::NoSuchService(ServiceKind::Rping, endpoint)
        );
    }

    #[test]
    fn what_is_deleted_is_as_if_it_never_was() {
        let with = "set port 0 address 10.0.0.1/8\nadd route 0.0.0.0/0 via 10.0.0.2 port 0";
        let without = plan("set port 0 address 10.0.0.1/8").unwrap();
        assert_eq!(plan(&format!("{with}\ndel route 0.0.0.0/0 via 10.0.0.2 port 0")).unwrap(), without);
        // A gateway is no neighbour any more without the address whose network it is in.
        let gone = plan(&format!("{with}\ndel port 0 address 10.0.0.1/8")).unwrap();
        assert_eq!(gone.port(0), Some(&PortPlan::default()));
    }

    #[test]
    fn a_refused_command_changes_nothing() {
        let mut plan = plan("set port 0 address 10.0.0.1/8").unwrap();
        let before = plan.clone();
        let command = parse_line("add route 0.0.0.0/0 via 11.0.0.1 port 0").unwrap().unwrap();
        plan.apply(&command).unwrap_err();
        assert_eq!(plan, before);
    }
}
