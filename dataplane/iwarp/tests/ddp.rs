//! What DDP itself promises (RFC 5041): its error numbers, what Delivery waits for and tells, and that
//! all segments of a message agree.

mod common;

use common::*;
use iwarp::mpa::Role;
use iwarp::stream::StreamState;
use iwarp::types::{ProtectionDomain, Stag};
use iwarp::wire::ddp::Header;
use iwarp::wire::rdmap::Opcode;
use iwarp::work::{CompletedOperation, SendOperation, Status};

/// Delivers a segment to a Stream with one receive of 8 octets and returns the Terminate's first two
/// octets: layer and error type, error code.
fn number(header: Header, payload: &[u8], meddle: impl FnOnce(&mut Rig, &mut Vec<u8>)) -> [u8; 2] {
    let mut rig = Rig::responder();
    rig.post_receive(1, 8);
    let mut segment = ulpdu(header, payload);
    meddle(&mut rig, &mut segment);
    rig.deliver_ulpdu(&segment);
    let sent = rig.sent();
    let [terminate] = &sent[..] else { panic!("one Terminate, not {sent:?}") };
    [terminate.payload[0], terminate.payload[1]]
}

// proves 5041-7.2-1
#[test]
fn each_error_has_its_number() {
    // The first buffer of a rig has the number 1.
    let buffer = Stag(1 << 8);
    let write = |stag, offset| tagged(Opcode::Write, stag, offset);
    let as_it_is = |_: &mut Rig, _: &mut Vec<u8>| {};
    assert_eq!(number(write(Stag(0xdead), 0), &[7], as_it_is), [0x11, 0x00]);
    assert_eq!(number(write(buffer, 8), &[7], as_it_is), [0x11, 0x01]);
    let elsewhere = |rig: &mut Rig, _: &mut Vec<u8>| {
        rig.memory.regions.get_mut(&buffer).unwrap().domain = ProtectionDomain(2);
    };
    assert_eq!(number(write(buffer, 0), &[7], elsewhere), [0x11, 0x02]);
    assert_eq!(number(write(buffer, u64::MAX), &[7], as_it_is), [0x11, 0x03]);
    let version = |_: &mut Rig, segment: &mut Vec<u8>| segment[0] ^= 0x02;
    assert_eq!(number(write(buffer, 0), &[7], version), [0x11, 0x04]);

    assert_eq!(number(untagged(Opcode::Send, 4, 1), &[7], as_it_is), [0x12, 0x01]);
    let without_receive = |rig: &mut Rig, _: &mut Vec<u8>| rig.deliver(send_header(1), &[]);
    assert_eq!(number(send_header(2), &[7], without_receive), [0x12, 0x02]);
    assert_eq!(number(send_header(2), &[7], as_it_is), [0x12, 0x03]);
    assert_eq!(number(at(send_header(1), 1), &[7], as_it_is), [0x12, 0x04]);
    assert_eq!(number(send_header(1), &[7; 9], as_it_is), [0x12, 0x05]);
    assert_eq!(number(send_header(1), &[7], version), [0x12, 0x06]);

    let gone = |rig: &mut Rig, _: &mut Vec<u8>| rig.memory.deregister(buffer);
    assert_eq!(number(send_header(1), &[7], gone), [0x10, 0x00]);
}

// proves 5041-4.1-7, 5041-5.3-1, 5041-5.3-6, 5041-5.3-7, 5041-5.4-1, 5041-5.4-2
#[test]
fn a_message_is_delivered_once_when_all_of_it_is_placed() {
    let mut rig = Rig::responder();
    let stags = [1, 2].map(|id| rig.post_receive(id, 8));
    rig.deliver(not_last(send_header(1)), &[1; 3]);
    // A message of another queue in between does not end this one.
    rig.deliver(tagged(Opcode::Write, Stag(1), 0), &[]);
    rig.deliver(not_last(at(send_header(1), 3)), &[2; 3]);
    assert_eq!(rig.completions(), []);
    rig.deliver(at(send_header(1), 6), &[3; 1]);
    assert_eq!(rig.memory.octets(stags[0]), [1, 1, 1, 2, 2, 2, 3, 0]);
    let [first] = rig.completions()[..] else { panic!("one completion") };
    assert_eq!((first.id, first.len), (1, 7));
    rig.deliver(send_header(2), &[4; 8]);
    let [second] = rig.completions()[..] else { panic!("one completion") };
    assert_eq!((second.id, second.len), (2, 8));
    assert_eq!(rig.memory.octets(stags[1]), [4; 8]);
    rig.assert_operating();
}

// proves 5041-4.3-3, 5041-4.3-5, 5041-5.4-3: 40 bits, of which RDMAP uses the opcode and the STag.
#[test]
fn what_the_ulp_of_the_peer_said_comes_with_an_untagged_message() {
    let mut rig = Rig::responder();
    let advertised = rig.memory.register(4);
    rig.post_receive(1, 8);
    let header = with_word(untagged(Opcode::SendSolicitedInvalidate, 0, 1), advertised.0);
    rig.deliver(not_last(header), &[1; 4]);
    rig.deliver(at(header, 4), &[2; 4]);
    let [completion] = rig.completions()[..] else { panic!("one completion") };
    let told = CompletedOperation::Receive { invalidated: Some(advertised), solicited: true };
    assert_eq!(completion.operation, told);
}

// proves 5041-4.2-3, 5041-4.2-8, 5041-5.4-3
#[test]
fn what_the_ulp_of_the_peer_said_comes_with_a_tagged_message() {
    let mut rig = Rig::responder();
    let sink = rig.post_read(1, 4);
    rig.sent();
    // The same STag and octets: only RDMAP's octet says what they are.
    rig.deliver(tagged(Opcode::Write, sink, 0), &[5; 4]);
    assert_eq!(rig.completions(), []);
    rig.deliver(tagged(Opcode::ReadResponse, sink, 0), &[6; 4]);
    assert_eq!(rig.statuses(), [(1, Status::Success)]);
    assert_eq!(rig.memory.octets(sink), [6; 4]);

    // RDMAP is told the STag and does not take a Response to another buffer that would do.
    let mut rig = Rig::responder();
    let other = rig.memory.register(4);
    rig.post_read(1, 4);
    rig.sent();
    rig.deliver(tagged(Opcode::ReadResponse, other, 0), &[6; 4]);
    assert_eq!(rig.stream.state(), StreamState::Terminating);
    assert_eq!(rig.memory.octets(other), [0; 4]);
}

// proves 5041-4.2-4, 5041-4.2-5, 5041-4.2-9, 5041-4.2-10, 5041-4.3-4, 5041-4.3-6, 5041-4.3-7
// proves 5041-4.3-11, 5041-4.3-12, 5041-4.4-1, 5041-4.1-5
#[test]
fn all_segments_of_a_message_agree() {
    let mut rig = Rig::new(Role::Initiator);
    let (_, source) = rig.source(3 * TAGGED_MAX);
    rig.post_send(1, 0);
    let mut request = send(2, &[source]);
    request.operation = SendOperation::Send { invalidate: Some(Stag(77)), solicited: true };
    rig.try_post(request).unwrap();
    rig.try_post(write(3, &[source], PEER_STAG, 99)).unwrap();
    let sent = rig.sent();
    assert_eq!(sent.len(), 1 + 4 + 3);
    let octet = Opcode::SendSolicitedInvalidate.control(iwarp::wire::Version::Ietf);
    for (index, segment) in sent[1..5].iter().enumerate() {
        let Header::Untagged { last, ulp_control, ulp_word, queue, msn, .. } = segment.header else {
            panic!("not {:?}", segment.header)
        };
        assert_eq!((last, ulp_control, ulp_word, queue, msn), (index == 3, octet, 77, 0, 2));
    }
    let octet = Opcode::Write.control(iwarp::wire::Version::Ietf);
    for (index, segment) in sent[5..].iter().enumerate() {
        let Header::Tagged { last, ulp_control, stag, .. } = segment.header else {
            panic!("not {:?}", segment.header)
        };
        assert_eq!((last, ulp_control, stag), (index == 2, octet, PEER_STAG));
    }
}

// proves 5041-3-2, 5041-3-3: what is built stays, what follows is cut to the MULPDU of now.
#[test]
fn a_change_of_the_mulpdu_counts_from_the_next_segment_on() {
    let mut rig = Rig::new(Role::Initiator);
    rig.post_send(1, 400);
    let mut lens = Vec::new();
    for emss in [200, 160, 300, 300] {
        let mut out = vec![0; 300];
        lens.push(rig.stream.build(&mut out, emss, &rig.memory));
    }
    // Length field, header, pad and CRC take 24 octets of each.
    assert_eq!(lens, [200, 160, 112, 0]);
    assert_eq!(rig.statuses(), [(1, Status::Success)]);
}

// proves 5041-6.2.2-1: a bad header, a fault that the LLP reports, and its loss.
#[test]
fn fatal_errors_are_told() {
    let mut rig = Rig::responder();
    rig.post_receive(1, 8);
    rig.deliver(untagged(Opcode::Send, 4, 1), &[7]);
    assert_eq!(rig.stream.error(), Some(iwarp::error::DdpError::InvalidQueue.into()));
    assert_eq!(rig.statuses(), [(1, Status::Flushed)]);

    let mut rig = Rig::responder();
    rig.post_receive(1, 8);
    let mut fpdu = rig.fpdu(&ulpdu(send_header(1), &[7; 8]));
    *fpdu.last_mut().unwrap() ^= 1;
    rig.stream.receive(fpdu, &mut rig.memory);
    assert_eq!(rig.stream.error(), Some(iwarp::mpa::MpaError::Crc.into()));
    assert_eq!(rig.statuses(), [(1, Status::Flushed)]);

    let mut rig = Rig::responder();
    rig.post_receive(1, 8);
    rig.stream.fail();
    assert_eq!(rig.stream.state(), StreamState::Closed);
    assert_eq!(rig.statuses(), [(1, Status::Flushed)]);
}
