//! Conversations between interfaces over the simulated wire.

use core::net::Ipv4Addr;

use proptest::prelude::*;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, Ipv4Packet};

use super::*;
use crate::checksum;
use crate::device::{Burst, ChecksumStatus, Frame};
use crate::icmp::{IcmpError, IcmpErrorKind};
use crate::neighbor::NeighborState;
use crate::sim::{Chance, Faults, PortConfig, SimDevice, SimFrame, Wire};

mod discovery;
mod hostile;

/// An interface with its port, and what it handed up.
struct Host {
    interface: Interface,
    device: SimDevice,
    out: TransmitQueue<SimFrame>,
    segments: Vec<TcpDatagram<SimFrame>>,
    errors: Vec<IcmpError>,
}

impl Host {
    fn new(wire: &Wire, index: u8, config: InterfaceConfig) -> Self {
        let device = wire.add_port(PortConfig::new(index));
        let mut interface = Interface::new(device.capabilities(), config, u64::from(index));
        interface.add_address(cidr(&format!("10.0.0.{}/24", index + 1))).unwrap();
        interface.add_address(cidr(&format!("2001:db8::{}/64", index + 1))).unwrap();
        Self { interface, device, out: TransmitQueue::new(64), segments: Vec::new(), errors: Vec::new() }
    }

    fn turn(&mut self, now: Instant) {
        let mut burst = Burst::new();
        self.device.receive_burst(&mut burst);
        for frame in burst {
            match self.interface.receive(frame, &mut self.device, &mut self.out, now) {
                Ingress::Tcp(datagram) => self.segments.push(datagram),
                Ingress::TransportError(error) => self.errors.push(error),
                Ingress::Consumed => {}
            }
        }
        self.interface.poll(&mut self.device, &mut self.out, now);
        self.out.flush(&mut self.device);
    }

    fn resolve(&mut self, next_hop: &str, now: Instant) -> Resolution {
        self.interface.resolve(ip(next_hop), &mut self.device, &mut self.out, now)
    }

    fn ready(&mut self, next_hop: &str, now: Instant) -> NeighborHandle {
        match self.resolve(next_hop, now) {
            Resolution::Ready(handle) => handle,
            other => panic!("{next_hop} is {other:?}"),
        }
    }

    /// Sends octets in the place of a TCP segment.
    fn send_segment(&mut self, template: &HeaderTemplate, segment: &[u8]) {
        let mut frame = self.device.allocate().unwrap();
        frame.push_back(segment.len());
        frame.bytes_mut().copy_from_slice(segment);
        template.write(&mut frame, 0, 0);
        self.out.push(frame).unwrap();
    }

    fn state_of(&self, addr: &str) -> Option<NeighborState> {
        self.interface.neighbors().find(|info| info.addr == ip(addr)).map(|info| info.state)
    }

    fn mac(&self) -> [u8; 6] {
        self.device.capabilities().mac
    }
}

/// Two or more hosts on one wire.
struct Net {
    wire: Wire,
    hosts: Vec<Host>,
}

impl Net {
    fn new(hosts: u8) -> Self {
        Self::with(hosts, &InterfaceConfig { announcements: 0, ..InterfaceConfig::default() })
    }

    fn with(hosts: u8, config: &InterfaceConfig) -> Self {
        let wire = Wire::new(1, Faults { delay: Duration::from_micros(10), ..Faults::default() });
        let hosts = (0..hosts).map(|index| Host::new(&wire, index, config.clone())).collect();
        Self { wire, hosts }
    }

    fn now(&self) -> Instant {
        self.wire.now()
    }

    /// Lets everything happen that is due within `span`.
    fn run(&mut self, span: Duration) {
        let end = self.now() + span;
        let mut now = self.now();
        for _ in 0..100_000 {
            self.wire.advance(now);
            for host in &mut self.hosts {
                host.turn(now);
            }
            let timers = self.hosts.iter().filter_map(|host| host.interface.poll_at());
            match timers.chain(self.wire.next_delivery()).min() {
                Some(next) if next <= end => now = next.max(now),
                _ => {
                    self.wire.advance(end);
                    return;
                }
            }
        }
        panic!("the hosts do not come to rest");
    }

    fn settle(&mut self) {
        self.run(Duration::from_millis(1));
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn cidr(text: &str) -> IpCidr {
    text.parse().unwrap()
}

#[test]
fn segments_are_judged_anew_when_an_address_goes() {
    let mut net = Net::new(2);
    let now = net.now();
    net.hosts[0].resolve("10.0.0.2", now);
    net.settle();
    let handle = net.hosts[0].ready("10.0.0.2", now);
    let template = net.hosts[0].interface.header(handle, ip("10.0.0.1"), ip("10.0.0.2"));
    let send = |net: &mut Net| {
        net.hosts[0].send_segment(&template, b"whatever it is");
        net.settle();
        (net.hosts[1].segments.len(), net.hosts[1].interface.counters().ip_not_ours)
    };
    assert_eq!(send(&mut net), (1, 0));
    assert_eq!(send(&mut net), (2, 0));
    net.hosts[1].interface.remove_address(ip("10.0.0.2"));
    assert_eq!(send(&mut net), (2, 1));
    net.hosts[1].interface.add_address(cidr("10.0.0.2/24")).unwrap();
    assert_eq!(send(&mut net), (3, 1));
    net.hosts[1].interface.add_address(cidr("10.0.0.1/24")).unwrap();
    assert_eq!(send(&mut net), (3, 1));
    assert_eq!(net.hosts[1].interface.counters().ip_source_invalid, 1);
}

mod routes {
    use super::*;

    fn interface() -> Interface {
        Net::new(1).hosts.remove(0).interface
    }

    #[test]
    fn on_link_remotes_are_their_own_next_hop() {
        let interface = interface();
        let route = interface.route(ip("10.0.0.9")).unwrap();
        assert_eq!(route, Route { source: ip("10.0.0.1"), next_hop: ip("10.0.0.9"), mtu: 1500 });
        let route = interface.route(ip("2001:db8::9")).unwrap();
        assert_eq!((route.source, route.next_hop), (ip("2001:db8::1"), ip("2001:db8::9")));
        let route = interface.route(ip("fe80::9")).unwrap();
        assert_eq!((route.source, route.next_hop), (ip("fe80::ff:fe00:1"), ip("fe80::9")));
    }

    #[test]
    fn the_longest_prefix_wins() {
        let mut interface = interface();
        interface.add_route(cidr("0.0.0.0/0"), ip("10.0.0.254")).unwrap();
        interface.add_route(cidr("192.0.2.0/24"), ip("10.0.0.253")).unwrap();
        interface.add_route(cidr("10.0.0.128/25"), ip("10.0.0.252")).unwrap();
        let next_hop = |remote: &str| interface.route(ip(remote)).unwrap().next_hop;
        assert_eq!(next_hop("198.51.100.1"), ip("10.0.0.254"));
        assert_eq!(next_hop("192.0.2.1"), ip("10.0.0.253"));
        assert_eq!(next_hop("10.0.0.5"), ip("10.0.0.5"));
        assert_eq!(next_hop("10.0.0.200"), ip("10.0.0.252"));
    }

    #[test]
    fn a_link_local_gateway_gets_a_global_source() {
        let mut interface = interface();
        interface.add_route(cidr("::/0"), ip("fe80::fe")).unwrap();
        let route = interface.route(ip("2001:db8:1::1")).unwrap();
        assert_eq!((route.source, route.next_hop), (ip("2001:db8::1"), ip("fe80::fe")));
        interface.remove_address(ip("2001:db8::1"));
        assert_eq!(interface.route(ip("2001:db8:1::1")), None);
    }

    #[test]
    fn what_is_no_other_host_has_no_route() {
        let interface = interface();
        for remote in ["10.0.0.1", "10.0.0.255", "255.255.255.255", "0.0.0.0", "224.0.0.1", "192.0.2.1"] {
            assert_eq!(interface.route(ip(remote)), None, "{remote}");
        }
        for remote in ["2001:db8::1", "::", "::1", "ff02::1", "2001:db8:1::1"] {
            assert_eq!(interface.route(ip(remote)), None, "{remote}");
        }
    }

    #[test]
    fn impossible_addresses_and_routes_are_refused() {
        let mut interface = interface();
        for (addr, error) in [
            ("10.0.0.1/8", InterfaceError::Exists),
            ("10.1.255.255/16", InterfaceError::NotUnicast),
            ("0.0.0.0/0", InterfaceError::NotUnicast),
            ("ff02::1/64", InterfaceError::NotUnicast),
        ] {
            assert_eq!(interface.add_address(cidr(addr)), Err(error), "{addr}");
        }
        for (gateway, error) in [
            ("10.0.0.1", InterfaceError::NotUnicast),
            ("192.0.2.1", InterfaceError::GatewayUnreachable),
            ("2001:db8::9", InterfaceError::GatewayUnreachable),
            ("224.0.0.1", InterfaceError::NotUnicast),
        ] {
            assert_eq!(interface.add_route(cidr("0.0.0.0/0"), ip(gateway)), Err(error), "{gateway}");
        }
        interface.add_route(cidr("0.0.0.0/0"), ip("10.0.0.254")).unwrap();
        assert_eq!(interface.add_route(cidr("0.0.0.0/0"), ip("10.0.0.254")), Err(InterfaceError::Exists));
        while interface.locals.len() < ADDRESSES_MAX {
            let host = u8::try_from(interface.locals.len()).unwrap();
            interface.add_address(IpCidr::host(Ipv4Addr::new(192, 0, 2, host).into())).unwrap();
        }
        assert_eq!(interface.add_address(cidr("192.0.2.200")), Err(InterfaceError::Full));
    }

    #[test]
    fn an_address_takes_its_routes_with_it() {
        let mut interface = interface();
        interface.add_route(cidr("0.0.0.0/0"), ip("10.0.0.254")).unwrap();
        assert!(interface.remove_address(ip("10.0.0.1")));
        assert!(!interface.remove_address(ip("10.0.0.1")));
        assert_eq!(interface.routes().count(), 0);
        assert_eq!(interface.route(ip("192.0.2.1")), None);
    }

    #[test]
    fn a_path_mtu_is_lowered_and_later_forgotten() {
        let mut net = Net::new(1);
        let interface = &mut net.hosts[0].interface;
        let mtu = |interface: &Interface| interface.route(ip("10.0.0.9")).unwrap().mtu;
        interface.update_path_mtu(ip("10.0.0.9"), 1400, Instant::ZERO);
        assert_eq!(mtu(interface), 1400);
        interface.update_path_mtu(ip("10.0.0.9"), 1450, Instant::ZERO);
        interface.update_path_mtu(ip("10.0.0.9"), 9000, Instant::ZERO);
        assert_eq!(mtu(interface), 1400);
        interface.update_path_mtu(ip("10.0.0.9"), 1, Instant::ZERO);
        assert_eq!(mtu(interface), 552);
        assert_eq!(interface.route(ip("10.0.0.8")).unwrap().mtu, 1500);
        net.run(Duration::from_secs(599));
        assert_eq!(mtu(&net.hosts[0].interface), 552);
        net.run(Duration::from_secs(2));
        assert_eq!(mtu(&net.hosts[0].interface), 1500);
        assert_eq!(net.hosts[0].interface.poll_at(), None);
    }
}

mod segments {
    use super::*;

    fn delivered(source: &str, destination: &str, config: &InterfaceConfig) {
        let mut net = Net::with(2, config);
        net.settle();
        let now = net.now();
        net.hosts[0].resolve(destination, now);
        net.settle();
        let now = net.now();
        let handle = net.hosts[0].ready(destination, now);
        let template = net.hosts[0].interface.header(handle, ip(source), ip(destination));
        assert!(net.hosts[0].interface.template_is_current(&template));
        // Short, so that the port pads it.
        net.hosts[0].send_segment(&template, b"seg");
        net.settle();
        let mac = net.hosts[0].mac();
        let datagram = net.hosts[1].segments.pop().expect("the segment arrives");
        assert_eq!(datagram.frame.bytes(), b"seg");
        assert_eq!((datagram.source, datagram.destination), (ip(source), ip(destination)));
        assert_eq!((datagram.source_mac, datagram.checksum), (mac, ChecksumStatus::Unknown));

        // And straight back, without resolving.
        let template = net.hosts[1].interface.header_to(mac, datagram.destination, datagram.source);
        assert!(!net.hosts[1].interface.template_is_current(&template));
        net.hosts[1].send_segment(&template, b"answer");
        net.settle();
        assert_eq!(net.hosts[0].segments.pop().unwrap().frame.bytes(), b"answer");
        drop(datagram);
        assert_eq!(net.wire.outstanding(), 0);
    }

    #[test]
    fn reach_the_neighbour_over_both_ip_versions_with_and_without_a_tag() {
        for vlan in [None, Vlan::new(7)] {
            let config = InterfaceConfig { vlan, ..InterfaceConfig::default() };
            delivered("10.0.0.1", "10.0.0.2", &config);
            delivered("2001:db8::1", "2001:db8::2", &config);
            delivered("fe80::ff:fe00:1", "fe80::ff:fe00:2", &config);
        }
    }

    #[test]
    fn of_another_vlan_are_dropped() {
        let wire = Wire::new(1, Faults::default());
        let config = |id| InterfaceConfig { vlan: Vlan::new(id), ..InterfaceConfig::default() };
        let hosts = vec![Host::new(&wire, 0, config(1)), Host::new(&wire, 1, config(2))];
        let mut net = Net { wire, hosts };
        net.settle();
        // Three addresses are announced.
        assert_eq!(net.hosts[1].interface.counters().vlan_mismatch, 3);
    }
}

mod echo {
    use super::*;

    /// An echo request in an IP packet in a frame from host 0 to host 1.
    fn request(net: &mut Net, ipv6: bool, len: usize) {
        let (source, destination) =
            if ipv6 { ("2001:db8::1", "2001:db8::2") } else { ("10.0.0.1", "10.0.0.2") };
        let protocol = if ipv6 { IpProtocol::Icmpv6 } else { IpProtocol::Icmp };
        let mac = EthernetAddress(net.hosts[1].mac());
        let host = &mut net.hosts[0];
        let template =
            host.interface.template(mac, ip(source), ip(destination), protocol, NeighborHandle::NONE);
        let kind = if ipv6 { 128 } else { 8 };
        let mut message = vec![kind, 0, 0, 0, 1, 2, 0, 3];
        message.extend((0..len).map(|octet| u8::try_from(octet % 251).unwrap()));
        let pseudo_sum = if ipv6 { template.pseudo_header_sum(message.len()) } else { 0 };
        let sum = checksum::combine(pseudo_sum, checksum::sum(&message));
        message[2..4].copy_from_slice(&checksum::finish(sum).to_be_bytes());
        host.send_segment(&template, &message);
    }

    /// The echo reply on the wire is the request but for its type, with good checksums.
    #[test]
    fn is_answered_with_a_new_frame() {
        for ipv6 in [false, true] {
            for len in [0, 1, 56, 1400] {
                let mut net = Net::new(2);
                request(&mut net, ipv6, len);
                net.wire.start_capture(1);
                net.settle();
                assert_eq!(net.hosts[1].interface.counters().icmp_echo_answered, 1);
                // An echo reply asks for nothing, but its checksum has been verified.
                assert_eq!(net.hosts[0].interface.counters().icmp_other, 1);
                let capture = net.wire.take_capture(1).unwrap();
                let tail = (0..len).map(|octet| u8::try_from(octet % 251).unwrap()).collect::<Vec<_>>();
                let message = [&[1, 2, 0, 3], &tail[..]].concat();
                let found =
                    capture.octets().windows(message.len()).filter(|octets| *octets == message).count();
                assert_eq!(found, 2, "in the request and in the reply");
                assert_eq!(net.wire.outstanding(), 0);
            }
        }
    }

    #[test]
    fn is_limited() {
        let config = InterfaceConfig { echo_per_second: 10, echo_burst: 3, ..InterfaceConfig::default() };
        let mut net = Net::with(2, &config);
        for _ in 0..10 {
            request(&mut net, false, 8);
        }
        net.settle();
        let counters = net.hosts[1].interface.counters();
        assert_eq!((counters.icmp_echo_answered, counters.icmp_rate_limited), (3, 7));
    }

    #[test]
    fn without_a_frame_is_counted() {
        let wire = Wire::new(1, Faults::default());
        let mut small = PortConfig::new(1);
        small.control_frames = 0;
        let mut hosts = vec![Host::new(&wire, 0, InterfaceConfig::default())];
        let device = wire.add_port(small);
        hosts.push(Host {
            interface: Interface::new(device.capabilities(), InterfaceConfig::default(), 2),
            device,
            out: TransmitQueue::new(4),
            segments: Vec::new(),
            errors: Vec::new(),
        });
        hosts[1].interface.add_address(cidr("10.0.0.2/24")).unwrap();
        let mut net = Net { wire, hosts };
        net.settle();
        let before = net.hosts[1].interface.counters().reply_no_frame;
        request(&mut net, false, 8);
        net.settle();
        assert_eq!(net.hosts[1].interface.counters().reply_no_frame, before + 1);
    }

    #[test]
    fn to_a_full_queue_is_counted() {
        let mut net = Net::new(2);
        net.hosts[1].out = TransmitQueue::new(2);
        for _ in 0..5 {
            request(&mut net, false, 8);
        }
        net.settle();
        assert_eq!(net.hosts[1].interface.counters().reply_queue_full, 3);
        assert_eq!(net.hosts[1].out.refused(), 3);
        assert_eq!(net.wire.outstanding(), 0);
    }
}

mod errors {
    use super::*;

    #[test]
    fn of_a_narrow_link_tell_the_path_mtu() {
        for (us, peer, mtu) in [("10.0.0.1", "10.0.0.2", 1000), ("2001:db8::1", "2001:db8::2", 1300)] {
            let mut net = Net::new(2);
            let faults = Faults { frame_len_max: Some(14 + mtu), report_too_long: true, ..Faults::default() };
            net.wire.set_port_faults(0, faults);
            let mac = net.hosts[1].mac();
            let template = net.hosts[0].interface.header_to(mac, ip(us), ip(peer));
            let mut segment = vec![0; 1400];
            segment[..14].copy_from_slice(&[0x03, 0xe8, 0x07, 0xd0, 1, 2, 3, 4, 0, 0, 0, 0, 0x50, 0]);
            net.hosts[0].send_segment(&template, &segment);
            net.settle();
            let expected = IcmpError {
                kind: IcmpErrorKind::PacketTooBig { mtu },
                local: ip(us),
                remote: ip(peer),
                local_port: 1000,
                remote_port: 2000,
                sequence: 0x0102_0304,
            };
            assert_eq!(net.hosts[0].errors, [expected]);
            assert_eq!(net.hosts[1].segments.len(), 0);
            let now = net.now();
            net.hosts[0].interface.update_path_mtu(ip(peer), mtu, now);
            assert_eq!(net.hosts[0].interface.route(ip(peer)).unwrap().mtu, mtu);
        }
    }

    #[test]
    fn about_our_segments_are_handed_up() {
        let mut net = Net::new(2);
        let mac = EthernetAddress(net.hosts[0].mac());
        let quoted = |source: [u8; 4]| {
            let mut quoted = vec![0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0];
            quoted.extend(source);
            quoted.extend([192, 0, 2, 1, 0x03, 0xe8, 0x07, 0xd0, 1, 2, 3, 4]);
            quoted
        };
        for (source, mtu) in [([10, 0, 0, 1], 1400u16), ([10, 0, 0, 7], 1400), ([10, 0, 0, 1], 1500)] {
            let [hi, lo] = mtu.to_be_bytes();
            let mut message = vec![3, 4, 0, 0, 0, 0, hi, lo];
            message.extend(quoted(source));
            let sum = checksum::sum(&message);
            message[2..4].copy_from_slice(&checksum::finish(sum).to_be_bytes());
            let router = &mut net.hosts[1];
            let template = router.interface.template(
                mac,
                ip("10.0.0.2"),
                ip("10.0.0.1"),
                IpProtocol::Icmp,
                NeighborHandle::NONE,
            );
            router.send_segment(&template, &message);
        }
        net.settle();
        // Only the first is about a packet of ours and says something new.
        let expected = IcmpError {
            kind: IcmpErrorKind::PacketTooBig { mtu: 1400 },
            local: ip("10.0.0.1"),
            remote: ip("192.0.2.1"),
            local_port: 1000,
            remote_port: 2000,
            sequence: 0x0102_0304,
        };
        assert_eq!(net.hosts[0].errors, [expected]);
        assert_eq!(net.hosts[0].interface.counters().icmp_errors_received, 1);
    }
}
