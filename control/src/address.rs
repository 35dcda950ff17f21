//! Which addresses a port can have: those of one host on a network.

use std::net::IpAddr;

use tcpstack::addr::{self, IpCidr};

/// An address that no host on a network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} cannot be the address of a host: it is {kind}")]
pub struct AddressError {
    /// The address with its network.
    pub address: IpCidr,
    /// What it is instead.
    pub kind: &'static str,
}

/// Refuses what cannot be the address of a port.
///
/// # Errors
/// Says what the address is instead.
pub fn check(address: IpCidr) -> Result<(), AddressError> {
    let host = address.addr();
    let kind = if let Some(kind) = special(host) {
        kind
    } else if address.broadcast().map(IpAddr::V4) == Some(host) {
        "the broadcast address of its network"
    } else if is_network(address) {
        "the address of its network itself"
    } else {
        return Ok(());
    };
    Err(AddressError { address, kind })
}

/// What an address is that names no single host beyond this machine; `None` for one that does.
pub fn special(address: IpAddr) -> Option<&'static str> {
    if addr::is_unicast(address) {
        return None;
    }
    Some(match address {
        address if address.is_unspecified() => "no address at all",
        address if address.is_loopback() => "a loopback address, which never leaves its machine",
        address if address.is_multicast() => "a multicast address",
        IpAddr::V4(address) if address.is_broadcast() => "the broadcast address",
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => "an IPv4 address in disguise",
        _ => "reserved",
    })
}

/// All host bits are zero: the network in IPv4, its routers' anycast in IPv6 (RFC 4291 section 2.6.1).
/// Networks of two addresses or one use them all (RFC 3021, RFC 6164).
fn is_network(address: IpCidr) -> bool {
    match address.addr() {
        IpAddr::V4(host) => {
            address.prefix() < 31
                && host.to_bits() & u32::MAX.checked_shr(address.prefix().into()).unwrap_or(0) == 0
        }
        IpAddr::V6(host) => {
            address.prefix() < 127
                && host.to_bits() & u128::MAX.checked_shr(address.prefix().into()).unwrap_or(0) == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<&'static str> {
        check(text.parse().unwrap()).err().map(|error| error.kind)
    }

    #[test]
    fn hosts_pass() {
        for host in ["10.77.0.1/24", "10.0.0.0/31", "10.0.0.1/31", "10.0.0.0/32", "fd77::1/64", "fd77::/127"]
        {
            assert_eq!(kind(host), None, "{host}");
        }
    }

    #[test]
    fn what_is_no_host_is_named() {
        for (address, part) in [
            ("127.0.0.1/8", "loopback"),
            ("::1/128", "loopback"),
            ("10.77.0.0/24", "network itself"),
            ("fd77::/64", "network itself"),
            ("10.77.0.255/24", "broadcast"),
            ("255.255.255.255/32", "broadcast"),
            ("224.0.0.1/4", "multicast"),
            ("ff02::1/64", "multicast"),
            ("0.0.0.0/0", "no address"),
            ("::/0", "no address"),
            ("240.0.0.1/8", "reserved"),
            ("::ffff:10.0.0.1/96", "disguise"),
        ] {
            assert!(kind(address).is_some_and(|kind| kind.contains(part)), "{address}: {:?}", kind(address));
        }
    }
}
