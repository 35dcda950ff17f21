//! The bare wire below TCP: what a frame costs between two [`Device`]s, with no stack and no application.
//!
//! Every figure of the harness holds a share that the wire takes, and on a shared host that share changes
//! from second to second. So the wire can be measured by itself, in the same run.
//!
//! ```text
//! raw_lat   Probe  -- Ping(1) -->  Responder     one frame, turned round in place
//!                  <-- Pong(1) --
//! raw_bw    Probe  -- Data, Data, Data .. -->    whole frames, counted and dropped
//!                  -- Ask -->
//!                  <-- Told(count) --
//! ```
//!
//! Any frame may be lost: pings and questions are repeated, data is counted where it arrives.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dataplane::worker::Clock;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::time::Instant;

use crate::plan::Amount;
use crate::stats::{Latencies, Peak};
use crate::traffic::BandwidthSummary;

/// Octets of a frame of raw_lat.
pub const LATENCY_OCTETS: usize = 64;

/// Why the wire could not be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawError {
    /// The other end does not answer, or takes nothing.
    #[error("nothing came back over the bare wire for {} s", PATIENCE.as_secs())]
    Silent,
    /// The user's wish.
    #[error("interrupted")]
    Interrupted,
}

/// What raw_lat came to.
#[derive(Debug)]
pub struct Bounces {
    /// Whole round trips of frames that came back.
    pub latencies: Latencies,
    /// Frames that did not come back in time.
    pub lost: u64,
}

/// What raw_bw came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flood {
    /// What arrived, until the other end said so; whole frames.
    pub summary: BandwidthSummary,
    /// Frames that were sent and did not arrive.
    pub lost: u64,
}

/// A frame's meaning.
///
/// ```text
///  0            6            12      14     15       19              27
/// | destination | source     | 88 B5 | kind | number | count (Told)  | whatever
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// Asks for a `Pong` of this number.
    Ping(u32),
    /// The same frame on its way back.
    Pong(u32),
    /// A frame of this run, to be counted.
    Data(u32),
    /// Asks how many there were.
    Ask(u32),
    /// So many frames of this run.
    Told(u32, u64),
}

/// IEEE 802's EtherType for local experiments.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
const ETHERNET_LEN: usize = 14;
const MESSAGE_LEN: usize = 27;
const BROADCAST: [u8; 6] = [0xff; 6];

impl Message {
    /// The meaning of a frame, if it is one of ours.
    fn parse(octets: &[u8]) -> Option<Self> {
        let octets = octets.first_chunk::<MESSAGE_LEN>()?;
        let [.., a, b, kind, n0, n1, n2, n3, c0, c1, c2, c3, c4, c5, c6, c7] = *octets;
        if [a, b] != ETHER_TYPE {
            return None;
        }
        let number = u32::from_be_bytes([n0, n1, n2, n3]);
        Some(match kind {
            1 => Self::Ping(number),
            2 => Self::Pong(number),
            3 => Self::Data(number),
            4 => Self::Ask(number),
            5 => Self::Told(number, u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7])),
            _ => return None,
        })
    }

    /// Writes the headers of a frame that has at least [`MESSAGE_LEN`] octets.
    fn emit(self, octets: &mut [u8], destination: [u8; 6], source: [u8; 6]) {
        let (kind, number, count) = match self {
            Self::Ping(number) => (1, number, 0),
            Self::Pong(number) => (2, number, 0),
            Self::Data(number) => (3, number, 0),
            Self::Ask(number) => (4, number, 0),
            Self::Told(number, count) => (5, number, count),
        };
        octets[..6].copy_from_slice(&destination);
        octets[6..12].copy_from_slice(&source);
        octets[12..14].copy_from_slice(&ETHER_TYPE);
        octets[14] = kind;
        octets[15..19].copy_from_slice(&number.to_be_bytes());
        octets[19..MESSAGE_LEN].copy_from_slice(&u64::to_be_bytes(count));
    }
}

/// The end that answers.
#[derive(Debug)]
pub struct Responder<F> {
    /// The run that is counted, and its frames.
    run: Option<u32>,
    count: u64,
    received: Burst<F>,
    answers: Burst<F>,
}

impl<F: Frame> Default for Responder<F> {
    fn default() -> Self {
        Self { run: None, count: 0, received: Burst::new(), answers: Burst::new() }
    }
}

impl<F: Frame> Responder<F> {
    /// Takes a burst and answers it; false when there was none. Frames that are not ours are dropped.
    pub fn turn<D: Device<Frame = F>>(&mut self, device: &mut D) -> bool {
        device.receive_burst(&mut self.received);
        let busy = !self.received.is_empty();
        for mut frame in self.received.drain(..) {
            let answer = match Message::parse(frame.bytes()) {
                Some(Message::Data(run)) => {
                    if self.run != Some(run) {
                        (self.run, self.count) = (Some(run), 0);
                    }
                    self.count += 1;
                    continue;
                }
                Some(Message::Ping(number)) => Message::Pong(number),
                Some(Message::Ask(run)) => {
                    Message::Told(run, if self.run == Some(run) { self.count } else { 0 })
                }
                _ => continue,
            };
            let octets = frame.bytes_mut();
            let destination = *octets[6..].first_chunk().expect("a message has an Ethernet header");
            answer.emit(octets, destination, device.capabilities().mac);
            // Beyond a burst that the port does not take, answers are lost, which the probe expects.
            let _ = self.answers.try_push(frame);
        }
        device.transmit_burst(&mut self.answers);
        busy
    }
}

/// The end that measures.
pub struct Probe<'a, D: Device, C> {
    device: &'a mut D,
    clock: &'a C,
    /// Called once a poll: gives the other end its turn where it needs one.
    meanwhile: &'a mut dyn FnMut(),
    interrupt: &'a AtomicBool,
    /// Of the last ping or run.
    number: u32,
    received: Burst<D::Frame>,
    sending: Burst<D::Frame>,
}

impl<'a, D: Device, C: Clock> Probe<'a, D, C> {
    /// A probe that calls `meanwhile` once a poll.
    pub fn new(
        device: &'a mut D,
        clock: &'a C,
        meanwhile: &'a mut dyn FnMut(),
        interrupt: &'a AtomicBool,
    ) -> Self {
        let (received, sending) = (Burst::new(), Burst::new());
        Self { device, clock, meanwhile, interrupt, number: 0, received, sending }
    }

    /// Bounces one frame to and fro.
    ///
    /// # Errors
    /// See [`RawError`].
    pub fn latency(&mut self, amount: Amount) -> Result<Bounces, RawError> {
        let (mut frame, _) = self.bounce(None, &mut 0)?;
        let expected = match amount {
            Amount::Messages(messages) => messages,
            Amount::Time(_) => u64::MAX,
        };
        let mut bounces = Bounces { latencies: Latencies::new(expected), lost: 0 };
        let begin = self.clock.now();
        let mut done = 0;
        while goes_on(amount, done, self.clock.now() - begin) {
            let round_trip;
            (frame, round_trip) = self.bounce(Some(frame), &mut bounces.lost)?;
            bounces.latencies.record(round_trip);
            done += 1;
        }
        Ok(bounces)
    }

    /// Sends whole frames as fast as the port takes them; their payload is what the buffers hold.
    ///
    /// # Errors
    /// See [`RawError`].
    pub fn bandwidth(&mut self, amount: Amount) -> Result<Flood, RawError> {
        self.bounce(None, &mut 0)?;
        self.number += 1;
        let data = Message::Data(self.number);
        let size = self.device.capabilities().mtu + ETHERNET_LEN;
        let source = self.device.capabilities().mac;
        let begin = self.clock.now();
        let (mut now, mut moved) = (begin, begin);
        let mut peak = Peak::new(begin, PEAK_FRAMES, PEAK_SPAN);
        // Frames that were made, and those of them that the port took.
        let (mut made, mut sent) = (0, 0);
        while goes_on(amount, sent, now - begin) {
            while !self.sending.is_full() && goes_on(amount, made, Duration::ZERO) {
                let Some(mut frame) = self.device.allocate() else { break };
                frame.push_back(size);
                data.emit(frame.bytes_mut(), BROADCAST, source);
                self.sending.push(frame);
                made += 1;
            }
            self.device.transmit_burst(&mut self.sending);
            let taken = made - waiting(&self.sending);
            now = self.clock.now();
            if taken > sent {
                (sent, moved) = (taken, now);
                peak.update(sent, now);
            }
            (self.meanwhile)();
            self.check(now - moved)?;
        }
        self.sending.clear();
        let messages = self.ask(self.number)?;
        let elapsed = self.clock.now() - begin;
        let size = u32::try_from(size).expect("frames are shorter than 64 KiB");
        let mut summary = BandwidthSummary { messages, size, elapsed, peak: 0.0 };
        summary.peak = peak.best().max(summary.rate());
        Ok(Flood { summary, lost: sent.saturating_sub(messages) })
    }

    /// Sends a ping, in `frame` if there is one, until one comes back: that frame and its round trip.
    fn bounce(
        &mut self,
        mut frame: Option<D::Frame>,
        lost: &mut u64,
    ) -> Result<(D::Frame, Duration), RawError> {
        let begin = self.clock.now();
        loop {
            // A number of its own, so that one that comes late is not taken for another.
            self.number += 1;
            let number = self.number;
            let frame = match frame.take() {
                Some(frame) => Some(frame),
                None => self.fresh(),
            };
            let sent = self.send(Message::Ping(number), frame)?;
            let answer = self.await_answer(sent, |message| message == Message::Pong(number))?;
            if let Some((frame, _)) = answer {
                return Ok((frame, self.clock.now() - sent));
            }
            *lost += 1;
            self.check(self.clock.now() - begin)?;
        }
    }

    /// How many frames of a run arrived.
    fn ask(&mut self, run: u32) -> Result<u64, RawError> {
        let begin = self.clock.now();
        loop {
            let frame = self.fresh();
            let sent = self.send(Message::Ask(run), frame)?;
            let answer =
                self.await_answer(sent, |message| matches!(message, Message::Told(of, _) if of == run))?;
            if let Some((_, Message::Told(_, count))) = answer {
                return Ok(count);
            }
            self.check(self.clock.now() - begin)?;
        }
    }

    /// An empty frame for a ping or a question.
    fn fresh(&mut self) -> Option<D::Frame> {
        let mut frame = self.device.allocate_control()?;
        frame.push_back(LATENCY_OCTETS);
        frame.bytes_mut().fill(0);
        Some(frame)
    }

    /// Sends it, if there is a frame for it; returns when it began to.
    fn send(&mut self, message: Message, frame: Option<D::Frame>) -> Result<Instant, RawError> {
        let source = self.device.capabilities().mac;
        if let Some(mut frame) = frame {
            message.emit(frame.bytes_mut(), BROADCAST, source);
            self.sending.push(frame);
        }
        let begin = self.clock.now();
        self.device.transmit_burst(&mut self.sending);
        while !self.sending.is_empty() {
            (self.meanwhile)();
            self.check(self.clock.now() - begin)?;
            self.device.transmit_burst(&mut self.sending);
        }
        Ok(begin)
    }

    /// Polls for the answer to what was sent at `sent`; `None` when it does not come in time.
    fn await_answer(
        &mut self,
        sent: Instant,
        is_it: impl Fn(Message) -> bool,
    ) -> Result<Option<(D::Frame, Message)>, RawError> {
        let mut polls = 0_u32;
        loop {
            (self.meanwhile)();
            self.device.receive_burst(&mut self.received);
            for frame in self.received.drain(..) {
                if let Some(message) = Message::parse(frame.bytes()).filter(|&message| is_it(message)) {
                    return Ok(Some((frame, message)));
                }
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS_A_LOOK) {
                let waited = self.clock.now() - sent;
                self.check(waited)?;
                if waited > LOST_AFTER {
                    return Ok(None);
                }
            }
        }
    }

    /// Whether to give up.
    fn check(&self, silence: Duration) -> Result<(), RawError> {
        if self.interrupt.load(Ordering::Relaxed) {
            return Err(RawError::Interrupted);
        }
        if silence > PATIENCE { Err(RawError::Silent) } else { Ok(()) }
    }
}

/// A frame that is not back by then is sent again: longer than a host takes a core away for.
const LOST_AFTER: Duration = Duration::from_millis(200);

/// Longer silence means that there is nobody.
const PATIENCE: Duration = Duration::from_secs(5);

/// Polls between two looks at the clock while an answer is awaited.
const POLLS_A_LOOK: u32 = 64;

/// A stretch of the peak.
const PEAK_FRAMES: u64 = 8192;
const PEAK_SPAN: Duration = Duration::from_millis(1);

fn goes_on(amount: Amount, done: u64, elapsed: Duration) -> bool {
    match amount {
        Amount::Messages(messages) => done < messages,
        Amount::Time(span) => elapsed < span,
    }
}

fn waiting<F>(burst: &Burst<F>) -> u64 {
    u64::try_from(burst.len()).expect("a burst is short")
}

#[cfg(test)]
mod tests;
