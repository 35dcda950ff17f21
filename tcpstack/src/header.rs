//! The Ethernet and IP headers of a connection, ready to be put in front of TCP segments.
//!
//! Everything but the lengths, the identification and the ECN bits is the same for all segments
//! of a connection, so the headers are made once and copied. The IPv4 checksum of the template is
//! that of an empty packet; each packet's follows from it by the words that differ.

use core::net::IpAddr;

use smoltcp::wire::{EthernetAddress, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet};

use crate::checksum;
use crate::device::Frame;
use crate::ethernet::{self, ETHERNET_LEN, VLAN_LEN, Vlan};
use crate::neighbor::NeighborHandle;

/// Octets of an IPv4 header without options.
pub const IPV4_LEN: usize = 20;
/// Octets of an IPv6 header.
pub const IPV6_LEN: usize = 40;

const LEN_MAX: usize = ETHERNET_LEN + VLAN_LEN + IPV6_LEN;

/// The link and IP headers of one connection's segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// The headers of an empty TCP packet, from the front; octets behind them are zero.
    octets: [u8; LEN_MAX],
    /// Sum over the pseudo-header less its length field.
    pseudo_sum: u16,
    neighbor: NeighborHandle,
}

// One cache line, since each connection has one.
const _: () = assert!(size_of::<HeaderTemplate>() <= 64);

/// What the parts of a [`HeaderTemplate`] are made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderParts {
    pub(crate) source_mac: EthernetAddress,
    pub(crate) destination_mac: EthernetAddress,
    pub(crate) vlan: Option<Vlan>,
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: IpProtocol,
    pub(crate) hop_limit: u8,
}

impl HeaderTemplate {
    /// The template for the given parts; both addresses are of one IP version.
    pub(crate) fn new(parts: &HeaderParts, neighbor: NeighborHandle) -> Self {
        let mut octets = [0; LEN_MAX];
        let link_len = ETHERNET_LEN + parts.vlan.map_or(0, |_| VLAN_LEN);
        let ethertype = match parts.source {
            IpAddr::V4(_) => EthernetProtocol::Ipv4,
            IpAddr::V6(_) => EthernetProtocol::Ipv6,
        };

        ethernet::emit_header(&mut octets, parts.destination_mac, parts.source_mac, parts.vlan, ethertype);

        match (parts.source, parts.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = Ipv4Packet::new_unchecked(&mut octets[link_len..]);
                ip.set_version(4);
                ip.set_header_len(20);
                ip.set_total_len(20);
                // Path MTU discovery (RFC 1191): routers report instead of fragmenting.
                ip.set_dont_frag(true);
                ip.set_hop_limit(parts.hop_limit);
                ip.set_next_header(parts.protocol);
                ip.set_src_addr(source);
                ip.set_dst_addr(destination);
                ip.fill_checksum();
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut ip = Ipv6Packet::new_unchecked(&mut octets[link_len..]);
                ip.set_version(6);
                ip.set_hop_limit(parts.hop_limit);
                ip.set_next_header(parts.protocol);
                ip.set_src_addr(source);
                ip.set_dst_addr(destination);
            }
            _ => panic!("source and destination are of different IP versions"),
        }
        let protocol = parts.protocol.into();
        let pseudo_sum =
            !checksum::finish(checksum::of_pseudo_header(parts.source, parts.destination, protocol, 0));
        Self { octets, pseudo_sum, neighbor }
    }

    /// Puts the headers in front of the frame's window, which holds exactly the TCP segment.
    ///
    /// `ecn` is the two ECN bits (RFC 3168); `identification` is IPv4's and ignored for IPv6.
    ///
    /// # Panics
    /// When the headroom is too small, or the packet longer than IP can say.
    #[inline]
    pub fn write<F: Frame>(&self, frame: &mut F, ecn: u8, identification: u16) {
        // Constant lengths, so that the copy is a few moves and no call.
        match (self.is_tagged(), self.is_ipv6()) {
            (false, false) => self.write_ipv4::<F, { ETHERNET_LEN }>(frame, ecn, identification),
            (true, false) => self.write_ipv4::<F, { ETHERNET_LEN + VLAN_LEN }>(frame, ecn, identification),
            (false, true) => self.write_ipv6::<F, { ETHERNET_LEN }>(frame, ecn),
            (true, true) => self.write_ipv6::<F, { ETHERNET_LEN + VLAN_LEN }>(frame, ecn),
        }
    }

    /// Sum over the pseudo-header of a segment of `tcp_len` octets, header included.
    #[inline]
    pub fn pseudo_header_sum(&self, tcp_len: usize) -> u32 {
        let len = u32::try_from(tcp_len).expect("a segment is shorter than 4 GiB");
        checksum::combine(u32::from(self.pseudo_sum), len)
    }

    /// Octets of the link header.
    pub fn link_len(&self) -> usize {
        if self.is_tagged() { ETHERNET_LEN + VLAN_LEN } else { ETHERNET_LEN }
    }

    /// Octets of the IP header.
    pub fn network_len(&self) -> usize {
        if self.is_ipv6() { IPV6_LEN } else { IPV4_LEN }
    }

    /// Whether the packets are IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.octets[self.link_len()] >> 4 == 6
    }

    /// The neighbour whose Ethernet address is in here.
    pub fn neighbor(&self) -> NeighborHandle {
        self.neighbor
    }

    fn is_tagged(&self) -> bool {
        self.octets[12..14] == Vlan::TPID
    }

    #[inline]
    fn write_ipv4<F: Frame, const LINK: usize>(&self, frame: &mut F, ecn: u8, identification: u16) {
        let total_len = u16::try_from(frame.bytes().len() + IPV4_LEN).expect("the packet fits IPv4's length");
        frame.push_front(LINK + IPV4_LEN);
        let headers = &mut frame.bytes_mut()[..LINK + IPV4_LEN];
        headers.copy_from_slice(&self.octets[..LINK + IPV4_LEN]);

        let ip = &mut headers[LINK..];
        let ecn = ecn & 0b11;
        // The template's checksum covers a length of 20, identification and ECN zero.
        let of_template = u16::from_be_bytes([ip[10], ip[11]]);
        let changes = u32::from(total_len) + u32::from(identification) + u32::from(ecn);
        let sum = u32::from(!of_template) + u32::from(!20u16) + changes;
        ip[1] |= ecn;
        ip[2..4].copy_from_slice(&total_len.to_be_bytes());
        ip[4..6].copy_from_slice(&identification.to_be_bytes());
        ip[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    }

    fn write_ipv6<F: Frame, const LINK: usize>(&self, frame: &mut F, ecn: u8) {
        let payload_len = u16::try_from(frame.bytes().len()).expect("the payload fits IPv6's length");
        frame.push_front(LINK + IPV6_LEN);
        let headers = &mut frame.bytes_mut()[..LINK + IPV6_LEN];
        headers.copy_from_slice(&self.octets[..LINK + IPV6_LEN]);

        let ip = &mut headers[LINK..];
        // The traffic class's low bits are in the high nibble of the second octet.
        ip[1] |= (ecn & 0b11) << 4;
        ip[4..6].copy_from_slice(&payload_len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
