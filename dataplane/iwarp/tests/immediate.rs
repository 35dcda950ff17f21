//! Immediate Data, both ways (RFC 7306 section 6).

mod common;

use common::*;
use iwarp::ddp::Queue;
use iwarp::error::{DdpError, RdmapError};
use iwarp::mpa::Role;
use iwarp::wire::rdmap::Opcode;
use iwarp::wire::terminate::{RemoteOperation, TerminateCode, UntaggedBuffer};
use iwarp::work::{CompletedOperation, Completion, PostError, SendRequest, Status};

const DATA: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn received(id: u64, data: [u8; 8], solicited: bool) -> Completion {
    let operation = CompletedOperation::ReceiveImmediate { data, solicited };
    Completion { id, operation, status: Status::Success, len: 8 }
}

// proves 7306-6.3-1, 7306-6.3-2, 7306-6.3-5, 7306-6.3-6, 7306-6.3-7, 7306-4.1-1
#[test]
fn it_is_sent_as_an_untagged_message_of_queue_0_among_the_sends() {
    let mut rig = Rig::new(Role::Initiator);
    rig.post_send(1, 0);
    rig.try_post(SendRequest::immediate(2, DATA, false)).unwrap();
    rig.try_post(SendRequest::immediate(3, [9; 8], true)).unwrap();
    rig.post_send(4, 0);
    let sent: Vec<_> = rig.sent().into_iter().map(|sent| (sent.header, sent.payload)).collect();
    let expected = [
        (send_header(1), vec![]),
        (immediate_header(2), DATA.to_vec()),
        (untagged(Opcode::ImmediateDataSolicited, 0, 3), vec![9; 8]),
        (send_header(4), vec![]),
    ];
    assert_eq!(sent, expected);
    let completions = rig.completions();
    assert_eq!(completions[1].operation, CompletedOperation::Immediate);
    assert_eq!(completions[1].len, 8);
    let ids: Vec<_> = completions.iter().map(|it| it.id).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
}

#[test]
fn its_list_is_empty() {
    let mut rig = Rig::new(Role::Initiator);
    let (_, sge) = rig.source(8);
    let request = SendRequest { sg_list: list(&[sge]), ..SendRequest::immediate(1, DATA, false) };
    assert_eq!(rig.try_post(request), Err(PostError::BadSgList));
}

// proves 7306-6.3-3, 7306-6.3-4
#[test]
fn each_consumes_a_receive_and_comes_in_its_completion() {
    let mut rig = Rig::responder();
    let buffer = rig.post_receive(1, 16);
    // A receive without any room will do.
    rig.stream.post_receive(receive(2, &[])).unwrap();
    let after = rig.post_receive(3, 4);
    rig.deliver(immediate_header(1), &DATA);
    rig.deliver(untagged(Opcode::ImmediateDataSolicited, 0, 2), &[9; 8]);
    rig.deliver(send_header(3), &[7; 4]);
    let completions = rig.completions();
    assert_eq!(completions[..2], [received(1, DATA, false), received(2, [9; 8], true)]);
    assert_eq!((completions[2].id, completions[2].len), (3, 4));
    assert_eq!(rig.memory.octets(buffer), [0; 16], "the receive's octets stay as they are");
    assert_eq!(rig.memory.octets(after), [7; 4]);
    rig.assert_operating();
}

// proves 7306-6.3-3
#[test]
fn without_a_receive_there_is_no_buffer() {
    let mut rig = Rig::responder();
    rig.deliver(immediate_header(1), &DATA);
    let code = TerminateCode::Untagged(UntaggedBuffer::NoBuffer);
    rig.assert_terminates(DdpError::NoBuffer(Queue::Send), code);
}

// proves 7306-6.3-8, 7306-8.2-1
#[test]
fn other_than_8_octets_are_refused() {
    for len in [0, 1, 7, 9, 64] {
        let mut rig = Rig::responder();
        let buffer = rig.post_receive(1, 64);
        rig.deliver(immediate_header(1), &vec![7; len]);
        let code = TerminateCode::RemoteOperation(RemoteOperation::Unspecified);
        rig.assert_terminates(RdmapError::ImmediateLength, code);
        assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
        assert_eq!(rig.memory.octets(buffer), [0; 64]);
    }
}

// proves 7306-6.3-8
#[test]
fn it_may_come_in_segments_of_8_octets_together() {
    let mut rig = Rig::responder();
    rig.post_receive(1, 0);
    rig.post_receive(2, 0);
    rig.deliver(not_last(immediate_header(1)), &DATA[..3]);
    assert_eq!(rig.completions(), []);
    rig.deliver(at(immediate_header(1), 3), &DATA[3..]);
    assert_eq!(rig.completions(), [received(1, DATA, false)]);

    rig.deliver(not_last(immediate_header(2)), &DATA[..3]);
    rig.deliver(at(immediate_header(2), 3), &DATA[2..]);
    let code = TerminateCode::RemoteOperation(RemoteOperation::Unspecified);
    rig.assert_terminates(RdmapError::ImmediateLength, code);
}

#[test]
fn the_opcode_does_not_change_within_it() {
    for second in [Opcode::Send, Opcode::ImmediateDataSolicited] {
        let mut rig = Rig::responder();
        let buffer = rig.post_receive(1, 8);
        rig.deliver(not_last(immediate_header(1)), &DATA[..4]);
        rig.deliver(at(untagged(second, 0, 1), 4), &DATA[4..]);
        let code = TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode);
        rig.assert_terminates(RdmapError::UnexpectedOpcode, code);
        assert_eq!(rig.memory.octets(buffer), [0; 8]);
    }
    let mut rig = Rig::responder();
    rig.post_receive(1, 8);
    rig.deliver(not_last(send_header(1)), &DATA[..4]);
    rig.deliver(at(immediate_header(1), 4), &DATA[4..]);
    let code = TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode);
    rig.assert_terminates(RdmapError::UnexpectedOpcode, code);
}
