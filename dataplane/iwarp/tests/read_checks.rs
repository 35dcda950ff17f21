//! Every check of Reads, both ways (RFC 5040 sections 5.2 and 7.2): the error it is, the
//! Terminate it becomes, and that nothing was placed.

mod common;

use common::*;
use iwarp::ddp::Queue;
use iwarp::error::{DdpError, RdmapError};
use iwarp::memory::{AccessError, Operation};
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::wire::rdmap::{Opcode, ReadRequest};
use iwarp::wire::terminate::{
    RemoteOperation, RemoteProtection, TaggedBuffer, Terminate, TerminateCode, UntaggedBuffer,
};
use iwarp::work::Status;

fn untagged_code(code: UntaggedBuffer) -> TerminateCode {
    TerminateCode::Untagged(code)
}

mod read_requests {
    use super::*;

    #[track_caller]
    fn refused(rig: &mut Rig, request: ReadRequest, error: AccessError, code: RemoteProtection) {
        let segment = ulpdu(read_request_header(1), &request.emit());
        rig.deliver_ulpdu(&segment);
        let code = TerminateCode::RemoteProtection(code);
        let terminate = rig.assert_terminates(RdmapError::ReadSource(error), code);
        terminate.assert_shows(&segment, 18);
        assert_eq!(terminate.cause.unwrap().read_request, Some(request));
    }

    // proves 5040-7.2-7, 5040-5.2.1-15, 5040-4.8-10
    #[test]
    fn invalid_stag() {
        let mut rig = Rig::responder();
        let request = read_of(4, Stag(0xdead), 0);
        refused(&mut rig, request, AccessError::InvalidStag, RemoteProtection::InvalidStag);
    }

    // proves 5040-7.2-9, 5040-7.2-10
    #[test]
    fn base_or_bounds() {
        for (len, offset) in [(9, 0), (1, 8), (u32::MAX, 0), (4, 1 << 40)] {
            let mut rig = Rig::responder();
            let stag = rig.memory.register(8);
            let request = read_of(len, stag, offset);
            refused(&mut rig, request, AccessError::BaseOrBounds, RemoteProtection::BaseOrBounds);
        }
    }

    // proves 5040-7.2-8
    #[test]
    fn not_associated() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        rig.memory.regions.get_mut(&stag).unwrap().domain = ProtectionDomain(2);
        let request = read_of(4, stag, 0);
        refused(&mut rig, request, AccessError::NotAssociated, RemoteProtection::NotAssociated);
    }

    // proves 5040-7.2-11
    #[test]
    fn offset_wrap() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        let request = read_of(4, stag, u64::MAX - 2);
        refused(&mut rig, request, AccessError::OffsetWrap, RemoteProtection::OffsetWrap);
    }

    #[test]
    fn access_rights() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register_for(8, &[Operation::RemoteWrite, Operation::LocalRead]);
        let request = read_of(4, stag, 0);
        refused(&mut rig, request, AccessError::AccessRights, RemoteProtection::AccessRights);
    }

    // proves 5040-5.2.1-14, 5040-5.2.1-16, 5040-5.2.1-17
    #[test]
    fn a_zero_length_read_is_not_checked_and_answered() {
        let mut rig = Rig::responder();
        rig.deliver(read_request_header(1), &read_of(0, Stag(0xdead), u64::MAX).emit());
        let sent = rig.sent();
        let [response] = &sent[..] else { panic!("one Response") };
        assert_eq!(response.header, tagged(Opcode::ReadResponse, PEER_STAG, 0x1_0000_0000));
        assert_eq!(response.payload, []);
        rig.assert_operating();
    }

    #[test]
    fn a_request_of_another_length_is_refused() {
        for len in 0..28 {
            let mut rig = Rig::responder();
            rig.deliver(read_request_header(1), &vec![0; len]);
            let code = TerminateCode::RemoteOperation(RemoteOperation::Unspecified);
            rig.assert_terminates(RdmapError::ReadRequestLength, code);
        }
        for len in [29, 64] {
            let mut rig = Rig::responder();
            rig.deliver(read_request_header(1), &vec![0; len]);
            let code = untagged_code(UntaggedBuffer::MessageTooLong);
            rig.assert_terminates(DdpError::MessageTooLong(Queue::ReadRequest), code);
        }
    }

    // proves 5040-5.5-7
    #[test]
    fn a_request_may_come_in_segments() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(8);
        let octets = read_of(8, stag, 0).emit();
        rig.deliver(not_last(read_request_header(1)), &octets[..5]);
        assert!(!rig.stream.has_output());
        rig.deliver(at(read_request_header(1), 5), &octets[5..]);
        let sent = rig.sent();
        assert_eq!(sent[0].payload, counting(8));

        rig.deliver(not_last(read_request_header(2)), &octets[..5]);
        rig.deliver(at(read_request_header(2), 4), &octets[4..]);
        let code = untagged_code(UntaggedBuffer::InvalidOffset);
        rig.assert_terminates(DdpError::InvalidOffset(Queue::ReadRequest), code);
    }

    // proves 5040-6.1-2, 5040-6.1-5, 5040-5.2.1-3, 5040-5.2.2-3, 5040-8.1.1-13, 5042-6.4.3.3-2
    // proves 5042-6.4.3.3-1, 5042-appendix-A-5
    #[test]
    fn more_reads_than_ird_are_refused() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(8);
        let request = read_of(8, stag, 0).emit();
        let depth = u32::from(DEPTH);
        for msn in 1..=depth {
            rig.deliver(read_request_header(msn), &request);
        }
        rig.assert_operating();
        rig.deliver(read_request_header(depth + 1), &request);
        let code = untagged_code(UntaggedBuffer::NoBuffer);
        rig.assert_terminates(DdpError::NoBuffer(Queue::ReadRequest), code);
    }

    // proves 5040-5.2.1-3, 5040-5.2.1-4, 5040-5.2.1-13
    #[test]
    fn an_answered_read_makes_room_for_another() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(8);
        for msn in 1..=10 {
            rig.deliver(read_request_header(msn), &read_of(8, stag, 0).emit());
            assert_eq!(rig.sent_opcodes(), [Opcode::ReadResponse]);
        }
        rig.assert_operating();
    }

    #[test]
    fn the_msn_of_this_queue_is_its_own() {
        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        let (stag, _) = rig.source(8);
        rig.deliver(read_request_header(1), &read_of(8, stag, 0).emit());
        rig.deliver(send_header(1), &[7; 8]);
        rig.assert_operating();
        rig.deliver(read_request_header(3), &read_of(8, stag, 0).emit());
        let code = untagged_code(UntaggedBuffer::MsnRange);
        assert_eq!(rig.stream.error(), Some(DdpError::MsnRange(Queue::ReadRequest).into()));
        let terminate = rig.sent().pop().unwrap();
        assert_eq!(Terminate::parse(&terminate.payload).unwrap().code, code);
    }
}

mod read_responses {
    use super::*;

    /// A Stream with one Read of 8 octets outstanding; its sink.
    fn reading() -> (Rig, Stag) {
        let mut rig = Rig::responder();
        let sink = rig.post_read(1, 8);
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest]);
        (rig, sink)
    }

    fn tagged_code(code: TaggedBuffer) -> TerminateCode {
        TerminateCode::Tagged(code)
    }

    // proves 5040-5.2-1
    #[test]
    fn unsolicited() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        rig.deliver(tagged(Opcode::ReadResponse, stag, 0), &[7; 8]);
        let code = TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode);
        rig.assert_terminates(RdmapError::UnsolicitedResponse, code);
        assert_eq!(rig.memory.octets(stag), [0; 8]);

        let (mut rig, sink) = reading();
        rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[7; 8]);
        rig.assert_operating();
        rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[8; 8]);
        rig.assert_terminates(RdmapError::UnsolicitedResponse, code);
        assert_eq!(rig.memory.octets(sink), [7; 8]);
    }

    // proves 5040-5.2.2-7
    #[test]
    fn to_another_stag() {
        let (mut rig, sink) = reading();
        let other = rig.memory.register(8);
        rig.deliver(tagged(Opcode::ReadResponse, other, 0), &[7; 8]);
        rig.assert_terminates(RdmapError::ResponseStag, tagged_code(TaggedBuffer::InvalidStag));
        assert_eq!(rig.memory.octets(other), [0; 8]);
        assert_eq!(rig.memory.octets(sink), [0; 8]);
        assert_eq!(rig.statuses(), [(1, Status::RemoteError)]);
    }

    // proves 5040-5.2.2-7
    #[test]
    fn at_another_offset() {
        for (first, second) in [(1, None), (u64::MAX, None), (0, Some(0)), (0, Some(3)), (0, Some(5))] {
            let (mut rig, sink) = reading();
            rig.deliver(not_last(tagged(Opcode::ReadResponse, sink, first)), &[7; 4]);
            if let Some(second) = second {
                rig.deliver(tagged(Opcode::ReadResponse, sink, second), &[8; 3]);
            }
            rig.assert_terminates(RdmapError::ResponseOffset, tagged_code(TaggedBuffer::BaseOrBounds));
            assert!(!rig.memory.octets(sink).contains(&8));
            assert_eq!(rig.statuses(), [(1, Status::RemoteError)]);
        }
    }

    // proves 5040-5.2.2-7, 5040-8.1.1-4
    #[test]
    fn longer_than_the_read_in_any_segment() {
        // The sink's buffer is larger than what the Read asked for.
        let setup = || {
            let mut rig = Rig::responder();
            let sink = rig.memory.register(32);
            rig.try_post(read(1, sge(sink, 8, 8), PEER_STAG, 0)).unwrap();
            rig.sent();
            (rig, sink)
        };
        let code = tagged_code(TaggedBuffer::BaseOrBounds);
        for last in [true, false] {
            let (mut rig, sink) = setup();
            let header = tagged(Opcode::ReadResponse, sink, 8);
            rig.deliver(if last { header } else { not_last(header) }, &[7; 9]);
            rig.assert_terminates(RdmapError::ResponseTooLong, code);
            assert_eq!(rig.memory.octets(sink), [0; 32]);

            let (mut rig, sink) = setup();
            rig.deliver(not_last(header), &[7; 8]);
            let header = tagged(Opcode::ReadResponse, sink, 16);
            rig.deliver(if last { header } else { not_last(header) }, &[9; 1]);
            rig.assert_terminates(RdmapError::ResponseTooLong, code);
            assert!(!rig.memory.octets(sink).contains(&9));
        }
    }

    // proves 5040-5.2.2-7
    #[test]
    fn shorter_than_the_read() {
        for len in 0..8 {
            let (mut rig, sink) = reading();
            rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &vec![7; len]);
            let code = TerminateCode::RemoteOperation(RemoteOperation::Unspecified);
            rig.assert_terminates(RdmapError::ResponseTooShort, code);
            assert_eq!(rig.statuses(), [(1, Status::RemoteError)]);
        }
    }

    #[test]
    fn whose_sink_was_withdrawn() {
        let (mut rig, sink) = reading();
        rig.deliver(not_last(tagged(Opcode::ReadResponse, sink, 0)), &[7; 4]);
        rig.memory.deregister(sink);
        rig.deliver(tagged(Opcode::ReadResponse, sink, 4), &[7; 4]);
        let error = DdpError::Tagged(AccessError::InvalidStag);
        rig.assert_terminates(error, tagged_code(TaggedBuffer::InvalidStag));
        assert_eq!(rig.statuses(), [(1, Status::LocalAccess)]);
    }

    // proves 5041-5.2-10, 5040-5.5-15
    #[test]
    fn of_no_octets_names_nothing() {
        let mut rig = Rig::responder();
        rig.post_read(1, 0);
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest]);
        assert_eq!(rig.completions(), []);
        rig.deliver(tagged(Opcode::ReadResponse, Stag(0xdead), 77), &[]);
        assert_eq!(rig.statuses(), [(1, Status::Success)]);
        rig.assert_operating();
    }

    // proves 5040-5.5-15, 5040-5.5-17
    #[test]
    fn completes_the_read_with_its_last_segment() {
        let (mut rig, sink) = reading();
        rig.deliver(not_last(tagged(Opcode::ReadResponse, sink, 0)), &[1; 4]);
        assert_eq!(rig.completions(), []);
        rig.deliver(tagged(Opcode::ReadResponse, sink, 4), &[2; 4]);
        let [completion] = rig.completions()[..] else { panic!("one completion") };
        assert_eq!((completion.id, completion.status, completion.len), (1, Status::Success, 8));
        assert_eq!(rig.memory.octets(sink), [1, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn interleaved_with_the_peers_own_messages() {
        let (mut rig, sink) = reading();
        let target = rig.memory.register(4);
        let buffer = rig.post_receive(2, 8);
        rig.deliver(not_last(tagged(Opcode::ReadResponse, sink, 0)), &[1; 4]);
        rig.deliver(not_last(send_header(1)), &[5; 4]);
        rig.deliver(tagged(Opcode::Write, target, 0), &[6; 4]);
        rig.deliver(tagged(Opcode::ReadResponse, sink, 4), &[2; 4]);
        rig.deliver(at(send_header(1), 4), &[5; 4]);
        rig.assert_operating();
        assert_eq!(rig.statuses(), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(rig.memory.octets(sink), [1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(rig.memory.octets(buffer), [5; 8]);
        assert_eq!(rig.memory.octets(target), [6; 4]);
    }
}
