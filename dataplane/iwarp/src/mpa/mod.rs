//! MPA: start-up, and FPDUs in an ordered octet stream (RFC 5044, RFC 6581).
//!
//! [`Initiator`] or [`Responder`] take a connection through the Request and Reply Frames to
//! what both sides [`Negotiated`]; from there a [`Framer`] and a [`Deframer`] carry ULPDUs. No
//! timers: the owner of the connection bounds how long start-up may take.

mod deframer;
mod error;
mod fpdu;
mod framer;
mod held;
mod profile;
mod startup;
#[cfg(test)]
mod tests;

pub use deframer::{Deframer, Front, Pieces, Ulpdu};
pub use error::MpaError;
pub use framer::{Framer, MULPDU_MAX, MULPDU_MIN};
pub use profile::{Negotiated, Profile, Revision, Role};
pub use startup::{Initiator, InitiatorOutcome, PeerDepths, PrivateDataTooLong, Request, Responder};

pub use crate::wire::mpa::{RtrKind, RtrKinds};

/// Octets that arrived together, with the buffer that they are in; dropping it gives the
/// buffer back.
pub trait Segment {
    /// The octets; the same with each call.
    fn octets(&self) -> &[u8];
}

impl Segment for Vec<u8> {
    fn octets(&self) -> &[u8] {
        self
    }
}
