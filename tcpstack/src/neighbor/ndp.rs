//! Neighbor Solicitations and Advertisements (RFC 4861 sections 4.3, 4.4, 7.1).
//!
//! Routers' messages and redirects are not for a host with configured addresses and routes.

use core::net::Ipv6Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Icmpv6Packet, Icmpv6Repr, NdiscNeighborFlags, NdiscRepr, RawHardwareAddress};

use crate::addr::{EthernetAddress, solicited_node};

/// The hop limit that proves a packet comes from the same link (RFC 4861 section 7.1).
pub(crate) const HOP_LIMIT: u8 = 255;
/// Octets of a message with an Ethernet address option.
pub(crate) const NDP_LEN: usize = 32;

/// A received or outgoing message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ndp {
    Solicitation {
        target: Ipv6Addr,
        /// The asker's Ethernet address.
        source_mac: Option<EthernetAddress>,
    },
    Advertisement {
        target: Ipv6Addr,
        /// The target's Ethernet address.
        target_mac: Option<EthernetAddress>,
        solicited: bool,
        overriding: bool,
    },
}

impl Ndp {
    /// Reads a message whose ICMPv6 checksum is good; `None` when it fails the RFC's checks.
    pub(crate) fn parse(
        octets: &[u8],
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
    ) -> Option<Self> {
        let packet = Icmpv6Packet::new_checked(octets).ok()?;
        if hop_limit != HOP_LIMIT || packet.msg_code() != 0 {
            return None;
        }
        match NdiscRepr::parse(&packet).ok()? {
            NdiscRepr::NeighborSolicit { target_addr: target, lladdr } => {
                // RFC 4861 section 7.1.1: a node without an address asks the group, namelessly.
                let nameless = source.is_unspecified();
                let nameless_is_proper = destination == solicited_node(target) && lladdr.is_none();
                if target.is_multicast() || (nameless && !nameless_is_proper) {
                    return None;
                }
                Some(Self::Solicitation { target, source_mac: station(lladdr).ok()? })
            }
            NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr } => {
                let solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
                // RFC 4861 section 7.1.2.
                if target.is_multicast()
                    || source.is_unspecified()
                    || (solicited && destination.is_multicast())
                {
                    return None;
                }
                let overriding = flags.contains(NdiscNeighborFlags::OVERRIDE);
                Some(Self::Advertisement { target, target_mac: station(lladdr).ok()?, solicited, overriding })
            }
            _ => None,
        }
    }

    /// Writes the message with its checksum into [`Ndp::len`] octets.
    pub(crate) fn emit(&self, octets: &mut [u8], source: Ipv6Addr, destination: Ipv6Addr) {
        let raw = |mac: Option<EthernetAddress>| mac.map(RawHardwareAddress::from);
        let repr = match *self {
            Self::Solicitation { target, source_mac } => {
                NdiscRepr::NeighborSolicit { target_addr: target, lladdr: raw(source_mac) }
            }
            Self::Advertisement { target, target_mac, solicited, overriding } => {
                let mut flags = NdiscNeighborFlags::empty();
                flags.set(NdiscNeighborFlags::SOLICITED, solicited);
                flags.set(NdiscNeighborFlags::OVERRIDE, overriding);
                NdiscRepr::NeighborAdvert { flags, target_addr: target, lladdr: raw(target_mac) }
            }
        };
        let mut packet = Icmpv6Packet::new_unchecked(octets);
        Icmpv6Repr::Ndisc(repr).emit(&source, &destination, &mut packet, &ChecksumCapabilities::default());
    }

    /// Octets of the message.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Solicitation { source_mac: mac, .. } | Self::Advertisement { target_mac: mac, .. } => {
                if mac.is_some() { NDP_LEN } else { NDP_LEN - 8 }
            }
        }
    }
}

/// The address in an option is not a station's.
struct NotAStation;

fn station(option: Option<RawHardwareAddress>) -> Result<Option<EthernetAddress>, NotAStation> {
    let Some(raw) = option else {
        return Ok(None);
    };
    let mac = EthernetAddress(raw.as_bytes().try_into().map_err(|_| NotAStation)?);
    if mac.is_unicast() { Ok(Some(mac)) } else { Err(NotAStation) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
    const B: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xb);
    const MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);

    fn written(message: Ndp, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let mut octets = vec![0xff; message.len()];
        message.emit(&mut octets, source, destination);
        octets
    }

    fn advertisement(solicited: bool) -> Ndp {
        Ndp::Advertisement { target: B, target_mac: Some(MAC), solicited, overriding: true }
    }

    #[test]
    fn messages_round_trip() {
        let messages = [
            Ndp::Solicitation { target: B, source_mac: Some(MAC) },
            Ndp::Solicitation { target: B, source_mac: None },
            advertisement(true),
            Ndp::Advertisement { target: B, target_mac: None, solicited: false, overriding: false },
        ];
        for message in messages {
            let octets = written(message, A, B);
            assert!(Icmpv6Packet::new_checked(&octets[..]).unwrap().verify_checksum(&A, &B));
            assert_eq!(Ndp::parse(&octets, A, B, HOP_LIMIT), Some(message));
        }
    }

    #[test]
    fn a_packet_from_another_link_is_refused() {
        let octets = written(advertisement(true), A, B);
        assert_eq!(Ndp::parse(&octets, A, B, 254), None);
    }

    #[test]
    fn every_truncation_is_refused() {
        let octets = written(advertisement(true), A, B);
        // An advertisement without its option is a whole one.
        for len in (0..octets.len()).filter(|&len| len != NDP_LEN - 8) {
            assert_eq!(Ndp::parse(&octets[..len], A, B, HOP_LIMIT), None, "{len}");
        }
    }

    #[test]
    fn duplicate_address_detection_has_its_form() {
        let nameless = Ndp::Solicitation { target: B, source_mac: None };
        let group = solicited_node(B);
        let octets = written(nameless, Ipv6Addr::UNSPECIFIED, group);
        assert_eq!(Ndp::parse(&octets, Ipv6Addr::UNSPECIFIED, group, HOP_LIMIT), Some(nameless));
        assert_eq!(Ndp::parse(&octets, Ipv6Addr::UNSPECIFIED, B, HOP_LIMIT), None);
        let named = Ndp::Solicitation { target: B, source_mac: Some(MAC) };
        let octets = written(named, Ipv6Addr::UNSPECIFIED, group);
        assert_eq!(Ndp::parse(&octets, Ipv6Addr::UNSPECIFIED, group, HOP_LIMIT), None);
    }

    #[test]
    fn a_group_is_not_answered_as_if_it_had_asked() {
        let group = crate::addr::ALL_NODES;
        let octets = written(advertisement(true), A, group);
        assert_eq!(Ndp::parse(&octets, A, group, HOP_LIMIT), None);
        let octets = written(advertisement(false), A, group);
        assert_eq!(Ndp::parse(&octets, A, group, HOP_LIMIT), Some(advertisement(false)));
    }

    #[test]
    fn group_targets_and_group_stations_are_refused() {
        let target = solicited_node(B);
        let octets = written(Ndp::Solicitation { target, source_mac: Some(MAC) }, A, B);
        assert_eq!(Ndp::parse(&octets, A, B, HOP_LIMIT), None);
        let station = Some(EthernetAddress([3, 0, 0, 0, 0, 1]));
        let octets = written(Ndp::Solicitation { target: B, source_mac: station }, A, B);
        assert_eq!(Ndp::parse(&octets, A, B, HOP_LIMIT), None);
    }

    proptest! {
        #[test]
        fn any_octets_are_survived(
            mut octets in prop::collection::vec(any::<u8>(), 0..128),
            kind in prop::option::of(133u8..138),
        ) {
            if let (Some(kind), [first, code, ..]) = (kind, &mut octets[..]) {
                (*first, *code) = (kind, 0);
            }
            let _ = Ndp::parse(&octets, A, B, HOP_LIMIT);
        }

        #[test]
        fn any_options_are_survived(options in prop::collection::vec(any::<u8>(), 0..64), advert: bool) {
            let mut octets = written(Ndp::Solicitation { target: B, source_mac: None }, A, B);
            octets[0] = if advert { 136 } else { 135 };
            octets.extend(options);
            let _ = Ndp::parse(&octets, A, B, HOP_LIMIT);
        }
    }
}
