//! Streams share memory and nothing else (RFC 5040 section 8.1).

mod common;

use common::*;
use iwarp::ddp::Queue;
use iwarp::error::DdpError;
use iwarp::mpa::Role;
use iwarp::wire::rdmap::Opcode;
use iwarp::work::Status;

// proves 5040-8.1.1-11, 5040-8.1.2-7
#[test]
fn a_stream_that_fills_its_queues_and_ends_leaves_another_alone() {
    let mut rigs = [Rig::responder(), Rig::responder()];
    let [stag, other] = rigs.each_mut().map(|rig| rig.source(8).0);
    let request = read_of(8, stag, 0).emit();
    for (rig, id) in rigs.iter_mut().zip([1, 2]) {
        rig.post_receive(id, 8);
    }

    let [full, alone] = &mut rigs;
    for msn in 1..=u32::from(DEPTH) {
        full.deliver(read_request_header(msn), &request);
    }
    // The other's Read Request queue still has all its buffers.
    for msn in 1..=u32::from(DEPTH) {
        alone.deliver(read_request_header(msn), &read_of(8, other, 0).emit());
    }
    alone.assert_operating();

    full.deliver(read_request_header(u32::from(DEPTH) + 1), &request);
    assert_eq!(full.stream.error(), Some(DdpError::NoBuffer(Queue::ReadRequest).into()));
    assert_eq!(full.statuses(), [(1, Status::Flushed)]);

    alone.deliver(send_header(1), &[7; 8]);
    assert_eq!(alone.statuses(), [(2, Status::Success)]);
    assert_eq!(alone.sent_opcodes(), [Opcode::ReadResponse; DEPTH as usize]);
    alone.assert_operating();
}

/// What is never taken fills the queue of its own Stream, where posting stops.
// proves 5040-8.1.1-12
#[test]
fn a_full_completion_queue_stops_its_own_stream_only() {
    let mut rigs = [Rig::new(Role::Initiator), Rig::new(Role::Initiator)];
    for id in 0..u64::from(LIMITS.send_depth) {
        rigs[0].post_send(id, 1);
        rigs[0].sent();
    }
    assert_eq!(rigs[0].stream.send_room(), 0);
    assert!(rigs[0].try_post(send(99, &[])).is_err());
    rigs[1].post_send(1, 1);
    rigs[1].sent();
    assert_eq!(rigs[1].statuses(), [(1, Status::Success)]);
    assert_eq!(rigs[0].completions().len(), LIMITS.send_depth as usize);
}
