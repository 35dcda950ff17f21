//! Who may use which memory: Streams, protection domains and applications apart from each other.

use std::net::SocketAddr;
use std::time::Duration;

use dataplane::Client;
use dataplane::mem::{AccessRights, MemoryRegion, RegisterError};
use dataplane::sim::{SESSION_BUFFER_LEN, SESSION_PORT, Session, World, with_seeds};
use dataplane::verbs::{Command, DisconnectReason, Event, QueuePairAttributes, QueuePairId, Token, Verbs};
use iwarp::error::{DdpError, RdmapError, StreamError};
use iwarp::memory::AccessError;
use iwarp::mpa::Profile;
use iwarp::types::Stag;
use iwarp::wire::terminate::{RemoteProtection, TaggedBuffer, TerminateCode};
use iwarp::work::{SendOperation, SendRequest, SgList, Sge, Status};

/// Registers side 1's buffer for one of its Streams; the answer.
fn register_for_stream(session: &mut Session, qp: QueuePairId) -> Result<Stag, RegisterError> {
    let region = MemoryRegion::whole(&session.sides[1].buffer);
    let (token, rights) = (Token(5), AccessRights::REMOTE);
    session.sides[1].submit(Command::RegisterForStream { token, qp, region, rights });
    let answers = |event: &Event| matches!(event, Event::Registered { token, .. } | Event::RegisterFailed { token, .. } if *token == Token(5));
    match session.event(1, answers) {
        Event::Registered { stag, .. } => Ok(stag),
        Event::RegisterFailed { error, .. } => Err(error),
        other => panic!("{other:?} is not what was looked for"),
    }
}

/// Two Streams of the same protection domain between the same applications, with memory that is for
/// the first alone; the first's queue pairs.
fn two_streams(seed: u64) -> (Session, [QueuePairId; 2], Stag) {
    let mut session = Session::connected(seed);
    let first = [0, 1].map(|side: usize| session.sides[side].qp.unwrap());
    let stag = register_for_stream(&mut session, first[1]).unwrap();
    session.connect();
    assert_ne!(session.sides[1].qp, Some(first[1]));
    (session, first, stag)
}

// proves 5041-8.2-2, 5041-8.2-4, 5041-8.3-3, 5041-8.3.1-3, 5042-6.1.1-3
#[test]
fn a_write_to_memory_of_another_stream() {
    with_seeds(5, |seed| {
        let (mut session, first, stag) = two_streams(seed);
        session.sides[0].post(1, SendOperation::Write { stag, offset: 0 }, 0, 100);
        let error = StreamError::Ddp(DdpError::Tagged(AccessError::NotAssociated));
        let code = TerminateCode::Tagged(TaggedBuffer::NotAssociated);
        assert_eq!(session.ends(), [DisconnectReason::Terminated(code), DisconnectReason::Error(error)]);
        assert!(session.sides[1].octets(0, SESSION_BUFFER_LEN).iter().all(|&octet| octet == 0x51));
        session.sides[0].take_sends();

        // The Stream that it is for may write.
        for side in [0, 1] {
            session.sides[side].qp = Some(first[side]);
            session.sides[side].ended = None;
        }
        session.sides[0].post(2, SendOperation::Write { stag, offset: 0 }, 0, 100);
        session.sides[0].disconnect();
        assert_eq!(session.ends(), [DisconnectReason::Local, DisconnectReason::Peer]);
        assert_eq!(session.sides[1].octets(0, 101), [&[0x50; 100][..], &[0x51]].concat());
        session.sides[0].take_sends();
        session.assert_nothing_left();
    });
}

// proves 5041-8.3.1-3, 5042-6.1.1-3
#[test]
fn a_read_of_memory_of_another_stream() {
    with_seeds(5, |seed| {
        let (mut session, first, stag) = two_streams(seed);
        session.sides[0].post(1, SendOperation::Read { stag, offset: 0 }, 0, 100);
        let error = StreamError::Rdmap(RdmapError::ReadSource(AccessError::NotAssociated));
        let code = TerminateCode::RemoteProtection(RemoteProtection::NotAssociated);
        assert_eq!(session.ends(), [DisconnectReason::Terminated(code), DisconnectReason::Error(error)]);
        assert_eq!(session.sides[0].take_sends(), [(1, Status::RemoteError)]);
        assert!(session.sides[0].octets(0, SESSION_BUFFER_LEN).iter().all(|&octet| octet == 0x50));
        session.sides[0].qp = Some(first[0]);
        session.sides[1].qp = Some(first[1]);
        session.sides[0].disconnect();
        session.run(Duration::from_secs(1), |sides| sides[1].ended == Some(DisconnectReason::Peer)).unwrap();
        session.assert_nothing_left();
    });
}

#[test]
fn memory_is_not_registered_for_a_stream_that_is_over_or_not_there_yet() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        let over = session.sides[1].qp.unwrap();
        session.sides[1].disconnect();
        session.ends();
        assert_eq!(register_for_stream(&mut session, over), Err(RegisterError::NoStream));
        session.open(b"");
        let (asked, _) = session.request();
        assert_eq!(register_for_stream(&mut session, asked), Err(RegisterError::NoStream));
        session.sides[1].submit(Command::Reject { qp: asked, private_data: Vec::new() });
        session.event(0, |event| matches!(event, Event::ConnectFailed { .. }));
        session.assert_nothing_left();
    });
}

/// Side 0 speaks first, as an Initiator must, so that side 1 may send.
fn speak(session: &mut Session) {
    session.sides[0].post(99, SendOperation::Write { stag: Stag(1), offset: 0 }, 0, 0);
    session.run(Duration::from_secs(1), |sides| sides[0].take_sends() == [(99, Status::Success)]).unwrap();
    session.world.pass(Duration::from_millis(1));
}

/// Another application on side 1's worker, with a Stream from side 0 in the protection domain of
/// the same number; the queue pairs of that Stream.
fn second_application(session: &mut Session) -> (Client, [QueuePairId; 2]) {
    let mut second = session.world.host(1).client(64);
    let local = SocketAddr::new(World::ipv4(1), SESSION_PORT + 1);
    let (token, profile) = (Token(1), Profile::default());
    second.submit(Command::Listen { token, local, profile, backlog: 4 }).unwrap();
    next_event(session, &mut second);
    session.sides[0].submit(Command::Connect {
        token: Token(9),
        remote: local,
        profile: Profile::default(),
        private_data: Vec::new(),
        attributes: QueuePairAttributes::default(),
        receives: Vec::new(),
    });
    let Event::ConnectRequest { qp, .. } = next_event(session, &mut second) else { panic!("no request") };
    let accept = Command::Accept {
        qp,
        private_data: Vec::new(),
        attributes: QueuePairAttributes::default(),
        receives: Vec::new(),
    };
    second.submit(accept).unwrap();
    next_event(session, &mut second);
    let Event::Established { qp: peers, .. } =
        session.event(0, |event| matches!(event, Event::Established { .. }))
    else {
        panic!("not established")
    };
    speak(session);
    (second, [peers, qp])
}

fn next_event(session: &mut Session, client: &mut Client) -> Event {
    let mut event = None;
    session
        .run(Duration::from_secs(1), |_| {
            event = client.next_event();
            event.is_some()
        })
        .unwrap();
    event.unwrap()
}

// proves 5041-8.3.2-4, 5042-3-3: the domains of two applications have nothing to do with each other.
#[test]
fn a_peer_of_one_application_does_not_reach_memory_of_another() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        let (_second, [own, _]) = second_application(&mut session);
        session.sides[0].ended = None;
        // Memory of the first application, on the Stream to the second.
        let stag = session.sides[1].stag;
        assert_eq!(session.sides[0].qp, Some(own));
        session.sides[0].post(1, SendOperation::Write { stag, offset: 0 }, 0, 100);
        session.run(Duration::from_secs(1), |sides| sides[0].ended.is_some()).unwrap();
        let code = TerminateCode::Tagged(TaggedBuffer::NotAssociated);
        assert_eq!(session.sides[0].ended, Some(DisconnectReason::Terminated(code)));
        assert!(session.sides[1].octets(0, SESSION_BUFFER_LEN).iter().all(|&octet| octet == 0x51));
    });
}

// proves 5041-8.3-5, 5041-8.3.2-1, 5041-8.3.2-2, 5042-3-1
#[test]
fn an_application_cannot_use_what_is_anothers() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        let theirs = session.sides[1].qp.unwrap();
        let stag = session.sides[1].stag;
        let (mut second, [_, own]) = second_application(&mut session);

        second.submit(Command::Deregister { token: Token(2), stag }).unwrap();
        assert!(matches!(next_event(&mut session, &mut second), Event::Deregistered { found: false, .. }));
        let region = MemoryRegion::whole(&session.sides[1].buffer);
        let (token, rights) = (Token(3), AccessRights::REMOTE);
        second.submit(Command::RegisterForStream { token, qp: theirs, region, rights }).unwrap();
        let answer = next_event(&mut session, &mut second);
        assert!(matches!(answer, Event::RegisterFailed { error: RegisterError::NoStream, .. }), "{answer:?}");
        second.submit(Command::Disconnect { qp: theirs }).unwrap();
        second.submit(Command::Abort { qp: theirs }).unwrap();
        session.world.pass(Duration::from_millis(1));
        session.sides[1].poll();
        assert_eq!(session.sides[1].ended, None);

        // As the source of a Send of its own, and on the other's queue pair.
        let sg_list = SgList::from_iter([Sge { stag, offset: 0, len: 10 }]);
        let operation = SendOperation::Send { invalidate: None, solicited: false };
        let request = SendRequest { id: 1, operation, sg_list, signaled: true, fence: false };
        for (qp, status) in [(theirs, Status::Flushed), (own, Status::LocalAccess)] {
            second.post_send(qp, request.clone()).unwrap();
            let mut completed = None;
            session
                .run(Duration::from_secs(1), |_| {
                    completed = second.next_completion();
                    completed.is_some()
                })
                .unwrap();
            assert_eq!(completed.unwrap().completion.status, status);
        }
    });
}

/// An application that posts and never looks is stopped; its ring is no one else's.
// proves 5042-6.4.6-1, 5042-7.1-1
#[test]
fn an_application_that_takes_no_completions_does_not_stop_another() {
    with_seeds(2, |seed| {
        let mut session = Session::connected(seed);
        let (theirs, stag) = (session.sides[1].qp.unwrap(), session.sides[0].stag);
        let source = session.sides[1].sg_list(0, 10);
        speak(&mut session);
        let (mut second, [_, own]) = second_application(&mut session);
        let region = MemoryRegion::whole(&session.sides[1].buffer);
        let domain = QueuePairAttributes::default().domain;
        let rights = AccessRights::LOCAL_READ;
        second.submit(Command::Register { token: Token(2), domain, region, rights }).unwrap();
        let Event::Registered { stag: mine, .. } = next_event(&mut session, &mut second) else {
            panic!("not registered")
        };

        let mut deaf = session.sides[1].client.take().unwrap();
        let write = |id, sg_list| {
            let operation = SendOperation::Write { stag, offset: 0 };
            SendRequest { id, operation, sg_list, signaled: true, fence: false }
        };
        for _ in 0..50 {
            while deaf.post_send(theirs, write(1, source.clone())).is_ok() {}
            session.world.pass(Duration::from_micros(100));
        }
        for id in 0..10 {
            let sg_list = SgList::from_iter([Sge { stag: mine, offset: 0, len: 10 }]);
            second.post_send(own, write(id, sg_list)).unwrap();
            let mut completed = None;
            session
                .run(Duration::from_millis(1), |_| {
                    completed = second.next_completion();
                    completed.is_some()
                })
                .unwrap();
            let completion = completed.unwrap().completion;
            assert_eq!((completion.id, completion.status), (id, Status::Success));
        }
    });
}

/// Peers come and go, and the application does not look: only so much is kept for it.
// proves 5042-6.4.1-1
#[test]
fn connections_are_refused_while_too_many_events_wait() {
    with_seeds(2, |seed| {
        let mut session = Session::connected(seed);
        session.sides[0].disconnect();
        session.ends();
        let refused = |session: &mut Session| session.world.host(1).counters().connections_refused;
        let mut deaf = session.sides[1].client.take().unwrap();
        let mut begun = 0;
        while refused(&mut session) == 0 {
            for _ in 0..10 {
                session.open(b"");
            }
            begun += 10;
            session.world.pass(Duration::from_millis(1));
            session.sides[0].poll();
            session.sides[0].events.clear();
            assert!(begun < 10_000, "they are accepted without an end");
        }
        let mut waiting = 0;
        while deaf.next_event().is_some() {
            waiting += 1;
            session.world.pass(Duration::from_micros(10));
        }
        assert!(waiting <= 1024 + 4096 + 10, "{waiting} events");

        // Once it looks again, so are its listeners.
        session.sides[1].client = Some(deaf);
        session.connect();
    });
}
