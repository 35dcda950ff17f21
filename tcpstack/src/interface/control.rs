//! The frames that the interface sends of its own: requests, answers, announcements.
//!
//! All come from the control reserve; where there is none, the packet is not sent and counted,
//! and the peer or our own timer tries again.

use core::net::{IpAddr, Ipv6Addr};

use smoltcp::wire::{EthernetProtocol, IpProtocol};

use super::Interface;
use crate::addr::{ALL_NODES, EthernetAddress, multicast_mac, solicited_node};
use crate::checksum;
use crate::device::{Device, Frame};
use crate::ethernet::{self, ETHERNET_LEN, VLAN_LEN};
use crate::header::{HeaderParts, HeaderTemplate};
use crate::icmp;
use crate::ip::IpHeader;
use crate::neighbor::NeighborHandle;
use crate::neighbor::arp::{ARP_LEN, Arp, Operation};
use crate::neighbor::ndp::{self, Ndp};
use crate::neighbor::table::Solicitation;
use crate::queue::TransmitQueue;
use crate::time::Instant;

impl Interface {
    /// Asks a neighbour or the group for an Ethernet address.
    pub(super) fn solicit<D: Device>(
        &mut self,
        solicitation: Solicitation,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
    ) {
        self.counters.neighbor_requests_sent += 1;
        let Solicitation { target, mac } = solicitation;
        let ours = self.network_of(target).map(|network| network.addr());
        match target {
            IpAddr::V4(target) => {
                let Some(IpAddr::V4(sender)) = ours.or_else(|| self.first(IpAddr::is_ipv4)) else {
                    return;
                };
                let target_mac = EthernetAddress::default();
                let arp =
                    Arp { operation: Operation::Request, sender_mac: self.mac, sender, target_mac, target };
                self.send_arp(&arp, mac.unwrap_or(EthernetAddress::BROADCAST), device, out);
            }
            IpAddr::V6(target) => {
                let Some(IpAddr::V6(source)) = ours.or_else(|| self.first(IpAddr::is_ipv6)) else {
                    return;
                };
                let message = Ndp::Solicitation { target, source_mac: Some(self.mac) };
                let destination = if mac.is_some() { target } else { solicited_node(target) };
                let mac = mac.unwrap_or_else(|| multicast_mac(destination));
                self.send_ndp(&message, source, destination, mac, device, out);
            }
        }
    }

    /// Tells the link that an address of ours is here.
    pub(super) fn announce<D: Device>(
        &mut self,
        addr: IpAddr,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
    ) {
        self.counters.announcements_sent += 1;
        match addr {
            IpAddr::V4(addr) => {
                let arp = Arp {
                    operation: Operation::Request,
                    sender_mac: self.mac,
                    sender: addr,
                    target_mac: EthernetAddress::default(),
                    target: addr,
                };
                self.send_arp(&arp, EthernetAddress::BROADCAST, device, out);
            }
            IpAddr::V6(target) => {
                let message = self.advertisement(target, false);
                self.send_ndp(&message, target, ALL_NODES, multicast_mac(ALL_NODES), device, out);
            }
        }
    }

    pub(super) fn answer_arp<D: Device>(
        &mut self,
        request: &Arp,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
    ) {
        let reply = Arp {
            operation: Operation::Reply,
            sender_mac: self.mac,
            sender: request.target,
            target_mac: request.sender_mac,
            target: request.sender,
        };
        self.send_arp(&reply, request.sender_mac, device, out);
    }

    /// Answers who asked for `target`; a nameless asker hears it with the whole group.
    pub(super) fn answer_solicitation<D: Device>(
        &mut self,
        target: Ipv6Addr,
        asker: Ipv6Addr,
        asker_mac: EthernetAddress,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
    ) {
        if asker.is_unspecified() {
            let message = self.advertisement(target, false);
            self.send_ndp(&message, target, ALL_NODES, multicast_mac(ALL_NODES), device, out);
        } else {
            let message = self.advertisement(target, true);
            self.send_ndp(&message, target, asker, asker_mac, device, out);
        }
    }

    /// Answers an echo request, straight to the station that it came from.
    pub(super) fn answer_echo<D: Device>(
        &mut self,
        request: &[u8],
        ip: &IpHeader,
        mac: EthernetAddress,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
        now: Instant,
    ) {
        if !self.echo_limit.allows(now) {
            self.counters.icmp_rate_limited += 1;
            return;
        }
        let Some(mut frame) = self.control_frame(request.len(), device) else {
            return;
        };
        let ipv6 = ip.protocol == IpProtocol::Icmpv6;
        let template = self.template(mac, ip.destination, ip.source, ip.protocol, NeighborHandle::NONE);
        let message = frame.bytes_mut();
        message.copy_from_slice(request);
        icmp::turn_echo(message, ipv6);
        let pseudo_sum = if ipv6 { template.pseudo_header_sum(message.len()) } else { 0 };
        let checksum = checksum::finish(checksum::combine(pseudo_sum, checksum::sum(message)));
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        template.write(&mut frame, 0, 0);
        self.counters.icmp_echo_answered += 1;
        self.send(frame, out);
    }

    fn send_arp<D: Device>(
        &mut self,
        arp: &Arp,
        mac: EthernetAddress,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
    ) {
        let Some(mut frame) = self.control_frame(ARP_LEN, device) else {
            return;
        };
        arp.emit(frame.bytes_mut());
        frame.push_front(ETHERNET_LEN + self.config.vlan.map_or(0, |_| VLAN_LEN));
        ethernet::emit_header(frame.bytes_mut(), mac, self.mac, self.config.vlan, EthernetProtocol::Arp);
        self.send(frame, out);
    }

    fn send_ndp<D: Device>(
        &mut self,
        message: &Ndp,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        mac: EthernetAddress,
        device: &mut D,
        out: &mut TransmitQueue<D::Frame>,
    ) {
        let Some(mut frame) = self.control_frame(message.len(), device) else {
            return;
        };
        message.emit(frame.bytes_mut(), source, destination);
        let parts = HeaderParts {
            source_mac: self.mac,
            destination_mac: mac,
            vlan: self.config.vlan,
            source: source.into(),
            destination: destination.into(),
            protocol: IpProtocol::Icmpv6,
            hop_limit: ndp::HOP_LIMIT,
        };
        HeaderTemplate::new(&parts, NeighborHandle::NONE).write(&mut frame, 0, 0);
        self.send(frame, out);
    }

    fn advertisement(&self, target: Ipv6Addr, solicited: bool) -> Ndp {
        Ndp::Advertisement { target, target_mac: Some(self.mac), solicited, overriding: true }
    }

    /// A frame from the control reserve with a window of `len` octets.
    fn control_frame<D: Device>(&mut self, len: usize, device: &mut D) -> Option<D::Frame> {
        let frame = device.allocate_control().filter(|frame| frame.tailroom() >= len);
        let Some(mut frame) = frame else {
            self.counters.reply_no_frame += 1;
            return None;
        };
        frame.push_back(len);
        Some(frame)
    }

    fn send<F: Frame>(&mut self, frame: F, out: &mut TransmitQueue<F>) {
        if out.push(frame).is_err() {
            self.counters.reply_queue_full += 1;
        }
    }

    fn first(&self, is_wanted: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
        self.addresses().map(|ours| ours.addr()).find(|addr| is_wanted(addr))
    }
}
