//! How Streams end: Terminates both ways, closing, and the flush of posted work (RFC 5040
//! sections 5.4, 6.2 and 7.1, RFC 5041 section 6.2).

mod common;

use common::*;
use iwarp::ddp::Queue;
use iwarp::error::{DdpError, LocalError, RdmapError, StreamError};
use iwarp::memory::AccessError;
use iwarp::mpa::{MpaError, Role, RtrKind};
use iwarp::stream::StreamState;
use iwarp::types::Stag;
use iwarp::wire::rdmap::Opcode;
use iwarp::wire::terminate::{
    Cause, Mpa, RemoteProtection, TaggedBuffer, Terminate, TerminateCode, TerminatedHeader, UntaggedBuffer,
};
use iwarp::work::Status;

/// What the peer does to provoke a Terminate: a Send without a receive.
fn provoke(rig: &mut Rig) {
    rig.deliver(send_header(1), &[7]);
}

const PROVOKED: DdpError = DdpError::NoBuffer(Queue::Send);
const PROVOKED_CODE: TerminateCode = TerminateCode::Untagged(UntaggedBuffer::NoBuffer);

mod terminate_sent {
    use super::*;

    // proves 5040-5.4-1, 5040-5.4-3, 5040-5.4-5, 5040-5.4-8, 5040-7.1-2, 5041-7.1-10
    // proves 5041-6.2-1, 5041-6.2.2-3, 5041-6.2.2-4
    #[test]
    fn follows_the_message_that_is_being_sent_and_is_the_last() {
        let mut rig = Rig::responder();
        rig.post_send(1, 3 * UNTAGGED_MAX);
        rig.post_send(2, 5);
        assert_eq!(rig.next_sent().unwrap().opcode, Opcode::Send);
        provoke(&mut rig);
        assert_eq!(rig.stream.state(), StreamState::Terminating);
        assert!(!rig.stream.is_drained());
        assert_eq!(rig.completions(), []);
        assert_eq!(rig.sent_opcodes(), [Opcode::Send, Opcode::Send, Opcode::Terminate]);
        assert_eq!(rig.statuses(), [(1, Status::Success), (2, Status::Flushed)]);
        assert_eq!(rig.stream.state(), StreamState::Terminated);
        assert!(!rig.stream.has_output());
    }

    #[test]
    fn follows_a_response_that_is_being_sent_but_no_other() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(2 * TAGGED_MAX);
        let len = (2 * TAGGED_MAX).try_into().unwrap();
        for msn in 1..=2 {
            rig.deliver(read_request_header(msn), &read_of(len, stag, 0).emit());
        }
        assert_eq!(rig.next_sent().unwrap().opcode, Opcode::ReadResponse);
        provoke(&mut rig);
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadResponse, Opcode::Terminate]);
    }

    // proves 5040-7.1-3
    #[test]
    fn names_the_first_error() {
        let mut rig = Rig::responder();
        provoke(&mut rig);
        rig.deliver(tagged(Opcode::Write, Stag(0xdead), 0), &[7]);
        rig.deliver_ulpdu(&[0]);
        rig.assert_terminates(PROVOKED, PROVOKED_CODE);
    }

    // proves 5041-7.1-9
    #[test]
    fn lets_nothing_more_be_placed_or_delivered() {
        let mut rig = Rig::responder();
        provoke(&mut rig);
        let stag = rig.memory.register(8);
        rig.deliver(tagged(Opcode::Write, stag, 0), &[7; 8]);
        rig.deliver(terminate_header(), &[0; 4]);
        assert_eq!(rig.memory.octets(stag), [0; 8]);
        assert_eq!(rig.stream.terminate_received(), None);
        rig.assert_terminates(PROVOKED, PROVOKED_CODE);
        rig.deliver(tagged(Opcode::Write, stag, 0), &[7; 8]);
        assert_eq!(rig.memory.octets(stag), [0; 8]);
    }

    #[test]
    fn the_rest_of_a_segment_is_not_looked_at() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        let mut segment = rig.fpdu(&ulpdu(send_header(1), &[7]));
        segment.extend(rig.fpdu(&ulpdu(tagged(Opcode::Write, stag, 0), &[7; 8])));
        rig.stream.receive(segment, &mut rig.memory);
        assert_eq!(rig.stream.pending_octets(), 0);
        assert_eq!(rig.memory.octets(stag), [0; 8]);
        rig.assert_terminates(PROVOKED, PROVOKED_CODE);
    }

    // proves 5040-7.1-1, 5040-7.1-2
    #[test]
    fn instead_of_a_request_whose_buffer_is_refused() {
        let requests = [
            send(2, &[sge(Stag(0xdead), 0, 4)]),
            write(2, &[sge(Stag(0xdead), 0, 4)], PEER_STAG, 0),
            read(2, sge(Stag(0xdead), 0, 4), PEER_STAG, 0),
        ];
        for request in requests {
            let mut rig = Rig::new(Role::Initiator);
            rig.post_send(1, 4);
            rig.try_post(request).unwrap();
            rig.post_send(3, 4);
            assert_eq!(rig.sent_opcodes(), [Opcode::Send, Opcode::Terminate]);
            let error = LocalError::RequestBuffer(AccessError::InvalidStag);
            assert_eq!(rig.stream.error(), Some(error.into()));
            let expected = [(1, Status::Success), (2, Status::LocalAccess), (3, Status::Flushed)];
            assert_eq!(rig.statuses(), expected);
        }
    }

    #[test]
    fn a_bad_element_is_found_before_a_long_message_starts() {
        let mut rig = Rig::new(Role::Initiator);
        let (_, good) = rig.source(3 * UNTAGGED_MAX);
        rig.try_post(send(1, &[good, sge(Stag(0xdead), 0, 1)])).unwrap();
        assert_eq!(rig.sent_opcodes(), [Opcode::Terminate]);
        assert_eq!(rig.statuses(), [(1, Status::LocalAccess)]);
    }

    #[test]
    fn breaks_off_a_message_whose_buffer_is_withdrawn() {
        let mut rig = Rig::new(Role::Initiator);
        let stag = rig.post_send(1, 3 * UNTAGGED_MAX);
        rig.next_sent().unwrap();
        rig.memory.deregister(stag);
        let sent = rig.sent();
        assert_eq!(sent[0].header, terminate_header());
        let terminate = Terminate::parse(&sent[0].payload).unwrap();
        assert_eq!(terminate, Terminate { code: TerminateCode::LocalCatastrophic, cause: None });
        assert_eq!(rig.statuses(), [(1, Status::LocalAccess)]);

        // The same while a Terminate waits for the message.
        let mut rig = Rig::responder();
        let stag = rig.post_send(1, 3 * UNTAGGED_MAX);
        rig.next_sent().unwrap();
        provoke(&mut rig);
        rig.memory.deregister(stag);
        rig.assert_terminates(PROVOKED, PROVOKED_CODE);
        assert_eq!(rig.statuses(), [(1, Status::LocalAccess)]);
    }

    // proves 5040-4.8-10
    #[test]
    fn shows_how_far_a_response_came_when_its_source_is_withdrawn() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(3 * TAGGED_MAX);
        let request = read_of((3 * TAGGED_MAX).try_into().unwrap(), stag, 0);
        rig.deliver(read_request_header(1), &request.emit());
        rig.next_sent().unwrap();
        rig.memory.deregister(stag);
        let sent = rig.sent();
        let terminate = Terminate::parse(&sent[0].payload).unwrap();
        assert_eq!(rig.stream.error(), Some(RdmapError::ReadSource(AccessError::InvalidStag).into()));
        assert_eq!(terminate.code, TerminateCode::RemoteProtection(RemoteProtection::InvalidStag));
        let cause = terminate.cause.unwrap();
        assert_eq!(cause.header.octets(), &ulpdu(read_request_header(1), &[])[..]);
        assert_eq!(cause.segment_len, 46);
        let shown = cause.read_request.unwrap();
        let gone = TAGGED_MAX as u64;
        assert_eq!(shown.len as usize, 2 * TAGGED_MAX);
        assert_eq!(shown.sink_offset, request.sink_offset + gone);
        assert_eq!(shown.source_offset, gone);
    }

    #[test]
    fn for_what_is_found_outside() {
        let mut rig = Rig::with(&negotiated_rtr(Role::Initiator, RtrKind::Read));
        rig.stream.terminate(MpaError::InsufficientIrd.into());
        let code = TerminateCode::Mpa(Mpa::InsufficientIrd);
        rig.assert_terminates(MpaError::InsufficientIrd, code);

        let mut rig = Rig::new(Role::Initiator);
        rig.post_send(1, 4);
        rig.stream.terminate(LocalError::Aborted.into());
        rig.assert_terminates(LocalError::Aborted, TerminateCode::LocalCatastrophic);
        assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
    }

    // proves 5044-7.1.2-12
    #[test]
    fn not_by_a_responder_that_may_not_send_yet() {
        let mut rig = Rig::new(Role::Responder);
        rig.post_send(1, 4);
        rig.stream.terminate(LocalError::Aborted.into());
        assert_eq!(rig.stream.state(), StreamState::Terminated);
        assert_eq!(rig.sent(), []);
        assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
    }
}

mod terminate_received {
    use super::*;

    fn ended(rig: &mut Rig, payload: &[u8], code: TerminateCode) {
        rig.deliver(terminate_header(), payload);
        assert_eq!(rig.stream.terminate_received(), Some(code));
        assert_eq!(rig.stream.error(), None);
        assert_eq!(rig.stream.state(), StreamState::Terminated);
        assert!(rig.stream.is_drained());
        assert_eq!(rig.sent(), []);
    }

    // proves 5040-5.4-4, 5040-5.4-6, 5040-5.4-7, 5040-6.2.1-2
    #[test]
    fn ends_the_stream_and_all_requests_in_order() {
        let mut rig = Rig::responder();
        rig.post_receive(1, 4);
        rig.post_read(2, 4);
        rig.post_send(3, 4);
        rig.post_receive(4, 4);
        rig.sent();
        rig.post_send(5, 4);
        ended(&mut rig, &[0x12, 0x05, 0, 0], TerminateCode::Untagged(UntaggedBuffer::MessageTooLong));
        let flushed = [2, 3, 5, 1, 4].map(|id| (id, Status::Flushed));
        assert_eq!(rig.statuses(), flushed);
    }

    #[test]
    fn breaks_off_what_is_being_sent() {
        let mut rig = Rig::responder();
        rig.post_send(1, 3 * UNTAGGED_MAX);
        rig.next_sent().unwrap();
        ended(&mut rig, &[0x20, 0x02, 0, 0], TerminateCode::Mpa(Mpa::Crc));
        assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
    }

    #[test]
    fn for_a_read_request_fails_the_oldest_read() {
        let mut rig = Rig::responder();
        rig.post_send(1, 4);
        rig.post_read(2, 4);
        rig.post_read(3, 4);
        rig.post_send(4, 4);
        rig.sent();
        let code = TerminateCode::RemoteProtection(RemoteProtection::AccessRights);
        ended(&mut rig, &Terminate { code, cause: None }.emit(), code);
        let expected =
            [(1, Status::Success), (2, Status::RemoteError), (3, Status::Flushed), (4, Status::Flushed)];
        assert_eq!(rig.statuses(), expected);
    }

    #[test]
    fn for_a_read_request_is_also_told_by_the_header_that_it_shows() {
        let mut rig = Rig::responder();
        rig.post_read(1, 4);
        rig.sent();
        let header = TerminatedHeader::of(&ulpdu(read_request_header(1), &[])).unwrap();
        let read_request = Some(read_of(4, Stag(1), 0));
        let cause = Some(Cause { segment_len: 46, header, read_request });
        ended(&mut rig, &Terminate { code: PROVOKED_CODE, cause }.emit(), PROVOKED_CODE);
        assert_eq!(rig.statuses(), [(1, Status::RemoteError)]);
    }

    /// As captured: layer and type swapped, header bits mirrored.
    #[test]
    fn in_the_layout_of_siw() {
        let mut octets = vec![0x21, 0x02, 0x03, 0x00, 0x05, 0x90, 0x01, 0x43];
        octets.extend([0; 16]);
        let mut rig = Rig::responder();
        ended(&mut rig, &octets, PROVOKED_CODE);
        let mut octets = vec![0x11, 0x01, 0x03, 0x00, 0x05, 0x94, 0x81, 0x40];
        octets.extend([0; 12]);
        let mut rig = Rig::responder();
        ended(&mut rig, &octets, TerminateCode::Tagged(TaggedBuffer::BaseOrBounds));
    }

    #[test]
    fn too_short_is_an_error_without_an_answer() {
        for len in 0..4 {
            let mut rig = Rig::responder();
            rig.post_send(1, 4);
            rig.deliver(terminate_header(), &vec![0; len]);
            assert_eq!(rig.stream.error(), Some(RdmapError::MalformedTerminate.into()));
            assert_eq!(rig.stream.state(), StreamState::Terminated);
            assert_eq!(rig.sent(), []);
            assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
        }
    }

    #[test]
    fn in_segments_or_too_long_is_checked_as_any_message() {
        let mut rig = Rig::responder();
        rig.deliver(not_last(terminate_header()), &[0x20]);
        rig.assert_operating();
        rig.deliver(at(terminate_header(), 1), &[0x02, 0, 0]);
        assert_eq!(rig.stream.terminate_received(), Some(TerminateCode::Mpa(Mpa::Crc)));

        let mut rig = Rig::responder();
        rig.deliver(terminate_header(), &[0; 65]);
        let code = TerminateCode::Untagged(UntaggedBuffer::MessageTooLong);
        rig.assert_terminates(DdpError::MessageTooLong(Queue::Terminate), code);

        let mut rig = Rig::responder();
        rig.deliver(untagged(Opcode::Terminate, 2, 2), &[0; 4]);
        let code = TerminateCode::Untagged(UntaggedBuffer::MsnRange);
        rig.assert_terminates(DdpError::MsnRange(Queue::Terminate), code);
    }
}

mod closing {
    use super::*;

    // proves 5041-6.2.1-1
    #[test]
    fn sends_what_was_posted_and_flushes_what_comes_later_in_its_turn() {
        let mut rig = Rig::responder();
        let sink = rig.post_read(1, 4);
        rig.post_send(2, 4);
        rig.stream.close();
        rig.post_send(3, 4);
        rig.post_send(4, 4);
        assert_eq!(rig.stream.state(), StreamState::Closing);
        assert_eq!(rig.completions(), []);
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest, Opcode::Send]);
        assert!(!rig.stream.is_drained());
        rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[7; 4]);
        let (ok, flushed) = (Status::Success, Status::Flushed);
        assert_eq!(rig.statuses(), [(1, ok), (2, ok), (3, flushed), (4, flushed)]);
        assert!(rig.stream.is_drained());
        rig.post_send(5, 4);
        assert_eq!(rig.statuses(), [(5, flushed)]);
        assert!(!rig.stream.has_output());
    }

    // proves 5041-6.2.1-5
    #[test]
    fn answers_the_peers_reads_and_still_receives() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(8);
        rig.deliver(read_request_header(1), &read_of(8, stag, 0).emit());
        rig.stream.close();
        assert!(!rig.stream.is_drained());
        rig.post_receive(1, 8);
        rig.deliver(send_header(1), &[7; 8]);
        assert_eq!(rig.statuses(), [(1, Status::Success)]);
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadResponse]);
        assert!(rig.stream.is_drained());
    }

    #[test]
    fn waits_for_the_answer_to_an_rtr_read() {
        let mut rig = Rig::with(&negotiated_rtr(Role::Initiator, RtrKind::Read));
        rig.sent();
        rig.stream.close();
        assert!(!rig.stream.is_drained());
        rig.deliver(tagged(Opcode::ReadResponse, Stag(1), 0), &[]);
        assert!(rig.stream.is_drained());
    }

    #[test]
    fn with_nothing_to_send_is_drained_at_once() {
        let mut rig = Rig::new(Role::Responder);
        assert!(!rig.stream.is_drained());
        rig.stream.close();
        assert!(rig.stream.is_drained());
    }

    // proves 5044-7.2-1, 5041-3-10
    #[test]
    fn receives_are_flushed_when_the_llp_is_closed() {
        let mut rig = Rig::new(Role::Responder);
        rig.post_receive(1, 8);
        rig.post_receive(2, 8);
        rig.stream.close();
        assert_eq!(rig.completions(), []);
        rig.stream.peer_closed();
        assert_eq!(rig.stream.state(), StreamState::Closed);
        assert_eq!(rig.stream.error(), None);
        assert_eq!(rig.statuses(), [(1, Status::Flushed), (2, Status::Flushed)]);
    }

    #[test]
    fn an_error_while_closing_still_terminates() {
        let mut rig = Rig::responder();
        rig.post_send(1, 4);
        rig.stream.close();
        rig.post_send(2, 4);
        provoke(&mut rig);
        rig.assert_terminates(PROVOKED, PROVOKED_CODE);
        assert_eq!(rig.statuses(), [(1, Status::Flushed), (2, Status::Flushed)]);
    }
}

mod flushing {
    use super::*;

    // proves 5041-6.2.2-2, 5040-5.5-11
    #[test]
    fn completes_everything_once_and_in_order() {
        let mut rig = Rig::responder();
        for id in 0..4 {
            rig.post_receive(100 + id, 4);
            rig.post_read(id, 4);
        }
        let mut silent = send(4, &[]);
        silent.signaled = false;
        rig.try_post(silent).unwrap();
        rig.sent();
        rig.stream.fail();
        let ids: Vec<u64> = rig.statuses().iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 100, 101, 102, 103]);
        rig.stream.fail();
        rig.stream.llp_closed();
        assert_eq!(rig.completions(), []);
    }

    #[test]
    fn posts_on_an_ended_stream_succeed_and_flush_in_order() {
        let mut rig = Rig::responder();
        rig.post_send(1, 4);
        rig.post_receive(2, 4);
        rig.stream.fail();
        rig.post_send(3, 4);
        rig.post_receive(4, 4);
        rig.post_read(5, 4);
        let expected = [1, 2, 3, 4, 5].map(|id| (id, Status::Flushed));
        assert_eq!(rig.statuses(), expected);
        assert!(!rig.stream.has_output());
        // The depth holds here, too.
        for id in 0..u64::from(LIMITS.send_depth) {
            rig.post_send(id, 4);
        }
        assert_eq!(rig.stream.send_room(), 0);
        assert!(rig.try_post(send(99, &[])).is_err());
        assert_eq!(rig.completions().len(), LIMITS.send_depth as usize);
        assert_eq!(rig.try_post(send(99, &[])), Ok(()));
    }

    #[test]
    fn receives_posted_after_an_error_flush_although_the_terminate_waits() {
        let mut rig = Rig::responder();
        rig.post_send(1, 4);
        provoke(&mut rig);
        rig.post_receive(2, 4);
        assert_eq!(rig.statuses(), [(2, Status::Flushed)]);
        rig.post_send(3, 4);
        assert_eq!(rig.completions(), []);
        rig.assert_terminates(PROVOKED, PROVOKED_CODE);
        assert_eq!(rig.statuses(), [(1, Status::Flushed), (3, Status::Flushed)]);
    }

    #[test]
    fn receives_flush_as_soon_as_an_error_is_found() {
        let mut rig = Rig::responder();
        rig.post_receive(1, 4);
        rig.deliver(send_header(2), &[7]);
        assert_eq!(rig.stream.state(), StreamState::Terminating);
        assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
    }

    #[test]
    fn a_terminate_that_cannot_leave_does_not_hold_the_flush_back() {
        let mut rig = Rig::responder();
        rig.post_send(1, 4);
        provoke(&mut rig);
        rig.stream.fail();
        assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
        assert_eq!(rig.stream.state(), StreamState::Closed);
        assert_eq!(rig.stream.error(), Some(StreamError::Ddp(PROVOKED)));
        assert!(!rig.stream.has_output());
    }

    #[test]
    fn half_an_fpdu_is_given_back() {
        let mut rig = Rig::responder();
        let fpdu = rig.fpdu(&ulpdu(send_header(1), &[7; 8]));
        rig.stream.receive(fpdu[..10].to_vec(), &mut rig.memory);
        assert_eq!(rig.stream.pending_octets(), 10);
        rig.stream.peer_closed();
        assert_eq!(rig.stream.pending_octets(), 0);
    }
}

#[test]
fn errors_say_what_happened() {
    let errors: [(StreamError, &str); 4] = [
        (PROVOKED.into(), "no buffer for the next message on the Send queue"),
        (
            DdpError::Tagged(AccessError::BaseOrBounds).into(),
            "tagged DDP Segment refused: base or bounds violation",
        ),
        (
            RdmapError::ReadSource(AccessError::AccessRights).into(),
            "Read Request refused: access rights violation",
        ),
        (LocalError::Aborted.into(), "ended by the application"),
    ];
    for (error, words) in errors {
        assert_eq!(error.to_string(), words);
    }
}
