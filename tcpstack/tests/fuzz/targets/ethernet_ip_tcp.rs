//! Whole frames: input is one octet for the port's verdict on the checksums and the interface's VLAN, and
//! a frame. What is handed up is compared with smoltcp's reading, and what is written from it read again.

use core::net::{IpAddr, Ipv6Addr};

use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket};
use tcpstack::addr::IpCidr;
use tcpstack::checksum;
use tcpstack::device::{Capabilities, ChecksumStatus, Device, Frame};
use tcpstack::ethernet::{ETHERNET_LEN, VLAN_LEN, Vlan};
use tcpstack::icmp::{IPV4_MTU_MIN, IcmpErrorKind};
use tcpstack::interface::{Ingress, Interface, InterfaceConfig, InterfaceError, TcpDatagram};
use tcpstack::queue::TransmitQueue;
use tcpstack::sim::{Faults, SimDevice, SimFrame, Wire};
use tcpstack::tcp::segment::{Flags, Header, Segment};
use tcpstack::time::Instant;

use crate::common::bench::OURS;

const OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

pub(super) fn run(input: &[u8]) {
    let Some((&choice, octets)) = input.split_first() else { return };
    let status = match choice & 3 {
        0 => ChecksumStatus::Unknown,
        1 => ChecksumStatus::Bad,
        _ => ChecksumStatus::Good,
    };
    let vlan = if choice & 4 == 0 { None } else { Vlan::new(7) };
    let device = Wire::new(1, Faults::default()).port(0);
    let mut host = Host::new(device, vlan);
    host.add(OURS.into(), 24);
    host.add(OURS_V6.into(), 64);

    let Some(first) = host.receive(octets, status) else { return };
    // Again: segments between the same hosts as the one before are recognised.
    let second = host.receive(octets, status);
    match &first {
        Ingress::Tcp(datagram) => {
            let Some(Ingress::Tcp(again)) = second else { panic!("the second time is not as the first") };
            assert_same(datagram, &again);
            assert_as_smoltcp(octets, datagram, vlan);
            assert_segment(datagram.frame.bytes());
            assert_returns(datagram, vlan);
        }
        Ingress::TransportError(error) => {
            assert!(host.interface.has_address(error.local));
            if let IcmpErrorKind::PacketTooBig { mtu } = error.kind {
                assert!(mtu >= IPV4_MTU_MIN);
            }
        }
        Ingress::Consumed => {}
    }
}

struct Host {
    interface: Interface,
    device: SimDevice,
    out: TransmitQueue<SimFrame>,
}

impl Host {
    fn new(device: SimDevice, vlan: Option<Vlan>) -> Self {
        let config = InterfaceConfig { vlan, announcements: 0, ..InterfaceConfig::default() };
        let interface = Interface::new(device.capabilities(), config, 1);
        Self { interface, device, out: TransmitQueue::new(64) }
    }

    fn add(&mut self, addr: IpAddr, prefix_len: u8) {
        let added = self.interface.add_address(IpCidr::new(addr, prefix_len).unwrap());
        assert!(matches!(added, Ok(()) | Err(InterfaceError::Exists)), "{added:?}");
    }

    /// Receives a frame, unless it is longer than the port takes; at most one answer follows.
    fn receive(&mut self, octets: &[u8], status: ChecksumStatus) -> Option<Ingress<SimFrame>> {
        let mut frame = self.device.data_pool().frame(octets)?;
        frame.set_checksum_status(status);
        self.out.clear();
        let ingress = self.interface.receive(frame, &mut self.device, &mut self.out, Instant::ZERO);
        assert!(self.out.len() <= 1);
        Some(ingress)
    }
}

fn assert_same(first: &TcpDatagram<SimFrame>, second: &TcpDatagram<SimFrame>) {
    assert_eq!(first.frame.bytes(), second.frame.bytes());
    assert_eq!((first.source, first.destination), (second.source, second.destination));
    assert_eq!((first.ecn, first.source_mac), (second.ecn, second.source_mac));
}

fn assert_as_smoltcp(octets: &[u8], datagram: &TcpDatagram<SimFrame>, vlan: Option<Vlan>) {
    let ethernet = EthernetFrame::new_checked(octets).unwrap();
    assert_eq!(ethernet.src_addr().0, datagram.source_mac);
    // Of no VLAN, or priority-tagged, or of ours.
    let tagged = octets[12..14] == [0x81, 0x00];
    assert!(tagged || vlan.is_none());
    let at = ETHERNET_LEN + if tagged { VLAN_LEN } else { 0 };
    let ethertype = u16::from_be_bytes([octets[at - 2], octets[at - 1]]);
    let tcp = datagram.frame.bytes();
    if EthernetProtocol::from(ethertype) == EthernetProtocol::Ipv4 {
        let ip = Ipv4Packet::new_checked(&octets[at..]).unwrap();
        assert_eq!((ip.version(), ip.next_header()), (4, IpProtocol::Tcp));
        assert!(!ip.more_frags() && ip.frag_offset() == 0);
        assert_eq!(IpAddr::V4(ip.src_addr()), datagram.source);
        assert_eq!(IpAddr::V4(ip.dst_addr()), datagram.destination);
        assert_eq!((ip.payload(), ip.ecn()), (tcp, datagram.ecn));
    } else {
        let ip = Ipv6Packet::new_checked(&octets[at..]).unwrap();
        assert_eq!(ip.version(), 6);
        assert_eq!(IpAddr::V6(ip.src_addr()), datagram.source);
        assert_eq!(IpAddr::V6(ip.dst_addr()), datagram.destination);
        // Behind whole extension headers, if there are any.
        let before = ip.payload().len() - tcp.len();
        assert!(before.is_multiple_of(8) && ip.payload().ends_with(tcp));
        assert_eq!(before == 0, ip.next_header() == IpProtocol::Tcp);
    }
}

fn assert_segment(octets: &[u8]) {
    let theirs = TcpPacket::new_checked(octets);
    let Ok(segment) = Segment::parse(octets) else {
        assert!(theirs.is_err());
        return;
    };
    let theirs = theirs.unwrap();
    assert_eq!((segment.source_port, segment.destination_port), (theirs.src_port(), theirs.dst_port()));
    assert_eq!(segment.seq.value(), theirs.seq_number().0.cast_unsigned());
    assert_eq!(segment.ack.value(), theirs.ack_number().0.cast_unsigned());
    assert_eq!(segment.window, theirs.window_len());
    assert_eq!(segment.options(octets), theirs.options());
    assert_eq!(segment.payload_len as usize, theirs.payload().len());
    assert_eq!(segment.flags.contains(Flags::SYN), theirs.syn());
    assert_eq!(segment.flags.contains(Flags::FIN), theirs.fin());

    let Segment { source_port, destination_port, seq, ack, flags, window, header_len, .. } = segment;
    let header = Header { source_port, destination_port, seq, ack, flags, window };
    let mut written = vec![0xee; header_len];
    let sum = header.emit(&mut written, segment.options(octets));
    // All is written as it was, but for reserved bits, checksum and urgent pointer.
    let mut expected = octets[..header_len].to_vec();
    expected[12] &= 0xf0;
    expected[16..18].fill(0);
    written[18..20].copy_from_slice(&[0; 2]);
    expected[18..20].fill(0);
    assert_eq!(written, expected);
    assert_eq!(checksum::finish(sum), checksum::finish(checksum::sum(&written)));
}

/// The same octets, sent back, arrive at the station that they came from.
fn assert_returns(datagram: &TcpDatagram<SimFrame>, vlan: Option<Vlan>) {
    let &TcpDatagram { source, destination, source_mac, ecn, .. } = datagram;
    let wire = Wire::new(1, Faults::default());
    let mut host = Host::new(wire.port(0), vlan);
    let template = host.interface.header_to(source_mac, destination, source);
    let mut frame = host.device.data_pool().frame(datagram.frame.bytes()).unwrap();
    template.write(&mut frame, ecn, 7);

    let capabilities = Capabilities { mac: source_mac, ..host.device.capabilities().clone() };
    let config = InterfaceConfig { vlan, announcements: 0, ..InterfaceConfig::default() };
    host.interface = Interface::new(&capabilities, config, 1);
    host.add(source, if source.is_ipv4() { 32 } else { 128 });
    let Some(Ingress::Tcp(returned)) = host.receive(frame.bytes(), ChecksumStatus::Unknown) else {
        panic!("what was written does not arrive");
    };
    assert_eq!((returned.source, returned.destination, returned.ecn), (destination, source, ecn));
    assert_eq!(returned.frame.bytes(), datagram.frame.bytes());
}
