//! The side that sends the MPA Request.

use super::{Frame, FrameReader, PeerDepths, PrivateDataTooLong, declare, frame, private_data_max};
use crate::mpa::{Framer, MpaError, Negotiated, Profile, Role, RtrKind};
use crate::wire::ddp;
use crate::wire::mpa::{Enhanced, Header, Kind};
use crate::wire::rdmap::{Opcode, QUEUE_TERMINATE};
use crate::wire::terminate::Terminate;

/// Waits for the MPA Reply.
#[derive(Debug)]
pub struct Initiator {
    profile: Profile,
    reader: FrameReader,
}

/// What the MPA Reply came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InitiatorOutcome {
    /// Full Operation begins; what follows the Reply are FPDUs.
    Accepted {
        /// What both sides use.
        negotiated: Negotiated,
        /// The Responder's.
        private_data: Vec<u8>,
        /// The Responder's IRD and ORD; none without enhanced set-up.
        depths: Option<PeerDepths>,
    },
    /// The Responder's application rejected the connection; TCP stays open.
    Rejected {
        /// The Responder's.
        private_data: Vec<u8>,
        /// The Responder's IRD and ORD; none without enhanced set-up.
        depths: Option<PeerDepths>,
        /// The Reply's; if it is below the Request's, that may be why.
        revision: u8,
    },
    /// The Responder accepted on terms that this side can't meet: send `terminate`, then close.
    Disagreed {
        /// Why.
        error: MpaError,
        /// An FPDU that says so.
        terminate: Vec<u8>,
    },
}

impl Initiator {
    /// Begins the start-up; gives the Request Frame to send, in one segment.
    ///
    /// # Errors
    /// See [`Profile::private_data_max`].
    pub fn start(profile: Profile, private_data: &[u8]) -> Result<(Self, Vec<u8>), PrivateDataTooLong> {
        // req 5044-7.1.2-1
        // req 5044-7.1.2-2
        let header = Header {
            kind: Kind::Request,
            markers: profile.markers,
            crc: profile.crc,
            rejected: false,
            enhanced: profile.enhanced(),
            revision: profile.offered_revision(),
            private_data_len: 0,
        };
        // req 6581-9.2-1
        // req 6581-9.2-2
        // req 6581-9.2-12
        let enhanced = profile.enhanced().then(|| Enhanced {
            ird: declare(profile.ird, profile.negotiate_depths),
            ord: declare(profile.ord, profile.negotiate_depths),
            peer_to_peer: profile.peer_to_peer.then(|| profile.usable_rtr()),
        });
        let request = frame(header, enhanced, private_data)?;
        Ok((Self { profile, reader: FrameReader::new(Kind::Reply) }, request))
    }

    /// Takes octets of the Reply Frame, cut anywhere, until there is an outcome.
    ///
    /// Says how many it took: what is behind the Reply is left to the caller.
    ///
    /// # Errors
    /// The Reply is invalid: close the connection.
    pub fn receive(&mut self, octets: &[u8]) -> Result<(usize, Option<InitiatorOutcome>), MpaError> {
        // req 5044-7.1.2-8
        // req 5044-7.1.2-9
        match self.reader.receive(octets)? {
            (consumed, None) => Ok((consumed, None)),
            (consumed, Some(reply)) => Ok((consumed, Some(self.outcome(reply)?))),
        }
    }

    fn outcome(&self, reply: Frame) -> Result<InitiatorOutcome, MpaError> {
        let depths = reply.peer_depths();
        let revision = reply.header.revision;
        // req 5044-7.1.2-10
        // req 6581-9.1-10
        if reply.header.rejected && revision <= self.profile.offered_revision() {
            return Ok(InitiatorOutcome::Rejected { private_data: reply.private_data, depths, revision });
        }
        let (negotiated, agreed) = if revision == 0 && self.profile.accepts_rdmac() {
            (self.rdmac(), Ok(()))
        } else {
            self.agree(&reply)?
        };
        // req 6581-9.1-8
        // req 6581-9.2-10
        Ok(match agreed {
            // req 5044-7.1.2-11
            Ok(()) => InitiatorOutcome::Accepted { negotiated, private_data: reply.private_data, depths },
            Err(error) => InitiatorOutcome::Disagreed { error, terminate: terminate(&negotiated, error) },
        })
    }

    /// What a Reply of the offered revision comes to, and whether this side can do that.
    fn agree(&self, reply: &Frame) -> Result<(Negotiated, Result<(), MpaError>), MpaError> {
        // req 5044-7.1.1-15
        // req 5044-7.1.1-16
        if reply.header.revision != self.profile.offered_revision() {
            return Err(MpaError::Revision(reply.header.revision));
        }
        if self.profile.enhanced() && reply.enhanced.is_none() {
            return Err(MpaError::NotEnhanced);
        }
        let mut negotiated = Negotiated {
            role: Role::Initiator,
            revision: reply.header.revision,
            // req 5044-7.1.1-10, 5044-7.1.1-11, 5044-4.4-6, 5044-4.4-7
            crc: self.profile.crc || reply.header.crc,
            // req 5044-7.1.1-7
            // req 5044-7.1.1-8
            // req 5044-7.1.1-9
            send_markers: reply.header.markers,
            receive_markers: self.profile.markers,
            ird: self.profile.ird,
            ord: self.profile.ord,
            rtr: None,
        };
        let Some(enhanced) = reply.enhanced.filter(|_| self.profile.enhanced()) else {
            return Ok((negotiated, Ok(())));
        };
        let mut agreed = self.agree_rtr(enhanced, &mut negotiated);
        if agreed.is_ok() {
            agreed = self.agree_depths(enhanced, &mut negotiated);
        }
        Ok((negotiated, agreed))
    }

    fn agree_rtr(&self, reply: Enhanced, negotiated: &mut Negotiated) -> Result<(), MpaError> {
        // req 6581-9.2-9: what the Reply chose counts, not what was offered.
        negotiated.rtr = match reply.peer_to_peer {
            Some(chosen) if self.profile.peer_to_peer => {
                let usable = chosen.intersection(self.profile.usable_rtr());
                Some(usable.preferred().ok_or(MpaError::NoMatchingRtr)?)
            }
            None if !self.profile.peer_to_peer => None,
            _ => return Err(MpaError::NoMatchingRtr),
        };
        Ok(())
    }

    fn agree_depths(&self, reply: Enhanced, negotiated: &mut Negotiated) -> Result<(), MpaError> {
        // req 6581-9.1-12
        // req 6581-9.1-14
        // req 6581-9.1-7
        if let Some(peer_ird) = reply.ird.negotiated().filter(|_| self.profile.negotiate_depths) {
            negotiated.ord = negotiated.ord.min(peer_ird);
        }
        if let Some(peer_ord) = reply.ord.negotiated().filter(|_| self.profile.negotiate_depths) {
            if peer_ord > negotiated.ird {
                return Err(MpaError::InsufficientIrd);
            }
            negotiated.ird = peer_ord;
        }
        // A Responder that chose Read has a place for it, whatever depths it declared.
        if negotiated.rtr == Some(RtrKind::Read) {
            negotiated.ord = negotiated.ord.max(1);
        }
        Ok(())
    }

    /// With a Responder of the RDMA Consortium's protocols (RFC 5044 appendix C.2.5).
    const fn rdmac(&self) -> Negotiated {
        Negotiated {
            role: Role::Initiator,
            revision: 0,
            crc: true,
            send_markers: true,
            receive_markers: true,
            ird: self.profile.ird,
            ord: self.profile.ord,
            rtr: None,
        }
    }
}

impl Profile {
    /// Most private data of an application in a Request.
    pub const fn private_data_max(&self) -> usize {
        private_data_max(self.enhanced())
    }
}

/// The first and only FPDU of a connection that can't be agreed on.
fn terminate(negotiated: &Negotiated, error: MpaError) -> Vec<u8> {
    let version = negotiated.version();
    let terminate = Terminate { code: error.terminate_code(), cause: None }.emit();
    let header = ddp::Header::Untagged {
        last: true,
        ulp_control: Opcode::Terminate.control(version),
        ulp_word: 0,
        queue: QUEUE_TERMINATE,
        msn: 1,
        offset: 0,
    };
    let len = header.len() + terminate.len();
    let mut framer = Framer::new(negotiated.crc, negotiated.send_markers);
    let mut fpdu = vec![0; framer.fpdu_len(len)];
    framer.frame(&mut fpdu, len, |out| {
        let at = header.emit(out, version);
        out[at..].copy_from_slice(&terminate);
    });
    fpdu
}
