//! An interface that hears ARP, neighbour discovery and noise: input is what comes, what is asked for, and
//! time. Answers are few and true, and the neighbour table keeps its limit.

use core::net::{IpAddr, Ipv6Addr};
use core::time::Duration;

use arbitrary::{Result, Unstructured};
use smoltcp::wire::{
    ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, Icmpv6Packet, IpProtocol, Ipv6Packet, NdiscRepr,
};
use tcpstack::addr::IpCidr;
use tcpstack::device::{Device, Frame};
use tcpstack::interface::{Ingress, Interface, InterfaceConfig, Resolution};
use tcpstack::neighbor::NeighborConfig;
use tcpstack::queue::TransmitQueue;
use tcpstack::sim::{Faults, SimDevice, SimFrame, Wire};
use tcpstack::time::Instant;

use crate::common::bench::{OUR_MAC, OURS};

/// Steps that an input may ask for.
const STEPS_MAX: usize = 200;

const NEIGHBORS_MAX: usize = 4;

/// Announcements of an address, and defences of it: each is one frame at a time.
const ADDRESSES: usize = 3;

const OURS_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

pub(super) fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let mut host = Host::new();
    for _ in 0..STEPS_MAX {
        // An input that ends early has said enough.
        if u.is_empty() || host.step(&mut u).is_err() {
            break;
        }
        host.check();
    }
}

struct Host {
    interface: Interface,
    device: SimDevice,
    out: TransmitQueue<SimFrame>,
    /// Keeps what is sent.
    wire: Wire,
    peer: SimDevice,
    now: Instant,
}

impl Host {
    fn new() -> Self {
        let wire = Wire::new(1, Faults::default());
        let (device, peer) = (wire.port(0), wire.port(1));
        let neighbor = NeighborConfig { limit: NEIGHBORS_MAX, ..NeighborConfig::default() };
        let config = InterfaceConfig { neighbor, ..InterfaceConfig::default() };
        let mut interface = Interface::new(device.capabilities(), config, 1);
        interface.add_address(IpCidr::new(OURS.into(), 24).unwrap()).unwrap();
        interface.add_address(IpCidr::new(OURS_V6.into(), 64).unwrap()).unwrap();
        Self { interface, device, out: TransmitQueue::new(64), wire, peer, now: Instant::ZERO }
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15_u8)? {
            0..5 => {
                let frame = arp(u)?;
                self.receive(&frame);
            }
            5..10 => {
                let frame = discovery(u)?;
                self.receive(&frame);
            }
            10 => {
                let len = u.int_in_range(0..=80)?.min(u.len());
                let octets = u.bytes(len)?.to_vec();
                self.receive(&octets);
            }
            11..13 => {
                let next_hop = if u.arbitrary()? { addr_v4(u)?.into() } else { addr_v6(u)?.into() };
                // Nobody asks for what is ours: there is no route to it.
                if !self.interface.has_address(next_hop) {
                    self.resolve(next_hop);
                }
            }
            13 => self.pass(u.int_in_range(0..=100_000)?),
            _ => self.pass(u.int_in_range(0..=3000)?),
        }
        Ok(())
    }

    /// One frame is answered by one at most.
    fn receive(&mut self, octets: &[u8]) {
        let Some(frame) = self.device.data_pool().frame(octets) else { return };
        let ingress = self.interface.receive(frame, &mut self.device, &mut self.out, self.now);
        assert!(
            !matches!(ingress, Ingress::TransportError(error) if !self.interface.has_address(error.local))
        );
        drop(ingress);
        self.sent(1);
    }

    fn resolve(&mut self, next_hop: IpAddr) {
        let resolution = self.interface.resolve(next_hop, &mut self.device, &mut self.out, self.now);
        if let Resolution::Ready(handle) = resolution {
            let known = self.interface.neighbors().find(|it| it.addr == next_hop);
            let mac = known.and_then(|it| it.mac).expect("its Ethernet address is known");
            assert!(mac[0] & 1 == 0, "no group is a neighbour");
            let ours = if next_hop.is_ipv4() { OURS.into() } else { OURS_V6.into() };
            let template = self.interface.header(handle, ours, next_hop);
            assert!(self.interface.template_is_current(&template));
            let mut frame = self.device.data_pool().frame(&[0; 20]).expect("the pool is ample");
            template.write(&mut frame, 0, 0);
            assert_eq!(frame.bytes()[..6], mac);
        }
        self.sent(1);
    }

    fn pass(&mut self, ms: u32) {
        let until = self.now + Duration::from_millis(ms.into());
        // Each neighbour asks a few times, each address says a few things: no more is ever due.
        for _ in 0..200 {
            self.interface.poll(&mut self.device, &mut self.out, self.now);
            self.sent(NEIGHBORS_MAX + ADDRESSES);
            let next = self.interface.poll_at().unwrap_or(until);
            if next >= until {
                self.now = until;
                return;
            }
            self.now = next.max(self.now + Duration::from_micros(1));
        }
        panic!("something is due all the time");
    }

    /// Looks at what was sent.
    fn sent(&mut self, max: usize) {
        assert!(self.out.len() <= max, "{} frames at once", self.out.len());
        self.out.flush(&mut self.device);
        self.wire.advance(self.now);
        let mut burst = tcpstack::device::Burst::new();
        self.peer.receive_burst(&mut burst);
        for frame in burst {
            self.assert_true(frame.bytes());
        }
    }

    /// A frame that was sent says nothing but the truth.
    fn assert_true(&self, octets: &[u8]) {
        let ethernet = EthernetFrame::new_checked(octets).unwrap();
        assert_eq!(ethernet.src_addr(), OUR_MAC);
        match ethernet.ethertype() {
            EthernetProtocol::Arp => {
                let arp = ArpRepr::parse(&ArpPacket::new_checked(ethernet.payload()).unwrap()).unwrap();
                let ArpRepr::EthernetIpv4 { source_hardware_addr, source_protocol_addr, .. } = arp else {
                    panic!("ARP of another kind");
                };
                assert_eq!((source_hardware_addr, source_protocol_addr.octets()), (OUR_MAC, OURS));
            }
            EthernetProtocol::Ipv6 => {
                let ip = Ipv6Packet::new_checked(ethernet.payload()).unwrap();
                assert!(self.interface.has_address(ip.src_addr().into()));
                assert_eq!(ip.next_header(), IpProtocol::Icmpv6);
                let message = Icmpv6Packet::new_checked(ip.payload()).unwrap();
                assert!(message.verify_checksum(&ip.src_addr(), &ip.dst_addr()));
                if !message.msg_type().is_ndisc() {
                    return;
                }
                let target = match NdiscRepr::parse(&message).unwrap() {
                    NdiscRepr::NeighborSolicit { .. } => return,
                    NdiscRepr::NeighborAdvert { target_addr, .. } => target_addr,
                    other => panic!("{other:?}"),
                };
                assert!(self.interface.has_address(target.into()), "only our own are told of");
            }
            // An echo reply.
            EthernetProtocol::Ipv4 => {}
            EthernetProtocol::Unknown(_) => panic!("an unknown EtherType"),
        }
    }

    fn check(&self) {
        let neighbors: Vec<_> = self.interface.neighbors().collect();
        assert!(neighbors.len() <= NEIGHBORS_MAX);
        for neighbor in neighbors {
            assert!(neighbor.mac.is_none_or(|mac| mac[0] & 1 == 0), "no group is a neighbour");
            assert!(!self.interface.has_address(neighbor.addr), "nor are we our own: {neighbor:?}");
        }
    }
}

fn addr_v4(u: &mut Unstructured<'_>) -> Result<[u8; 4]> {
    Ok(match u.int_in_range(0..=15_u8)? {
        0 => u.arbitrary()?,
        1 => [0; 4],
        2 => [192, 0, 2, 255],
        3..6 => OURS,
        _ => [192, 0, 2, u.int_in_range(2..=8)?],
    })
}

fn addr_v6(u: &mut Unstructured<'_>) -> Result<Ipv6Addr> {
    Ok(match u.int_in_range(0..=15_u8)? {
        0 => u.arbitrary::<[u8; 16]>()?.into(),
        1 => Ipv6Addr::UNSPECIFIED,
        2 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
        3 => Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1),
        4 => Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1),
        5..8 => OURS_V6,
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u.int_in_range(2..=8)?),
    })
}

fn mac(u: &mut Unstructured<'_>) -> Result<[u8; 6]> {
    Ok(match u.int_in_range(0..=15_u8)? {
        0 => u.arbitrary()?,
        1 => [0xff; 6],
        2 => OUR_MAC.0,
        _ => [2, 0, 0, 0, 0, u.int_in_range(2..=5)?],
    })
}

fn arp(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let to = if u.arbitrary()? { [0xff; 6] } else { OUR_MAC.0 };
    let operation = if u.ratio(1, 16)? { u.arbitrary()? } else { u.int_in_range(1..=2_u8)? };
    let mut frame = [&to[..], &mac(u)?, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    frame.extend([&mac(u)?[..], &addr_v4(u)?, &mac(u)?, &addr_v4(u)?].concat());
    // Now and then cut short, or with one octet changed.
    if u.ratio(1, 16)? {
        frame.truncate(u.int_in_range(0..=frame.len())?);
    } else if u.ratio(1, 16)? {
        let at = u.choose_index(frame.len())?;
        frame[at] = u.arbitrary()?;
    }
    Ok(frame)
}

/// An ICMPv6 message with a good checksum, mostly of neighbour discovery.
fn discovery(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let (source, destination) = (addr_v6(u)?, addr_v6(u)?);
    let kind = if u.ratio(1, 16)? { u.arbitrary()? } else { u.int_in_range(135..=136_u8)? };
    let code = if u.ratio(1, 16)? { 1 } else { 0 };
    let mut message = [&[kind, code, 0, 0, u.arbitrary()?, 0, 0, 0][..], &addr_v6(u)?.octets()].concat();
    for _ in 0..u.int_in_range(0..=2_u8)? {
        let option = u.int_in_range(0..=3_u8)?;
        let words = if u.ratio(1, 8)? { u.arbitrary()? } else { 1 };
        message.extend([&[option, words][..], &mac(u)?].concat());
    }
    if u.ratio(1, 16)? {
        message.truncate(u.int_in_range(4..=message.len())?);
    }
    let hop_limit = if u.ratio(1, 16)? { u.arbitrary()? } else { 255 };
    let to = match u.int_in_range(0..=3_u8)? {
        0 => [0x33, 0x33, 0, 0, 0, 1],
        1 => [0x33, 0x33, 0xff, 0, 0, 1],
        _ => OUR_MAC.0,
    };
    let len = u16::try_from(message.len()).unwrap().to_be_bytes();
    Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&source, &destination);
    let header = [0x60, 0, 0, 0, len[0], len[1], 58, hop_limit];
    let ethernet = [&to[..], &mac(u)?, &[0x86, 0xdd]].concat();
    Ok([&ethernet[..], &header, &source.octets(), &destination.octets(), &message].concat())
}
