//! Rules of RFC 9293 that show in single headers, or in what is not answered.

mod common;

use core::time::Duration;

use common::bench::{Bench, MS, OUR_MAC, OURS, PEER_PORT, PORT, THEIR_MAC, THEIRS, brief, plain, seg};
use common::trace::Trace;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Packet, Ipv4Repr,
    TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};
use tcpstack::addr::IpCidr;
use tcpstack::config::{Keepalive, StackConfig};
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::interface::InterfaceConfig;
use tcpstack::stack::{CloseReason, Events};
use tcpstack::tcp::state::State;

const SECOND: Duration = Duration::from_secs(1);

/// The next IPv4 packets that the stack sends, as they are.
fn packets(bench: &mut Bench) -> Vec<Vec<u8>> {
    bench.wire.advance(bench.now);
    let mut burst = Burst::new();
    bench.device.receive_burst(&mut burst);
    for frame in burst.drain(..) {
        bench.stack.receive(frame, &mut bench.device, bench.now);
    }
    bench.stack.transmit(&mut bench.device, bench.now);
    bench.wire.advance(bench.now);
    bench.peer.receive_burst(&mut burst);
    let frames = burst.drain(..).map(|frame| frame.bytes().to_vec());
    let of_ipv4 =
        |octets: &Vec<u8>| EthernetFrame::new_unchecked(octets).ethertype() == EthernetProtocol::Ipv4;
    frames.filter(of_ipv4).map(|octets| octets[14..].to_vec()).collect()
}

/// Sends a record and returns the packet that carries it.
fn packet_of(bench: &mut Bench, len: usize) -> Vec<u8> {
    let mut frame = bench.device.allocate().unwrap();
    frame.push_back(len);
    bench.stack.send(bench.id(), frame, true).map_err(|_| "no room").unwrap();
    packets(bench).pop().unwrap()
}

/// A SYN between any addresses, on Ethernet to `mac`.
fn syn(bench: &Bench, mac: EthernetAddress, source: [u8; 4], destination: [u8; 4]) {
    let tcp = TcpRepr {
        src_port: PEER_PORT,
        dst_port: PORT,
        control: TcpControl::Syn,
        seq_number: TcpSeqNumber(0),
        ack_number: None,
        window_len: 1000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let ip = Ipv4Repr {
        src_addr: source.into(),
        dst_addr: destination.into(),
        next_header: IpProtocol::Tcp,
        payload_len: tcp.buffer_len(),
        hop_limit: 64,
    };
    let checksums = ChecksumCapabilities::default();
    let mut octets = vec![0; 14 + ip.buffer_len() + tcp.buffer_len()];
    let mut ethernet = EthernetFrame::new_unchecked(&mut octets[..]);
    EthernetRepr { src_addr: THEIR_MAC, dst_addr: mac, ethertype: EthernetProtocol::Ipv4 }
        .emit(&mut ethernet);
    let mut packet = Ipv4Packet::new_unchecked(ethernet.payload_mut());
    ip.emit(&mut packet, &checksums);
    let (source, destination) = (ip.src_addr.into(), ip.dst_addr.into());
    tcp.emit(&mut TcpPacket::new_unchecked(packet.payload_mut()), &source, &destination, &checksums);
    bench.wire.inject(0, &octets);
}

// ---- Options

// proves 9293-3.2-2, 9293-3.7.1-1, 9293-3.7.1-2, 9293-3.7.1-5
#[test]
fn the_segment_size_is_that_of_the_link_and_said_in_syns_only() {
    let mut bench = Bench::new(plain());
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0));
    let answer = bench.pass(MS);
    // An MTU of 1500 less two headers of 20 octets.
    assert_eq!((answer[0].flags, answer[0].mss), ("SA", Some(1460)));
    bench.recv(&seg("A", 1, 1));
    bench.id = bench.stack.next_event().map(|(id, _)| id);
    let mut others = bench.send(&[1000, 10]);
    others.extend(bench.recv(&seg("FA", 1, 1011)));
    bench.stack.close(bench.id());
    others.extend(bench.turn());
    let flags: Vec<_> = others.iter().map(|segment| (segment.flags, segment.mss)).collect();
    assert_eq!(flags, [("PA", None), ("PA", None), ("A", None), ("FA", None)]);
}

// ---- Resets

// proves 9293-3.5.3-1
#[test]
fn a_reset_may_carry_data() {
    let mut bench = Bench::established(plain());
    assert_eq!(bench.recv(&seg("R", 1, 0).payload(20)), []);
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Reset);
    assert_eq!(bench.read(), 0);
}

// ---- OPEN

// proves 9293-3.9.1.1-2
#[test]
fn a_port_can_be_listened_on_while_a_connection_from_it_opens() {
    let mut bench = Bench::new(plain());
    let ours = (OURS, PORT).into();
    let id = bench.stack.connect((THEIRS, 80).into(), Some(ours), bench.now).unwrap();
    bench.pass(MS);
    assert_eq!(bench.stack.info(id).unwrap().state, State::SynSent);
    bench.stack.listen(ours, 1).unwrap();
    bench.inject(&seg("S", 0, 0));
    assert_eq!(brief(&bench.pass(MS)), [("SA", 0, 1, 0)]);
    assert_eq!(bench.stack.half_open_len(), 1);
    // And again while one is in SYN-RECEIVED.
    bench.stack.listen(([0, 0, 0, 0], PORT).into(), 1).unwrap();
    assert_eq!(bench.stack.info(id).unwrap().state, State::SynSent);
}

// proves 9293-3.9.1.1-3, 9293-3.9.1.1-4
#[test]
fn the_caller_names_the_local_address_or_the_route_chooses_it() {
    let mut bench = Bench::new(plain());
    let second = IpCidr::new([198, 51, 100, 1].into(), 24).unwrap();
    bench.stack.interface_mut().add_address(second).unwrap();
    let (near, far) = ((THEIRS, 80).into(), ([198, 51, 100, 9], 80).into());
    for (remote, local, chosen) in [
        (near, None, OURS),
        (far, None, [198, 51, 100, 1]),
        (far, Some((OURS, 0).into()), OURS),
        (near, Some(([198, 51, 100, 1], 0).into()), [198, 51, 100, 1]),
    ] {
        let id = bench.stack.connect(remote, local, bench.now).unwrap();
        let info = bench.stack.info(id).unwrap();
        assert_eq!(info.local.ip(), core::net::IpAddr::from(chosen), "{local:?} to {remote}");
    }
}

// proves 9293-3.9.1.1-5
#[test]
fn a_connection_keeps_its_address_when_the_route_would_choose_another() {
    let mut bench = Bench::established(plain());
    // Until what is known of the neighbour is stale, and with it the headers.
    bench.pass(200 * SECOND);
    let narrower = IpCidr::new([192, 0, 2, 3].into(), 25).unwrap();
    bench.stack.interface_mut().add_address(narrower).unwrap();
    let route = bench.stack.interface().route(THEIRS.into()).unwrap();
    assert_eq!(route.source, core::net::IpAddr::from([192, 0, 2, 3]));
    let packet = packet_of(&mut bench, 10);
    assert_eq!(Ipv4Packet::new_unchecked(&packet).src_addr().octets(), OURS);
}

// ---- IP

// proves 9293-3.9.2-1
#[test]
fn the_hop_limit_is_the_configured_one() {
    for hop_limit in [64, 3] {
        let interface = InterfaceConfig { hop_limit, ..InterfaceConfig::default() };
        let mut bench = Bench::established(StackConfig { interface, ..plain() });
        let packet = packet_of(&mut bench, 10);
        assert_eq!(Ipv4Packet::new_unchecked(&packet).hop_limit(), hop_limit);
    }
}

// proves 9293-3.9.2.3-1
#[test]
fn a_syn_from_what_is_no_single_host_is_not_answered() {
    let mut bench = Bench::new(plain());
    bench.stack.listen(([0, 0, 0, 0], PORT).into(), 4).unwrap();
    for source in [[224, 0, 0, 1], [255; 4], [192, 0, 2, 255], [0; 4], [127, 0, 0, 1], OURS] {
        syn(&bench, OUR_MAC, source, OURS);
        assert_eq!(packets(&mut bench), Vec::<Vec<u8>>::new(), "{source:?}");
        assert_eq!(bench.stack.half_open_len(), 0, "{source:?}");
    }
    assert_eq!(bench.stack.interface().counters().ip_source_invalid, 6);
    syn(&bench, OUR_MAC, THEIRS, OURS);
    packets(&mut bench);
    assert_eq!(bench.stack.half_open_len(), 1);
}

// proves 9293-3.9.2.3-2
#[test]
fn a_syn_to_many_hosts_is_not_answered() {
    let mut bench = Bench::new(plain());
    bench.stack.listen(([0, 0, 0, 0], PORT).into(), 4).unwrap();
    let everybody = EthernetAddress::BROADCAST;
    for (mac, destination) in [
        (everybody, [255; 4]),
        (everybody, [192, 0, 2, 255]),
        (everybody, OURS),
        (OUR_MAC, [255; 4]),
        (OUR_MAC, [192, 0, 2, 255]),
        (OUR_MAC, [224, 0, 0, 1]),
    ] {
        syn(&bench, mac, THEIRS, destination);
        assert_eq!(packets(&mut bench), Vec::<Vec<u8>>::new(), "{destination:?}");
        assert_eq!(bench.stack.half_open_len(), 0, "{destination:?}");
    }
}

// ---- Defaults

// proves 9293-3.8.4-2, 9293-3.8.4-4
#[test]
fn keep_alives_are_off_and_come_after_two_hours_when_on() {
    assert_eq!(StackConfig::default().keepalive, None);
    assert!(Keepalive::default().idle >= 7200 * SECOND);

    let mut bench = Bench::established(StackConfig { keepalive: Some(Keepalive::default()), ..plain() });
    bench.quiet_pass(7199 * SECOND);
    assert_eq!(bench.stack.counters().keepalive_probes, 0);
    bench.quiet_pass(2 * SECOND);
    assert_eq!(bench.stack.counters().keepalive_probes, 1);
}

// proves 9293-3.8.3-6, 9293-3.8.3-7
#[test]
fn a_syn_is_sent_for_three_minutes() {
    let config = StackConfig { timestamps: false, sack: false, ..StackConfig::default() };
    let mut trace = Trace::new(config);
    let bench = &mut trace.bench;
    let id = bench.stack.connect((THEIRS, PEER_PORT).into(), Some((OURS, PORT).into()), bench.now);
    bench.id = id.ok();
    assert!(bench.pass(170 * SECOND).iter().all(|segment| segment.flags == "S"));
    let start = bench.now;
    while bench.state() == State::SynSent {
        bench.pass(SECOND);
    }
    assert!(170 * SECOND + (bench.now - start) >= 180 * SECOND);
    assert!(bench.events().contains(Events::CLOSED));
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::TimedOut);
}
