//! The Startup Phase (RFC 5044 section 7.1, RFC 6581), with a type for each state.
//!
//! ```text
//! Initiator --- Request ---> Responder
//!     |                          | receive
//!     |                       Request      for the application to accept or reject
//!     | receive <--- Reply ---   |
//! InitiatorOutcome           Negotiated
//! ```
//!
//! IRD and ORD cross: what one side declares as ORD is meant for the other side's IRD.

mod initiator;
mod responder;
#[cfg(test)]
mod tests;

pub use initiator::{Initiator, InitiatorOutcome};
pub use responder::{Request, Responder};

use core::fmt;

use super::MpaError;
use crate::wire::mpa::{Depth, ENHANCED_LEN, Enhanced, FormatError, HEADER_LEN, Header, Kind};
use crate::wire::mpa::{FRAME_LEN_MAX, PRIVATE_DATA_MAX};

/// The depths that the peer declared; `None` is for its application to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerDepths {
    /// The peer's IRD.
    pub ird: Option<u16>,
    /// The peer's ORD.
    pub ord: Option<u16>,
}

/// Private data that no frame can carry; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateDataTooLong {
    /// Octets that it can carry.
    pub max: usize,
}

impl fmt::Display for PrivateDataTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "private data is longer than {} octets", self.max)
    }
}

impl core::error::Error for PrivateDataTooLong {}

/// Most private data of an application in a frame with or without enhanced data.
const fn private_data_max(enhanced: bool) -> usize {
    if enhanced { PRIVATE_DATA_MAX - ENHANCED_LEN } else { PRIVATE_DATA_MAX }
}

/// A whole frame that was received.
struct Frame {
    header: Header,
    enhanced: Option<Enhanced>,
    private_data: Vec<u8>,
}

impl Frame {
    fn peer_depths(&self) -> Option<PeerDepths> {
        let enhanced = self.enhanced?;
        Some(PeerDepths { ird: enhanced.ird.negotiated(), ord: enhanced.ord.negotiated() })
    }
}

/// Makes a frame; `header`'s length and S bit are set to what follows.
fn frame(
    mut header: Header,
    enhanced: Option<Enhanced>,
    private_data: &[u8],
) -> Result<Vec<u8>, PrivateDataTooLong> {
    header.enhanced = enhanced.is_some();
    // req 5044-7.1.1-19
    let max = private_data_max(header.enhanced);
    if private_data.len() > max {
        return Err(PrivateDataTooLong { max });
    }
    let enhanced = enhanced.map(|data| data.emit());
    let enhanced = enhanced.as_ref().map_or(&[][..], |data| data);
    // req 5044-7.1.1-17
    header.private_data_len =
        u16::try_from(enhanced.len() + private_data.len()).expect("at most PRIVATE_DATA_MAX");
    // req 6581-6-5
    Ok([&header.emit()[..], enhanced, private_data].concat())
}

/// Collects one frame from octets cut anywhere.
#[derive(Debug)]
struct FrameReader {
    expected: Kind,
    /// At most [`FRAME_LEN_MAX`].
    octets: Vec<u8>,
}

impl FrameReader {
    const fn new(expected: Kind) -> Self {
        Self { expected, octets: Vec::new() }
    }

    /// Takes the octets of the frame and none behind it; says how many it took.
    fn receive(&mut self, octets: &[u8]) -> Result<(usize, Option<Frame>), MpaError> {
        let in_header = self.take(octets, HEADER_LEN);
        self.check_key()?;
        let Some(fixed) = self.octets.first_chunk::<HEADER_LEN>() else {
            return Ok((in_header, None));
        };
        let header = Header::parse(fixed).map_err(|error| match error {
            FormatError::Key => MpaError::BadKey,
            FormatError::PrivateDataLength(len) => MpaError::PrivateDataLength(len),
        })?;
        let len = header.frame_len();
        // req 5044-7.1.2-19
        // req 5044-7.1.2-20
        debug_assert!(len <= FRAME_LEN_MAX, "parse refuses a longer one");
        let consumed = in_header + self.take(&octets[in_header..], len);
        if self.octets.len() < len {
            return Ok((consumed, None));
        }
        let mut private_data = core::mem::take(&mut self.octets).split_off(HEADER_LEN);
        let enhanced = header.enhanced.then(|| {
            let ulp = private_data.split_off(ENHANCED_LEN);
            let enhanced = core::mem::replace(&mut private_data, ulp);
            Enhanced::parse(enhanced.try_into().expect("split off at this length"))
        });
        Ok((consumed, Some(Frame { header, enhanced, private_data })))
    }

    /// Takes octets until there are `len`.
    fn take(&mut self, octets: &[u8], len: usize) -> usize {
        let count = octets.len().min(len.saturating_sub(self.octets.len()));
        self.octets.extend_from_slice(&octets[..count]);
        count
    }

    /// Checks as much of the key as is here: a peer of another protocol need not send it all.
    fn check_key(&self) -> Result<(), MpaError> {
        let (expected, other) = match self.expected {
            Kind::Request => (Kind::Request, Kind::Reply),
            Kind::Reply => (Kind::Reply, Kind::Request),
        };
        let wrong = self.octets.iter().zip(expected.key()).position(|(octet, of_key)| octet != of_key);
        // req 5044-7.1.1-2
        // req 5044-7.1.1-4
        // req 5044-7.1.2-13
        // req 5044-7.1.2-16
        let Some(wrong) = wrong else { return Ok(()) };
        // What follows the first wrong octet does not count, as it may not be here yet.
        if self.octets[wrong] == other.key()[wrong] && self.octets[..wrong] == other.key()[..wrong] {
            Err(MpaError::SameRole)
        } else {
            Err(MpaError::BadKey)
        }
    }
}

/// Declares a depth, or that it is not negotiated.
const fn declare(depth: u16, negotiate: bool) -> Depth {
    if negotiate { Depth::new(depth) } else { Depth::NOT_NEGOTIATED }
}
