//! One connection and a peer that sends what it likes: input chooses settings, then segments, calls of the
//! application, and time.
//!
//! The octets of each segment follow from their sequence numbers, on both sides. So, whatever comes:
//! what is delivered is a prefix of the peer's stream, what is acknowledged has come, what is sent is
//! in the windows that were offered, and repetitions carry what they did. In the end the peer becomes
//! honest, and all that waits must get through.

use core::time::Duration;

use arbitrary::{Result, Unstructured};
use tcpstack::config::{Keepalive, StackConfig};
use tcpstack::device::{Device, Frame};
use tcpstack::stack::{ConnectionId, SendError};
use tcpstack::tcp::state::State;

use crate::common::bench::{Bench, MS, OURS, PORT, Seg, seg};
use crate::common::hostile::{PEER, SITUATIONS, Shot, assert_ends, config, fire, situation};
use crate::common::stream::octet;

/// Steps that an input may ask for.
const STEPS_MAX: usize = 150;

/// The side of [`octet`] that the stack's stream is of.
const STACK: u8 = 0;

/// The window of honest segments.
const WINDOW: u16 = 60_000;

pub(super) fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    // An input that ends early has said enough.
    let Ok(kind) = u.int_in_range(0..=2 * SITUATIONS) else { return };
    if kind < SITUATIONS {
        any_segments(situation(kind, config(kind.is_multiple_of(2))), &mut u);
    } else if let Ok(mut model) = Model::begin(&mut u) {
        for _ in 0..STEPS_MAX {
            if u.is_empty() || model.step(&mut u).is_err() {
                break;
            }
        }
        model.finish();
    }
}

/// In any situation, without a model: nothing panics, and all ends.
fn any_segments(mut bench: Bench, u: &mut Unstructured<'_>) {
    for _ in 0..STEPS_MAX {
        let (Ok(mut shot), false) = (shot(u, [0, 0], false), u.is_empty()) else { break };
        if u.ratio(1, 16).unwrap_or(false) {
            shot.header_words = u.int_in_range(0..=15).ok();
        }
        fire(&mut bench, &shot);
        bench.quiet_pass(u.int_in_range(0..=9).unwrap_or(0) * MS);
        if let Some(id) = bench.id {
            bench.stack.consume(id, |frame| assert!(!frame.bytes().is_empty()));
        }
        while bench.stack.next_event().is_some() {}
    }
    assert_ends(&mut bench);
}

/// A segment; its numbers are near `seq` and `ack`, or anywhere.
fn shot(u: &mut Unstructured<'_>, [seq, ack]: [u32; 2], timestamps: bool) -> Result<Shot> {
    let flags = match u.int_in_range(0..=7_u8)? {
        0..4 => 0x10,
        4 => 0x18,
        5 => 0x11,
        _ => u.arbitrary()?,
    };
    let options = match u.int_in_range(0..=15_u8)? {
        0 => {
            let len = u.int_in_range(0..=40)?.min(u.len());
            u.bytes(len)?.to_vec()
        }
        1 => sack(u, ack)?,
        _ if timestamps => {
            let value = 1000 + u32::from(u.arbitrary::<u8>()?);
            [&[1, 1, 8, 10][..], &value.to_be_bytes(), &[0; 4]].concat()
        }
        _ => Vec::new(),
    };
    Ok(Shot {
        flags,
        seq: near(u, seq)?,
        ack: near(u, ack)?,
        window: if u.arbitrary()? { WINDOW } else { u.arbitrary()? },
        options,
        payload: if u.arbitrary()? { 0 } else { u.int_in_range(1..=1400)? },
        header_words: None,
    })
}

/// Two blocks near `ack`.
fn sack(u: &mut Unstructured<'_>, ack: u32) -> Result<Vec<u8>> {
    let mut octets = vec![1, 1, 5, 18];
    for _ in 0..4 {
        let number = near(u, ack)?;
        octets.extend_from_slice(&number.to_be_bytes());
    }
    Ok(octets)
}

fn near(u: &mut Unstructured<'_>, number: u32) -> Result<u32> {
    Ok(match u.int_in_range(0..=7_u8)? {
        0..4 => number,
        4 => number.wrapping_add(u.int_in_range(0..=3000)?),
        5 => number.wrapping_sub(u.int_in_range(0..=3000)?),
        6 => number.wrapping_add(u.int_in_range(0..=20_001)?),
        _ => u.arbitrary()?,
    })
}

/// What is known of the connection; offsets count octets of a stream.
struct Model {
    bench: Bench,
    id: ConnectionId,
    timestamps: bool,
    /// The shift of the peer's windows.
    scale: u8,
    /// What has come of the peer's stream, its FIN as one more octet.
    arrived: Intervals,
    delivered: u64,
    unreleased: usize,
    /// What the stack acknowledged last, as an offset.
    acknowledged: u32,
    /// The timestamp that it echoed last.
    echo: u32,
    /// What the application has given to the stack, and what of it was sent, the FIN included.
    queued: u64,
    sent: u64,
    /// The furthest octet that a window allowed.
    edge: u64,
    closed: bool,
    ended: bool,
}

impl Model {
    fn begin(u: &mut Unstructured<'_>) -> Result<Self> {
        let flags = u.arbitrary::<u8>()?;
        let has = |bit: u8| flags & 1 << bit != 0;
        let config = StackConfig {
            timestamps: has(0),
            sack: has(1),
            rack: has(2),
            pacing: has(3),
            receive_window: if has(4) { 20_000 } else { 1500 },
            delayed_ack: if has(5) { MS } else { Duration::ZERO },
            rto_max: 2000 * MS,
            ..config(false)
        };
        let mut bench = Bench::new(config);
        let scale = if has(6) { 2 } else { 0 };
        (bench.scale, bench.sack_permitted) = (has(6).then_some(scale), true);
        let stamped = |segment: Seg| if has(0) { segment.timestamps(1000, 0) } else { segment };
        let listener = bench.stack.listen((OURS, PORT).into(), 4).expect("the first listener");
        bench.recv(&stamped(seg("S", 0, 0)));
        bench.pass(MS);
        bench.recv(&stamped(seg("A", 1, 1)));
        let (id, _) = bench.stack.next_event().expect("a connection");
        bench.stack.unlisten(listener);
        Ok(Self {
            bench,
            id,
            timestamps: has(0),
            scale,
            arrived: Intervals::default(),
            delivered: 0,
            unreleased: 0,
            acknowledged: 0,
            echo: 1000,
            queued: 0,
            sent: 0,
            edge: u64::from(WINDOW) << scale,
            closed: false,
            ended: false,
        })
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=15_u8)? {
            0..8 => {
                let ack = u32::try_from(self.sent).unwrap() + 1;
                let shot = shot(u, [self.acknowledged + 1, ack], self.timestamps)?;
                self.peer_sends(&shot);
            }
            8..10 => self.pass(u.int_in_range(0..=9)? * MS),
            10 => self.pass(u.int_in_range(0..=3000)? * MS),
            11..13 => self.send(u.int_in_range(1..=1460)?),
            13 => self.read(u.arbitrary()?),
            14 => self.release(u.arbitrary()?),
            _ => self.call(u)?,
        }
        Ok(())
    }

    /// What is rare.
    fn call(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=7_u8)? {
            0..3 => {
                self.bench.stack.close(self.id);
                self.closed = true;
            }
            3 => {
                self.bench.stack.abort(self.id, self.bench.now);
                self.ended = true;
            }
            4 => {
                self.bench.stack.detach(self.id, self.bench.now);
                (self.closed, self.ended) = (true, true);
            }
            5 => {
                let keepalive = Keepalive { idle: 50 * MS, interval: 20 * MS, probes: 3 };
                self.bench.stack.set_keepalive(self.id, Some(keepalive), self.bench.now);
            }
            _ => {
                let mtu = u.arbitrary()?;
                let seq = u32::try_from(self.sent).unwrap();
                self.bench.inject_icmp(4, mtu, near(u, seq)?);
            }
        }
        self.turn();
        Ok(())
    }

    fn peer_sends(&mut self, shot: &Shot) {
        // What is before the stream's start is old.
        let start = i64::from(shot.seq.wrapping_sub(1).cast_signed());
        let len = shot.payload.min(1400 - shot.options.len().next_multiple_of(4));
        let end = start + i64::try_from(len).unwrap() + i64::from(shot.flags & 1);
        self.arrived.add(start.max(0).cast_unsigned(), end.max(0).cast_unsigned());
        let ack = u64::from(shot.ack.wrapping_sub(1));
        if shot.flags & 0x10 != 0 && ack <= self.sent {
            self.edge = self.edge.max(ack + (u64::from(shot.window) << self.scale));
        }
        fire(&mut self.bench, shot);
        self.turn();
    }

    fn send(&mut self, len: usize) {
        let mut frame = self.bench.device.allocate().expect("the pool is ample");
        frame.push_back(len);
        frame.bytes_mut().iter_mut().zip(self.queued..).for_each(|(place, at)| *place = octet(STACK, at));
        match self.bench.stack.send(self.id, frame, true) {
            Ok(()) => self.queued += u64::try_from(len).unwrap(),
            Err(SendError::Headroom(_)) => panic!("the frame has its headroom"),
            Err(_) => {}
        }
        self.turn();
    }

    /// The application takes what is there, and is done with it at once or later.
    fn read(&mut self, at_once: bool) {
        while let Some(frame) = self.bench.stack.receive_payload(self.id) {
            assert!(!frame.bytes().is_empty());
            for (&received, at) in frame.bytes().iter().zip(self.delivered..) {
                assert_eq!(received, octet(PEER, at), "at octet {at}");
            }
            self.delivered += u64::try_from(frame.bytes().len()).unwrap();
            self.unreleased += frame.bytes().len();
        }
        assert!(self.delivered <= self.arrived.prefix(), "what is delivered has come");
        if at_once {
            self.release(u8::MAX);
        }
    }

    fn release(&mut self, share: u8) {
        let len = self.unreleased * usize::from(share) / 255;
        self.bench.stack.release_window(self.id, len);
        self.unreleased -= len;
        self.turn();
    }

    fn turn(&mut self) {
        self.pass(Duration::ZERO);
    }

    fn pass(&mut self, span: Duration) {
        for segment in self.bench.pass(span) {
            self.check(&segment);
        }
        while self.bench.stack.next_event().is_some() {}
    }

    /// A segment that the stack sent.
    fn check(&mut self, segment: &Seg) {
        if segment.flags.contains('R') {
            return;
        }
        let start = u64::from(segment.seq.wrapping_sub(1));
        let end = start + u64::try_from(segment.payload.len()).unwrap();
        // A keep-alive or a probe is one octet before.
        if !segment.payload.is_empty() {
            assert!(end <= self.queued, "only what was given to it is sent");
            assert!(end <= self.edge, "octet {end} is beyond the window's edge {}", self.edge);
            for (&sent, at) in segment.payload.iter().zip(start..) {
                assert_eq!(sent, octet(STACK, at), "at octet {at}");
            }
        }
        let fin = segment.flags.contains('F');
        assert!(!fin || (self.closed && end == self.queued), "the FIN is last");
        if !segment.payload.is_empty() || fin {
            self.sent = self.sent.max(end + u64::from(fin));
        }
        self.acknowledged = segment.ack.wrapping_sub(1);
        let come = self.arrived.prefix();
        assert!(
            u64::from(self.acknowledged) <= come,
            "{} is acknowledged, {come} has come",
            self.acknowledged
        );
        for &(start, end) in &segment.sack {
            // What is before the stream's start may be told of as a duplicate.
            let [start, end] = [start, end].map(|at| at.wrapping_sub(1).cast_signed().max(0).into());
            assert!(self.arrived.has(start, end), "{start}..{end} is reported and has not come");
        }
        self.echo = segment.timestamps.map_or(self.echo, |(_, echo)| echo);
    }

    /// The peer acknowledges all there is, until all is sent; then everybody lets go.
    fn finish(mut self) {
        self.read(true);
        for _ in 0..200 {
            let info = self.bench.stack.info(self.id).filter(|_| !self.ended);
            if info.is_none_or(|info| matches!(info.state, State::Closed | State::TimeWait))
                || self.bench.stack.all_acknowledged(self.id)
            {
                return assert_ends(&mut self.bench);
            }
            let timestamps = [&[1, 1, 8, 10][..], &self.echo.to_be_bytes(), &[0; 4]].concat();
            let shot = Shot {
                flags: 0x10,
                seq: self.acknowledged + 1,
                ack: u32::try_from(self.sent).unwrap() + 1,
                window: WINDOW,
                options: if self.timestamps { timestamps } else { Vec::new() },
                payload: 0,
                header_words: None,
            };
            self.peer_sends(&shot);
            self.pass(2100 * MS);
            self.read(true);
        }
        panic!("an honest peer does not help: {:?}", self.bench.stack.info(self.id));
    }
}

/// Octets of a stream that have come, in order and apart.
#[derive(Debug, Default)]
struct Intervals(Vec<(u64, u64)>);

impl Intervals {
    fn add(&mut self, mut start: u64, mut end: u64) {
        if start == end {
            return;
        }
        self.0.retain(|&(other_start, other_end)| {
            let apart = other_end < start || end < other_start;
            if !apart {
                (start, end) = (start.min(other_start), end.max(other_end));
            }
            apart
        });
        let at = self.0.partition_point(|&(other, _)| other < start);
        self.0.insert(at, (start, end));
    }

    fn has(&self, start: i64, end: i64) -> bool {
        let (start, end) = (start.cast_unsigned(), end.cast_unsigned());
        start == end || self.0.iter().any(|&(from, to)| from <= start && end <= to)
    }

    /// Octets from the first on without a gap.
    fn prefix(&self) -> u64 {
        self.0.first().filter(|&&(start, _)| start == 0).map_or(0, |&(_, end)| end)
    }
}
