//! The peer that HOST names: one that can be reached over a port of this end.

use std::net::IpAddr;

use control::address;
use tcpstack::addr::{IpCidr, is_link_local};

use crate::cli::LocalAddress;

/// Why HOST cannot be a peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A name without an address.
    #[error("{0}: no address known for it")]
    Unknown(String),
    /// Addresses of the other version only.
    #[error("HOST {address} and --local {local} are of different IP versions")]
    Version {
        /// Of HOST.
        address: IpAddr,
        /// This end's.
        local: IpAddr,
    },
    /// The address of no other host.
    #[error("HOST {address} is {kind}: give the address of a peer on the port's network{}", loopback(*address))]
    NotAHost {
        /// Of HOST.
        address: IpAddr,
        /// What it is instead.
        kind: &'static str,
    },
    /// This end itself.
    #[error("HOST {0} is --local itself: give the peer's address, or use --loopback")]
    Itself(IpAddr),
    /// Beyond the link, and no way there.
    #[error("HOST {address} is not in the network of --local {}/{}: give the router with --gateway, or another prefix", local.address, local.prefix)]
    Beyond {
        /// Of HOST.
        address: IpAddr,
        /// This end.
        local: LocalAddress,
    },
}

fn loopback(address: IpAddr) -> &'static str {
    if address.is_loopback() { ", or use --loopback" } else { "" }
}

/// Chooses among a host's addresses one that `local` can reach.
///
/// # Errors
/// Why there is none.
pub fn choose(
    host: &str,
    addresses: &[IpAddr],
    local: LocalAddress,
    gateway: Option<IpAddr>,
) -> Result<IpAddr, HostError> {
    let first = addresses.first().ok_or_else(|| HostError::Unknown(host.to_owned()))?;
    let same = addresses.iter().find(|address| address.is_ipv4() == local.address.is_ipv4());
    let address = *same.ok_or(HostError::Version { address: *first, local: local.address })?;
    if address == local.address {
        return Err(HostError::Itself(address));
    }
    let network = local.cidr();
    let near = network.contains(address);
    let kind = if near {
        // With the prefix of its network its broadcast address shows, too.
        let neighbor = IpCidr::new(address, local.prefix).expect("of the same version");
        address::check(neighbor).err().map(|error| error.kind)
    } else {
        address::special(address)
    };
    if let Some(kind) = kind {
        return Err(HostError::NotAHost { address, kind });
    }
    let on_link = near || (address.is_ipv6() && is_link_local(address));
    if !on_link && gateway.is_none() {
        return Err(HostError::Beyond { address, local });
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(host: &str, local: &str, gateway: Option<&str>) -> Result<IpAddr, String> {
        let addresses: Vec<IpAddr> = host.split_whitespace().map(|it| it.parse().unwrap()).collect();
        let gateway = gateway.map(|it| it.parse().unwrap());
        choose(host, &addresses, local.parse().unwrap(), gateway).map_err(|error| error.to_string())
    }

    #[test]
    fn peers_on_the_link_and_behind_a_router_are_taken() {
        let taken = |host, local, gateway| choice(host, local, gateway).unwrap().to_string();
        assert_eq!(taken("10.0.0.1", "10.0.0.2/24", None), "10.0.0.1");
        assert_eq!(taken("10.1.0.1", "10.0.0.2/24", Some("10.0.0.254")), "10.1.0.1");
        assert_eq!(taken("10.0.0.0", "10.0.0.1/31", None), "10.0.0.0");
        assert_eq!(taken("10.0.0.1 fd77::1", "fd77::2/64", None), "fd77::1", "of our version");
        assert_eq!(taken("fe80::1", "fd77::2/64", None), "fe80::1", "every link has those");
    }

    #[test]
    fn what_cannot_be_reached_is_refused_with_its_reason() {
        for (host, local, part) in [
            ("127.0.0.1", "10.0.0.2/24", "is a loopback address, which never leaves its machine"),
            ("::1", "fd77::2/64", "or use --loopback"),
            ("10.0.0.2", "10.0.0.2/24", "is --local itself"),
            ("10.0.0.255", "10.0.0.2/24", "is the broadcast address of its network"),
            ("10.0.0.0", "10.0.0.2/24", "is the address of its network itself"),
            ("224.0.0.1", "10.0.0.2/24", "is a multicast address"),
            ("fd77::1", "10.0.0.2/24", "different IP versions"),
            ("10.0.0.1", "fd77::2/64", "different IP versions"),
            ("10.0.1.1", "10.0.0.2/24", "give the router with --gateway"),
            ("", "10.0.0.2/24", "no address known"),
        ] {
            let error = choice(host, local, None).expect_err(host);
            assert!(error.contains(part), "{host}: {error}");
        }
    }
}
