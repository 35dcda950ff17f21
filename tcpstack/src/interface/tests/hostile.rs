//! Frames that no friend would send.

use super::*;

/// A good frame with a TCP segment for host 0.
fn good(ipv6: bool) -> Vec<u8> {
    let mut net = Net::new(2);
    let (source, destination) = if ipv6 { ("2001:db8::2", "2001:db8::1") } else { ("10.0.0.2", "10.0.0.1") };
    let template = net.hosts[1].interface.header_to([2, 0, 0, 0, 0, 1], ip(source), ip(destination));
    let mut frame = net.hosts[1].device.allocate().unwrap();
    frame.push_back(64);
    frame.bytes_mut().fill(7);
    template.write(&mut frame, 0, 0);
    frame.bytes().to_vec()
}

/// What host 0 counts after a frame, by name.
fn verdict(frame: &[u8]) -> Vec<&'static str> {
    let mut net = Net::new(1);
    net.wire.inject(0, frame);
    net.settle();
    assert_eq!(net.hosts[0].segments.len() + net.hosts[0].errors.len(), 0, "nothing is handed up");
    assert_eq!(net.wire.outstanding(), 0);
    let counted = net.hosts[0].interface.counters().iter().filter(|&(_, value)| value > 0);
    counted.map(|(name, _)| name).filter(|&name| name != "frames_received").collect()
}

fn changed(ipv6: bool, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut frame = good(ipv6);
    change(&mut frame);
    if !ipv6 {
        Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
    }
    frame
}

#[test]
fn good_frames_are_good() {
    for ipv6 in [false, true] {
        let mut net = Net::new(1);
        net.wire.inject(0, &good(ipv6));
        net.settle();
        assert_eq!(net.hosts[0].segments.len(), 1);
        assert_eq!(net.hosts[0].segments[0].frame.bytes(), [7; 64]);
    }
}

/// What becomes of a frame at host 0, there as the first one or after a good one.
fn outcome(after_good: bool, frame: &[u8]) -> (Vec<String>, Vec<(&'static str, u64)>) {
    let mut net = Net::new(1);
    if after_good {
        net.wire.inject(0, &good(false));
        net.settle();
        assert_eq!(net.hosts[0].segments.len(), 1);
        net.hosts[0].segments.clear();
    }
    let before = net.hosts[0].interface.counters().clone();
    net.wire.inject(0, frame);
    net.settle();
    let handed_up = net.hosts[0].segments.iter().map(|it| format!("{it:?} {:?}", it.frame.bytes()));
    let after = net.hosts[0].interface.counters().iter();
    let counted = before.iter().zip(after).map(|((name, before), (_, after))| (name, after - before));
    (handed_up.collect(), counted.collect())
}

proptest! {
    #[test]
    fn a_frame_means_the_same_after_one_between_the_same_hosts(
        edits in prop::collection::vec((0_usize..36, any::<u8>()), 0..3),
        cut in 30_usize..140,
        checksum_fixed: bool,
    ) {
        let mut frame = good(false);
        for (at, octet) in edits {
            frame[at] = octet;
        }
        if checksum_fixed && frame[14] == 0x45 {
            Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
        }
        // Cut short, or padded by the link.
        frame.resize(cut, 0);
        prop_assert_eq!(outcome(false, &frame), outcome(true, &frame));
    }
}

#[test]
fn each_drop_has_its_name() {
    let cases: [(&str, Vec<u8>); 20] = [
        ("ethernet_malformed", good(false)[..13].to_vec()),
        ("ethernet_malformed", changed(false, |frame| frame[6] |= 1)),
        ("ethernet_not_ours", changed(false, |frame| frame[5] = 9)),
        ("ethernet_not_ours", changed(true, |frame| frame[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]))),
        ("ethertype_unknown", changed(false, |frame| frame[12] = 0x99)),
        ("arp_malformed", changed(true, |frame| frame[12..14].copy_from_slice(&[8, 6]))),
        ("ipv4_malformed", {
            let mut frame = good(false);
            frame[14] = 0x44;
            frame
        }),
        ("ipv4_checksum_bad", {
            let mut frame = good(false);
            frame[24] ^= 1;
            frame
        }),
        ("ipv4_fragment", changed(false, |frame| frame[20] = 0x20)),
        ("ipv6_malformed", changed(true, |frame| frame[14] = 0x40)),
        ("ip_source_invalid", changed(false, |frame| frame[26] = 224)),
        ("ip_source_invalid", changed(false, |frame| frame[29] = 255)),
        ("ip_source_invalid", changed(false, |frame| frame[29] = 1)),
        ("ip_not_ours", changed(false, |frame| frame[33] = 77)),
        ("ip_not_ours", changed(false, |frame| frame[..6].fill(0xff))),
        ("protocol_unknown", changed(false, |frame| frame[23] = 17)),
        ("icmp_malformed", changed(true, |frame| frame[20] = 58)),
        ("icmp_malformed", changed(false, |frame| frame[23] = 1)),
        // Each IP version has its own ICMP.
        ("protocol_unknown", changed(true, |frame| frame[20] = 1)),
        ("protocol_unknown", changed(false, |frame| frame[23] = 58)),
    ];
    for (name, frame) in cases {
        assert_eq!(verdict(&frame), [name]);
    }
}

#[test]
fn every_truncation_is_dropped_and_counted_once() {
    for ipv6 in [false, true] {
        let frame = good(ipv6);
        for len in 0..frame.len() {
            assert_eq!(verdict(&frame[..len]).len(), 1, "{len}");
        }
    }
}

proptest! {
    #[test]
    fn any_octets_are_survived(mut frame in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..5) {
        let ethertypes: [&[u8]; 4] = [&[8, 0, 0x45], &[0x86, 0xdd, 0x60], &[8, 6], &[0x81, 0]];
        if frame.len() > 20 {
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
            frame[6] &= 0xfe;
            if let Some(ethertype) = ethertypes.get(kind) {
                frame[12..12 + ethertype.len()].copy_from_slice(ethertype);
            }
        }
        let mut net = Net::new(1);
        net.wire.inject(0, &frame);
        net.settle();
    }

    #[test]
    fn any_change_to_a_good_frame_is_survived(
        ipv6: bool, at in 0usize..118, value: u8, next_header in prop::option::of(any::<u8>()),
    ) {
        let frame = changed(ipv6, |frame| {
            let at = at % frame.len();
            frame[at] = value;
            if let Some(next_header) = next_header {
                frame[if ipv6 { 20 } else { 23 }] = next_header;
            }
            // The checksum can only be made good for an ordinary header.
            if !ipv6 {
                frame[14] = 0x45;
            }
        });
        let mut net = Net::new(1);
        net.wire.inject(0, &frame);
        net.settle();
        net.hosts[0].segments.clear();
        prop_assert_eq!(net.wire.outstanding(), 0);
    }
}
