//! What is sent when, and what completes when (RFC 5040 section 5.5, RFC 6581 section 9).

mod common;

use common::*;
use iwarp::ddp::Queue;
use iwarp::error::{DdpError, RdmapError};
use iwarp::mpa::{Role, RtrKind};
use iwarp::stream::{Stream, StreamState};
use iwarp::types::Stag;
use iwarp::wire::ddp::Header;
use iwarp::wire::rdmap::{Opcode, ReadRequest};
use iwarp::wire::terminate::{Mpa, TerminateCode};
use iwarp::work::{CompletedOperation, PostError, SendOperation, Status};

mod sending {
    use super::*;

    // proves 5041-4.3-8, 5041-4.3-9, 5041-4.3-13, 5041-5.2-5, 5041-4.1-3, 5041-4.1-4, 5041-4.1-6
    #[test]
    fn a_send_is_cut_at_mulpdu() {
        let mut rig = Rig::new(Role::Initiator);
        let len = 2 * UNTAGGED_MAX + 5;
        rig.post_send(1, len);
        rig.post_send(2, 0);
        let sent = rig.sent();
        let offsets = [0, UNTAGGED_MAX, 2 * UNTAGGED_MAX].map(|it| u32::try_from(it).unwrap());
        let headers: Vec<_> = sent.iter().map(|sent| sent.header).collect();
        assert_eq!(
            headers,
            [
                not_last(at(send_header(1), offsets[0])),
                not_last(at(send_header(1), offsets[1])),
                at(send_header(1), offsets[2]),
                send_header(2),
            ]
        );
        let octets: Vec<u8> = sent.iter().flat_map(|sent| sent.payload.clone()).collect();
        assert_eq!(octets, counting(len));
    }

    // proves 5041-5.2-6, 5041-5.2-7, 5041-4.2-7, 5041-4.2-9, 5040-5.1-1, 5040-5.1-8, 5041-4.2-11
    #[test]
    fn a_write_is_cut_at_mulpdu() {
        let mut rig = Rig::new(Role::Initiator);
        let len = TAGGED_MAX + 1;
        let (_, sge) = rig.source(len);
        rig.try_post(write(1, &[sge], PEER_STAG, u64::MAX - 1000)).unwrap();
        let sent = rig.sent();
        let second = u64::MAX - 1000 + TAGGED_MAX as u64;
        assert_eq!(sent[0].header, not_last(tagged(Opcode::Write, PEER_STAG, u64::MAX - 1000)));
        assert_eq!(sent[1].header, tagged(Opcode::Write, PEER_STAG, second));
        assert_eq!([&sent[0].payload[..], &sent[1].payload].concat(), counting(len));
    }

    // proves 5040-5.3-7, 5040-5.3-11, 5040-5.3-12, 5040-4.1-3, 5040-4.1-10
    #[test]
    fn the_four_kinds_of_send_have_their_opcodes() {
        let mut rig = Rig::new(Role::Initiator);
        let kinds = [
            (None, false, Opcode::Send, 0),
            (Some(Stag(77)), false, Opcode::SendInvalidate, 77),
            (None, true, Opcode::SendSolicited, 0),
            (Some(Stag(78)), true, Opcode::SendSolicitedInvalidate, 78),
        ];
        for ((invalidate, solicited, opcode, word), msn) in kinds.into_iter().zip(1..) {
            let mut request = send(1, &[]);
            request.operation = SendOperation::Send { invalidate, solicited };
            rig.try_post(request).unwrap();
            assert_eq!(rig.sent()[0].header, with_word(untagged(opcode, 0, msn), word));
        }
    }

    // proves 5040-4.4-1, 5040-5.2.1-1, 5040-5.2.1-6
    #[test]
    fn a_read_is_a_request_on_queue_1() {
        let mut rig = Rig::new(Role::Initiator);
        let sink_stag = rig.memory.register(100);
        rig.try_post(read(1, sge(sink_stag, 20, 30), PEER_STAG, 40)).unwrap();
        let sent = rig.sent();
        assert_eq!(sent[0].header, read_request_header(1));
        let expected =
            ReadRequest { sink_stag, sink_offset: 20, len: 30, source_stag: PEER_STAG, source_offset: 40 };
        assert_eq!(sent[0].payload, expected.emit());
    }

    // proves 5040-4.4-2, 5040-5.2.2-1
    #[test]
    fn a_response_goes_where_the_request_said() {
        let mut rig = Rig::responder();
        let len = TAGGED_MAX + 9;
        let (stag, _) = rig.source(len + 3);
        let request = ReadRequest {
            sink_stag: Stag(0xabcd),
            sink_offset: u64::MAX - 50,
            len: len.try_into().unwrap(),
            source_stag: stag,
            source_offset: 3,
        };
        rig.deliver(read_request_header(1), &request.emit());
        let sent = rig.sent();
        assert_eq!(sent[0].header, not_last(tagged(Opcode::ReadResponse, Stag(0xabcd), u64::MAX - 50)));
        let second = (u64::MAX - 50).wrapping_add(TAGGED_MAX as u64);
        assert_eq!(sent[1].header, tagged(Opcode::ReadResponse, Stag(0xabcd), second));
        let octets = [&sent[0].payload[..], &sent[1].payload].concat();
        assert_eq!(octets, counting(len + 3)[3..]);
    }

    #[test]
    fn zero_length_messages_of_all_kinds_are_one_segment() {
        let mut rig = Rig::new(Role::Initiator);
        rig.try_post(send(1, &[])).unwrap();
        rig.try_post(write(2, &[], Stag(0xdead), 0)).unwrap();
        rig.try_post(write(3, &[sge(Stag(0xdead), 9, 0)], Stag(0xdead), 0)).unwrap();
        rig.try_post(read(4, sge(Stag(0xdead), 9, 0), Stag(0xdead), 0)).unwrap();
        let sent: Vec<_> = rig.sent().iter().map(|sent| (sent.opcode, sent.payload.len())).collect();
        use Opcode::{ReadRequest, Send, Write};
        assert_eq!(sent, [(Send, 0), (Write, 0), (Write, 0), (ReadRequest, 28)]);
        assert_eq!(rig.statuses(), [1, 2, 3].map(|id| (id, Status::Success)));
    }

    #[test]
    fn message_ends_are_marked_for_push() {
        let mut rig = Rig::new(Role::Initiator);
        rig.post_send(1, UNTAGGED_MAX + 1);
        rig.post_send(2, 40);
        let mut segment = vec![0; EMSS];
        let mut next = || {
            let built = rig.stream.build_segment(&mut segment, EMSS, &rig.memory);
            (built.fpdus, built.ends_message, built.more)
        };
        assert_eq!(next(), (1, false, true));
        // The last octet of the first message and the whole second one share a segment.
        assert_eq!(next(), (2, true, false));
        assert_eq!(next(), (0, false, false));
    }

    #[test]
    fn an_fpdu_that_does_not_fit_waits_unchanged() {
        let mut rig = Rig::new(Role::Initiator);
        rig.post_send(1, 40);
        for room in 0..18 + 40 + 2 + 4 {
            let mut out = vec![0; room];
            assert_eq!(rig.stream.build(&mut out, EMSS, &rig.memory), 0);
            assert!(rig.stream.has_output());
        }
        assert_eq!(rig.completions(), []);
        assert_eq!(rig.sent()[0].payload, counting(40));
        assert_eq!(rig.completions().len(), 1);
    }

    #[test]
    fn small_fpdus_share_a_segment() {
        let mut rig = Rig::new(Role::Initiator);
        for id in 0..5 {
            rig.post_send(id, 8);
        }
        let mut segment = [0; EMSS];
        let mut used = 0;
        loop {
            let built = rig.stream.build(&mut segment[used..], EMSS, &rig.memory);
            if built == 0 {
                break;
            }
            used += built;
        }
        assert_eq!(used, 5 * (2 + 18 + 8 + 4));
    }
}

mod completing {
    use super::*;

    // proves 5040-5.5-10
    #[test]
    fn a_send_completes_with_its_last_fpdu() {
        let mut rig = Rig::new(Role::Initiator);
        rig.post_send(1, UNTAGGED_MAX + 1);
        rig.next_sent().unwrap();
        assert_eq!(rig.completions(), []);
        rig.next_sent().unwrap();
        let [completion] = rig.completions()[..] else { panic!("one completion") };
        assert_eq!(completion.operation, CompletedOperation::Send);
        assert_eq!(completion.len as usize, UNTAGGED_MAX + 1);
    }

    // proves 5040-5.5-11, 5040-5.5-9
    #[test]
    fn what_is_behind_a_read_is_sent_but_completes_after_it() {
        let mut rig = Rig::responder();
        let sink = rig.post_read(1, 8);
        rig.post_send(2, 8);
        let (_, source) = rig.source(8);
        rig.try_post(write(3, &[source], PEER_STAG, 0)).unwrap();
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest, Opcode::Send, Opcode::Write]);
        assert_eq!(rig.completions(), []);
        rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[7; 8]);
        let ids: Vec<_> = rig.completions().iter().map(|it| (it.id, it.operation)).collect();
        use CompletedOperation::{Read, Send, Write};
        assert_eq!(ids, [(1, Read), (2, Send), (3, Write)]);
    }

    #[test]
    fn unsignaled_success_is_silent_and_frees_its_place() {
        let mut rig = Rig::new(Role::Initiator);
        for id in 0..100 {
            let mut request = send(id, &[]);
            request.signaled = false;
            rig.try_post(request).unwrap();
            assert_eq!(rig.sent_opcodes(), [Opcode::Send]);
        }
        assert_eq!(rig.completions(), []);
    }

    // proves 5040-8.1.1-12, 5040-8.1.2-5, 5042-6.4.3.2-1
    #[test]
    fn a_place_is_taken_until_the_completion_is() {
        let mut rig = Rig::new(Role::Initiator);
        let depth = u64::from(LIMITS.send_depth);
        for id in 0..depth {
            rig.post_send(id, 1);
        }
        assert_eq!(rig.try_post(send(99, &[])), Err(PostError::QueueFull));
        rig.sent();
        assert_eq!(rig.try_post(send(99, &[])), Err(PostError::QueueFull));
        rig.stream.next_completion().unwrap();
        assert_eq!(rig.stream.send_room(), 1);
        assert_eq!(rig.try_post(send(99, &[])), Ok(()));
        assert_eq!(rig.try_post(send(100, &[])), Err(PostError::QueueFull));

        for id in 0..u64::from(LIMITS.receive_depth) {
            rig.post_receive(id, 1);
        }
        assert_eq!(rig.stream.post_receive(receive(99, &[])), Err(PostError::QueueFull));
    }

    // proves 5040-5.2.1-10, 5040-5.2.1-11, 5041-5.2-2
    #[test]
    fn bad_lists_are_refused_at_once() {
        let mut rig = Rig::new(Role::Initiator);
        let long = [sge(Stag(1), 0, u32::MAX), sge(Stag(1), 0, 1)];
        assert_eq!(rig.try_post(send(1, &long)), Err(PostError::BadSgList));
        assert_eq!(rig.stream.post_receive(receive(1, &long)), Err(PostError::BadSgList));
        let mut twice = read(1, sge(Stag(1), 0, 1), PEER_STAG, 0);
        twice.sg_list.push(sge(Stag(1), 0, 1));
        assert_eq!(rig.try_post(twice), Err(PostError::BadSgList));
        let mut empty = read(1, sge(Stag(1), 0, 1), PEER_STAG, 0);
        empty.sg_list.clear();
        assert_eq!(rig.try_post(empty), Err(PostError::BadSgList));
        assert!(!rig.stream.has_output());
        assert_eq!(rig.completions(), []);
    }
}

mod gates {
    use super::*;

    // proves 5040-6.1-3, 5040-6.1-4
    #[test]
    fn no_more_reads_than_ord_are_outstanding() {
        let mut rig = Rig::responder();
        let sinks: Vec<Stag> = (0..5).map(|id| rig.post_read(id, 4)).collect();
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest; DEPTH as usize]);
        for (answered, sink) in sinks.iter().enumerate() {
            rig.deliver(tagged(Opcode::ReadResponse, *sink, 0), &[7; 4]);
            let more = usize::from(answered + usize::from(DEPTH) < sinks.len());
            assert_eq!(rig.sent_opcodes(), vec![Opcode::ReadRequest; more]);
        }
        assert_eq!(rig.completions().len(), 5);
    }

    // proves 5040-5.2.1-8, 5040-5.5-9
    #[test]
    fn what_is_behind_a_gated_read_waits() {
        let mut rig = Rig::responder();
        let sink = rig.post_read(1, 4);
        rig.post_read(2, 4);
        rig.post_read(3, 4);
        rig.post_send(4, 1);
        rig.sent();
        assert!(!rig.stream.has_output());
        rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[7; 4]);
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest, Opcode::Send]);
    }

    #[test]
    fn without_ord_reads_are_refused_at_post() {
        let mut rig = Rig::with(&iwarp::mpa::Negotiated { ord: 0, ..negotiated(Role::Initiator) });
        let request = read(1, sge(Stag(1), 0, 1), PEER_STAG, 0);
        assert_eq!(rig.try_post(request), Err(PostError::NoReads));
        rig.post_send(2, 1);
        assert_eq!(rig.sent_opcodes(), [Opcode::Send]);
    }

    #[test]
    fn without_ird_no_read_is_served() {
        let negotiated = iwarp::mpa::Negotiated { ird: 0, ..negotiated(Role::Initiator) };
        let mut rig = Rig::with(&negotiated);
        rig.deliver(read_request_header(1), &read_of(0, Stag(1), 0).emit());
        assert_eq!(rig.stream.error(), Some(DdpError::NoBuffer(Queue::ReadRequest).into()));
    }

    #[test]
    fn a_fence_waits_for_all_earlier_reads() {
        let mut rig = Rig::responder();
        let first = rig.post_read(1, 4);
        let second = rig.post_read(2, 4);
        let mut fenced = send(3, &[]);
        fenced.fence = true;
        rig.try_post(fenced.clone()).unwrap();
        rig.post_send(4, 1);
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest; 2]);
        rig.deliver(tagged(Opcode::ReadResponse, first, 0), &[7; 4]);
        assert!(!rig.stream.has_output());
        rig.deliver(tagged(Opcode::ReadResponse, second, 0), &[7; 4]);
        assert_eq!(rig.sent_opcodes(), [Opcode::Send, Opcode::Send]);
        // With no Read outstanding it changes nothing.
        rig.try_post(fenced).unwrap();
        assert_eq!(rig.sent_opcodes(), [Opcode::Send]);
    }
}

mod sharing {
    use super::*;

    #[test]
    fn responses_and_requests_take_turns_between_messages() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(2 * TAGGED_MAX);
        let len = (TAGGED_MAX + 1).try_into().unwrap();
        for id in 0..4 {
            rig.post_send(id, UNTAGGED_MAX + 1);
        }
        for msn in 1..=2 {
            rig.deliver(read_request_header(msn), &read_of(len, stag, 0).emit());
        }
        use Opcode::{ReadResponse, Send};
        assert_eq!(
            rig.sent_opcodes(),
            [
                Send,
                Send,
                ReadResponse,
                ReadResponse,
                Send,
                Send,
                ReadResponse,
                ReadResponse,
                Send,
                Send,
                Send,
                Send
            ]
        );
    }

    // proves 5040-5.2.2-6, 5040-5.5-16
    #[test]
    fn responses_keep_the_order_of_their_requests() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(100);
        for (msn, offset) in [(1, 50), (2, 10)] {
            rig.deliver(read_request_header(msn), &read_of(5, stag, offset).emit());
        }
        let firsts: Vec<u8> = rig.sent().iter().map(|sent| sent.payload[0]).collect();
        assert_eq!(firsts, [50, 10]);
    }

    // proves 5041-5.3-2
    #[test]
    fn a_message_is_not_interrupted() {
        let mut rig = Rig::responder();
        let (stag, _) = rig.source(8);
        rig.post_send(1, 3 * UNTAGGED_MAX);
        assert_eq!(rig.next_sent().unwrap().opcode, Opcode::Send);
        rig.deliver(read_request_header(1), &read_of(8, stag, 0).emit());
        assert_eq!(rig.sent_opcodes(), [Opcode::Send, Opcode::Send, Opcode::ReadResponse]);
    }

    // proves 5040-5.5-7, 5040-5.5-13
    #[test]
    fn a_response_has_what_was_written_before_its_request() {
        let mut rig = Rig::responder();
        let stag = rig.memory.register(8);
        rig.deliver(tagged(Opcode::Write, stag, 0), &[5; 8]);
        rig.deliver(read_request_header(1), &read_of(8, stag, 0).emit());
        assert_eq!(rig.sent()[0].payload, [5; 8]);
    }
}

mod start {
    use super::*;

    // proves 5044-7.1.2-12
    #[test]
    fn a_responder_waits_for_the_first_fpdu() {
        let mut rig = Rig::new(Role::Responder);
        rig.post_send(1, 4);
        assert_eq!(rig.sent(), []);
        rig.deliver(tagged(Opcode::Write, Stag(1), 0), &[]);
        assert_eq!(rig.sent_opcodes(), [Opcode::Send]);
    }

    #[test]
    fn half_an_fpdu_is_none() {
        let mut rig = Rig::new(Role::Responder);
        rig.post_send(1, 4);
        let fpdu = rig.fpdu(&ulpdu(tagged(Opcode::Write, Stag(1), 0), &[]));
        for octet in &fpdu {
            assert!(!rig.stream.has_output());
            rig.stream.receive(vec![*octet], &mut rig.memory);
        }
        assert!(rig.stream.has_output());
    }

    // proves 6581-5-1, 6581-9.2-9
    #[test]
    fn an_initiator_sends_the_rtr_first() {
        for (kind, opcode) in [
            (RtrKind::Send, Opcode::Send),
            (RtrKind::Write, Opcode::Write),
            (RtrKind::Read, Opcode::ReadRequest),
        ] {
            let mut rig = Rig::with(&negotiated_rtr(Role::Initiator, kind));
            rig.post_send(1, 4);
            assert!(rig.stream.has_output());
            let sent = rig.sent();
            assert_eq!(sent[0].opcode, opcode);
            assert!(sent[0].header.last());
            match kind {
                RtrKind::Read => {
                    let octets = sent[0].payload[..].try_into().unwrap();
                    assert_eq!(ReadRequest::parse(octets).len, 0);
                }
                _ => assert_eq!(sent[0].payload, []),
            }
            // The Send's MSN counts an RTR that was a Send.
            let msn = if kind == RtrKind::Send { 2 } else { 1 };
            assert_eq!(sent[1].header, send_header(msn));
            assert_eq!(sent.len(), 2);
            assert_eq!(rig.statuses(), [(1, Status::Success)]);
        }
    }

    #[test]
    fn the_rtr_goes_out_even_with_nothing_posted_and_before_a_close() {
        let mut rig = Rig::with(&negotiated_rtr(Role::Initiator, RtrKind::Write));
        rig.stream.close();
        assert!(!rig.stream.is_drained());
        assert_eq!(rig.sent_opcodes(), [Opcode::Write]);
        assert!(rig.stream.is_drained());
    }

    #[test]
    fn an_rtr_read_is_answered_without_a_completion() {
        for ord in [0, 1] {
            let negotiated = iwarp::mpa::Negotiated { ord, ..negotiated_rtr(Role::Initiator, RtrKind::Read) };
            let mut rig = Rig::with(&negotiated);
            assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest]);
            if ord > 0 {
                // The indication counts as the one outstanding Read.
                rig.post_read(1, 4);
                assert!(!rig.stream.has_output());
            }
            rig.deliver(tagged(Opcode::ReadResponse, Stag(1), 0), &[]);
            rig.assert_operating();
            assert_eq!(rig.completions(), []);
            let sent: Vec<_> = rig.sent().iter().map(|sent| sent.header).collect();
            assert_eq!(sent, if ord > 0 { vec![read_request_header(2)] } else { vec![] });
        }
    }

    #[test]
    fn a_fence_does_not_wait_for_an_rtr_read() {
        let mut rig = Rig::with(&negotiated_rtr(Role::Initiator, RtrKind::Read));
        let mut fenced = send(1, &[]);
        fenced.fence = true;
        rig.try_post(fenced).unwrap();
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadRequest, Opcode::Send]);
    }

    fn rtr_of(kind: RtrKind) -> (Header, Vec<u8>) {
        match kind {
            RtrKind::Send => (send_header(1), vec![]),
            RtrKind::Write => (tagged(Opcode::Write, Stag(1), 0), vec![]),
            RtrKind::Read => (read_request_header(1), read_of(0, Stag(1), 0).emit().to_vec()),
        }
    }

    const KINDS: [RtrKind; 3] = [RtrKind::Send, RtrKind::Write, RtrKind::Read];

    #[test]
    fn a_responder_takes_exactly_the_negotiated_rtr() {
        for negotiated_kind in KINDS {
            for kind in KINDS {
                let mut rig = Rig::with(&negotiated_rtr(Role::Responder, negotiated_kind));
                rig.post_receive(1, 8);
                rig.post_send(2, 4);
                let (header, payload) = rtr_of(kind);
                rig.deliver(header, &payload);
                if kind == negotiated_kind {
                    rig.assert_operating();
                    let mut expected = vec![Opcode::Send];
                    if kind == RtrKind::Read {
                        expected.push(Opcode::ReadResponse);
                    }
                    assert_eq!(rig.sent_opcodes(), expected);
                } else {
                    let code = TerminateCode::Mpa(Mpa::NoMatchingRtr);
                    rig.assert_terminates(RdmapError::UnexpectedRtr, code);
                }
            }
        }
    }

    #[test]
    fn an_rtr_carries_nothing() {
        for kind in KINDS {
            let mut rig = Rig::with(&negotiated_rtr(Role::Responder, kind));
            let stag = rig.post_receive(1, 8);
            let (header, payload) = match kind {
                RtrKind::Send => (send_header(1), vec![7; 8]),
                RtrKind::Write => (tagged(Opcode::Write, stag, 0), vec![7; 8]),
                RtrKind::Read => (read_request_header(1), read_of(8, stag, 0).emit().to_vec()),
            };
            rig.deliver(header, &payload);
            let code = TerminateCode::Mpa(Mpa::NoMatchingRtr);
            rig.assert_terminates(RdmapError::UnexpectedRtr, code);
            assert_eq!(rig.memory.octets(stag), [0; 8]);
        }
    }

    #[test]
    fn an_rtr_send_consumes_an_msn_but_no_receive() {
        let mut rig = Rig::with(&negotiated_rtr(Role::Responder, RtrKind::Send));
        rig.deliver(send_header(1), &[]);
        rig.assert_operating();
        let stag = rig.post_receive(1, 8);
        rig.deliver(send_header(2), &[7; 8]);
        rig.assert_operating();
        assert_eq!(rig.memory.octets(stag), [7; 8]);
        assert_eq!(rig.statuses(), [(1, Status::Success)]);
    }

    #[test]
    fn an_rtr_read_is_served_even_without_ird() {
        let negotiated = iwarp::mpa::Negotiated { ird: 0, ..negotiated_rtr(Role::Responder, RtrKind::Read) };
        let mut rig = Rig::with(&negotiated);
        rig.deliver(read_request_header(1), &read_of(0, Stag(1), 0).emit());
        assert_eq!(rig.sent_opcodes(), [Opcode::ReadResponse]);
    }

    #[test]
    fn a_terminate_may_come_instead_of_the_rtr() {
        let mut rig = Rig::with(&negotiated_rtr(Role::Responder, RtrKind::Write));
        rig.deliver(terminate_header(), &[0x20, 0x07, 0, 0]);
        assert_eq!(rig.stream.error(), None);
        assert_eq!(rig.stream.state(), StreamState::Terminated);
        let code = TerminateCode::Mpa(Mpa::NoMatchingRtr);
        assert_eq!(rig.stream.terminate_received(), Some(code));
    }

    #[test]
    fn two_streams_of_real_roles_begin() {
        for kind in [None, Some(RtrKind::Send), Some(RtrKind::Write), Some(RtrKind::Read)] {
            let of = |role| iwarp::mpa::Negotiated { rtr: kind, ..negotiated(role) };
            let mut memory = memory::TestMemory::new();
            let mut streams = [Role::Initiator, Role::Responder]
                .map(|role| Stream::<Vec<u8>>::new(&of(role), memory::WHO, LIMITS));
            streams[1].post_send(send(7, &[])).unwrap();
            streams[0].post_receive(receive(8, &[])).unwrap();
            for from in [0, 1, 0, 1] {
                let mut out = vec![0; EMSS];
                let len = streams[from].build(&mut out, EMSS, &memory);
                out.truncate(len);
                streams[1 - from].receive(out, &mut memory);
            }
            let received = streams[0].next_completion().is_some();
            assert_eq!(received, kind.is_some(), "only an RTR lets a Responder speak first");
        }
    }
}
