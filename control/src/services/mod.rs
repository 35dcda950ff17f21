//! What an appliance offers to its peers: applications over the engine's `Verbs`.
//!
//! Each is a state machine that a worker polls ([`Application`]); none blocks, and all its state is bounded
//! by the connections that it accepts.

pub mod counters;
pub mod echo;
pub mod outbox;
pub mod perf;
pub mod rping;
pub mod server;
pub mod slot;

#[cfg(test)]
pub(crate) mod testing;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use dataplane::verbs::{Application, ConnectError};

pub use rping::client as rping_client;

/// What a user can do about a connection that was not made.
pub fn connect_hint(error: ConnectError) -> &'static str {
    match error {
        ConnectError::Refused => " (its host is there, but no such service listens)",
        ConnectError::TimedOut => {
            " (its host is there: is TCP dropped on the way, or the service overloaded?)"
        }
        ConnectError::Unreachable => {
            " (is it running, on this wire, with that address? An appliance does not answer after `stop`)"
        }
        ConnectError::NoRoute => " (it is in no network of this end, and there is no gateway)",
        _ => "",
    }
}

/// An application that can be ended while its worker runs on.
pub trait Service: Application + Send {
    /// What the control plane sees of it, and how it is told to end.
    fn supervision(&self) -> Arc<Supervision>;
}

/// What a service and the control plane share.
#[derive(Debug, Default)]
pub struct Supervision {
    stop: AtomicBool,
    state: AtomicU8,
    error: OnceLock<String>,
}

/// How far a service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// Not polled yet, or waiting for its listener.
    Starting,
    /// Open for connections.
    Listening,
    /// It could not listen.
    Failed,
    /// Ended as it was told; its connections and memory are gone.
    Stopped,
}

impl Supervision {
    /// Tells the service to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the service was told to end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// How far the service is.
    pub fn state(&self) -> ServiceState {
        match self.state.load(Ordering::Acquire) {
            0 => ServiceState::Starting,
            1 => ServiceState::Listening,
            2 => ServiceState::Failed,
            _ => ServiceState::Stopped,
        }
    }

    /// Why it failed.
    pub fn error(&self) -> Option<&str> {
        self.error.get().map(String::as_str)
    }

    /// The service says how far it is.
    pub fn set(&self, state: ServiceState) {
        let number = match state {
            ServiceState::Starting => 0,
            ServiceState::Listening => 1,
            ServiceState::Failed => 2,
            ServiceState::Stopped => 3,
        };
        self.state.store(number, Ordering::Release);
    }

    /// The service says that it cannot serve.
    pub fn fail(&self, error: String) {
        // A second failure says nothing that the first did not.
        let _ = self.error.set(error);
        self.set(ServiceState::Failed);
    }
}
