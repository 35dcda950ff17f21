//! What a broken link or a middlebox does to the octets of a frame.
//!
//! These are written from the formats, apart from the stack's own code, so that the stack
//! does not vouch for itself.

use core::ops::Range;

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, Icmpv4Packet, Icmpv6Packet, IpAddress, IpProtocol, Ipv4Packet,
    Ipv6Packet, TcpPacket,
};

/// Where the parts of a TCP segment are in a frame.
#[derive(Clone, Debug)]
pub(crate) struct TcpLayout {
    pub(crate) ipv6: bool,
    pub(crate) ip: usize,
    pub(crate) tcp: usize,
    pub(crate) payload: Range<usize>,
    pub(crate) source: IpAddress,
    pub(crate) destination: IpAddress,
}

impl TcpLayout {
    /// The layout of a frame with a whole TCP segment; extension headers are not looked through.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let ethernet = EthernetFrame::new_checked(frame).ok()?;
        let (ip, ethertype) = if frame[12..14] == [0x81, 0x00] {
            (18, EthernetProtocol::from(u16::from_be_bytes([*frame.get(16)?, *frame.get(17)?])))
        } else {
            (14, ethernet.ethertype())
        };
        let (ipv6, tcp, end, source, destination) = match ethertype {
            EthernetProtocol::Ipv4 => {
                let packet = Ipv4Packet::new_checked(&frame[ip..]).ok()?;
                if packet.next_header() != IpProtocol::Tcp || packet.more_frags() || packet.frag_offset() != 0
                {
                    return None;
                }
                let (tcp, end) =
                    (ip + usize::from(packet.header_len()), ip + usize::from(packet.total_len()));
                (false, tcp, end, packet.src_addr().into(), packet.dst_addr().into())
            }
            EthernetProtocol::Ipv6 => {
                let packet = Ipv6Packet::new_checked(&frame[ip..]).ok()?;
                if packet.next_header() != IpProtocol::Tcp {
                    return None;
                }
                (true, ip + 40, ip + packet.total_len(), packet.src_addr().into(), packet.dst_addr().into())
            }
            _ => return None,
        };
        let segment = TcpPacket::new_checked(&frame[tcp..end]).ok()?;
        let payload = tcp + usize::from(segment.header_len())..end;
        Some(Self { ipv6, ip, tcp, payload, source, destination })
    }

    fn end(&self) -> usize {
        self.payload.end
    }
}

/// Turns bit `bit` of `octet`.
pub fn corrupt(frame: &mut [u8], octet: usize, bit: u8) {
    frame[octet] ^= 1 << (bit % 8);
}

/// Makes the TCP checksum fit the segment as it is; false when the frame has no TCP segment.
pub fn repair_tcp_checksum(frame: &mut [u8]) -> bool {
    let Some(layout) = TcpLayout::of(frame) else {
        return false;
    };
    let mut segment = TcpPacket::new_unchecked(&mut frame[layout.tcp..layout.end()]);
    segment.fill_checksum(&layout.source, &layout.destination);
    true
}

/// Cuts a TCP segment in two before octet `at` of its payload, as a middlebox would.
///
/// Both have the original's headers with lengths, sequence number and checksums made to fit;
/// PSH and FIN go with the second. `None` when there is no such octet.
pub fn split_tcp_segment(frame: &[u8], at: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let layout = TcpLayout::of(frame)?;
    if at == 0 || at >= layout.payload.len() {
        return None;
    }
    let (headers, payload) = (&frame[..layout.payload.start], &frame[layout.payload.clone()]);
    let mut first = [headers, &payload[..at]].concat();
    let mut second = [headers, &payload[at..]].concat();

    let mut segment = TcpPacket::new_unchecked(&mut first[layout.tcp..]);
    // Urgent data is not followed across the cut; nobody here uses it.
    segment.set_psh(false);
    segment.set_fin(false);
    let mut segment = TcpPacket::new_unchecked(&mut second[layout.tcp..]);
    segment.set_syn(false);
    segment.set_seq_number(segment.seq_number() + at);

    for half in [&mut first, &mut second] {
        fit_ip_length(half, &layout);
        repair_tcp_checksum(half);
    }
    Some((first, second))
}

/// What a router answers to a TCP segment that is too long for a link of `len_max` octets a frame.
///
/// It speaks with the address of the segment's destination, which saves it one of its own.
pub(crate) fn packet_too_big(frame: &[u8], len_max: usize) -> Option<Vec<u8>> {
    let layout = TcpLayout::of(frame)?;
    let mtu = u16::try_from(len_max.checked_sub(layout.ip)?).ok()?;
    let [hi, lo] = mtu.to_be_bytes();
    // As much as RFC 792 asks for; RFC 4443 wants more, but TCP needs no more.
    let quoted = &frame[layout.ip..layout.tcp + 8];
    let kind = if layout.ipv6 { [2, 0] } else { [3, 4] };
    let message = [&kind[..], &[0, 0, 0, 0, hi, lo], quoted].concat();

    let mut report = [&frame[6..12], &frame[..6], &frame[12..layout.ip]].concat();
    let ip_len = if layout.ipv6 { 40 } else { 20 };
    report.extend(&frame[layout.ip..layout.ip + ip_len]);
    report.extend(&message);
    match (layout.source, layout.destination) {
        (IpAddress::Ipv4(source), IpAddress::Ipv4(destination)) => {
            let mut packet = Ipv4Packet::new_unchecked(&mut report[layout.ip..]);
            packet.set_header_len(20);
            packet.set_total_len(u16::try_from(20 + message.len()).ok()?);
            packet.set_next_header(IpProtocol::Icmp);
            packet.set_src_addr(destination);
            packet.set_dst_addr(source);
            packet.fill_checksum();
            Icmpv4Packet::new_unchecked(&mut report[layout.ip + 20..]).fill_checksum();
        }
        (IpAddress::Ipv6(source), IpAddress::Ipv6(destination)) => {
            let mut packet = Ipv6Packet::new_unchecked(&mut report[layout.ip..]);
            packet.set_payload_len(u16::try_from(message.len()).ok()?);
            packet.set_next_header(IpProtocol::Icmpv6);
            packet.set_src_addr(destination);
            packet.set_dst_addr(source);
            Icmpv6Packet::new_unchecked(&mut report[layout.ip + 40..]).fill_checksum(&destination, &source);
        }
        _ => return None,
    }
    Some(report)
}

fn fit_ip_length(frame: &mut [u8], layout: &TcpLayout) {
    let len = |octets: usize| u16::try_from(octets).expect("a part is no longer than the whole");
    if layout.ipv6 {
        let payload_len = len(frame.len() - layout.ip - 40);
        Ipv6Packet::new_unchecked(&mut frame[layout.ip..]).set_payload_len(payload_len);
    } else {
        let total_len = len(frame.len() - layout.ip);
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[layout.ip..]);
        packet.set_total_len(total_len);
        packet.fill_checksum();
    }
}
