//! Finding neighbours, keeping them, and telling them where we are.

use super::*;

const PAIRS: [(&str, &str); 3] =
    [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2"), ("fe80::ff:fe00:1", "fe80::ff:fe00:2")];

#[test]
fn a_neighbour_is_found_with_one_question() {
    for (us, peer) in PAIRS {
        let mut net = Net::new(3);
        assert_eq!(net.hosts[0].resolve(peer, Instant::ZERO), Resolution::Pending);
        let before = net.hosts[0].interface.resolutions();
        net.settle();
        assert_ne!(net.hosts[0].interface.resolutions(), before);
        let now = net.now();
        let handle = net.hosts[0].ready(peer, now);
        let mac = EthernetAddress(net.hosts[1].mac());
        assert_eq!(net.hosts[0].interface.neighbors.mac(handle), Some(mac));
        assert_eq!(net.hosts[0].interface.counters().neighbor_requests_sent, 1);
        // The asked one has learnt of us; the third one has not.
        assert_eq!(net.hosts[1].state_of(us), Some(NeighborState::Stale));
        assert_eq!(net.hosts[2].interface.neighbors().count(), 0);
        assert_eq!(net.wire.outstanding(), 0);
    }
}

#[test]
fn a_lost_question_is_asked_again() {
    for (_, peer) in PAIRS {
        let mut net = Net::new(2);
        net.wire.set_link(0, false);
        net.hosts[0].resolve(peer, Instant::ZERO);
        net.run(Duration::from_millis(1500));
        net.wire.set_link(0, true);
        net.run(Duration::from_secs(1));
        let now = net.now();
        net.hosts[0].ready(peer, now);
        assert_eq!(net.hosts[0].interface.counters().neighbor_requests_sent, 3);
    }
}

#[test]
fn who_does_not_answer_is_unreachable_for_a_while() {
    for absent in ["10.0.0.77", "2001:db8::77"] {
        let mut net = Net::new(2);
        net.hosts[0].resolve(absent, Instant::ZERO);
        net.run(Duration::from_millis(2900));
        let now = net.now();
        assert_eq!(net.hosts[0].resolve(absent, now), Resolution::Pending);
        net.run(Duration::from_millis(200));
        let now = net.now();
        assert_eq!(net.hosts[0].resolve(absent, now), Resolution::Unreachable);
        net.run(Duration::from_secs(3));
        let now = net.now();
        assert_eq!(net.hosts[0].resolve(absent, now), Resolution::Pending);
    }
}

#[test]
fn traffic_keeps_a_neighbour_fresh_without_a_gap() {
    for (us, peer) in PAIRS {
        let mut net = Net::new(2);
        net.hosts[0].resolve(peer, Instant::ZERO);
        net.settle();
        let now = net.now();
        let handle = net.hosts[0].ready(peer, now);
        let template = net.hosts[0].interface.header(handle, ip(us), ip(peer));
        for _ in 0..600 {
            assert!(net.hosts[0].interface.template_is_current(&template), "at {:?}", net.now());
            net.run(Duration::from_millis(500));
        }
        let sent = net.hosts[0].interface.counters().neighbor_requests_sent;
        assert!((300 / 46..=300 / 14).contains(&sent), "{sent} requests in five minutes");
        assert_eq!(net.hosts[0].state_of(peer), Some(NeighborState::Reachable));
    }
}

#[test]
fn tcp_s_word_spares_the_questions() {
    let mut net = Net::new(2);
    net.hosts[0].resolve("10.0.0.2", Instant::ZERO);
    net.settle();
    let now = net.now();
    let handle = net.hosts[0].ready("10.0.0.2", now);
    for _ in 0..100 {
        net.hosts[0].interface.confirm(handle);
        net.run(Duration::from_secs(1));
    }
    assert_eq!(net.hosts[0].interface.counters().neighbor_requests_sent, 1);
}

#[test]
fn a_neighbour_that_went_away_is_noticed() {
    for (us, peer) in PAIRS {
        let mut net = Net::new(2);
        net.hosts[0].resolve(peer, Instant::ZERO);
        net.settle();
        let now = net.now();
        let handle = net.hosts[0].ready(peer, now);
        let template = net.hosts[0].interface.header(handle, ip(us), ip(peer));
        net.wire.set_link(1, false);
        let mut seconds = 0;
        while net.hosts[0].interface.template_is_current(&template) {
            net.run(Duration::from_secs(1));
            seconds += 1;
        }
        assert!((15..=49).contains(&seconds), "{seconds}");
        net.run(Duration::from_secs(3));
        let now = net.now();
        assert_eq!(net.hosts[0].resolve(peer, now), Resolution::Unreachable);
    }
}

#[test]
fn an_unused_neighbour_is_forgotten() {
    let mut net = Net::new(2);
    net.hosts[0].resolve("10.0.0.2", Instant::ZERO);
    net.run(Duration::from_secs(700));
    assert_eq!(net.hosts[0].interface.neighbors().count(), 0);
    assert_eq!(net.hosts[0].interface.poll_at(), None);
}

#[test]
fn addresses_are_announced_and_known_entries_updated() {
    let mut net = Net::with(2, &InterfaceConfig::default());
    net.run(Duration::from_secs(10));
    for host in &net.hosts {
        assert_eq!(host.interface.counters().announcements_sent, 6);
        assert_eq!(host.interface.neighbors().count(), 0, "announcements make no entries");
    }

    for (index, (us, peer)) in (2..).zip(PAIRS) {
        let now = net.now();
        net.hosts[0].resolve(peer, now);
        net.settle();
        let now = net.now();
        let handle = net.hosts[0].ready(peer, now);
        let old = net.hosts[0].interface.header(handle, ip(us), ip(peer));
        // The address moves to another station, which announces it.
        let mut heir = Host::new(&net.wire, index, InterfaceConfig::default());
        net.hosts[1].interface.remove_address(ip(peer));
        heir.interface.add_address(IpCidr::new(ip(peer), 24).unwrap()).unwrap();
        let heir_mac = EthernetAddress(heir.mac());
        net.hosts.push(heir);
        net.settle();
        assert!(!net.hosts[0].interface.template_is_current(&old));
        let now = net.now();
        let handle = net.hosts[0].ready(peer, now);
        assert_eq!(net.hosts[0].interface.neighbors.mac(handle), Some(heir_mac));
    }
}

#[test]
fn a_second_owner_of_an_address_is_counted_and_the_address_defended() {
    for shared in ["10.0.0.1", "2001:db8::1"] {
        let mut net = Net::new(1);
        let mut thief = Host::new(&net.wire, 1, InterfaceConfig { announcements: 1, ..Default::default() });
        thief.interface.add_address(IpCidr::new(ip(shared), 24).unwrap()).unwrap();
        net.hosts.push(thief);
        net.run(Duration::from_secs(35));
        let counters = net.hosts[0].interface.counters();
        // Both insist, but no oftener than each ten seconds.
        assert!((1..=5).contains(&counters.duplicate_address), "{}", counters.duplicate_address);
        assert!((1..=5).contains(&counters.announcements_sent), "{}", counters.announcements_sent);
        assert!(net.hosts[1].interface.counters().duplicate_address >= 1);
    }
}

#[test]
fn a_station_that_checks_an_address_before_using_it_is_told() {
    let mut net = Net::new(2);
    // RFC 5227: an ARP probe has no sender address.
    let probe = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress([2, 0, 0, 0, 0, 9]),
        source_protocol_addr: Ipv4Addr::UNSPECIFIED,
        target_hardware_addr: EthernetAddress::default(),
        target_protocol_addr: Ipv4Addr::new(10, 0, 0, 1),
    };
    net.wire.inject(0, &arp_frame(&probe));
    net.settle();
    let counters = net.hosts[0].interface.counters();
    assert_eq!((counters.arp_requests_answered, counters.duplicate_address), (1, 1));
    assert_eq!(net.hosts[0].interface.neighbors().count(), 0);

    // RFC 4862: a solicitation from the unspecified address.
    let target: Ipv6Addr = "2001:db8::1".parse().unwrap();
    let message = crate::neighbor::ndp::Ndp::Solicitation { target, source_mac: None };
    let mut frame = net.hosts[1].device.allocate().unwrap();
    frame.push_back(message.len());
    message.emit(frame.bytes_mut(), Ipv6Addr::UNSPECIFIED, solicited_node(target));
    let parts = HeaderParts {
        source_mac: EthernetAddress([2, 0, 0, 0, 0, 9]),
        destination_mac: crate::addr::multicast_mac(solicited_node(target)),
        vlan: None,
        source: Ipv6Addr::UNSPECIFIED.into(),
        destination: solicited_node(target).into(),
        protocol: IpProtocol::Icmpv6,
        hop_limit: 255,
    };
    HeaderTemplate::new(&parts, NeighborHandle::NONE).write(&mut frame, 0, 0);
    net.wire.inject(0, frame.bytes());
    net.settle();
    let counters = net.hosts[0].interface.counters();
    assert_eq!((counters.ndp_requests_answered, counters.duplicate_address), (1, 2));
    // All nodes hear the answer.
    assert_eq!(net.hosts[1].interface.counters().ndp_other, 1);
}

/// Found by fuzzing: such a solicitation made the host its own neighbour, with the other's Ethernet address.
#[test]
fn a_solicitation_from_an_address_of_ours_is_a_claim_or_our_own() {
    let ours: Ipv6Addr = "2001:db8::1".parse().unwrap();
    for (last_octet, claims) in [(9, 1), (1, 0)] {
        let mut net = Net::new(1);
        let mac = EthernetAddress([2, 0, 0, 0, 0, last_octet]);
        let source_mac = Some(EthernetAddress([2, 0, 0, 0, 0, 9]));
        let message = crate::neighbor::ndp::Ndp::Solicitation { target: ours, source_mac };
        let mut frame = net.hosts[0].device.allocate().unwrap();
        frame.push_back(message.len());
        message.emit(frame.bytes_mut(), ours, ours);
        let parts = HeaderParts {
            source_mac: mac,
            destination_mac: EthernetAddress(net.hosts[0].mac()),
            vlan: None,
            source: ours.into(),
            destination: ours.into(),
            protocol: IpProtocol::Icmpv6,
            hop_limit: 255,
        };
        HeaderTemplate::new(&parts, NeighborHandle::NONE).write(&mut frame, 0, 0);
        net.wire.inject(0, frame.bytes());
        net.settle();
        let interface = &net.hosts[0].interface;
        assert_eq!(interface.neighbors().count(), 0, "{mac}");
        assert_eq!(interface.counters().duplicate_address, claims, "{mac}");
        assert_eq!(interface.counters().ndp_requests_answered, 0, "{mac}");
    }
}

#[test]
fn only_neighbours_are_learnt_from_requests() {
    let mut net = Net::new(1);
    for (sender, learnt) in
        [([10, 0, 0, 9], 1), ([192, 0, 2, 9], 1), ([10, 0, 0, 255], 1), ([10, 0, 0, 8], 2)]
    {
        let request = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr: EthernetAddress([2, 0, 0, 0, 0, 9]),
            source_protocol_addr: sender.into(),
            target_hardware_addr: EthernetAddress::default(),
            target_protocol_addr: Ipv4Addr::new(10, 0, 0, 1),
        };
        net.wire.inject(0, &arp_frame(&request));
        net.settle();
        assert_eq!(net.hosts[0].interface.neighbors().count(), learnt, "{sender:?}");
    }
}

#[test]
fn an_answer_nobody_asked_for_is_not_believed_as_one() {
    let mut net = Net::new(1);
    let answer = |station| {
        arp_frame(&ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: EthernetAddress([2, 0, 0, 0, 0, station]),
            source_protocol_addr: Ipv4Addr::new(10, 0, 0, 9),
            target_hardware_addr: EthernetAddress([2, 0, 0, 0, 0, 1]),
            target_protocol_addr: Ipv4Addr::new(10, 0, 0, 1),
        })
    };
    net.wire.inject(0, &answer(9));
    net.settle();
    assert_eq!(net.hosts[0].state_of("10.0.0.9"), None);
    let now = net.now();
    net.hosts[0].resolve("10.0.0.9", now);
    net.wire.inject(0, &answer(9));
    net.settle();
    assert_eq!(net.hosts[0].state_of("10.0.0.9"), Some(NeighborState::Reachable));
    net.wire.inject(0, &answer(8));
    net.settle();
    assert_eq!(net.hosts[0].state_of("10.0.0.9"), Some(NeighborState::Stale));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the wire does to the packets: in the end the right station is found, or none.
    #[test]
    fn a_bad_wire_delays_discovery_but_does_not_mislead_it(seed: u64, pair in 0usize..3) {
        let some = Chance::percent(20);
        let faults = Faults {
            delay: Duration::from_micros(50),
            loss: some,
            duplicate: some,
            replay: some,
            corrupt: some,
            reorder: some,
            reorder_delay: Duration::from_secs(2),
            ..Faults::default()
        };
        let wire = Wire::new(seed, faults);
        let config = InterfaceConfig::default();
        let hosts = (0..3).map(|index| Host::new(&wire, index, config.clone())).collect();
        let mut net = Net { wire, hosts };
        let (_, peer) = PAIRS[pair];
        for _ in 0..100 {
            let now = net.now();
            net.hosts[0].resolve(peer, now);
            net.run(Duration::from_secs(1));
        }
        // A turned bit in an ARP packet, which has no checksum, is undone when it is next probed.
        net.wire.set_faults(&Faults::default());
        for _ in 0..100 {
            let now = net.now();
            net.hosts[0].resolve(peer, now);
            net.run(Duration::from_secs(1));
        }
        let now = net.now();
        let handle = net.hosts[0].ready(peer, now);
        let mac = EthernetAddress(net.hosts[1].mac());
        prop_assert_eq!(net.hosts[0].interface.neighbors.mac(handle), Some(mac));
        prop_assert_eq!(net.wire.outstanding(), 0);
    }
}

fn arp_frame(repr: &ArpRepr) -> Vec<u8> {
    let mut octets = vec![0; 14 + repr.buffer_len()];
    let mut frame = EthernetFrame::new_unchecked(&mut octets[..]);
    frame.set_dst_addr(EthernetAddress::BROADCAST);
    frame.set_src_addr(EthernetAddress([2, 0, 0, 0, 0, 9]));
    frame.set_ethertype(EthernetProtocol::Arp);
    repr.emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    octets
}
