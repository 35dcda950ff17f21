//! Path MTU discovery without a router's help (RFC 4821, with the probing rules of RFC 8899): for
//! paths that swallow what is too long and say nothing, and for paths that have become wider.
//!
//! ```text
//!        three timeouts of a longer record             600 s after the search
//! Done --------------------------------> Widest <---------------------------- Waiting
//!                                          | it was lost                          ^
//!                                          v                                      |
//!                                        Halving ------- narrow enough -----------'
//! ```
//!
//! A probe is a record of the application's own data that is longer than the EMSS: whoever makes
//! records is offered that much for one of them ([`Connection::record_offer`]), and so an FPDU is
//! made for it. A probe that gets lost goes again cut to the EMSS, so nothing but its alignment is
//! lost, and its loss is no sign of congestion. What was acknowledged whole is the new EMSS.
//!
//! An outage looks like a black hole; that is why the first probe is the longest there can be.

use super::connection::{Connection, EMSS_MIN, mss_of};
use super::counters::TcpCounters;
use crate::config::StackConfig;
use crate::device::Frame;
use crate::icmp::{IPV4_MTU_MIN, IPV6_MTU_MIN};
use crate::seq::SeqNumber;
use crate::stack::Events;
use crate::time::Instant;

/// Timeouts in a row that make a path suspicious: a record was sent as often.
const TIMEOUTS: u8 = 3;

/// MAX_PROBES: so many probes of one length get lost before it counts as too long (RFC 8899
/// section 5.1.2).
const PROBES_MAX: u8 = 3;

/// PMTU_RAISE_TIMER, after which the path may have become wider (RFC 8899 section 5.1.1; RFC 1191
/// and RFC 8201 have the same for what routers said), in ticks of 1.07 s.
const RAISE_TICKS: u32 = 559;
const TICK_SHIFT: u32 = 30;

/// What IPv4 paths are supposed to take (RFC 4821 section 7.2), and if not, the least.
const BASES_V4: [usize; 2] = [1024, IPV4_MTU_MIN];
const BASES_V6: [usize; 1] = [IPV6_MTU_MIN];
/// What most paths take that do not take more.
const ETHERNET_MTU: usize = 1500;

/// How far the search of one connection has come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSearch {
    /// Where the probe begins.
    probe_seq: SeqNumber,
    /// The tick at which a search begins, in [`Phase::Waiting`].
    resume_at: u32,
    /// The longest record that may pass.
    high: u16,
    /// Octets of the probe that is queued or in flight; zero without one.
    probe_len: u16,
    /// Octets that the next record may have; zero when no probe is wanted.
    wanted: u16,
    /// Probes of the current length that were lost.
    failures: u8,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is not yet known whether the EMSS is less than the link takes.
    Fresh,
    /// The EMSS is what link and peer take.
    Done,
    /// It is less, and the path is left alone for a while.
    Waiting,
    /// The longest record is tried.
    Widest,
    /// What is between the EMSS and what got lost is tried.
    Halving,
}

// One for each connection.
const _: () = assert!(size_of::<PathSearch>() == 16);

impl PathSearch {
    pub(super) fn new() -> Self {
        Self {
            probe_seq: SeqNumber::default(),
            resume_at: 0,
            high: 0,
            probe_len: 0,
            wanted: 0,
            failures: 0,
            phase: Phase::Fresh,
        }
    }

    /// Whether there is something to find out.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.phase != Phase::Done
    }

    /// Gives the probe up without a verdict.
    #[cold]
    pub(super) fn cancel(&mut self) {
        (self.probe_len, self.wanted) = (0, 0);
    }

    fn is_searching(&self) -> bool {
        matches!(self.phase, Phase::Widest | Phase::Halving)
    }

    fn wait(&mut self, now: Instant) {
        self.cancel();
        self.phase = Phase::Waiting;
        self.resume_at = ticks(now).wrapping_add(RAISE_TICKS);
    }

    /// A probe, or something of its length, does not pass.
    fn narrow(&mut self, high: u32) {
        self.high = self.high.min(narrow(high));
        self.phase = Phase::Halving;
        self.failures = 0;
    }
}

impl<F: Frame> Connection<F> {
    /// The longest record that is taken now: more than usual, once, when a probe is wanted.
    #[inline]
    pub(crate) fn record_offer(&self) -> u32 {
        match self.search.wanted {
            0 => self.record_max(),
            wanted => u32::from(wanted).min(self.sender.wnd_max / 2).max(self.record_max()),
        }
    }

    /// Whether a record longer than the EMSS may be queued: as a probe.
    #[cold]
    pub(crate) fn take_probe(&mut self, len: u32) -> bool {
        if len > u32::from(self.search.wanted) {
            return false;
        }
        self.search.probe_seq = self.sender.una + self.sender.queued();
        (self.search.probe_len, self.search.wanted) = (narrow(len), 0);
        true
    }

    /// Whether the record at `index`, longer than the EMSS, goes as it is: a probe, for the first
    /// time. When it goes again, the probe was lost.
    #[cold]
    pub(super) fn goes_whole(&mut self, index: usize, counters: &mut TcpCounters) -> bool {
        let record = self.sender.record(index);
        if record.seq != self.search.probe_seq || record.len != u32::from(self.search.probe_len) {
            return false;
        }
        if index >= self.sender.sent {
            counters.path_probes += 1;
            return true;
        }
        counters.path_probes_lost += 1;
        let len = record.len;
        self.search.cancel();
        self.search.failures += 1;
        if self.search.failures >= PROBES_MAX {
            self.search.narrow(len - 1);
        }
        false
    }

    /// Whether nothing is lost but the probe, which says nothing of congestion (RFC 4821
    /// section 7.6.2).
    #[inline]
    pub(super) fn only_probe_lost(&self) -> bool {
        self.search.probe_len > 0
            && self.sender.lost == u32::from(self.search.probe_len)
            && self.sender.lost_from == self.search.probe_seq
    }

    /// Takes the search a step on: after acknowledgments, and when it has waited long enough.
    /// `link_mtu` is what our own link takes.
    #[cold]
    pub(super) fn search_path(&mut self, link_mtu: usize, now: Instant, counters: &mut TcpCounters) {
        let top = self.emss_for(link_mtu);
        match self.search.phase {
            Phase::Fresh | Phase::Done if self.emss >= top => return self.search.phase = Phase::Done,
            Phase::Fresh | Phase::Done => return self.search.wait(now),
            // The clock's circle has 146 years.
            Phase::Waiting if ticks(now).wrapping_sub(self.search.resume_at) > u32::MAX / 2 => return,
            Phase::Waiting => {
                self.search.phase = Phase::Widest;
                (self.search.high, self.search.failures) = (narrow(top), 0);
            }
            Phase::Widest | Phase::Halving => {}
        }
        if self.search.probe_len > 0 {
            let len = u32::from(self.search.probe_len);
            if self.sender.una.before(self.search.probe_seq + len) {
                return;
            }
            counters.path_probes_passed += 1;
            self.search.cancel();
            self.search.failures = 0;
            self.emss = self.emss.max(len);
            self.mtu = self.mtu.max(self.mtu_for(self.emss)).min(link_mtu);
            self.congestion.set_mss(self.emss);
        }
        let high = u32::from(self.search.high).min(top);
        // A thirtieth more is not worth the probes (RFC 4821 section 7.4).
        let found = match self.search.phase {
            Phase::Widest => high <= self.emss,
            _ => high.saturating_sub(self.emss) <= self.emss / 32,
        };
        if found {
            self.search.wait(now);
            if self.emss >= top {
                self.search.phase = Phase::Done;
            }
            return;
        }
        self.search.wanted = if self.is_calm() { narrow(self.probe_size(high)) } else { 0 };
    }

    /// The retransmission timer has expired: for the third time since something was acknowledged or
    /// cut, a record is cut that is longer than what every path takes (RFC 4821 section 7.7,
    /// RFC 8899 section 4.3).
    #[cold]
    pub(super) fn suspect_black_hole(&mut self, config: &StackConfig, counters: &mut TcpCounters) {
        if self.retries % TIMEOUTS != TIMEOUTS - 1 {
            return;
        }
        let bases: &[usize] = if self.local.ip().is_ipv4() { &BASES_V4 } else { &BASES_V6 };
        let lower = bases.iter().map(|&mtu| (mtu, self.emss_for(mtu))).find(|&(_, emss)| emss < self.emss);
        let first = self.sender.records.front().map_or(0, |record| record.len);
        let Some((mtu, emss)) = lower.filter(|&(_, emss)| first > emss) else { return };
        counters.black_holes += 1;
        if !self.search.is_searching() {
            self.search.phase = Phase::Widest;
            self.search.high = narrow(self.emss);
        }
        self.search.failures = 0;
        self.shorten(mtu, emss, config);
    }

    /// Takes a smaller path MTU into account that a router has told (RFC 1191, RFC 8201).
    pub(crate) fn shrink_mtu(&mut self, mtu: usize, config: &StackConfig, now: Instant) {
        let emss = self.emss_for(mtu);
        if emss >= self.emss {
            self.mtu = mtu;
            return;
        }
        self.search.wait(now);
        self.shorten(mtu, emss, config);
        // Whatever is in flight was too big or will be: send it again, cut anew.
        self.sender.resend_all();
    }

    /// A router says that the probe is too long, and what is not. False when that is no news.
    pub(crate) fn refuse_probe(&mut self, quoted: SeqNumber, mtu: usize) -> bool {
        let high = self.emss_for(mtu);
        let is_probe = self.search.probe_len > 0 && quoted == self.search.probe_seq;
        if !is_probe || high < self.emss || high >= u32::from(self.search.probe_len) {
            return false;
        }
        let seq = self.search.probe_seq;
        self.search.cancel();
        self.search.narrow(high);
        // What the router says is tried first.
        self.search.phase = Phase::Widest;
        let index = self.sender.index_of(seq);
        if index < self.sender.resend && !self.sender.record(index).sacked && !self.sender.record(index).lost
        {
            self.sender.lose(index);
        }
        true
    }

    fn shorten(&mut self, mtu: usize, emss: u32, config: &StackConfig) {
        let had_room = self.send_room(config) > 0;
        self.search.cancel();
        self.mtu = mtu;
        self.emss = emss;
        self.congestion.set_mss(emss);
        // A window too small for a full record may not be any more.
        if !had_room && self.send_room(config) > 0 {
            self.events.insert(Events::WRITABLE);
        }
    }

    fn probe_size(&self, high: u32) -> u32 {
        if self.search.phase == Phase::Widest {
            return high;
        }
        let usual = self.emss_for(ETHERNET_MTU);
        if self.emss < usual && usual < high { usual } else { self.emss + (high - self.emss).div_ceil(2) }
    }

    /// Whether a loss would be the probe's: nothing is being repaired.
    fn is_calm(&self) -> bool {
        let sender = &self.sender;
        let repairs = sender.lost > 0 || sender.resend < sender.sent || self.congestion.in_recovery();
        self.retries == 0 && !repairs && self.state.may_send()
    }

    // req 9293-3.7.1-4
    pub(super) fn emss_for(&self, mtu: usize) -> u32 {
        let mss = self.mss_peer.min(mss_of(mtu, self.local.ip()));
        mss.saturating_sub(self.options_len()).max(EMSS_MIN)
    }

    /// The inverse of [`Connection::emss_for`].
    fn mtu_for(&self, emss: u32) -> usize {
        let headers = usize::from(u16::MAX) - mss_of(usize::from(u16::MAX), self.local.ip()) as usize;
        (emss + self.options_len()) as usize + headers
    }
}

fn ticks(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() >> TICK_SHIFT & u64::from(u32::MAX)).expect("32 bits are left")
}

/// A record is never longer than a segment.
fn narrow(len: u32) -> u16 {
    u16::try_from(len).expect("an MSS has 16 bits")
}
