//! MPA start-up in both roles: input chooses a profile, then the frame of a peer and how it is cut.

use arbitrary::{Result, Unstructured};
use iwarp::mpa::{
    Deframer, Initiator, InitiatorOutcome, Negotiated, Profile, Request, Responder, Revision, Role, RtrKind,
    RtrKinds,
};
use iwarp::wire::ddp::Header as DdpHeader;
use iwarp::wire::mpa::{
    ENHANCED_LEN, Enhanced, FRAME_LEN_MAX, HEADER_LEN, Header, Kind, PRIVATE_DATA_MAX, RtrKinds as Kinds,
};
use iwarp::wire::terminate::Terminate;

pub(super) fn run(input: &[u8]) {
    // An input that ends early has said enough.
    let _ = play(&mut Unstructured::new(input));
}

fn play(u: &mut Unstructured<'_>) -> Result<()> {
    let profile = profile(u)?;
    let initiates = u.arbitrary()?;
    let cut = usize::from(u.arbitrary::<u8>()?);
    let frame = frame(u, if initiates { Kind::Reply } else { Kind::Request })?;
    if initiates {
        as_initiator(&profile, &frame, cut);
    } else {
        as_responder(&profile, &frame, cut);
    }
    Ok(())
}

pub(super) fn profile(u: &mut Unstructured<'_>) -> Result<Profile> {
    let flags = u.arbitrary::<u8>()?;
    let rtr = u.arbitrary::<u8>()?;
    let has = |bit: u8| flags & 1 << bit != 0;
    Ok(Profile {
        revision: if has(0) { Revision::V2 } else { Revision::V1 },
        crc: has(1),
        markers: has(2),
        peer_to_peer: has(3),
        negotiate_depths: has(4),
        rdmac: has(5),
        rtr: RtrKinds { send: rtr & 1 != 0, write: rtr & 2 != 0, read: rtr & 4 != 0 },
        ird: u.int_in_range(0..=5)?,
        ord: u.int_in_range(0..=5)?,
    })
}

/// A frame with a good key and length, or any octets.
fn frame(u: &mut Unstructured<'_>, kind: Kind) -> Result<Vec<u8>> {
    if u.ratio(1, 4)? {
        return Ok(u.bytes(u.len())?.to_vec());
    }
    let header = Header {
        kind,
        markers: u.arbitrary()?,
        crc: u.arbitrary()?,
        rejected: u.ratio(1, 4)?,
        enhanced: u.arbitrary()?,
        revision: u.int_in_range(0..=3)?,
        private_data_len: 0,
    };
    let private_data = u.bytes(u.len())?;
    let private_data_len = private_data.len().min(PRIVATE_DATA_MAX + 1);
    let header = Header { private_data_len: u16::try_from(private_data_len).unwrap(), ..header };
    // All that was asked for, and what may follow.
    Ok([&header.emit()[..], private_data].concat())
}

fn as_responder(profile: &Profile, frame: &[u8], cut: usize) {
    let receive = |pieces: [&[u8]; 2]| {
        let mut responder = Responder::new(profile.clone());
        in_pieces(pieces, |piece| responder.receive(piece))
    };
    let (first, second) = frame.split_at(cut.min(frame.len()));
    let outcome = receive([first, second]);
    assert_eq!(outcome, receive([frame, &[]]), "however it is cut");
    let Ok((consumed, Some(request))) = outcome else { return };
    assert_eq!(consumed, frame_len(frame));
    assert!(request.private_data.len() <= PRIVATE_DATA_MAX);
    assert!(request.revision <= profile.revision.number());
    assert!(request.revision > 0 || profile.rdmac);

    let (reply, negotiated) = request.accept(&[]).expect("no private data fits");
    let requested = Header::parse(frame.first_chunk().unwrap()).unwrap();
    let header = assert_reply(&reply, &request);
    assert!(!header.rejected);
    assert_eq!(header.enhanced, requested.enhanced);
    assert_negotiated(profile, &negotiated, Role::Responder);
    assert_eq!(negotiated.revision, request.revision);
    if request.revision > 0 {
        assert_eq!(negotiated.crc, profile.crc || requested.crc);
        assert_eq!(negotiated.send_markers, requested.markers);
        assert_eq!(negotiated.receive_markers, profile.markers);
    }
    if header.enhanced {
        // One kind at most is chosen, of those that were offered where there was a choice.
        let chosen = Enhanced::parse(*reply[HEADER_LEN..].first_chunk().unwrap()).peer_to_peer;
        let offered = Enhanced::parse(*frame[HEADER_LEN..].first_chunk().unwrap()).peer_to_peer;
        assert_eq!(chosen.is_some(), offered.is_some());
        assert_eq!(chosen.and_then(Kinds::preferred), negotiated.rtr);
        assert!(chosen.is_none_or(|chosen| count(chosen) <= 1));
    }
    let rejection = request.reject(&[]).expect("no private data fits");
    assert!(assert_reply(&rejection, &request).rejected);
}

fn as_initiator(profile: &Profile, frame: &[u8], cut: usize) {
    let receive = |pieces: [&[u8]; 2]| {
        let (mut initiator, request) = Initiator::start(profile.clone(), b"hello").unwrap();
        let requested = Header::parse(request.first_chunk().unwrap()).unwrap();
        assert_eq!((requested.kind, requested.frame_len()), (Kind::Request, request.len()));
        in_pieces(pieces, |piece| initiator.receive(piece))
    };
    let (first, second) = frame.split_at(cut.min(frame.len()));
    let outcome = receive([first, second]);
    assert_eq!(outcome, receive([frame, &[]]), "however it is cut");
    let Ok((consumed, Some(outcome))) = outcome else { return };
    assert_eq!(consumed, frame_len(frame));
    let replied = Header::parse(frame.first_chunk().unwrap()).unwrap();
    match outcome {
        InitiatorOutcome::Accepted { negotiated, private_data, .. } => {
            assert!(!replied.rejected);
            assert!(private_data.len() <= PRIVATE_DATA_MAX);
            assert_negotiated(profile, &negotiated, Role::Initiator);
        }
        InitiatorOutcome::Rejected { revision, .. } => {
            assert!(replied.rejected && revision == replied.revision);
        }
        InitiatorOutcome::Disagreed { error, terminate } => {
            // The one FPDU that is sent says why.
            let crc = profile.crc || replied.crc;
            let mut deframer = Deframer::new(crc, replied.markers);
            deframer.push(terminate);
            let ulpdu = deframer.next().expect("what is sent is valid").expect("and whole");
            let mut octets = vec![0; ulpdu.len()];
            ulpdu.gather(0, &mut octets);
            let header = DdpHeader::parse(&octets, Default::default()).unwrap();
            let said = Terminate::parse(&octets[header.len()..]).unwrap();
            assert_eq!(said.code, error.terminate_code());
        }
    }
}

/// Gives the pieces to a side until it has an outcome; the octets that it took, and the outcome.
fn in_pieces<T, E>(
    pieces: [&[u8]; 2],
    mut receive: impl FnMut(&[u8]) -> core::result::Result<(usize, Option<T>), E>,
) -> core::result::Result<(usize, Option<T>), E> {
    let mut consumed = 0;
    for piece in pieces {
        let (taken, outcome) = receive(piece)?;
        assert!(taken <= piece.len());
        consumed += taken;
        assert!(consumed <= FRAME_LEN_MAX, "no more is kept than a frame has");
        if outcome.is_some() {
            return Ok((consumed, outcome));
        }
        assert_eq!(taken, piece.len(), "what is wanted is taken");
    }
    Ok((consumed, None))
}

fn frame_len(frame: &[u8]) -> usize {
    Header::parse(frame.first_chunk().unwrap()).unwrap().frame_len()
}

fn assert_reply(reply: &[u8], request: &Request) -> Header {
    let header = Header::parse(reply.first_chunk().unwrap()).expect("what is sent is valid");
    assert_eq!((header.kind, header.frame_len()), (Kind::Reply, reply.len()));
    assert_eq!(header.revision, request.revision);
    assert!(!header.enhanced || reply.len() >= HEADER_LEN + ENHANCED_LEN);
    header
}

fn assert_negotiated(profile: &Profile, negotiated: &Negotiated, role: Role) {
    assert_eq!(negotiated.role, role);
    assert!(negotiated.revision > 0 || profile.rdmac);
    // Never more resources than this side has; the place of a Read as RTR is its own.
    let of_rtr = u16::from(negotiated.rtr == Some(RtrKind::Read));
    assert!(negotiated.ird <= profile.ird.max(of_rtr) && negotiated.ord <= profile.ord.max(of_rtr));
}

fn count(kinds: Kinds) -> usize {
    [kinds.send, kinds.write, kinds.read].into_iter().filter(|&has| has).count()
}
