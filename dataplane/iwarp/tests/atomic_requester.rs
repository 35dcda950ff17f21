//! Atomic Operations of ours (RFC 7306 sections 5.2 and 5.4): what is sent, when they complete, and
//! every check of their Responses.

mod common;

use common::*;
use iwarp::atomic::AtomicOperation;
use iwarp::ddp::Queue;
use iwarp::error::{DdpError, LocalError, RdmapError};
use iwarp::memory::{AccessError, Operation};
use iwarp::mpa::{Negotiated, Role};
use iwarp::types::Stag;
use iwarp::wire::atomic::{AtomicRequest, AtomicResponse};
use iwarp::wire::rdmap::Opcode;
use iwarp::wire::terminate::{
    Cause, RemoteOperation, RemoteProtection, Terminate, TerminateCode, TerminatedHeader, UntaggedBuffer,
};
use iwarp::work::{CompletedOperation, Completion, PostError, SendRequest, Status};

const CMP_SWAP: AtomicOperation =
    AtomicOperation::CmpSwap { swap: 1, swap_mask: 2, compare: 3, compare_mask: 4 };

fn atomic(id: u64, operation: AtomicOperation) -> SendRequest {
    SendRequest::atomic(id, PEER_STAG, 0x1_0000_0008, operation)
}

fn done(id: u64, original: u64) -> Completion {
    Completion { id, operation: CompletedOperation::Atomic { original }, status: Status::Success, len: 8 }
}

/// The Request that was sent, alone.
#[track_caller]
fn sent_request(rig: &mut Rig) -> AtomicRequest {
    let sent = rig.sent();
    let [request] = &sent[..] else { panic!("one Request, not {sent:?}") };
    assert_eq!(request.opcode, Opcode::AtomicRequest);
    AtomicRequest::parse(request.payload[..].try_into().unwrap()).unwrap()
}

fn respond(rig: &mut Rig, msn: u32, request_id: u32, original: u64) {
    rig.deliver(atomic_response_header(msn), &AtomicResponse { request_id, original }.emit());
}

// proves 7306-5.2-1, 7306-5.2.1-3, 7306-5.2.1-4, 7306-5.2.1-9, 7306-5.2.1-10, 7306-5.2.1-11, 7306-4.1-1
#[test]
fn requests_are_untagged_messages_of_queue_1_in_the_order_of_posting() {
    let mut rig = Rig::new(Role::Initiator);
    rig.try_post(atomic(1, CMP_SWAP)).unwrap();
    rig.post_read(2, 8);
    let sent = rig.sent();
    assert_eq!(sent[0].header, atomic_request_header(1));
    assert_eq!(sent[1].header, read_request_header(2));
    let request = AtomicRequest::parse(sent[0].payload[..].try_into().unwrap()).unwrap();
    assert_eq!((request.stag, request.offset), (PEER_STAG, 0x1_0000_0008));
    assert_eq!(request.operation, CMP_SWAP);
}

// proves 7306-5.2.2-7, 7306-5.4-1, 7306-5.4-8
#[test]
fn the_response_completes_it_with_the_original_value() {
    let mut rig = Rig::responder();
    let sink = rig.memory.register(24);
    let mut request = atomic(1, CMP_SWAP);
    request.sg_list = list(&[sge(sink, 8, 8)]);
    rig.try_post(request).unwrap();
    rig.try_post(atomic(2, AtomicOperation::fetch_add(1))).unwrap();
    let ids: Vec<u32> = rig
        .sent()
        .iter()
        .map(|sent| AtomicRequest::parse(sent.payload[..].try_into().unwrap()).unwrap().request_id)
        .collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(rig.completions(), []);
    let octets = AtomicResponse { request_id: ids[0], original: 0x0102_0304_0506_0708 }.emit();
    rig.deliver(not_last(atomic_response_header(1)), &octets[..5]);
    assert_eq!(rig.completions(), [], "half a Response is none");
    rig.deliver(at(atomic_response_header(1), 5), &octets[5..]);
    assert_eq!(rig.completions(), [done(1, 0x0102_0304_0506_0708)]);
    assert_eq!(rig.memory.octets(sink)[8..16], 0x0102_0304_0506_0708_u64.to_ne_bytes());
    assert_eq!(rig.memory.octets(sink)[..8], [0; 8]);
    respond(&mut rig, 2, ids[1], 9);
    assert_eq!(rig.completions(), [done(2, 9)]);
    rig.assert_operating();
}

// proves 7306-5.2.2-6
#[test]
fn reads_and_atomics_share_ord_and_each_response_has_its_buffer() {
    let mut rig = Rig::responder();
    for id in 0..u64::from(DEPTH) {
        rig.try_post(atomic(id, CMP_SWAP)).unwrap();
    }
    let sink = rig.post_read(8, 8);
    rig.try_post(atomic(9, CMP_SWAP)).unwrap();
    assert_eq!(rig.sent_opcodes(), [Opcode::AtomicRequest; DEPTH as usize]);
    respond(&mut rig, 1, 1, 0);
    assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest]);
    respond(&mut rig, 2, 2, 0);
    assert_eq!(rig.sent_opcodes(), [Opcode::AtomicRequest]);
    rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[7; 8]);
    respond(&mut rig, 3, 4, 0);
    assert_eq!(rig.statuses(), [0, 1, 8, 9].map(|id| (id, Status::Success)));
    rig.assert_operating();
}

#[test]
fn a_fence_waits_for_atomics() {
    let mut rig = Rig::responder();
    rig.try_post(atomic(1, CMP_SWAP)).unwrap();
    rig.try_post(SendRequest { fence: true, ..send(2, &[]) }).unwrap();
    let request = sent_request(&mut rig);
    respond(&mut rig, 1, request.request_id, 0);
    assert_eq!(rig.sent_opcodes(), [Opcode::Send]);
}

#[test]
fn a_close_waits_for_atomics() {
    let mut rig = Rig::responder();
    rig.try_post(SendRequest { signaled: false, ..atomic(1, CMP_SWAP) }).unwrap();
    rig.stream.close();
    let request = sent_request(&mut rig);
    assert!(!rig.stream.is_drained());
    respond(&mut rig, 1, request.request_id, 0);
    assert!(rig.stream.is_drained());
    assert_eq!(rig.completions(), []);
}

#[test]
fn what_cannot_be_posted() {
    let mut rig = Rig::responder();
    let sink = rig.memory.register(24);
    for elements in [&[sge(sink, 0, 7)][..], &[sge(sink, 0, 16)], &[sge(sink, 0, 4), sge(sink, 4, 4)]] {
        let request = SendRequest { sg_list: list(elements), ..atomic(1, CMP_SWAP) };
        assert_eq!(rig.try_post(request), Err(PostError::BadSgList));
    }
    let mut rig = Rig::with(&Negotiated { ord: 0, ..negotiated(Role::Initiator) });
    assert_eq!(rig.try_post(atomic(1, CMP_SWAP)), Err(PostError::NoReads));
    assert!(!rig.stream.has_output());
}

#[test]
fn what_is_outstanding_at_the_end_is_flushed_in_order() {
    let mut rig = Rig::responder();
    rig.try_post(atomic(1, CMP_SWAP)).unwrap();
    rig.try_post(atomic(2, CMP_SWAP)).unwrap();
    rig.post_send(3, 4);
    rig.sent();
    respond(&mut rig, 1, 1, 77);
    rig.stream.llp_closed();
    let statuses = [(1, Status::Success), (2, Status::Flushed), (3, Status::Flushed)];
    assert_eq!(rig.statuses(), statuses);
}

/// A refused Response: the Atomic fails with `RemoteError`.
#[track_caller]
fn refused(msn: u32, octets: &[u8], error: impl Into<iwarp::error::StreamError>, code: TerminateCode) {
    let mut rig = Rig::responder();
    rig.try_post(atomic(1, CMP_SWAP)).unwrap();
    rig.sent();
    let segment = ulpdu(atomic_response_header(msn), octets);
    rig.deliver_ulpdu(&segment);
    rig.assert_terminates(error, code).assert_shows(&segment, 18);
    assert_eq!(rig.statuses(), [(1, Status::RemoteError)]);
}

// proves 7306-8.2-1, 7306-8.2-2
#[test]
fn a_response_of_another_length_or_msn_is_refused() {
    let unspecified = TerminateCode::RemoteOperation(RemoteOperation::Unspecified);
    refused(1, &[0; 11], RdmapError::AtomicResponseLength, unspecified);
    let too_long = TerminateCode::Untagged(UntaggedBuffer::MessageTooLong);
    refused(1, &[0; 13], DdpError::MessageTooLong(Queue::AtomicResponse), too_long);
    let range = TerminateCode::Untagged(UntaggedBuffer::MsnRange);
    refused(2, &[0; 12], DdpError::MsnRange(Queue::AtomicResponse), range);
}

#[test]
fn a_response_to_another_request_is_refused() {
    let octets = AtomicResponse { request_id: 77, original: 0 }.emit();
    let code = TerminateCode::RemoteOperation(RemoteOperation::Unspecified);
    refused(1, &octets, RdmapError::AtomicResponseId, code);
}

// proves 7306-8.2-2
#[test]
fn a_response_that_nothing_asked_for_has_no_buffer() {
    let mut rig = Rig::responder();
    // A Read waits, but not for this.
    rig.post_read(1, 8);
    rig.sent();
    respond(&mut rig, 1, 1, 0);
    let code = TerminateCode::Untagged(UntaggedBuffer::NoBuffer);
    rig.assert_terminates(DdpError::NoBuffer(Queue::AtomicResponse), code);
    assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
}

// proves 7306-8.1-1
#[test]
fn a_sink_that_is_refused_sends_a_terminate_without_headers_instead() {
    let mut rig = Rig::responder();
    let sink = rig.memory.register_for(8, &[Operation::RemoteWrite]);
    rig.try_post(SendRequest { sg_list: list(&[sge(sink, 0, 8)]), ..atomic(1, CMP_SWAP) }).unwrap();
    let sent = rig.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let terminate = Terminate::parse(&sent[0].payload).unwrap();
    assert_eq!(terminate, Terminate { code: TerminateCode::LocalCatastrophic, cause: None });
    let error = LocalError::RequestBuffer(AccessError::AccessRights);
    assert_eq!(rig.stream.error(), Some(error.into()));
    assert_eq!(rig.statuses(), [(1, Status::LocalAccess)]);
}

#[test]
fn a_sink_that_is_withdrawn_meanwhile_ends_the_stream() {
    let mut rig = Rig::responder();
    let sink = rig.memory.register(8);
    rig.try_post(SendRequest { sg_list: list(&[sge(sink, 0, 8)]), ..atomic(1, CMP_SWAP) }).unwrap();
    let request = sent_request(&mut rig);
    rig.memory.deregister(sink);
    respond(&mut rig, 1, request.request_id, 0);
    let error = LocalError::RequestBuffer(AccessError::InvalidStag);
    rig.assert_terminates(error, TerminateCode::LocalCatastrophic);
    assert_eq!(rig.statuses(), [(1, Status::LocalAccess)]);
}

#[test]
fn the_atomic_that_a_terminate_shows_is_the_one_that_failed() {
    let mut rig = Rig::responder();
    rig.post_read(1, 8);
    rig.try_post(atomic(2, CMP_SWAP)).unwrap();
    let shown = ulpdu(rig.sent()[1].header, &[]);
    let terminate = Terminate {
        code: TerminateCode::RemoteProtection(RemoteProtection::AccessRights),
        cause: Some(Cause {
            segment_len: 70,
            header: TerminatedHeader::of(&shown).unwrap(),
            read_request: None,
        }),
    };
    rig.deliver(terminate_header(), &terminate.emit());
    assert_eq!(rig.statuses(), [(1, Status::Flushed), (2, Status::RemoteError)]);
}

#[test]
fn a_peer_of_another_stag_is_never_looked_at_here() {
    // The target is the peer's: no check of ours is about it.
    let mut rig = Rig::responder();
    rig.try_post(SendRequest::atomic(1, Stag(0xdead), 3, CMP_SWAP)).unwrap();
    assert_eq!(sent_request(&mut rig).offset, 3);
}
