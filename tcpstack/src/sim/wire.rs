//! The wire: what ports send is delayed, damaged and delivered, in the order of a virtual clock.
//!
//! ```text
//! transmit_burst -> transmit ring -> (bandwidth) departs -> faults -> (delay) arrives -> receive ring -> receive_burst
//! ```

use core::cell::RefCell;
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use smoltcp::wire::{Ipv4Packet, TcpPacket};

use super::bottleneck::Passage;
use super::device::{PortConfig, SimDevice};
use super::faults::{Chance, Decisions, Faults};
use super::frame::{SimFrame, SimPool};
use super::mangle::{self, TcpLayout};
use super::pcap::Pcap;
use crate::counters::counters;
use crate::device::{Burst, Capabilities, ChecksumLayout, ChecksumStatus, Frame};
use crate::ethernet::{ETHERNET_LEN, VLAN_LEN};
use crate::time::Instant;

/// Shortest frame on Ethernet, less the frame check sequence; ports pad shorter ones.
const LEN_MIN: usize = 60;
/// What ports pad with: nothing harmless, so that padding taken for payload shows.
const PADDING: u8 = 0x5a;
/// Old frames of a direction that [`Faults::replay`] chooses from.
const HISTORY: usize = 64;

counters! {
    /// What happened to the frames on a wire.
    pub struct WireCounters {
        /// Frames that left a transmit ring.
        sent,
        /// Frames put into a receive ring.
        delivered,
        /// Lost: single frames.
        lost,
        /// Lost: in bursts.
        lost_in_burst,
        /// Lost: the last of what was queued.
        lost_tail,
        /// Lost: in an outage, or with the link down.
        lost_in_outage,
        /// Lost: too long for the wire or the port.
        lost_too_long,
        /// Reports of those to their senders.
        reported_too_long,
        /// Marked by a router's queue.
        marked,
        /// Lost: too many underway, or waiting at a router.
        lost_queue_full,
        /// Lost: the receive ring was full.
        lost_receive_ring_full,
        /// Lost: there was no frame to receive into.
        lost_no_frame,
        /// Frames overtaken by others.
        reordered,
        /// Frames sent twice.
        duplicated,
        /// Old frames sent again.
        replayed,
        /// Frames with a bit turned.
        corrupted,
        /// Segments with a bit of payload turned and a fitting checksum.
        corrupted_repaired,
        /// Segments cut in two.
        resegmented,
        /// Allocations refused.
        allocations_failed,
        /// Bursts cut short.
        transmits_refused,
    }
}

/// A simulated wire between two or more ports; clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Wire(Rc<RefCell<Inner>>);

impl Wire {
    /// A wire on which each direction has the given faults.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::decided_by(Decisions::seeded(seed), faults)
    }

    /// The same, whose decisions are given, an octet each: the smaller, the likelier a fault. When
    /// they run out nothing goes wrong any more.
    pub fn with_decisions(octets: &[u8], faults: Faults) -> Self {
        Self::decided_by(Decisions::Given(octets.iter().copied().collect()), faults)
    }

    fn decided_by(decisions: Decisions, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            now: Instant::ZERO,
            decisions,
            faults,
            ports: Vec::new(),
            underway: BTreeMap::new(),
            sequence: 0,
            counters: WireCounters::default(),
        })))
    }

    /// The end number `index`; missing ones up to it are added with their default properties.
    pub fn port(&self, index: usize) -> SimDevice {
        while self.0.borrow().ports.len() <= index {
            let next = u8::try_from(self.0.borrow().ports.len()).expect("a wire has few ports");
            self.add_port(PortConfig::new(next));
        }
        SimDevice::new(Rc::clone(&self.0), index)
    }

    /// Adds an end; what is sent on one end arrives on all others, as on a hub.
    pub fn add_port(&self, config: PortConfig) -> SimDevice {
        let index = {
            let mut inner = self.0.borrow_mut();
            let faults = inner.faults.clone();
            inner.ports.push(Port::new(config, faults));
            inner.ports.len() - 1
        };
        SimDevice::new(Rc::clone(&self.0), index)
    }

    /// Moves the clock to `now` and on the way delivers what is due.
    ///
    /// # Panics
    /// When `now` is in the past.
    pub fn advance(&self, now: Instant) {
        self.0.borrow_mut().advance(now);
    }

    /// When the next frame leaves a transmit ring or arrives.
    pub fn next_delivery(&self) -> Option<Instant> {
        self.0.borrow().next_event()
    }

    /// The time of the last [`Wire::advance`].
    pub fn now(&self) -> Instant {
        self.0.borrow().now
    }

    /// Changes properties and faults of all directions from now on.
    pub fn set_faults(&self, faults: &Faults) {
        let mut inner = self.0.borrow_mut();
        inner.faults = faults.clone();
        for port in &mut inner.ports {
            port.faults = faults.clone();
        }
    }

    /// Changes those of the direction that `port` sends in.
    pub fn set_port_faults(&self, port: usize, faults: Faults) {
        self.0.borrow_mut().ports[port].faults = faults;
    }

    /// Cuts the direction that `port` sends in, or joins it again.
    pub fn set_link(&self, port: usize, up: bool) {
        self.0.borrow_mut().ports[port].up = up;
    }

    /// Starts a capture of what `port` sends (before faults) and receives (after them).
    pub fn start_capture(&self, port: usize) {
        self.0.borrow_mut().ports[port].capture = Some(Pcap::new());
    }

    /// Ends the capture of `port`.
    pub fn take_capture(&self, port: usize) -> Option<Pcap> {
        self.0.borrow_mut().ports[port].capture.take()
    }

    /// Puts octets on the wire towards `port`, past all faults and delays.
    pub fn inject(&self, port: usize, octets: &[u8]) {
        self.0.borrow_mut().arrive(port, octets.to_vec());
    }

    /// Frames of all ports' pools that are in use anywhere, in transmit rings too.
    pub fn outstanding(&self) -> usize {
        let inner = self.0.borrow();
        let of_port =
            |port: &Port| port.data.outstanding() + port.control.outstanding() + port.receive.outstanding();
        inner.ports.iter().map(of_port).sum()
    }

    /// Frames between a transmit ring and a receive ring's end.
    pub fn underway(&self) -> usize {
        let inner = self.0.borrow();
        let in_rings = |port: &Port| port.transmit_ring.len() + port.receive_ring.len();
        inner.underway.len() + inner.ports.iter().map(in_rings).sum::<usize>()
    }

    /// What happened so far.
    pub fn counters(&self) -> WireCounters {
        self.0.borrow().counters.clone()
    }
}

#[derive(Debug)]
pub(super) struct Inner {
    now: Instant,
    decisions: Decisions,
    /// Faults of ports yet to be added.
    faults: Faults,
    ports: Vec<Port>,
    /// Frames between departure and arrival, by time and then in the order they departed.
    underway: BTreeMap<(Instant, u64), Arrival>,
    sequence: u64,
    counters: WireCounters,
}

#[derive(Debug)]
struct Arrival {
    from: usize,
    /// The one port it goes to, instead of all but `from`.
    to: Option<usize>,
    octets: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Port {
    config: PortConfig,
    pub(super) data: SimPool,
    pub(super) control: SimPool,
    receive: SimPool,
    faults: Faults,
    up: bool,
    /// Frames with the time at which their last bit is sent.
    transmit_ring: VecDeque<(Instant, SimFrame)>,
    /// When the last bit of the last frame is sent.
    line_free_at: Instant,
    /// When the last bit of the last frame leaves the router.
    router_free_at: Instant,
    /// Arrival of the last frame that was not reordered.
    last_arrival: Instant,
    underway: usize,
    in_bad_state: bool,
    history: VecDeque<Vec<u8>>,
    receive_ring: VecDeque<Vec<u8>>,
    capture: Option<Pcap>,
}

impl Port {
    fn new(config: PortConfig, faults: Faults) -> Self {
        let room = config.capabilities.mtu + ETHERNET_LEN + VLAN_LEN;
        Self {
            data: SimPool::new(config.data_frames, room),
            control: SimPool::new(config.control_frames, room),
            receive: SimPool::new(config.receive_frames, room),
            config,
            faults,
            up: true,
            transmit_ring: VecDeque::new(),
            line_free_at: Instant::ZERO,
            router_free_at: Instant::ZERO,
            last_arrival: Instant::ZERO,
            underway: 0,
            in_bad_state: false,
            history: VecDeque::new(),
            receive_ring: VecDeque::new(),
            capture: None,
        }
    }

    pub(super) fn capabilities(&self) -> &Capabilities {
        &self.config.capabilities
    }

    fn len_max(&self) -> usize {
        self.config.capabilities.mtu + ETHERNET_LEN + VLAN_LEN
    }

    fn in_outage(&self, now: Instant) -> bool {
        !self.up
            || self.faults.outages.is_some_and(|outages| {
                // At the end of each period, so that a run starts with a good link.
                let every = u64::try_from(outages.every.as_nanos()).unwrap_or(u64::MAX).max(1);
                let phase = Duration::from_nanos(now.as_nanos() % every);
                phase + outages.lasting >= outages.every
            })
    }
}

impl Inner {
    pub(super) fn port(&self, index: usize) -> &Port {
        &self.ports[index]
    }

    pub(super) fn allocation_fails(&mut self, port: usize) -> bool {
        let fails = self.ports[port].faults.allocate_failure.strikes(&mut self.decisions);
        self.counters.allocations_failed += u64::from(fails);
        fails
    }

    pub(super) fn transmit(&mut self, index: usize, frames: &mut Burst<SimFrame>) {
        let port = &mut self.ports[index];
        let mut take = frames.len().min(port.config.transmit_ring.saturating_sub(port.transmit_ring.len()));
        if take > 0 && port.faults.transmit_refusal.strikes(&mut self.decisions) {
            self.counters.transmits_refused += 1;
            take = self.decisions.index_below(take);
        }
        for frame in frames.drain(..take) {
            let start = port.line_free_at.max(self.now);
            let bits = u64::try_from(frame.bytes().len()).expect("a length fits u64") * 8;
            let sending = match port.faults.bandwidth {
                Some(bandwidth) => Duration::from_nanos(bits * 1_000_000_000 / bandwidth.max(1)),
                None => Duration::ZERO,
            };
            port.line_free_at = start + sending;
            port.transmit_ring.push_back((port.line_free_at, frame));
        }
    }

    pub(super) fn receive(&mut self, index: usize, frames: &mut Burst<SimFrame>) {
        let port = &mut self.ports[index];
        while !frames.is_full()
            && let Some(octets) = port.receive_ring.pop_front()
        {
            let Some(mut frame) = port.receive.frame(&octets) else {
                self.counters.lost_no_frame += 1;
                continue;
            };
            if port.config.capabilities.receive_checksum {
                frame.set_checksum_status(verify(&octets));
            }
            frames.push(frame);
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let departures = self.ports.iter().filter_map(|port| port.transmit_ring.front()).map(|&(at, _)| at);
        let arrival = self.underway.keys().next().map(|&(at, _)| at);
        departures.chain(arrival).min()
    }

    fn advance(&mut self, now: Instant) {
        assert!(now >= self.now, "the clock only goes forward");
        while let Some(at) = self.next_event().filter(|&at| at <= now) {
            self.now = at.max(self.now);
            let departing = |port: &Port| port.transmit_ring.front().is_some_and(|&(depart, _)| depart <= at);
            if let Some(port) = self.ports.iter().position(departing) {
                self.depart(port);
            } else {
                let (_, Arrival { from, to: only, octets }) =
                    self.underway.pop_first().expect("the event is an arrival");
                self.ports[from].underway -= 1;
                let is_reached = |&to: &usize| only.map_or(to != from, |only| to == only);
                for to in (0..self.ports.len()).filter(is_reached) {
                    self.arrive(to, octets.clone());
                }
            }
        }
        self.now = now;
    }

    /// Sends the first frame of a transmit ring through the faults of its direction.
    fn depart(&mut self, from: usize) {
        let port = &mut self.ports[from];
        let (_, frame) = port.transmit_ring.pop_front().expect("a frame departs");
        let mut octets = frame.bytes().to_vec();
        if let Some(layout) = frame.requested_checksum() {
            assert!(port.config.capabilities.transmit_checksum, "the port offers no checksum offload");
            fill_checksums(&mut octets, layout);
        }
        drop(frame);
        octets.resize(octets.len().max(LEN_MIN), PADDING);
        self.counters.sent += 1;
        if let Some(capture) = &mut port.capture {
            capture.record(self.now, &octets);
        }
        if !self.is_lost(from, octets.len()) {
            if self.passes_router(from, &mut octets) {
                self.damage_and_carry(from, octets);
            }
        } else if let faults = &self.ports[from].faults
            && faults.report_too_long
            && !self.ports[from].in_outage(self.now)
            && let Some(len_max) = faults.frame_len_max.filter(|&len_max| octets.len() > len_max)
            && let Some(report) = mangle::packet_too_big(&octets, len_max)
        {
            let at = self.now + faults.delay;
            self.counters.reported_too_long += 1;
            self.schedule(at, Arrival { from, to: Some(from), octets: report });
        }
    }

    fn is_lost(&mut self, from: usize, len: usize) -> bool {
        let port = &mut self.ports[from];
        let (faults, decisions) = (&port.faults, &mut self.decisions);
        if let Some(burst) = faults.burst_loss {
            let change = if port.in_bad_state { burst.leave } else { burst.enter };
            port.in_bad_state ^= change.strikes(decisions);
        } else {
            port.in_bad_state = false;
        }
        let lost = &mut self.counters;
        let reason = if port.in_outage(self.now) {
            &mut lost.lost_in_outage
        } else if len > port.len_max().min(faults.frame_len_max.unwrap_or(usize::MAX)) {
            &mut lost.lost_too_long
        } else if faults.queue_limit.is_some_and(|limit| port.underway >= limit) {
            &mut lost.lost_queue_full
        } else if port.in_bad_state {
            &mut lost.lost_in_burst
        } else if port.transmit_ring.is_empty() && faults.tail_loss.strikes(decisions) {
            &mut lost.lost_tail
        } else if faults.loss.strikes(decisions) {
            &mut lost.lost
        } else {
            return false;
        };
        *reason += 1;
        true
    }

    /// Whether a frame finds room at the router of its direction, if there is one.
    fn passes_router(&mut self, from: usize, octets: &mut [u8]) -> bool {
        let port = &mut self.ports[from];
        let Some(bottleneck) = port.faults.bottleneck else { return true };
        match bottleneck.pass(octets, port.router_free_at, self.now) {
            Passage::Leaves(at) => port.router_free_at = at,
            Passage::Marked(at) => {
                port.router_free_at = at;
                self.counters.marked += 1;
            }
            Passage::Full => {
                self.counters.lost_queue_full += 1;
                return false;
            }
        }
        true
    }

    fn damage_and_carry(&mut self, from: usize, mut octets: Vec<u8>) {
        let faults = self.ports[from].faults.clone();

        if faults.replay.strikes(&mut self.decisions) && !self.ports[from].history.is_empty() {
            let old = self.decisions.index_below(self.ports[from].history.len());
            let old = self.ports[from].history[old].clone();
            self.counters.replayed += 1;
            self.carry(from, old, &faults);
        }
        if faults.replay > Chance::NEVER {
            let history = &mut self.ports[from].history;
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(octets.clone());
        }

        if faults.corrupt.strikes(&mut self.decisions) && !octets.is_empty() {
            let octet = self.decisions.index_below(octets.len());
            mangle::corrupt(&mut octets, octet, random_bit(&mut self.decisions));
            self.counters.corrupted += 1;
        }
        let layout = TcpLayout::of(&octets).filter(|layout| !layout.payload.is_empty());
        if let Some(layout) = &layout
            && faults.corrupt_repaired.strikes(&mut self.decisions)
        {
            let octet = layout.payload.start + self.decisions.index_below(layout.payload.len());
            mangle::corrupt(&mut octets, octet, random_bit(&mut self.decisions));
            mangle::repair_tcp_checksum(&mut octets);
            self.counters.corrupted_repaired += 1;
        }
        if faults.duplicate.strikes(&mut self.decisions) {
            self.counters.duplicated += 1;
            self.carry(from, octets.clone(), &faults);
        }
        if let Some(layout) = &layout
            && layout.payload.len() > 1
            && faults.resegment.strikes(&mut self.decisions)
        {
            let at = 1 + self.decisions.index_below(layout.payload.len() - 1);
            if let Some((first, second)) = mangle::split_tcp_segment(&octets, at) {
                self.counters.resegmented += 1;
                self.carry(from, first, &faults);
                self.carry(from, second, &faults);
                return;
            }
        }
        self.carry(from, octets, &faults);
    }

    /// Schedules the arrival of what departed now.
    fn carry(&mut self, from: usize, octets: Vec<u8>, faults: &Faults) {
        let port = &mut self.ports[from];
        let departure = self.now.max(port.router_free_at);
        let in_order =
            (departure + faults.delay + self.decisions.up_to(faults.jitter)).max(port.last_arrival);
        let at = if faults.reorder.strikes(&mut self.decisions) {
            self.counters.reordered += 1;
            in_order + self.decisions.up_to(faults.reorder_delay)
        } else {
            port.last_arrival = in_order;
            in_order
        };
        self.schedule(at, Arrival { from, to: None, octets });
    }

    fn schedule(&mut self, at: Instant, arrival: Arrival) {
        self.ports[arrival.from].underway += 1;
        self.underway.insert((at, self.sequence), arrival);
        self.sequence += 1;
    }

    fn arrive(&mut self, to: usize, octets: Vec<u8>) {
        let port = &mut self.ports[to];
        if octets.len() > port.len_max() {
            self.counters.lost_too_long += 1;
        } else if port.receive_ring.len() >= port.config.receive_ring {
            self.counters.lost_receive_ring_full += 1;
        } else {
            if let Some(capture) = &mut port.capture {
                capture.record(self.now, &octets);
            }
            self.counters.delivered += 1;
            port.receive_ring.push_back(octets);
        }
    }
}

/// Fills in the checksums as a NIC does: the TCP field must hold the pseudo-header's sum.
fn fill_checksums(octets: &mut [u8], layout: ChecksumLayout) {
    let ip = usize::from(layout.link_len);
    let tcp = ip + usize::from(layout.network_len);
    if !layout.ipv6 {
        Ipv4Packet::new_unchecked(&mut octets[ip..tcp]).fill_checksum();
    }
    let sum = smoltcp::wire::checksum::data(&octets[tcp..]);
    octets[tcp + 16..tcp + 18].copy_from_slice(&(!sum).to_be_bytes());
    let found = TcpLayout::of(octets).expect("an offloaded frame is a TCP segment");
    assert_eq!((found.ip, found.tcp, found.ipv6), (ip, tcp, layout.ipv6), "the layout is the frame's");
    assert_eq!(found.payload.start - tcp, usize::from(layout.transport_len), "the layout is the frame's");
}

/// A NIC's verdict on a received frame.
fn verify(octets: &[u8]) -> ChecksumStatus {
    let Some(layout) = TcpLayout::of(octets) else {
        return ChecksumStatus::Unknown;
    };
    let segment = TcpPacket::new_unchecked(&octets[layout.tcp..layout.payload.end]);
    let ip_good = layout.ipv6 || Ipv4Packet::new_unchecked(&octets[layout.ip..]).verify_checksum();
    if ip_good && segment.verify_checksum(&layout.source, &layout.destination) {
        ChecksumStatus::Good
    } else {
        ChecksumStatus::Bad
    }
}

fn random_bit(decisions: &mut Decisions) -> u8 {
    u8::try_from(decisions.index_below(8)).expect("less than 8")
}
