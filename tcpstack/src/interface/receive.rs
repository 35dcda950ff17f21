//! From a received frame to a TCP segment, an answer, or a drop reason.

use core::net::{IpAddr, Ipv6Addr};

use smoltcp::wire::{EthernetProtocol, IpProtocol};

use super::Interface;
use crate::addr::{EthernetAddress, is_unicast, multicast_mac, solicited_node};
use crate::checksum;
use crate::device::{ChecksumStatus, Device, Frame};
use crate::ethernet::{ETHERNET_LEN, EthernetError, EthernetHeader};
use crate::header::IPV4_LEN;
use crate::icmp::{Icmp, IcmpError, IcmpErrorKind};
use crate::ip::{DONT_FRAGMENT, IpError, IpHeader};
use crate::neighbor::arp::{Arp, Operation};
use crate::neighbor::ndp::Ndp;
use crate::neighbor::table::Evidence;
use crate::queue::TransmitQueue;
use crate::time::Instant;

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

/// Between whom a TCP segment went: what was found out about these addresses holds for the next one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted {
    /// As in an IPv4 header.
    octets: [u8; 8],
    source: IpAddr,
    destination: IpAddr,
}

impl Accepted {
    fn between(source: IpAddr, destination: IpAddr) -> Option<Self> {
        let (IpAddr::V4(from), IpAddr::V4(to)) = (source, destination) else { return None };
        let ([a, b, c, d], [e, f, g, h]) = (from.octets(), to.octets());
        Some(Self { octets: [a, b, c, d, e, f, g, h], source, destination })
    }
}

/// Octets of the headers that [`Interface::predicted`] knows.
const PREDICTED_LEN: usize = ETHERNET_LEN + IPV4_LEN;
const IPV4_ETHERTYPE: [u8; 2] = [0x08, 0x00];
/// Version 4, five words of header.
const IPV4_NO_OPTIONS: u8 = 0x45;
const PROTOCOL_TCP: u8 = 6;

impl Interface {
    /// Looks at one received frame: answers ARP, ND and echo itself, hands TCP up.
    #[inline]
    pub fn receive<D: Device>(
        &mut self,
        frame: D::Frame,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) -> Ingress<D::Frame> {
        self.counters.frames_received += 1;
        match self.predicted(frame) {
            Ok(datagram) => Ingress::Tcp(datagram),
            Err(frame) => self.receive_any(frame, device, out, now),
        }
    }

    /// The short way of nearly all segments: one over IPv4, without options, between the same hosts
    /// as the one before. Gives the frame back when it is anything else.
    #[inline]
    fn predicted<F: Frame>(&mut self, mut frame: F) -> Result<TcpDatagram<F>, F> {
        let octets = frame.bytes();
        let (Some(accepted), Some(header)) = (self.accepted, octets.first_chunk::<PREDICTED_LEN>()) else {
            return Err(frame);
        };
        let ip: &[u8; IPV4_LEN] = header.last_chunk().expect("the IP header is the end of both headers");
        let checksum = frame.checksum_status();
        let total_len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let as_before = header[..6] == self.mac.0
            && header[6] & 1 == 0
            && header[12..14] == IPV4_ETHERTYPE
            && self.config.vlan.is_none()
            && ip[0] == IPV4_NO_OPTIONS
            && ip[9] == PROTOCOL_TCP
            && ip[12..20] == accepted.octets
            && u16::from_be_bytes([ip[6], ip[7]]) & !DONT_FRAGMENT == 0
            && (IPV4_LEN..=octets.len() - ETHERNET_LEN).contains(&total_len)
            && (checksum == ChecksumStatus::Good || checksum::finish(checksum::sum(ip)) == 0);
        if !as_before {
            return Err(frame);
        }
        let ecn = ip[1] & 0b11;
        let source_mac = [header[6], header[7], header[8], header[9], header[10], header[11]];
        self.counters.tcp_received += 1;
        frame.trim_front(PREDICTED_LEN);
        frame.truncate(total_len - IPV4_LEN);
        let Accepted { source, destination, .. } = accepted;
        Ok(TcpDatagram { frame, source, destination, ecn, checksum, source_mac })
    }

    fn receive_any<D: Device>(
        &mut self,
        frame: D::Frame,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) -> Ingress<D::Frame> {
        let octets = frame.bytes();
        let ethernet = match EthernetHeader::parse(octets, self.config.vlan) {
            Ok(ethernet) => ethernet,
            Err(EthernetError::Malformed) => {
                self.counters.ethernet_malformed += 1;
                return Ingress::Consumed;
            }
            Err(EthernetError::VlanMismatch) => {
                self.counters.vlan_mismatch += 1;
                return Ingress::Consumed;
            }
        };
        if ethernet.destination != self.mac && !self.hears(ethernet.destination) {
            self.counters.ethernet_not_ours += 1;
            return Ingress::Consumed;
        }
        match ethernet.ethertype {
            EthernetProtocol::Ipv4 | EthernetProtocol::Ipv6 => {
                return self.receive_ip(frame, &ethernet, device, out, now);
            }
            EthernetProtocol::Arp => self.receive_arp(&octets[ethernet.len..], device, out, now),
            EthernetProtocol::Unknown(_) => self.counters.ethertype_unknown += 1,
        }
        Ingress::Consumed
    }

    /// Whether we listen to an Ethernet group.
    fn hears(&self, group: EthernetAddress) -> bool {
        let solicits = |addr: IpAddr| match addr {
            IpAddr::V6(addr) => multicast_mac(solicited_node(addr)) == group,
            IpAddr::V4(_) => false,
        };
        group.is_broadcast()
            || group == multicast_mac(crate::addr::ALL_NODES)
            || (group.is_multicast() && self.addresses().any(|ours| solicits(ours.addr())))
    }

    fn receive_ip<D: Device>(
        &mut self,
        mut frame: D::Frame,
        ethernet: &EthernetHeader,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) -> Ingress<D::Frame> {
        let packet = &frame.bytes()[ethernet.len..];
        let checksum = frame.checksum_status();
        let ipv6 = ethernet.ethertype == EthernetProtocol::Ipv6;
        let parsed = if ipv6 {
            IpHeader::parse_ipv6(packet)
        } else {
            IpHeader::parse_ipv4(packet, checksum == ChecksumStatus::Good)
        };
        let ip = match parsed {
            Ok(ip) => ip,
            Err(error) => {
                self.count_ip_error(ipv6, error);
                return Ingress::Consumed;
            }
        };

        let mut is_ours = false;
        let mut is_source = is_unicast(ip.source);
        for local in &self.locals {
            is_ours |= local.cidr.addr() == ip.destination;
            is_source &= local.cidr.addr() != ip.source && local.broadcast != Some(ip.source);
        }
        let discovery = ip.protocol == IpProtocol::Icmpv6 && ipv6;
        // Discovery goes to groups; it comes from no address before one is taken, and from one of
        // ours when another station takes that.
        let of_claim = discovery && (ip.source == Ipv6Addr::UNSPECIFIED || self.has_address(ip.source));
        // req 9293-3.9.2.3-1
        if !is_source && !of_claim {
            self.counters.ip_source_invalid += 1;
            return Ingress::Consumed;
        }
        let to_group = match ip.destination {
            IpAddr::V6(group) if discovery => self.in_group(group),
            _ => false,
        };
        // RFC 1122 section 3.3.6: what came to a link-layer group is not for one host.
        // req 9293-3.9.2.3-2
        let to_host = is_ours && (ethernet.destination == self.mac || discovery);
        if !to_host && !to_group {
            self.counters.ip_not_ours += 1;
            return Ingress::Consumed;
        }

        match ip.protocol {
            IpProtocol::Tcp => {
                self.accepted = Accepted::between(ip.source, ip.destination);
                self.counters.tcp_received += 1;
                frame.trim_front(ethernet.len + ip.header_len);
                frame.truncate(ip.total_len - ip.header_len);
                return Ingress::Tcp(TcpDatagram {
                    frame,
                    source: ip.source,
                    destination: ip.destination,
                    ecn: ip.ecn,
                    checksum,
                    source_mac: ethernet.source.0,
                });
            }
            IpProtocol::Icmp | IpProtocol::Icmpv6 => {
                let message = &packet[ip.header_len..ip.total_len];
                if let Some(error) = self.receive_icmp(message, &ip, ethernet, device, out, now) {
                    self.counters.icmp_errors_received += 1;
                    return Ingress::TransportError(error);
                }
            }
            _ => self.counters.protocol_unknown += 1,
        }
        Ingress::Consumed
    }

    #[cold]
    fn receive_icmp<D: Device>(
        &mut self,
        message: &[u8],
        ip: &IpHeader,
        ethernet: &EthernetHeader,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) -> Option<IcmpError> {
        let parsed = match (ip.protocol, ip.source, ip.destination) {
            (IpProtocol::Icmp, IpAddr::V4(_), IpAddr::V4(_)) => Icmp::parse_v4(message),
            (IpProtocol::Icmpv6, IpAddr::V6(source), IpAddr::V6(destination)) => {
                let parsed = Icmp::parse_v6(message, &source, &destination);
                if parsed == Some(Icmp::NeighborDiscovery) {
                    self.receive_ndp(message, source, destination, ip.hop_limit, ethernet, device, out, now);
                    return None;
                }
                parsed
            }
            _ => {
                self.counters.protocol_unknown += 1;
                return None;
            }
        };
        match parsed {
            None => self.counters.icmp_malformed += 1,
            Some(Icmp::EchoRequest) if self.is_between_hosts(ip) => {
                self.answer_echo(message, ip, ethernet.source, device, out, now);
            }
            Some(Icmp::Error(error)) if self.is_between_hosts(ip) && self.is_plausible(&error) => {
                return Some(error);
            }
            Some(_) => self.counters.icmp_other += 1,
        }
        None
    }

    /// Whether a packet came from another host to us alone.
    fn is_between_hosts(&self, ip: &IpHeader) -> bool {
        self.has_address(ip.destination) && is_unicast(ip.source) && !self.has_address(ip.source)
    }

    /// Whether the quoted packet can be one of ours, and the message is of any use.
    fn is_plausible(&self, error: &IcmpError) -> bool {
        let useful = match error.kind {
            IcmpErrorKind::PacketTooBig { mtu } => mtu < self.mtu,
            _ => true,
        };
        useful && self.has_address(error.local)
    }

    #[cold]
    fn receive_arp<D: Device>(
        &mut self,
        packet: &[u8],
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) {
        let Some(arp) = Arp::parse(packet) else {
            self.counters.arp_malformed += 1;
            return;
        };
        let sender = IpAddr::V4(arp.sender);
        let for_us = self.has_address(arp.target.into());
        if arp.sender_mac == self.mac {
            // Our own, come back over a loop.
            self.counters.arp_other += 1;
            return;
        }
        if self.has_address(sender) {
            self.conflict(sender, now);
            return;
        }
        let is_neighbor = self.is_on_link(sender) && !self.is_broadcast(sender);
        if for_us && arp.operation == Operation::Request {
            if arp.is_probe() {
                self.counters.duplicate_address += 1;
            } else if is_neighbor {
                self.neighbors.hear(sender, arp.sender_mac, Evidence::Request, now, &mut self.counters);
            }
            self.counters.arp_requests_answered += 1;
            self.answer_arp(&arp, device, out);
            return;
        }
        self.counters.arp_other += 1;
        if is_neighbor {
            let is_answer = for_us && arp.operation == Operation::Reply && arp.target_mac == self.mac;
            let solicited = is_answer && self.neighbors.awaits(sender);
            let evidence = Evidence::Advertisement { solicited, overriding: true };
            self.neighbors.hear(sender, arp.sender_mac, evidence, now, &mut self.counters);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all of it is the packet or where answers go")]
    fn receive_ndp<D: Device>(
        &mut self,
        message: &[u8],
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        ethernet: &EthernetHeader,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) {
        match Ndp::parse(message, source, destination, hop_limit) {
            None => self.counters.ndp_malformed += 1,
            // As with ARP: an address of ours is another station's claim, or our own that came back.
            Some(_) if self.has_address(source.into()) => {
                if ethernet.source == self.mac {
                    self.counters.ndp_other += 1;
                } else {
                    self.conflict(source.into(), now);
                }
            }
            Some(Ndp::Solicitation { target, source_mac }) if self.has_address(target.into()) => {
                if source.is_unspecified() {
                    self.counters.duplicate_address += 1;
                } else if let Some(mac) = source_mac
                    && self.is_on_link(source.into())
                {
                    self.neighbors.hear(source.into(), mac, Evidence::Request, now, &mut self.counters);
                }
                self.counters.ndp_requests_answered += 1;
                let mac = source_mac.unwrap_or(ethernet.source);
                self.answer_solicitation(target, source, mac, device, out);
            }
            Some(Ndp::Advertisement { target, .. }) if self.has_address(target.into()) => {
                if ethernet.source == self.mac {
                    self.counters.ndp_other += 1;
                } else {
                    self.conflict(target.into(), now);
                }
            }
            Some(Ndp::Advertisement { target, target_mac, solicited, overriding }) => {
                self.counters.ndp_other += 1;
                // Without the option the known Ethernet address is confirmed.
                if let Some(mac) = target_mac.or_else(|| self.neighbors.known_mac(target.into())) {
                    let evidence = Evidence::Advertisement { solicited, overriding };
                    self.neighbors.hear(target.into(), mac, evidence, now, &mut self.counters);
                }
            }
            Some(Ndp::Solicitation { .. }) => self.counters.ndp_other += 1,
        }
    }

    fn count_ip_error(&mut self, ipv6: bool, error: IpError) {
        let counters = &mut self.counters;
        let counter = match (ipv6, error) {
            (false, IpError::ChecksumBad) => &mut counters.ipv4_checksum_bad,
            (false, IpError::Fragment) => &mut counters.ipv4_fragment,
            (false, IpError::Malformed | IpError::OptionUnknown) => &mut counters.ipv4_malformed,
            (true, IpError::Fragment) => &mut counters.ipv6_fragment,
            (true, IpError::OptionUnknown) => &mut counters.ipv6_option_unknown,
            (true, IpError::Malformed | IpError::ChecksumBad) => &mut counters.ipv6_malformed,
        };
        *counter += 1;
    }
}
