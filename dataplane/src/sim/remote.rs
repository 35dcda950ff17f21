//! An application on a core of its own, which looks at its rings now and then.

use std::time::Duration;

use tcpstack::time::Instant;

use super::world::Actor;
use crate::rings::Client;
use crate::verbs::Application;

/// An application behind rings, as an [`Actor`].
pub struct Remote {
    client: Client,
    application: Box<dyn Application>,
    /// From one look at its rings to the next, while there is something going on.
    period: Duration,
    due: Option<Instant>,
}

impl Remote {
    /// Polls `application` through `client`, every `period` at most.
    pub fn new(client: Client, application: Box<dyn Application>, period: Duration) -> Self {
        Self { client, application, period, due: Some(Instant::ZERO) }
    }
}

impl Actor for Remote {
    fn turn(&mut self, now: Instant, stirred: bool) -> bool {
        match self.due {
            Some(due) if due <= now => {
                let busy = self.application.poll(&mut self.client);
                self.due = busy.then_some(now + self.period);
            }
            Some(_) => {}
            // There may be something for this application.
            None => self.due = stirred.then_some(now + self.period),
        }
        false
    }

    fn poll_at(&self) -> Option<Instant> {
        self.due
    }
}
