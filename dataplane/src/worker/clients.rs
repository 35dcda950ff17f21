//! The worker's ends towards its applications.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iwarp::types::{ProtectionDomain, Stag};
use tcpstack::time::Instant;

use crate::rings::{Client, Rings, Work};
use crate::verbs::{Event, QueuePairCompletion, QueuePairId};

/// Requests taken from one application's ring a turn, so that none starves the others.
pub(super) const WORK_BURST_MAX: usize = 64;

/// Events that may wait, besides those in the ring, before new connections to an application's
/// listeners are refused: peers that come and go must not fill the memory of a worker whose
/// application does not look. As many as come in a few turns while thousands connect at once.
pub(super) const EVENTS_WAITING_MAX: usize = 4096;

/// An application of this worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) usize);

impl ClientId {
    /// One of this application's protection domains among those of all: the same number of two
    /// applications names two domains, so that neither can reach what the other registered.
    // req 5041-8.3.2-4, 5042-3-3
    pub(super) fn domain(self, own: ProtectionDomain) -> ProtectionDomain {
        ProtectionDomain((self.0 as u64) << 32 | own.0 & u64::from(u32::MAX))
    }
}

/// All applications of one worker.
#[derive(Default)]
pub(super) struct Clients {
    ports: Vec<ClientPort>,
}

/// What waits for one application. Both queues are bounded: completions by the depths of its queue
/// pairs; events by its commands and connections, of which it gets no more from its listeners
/// while [`EVENTS_WAITING_MAX`] wait.
// req 5042-6.4.6-1, 5042-7.1-1
pub(super) struct ClientPort {
    pub(super) completions: VecDeque<QueuePairCompletion>,
    pub(super) events: VecDeque<Event>,
    /// `None` for an application on the worker itself.
    rings: Option<Arc<Rings>>,
    /// A request that its queue pair had no room for yet; the ring behind it waits.
    pub(super) stalled: Option<Work>,
    /// Requests taken from the ring, ever.
    pub(super) work_taken: u64,
    /// Disconnects that wait until so many requests are taken, in order; at most one a queue pair.
    disconnects: VecDeque<(u64, QueuePairId)>,
    /// What it registered.
    pub(super) registered: BTreeSet<Stag>,
}

impl Clients {
    pub(super) fn add_local(&mut self) -> ClientId {
        self.add(None)
    }

    pub(super) fn add_ring(&mut self, depth: usize) -> (ClientId, Client) {
        let rings = Rings::new(depth);
        (self.add(Some(Arc::clone(&rings))), Client::new(rings))
    }

    fn add(&mut self, rings: Option<Arc<Rings>>) -> ClientId {
        self.ports.push(ClientPort {
            completions: VecDeque::with_capacity(1024),
            events: VecDeque::with_capacity(64),
            rings,
            stalled: None,
            work_taken: 0,
            disconnects: VecDeque::new(),
            registered: BTreeSet::new(),
        });
        ClientId(self.ports.len() - 1)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = ClientId> + use<> {
        (0..self.ports.len()).map(ClientId)
    }

    pub(super) fn port(&mut self, id: ClientId) -> &mut ClientPort {
        &mut self.ports[id.0]
    }

    pub(super) fn event(&mut self, id: ClientId, event: Event) {
        self.port(id).events.push_back(event);
    }

    /// Whether an application behind rings has posted something.
    #[inline]
    pub(super) fn have_work(&self) -> bool {
        self.ports.iter().any(ClientPort::has_work)
    }

    /// Whether an application on the worker has something to take.
    #[inline]
    pub(super) fn have_news(&self) -> bool {
        let has = |port: &ClientPort| {
            port.rings.is_none() && !(port.completions.is_empty() && port.events.is_empty())
        };
        self.ports.iter().any(has)
    }

    /// Tells applications behind rings what time it is.
    pub(super) fn tell_time(&self, now: Instant) {
        for rings in self.ports.iter().filter_map(|port| port.rings.as_ref()) {
            rings.now.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Hands over to the rings what fits. True when something moved.
    pub(super) fn flush(&mut self) -> bool {
        let mut moved = false;
        for port in &mut self.ports {
            let Some(rings) = &port.rings else { continue };
            while let Some(completion) = port.completions.pop_front() {
                if let Err(completion) = rings.completions.push(completion) {
                    port.completions.push_front(completion);
                    break;
                }
                moved = true;
            }
            // Events after completions: a Stream's end is told after its last completion.
            while port.completions.is_empty()
                && let Some(event) = port.events.pop_front()
            {
                if let Err(event) = rings.events.push(event) {
                    port.events.push_front(event);
                    break;
                }
                moved = true;
            }
        }
        moved
    }

    /// Tells the applications behind rings that this worker ends.
    pub(super) fn close(&mut self, now: Instant) {
        self.flush();
        self.tell_time(now);
        for rings in self.ports.iter().filter_map(|port| port.rings.as_ref()) {
            rings.worker_alive.store(false, Ordering::Release);
        }
    }
}

impl ClientPort {
    /// Whether [`ClientPort::next_work`] or [`ClientPort::next_disconnect`] may have something.
    ///
    /// To pop from an empty ring takes a fence, to look whether it is empty does not.
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        let Some(rings) = &self.rings else { return false };
        self.stalled.is_some() || !self.disconnects.is_empty() || !rings.work.is_empty()
    }

    /// The next posted request of an application behind rings.
    pub(super) fn next_work(&mut self) -> Option<Work> {
        let rings = self.rings.as_ref()?;
        self.stalled.take().or_else(|| rings.work.pop())
    }

    /// The next command of an application behind rings.
    pub(super) fn next_command(&mut self) -> Option<crate::verbs::Command> {
        self.rings.as_ref()?.commands.pop()
    }

    /// Puts a disconnect off until everything that is in the ring now is taken.
    ///
    /// Whoever posted before it submitted finds its requests counted here: the rings order them.
    pub(super) fn disconnect_after_work(&mut self, qp: QueuePairId) {
        let waiting = self.rings.as_ref().map_or(0, |rings| rings.work.len());
        let mark = self.work_taken + waiting as u64 + u64::from(self.stalled.is_some());
        if !self.disconnects.iter().any(|(_, other)| *other == qp) {
            self.disconnects.push_back((mark, qp));
        }
    }

    /// The next queue pair whose disconnect need not wait any longer.
    pub(super) fn next_disconnect(&mut self) -> Option<QueuePairId> {
        self.disconnects.pop_front_if(|(mark, _)| *mark <= self.work_taken).map(|(_, qp)| qp)
    }

    /// Lets go of an application that went away; what it had registered.
    pub(super) fn forget(&mut self) -> BTreeSet<Stag> {
        self.rings = None;
        self.stalled = None;
        self.disconnects.clear();
        self.completions.clear();
        self.events.clear();
        std::mem::take(&mut self.registered)
    }

    /// Whether the application behind the rings went away.
    pub(super) fn is_gone(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| !rings.application_alive.load(Ordering::Acquire))
    }
}
