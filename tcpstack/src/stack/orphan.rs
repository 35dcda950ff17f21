//! Connections that the application has let go of before they were over.
//!
//! They end by themselves: all that is queued and the FIN are still sent, but nobody waits for
//! them. So what depends on the peer's good will alone has a limit: how long it may leave us in
//! FIN-WAIT-2, how long its window may stay closed, and how many such connections there are.

use super::{CloseReason, ConnectionId, Events, Stack, slot};
use crate::device::Device;
use crate::tcp::sender::Fin;
use crate::tcp::state::State;
use crate::tcp::timers::Timer;
use crate::time::Instant;

impl<D: Device> Stack<D> {
    /// Closes a connection and forgets it: what is queued is still sent, then the FIN.
    ///
    /// Data of the peer that were not fetched or that come later are lost, and the connection is
    /// reset for it. So it is at once when there are too many of its kind.
    // req 9293-3.6.1-1
    pub fn detach(&mut self, id: ConnectionId, now: Instant) {
        let orphans_full = self.orphans >= self.config.orphans_max;
        let Some(connection) = self.connection_mut(id) else { return };
        if connection.state.is_over() || connection.state == State::SynSent {
            self.release(id);
            return;
        }
        // req 9293-3.6.1-2
        if connection.receiver.fetch().is_some() || orphans_full {
            self.counters.orphans_reset += 1;
            self.release(id);
            return;
        }
        if connection.sender.fin == Fin::None {
            connection.close();
        }
        let unreported = connection.listener.filter(|_| connection.events.contains(Events::ACCEPTED));
        connection.released = true;
        connection.events = Events::NONE;
        connection.progress_at = now;
        self.orphans += 1;
        if let Some(listener) = unreported {
            self.listeners.reported(listener);
        }
        self.linger(id.index, now);
        self.add_work(id.index);
    }

    /// Connections that are not over, and that the application has let go of.
    pub fn orphans(&self) -> usize {
        self.orphans
    }

    /// One of them may now be in FIN-WAIT-2, where nothing but the peer ends it.
    pub(super) fn linger(&mut self, index: u32, now: Instant) {
        let until = now + self.config.fin_wait_2;
        let Some(connection) = slot(&mut self.connections, index) else { return };
        if connection.state == State::FinWait2 && connection.released {
            connection.timer = Timer::Linger(until);
            self.schedule(index);
        }
    }

    /// Something has happened that nobody will hear of.
    #[cold]
    pub(super) fn orphan_event(&mut self, index: u32) {
        let Some(connection) = slot(&mut self.connections, index) else { return };
        let events = core::mem::take(&mut connection.events);
        let before = connection.state;
        while connection.receiver.fetch().is_some() {}
        // req 9293-3.6.1-2
        if events.contains(Events::READABLE) && !before.is_over() {
            self.counters.orphans_reset += 1;
            self.reset_and_finish(index, before, CloseReason::Aborted);
        }
    }
}
