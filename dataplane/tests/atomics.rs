//! Atomic Operations and Immediate Data between two whole endpoints (RFC 7306), on a good wire and on a
//! bad one: each is carried out once, in order, and what a completion says is what happened.

use std::time::Duration;

use dataplane::mem::{AccessRights, Buffer, HugePages, MemoryRegion};
use dataplane::sim::{Session, Side, with_seeds};
use dataplane::verbs::{DisconnectReason, QueuePairAttributes, Verbs};
use dataplane::worker::WorkerConfig;
use iwarp::atomic::AtomicOperation;
use iwarp::error::{RdmapError, StreamError};
use iwarp::memory::AccessError;
use iwarp::mpa::Profile;
use iwarp::types::Stag;
use iwarp::wire::terminate::{RemoteOperation, RemoteProtection, TerminateCode};
use iwarp::work::{CompletedOperation, SendOperation, SendRequest, Status};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use tcpstack::sim::{BurstLoss, Chance, Faults};

/// Requests of a run; fewer than a send queue's depth.
const REQUESTS: u64 = 120;

/// Words that only the peer changes; the one behind them the local application changes too.
const WORDS: usize = 4;

/// Octets of each Write that Immediate Data follows.
const WRITE_LEN: u32 = 3000;

fn link() -> Faults {
    Faults::link(Duration::from_micros(5), 10_000_000_000)
}

/// Words of side 1's that its peer may change.
fn words(session: &mut Session) -> (Buffer, Stag) {
    let buffer = Buffer::allocate((WORDS + 1) * 8, HugePages::Never).unwrap();
    let domain = QueuePairAttributes::default().domain;
    let region = MemoryRegion::whole(&buffer);
    let stag = session.register(1, domain, region, AccessRights::REMOTE_ATOMIC);
    (buffer, stag)
}

fn any_operation(random: &mut ChaCha8Rng, word: u64) -> AtomicOperation {
    match random.next_u32() % 5 {
        0 => AtomicOperation::fetch_add(random.next_u64()),
        1 => AtomicOperation::FetchAdd { add: random.next_u64(), mask: random.next_u64() },
        2 => AtomicOperation::cmp_swap(word, random.next_u64()),
        3 => AtomicOperation::cmp_swap(!word, random.next_u64()),
        _ => AtomicOperation::CmpSwap {
            swap: random.next_u64(),
            swap_mask: random.next_u64(),
            compare: word,
            compare_mask: random.next_u64(),
        },
    }
}

/// Looks at the Immediate Data that side 1 got: the Write before each is placed.
fn check_immediates(side: &Side) {
    for completion in &side.completions {
        let CompletedOperation::ReceiveImmediate { data, .. } = completion.operation else {
            panic!("no Sends were posted: {completion:?}")
        };
        let value = data[0];
        assert_eq!(data, [value; 8]);
        let octets = side.octets(usize::from(value) * WRITE_LEN as usize, WRITE_LEN as usize);
        assert!(octets.iter().all(|octet| *octet == value), "Immediate Data overtook a Write");
    }
}

/// Side 0 changes side 1's words at random, and sends Writes that Immediate Data follows.
fn exchange(seed: u64, faults: Faults) {
    let mut session = Session::listening(seed, faults, &WorkerConfig::default(), &Profile::default());
    session.connect();
    let (buffer, stag) = words(&mut session);
    let sink = session.sides[1].stag;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut model = [0; WORDS];
    let mut expected = Vec::new();
    let (mut immediates, mut shared_adds) = (0_u8, 0_u64);
    for id in 0..REQUESTS {
        session.sides[1].receive(id, 0, 0);
    }
    let side = &mut session.sides[0];
    let qp = side.qp.unwrap();
    // Values from 0 up: each Write takes its octets from a source of its own.
    for value in 0..u8::try_from(REQUESTS / 4).unwrap() {
        side.buffer.fill(usize::from(value) * WRITE_LEN as usize, WRITE_LEN as usize, value).unwrap();
    }
    let mut id = 0;
    while id < REQUESTS {
        let choice = random.next_u32() % 8;
        if choice == 0 && u64::from(immediates) < REQUESTS / 4 && id + 1 < REQUESTS {
            let offset = u64::from(immediates) * u64::from(WRITE_LEN);
            side.post(id, SendOperation::Write { stag: sink, offset }, offset, WRITE_LEN);
            let client = side.client.as_mut().unwrap();
            client.post_immediate(qp, id + 1, [immediates; 8], random.next_u32() % 2 == 0).unwrap();
            expected.extend([(id, None), (id + 1, None)]);
            immediates += 1;
            id += 2;
            continue;
        }
        let client = side.client.as_mut().unwrap();
        if choice == 1 {
            client.post_fetch_add(qp, id, (stag, WORDS as u64 * 8), 1 << 32).unwrap();
            shared_adds += 1;
            expected.push((id, None));
        } else {
            let at = random.next_u32() as usize % WORDS;
            let operation = any_operation(&mut random, model[at]);
            client.post_send(qp, SendRequest::atomic(id, stag, at as u64 * 8, operation)).unwrap();
            expected.push((id, Some(model[at])));
            model[at] = operation.apply(model[at]);
        }
        id += 1;
    }

    let mut local_adds = 0;
    let result = session.run(Duration::from_secs(60), |sides| {
        // The local application counts in the other half of the shared word.
        buffer.update_u64(WORDS * 8, AtomicOperation::fetch_add(1)).unwrap();
        local_adds += 1;
        check_immediates(&sides[1]);
        sides[0].completions.len() == expected.len() && sides[1].completions.len() == usize::from(immediates)
    });
    result.expect("all requests complete");

    for (completion, (id, original)) in session.sides[0].completions.drain(..).zip(expected) {
        assert_eq!((completion.id, completion.status), (id, Status::Success));
        match (completion.operation, original) {
            (CompletedOperation::Atomic { original }, Some(value)) => assert_eq!(original, value),
            (CompletedOperation::Atomic { .. }, None)
            | (CompletedOperation::Write | CompletedOperation::Immediate, None) => {}
            other => panic!("{other:?}"),
        }
    }
    for (at, value) in model.into_iter().enumerate() {
        assert_eq!(buffer.load_u64(at * 8), Ok(value));
    }
    assert_eq!(buffer.load_u64(WORDS * 8), Ok((shared_adds << 32) | local_adds));
    session.sides[1].completions.clear();

    session.sides[0].disconnect();
    session.ends();
    session.sides[1].completions.clear();
    session.assert_nothing_left();
}

// proves 7306-5.2.1-12, 7306-5.2.2-7, 7306-6.3-4
#[test]
fn on_a_good_wire() {
    with_seeds(10, |seed| exchange(seed, link()));
}

// proves 7306-5.3-1
#[test]
fn with_loss_reordering_and_duplication() {
    with_seeds(60, |seed| {
        let faults = Faults {
            loss: Chance::percent(3),
            reorder: Chance::percent(3),
            reorder_delay: Duration::from_micros(200),
            duplicate: Chance::percent(3),
            ..link()
        };
        exchange(seed, faults);
    });
}

#[test]
fn with_bursts_tails_replays_and_a_middlebox() {
    with_seeds(30, |seed| {
        let faults = Faults {
            burst_loss: Some(BurstLoss { enter: Chance::ppm(3000), leave: Chance::percent(20) }),
            tail_loss: Chance::percent(5),
            replay: Chance::percent(2),
            resegment: Chance::percent(10),
            ..link()
        };
        exchange(seed, faults);
    });
}

/// An Atomic that side 1 refuses: both are told why, and the word is as it was.
#[track_caller]
fn refused(rights: AccessRights, offset: u64, error: AccessError, code: TerminateCode) {
    let mut session = Session::connected(7);
    let buffer = Buffer::allocate(32, HugePages::Never).unwrap();
    let domain = QueuePairAttributes::default().domain;
    let stag = session.register(1, domain, MemoryRegion::whole(&buffer), rights);
    let side = &mut session.sides[0];
    let qp = side.qp.unwrap();
    side.client.as_mut().unwrap().post_cmp_swap(qp, 1, (stag, offset), 0, u64::MAX).unwrap();
    assert_eq!(
        session.ends(),
        [
            DisconnectReason::Terminated(code),
            DisconnectReason::Error(StreamError::Rdmap(RdmapError::AtomicTarget(error))),
        ]
    );
    assert_eq!(session.sides[0].take_sends(), [(1, Status::RemoteError)]);
    let mut octets = [1; 32];
    buffer.read(0, &mut octets).unwrap();
    assert_eq!(octets, [0; 32]);
    session.assert_nothing_left();
}

// proves 7306-5.1.2-3, 7306-5.1.2-4, 7306-5.1.2-5, 7306-5.1.2-6, 7306-8.2-6, 7306-8.2-7
#[test]
fn a_word_that_is_not_on_a_boundary_is_refused() {
    let code = TerminateCode::RemoteOperation(RemoteOperation::StreamCatastrophic);
    refused(AccessRights::REMOTE_ATOMIC, 4, AccessError::Misaligned, code);
}

#[test]
fn memory_without_the_right_or_without_the_word_is_refused() {
    let code = TerminateCode::RemoteProtection(RemoteProtection::AccessRights);
    refused(AccessRights::REMOTE, 0, AccessError::AccessRights, code);
    let code = TerminateCode::RemoteProtection(RemoteProtection::BaseOrBounds);
    refused(AccessRights::REMOTE_ATOMIC, 32, AccessError::BaseOrBounds, code);
}
