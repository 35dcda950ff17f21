//! TIME-WAIT (RFC 9293 section 3.3.2, RFC 6191): connections that are over but for old segments.
//!
//! They need far less than a connection, so they have a table of their own, bounded; all wait
//! equally long, so a list in the order of their deadlines does for a timer. When the table is
//! full the oldest one gives way.

use core::net::SocketAddr;

use slab::Slab;

use super::options::Options;
use super::segment::{Flags, Segment};
use crate::flow::FlowKey;
use crate::seq::SeqNumber;
use crate::time::Instant;

/// No entry.
const NONE: usize = usize::MAX;

/// What is left of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remains {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// SND.NXT.
    pub(crate) snd_nxt: SeqNumber,
    /// RCV.NXT, beyond the peer's FIN.
    pub(crate) rcv_nxt: SeqNumber,
    /// The window field of our ACKs.
    pub(crate) window: u16,
    /// TS.Recent and the offset of our own clock, when timestamps were in use.
    pub(crate) timestamps: Option<super::connection::TimestampState>,
    /// When TIME-WAIT began.
    pub(crate) since: Instant,
}

impl Remains {
    /// The flow table's key.
    pub(crate) fn key(&self) -> FlowKey {
        FlowKey::of(self.local, self.remote)
    }
}

/// What a segment does to a connection in TIME-WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Ignore,
    /// Acknowledge it; `restart` the wait when it is the peer's FIN again.
    Acknowledge { restart: bool },
    /// It is a SYN that may begin the next connection of the same four-tuple.
    Reopen,
    /// The peer has given up: forget the connection.
    Delete,
}

/// The connections in TIME-WAIT.
#[derive(Debug)]
pub(crate) struct TimeWait {
    entries: Slab<Entry>,
    /// The one that began to wait first, and the last one.
    oldest: usize,
    newest: usize,
    max: usize,
}

#[derive(Debug)]
struct Entry {
    remains: Remains,
    until: Instant,
    older: usize,
    newer: usize,
}

impl TimeWait {
    /// An empty table for `max` connections.
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: Slab::new(), oldest: NONE, newest: NONE, max }
    }

    /// Adds a connection until `until`, which is no earlier than all before.
    pub(crate) fn insert(&mut self, remains: Remains, until: Instant) -> usize {
        let index = self.entries.insert(Entry { remains, until, older: NONE, newer: NONE });
        self.link(index);
        index
    }

    /// Whether the oldest has to go before another one is added.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.max
    }

    /// The oldest one.
    pub(crate) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The oldest one, when its time is over.
    pub(crate) fn expired(&self, now: Instant) -> Option<usize> {
        self.oldest().filter(|&index| self.entries[index].until <= now)
    }

    /// When the oldest one's time is over.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.oldest().map(|index| self.entries[index].until)
    }

    /// Begins the wait anew.
    pub(crate) fn restart(&mut self, index: usize, until: Instant) {
        self.unlink(index);
        self.entries[index].until = until;
        self.link(index);
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, index: usize) -> Remains {
        self.unlink(index);
        self.entries.remove(index).remains
    }

    /// What is left of the connection.
    pub(crate) fn get(&self, index: usize) -> &Remains {
        &self.entries[index].remains
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What `segment` does to this one.
    pub(crate) fn arrives(&self, index: usize, segment: &Segment, options: &Options) -> Verdict {
        let remains = self.get(index);
        if segment.flags.contains(Flags::RST) {
            return if segment.seq == remains.rcv_nxt { Verdict::Delete } else { Verdict::Ignore };
        }
        if segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK) {
            // req 9293-3.6.1-4
            // req 9293-3.6.1-5: by the timestamp if there is one, else by the sequence number.
            let newer = match (remains.timestamps, options.timestamps) {
                (Some(ours), Some(theirs)) if theirs.value != ours.recent => {
                    SeqNumber::new(theirs.value).after(SeqNumber::new(ours.recent))
                }
                _ => segment.seq.after(remains.rcv_nxt),
            };
            return if newer { Verdict::Reopen } else { Verdict::Acknowledge { restart: false } };
        }
        if segment.sequence_len() == 0 && segment.seq == remains.rcv_nxt {
            return Verdict::Ignore;
        }
        Verdict::Acknowledge { restart: segment.flags.contains(Flags::FIN) }
    }

    fn link(&mut self, index: usize) {
        let newest = core::mem::replace(&mut self.newest, index);
        let entry = &mut self.entries[index];
        (entry.older, entry.newer) = (newest, NONE);
        match self.entries.get_mut(newest) {
            Some(entry) => entry.newer = index,
            None => self.oldest = index,
        }
    }

    fn unlink(&mut self, index: usize) {
        let Entry { older, newer, .. } = self.entries[index];
        match self.entries.get_mut(older) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }
}
