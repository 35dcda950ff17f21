//! Half-open connections: what is kept of a SYN until its sender is known to be there
//! (SYN-RECEIVED after LISTEN, RFC 9293 section 3.10.7.4; RFC 4987 section 3).
//!
//! An entry is a small part of a connection: enough to say the SYN,ACK again and to make the
//! connection when it is acknowledged. The table is bounded and has a timer wheel of its own.
//! A connection that was opened here and met the peer's SYN is not among them.

use core::net::SocketAddr;
use core::time::Duration;

use slab::Slab;

use super::connection::mss_default;
use super::ecn::{EcnState, SETUP};
use super::input::Reset;
use super::options::{Options, Timestamps};
use super::segment::{Flags, Segment};
use crate::config::StackConfig;
use crate::flow::FlowKey;
use crate::seq::SeqNumber;
use crate::stack::ListenerId;
use crate::time::Instant;
use crate::timer::TimerWheel;

/// What a SYN offered of that which we speak, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) mss: u16,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    /// The SYN asked for ECN (RFC 3168 section 6.1.1).
    pub(crate) ecn: bool,
    /// TSval.
    pub(crate) timestamp: Option<u32>,
}

impl Offered {
    /// What the flags and options of a SYN from `remote` offer.
    // req 9293-3.7.1-3
    pub(crate) fn of(flags: Flags, options: &Options, remote: SocketAddr, config: &StackConfig) -> Self {
        let default = u16::try_from(mss_default(remote.ip())).expect("a default fits");
        Self {
            mss: options.mss.unwrap_or(default),
            window_scale: options.window_scale,
            sack: options.sack_permitted && config.sack,
            ecn: EcnState::of_syn(flags, config).capable(),
            timestamp: options.timestamps.filter(|_| config.timestamps).map(|theirs| theirs.value),
        }
    }

    /// The same as the flags of a SYN that are not about sequence numbers.
    pub(crate) fn flags(&self) -> Flags {
        if self.ecn { SETUP } else { Flags::NONE }
    }

    /// The flags of the SYN,ACK.
    pub(crate) fn syn_ack_flags(&self) -> Flags {
        let flags = Flags::SYN | Flags::ACK;
        if self.ecn { flags | Flags::ECE } else { flags }
    }

    /// The same as the options of a SYN.
    pub(crate) fn options(&self) -> Options {
        Options {
            mss: Some(self.mss),
            window_scale: self.window_scale,
            sack_permitted: self.sack,
            timestamps: self.timestamp.map(|value| Timestamps { value, echo: 0 }),
            ..Options::default()
        }
    }
}

/// A connection of which only the peer's SYN has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) listener: ListenerId,
    pub(crate) iss: SeqNumber,
    pub(crate) irs: SeqNumber,
    pub(crate) offered: Offered,
    /// When the SYN,ACK was sent first.
    pub(crate) sent_at: Instant,
    /// Where the SYN came from, and the SYN,ACK goes to.
    pub(crate) mac: [u8; 6],
    /// Timeouts of the SYN,ACK.
    pub(crate) retries: u8,
    /// The peer sent its SYN again: it may have missed our answer.
    pub(crate) repeated: bool,
    /// Answers since the last timeout to segments that did not establish the connection.
    answers: u8,
}

// A flood of SYNs must not cost much more than the SYNs themselves.
const _: () = assert!(size_of::<HalfOpen>() <= 128);

/// What a segment does to a half-open connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Ignore,
    /// It has no timestamp, which was agreed on.
    Unstamped,
    /// It is the peer's SYN again: so is our answer.
    Repeat,
    /// An ACK sets a well-meaning peer right.
    Acknowledge {
        /// It was older than the last timestamp (PAWS).
        paws: bool,
    },
    /// It acknowledges what was never sent.
    Reset(Reset),
    /// The peer wants no connection, or another one: back to LISTEN.
    Delete,
    /// It acknowledges our SYN.
    Establish,
}

impl HalfOpen {
    /// An entry whose SYN,ACK is sent at `now`.
    pub(crate) fn new(
        (local, remote): (SocketAddr, SocketAddr),
        listener: ListenerId,
        (iss, irs): (SeqNumber, SeqNumber),
        offered: Offered,
        mac: [u8; 6],
        now: Instant,
    ) -> Self {
        Self {
            local,
            remote,
            listener,
            iss,
            irs,
            offered,
            sent_at: now,
            mac,
            retries: 0,
            repeated: false,
            answers: 0,
        }
    }

    /// The flow table's key.
    pub(crate) fn key(&self) -> FlowKey {
        FlowKey::of(self.local, self.remote)
    }

    /// RCV.NXT.
    pub(crate) fn rcv_nxt(&self) -> SeqNumber {
        self.irs + 1
    }

    /// What `segment` does to this one: the steps of RFC 9293 section 3.10.7.4, in its order.
    pub(crate) fn arrives(&mut self, segment: &Segment, options: &Options, window: u16) -> Verdict {
        let reset = segment.flags.contains(Flags::RST);
        let synchronizes = segment.flags.contains(Flags::SYN);
        if let Some(recent) = self.offered.timestamp.filter(|_| !reset) {
            let Some(Timestamps { value, .. }) = options.timestamps else { return Verdict::Unstamped };
            if SeqNumber::new(value).before(SeqNumber::new(recent)) {
                return Verdict::Acknowledge { paws: true };
            }
            if segment.seq.at_or_before(self.rcv_nxt()) {
                self.offered.timestamp = Some(value);
            }
        }
        if !self.is_acceptable(segment, window) {
            return match () {
                () if reset => Verdict::Ignore,
                () if synchronizes && segment.seq == self.irs && !segment.flags.contains(Flags::ACK) => {
                    self.repeated = true;
                    Verdict::Repeat
                }
                () => Verdict::Acknowledge { paws: false },
            };
        }
        if reset {
            // req 9293-3.10.7.4-4
            // req 9293-3.10.7.4-5
            let exact = segment.seq == self.rcv_nxt();
            return if exact { Verdict::Delete } else { Verdict::Acknowledge { paws: false } };
        }
        if synchronizes {
            return Verdict::Delete;
        }
        if !segment.flags.contains(Flags::ACK) {
            return Verdict::Ignore;
        }
        if segment.ack != self.iss + 1 {
            return Verdict::Reset(Reset { seq: segment.ack, ack: None });
        }
        Verdict::Establish
    }

    /// Whether one more answer is allowed before the next timeout; if so it is counted.
    pub(crate) fn may_answer(&mut self, limit: u32) -> bool {
        if u32::from(self.answers) >= limit || self.answers == u8::MAX {
            return false;
        }
        self.answers += 1;
        true
    }

    /// The SYN,ACK was not acknowledged in time; false when it is given up.
    pub(crate) fn timed_out(&mut self, retries_max: u8) -> bool {
        if self.retries >= retries_max {
            return false;
        }
        self.retries += 1;
        self.answers = 0;
        true
    }

    /// How long an acknowledgment is waited for, back-off included.
    pub(crate) fn patience(&self, config: &StackConfig) -> Duration {
        let first = config.rto_initial.max(config.rto_min);
        first.saturating_mul(1 << self.retries.min(30)).min(config.rto_max)
    }

    fn is_acceptable(&self, segment: &Segment, window: u16) -> bool {
        let (first, len, window) = (segment.seq, segment.sequence_len(), u32::from(window));
        let within = |seq: SeqNumber| seq.is_within(self.rcv_nxt(), window);
        first == self.rcv_nxt() || within(first) || (len > 0 && within(first + (len - 1)))
    }
}

/// The half-open connections of a stack.
#[derive(Debug)]
pub(crate) struct HalfOpenTable {
    entries: Slab<HalfOpen>,
    timers: TimerWheel,
    max: usize,
}

impl HalfOpenTable {
    /// An empty table for `max` entries.
    pub(crate) fn new(max: usize) -> Self {
        Self { entries: Slab::new(), timers: TimerWheel::new(Instant::ZERO), max }
    }

    /// Whether there is no room for another one.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.max
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds one; there must be room.
    pub(crate) fn insert(&mut self, entry: HalfOpen) -> u32 {
        assert!(!self.is_full(), "who inserts has asked");
        u32::try_from(self.entries.insert(entry)).expect("a bounded table")
    }

    /// Takes one out.
    pub(crate) fn remove(&mut self, index: u32) -> HalfOpen {
        self.timers.clear(index);
        self.entries.remove(index as usize)
    }

    /// Sets when [`HalfOpenTable::expire`] tells of it.
    pub(crate) fn wait(&mut self, index: u32, until: Instant) {
        self.timers.set(index, until);
    }

    /// One whose time has come; call it until there is none.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<u32> {
        self.timers.expire(now)
    }

    /// When the next one's time comes.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The entry at a place that is taken.
    pub(crate) fn get(&mut self, index: u32) -> &mut HalfOpen {
        &mut self.entries[index as usize]
    }
}
