use core::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use smoltcp::wire::Ipv4Packet;

use super::*;

const IPV4: [u8; 28] = [
    0x45, 0x02, 0, 24, 0x12, 0x34, 0x40, 0, 64, 6, 0x94, 0x8a, // to the checksum
    10, 0, 0, 1, 10, 0, 0, 2, // addresses
    b'd', b'a', b't', b'a', 0, 0, 0, 0, // payload and padding
];

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x60, 0x10, 0, 0, 0, u8::try_from(payload.len()).unwrap(), next_header, 64];
    octets.extend(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1).octets());
    octets.extend(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2).octets());
    octets.extend(payload);
    octets
}

/// An IPv4 header with its checksum made good.
fn fixed(mut octets: Vec<u8>) -> Vec<u8> {
    Ipv4Packet::new_unchecked(&mut octets[..]).fill_checksum();
    octets
}

#[test]
fn an_ipv4_header_is_read() {
    let header = IpHeader::parse_ipv4(&fixed(IPV4.to_vec()), false).unwrap();
    assert_eq!(header.source, Ipv4Addr::new(10, 0, 0, 1));
    assert_eq!(header.destination, Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!((header.protocol, header.ecn, header.hop_limit), (IpProtocol::Tcp, 2, 64));
    assert_eq!((header.header_len, header.total_len), (20, 24));
}

// proves 9293-3.9.2-3
#[test]
fn ipv4_options_are_skipped() {
    let mut octets = IPV4.to_vec();
    octets[0] = 0x46;
    octets[3] = 28;
    let header = IpHeader::parse_ipv4(&fixed(octets), false).unwrap();
    assert_eq!((header.header_len, header.total_len), (24, 28));
}

#[test]
fn a_bad_ipv4_checksum_is_found_unless_the_port_has_looked() {
    let mut octets = fixed(IPV4.to_vec());
    octets[8] ^= 1;
    assert_eq!(IpHeader::parse_ipv4(&octets, false), Err(IpError::ChecksumBad));
    assert!(IpHeader::parse_ipv4(&octets, true).is_ok());
}

#[test]
fn ipv4_fragments_are_refused() {
    for flags in [0x2000u16, 0x0001, 0x2001, 0x1fff] {
        let mut octets = IPV4.to_vec();
        octets[6..8].copy_from_slice(&flags.to_be_bytes());
        assert_eq!(IpHeader::parse_ipv4(&fixed(octets), false), Err(IpError::Fragment));
    }
}

#[test]
fn every_ipv4_truncation_is_refused() {
    let octets = fixed(IPV4.to_vec());
    for len in 0..24 {
        assert_eq!(IpHeader::parse_ipv4(&octets[..len], false), Err(IpError::Malformed), "{len}");
    }
}

#[test]
fn impossible_ipv4_lengths_and_versions_are_refused() {
    for (at, value) in [(0, 0x44), (0, 0x4f), (0, 0x65), (3, 19), (3, 29), (2, 0xff)] {
        let mut octets = IPV4.to_vec();
        octets[at] = value;
        assert_eq!(IpHeader::parse_ipv4(&octets, true), Err(IpError::Malformed), "{value:#x} at {at}");
    }
}

#[test]
fn an_ipv6_header_is_read() {
    let header = IpHeader::parse_ipv6(&ipv6(6, b"data")).unwrap();
    assert_eq!(header.source, "fe80::1".parse::<IpAddr>().unwrap());
    assert_eq!((header.protocol, header.ecn, header.hop_limit), (IpProtocol::Tcp, 1, 64));
    assert_eq!((header.header_len, header.total_len), (40, 44));
}

#[test]
fn extension_headers_are_skipped() {
    let hop_by_hop = [43, 0, 5, 2, 0, 0, 1, 0]; // router alert, padding
    let routing = [60, 0, 4, 0, 0, 0, 0, 0];
    let destination = [44, 1, 1, 4, 0, 0, 0, 0, 1, 0, 0, 0x1e, 2, 1, 1, 0];
    let atomic_fragment = [6, 0xff, 0, 0, 1, 2, 3, 4];
    let payload = [&hop_by_hop[..], &routing, &destination, &atomic_fragment, b"data"].concat();
    let header = IpHeader::parse_ipv6(&ipv6(0, &payload)).unwrap();
    assert_eq!(header.protocol, IpProtocol::Tcp);
    assert_eq!(header.header_len, 40 + 8 + 8 + 16 + 8);
}

#[test]
fn ipv6_fragments_are_refused() {
    for low in [0x01, 0x08, 0x09] {
        let octets = ipv6(44, &[6, 0, 0, low, 0, 0, 0, 1]);
        assert_eq!(IpHeader::parse_ipv6(&octets), Err(IpError::Fragment));
    }
}

#[test]
fn options_and_routes_that_must_be_understood_are_refused() {
    for option in [0x40, 0x80, 0xc2] {
        let octets = ipv6(0, &[6, 0, option, 4, 0, 0, 0, 0]);
        assert_eq!(IpHeader::parse_ipv6(&octets), Err(IpError::OptionUnknown), "{option:#x}");
    }
    let octets = ipv6(43, &[6, 0, 4, 1, 0, 0, 0, 0]);
    assert_eq!(IpHeader::parse_ipv6(&octets), Err(IpError::OptionUnknown));
}

#[test]
fn hop_by_hop_options_come_first() {
    let payload = [[0, 0, 1, 4, 0, 0, 0, 0], [6, 0, 1, 4, 0, 0, 0, 0]].concat();
    assert_eq!(IpHeader::parse_ipv6(&ipv6(60, &payload)), Err(IpError::Malformed));
}

#[test]
fn chains_and_options_have_bounds() {
    let chain = |headers: usize| {
        let mut payload = [60, 0, 1, 4, 0, 0, 0, 0].repeat(headers);
        payload[(headers - 1) * 8] = 6;
        IpHeader::parse_ipv6(&ipv6(60, &payload))
    };
    assert!(chain(EXTENSIONS_MAX).is_ok());
    assert_eq!(chain(EXTENSIONS_MAX + 1), Err(IpError::Malformed));

    // One Pad1 an octet.
    let mut payload = vec![0; 8 * 6];
    (payload[0], payload[1]) = (6, 5);
    assert_eq!(IpHeader::parse_ipv6(&ipv6(60, &payload)), Err(IpError::Malformed));
}

#[test]
fn every_ipv6_truncation_is_refused() {
    let octets = ipv6(0, &[&[44, 0, 1, 4, 0, 0, 0, 0][..], &[6, 0, 0, 0, 0, 0, 0, 0]].concat());
    for len in 0..octets.len() {
        assert_eq!(IpHeader::parse_ipv6(&octets[..len]), Err(IpError::Malformed), "{len}");
        // And with a length that agrees with the cut.
        if let Some(payload_len) = len.checked_sub(40) {
            let mut short = octets[..len].to_vec();
            short[5] = u8::try_from(payload_len).unwrap();
            assert_eq!(IpHeader::parse_ipv6(&short), Err(IpError::Malformed), "{len}");
        }
    }
}

proptest! {
    #[test]
    fn ipv4_headers_are_read_as_smoltcp_reads_them(
        mut octets in prop::collection::vec(any::<u8>(), 0..80),
        version in prop::sample::select(vec![0x45, 0x46, 0x4f, 0x44, 0x55]),
        fixed: bool,
        checksum_good: bool,
    ) {
        if let [first, _, high, _, _, _, fragment, ..] = &mut octets[..] {
            *first = version;
            *high = 0;
            *fragment &= 0xc0;
        }
        let readable = octets.len() >= 20 * 4 - 20 || (octets.len() >= 20 && version == 0x45);
        if fixed && readable {
            Ipv4Packet::new_unchecked(&mut octets[..]).fill_checksum();
        }
        let ours = IpHeader::parse_ipv4(&octets, checksum_good);
        let theirs = Ipv4Packet::new_checked(&octets[..])
            .ok()
            // smoltcp does not mind a header length below 20.
            .filter(|packet| packet.version() == 4 && packet.header_len() >= 20);
        match theirs {
            None => prop_assert_eq!(ours, Err(IpError::Malformed)),
            Some(packet) if !checksum_good && !packet.verify_checksum() => {
                prop_assert_eq!(ours, Err(IpError::ChecksumBad));
            }
            Some(packet) if packet.more_frags() || packet.frag_offset() != 0 => {
                prop_assert_eq!(ours, Err(IpError::Fragment));
            }
            Some(packet) => {
                let expected = IpHeader {
                    source: packet.src_addr().into(),
                    destination: packet.dst_addr().into(),
                    protocol: packet.next_header(),
                    ecn: packet.ecn(),
                    hop_limit: packet.hop_limit(),
                    header_len: usize::from(packet.header_len()),
                    total_len: usize::from(packet.total_len()),
                };
                prop_assert_eq!(ours, Ok(expected));
            }
        }
    }

    #[test]
    fn any_octets_are_survived(mut octets in prop::collection::vec(any::<u8>(), 0..128), version: bool) {
        if let Some(first) = octets.first_mut() {
            *first = if version { 0x45 } else { 0x60 };
        }
        let parsed = [IpHeader::parse_ipv4(&octets, true), IpHeader::parse_ipv6(&octets)];
        for header in parsed.into_iter().flatten() {
            prop_assert!(header.header_len <= header.total_len);
            prop_assert!(header.total_len <= octets.len());
        }
    }

    #[test]
    fn any_extension_chain_is_survived(
        first in prop::sample::select(vec![0u8, 43, 44, 60]),
        payload in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 6, 43, 44, 60, 0xc0]), 0..120),
    ) {
        if let Ok(header) = IpHeader::parse_ipv6(&ipv6(first, &payload)) {
            prop_assert!(header.header_len <= header.total_len);
        }
    }
}
