//! What the application does with connections.

use core::time::Duration;
use std::collections::VecDeque;

use super::{CloseReason, ConnectionId, ConnectionInfo, Events, SendError, Slot, Stack, slot};
use crate::config::{Keepalive, StackConfig};
use crate::device::{Device, Frame};
use crate::ethernet::{ETHERNET_LEN, VLAN_LEN};
use crate::header::IPV6_LEN;
use crate::tcp::compact::{KeepaliveTimes, Millis};
use crate::tcp::connection::Connection;
use crate::tcp::segment::{HEADER_LEN, OPTIONS_MAX};
use crate::tcp::sender::{Fin, sum_of};
use crate::tcp::state::State;
use crate::tcp::timers::Timer;
use crate::time::Instant;

/// Most octets of headers in front of a record.
const HEADERS_MAX: usize = ETHERNET_LEN + VLAN_LEN + IPV6_LEN + HEADER_LEN + OPTIONS_MAX;

const _: () = assert!(HEADERS_MAX <= crate::device::HEADROOM + OPTIONS_MAX);

impl<D: Device> Stack<D> {
    /// The next connection on which something has happened, and what.
    pub fn next_event(&mut self) -> Option<(ConnectionId, Events)> {
        while let Some(id) = self.events.pop_front() {
            let Some(connection) = self.connection_mut(id) else { continue };
            connection.in_events = false;
            let events = core::mem::take(&mut connection.events);
            let listener = connection.listener.filter(|_| events.contains(Events::ACCEPTED));
            if let Some(listener) = listener {
                self.listeners.reported(listener);
            }
            if !events.is_empty() {
                return Some((id, events));
            }
        }
        None
    }

    /// Why the connection is over; meaningful after [`Events::CLOSED`].
    pub fn close_reason(&self, id: ConnectionId) -> CloseReason {
        self.connection(id).map_or(CloseReason::Aborted, |connection| connection.reason)
    }

    /// The next payload in order, in the frame that brought it: its window is the payload.
    #[inline]
    pub fn receive_payload(&mut self, id: ConnectionId) -> Option<D::Frame> {
        self.connection_mut(id)?.receiver.fetch()
    }

    /// The application has done with `octets` of what it received: the window opens again.
    #[inline]
    pub fn release_window(&mut self, id: ConnectionId, octets: usize) {
        let Some(connection) = self.connection_mut(id) else { return };
        let octets = u32::try_from(octets).unwrap_or(u32::MAX);
        if connection.receiver.release(octets) && connection.state.may_receive() {
            self.add_work(id.index);
        }
    }

    /// Hands over all payload that is in order, frame by frame, and opens the window again by as
    /// much: for applications that have done with a frame when `take` returns.
    #[inline]
    pub fn consume(&mut self, id: ConnectionId, mut take: impl FnMut(D::Frame)) {
        let Some(connection) = checked(&mut self.connections, id) else { return };
        let mut octets = 0_u32;
        while let Some(frame) = connection.receiver.fetch() {
            octets = octets.saturating_add(u32::try_from(frame.bytes().len()).unwrap_or(u32::MAX));
            take(frame);
        }
        if connection.receiver.release(octets) && connection.state.may_receive() {
            self.add_work(id.index);
        }
    }

    /// The largest record that can be sent now.
    #[inline]
    pub fn emss(&self, id: ConnectionId) -> usize {
        self.connection(id).map_or(0, |connection| connection.record_max() as usize)
    }

    /// Octets that may be queued now: none, or at least one full record.
    ///
    /// [`Events::WRITABLE`] follows when it was none and is some again.
    #[inline]
    pub fn send_room(&self, id: ConnectionId) -> usize {
        self.connection(id).map_or(0, |connection| connection.send_room(&self.config) as usize)
    }

    /// Queues a record: the frame's window is the payload of one segment, at most
    /// [`Stack::emss`] octets, with [`HEADROOM`](crate::device::HEADROOM) in front. `push` marks
    /// the end of something that the peer can work on.
    ///
    /// # Errors
    /// See [`SendError`]; the record is in it.
    // req 9293-3.9.1.2-1
    // req 9293-3.7.4-2: nothing is ever held back to be joined with more.
    #[inline]
    pub fn send(
        &mut self,
        id: ConnectionId,
        record: D::Frame,
        push: bool,
    ) -> Result<(), SendError<D::Frame>> {
        match self.outlet(id) {
            Some(mut outlet) => outlet.send(record, push),
            None => Err(SendError::NotOpen(record)),
        }
    }

    /// The connection, to send several records on it.
    #[inline]
    pub fn outlet(&mut self, id: ConnectionId) -> Option<Outlet<'_, D::Frame>> {
        let connection = checked(&mut self.connections, id)?;
        let (config, work) = (&self.config, &mut self.work);
        Some(Outlet { connection, config, work, index: id.index, offload: self.offload })
    }

    /// Whether the peer has acknowledged all that was sent.
    pub fn all_acknowledged(&self, id: ConnectionId) -> bool {
        self.connection(id).is_none_or(|connection| connection.sender.records_len() == 0)
    }

    /// Octets queued and never sent.
    pub fn unsent(&self, id: ConnectionId) -> usize {
        self.connection(id).map_or(0, |connection| connection.sender.unsent() as usize)
    }

    /// Sends a FIN after all that is queued; data of the peer are still received.
    pub fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        if connection.state == State::SynSent {
            self.finish(id.index, State::SynSent, CloseReason::Aborted);
            return;
        }
        if connection.sender.fin == Fin::None
            && matches!(connection.state, State::SynReceived | State::Established | State::CloseWait)
        {
            connection.close();
            self.add_work(id.index);
        }
    }

    /// Ends the connection at once; the peer gets a reset with the next turn.
    pub fn abort(&mut self, id: ConnectionId, now: Instant) {
        let _ = now;
        let Some(connection) = self.connection_mut(id) else { return };
        let before = connection.state;
        if !before.is_over() {
            self.reset_and_finish(id.index, before, CloseReason::Aborted);
        }
    }

    /// Forgets a connection; one that is not over is aborted first. TIME-WAIT goes on without it.
    pub fn release(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection_mut(id) else { return };
        let before = connection.state;
        if !before.is_over() {
            self.reset_and_finish(id.index, before, CloseReason::Aborted);
        }
        let Some(connection) = self.connection_mut(id) else { return };
        let unreported = connection.listener.filter(|_| connection.events.contains(Events::ACCEPTED));
        connection.released = true;
        connection.events = Events::NONE;
        while connection.receiver.fetch().is_some() {}
        if let Some(listener) = unreported {
            self.listeners.reported(listener);
        }
        self.free_if_done(id.index);
    }

    /// Turns keep-alives of one connection on or off.
    // req 9293-3.8.4-2
    pub fn set_keepalive(&mut self, id: ConnectionId, keepalive: Option<Keepalive>, now: Instant) {
        let Some(connection) = self.connection_mut(id) else { return };
        connection.keepalive = keepalive.map(KeepaliveTimes::from);
        if matches!(connection.timer, Timer::Off | Timer::Keepalive { .. }) {
            connection.timer = Timer::Off;
            connection.arm(now);
            self.schedule(id.index);
        }
    }

    /// How long data of one connection may stay unacknowledged before it is given up: 1 ms to 49
    /// days. It may be set at any time, and counts from when progress was made last.
    ///
    /// Keep-alives have limits of their own (RFC 5482 section 4.2): those of an idle connection.
    // req 9293-3.8.3-2
    pub fn set_user_timeout(&mut self, id: ConnectionId, timeout: Duration, now: Instant) {
        let Some(connection) = self.connection_mut(id) else { return };
        connection.set_user_timeout(Millis::of(timeout), now);
        self.schedule(id.index);
    }

    /// The connection as it is now.
    pub fn info(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        Some(self.connection(id)?.info())
    }

    /// All connections.
    pub fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        let id = |(index, place): (usize, &Slot<D::Frame>)| {
            place.connection.as_ref().filter(|connection| !connection.released)?;
            Some(ConnectionId { index: u32::try_from(index).ok()?, generation: place.generation })
        };
        self.connections.iter().enumerate().filter_map(id)
    }

    #[inline]
    pub(super) fn connection(&self, id: ConnectionId) -> Option<&Connection<D::Frame>> {
        let place = self.connections.get(id.index as usize)?;
        let connection = place.connection.as_deref()?;
        (place.generation == id.generation && !connection.released).then_some(connection)
    }

    #[inline]
    pub(super) fn connection_mut(&mut self, id: ConnectionId) -> Option<&mut Connection<D::Frame>> {
        checked(&mut self.connections, id)
    }
}

/// A connection to send records on; see [`Stack::outlet`].
pub struct Outlet<'a, F: Frame> {
    connection: &'a mut Connection<F>,
    config: &'a StackConfig,
    work: &'a mut VecDeque<u32>,
    index: u32,
    offload: bool,
}

impl<F: Frame> Outlet<'_, F> {
    /// As [`Stack::emss`]; for one record more than that when the path is to be probed with it.
    #[inline]
    pub fn emss(&self) -> usize {
        self.connection.record_offer() as usize
    }

    /// As [`Stack::send_room`].
    #[inline]
    pub fn room(&self) -> usize {
        self.connection.send_room(self.config) as usize
    }

    /// As [`Stack::send`].
    ///
    /// # Errors
    /// See [`SendError`]; the record is in it.
    #[inline]
    pub fn send(&mut self, record: F, push: bool) -> Result<(), SendError<F>> {
        let connection = &mut *self.connection;
        if !connection.state.may_send() {
            return Err(SendError::NotOpen(record));
        }
        if connection.send_room(self.config) == 0 {
            return Err(SendError::Full(record));
        }
        let len = u32::try_from(record.bytes().len()).unwrap_or(u32::MAX);
        if len == 0 || (len > connection.emss && !connection.take_probe(len)) {
            return Err(SendError::Size(record));
        }
        if record.headroom() < HEADERS_MAX - OPTIONS_MAX {
            return Err(SendError::Headroom(record));
        }
        // Now that whoever made the octets has just written them; not when they are sent.
        let sum = if self.offload { 0 } else { sum_of(&record) };
        connection.sender.queue(record, len, push, sum);
        if !connection.in_work {
            connection.in_work = true;
            self.work.push_back(self.index);
        }
        Ok(())
    }
}

#[inline]
fn checked<F: Frame>(connections: &mut [Slot<F>], id: ConnectionId) -> Option<&mut Connection<F>> {
    let generation = connections.get(id.index as usize)?.generation;
    slot(connections, id.index).filter(|connection| generation == id.generation && !connection.released)
}
