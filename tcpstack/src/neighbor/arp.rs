//! ARP (RFC 826): packets in and out; what follows from them is the interface's to say.

use core::net::Ipv4Addr;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr};

use crate::addr::EthernetAddress;

/// Octets of an ARP packet for Ethernet and IPv4.
pub(crate) const ARP_LEN: usize = 28;

/// A received or outgoing ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arp {
    pub(crate) operation: Operation,
    pub(crate) sender_mac: EthernetAddress,
    pub(crate) sender: Ipv4Addr,
    pub(crate) target_mac: EthernetAddress,
    pub(crate) target: Ipv4Addr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Request,
    Reply,
}

impl Arp {
    /// Reads a packet that may be followed by padding; `None` when it is malformed.
    pub(crate) fn parse(octets: &[u8]) -> Option<Self> {
        let packet = ArpPacket::new_checked(octets).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: sender_mac,
            source_protocol_addr: sender,
            target_hardware_addr: target_mac,
            target_protocol_addr: target,
        } = ArpRepr::parse(&packet).ok()?
        else {
            return None;
        };
        let operation = match operation {
            ArpOperation::Request => Operation::Request,
            ArpOperation::Reply => Operation::Reply,
            ArpOperation::Unknown(_) => return None,
        };
        // A group has no neighbour entry, neither by its Ethernet nor by its IP address.
        let sender_is_host = sender_mac.is_unicast()
            && !sender.is_multicast()
            && !sender.is_broadcast()
            && !sender.is_loopback();
        sender_is_host.then_some(Self { operation, sender_mac, sender, target_mac, target })
    }

    /// Writes the packet into [`ARP_LEN`] octets.
    pub(crate) fn emit(&self, octets: &mut [u8]) {
        let repr = ArpRepr::EthernetIpv4 {
            operation: match self.operation {
                Operation::Request => ArpOperation::Request,
                Operation::Reply => ArpOperation::Reply,
            },
            source_hardware_addr: self.sender_mac,
            source_protocol_addr: self.sender,
            target_hardware_addr: self.target_mac,
            target_protocol_addr: self.target,
        };
        repr.emit(&mut ArpPacket::new_unchecked(octets));
    }

    /// Whether this only asks if the address is free (RFC 5227 section 1.1).
    pub(crate) fn is_probe(&self) -> bool {
        self.sender.is_unspecified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REQUEST: [u8; ARP_LEN] = [
        0, 1, 0x08, 0x00, 6, 4, 0, 1, // Ethernet, IPv4, request
        2, 0, 0, 0, 0, 1, 192, 0, 2, 1, // sender
        0, 0, 0, 0, 0, 0, 192, 0, 2, 2, // target
    ];

    #[test]
    fn a_request_is_read_and_written() {
        let arp = Arp::parse(&REQUEST).unwrap();
        assert_eq!(
            arp,
            Arp {
                operation: Operation::Request,
                sender_mac: EthernetAddress([2, 0, 0, 0, 0, 1]),
                sender: Ipv4Addr::new(192, 0, 2, 1),
                target_mac: EthernetAddress::default(),
                target: Ipv4Addr::new(192, 0, 2, 2),
            }
        );
        let mut octets = [0xff; ARP_LEN];
        arp.emit(&mut octets);
        assert_eq!(octets, REQUEST);
    }

    #[test]
    fn every_truncation_is_refused() {
        for len in 0..ARP_LEN {
            assert_eq!(Arp::parse(&REQUEST[..len]), None, "{len}");
        }
    }

    #[test]
    fn groups_other_networks_and_operations_are_refused() {
        for (at, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3), (8, 3), (14, 224), (14, 127)] {
            let mut octets = REQUEST;
            octets[at] = value;
            assert_eq!(Arp::parse(&octets), None, "{value} at {at}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_survived(octets in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Arp::parse(&octets);
        }

        #[test]
        fn what_parses_is_written_back(mut octets in prop::array::uniform28(any::<u8>())) {
            octets[..8].copy_from_slice(&REQUEST[..8]);
            if let Some(arp) = Arp::parse(&octets) {
                let mut written = [0; ARP_LEN];
                arp.emit(&mut written);
                prop_assert_eq!(written, octets);
            }
        }
    }
}
