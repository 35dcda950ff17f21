//! rdma-core's `rping`, both sides, octet for octet.
//!
//! The client offers data, the server reads it, and writes it back:
//!
//! ```text
//! client                                server
//!   | -- Send: source (offset, STag, size) --> |
//!   | <------ RDMA Read Request -------------- |
//!   | ------- RDMA Read Response ------------> |
//!   | <------ Send: go ahead ----------------- |
//!   | -- Send: sink (offset, STag, size) ----> |
//!   | <------ RDMA Write --------------------- |
//!   | <------ Send: written ------------------ |
//! ```
//!
//! and so on, round after round, until the client closes. All Sends have 16 octets; of the server's only
//! the arrival counts.

pub mod client;
pub mod server;

#[cfg(test)]
mod tests;

use iwarp::types::Stag;

/// Octets of each Send.
pub const ADVERTISEMENT_LEN: u32 = 16;

/// The TCP port that `rping` uses unless it is told another one.
pub const TCP_PORT_DEFAULT: u16 = 7174;

/// Most octets of a round, for which a server keeps room; `rping` itself offers up to 65,535.
pub const SIZE_MAX: u32 = 65_536;

/// Least octets that `rping` takes for a round.
pub const SIZE_MIN: u32 = 26;

/// Where the peer's data is, or has to go.
///
/// ```text
///  0               8           12          16
///  | Tagged Offset | STag      | size      |     all in network byte order
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Tagged Offset of the first octet.
    pub offset: u64,
    /// The buffer.
    pub stag: Stag,
    /// Octets.
    pub size: u32,
}

impl Advertisement {
    /// Reads it from a Send.
    pub fn parse(octets: &[u8; ADVERTISEMENT_LEN as usize]) -> Self {
        let [a, b, c, d, e, f, g, h, s0, s1, s2, s3, l0, l1, l2, l3] = *octets;
        Self {
            offset: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            stag: Stag(u32::from_be_bytes([s0, s1, s2, s3])),
            size: u32::from_be_bytes([l0, l1, l2, l3]),
        }
    }

    /// Its octets, for a Send.
    pub fn emit(&self) -> [u8; ADVERTISEMENT_LEN as usize] {
        let mut octets = [0; ADVERTISEMENT_LEN as usize];
        octets[..8].copy_from_slice(&self.offset.to_be_bytes());
        octets[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        octets[12..].copy_from_slice(&self.size.to_be_bytes());
        octets
    }
}

/// The data of round `round`, in `out`: a text with the round's number, then letters that move on by
/// one each round, then a zero octet, as `rping` makes it.
pub fn fill_pattern(round: u64, out: &mut [u8]) {
    let text = format!("rdma-ping-{round}: ");
    let first = round % LETTERS;
    for (index, octet) in out.iter_mut().enumerate() {
        *octet = match text.as_bytes().get(index) {
            Some(letter) => *letter,
            None => letter(first + (index - text.len()) as u64),
        };
    }
    if let Some(last) = out.last_mut() {
        *last = 0;
    }
}

/// `A` to `z`, with what is between them.
const LETTERS: u64 = 122 - 65 + 1;

fn letter(index: u64) -> u8 {
    65 + u8::try_from(index % LETTERS).expect("LETTERS is less than 256")
}
