//! Received IPv4 and IPv6 headers (RFC 791, RFC 8200), down to what TCP and ICMP need of them.
//!
//! There is no reassembly: senders of iWARP use path MTU discovery, so fragments are dropped.
//! IPv4 options are skipped; so are IPv6 extension headers as far as a host may.

use core::net::IpAddr;

use smoltcp::wire::{
    IpProtocol, Ipv4Packet, Ipv6ExtHeader, Ipv6FragmentHeader, Ipv6OptionFailureType, Ipv6OptionRepr,
    Ipv6OptionsIterator, Ipv6Packet,
};

/// Extension headers that are looked through; more are an attack on our time.
const EXTENSIONS_MAX: usize = 8;
/// Options per extension header that are looked through.
const OPTIONS_MAX: usize = 32;

/// What the IP headers of a received packet say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IpHeader {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: IpProtocol,
    pub(crate) ecn: u8,
    pub(crate) hop_limit: u8,
    /// Octets to the payload, options and extension headers included.
    pub(crate) header_len: usize,
    /// Octets to the end of the payload; what follows is the link's padding.
    pub(crate) total_len: usize,
}

/// Why a packet is dropped here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IpError {
    Malformed,
    ChecksumBad,
    Fragment,
    OptionUnknown,
}

impl IpHeader {
    /// Reads an IPv4 header; its checksum is verified unless `checksum_good`.
    ///
    /// A TTL of zero is no reason to drop what has arrived (RFC 1122 section 3.2.1.7).
    #[inline]
    pub(crate) fn parse_ipv4(octets: &[u8], checksum_good: bool) -> Result<Self, IpError> {
        let packet = Ipv4Packet::new_checked(octets).map_err(|_| IpError::Malformed)?;
        if packet.version() != 4 {
            return Err(IpError::Malformed);
        }
        if !checksum_good && !packet.verify_checksum() {
            return Err(IpError::ChecksumBad);
        }
        if packet.more_frags() || packet.frag_offset() != 0 {
            return Err(IpError::Fragment);
        }
        Ok(Self {
            source: packet.src_addr().into(),
            destination: packet.dst_addr().into(),
            protocol: packet.next_header(),
            ecn: packet.ecn(),
            hop_limit: packet.hop_limit(),
            header_len: usize::from(packet.header_len()),
            total_len: usize::from(packet.total_len()),
        })
    }

    /// Reads an IPv6 header with its extension headers.
    #[inline]
    pub(crate) fn parse_ipv6(octets: &[u8]) -> Result<Self, IpError> {
        let packet = Ipv6Packet::new_checked(octets).map_err(|_| IpError::Malformed)?;
        if packet.version() != 6 {
            return Err(IpError::Malformed);
        }
        let mut header = Self {
            source: packet.src_addr().into(),
            destination: packet.dst_addr().into(),
            protocol: packet.next_header(),
            ecn: packet.traffic_class() & 0b11,
            hop_limit: packet.hop_limit(),
            header_len: packet.header_len(),
            total_len: packet.total_len(),
        };
        if !matches!(header.protocol, IpProtocol::Tcp | IpProtocol::Icmpv6) {
            header.skip_extensions(&octets[..header.total_len])?;
        }
        Ok(header)
    }

    fn skip_extensions(&mut self, packet: &[u8]) -> Result<(), IpError> {
        for position in 0..=EXTENSIONS_MAX {
            let rest = &packet[self.header_len..];
            match self.protocol {
                // RFC 8200 section 4.1: hop-by-hop options come first or not at all.
                IpProtocol::HopByHop if position > 0 => return Err(IpError::Malformed),
                IpProtocol::HopByHop
                | IpProtocol::Ipv6Opts
                | IpProtocol::Ipv6Route
                | IpProtocol::Ipv6Frag => {}
                _ => return Ok(()),
            }
            if self.protocol == IpProtocol::Ipv6Frag {
                self.skip_atomic_fragment(rest)?;
                continue;
            }
            let extension = Ipv6ExtHeader::new_checked(rest).map_err(|_| IpError::Malformed)?;
            if self.protocol == IpProtocol::Ipv6Route {
                // RFC 8200 section 4.4: with no segments left it is skipped, of whatever type.
                let segments_left = extension.payload()[1];
                if segments_left != 0 {
                    return Err(IpError::OptionUnknown);
                }
            } else {
                check_options(extension.payload())?;
            }
            self.protocol = extension.next_header();
            self.header_len += (usize::from(extension.header_len()) + 1) * 8;
        }
        Err(IpError::Malformed)
    }

    /// Skips the fragment header of a packet that is whole (RFC 6946); there is no other kind here.
    fn skip_atomic_fragment(&mut self, rest: &[u8]) -> Result<(), IpError> {
        // The second octet is reserved, not a length as in other extension headers.
        let Some(&[next_header, _, ref fields @ ..]) = rest.first_chunk::<8>() else {
            return Err(IpError::Malformed);
        };
        let fragment = Ipv6FragmentHeader::new_checked(fields).map_err(|_| IpError::Malformed)?;
        if fragment.more_frags() || fragment.frag_offset() != 0 {
            return Err(IpError::Fragment);
        }
        self.protocol = next_header.into();
        self.header_len += 8;
        Ok(())
    }
}

/// Refuses options that may not be skipped (RFC 8200 section 4.2).
fn check_options(options: &[u8]) -> Result<(), IpError> {
    for (count, option) in Ipv6OptionsIterator::new(options).enumerate() {
        if count == OPTIONS_MAX {
            return Err(IpError::Malformed);
        }
        if let Ipv6OptionRepr::Unknown { type_, .. } = option.map_err(|_| IpError::Malformed)?
            && Ipv6OptionFailureType::from(type_) != Ipv6OptionFailureType::Skip
        {
            return Err(IpError::OptionUnknown);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
