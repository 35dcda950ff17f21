//! A path begins to swallow long segments and nobody says so: every octet arrives all the same, then
//! FPDUs are made for what the path takes, and each segment begins with one again.

use std::time::Duration;

use dataplane::sim::{Conversation, Setup, World, with_seeds};
use tcpstack::sim::{Chance, Faults, Pcap};

/// Octets of the Ethernet header.
const LINK: usize = 14;

fn link() -> Faults {
    Faults::link(Duration::from_micros(5), 1_000_000_000)
}

/// The same with room for packets of `mtu` octets only.
fn narrow(mtu: usize) -> Faults {
    Faults { frame_len_max: Some(LINK + mtu), ..link() }
}

/// A path MTU by seed, above what the IP version's search begins with.
fn mtu(seed: u64, ipv6: bool) -> usize {
    let lowest = if ipv6 { 1280 } else { 1024 };
    lowest + usize::try_from(seed).unwrap().wrapping_mul(7919) % (1480 - lowest)
}

/// What a capture says of a TCP segment with data.
struct Data {
    packet_len: usize,
    seq: u32,
    payload: Vec<u8>,
}

/// The data that `world`'s first host sent, in the order of departure.
fn sent_data(capture: &Pcap, ipv6: bool) -> Vec<Data> {
    let mut rest = &capture.octets()[24..];
    let mut all = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let (frame, next) = tail.split_at(len);
        rest = next;
        all.extend(data_of(&frame[LINK..], ipv6));
    }
    all
}

fn data_of(packet: &[u8], ipv6: bool) -> Option<Data> {
    let word = |at: usize| usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let (ours, tcp, packet_len) = match (packet[0] >> 4, World::ipv4(0), World::ipv6(0)) {
        (4, std::net::IpAddr::V4(ours), _) if !ipv6 && packet[9] == 6 => {
            (packet[12..16] == ours.octets(), 20, word(2))
        }
        (6, _, std::net::IpAddr::V6(ours)) if ipv6 && packet[6] == 6 => {
            (packet[8..24] == ours.octets(), 40, 40 + word(4))
        }
        _ => return None,
    };
    let data = tcp + usize::from(packet[tcp + 12] >> 4) * 4;
    let seq = u32::from_be_bytes([packet[tcp + 4], packet[tcp + 5], packet[tcp + 6], packet[tcp + 7]]);
    let payload = packet[data..packet_len].to_vec();
    (ours && !payload.is_empty()).then_some(Data { packet_len, seq, payload })
}

/// Whether a segment holds whole FPDUs and nothing else (RFC 5044 section 4.3, without Markers).
fn is_aligned(payload: &[u8]) -> bool {
    let mut rest = payload;
    while let Some(&[hi, lo]) = rest.first_chunk() {
        let fpdu_len = (2 + usize::from(u16::from_be_bytes([hi, lo]))).next_multiple_of(4) + 4;
        let Some(next) = rest.get(fpdu_len..) else { return false };
        rest = next;
    }
    rest.is_empty()
}

/// Looks at what was sent for the first time after the last segment that was too long.
fn check(conversation: &Conversation, ipv6: bool, mtu: usize) {
    let capture = conversation.world.wire().take_capture(0).expect("worlds capture");
    let sent = sent_data(&capture, ipv6);
    let too_long = sent.iter().rposition(|data| data.packet_len > mtu).expect("some were too long");
    let mut edge = sent[0].seq;
    let mut after = Vec::new();
    for (index, data) in sent.iter().enumerate() {
        let end = data.seq.wrapping_add(u32::try_from(data.payload.len()).unwrap());
        if data.seq == edge && index > too_long {
            after.push(data);
        }
        if end.wrapping_sub(edge) < 1 << 31 {
            edge = end;
        }
    }
    assert!(after.len() > 50, "{} segments after the search", after.len());
    let longest = after.iter().map(|data| data.packet_len).max().expect("some");
    assert!(longest <= mtu && longest + longest / 16 >= mtu, "{longest} of {mtu}");
    for data in after {
        assert!(is_aligned(&data.payload), "a segment of {} octets begins in an FPDU", data.payload.len());
    }
}

fn setup(ipv6: bool) -> Setup {
    Setup { ipv6, operations: 500, ..Setup::new(link()) }
}

#[test]
fn a_path_that_swallows_long_segments_from_some_moment_on() {
    with_seeds(20, |seed| {
        let ipv6 = seed % 2 == 1;
        let mtu = mtu(seed, ipv6);
        let mut conversation = Conversation::new(seed, &setup(ipv6));
        conversation.world.pass(Duration::from_micros(200 + seed.wrapping_mul(131) % 1000));
        conversation.world.wire().set_faults(&narrow(mtu));
        conversation.complete(Duration::from_secs(10));
        check(&conversation, ipv6, mtu);
        conversation.finish(&narrow(mtu));
    });
}

#[test]
fn a_path_that_swallows_long_segments_from_the_begin() {
    with_seeds(20, |seed| {
        let ipv6 = seed % 2 == 1;
        let mtu = mtu(seed, ipv6);
        let mut conversation = Conversation::new(seed, &Setup { faults: narrow(mtu), ..setup(ipv6) });
        conversation.complete(Duration::from_secs(10));
        check(&conversation, ipv6, mtu);
        conversation.finish(&narrow(mtu));
    });
}

/// Losses at random mislead the search, but nothing else.
#[test]
fn a_black_hole_with_losses() {
    with_seeds(30, |seed| {
        let faults = Faults { loss: Chance::percent(2), ..narrow(mtu(seed, false)) };
        Conversation::hold(seed, &Setup::new(faults));
    });
}
