//! One host interface: addresses, routes, neighbours and ICMP below TCP.

use core::net::IpAddr;

use crate::addr::IpCidr;
use crate::counters::InterfaceCounters;
use crate::device::{Capabilities, ChecksumStatus, Device};
use crate::ethernet::Vlan;
use crate::header::HeaderTemplate;
use crate::icmp::IcmpError;
use crate::neighbor::NeighborHandle;
use crate::queue::TransmitQueue;
use crate::time::Instant;

/// Settings of an [`Interface`].
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// The VLAN that all frames belong to, if any.
    pub vlan: Option<Vlan>,
    /// Hop limit (IPv4: TTL) of what we send.
    pub hop_limit: u8,
}

impl Default for InterfaceConfig {
    fn default() -> Self {
        Self { vlan: None, hop_limit: 64 }
    }
}

/// What became of a received frame.
#[derive(Debug)]
pub enum Ingress<F> {
    /// A TCP segment for one of our addresses; its TCP checksum is still to be verified.
    Tcp(TcpDatagram<F>),
    /// An ICMP error about one of our TCP segments.
    TransportError(IcmpError),
    /// Handled or dropped here.
    Consumed,
}

/// A TCP segment without its lower headers.
#[derive(Debug)]
pub struct TcpDatagram<F> {
    /// The window is the TCP segment: header to the end of the IP payload, padding cut off.
    pub frame: F,
    /// The peer's address.
    pub source: IpAddr,
    /// Our address.
    pub destination: IpAddr,
    /// The two ECN bits.
    pub ecn: u8,
    /// The port's verdict on the checksums.
    pub checksum: ChecksumStatus,
    /// The Ethernet address that the frame came from.
    pub source_mac: [u8; 6],
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
    /// It did not answer; a later call tries anew.
    Unreachable,
}

/// Why an address or a route cannot be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceError {
    /// The address names no single host.
    NotUnicast,
    /// It is there already.
    Exists,
    /// The table is full.
    Full,
    /// The gateway is on none of our networks.
    GatewayUnreachable,
}

/// One host interface; see the module's head.
#[derive(Debug)]
pub struct Interface {
    config: InterfaceConfig,
    counters: InterfaceCounters,
}

impl Interface {
    /// An interface with no address but the IPv6 link-local one.
    pub fn new(capabilities: &Capabilities, config: InterfaceConfig, seed: u64) -> Self {
        let _ = (capabilities, seed);
        Self { config, counters: InterfaceCounters::default() }
    }

    /// Adds an address; its network becomes reachable on the link.
    ///
    /// # Errors
    /// See [`InterfaceError`].
    pub fn add_address(&mut self, cidr: IpCidr) -> Result<(), InterfaceError> {
        let _ = cidr;
        Ok(())
    }

    /// Removes an address; false when it was not there.
    pub fn remove_address(&mut self, addr: IpAddr) -> bool {
        let _ = addr;
        false
    }

    /// Our addresses with their networks.
    pub fn addresses(&self) -> impl Iterator<Item = IpCidr> {
        core::iter::empty()
    }

    /// Whether `addr` is one of ours.
    pub fn has_address(&self, addr: IpAddr) -> bool {
        self.addresses().any(|ours| ours.addr() == addr)
    }

    /// Adds a route through a gateway on one of our networks; the longest prefix wins.
    ///
    /// # Errors
    /// See [`InterfaceError`].
    pub fn add_route(&mut self, destination: IpCidr, gateway: IpAddr) -> Result<(), InterfaceError> {
        let _ = (destination, gateway);
        Ok(())
    }

    /// Looks at one received frame: answers ARP, ND and echo itself, hands TCP up.
    pub fn receive<D: Device>(
        &mut self,
        frame: D::Frame,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) -> Ingress<D::Frame> {
        let _ = (frame, device, out, now);
        Ingress::Consumed
    }

    /// How to reach `remote`; `None` when there is no route.
    pub fn route(&self, remote: IpAddr) -> Option<Route> {
        let _ = remote;
        None
    }

    /// Notes a smaller path MTU, after TCP has found the ICMP error credible.
    pub fn update_path_mtu(&mut self, remote: IpAddr, mtu: usize, now: Instant) {
        let _ = (remote, mtu, now);
    }

    /// Finds a next hop's Ethernet address; starts or continues to ask for it.
    pub fn resolve<D: Device>(
        &mut self,
        next_hop: IpAddr,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) -> Resolution {
        let _ = (next_hop, device, out, now);
        Resolution::Pending
    }

    /// Changes whenever a pending resolution was answered or given up.
    pub fn resolutions(&self) -> u64 {
        0
    }

    /// The headers for TCP segments to `destination` through a resolved neighbour.
    ///
    /// # Panics
    /// When the addresses are of different IP versions.
    pub fn header(&self, neighbor: NeighborHandle, source: IpAddr, destination: IpAddr) -> HeaderTemplate {
        let _ = neighbor;
        self.header_to([0; 6], source, destination)
    }

    /// The headers for an answer straight to the station that a segment came from.
    ///
    /// For SYN,ACKs and resets without state; the template is never current.
    ///
    /// # Panics
    /// When the addresses are of different IP versions.
    pub fn header_to(&self, mac: [u8; 6], source: IpAddr, destination: IpAddr) -> HeaderTemplate {
        let parts = crate::header::HeaderParts {
            source_mac: crate::addr::EthernetAddress([0; 6]),
            destination_mac: crate::addr::EthernetAddress(mac),
            vlan: self.config.vlan,
            source,
            destination,
            protocol: smoltcp::wire::IpProtocol::Tcp,
            hop_limit: self.config.hop_limit,
        };
        HeaderTemplate::new(&parts, NeighborHandle::NONE)
    }

    /// Whether the template's Ethernet address still holds; marks the neighbour as used.
    pub fn template_is_current(&self, template: &HeaderTemplate) -> bool {
        let _ = template;
        false
    }

    /// Notes that the neighbour is alive: TCP made progress through it.
    pub fn confirm(&self, neighbor: NeighborHandle) {
        let _ = neighbor;
    }

    /// Does what is due: retries, refreshes, ageing, announcements.
    pub fn poll<D: Device>(&mut self, device: &mut D, out: &mut TransmitQueue<D::Frame>, now: Instant) {
        let _ = (device, out, now);
    }

    /// When [`Interface::poll`] must be called again at the latest.
    pub fn poll_at(&self) -> Option<Instant> {
        None
    }

    /// What was seen, sent and dropped.
    pub fn counters(&self) -> &InterfaceCounters {
        &self.counters
    }
}
