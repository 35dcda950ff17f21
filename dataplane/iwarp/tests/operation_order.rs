//! Which of two operations takes effect first, row by row (RFC 5040 section 5.5 and appendix B):
//! from the end that issues them, and from the end that they arrive at.

mod common;

use common::*;
use iwarp::mpa::Role;
use iwarp::types::Stag;
use iwarp::wire::ddp::Header;
use iwarp::wire::rdmap::Opcode;
use iwarp::work::{CompletedOperation, SendRequest, Status};

const OK: Status = Status::Success;

mod issued_here {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Send,
        Write,
        Read,
    }

    impl Kind {
        const ALL: [Self; 3] = [Self::Send, Self::Write, Self::Read];

        fn request(self, rig: &mut Rig, id: u64) -> SendRequest {
            let (stag, source) = rig.source(4);
            match self {
                Self::Send => send(id, &[source]),
                Self::Write => write(id, &[source], PEER_STAG, 0),
                Self::Read => read(id, sge(stag, 0, 4), PEER_STAG, 0),
            }
        }

        const fn opcode(self) -> Opcode {
            match self {
                Self::Send => Opcode::Send,
                Self::Write => Opcode::Write,
                Self::Read => Opcode::ReadRequest,
            }
        }
    }

    // proves 5040-5.1-6, 5040-5.2.1-8, 5040-5.3-8, 5040-5.5-9, 5040-5.5-11, 5040-5.5-15
    #[test]
    fn any_two_are_sent_and_completed_in_order() {
        for (first, later) in Kind::ALL.iter().flat_map(|first| Kind::ALL.map(|later| (*first, later))) {
            let mut rig = Rig::responder();
            let requests = [first.request(&mut rig, 1), later.request(&mut rig, 2)];
            for request in requests.clone() {
                rig.try_post(request).unwrap();
            }
            assert_eq!(rig.sent_opcodes(), [first.opcode(), later.opcode()]);
            // Each Read holds back its own completion and those behind it until it is answered.
            let mut waiting = [1, 2].into_iter().zip([first, later]).peekable();
            while let Some((id, kind)) = waiting.peek() {
                if *kind == Kind::Read {
                    assert_eq!(rig.completions(), [], "{first:?} {later:?}");
                    let sink = requests[usize::try_from(*id - 1).unwrap()].sg_list[0].stag;
                    rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[7; 4]);
                }
                let mut done = vec![waiting.next().unwrap().0];
                while let Some((id, _)) = waiting.next_if(|(_, kind)| *kind != Kind::Read) {
                    done.push(id);
                }
                let expected: Vec<_> = done.into_iter().map(|id| (id, OK)).collect();
                assert_eq!(rig.statuses(), expected, "{first:?} {later:?}");
            }
        }
    }

    // proves 5040-5.5-6, 5040-5.5-15, 5040-5.5-17, 5040-5.2.2-4
    #[test]
    fn reads_complete_one_by_one_as_their_responses_are_delivered() {
        let mut rig = Rig::responder();
        let sinks = [rig.post_read(1, 8), rig.post_read(2, 8)];
        rig.sent();
        for (id, sink) in [1, 2].into_iter().zip(sinks) {
            rig.deliver(not_last(tagged(Opcode::ReadResponse, sink, 0)), &[7; 4]);
            assert_eq!(rig.completions(), []);
            rig.deliver(tagged(Opcode::ReadResponse, sink, 4), &[7; 4]);
            assert_eq!(rig.statuses(), [(id, OK)]);
        }
    }

    // proves 5040-5.5-10
    #[test]
    fn a_send_and_a_write_are_complete_when_ddp_has_all_of_them() {
        for kind in [Kind::Send, Kind::Write] {
            let mut rig = Rig::new(Role::Initiator);
            let (_, source) = rig.source(TAGGED_MAX + 1);
            let mut request = kind.request(&mut rig, 1);
            request.sg_list = list(&[source]);
            rig.try_post(request).unwrap();
            assert_eq!(rig.completions(), []);
            rig.next_sent().unwrap();
            assert_eq!(rig.completions(), []);
            rig.next_sent().unwrap();
            assert_eq!(rig.statuses(), [(1, OK)]);
        }
    }
}

mod arrived_here {
    use super::*;

    fn write_header(stag: Stag) -> Header {
        tagged(Opcode::Write, stag, 0)
    }

    /// The peer reads the first octets of a buffer.
    fn deliver_read(rig: &mut Rig, msn: u32, stag: Stag) {
        rig.deliver(read_request_header(msn), &read_of(4, stag, 0).emit());
    }

    // proves 5040-5.3-3, 5040-5.3-5, 5040-5.5-5, 5040-5.5-12
    #[test]
    fn send_send() {
        let mut rig = Rig::responder();
        let buffers = [rig.post_receive(1, 8), rig.post_receive(2, 8)];
        rig.deliver(not_last(send_header(1)), &[1; 4]);
        assert_eq!(rig.completions(), []);
        rig.deliver(at(send_header(1), 4), &[1; 4]);
        assert_eq!(rig.statuses(), [(1, OK)]);
        rig.deliver(send_header(2), &[2; 8]);
        assert_eq!(rig.statuses(), [(2, OK)]);
        assert_eq!(buffers.map(|stag| rig.memory.octets(stag)[0]), [1, 2]);
    }

    // proves 5040-5.1-3
    #[test]
    fn send_write() {
        let mut rig = Rig::responder();
        let buffer = rig.post_receive(1, 4);
        rig.deliver(send_header(1), &[1; 4]);
        rig.deliver(write_header(buffer), &[2; 4]);
        assert_eq!(rig.statuses(), [(1, OK)]);
        assert_eq!(rig.memory.octets(buffer), [2; 4]);
    }

    // proves 5040-5.5-7, 5040-5.5-13
    #[test]
    fn send_read() {
        let mut rig = Rig::responder();
        let buffer = rig.post_receive(1, 4);
        rig.deliver(not_last(send_header(1)), &[1; 2]);
        rig.deliver(at(send_header(1), 2), &[1; 2]);
        deliver_read(&mut rig, 1, buffer);
        // The Send is complete before there is a Response, and the Response has what it brought.
        assert_eq!(rig.statuses(), [(1, OK)]);
        assert_eq!(rig.sent()[0].payload, [1; 4]);
    }

    // proves 5040-5.1-3, 5040-5.5-5
    #[test]
    fn write_send() {
        let mut rig = Rig::responder();
        let target = rig.memory.register(4);
        rig.post_receive(1, 4);
        rig.deliver(write_header(target), &[1; 4]);
        assert_eq!(rig.completions(), [], "a Write alone tells nobody");
        rig.deliver(send_header(1), &[2; 4]);
        assert_eq!(rig.memory.octets(target), [1; 4]);
        assert_eq!(rig.statuses(), [(1, OK)]);
    }

    // proves 5040-5.1-3
    #[test]
    fn write_write() {
        let mut rig = Rig::responder();
        let target = rig.memory.register(4);
        rig.deliver(write_header(target), &[1; 4]);
        rig.deliver(write_header(target), &[2; 3]);
        assert_eq!(rig.memory.octets(target), [2, 2, 2, 1]);
        assert_eq!(rig.completions(), []);
    }

    // proves 5040-5.5-7, 5040-5.5-13
    #[test]
    fn write_read() {
        let mut rig = Rig::responder();
        let target = rig.memory.register(4);
        rig.deliver(write_header(target), &[1; 4]);
        let request = read_of(4, target, 0).emit();
        rig.deliver(not_last(read_request_header(1)), &request[..20]);
        assert!(!rig.stream.has_output(), "half a Read Request starts nothing");
        rig.deliver(at(read_request_header(1), 20), &request[20..]);
        assert_eq!(rig.sent()[0].payload, [1; 4]);
    }

    // proves 5040-5.5-8, 5040-5.5-14, 5040-5.2.1-5
    #[test]
    fn read_send() {
        let mut rig = Rig::responder();
        let buffer = rig.post_receive(1, 4);
        deliver_read(&mut rig, 1, buffer);
        assert_eq!(rig.completions(), [], "a Read Request is not the application's");
        rig.deliver(send_header(1), &[1; 4]);
        assert_eq!(rig.statuses(), [(1, OK)]);
        // What the Send brought may be in the Response; here it is.
        assert_eq!(rig.sent()[0].payload, [1; 4]);
        assert_eq!(rig.completions(), []);
    }

    // proves 5040-5.5-8
    #[test]
    fn read_write() {
        let mut rig = Rig::responder();
        let target = rig.memory.register(4);
        deliver_read(&mut rig, 1, target);
        rig.deliver(write_header(target), &[1; 4]);
        assert_eq!(rig.memory.octets(target), [1; 4]);
        assert_eq!(rig.sent()[0].payload, [1; 4]);
    }

    // proves 5040-5.2.1-9, 5040-5.2.2-6, 5040-5.5-16
    #[test]
    fn read_read() {
        let mut rig = Rig::responder();
        let [first, later] = [1, 2].map(|octet| {
            let stag = rig.memory.register(2 * TAGGED_MAX);
            rig.memory.octets_mut(stag).fill(octet);
            stag
        });
        let len = (2 * TAGGED_MAX).try_into().unwrap();
        rig.deliver(read_request_header(1), &read_of(len, first, 0).emit());
        deliver_read(&mut rig, 2, later);
        let responses: Vec<_> = rig.sent().iter().map(|sent| (sent.opcode, sent.payload[0])).collect();
        assert_eq!(responses, [1, 1, 2].map(|octet| (Opcode::ReadResponse, octet)));
        assert_eq!(rig.completions(), []);
    }

    /// Each of the four kinds of Send is delivered in its turn.
    // proves 5040-5.3-5, 5040-5.5-5
    #[test]
    fn sends_of_all_kinds() {
        let mut rig = Rig::responder();
        let advertised = rig.memory.register(1);
        let kinds =
            [Opcode::SendSolicited, Opcode::Send, Opcode::SendSolicitedInvalidate, Opcode::SendSolicited];
        for id in 1..=4 {
            rig.post_receive(id, 4);
        }
        for (opcode, msn) in kinds.into_iter().zip(1..) {
            rig.deliver(with_word(untagged(opcode, 0, msn), advertised.0), &[]);
        }
        let delivered: Vec<_> = rig.completions().iter().map(|it| (it.id, it.operation)).collect();
        let receive = |invalidated, solicited| CompletedOperation::Receive { invalidated, solicited };
        assert_eq!(
            delivered,
            [
                (1, receive(None, true)),
                (2, receive(None, false)),
                (3, receive(Some(advertised), true)),
                (4, receive(None, true)),
            ]
        );
    }
}
