//! What one side wants of MPA, and what both agreed on.

use crate::wire::Version;
use crate::wire::mpa::{RtrKind, RtrKinds};

/// The newest MPA revision to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044.
    V1,
    /// RFC 6581: IRD, ORD and the connection model are negotiated.
    #[default]
    V2,
}

impl Revision {
    /// The Rev field's value.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// What to offer to, or accept from, a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Offered by an Initiator; a Responder takes this and older ones.
    pub revision: Revision,
    /// Prefer CRCs. They are used if either side prefers them.
    // req 5044-4.4-1: this is the administrator's wish of 2a; without the peer's, CRCs stay on.
    pub crc: bool,
    /// Require the peer to send Markers.
    pub markers: bool,
    /// As Initiator: ask for the peer-to-peer model (revision 2). A Responder follows its peer.
    pub peer_to_peer: bool,
    /// RTR indications that may be used in the peer-to-peer model; with none, Write is.
    pub rtr: RtrKinds,
    /// Most inbound Reads to serve at a time.
    pub ird: u16,
    /// Most outbound Reads to have outstanding at a time.
    pub ord: u16,
    /// Negotiate `ird` and `ord` (revision 2). If not, the applications see to it that they match
    /// the peer's.
    pub negotiate_depths: bool,
    /// Speak the RDMA Consortium's protocols with a peer of MPA revision 0.
    pub rdmac: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            revision: Revision::V2,
            // req 5044-4.4-3, 5044-1.2-2
            crc: true,
            markers: false,
            peer_to_peer: false,
            rtr: RtrKinds::ALL,
            ird: DEPTH_DEFAULT,
            ord: DEPTH_DEFAULT,
            negotiate_depths: true,
            rdmac: false,
        }
    }
}

impl Profile {
    /// Whether a Request has enhanced connection establishment data.
    pub(super) const fn enhanced(&self) -> bool {
        // req 6581-6-2
        // req 6581-10-3
        matches!(self.revision, Revision::V2) && (self.peer_to_peer || self.negotiate_depths)
    }

    /// The Rev field of a Request.
    pub(super) const fn offered_revision(&self) -> u8 {
        // req 5044-7.1.1-14
        // req 6581-6-3
        if self.enhanced() { Revision::V2.number() } else { Revision::V1.number() }
    }

    /// Whether a Reply of revision 0 will do: those protocols know no peer-to-peer model.
    pub(super) const fn accepts_rdmac(&self) -> bool {
        self.rdmac && !self.peer_to_peer
    }

    /// The RTR indications that may be used; there is one.
    pub(super) const fn usable_rtr(&self) -> RtrKinds {
        if self.rtr.preferred().is_some() { self.rtr } else { RtrKinds::only(RtrKind::Write) }
    }
}

/// Enough Reads to fill a 100 Gbit/s path of 10 microseconds with 4 KiB each.
const DEPTH_DEFAULT: u16 = 32;

/// Which side of the start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sent the MPA Request, and sends the first FPDU.
    Initiator,
    /// Sent the MPA Reply, and sends no FPDU before it received one.
    Responder,
}

/// What both sides use from the first FPDU on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// This side's role.
    pub role: Role,
    /// MPA revision: 0, 1 or 2.
    pub revision: u8,
    /// Generate and check CRCs.
    pub crc: bool,
    /// Put Markers into FPDUs sent.
    pub send_markers: bool,
    /// Expect Markers in FPDUs received.
    pub receive_markers: bool,
    /// Inbound Reads to serve at a time.
    pub ird: u16,
    /// Outbound Reads to have outstanding at a time.
    pub ord: u16,
    /// The FPDU that the Initiator must send first, in the peer-to-peer model.
    pub rtr: Option<RtrKind>,
}

impl Negotiated {
    /// The version that DDP and RDMAP headers carry.
    pub const fn version(&self) -> Version {
        // req 5044-3-9, 5044-appendix-C.1-1
        if self.revision == 0 { Version::Rdmac } else { Version::Ietf }
    }
}
