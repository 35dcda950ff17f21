//! A latency test: one message at a time, answered by one (Write, Send) or answering itself (Read).
//!
//! A Write's answer is seen in memory, as perftest does it: the last octet of the sink changes to the
//! number that is waited for. Placement is in order here, so the octets before it are there too.

use std::time::Duration;

use control::services::perf::channel::{Arrival, Channel, ChannelError};
use control::services::perf::message::{Message, Operation};
use dataplane::verbs::Verbs;
use tcpstack::time::Instant;

use super::TrafficError;
use super::link::Links;
use crate::plan::{Amount, Leg};
use crate::stats::Latencies;

#[derive(Debug)]
pub(super) struct Latency {
    operation: Operation,
    amount: Amount,
    /// Round trips that are not measured.
    warm_up: u64,
    /// Round trips done, those of the warm-up included.
    done: u64,
    /// The last octet of the Write on its way and of its answer.
    octet: u8,
    waiting: bool,
    answered: bool,
    /// The end of the last round trip, or the first request.
    last: Option<Instant>,
    /// When the first round trip that counts began.
    began: Option<Instant>,
    latencies: Option<Latencies>,
    over: bool,
    /// The peer was told how many there were.
    told: bool,
}

impl Latency {
    pub(super) fn begin(leg: &Leg) -> Self {
        let expected = match leg.amount {
            Amount::Messages(messages) => messages,
            Amount::Time(_) => u64::MAX,
        };
        Self {
            operation: leg.plan.operation,
            amount: leg.amount,
            warm_up: leg.warm_up,
            done: 0,
            octet: 0,
            waiting: false,
            answered: false,
            last: None,
            began: None,
            latencies: Some(Latencies::new(expected)),
            over: false,
            told: false,
        }
    }

    pub(super) fn arrive(
        &mut self,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
        arrival: Arrival,
        now: Instant,
    ) -> Result<(), TrafficError> {
        match arrival {
            Arrival::Data { slot, .. } if self.operation == Operation::Send => {
                channel.repost(verbs, slot)?;
                self.answered = true;
            }
            Arrival::Sent(_) if self.operation == Operation::Read => self.answered = true,
            Arrival::Sent(_) | Arrival::Nothing => {}
            Arrival::Data { .. } | Arrival::Message(_) => return Err(ChannelError::Unexpected.into()),
        }
        // The next request is posted in this poll too.
        self.step(channel, verbs, now)?;
        Ok(())
    }

    pub(super) fn turn(
        &mut self,
        links: &mut Links,
        verbs: &mut dyn Verbs,
        now: Instant,
    ) -> Result<bool, TrafficError> {
        let Some(channel) = links.channel(0) else { return Ok(false) };
        if self.operation == Operation::Write && self.waiting {
            self.answered = channel.last_sink_octet() == self.octet;
        }
        let moved = self.step(channel, verbs, now)?;
        channel.flush(verbs)?;
        self.told = self.over && channel.is_flushed();
        Ok(moved)
    }

    pub(super) fn latencies(&mut self) -> Option<Latencies> {
        if self.told { self.latencies.take() } else { None }
    }

    /// Ends a round trip whose answer is there, and begins the next.
    fn step(
        &mut self,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
        now: Instant,
    ) -> Result<bool, TrafficError> {
        let ended = self.waiting && self.answered;
        if ended {
            self.waiting = false;
            self.answered = false;
            self.sample(now);
            if self.over {
                channel.say(Message::Finish { sent: self.done });
            }
        }
        if self.waiting || self.over {
            return Ok(ended);
        }
        let next = self.octet.wrapping_add(1);
        if self.operation == Operation::Write {
            channel.set_last_source_octet(next);
        }
        let signaled = self.operation == Operation::Read;
        if !channel.post(verbs, self.done, signaled)? {
            return Ok(ended);
        }
        self.octet = next;
        self.waiting = true;
        if self.last.is_none() {
            self.last = Some(now);
        }
        if self.done == self.warm_up {
            self.began = self.last;
        }
        Ok(true)
    }

    fn sample(&mut self, now: Instant) {
        let round_trip = self.last.map_or(Duration::ZERO, |last| now - last);
        self.last = Some(now);
        self.done += 1;
        if self.done <= self.warm_up {
            return;
        }
        if let Some(latencies) = &mut self.latencies {
            latencies.record(round_trip);
        }
        self.over = match (self.amount, self.began) {
            (Amount::Messages(messages), _) => self.done - self.warm_up >= messages,
            (Amount::Time(time), Some(began)) => now - began >= time,
            (Amount::Time(_), None) => false,
        };
    }
}
