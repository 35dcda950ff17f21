//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echo, and errors about our own segments.
//!
//! Errors are believed no further than their checksum here: whether the quoted segment can be
//! one of ours is for TCP to say (RFC 5927). Neighbour discovery is in [`crate::neighbor`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv6DstUnreachable, Icmpv6Message, Icmpv6Packet,
    IpProtocol, Ipv6Packet,
};

use crate::checksum;

/// Smallest IPv4 path MTU believed in. RFC 1191 allows 68, but no link in use is so narrow, and
/// a forged message must not make us send tiny segments.
pub const IPV4_MTU_MIN: usize = 552;
/// Smallest MTU of an IPv6 link (RFC 8200 section 5).
pub const IPV6_MTU_MIN: usize = 1280;

/// Link MTUs to guess from when a router does not say (RFC 1191 section 7.1).
const PLATEAUS: [usize; 7] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006];

/// An ICMP error about one of our TCP segments, as far as it can be told without the connection.
///
/// Whether it is about a segment in flight (RFC 5927) only TCP can say, from `sequence`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// What is wrong.
    pub kind: IcmpErrorKind,
    /// Our address: the source of the quoted packet.
    pub local: IpAddr,
    /// The peer's address: the destination of the quoted packet.
    pub remote: IpAddr,
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// Sequence number of the quoted segment.
    pub sequence: u32,
}

/// Kinds of ICMP errors that TCP has to tell apart (RFC 9293 section 3.9.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpErrorKind {
    /// Network or host unreachable, or another soft error: may pass.
    Unreachable,
    /// Protocol or port unreachable, or prohibited: a hard error.
    Refused,
    /// The packet is larger than a link on the path takes.
    PacketTooBig {
        /// Largest IP packet that the link takes; never below the IP version's minimum.
        mtu: usize,
    },
    /// The hop limit or the reassembly time ran out.
    TimeExceeded,
    /// A router or the peer did not like a header field.
    ParameterProblem,
}

/// What a received message asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Icmp {
    EchoRequest,
    Error(IcmpError),
    /// For [`crate::neighbor`] to look at.
    NeighborDiscovery,
    /// Nothing.
    Other,
}

impl Icmp {
    /// Reads an ICMP message; `None` when it is malformed or its checksum bad.
    pub(crate) fn parse_v4(octets: &[u8]) -> Option<Self> {
        let packet = Icmpv4Packet::new_checked(octets).ok()?;
        if checksum::finish(checksum::sum(octets)) != 0 {
            return None;
        }
        let quoted = packet.data();
        let kind = match (packet.msg_type(), packet.msg_code()) {
            (Icmpv4Message::EchoRequest, 0) => return Some(Self::EchoRequest),
            (Icmpv4Message::DstUnreachable, code) => match code.into() {
                Icmpv4DstUnreachable::FragRequired => {
                    let stated = usize::from(u16::from_be_bytes([octets[6], octets[7]]));
                    IcmpErrorKind::PacketTooBig { mtu: path_mtu_v4(stated, quoted)? }
                }
                Icmpv4DstUnreachable::ProtoUnreachable
                | Icmpv4DstUnreachable::PortUnreachable
                | Icmpv4DstUnreachable::CommProhibited => IcmpErrorKind::Refused,
                _ => IcmpErrorKind::Unreachable,
            },
            (Icmpv4Message::TimeExceeded, _) => IcmpErrorKind::TimeExceeded,
            (Icmpv4Message::ParamProblem, _) => IcmpErrorKind::ParameterProblem,
            // req 9293-3.9.2.2-2: Source Quench is among the rest.
            _ => return Some(Self::Other),
        };
        Some(quote_v4(quoted).map_or(Self::Other, |quote| quote.error(kind)))
    }

    /// Reads an ICMPv6 message; `None` when it is malformed or its checksum bad.
    pub(crate) fn parse_v6(octets: &[u8], source: &Ipv6Addr, destination: &Ipv6Addr) -> Option<Self> {
        let [kind, code, ..] = *octets else {
            return None;
        };
        let packet = Icmpv6Packet::new_unchecked(octets);
        if octets.len() < 4 || !packet.verify_checksum(source, destination) {
            return None;
        }
        let message = Icmpv6Message::from(kind);
        if message.is_ndisc() {
            return Some(Self::NeighborDiscovery);
        }
        if !(message.is_error() || message == Icmpv6Message::EchoRequest) {
            return Some(Self::Other);
        }
        packet.check_len().ok()?;
        let kind = match message {
            Icmpv6Message::EchoRequest => return Some(Self::EchoRequest),
            Icmpv6Message::DstUnreachable => match code.into() {
                Icmpv6DstUnreachable::AdminProhibit | Icmpv6DstUnreachable::PortUnreachable => {
                    IcmpErrorKind::Refused
                }
                _ => IcmpErrorKind::Unreachable,
            },
            Icmpv6Message::PktTooBig => {
                let mtu = usize::try_from(packet.pkt_too_big_mtu()).unwrap_or(usize::MAX);
                // RFC 8201 section 4: no IPv6 link is narrower, so this is nothing.
                if mtu < IPV6_MTU_MIN {
                    return Some(Self::Other);
                }
                IcmpErrorKind::PacketTooBig { mtu }
            }
            Icmpv6Message::TimeExceeded => IcmpErrorKind::TimeExceeded,
            Icmpv6Message::ParamProblem => IcmpErrorKind::ParameterProblem,
            _ => return Some(Self::Other),
        };
        Some(quote_v6(packet.payload()).map_or(Self::Other, |quote| quote.error(kind)))
    }
}

/// Makes an echo request into its reply, but for the checksum.
pub(crate) fn turn_echo(message: &mut [u8], ipv6: bool) {
    message[0] = if ipv6 { Icmpv6Message::EchoReply.into() } else { Icmpv4Message::EchoReply.into() };
    message[2..4].fill(0);
}

/// What the start of a quoted TCP segment tells.
struct Quote {
    local: IpAddr,
    remote: IpAddr,
    local_port: u16,
    remote_port: u16,
    sequence: u32,
}

impl Quote {
    fn new(local: IpAddr, remote: IpAddr, segment: &[u8]) -> Option<Self> {
        let [l0, l1, r0, r1, s0, s1, s2, s3] = *segment.first_chunk()?;
        Some(Self {
            local,
            remote,
            local_port: u16::from_be_bytes([l0, l1]),
            remote_port: u16::from_be_bytes([r0, r1]),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        })
    }

    fn error(self, kind: IcmpErrorKind) -> Icmp {
        let Self { local, remote, local_port, remote_port, sequence } = self;
        Icmp::Error(IcmpError { kind, local, remote, local_port, remote_port, sequence })
    }
}

/// The TCP segment in a quoted IPv4 packet, which may be cut off 8 octets into the segment.
fn quote_v4(quoted: &[u8]) -> Option<Quote> {
    let header: &[u8; 20] = quoted.first_chunk()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let first_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0;
    let is_tcp = IpProtocol::from(header[9]) == IpProtocol::Tcp;
    if header[0] >> 4 != 4 || header_len < header.len() || !first_fragment || !is_tcp {
        return None;
    }
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    Quote::new(address(12).into(), address(16).into(), quoted.get(header_len..)?)
}

/// The TCP segment in a quoted IPv6 packet; ours have no extension headers.
fn quote_v6(quoted: &[u8]) -> Option<Quote> {
    let (header, segment) = quoted.split_at_checked(40)?;
    let header = Ipv6Packet::new_unchecked(header);
    if header.version() != 6 || header.next_header() != IpProtocol::Tcp {
        return None;
    }
    Quote::new(header.src_addr().into(), header.dst_addr().into(), segment)
}

/// The MTU that a router states, or guesses from the length of what did not fit.
fn path_mtu_v4(stated: usize, quoted: &[u8]) -> Option<usize> {
    if stated != 0 {
        return Some(stated.max(IPV4_MTU_MIN));
    }
    let &[_, _, hi, lo] = quoted.first_chunk()?;
    let total_len = usize::from(u16::from_be_bytes([hi, lo]));
    Some(PLATEAUS.into_iter().find(|&mtu| mtu < total_len).unwrap_or(IPV4_MTU_MIN))
}

/// A limit on how often something is done: `burst` at once, then one each `interval`.
#[derive(Clone, Debug)]
pub(crate) struct RateLimit {
    interval: u64,
    burst: u64,
    /// When the next one is due if they came evenly, in nanoseconds.
    next: u64,
}

impl RateLimit {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        Self {
            interval: 1_000_000_000 / u64::from(per_second.max(1)),
            burst: u64::from(burst.max(1)),
            next: 0,
        }
    }

    /// Whether one more is within the limit now; if so it is counted.
    pub(crate) fn allows(&mut self, now: crate::time::Instant) -> bool {
        let now = now.as_nanos();
        let next = self.next.max(now);
        if next - now > self.interval * (self.burst - 1) {
            return false;
        }
        self.next = next + self.interval;
        true
    }
}

#[cfg(test)]
mod tests;
