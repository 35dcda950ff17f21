//! What the peer must not touch: each attempt ends the Stream with the prescribed Terminate, and not
//! an octet is placed or read.

use std::time::Duration;

use dataplane::mem::{AccessRights, MemoryRegion};
use dataplane::sim::{SESSION_BUFFER_LEN, Session, with_seeds};
use dataplane::verbs::{DisconnectReason, QueuePairAttributes};
use dataplane::worker::WorkerConfig;
use iwarp::error::{DdpError, RdmapError, StreamError};
use iwarp::memory::AccessError;
use iwarp::mpa::Profile;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::wire::terminate::{RemoteProtection, TaggedBuffer, TerminateCode, UntaggedBuffer};
use iwarp::work::{SendOperation, Status};
use tcpstack::sim::Faults;
use tcpstack::tcp::state::State;

/// Where the memory that the peer may name begins in side 1's buffer.
const START: usize = 64 << 10;

/// Its octets.
const LEN: u64 = 20_000;

/// Octets of each attempt: several segments.
const ATTEMPT: u32 = 8000;

const DOMAIN: ProtectionDomain = ProtectionDomain(0);
const OTHER_DOMAIN: ProtectionDomain = ProtectionDomain(7);

/// Connects, and lets side 1 register memory.
fn session(seed: u64, domain: ProtectionDomain, rights: AccessRights) -> (Session, Stag) {
    assert_eq!(QueuePairAttributes::default().domain, DOMAIN);
    let mut session = Session::connected(seed);
    let buffer = session.sides[1].buffer.clone();
    let len = usize::try_from(LEN).unwrap();
    let stag = session.register(1, domain, MemoryRegion { buffer, offset: START, len }, rights);
    (session, stag)
}

/// Runs to the end, which must be this, with side 1's memory as it was.
fn assert_refused(mut session: Session, code: TerminateCode, error: StreamError, status: Option<Status>) {
    assert_eq!(session.ends(), [DisconnectReason::Terminated(code), DisconnectReason::Error(error)]);
    let octets = session.sides[1].octets(0, SESSION_BUFFER_LEN);
    assert!(octets.iter().all(|&octet| octet == 0x51), "something was placed");
    let octets = session.sides[0].octets(0, SESSION_BUFFER_LEN);
    assert!(octets.iter().all(|&octet| octet == 0x50), "something was read");
    let sent = session.sides[0].take_sends();
    assert_eq!(sent.len(), 1, "{sent:?}");
    if let Some(status) = status {
        assert_eq!(sent[0].1, status);
    }
    session.assert_nothing_left();
}

fn write_is_refused(
    domain: ProtectionDomain,
    rights: AccessRights,
    target: impl Fn(Stag) -> (Stag, u64),
    code: TaggedBuffer,
    error: AccessError,
) {
    with_seeds(5, |seed| {
        let (mut session, stag) = session(seed, domain, rights);
        let (stag, offset) = target(stag);
        session.sides[0].post(0, SendOperation::Write { stag, offset }, 0, ATTEMPT);
        let error = StreamError::Ddp(DdpError::Tagged(error));
        // A Write is complete once it is sent, whatever becomes of it.
        assert_refused(session, TerminateCode::Tagged(code), error, None);
    });
}

fn read_is_refused(
    domain: ProtectionDomain,
    rights: AccessRights,
    source: impl Fn(Stag) -> (Stag, u64),
    code: RemoteProtection,
    error: AccessError,
) {
    with_seeds(5, |seed| {
        let (mut session, stag) = session(seed, domain, rights);
        let (stag, offset) = source(stag);
        session.sides[0].post(0, SendOperation::Read { stag, offset }, 0, ATTEMPT);
        let error = StreamError::Rdmap(RdmapError::ReadSource(error));
        let status = Some(Status::RemoteError);
        assert_refused(session, TerminateCode::RemoteProtection(code), error, status);
    });
}

/// The same STag with another key.
fn with_wrong_key(stag: Stag) -> (Stag, u64) {
    (Stag(stag.0 ^ 1), 0)
}

// proves 5041-7.1-1, 5040-6.2.1-4, 5040-7-2, 5041-7.1-6, 5041-4.2-6
#[test]
fn a_write_to_no_stag() {
    let (rights, code) = (AccessRights::REMOTE, TaggedBuffer::InvalidStag);
    write_is_refused(DOMAIN, rights, with_wrong_key, code, AccessError::InvalidStag);
}

#[test]
fn a_write_without_the_right() {
    let (rights, code) = (AccessRights::REMOTE_READ, TaggedBuffer::InvalidStag);
    write_is_refused(DOMAIN, rights, |stag| (stag, 0), code, AccessError::AccessRights);
}

// proves 5041-7.1-6, 5041-8.3.1-4, 5042-6.2.1-1
#[test]
fn a_write_out_of_bounds() {
    let (rights, code) = (AccessRights::REMOTE, TaggedBuffer::BaseOrBounds);
    for offset in [LEN, LEN + 1, LEN - 1, 1 << 40] {
        write_is_refused(DOMAIN, rights, |stag| (stag, offset), code, AccessError::BaseOrBounds);
    }
}

// proves 5041-7.1-6
#[test]
fn a_write_that_wraps() {
    let (rights, code) = (AccessRights::REMOTE, TaggedBuffer::OffsetWrap);
    write_is_refused(DOMAIN, rights, |stag| (stag, u64::MAX - 10), code, AccessError::OffsetWrap);
}

// proves 5041-7.1-6, 5041-8.2-1, 5041-8.2-4, 5042-6.1.1-2
#[test]
fn a_write_to_another_protection_domain() {
    let (rights, code) = (AccessRights::REMOTE, TaggedBuffer::NotAssociated);
    write_is_refused(OTHER_DOMAIN, rights, |stag| (stag, 0), code, AccessError::NotAssociated);
}

// proves 5040-7.2-7
#[test]
fn a_read_of_no_stag() {
    let (rights, code) = (AccessRights::REMOTE, RemoteProtection::InvalidStag);
    read_is_refused(DOMAIN, rights, with_wrong_key, code, AccessError::InvalidStag);
}

#[test]
fn a_read_without_the_right() {
    let (rights, code) = (AccessRights::REMOTE_WRITE, RemoteProtection::AccessRights);
    read_is_refused(DOMAIN, rights, |stag| (stag, 0), code, AccessError::AccessRights);
}

// proves 5042-6.2.1-1
#[test]
fn a_read_out_of_bounds() {
    let (rights, code) = (AccessRights::REMOTE, RemoteProtection::BaseOrBounds);
    for offset in [LEN, LEN - u64::from(ATTEMPT) + 1, 1 << 40] {
        read_is_refused(DOMAIN, rights, |stag| (stag, offset), code, AccessError::BaseOrBounds);
    }
}

#[test]
fn a_read_that_wraps() {
    let (rights, code) = (AccessRights::REMOTE, RemoteProtection::OffsetWrap);
    read_is_refused(DOMAIN, rights, |stag| (stag, u64::MAX - 10), code, AccessError::OffsetWrap);
}

// proves 5041-8.3.1-2, 5042-6.1.1-2
#[test]
fn a_read_of_another_protection_domain() {
    let (rights, code) = (AccessRights::REMOTE, RemoteProtection::NotAssociated);
    read_is_refused(OTHER_DOMAIN, rights, |stag| (stag, 0), code, AccessError::NotAssociated);
}

#[test]
fn the_last_octets_may_be_touched() {
    with_seeds(5, |seed| {
        let (mut session, stag) = session(seed, DOMAIN, AccessRights::REMOTE);
        let offset = LEN - u64::from(ATTEMPT);
        session.sides[0].post(0, SendOperation::Write { stag, offset }, 0, ATTEMPT);
        session.sides[0].post(1, SendOperation::Read { stag, offset }, 0, ATTEMPT);
        session.sides[0].disconnect();
        assert_eq!(session.ends(), [DisconnectReason::Local, DisconnectReason::Peer]);
        assert_eq!(session.sides[0].take_sends(), [(0, Status::Success), (1, Status::Success)]);
        let mut expected = vec![0x51; SESSION_BUFFER_LEN];
        let at = START + usize::try_from(offset).unwrap();
        expected[at..at + ATTEMPT as usize].fill(0x50);
        assert!(session.sides[1].octets(0, SESSION_BUFFER_LEN) == expected);
        session.assert_nothing_left();
    });
}

#[test]
fn a_send_that_is_longer_than_the_receive() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        session.sides[1].receive(5, 0, 99);
        session.sides[1].receive(6, 0, 1000);
        session.world.pass(Duration::from_micros(10));
        session.sides[0].send(0, 0, 100);
        let ends = session.ends();
        let code = TerminateCode::Untagged(UntaggedBuffer::MessageTooLong);
        assert_eq!(ends[0], DisconnectReason::Terminated(code));
        assert_eq!(session.sides[1].take_receives(), [(5, Status::LengthError), (6, Status::Flushed)]);
        assert!(session.sides[1].octets(0, 1000).iter().all(|&octet| octet == 0x51));
        session.sides[0].take_sends();
        session.assert_nothing_left();
    });
}

// proves 5042-6.4.5-1
#[test]
fn an_invalidation_without_the_right() {
    with_seeds(5, |seed| {
        let (mut session, stag) = session(seed, DOMAIN, AccessRights::REMOTE);
        session.sides[1].receive(5, 0, 100);
        session.world.pass(Duration::from_micros(10));
        let send = SendOperation::Send { invalidate: Some(stag), solicited: false };
        session.sides[0].post(0, send, 0, 0);
        session.sides[1].poll();
        let ends = session.ends();
        let code = TerminateCode::RemoteProtection(RemoteProtection::CannotInvalidate);
        assert_eq!(ends[0], DisconnectReason::Terminated(code));
        assert_eq!(session.sides[1].take_receives(), [(5, Status::Flushed)]);
        session.sides[0].take_sends();
        session.assert_nothing_left();
    });
}

#[test]
fn an_invalidation_with_the_right_withdraws_the_memory() {
    with_seeds(5, |seed| {
        let rights = AccessRights { remote_invalidate: true, ..AccessRights::REMOTE };
        let (mut session, stag) = session(seed, DOMAIN, rights);
        session.sides[1].receive(5, 0, 100);
        session.world.pass(Duration::from_micros(10));
        let send = SendOperation::Send { invalidate: Some(stag), solicited: false };
        session.sides[0].post(0, send, 0, 0);
        session.sides[0].post(1, SendOperation::Write { stag, offset: 0 }, 0, 10);
        let ends = session.ends();
        let code = TerminateCode::Tagged(TaggedBuffer::InvalidStag);
        assert_eq!(ends[0], DisconnectReason::Terminated(code));
        assert_eq!(session.sides[1].take_receives(), [(5, Status::Success)]);
        session.sides[0].take_sends();
        session.assert_nothing_left();
    });
}

#[test]
fn the_error_is_the_reason_even_if_the_peer_has_closed_already() {
    with_seeds(40, |seed| {
        // With so much jitter, what follows often arrives together with what it follows.
        let jitter = Duration::from_micros(50);
        let link = Faults { jitter, ..Faults::link(Duration::from_micros(5), 10_000_000_000) };
        let mut session = Session::listening(seed, link, &WorkerConfig::default(), &Profile::default());
        session.connect();
        let (stag, offset) = (session.sides[1].stag, SESSION_BUFFER_LEN as u64);
        session.sides[0].post(0, SendOperation::Write { stag, offset }, 0, 10);
        // Its FIN is right behind the Write.
        session.sides[0].disconnect();
        let ends = session.ends();
        let error = StreamError::Ddp(DdpError::Tagged(AccessError::BaseOrBounds));
        assert_eq!(ends[1], DisconnectReason::Error(error));
        let code = TerminateCode::Tagged(TaggedBuffer::BaseOrBounds);
        assert!([DisconnectReason::Local, DisconnectReason::Terminated(code)].contains(&ends[0]), "{ends:?}");
        assert_eq!(session.sides[0].take_sends(), [(0, Status::Success)]);
        assert_eq!(
            session.world.host(1).counters().terminates_sent,
            1,
            "the FIN does not outrun the Terminate"
        );
        session.assert_nothing_left();
    });
}

/// With its only Stream, without a wait for any time limit.
// proves 5041-3-12
#[test]
fn the_connection_is_closed_with_the_stream() {
    with_seeds(5, |seed| {
        let mut session = Session::connected(seed);
        session.sides[0].post(0, SendOperation::Write { stag: Stag(1), offset: 0 }, 0, 1);
        session.ends();
        session.world.pass(Duration::from_millis(1));
        for host in [0, 1] {
            let stack = session.world.host(host).stack();
            let states = stack.connections().filter_map(|id| stack.info(id)).map(|info| info.state);
            assert!(states.into_iter().all(|state| state != State::Established), "host {host}");
        }
        session.sides[0].take_sends();
        session.assert_nothing_left();
    });
}
