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

    /// What `segment` does to this one; `stamped` when timestamps are spoken here.
    pub(crate) fn arrives(
        &self,
        index: usize,
        segment: &Segment,
        options: &Options,
        stamped: bool,
    ) -> Verdict {
        let remains = self.get(index);
        if segment.flags.contains(Flags::RST) {
            return if segment.seq == remains.rcv_nxt { Verdict::Delete } else { Verdict::Ignore };
        }
        if segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK) {
            // req 9293-3.6.1-4
            // req 9293-3.6.1-5: RFC 6191 section 2, but that a SYN too old is acknowledged, not
            // dropped: a peer that means it resets the old connection, and its next SYN finds none.
            let above = segment.seq.at_or_after(remains.rcv_nxt);
            let newer = match (remains.timestamps, options.timestamps.filter(|_| stamped)) {
                (Some(ours), Some(theirs)) if theirs.value != ours.recent => {
                    SeqNumber::new(theirs.value).after(SeqNumber::new(ours.recent))
                }
                (None, Some(_)) => true,
                _ => above,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::connection::TimestampState;
    use crate::tcp::options::Timestamps;
    use crate::time::Coarse;

    const RCV_NXT: SeqNumber = SeqNumber::new(5);

    fn remains(port: u16, recent: Option<u32>) -> Remains {
        let timestamps = recent.map(|recent| TimestampState {
            recent,
            recent_at: Coarse::default(),
            offset: 0,
            last_ack: RCV_NXT,
            echoed: 0,
        });
        Remains {
            local: SocketAddr::from(([192, 0, 2, 1], 80)),
            remote: SocketAddr::from(([192, 0, 2, 2], port)),
            snd_nxt: SeqNumber::new(9),
            rcv_nxt: RCV_NXT,
            window: 1000,
            timestamps,
            since: Instant::ZERO,
        }
    }

    fn segment(flags: Flags, seq: SeqNumber) -> Segment {
        Segment {
            source_port: 1,
            destination_port: 80,
            seq,
            ack: SeqNumber::default(),
            flags,
            window: 1000,
            header_len: 20,
            payload_len: 0,
        }
    }

    /// The paragraphs of RFC 6191 section 2; the previous connection's last timestamp is 100, the
    /// number of its FIN 4.
    // proves 9293-3.6.1-4
    // proves 9293-3.6.1-5
    #[test]
    fn which_syns_begin_the_next_connection() {
        let (old, new) = (RCV_NXT - 1, RCV_NXT);
        for (recent, syn, seq, reopens) in [
            (Some(100), Some(101), old, true),
            (Some(100), Some(100), new, true),
            (Some(100), Some(100), old, false),
            (Some(100), Some(99), new, false),
            (Some(100), None, new, true),
            (Some(100), None, old, false),
            (None, Some(1), old, true),
            (None, None, new, true),
            (None, None, old, false),
        ] {
            let mut table = TimeWait::new(4);
            let index = table.insert(remains(1, recent), Instant::from_nanos(1));
            let timestamps = syn.map(|value| Timestamps { value, echo: 0 });
            let options = Options { timestamps, ..Options::default() };
            let verdict = table.arrives(index, &segment(Flags::SYN, seq), &options, true);
            let expected = if reopens { Verdict::Reopen } else { Verdict::Acknowledge { restart: false } };
            assert_eq!(verdict, expected, "{recent:?} {syn:?} {seq}");
        }
        // Timestamps that we do not speak count for nothing.
        let mut table = TimeWait::new(4);
        let index = table.insert(remains(1, None), Instant::from_nanos(1));
        let options = Options { timestamps: Some(Timestamps { value: 1, echo: 0 }), ..Options::default() };
        let verdict = table.arrives(index, &segment(Flags::SYN, old), &options, false);
        assert_eq!(verdict, Verdict::Acknowledge { restart: false });
    }

    #[test]
    fn only_an_exact_reset_and_the_fin_again_do_anything_else() {
        let mut table = TimeWait::new(4);
        let index = table.insert(remains(1, None), Instant::from_nanos(1));
        let none = Options::default();
        for (flags, seq, verdict) in [
            (Flags::RST, RCV_NXT, Verdict::Delete),
            (Flags::RST, RCV_NXT + 1, Verdict::Ignore),
            (Flags::RST, RCV_NXT - 1, Verdict::Ignore),
            (Flags::ACK, RCV_NXT, Verdict::Ignore),
            (Flags::ACK, RCV_NXT + 1, Verdict::Acknowledge { restart: false }),
            (Flags::FIN | Flags::ACK, RCV_NXT - 1, Verdict::Acknowledge { restart: true }),
            (Flags::SYN | Flags::ACK, RCV_NXT + 7, Verdict::Acknowledge { restart: false }),
        ] {
            assert_eq!(table.arrives(index, &segment(flags, seq), &none, true), verdict, "{flags:?} {seq}");
        }
    }

    #[test]
    fn all_wait_in_the_order_in_which_they_began_last() {
        let mut table = TimeWait::new(3);
        let at = Instant::from_nanos;
        let [a, b, c] = [1, 2, 3].map(|n| table.insert(remains(n, None), at(n.into())));
        assert!(table.is_full());
        assert_eq!((table.expired(at(0)), table.expired(at(1)), table.next()), (None, Some(a), Some(at(1))));
        table.restart(a, at(4));
        assert_eq!(table.oldest(), Some(b));
        assert_eq!(table.remove(c).remote.port(), 3);
        assert_eq!(table.remove(b).remote.port(), 2);
        assert_eq!((table.oldest(), table.next(), table.len()), (Some(a), Some(at(4)), 1));
        table.remove(a);
        assert_eq!((table.oldest(), table.len()), (None, 0));
    }
}
