//! What a hostile peer sends: from plain noise to FPDUs with a good CRC and one octet that is wrong.

use std::time::Duration;

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion, Registry, Scope};
use dataplane::sim::{Ending, Script};
use iwarp::memory::Accessor;
use iwarp::mpa::{Framer, Initiator, InitiatorOutcome, Negotiated, Profile, Responder, Revision};
use iwarp::stream::{Stream, StreamLimits};
use iwarp::types::{ProtectionDomain, Stag, StreamId};
use iwarp::work::{SendOperation, SendRequest, SgList, Sge};
use rand_chacha::ChaCha8Rng;
use rand_core::RngCore;

/// Octets of a segment.
const EMSS: usize = 1448;

/// Longer than start-up takes with a peer that answers at once.
const ANSWER: Duration = Duration::from_micros(300);

/// A script for a connection that the stranger opened. `stag` is one that it may use.
pub(crate) fn as_initiator(random: &mut ChaCha8Rng, stag: Stag) -> Script {
    let (request, _, [initiator, _]) = start_up(random);
    script(random, request, &initiator, stag)
}

/// A script for a connection that the stranger was asked for; it begins when the Request arrives.
pub(crate) fn as_responder(random: &mut ChaCha8Rng, stag: Stag) -> Script {
    let (_, reply, [_, responder]) = start_up(random);
    script(random, reply, &responder, stag)
}

/// A Request, the Reply to it, and what both agreed on.
fn start_up(random: &mut ChaCha8Rng) -> (Vec<u8>, Vec<u8>, [Negotiated; 2]) {
    let revision = if below(random, 3) == 0 { Revision::V1 } else { Revision::V2 };
    let peer_to_peer = revision == Revision::V2 && below(random, 2) == 0;
    let profile = Profile { revision, peer_to_peer, ..Profile::default() };
    let private_data = noise(random, 30);
    let (mut initiator, request) = Initiator::start(profile, &private_data).unwrap();
    let (_, received) = Responder::new(Profile::default()).receive(&request).unwrap();
    let (reply, responder) = received.unwrap().accept(b"hello").unwrap();
    let (_, outcome) = initiator.receive(&reply).unwrap();
    let Some(InitiatorOutcome::Accepted { negotiated, .. }) = outcome else { panic!("{outcome:?}") };
    (request, reply, [negotiated, responder])
}

fn script(random: &mut ChaCha8Rng, mut first: Vec<u8>, negotiated: &Negotiated, stag: Stag) -> Script {
    let ending = [Ending::Close, Ending::Abort, Ending::Silence][below(random, 3)];
    let mut rest = match below(random, 8) {
        0 => {
            first = noise(random, 3000);
            Vec::new()
        }
        1 => {
            let at = below(random, first.len());
            first[at] ^= 1 << below(random, 8);
            fpdus(random, negotiated, stag, None)
        }
        2 => {
            first.truncate(below(random, first.len()));
            Vec::new()
        }
        3 => noise(random, 5000),
        4 => {
            let mut octets = fpdus(random, negotiated, stag, None);
            let at = below(random, octets.len());
            octets[at] ^= 1 << below(random, 8);
            octets
        }
        _ => {
            let damage = Some(1 + below(random, 3));
            fpdus(random, negotiated, stag, damage)
        }
    };
    if below(random, 4) == 0 {
        rest.truncate(below(random, rest.len() + 1));
    }
    // Mostly the peer has answered before anything follows.
    let mut parts = vec![first];
    while !rest.is_empty() {
        let len = (1 + below(random, 3 * EMSS)).min(rest.len());
        let tail = rest.split_off(len);
        parts.push(std::mem::replace(&mut rest, tail));
    }
    let gap = if below(random, 6) == 0 { Duration::ZERO } else { ANSWER };
    Script { parts, gap, ending }
}

/// FPDUs of some messages; with `damage`, that many of their ULPDUs are changed before they get a CRC.
fn fpdus(random: &mut ChaCha8Rng, negotiated: &Negotiated, stag: Stag, damage: Option<usize>) -> Vec<u8> {
    let mut memory = Registry::new(4, [9; 32]);
    let region = MemoryRegion::whole(&Buffer::allocate(8192, HugePages::Never).unwrap());
    let domain = ProtectionDomain(0);
    let own = memory.register(domain, Scope::Domain, region, AccessRights::REMOTE).unwrap();
    let limits = StreamLimits { send_depth: 16, receive_depth: 1 };
    // A Responder may send first here: it is not asked.
    let negotiated =
        &Negotiated { role: iwarp::mpa::Role::Initiator, ord: negotiated.ord.max(1), ..*negotiated };
    let mut stream = Stream::<Vec<u8>>::new(negotiated, Accessor { domain, stream: StreamId(1) }, limits);
    for id in 0..1 + below(random, 8) as u64 {
        let operation = match below(random, 3) {
            0 => SendOperation::Write { stag, offset: below(random, 40_000) as u64 },
            1 => SendOperation::Read { stag, offset: below(random, 40_000) as u64 },
            _ => SendOperation::Send { invalidate: None, solicited: false },
        };
        let len = u32::try_from(below(random, 4096)).unwrap();
        let sg_list = SgList::from_iter([Sge { stag: own, offset: 0, len }]);
        let request = SendRequest { id, operation, sg_list, signaled: false, fence: false };
        stream.post_send(request).unwrap();
    }
    let mut framer = Framer::new(negotiated.crc, negotiated.send_markers);
    let mut left = damage.unwrap_or(0);
    let mut octets = Vec::new();
    loop {
        let mut out = [0; 2 * EMSS];
        let len = stream.build(&mut out[..EMSS], EMSS, &memory);
        if len == 0 {
            return octets;
        }
        let ulpdu_len = usize::from(u16::from_be_bytes([out[0], out[1]]));
        let mut ulpdu = out[2..2 + ulpdu_len].to_vec();
        if left > 0 && below(random, 3) == 0 {
            left -= 1;
            mutate(random, &mut ulpdu);
        }
        let mut framed = [0; 2 * EMSS];
        let len = framer.frame(&mut framed, ulpdu.len(), |place| place.copy_from_slice(&ulpdu));
        octets.extend_from_slice(&framed[..len]);
    }
}

/// Changes a DDP Segment: its headers mostly, or its length.
fn mutate(random: &mut ChaCha8Rng, ulpdu: &mut Vec<u8>) {
    match below(random, 4) {
        0 => ulpdu.truncate(below(random, ulpdu.len() + 1)),
        1 => {
            let longer = noise(random, 200);
            ulpdu.extend(longer);
        }
        _ => {
            let at = below(random, ulpdu.len().min(46));
            ulpdu[at] = u8::try_from(below(random, 256)).unwrap();
        }
    }
}

fn noise(random: &mut ChaCha8Rng, len_max: usize) -> Vec<u8> {
    let mut octets = vec![0; 1 + below(random, len_max)];
    random.fill_bytes(&mut octets);
    octets
}

fn below(random: &mut ChaCha8Rng, bound: usize) -> usize {
    random.next_u32() as usize % bound
}
