//! A bandwidth test: keeps every queue full until the amount is done, and the peer has all of it.

use std::time::Duration;

use control::services::perf::channel::{Arrival, Channel, ChannelError};
use control::services::perf::message::{Message, Operation, Plan};
use control::services::perf::pump::Pump;
use dataplane::verbs::Verbs;
use tcpstack::time::Instant;

use super::TrafficError;
use super::link::Links;
use crate::plan::{Amount, Leg};
use crate::stats::Peak;

/// What a bandwidth test came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BandwidthSummary {
    /// Messages, of all queue pairs and both directions.
    pub messages: u64,
    /// Octets of each.
    pub size: u32,
    /// From the first request to the peer's word that it has everything.
    pub elapsed: Duration,
    /// Messages a second in the best stretch, both directions; at least the average.
    pub peak: f64,
}

impl BandwidthSummary {
    /// Messages a second.
    pub fn rate(&self) -> f64 {
        // A run of no time is one that the clock did not see.
        self.messages as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

#[derive(Debug)]
pub(super) struct Bandwidth {
    plan: Plan,
    amount: Amount,
    ends: Vec<End>,
    /// Ends that get a turn, each once.
    ready: Vec<u32>,
    /// The same while they have it; kept for its capacity.
    turns: Vec<u32>,
    phase: Phase,
    began: Instant,
    /// Ends that wait for nothing more in this phase.
    finished: usize,
    /// Messages complete, as far as completions say; of the measured phase only.
    complete: u64,
    peak: Option<Peak>,
    /// Messages that the peer sent.
    of_peer: u64,
    summary: Option<BandwidthSummary>,
}

#[derive(Debug)]
struct End {
    pump: Pump,
    /// Where the pump was when the measured phase began.
    begun: u64,
    is_ready: bool,
    finish_said: bool,
    /// Sends of the peer.
    received: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Measured,
    Done,
}

impl Bandwidth {
    pub(super) fn begin(leg: &Leg, links: &mut Links, now: Instant) -> Self {
        let mut ends = Vec::with_capacity(links.len());
        for place in 0..links.len() {
            if let Some(channel) = links.channel(place) {
                let pump = Pump::new(channel);
                ends.push(End { pump, begun: 0, is_ready: false, finish_said: false, received: 0 });
            }
        }
        let mut task = Self {
            plan: leg.plan,
            amount: leg.amount,
            ready: Vec::with_capacity(ends.len()),
            turns: Vec::with_capacity(ends.len()),
            ends,
            phase: Phase::WarmUp,
            began: now,
            finished: 0,
            complete: 0,
            peak: None,
            of_peer: 0,
            summary: None,
        };
        if leg.warm_up > 0 {
            task.enter(Phase::WarmUp, leg.warm_up, now);
        } else {
            task.measure(links, now);
        }
        task
    }

    pub(super) fn arrive(
        &mut self,
        index: usize,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
        arrival: Arrival,
        now: Instant,
    ) -> Result<(), TrafficError> {
        let Some(end) = self.ends.get_mut(index) else { return Ok(()) };
        match arrival {
            Arrival::Sent(through) => {
                let news = end.pump.sent(through);
                if let Some(peak) = &mut self.peak {
                    self.complete += news;
                    peak.update(self.complete, now);
                }
            }
            Arrival::Data { slot, .. } => {
                end.received += 1;
                channel.repost(verbs, slot)?;
            }
            Arrival::Message(Message::Credit { total }) => end.pump.credit(total),
            Arrival::Message(Message::Finished { sent, received }) if end.finish_said => {
                self.finished += 1;
                self.of_peer += sent;
                if self.plan.operation == Operation::Send {
                    lost("harness", end.pump.posted(), received)?;
                    lost("service", sent, end.received)?;
                }
            }
            Arrival::Message(_) => return Err(ChannelError::Unexpected.into()),
            Arrival::Nothing => {}
        }
        self.wake(index);
        Ok(())
    }

    pub(super) fn turn(
        &mut self,
        links: &mut Links,
        verbs: &mut dyn Verbs,
        now: Instant,
    ) -> Result<bool, TrafficError> {
        if self.finished == self.ends.len() {
            match self.phase {
                Phase::WarmUp => self.measure(links, now),
                Phase::Measured => self.finish(now),
                Phase::Done => {}
            }
        }
        if let (Phase::Measured, Amount::Time(time)) = (self.phase, self.amount)
            && now - self.began >= time
        {
            self.stop();
        }
        let mut busy = false;
        let mut turns = std::mem::replace(&mut self.ready, std::mem::take(&mut self.turns));
        for &index in &turns {
            let index = index as usize;
            let (Some(end), Some(channel)) = (self.ends.get_mut(index), links.channel(index)) else {
                continue;
            };
            end.is_ready = false;
            busy |= end.pump.fill(channel, verbs)?;
            if end.pump.is_empty() && !end.finish_said {
                end.finish_said = true;
                channel.say(Message::Finish { sent: end.pump.posted() });
            }
            busy |= channel.flush(verbs)?;
            if end.pump.is_ready() || !channel.is_flushed() {
                self.wake(index);
            }
        }
        turns.clear();
        self.turns = turns;
        Ok(busy)
    }

    pub(super) fn summary(&mut self) -> Option<BandwidthSummary> {
        self.summary.take()
    }

    fn measure(&mut self, links: &mut Links, now: Instant) {
        let (messages, stretch, span) = match self.amount {
            Amount::Messages(messages) => {
                let all = messages.saturating_mul(self.ends.len() as u64);
                (messages, all / STRETCHES, Duration::ZERO)
            }
            Amount::Time(time) => (u64::MAX, 1, time / STRETCHES_OF_TIME),
        };
        if self.plan.both_ways {
            for place in 0..links.len() {
                if let Some(channel) = links.channel(place) {
                    channel.say(Message::Start { messages });
                }
            }
        }
        self.peak = Some(Peak::new(now, stretch, span));
        self.enter(Phase::Measured, messages, now);
    }

    fn enter(&mut self, phase: Phase, messages: u64, now: Instant) {
        self.phase = phase;
        self.began = now;
        self.finished = 0;
        for index in 0..self.ends.len() {
            let end = &mut self.ends[index];
            end.begun = end.pump.posted();
            end.finish_said = false;
            end.pump.run(messages);
            self.wake(index);
        }
    }

    /// The time is over: what is posted is all.
    fn stop(&mut self) {
        for index in 0..self.ends.len() {
            let end = &mut self.ends[index];
            if !end.pump.is_empty() {
                end.pump.stop();
                self.wake(index);
            }
        }
    }

    fn finish(&mut self, now: Instant) {
        self.phase = Phase::Done;
        let own: u64 = self.ends.iter().map(|end| end.pump.posted() - end.begun).sum();
        let messages = own + self.of_peer;
        let elapsed = now - self.began;
        let mut summary = BandwidthSummary { messages, size: self.plan.size, elapsed, peak: 0.0 };
        // Completions tell of our own direction only; the other is as busy.
        let directions = if self.plan.both_ways { 2.0 } else { 1.0 };
        let best = self.peak.as_ref().map_or(0.0, Peak::best) * directions;
        summary.peak = best.max(summary.rate());
        self.summary = Some(summary);
    }

    fn wake(&mut self, index: usize) {
        let end = &mut self.ends[index];
        if !end.is_ready {
            end.is_ready = true;
            self.ready.push(u32::try_from(index).unwrap_or(u32::MAX));
        }
    }
}

/// Stretches that the peak is looked for in.
const STRETCHES: u64 = 20;
const STRETCHES_OF_TIME: u32 = 20;

fn lost(by: &'static str, sent: u64, received: u64) -> Result<(), TrafficError> {
    if sent == received { Ok(()) } else { Err(TrafficError::Lost { by, sent, received }) }
}
