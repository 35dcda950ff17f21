//! RDMA Messages octet by octet (RFC 5040 sections 4.1 to 4.7 and appendix A).

mod common;

use common::*;
use iwarp::mpa::Role;
use iwarp::stream::StreamState;
use iwarp::types::Stag;
use iwarp::wire::rdmap::{Opcode, ReadRequest};
use iwarp::wire::terminate::{Mpa, TerminateCode};
use iwarp::work::{SendOperation, Status};

/// A tagged segment that ends its message, DDP and RDMAP of version 1.
fn tagged_octets(opcode: u8, stag: [u8; 4], offset: [u8; 8], payload: &[u8]) -> Vec<u8> {
    [&[0xc1, 0x40 | opcode][..], &stag, &offset, payload].concat()
}

/// An untagged segment that is the whole of its queue's first message.
fn untagged_octets(opcode: u8, word: [u8; 4], queue: u8, payload: &[u8]) -> Vec<u8> {
    let place = [0, 0, 0, queue, 0, 0, 0, 1, 0, 0, 0, 0];
    [&[0x41, 0x40 | opcode][..], &word, &place, payload].concat()
}

const STAG: Stag = Stag(0x0102_0304);
const STAG_OCTETS: [u8; 4] = [1, 2, 3, 4];
const OFFSET: u64 = 0x1112_1314_1516_1718;
const OFFSET_OCTETS: [u8; 8] = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
const NO_WORD: [u8; 4] = [0; 4];

// proves 5040-3.1-1, 5040-4.1-1, 5040-4.1-2, 5040-4.1-4, 5040-4.1-5, 5040-4.1-6, 5040-4.1-7
// proves 5040-4.1-8, 5040-4.1-9, 5040-4.2-1, 5040-5.1-1, 5040-5.1-2, 5040-6.1-1
#[test]
fn an_rdma_write_names_stag_and_offset() {
    let mut rig = Rig::new(Role::Initiator);
    let (_, source) = rig.source(5);
    rig.try_post(write(1, &[source], STAG, OFFSET)).unwrap();
    let expected = tagged_octets(0, STAG_OCTETS, OFFSET_OCTETS, &counting(5));
    assert_eq!(rig.next_ulpdu(), Some(expected));
    assert_eq!(rig.next_ulpdu(), None);
}

// proves 5040-4.1-1, 5040-4.1-3, 5040-4.1-4, 5040-4.1-5, 5040-4.1-6, 5040-4.1-7, 5040-4.1-8
// proves 5040-4.1-10, 5040-4.2-1
// proves 5040-5.3-1, 5040-5.3-2, 5040-5.3-7, 5040-5.3-11, 5040-5.3-12
#[test]
fn the_four_kinds_of_send_differ_in_opcode_and_word() {
    let kinds = [
        (None, false, 3, NO_WORD),
        (Some(STAG), false, 4, STAG_OCTETS),
        (None, true, 5, NO_WORD),
        (Some(STAG), true, 6, STAG_OCTETS),
    ];
    for (invalidate, solicited, opcode, word) in kinds {
        let mut rig = Rig::new(Role::Initiator);
        let (_, source) = rig.source(3);
        let mut request = send(1, &[source]);
        request.operation = SendOperation::Send { invalidate, solicited };
        rig.try_post(request).unwrap();
        assert_eq!(rig.next_ulpdu(), Some(untagged_octets(opcode, word, 0, &counting(3))));
        assert_eq!(rig.next_ulpdu(), None);
    }
}

// proves 5040-4.1-1, 5040-4.1-4, 5040-4.1-5, 5040-4.1-6, 5040-4.1-7, 5040-4.1-10, 5040-4.2-1
// proves 5040-4.4-1, 5040-5.2-1, 5040-5.2.1-1, 5040-5.2.1-2, 5040-5.2.1-6, 5040-5.2.1-7
#[test]
fn a_read_request_is_its_header() {
    let mut rig = Rig::new(Role::Initiator);
    let sink = rig.memory.register(64);
    rig.try_post(read(1, sge(sink, 32, 20), STAG, OFFSET)).unwrap();
    let header =
        [&sink.0.to_be_bytes()[..], &[0, 0, 0, 0, 0, 0, 0, 32], &[0, 0, 0, 20], &STAG_OCTETS, &OFFSET_OCTETS];
    assert_eq!(rig.next_ulpdu(), Some(untagged_octets(1, NO_WORD, 1, &header.concat())));
    assert_eq!(rig.next_ulpdu(), None);
}

// proves 5040-4.1-1, 5040-4.1-4, 5040-4.1-5, 5040-4.1-6, 5040-4.1-7, 5040-4.2-1, 5040-4.4-2
// proves 5040-5.2-1, 5040-5.2.2-1, 5040-5.2.2-2, 5040-5.2.2-8
#[test]
fn a_read_response_names_the_sink_of_its_request() {
    let mut rig = Rig::responder();
    let (source_stag, _) = rig.source(9);
    let request = ReadRequest { sink_stag: STAG, sink_offset: OFFSET, len: 4, source_stag, source_offset: 5 };
    rig.deliver(read_request_header(1), &request.emit());
    assert_eq!(rig.next_ulpdu(), Some(tagged_octets(2, STAG_OCTETS, OFFSET_OCTETS, &[5, 6, 7, 8])));
    assert_eq!(rig.next_ulpdu(), None);
}

// proves 5040-4.1-1, 5040-4.1-4, 5040-4.1-5, 5040-4.1-6, 5040-4.1-7, 5040-4.1-10, 5040-4.2-1
// proves 5040-5.4-1, 5040-5.4-2, 5040-5.4-3
#[test]
fn a_terminate_is_its_header() {
    let mut rig = Rig::responder();
    let bad = ulpdu(send_header(7), &[]);
    rig.deliver_ulpdu(&bad);
    let header = [&[0x12, 0x03, 0xc0, 0, 0, 18][..], &bad].concat();
    assert_eq!(rig.next_ulpdu(), Some(untagged_octets(7, NO_WORD, 2, &header)));
    assert_eq!(rig.next_ulpdu(), None);
}

// proves 5040-4.1-10
#[test]
fn a_word_that_names_no_stag_is_ignored() {
    let mut rig = Rig::responder();
    let advertised = rig.memory.register(4);
    rig.post_receive(1, 4);
    rig.deliver(with_word(untagged(Opcode::SendSolicited, 0, 1), advertised.0), &[]);
    rig.deliver(with_word(read_request_header(1), advertised.0), &read_of(0, STAG, 0).emit());
    rig.assert_operating();
    assert_eq!(rig.statuses(), [(1, Status::Success)]);
    assert_eq!(rig.sent_opcodes(), [Opcode::ReadResponse]);
    rig.deliver(with_word(terminate_header(), advertised.0), &[0x20, 0x02, 0, 0]);
    assert_eq!(rig.stream.state(), StreamState::Terminated);
    assert_eq!(rig.stream.terminate_received(), Some(TerminateCode::Mpa(Mpa::Crc)));
    assert!(rig.memory.regions.contains_key(&advertised));
}
