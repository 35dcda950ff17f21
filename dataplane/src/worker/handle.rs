//! Questions to a running worker from other threads. They wait for its next housekeeping, so the
//! poll loop pays nothing for them.

use std::net::SocketAddr;
use std::time::Duration;

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};
use iwarp::mpa::Negotiated;
use tcpstack::addr::IpCidr;
use tcpstack::device::Device;
use tcpstack::stack::ConnectionInfo;

use super::engine::Engine;
use super::pair::{Pair, Phase};
use crate::mem::RegionInfo;
use crate::verbs::{ListenerId, QueuePairId};

/// Questions that may wait.
const QUERIES_MAX: usize = 64;

/// How long an answer may take; a running worker takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// A question to a worker, or a setting.
#[derive(Clone, Debug)]
pub enum Query {
    /// All counters of all layers: [`Reply::Counters`].
    Counters,
    /// All connections: [`Reply::Connections`].
    Connections,
    /// All listeners: [`Reply::Listeners`].
    Listeners,
    /// All registered memory: [`Reply::Regions`].
    Regions,
    /// Give the port one more address: [`Reply::Done`].
    AddAddress(IpCidr),
    /// Take an address away: [`Reply::Done`].
    RemoveAddress(std::net::IpAddr),
    /// Send packets for a network through a gateway: [`Reply::Done`].
    AddRoute(IpCidr, std::net::IpAddr),
    /// Forget a route through a gateway: [`Reply::Done`].
    RemoveRoute(IpCidr, std::net::IpAddr),
}

/// The answer to a [`Query`].
#[derive(Clone, Debug)]
pub enum Reply {
    /// Layer, counter, count.
    Counters(Vec<(&'static str, &'static str, u64)>),
    /// One line a connection.
    Connections(Vec<ConnectionSummary>),
    /// One line a listener.
    Listeners(Vec<ListenerSummary>),
    /// One line a registration.
    Regions(Vec<RegionInfo>),
    /// A setting was made, or why not.
    Done(Result<(), String>),
}

/// A connection, for display.
#[derive(Clone, Debug)]
pub struct ConnectionSummary {
    /// Its queue pair.
    pub qp: QueuePairId,
    /// Phase of start-up, or of the Stream.
    pub phase: &'static str,
    /// What MPA negotiated, once it did.
    pub negotiated: Option<Negotiated>,
    /// TCP's view.
    pub tcp: Option<ConnectionInfo>,
}

/// A listener, for display.
#[derive(Clone, Debug)]
pub struct ListenerSummary {
    /// Its id.
    pub listener: ListenerId,
    /// Address and TCP port.
    pub local: SocketAddr,
}

/// No answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// The worker ended.
    #[error("the worker is not running")]
    Gone,
    /// The worker did not answer in time.
    #[error("the worker does not answer; is its core overloaded?")]
    TimedOut,
}

/// Access to a running worker from another thread.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    queries: Sender<(Query, Sender<Reply>)>,
}

impl WorkerHandle {
    /// Asks and waits for the answer, at most 2 s.
    ///
    /// # Errors
    /// When the worker ended or does not answer.
    pub fn query(&self, query: Query) -> Result<Reply, QueryError> {
        let (sender, receiver) = channel::bounded(1);
        self.queries.send_timeout((query, sender), PATIENCE).map_err(|error| match error {
            channel::SendTimeoutError::Timeout(_) => QueryError::TimedOut,
            channel::SendTimeoutError::Disconnected(_) => QueryError::Gone,
        })?;
        receiver.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => QueryError::TimedOut,
            RecvTimeoutError::Disconnected => QueryError::Gone,
        })
    }
}

/// The worker's end.
pub(super) struct QueryEnd {
    queries: Receiver<(Query, Sender<Reply>)>,
    handle: WorkerHandle,
}

impl QueryEnd {
    pub(super) fn new() -> Self {
        let (sender, receiver) = channel::bounded(QUERIES_MAX);
        Self { queries: receiver, handle: WorkerHandle { queries: sender } }
    }

    pub(super) fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }

    pub(super) fn serve<D: Device>(&self, engine: &mut Engine<D>) {
        while let Ok((query, answer)) = self.queries.try_recv() {
            // Who asked may have given up: then nobody wants the answer.
            let _ = answer.send(engine.answer(&query));
        }
    }
}

impl<D: Device> Engine<D> {
    fn answer(&mut self, query: &Query) -> Reply {
        match query {
            Query::Counters => Reply::Counters(self.all_counters()),
            Query::Connections => {
                Reply::Connections(self.pairs.iter().map(|pair| self.summary(pair)).collect())
            }
            Query::Listeners => Reply::Listeners(self.listener_summaries()),
            Query::Regions => Reply::Regions(self.memory.regions().collect()),
            Query::AddAddress(address) => Reply::Done(
                self.stack.interface_mut().add_address(*address).map_err(|error| error.to_string()),
            ),
            Query::RemoveAddress(address) => {
                let removed = self.stack.interface_mut().remove_address(*address);
                let error = || format!("{address} is not an address of this port");
                Reply::Done(if removed { Ok(()) } else { Err(error()) })
            }
            Query::AddRoute(network, gateway) => Reply::Done(
                self.stack.interface_mut().add_route(*network, *gateway).map_err(|error| error.to_string()),
            ),
            Query::RemoveRoute(network, gateway) => {
                let removed = self.stack.interface_mut().remove_route(*network, *gateway);
                let error = || format!("there is no route to {network} via {gateway}");
                Reply::Done(if removed { Ok(()) } else { Err(error()) })
            }
        }
    }

    fn all_counters(&self) -> Vec<(&'static str, &'static str, u64)> {
        let worker = self.counters.iter().map(|(name, count)| ("worker", name, count));
        let tcp = self.stack.counters().iter().map(|(name, count)| ("tcp", name, count));
        let interface =
            self.stack.interface().counters().iter().map(|(name, count)| ("interface", name, count));
        worker.chain(tcp).chain(interface).collect()
    }

    fn summary(&self, pair: &Pair<D::Frame>) -> ConnectionSummary {
        let negotiated = match &pair.phase {
            Phase::Streaming(streaming) => Some(streaming.negotiated),
            _ => None,
        };
        ConnectionSummary {
            qp: pair.id,
            phase: pair.phase.name(),
            negotiated,
            tcp: self.stack.info(pair.connection),
        }
    }

    fn listener_summaries(&self) -> Vec<ListenerSummary> {
        let named = self.listeners.iter().zip(0..);
        named
            .filter_map(|(listener, index)| {
                let local = listener.as_ref()?.local;
                Some(ListenerSummary { listener: ListenerId(index), local })
            })
            .collect()
    }
}
