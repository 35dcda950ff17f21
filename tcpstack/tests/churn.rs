//! Ten thousand connections are opened and closed each second, in every way that there is, and
//! nothing is left of them: no slot, no timer, no flow, no frame.
//!
//! Twelve seconds are simulated, in which each port is used four times, most of them out of
//! TIME-WAIT; `TCP_CHURN_SECONDS=60` makes it a minute.

mod common;

use core::time::Duration;
use std::collections::VecDeque;

use common::socket;
use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::sim::{Faults, PortConfig, SimDevice, Wire};
use tcpstack::stack::{ConnectionId, Events, Stack};
use tcpstack::time::Instant;

const PER_SECOND: u64 = 10_000;

/// The time that a turn takes.
const STEP: Duration = Duration::from_micros(50);

struct Host {
    device: SimDevice,
    stack: Stack<SimDevice>,
}

struct World {
    wire: Wire,
    client: Host,
    server: Host,
    now: Instant,
    /// Connections of the server that are closed a little later, so that the client waits.
    leaving: VecDeque<(Instant, ConnectionId)>,
    /// How the client's connections end, by the place that they have.
    endings: Vec<u64>,
    done: u64,
}

/// How a connection ends: a number from 0 to 9.
mod ending {
    /// The server closes first, so it is the one in TIME-WAIT.
    pub(super) const BY_SERVER: u64 = 6;
    /// Reset by the client as soon as it is established.
    pub(super) const ABORTED: u64 = 7;
    /// Nobody listens.
    pub(super) const REFUSED: u64 = 8;
    /// The client lets go of it at once.
    pub(super) const DETACHED: u64 = 9;
}

impl World {
    fn new() -> Self {
        // 20 us there, at 100 Gb/s, and a segment in ten thousand is lost.
        let faults = Faults {
            loss: tcpstack::sim::Chance::ppm(100),
            ..Faults::link(Duration::from_micros(20), 100_000_000_000)
        };
        let wire = Wire::new(4, faults);
        let config = StackConfig { rto_initial: Duration::from_millis(50), ..StackConfig::default() };
        let [client, server] = [0u8, 1].map(|number| {
            let device = wire.add_port(PortConfig::new(number).offloads());
            let capabilities = device.capabilities().clone();
            let mut stack = Stack::new(config.clone(), &capabilities, [number; 32]);
            let address = IpCidr::new(socket(number.into(), 1).ip(), 24).unwrap();
            stack.interface_mut().add_address(address).unwrap();
            Host { device, stack }
        });
        let mut world = Self {
            wire,
            client,
            server,
            now: Instant::ZERO,
            leaving: VecDeque::new(),
            endings: Vec::new(),
            done: 0,
        };
        world.server.stack.listen(socket(1, 80), 1024).unwrap();
        world
    }

    fn open(&mut self, number: u64) {
        let how = number % 10;
        let port = if how == ending::REFUSED { 81 } else { 80 };
        let id = self.client.stack.connect(socket(1, port), None, self.now).expect("a port is free");
        let place = id.index as usize;
        self.endings.resize(self.endings.len().max(place + 1), 0);
        self.endings[place] = how;
    }

    fn turn(&mut self) {
        self.wire.advance(self.now);
        for host in [&mut self.client, &mut self.server] {
            let mut burst = Burst::new();
            loop {
                host.device.receive_burst(&mut burst);
                if burst.is_empty() {
                    break;
                }
                for frame in burst.drain(..) {
                    host.stack.receive(frame, &mut host.device, self.now);
                }
            }
        }
        while let Some((id, events)) = self.client.stack.next_event() {
            self.client_acts(id, events);
        }
        while let Some((id, events)) = self.server.stack.next_event() {
            self.server_acts(id, events);
        }
        while let Some((at, id)) = self.leaving.pop_front() {
            if at > self.now {
                self.leaving.push_front((at, id));
                break;
            }
            self.server.stack.detach(id, self.now);
        }
        for host in [&mut self.client, &mut self.server] {
            host.stack.transmit(&mut host.device, self.now);
        }
        self.now += STEP;
    }

    fn client_acts(&mut self, id: ConnectionId, events: Events) {
        let Host { device, stack } = &mut self.client;
        let how = self.endings[id.index as usize];
        if events.contains(Events::CLOSED) {
            stack.release(id);
            self.done += 1;
            return;
        }
        if events.contains(Events::CONNECTED) {
            let mut frame = device.allocate().expect("ample frames");
            frame.push_back(64);
            frame.bytes_mut().fill(u8::try_from(how).unwrap());
            stack.send(id, frame, true).map_err(|_| "no room").unwrap();
            match how {
                ending::BY_SERVER => {}
                ending::ABORTED => stack.abort(id, self.now),
                ending::DETACHED => {
                    stack.detach(id, self.now);
                    self.done += 1;
                }
                _ => stack.close(id),
            }
        }
        if events.contains(Events::PEER_CLOSED) && how == ending::BY_SERVER {
            stack.close(id);
        }
    }

    fn server_acts(&mut self, id: ConnectionId, events: Events) {
        let stack = &mut self.server.stack;
        let mut by_server = false;
        while let Some(frame) = stack.receive_payload(id) {
            by_server |= u64::from(frame.bytes()[0]) == ending::BY_SERVER;
            stack.release_window(id, frame.bytes().len());
        }
        if events.contains(Events::CLOSED) {
            stack.release(id);
        } else if by_server {
            stack.detach(id, self.now);
        } else if events.contains(Events::PEER_CLOSED) {
            // Half of a round trip, or ten.
            let pause = if id.index.is_multiple_of(2) { Duration::ZERO } else { 20 * STEP };
            self.leaving.push_back((self.now + pause, id));
        }
    }
}

#[test]
fn ten_thousand_connections_a_second_leave_nothing() {
    let seconds = std::env::var("TCP_CHURN_SECONDS").map_or(12, |text| text.parse().expect("a number"));
    let mut world = World::new();
    let start = world.now + Duration::from_secs(1);
    while world.now < start {
        world.turn();
    }
    let mut opened = 0;
    while opened < seconds * PER_SECOND {
        let due = u64::try_from((world.now - start).as_micros()).unwrap() * PER_SECOND / 1_000_000;
        while opened < due.min(seconds * PER_SECOND) {
            world.open(opened);
            opened += 1;
        }
        world.turn();
    }
    // The last ones end, TIME-WAIT after a minute, and what the peer never heard of.
    let end = world.now + Duration::from_secs(1);
    while world.now < end {
        world.turn();
    }
    let waiting = world.client.stack.time_wait_len() + world.server.stack.time_wait_len();
    for _ in 0..400 {
        world.turn();
        world.now += Duration::from_millis(500);
    }
    assert_eq!(world.done, opened);
    for host in [&mut world.client, &mut world.server] {
        let stack = &mut host.stack;
        assert_eq!((stack.connections().count(), stack.half_open_len(), stack.orphans()), (0, 0, 0));
        assert_eq!((stack.time_wait_len(), stack.flows_len(), stack.early_frames()), (0, 0, 0));
        // No timer runs but those of the layers below.
        assert_eq!(stack.poll_at(world.now), stack.interface().poll_at());
        assert_eq!((host.device.data_pool().outstanding(), host.device.control_pool().outstanding()), (0, 0));
        assert_eq!(stack.counters().ports_exhausted, 0);
    }
    assert_eq!((world.wire.underway(), world.wire.outstanding()), (0, 0));
    // All of them together had places for a small part of a second.
    assert!(world.endings.len() < 2000, "{} places", world.endings.len());
    assert!(waiting > 10_000, "few were in TIME-WAIT: {waiting}");
    assert!(world.client.stack.counters().time_wait_recycled > 0);
}
