//! The rings between a worker and an application on a core of its own.
//!
//! Four bounded rings of plain messages, each with one writer and one reader:
//!
//! ```text
//! application  -- work, commands -------->  worker
//!              <-- completions, events ---
//! ```
//!
//! Nothing is lost when a ring is full: the writer keeps its message and tries again. When either
//! side goes away, the other sees it: the worker then ends the application's Streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam::queue::ArrayQueue;
use iwarp::work::{CompletedOperation, Completion, ReceiveRequest, SendRequest, Status};
use tcpstack::time::Instant;

use crate::verbs::{Command, CommandRingFull, Event, QueuePairCompletion, QueuePairId, Verbs, VerbsError};

/// Commands and events that may wait; they are for set-up, not for data.
const CONTROL_DEPTH: usize = 1024;

/// One posted request.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// For the send queue.
    Send(QueuePairId, SendRequest),
    /// For the receive queue.
    Receive(QueuePairId, ReceiveRequest),
}

impl Work {
    /// The completion that says that no queue pair took it.
    pub(crate) fn refusal(&self) -> QueuePairCompletion {
        let (qp, id, operation) = match self {
            Self::Send(qp, request) => (*qp, request.id, request.operation.completed()),
            Self::Receive(qp, request) => {
                let operation = CompletedOperation::Receive { invalidated: None, solicited: false };
                (*qp, request.id, operation)
            }
        };
        let completion = Completion { id, operation, status: Status::Flushed, len: 0 };
        QueuePairCompletion { qp, completion }
    }
}

/// The rings, seen by both sides.
#[derive(Debug)]
pub(crate) struct Rings {
    pub(crate) work: ArrayQueue<Work>,
    pub(crate) commands: ArrayQueue<Command>,
    pub(crate) completions: ArrayQueue<QueuePairCompletion>,
    pub(crate) events: ArrayQueue<Event>,
    /// False once the application dropped its [`Client`].
    pub(crate) application_alive: AtomicBool,
    /// False once the worker ended.
    pub(crate) worker_alive: AtomicBool,
    /// The worker's clock, in nanoseconds, as of its latest turn.
    pub(crate) now: AtomicU64,
}

impl Rings {
    pub(crate) fn new(depth: usize) -> Arc<Self> {
        Arc::new(Self {
            work: ArrayQueue::new(depth),
            commands: ArrayQueue::new(CONTROL_DEPTH),
            completions: ArrayQueue::new(depth),
            events: ArrayQueue::new(CONTROL_DEPTH),
            application_alive: AtomicBool::new(true),
            worker_alive: AtomicBool::new(true),
            now: AtomicU64::new(0),
        })
    }
}

/// An application's end of the rings to a worker.
///
/// Posts are checked by the worker: a request that it cannot take (no such queue pair) comes
/// back as a flushed completion. Dropping the client ends its Streams.
#[derive(Debug)]
pub struct Client {
    rings: Arc<Rings>,
    /// An event that waits until the completions before it are taken.
    held: Option<Event>,
}

impl Client {
    pub(crate) fn new(rings: Arc<Rings>) -> Self {
        Self { rings, held: None }
    }

    /// Whether the worker still runs.
    pub fn is_connected(&self) -> bool {
        self.rings.worker_alive.load(Ordering::Acquire)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.rings.application_alive.store(false, Ordering::Release);
    }
}

impl Verbs for Client {
    fn post_send(&mut self, qp: QueuePairId, request: SendRequest) -> Result<(), VerbsError> {
        self.rings.work.push(Work::Send(qp, request)).map_err(|_| VerbsError::RingFull)
    }

    fn post_receive(&mut self, qp: QueuePairId, request: ReceiveRequest) -> Result<(), VerbsError> {
        self.rings.work.push(Work::Receive(qp, request)).map_err(|_| VerbsError::RingFull)
    }

    fn submit(&mut self, command: Command) -> Result<(), CommandRingFull> {
        self.rings.commands.push(command).map_err(|_| CommandRingFull)
    }

    fn next_completion(&mut self) -> Option<QueuePairCompletion> {
        self.rings.completions.pop()
    }

    fn next_event(&mut self) -> Option<Event> {
        // Looked at in this order: completions that were pushed before the event are seen then.
        self.held = self.held.take().or_else(|| self.rings.events.pop());
        if self.rings.completions.is_empty() { self.held.take() } else { None }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.rings.now.load(Ordering::Relaxed))
    }
}
