//! ICMP and ICMPv6 for a host with a connection: input is messages with good checksums, about segments in
//! flight or about anything. The connection lives through all of them and then gets its octets across.

use core::net::IpAddr;
use core::time::Duration;

use arbitrary::{Result, Unstructured};
use smoltcp::wire::{Icmpv4Packet, Icmpv6Packet, Ipv4Packet};
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::interface::InterfaceConfig;
use tcpstack::sim::{Faults, PortConfig, Wire};
use tcpstack::stack::ConnectionId;
use tcpstack::tcp::state::State;

use crate::common::stream::Stream;
use crate::common::{Host, Version, World, config, ip};

/// Messages of an input.
const MESSAGES_MAX: usize = 100;

/// Echo replies at once, and then none for long.
const ECHO_BURST: u32 = 3;

/// Octets in flight.
const OCTETS: u64 = 5000;

/// Least records: the least MTUs that are believed in, less all headers.
const EMSS_MIN: [usize; 2] = [552 - 20 - 60, 1280 - 40 - 60];

pub(super) fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let Ok(ipv6) = u.arbitrary::<bool>() else { return };
    let version = if ipv6 { Version::V6 } else { Version::V4 };
    let interface =
        InterfaceConfig { echo_burst: ECHO_BURST, echo_per_second: 1, ..InterfaceConfig::default() };
    let config = StackConfig { interface, half_open_max: 8, time_wait_max: 8, ..config() };
    let wire = Wire::new(1, Faults::default());
    let mut world = World::on(wire, 1, [&config; 2], [PortConfig::new(0), PortConfig::new(1)]);
    let (client, server) = world.establish(version, 4791);
    let mut streams = [Stream::new(client, 0, OCTETS, 1), Stream::new(server, 1, 0, 1)];
    let quotes = fill(&mut world, &mut streams[0]);

    // Each message can cut what is in flight once more.
    let mut frames_max = 0;
    for _ in 0..MESSAGES_MAX {
        // An input that ends early has said enough.
        let (Ok(frame), false) = (message(&mut u, version, &quotes), u.is_empty()) else { break };
        frames_max += OCTETS / 400;
        let sent = receive(&mut world, &frame, client, ipv6);
        assert!(sent <= frames_max, "{sent} frames for one message");
    }
    let answered = world.hosts[0].stack.interface().counters().icmp_echo_answered;
    assert!(answered <= u64::from(ECHO_BURST), "{answered} echoes");

    // All is sent again, in segments as small as the messages made them.
    let done = world.run(Duration::from_secs(60), |world| {
        for (host, stream) in streams.iter_mut().enumerate() {
            let Host { device, stack, .. } = &mut world.hosts[host];
            stream.work(stack, device);
        }
        streams[1].received == OCTETS
    });
    assert!(done, "{} octets have come", streams[1].received);
}

/// Sends all octets, which are then in flight and go no further; the IP packets.
fn fill(world: &mut World, stream: &mut Stream) -> Vec<Vec<u8>> {
    let Host { device, stack, .. } = &mut world.hosts[0];
    stream.closes = false;
    stream.work(stack, device);
    stack.transmit(device, world.now);
    world.wire.advance(world.now);
    let mut burst = Burst::new();
    world.hosts[1].device.receive_burst(&mut burst);
    assert!(!burst.is_empty());
    burst.iter().map(|frame| frame.bytes()[14..].to_vec()).collect()
}

/// One message arrives; the frames that are sent for it.
fn receive(world: &mut World, frame: &[u8], id: ConnectionId, ipv6: bool) -> u64 {
    let before = world.wire.counters().sent;
    world.wire.inject(0, frame);
    let Host { device, stack, .. } = &mut world.hosts[0];
    let mut burst = Burst::new();
    device.receive_burst(&mut burst);
    for frame in burst {
        stack.receive(frame, device, world.now);
    }
    stack.transmit(device, world.now);
    world.wire.advance(world.now);
    // RFC 5927: a connection that is established is not ended by what anybody can say.
    let info = stack.info(id).expect("the connection lives");
    assert_eq!(info.state, State::Established);
    assert!(stack.emss(id) >= EMSS_MIN[usize::from(ipv6)], "records of {} octets", stack.emss(id));
    // Nothing that was received waits at the other end.
    world.hosts[1].device.receive_burst(&mut Burst::new());
    world.wire.counters().sent - before
}

/// A message in its frame.
fn message(u: &mut Unstructured<'_>, version: Version, quotes: &[Vec<u8>]) -> Result<Vec<u8>> {
    let kind = match (u.int_in_range(0..=7_u8)?, version) {
        (0, _) => u.arbitrary()?,
        (1, Version::V4) => 8,
        (1, Version::V6) => 128,
        (2, Version::V4) => *u.choose(&[11, 12, 4, 5])?,
        (2, Version::V6) => *u.choose(&[3, 4, 137])?,
        (_, Version::V4) => 3,
        (_, Version::V6) => u.int_in_range(1..=2)?,
    };
    let code = u.int_in_range(0..=15)?;
    let word = if u.arbitrary()? { u.int_in_range(0..=2000_u32)? } else { u.arbitrary()? };
    let mut octets = [&[kind, code, 0, 0][..], &word.to_be_bytes()].concat();
    octets.extend(quote(u, quotes)?);
    octets.truncate(1200);
    // From the peer, or a router of any address.
    let router = u.ratio(1, 4)?;
    match (ip(version, 1), ip(version, 0)) {
        (IpAddr::V4(peer), IpAddr::V4(ours)) => {
            let source = if router { u.arbitrary::<[u8; 4]>()?.into() } else { peer };
            Icmpv4Packet::new_unchecked(&mut octets[..]).fill_checksum();
            let len = u16::try_from(20 + octets.len()).unwrap().to_be_bytes();
            let mut header = vec![0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 1, 0, 0];
            header.extend([source.octets(), ours.octets()].concat());
            Ipv4Packet::new_unchecked(&mut header[..]).fill_checksum();
            Ok(frame([8, 0], &header, &octets))
        }
        (IpAddr::V6(peer), IpAddr::V6(ours)) => {
            let source = if router { u.arbitrary::<[u8; 16]>()?.into() } else { peer };
            Icmpv6Packet::new_unchecked(&mut octets[..]).fill_checksum(&source, &ours);
            let len = u16::try_from(octets.len()).unwrap().to_be_bytes();
            let mut header = vec![0x60, 0, 0, 0, len[0], len[1], 58, 64];
            header.extend([source.octets(), ours.octets()].concat());
            Ok(frame([0x86, 0xdd], &header, &octets))
        }
        _ => unreachable!("both addresses are of one version"),
    }
}

/// What a message quotes: a packet in flight, maybe with an octet changed or cut short, or anything.
fn quote(u: &mut Unstructured<'_>, quotes: &[Vec<u8>]) -> Result<Vec<u8>> {
    if u.ratio(1, 8)? {
        let len = u.int_in_range(0..=80)?.min(u.len());
        return Ok(u.bytes(len)?.to_vec());
    }
    let mut octets = u.choose(quotes)?[..60].to_vec();
    if u.ratio(1, 4)? {
        let at = u.choose_index(octets.len())?;
        octets[at] = u.arbitrary()?;
    }
    if u.ratio(1, 4)? {
        octets.truncate(u.int_in_range(0..=60)?);
    }
    Ok(octets)
}

fn frame(ethertype: [u8; 2], header: &[u8], message: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ethertype, header, message].concat()
}
