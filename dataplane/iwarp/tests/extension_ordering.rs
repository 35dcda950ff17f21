//! RFC 7306 section 7: the ordering table of Atomic Operations and Immediate Data, row by row. A test's
//! name has the first operation and the second; the peer issues both.

mod common;

use common::*;
use iwarp::atomic::AtomicOperation;
use iwarp::types::Stag;
use iwarp::wire::atomic::{AtomicRequest, AtomicResponse};
use iwarp::wire::rdmap::Opcode;
use iwarp::work::{CompletedOperation, Status};

const DATA: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// What the word is at first.
const BEFORE: u64 = 7;

/// A Stream with one word of memory and two receives of 8 octets.
struct Table {
    rig: Rig,
    word: Stag,
    receives: [Stag; 2],
    next: Next,
}

/// MSNs of the peer's next messages.
struct Next {
    send: u32,
    request: u32,
}

impl Table {
    fn new() -> Self {
        let mut rig = Rig::responder();
        let word = rig.memory.register(8);
        rig.memory.octets_mut(word).copy_from_slice(&BEFORE.to_ne_bytes());
        let receives = [1, 2].map(|id| rig.post_receive(id, 8));
        Self { rig, word, receives, next: Next { send: 1, request: 1 } }
    }

    fn immediate(&mut self) {
        self.rig.deliver(immediate_header(self.next.send), &DATA);
        self.next.send += 1;
    }

    fn send(&mut self) {
        self.rig.deliver(send_header(self.next.send), &[0x55; 8]);
        self.next.send += 1;
    }

    /// Writes 100 to the word.
    fn write(&mut self) {
        self.rig.deliver(tagged(Opcode::Write, self.word, 0), &100_u64.to_ne_bytes());
    }

    /// Reads the word.
    fn read(&mut self) {
        self.rig.deliver(read_request_header(self.next.request), &read_of(8, self.word, 0).emit());
        self.next.request += 1;
    }

    /// Adds 1 to the word.
    fn atomic(&mut self) {
        let request_id = self.next.request;
        let operation = AtomicOperation::fetch_add(1);
        let request = AtomicRequest { request_id, stag: self.word, offset: 0, operation };
        self.rig.deliver(atomic_request_header(request_id), &request.emit());
        self.next.request += 1;
    }

    fn word(&self) -> u64 {
        u64::from_ne_bytes(*self.rig.memory.octets(self.word).first_chunk().unwrap())
    }

    /// The next message that is generated is a Read Response with this value.
    #[track_caller]
    fn generates_read_response(&mut self, value: u64) {
        let sent = self.rig.next_sent().expect("a Read Response");
        assert_eq!((sent.opcode, &sent.payload[..]), (Opcode::ReadResponse, &value.to_ne_bytes()[..]));
    }

    /// The next message that is generated is an Atomic Response with this value.
    #[track_caller]
    fn generates_atomic_response(&mut self, original: u64) {
        let sent = self.rig.next_sent().expect("an Atomic Response");
        assert_eq!(sent.opcode, Opcode::AtomicResponse);
        assert_eq!(AtomicResponse::parse(sent.payload[..].try_into().unwrap()).original, original);
    }

    #[track_caller]
    fn generates_nothing_more(&mut self) {
        assert_eq!(self.rig.next_sent(), None);
        self.rig.assert_operating();
    }

    /// Exactly these receives completed just now: true for Immediate Data.
    #[track_caller]
    fn completed(&mut self, expected: &[(u64, bool)]) {
        let completed: Vec<_> = self
            .rig
            .completions()
            .into_iter()
            .map(|it| {
                assert_eq!(it.status, Status::Success);
                (it.id, matches!(it.operation, CompletedOperation::ReceiveImmediate { data: DATA, .. }))
            })
            .collect();
        assert_eq!(completed, expected);
    }
}

// proves 7306-7-1
#[test]
fn immediate_then_send_complete_in_order() {
    let mut table = Table::new();
    table.immediate();
    table.send();
    table.completed(&[(1, true), (2, false)]);
    assert_eq!(table.rig.memory.octets(table.receives[1]), [0x55; 8]);
}

// proves 7306-7-1
#[test]
fn immediate_then_write_need_nothing_of_each_other() {
    let mut table = Table::new();
    table.immediate();
    table.write();
    table.completed(&[(1, true)]);
    assert_eq!(table.word(), 100);
}

// proves 7306-7-1
#[test]
fn immediate_then_read_is_answered_after_the_completion() {
    let mut table = Table::new();
    table.immediate();
    table.read();
    table.completed(&[(1, true)]);
    table.generates_read_response(BEFORE);
    table.generates_nothing_more();
}

// proves 7306-7-1
#[test]
fn immediate_then_atomic_is_answered_after_the_completion() {
    let mut table = Table::new();
    table.immediate();
    table.atomic();
    table.completed(&[(1, true)]);
    table.generates_atomic_response(BEFORE);
    table.generates_nothing_more();
}

// proves 7306-7-1, 7306-6.3-4
#[test]
fn immediate_or_send_then_immediate_complete_in_order() {
    let mut table = Table::new();
    table.immediate();
    table.immediate();
    table.completed(&[(1, true), (2, true)]);
    let mut table = Table::new();
    table.send();
    table.immediate();
    table.completed(&[(1, false), (2, true)]);
}

// proves 7306-7-1
#[test]
fn write_then_immediate_completes_when_the_write_is_placed() {
    let mut table = Table::new();
    table.write();
    table.completed(&[]);
    assert_eq!(table.word(), 100);
    table.immediate();
    table.completed(&[(1, true)]);
}

// proves 7306-7-1
#[test]
fn read_then_immediate_may_complete_before_the_answer() {
    let mut table = Table::new();
    table.read();
    table.immediate();
    table.completed(&[(1, true)]);
    table.generates_read_response(BEFORE);
    table.generates_nothing_more();
}

// proves 7306-7-1
#[test]
fn atomic_then_immediate_may_complete_before_the_answer() {
    let mut table = Table::new();
    table.atomic();
    table.immediate();
    table.completed(&[(1, true)]);
    table.generates_atomic_response(BEFORE);
    table.generates_nothing_more();
}

// proves 7306-7-2, 7306-5.4-5, 7306-5.4-7
#[test]
fn atomic_then_send_may_complete_before_the_answer() {
    let mut table = Table::new();
    table.atomic();
    table.send();
    table.completed(&[(1, false)]);
    assert_eq!(table.rig.memory.octets(table.receives[0]), [0x55; 8]);
    table.generates_atomic_response(BEFORE);
    table.generates_nothing_more();
}

// proves 7306-7-2, 7306-5.4-5
#[test]
fn atomic_then_write_may_be_placed_before_the_answer() {
    let mut table = Table::new();
    table.atomic();
    table.write();
    assert_eq!(table.word(), 100);
    table.generates_atomic_response(100);
    assert_eq!(table.word(), 101);
}

// proves 7306-7-2
#[test]
fn atomic_then_read_is_answered_after_the_atomic() {
    let mut table = Table::new();
    table.atomic();
    table.read();
    table.generates_atomic_response(BEFORE);
    table.generates_read_response(BEFORE + 1);
    table.generates_nothing_more();
}

// proves 7306-7-2, 7306-5.4-9, 7306-5.4-10, 7306-5.2.1-12
#[test]
fn atomic_then_atomic_is_processed_after_the_first_answer() {
    let mut table = Table::new();
    table.atomic();
    table.atomic();
    assert_eq!(table.word(), BEFORE);
    table.generates_atomic_response(BEFORE);
    assert_eq!(table.word(), BEFORE + 1);
    table.generates_atomic_response(BEFORE + 1);
    assert_eq!(table.word(), BEFORE + 2);
    table.generates_nothing_more();
}

// proves 7306-7-2, 7306-5.4-6
#[test]
fn send_then_atomic_is_answered_after_the_completion() {
    let mut table = Table::new();
    table.send();
    table.atomic();
    table.completed(&[(1, false)]);
    assert_eq!(table.rig.memory.octets(table.receives[0]), [0x55; 8]);
    table.generates_atomic_response(BEFORE);
    table.generates_nothing_more();
}

// proves 7306-7-2
#[test]
fn write_then_atomic_finds_what_was_written() {
    let mut table = Table::new();
    table.write();
    table.atomic();
    table.generates_atomic_response(100);
    assert_eq!(table.word(), 101);
}

// proves 7306-7-2
#[test]
fn read_then_atomic_is_processed_after_the_reads_answer() {
    let mut table = Table::new();
    table.read();
    table.atomic();
    table.generates_read_response(BEFORE);
    assert_eq!(table.word(), BEFORE);
    table.generates_atomic_response(BEFORE);
    assert_eq!(table.word(), BEFORE + 1);
    table.generates_nothing_more();
}

/// With Markers or a small MULPDU a Read's answer takes several segments: the Atomic waits for its last.
#[test]
fn read_in_several_segments_then_atomic() {
    let mut table = Table::new();
    let (source, _) = table.rig.source(TAGGED_MAX + 1);
    let len = u32::try_from(TAGGED_MAX + 1).unwrap();
    table.rig.deliver(read_request_header(1), &read_of(len, source, 0).emit());
    table.next.request = 2;
    table.atomic();
    let opcodes = table.rig.sent_opcodes();
    assert_eq!(opcodes, [Opcode::ReadResponse, Opcode::ReadResponse, Opcode::AtomicResponse]);
}
