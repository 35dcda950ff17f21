//! Data validation: rounds of messages, every octet of which is compared at the end that gets them.
//!
//! ```text
//! harness                               service
//!   count Writes or Sends         ->
//!   Check                         ->    compares them
//!                                 <-    count Writes or Sends (both ways only)
//!   compares them                 <-    Checked
//! ```
//!
//! For Reads, `Check` asks the service to fill its source; the harness reads and compares after `Checked`
//! (and the service, both ways, reads and compares before it).

use control::services::perf::channel::{Arrival, Channel, ChannelError};
use control::services::perf::message::{Message, Mismatch, Operation, Plan};
use control::services::perf::pattern::Sender;
use dataplane::verbs::Verbs;

use super::link::Links;
use super::{Outcome, TrafficError};
use crate::plan::{Amount, Leg};

#[derive(Debug)]
pub(super) struct Verify {
    plan: Plan,
    messages: u64,
    ends: Vec<End>,
    done: usize,
}

#[derive(Debug)]
struct End {
    /// The round's first message and how many it has.
    first: u64,
    count: u32,
    step: Step,
    /// Sends of the service in this round.
    received: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A round is to begin.
    Next,
    /// Posting the round's messages.
    Posting {
        posted: u32,
    },
    /// Waiting for `Checked`.
    Asked,
    /// Waiting for the Reads.
    Reading,
    Done,
}

impl Verify {
    pub(super) fn begin(leg: &Leg) -> Self {
        let messages = match leg.amount {
            Amount::Messages(messages) => messages,
            Amount::Time(_) => 0,
        };
        let ends =
            (0..leg.queue_pairs).map(|_| End { first: 0, count: 0, step: Step::Next, received: 0 }).collect();
        Self { plan: leg.plan, messages, ends, done: 0 }
    }

    pub(super) fn arrive(
        &mut self,
        index: usize,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
        arrival: Arrival,
    ) -> Result<(), TrafficError> {
        let Some(end) = self.ends.get_mut(index) else { return Ok(()) };
        match (arrival, end.step) {
            (Arrival::Message(Message::Checked { first, mismatch }), Step::Asked) if first == end.first => {
                same("service", mismatch)?;
                end.checked(channel, &self.plan)?;
            }
            (Arrival::Data { slot, len }, Step::Asked) if self.plan.both_ways => {
                let sequence = end.first + u64::from(end.received);
                same("harness", channel.examine_receive(slot, len, Sender::Service, sequence)?)?;
                end.received += 1;
                channel.repost(verbs, slot)?;
            }
            (Arrival::Sent(through), Step::Reading) if through >= end.first + u64::from(end.count) => {
                same("harness", channel.examine(Sender::Service, end.first, end.count))?;
                end.next();
            }
            (Arrival::Sent(_) | Arrival::Nothing, _) => {}
            (Arrival::Message(_) | Arrival::Data { .. }, _) => return Err(ChannelError::Unexpected.into()),
        }
        Ok(())
    }

    pub(super) fn turn(&mut self, links: &mut Links, verbs: &mut dyn Verbs) -> Result<bool, TrafficError> {
        let mut busy = false;
        for (index, end) in self.ends.iter_mut().enumerate() {
            let Some(channel) = links.channel(index) else { continue };
            if end.step == Step::Next && end.first >= self.messages {
                end.step = Step::Done;
                self.done += 1;
            }
            if end.step == Step::Next {
                let left = u32::try_from(self.messages - end.first).unwrap_or(u32::MAX);
                end.begin(channel, &self.plan, left);
                busy = true;
            }
            if let Step::Posting { posted } = end.step {
                busy |= end.post(channel, verbs, &self.plan, posted)?;
            }
            busy |= channel.flush(verbs)?;
        }
        Ok(busy)
    }

    pub(super) fn verified(&mut self) -> Option<Outcome> {
        if self.done < self.ends.len() {
            return None;
        }
        let directions = if self.plan.both_ways { 2 } else { 1 };
        let messages = self.messages * self.ends.len() as u64 * directions;
        Some(Outcome::Verified { messages, octets: messages * u64::from(self.plan.size) })
    }
}

impl End {
    fn begin(&mut self, channel: &mut Channel, plan: &Plan, left: u32) {
        self.count = left.min(channel.slots());
        self.received = 0;
        let reads = plan.operation == Operation::Read;
        if !reads || plan.both_ways {
            channel.provide(Sender::Harness, self.first, self.count);
        }
        if reads {
            channel.say(Message::Check { first: self.first, count: self.count });
            self.step = Step::Asked;
        } else {
            self.step = Step::Posting { posted: 0 };
        }
    }

    fn post(
        &mut self,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
        plan: &Plan,
        posted: u32,
    ) -> Result<bool, TrafficError> {
        let mut next = posted;
        while next < self.count {
            // A Read's data is compared when it is there; Writes and Sends when the service has them.
            let last = next + 1 == self.count;
            if !channel.post(verbs, self.first + u64::from(next), last)? {
                break;
            }
            next += 1;
        }
        self.step = match plan.operation {
            _ if next < self.count => Step::Posting { posted: next },
            Operation::Read => Step::Reading,
            Operation::Write | Operation::Send => {
                channel.say(Message::Check { first: self.first, count: self.count });
                Step::Asked
            }
        };
        Ok(next > posted)
    }

    fn checked(&mut self, channel: &Channel, plan: &Plan) -> Result<(), TrafficError> {
        match plan.operation {
            Operation::Read => {
                self.step = Step::Posting { posted: 0 };
                return Ok(());
            }
            Operation::Write if plan.both_ways => {
                same("harness", channel.examine(Sender::Service, self.first, self.count))?;
            }
            Operation::Send if plan.both_ways && self.received != self.count => {
                let (sent, received) = (self.count.into(), self.received.into());
                return Err(TrafficError::Lost { by: "service", sent, received });
            }
            Operation::Write | Operation::Send => {}
        }
        self.next();
        Ok(())
    }

    fn next(&mut self) {
        self.first += u64::from(self.count);
        self.step = Step::Next;
    }
}

fn same(at: &'static str, mismatch: Option<Mismatch>) -> Result<(), TrafficError> {
    mismatch.map_or(Ok(()), |mismatch| Err(TrafficError::Mismatch { at, mismatch }))
}
