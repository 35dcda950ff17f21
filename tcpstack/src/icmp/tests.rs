use proptest::prelude::*;

use super::*;
use crate::time::Instant;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const US: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const PEER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 3);

/// Ports 1000 and 2000, sequence number 0x01020304.
const SEGMENT: [u8; 8] = [0x03, 0xe8, 0x07, 0xd0, 1, 2, 3, 4];

fn quoted_v4(total_len: u16) -> Vec<u8> {
    let [hi, lo] = total_len.to_be_bytes();
    let header = [0x45, 0, hi, lo, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&header[..], &SEGMENT].concat()
}

fn message_v4(kind: u8, code: u8, rest: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let mut octets = [&[kind, code, 0, 0], &rest[..], quoted].concat();
    let checksum = checksum::finish(checksum::sum(&octets));
    octets[2..4].copy_from_slice(&checksum.to_be_bytes());
    octets
}

fn quoted_v6() -> Vec<u8> {
    let header = [0x60, 0, 0, 0, 0x20, 0, 6, 64];
    [&header[..], &US.octets(), &PEER.octets(), &SEGMENT].concat()
}

fn message_v6(kind: u8, code: u8, rest: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    let mut octets = [&[kind, code, 0, 0], &rest[..], quoted].concat();
    Icmpv6Packet::new_unchecked(&mut octets[..]).fill_checksum(&ROUTER, &US);
    octets
}

fn kind_v4(octets: &[u8]) -> Option<IcmpErrorKind> {
    match Icmp::parse_v4(octets)? {
        Icmp::Error(error) => Some(error.kind),
        _ => None,
    }
}

fn kind_v6(octets: &[u8]) -> Option<IcmpErrorKind> {
    match Icmp::parse_v6(octets, &ROUTER, &US)? {
        Icmp::Error(error) => Some(error.kind),
        _ => None,
    }
}

#[test]
fn an_error_names_the_quoted_segment() {
    let expected = |local: IpAddr, remote: IpAddr| {
        Icmp::Error(IcmpError {
            kind: IcmpErrorKind::Unreachable,
            local,
            remote,
            local_port: 1000,
            remote_port: 2000,
            sequence: 0x0102_0304,
        })
    };
    let v4 = message_v4(3, 1, [0; 4], &quoted_v4(1500));
    let (local, remote) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(Icmp::parse_v4(&v4), Some(expected(local.into(), remote.into())));
    let v6 = message_v6(1, 0, [0; 4], &quoted_v6());
    assert_eq!(Icmp::parse_v6(&v6, &ROUTER, &US), Some(expected(US.into(), PEER.into())));
}

#[test]
fn codes_are_told_apart_as_tcp_must() {
    let quoted = quoted_v4(1500);
    let of = |kind, code| kind_v4(&message_v4(kind, code, [0; 4], &quoted));
    for code in [0, 1, 5] {
        assert_eq!(of(3, code), Some(IcmpErrorKind::Unreachable));
    }
    for code in [2, 3, 13] {
        assert_eq!(of(3, code), Some(IcmpErrorKind::Refused));
    }
    assert_eq!(of(11, 0), Some(IcmpErrorKind::TimeExceeded));
    assert_eq!(of(12, 0), Some(IcmpErrorKind::ParameterProblem));

    let of = |kind, code| kind_v6(&message_v6(kind, code, [0; 4], &quoted_v6()));
    for code in [0, 3] {
        assert_eq!(of(1, code), Some(IcmpErrorKind::Unreachable));
    }
    for code in [1, 4] {
        assert_eq!(of(1, code), Some(IcmpErrorKind::Refused));
    }
    assert_eq!(of(3, 0), Some(IcmpErrorKind::TimeExceeded));
    assert_eq!(of(4, 0), Some(IcmpErrorKind::ParameterProblem));
}

// proves 9293-3.9.2.2-2
#[test]
fn source_quench_is_nothing() {
    assert_eq!(Icmp::parse_v4(&message_v4(4, 0, [0; 4], &quoted_v4(1500))), Some(Icmp::Other));
}

#[test]
fn the_path_mtu_is_the_stated_one_within_reason() {
    let of = |mtu: u16| {
        let [hi, lo] = mtu.to_be_bytes();
        kind_v4(&message_v4(3, 4, [0, 0, hi, lo], &quoted_v4(1500)))
    };
    assert_eq!(of(1400), Some(IcmpErrorKind::PacketTooBig { mtu: 1400 }));
    assert_eq!(of(68), Some(IcmpErrorKind::PacketTooBig { mtu: IPV4_MTU_MIN }));
    let of = |mtu: u32| kind_v6(&message_v6(2, 0, mtu.to_be_bytes(), &quoted_v6()));
    assert_eq!(of(1400), Some(IcmpErrorKind::PacketTooBig { mtu: 1400 }));
    assert_eq!(of(1280), Some(IcmpErrorKind::PacketTooBig { mtu: IPV6_MTU_MIN }));
}

/// RFC 8201 section 4: a router that has an IPv6 link of less is none.
#[test]
fn an_ipv6_path_mtu_below_the_least_is_nothing() {
    for mtu in [0, 68, 1279_u32] {
        let octets = message_v6(2, 0, mtu.to_be_bytes(), &quoted_v6());
        assert_eq!(Icmp::parse_v6(&octets, &ROUTER, &US), Some(Icmp::Other), "{mtu}");
    }
}

#[test]
fn an_old_router_s_mtu_is_guessed() {
    for (total_len, mtu) in [(1500, 1492), (1492, 1006), (9000, 8166), (600, 552), (65_535, 32_000)] {
        let octets = message_v4(3, 4, [0; 4], &quoted_v4(total_len));
        assert_eq!(kind_v4(&octets), Some(IcmpErrorKind::PacketTooBig { mtu }));
    }
}

#[test]
fn quotes_of_other_things_are_nothing() {
    for (at, value) in [(0, 0x65), (0, 0x44), (7, 1), (9, 17)] {
        let mut quoted = quoted_v4(1500);
        quoted[at] = value;
        assert_eq!(Icmp::parse_v4(&message_v4(3, 1, [0; 4], &quoted)), Some(Icmp::Other), "{at}");
    }
    for (at, value) in [(0, 0x45), (6, 17)] {
        let mut quoted = quoted_v6();
        quoted[at] = value;
        let octets = message_v6(1, 0, [0; 4], &quoted);
        assert_eq!(Icmp::parse_v6(&octets, &ROUTER, &US), Some(Icmp::Other), "{at}");
    }
}

#[test]
fn no_truncation_makes_an_error() {
    let quoted = quoted_v4(1500);
    for len in 0..quoted.len() {
        assert_eq!(kind_v4(&message_v4(3, 1, [0; 4], &quoted[..len])), None, "{len}");
    }
    let quoted = quoted_v6();
    for len in 0..quoted.len() {
        assert_eq!(kind_v6(&message_v6(1, 0, [0; 4], &quoted[..len])), None, "{len}");
    }
    for len in 0..8 {
        assert_eq!(Icmp::parse_v4(&message_v4(8, 0, [0; 4], &[])[..len]), None);
        assert_eq!(Icmp::parse_v6(&message_v6(128, 0, [0; 4], &[])[..len], &ROUTER, &US), None);
    }
}

#[test]
fn a_bad_checksum_is_refused() {
    let mut octets = message_v4(8, 0, [0, 1, 0, 2], b"ping");
    assert_eq!(Icmp::parse_v4(&octets), Some(Icmp::EchoRequest));
    octets[9] ^= 4;
    assert_eq!(Icmp::parse_v4(&octets), None);
    let mut octets = message_v6(128, 0, [0, 1, 0, 2], b"ping");
    assert_eq!(Icmp::parse_v6(&octets, &ROUTER, &US), Some(Icmp::EchoRequest));
    octets[9] ^= 4;
    assert_eq!(Icmp::parse_v6(&octets, &ROUTER, &US), None);
}

#[test]
fn a_rate_is_kept_after_a_burst() {
    let mut limit = RateLimit::new(10, 3);
    let at = Instant::from_micros;
    let allowed = |limit: &mut RateLimit, now| (0..10).filter(|_| limit.allows(now)).count();
    assert_eq!(allowed(&mut limit, at(0)), 3);
    assert_eq!(allowed(&mut limit, at(99_999)), 0);
    assert_eq!(allowed(&mut limit, at(100_000)), 1);
    assert_eq!(allowed(&mut limit, at(300_000)), 2);
    assert_eq!(allowed(&mut limit, at(10_000_000)), 3);
}

proptest! {
    #[test]
    fn any_octets_are_survived(
        kind in any::<u8>(), code in 0u8..8, octets in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let _ = Icmp::parse_v4(&octets);
        let _ = Icmp::parse_v6(&octets, &ROUTER, &US);
        // With checksums that lead past the first check.
        let _ = Icmp::parse_v4(&message_v4(kind % 20, code, [0; 4], &octets));
        let _ = Icmp::parse_v6(&message_v6(kind, code, [0; 4], &octets), &ROUTER, &US);
    }
}
