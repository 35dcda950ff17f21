//! No allocation once a Stream is made: queues have the size that was asked for.

mod common;

use common::memory::{TestMemory, WHO};
use common::*;
use iwarp::atomic::AtomicOperation;
use iwarp::mpa::Role;
use iwarp::stream::Stream;
use iwarp::types::Stag;
use iwarp::work::{PostError, SendOperation, SendRequest};

/// Counts the allocations of what is measured.
#[derive(Default)]
struct Meter(u64);

impl Meter {
    fn measure<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let mut result = None;
        self.0 += allocation_counter::measure(|| result = Some(run())).count_total;
        result.unwrap()
    }
}

struct World {
    streams: [Stream<Vec<u8>>; 2],
    memory: TestMemory,
    source: Stag,
    sink: Stag,
    meter: Meter,
}

impl World {
    fn post_all(&mut self, stream: usize, requests: &[SendRequest]) {
        for request in requests {
            let (stream, request) = (&mut self.streams[stream], request.clone());
            match self.meter.measure(|| stream.post_send(request)) {
                Ok(()) | Err(PostError::QueueFull) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// One segment each way, cut in two if asked for, and the completions of both sides.
    fn turn(&mut self, cut: bool) {
        for from in [0, 1] {
            let mut segment = vec![0; EMSS];
            let (stream, memory) = (&mut self.streams[from], &self.memory);
            let len = self.meter.measure(|| stream.build(&mut segment, EMSS, memory));
            segment.truncate(len);
            let rest = segment.split_off(if cut { len / 2 } else { len });
            let (stream, memory) = (&mut self.streams[1 - from], &mut self.memory);
            self.meter.measure(|| stream.receive(segment, memory));
            self.meter.measure(|| stream.receive(rest, memory));
        }
        for stream in &mut self.streams {
            let receives = self.meter.measure(|| {
                while stream.next_completion().is_some() {}
                stream.receive_room()
            });
            for id in 0..receives as u64 {
                let request = receive(id, &[sge(self.sink, 0, 500), sge(self.sink, 500, 500)]);
                self.meter.measure(|| stream.post_receive(request)).unwrap();
            }
        }
    }
}

#[test]
fn nothing_is_allocated_after_the_first_cut() {
    let mut memory = TestMemory::new();
    let mut world = World {
        streams: [Role::Initiator, Role::Responder].map(|role| Stream::new(&negotiated(role), WHO, LIMITS)),
        source: memory.register(1000),
        sink: memory.register(1000),
        memory,
        meter: Meter::default(),
    };
    let elements = [sge(world.source, 0, 300), sge(world.source, 300, 100)];
    let solicited = SendRequest {
        operation: SendOperation::Send { invalidate: None, solicited: true },
        ..send(1, &elements)
    };
    let requests = [
        send(1, &elements[..1]),
        solicited,
        write(2, &elements, world.sink, 7),
        read(3, sge(world.sink, 0, 400), world.source, 0),
        send(4, &[]),
        SendRequest::atomic(5, world.sink, 8, AtomicOperation::fetch_add(1)),
        SendRequest::immediate(6, [9; 8], true),
    ];
    // The first FPDU that is not in one segment makes room for a few.
    world.post_all(0, &requests[..1]);
    world.turn(true);
    world.turn(true);
    assert_ne!(world.meter.0, 0, "the meter counts");
    world.meter = Meter::default();

    for turn in 0..2000 {
        world.post_all(0, &requests);
        world.post_all(1, &requests);
        world.turn(turn % 3 == 0);
    }
    assert_eq!(world.meter.0, 0, "allocations");

    // Nor when it ends in error.
    let stream = &mut world.streams[0];
    world.meter.measure(|| {
        stream.fail();
        while stream.next_completion().is_some() {}
    });
    assert_eq!(world.meter.0, 0, "allocations");
}
