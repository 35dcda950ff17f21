//! Packet traces: one line a segment, on a virtual clock, read like the examples of the RFCs.
//!
//! ```text
//! 0.000 < S 0 win 8000 mss 1000          the peer sends, "win 60000" unless it says otherwise
//! 0.000 > SA 0 ack 1 mss 1460            the stack sends exactly this, and nothing before it
//! 0.010 < A 1 ack 1
//! 0.010 < PA 1+100 ack 1                 sequence number 1, 100 octets of data
//! 0.011 > A 1 ack 101                    within a millisecond of the time it says
//! 0.011 = ESTABLISHED                    the state of the connection
//! ```
//!
//! Numbers count from each side's initial one. Options are `mss N`, `ws N`, `sackok`,
//! `ts VALUE:ECHO` and `sack START-END`; those of the stack's SYNs must all be named, on its other
//! segments timestamps may be left out. `*` as a time stamp is any one that the stack sends, and
//! the last one that it sent when the peer echoes it. What the stack sends and no line says fails
//! the test, as does what a line says and the stack does not send. Between two runs the test may
//! do something itself; the clock goes on from the first.

use core::time::Duration;
use std::collections::VecDeque;

use super::bench::{Bench, OURS, PORT, Seg, seg};
use tcpstack::config::StackConfig;
use tcpstack::stack::ConnectionId;
use tcpstack::time::Instant;

/// How far a segment may be from the time that a line says.
const TOLERANCE: Duration = Duration::from_millis(1);

/// The flags that a line may say.
const FLAGS: [&str; 9] = ["S", "SA", "A", "PA", "FA", "R", "RA", "-", "F"];

/// A stack and the peer that a script plays.
pub struct Trace {
    pub bench: Bench,
    start: Instant,
    /// Sent by the stack and not yet named by a line.
    sent: VecDeque<(Instant, Seg)>,
    /// The last TSval of the stack.
    clock: u32,
}

#[derive(Debug, Default)]
struct Pattern {
    flags: &'static str,
    seq: u32,
    len: usize,
    ack: u32,
    window: Option<u16>,
    mss: Option<u16>,
    scale: Option<u8>,
    sack_permitted: bool,
    timestamps: Option<(Option<u32>, Option<u32>)>,
    sack: Vec<(u32, u32)>,
}

impl Trace {
    /// A stack without listeners or connections.
    pub fn new(config: StackConfig) -> Self {
        let bench = Bench::new(config);
        Self { start: bench.now, bench, sent: VecDeque::new(), clock: 0 }
    }

    /// A stack that listens, with a backlog of four.
    pub fn listening(config: StackConfig) -> Self {
        let mut trace = Self::new(config);
        trace.bench.stack.listen((OURS, PORT).into(), 4).unwrap();
        trace
    }

    /// Plays a script.
    pub fn run(&mut self, script: &str) {
        for line in script.lines().map(|line| line.split('#').next().unwrap().trim()) {
            if !line.is_empty() {
                self.play(line);
            }
        }
        self.sent.extend(self.bench.turn().into_iter().map(|segment| (self.bench.now, segment)));
        assert!(self.sent.is_empty(), "after the last line the stack sends {:?}", self.sent);
    }

    /// The connection that was accepted last, from now on the one whose state is looked at.
    pub fn accepted(&mut self) -> ConnectionId {
        let (id, _) = self.bench.stack.next_event().expect("a connection");
        self.bench.id = Some(id);
        id
    }

    fn play(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let time: f64 = words.next().unwrap().parse().unwrap_or_else(|_| panic!("no time: {line}"));
        let at = self.start + Duration::from_secs_f64(time);
        let kind = words.next().unwrap_or_else(|| panic!("no direction: {line}"));
        self.pass_until(at);
        match kind {
            "<" => {
                self.assert_silent(line);
                self.receive(&Pattern::parse(words, line));
            }
            ">" => self.expect(&Pattern::parse(words, line), at, line),
            "=" => {
                let id = self.bench.id.or_else(|| self.bench.stack.next_event().map(|(id, _)| id));
                self.bench.id = id;
                let state = self.bench.stack.info(id.expect("a connection")).map(|info| info.state.name());
                assert_eq!(state.unwrap_or("CLOSED"), words.next().unwrap(), "{line}");
            }
            _ => panic!("neither in nor out: {line}"),
        }
    }

    fn receive(&mut self, pattern: &Pattern) {
        if pattern.flags.contains('S') {
            let bench = &mut self.bench;
            (bench.mss, bench.scale, bench.sack_permitted) =
                (pattern.mss, pattern.scale, pattern.sack_permitted);
        }
        let mut segment = seg(pattern.flags, pattern.seq, pattern.ack).payload(pattern.len);
        segment.window = pattern.window.unwrap_or(60_000);
        segment.timestamps = pattern
            .timestamps
            .map(|(value, echo)| (value.expect("the peer's own clock"), echo.unwrap_or(self.clock)));
        segment.sack.clone_from(&pattern.sack);
        let sent = self.bench.recv(&segment);
        self.note(sent);
    }

    fn expect(&mut self, pattern: &Pattern, at: Instant, line: &str) {
        if self.sent.is_empty() {
            self.pass_until(at + TOLERANCE);
        }
        let (time, segment) = self.sent.pop_front().unwrap_or_else(|| panic!("nothing is sent: {line}"));
        let early = at.saturating_since(time);
        assert!(early <= TOLERANCE, "{early:?} too early: {line}\nsent: {segment:?}");
        pattern.compare(&segment, line);
    }

    /// Lets time pass, but never back.
    fn pass_until(&mut self, at: Instant) {
        let span = at.saturating_since(self.bench.now);
        if span > Duration::ZERO {
            let sent = self.bench.pass_timed(span);
            for (_, segment) in &sent {
                self.clock = segment.timestamps.map_or(self.clock, |(value, _)| value);
            }
            self.sent.extend(sent);
        }
    }

    fn note(&mut self, sent: Vec<Seg>) {
        for segment in sent {
            self.clock = segment.timestamps.map_or(self.clock, |(value, _)| value);
            self.sent.push_back((self.bench.now, segment));
        }
    }

    fn assert_silent(&self, line: &str) {
        assert!(self.sent.is_empty(), "before this line the stack sends {:?}: {line}", self.sent);
    }
}

impl Pattern {
    fn parse<'a>(mut words: impl Iterator<Item = &'a str>, line: &str) -> Self {
        let mut pattern = Self::default();
        let flags = words.next().unwrap_or_else(|| panic!("no flags: {line}"));
        let known = FLAGS.iter().find(|known| **known == flags);
        pattern.flags = known.unwrap_or_else(|| panic!("unknown flags: {line}"));
        let numbers = words.next().unwrap_or_else(|| panic!("no sequence number: {line}"));
        let (seq, len) = numbers.split_once('+').unwrap_or((numbers, "0"));
        pattern.seq = number(seq, line);
        pattern.len = number(len, line);
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} of what: {line}"));
            match word {
                "ack" => pattern.ack = number(value(), line),
                "win" => pattern.window = Some(number(value(), line)),
                "mss" => pattern.mss = Some(number(value(), line)),
                "ws" => pattern.scale = Some(number(value(), line)),
                "sackok" => pattern.sack_permitted = true,
                "ts" => {
                    let (value, echo) = value().split_once(':').unwrap_or_else(|| panic!("no echo: {line}"));
                    let any = |text| (text != "*").then(|| number(text, line));
                    pattern.timestamps = Some((any(value), any(echo)));
                }
                "sack" => {
                    let (start, end) = value().split_once('-').unwrap_or_else(|| panic!("no end: {line}"));
                    pattern.sack.push((number(start, line), number(end, line)));
                }
                _ => panic!("unknown word {word}: {line}"),
            }
        }
        pattern
    }

    fn compare(&self, sent: &Seg, line: &str) {
        let ours = (self.flags, self.seq, self.len, self.ack, &self.sack);
        let theirs = (sent.flags, sent.seq, sent.payload.len(), sent.ack, &sent.sack);
        assert_eq!(theirs, ours, "sent and said differ: {line}");
        if let Some(window) = self.window {
            assert_eq!(sent.window, window, "window: {line}");
        }
        let syn = self.flags.contains('S');
        if syn {
            let ours = (self.mss, self.scale, self.sack_permitted, self.timestamps.is_some());
            let theirs = (sent.mss, sent.scale, sent.sack_permitted, sent.timestamps.is_some());
            assert_eq!(theirs, ours, "options: {line}");
        }
        if let Some((value, echo)) = self.timestamps {
            let (sent_value, sent_echo) = sent.timestamps.unwrap_or_else(|| panic!("no timestamps: {line}"));
            assert_eq!(sent_value, value.unwrap_or(sent_value), "TSval: {line}");
            assert_eq!(sent_echo, echo.unwrap_or(sent_echo), "TSecr: {line}");
        }
    }
}

fn number<T: core::str::FromStr>(text: &str, line: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number that fits: {line}"))
}
