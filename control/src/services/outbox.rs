//! Work and commands that wait because a ring to the worker is full.

use std::collections::VecDeque;

use dataplane::verbs::{Command, QueuePairId, Verbs, VerbsError};
use iwarp::work::{ReceiveRequest, SendRequest};

/// Hands requests to a worker in order; what does not fit now waits for the next [`Outbox::flush`].
///
/// Its owner bounds it: it never holds more than the owner has outstanding.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<Request>,
}

#[derive(Clone, Debug)]
enum Request {
    Send(QueuePairId, SendRequest),
    Receive(QueuePairId, ReceiveRequest),
    Command(Command),
}

impl Outbox {
    /// Posts to a send queue.
    pub fn send(&mut self, verbs: &mut dyn Verbs, qp: QueuePairId, request: SendRequest) {
        self.hand_over(verbs, Request::Send(qp, request));
    }

    /// Posts to a receive queue.
    pub fn receive(&mut self, verbs: &mut dyn Verbs, qp: QueuePairId, request: ReceiveRequest) {
        self.hand_over(verbs, Request::Receive(qp, request));
    }

    /// Submits a command.
    pub fn submit(&mut self, verbs: &mut dyn Verbs, command: Command) {
        self.hand_over(verbs, Request::Command(command));
    }

    /// Tries again what waits. True when something was handed over.
    pub fn flush(&mut self, verbs: &mut dyn Verbs) -> bool {
        let before = self.waiting.len();
        while let Some(request) = self.waiting.pop_front() {
            if !try_once(verbs, &request) {
                self.waiting.push_front(request);
                break;
            }
        }
        self.waiting.len() < before
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn hand_over(&mut self, verbs: &mut dyn Verbs, request: Request) {
        if !self.waiting.is_empty() || !try_once(verbs, &request) {
            self.waiting.push_back(request);
        }
    }
}

/// False when the request has to wait.
fn try_once(verbs: &mut dyn Verbs, request: &Request) -> bool {
    let (qp, result) = match request {
        Request::Send(qp, request) => (*qp, verbs.post_send(*qp, request.clone())),
        Request::Receive(qp, request) => (*qp, verbs.post_receive(*qp, request.clone())),
        Request::Command(command) => return verbs.submit(command.clone()).is_ok(),
    };
    match result {
        // The end of an unknown queue pair was told, or will be with the next events.
        Ok(()) | Err(VerbsError::UnknownQueuePair) => true,
        Err(VerbsError::RingFull) => false,
        // The owner's depths and lists exclude this; a Stream that misses a request would hang.
        Err(VerbsError::Post(_)) => verbs.submit(Command::Abort { qp }).is_ok(),
    }
}
