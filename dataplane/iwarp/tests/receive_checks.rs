//! Every check of what a peer sends (RFC 5041 section 7.1, RFC 5040 section 7.2): the error it
//! is, the Terminate it becomes, and that nothing was placed.

mod common;

use common::*;
use iwarp::ddp::Queue;
use iwarp::error::{DdpError, RdmapError};
use iwarp::memory::{AccessError, Operation};
use iwarp::mpa::{MpaError, Role};
use iwarp::stream::StreamState;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::wire::rdmap::Opcode;
use iwarp::wire::terminate::{
    Mpa, RemoteOperation, RemoteProtection, TaggedBuffer, TerminateCode, UntaggedBuffer,
};
use iwarp::work::{CompletedOperation, Status};

fn untagged_code(code: UntaggedBuffer) -> TerminateCode {
    TerminateCode::Untagged(code)
}

mod llp {
    use super::*;

    // proves 5044-8-8, 5041-7-1
    #[test]
    fn a_wrong_crc_places_nothing() {
        let mut rig = Rig::responder();
        let stag = rig.post_receive(1, 8);
        let mut fpdu = rig.fpdu(&ulpdu(send_header(1), &[7; 8]));
        fpdu[22] ^= 1;
        rig.stream.receive(fpdu, &mut rig.memory);
        let terminate = rig.assert_terminates(MpaError::Crc, TerminateCode::Mpa(Mpa::Crc));
        assert_eq!(terminate.cause, None);
        assert_eq!(rig.memory.octets(stag), [0; 8]);
    }

    // proves 5044-7.1.2-12
    #[test]
    fn the_very_first_fpdu_may_be_the_bad_one() {
        let mut rig = Rig::new(Role::Responder);
        let mut fpdu = rig.fpdu(&ulpdu(send_header(1), &[7; 8]));
        fpdu[22] ^= 1;
        rig.stream.receive(fpdu, &mut rig.memory);
        // To an FPDU that MPA cannot believe, a Responder must not answer with one.
        assert_eq!(rig.stream.error(), Some(MpaError::Crc.into()));
        assert_eq!(rig.stream.state(), StreamState::Terminated);
        assert_eq!(rig.sent(), []);

        for segment in [&[0x02_u8, 0x43][..], &[0x82, 0x40], &[0x01], &[]] {
            let mut rig = Rig::new(Role::Responder);
            rig.deliver_ulpdu(segment);
            assert_ne!(rig.stream.error(), None);
            assert_eq!(rig.sent_opcodes(), [Opcode::Terminate]);
        }
    }

    #[test]
    fn a_ulpdu_shorter_than_its_header_is_refused_at_each_length() {
        let untagged = ulpdu(send_header(1), &[]);
        let tagged = ulpdu(tagged(Opcode::Write, Stag(1), 0), &[]);
        for segment in [&untagged, &tagged] {
            for len in 0..segment.len() {
                let mut rig = Rig::responder();
                rig.post_receive(1, 8);
                rig.deliver_ulpdu(&segment[..len]);
                let code = TerminateCode::Mpa(Mpa::MarkerMismatch);
                assert_eq!(rig.assert_terminates(DdpError::Truncated, code).cause, None);
            }
            let mut rig = Rig::responder();
            rig.post_receive(1, 8);
            rig.deliver_ulpdu(segment);
            rig.assert_operating();
        }
    }
}

mod ddp_untagged {
    use super::*;

    /// Delivers one bad segment to a Stream with one receive of 8 octets; nothing is placed.
    #[track_caller]
    fn refused(
        header: iwarp::wire::ddp::Header,
        payload: &[u8],
        error: DdpError,
        code: UntaggedBuffer,
    ) -> Rig {
        let mut rig = Rig::responder();
        let stag = rig.post_receive(1, 8);
        rig.deliver(header, payload);
        let terminate = rig.assert_terminates(error, untagged_code(code));
        terminate.assert_shows(&ulpdu(header, payload), 18);
        assert_eq!(terminate.cause.unwrap().read_request, None);
        assert_eq!(rig.memory.octets(stag), [0; 8]);
        rig
    }

    // proves 5041-4.1-10
    #[test]
    fn version() {
        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        let mut segment = ulpdu(send_header(1), &[7; 8]);
        segment[0] ^= 0x03;
        rig.deliver_ulpdu(&segment);
        let code = untagged_code(UntaggedBuffer::InvalidVersion);
        let terminate = rig.assert_terminates(DdpError::UntaggedVersion, code);
        terminate.assert_shows(&segment, 18);
    }

    // proves 5041-7.1-1, 5041-7.1-8, 5041-7.2-1
    #[test]
    fn queue_number() {
        for queue in [4, 5, u32::MAX] {
            let header = untagged(Opcode::Send, queue, 1);
            refused(header, &[7; 8], DdpError::InvalidQueue, UntaggedBuffer::InvalidQueue);
        }
    }

    // proves 5041-7.1-1, 5041-7.1-5
    #[test]
    fn no_buffer_for_the_msn() {
        let mut rig = Rig::responder();
        rig.deliver(send_header(1), &[7; 8]);
        let code = untagged_code(UntaggedBuffer::NoBuffer);
        rig.assert_terminates(DdpError::NoBuffer(Queue::Send), code);

        // After a message took the only one.
        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        rig.deliver(send_header(1), &[7; 8]);
        rig.deliver(send_header(2), &[]);
        rig.assert_terminates(DdpError::NoBuffer(Queue::Send), code);
        assert_eq!(rig.statuses(), [(1, Status::Success)]);
    }

    // proves 5041-7.1-1, 5041-4.3-8
    #[test]
    fn msn_out_of_range() {
        for msn in [0, 2, u32::MAX] {
            let error = DdpError::MsnRange(Queue::Send);
            refused(send_header(msn), &[7; 8], error, UntaggedBuffer::MsnRange);
        }
        // A message that was delivered comes again.
        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        let second = rig.post_receive(2, 8);
        rig.deliver(send_header(1), &[7; 8]);
        rig.deliver(send_header(1), &[7; 8]);
        let code = untagged_code(UntaggedBuffer::MsnRange);
        rig.assert_terminates(DdpError::MsnRange(Queue::Send), code);
        assert_eq!(rig.memory.octets(second), [0; 8]);
        assert_eq!(rig.statuses(), [(1, Status::Success), (2, Status::Flushed)]);
    }

    // proves 5041-7.1-1
    #[test]
    fn message_offset() {
        for offset in [1, 8, 9, u32::MAX] {
            let error = DdpError::InvalidOffset(Queue::Send);
            refused(at(send_header(1), offset), &[7; 4], error, UntaggedBuffer::InvalidOffset);
        }
        // A segment comes twice.
        let mut rig = Rig::responder();
        let stag = rig.post_receive(1, 8);
        rig.deliver(not_last(send_header(1)), &[1, 2]);
        rig.deliver(not_last(send_header(1)), &[3, 4]);
        let code = untagged_code(UntaggedBuffer::InvalidOffset);
        rig.assert_terminates(DdpError::InvalidOffset(Queue::Send), code);
        assert_eq!(rig.memory.octets(stag), [1, 2, 0, 0, 0, 0, 0, 0]);
    }

    // proves 5041-7.1-1
    #[test]
    fn message_too_long_for_its_buffer() {
        let error = DdpError::MessageTooLong(Queue::Send);
        let mut rig = refused(send_header(1), &[7; 9], error, UntaggedBuffer::MessageTooLong);
        assert_eq!(rig.statuses(), [(1, Status::LengthError)]);

        // The octets of earlier segments count.
        let mut rig = Rig::responder();
        let stag = rig.post_receive(1, 8);
        rig.post_receive(2, 8);
        rig.deliver(not_last(send_header(1)), &[7; 6]);
        rig.deliver(at(send_header(1), 6), &[8; 3]);
        rig.assert_terminates(error, untagged_code(UntaggedBuffer::MessageTooLong));
        assert_eq!(rig.memory.octets(stag), [7, 7, 7, 7, 7, 7, 0, 0]);
        assert_eq!(rig.statuses(), [(1, Status::LengthError), (2, Status::Flushed)]);
    }

    // proves 5041-7.1-1
    #[test]
    fn a_receive_buffer_that_is_gone_is_a_local_fault() {
        let mut rig = Rig::responder();
        let stag = rig.post_receive(1, 8);
        rig.post_receive(2, 8);
        rig.memory.deregister(stag);
        rig.deliver(send_header(1), &[7; 8]);
        let error = DdpError::ReceiveBuffer(AccessError::InvalidStag);
        let terminate = rig.assert_terminates(error, TerminateCode::DdpCatastrophic);
        assert_eq!(terminate.cause, None);
        assert_eq!(rig.statuses(), [(1, Status::LocalAccess), (2, Status::Flushed)]);
    }

    // proves 5040-5.3-3, 5040-5.3-10
    #[test]
    fn a_zero_length_send_consumes_a_receive() {
        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        rig.post_receive(2, 0);
        rig.deliver(send_header(1), &[]);
        rig.deliver(send_header(2), &[]);
        let completions = rig.completions();
        assert_eq!(completions.iter().map(|it| (it.id, it.len)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
        rig.assert_operating();
    }
}

mod ddp_tagged {
    use super::*;

    #[track_caller]
    fn refused(rig: &mut Rig, stag: Stag, offset: u64, error: AccessError, code: TaggedBuffer) {
        let header = tagged(Opcode::Write, stag, offset);
        rig.deliver(header, &[7; 4]);
        let terminate = rig.assert_terminates(DdpError::Tagged(error), TerminateCode::Tagged(code));
        terminate.assert_shows(&ulpdu(header, &[7; 4]), 14);
        for region in rig.memory.regions.values() {
            assert!(region.octets.borrow().iter().all(|&octet| octet == 0));
        }
    }

    // proves 5041-4.1-10
    #[test]
    fn version() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        let mut segment = ulpdu(tagged(Opcode::Write, stag, 0), &[7; 4]);
        segment[0] ^= 0x03;
        rig.deliver_ulpdu(&segment);
        let code = TerminateCode::Tagged(TaggedBuffer::InvalidVersion);
        let terminate = rig.assert_terminates(DdpError::TaggedVersion, code);
        terminate.assert_shows(&segment, 14);
        assert_eq!(rig.memory.octets(stag), [0; 8]);
    }

    // proves 5041-7.1-6, 5041-4.2-6, 5041-8.3-4
    #[test]
    fn invalid_stag() {
        let mut rig = Rig::responder();
        rig.memory.register(8);
        refused(&mut rig, Stag(0xdead), 0, AccessError::InvalidStag, TaggedBuffer::InvalidStag);
    }

    // proves 5041-7.1-6, 5041-8.3.1-4, 5040-8.1.1-4
    #[test]
    fn base_or_bounds() {
        for offset in [5, 8, 9, 1 << 32] {
            let mut rig = Rig::responder();
            let stag = rig.memory.register(8);
            refused(&mut rig, stag, offset, AccessError::BaseOrBounds, TaggedBuffer::BaseOrBounds);
        }
    }

    // proves 5041-8.2-1, 5041-8.3.1-2, 5040-8.1.1-2
    #[test]
    fn not_associated() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        rig.memory.regions.get_mut(&stag).unwrap().domain = ProtectionDomain(2);
        refused(&mut rig, stag, 0, AccessError::NotAssociated, TaggedBuffer::NotAssociated);
    }

    // proves 5041-7.1-6
    #[test]
    fn offset_wrap() {
        for offset in [u64::MAX, u64::MAX - 3] {
            let mut rig = Rig::responder();
            let stag = rig.memory.register(8);
            rig.deliver(tagged(Opcode::Write, stag, offset), &[7; 4]);
            let error = DdpError::Tagged(AccessError::OffsetWrap);
            rig.assert_terminates(error, TerminateCode::Tagged(TaggedBuffer::OffsetWrap));
        }
    }

    // proves 5041-7.1-6
    #[test]
    fn access_rights() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register_for(8, &[Operation::RemoteRead, Operation::LocalWrite]);
        refused(&mut rig, stag, 0, AccessError::AccessRights, TaggedBuffer::InvalidStag);
    }

    // proves 5041-5.2-9, 5041-5.2-10, 5040-5.1-9
    #[test]
    fn a_zero_length_write_is_not_checked() {
        let mut rig = Rig::responder();
        rig.deliver(tagged(Opcode::Write, Stag(0xdead), u64::MAX), &[]);
        rig.assert_operating();
        assert_eq!(rig.completions(), []);
    }

    // proves 5041-7.1-7, 5041-7.1-9
    #[test]
    fn earlier_segments_stay_and_later_ones_are_dropped() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        rig.deliver(not_last(tagged(Opcode::Write, stag, 0)), &[1; 4]);
        rig.deliver(tagged(Opcode::Write, stag, 6), &[2; 4]);
        rig.deliver(tagged(Opcode::Write, stag, 4), &[3; 4]);
        assert_eq!(rig.memory.octets(stag), [1, 1, 1, 1, 0, 0, 0, 0]);
        let error = DdpError::Tagged(AccessError::BaseOrBounds);
        rig.assert_terminates(error, TerminateCode::Tagged(TaggedBuffer::BaseOrBounds));
    }

    // proves 5040-8.1.1-7, 5042-6.2.2-2
    #[test]
    fn memory_withdrawn_within_a_message_is_not_written() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        rig.deliver(not_last(tagged(Opcode::Write, stag, 0)), &[1; 4]);
        rig.memory.deregister(stag);
        rig.deliver(tagged(Opcode::Write, stag, 4), &[1; 4]);
        let error = DdpError::Tagged(AccessError::InvalidStag);
        rig.assert_terminates(error, TerminateCode::Tagged(TaggedBuffer::InvalidStag));
    }
}

mod rdmap_header {
    use super::*;

    fn operation(code: RemoteOperation) -> TerminateCode {
        TerminateCode::RemoteOperation(code)
    }

    // proves 5040-7.2-3
    #[test]
    fn version() {
        for control in [0x03, 0x83, 0xc3] {
            let mut rig = Rig::responder();
            let stag = rig.post_receive(1, 8);
            let header = with_control(send_header(1), control);
            rig.deliver(header, &[7; 8]);
            let code = operation(RemoteOperation::InvalidVersion);
            let terminate = rig.assert_terminates(RdmapError::Version, code);
            terminate.assert_shows(&ulpdu(header, &[7; 8]), 18);
            assert_eq!(rig.memory.octets(stag), [0; 8]);
        }
        let mut rig = Rig::responder();
        rig.deliver(with_control(tagged(Opcode::Write, Stag(1), 0), 0x80), &[]);
        rig.assert_terminates(RdmapError::Version, operation(RemoteOperation::InvalidVersion));
    }

    // proves 5040-7.2-2, 5040-4.1-5, 5040-4.1-7, 7306-8.2-1, 7306-8.2-3
    #[test]
    fn an_opcode_belongs_to_one_queue_or_to_tagged_buffers() {
        let good = |opcode: u8, queue: Option<u32>| match opcode {
            0 | 2 => queue.is_none(),
            1 => queue == Some(1),
            3..=6 => queue == Some(0),
            7 => queue == Some(2),
            8 | 9 => queue == Some(0),
            10 => queue == Some(1),
            11 => queue == Some(3),
            _ => false,
        };
        for opcode in 0..16 {
            for queue in [None, Some(0), Some(1), Some(2), Some(3)] {
                if good(opcode, queue) {
                    continue;
                }
                let mut rig = Rig::responder();
                let stag = rig.post_receive(1, 8);
                let header = match queue {
                    None => tagged(Opcode::Write, stag, 0),
                    Some(queue) => untagged(Opcode::Send, queue, 1),
                };
                rig.deliver(with_control(header, 0x40 | opcode), &[7; 8]);
                let code = operation(RemoteOperation::UnexpectedOpcode);
                rig.assert_terminates(RdmapError::UnexpectedOpcode, code);
                assert_eq!(rig.memory.octets(stag), [0; 8]);
            }
        }
    }

    // proves 5041-4.3-4
    #[test]
    fn the_opcode_does_not_change_within_a_message() {
        let mut rig = Rig::responder();
        let stag = rig.post_receive(1, 8);
        rig.deliver(not_last(send_header(1)), &[1; 4]);
        rig.deliver(at(untagged(Opcode::SendSolicited, 0, 1), 4), &[2; 4]);
        let code = operation(RemoteOperation::UnexpectedOpcode);
        rig.assert_terminates(RdmapError::UnexpectedOpcode, code);
        assert_eq!(rig.memory.octets(stag), [1, 1, 1, 1, 0, 0, 0, 0]);
    }

    // proves 5040-4.1-9, 5040-4.1-10
    #[test]
    fn reserved_bits_and_words_are_ignored() {
        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        rig.deliver(with_word(with_control(send_header(1), 0x73), 0xdead), &[7; 8]);
        rig.assert_operating();
        assert_eq!(
            rig.completions()[0].operation,
            CompletedOperation::Receive { invalidated: None, solicited: false }
        );
    }
}

mod sends {
    use super::*;

    // proves 5040-5.3-13
    #[test]
    fn the_four_kinds_are_delivered_with_what_they_say() {
        let kinds = [
            (Opcode::Send, false, false),
            (Opcode::SendInvalidate, true, false),
            (Opcode::SendSolicited, false, true),
            (Opcode::SendSolicitedInvalidate, true, true),
        ];
        for (opcode, invalidates, solicited) in kinds {
            let mut rig = Rig::responder();
            let advertised = rig.memory.register(4);
            let stag = rig.post_receive(1, 8);
            rig.deliver(with_word(untagged(opcode, 0, 1), advertised.0), &[7; 8]);
            rig.assert_operating();
            let invalidated = invalidates.then_some(advertised);
            let [completion] = rig.completions()[..] else { panic!("one completion") };
            assert_eq!(completion.operation, CompletedOperation::Receive { invalidated, solicited });
            assert_eq!((completion.id, completion.len), (1, 8));
            assert_eq!(rig.memory.octets(stag), [7; 8]);
            assert_eq!(rig.memory.regions.contains_key(&advertised), !invalidates);
        }
    }

    // proves 5040-5.3-13, 5040-7.2-4, 5040-7.2-5
    #[test]
    fn an_stag_that_cannot_be_invalidated_is_an_error() {
        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        let header = with_word(untagged(Opcode::SendInvalidate, 0, 1), 0xdead);
        rig.deliver(header, &[7; 8]);
        let error = RdmapError::Invalidate(AccessError::InvalidStag);
        let code = TerminateCode::RemoteProtection(RemoteProtection::CannotInvalidate);
        let terminate = rig.assert_terminates(error, code);
        terminate.assert_shows(&ulpdu(header, &[7; 8]), 18);
        assert_eq!(terminate.cause.unwrap().read_request, None);
        assert_eq!(rig.statuses(), [(1, Status::Flushed)]);

        let mut rig = Rig::responder();
        rig.post_receive(1, 8);
        let other = rig.memory.register(4);
        rig.memory.regions.get_mut(&other).unwrap().domain = ProtectionDomain(9);
        rig.deliver(with_word(untagged(Opcode::SendSolicitedInvalidate, 0, 1), other.0), &[]);
        rig.assert_terminates(RdmapError::Invalidate(AccessError::NotAssociated), code);
        assert!(rig.memory.regions.contains_key(&other));
    }

    // proves 5040-5.3-13
    #[test]
    fn nothing_is_invalidated_before_the_message_is_delivered() {
        let mut rig = Rig::responder();
        let advertised = rig.memory.register(4);
        rig.post_receive(1, 8);
        let header = with_word(untagged(Opcode::SendInvalidate, 0, 1), advertised.0);
        rig.deliver(not_last(header), &[7; 4]);
        assert!(rig.memory.regions.contains_key(&advertised));
        rig.deliver(at(header, 4), &[7; 4]);
        assert!(!rig.memory.regions.contains_key(&advertised));
    }

    #[test]
    fn each_message_starts_at_the_start_of_its_list() {
        let mut rig = Rig::responder();
        let stags = [1, 2, 3].map(|id| rig.post_receive(id, 4));
        for (stag, msn) in stags.into_iter().zip(1..) {
            rig.deliver(not_last(send_header(msn)), &[5; 2]);
            rig.deliver(at(send_header(msn), 2), &[6; 1]);
            assert_eq!(rig.memory.octets(stag), [5, 5, 6, 0]);
        }
        rig.assert_operating();
    }

    #[test]
    fn a_message_fills_its_list_across_segments_and_elements() {
        let mut rig = Rig::responder();
        let (a, b, c) = (rig.memory.register(3), rig.memory.register(5), rig.memory.register(4));
        let elements = [sge(a, 0, 3), sge(b, 1, 0), sge(b, 1, 4), sge(c, 0, 4)];
        rig.stream.post_receive(receive(1, &elements)).unwrap();
        rig.deliver(not_last(send_header(1)), &[1, 2]);
        rig.deliver(not_last(at(send_header(1), 2)), &[3, 4, 5, 6, 7, 8]);
        rig.deliver(at(send_header(1), 8), &[9, 10]);
        assert_eq!(rig.memory.octets(a), [1, 2, 3]);
        assert_eq!(rig.memory.octets(b), [0, 4, 5, 6, 7]);
        assert_eq!(rig.memory.octets(c), [8, 9, 10, 0]);
        assert_eq!(rig.completions()[0].len, 10);
    }
}
