//! A hierarchical timer wheel: one deadline an index, O(1) to set, move and clear.
//!
//! ```text
//! level 0   64 slots of one tick         2 ms ahead
//! level 1   64 slots of 64 ticks       134 ms
//! level 2   64 slots of 64^2 ticks     8.6 s
//! level 3   64 slots of 64^3 ticks     9 min
//! level 4   64 slots of 64^4 ticks     10 h
//! level 5   64 slots of 64^5 ticks     26 d
//! ```
//!
//! A tick is 2^15 ns. A deadline is rounded up to a tick, so nothing expires early; entries
//! sink to lower levels as their slot comes up. The lists are linked through a table by index,
//! which grows with the highest index and never shrinks.

use crate::flow::make_room;
use crate::time::Instant;

const TICK_SHIFT: u32 = 15;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;

/// No index, no slot.
const NONE: u32 = u32::MAX;

/// Deadlines of up to `u32::MAX - 1` things that have an index.
#[derive(Debug)]
pub struct TimerWheel {
    /// The first tick that was not yet looked at.
    now: u64,
    /// Heads of the lists, by level and slot.
    heads: [[u32; SLOTS]; LEVELS],
    /// A bit for each slot that is not empty.
    occupied: [u64; LEVELS],
    nodes: Vec<Node>,
    /// Head of the list of what has expired and was not yet taken.
    due: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    previous: u32,
    next: u32,
    /// `level * SLOTS + slot`, [`DUE`] or [`NONE`].
    place: u32,
    tick: u64,
}

/// The place of an entry that has expired.
const DUE: u32 = u32::MAX - 1;

const UNSET: Node = Node { previous: NONE, next: NONE, place: NONE, tick: 0 };

impl TimerWheel {
    /// An empty wheel whose time is `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            now: now.as_nanos() >> TICK_SHIFT,
            heads: [[NONE; SLOTS]; LEVELS],
            occupied: [0; LEVELS],
            nodes: Vec::new(),
            due: NONE,
        }
    }

    /// Makes room for the indices below `len`, so that [`TimerWheel::set`] need not.
    pub fn reserve(&mut self, len: usize) {
        if len > self.nodes.len() {
            make_room(&mut self.nodes);
            self.nodes.resize(len, UNSET);
        }
    }

    /// Octets that the table of indices takes.
    pub(crate) fn octets(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Sets or moves the deadline of `index`.
    pub fn set(&mut self, index: u32, deadline: Instant) {
        let at = position(index);
        self.reserve(at + 1);
        // Rounded up, and never into the past.
        let tick = (deadline.as_nanos().div_ceil(1 << TICK_SHIFT)).max(self.now);
        if self.nodes[at].place < DUE && self.nodes[at].tick == tick {
            return;
        }
        self.clear(index);
        self.nodes[at].tick = tick;
        self.insert(index);
    }

    /// Forgets the deadline of `index`.
    pub fn clear(&mut self, index: u32) {
        let Some(node) = self.nodes.get_mut(position(index)) else { return };
        let Node { previous, next, place, .. } = *node;
        if place == NONE {
            return;
        }
        (node.previous, node.next, node.place) = (NONE, NONE, NONE);
        if next != NONE {
            self.nodes[position(next)].previous = previous;
        }
        if previous != NONE {
            self.nodes[position(previous)].next = next;
        } else if place == DUE {
            self.due = next;
        } else {
            let (level, slot) = (position(place) / SLOTS, position(place) % SLOTS);
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
    }

    /// Takes one index whose deadline has passed; call it until there is none.
    pub fn expire(&mut self, now: Instant) -> Option<u32> {
        if self.due == NONE {
            self.advance(now.as_nanos() >> TICK_SHIFT);
        }
        let index = self.due;
        if index == NONE {
            return None;
        }
        self.clear(index);
        Some(index)
    }

    /// When [`TimerWheel::expire`] is worth calling again: at or before the earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        if self.due != NONE {
            return Some(instant(self.now.saturating_sub(1)));
        }
        (0..LEVELS).filter_map(|level| self.next_slot(level)).map(|(tick, _)| instant(tick)).min()
    }

    /// The tick at which the level's next occupied slot comes up, and that slot.
    fn next_slot(&self, level: usize) -> Option<(u64, usize)> {
        if self.occupied[level] == 0 {
            return None;
        }
        let shift = SLOT_BITS * u32::try_from(level).expect("six levels");
        let current = self.now >> shift;
        let current_slot = slot(current);
        // Slots in the order of time, the current one first.
        let ahead = self.occupied[level].rotate_right(current_slot).trailing_zeros();
        let tick = ((current + u64::from(ahead)) << shift).max(self.now);
        Some((tick, (current_slot + ahead) as usize % SLOTS))
    }

    /// Moves all entries up to and including tick `target` to the list of due ones.
    fn advance(&mut self, target: u64) {
        while self.now <= target {
            // The earliest slot of all levels; of two at the same tick the higher level sinks first.
            let next = (0..LEVELS)
                .rev()
                .filter_map(|level| self.next_slot(level).map(|(tick, slot)| (tick, level, slot)))
                .min_by_key(|&(tick, ..)| tick);
            let Some((tick, level, slot)) = next.filter(|&(tick, ..)| tick <= target) else {
                self.now = target + 1;
                return;
            };
            self.now = tick;
            let mut index = core::mem::replace(&mut self.heads[level][slot], NONE);
            self.occupied[level] &= !(1 << slot);
            while index != NONE {
                let node = &mut self.nodes[position(index)];
                let next = core::mem::replace(&mut node.next, NONE);
                node.previous = NONE;
                if node.tick <= tick {
                    self.push_due(index);
                } else {
                    self.insert(index);
                }
                index = next;
            }
        }
    }

    /// Links an entry whose `tick` is set into the slot that is due to be looked at first.
    fn insert(&mut self, index: u32) {
        let tick = self.nodes[position(index)].tick;
        // The level of the highest digit in which the deadline differs from now.
        let differing = (tick ^ self.now) | 1;
        let level = (differing.ilog2() / SLOT_BITS).min(u32::try_from(LEVELS - 1).expect("six levels"));
        let shift = SLOT_BITS * level;
        // Beyond the last level's reach an entry waits in its farthest slot and is put in again.
        let reach = (self.now >> shift) + SLOTS as u64 - 1;
        let slot = slot((tick >> shift).min(reach));
        let (level, slot) = (level as usize, slot as usize);

        let head = core::mem::replace(&mut self.heads[level][slot], index);
        self.occupied[level] |= 1 << slot;
        if head != NONE {
            self.nodes[position(head)].previous = index;
        }
        let node = &mut self.nodes[position(index)];
        (node.previous, node.next) = (NONE, head);
        node.place = u32::try_from(level * SLOTS + slot).expect("384 slots");
    }

    fn push_due(&mut self, index: u32) {
        let head = core::mem::replace(&mut self.due, index);
        if head != NONE {
            self.nodes[position(head)].previous = index;
        }
        let node = &mut self.nodes[position(index)];
        (node.previous, node.next, node.place) = (NONE, head, DUE);
    }
}

fn position(index: u32) -> usize {
    index as usize
}

fn slot(ticks: u64) -> u32 {
    u32::try_from(ticks % SLOTS as u64).expect("below 64")
}

fn instant(tick: u64) -> Instant {
    Instant::from_nanos(tick.saturating_mul(1 << TICK_SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TICK: u64 = 1 << TICK_SHIFT;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn expired(wheel: &mut TimerWheel, now: Instant) -> Vec<u32> {
        let mut all: Vec<_> = core::iter::from_fn(|| wheel.expire(now)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn nothing_expires_early_and_all_within_a_tick() {
        for span in [0, 1, TICK, 63 * TICK, 64 * TICK, 65 * TICK, 5_000_000, 10_000_000_000, 1 << 50] {
            for start in [0, 1, 12_345_678_901] {
                let mut wheel = TimerWheel::new(at(start));
                let deadline = at(start) + Duration::from_nanos(span);
                wheel.set(7, deadline);
                if span > TICK {
                    assert_eq!(wheel.expire(at(deadline.as_nanos() - 1)), None, "{span}");
                }
                assert_eq!(wheel.expire(deadline + Duration::from_nanos(TICK)), Some(7), "{span}");
                assert_eq!(wheel.next(), None);
            }
        }
    }

    #[test]
    fn a_deadline_moves_and_goes() {
        let mut wheel = TimerWheel::new(at(0));
        wheel.set(0, at(10 * TICK));
        wheel.set(1, at(10 * TICK));
        wheel.set(2, at(10 * TICK));
        wheel.set(1, at(1000 * TICK));
        wheel.clear(0);
        wheel.clear(0);
        wheel.clear(99);
        assert_eq!(expired(&mut wheel, at(11 * TICK)), [2]);
        assert_eq!(expired(&mut wheel, at(1001 * TICK)), [1]);
    }

    #[test]
    fn beyond_the_last_level() {
        let mut wheel = TimerWheel::new(at(0));
        let far = at(u64::MAX / 2);
        wheel.set(0, far);
        let mut steps = 0;
        let mut now = at(0);
        while wheel.expire(now).is_none() {
            now = wheel.next().unwrap().max(now + Duration::from_nanos(TICK));
            assert!(now <= far + Duration::from_nanos(TICK));
            steps += 1;
            assert!(steps < 10_000_000);
        }
        assert!(now >= far);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Clear(u32),
        Advance(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let span = prop_oneof![0u64..1_000_000, 0u64..1_000_000_000, 0u64..1 << 45];
        prop_oneof![
            (0u32..20, span.clone()).prop_map(|(index, span)| Step::Set(index, span)),
            (0u32..20).prop_map(Step::Clear),
            span.prop_map(Step::Advance),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_map(steps in prop::collection::vec(step(), 0..200), start in 0u64..1 << 50) {
            let mut now = at(start);
            let mut wheel = TimerWheel::new(now);
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Set(index, span) => {
                        let deadline = now + Duration::from_nanos(span);
                        wheel.set(index, deadline);
                        model.insert(index, deadline);
                    }
                    Step::Clear(index) => {
                        wheel.clear(index);
                        model.remove(&index);
                    }
                    Step::Advance(span) => {
                        now += Duration::from_nanos(span);
                        for index in expired(&mut wheel, now) {
                            // Never early by more than nothing.
                            prop_assert!(model.remove(&index).unwrap() <= now);
                        }
                        // And none is left that is due since a tick.
                        for (&index, &deadline) in &model {
                            prop_assert!(now < deadline + Duration::from_nanos(TICK), "{index} is late");
                        }
                    }
                }
                let earliest = model.values().min();
                match wheel.next() {
                    None => prop_assert!(earliest.is_none()),
                    Some(next) => {
                        let bound = *earliest.unwrap() + Duration::from_nanos(2 * TICK);
                        prop_assert!(next <= bound);
                    }
                }
            }
        }
    }
}
