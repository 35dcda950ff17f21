//! The service's part in a test, once the Stream is up.

use dataplane::verbs::Verbs;

use super::channel::{Arrival, Channel, ChannelError};
use super::message::{Message, Mismatch, Mode, Operation, Plan};
use super::pattern::Sender;
use super::pump::Pump;

/// What the service does on one connection, by the plan's mode.
#[derive(Debug)]
pub(super) enum Part {
    /// Takes what comes, and sends its own when the plan is both ways.
    Bandwidth {
        pump: Pump,
        /// Sends of the test that arrived.
        received: u64,
        /// Messages of the harness, as it says.
        told: u64,
        /// The harness waits for [`Message::Finished`].
        finishing: bool,
    },
    /// Answers each message by one.
    Echo {
        /// The last octet that the harness's next Write has.
        expected: u8,
        /// Answers that had no room yet.
        owed: u64,
        /// Answers sent.
        answered: u64,
        /// Messages of the harness, as it says.
        told: u64,
    },
    /// Compares rounds of messages, and sends its own when the plan is both ways.
    Verify {
        /// The round that is being answered.
        round: Option<Round>,
        /// Sends of this round that arrived.
        received: u64,
        /// The first message of the round that comes next.
        next: u64,
        /// What this round's Sends showed.
        mismatch: Option<Mismatch>,
    },
}

/// A verified round that the service sends messages in.
#[derive(Debug)]
pub(super) struct Round {
    first: u64,
    count: u32,
    posted: u32,
    mismatch: Option<Mismatch>,
}

impl Part {
    pub(super) fn new(channel: &Channel) -> Self {
        match channel.plan().mode {
            Mode::Bandwidth => {
                Self::Bandwidth { pump: Pump::new(channel), received: 0, told: 0, finishing: false }
            }
            // The sink begins as zeros, so the first Write's octet is 1.
            Mode::Latency => Self::Echo { expected: 1, owed: 0, answered: 0, told: 0 },
            Mode::Verify => Self::Verify { round: None, received: 0, next: 0, mismatch: None },
        }
    }

    /// Takes what a completion says.
    pub(super) fn arrive(
        &mut self,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
        arrival: Arrival,
    ) -> Result<(), ChannelError> {
        match self {
            Self::Bandwidth { pump, received, told, finishing } => match arrival {
                Arrival::Sent(through) => {
                    pump.sent(through);
                }
                Arrival::Data { slot, .. } => {
                    *received += 1;
                    channel.repost(verbs, slot)?;
                }
                Arrival::Message(Message::Credit { total }) => pump.credit(total),
                Arrival::Message(Message::Start { messages }) if channel.plan().both_ways => {
                    pump.run(messages);
                }
                Arrival::Message(Message::Finish { sent }) => {
                    *told = sent;
                    if pump.is_endless() {
                        pump.stop();
                    }
                    *finishing = true;
                }
                Arrival::Message(_) => return Err(ChannelError::Unexpected),
                Arrival::Nothing => {}
            },
            Self::Echo { owed, told, .. } => match arrival {
                Arrival::Data { slot, .. } => {
                    channel.repost(verbs, slot)?;
                    *owed += 1;
                }
                Arrival::Message(Message::Finish { sent }) => *told = sent,
                Arrival::Message(_) => return Err(ChannelError::Unexpected),
                Arrival::Sent(_) | Arrival::Nothing => {}
            },
            Self::Verify { round, received, next, mismatch } => match arrival {
                Arrival::Data { slot, len } => {
                    let sequence = *next + *received;
                    let found = channel.examine_receive(slot, len, Sender::Harness, sequence)?;
                    *mismatch = mismatch.or(found);
                    *received += 1;
                    channel.repost(verbs, slot)?;
                }
                Arrival::Message(Message::Check { first, count }) => {
                    let is_send = channel.plan().operation == Operation::Send;
                    let fits = count <= channel.slots() && first == *next && round.is_none();
                    if !fits || (is_send && *received != u64::from(count)) {
                        return Err(ChannelError::Unexpected);
                    }
                    *round = begin(channel, first, count, mismatch.take());
                    *received = 0;
                    *next = first.saturating_add(count.into());
                }
                Arrival::Message(_) => return Err(ChannelError::Unexpected),
                Arrival::Sent(through) => {
                    let reads = channel.plan().operation == Operation::Read;
                    let ended =
                        round.take_if(|round| reads && through >= round.first + u64::from(round.count));
                    if let Some(Round { first, count, .. }) = ended {
                        let mismatch = channel.examine(Sender::Harness, first, count);
                        channel.say(Message::Checked { first, mismatch });
                    }
                }
                Arrival::Nothing => {}
            },
        }
        Ok(())
    }

    /// Messages of the test so far, of both ends, as far as this end knows.
    pub(super) fn messages(&self, plan: &Plan) -> u64 {
        match self {
            Self::Bandwidth { pump, received, told, .. } => told.max(received).saturating_add(pump.posted()),
            Self::Echo { answered, told, .. } => told.max(answered).saturating_add(*answered),
            Self::Verify { next, .. } => next.saturating_mul(1 + u64::from(plan.both_ways)),
        }
    }

    /// Posts what is next; true when that was anything.
    pub(super) fn turn(
        &mut self,
        channel: &mut Channel,
        verbs: &mut dyn Verbs,
    ) -> Result<bool, ChannelError> {
        match self {
            Self::Bandwidth { pump, received, finishing, .. } => {
                let busy = pump.fill(channel, verbs)?;
                if *finishing && pump.is_empty() {
                    *finishing = false;
                    channel.say(Message::Finished { sent: pump.posted(), received: *received });
                }
                Ok(busy)
            }
            Self::Echo { expected, owed, answered, .. } => {
                let operation = channel.plan().operation;
                if operation == Operation::Write && *owed == 0 && channel.last_sink_octet() == *expected {
                    channel.set_last_source_octet(*expected);
                    *expected = expected.wrapping_add(1);
                    *owed = 1;
                }
                let busy = *owed > 0;
                while *owed > 0 && channel.post(verbs, *answered, false)? {
                    *owed -= 1;
                    *answered += 1;
                }
                Ok(busy)
            }
            Self::Verify { round: current, .. } => {
                let Some(round) = current else { return Ok(false) };
                let (first, reads) = (round.first, channel.plan().operation == Operation::Read);
                let begun = round.posted;
                while round.posted < round.count {
                    let last = round.posted + 1 == round.count;
                    if !channel.post(verbs, first + u64::from(round.posted), last)? {
                        break;
                    }
                    round.posted += 1;
                }
                let busy = round.posted > begun;
                // Reads are compared when they are complete; the rest only has to go first.
                if !reads && round.posted == round.count {
                    channel.say(Message::Checked { first, mismatch: round.mismatch });
                    *current = None;
                }
                Ok(busy)
            }
        }
    }

    /// Whether it has to be given a turn although nothing arrived.
    pub(super) fn wants_turn(&self, channel: &Channel) -> bool {
        match self {
            Self::Bandwidth { pump, .. } => pump.is_ready(),
            // The harness's Writes show in memory only.
            Self::Echo { owed, .. } => channel.plan().operation == Operation::Write || *owed > 0,
            Self::Verify { round, .. } => round.as_ref().is_some_and(|round| round.posted < round.count),
        }
    }
}

/// Compares a round, or provides it; what remains to be done for it.
fn begin(channel: &mut Channel, first: u64, count: u32, of_sends: Option<Mismatch>) -> Option<Round> {
    let mismatch = match channel.plan().operation {
        Operation::Write => channel.examine(Sender::Harness, first, count),
        Operation::Send => of_sends,
        Operation::Read => None,
    };
    let both_ways = channel.plan().both_ways;
    if both_ways || channel.plan().operation == Operation::Read {
        channel.provide(Sender::Service, first, count);
    }
    if !both_ways || count == 0 {
        channel.say(Message::Checked { first, mismatch });
        return None;
    }
    Some(Round { first, count, posted: 0, mismatch })
}
