//! The neighbour table: states, timers and limits, for IPv4 and IPv6 alike.
//!
//! ```text
//!              answer                    reachable time over, unused
//! INCOMPLETE ----------> REACHABLE -------------------------------> STALE ---> forgotten
//!     |                   ^     | reachable time over, used           | used again
//!     | no answer         |     v                                     v
//!     v            answer |   PROBE <------------------------------ DELAY
//! UNREACHABLE             +-----+--- no answer ---> INCOMPLETE
//! ```
//!
//! In REACHABLE, STALE, DELAY and PROBE the Ethernet address is used. Users keep a
//! [`NeighborHandle`] and find out by its generation when they must ask again: when the address
//! changes, and when an unused entry goes STALE (so that the next use starts the DELAY).

use core::cell::Cell;
use core::net::IpAddr;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use siphasher::sip::SipHasher13;

use crate::addr::EthernetAddress;
use crate::counters::InterfaceCounters;
use crate::time::Instant;

/// Times and limits of the neighbour table; the defaults are those of RFC 4861 section 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborConfig {
    /// Most entries, at most 65,535. A link seldom has more stations than this default.
    pub limit: usize,
    /// Mean time for which a confirmation counts; each is between half and one and a half of it.
    pub reachable: Duration,
    /// From one request to the next.
    pub retransmit: Duration,
    /// Requests before a neighbour is given up, and probes before it is asked for anew.
    pub attempts: u8,
    /// From the first use of a stale entry to the first probe: TCP may confirm it by then.
    pub delay_first_probe: Duration,
    /// How long an unused stale entry is kept.
    pub stale: Duration,
    /// For how long a neighbour that did not answer is not asked again.
    pub unreachable: Duration,
}

impl Default for NeighborConfig {
    fn default() -> Self {
        Self {
            limit: 1024,
            reachable: Duration::from_secs(30),
            retransmit: Duration::from_secs(1),
            attempts: 3,
            delay_first_probe: Duration::from_secs(5),
            stale: Duration::from_secs(600),
            unreachable: Duration::from_secs(3),
        }
    }
}

/// Names an entry of the neighbour table, as it was when it was resolved.
///
/// It goes stale when the neighbour's Ethernet address changes or the entry is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborHandle {
    index: u16,
    generation: u16,
}

impl NeighborHandle {
    /// The handle of no neighbour; it is never current.
    pub(crate) const NONE: Self = Self { index: u16::MAX, generation: 0 };
}

/// What is known about a neighbour, in the words of RFC 4861 section 7.3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborState {
    /// It was asked for and has not answered.
    Incomplete,
    /// It answered not long ago.
    Reachable,
    /// It was known, or announced itself; not verified.
    Stale,
    /// It is used again and about to be verified.
    Delay,
    /// It is being verified.
    Probe,
    /// It did not answer.
    Unreachable,
}

/// A neighbour as shown to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborInfo {
    /// Its IP address.
    pub addr: IpAddr,
    /// Its Ethernet address, if known.
    pub mac: Option<[u8; 6]>,
    /// What is known about it.
    pub state: NeighborState,
}

/// What a packet says about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// It sent us a request: it wants to talk, so a new entry is worth it.
    Request,
    /// It answered or announced itself.
    Advertisement {
        /// In answer to a question of ours.
        solicited: bool,
        /// Another Ethernet address than the known one shall replace it.
        overriding: bool,
    },
}

/// A packet to be sent: who has `target`?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Solicitation {
    pub(crate) target: IpAddr,
    /// The address to ask directly; `None` asks the group.
    pub(crate) mac: Option<EthernetAddress>,
}

/// The result of [`NeighborTable::resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    Ready(NeighborHandle),
    /// Underway; the packet to send, when this call started it.
    Pending(Option<Solicitation>),
    Unreachable,
}

#[derive(Debug)]
pub(crate) struct NeighborTable {
    config: NeighborConfig,
    slots: Vec<Slot>,
    free: Vec<u16>,
    by_addr: BTreeMap<IpAddr, u16>,
    /// Each entry has exactly one timer.
    timers: BTreeSet<(Instant, u16)>,
    resolutions: u64,
    seed: u64,
    draws: u64,
}

#[derive(Debug)]
struct Slot {
    /// Counts what makes handles stale; outlives the entry.
    generation: u16,
    /// A user relied on the entry since it was last confirmed.
    used: Cell<bool>,
    /// TCP made progress through it since the timer was set.
    confirmed: Cell<bool>,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    addr: IpAddr,
    mac: EthernetAddress,
    state: NeighborState,
    /// Requests sent in INCOMPLETE and PROBE.
    asked: u8,
    timer: Instant,
}

impl NeighborTable {
    pub(crate) fn new(mut config: NeighborConfig, seed: u64) -> Self {
        config.limit = config.limit.min(usize::from(u16::MAX));
        Self {
            config,
            slots: Vec::new(),
            free: Vec::new(),
            by_addr: BTreeMap::new(),
            timers: BTreeSet::new(),
            resolutions: 0,
            seed,
            draws: 0,
        }
    }

    /// Looks a neighbour up for use; starts to ask for an unknown one.
    pub(crate) fn resolve(
        &mut self,
        addr: IpAddr,
        now: Instant,
        counters: &mut InterfaceCounters,
    ) -> Resolved {
        let Some(&index) = self.by_addr.get(&addr) else {
            let Some(index) = self.insert(addr, true, counters) else {
                return Resolved::Unreachable;
            };
            return Resolved::Pending(Some(self.ask(index, now)));
        };
        let slot = &self.slots[usize::from(index)];
        slot.used.set(true);
        let generation = slot.generation;
        match self.entry(index).state {
            NeighborState::Incomplete => return Resolved::Pending(None),
            NeighborState::Unreachable => return Resolved::Unreachable,
            NeighborState::Stale => {
                let timer = now + self.config.delay_first_probe;
                self.enter(index, NeighborState::Delay, timer);
            }
            NeighborState::Reachable | NeighborState::Delay | NeighborState::Probe => {}
        }
        Resolved::Ready(NeighborHandle { index, generation })
    }

    /// Takes note of what a neighbour said about itself.
    pub(crate) fn hear(
        &mut self,
        addr: IpAddr,
        mac: EthernetAddress,
        evidence: Evidence,
        now: Instant,
        counters: &mut InterfaceCounters,
    ) {
        let index = match (self.by_addr.get(&addr), evidence) {
            (Some(&index), _) => index,
            (None, Evidence::Advertisement { .. }) => return,
            (None, Evidence::Request) => {
                let Some(index) = self.insert(addr, false, counters) else {
                    return;
                };
                self.entry_mut(index).mac = mac;
                self.enter(index, NeighborState::Stale, now + self.config.stale);
                return;
            }
        };

        let entry = self.entry(index);
        let known = !matches!(entry.state, NeighborState::Incomplete | NeighborState::Unreachable);
        let changed = known && entry.mac != mac;
        let (solicited, overriding) = match evidence {
            Evidence::Request => (false, true),
            Evidence::Advertisement { solicited, overriding } => (solicited, overriding),
        };
        if changed && !overriding {
            // RFC 4861 section 7.2.5: doubt what is known, but keep it.
            if entry.state == NeighborState::Reachable {
                self.go_stale(index, now);
            }
            return;
        }
        if changed {
            counters.neighbor_changed += 1;
        }
        if !known {
            self.resolutions += 1;
        }
        self.entry_mut(index).mac = mac;
        if changed || !known {
            self.invalidate(index);
        }
        if solicited {
            self.go_reachable(index, now);
        } else if changed || !known {
            self.enter(index, NeighborState::Stale, now + self.config.stale);
        }
    }

    /// Whether an answer of `addr` would be one to a question of ours.
    pub(crate) fn awaits(&self, addr: IpAddr) -> bool {
        self.by_addr.get(&addr).is_some_and(|&index| {
            matches!(self.entry(index).state, NeighborState::Incomplete | NeighborState::Probe)
        })
    }

    /// Handles the timers that are due, up to the first that needs a packet sent.
    pub(crate) fn poll(&mut self, now: Instant, counters: &mut InterfaceCounters) -> Option<Solicitation> {
        while let Some(&(at, index)) = self.timers.first()
            && at <= now
        {
            let slot = &self.slots[usize::from(index)];
            let (used, confirmed) = (slot.used.get(), slot.confirmed.get());
            let entry = self.entry(index);
            match entry.state {
                NeighborState::Stale | NeighborState::Unreachable => self.remove(index),
                NeighborState::Reachable | NeighborState::Delay | NeighborState::Probe if confirmed => {
                    self.go_reachable(index, now);
                }
                NeighborState::Reachable if !used => self.go_stale(index, now),
                NeighborState::Reachable | NeighborState::Delay => {
                    let entry = self.entry_mut(index);
                    (entry.state, entry.asked) = (NeighborState::Probe, 0);
                    return Some(self.ask(index, now));
                }
                NeighborState::Probe if entry.asked >= self.config.attempts => {
                    // It may have moved to another station: ask everybody.
                    let entry = self.entry_mut(index);
                    (entry.state, entry.asked) = (NeighborState::Incomplete, 0);
                    self.invalidate(index);
                    return Some(self.ask(index, now));
                }
                NeighborState::Incomplete if entry.asked >= self.config.attempts => {
                    counters.neighbor_unreachable += 1;
                    self.resolutions += 1;
                    self.enter(index, NeighborState::Unreachable, now + self.config.unreachable);
                }
                NeighborState::Incomplete | NeighborState::Probe => return Some(self.ask(index, now)),
            }
        }
        None
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// The Ethernet address behind a current handle.
    pub(crate) fn mac(&self, handle: NeighborHandle) -> Option<EthernetAddress> {
        let slot = self.slots.get(usize::from(handle.index))?;
        let entry = slot.entry.as_ref()?;
        (slot.generation == handle.generation).then_some(entry.mac)
    }

    /// The Ethernet address of a neighbour that has one.
    pub(crate) fn known_mac(&self, addr: IpAddr) -> Option<EthernetAddress> {
        let entry = self.entry(*self.by_addr.get(&addr)?);
        let known = !matches!(entry.state, NeighborState::Incomplete | NeighborState::Unreachable);
        known.then_some(entry.mac)
    }

    /// Whether the handle's Ethernet address still holds; marks the entry as used.
    #[inline]
    pub(crate) fn is_current(&self, handle: NeighborHandle) -> bool {
        let Some(slot) = self.slots.get(usize::from(handle.index)) else {
            return false;
        };
        let current = slot.generation == handle.generation;
        slot.used.set(slot.used.get() | current);
        current
    }

    /// Takes TCP's word that the neighbour is alive.
    #[inline]
    pub(crate) fn confirm(&self, handle: NeighborHandle) {
        if let Some(slot) = self.slots.get(usize::from(handle.index))
            && slot.generation == handle.generation
        {
            slot.confirmed.set(true);
        }
    }

    pub(crate) fn resolutions(&self) -> u64 {
        self.resolutions
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = NeighborInfo> {
        self.by_addr.iter().map(|(&addr, &index)| {
            let entry = self.entry(index);
            let known = !matches!(entry.state, NeighborState::Incomplete | NeighborState::Unreachable);
            NeighborInfo { addr, mac: known.then_some(entry.mac.0), state: entry.state }
        })
    }

    /// Makes an entry in INCOMPLETE without a timer; `asking` says that a user of ours wants it.
    fn insert(&mut self, addr: IpAddr, asking: bool, counters: &mut InterfaceCounters) -> Option<u16> {
        if self.by_addr.len() >= self.config.limit {
            let Some(victim) = self.victim(asking) else {
                counters.neighbor_table_full += 1;
                return None;
            };
            counters.neighbor_evicted += 1;
            self.remove(victim);
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                used: Cell::new(false),
                confirmed: Cell::new(false),
                entry: None,
            });
            u16::try_from(self.slots.len() - 1).expect("the table's limit fits u16")
        });
        let slot = &mut self.slots[usize::from(index)];
        slot.used.set(asking);
        slot.confirmed.set(false);
        slot.entry = Some(Entry {
            addr,
            mac: EthernetAddress::default(),
            state: NeighborState::Incomplete,
            asked: 0,
            timer: Instant::ZERO,
        });
        self.by_addr.insert(addr, index);
        Some(index)
    }

    /// The entry that is missed least. Strangers' requests do not push out what we asked for.
    fn victim(&self, asking: bool) -> Option<u16> {
        let rank = |&&(at, index): &&(Instant, u16)| {
            let rank = match self.entry(index).state {
                NeighborState::Unreachable => 0,
                NeighborState::Stale => 1,
                NeighborState::Incomplete if asking => 2,
                NeighborState::Reachable if asking && !self.slots[usize::from(index)].used.get() => 3,
                _ => return None,
            };
            Some((rank, at))
        };
        let candidates = self.timers.iter().filter(|timer| rank(timer).is_some());
        candidates.min_by_key(rank).map(|&(_, index)| index)
    }

    fn remove(&mut self, index: u16) {
        self.invalidate(index);
        let entry = self.slots[usize::from(index)].entry.take().expect("the entry exists");
        self.timers.remove(&(entry.timer, index));
        self.by_addr.remove(&entry.addr);
        self.free.push(index);
    }

    /// Counts a request and sets the timer for the next.
    fn ask(&mut self, index: u16, now: Instant) -> Solicitation {
        let entry = self.entry_mut(index);
        entry.asked += 1;
        let (target, state, mac) = (entry.addr, entry.state, entry.mac);
        self.enter(index, state, now + self.config.retransmit);
        Solicitation { target, mac: (state == NeighborState::Probe).then_some(mac) }
    }

    fn go_reachable(&mut self, index: u16, now: Instant) {
        let slot = &self.slots[usize::from(index)];
        slot.used.set(false);
        slot.confirmed.set(false);
        let span = self.reachable_time();
        self.enter(index, NeighborState::Reachable, now + span);
    }

    fn go_stale(&mut self, index: u16, now: Instant) {
        self.invalidate(index);
        self.enter(index, NeighborState::Stale, now + self.config.stale);
    }

    fn enter(&mut self, index: u16, state: NeighborState, timer: Instant) {
        let entry = self.entry_mut(index);
        entry.state = state;
        let old = core::mem::replace(&mut entry.timer, timer);
        self.timers.remove(&(old, index));
        self.timers.insert((timer, index));
    }

    /// Makes all handles of the entry stale.
    fn invalidate(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        slot.generation = slot.generation.wrapping_add(1);
    }

    /// Spread over half to one and a half of the mean, so that probes do not fall into step.
    fn reachable_time(&mut self) -> Duration {
        self.draws += 1;
        let drawn = SipHasher13::new_with_keys(self.seed, 0).hash(&self.draws.to_le_bytes());
        let percent = 50 + u32::try_from(drawn % 100).expect("less than 100");
        self.config.reachable / 100 * percent
    }

    fn entry(&self, index: u16) -> &Entry {
        self.slots[usize::from(index)].entry.as_ref().expect("indices in use have entries")
    }

    fn entry_mut(&mut self, index: u16) -> &mut Entry {
        self.slots[usize::from(index)].entry.as_mut().expect("indices in use have entries")
    }
}

#[cfg(test)]
mod tests;
