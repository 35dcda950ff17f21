//! What a segment costs with 1 to 100,000 connections on one core: `cargo bench -p tcpstack --bench connections`.
//!
//! One stack; the peers are forged frames, made outside of the timing. MTU 1500, timestamps, checksums
//! in software, bursts of 32 frames, each followed by one `transmit`, as a worker's turn has them.
//!
//! - `receive`: a full segment in order; the application is handed it; every second one is acknowledged.
//! - `send`: a full segment that the application copies from a buffer of its own.
//! - `acknowledge`: an ACK of one segment, which frees it.
//! - `exchange`: a segment in, a segment of the same length out, each acknowledging the one before.
//!
//! Round robin takes the connections one after the other, so each is as cold as can be; skewed, nine
//! of ten segments belong to one connection in a hundred. The ratios at the end are of minima over
//! alternating runs of `exchange`.

#![allow(missing_docs, clippy::print_stdout, reason = "a bench")]

mod ring;

use core::time::Duration;
use std::hint::black_box;
use std::time::Instant as Clock;

use criterion::{BenchmarkId, Criterion};
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use ring::{Pool, Ring, RingFrame};
use tcpstack::addr::IpCidr;
use tcpstack::checksum;
use tcpstack::config::StackConfig;
use tcpstack::device::{BURST_MAX, Burst, Device, Frame};
use tcpstack::stack::{ConnectionId, Events, Stack};
use tcpstack::time::Instant;

const OURS: [u8; 4] = [10, 0, 0, 1];
const PORT: u16 = 7;
const THEIR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FIRST_PORT: u16 = 1024;

/// Peers that have one address.
const PEERS_A_HOST: usize = 50_000;

/// Payload of a full segment, and Ethernet, IPv4 and TCP headers with timestamps in front of it.
const FULL: usize = 1448;
const HEADERS: usize = 14 + 20 + 32;

/// Frames made before each timed part: few enough to stay in the second-level cache.
const BATCH: usize = 2 * BURST_MAX;

/// A tick of timestamps, as the stack has it.
const TICK_SHIFT: u32 = 20;

const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// What a peer knows of its connection.
#[derive(Clone, Copy)]
struct Peer {
    id: ConnectionId,
    seq: u32,
    ack: u32,
    /// Their timestamps' offset from the clock.
    offset: u32,
}

/// In which order the connections have their turns.
enum Order {
    RoundRobin(usize),
    Skewed(Box<ChaCha8Rng>),
}

impl Order {
    fn skewed() -> Self {
        Self::Skewed(Box::new(ChaCha8Rng::seed_from_u64(1)))
    }

    fn next(&mut self, count: usize) -> usize {
        match self {
            Self::RoundRobin(at) => {
                *at = if *at + 1 < count { *at + 1 } else { 0 };
                *at
            }
            Self::Skewed(rng) => {
                let often = rng.next_u32() % 10 < 9;
                let among = if often { count.div_ceil(100) } else { count };
                // Spread over the tables.
                usize::try_from(rng.next_u32()).unwrap() % among * (count / among) % count
            }
        }
    }
}

struct Host {
    stack: Stack<Ring>,
    device: Ring,
    /// The other end of the wire.
    wire: Ring,
    peers: Vec<Peer>,
    /// Frames of the peers.
    pool: Pool,
    now: Instant,
    payload: Vec<u8>,
}

impl Host {
    fn new(connections: usize) -> Self {
        let [device, wire] = Ring::pair(2048);
        let config = StackConfig {
            // Bursts of one connection, too.
            initial_window: 128,
            restart_after_idle: false,
            ..StackConfig::default()
        };
        let mut stack = Stack::new(config, device.capabilities(), [1; 32]);
        stack.interface_mut().add_address(IpCidr::new(OURS.into(), 8).unwrap()).unwrap();
        stack.listen((OURS, PORT).into(), 1024).unwrap();
        let payload = (0..=u8::MAX).cycle().take(FULL).collect();
        let (peers, pool, now) = (Vec::new(), Pool::new(2048), Instant::ZERO);
        let mut host = Self { stack, device, wire, peers, pool, now, payload };
        while host.now < Instant::ZERO + Duration::from_secs(3) {
            host.now += Duration::from_millis(10);
            host.transmit();
            host.sent(|_| ());
        }
        for index in 0..connections {
            host.open(index);
        }
        host
    }

    /// A passive open; the stack asks for the peer's MAC address first where it does not know it.
    fn open(&mut self, index: usize) {
        let id = ConnectionId { index: u32::MAX, generation: 0 };
        self.peers.push(Peer { id, seq: 0, ack: 0, offset: 0 });
        let frame = self.segment(index, SYN, 0);
        self.stack.receive(frame, &mut self.device, self.now);
        let mut answer = None;
        for _ in 0..3 {
            self.transmit();
            let mut question = None;
            self.sent(|octets| match octets[12..14] {
                [0x08, 0x06] => question = Some(octets[..42].to_vec()),
                _ => answer = Some((word(octets, 38), octets.to_vec())),
            });
            if let Some(question) = question {
                self.answer_arp(&question);
            }
        }
        let (iss, octets) = answer.expect("a SYN,ACK");
        let at = octets.windows(2).position(|pair| pair == [8, 10]).expect("a timestamp") + 2;
        let offset = word(&octets, at).wrapping_sub(self.ticks());
        let peer = &mut self.peers[index];
        (peer.seq, peer.ack, peer.offset) = (1, iss.wrapping_add(1), offset);
        let frame = self.segment(index, ACK, 0);
        self.stack.receive(frame, &mut self.device, self.now);
        self.transmit();
        self.sent(|_| ());
        let (id, events) = self.stack.next_event().expect("an event");
        assert!(events.contains(Events::ACCEPTED));
        self.peers[index].id = id;
    }

    fn answer_arp(&mut self, question: &[u8]) {
        let mut frame = self.pool.allocate().unwrap();
        frame.push_back(60);
        let octets = frame.bytes_mut();
        octets.fill(0);
        octets[..6].copy_from_slice(&question[6..12]);
        octets[6..12].copy_from_slice(&THEIR_MAC);
        octets[12..22].copy_from_slice(&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2]);
        octets[22..28].copy_from_slice(&THEIR_MAC);
        octets[28..32].copy_from_slice(&question[38..42]);
        octets[32..42].copy_from_slice(&question[22..32]);
        self.stack.receive(frame, &mut self.device, self.now);
    }

    fn ticks(&self) -> u32 {
        u32::try_from(self.now.as_nanos() >> TICK_SHIFT & 0xffff_ffff).unwrap()
    }

    /// A segment of a peer with `len` octets of payload; its numbers go on.
    fn segment(&mut self, index: usize, flags: u8, len: usize) -> RingFrame {
        let peer = self.peers[index];
        let syn = flags & SYN != 0;
        let headers = if syn { HEADERS + 8 } else { HEADERS };
        let host = u8::try_from(index / PEERS_A_HOST).unwrap() + 2;
        let port = FIRST_PORT + u16::try_from(index % PEERS_A_HOST).unwrap();
        let (source, total) = ([10, 0, 0, host], headers - 14 + len);
        let mut frame = self.pool.allocate().expect("the stack gave the frames back");
        frame.push_back(headers + len);
        let octets = frame.bytes_mut();
        octets[..6].copy_from_slice(&self.device.capabilities().mac);
        octets[6..12].copy_from_slice(&THEIR_MAC);
        octets[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6]);
        octets[16..18].copy_from_slice(&u16::try_from(total).unwrap().to_be_bytes());
        octets[24..26].fill(0);
        octets[26..30].copy_from_slice(&source);
        octets[30..34].copy_from_slice(&OURS);
        let header_sum = checksum::finish(checksum::sum(&octets[14..34]));
        octets[24..26].copy_from_slice(&header_sum.to_be_bytes());
        octets[34..36].copy_from_slice(&port.to_be_bytes());
        octets[36..38].copy_from_slice(&PORT.to_be_bytes());
        octets[38..42].copy_from_slice(&peer.seq.to_be_bytes());
        octets[42..46].copy_from_slice(&peer.ack.to_be_bytes());
        octets[46] = u8::try_from(((headers - 34) / 4) << 4).unwrap();
        octets[47] = flags;
        octets[48..54].copy_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
        octets[54..58].copy_from_slice(&[1, 1, 8, 10]);
        octets[58..62].copy_from_slice(&self.ticks().to_be_bytes());
        let echo = if syn { 0 } else { self.ticks().wrapping_add(peer.offset) };
        octets[62..66].copy_from_slice(&echo.to_be_bytes());
        if syn {
            // MSS 1460, window scale 7, and an end of the list.
            octets[66..74].copy_from_slice(&[2, 4, 0x05, 0xb4, 3, 3, 7, 0]);
        }
        octets[headers..].copy_from_slice(&self.payload[..len]);
        let pseudo = checksum::of_pseudo_header(source.into(), OURS.into(), 6, total - 20);
        let sum = checksum::finish(pseudo + checksum::sum(&octets[34..]));
        octets[50..52].copy_from_slice(&sum.to_be_bytes());
        self.peers[index].seq = peer.seq.wrapping_add(u32::try_from(len).unwrap());
        frame
    }

    fn transmit(&mut self) {
        self.now += Duration::from_nanos(100);
        self.stack.transmit(&mut self.device, self.now);
    }

    /// Takes what is on the wire.
    fn sent(&mut self, mut look: impl FnMut(&[u8])) -> usize {
        let (mut burst, mut count) = (Burst::new(), 0);
        loop {
            self.wire.receive_burst(&mut burst);
            if burst.is_empty() {
                return count;
            }
            count += burst.len();
            burst.drain(..).for_each(|frame| look(frame.bytes()));
        }
    }

    /// Sends a record of the application.
    fn send(&mut self, id: ConnectionId, len: usize) {
        let mut frame = self.device.allocate().expect("a frame");
        frame.push_back(len);
        frame.bytes_mut().copy_from_slice(&self.payload[..len]);
        assert!(self.stack.send(id, frame, true).is_ok(), "there is room");
    }

    /// Receives bursts, hands the payload out, answers it if asked to; the time that this took.
    #[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
    fn take(&mut self, frames: &mut Vec<RingFrame>, answer: Option<usize>) -> Duration {
        let began = Clock::now();
        for _ in 0..frames.len() / BURST_MAX {
            for frame in frames.drain(..BURST_MAX) {
                self.stack.receive(frame, &mut self.device, self.now);
            }
            while let Some((id, events)) = self.stack.next_event() {
                if !events.contains(Events::READABLE) {
                    continue;
                }
                let mut count = 0;
                self.stack.consume(id, |frame| {
                    black_box(frame.bytes());
                    count += 1;
                });
                if let Some(len) = answer {
                    (0..count).for_each(|_| self.send(id, len));
                }
            }
            self.transmit();
            self.sent(|_| ());
        }
        began.elapsed()
    }
}

fn receive(host: &mut Host, order: &mut Order) -> Duration {
    let mut frames = Vec::with_capacity(BATCH);
    for _ in 0..BATCH {
        let index = order.next(host.peers.len());
        frames.push(host.segment(index, ACK, FULL));
    }
    host.take(&mut frames, None)
}

/// Times of sending and of being acknowledged.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn send_and_acknowledge(host: &mut Host, order: &mut Order) -> [Duration; 2] {
    let mut times = [Duration::ZERO; 2];
    let mut frames = Vec::with_capacity(BURST_MAX);
    for _ in 0..BATCH / BURST_MAX {
        let chosen: [usize; BURST_MAX] = core::array::from_fn(|_| order.next(host.peers.len()));
        let began = Clock::now();
        for index in chosen {
            host.send(host.peers[index].id, FULL);
        }
        host.transmit();
        let sent = host.sent(|_| ());
        times[0] += began.elapsed();
        assert!(sent >= BURST_MAX, "the windows are open: {sent}");
        for index in chosen {
            host.peers[index].ack = host.peers[index].ack.wrapping_add(u32::try_from(FULL).unwrap());
            frames.push(host.segment(index, ACK, 0));
        }
        times[1] += host.take(&mut frames, None);
    }
    times
}

fn exchange(host: &mut Host, order: &mut Order, len: usize) -> Duration {
    let mut frames = Vec::with_capacity(BATCH);
    let chosen: [usize; BATCH] = core::array::from_fn(|_| order.next(host.peers.len()));
    for index in chosen {
        frames.push(host.segment(index, ACK | PSH, len));
    }
    let time = host.take(&mut frames, Some(len));
    for index in chosen {
        host.peers[index].ack = host.peers[index].ack.wrapping_add(u32::try_from(len).unwrap());
    }
    time
}

/// A big-endian word.
fn word(octets: &[u8], at: usize) -> u32 {
    octets[at..at + 4].iter().fold(0, |word, &octet| word << 8 | u32::from(octet))
}

/// The time of so many segments, by the batch.
fn repeat(segments: u64, mut batch: impl FnMut() -> Duration) -> Duration {
    let batches = segments.div_ceil(u64::try_from(BATCH).unwrap());
    let time: Duration = (0..batches).map(|_| batch()).sum();
    let taken = batches * u64::try_from(BATCH).unwrap();
    Duration::from_nanos(u64::try_from(time.as_nanos() * u128::from(segments) / u128::from(taken)).unwrap())
}

fn group(criterion: &mut Criterion, connections: usize) {
    let mut group = criterion.benchmark_group("connections");
    group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(2));
    let mut host = Host::new(connections);
    let mut order = Order::RoundRobin(0);
    group.bench_function(BenchmarkId::new("receive", connections), |bencher| {
        bencher.iter_custom(|segments| repeat(segments, || receive(&mut host, &mut order)));
    });
    for (part, name) in ["send", "acknowledge"].into_iter().enumerate() {
        group.bench_function(BenchmarkId::new(name, connections), |bencher| {
            bencher.iter_custom(|segments| {
                repeat(segments, || send_and_acknowledge(&mut host, &mut order)[part])
            });
        });
    }
    group.finish();
}

/// Ratios to a hundred connections: alternating runs, minima.
fn ratios() {
    const ROUNDS: usize = 5;
    const BATCHES: usize = 4000;
    let mut hosts = [100, 100_000].map(Host::new);
    for len in [FULL, 64] {
        let mut orders = [Order::RoundRobin(0), Order::RoundRobin(0), Order::skewed()];
        let mut best = [Duration::MAX; 3];
        for _ in 0..ROUNDS {
            for (case, best) in best.iter_mut().enumerate() {
                let (host, order) = (&mut hosts[case.min(1)], &mut orders[case]);
                let took: Duration = (0..BATCHES).map(|_| exchange(host, order, len)).sum();
                *best = took.min(*best);
            }
        }
        let nanos = best.map(|took| took.as_secs_f64() * 1e9 / 64.0 / 4000.0);
        println!(
            "exchange of {len} octets: 100 connections {:.0} ns; 100,000 round robin {:.0} ns, ratio {:.2}; \
             skewed {:.0} ns, ratio {:.2}",
            nanos[0],
            nanos[1],
            nanos[1] / nanos[0],
            nanos[2],
            nanos[2] / nanos[0],
        );
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for connections in [1, 1000, 100_000] {
        group(&mut criterion, connections);
    }
    criterion.final_summary();
    ratios();
}
