//! IP and Ethernet addresses: networks, and the groups and addresses derived from others.
//!
//! The address types are `core::net`'s and [`EthernetAddress`]; this adds what the host needs
//! on top: RFC 4291 (IPv6 addresses), RFC 1112 and RFC 2464 (groups on Ethernet).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

pub use smoltcp::wire::EthernetAddress;

/// All nodes on the link (RFC 4291 section 2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// An address and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpCidr {
    addr: IpAddr,
    prefix: u8,
}

impl IpCidr {
    /// `addr` in a network of `prefix` leading bits.
    ///
    /// # Errors
    /// When the prefix is longer than the address.
    pub fn new(addr: IpAddr, prefix: u8) -> Result<Self, CidrError> {
        if prefix > width(addr) {
            return Err(CidrError);
        }
        Ok(Self { addr, prefix })
    }

    /// The address itself, with a prefix of all its bits.
    pub fn host(addr: IpAddr) -> Self {
        Self { addr, prefix: width(addr) }
    }

    /// The address.
    pub fn addr(&self) -> IpAddr {
        self.addr
    }

    /// Length of the network's prefix in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether `other` is in this network; never for the other IP version.
    pub fn contains(&self, other: IpAddr) -> bool {
        let host_bits = u32::from(width(self.addr) - self.prefix);
        match (self.addr, other) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                (ours.to_bits() ^ other.to_bits()).checked_shr(host_bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                (ours.to_bits() ^ other.to_bits()).checked_shr(host_bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// The IPv4 network's broadcast address; none for prefixes of 31 and 32 bits (RFC 3021).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.addr {
            IpAddr::V4(addr) if self.prefix < 31 => {
                let host_mask = u32::MAX.checked_shr(u32::from(self.prefix)).unwrap_or(0);
                Some(Ipv4Addr::from_bits(addr.to_bits() | host_mask))
            }
            _ => None,
        }
    }
}

impl fmt::Display for IpCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}

impl FromStr for IpCidr {
    type Err = CidrError;

    /// `address/prefix`; without a prefix, the address alone.
    fn from_str(text: &str) -> Result<Self, CidrError> {
        let Some((addr, prefix)) = text.split_once('/') else {
            return text.parse().map(Self::host).map_err(|_| CidrError);
        };
        Self::new(addr.parse().map_err(|_| CidrError)?, prefix.parse().map_err(|_| CidrError)?)
    }
}

/// The text or the pair is not an address with a prefix that fits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidrError;

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an IP address with a prefix that fits it, such as 192.0.2.1/24")
    }
}

impl core::error::Error for CidrError {}

/// Whether `addr` can name one host on a network.
pub fn is_unicast(addr: IpAddr) -> bool {
    match addr {
        // Class E (240/4) is out as well, as is "this network" (0/8).
        IpAddr::V4(addr) => (1..224).contains(&addr.octets()[0]) && !addr.is_loopback(),
        IpAddr::V6(addr) => {
            !addr.is_unspecified()
                && !addr.is_multicast()
                && !addr.is_loopback()
                // An IPv4 address in disguise is no host of this link (RFC 4942 section 2.2).
                && addr.to_ipv4_mapped().is_none()
        }
    }
}

/// Whether `addr` is only good on its own link.
pub fn is_link_local(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    }
}

/// The link-local address made from an Ethernet address (RFC 4291 appendix A).
pub fn link_local(mac: EthernetAddress) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    // The EUI-64 has 0xfffe in its middle and the universal/local bit inverted.
    let [hi, lo] = [u16::from_be_bytes([a ^ 0x02, b]), u16::from_be_bytes([c, 0xff])];
    Ipv6Addr::new(0xfe80, 0, 0, 0, hi, lo, u16::from_be_bytes([0xfe, d]), u16::from_be_bytes([e, f]))
}

/// The group that is asked for `addr` (RFC 4291 section 2.7.1).
pub fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., hi, mid, lo] = addr.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(hi), u16::from_be_bytes([mid, lo]))
}

/// The Ethernet group of an IPv6 group (RFC 2464 section 7).
pub fn multicast_mac(group: Ipv6Addr) -> EthernetAddress {
    let [.., a, b, c, d] = group.octets();
    EthernetAddress([0x33, 0x33, a, b, c, d])
}

fn width(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> IpCidr {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_contains_its_hosts_only() {
        assert!(cidr("192.0.2.1/24").contains(ip("192.0.2.255")));
        assert!(!cidr("192.0.2.1/24").contains(ip("192.0.3.1")));
        assert!(cidr("0.0.0.0/0").contains(ip("255.255.255.255")));
        assert!(!cidr("0.0.0.0/0").contains(ip("::1")));
        assert!(cidr("::/0").contains(ip("2001:db8::1")));
        assert!(cidr("2001:db8::1/64").contains(ip("2001:db8::ffff")));
        assert!(!cidr("2001:db8::1/64").contains(ip("2001:db8:0:1::1")));
        assert!(!cidr("192.0.2.1").contains(ip("192.0.2.2")));
    }

    #[test]
    fn broadcast_is_the_last_address_of_a_real_network() {
        assert_eq!(cidr("192.0.2.1/24").broadcast(), Some(Ipv4Addr::new(192, 0, 2, 255)));
        assert_eq!(cidr("10.0.0.1/0").broadcast(), Some(Ipv4Addr::BROADCAST));
        assert_eq!(cidr("192.0.2.1/31").broadcast(), None);
        assert_eq!(cidr("2001:db8::/64").broadcast(), None);
    }

    #[test]
    fn text_round_trips_and_nonsense_is_refused() {
        for text in ["192.0.2.1/24", "2001:db8::1/64", "::/0"] {
            assert_eq!(cidr(text).to_string(), text);
        }
        for text in ["", "/", "192.0.2.1/33", "::/129", "192.0.2/24", "1.2.3.4/x", "1.2.3.4/-1"] {
            assert_eq!(text.parse::<IpCidr>(), Err(CidrError), "{text}");
        }
    }

    #[test]
    fn unicast_leaves_out_what_names_no_host() {
        for good in ["192.0.2.1", "10.255.255.255", "2001:db8::1", "fe80::1"] {
            assert!(is_unicast(ip(good)), "{good}");
        }
        for bad in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "ff02::1",
            "::ffff:1.2.3.4",
        ] {
            assert!(!is_unicast(ip(bad)), "{bad}");
        }
    }

    #[test]
    fn derived_addresses_follow_their_rfcs() {
        let mac = EthernetAddress([0x02, 0x00, 0x5e, 0x10, 0x20, 0x30]);
        assert_eq!(link_local(mac), "fe80::5eff:fe10:2030".parse::<Ipv6Addr>().unwrap());
        let group = solicited_node("fe80::2aa:ff:fe28:9c5a".parse().unwrap());
        assert_eq!(group, "ff02::1:ff28:9c5a".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_mac(group), EthernetAddress([0x33, 0x33, 0xff, 0x28, 0x9c, 0x5a]));
    }
}
