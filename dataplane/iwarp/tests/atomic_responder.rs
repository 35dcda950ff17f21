//! Atomic Requests of the peer (RFC 7306 sections 5 and 8.2): what they do to memory, how they are
//! answered, and every check.

mod common;

use common::*;
use iwarp::atomic::AtomicOperation;
use iwarp::ddp::Queue;
use iwarp::error::{DdpError, RdmapError};
use iwarp::memory::{AccessError, Operation};
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::wire::atomic::{AtomicRequest, AtomicResponse};
use iwarp::wire::rdmap::Opcode;
use iwarp::wire::terminate::{RemoteOperation, RemoteProtection, TerminateCode, UntaggedBuffer};

const ADD: AtomicOperation = AtomicOperation::fetch_add(5);

fn request(request_id: u32, stag: Stag, offset: u64, operation: AtomicOperation) -> AtomicRequest {
    AtomicRequest { request_id, stag, offset, operation }
}

/// A buffer of two words.
fn words(rig: &mut Rig, words: [u64; 2]) -> Stag {
    let stag = rig.memory.register(16);
    rig.memory.octets_mut(stag).copy_from_slice(&words.map(u64::to_ne_bytes).concat());
    stag
}

fn words_of(rig: &Rig, stag: Stag) -> [u64; 2] {
    let octets = rig.memory.octets(stag);
    [0, 8].map(|at| u64::from_ne_bytes(*octets[at..].first_chunk().unwrap()))
}

fn response(sent: &Sent) -> AtomicResponse {
    AtomicResponse::parse(sent.payload[..].try_into().unwrap())
}

mod answers {
    use super::*;

    // proves 7306-5-3, 7306-5-5, 7306-5.2-2, 7306-5.2.1-6, 7306-5.2.1-7, 7306-5.2.1-13
    // proves 7306-5.2.2-1, 7306-5.2.2-2, 7306-5.2.2-3, 7306-5.2.2-4
    #[test]
    fn each_operation_returns_what_the_word_was() {
        let mut rig = Rig::responder();
        let stag = words(&mut rig, [7, 70]);
        let steps = [
            (ADD, 7, 12),
            (AtomicOperation::FetchAdd { add: 0x0f, mask: 0x08 }, 12, 11),
            (AtomicOperation::cmp_swap(10, 99), 11, 11),
            (AtomicOperation::cmp_swap(11, 99), 11, 99),
            (AtomicOperation::swap(1), 99, 1),
        ];
        for ((operation, original, after), msn) in steps.into_iter().zip(1..) {
            let id = 1000 + msn;
            rig.deliver(atomic_request_header(msn), &request(id, stag, 0, operation).emit());
            let sent = rig.sent();
            let [answer] = &sent[..] else { panic!("one Response, not {sent:?}") };
            assert_eq!(answer.header, atomic_response_header(msn));
            assert_eq!(response(answer), AtomicResponse { request_id: id, original });
            assert_eq!(words_of(&rig, stag), [after, 70]);
        }
        assert_eq!(rig.completions(), [], "none of it is the application's");
        rig.assert_operating();
    }

    // proves 7306-5.4-4, 7306-5.4-6, 7306-5.2.1-5
    #[test]
    fn a_request_in_segments_does_nothing_before_its_last() {
        let mut rig = Rig::responder();
        let stag = words(&mut rig, [7, 70]);
        let octets = request(1, stag, 8, ADD).emit();
        rig.deliver(not_last(atomic_request_header(1)), &octets[..40]);
        assert!(!rig.stream.has_output());
        assert_eq!(words_of(&rig, stag), [7, 70]);
        rig.deliver(at(atomic_request_header(1), 40), &octets[40..]);
        assert_eq!(response(&rig.sent()[0]).original, 70);
        assert_eq!(words_of(&rig, stag), [7, 75]);
        // The next message has a buffer, and an MSN, of its own.
        rig.deliver(read_request_header(2), &read_of(16, stag, 0).emit());
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadResponse]);
        rig.assert_operating();
    }

    // proves 7306-5.2.1-12, 7306-5.2.2-8, 7306-5.4-9, 7306-5.4-10, 7306-5.2.2-5, 7306-5.2.1-5
    #[test]
    fn requests_wait_and_are_answered_in_their_order_within_ird() {
        let mut rig = Rig::responder();
        let stag = words(&mut rig, [7, 70]);
        for msn in [1, 2] {
            rig.deliver(atomic_request_header(msn), &request(msn, stag, 0, ADD).emit());
        }
        let sent = rig.sent();
        let answers: Vec<_> = sent.iter().map(|sent| (sent.header, response(sent))).collect();
        let expected = [(1, 7), (2, 12)].map(|(msn, original)| {
            (atomic_response_header(msn), AtomicResponse { request_id: msn, original })
        });
        assert_eq!(answers, expected);

        // With a Read among them they are as many as IRD, and one more has no buffer.
        rig.deliver(read_request_header(3), &read_of(8, stag, 0).emit());
        rig.deliver(atomic_request_header(4), &request(4, stag, 0, ADD).emit());
        rig.assert_operating();
        rig.deliver(atomic_request_header(5), &request(5, stag, 0, ADD).emit());
        let code = TerminateCode::Untagged(UntaggedBuffer::NoBuffer);
        rig.assert_terminates(DdpError::NoBuffer(Queue::ReadRequest), code);
        assert_eq!(words_of(&rig, stag)[0], 17, "what was not answered is not done");
    }
}

mod checks {
    use super::*;

    /// A Request that is refused, and that the word is as it was.
    #[track_caller]
    fn refused(rig: &mut Rig, request: AtomicRequest, error: RdmapError, code: TerminateCode) {
        let segment = ulpdu(atomic_request_header(1), &request.emit());
        rig.deliver_ulpdu(&segment);
        let terminate = rig.assert_terminates(error, code);
        terminate.assert_shows(&segment, 18);
        assert_eq!(terminate.cause.unwrap().read_request, None, "it is no Read Request");
    }

    // proves 7306-5.1.1-1, 7306-5.1.1-2, 7306-5.1.1-3, 7306-5.1.2-2, 7306-5.1.2-3, 7306-5.1.2-4
    // proves 7306-5.1.2-5, 7306-5.1.2-6, 7306-5.2.1-2, 7306-8.2-5, 7306-8.2-6, 7306-8.2-7
    #[test]
    fn a_word_that_is_not_aligned() {
        for offset in 1..8 {
            for operation in [ADD, AtomicOperation::swap(0)] {
                let mut rig = Rig::responder();
                let stag = words(&mut rig, [7, 70]);
                let error = RdmapError::AtomicTarget(AccessError::Misaligned);
                let code = TerminateCode::RemoteOperation(RemoteOperation::StreamCatastrophic);
                refused(&mut rig, request(1, stag, offset, operation), error, code);
                assert_eq!(words_of(&rig, stag), [7, 70]);
            }
        }
    }

    #[test]
    fn an_stag_bounds_rights_or_domain_that_do_not_allow_it() {
        let all = [Operation::RemoteRead, Operation::RemoteWrite, Operation::LocalWrite];
        let cases = [
            (0, AccessError::BaseOrBounds, RemoteProtection::BaseOrBounds),
            (1, AccessError::OffsetWrap, RemoteProtection::OffsetWrap),
            (2, AccessError::InvalidStag, RemoteProtection::InvalidStag),
            (3, AccessError::AccessRights, RemoteProtection::AccessRights),
            (4, AccessError::NotAssociated, RemoteProtection::NotAssociated),
        ];
        for (case, error, code) in cases {
            let mut rig = Rig::responder();
            let stag = words(&mut rig, [7, 70]);
            let (stag, offset) = match case {
                0 => (stag, 16),
                1 => (stag, u64::MAX - 7),
                2 => (Stag(0xdead), 0),
                3 => (rig.memory.register_for(16, &all), 0),
                _ => {
                    rig.memory.regions.get_mut(&stag).unwrap().domain = ProtectionDomain(2);
                    (stag, 0)
                }
            };
            let code = TerminateCode::RemoteProtection(code);
            refused(&mut rig, request(1, stag, offset, ADD), RdmapError::AtomicTarget(error), code);
        }
    }

    // proves 7306-5.2.1-8
    #[test]
    fn an_operation_that_is_not_defined() {
        for operation in (0..16).filter(|operation| ![0, 2].contains(operation)) {
            let mut rig = Rig::responder();
            let stag = words(&mut rig, [7, 70]);
            let mut octets = request(1, stag, 0, ADD).emit();
            octets[3] = operation;
            rig.deliver(atomic_request_header(1), &octets);
            let code = TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode);
            rig.assert_terminates(RdmapError::UnknownAtomic, code);
            assert_eq!(words_of(&rig, stag), [7, 70]);
        }
    }

    // proves 7306-8.2-1, 7306-8.2-2
    #[test]
    fn a_request_of_another_length() {
        for len in [0, 28, 51] {
            let mut rig = Rig::responder();
            rig.deliver(atomic_request_header(1), &vec![0; len]);
            let code = TerminateCode::RemoteOperation(RemoteOperation::Unspecified);
            rig.assert_terminates(RdmapError::AtomicRequestLength, code);
        }
        let mut rig = Rig::responder();
        rig.deliver(atomic_request_header(1), &[0; 53]);
        let code = TerminateCode::Untagged(UntaggedBuffer::MessageTooLong);
        rig.assert_terminates(DdpError::MessageTooLong(Queue::ReadRequest), code);
    }

    // proves 7306-8.2-2
    #[test]
    fn an_msn_or_mo_out_of_order() {
        let mut rig = Rig::responder();
        rig.deliver(atomic_request_header(2), &[0; 52]);
        let code = TerminateCode::Untagged(UntaggedBuffer::MsnRange);
        rig.assert_terminates(DdpError::MsnRange(Queue::ReadRequest), code);
        let mut rig = Rig::responder();
        rig.deliver(at(atomic_request_header(1), 4), &[0; 48]);
        let code = TerminateCode::Untagged(UntaggedBuffer::InvalidOffset);
        rig.assert_terminates(DdpError::InvalidOffset(Queue::ReadRequest), code);
    }

    #[test]
    fn an_opcode_that_changes_within_the_message() {
        let mut rig = Rig::responder();
        rig.deliver(not_last(atomic_request_header(1)), &[0; 20]);
        rig.deliver(at(read_request_header(1), 20), &[0; 8]);
        let code = TerminateCode::RemoteOperation(RemoteOperation::UnexpectedOpcode);
        rig.assert_terminates(RdmapError::UnexpectedOpcode, code);
    }

    // proves 7306-8.2-4
    #[test]
    fn another_rdmap_version() {
        let mut rig = Rig::responder();
        rig.deliver(with_control(atomic_request_header(1), Opcode::AtomicRequest as u8), &[0; 52]);
        let code = TerminateCode::RemoteOperation(RemoteOperation::InvalidVersion);
        rig.assert_terminates(RdmapError::Version, code);
    }

    // proves 7306-8.1-1
    #[test]
    fn memory_that_is_withdrawn_before_the_response() {
        let mut rig = Rig::responder();
        let stag = words(&mut rig, [7, 70]);
        rig.deliver(atomic_request_header(1), &request(1, stag, 0, ADD).emit());
        rig.memory.deregister(stag);
        let sent = rig.sent();
        assert_eq!(sent.len(), 1, "a Terminate instead of the Response: {sent:?}");
        let terminate = iwarp::wire::terminate::Terminate::parse(&sent[0].payload).unwrap();
        assert_eq!(terminate.code, TerminateCode::RemoteProtection(RemoteProtection::InvalidStag));
        assert_eq!(terminate.cause, None);
        assert_eq!(rig.stream.error(), Some(RdmapError::AtomicTarget(AccessError::InvalidStag).into()));
    }

    #[test]
    fn the_reserved_word_of_the_ddp_header_is_ignored() {
        let mut rig = Rig::responder();
        let stag = words(&mut rig, [7, 70]);
        let header = with_word(atomic_request_header(1), 0xffff_ffff);
        rig.deliver(header, &request(1, stag, 0, ADD).emit());
        assert_eq!(rig.sent_opcodes(), [Opcode::AtomicResponse]);
        rig.assert_operating();
    }
}
