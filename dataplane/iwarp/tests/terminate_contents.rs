//! What a Terminate holds, row by row of RFC 5040 figures 9 and 10, as Initiator and as Responder,
//! and what the one that receives it makes of it.

mod common;

use common::*;
use iwarp::memory::Operation;
use iwarp::mpa::Role;
use iwarp::stream::StreamState;
use iwarp::types::Stag;
use iwarp::wire::ddp::Header;
use iwarp::wire::rdmap::Opcode;
use iwarp::wire::terminate::{
    Mpa, RemoteOperation, RemoteProtection, TaggedBuffer, TerminateCode, UntaggedBuffer,
};
use iwarp::work::Status;

/// A Stream of either role that may send.
fn both_roles() -> [Rig; 2] {
    [Rig::new(Role::Initiator), Rig::responder()]
}

mod sent {
    use super::*;

    /// M and D.
    const SEGMENT: u8 = 0xc0;
    /// M, D and R.
    const SEGMENT_AND_REQUEST: u8 = 0xe0;

    /// The octets of the Terminate that the Stream sends, and nothing else.
    #[track_caller]
    fn terminate(rig: &mut Rig) -> Vec<u8> {
        assert_eq!(rig.stream.state(), StreamState::Terminating);
        assert!(rig.stream.error().is_some(), "the application is told");
        let mut sent = rig.sent();
        let last = sent.pop().expect("a Terminate");
        assert_eq!((sent, last.header), (vec![], terminate_header()));
        assert!(rig.stream.is_drained(), "the LLP is to be closed");
        last.payload
    }

    /// The Terminate for a bad segment shows that segment: its length and DDP header, with a Read
    /// Request's header behind it when `shown` says so.
    #[track_caller]
    fn assert_shows(rig: &mut Rig, segment: &[u8], header_len: usize, code: [u8; 2], shown: u8) {
        rig.deliver_ulpdu(segment);
        let len = u16::try_from(segment.len()).unwrap().to_be_bytes();
        let end = if shown == SEGMENT_AND_REQUEST { segment.len() } else { header_len };
        let expected = [&code[..], &[shown, 0], &len, &segment[..end]].concat();
        assert_eq!(terminate(rig), expected);
    }

    /// One message of each opcode, all good.
    fn all_messages(rig: &mut Rig) -> Vec<(Header, Vec<u8>)> {
        let stag = rig.memory.register(8);
        rig.post_receive(90, 8);
        let sink = rig.post_read(91, 8);
        rig.sent();
        let send = |opcode| (with_word(untagged(opcode, 0, 1), stag.0), vec![7; 8]);
        vec![
            (tagged(Opcode::Write, stag, 0), vec![7; 8]),
            (read_request_header(1), read_of(8, stag, 0).emit().to_vec()),
            (tagged(Opcode::ReadResponse, sink, 0), vec![7; 8]),
            send(Opcode::Send),
            send(Opcode::SendInvalidate),
            send(Opcode::SendSolicited),
            send(Opcode::SendSolicitedInvalidate),
            (terminate_header(), vec![0x20, 2, 0, 0]),
        ]
    }

    // proves 5040-4.8-1, 5040-4.8-2, 5040-4.8-3, 5040-4.8-6, 5040-7.1-1, 5040-7.1-2
    #[test]
    fn for_a_local_catastrophic_error_shows_nothing() {
        for request in [
            send(1, &[sge(Stag(0xdead), 0, 4)]),
            write(1, &[sge(Stag(0xdead), 0, 4)], PEER_STAG, 0),
            read(1, sge(Stag(0xdead), 0, 4), PEER_STAG, 0),
        ] {
            for mut rig in both_roles() {
                rig.try_post(request.clone()).unwrap();
                // It is found when the message is made, and goes out instead of it.
                let mut sent = rig.sent();
                assert_eq!(sent.pop().unwrap().payload, [0x00, 0x00, 0, 0]);
                assert_eq!(sent, []);
                assert_eq!(rig.statuses(), [(1, Status::LocalAccess)]);
            }
        }
        // DDP's, while a Send was placed.
        for mut rig in both_roles() {
            let stag = rig.post_receive(1, 8);
            rig.memory.deregister(stag);
            rig.deliver(send_header(1), &[7; 8]);
            assert_eq!(terminate(&mut rig), [0x10, 0x00, 0, 0]);
        }
    }

    // proves 5040-4.8-7, 5040-4.8-8, 5040-4.8-9, 5040-4.8-10, 5040-7.1-2
    // proves 5040-7.2-7, 5040-7.2-9, 5040-7.2-10, 5040-7.2-11
    #[test]
    fn for_a_protection_error_of_a_read_shows_its_request() {
        let cases = [
            (Stag(0xdead), 0, 4, 0x00),
            (Stag(0), 5, 4, 0x01),
            (Stag(0), 9, 1, 0x01),
            (Stag(0), u64::MAX - 2, 4, 0x04),
        ];
        for (stag, offset, len, code) in cases {
            for mut rig in both_roles() {
                let own = rig.memory.register(8);
                let stag = if stag == Stag(0) { own } else { stag };
                let segment = ulpdu(read_request_header(1), &read_of(len, stag, offset).emit());
                assert_shows(&mut rig, &segment, 18, [0x01, code], SEGMENT_AND_REQUEST);
            }
        }
        for mut rig in both_roles() {
            let stag = rig.memory.register_for(8, &[Operation::RemoteWrite]);
            let segment = ulpdu(read_request_header(1), &read_of(4, stag, 0).emit());
            assert_shows(&mut rig, &segment, 18, [0x01, 0x02], SEGMENT_AND_REQUEST);
        }
    }

    // proves 5040-5.3-13, 5040-7.1-2, 5040-7.2-4
    #[test]
    fn for_a_protection_error_of_a_send_shows_no_request() {
        for opcode in [Opcode::SendInvalidate, Opcode::SendSolicitedInvalidate] {
            for mut rig in both_roles() {
                rig.post_receive(1, 8);
                let segment = ulpdu(with_word(untagged(opcode, 0, 1), 0xdead), &[7; 8]);
                assert_shows(&mut rig, &segment, 18, [0x01, 0x09], SEGMENT);
                assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
            }
        }
    }

    // proves 5040-4.8-7, 5040-4.8-8, 5040-4.8-9, 5040-7.1-2, 5040-7.2-2, 5040-7.2-3
    #[test]
    fn for_an_operation_error_of_any_message_shows_its_segment() {
        for message in 0..8 {
            // RDMAP version 2, and an opcode that no RFC defines.
            for (flip, code) in [(0xc0, 0x05), (0, 0x06)] {
                for mut rig in both_roles() {
                    let (header, payload) = all_messages(&mut rig).swap_remove(message);
                    let control = if flip == 0 { 0x4c } else { header.ulp_control() ^ flip };
                    let segment = ulpdu(with_control(header, control), &payload);
                    assert_shows(&mut rig, &segment, header.len(), [0x02, code], SEGMENT);
                }
            }
        }
    }

    // proves 5040-7.1-2, 5040-7.2-1, 5040-7.2-6
    #[test]
    fn for_a_ddp_error_of_any_message_shows_its_segment() {
        for message in 0..8 {
            for mut rig in both_roles() {
                let (header, payload) = all_messages(&mut rig).swap_remove(message);
                let code = if header.len() == 14 { [0x11, 0x04] } else { [0x12, 0x06] };
                let mut segment = ulpdu(header, &payload);
                segment[0] ^= 0x03;
                assert_shows(&mut rig, &segment, header.len(), code, SEGMENT);
            }
        }
    }

    // proves 5040-7.2-1, 5040-7.2-6
    #[test]
    fn for_a_segment_out_of_its_queues_order_shows_the_segment() {
        for (header, payload) in [
            (send_header(1), vec![7; 8]),
            (read_request_header(1), read_of(0, Stag(1), 0).emit().to_vec()),
            (terminate_header(), vec![0x20, 2, 0, 0]),
        ] {
            for mut rig in both_roles() {
                rig.post_receive(1, 8);
                let mut segment = ulpdu(header, &payload);
                segment[13] = 2;
                assert_shows(&mut rig, &segment, 18, [0x12, 0x03], SEGMENT);
            }
            for mut rig in both_roles() {
                rig.post_receive(1, 8);
                let segment = ulpdu(at(header, 3), &payload);
                assert_shows(&mut rig, &segment, 18, [0x12, 0x04], SEGMENT);
            }
        }
        for mut rig in both_roles() {
            let segment = ulpdu(untagged(Opcode::Send, 4, 1), &[]);
            assert_shows(&mut rig, &segment, 18, [0x12, 0x01], SEGMENT);
        }
    }

    // proves 5040-6.2.1-1
    #[test]
    fn for_an_llp_error_shows_nothing() {
        for mut rig in both_roles() {
            let mut fpdu = rig.fpdu(&ulpdu(send_header(1), &[7; 8]));
            fpdu[22] ^= 1;
            rig.stream.receive(fpdu, &mut rig.memory);
            assert_eq!(terminate(&mut rig), [0x20, 0x02, 0, 0]);
        }
    }

    // proves 5040-7.1-3
    #[test]
    fn for_several_errors_shows_the_first() {
        for mut rig in both_roles() {
            rig.post_send(1, 3 * UNTAGGED_MAX);
            rig.next_sent().unwrap();
            let first = ulpdu(tagged(Opcode::Write, Stag(0xdead), 0), &[7; 8]);
            rig.deliver_ulpdu(&first);
            rig.deliver(read_request_header(1), &read_of(8, Stag(0xdead), 0).emit());
            rig.deliver(with_control(send_header(1), 0x0f), &[]);
            let last = rig.sent().pop().unwrap();
            let expected = [&[0x11, 0x00, SEGMENT, 0, 0, 22][..], &first[..14]].concat();
            assert_eq!(last.payload, expected);
        }
    }
}

mod received {
    use super::*;

    /// Layer and type, code, and their meaning: figure 9, and what it refers to.
    const CODES: [([u8; 2], TerminateCode); 28] = {
        use {
            RemoteOperation as Op, RemoteProtection as Protection, TaggedBuffer as Tagged,
            TerminateCode as Code, UntaggedBuffer as Untagged,
        };
        [
            ([0x00, 0x00], Code::LocalCatastrophic),
            ([0x01, 0x00], Code::RemoteProtection(Protection::InvalidStag)),
            ([0x01, 0x01], Code::RemoteProtection(Protection::BaseOrBounds)),
            ([0x01, 0x02], Code::RemoteProtection(Protection::AccessRights)),
            ([0x01, 0x03], Code::RemoteProtection(Protection::NotAssociated)),
            ([0x01, 0x04], Code::RemoteProtection(Protection::OffsetWrap)),
            ([0x01, 0x09], Code::RemoteProtection(Protection::CannotInvalidate)),
            ([0x01, 0xff], Code::RemoteProtection(Protection::Unspecified)),
            ([0x02, 0x05], Code::RemoteOperation(Op::InvalidVersion)),
            ([0x02, 0x06], Code::RemoteOperation(Op::UnexpectedOpcode)),
            ([0x02, 0x07], Code::RemoteOperation(Op::StreamCatastrophic)),
            ([0x02, 0x08], Code::RemoteOperation(Op::GlobalCatastrophic)),
            ([0x02, 0x09], Code::RemoteOperation(Op::CannotInvalidate)),
            ([0x02, 0xff], Code::RemoteOperation(Op::Unspecified)),
            ([0x10, 0x00], Code::DdpCatastrophic),
            ([0x11, 0x00], Code::Tagged(Tagged::InvalidStag)),
            ([0x11, 0x01], Code::Tagged(Tagged::BaseOrBounds)),
            ([0x11, 0x02], Code::Tagged(Tagged::NotAssociated)),
            ([0x11, 0x03], Code::Tagged(Tagged::OffsetWrap)),
            ([0x11, 0x04], Code::Tagged(Tagged::InvalidVersion)),
            ([0x12, 0x01], Code::Untagged(Untagged::InvalidQueue)),
            ([0x12, 0x02], Code::Untagged(Untagged::NoBuffer)),
            ([0x12, 0x03], Code::Untagged(Untagged::MsnRange)),
            ([0x12, 0x04], Code::Untagged(Untagged::InvalidOffset)),
            ([0x12, 0x05], Code::Untagged(Untagged::MessageTooLong)),
            ([0x12, 0x06], Code::Untagged(Untagged::InvalidVersion)),
            ([0x20, 0x02], Code::Mpa(Mpa::Crc)),
            ([0x20, 0x03], Code::Mpa(Mpa::MarkerMismatch)),
        ]
    };

    // proves 5040-4.8-3, 5040-5.4-4, 5040-5.4-5, 5040-5.4-6, 5040-5.4-7, 5040-6.2.1-2
    #[test]
    fn each_code_is_delivered_and_ends_everything() {
        for (octets, code) in CODES {
            for mut rig in both_roles() {
                rig.post_receive(1, 4);
                rig.post_send(2, 2 * UNTAGGED_MAX);
                rig.next_sent().unwrap();
                rig.deliver(terminate_header(), &[octets[0], octets[1], 0, 0]);
                assert_eq!(rig.stream.terminate_received(), Some(code));
                assert_eq!((rig.stream.state(), rig.stream.error()), (StreamState::Terminated, None));
                assert_eq!(rig.statuses(), [(2, Status::Flushed), (1, Status::Flushed)]);
                // Nothing more is sent, not even the rest of a message, and nothing more is taken.
                assert_eq!(rig.sent(), []);
                assert!(rig.stream.is_drained());
                let target = rig.memory.register(4);
                rig.deliver(tagged(Opcode::Write, target, 0), &[7; 4]);
                assert_eq!(rig.memory.octets(target), [0; 4]);
            }
        }
    }

    // proves 5040-4.8-3
    #[test]
    fn a_local_catastrophic_error_may_have_any_code() {
        for code in [1, 0x80, 0xff] {
            for mut rig in both_roles() {
                rig.deliver(terminate_header(), &[0x00, code, 0, 0]);
                assert_eq!(rig.stream.terminate_received(), Some(TerminateCode::LocalCatastrophic));
            }
        }
    }

    // proves 5040-5.4-4, 5040-7.2-1
    #[test]
    fn only_the_first_message_of_its_queue_is_one() {
        for mut rig in both_roles() {
            rig.deliver(untagged(Opcode::Terminate, 2, 2), &[0x20, 2, 0, 0]);
            assert_eq!(rig.stream.terminate_received(), None);
            assert_eq!(rig.sent_opcodes(), [Opcode::Terminate]);
        }
    }
}
