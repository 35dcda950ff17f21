//! Two Streams joined: random work both ways, octets cut anywhere, memory compared octet by
//! octet, each completion once and in order. Each run is one seed.

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::list;
use common::memory::{TestMemory, WHO};
use iwarp::error::LocalError;
use iwarp::memory::Operation;
use iwarp::mpa::{Negotiated, Role, RtrKind};
use iwarp::stream::{Stream, StreamLimits, StreamState};
use iwarp::types::Stag;
use iwarp::work::{
    CompletedOperation, Completion, PostError, ReceiveRequest, SendOperation, SendRequest, Sge, Status,
};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

struct Random(ChaCha8Rng);

impl Random {
    /// From `0..limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.0.next_u64() % limit as u64).unwrap()
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn octets(&mut self, len: usize) -> Vec<u8> {
        let mut octets = vec![0; len];
        self.0.fill_bytes(&mut octets);
        octets
    }

    /// At least `len` octets, and up to `more` behind them.
    fn padded(&mut self, len: usize, more: usize) -> Vec<u8> {
        let len = len + self.below(more);
        self.octets(len)
    }

    /// Mostly short, sometimes several segments.
    fn message_len(&mut self) -> usize {
        match self.below(8) {
            0 => 0,
            1 => self.below(20_000),
            _ => self.below(300),
        }
    }
}

/// What a completion of the send queue must say.
struct Expected {
    id: u64,
    operation: CompletedOperation,
    len: u32,
    signaled: bool,
}

struct Side {
    stream: Stream<Vec<u8>>,
    memory: TestMemory,
    /// What memory must hold in the end, and what it held at first.
    model: BTreeMap<Stag, Vec<u8>>,
    original: BTreeMap<Stag, Vec<u8>>,
    /// Send requests that are not completed.
    sends: VecDeque<Expected>,
    /// Receive requests and the messages that they will take.
    receives: VecDeque<Completion>,
    /// Octets on their way to the other side.
    wire: VecDeque<u8>,
    next_id: u64,
    emss: usize,
}

impl Side {
    fn new(negotiated: &Negotiated, limits: StreamLimits, random: &mut Random) -> Self {
        Self {
            stream: Stream::new(negotiated, WHO, limits),
            memory: TestMemory::new(),
            model: BTreeMap::new(),
            original: BTreeMap::new(),
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            wire: VecDeque::new(),
            next_id: 0,
            emss: 150 + random.below(3) * 700 + random.below(40),
        }
    }

    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Registers octets, which stay as they are unless the model says otherwise.
    fn region(&mut self, octets: Vec<u8>, allowed: &[Operation]) -> Stag {
        let stag = self.memory.register_for(octets.len(), allowed);
        self.memory.octets_mut(stag).copy_from_slice(&octets);
        self.original.insert(stag, octets.clone());
        self.model.insert(stag, octets);
        stag
    }

    /// A list of up to 6 elements over `len` octets of noise-filled regions, with noise around.
    fn scattered(&mut self, len: usize, allowed: &[Operation], random: &mut Random) -> Vec<Sge> {
        let mut elements = Vec::new();
        let mut left = len;
        let count = 1 + random.below(6);
        for index in 0..count {
            let part = if index + 1 == count { left } else { random.below(left + 1) };
            let offset = random.below(9);
            let octets = random.padded(offset + part, 9);
            let stag = self.region(octets, allowed);
            elements.push(Sge { stag, offset: offset as u64, len: part.try_into().unwrap() });
            left -= part;
        }
        elements
    }

    fn gather(&self, elements: &[Sge]) -> Vec<u8> {
        let mut octets = Vec::new();
        for sge in elements {
            let at = usize::try_from(sge.offset).unwrap();
            octets.extend_from_slice(&self.memory.octets(sge.stag)[at..at + sge.len as usize]);
        }
        octets
    }

    /// The model holds `octets` in the list from now on.
    fn expect_in(&mut self, elements: &[Sge], mut octets: &[u8]) {
        for sge in elements {
            let len = (sge.len as usize).min(octets.len());
            let (now, later) = octets.split_at(len);
            let at = usize::try_from(sge.offset).unwrap();
            self.model.get_mut(&sge.stag).unwrap()[at..at + len].copy_from_slice(now);
            octets = later;
        }
        assert!(octets.is_empty());
    }
}

struct Pair {
    sides: [Side; 2],
    random: Random,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
        let rtr = match random.below(5) {
            0 => Some(RtrKind::Send),
            1 => Some(RtrKind::Write),
            2 => Some(RtrKind::Read),
            _ => None,
        };
        let crc = !random.chance(4);
        let markers = [random.chance(3), random.chance(3)];
        let depths: [u16; 2] = [0, 1].map(|_| random.below(5).try_into().unwrap());
        let limits = StreamLimits {
            send_depth: 1 + u32::try_from(random.below(20)).unwrap(),
            receive_depth: 1 + u32::try_from(random.below(20)).unwrap(),
        };
        let sides = [Role::Initiator, Role::Responder];
        let sides = [0, 1].map(|index| {
            let negotiated = Negotiated {
                role: sides[index],
                revision: 2,
                crc,
                send_markers: markers[index],
                receive_markers: markers[1 - index],
                ird: depths[1 - index],
                ord: depths[index],
                rtr,
            };
            Side::new(&negotiated, limits, &mut random)
        });
        Self { sides, random }
    }

    /// Posts a request on one side, with all that the other must have ready.
    fn post(&mut self, from: usize) {
        let random = &mut self.random;
        let [first, second] = &mut self.sides;
        let (local, remote) = if from == 0 { (first, second) } else { (second, first) };
        if local.stream.send_room() == 0 {
            return;
        }
        let len = random.message_len();
        let id = local.id();
        let (operation, elements, completed) = match random.below(3) {
            0 => {
                let Some(receive_id) = post_receive_for(remote, len, random) else { return };
                let elements = local.scattered(len, &[Operation::LocalRead], random);
                let octets = local.gather(&elements);
                let invalidate = random
                    .chance(4)
                    .then(|| remote.memory.register_for(random.below(9), &[Operation::RemoteRead]));
                let solicited = random.chance(3);
                remote.expect_in(&receive_id.1, &octets);
                remote.receives.push_back(Completion {
                    id: receive_id.0,
                    operation: CompletedOperation::Receive { invalidated: invalidate, solicited },
                    status: Status::Success,
                    len: len.try_into().unwrap(),
                });
                (SendOperation::Send { invalidate, solicited }, elements, CompletedOperation::Send)
            }
            1 => {
                let elements = local.scattered(len, &[Operation::LocalRead], random);
                let octets = local.gather(&elements);
                let offset = random.below(20);
                let target = random.padded(offset + len, 20);
                let stag = remote.region(target, &[Operation::RemoteWrite]);
                let sink = Sge { stag, offset: offset as u64, len: len.try_into().unwrap() };
                remote.expect_in(&[sink], &octets);
                (SendOperation::Write { stag, offset: offset as u64 }, elements, CompletedOperation::Write)
            }
            _ => {
                let offset = random.below(20);
                let source = random.padded(offset + len, 20);
                let octets = source[offset..offset + len].to_vec();
                let stag = remote.region(source, &[Operation::RemoteRead]);
                let at = random.below(9);
                let sink = random.padded(at + len, 9);
                let sink_stag = local.region(sink.clone(), &[Operation::LocalWrite]);
                let sink_sge = Sge { stag: sink_stag, offset: at as u64, len: len.try_into().unwrap() };
                local.expect_in(&[sink_sge], &octets);
                let operation = SendOperation::Read { stag, offset: offset as u64 };
                (operation, vec![sink_sge], CompletedOperation::Read)
            }
        };
        let signaled = !random.chance(4);
        let fence = random.chance(5);
        let request = SendRequest { id, operation, sg_list: list(&elements), signaled, fence };
        match local.stream.post_send(request) {
            Ok(()) => {
                let len = len.try_into().unwrap();
                local.sends.push_back(Expected { id, operation: completed, len, signaled });
            }
            Err(PostError::NoReads) => {
                // Nothing was asked for, so nothing comes.
                let sink = elements[0].stag;
                local.model.insert(sink, local.memory.octets(sink));
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Builds FPDUs into segments, packed at times, and puts them on the wire.
    fn build(&mut self, from: usize) {
        let side = &mut self.sides[from];
        let mut segment = vec![0; side.emss];
        let mut used = 0;
        loop {
            let built = side.stream.build(&mut segment[used..], side.emss, &side.memory);
            used += built;
            if built == 0 || self.random.chance(3) {
                break;
            }
        }
        side.wire.extend(&segment[..used]);
    }

    /// Hands over some octets, in segments as they happen to be cut.
    fn deliver(&mut self, from: usize) {
        let len = match self.random.below(4) {
            0 => 1 + self.random.below(8),
            1 => 1 + self.random.below(200),
            _ => 1 + self.random.below(4000),
        };
        let [first, second] = &mut self.sides;
        let (source, sink) = if from == 0 { (first, second) } else { (second, first) };
        let segment: Vec<u8> = source.wire.drain(..len.min(source.wire.len())).collect();
        sink.stream.receive(segment, &mut sink.memory);
    }

    fn take_completions(&mut self, of: usize) {
        let side = &mut self.sides[of];
        while let Some(completion) = side.stream.next_completion() {
            if matches!(completion.operation, CompletedOperation::Receive { .. }) {
                assert_eq!(Some(completion), side.receives.pop_front());
                continue;
            }
            loop {
                let expected = side.sends.pop_front().expect("a completion has a request");
                if !expected.signaled {
                    continue;
                }
                let Expected { id, operation, len, .. } = expected;
                assert_eq!(completion, Completion { id, operation, status: Status::Success, len });
                break;
            }
        }
    }

    fn step(&mut self) {
        let side = self.random.below(2);
        match self.random.below(7) {
            0 | 1 => self.post(side),
            2 | 3 => self.build(side),
            4 | 5 => self.deliver(side),
            _ => self.take_completions(side),
        }
    }

    /// Lets everything be sent and arrive that can, but for posts.
    fn settle(&mut self) {
        loop {
            for side in [0, 1] {
                while self.sides[side].stream.has_output() {
                    self.build(side);
                }
                while !self.sides[side].wire.is_empty() {
                    self.deliver(side);
                }
            }
            if self.sides.iter().all(|side| side.wire.is_empty() && !side.stream.has_output()) {
                return;
            }
        }
    }

    fn compare_memory(&self) {
        for side in &self.sides {
            for (stag, octets) in &side.model {
                assert!(side.memory.octets(*stag) == octets[..], "{stag:?} differs");
            }
        }
    }
}

/// Posts a receive that fits a message, and says where it will be.
fn post_receive_for(side: &mut Side, len: usize, random: &mut Random) -> Option<(u64, Vec<Sge>)> {
    if side.stream.receive_room() == 0 {
        return None;
    }
    let id = side.id();
    let capacity = len + random.below(20);
    let elements = side.scattered(capacity, &[Operation::LocalWrite], random);
    side.stream.post_receive(ReceiveRequest { id, sg_list: list(&elements) }).unwrap();
    Some((id, elements))
}

/// Each test runs its own seeds.
fn for_each_seed(first: u64, count: u64, run: impl Fn(u64)) {
    for seed in first..first + count {
        eprintln!("seed {seed}");
        run(seed);
    }
}

// proves 5041-3-1, 5041-5.2-3, 5041-5.2-4, 5041-5.3-1, 5041-8.3.1-1
#[test]
fn random_work_arrives_and_completes_in_order() {
    for_each_seed(0, 300, |seed| {
        let mut pair = Pair::new(seed);
        // The Initiator speaks first.
        pair.post(0);
        for _ in 0..400 {
            pair.step();
        }
        pair.settle();
        for side in 0..2 {
            pair.take_completions(side);
            // A Responder may still wait for its first FPDU, if all its peer posted was refused.
            let stream = &pair.sides[side].stream;
            assert_eq!(stream.error(), None);
            assert_eq!(stream.state(), StreamState::Operating);
        }
        if pair.sides[1].sends.iter().any(|it| it.signaled) && pair.sides[0].next_id < 3 {
            return;
        }
        for side in &mut pair.sides {
            assert!(side.sends.iter().all(|it| !it.signaled), "all completed");
            assert!(side.receives.is_empty());
            assert_eq!(side.stream.pending_octets(), 0);
            side.stream.close();
            assert!(side.stream.is_drained());
        }
        pair.compare_memory();
    });
}

/// What goes wrong in the middle of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disturbance {
    LlpLost,
    Aborted,
    MemoryWithdrawn,
    Corruption,
    SendWithoutReceive,
}

fn disturb(pair: &mut Pair) -> Disturbance {
    let Pair { sides, random } = pair;
    let side = &mut sides[random.below(2)];
    match random.below(5) {
        0 => {
            side.stream.fail();
            Disturbance::LlpLost
        }
        1 => {
            side.stream.terminate(LocalError::Aborted.into());
            Disturbance::Aborted
        }
        2 => {
            side.memory.regions.retain(|_, _| !random.chance(2));
            Disturbance::MemoryWithdrawn
        }
        3 => {
            let len = side.wire.len();
            if len > 0 {
                side.wire[random.below(len)] ^= 1 << random.below(8);
            }
            Disturbance::Corruption
        }
        _ => {
            // It takes the receive of another, or finds none.
            let operation = SendOperation::Send { invalidate: None, solicited: false };
            let sg_list = list(&[]);
            let request = SendRequest { id: UNEXPECTED, operation, sg_list, signaled: false, fence: false };
            let _ = side.stream.post_send(request);
            Disturbance::SendWithoutReceive
        }
    }
}

/// The id of a request that no model knows.
const UNEXPECTED: u64 = 0;

/// The ids of one queue's completions.
fn ids(completions: &[Completion], receives: bool) -> Vec<u64> {
    let of_queue = completions
        .iter()
        .filter(|it| matches!(it.operation, CompletedOperation::Receive { .. }) == receives);
    of_queue.map(|it| it.id).filter(|id| *id != UNEXPECTED).collect()
}

#[test]
fn every_request_completes_once_and_in_order_however_streams_end() {
    for_each_seed(10_000, 600, |seed| {
        let mut pair = Pair::new(seed);
        let mut completed = [vec![], vec![]];
        let mut take = |pair: &mut Pair| {
            for (side, completed) in pair.sides.iter_mut().zip(&mut completed) {
                completed.extend(core::iter::from_fn(|| side.stream.next_completion()));
            }
        };
        let mut disturbance = None;
        let steps = pair.random.below(300);
        pair.post(0);
        for step in 0..2 * steps {
            if step == steps {
                disturbance = Some(disturb(&mut pair));
            }
            let side = pair.random.below(2);
            match pair.random.below(7) {
                0 | 1 => pair.post(side),
                2 | 3 => pair.build(side),
                4 | 5 => pair.deliver(side),
                _ => take(&mut pair),
            }
        }
        // What is under way arrives, then the connection ends.
        pair.settle();
        take(&mut pair);
        for side in &mut pair.sides {
            side.stream.llp_closed();
        }
        take(&mut pair);

        for (side, completed) in pair.sides.iter().zip(&completed) {
            let receives: Vec<u64> = side.receives.iter().map(|it| it.id).collect();
            assert_eq!(ids(completed, true), receives);
            // An unsignaled request is reported only if it failed.
            let mut sends = ids(completed, false).into_iter().peekable();
            for expected in &side.sends {
                if sends.next_if_eq(&expected.id).is_none() {
                    assert!(!expected.signaled, "request {} never completed", expected.id);
                }
            }
            assert_eq!(sends.next(), None);
        }
        let misplaced = matches!(
            disturbance,
            // Without CRCs a changed octet may be believed; a Send too many shifts the others.
            Some(Disturbance::Corruption | Disturbance::SendWithoutReceive)
        );
        if !misplaced {
            pair.sides.iter().for_each(assert_old_or_new);
        }
    });
}

/// Each octet is what it was or what was sent to it.
fn assert_old_or_new(side: &Side) {
    for (stag, region) in &side.memory.regions {
        let Some(model) = side.model.get(stag) else { continue };
        let both = model.iter().zip(&side.original[stag]);
        for (at, (octet, (new, old))) in region.octets.borrow().iter().zip(both).enumerate() {
            assert!(octet == new || octet == old, "octet {at} of {stag:?} came from elsewhere");
        }
    }
}
