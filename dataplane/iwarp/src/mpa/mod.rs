//! MPA: start-up, and FPDUs in an ordered octet stream (RFC 5044, RFC 6581).
//!
//! [`Initiator`] or [`Responder`] take a connection through the Request and Reply Frames to
//! what both sides [`Negotiated`]; from there a [`Framer`] and a [`Deframer`] carry ULPDUs. No
//! timers: the owner of the connection bounds how long start-up may take.

mod error;
mod profile;

pub use error::MpaError;
pub use profile::{Negotiated, Profile, Revision, Role};

pub use crate::wire::mpa::{RtrKind, RtrKinds};
