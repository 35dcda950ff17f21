//! How a peer broke MPA, and what it is told.

use core::fmt;

use crate::wire::terminate::{Mpa, TerminateCode};

/// A violation of MPA by the peer, or an offer of it that can't be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpaError {
    /// What arrived does not begin with an MPA key.
    BadKey,
    /// A frame of this side's own role arrived: both are Initiators, or both Responders.
    SameRole,
    /// PD_Length can't be right.
    PrivateDataLength(u16),
    /// The peer's revision is not one that the profile allows.
    Revision(u8),
    /// The reply to an enhanced request is not enhanced.
    NotEnhanced,
    /// The peer wants more inbound Reads than there are resources for.
    InsufficientIrd,
    /// The sides can't agree on the connection model or an RTR indication.
    NoMatchingRtr,
    /// An FPDU's CRC is wrong.
    Crc,
    /// A Marker does not point to the FPDU that it is in.
    Marker,
}

impl MpaError {
    /// What a Terminate says about this.
    pub const fn terminate_code(self) -> TerminateCode {
        // req 5044-8-1
        TerminateCode::Mpa(match self {
            Self::BadKey
            | Self::SameRole
            | Self::PrivateDataLength(_)
            | Self::Revision(_)
            | Self::NotEnhanced => Mpa::InvalidStartup,
            // req 6581-9.1-6, 6581-9.1-9
            Self::InsufficientIrd => Mpa::InsufficientIrd,
            // req 6581-9.2-11
            Self::NoMatchingRtr => Mpa::NoMatchingRtr,
            Self::Crc => Mpa::Crc,
            Self::Marker => Mpa::MarkerMismatch,
        })
    }
}

impl fmt::Display for MpaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadKey => f.write_str("not an MPA frame"),
            Self::SameRole => f.write_str("the peer started MPA in the same role"),
            Self::PrivateDataLength(len) => write!(f, "impossible MPA private data length {len}"),
            Self::Revision(revision) => write!(f, "MPA revision {revision} is not supported"),
            Self::NotEnhanced => f.write_str("the MPA Reply lacks IRD and ORD"),
            Self::InsufficientIrd => f.write_str("the peer wants more inbound Reads than allowed"),
            Self::NoMatchingRtr => f.write_str("no common connection model or RTR indication"),
            Self::Crc => f.write_str("MPA CRC error"),
            Self::Marker => f.write_str("MPA marker and ULPDU length disagree"),
        }
    }
}

impl core::error::Error for MpaError {}
