use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use smoltcp::wire::{IpAddress, TcpPacket};

use super::*;
use crate::ethernet::EthernetHeader;
use crate::ip::IpHeader;
use crate::sim::SimPool;

const SOURCE: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const DESTINATION: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);

fn template(ipv6: bool, vlan: Option<Vlan>, salt: u16) -> HeaderTemplate {
    let [a, b] = salt.to_be_bytes();
    let (source, destination) = if ipv6 {
        let addr = |host| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, salt, 0, 0xffff, 0, 0, host));
        (addr(1), addr(2))
    } else {
        (IpAddr::V4(Ipv4Addr::new(10, a, b, 1)), IpAddr::V4(Ipv4Addr::new(10, b, a, 2)))
    };
    let parts = HeaderParts {
        source_mac: SOURCE,
        destination_mac: DESTINATION,
        vlan,
        source,
        destination,
        protocol: IpProtocol::Tcp,
        hop_limit: 61,
    };
    HeaderTemplate::new(&parts, NeighborHandle::NONE)
}

proptest! {
    #[test]
    fn headers_read_back_as_written(
        ipv6: bool, tagged: bool, salt: u16, ecn in 0u8..4, identification: u16, len in 0usize..2000,
    ) {
        let vlan = tagged.then(|| Vlan::new(7).unwrap());
        let template = template(ipv6, vlan, salt);
        let mut frame = SimPool::new(1, 2048).frame(&vec![0xab; len]).unwrap();
        template.write(&mut frame, ecn, identification);

        let octets = frame.bytes();
        let ethernet = EthernetHeader::parse(octets, vlan).unwrap();
        prop_assert_eq!((ethernet.source, ethernet.destination), (SOURCE, DESTINATION));
        prop_assert_eq!(ethernet.len, template.link_len());
        let packet = &octets[ethernet.len..];
        // The IPv4 checksum is verified here.
        let ip = if ipv6 { IpHeader::parse_ipv6(packet) } else { IpHeader::parse_ipv4(packet, false) }.unwrap();
        prop_assert_eq!((ip.ecn, ip.hop_limit, ip.protocol), (ecn, 61, IpProtocol::Tcp));
        prop_assert_eq!((ip.header_len, ip.total_len), (template.network_len(), template.network_len() + len));
        prop_assert_eq!(octets.len(), ethernet.len + ip.total_len);
        if !ipv6 {
            prop_assert_eq!(Ipv4Packet::new_unchecked(packet).ident(), identification);
        }
    }

    #[test]
    fn the_pseudo_header_sum_makes_smoltcp_s_checksum(
        ipv6: bool, salt: u16, mut segment in prop::collection::vec(any::<u8>(), 20..200),
    ) {
        let template = template(ipv6, None, salt);
        segment[16..18].fill(0);
        let sum = checksum::combine(template.pseudo_header_sum(segment.len()), checksum::sum(&segment));
        segment[16..18].copy_from_slice(&checksum::finish(sum).to_be_bytes());
        let addresses: (IpAddress, IpAddress) = if ipv6 {
            let addr = |host| IpAddress::Ipv6(Ipv6Addr::new(0x2001, 0xdb8, salt, 0, 0xffff, 0, 0, host));
            (addr(1), addr(2))
        } else {
            let [a, b] = salt.to_be_bytes();
            (IpAddress::v4(10, a, b, 1), IpAddress::v4(10, b, a, 2))
        };
        prop_assert!(TcpPacket::new_unchecked(&segment[..]).verify_checksum(&addresses.0, &addresses.1));
    }
}

#[test]
#[should_panic = "different IP versions"]
fn addresses_are_of_one_version() {
    let parts = HeaderParts {
        source_mac: SOURCE,
        destination_mac: DESTINATION,
        vlan: None,
        source: Ipv4Addr::LOCALHOST.into(),
        destination: Ipv6Addr::LOCALHOST.into(),
        protocol: IpProtocol::Tcp,
        hop_limit: 64,
    };
    HeaderTemplate::new(&parts, NeighborHandle::NONE);
}
