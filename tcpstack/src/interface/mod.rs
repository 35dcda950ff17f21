//! One host interface: addresses, routes, neighbours and ICMP below TCP.
//!
//! The stack gives each received frame to [`Interface::receive`], which answers ARP, neighbour
//! discovery and echo itself and hands TCP segments up. To send, TCP asks for a [`Route`] and
//! resolves its next hop; when that is [`Resolution::Ready`] it makes a [`HeaderTemplate`], and
//! asks for it anew once [`Interface::template_is_current`] says no. Once a turn
//! [`Interface::poll`] does what is due. RFC 1122 section 3, RFC 4861, RFC 5227.
//!
//! There is no forwarding, no reassembly, no router discovery and no address autoconfiguration
//! but for the link-local address; multicast listeners are not reported (RFC 3810).

mod control;
mod receive;
mod route;

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use smoltcp::wire::IpProtocol;

pub use self::receive::{Ingress, TcpDatagram};
pub use self::route::GatewayRoute;
use self::route::PathMtus;
use crate::addr::{ALL_NODES, EthernetAddress, IpCidr, is_unicast, link_local, solicited_node};
use crate::counters::InterfaceCounters;
use crate::device::{Capabilities, Device};
use crate::ethernet::Vlan;
use crate::header::{HeaderParts, HeaderTemplate};
use crate::icmp::RateLimit;
use crate::neighbor::table::{NeighborTable, Resolved};
use crate::neighbor::{NeighborConfig, NeighborHandle, NeighborInfo};
use crate::queue::TransmitQueue;
use crate::time::Instant;

/// Our addresses; each packet is compared with all of them.
const ADDRESSES_MAX: usize = 32;
/// Between two announcements of an address (RFC 5227: ANNOUNCE_INTERVAL).
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(2);
/// Between two defences of an address (RFC 5227: DEFEND_INTERVAL).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// Settings of an [`Interface`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// The VLAN that all frames belong to, if any.
    pub vlan: Option<Vlan>,
    /// Hop limit (IPv4: TTL) of what we send.
    // req 9293-3.9.2-1
    pub hop_limit: u8,
    /// Times and limits of the neighbour table.
    pub neighbor: NeighborConfig,
    /// Remotes whose path MTU is remembered.
    pub path_mtu_limit: usize,
    /// How long it is, before a larger one is tried (RFC 1191 section 6.3).
    pub path_mtu_age: Duration,
    /// Echo replies a second, after a burst of [`echo_burst`](Self::echo_burst).
    pub echo_per_second: u32,
    /// Echo replies at once.
    pub echo_burst: u32,
    /// How often an added address is announced (RFC 5227: ANNOUNCE_NUM).
    pub announcements: u8,
}

impl Default for InterfaceConfig {
    fn default() -> Self {
        Self {
            vlan: None,
            hop_limit: 64,
            neighbor: NeighborConfig::default(),
            path_mtu_limit: 1024,
            path_mtu_age: Duration::from_secs(600),
            echo_per_second: 1000,
            echo_burst: 100,
            announcements: 2,
        }
    }
}

/// How to reach a remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Our address to send from.
    pub source: IpAddr,
    /// The neighbour to send to: the remote itself or a gateway.
    pub next_hop: IpAddr,
    /// Largest IP packet on the path, as far as known.
    pub mtu: usize,
}

/// State of a neighbour's resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The neighbour's Ethernet address is known.
    Ready(NeighborHandle),
    /// It has been asked for; ask again when [`Interface::resolutions`] has changed.
    Pending,
    /// It did not answer, or there is no room to ask; a later call tries anew.
    Unreachable,
}

/// Why an address or a route cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceError {
    /// The address names no single host, or the gateway is ourselves.
    NotUnicast,
    /// It is there already.
    Exists,
    /// The table is full.
    Full,
    /// The gateway is on none of our networks.
    GatewayUnreachable,
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotUnicast => "not the address of a single host",
            Self::Exists => "exists already",
            Self::Full => "no room for more",
            Self::GatewayUnreachable => "the gateway is on none of the interface's networks",
        })
    }
}

impl core::error::Error for InterfaceError {}

/// One host interface; see the module's head.
#[derive(Debug)]
pub struct Interface {
    mac: EthernetAddress,
    mtu: usize,
    config: InterfaceConfig,
    locals: Vec<Local>,
    /// Between whom the last TCP segment for us went; forgotten when an address comes or goes.
    accepted: Option<receive::Accepted>,
    routes: Vec<GatewayRoute>,
    neighbors: NeighborTable,
    path_mtus: PathMtus,
    echo_limit: RateLimit,
    counters: InterfaceCounters,
}

/// One of our addresses.
#[derive(Clone, Copy, Debug)]
struct Local {
    cidr: IpCidr,
    /// The IPv4 network's broadcast address.
    broadcast: Option<IpAddr>,
    /// Announcements left to be sent, and when the next is due.
    announcements: u8,
    announce_at: Instant,
    /// Earliest time at which the address is defended again.
    defend_at: Instant,
}

impl Interface {
    /// An interface with no address but the IPv6 link-local one.
    pub fn new(capabilities: &Capabilities, config: InterfaceConfig, seed: u64) -> Self {
        let mac = EthernetAddress(capabilities.mac);
        let mut interface = Self {
            mac,
            mtu: capabilities.mtu,
            locals: Vec::with_capacity(ADDRESSES_MAX),
            accepted: None,
            routes: Vec::new(),
            neighbors: NeighborTable::new(config.neighbor.clone(), seed),
            path_mtus: PathMtus::new(config.path_mtu_limit),
            echo_limit: RateLimit::new(config.echo_per_second, config.echo_burst),
            counters: InterfaceCounters::default(),
            config,
        };
        let link_local = IpCidr::new(link_local(mac).into(), 64).expect("64 bits fit an IPv6 address");
        // Always a link-local unicast address, and the first.
        interface.add_address(link_local).expect("an empty interface takes its link-local address");
        interface
    }

    /// Adds an address; its network becomes reachable on the link.
    ///
    /// # Errors
    /// See [`InterfaceError`].
    pub fn add_address(&mut self, cidr: IpCidr) -> Result<(), InterfaceError> {
        let broadcast = cidr.broadcast().map(IpAddr::V4);
        if !is_unicast(cidr.addr()) || broadcast == Some(cidr.addr()) {
            return Err(InterfaceError::NotUnicast);
        }
        if self.has_address(cidr.addr()) {
            return Err(InterfaceError::Exists);
        }
        if self.locals.len() == ADDRESSES_MAX {
            return Err(InterfaceError::Full);
        }
        self.accepted = None;
        self.locals.push(Local {
            cidr,
            broadcast,
            announcements: self.config.announcements,
            announce_at: Instant::ZERO,
            defend_at: Instant::ZERO,
        });
        Ok(())
    }

    /// Removes an address, and the routes whose gateways are no neighbours without it.
    ///
    /// False when the address was not there.
    pub fn remove_address(&mut self, addr: IpAddr) -> bool {
        let Some(position) = self.locals.iter().position(|local| local.cidr.addr() == addr) else {
            return false;
        };
        self.accepted = None;
        self.locals.remove(position);
        let locals = &self.locals;
        self.routes.retain(|route| locals.iter().any(|local| local.cidr.contains(route.gateway)));
        true
    }

    /// Finds a next hop's Ethernet address; starts or continues to ask for it.
    pub fn resolve<D: Device>(
        &mut self,
        next_hop: IpAddr,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) -> Resolution {
        if !is_unicast(next_hop) {
            return Resolution::Unreachable;
        }
        match self.neighbors.resolve(next_hop, now, &mut self.counters) {
            Resolved::Ready(handle) => Resolution::Ready(handle),
            Resolved::Unreachable => Resolution::Unreachable,
            Resolved::Pending(solicitation) => {
                if let Some(solicitation) = solicitation {
                    self.solicit(solicitation, device, out);
                }
                Resolution::Pending
            }
        }
    }

    /// Does what is due: retries, refreshes, ageing, announcements.
    pub fn poll<D: Device>(&mut self, device: &mut D, out: &mut TransmitQueue<D::Frame>, now: Instant) {
        while let Some(solicitation) = self.neighbors.poll(now, &mut self.counters) {
            self.solicit(solicitation, device, out);
        }
        self.path_mtus.poll(now);
        for index in 0..self.locals.len() {
            let local = &mut self.locals[index];
            if local.announcements > 0 && local.announce_at <= now {
                local.announcements -= 1;
                local.announce_at = now + ANNOUNCE_INTERVAL;
                let addr = local.cidr.addr();
                self.announce(addr, device, out);
            }
        }
    }

    /// When [`Interface::poll`] must be called again at the latest.
    pub fn poll_at(&self) -> Option<Instant> {
        let announcing = self.locals.iter().filter(|local| local.announcements > 0);
        let announcement = announcing.map(|local| local.announce_at).min();
        [self.neighbors.poll_at(), self.path_mtus.poll_at(), announcement].into_iter().flatten().min()
    }

    /// Our addresses with their networks.
    pub fn addresses(&self) -> impl Iterator<Item = IpCidr> {
        self.locals.iter().map(|local| local.cidr)
    }

    /// Whether `addr` is one of ours.
    pub fn has_address(&self, addr: IpAddr) -> bool {
        self.locals.iter().any(|local| local.cidr.addr() == addr)
    }

    /// The neighbours, by IP address.
    pub fn neighbors(&self) -> impl Iterator<Item = NeighborInfo> {
        self.neighbors.iter()
    }

    /// Changes whenever a pending resolution was answered or given up.
    pub fn resolutions(&self) -> u64 {
        self.neighbors.resolutions()
    }

    /// The headers for TCP segments to `destination` through a resolved neighbour.
    ///
    /// From a handle that has gone stale comes a template that is not current.
    ///
    /// # Panics
    /// When the addresses are of different IP versions.
    pub fn header(&self, neighbor: NeighborHandle, source: IpAddr, destination: IpAddr) -> HeaderTemplate {
        match self.neighbors.mac(neighbor) {
            Some(mac) => self.template(mac, source, destination, IpProtocol::Tcp, neighbor),
            None => self.header_to(self.mac.0, source, destination),
        }
    }

    /// The headers for an answer straight to the station that a segment came from.
    ///
    /// For SYN,ACKs and resets without state; the template is never current.
    ///
    /// # Panics
    /// When the addresses are of different IP versions.
    pub fn header_to(&self, mac: [u8; 6], source: IpAddr, destination: IpAddr) -> HeaderTemplate {
        self.template(EthernetAddress(mac), source, destination, IpProtocol::Tcp, NeighborHandle::NONE)
    }

    /// Whether the template's Ethernet address still holds; marks the neighbour as used.
    ///
    /// Cheap enough for each segment. A neighbour in use is probed before its entry expires.
    #[inline]
    pub fn template_is_current(&self, template: &HeaderTemplate) -> bool {
        self.neighbors.is_current(template.neighbor())
    }

    /// Notes that the neighbour is alive: TCP made progress through it (RFC 4861 section 7.3.1).
    #[inline]
    pub fn confirm(&self, neighbor: NeighborHandle) {
        self.neighbors.confirm(neighbor);
    }

    /// What was seen, sent and dropped.
    pub fn counters(&self) -> &InterfaceCounters {
        &self.counters
    }

    fn template(
        &self,
        destination_mac: EthernetAddress,
        source: IpAddr,
        destination: IpAddr,
        protocol: IpProtocol,
        neighbor: NeighborHandle,
    ) -> HeaderTemplate {
        let parts = HeaderParts {
            source_mac: self.mac,
            destination_mac,
            vlan: self.config.vlan,
            source,
            destination,
            protocol,
            hop_limit: self.config.hop_limit,
        };
        HeaderTemplate::new(&parts, neighbor)
    }

    /// Whether `addr` is a broadcast address of one of our networks.
    fn is_broadcast(&self, addr: IpAddr) -> bool {
        self.locals.iter().any(|local| local.broadcast == Some(addr))
    }

    /// Whether we listen to the group.
    fn in_group(&self, group: Ipv6Addr) -> bool {
        let solicits = |local: &Local| match local.cidr.addr() {
            IpAddr::V6(addr) => solicited_node(addr) == group,
            IpAddr::V4(_) => false,
        };
        group == ALL_NODES || self.locals.iter().any(solicits)
    }

    /// Notes that another station claims one of our addresses, and defends it now and then.
    fn conflict(&mut self, addr: IpAddr, now: Instant) {
        self.counters.duplicate_address += 1;
        for local in self.locals.iter_mut().filter(|local| local.cidr.addr() == addr) {
            if local.announcements == 0 {
                local.announcements = 1;
                local.announce_at = local.defend_at.max(now);
                local.defend_at = local.announce_at + DEFEND_INTERVAL;
            }
        }
    }
}

#[cfg(test)]
mod tests;
