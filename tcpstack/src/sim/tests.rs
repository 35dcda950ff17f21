//! Each fault does what it says, and nothing else; everything follows from the seed.

use core::net::IpAddr;
use core::time::Duration;

use proptest::prelude::*;
use smoltcp::wire::{Ipv4Packet, TcpPacket};

use super::mangle::TcpLayout;
use super::*;
use crate::addr::EthernetAddress;
use crate::checksum;
use crate::device::{Burst, ChecksumLayout, ChecksumStatus, Device, Frame};
use crate::header::{HeaderParts, HeaderTemplate};
use crate::neighbor::NeighborHandle;
use crate::time::Instant;

const MILLI: Duration = Duration::from_millis(1);

struct Link {
    wire: Wire,
    a: SimDevice,
    b: SimDevice,
    now: Instant,
}

impl Link {
    fn new(faults: Faults) -> Self {
        Self::seeded(7, faults)
    }

    fn seeded(seed: u64, faults: Faults) -> Self {
        let wire = Wire::new(seed, faults);
        let (a, b) = (wire.port(0), wire.port(1));
        Self { wire, a, b, now: Instant::ZERO }
    }

    /// Sends frames, each with its own content, and returns how many were taken.
    fn send(&mut self, contents: impl IntoIterator<Item = Vec<u8>>) -> usize {
        let mut taken = 0;
        for content in contents {
            let mut frame = self.a.allocate().unwrap();
            frame.push_back(content.len());
            frame.bytes_mut().copy_from_slice(&content);
            let mut burst = Burst::new();
            burst.push(frame);
            self.a.transmit_burst(&mut burst);
            taken += usize::from(burst.is_empty());
        }
        taken
    }

    /// Everything that arrives, with its time.
    fn drain(&mut self) -> Vec<(Instant, Vec<u8>)> {
        let mut arrived = Vec::new();
        while let Some(at) = self.wire.next_delivery() {
            self.now = self.now.max(at);
            self.wire.advance(self.now);
            loop {
                let mut burst = Burst::new();
                self.b.receive_burst(&mut burst);
                if burst.is_empty() {
                    break;
                }
                arrived.extend(burst.iter().map(|frame| (self.now, frame.bytes().to_vec())));
            }
        }
        arrived
    }

    fn contents(&mut self) -> Vec<Vec<u8>> {
        self.drain().into_iter().map(|(_, content)| content).collect()
    }
}

/// A frame that is told from others by its number.
fn plain(number: usize) -> Vec<u8> {
    let mut content = vec![0xee; 100];
    content[..8].copy_from_slice(&u64::try_from(number).unwrap().to_be_bytes());
    content
}

fn plains(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(plain).collect()
}

/// A frame with a TCP segment; its checksums are good.
fn segment(ipv6: bool, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let addr = |host: u16| -> IpAddr {
        if ipv6 { format!("2001:db8::{host}") } else { format!("10.0.0.{host}") }.parse().unwrap()
    };
    let parts = HeaderParts {
        source_mac: EthernetAddress([2, 0, 0, 0, 0, 1]),
        destination_mac: EthernetAddress([2, 0, 0, 0, 0, 2]),
        vlan: None,
        source: addr(1),
        destination: addr(2),
        protocol: smoltcp::wire::IpProtocol::Tcp,
        hop_limit: 64,
    };
    let template = HeaderTemplate::new(&parts, NeighborHandle::NONE);
    let mut tcp = vec![0, 80, 0, 81];
    tcp.extend(sequence.to_be_bytes());
    tcp.extend([0, 0, 0, 9, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let sum = checksum::combine(template.pseudo_header_sum(tcp.len()), checksum::sum(&tcp));
    tcp[16..18].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    let mut frame = SimPool::new(1, 2000).frame(&tcp).unwrap();
    template.write(&mut frame, 0, 0);
    frame.bytes().to_vec()
}

/// Sequence number, flags and payload of a segment, whose checksums must be good.
fn read(frame: &[u8]) -> (u32, u8, Vec<u8>) {
    let layout = TcpLayout::of(frame).expect("a TCP segment");
    let tcp = TcpPacket::new_checked(&frame[layout.tcp..layout.payload.end]).unwrap();
    assert!(tcp.verify_checksum(&layout.source, &layout.destination));
    assert!(layout.ipv6 || Ipv4Packet::new_unchecked(&frame[layout.ip..]).verify_checksum());
    let sequence = u32::from_be_bytes(frame[layout.tcp + 4..layout.tcp + 8].try_into().unwrap());
    (sequence, frame[layout.tcp + 13], frame[layout.payload].to_vec())
}

#[test]
fn a_perfect_wire_delivers_all_in_order_and_leaks_nothing() {
    let mut link = Link::new(Faults::default());
    link.send(plains(100));
    assert_eq!(link.contents(), plains(100));
    assert_eq!((link.wire.outstanding(), link.wire.underway()), (0, 0));
}

#[test]
fn delay_and_bandwidth_are_exact() {
    // 100 octets at 8 Mb/s take 100 us.
    let mut link = Link::new(Faults::link(MILLI, 8_000_000));
    link.send(plains(3));
    let times = link.drain().into_iter().map(|(at, _)| at.as_micros()).collect::<Vec<_>>();
    assert_eq!(times, [1100, 1200, 1300]);
}

#[test]
fn a_frame_is_referenced_until_it_has_left_the_ring() {
    let mut link = Link::new(Faults::link(MILLI, 8_000_000));
    link.send(plains(2));
    assert_eq!(link.a.data_pool().outstanding(), 2);
    link.wire.advance(Instant::from_micros(100));
    assert_eq!((link.a.data_pool().outstanding(), link.wire.underway()), (1, 2));
    link.wire.advance(Instant::from_micros(200));
    assert_eq!((link.a.data_pool().outstanding(), link.wire.underway()), (0, 2));
}

#[test]
fn short_frames_are_padded() {
    let mut link = Link::new(Faults::default());
    link.send([vec![1; 20]]);
    let content = link.contents().pop().unwrap();
    assert_eq!(content.len(), 60);
    assert_eq!(content[..20], [1; 20]);
}

#[test]
fn a_hub_delivers_to_all_others() {
    let mut link = Link::new(Faults::default());
    let mut c = link.wire.port(2);
    link.send(plains(1));
    assert_eq!(link.contents(), plains(1));
    let mut burst = Burst::new();
    c.receive_burst(&mut burst);
    link.a.receive_burst(&mut burst);
    assert_eq!(burst.len(), 1);
}

/// Everything at once.
fn stormy() -> Faults {
    let some = Chance::percent(10);
    Faults {
        delay: MILLI,
        jitter: MILLI,
        bandwidth: Some(1_000_000_000),
        loss: some,
        burst_loss: Some(BurstLoss { enter: Chance::percent(1), leave: Chance::percent(30) }),
        reorder: some,
        reorder_delay: 5 * MILLI,
        duplicate: some,
        replay: some,
        corrupt: some,
        corrupt_repaired: some,
        resegment: some,
        tail_loss: some,
        transmit_refusal: some,
        allocate_failure: Chance::NEVER,
        bottleneck: None,
        queue_limit: Some(500),
        frame_len_max: Some(1400),
        report_too_long: true,
        outages: Some(Outages { every: 20 * MILLI, lasting: MILLI }),
    }
}

#[test]
fn the_seed_decides_everything() {
    let run = |seed| {
        let mut link = Link::seeded(seed, stormy());
        let segments = (0..300).map(|number| segment(false, number, 0x10, &[7; 500]));
        link.send(segments);
        (link.drain(), link.wire.counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn jitter_keeps_the_order_and_reordering_does_not() {
    let mut link = Link::new(Faults { jitter: MILLI, ..Faults::default() });
    link.send(plains(200));
    assert_eq!(link.contents(), plains(200));

    let faults =
        Faults { reorder: Chance::percent(20), reorder_delay: MILLI, ..Faults::link(MILLI, 80_000_000) };
    let mut link = Link::new(faults);
    link.send(plains(200));
    let mut contents = link.contents();
    assert_ne!(contents, plains(200));
    contents.sort();
    assert_eq!(contents, plains(200));
    assert!((20..=60).contains(&link.wire.counters().reordered));
}

#[test]
fn single_losses_have_their_share() {
    let mut link = Link::new(Faults { loss: Chance::percent(10), ..Faults::default() });
    assert_eq!(link.send(plains(1000)), 1000);
    let arrived = link.contents().len();
    assert!((860..=940).contains(&arrived), "{arrived}");
    assert_eq!(link.wire.counters().lost, 1000 - u64::try_from(arrived).unwrap());
}

#[test]
fn burst_losses_come_in_runs() {
    let burst_loss = Some(BurstLoss { enter: Chance::percent(1), leave: Chance::percent(10) });
    let mut link = Link::new(Faults { burst_loss, ..Faults::default() });
    link.send(plains(1000));
    let arrived = link.contents();
    let lost = 1000 - arrived.len();
    let gaps = arrived.windows(2).filter(|pair| plain_number(&pair[1]) != plain_number(&pair[0]) + 1).count();
    assert!(lost > 3 * gaps && gaps > 0, "{lost} in {gaps}");
}

fn plain_number(content: &[u8]) -> u64 {
    u64::from_be_bytes(*content.first_chunk().unwrap())
}

#[test]
fn tail_loss_takes_the_last_one() {
    let mut link = Link::new(Faults { tail_loss: Chance::ALWAYS, ..Faults::default() });
    link.send(plains(10));
    assert_eq!(link.contents(), plains(9));
}

#[test]
fn outages_end_each_period() {
    // One frame each 100 us; the link is out in the last of each 4 ms.
    let outages = Some(Outages { every: 4 * MILLI, lasting: MILLI });
    let mut link = Link::new(Faults { outages, ..Faults::link(Duration::ZERO, 8_000_000) });
    link.send(plains(80));
    let arrived = link.drain();
    assert!(arrived.iter().all(|(at, _)| at.as_micros() % 4000 < 3000));
    assert_eq!((arrived.len(), link.wire.counters().lost_in_outage), (60, 20));
}

#[test]
fn a_cut_link_carries_nothing_one_way() {
    let mut link = Link::new(Faults::default());
    link.wire.set_link(0, false);
    link.send(plains(3));
    assert_eq!(link.contents(), plains(0));
    link.wire.set_link(0, true);
    link.wire.set_link(1, false);
    link.send(plains(3));
    assert_eq!(link.contents(), plains(3));
}

#[test]
fn what_is_too_long_or_too_much_is_lost() {
    let mut link = Link::new(Faults { frame_len_max: Some(99), ..Faults::default() });
    link.send(plains(1));
    link.send([vec![0; 99]]);
    assert_eq!(link.contents().len(), 1);
    assert_eq!(link.wire.counters().lost_too_long, 1);

    let mut link = Link::new(Faults { queue_limit: Some(5), delay: MILLI, ..Faults::default() });
    link.send(plains(8));
    assert_eq!(link.contents().len(), 5);
    assert_eq!(link.wire.counters().lost_queue_full, 3);
}

/// A segment whose IP header has these ECN bits.
fn segment_with(ipv6: bool, number: u32, ecn: u8) -> Vec<u8> {
    let mut octets = segment(ipv6, number, 0x10, &[0; 446]);
    let layout = TcpLayout::of(&octets).unwrap();
    if ipv6 {
        octets[layout.ip + 1] |= ecn << 4;
    } else {
        octets[layout.ip + 1] |= ecn;
        Ipv4Packet::new_unchecked(&mut octets[layout.ip..]).fill_checksum();
    }
    octets
}

#[test]
fn a_bottleneck_delays_marks_and_drops() {
    for ipv6 in [false, true] {
        let len = segment_with(ipv6, 0, 0).len();
        // A millisecond a frame; five may wait, and the last two of them are marked.
        let bandwidth = u64::try_from(len * 8 * 1000).unwrap();
        let bottleneck = Some(Bottleneck { bandwidth, queue: 5 * len, mark_above: Some(3 * len - 1) });
        let mut link = Link::new(Faults { bottleneck, delay: 10 * MILLI, ..Faults::default() });
        // Only what is ECN-capable is marked.
        link.send(
            [2, 1, 0, 0, 2, 2, 2].iter().zip(0..).map(|(&ecn, number)| segment_with(ipv6, number, ecn)),
        );
        let arrived = link.drain();
        let times: Vec<_> = arrived.iter().map(|(at, _)| at.as_micros()).collect();
        assert_eq!(times, [11_000, 12_000, 13_000, 14_000, 15_000]);
        let marks: Vec<_> = arrived
            .iter()
            .map(|(_, octets)| {
                read(octets);
                let ip = TcpLayout::of(octets).unwrap().ip;
                if ipv6 { octets[ip + 1] >> 4 & 3 } else { octets[ip + 1] & 3 }
            })
            .collect();
        assert_eq!(marks, [2, 1, 0, 0, 3]);
        assert_eq!((link.wire.counters().marked, link.wire.counters().lost_queue_full), (1, 2));
    }
}

#[test]
fn duplicates_arrive_twice() {
    let mut link = Link::new(Faults { duplicate: Chance::ALWAYS, ..Faults::default() });
    link.send(plains(2));
    assert_eq!(link.contents(), [plain(0), plain(0), plain(1), plain(1)]);
}

#[test]
fn replays_are_old_frames() {
    let mut link = Link::new(Faults { replay: Chance::ALWAYS, ..Faults::default() });
    link.send(plains(10));
    let contents = link.contents();
    assert_eq!((contents.len(), link.wire.counters().replayed), (19, 9));
    for (position, content) in contents.iter().enumerate() {
        assert!(plain_number(content) <= u64::try_from(position / 2 + 1).unwrap());
    }
}

#[test]
fn corruption_turns_one_bit() {
    let mut link = Link::new(Faults { corrupt: Chance::ALWAYS, ..Faults::default() });
    link.send(plains(50));
    for (number, content) in link.contents().into_iter().enumerate() {
        let bits: u32 = content.iter().zip(plain(number)).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(bits, 1);
    }
}

#[test]
fn repaired_corruption_changes_the_payload_under_a_good_checksum() {
    for ipv6 in [false, true] {
        let mut link = Link::new(Faults { corrupt_repaired: Chance::ALWAYS, ..Faults::default() });
        link.send((0..50).map(|sequence| segment(ipv6, sequence, 0x10, &[7; 64])));
        // What has no payload is left alone.
        link.send([segment(ipv6, 50, 0x10, &[])]);
        let contents = link.contents();
        for (content, expected) in contents.iter().zip(0..50) {
            let (sequence, _, payload) = read(content);
            assert_eq!(sequence, expected);
            let bits: u32 = payload.iter().map(|octet| (octet ^ 7).count_ones()).sum();
            assert_eq!(bits, 1);
        }
        assert_eq!(read(&contents[50]).2, []);
        assert_eq!(link.wire.counters().corrupted_repaired, 50);
    }
}

#[test]
fn a_middlebox_cuts_segments_in_two() {
    let (fin, psh) = (0x01, 0x08);
    for ipv6 in [false, true] {
        let mut link = Link::new(Faults { resegment: Chance::ALWAYS, ..Faults::default() });
        let payload = (0..100).collect::<Vec<u8>>();
        link.send([segment(ipv6, u32::MAX - 10, 0x10 | fin | psh, &payload)]);
        let contents = link.contents();
        let [first, second] = &contents[..] else { panic!("{} frames", contents.len()) };
        let ((first_sequence, first_flags, first), (second_sequence, second_flags, second)) =
            (read(first), read(second));
        assert_eq!(first_sequence, u32::MAX - 10);
        assert_eq!(second_sequence, first_sequence.wrapping_add(u32::try_from(first.len()).unwrap()));
        assert_eq!((first_flags, second_flags), (0x10, 0x10 | fin | psh));
        assert_eq!([first, second].concat(), payload);
    }
}

#[test]
fn rings_run_full() {
    let wire = Wire::new(1, Faults::default());
    let mut config = PortConfig::new(0);
    (config.transmit_ring, config.receive_ring, config.receive_frames) = (4, 8, 6);
    let (a, b) = (wire.add_port(config.clone()), wire.add_port(config));
    let mut link = Link { wire, a, b, now: Instant::ZERO };
    assert_eq!(link.send(plains(10)), 4);
    link.wire.advance(Instant::ZERO);
    link.send(plains(4));
    link.wire.advance(Instant::ZERO);
    link.send(plains(4));
    link.wire.advance(Instant::ZERO);
    let counters = link.wire.counters();
    assert_eq!((counters.delivered, counters.lost_receive_ring_full), (8, 4));
    // Six of the eight find a frame to be received into.
    let mut burst = Burst::new();
    link.b.receive_burst(&mut burst);
    assert_eq!((burst.len(), link.wire.counters().lost_no_frame), (6, 2));
    assert_eq!(link.wire.outstanding(), 6);
}

#[test]
fn pools_run_dry_and_allocations_fail_on_demand() {
    let wire = Wire::new(1, Faults::default());
    let mut config = PortConfig::new(0);
    (config.data_frames, config.control_frames) = (2, 1);
    let mut port = wire.add_port(config);
    let _data = [port.allocate().unwrap(), port.allocate().unwrap()];
    assert!(port.allocate().is_none());
    let control = port.allocate_control().expect("data does not take the reserve");
    assert!(port.allocate_control().is_none());
    drop(control);
    wire.set_faults(&Faults { allocate_failure: Chance::ALWAYS, ..Faults::default() });
    assert!(port.allocate_control().is_none());
    assert_eq!(wire.counters().allocations_failed, 1);
}

#[test]
fn refused_bursts_keep_their_order() {
    let mut link = Link::new(Faults { transmit_refusal: Chance::percent(50), ..Faults::default() });
    let mut queue = crate::queue::TransmitQueue::new(100);
    for content in plains(100) {
        let mut frame = link.a.allocate().unwrap();
        frame.push_back(content.len());
        frame.bytes_mut().copy_from_slice(&content);
        queue.push(frame).unwrap();
    }
    while !queue.is_empty() {
        queue.flush(&mut link.a);
    }
    assert_eq!(link.contents(), plains(100));
    assert!(link.wire.counters().transmits_refused > 0);
}

#[test]
fn a_port_with_offloads_fills_in_and_verifies_checksums() {
    for ipv6 in [false, true] {
        let wire = Wire::new(1, Faults::default());
        let (a, b) =
            (wire.add_port(PortConfig::new(0).offloads()), wire.add_port(PortConfig::new(1).offloads()));
        let mut link = Link { wire, a, b, now: Instant::ZERO };
        let complete = segment(ipv6, 1, 0x10, b"payload");

        // As a stack with offloads sends it: the pseudo-header's sum in the checksum's place.
        let network_len = if ipv6 { 40 } else { 20 };
        let tcp = 14 + network_len;
        let mut partial = complete.clone();
        let addresses = if ipv6 { &complete[22..54] } else { &complete[26..34] };
        let len = u32::try_from(complete.len() - tcp).unwrap();
        let pseudo_sum = checksum::combine(checksum::sum(addresses), 6 + len);
        partial[tcp + 16..tcp + 18].copy_from_slice(&(!checksum::finish(pseudo_sum)).to_be_bytes());
        if !ipv6 {
            partial[24..26].fill(0);
        }
        let mut frame = link.a.allocate().unwrap();
        frame.push_back(partial.len());
        frame.bytes_mut().copy_from_slice(&partial);
        frame.request_checksum(ChecksumLayout {
            link_len: 14,
            network_len: u8::try_from(network_len).unwrap(),
            transport_len: 20,
            ipv6,
        });
        let mut burst = Burst::new();
        burst.push(frame);
        link.a.transmit_burst(&mut burst);
        link.wire.advance(Instant::ZERO);
        link.b.receive_burst(&mut burst);
        let frame = burst.pop().unwrap();
        assert_eq!(frame.bytes()[..complete.len()], complete);
        assert_eq!(frame.checksum_status(), ChecksumStatus::Good);

        let mut bad = complete.clone();
        *bad.last_mut().unwrap() ^= 1;
        link.wire.inject(1, &bad);
        link.b.receive_burst(&mut burst);
        assert_eq!(burst.pop().unwrap().checksum_status(), ChecksumStatus::Bad);
        link.wire.inject(1, &plain(0));
        link.b.receive_burst(&mut burst);
        assert_eq!(burst.pop().unwrap().checksum_status(), ChecksumStatus::Unknown);
    }
}

#[test]
fn a_capture_shows_both_directions_of_its_port() {
    let mut link = Link::new(Faults { loss: Chance::ALWAYS, ..Faults::default() });
    link.wire.start_capture(0);
    link.send(plains(2));
    link.wire.inject(0, &plain(9));
    link.drain();
    let capture = link.wire.take_capture(0).unwrap();
    let mut reader = capture.octets().get(24..).unwrap();
    let mut numbers = Vec::new();
    while !reader.is_empty() {
        numbers.push(plain_number(&reader[16..]));
        reader = &reader[16 + 100..];
    }
    assert_eq!(numbers, [9, 0, 1]);
    assert!(link.wire.take_capture(0).is_none());
}

proptest! {
    #[test]
    fn mangling_survives_any_octets(mut frame in prop::collection::vec(any::<u8>(), 0..150), at in 0usize..100) {
        let _ = split_tcp_segment(&frame, at);
        repair_tcp_checksum(&mut frame);
    }

    #[test]
    fn split_segments_join_again(
        ipv6: bool, payload in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..220,
    ) {
        let whole = segment(ipv6, 5, 0x18, &payload);
        match split_tcp_segment(&whole, at) {
            None => prop_assert!(at == 0 || at >= payload.len()),
            Some((first, second)) => {
                prop_assert_eq!([read(&first).2, read(&second).2].concat(), payload);
                prop_assert_eq!(usize::try_from(read(&second).0).unwrap(), 5 + at);
            }
        }
    }
}
