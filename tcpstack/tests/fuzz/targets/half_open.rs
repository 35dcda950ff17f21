//! A listener under attack: input chooses its defences, then SYNs, acknowledgments that are right or nearly so,
//! resets, and time. The tables stay within their limits, an answer is no longer than its question is
//! often, and no connection comes from less than a SYN and the acknowledgment of what answered it.

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use tcpstack::config::{SourceLimit, StackConfig, SynCookies};
use tcpstack::stack::Events;

use crate::common::bench::{Bench, MS, OURS, PORT, Seg};
use crate::common::hostile::{Shot, assert_ends, config, fire};

/// Steps that an input may ask for.
const STEPS_MAX: usize = 200;

const HALF_OPEN_MAX: usize = 4;
const BACKLOG: usize = 3;
const CONNECTIONS_MAX: usize = 6;

pub(super) fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let Ok(mut siege) = Siege::begin(&mut u) else { return };
    for _ in 0..STEPS_MAX {
        // An input that ends early has said enough.
        if u.is_empty() || siege.step(&mut u).is_err() {
            break;
        }
        siege.check();
    }
    assert_ends(&mut siege.bench);
}

/// Who asks: host and port.
type Remote = ([u8; 4], u16);

struct Siege {
    bench: Bench,
    /// The numbers of the SYN,ACKs that went out: the peer's initial one and ours.
    answers: BTreeMap<Remote, Vec<(u32, u32)>>,
    /// Who acknowledged one of them, so often that a connection can have come of it.
    acknowledged: BTreeMap<Remote, usize>,
    asked: usize,
}

impl Siege {
    fn begin(u: &mut Unstructured<'_>) -> Result<Self> {
        let syn_cookies = match u.int_in_range(0..=2_u8)? {
            0 => SynCookies::Off,
            1 => SynCookies::UnderPressure,
            _ => SynCookies::Always,
        };
        let limit = SourceLimit { per_second: 2, burst: 2, sources: 4 };
        let config = StackConfig {
            syn_cookies,
            source_limit: u.arbitrary::<bool>()?.then_some(limit),
            half_open_max: HALF_OPEN_MAX,
            connections_max: CONNECTIONS_MAX,
            time_wait_max: 2,
            syn_ack_retries: 2,
            ..config(u.arbitrary()?)
        };
        let mut bench = Bench::new(config);
        bench.stack.listen((OURS, PORT).into(), BACKLOG).expect("the first listener");
        Ok(Self { bench, answers: BTreeMap::new(), acknowledged: BTreeMap::new(), asked: 0 })
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let remote = ([192, 0, 2, u.int_in_range(2..=5)?], u.int_in_range(5000..=5003)?);
        self.bench.remote = remote;
        match u.int_in_range(0..=15_u8)? {
            0..6 => self.syn(u, remote)?,
            6..11 => self.acknowledge(u, remote)?,
            11 => {
                self.bench.iss = None;
                let shot = Shot { flags: u.arbitrary()?, ..self.plain(u.arbitrary()?, u.arbitrary()?) };
                self.ask(&shot, remote);
            }
            12 | 13 => self.take_events(u.arbitrary()?),
            14 => self.bench.quiet_pass(u.int_in_range(1..=50)? * MS),
            _ => self.bench.quiet_pass(u.int_in_range(1..=90_000)? * MS),
        }
        Ok(())
    }

    fn plain(&self, seq: u32, ack: u32) -> Shot {
        let options = Vec::new();
        Shot { flags: 0, seq, ack, window: 60_000, options, payload: 0, header_words: None }
    }

    fn syn(&mut self, u: &mut Unstructured<'_>, remote: Remote) -> Result<()> {
        self.bench.irs = if u.arbitrary()? { 7000 } else { u.arbitrary()? };
        self.bench.iss = None;
        let options = match u.int_in_range(0..=3_u8)? {
            0 => Vec::new(),
            1 => vec![2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 4, 2, 1, 1, 8, 10, 0, 0, 3, 0xe8, 0, 0, 0, 0],
            2 => vec![2, 4, 0, u.arbitrary()?],
            _ => {
                let len = u.int_in_range(0..=40)?.min(u.len());
                u.bytes(len)?.to_vec()
            }
        };
        // Now and then with ECN, or data.
        let flags = 0x02 | if u.ratio(1, 4)? { 0xc0 } else { 0 };
        let payload = if u.ratio(1, 8)? { 100 } else { 0 };
        let shot = Shot { flags, options, payload, ..self.plain(0, 0) };
        self.ask(&shot, remote);
        Ok(())
    }

    /// The acknowledgment of a SYN,ACK that went to this remote, or nearly.
    fn acknowledge(&mut self, u: &mut Unstructured<'_>, remote: Remote) -> Result<()> {
        let (index, wrong) = (u.arbitrary::<u8>()?, u.ratio(1, 4)?);
        let Some(answers) = self.answers.get(&remote) else { return Ok(()) };
        let (irs, iss) = answers[usize::from(index) % answers.len()];
        (self.bench.irs, self.bench.iss) = (irs, Some(iss));
        let (seq, ack) = if wrong { (u.int_in_range(0..=2)?, u.int_in_range(0..=4)?) } else { (1, 1) };
        let flags = match u.int_in_range(0..=7_u8)? {
            0 => 0x14,
            1 => 0x11,
            _ => 0x10,
        };
        let stamp = [1, 1, 8, 10, 0, 0, 3, 0xe9, 0, 0, 0, 0];
        let options = if u.arbitrary()? { stamp.to_vec() } else { Vec::new() };
        let payload = if u.ratio(1, 4)? { 100 } else { 0 };
        *self.acknowledged.entry(remote).or_default() += 1;
        let shot = Shot { flags, options, payload, ..self.plain(seq, ack) };
        self.ask(&shot, remote);
        Ok(())
    }

    /// Sends a segment: at most one is the answer at once.
    fn ask(&mut self, shot: &Shot, remote: Remote) {
        let before = self.bench.wire.counters().sent;
        self.asked += 1;
        let irs = self.bench.irs;
        fire(&mut self.bench, shot);
        let answer = self.bench.turn();
        for Seg { flags, .. } in &answer {
            if *flags == "SA"
                && let Some(iss) = self.bench.iss
            {
                let numbers = self.answers.entry(remote).or_default();
                if !numbers.contains(&(irs, iss)) {
                    numbers.push((irs, iss));
                }
            }
        }
        // What a connection has to say when it was made, and an ARP question, may come on top.
        let sent = self.bench.wire.counters().sent - before;
        assert!(sent <= 3, "{sent} frames answer one");
    }

    /// The application takes what is there, and lets go of some of it.
    fn take_events(&mut self, releases: bool) {
        while let Some((id, events)) = self.bench.stack.next_event() {
            if events.contains(Events::ACCEPTED)
                && let Some(info) = self.bench.stack.info(id)
            {
                let core::net::IpAddr::V4(addr) = info.remote.ip() else { panic!("an IPv4 connection") };
                let remote = (addr.octets(), info.remote.port());
                let left = self.acknowledged.get_mut(&remote);
                let left = left.expect("nobody acknowledged a SYN,ACK from there");
                *left = left.checked_sub(1).expect("fewer acknowledgments than connections");
            }
            if releases {
                self.bench.stack.release(id);
            }
        }
    }

    fn check(&self) {
        let stack = &self.bench.stack;
        assert!(stack.half_open_len() <= HALF_OPEN_MAX);
        assert!(stack.connections().count() <= CONNECTIONS_MAX);
        assert!(stack.time_wait_len() <= 2);
        // Those that are let go of have a last word to say.
        assert!(stack.flows_len() <= HALF_OPEN_MAX + CONNECTIONS_MAX + 2);
    }
}
