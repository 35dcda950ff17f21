//! ICMP and ICMPv6: echo, and errors about our own segments.

use core::net::IpAddr;

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
