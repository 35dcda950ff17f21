//! Connections in TIME-WAIT: how they get there, what they answer, and how they go.

use super::{CloseReason, Events, Stack, TIME_WAIT, slot};
use crate::device::{Device, Frame};
use crate::interface::TcpDatagram;
use crate::tcp::connection::NEVER;
use crate::tcp::options::{Options, Timestamps};
use crate::tcp::segment::{Flags, Header, Segment};
use crate::tcp::time_wait::{Remains, Verdict};
use crate::time::Instant;

impl<D: Device> Stack<D> {
    /// A connection has come to TIME-WAIT: the table takes over.
    pub(super) fn enter_time_wait(&mut self, index: u32, now: Instant) {
        if self.time_wait.is_full()
            && let Some(oldest) = self.time_wait.oldest()
        {
            self.counters.time_wait_recycled += 1;
            self.forget_time_wait(oldest);
        }
        let Some(connection) = slot(&mut self.connections, index) else { return };
        let remains = Remains {
            local: connection.local.into(),
            remote: connection.remote.into(),
            snd_nxt: connection.sender.nxt,
            rcv_nxt: connection.receiver.nxt,
            window: connection.receiver.advertise(),
            timestamps: connection.timestamps,
            since: now,
        };
        // The last word is an ACK of the peer's FIN, unless that was said in CLOSING already.
        let owed = connection.ack.now && connection.template.is_some();
        self.orphans -= usize::from(connection.released);
        connection.discard(&mut self.early, &mut self.windows);
        connection.ack.now = owed;
        connection.events.insert(Events::CLOSED);
        connection.reason = CloseReason::Graceful;
        self.timers.clear(index);
        connection.wheel_at = NEVER;
        // req 9293-3.6.1-3
        let entry = self.time_wait.insert(remains, now + 2 * self.config.msl);
        let entry = u32::try_from(entry).expect("a bounded table");
        self.flows.insert(remains.key(), TIME_WAIT | entry);
        self.counters.closed += 1;
    }

    /// A segment for a four-tuple in TIME-WAIT.
    pub(super) fn arrives_in_time_wait(
        &mut self,
        index: u32,
        segment: &Segment,
        datagram: &TcpDatagram<D::Frame>,
        device: &mut D,
        now: Instant,
    ) {
        let entry = index as usize;
        let options = Options::parse(segment.options(datagram.frame.bytes()));
        match self.time_wait.arrives(entry, segment, &options, self.config.timestamps) {
            Verdict::Ignore => {}
            Verdict::Delete => self.forget_time_wait(entry),
            Verdict::Acknowledge { restart } => {
                if restart {
                    self.time_wait.restart(entry, now + 2 * self.config.msl);
                }
                let remains = *self.time_wait.get(entry);
                let header = Header {
                    source_port: remains.local.port(),
                    destination_port: remains.remote.port(),
                    seq: remains.snd_nxt,
                    ack: remains.rcv_nxt,
                    flags: Flags::ACK,
                    window: remains.window,
                };
                let timestamps: Option<Timestamps> = remains.timestamps.map(|state| state.stamp(now));
                let options = Options { timestamps, ..Options::default() };
                // One for one, but limited together with the resets: both answer strangers.
                if self.resets.allow(self.config.resets, now) {
                    let way = (datagram.destination, datagram.source, datagram.source_mac);
                    self.send_stateless(&header, &options, way, device);
                }
            }
            Verdict::Reopen => {
                let remains = *self.time_wait.get(entry);
                self.open_passively(segment, datagram, Some(remains.snd_nxt), device, now);
                // The new connection has taken the old one's place, unless there was no room for it.
                if self.flows.peek(&remains.key()) != Some(TIME_WAIT | index) {
                    self.counters.time_wait_recycled += 1;
                    self.time_wait.remove(entry);
                }
            }
        }
    }

    pub(super) fn forget_time_wait(&mut self, entry: usize) {
        let remains = self.time_wait.remove(entry);
        self.flows.remove(&remains.key());
    }
}
