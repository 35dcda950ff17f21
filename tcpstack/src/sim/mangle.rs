//! What a broken link or a middlebox does to the octets of a frame.
//!
//! These are written from the formats, apart from the stack's own code, so that the stack
//! does not vouch for itself.

use core::ops::Range;

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket,
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
