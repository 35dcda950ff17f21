//! Values of options: numbers of octets, and addresses.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use control::services::{perf, rping};
use tcpstack::addr::IpCidr;

/// A number of octets: `64`, `64k`, `8m`, in powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Octets(pub u32);

/// The size of a test's messages.
pub(super) fn test_size(text: &str) -> Result<Octets, String> {
    octets(text, 1..=perf::message::SIZE_MAX)
}

/// The size of a round of rping.
pub(super) fn round_size(text: &str) -> Result<Octets, String> {
    octets(text, rping::SIZE_MIN..=rping::SIZE_MAX)
}

fn octets(text: &str, range: RangeInclusive<u32>) -> Result<Octets, String> {
    let shift = match text.as_bytes().last() {
        Some(b'k' | b'K') => 10,
        Some(b'm' | b'M') => 20,
        _ => 0,
    };
    let digits = &text[..text.len() - usize::from(shift > 0)];
    let octets = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    octets
        .and_then(|octets| u32::try_from(octets).ok())
        .filter(|octets| range.contains(octets))
        .map(Octets)
        .ok_or_else(|| format!("octets from {} to {}, e.g. 64 or 64k", range.start(), range.end()))
}

/// An address of the port and its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub address: IpAddr,
    /// Leading bits that its link's addresses share.
    pub prefix: u8,
}

impl LocalAddress {
    /// The address with its network.
    ///
    /// # Panics
    /// When the prefix is longer than the address, which one that was parsed is not.
    pub fn cidr(self) -> IpCidr {
        IpCidr::new(self.address, self.prefix).expect("the prefix fits the address")
    }
}

impl FromStr for LocalAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| format!("{address}: not an IP address"))?;
        let (usual, most) = if address.is_ipv4() { (24, 32) } else { (64, 128) };
        let prefix = match prefix {
            None => usual,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|&prefix| prefix <= most)
                .ok_or_else(|| format!("{prefix}: not a prefix length up to {most}"))?,
        };
        Ok(Self { address, prefix })
    }
}
