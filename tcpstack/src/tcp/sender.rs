//! The send sequence space: records queued and in flight, and the peer's window.
//!
//! ```text
//!  SND.UNA        resend          SND.NXT          end
//!  v              v               v                v
//!  [ r ][  r  ][ r ][   r   ][ r ][ r ][   r   ][ r ]  FIN
//!   sent, and    sent, to be       not sent yet
//!   in flight    sent again
//! ```
//!
//! One record is the data of one segment and stays so over all retransmissions: nothing is
//! merged, and cut only when the path's MTU or the peer's window leaves no other way
//! ([`Sender::split`]). What was sent is kept by a second reference to the frame itself.

use core::time::Duration;
use std::collections::VecDeque;

use crate::checksum;
use crate::device::{Device, Frame, Held};
use crate::seq::SeqNumber;
use crate::time::Instant;

use super::options::SackBlock;
use super::rack::{Rack, Urgent};

/// The data of one segment.
pub(crate) struct Record<F: Frame> {
    pub(crate) seq: SeqNumber,
    pub(crate) len: u32,
    pub(crate) push: bool,
    /// The checksum's sum over its octets, made when they are in the nearest cache; of no use to a
    /// device that makes its own.
    sum: u16,
    /// Sent more than once: no round-trip time can be told from it (Karn).
    pub(super) retransmitted: bool,
    /// Reported by a SACK block.
    pub(super) sacked: bool,
    /// Shown to be lost, and not sent again since.
    pub(super) lost: bool,
    /// When it was sent last.
    pub(super) sent_at: Instant,
    body: Body<F>,
}

impl<F: Frame> Record<F> {
    /// The first sequence number after it.
    pub(crate) fn end(&self) -> SeqNumber {
        self.seq + self.len
    }
}

/// A record to be sent now.
pub(crate) struct Departure<F> {
    /// Its window is the record's octets.
    pub(crate) frame: F,
    pub(crate) seq: SeqNumber,
    pub(crate) len: u32,
    pub(crate) push: bool,
    /// The checksum's sum over the octets.
    pub(crate) sum: u16,
    /// Whether it was sent before.
    pub(crate) again: bool,
}

/// Where a record's octets are.
enum Body<F: Frame> {
    /// In a frame of our own; its window is the record.
    Owned(F),
    /// In a frame that was sent.
    Held(F::Held),
    /// With the caller of [`Sender::take`], until [`Sender::keep`].
    Taken,
}

/// How far our FIN has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fin {
    /// The application has not closed.
    None,
    /// It is to be sent, for the first time or again, after all records.
    Pending,
    /// It is in flight.
    Sent,
}

/// What an acknowledgment acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    pub(crate) octets: u32,
    /// How many of them SACK had reported before.
    pub(crate) reported: u32,
    /// The age of the oldest record of it, when none was sent twice.
    pub(crate) rtt: Option<Duration>,
}

/// The sending half of a connection.
pub(crate) struct Sender<F: Frame> {
    /// SND.UNA.
    pub(crate) una: SeqNumber,
    /// SND.NXT.
    pub(crate) nxt: SeqNumber,
    /// SND.WND, scaled.
    pub(crate) wnd: u32,
    /// The largest window that the peer ever offered: MAX.SND.WND of RFC 5961.
    pub(crate) wnd_max: u32,
    /// SND.WL1.
    wl1: SeqNumber,
    /// SND.WL2.
    wl2: SeqNumber,
    /// The peer's window shift; zero before its SYN.
    pub(crate) scale: u8,
    pub(crate) fin: Fin,
    pub(super) records: VecDeque<Record<F>>,
    /// Records sent: `resend <= sent <= records.len()`.
    pub(super) sent: usize,
    /// Records in flight; those up to `sent` were given up and go again.
    pub(super) resend: usize,
    /// The sequence number of what is queued next.
    end: SeqNumber,
    /// Octets below `resend` that SACK reported and that are not yet acknowledged.
    pub(super) sacked: u32,
    /// Octets below `resend` that are lost and were not sent again.
    pub(super) lost: u32,
    /// No record before this is lost.
    pub(super) lost_from: SeqNumber,
    /// The highest sequence number that was acknowledged or reported by SACK: RACK.fack.
    pub(super) sacked_to: SeqNumber,
    /// Records before this, as sent first, were judged lost or not.
    pub(super) judged_to: SeqNumber,
    pub(super) urgent: Urgent,
    pub(super) rack: Rack,
}

impl<F: Frame> Sender<F> {
    /// The sender of a connection whose SYN has the number `iss`.
    pub(crate) fn new(iss: SeqNumber) -> Self {
        Self {
            una: iss,
            nxt: iss,
            wnd: 0,
            wnd_max: 0,
            wl1: SeqNumber::default(),
            wl2: SeqNumber::default(),
            scale: 0,
            fin: Fin::None,
            records: VecDeque::new(),
            sent: 0,
            resend: 0,
            end: iss + 1,
            sacked: 0,
            lost: 0,
            lost_from: iss,
            sacked_to: iss,
            judged_to: iss,
            urgent: Urgent::None,
            rack: Rack::new(iss),
        }
    }

    /// Appends a record; `frame` shows its octets, `sum` is the checksum's over them.
    #[inline]
    pub(crate) fn queue(&mut self, frame: F, len: u32, push: bool, sum: u16) {
        let (seq, sent_at) = (self.end, Instant::ZERO);
        self.end += len;
        let body = Body::Owned(frame);
        self.records.push_back(Record {
            seq,
            len,
            push,
            sum,
            retransmitted: false,
            sacked: false,
            lost: false,
            sent_at,
            body,
        });
    }

    /// Takes an acknowledgment with `una < ack <= nxt` into account and frees what it covers.
    pub(crate) fn acknowledge(&mut self, ack: SeqNumber, now: Instant) -> Acknowledged {
        let octets = ack.since(self.una);
        self.una = ack;
        let mut oldest = None;
        let mut clean = true;
        let mut reported = 0;
        while self.sent > 0
            && let Some(record) = self.records.front()
            && record.end().at_or_before(ack)
        {
            clean &= !record.retransmitted;
            oldest = oldest.or(Some(record.sent_at));
            // The round trip of a reported record ended when it was reported, not now.
            if record.sacked {
                clean = false;
                reported += record.len;
            } else {
                self.rack.deliver(record.sent_at, record.end(), record.retransmitted);
            }
            if self.resend > 0 {
                self.resend -= 1;
                self.sacked -= if record.sacked { record.len } else { 0 };
                self.lost -= if record.lost { record.len } else { 0 };
            }
            self.records.pop_front();
            self.sent -= 1;
            self.urgent = Urgent::None;
        }
        // Kept near SND.UNA, lest they seem to be ahead of it when it has moved far.
        self.sacked_to = self.sacked_to.max(ack);
        self.judged_to = self.judged_to.max(ack);
        // req 9293-3.8.1-1: Karn's algorithm.
        Acknowledged { octets, reported, rtt: oldest.filter(|_| clean).map(|sent_at| now - sent_at) }
    }

    /// Takes the window of a segment that acknowledges nothing new, unless a newer one has told
    /// it already. Returns whether it changed.
    // req 9293-3.1-1, 9293-3.1-2
    pub(crate) fn update_window(&mut self, seq: SeqNumber, ack: SeqNumber, window: u32) -> bool {
        // Windows count from their acknowledgment: an old one's would reach too far from here.
        if ack != self.una {
            return false;
        }
        // As the peer's edge never moves back, the one that is farther is also newer.
        let newer = self.wl1.before(seq) || (self.wl1 == seq && self.wl2.at_or_before(ack));
        if !newer && window <= self.wnd {
            return false;
        }
        let changed = self.wnd != window;
        self.set_window(seq, ack, window);
        changed
    }

    /// Takes the window of a segment that acknowledges something new: none told it later.
    pub(crate) fn set_window(&mut self, seq: SeqNumber, ack: SeqNumber, window: u32) {
        (self.wl1, self.wl2) = (seq, ack);
        self.wnd = window;
        self.wnd_max = self.wnd_max.max(window);
    }

    /// Marks what the blocks report; returns how many octets they report for the first time.
    pub(crate) fn mark_sacked(&mut self, blocks: &[SackBlock]) -> u32 {
        let mut reported = 0;
        for block in blocks {
            // A block of old data (D-SACK) or of nonsense tells nothing about a loss.
            let plausible = block.start.before(block.end)
                && block.start.at_or_after(self.una)
                && block.end.at_or_before(self.nxt);
            if !plausible {
                continue;
            }
            // What an earlier block of this start has marked is passed over at its length in
            // records; a window holds a thousand of them.
            let first = self.records.partition_point(|record| record.seq.before(block.start));
            for index in first.min(self.sent)..self.sent {
                let record = &mut self.records[index];
                if record.end().after(block.end) {
                    break;
                }
                if record.sacked {
                    continue;
                }
                record.sacked = true;
                reported += record.len;
                self.rack.report(record.sent_at, record.end(), record.retransmitted);
                if index < self.resend {
                    self.sacked += record.len;
                    self.lost -= if record.lost { record.len } else { 0 };
                }
                record.lost = false;
            }
            self.sacked_to = self.sacked_to.max(block.end);
        }
        reported
    }

    /// Judges which records are lost: more than two segments above them have arrived
    /// (RFC 6675 section 4, IsLost). Returns whether any is.
    pub(crate) fn judge_lost(&mut self, mss: u32) -> bool {
        let from = self.judged_to.max(self.una);
        let first = self.records.partition_point(|record| record.seq.before(from));
        for index in first..self.resend {
            let record = &mut self.records[index];
            if self.sacked_to.since(record.end()) <= 2 * mss {
                break;
            }
            self.judged_to = record.end();
            if !record.sacked {
                self.lost_from = if self.lost == 0 { record.seq } else { self.lost_from };
                record.lost = true;
                self.lost += record.len;
            }
        }
        self.lost > 0
    }

    /// The first record is to be sent again at once, unless that was done since `since`.
    pub(crate) fn repeat_first(&mut self, since: Option<Instant>) {
        let Some(first) = self.records.front() else { return };
        let again = self.sent > 0 && since.is_none_or(|since| first.sent_at < since);
        self.urgent = if again { Urgent::First } else { Urgent::None };
    }

    /// The next record to be sent within the windows: a repetition first, then a new one.
    // req 9293-3.8.6-3
    #[inline]
    pub(crate) fn next(&mut self, cwnd: u32) -> Option<usize> {
        if self.urgent != Urgent::None
            && let Some(index) = self.next_urgent()
        {
            return Some(index);
        }
        if self.lost > 0 {
            return self.next_lost(cwnd);
        }
        while self.resend < self.sent && self.records[self.resend].sacked {
            self.sacked += self.records[self.resend].len;
            self.resend += 1;
        }
        let index = self.resend;
        let record = self.records.get(index)?;
        let used = record.end().since(self.una);
        // A timeout sends the first one again even into a closed window.
        let fits = used <= self.wnd || (index == 0 && self.sent > 0);
        // With nothing in flight one segment may go, however small the congestion window.
        let allowed = used.saturating_sub(self.sacked) <= cwnd || self.flight() == 0;
        (fits && allowed).then_some(index)
    }

    /// Takes the frame of a record to be sent; [`Sender::keep`] must follow. `None` when the octets
    /// have to be copied and there is no frame for it.
    #[inline]
    pub(crate) fn take<D: Device<Frame = F>>(
        &mut self,
        index: usize,
        device: &mut D,
    ) -> Option<Departure<F>> {
        let again = index < self.sent;
        let record = &mut self.records[index];
        let frame = match core::mem::replace(&mut record.body, Body::Taken) {
            Body::Owned(frame) => frame,
            Body::Held(held) => match held.reclaim() {
                Ok(frame) => frame,
                Err(held) => {
                    // The NIC or the peer still reads it, so its headers must not be rewritten.
                    let copy = copy_of(held.bytes(), device);
                    record.body = Body::Held(held);
                    copy?
                }
            },
            Body::Taken => unreachable!("a record taken is kept before the next one is"),
        };
        let Record { seq, len, push, sum, .. } = *record;
        Some(Departure { frame, seq, len, push, sum, again })
    }

    /// Puts back a reference to a record's octets when its frame is on its way.
    #[inline]
    pub(crate) fn keep(&mut self, index: usize, held: F::Held, now: Instant) {
        let record = &mut self.records[index];
        record.body = Body::Held(held);
        record.sent_at = now;
        let urgent = core::mem::replace(&mut self.urgent, Urgent::None);
        if urgent == Urgent::Tail {
            self.rack.probed(self.nxt.max(record.end()), index < self.sent);
        }
        if index < self.sent {
            record.retransmitted = true;
            self.rack.repeated(record.seq, now);
            if index == self.resend {
                // It may have been reported since it was given up.
                self.sacked += if record.sacked { record.len } else { 0 };
                self.resend += 1;
            } else if core::mem::take(&mut record.lost) {
                self.lost -= record.len;
                if self.lost_from == record.seq {
                    self.lost_from = record.end();
                }
            }
            return;
        }
        self.sent += 1;
        self.resend = self.sent;
        self.nxt = self.nxt.max(record.end());
    }

    /// Cuts a record in two, the first `at` octets and the rest; false when there is no frame.
    pub(crate) fn split<D: Device<Frame = F>>(&mut self, index: usize, at: u32, device: &mut D) -> bool {
        let record = &mut self.records[index];
        assert!(0 < at && at < record.len, "both parts have octets");
        let cut = at as usize;
        let octets = match &record.body {
            Body::Owned(frame) => frame.bytes(),
            Body::Held(held) => held.bytes(),
            Body::Taken => unreachable!("a record taken is kept before the next one is"),
        };
        let Some(rest) = copy_of(&octets[cut..], device) else { return false };
        let first = match core::mem::replace(&mut record.body, Body::Taken) {
            Body::Owned(frame) => Ok(frame),
            Body::Held(held) => held.reclaim(),
            Body::Taken => unreachable!("it was looked at just now"),
        };
        let first = match first {
            Ok(mut frame) => {
                frame.truncate(cut);
                frame
            }
            Err(held) => {
                let Some(copy) = copy_of(&held.bytes()[..cut], device) else {
                    record.body = Body::Held(held);
                    return false;
                };
                copy
            }
        };
        record.sum = sum_of(&first);
        record.body = Body::Owned(first);
        let rest = Record {
            seq: record.seq + at,
            len: record.len - at,
            push: record.push,
            sum: sum_of(&rest),
            retransmitted: record.retransmitted,
            sacked: record.sacked,
            lost: record.lost,
            sent_at: record.sent_at,
            body: Body::Owned(rest),
        };
        // The end of what was pushed is in the second part.
        record.push = false;
        record.len = at;
        self.records.insert(index + 1, rest);
        if index < self.sent {
            self.sent += 1;
        }
        if index < self.resend {
            self.resend += 1;
        }
        true
    }

    /// A timeout: everything in flight is given up and goes again, in order.
    pub(crate) fn resend_all(&mut self) {
        self.resend = 0;
        if self.fin == Fin::Sent {
            self.fin = Fin::Pending;
        }
        // The receiver may have dropped what it reported (RFC 2018 section 8).
        for record in self.records.range_mut(..self.sent) {
            record.sacked = false;
            record.lost = false;
        }
        (self.sacked, self.lost) = (0, 0);
        self.sacked_to = self.una;
        self.judged_to = self.una;
        self.urgent = Urgent::None;
    }

    /// Nothing was lost after all: what was sent and not acknowledged counts as in flight again.
    #[cold]
    pub(crate) fn resume(&mut self) {
        self.resend = self.sent;
        if self.fin == Fin::Pending && self.nxt == self.end + 1 {
            self.fin = Fin::Sent;
        }
        (self.sacked, self.lost, self.urgent) = (0, 0, Urgent::None);
        self.judged_to = self.una;
        for record in self.records.range_mut(..self.sent) {
            record.lost = false;
            self.sacked += if record.sacked { record.len } else { 0 };
        }
    }

    /// Whether everything queued was sent, so that a FIN may follow.
    pub(crate) fn fin_is_next(&self) -> bool {
        self.fin == Fin::Pending && self.resend == self.records.len() && self.lost == 0
    }

    /// The FIN's own sequence number.
    pub(crate) fn fin_seq(&self) -> SeqNumber {
        self.end
    }

    /// Notes that the FIN is on its way.
    pub(crate) fn fin_sent(&mut self) {
        self.fin = Fin::Sent;
        self.nxt = self.end + 1;
    }

    /// Whether our FIN was sent and acknowledged.
    pub(crate) fn fin_acknowledged(&self) -> bool {
        self.una == self.end + 1
    }

    /// Drops all records.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        (self.sent, self.resend) = (0, 0);
        (self.sacked, self.lost) = (0, 0);
        self.urgent = Urgent::None;
        self.rack.clear();
    }

    /// The record at `index`.
    #[inline]
    pub(crate) fn record(&self, index: usize) -> &Record<F> {
        &self.records[index]
    }

    /// Octets in flight, as congestion control counts them.
    #[inline]
    pub(crate) fn flight(&self) -> u32 {
        let end = if self.resend < self.sent { self.records[self.resend].seq } else { self.nxt };
        end.since(self.una).saturating_sub(self.sacked + self.lost)
    }

    /// Whether anything is unacknowledged.
    #[inline]
    pub(crate) fn has_outstanding(&self) -> bool {
        self.una != self.nxt
    }

    /// Octets queued and not acknowledged.
    pub(crate) fn queued(&self) -> u32 {
        self.end.since(self.una)
    }

    /// Octets queued and never sent.
    pub(crate) fn unsent(&self) -> u32 {
        self.records.get(self.sent).map_or(0, |record| self.end.since(record.seq))
    }

    /// Records queued and not acknowledged.
    pub(crate) fn records_len(&self) -> usize {
        self.records.len()
    }

    /// Gives back the memory of an empty queue.
    pub(crate) fn trim(&mut self) {
        self.records.shrink_to_fit();
        self.rack.trim();
    }

    /// Octets of the heap for the records, their frames not included.
    pub(crate) fn octets(&self) -> usize {
        self.records.capacity() * size_of::<Record<F>>() + self.rack.octets()
    }

    /// The first record that was not sent, if any.
    pub(crate) fn first_unsent(&self) -> Option<usize> {
        (self.sent < self.records.len()).then_some(self.sent)
    }

    fn next_lost(&mut self, cwnd: u32) -> Option<usize> {
        let index = self.first_lost()?;
        let record = &self.records[index];
        let fits = index == 0 || record.end().since(self.una) <= self.wnd;
        let flight = self.flight();
        (fits && (flight == 0 || flight + record.len <= cwnd)).then_some(index)
    }
}

/// The checksum's sum over a record.
#[inline]
pub(crate) fn sum_of<F: Frame>(record: &F) -> u16 {
    u16::try_from(checksum::sum(record.bytes())).expect("a sum is folded")
}

fn copy_of<D: Device>(octets: &[u8], device: &mut D) -> Option<D::Frame> {
    let mut frame = device.allocate()?;
    if frame.tailroom() < octets.len() {
        return None;
    }
    frame.push_back(octets.len());
    frame.bytes_mut().copy_from_slice(octets);
    Some(frame)
}

#[cfg(test)]
pub(super) mod tests;
