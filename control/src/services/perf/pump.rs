//! Keeps one direction of a bandwidth test full.

use dataplane::verbs::Verbs;

use super::channel::{Channel, ChannelError};
use super::message::Operation;

/// The sender of a bandwidth test's messages: as many in flight as the plan and the credits allow.
#[derive(Debug)]
pub struct Pump {
    /// Messages to post in all; `posted <= target`.
    target: u64,
    posted: u64,
    /// `completed <= posted`; lags by up to the moderation.
    completed: u64,
    /// Messages that the peer has receives for, in all.
    credits: u64,
    depth: u64,
    moderation: u32,
    /// Messages until a completion is asked for again.
    unsignaled: u32,
}

impl Pump {
    /// A pump with nothing to do yet.
    pub fn new(channel: &Channel) -> Self {
        let plan = channel.plan();
        let credits = match plan.operation {
            Operation::Send => channel.first_credits().into(),
            Operation::Write | Operation::Read => u64::MAX,
        };
        Self {
            target: 0,
            posted: 0,
            completed: 0,
            credits,
            depth: plan.depth.into(),
            moderation: plan.moderation,
            unsignaled: plan.moderation,
        }
    }

    /// Asks for `messages` more.
    pub fn run(&mut self, messages: u64) {
        self.target = self.target.saturating_add(messages);
    }

    /// Asks for no more than what is posted.
    pub fn stop(&mut self) {
        self.target = self.posted;
    }

    /// Messages before `through` are done; returns how many of them are news.
    pub fn sent(&mut self, through: u64) -> u64 {
        let news = through.saturating_sub(self.completed);
        self.completed += news;
        news
    }

    /// The peer has posted `total` receives.
    pub fn credit(&mut self, total: u64) {
        self.credits = self.credits.max(total);
    }

    /// Posts what may be posted; true when that was anything.
    ///
    /// # Errors
    /// When a request is refused for good.
    pub fn fill(&mut self, channel: &mut Channel, verbs: &mut dyn Verbs) -> Result<bool, ChannelError> {
        let end = self.end();
        let first = self.posted;
        while self.posted < end {
            let signaled = self.unsignaled <= 1 || self.posted + 1 == self.target;
            if !channel.post(verbs, self.posted, signaled)? {
                break;
            }
            self.posted += 1;
            self.unsignaled = if signaled { self.moderation } else { self.unsignaled - 1 };
        }
        Ok(self.posted > first)
    }

    /// Whether all that was asked for is posted.
    pub fn is_empty(&self) -> bool {
        self.posted >= self.target
    }

    /// Whether it runs until it is stopped.
    pub fn is_endless(&self) -> bool {
        self.target == u64::MAX
    }

    /// Messages posted.
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Whether the plan allows more in flight than the queue had room for.
    pub fn is_ready(&self) -> bool {
        self.posted < self.end()
    }

    /// What may be posted now, in all.
    fn end(&self) -> u64 {
        self.target.min(self.credits).min(self.completed.saturating_add(self.depth))
    }
}
