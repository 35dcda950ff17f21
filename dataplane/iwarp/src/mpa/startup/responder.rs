//! The side that sends the MPA Reply.

use super::{Frame, FrameReader, PeerDepths, PrivateDataTooLong, declare, frame, private_data_max};
use crate::mpa::{MpaError, Negotiated, Profile, Role, RtrKind, RtrKinds};
use crate::wire::mpa::{Depth, Enhanced, Header, Kind};

/// Waits for the MPA Request.
#[derive(Debug)]
pub struct Responder {
    profile: Profile,
    reader: FrameReader,
}

impl Responder {
    /// Begins the start-up.
    pub const fn new(profile: Profile) -> Self {
        Self { profile, reader: FrameReader::new(Kind::Request) }
    }

    /// Takes octets of the Request Frame, cut anywhere, until there is a [`Request`].
    ///
    /// Says how many it took: what is behind the Request is left to the caller.
    ///
    /// # Errors
    /// The Request is invalid: close the connection.
    pub fn receive(&mut self, octets: &[u8]) -> Result<(usize, Option<Request>), MpaError> {
        // req 5044-7.1-1: FPDUs begin right behind the frame that is taken here.
        // req 5044-7.1.2-3
        // req 5044-7.1.2-4
        match self.reader.receive(octets)? {
            (consumed, None) => Ok((consumed, None)),
            (consumed, Some(request)) => Ok((consumed, Some(self.request(request)?))),
        }
    }

    fn request(&self, request: Frame) -> Result<Request, MpaError> {
        // req 5044-7.1.1-15
        // req 5044-7.1.1-16
        let supported = match request.header.revision {
            0 => self.profile.rdmac,
            // req 6581-6-4
            // req 6581-10-4
            1 => true,
            // req 6581-10-7
            revision => revision == 2 && self.profile.revision.number() >= 2,
        };
        if !supported {
            return Err(MpaError::Revision(request.header.revision));
        }
        Ok(Request {
            revision: request.header.revision,
            // req 6581-9.1-1
            depths: request.peer_depths(),
            private_data: request.private_data,
            answer: answer(&self.profile, &request.header, request.enhanced),
        })
    }
}

/// A valid MPA Request, to be accepted or rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The Initiator's.
    pub private_data: Vec<u8>,
    /// MPA revision of the Request, and of the Reply.
    pub revision: u8,
    /// The Initiator's IRD and ORD; none without enhanced set-up.
    pub depths: Option<PeerDepths>,
    answer: Answer,
}

/// What the Reply will say, and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    header: Header,
    enhanced: Option<Enhanced>,
    negotiated: Negotiated,
}

impl Request {
    /// The accepting Reply Frame, to be sent in one segment, and what both sides use after it.
    ///
    /// # Errors
    /// See [`Request::private_data_max`].
    pub fn accept(&self, private_data: &[u8]) -> Result<(Vec<u8>, Negotiated), PrivateDataTooLong> {
        // req 5044-7.1.2-6, 5044-7.1.2-7
        let reply = frame(self.answer.header, self.answer.enhanced, private_data)?;
        Ok((reply, self.answer.negotiated))
    }

    /// The rejecting Reply Frame; MPA ends with it.
    ///
    /// # Errors
    /// See [`Request::private_data_max`].
    pub fn reject(&self, private_data: &[u8]) -> Result<Vec<u8>, PrivateDataTooLong> {
        // req 5044-7.1.2-5
        // req 5044-7.1.2-15
        frame(Header { rejected: true, ..self.answer.header }, self.answer.enhanced, private_data)
    }

    /// Most private data of an application in the Reply.
    pub const fn private_data_max(&self) -> usize {
        private_data_max(self.answer.enhanced.is_some())
    }

    /// What both sides will use if the Request is accepted.
    pub const fn negotiated(&self) -> Negotiated {
        self.answer.negotiated
    }
}

fn answer(profile: &Profile, request: &Header, enhanced: Option<Enhanced>) -> Answer {
    // RFC 5044 appendix C.2.4: the RDMA Consortium's protocols always have both.
    let rdmac = request.revision == 0;
    // req 5044-7.1.1-11, 5044-4.4-6, 5044-4.4-7, 5044-appendix-C.1-2
    let crc = profile.crc || request.crc || rdmac;
    let rtr = enhanced.and_then(|request| request.peer_to_peer).map(|offered| choose_rtr(profile, offered));
    let mut negotiated = Negotiated {
        role: Role::Responder,
        revision: request.revision,
        crc,
        // req 5044-7.1.1-5, 5044-7.1.1-6
        // req 5044-7.1.1-8
        // req 5044-7.1.1-9
        send_markers: request.markers || rdmac,
        receive_markers: profile.markers || rdmac,
        ird: profile.ird,
        ord: profile.ord,
        rtr,
    };
    // req 6581-10-1
    // req 6581-10-2
    // req 6581-10-5
    // req 6581-10-6
    let enhanced = enhanced.map(|request| {
        let (ird, ord) = answer_depths(profile, request, &mut negotiated);
        // req 6581-9.2-4
        // req 6581-9.2-13
        Enhanced { ird, ord, peer_to_peer: rtr.map(RtrKinds::only) }
    });
    let header = Header {
        kind: Kind::Reply,
        markers: negotiated.receive_markers,
        // Some Initiators that set C insist on seeing it; it changes nothing for the others.
        crc,
        rejected: false,
        enhanced: enhanced.is_some(),
        revision: request.revision,
        private_data_len: 0,
    };
    Answer { header, enhanced, negotiated }
}

/// The one RTR indication that the Reply asks for.
fn choose_rtr(profile: &Profile, offered: RtrKinds) -> RtrKind {
    let usable = profile.usable_rtr();
    // req 6581-9.2-5
    // req 6581-9.2-6
    // req 6581-9.2-8: with none in common one is named, and the Initiator will give up.
    let common = offered.intersection(usable).preferred();
    // req 6581-9.2-3
    common.or(usable.preferred()).unwrap_or(RtrKind::Write)
}

/// The IRD and ORD of the Reply, and what this side uses itself.
fn answer_depths(profile: &Profile, request: Enhanced, negotiated: &mut Negotiated) -> (Depth, Depth) {
    let peer_ird = request.ird.negotiated().filter(|_| profile.negotiate_depths);
    let peer_ord = request.ord.negotiated().filter(|_| profile.negotiate_depths);
    // req 6581-9.1-2
    // req 6581-9.1-4
    if let Some(peer_ird) = peer_ird {
        negotiated.ord = negotiated.ord.min(peer_ird);
    }
    if let Some(peer_ord) = peer_ord {
        negotiated.ird = negotiated.ird.min(peer_ord);
    }
    // req 6581-9.1-3: a Read needs a place, even if it is only to say "ready".
    if negotiated.rtr == Some(RtrKind::Read) {
        negotiated.ird = negotiated.ird.max(1);
    }
    // req 6581-9.1-11
    // req 6581-9.1-13
    (declare(negotiated.ird, peer_ord.is_some()), declare(negotiated.ord, peer_ird.is_some()))
}
