use core::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

const ANSWER: Evidence = Evidence::Advertisement { solicited: true, overriding: true };
const ANNOUNCEMENT: Evidence = Evidence::Advertisement { solicited: false, overriding: true };
const HINT: Evidence = Evidence::Advertisement { solicited: false, overriding: false };

fn addr(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host).into()
}

fn mac(station: u8) -> EthernetAddress {
    EthernetAddress([2, 0, 0, 0, 0, station])
}

fn seconds(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// A table with its counters and a clock.
struct Bench {
    table: NeighborTable,
    counters: InterfaceCounters,
    now: Instant,
}

impl Bench {
    fn new(limit: usize) -> Self {
        let config = NeighborConfig { limit, ..NeighborConfig::default() };
        Self {
            table: NeighborTable::new(config, 1),
            counters: InterfaceCounters::default(),
            now: Instant::ZERO,
        }
    }

    fn resolve(&mut self, host: u8) -> Resolved {
        self.table.resolve(addr(host), self.now, &mut self.counters)
    }

    fn hear(&mut self, host: u8, station: u8, evidence: Evidence) {
        self.table.hear(addr(host), mac(station), evidence, self.now, &mut self.counters);
    }

    /// Moves the clock to the next timer and returns what is asked then.
    fn step(&mut self) -> Option<Solicitation> {
        self.now = self.table.poll_at().expect("a timer is set");
        self.table.poll(self.now, &mut self.counters)
    }

    fn ready(&mut self, host: u8) -> NeighborHandle {
        match self.resolve(host) {
            Resolved::Ready(handle) => handle,
            other => panic!("{other:?}"),
        }
    }

    fn reachable(&mut self, host: u8) -> NeighborHandle {
        self.resolve(host);
        self.hear(host, host, ANSWER);
        self.ready(host)
    }

    fn state(&self, host: u8) -> Option<NeighborState> {
        self.table.iter().find(|info| info.addr == addr(host)).map(|info| info.state)
    }

    fn check(&self) {
        assert!(self.table.by_addr.len() <= self.table.config.limit);
        assert_eq!(self.table.timers.len(), self.table.by_addr.len(), "each entry has one timer");
        for (&(at, index), _) in self.table.timers.iter().zip(0..) {
            assert_eq!(self.table.entry(index).timer, at);
        }
        for (&addr, &index) in &self.table.by_addr {
            assert_eq!(self.table.entry(index).addr, addr);
        }
        let entries = self.table.slots.iter().filter(|slot| slot.entry.is_some()).count();
        assert_eq!(entries, self.table.by_addr.len());
        assert_eq!(self.table.slots.len(), entries + self.table.free.len());
    }
}

fn everybody(host: u8) -> Option<Solicitation> {
    Some(Solicitation { target: addr(host), mac: None })
}

fn directly(host: u8, station: u8) -> Option<Solicitation> {
    Some(Solicitation { target: addr(host), mac: Some(mac(station)) })
}

mod incomplete {
    use super::*;

    #[test]
    fn asks_three_times_then_is_unreachable_then_may_be_asked_for_anew() {
        let mut bench = Bench::new(8);
        assert_eq!(bench.resolve(1), Resolved::Pending(everybody(1)));
        assert_eq!(bench.resolve(1), Resolved::Pending(None));
        assert_eq!(bench.step(), everybody(1));
        assert_eq!(bench.step(), everybody(1));
        assert_eq!((bench.now, bench.table.resolutions()), (seconds(2), 0));
        assert_eq!(bench.step(), None);
        assert_eq!(bench.resolve(1), Resolved::Unreachable);
        assert_eq!((bench.counters.neighbor_unreachable, bench.table.resolutions()), (1, 1));
        assert_eq!(bench.step(), None);
        assert_eq!(bench.now, seconds(6));
        assert_eq!(bench.resolve(1), Resolved::Pending(everybody(1)));
    }

    #[test]
    fn an_answer_makes_it_reachable() {
        let mut bench = Bench::new(8);
        bench.resolve(1);
        assert!(bench.table.awaits(addr(1)));
        bench.hear(1, 7, ANSWER);
        assert!(!bench.table.awaits(addr(1)));
        let handle = bench.ready(1);
        assert_eq!(bench.table.mac(handle), Some(mac(7)));
        assert!(bench.table.is_current(handle));
        assert_eq!((bench.state(1), bench.table.resolutions()), (Some(NeighborState::Reachable), 1));
    }

    #[test]
    fn an_announcement_or_request_makes_it_stale_but_usable() {
        for evidence in [ANNOUNCEMENT, HINT, Evidence::Request] {
            let mut bench = Bench::new(8);
            bench.resolve(1);
            bench.hear(1, 7, evidence);
            assert_eq!(bench.state(1), Some(NeighborState::Stale));
            let handle = bench.ready(1);
            assert_eq!(bench.table.mac(handle), Some(mac(7)));
        }
    }

    #[test]
    fn a_late_answer_still_counts() {
        let mut bench = Bench::new(8);
        bench.resolve(1);
        while bench.step().is_some() {}
        assert_eq!(bench.state(1), Some(NeighborState::Unreachable));
        bench.hear(1, 1, ANSWER);
        bench.ready(1);
    }
}

mod reachable {
    use super::*;

    #[test]
    fn in_use_it_is_probed_and_stays_current() {
        let mut bench = Bench::new(8);
        let handle = bench.reachable(1);
        for _ in 0..3 {
            assert!(bench.table.is_current(handle));
            assert_eq!(bench.step(), directly(1, 1));
            assert!(bench.table.is_current(handle), "traffic flows while it is probed");
            bench.hear(1, 1, ANSWER);
            assert_eq!(bench.state(1), Some(NeighborState::Reachable));
        }
        let average = bench.now.as_nanos() / 3;
        assert!((15_000_000_000..45_000_000_000).contains(&average));
    }

    #[test]
    fn the_word_of_tcp_spares_the_probe() {
        let mut bench = Bench::new(8);
        let handle = bench.reachable(1);
        for _ in 0..3 {
            assert!(bench.table.is_current(handle));
            bench.table.confirm(handle);
            assert_eq!(bench.step(), None);
            assert_eq!(bench.state(1), Some(NeighborState::Reachable));
        }
    }

    #[test]
    fn unused_it_goes_stale_and_the_next_use_verifies_it() {
        let mut bench = Bench::new(8);
        bench.resolve(1);
        bench.hear(1, 1, ANSWER);
        let index = bench.table.by_addr[&addr(1)];
        let handle = NeighborHandle { index, generation: bench.table.slots[usize::from(index)].generation };
        assert_eq!(bench.step(), None);
        assert_eq!(bench.state(1), Some(NeighborState::Stale));
        assert!(!bench.table.is_current(handle));

        let handle = bench.ready(1);
        assert_eq!(bench.state(1), Some(NeighborState::Delay));
        let stale_since = bench.now;
        assert_eq!(bench.step(), directly(1, 1));
        assert_eq!(bench.now - stale_since, Duration::from_secs(5));
        bench.hear(1, 1, ANSWER);
        assert!(bench.table.is_current(handle));
    }

    #[test]
    fn stale_and_unused_it_is_forgotten() {
        let mut bench = Bench::new(8);
        bench.hear(1, 1, Evidence::Request);
        assert_eq!(bench.step(), None);
        assert_eq!((bench.now, bench.state(1)), (seconds(600), None));
        assert_eq!(bench.table.poll_at(), None);
        bench.check();
    }

    #[test]
    fn without_answers_everybody_is_asked_then_it_is_unreachable() {
        let mut bench = Bench::new(8);
        let handle = bench.reachable(1);
        for _ in 0..3 {
            assert!(bench.table.is_current(handle));
            assert_eq!(bench.step(), directly(1, 1));
        }
        assert_eq!(bench.step(), everybody(1));
        assert!(!bench.table.is_current(handle));
        assert_eq!(bench.table.mac(handle), None);
        assert_eq!(bench.resolve(1), Resolved::Pending(None));
        assert_eq!(bench.step(), everybody(1));
        assert_eq!(bench.step(), everybody(1));
        assert_eq!(bench.step(), None);
        assert_eq!(bench.resolve(1), Resolved::Unreachable);
    }

    #[test]
    fn a_neighbour_that_moved_is_found_again() {
        let mut bench = Bench::new(8);
        let handle = bench.reachable(1);
        while bench.step() != everybody(1) {}
        bench.hear(1, 9, ANSWER);
        assert!(!bench.table.is_current(handle));
        let handle = bench.ready(1);
        assert_eq!(bench.table.mac(handle), Some(mac(9)));
    }
}

mod announcements {
    use super::*;

    #[test]
    fn of_strangers_are_ignored() {
        let mut bench = Bench::new(8);
        for evidence in [ANSWER, ANNOUNCEMENT, HINT] {
            bench.hear(1, 1, evidence);
            assert_eq!(bench.state(1), None);
        }
    }

    #[test]
    fn that_override_change_the_address_and_are_verified() {
        let mut bench = Bench::new(8);
        let handle = bench.reachable(1);
        bench.hear(1, 9, ANNOUNCEMENT);
        assert!(!bench.table.is_current(handle));
        assert_eq!((bench.state(1), bench.counters.neighbor_changed), (Some(NeighborState::Stale), 1));
        let handle = bench.ready(1);
        assert_eq!(bench.table.mac(handle), Some(mac(9)));
        assert_eq!(bench.step(), directly(1, 9));
    }

    #[test]
    fn that_do_not_override_only_raise_doubt() {
        let mut bench = Bench::new(8);
        bench.reachable(1);
        bench.hear(1, 9, HINT);
        assert_eq!(bench.state(1), Some(NeighborState::Stale));
        let handle = bench.ready(1);
        assert_eq!(bench.table.mac(handle), Some(mac(1)));
    }

    #[test]
    fn that_say_nothing_new_change_nothing() {
        let mut bench = Bench::new(8);
        let handle = bench.reachable(1);
        for evidence in [ANNOUNCEMENT, HINT, Evidence::Request] {
            bench.hear(1, 1, evidence);
            assert!(bench.table.is_current(handle));
            assert_eq!(bench.state(1), Some(NeighborState::Reachable));
        }
    }
}

mod limits {
    use super::*;

    #[test]
    fn strangers_push_out_strangers_only() {
        let mut bench = Bench::new(4);
        let used = bench.reachable(1);
        bench.resolve(2);
        for host in 3..=40 {
            bench.now += Duration::from_millis(1);
            bench.hear(host, host, Evidence::Request);
            bench.check();
        }
        assert!(bench.table.is_current(used));
        assert_eq!(bench.resolve(2), Resolved::Pending(None));
        assert_eq!(
            (bench.state(39), bench.state(40)),
            (Some(NeighborState::Stale), Some(NeighborState::Stale))
        );
        assert_eq!(bench.counters.neighbor_evicted, 36);
    }

    #[test]
    fn used_neighbours_are_never_pushed_out() {
        let mut bench = Bench::new(2);
        let handles = [bench.reachable(1), bench.reachable(2)];
        assert_eq!(bench.resolve(3), Resolved::Unreachable);
        bench.hear(4, 4, Evidence::Request);
        assert_eq!(bench.counters.neighbor_table_full, 2);
        assert!(handles.into_iter().all(|handle| bench.table.is_current(handle)));
    }

    #[test]
    fn what_we_ask_for_pushes_out_the_oldest_question() {
        let mut bench = Bench::new(2);
        for host in 1..=3 {
            bench.now += Duration::from_millis(1);
            assert_eq!(bench.resolve(host), Resolved::Pending(everybody(host)));
        }
        assert_eq!((bench.state(1), bench.state(2)), (None, Some(NeighborState::Incomplete)));
    }

    #[test]
    fn a_handle_does_not_outlive_its_entry() {
        let mut bench = Bench::new(1);
        bench.hear(1, 1, Evidence::Request);
        let index = bench.table.by_addr[&addr(1)];
        let old = NeighborHandle { index, generation: bench.table.slots[0].generation };
        let new = bench.reachable(2);
        assert_eq!(new.index, old.index);
        assert!(!bench.table.is_current(old));
        assert!(!bench.table.is_current(NeighborHandle::NONE));
        assert_eq!(bench.table.mac(NeighborHandle::NONE), None);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Resolve(u8),
    Hear(u8, u8, Evidence),
    Use,
    Confirm,
    Wait(u16),
}

fn op() -> impl Strategy<Value = Op> {
    let evidence = prop::sample::select(vec![ANSWER, ANNOUNCEMENT, HINT, Evidence::Request]);
    prop_oneof![
        (0u8..8).prop_map(Op::Resolve),
        (0u8..8, 0u8..4, evidence).prop_map(|(host, station, evidence)| Op::Hear(host, station, evidence)),
        Just(Op::Use),
        Just(Op::Confirm),
        any::<u16>().prop_map(Op::Wait),
    ]
}

proptest! {
    /// A current handle always leads to the Ethernet address it was made for.
    #[test]
    fn any_order_of_events_keeps_the_table_whole(ops in prop::collection::vec(op(), 0..120)) {
        let mut bench = Bench::new(4);
        let mut handles: Vec<(NeighborHandle, EthernetAddress)> = Vec::new();
        for op in ops {
            match op {
                Op::Resolve(host) => {
                    if let Resolved::Ready(handle) = bench.resolve(host) {
                        handles.push((handle, bench.table.mac(handle).unwrap()));
                    }
                }
                Op::Hear(host, station, evidence) => bench.hear(host, station, evidence),
                Op::Use => handles.retain(|&(handle, _)| bench.table.is_current(handle)),
                Op::Confirm => handles.iter().for_each(|&(handle, _)| bench.table.confirm(handle)),
                Op::Wait(millis) => {
                    bench.now += Duration::from_millis(millis.into());
                    while bench.table.poll(bench.now, &mut bench.counters).is_some() {}
                    prop_assert!(bench.table.poll_at().is_none_or(|at| at > bench.now));
                }
            }
            bench.check();
            for &(handle, mac) in &handles {
                prop_assert!(!bench.table.is_current(handle) || bench.table.mac(handle) == Some(mac));
            }
        }
    }
}
