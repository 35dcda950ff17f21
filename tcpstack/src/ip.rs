//! Received IPv4 and IPv6 headers (RFC 791, RFC 8200), down to what TCP and ICMP need of them.
//!
//! There is no reassembly: senders of iWARP use path MTU discovery, so fragments are dropped.
//! IPv4 options are skipped; so are IPv6 extension headers as far as a host may.

use core::net::IpAddr;

use smoltcp::wire::{
    IpProtocol, Ipv6ExtHeader, Ipv6FragmentHeader, Ipv6OptionFailureType, Ipv6OptionRepr,
    Ipv6OptionsIterator, Ipv6Packet,
};

use crate::checksum;
use crate::header::IPV4_LEN;

/// Everything in the flags and fragment offset of a packet that is whole, but the reserved bit.
pub(crate) const DONT_FRAGMENT: u16 = 0xc000;

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
    // req 9293-3.9.2-3: options are skipped, whatever they are.
    #[inline]
    pub(crate) fn parse_ipv4(octets: &[u8], checksum_good: bool) -> Result<Self, IpError> {
        let (header, _) = octets.split_first_chunk::<IPV4_LEN>().ok_or(IpError::Malformed)?;
        let [version, service, l0, l1, _, _, f0, f1, hop_limit, protocol, _, _, addresses @ ..] = *header;
        let header_len = usize::from(version & 0x0f) * 4;
        let total_len = usize::from(u16::from_be_bytes([l0, l1]));
        if version >> 4 != 4 || header_len < IPV4_LEN || header_len > total_len || total_len > octets.len() {
            return Err(IpError::Malformed);
        }
        if !checksum_good {
            let sum = checksum::sum(header);
            let of_options = if header_len == IPV4_LEN { 0 } else { options_sum(&octets[..header_len]) };
            if checksum::finish(checksum::combine(sum, of_options)) != 0 {
                return Err(IpError::ChecksumBad);
            }
        }
        if u16::from_be_bytes([f0, f1]) & !DONT_FRAGMENT != 0 {
            return Err(IpError::Fragment);
        }
        let [s0, s1, s2, s3, d0, d1, d2, d3] = addresses;
        Ok(Self {
            source: IpAddr::V4([s0, s1, s2, s3].into()),
            destination: IpAddr::V4([d0, d1, d2, d3].into()),
            protocol: protocol.into(),
            ecn: service & 0b11,
            hop_limit,
            header_len,
            total_len,
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

/// The checksum's sum over the options of an IPv4 header.
#[cold]
fn options_sum(header: &[u8]) -> u32 {
    checksum::sum(&header[IPV4_LEN..])
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
