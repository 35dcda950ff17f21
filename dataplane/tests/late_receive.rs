//! A Send that finds no receive: iWARP has no retry for that, so the Stream ends with a Terminate that
//! says so, and all that is left is flushed in order.

use std::time::Duration;

use dataplane::sim::{SESSION_BUFFER_LEN, Session, Side, with_seeds};
use dataplane::verbs::DisconnectReason;
use iwarp::error::{DdpError, StreamError};
use iwarp::wire::terminate::{TerminateCode, UntaggedBuffer};
use iwarp::work::{SendOperation, Status};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// Where the receives of a side begin in its buffer.
const SINK: u64 = 128 << 10;

// proves 5041-7.1-1, 5044-7.1-4
#[test]
fn the_sender_is_told_and_both_sides_flush_in_order() {
    with_seeds(100, |seed| {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut below = |bound: u32| random.next_u32() % bound;
        let mut session = Session::connected(seed);
        let len = below(8000);
        let posted = u64::from(below(4));
        for id in 0..posted {
            session.sides[1].receive(id, SINK + id * 8192, len);
        }
        // Taken before the peer's Sends arrive.
        session.world.pass(Duration::from_micros(u64::from(below(3))));
        let sends = posted + 1 + u64::from(below(5));
        for id in 0..sends {
            session.sides[0].send(id, 0, len);
        }
        // More work, of which much is never done.
        let peer_stag = session.sides[1].stag;
        let reads = u64::from(below(5));
        for id in sends..sends + reads {
            let read = SendOperation::Read { stag: peer_stag, offset: 0 };
            session.sides[0].post(id, read, SINK + (id - sends) * 8192, 8000);
        }
        let receives = u64::from(below(20));
        for id in 0..receives {
            session.sides[0].receive(id, SINK, 1);
        }

        let ends = session.ends();
        let no_buffer = TerminateCode::Untagged(UntaggedBuffer::NoBuffer);
        assert_eq!(ends[0], DisconnectReason::Terminated(no_buffer));
        assert!(
            matches!(ends[1], DisconnectReason::Error(StreamError::Ddp(DdpError::NoBuffer(_)))),
            "{ends:?}"
        );
        let delivered: Vec<_> = (0..posted).map(|id| (id, Status::Success)).collect();
        assert_eq!(session.sides[1].take_receives(), delivered);
        let flushed: Vec<_> = (0..receives).map(|id| (id, Status::Flushed)).collect();
        assert_eq!(session.sides[0].take_receives(), flushed);

        let sent = session.sides[0].take_sends();
        let ids: Vec<_> = sent.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, (0..sends + reads).collect::<Vec<_>>());
        // Those up to the one that failed left for sure; what follows one that was not done was not either.
        assert!(sent.is_sorted_by_key(|(_, status)| *status != Status::Success), "{sent:?}");

        let sink = usize::try_from(SINK).unwrap();
        let mut expected = vec![0x51; SESSION_BUFFER_LEN - sink];
        for id in 0..usize::try_from(posted).unwrap() {
            expected[id * 8192..][..len as usize].fill(0x50);
        }
        assert!(session.sides[1].octets(sink, expected.len()) == expected, "placed what had no receive");
        session.assert_nothing_left();
    });
}

#[test]
fn a_receive_in_time_is_all_it_takes() {
    with_seeds(10, |seed| {
        let mut session = Session::connected(seed);
        session.sides[0].send(1, 0, 100);
        session.sides[1].receive(7, SINK, 100);
        let delivered = |sides: &mut [Side; 2]| !sides[1].completions.is_empty();
        session.run(Duration::from_secs(1), delivered).unwrap();
        assert_eq!(session.sides[1].take_receives(), [(7, Status::Success)]);
        assert_eq!(session.sides[0].take_sends(), [(1, Status::Success)]);
        session.sides[0].disconnect();
        assert_eq!(session.ends(), [DisconnectReason::Local, DisconnectReason::Peer]);
        session.assert_nothing_left();
    });
}
