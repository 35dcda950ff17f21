//! smoltcp's TCP as an independent peer over the simulated wire: both directions, with and
//! without loss.

mod common;

use core::time::Duration;

use common::stream::{Stream, octet};
use common::tap::Tap;
use common::{Version, config, ip, sweep};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy;
use smoltcp::socket::tcp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr as TheirCidr, IpEndpoint, IpListenEndpoint};
use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::sim::{Chance, Faults, SimDevice, Wire};
use tcpstack::stack::{ConnectionId, Events, Stack};
use tcpstack::time::Instant;

const PORT: u16 = 4791;

/// A port of the wire as smoltcp wants to see one.
struct Phy {
    device: SimDevice,
    received: Burst<tcpstack::sim::SimFrame>,
}

struct RxToken(Vec<u8>);

struct TxToken<'a>(&'a mut SimDevice);

impl phy::RxToken for RxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut octets = vec![0; len];
        let result = f(&mut octets);
        if let Some(mut frame) = self.0.allocate() {
            frame.push_back(len);
            frame.bytes_mut().copy_from_slice(&octets);
            let mut burst = Burst::new();
            burst.push(frame);
            self.0.transmit_burst(&mut burst);
        }
        result
    }
}

impl phy::Device for Phy {
    type RxToken<'a> = RxToken;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(RxToken, TxToken<'_>)> {
        if self.received.is_empty() {
            self.device.receive_burst(&mut self.received);
        }
        let frame = self.received.pop_at(0)?;
        Some((RxToken(frame.bytes().to_vec()), TxToken(&mut self.device)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<TxToken<'_>> {
        Some(TxToken(&mut self.device))
    }

    fn capabilities(&self) -> phy::DeviceCapabilities {
        let mut capabilities = phy::DeviceCapabilities::default();
        capabilities.medium = phy::Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct World {
    wire: Wire,
    now: Instant,
    device: Tap,
    stack: Stack<Tap>,
    phy: Phy,
    peer: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

fn theirs(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(i64::try_from(now.as_micros()).unwrap())
}

impl World {
    fn new(seed: u64, faults: Faults, config: StackConfig, peer_buffer: usize) -> Self {
        let wire = Wire::new(seed, faults);
        let device = Tap::new(wire.port(0));
        let mut stack = Stack::new(config, &device.capabilities().clone(), [5; 32]);
        for (version, prefix) in [(Version::V4, 24), (Version::V6, 64)] {
            stack.interface_mut().add_address(IpCidr::new(ip(version, 0), prefix).unwrap()).unwrap();
        }
        let mut phy = Phy { device: wire.port(1), received: Burst::new() };
        let mac = EthernetAddress(phy.device.capabilities().mac);
        let mut peer_config = Config::new(HardwareAddress::Ethernet(mac));
        peer_config.random_seed = seed;
        let mut peer = Interface::new(peer_config, &mut phy, theirs(Instant::ZERO));
        peer.update_ip_addrs(|addrs| {
            addrs.push(TheirCidr::new(ip(Version::V4, 1).into(), 24)).unwrap();
            addrs.push(TheirCidr::new(ip(Version::V6, 1).into(), 64)).unwrap();
        });
        let buffer = || tcp::SocketBuffer::new(vec![0; peer_buffer]);
        let mut sockets = SocketSet::new(Vec::new());
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        let socket = sockets.add(socket);
        Self { wire, now: Instant::ZERO, device, stack, phy, peer, sockets, socket }
    }

    fn turn(&mut self) {
        self.wire.advance(self.now);
        let mut burst = Burst::new();
        loop {
            self.device.receive_burst(&mut burst);
            if burst.is_empty() {
                break;
            }
            for frame in burst.drain(..) {
                self.stack.receive(frame, &mut self.device, self.now);
            }
        }
        self.stack.transmit(&mut self.device, self.now);
        self.peer.poll(theirs(self.now), &mut self.phy, &mut self.sockets);
    }

    fn run(&mut self, span: Duration, mut work: impl FnMut(&mut Self) -> bool) -> bool {
        let limit = self.now + span;
        while self.now < limit {
            self.turn();
            if work(self) {
                return true;
            }
            self.stack.transmit(&mut self.device, self.now);
            self.peer.poll(theirs(self.now), &mut self.phy, &mut self.sockets);
            let peer = self.peer.poll_delay(theirs(self.now), &self.sockets);
            let peer = peer.map(|delay| self.now + Duration::from_micros(delay.total_micros()));
            let next = [self.stack.poll_at(self.now), self.wire.next_delivery(), peer];
            let next = next.into_iter().flatten().min().unwrap_or(limit);
            self.now = next.max(self.now + Duration::from_micros(1)).min(limit);
        }
        false
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn connect(&mut self, version: Version, active: bool) -> ConnectionId {
        if active {
            self.socket().listen(IpListenEndpoint { addr: None, port: PORT }).unwrap();
            return self.stack.connect((ip(version, 1), PORT).into(), None, self.now).unwrap();
        }
        self.stack.listen((ip(version, 0), PORT).into(), 4).unwrap();
        let remote = IpEndpoint::new(ip(version, 0).into(), PORT);
        let handle = self.socket;
        self.sockets.get_mut::<tcp::Socket<'_>>(handle).connect(self.peer.context(), remote, 5000).unwrap();
        let mut id = None;
        assert!(self.run(Duration::from_secs(60), |world| {
            while let Some((accepted, events)) = world.stack.next_event() {
                if events.contains(Events::ACCEPTED) {
                    id = Some(accepted);
                }
            }
            id.is_some()
        }));
        id.unwrap()
    }
}

/// Sends and receives on smoltcp's side; true when all was sent and received.
struct PeerStream {
    sent: u64,
    to_send: u64,
    received: u64,
    to_receive: u64,
}

impl PeerStream {
    fn work(&mut self, socket: &mut tcp::Socket<'_>) {
        while socket.can_recv() {
            let received = &mut self.received;
            socket
                .recv(|octets| {
                    for &got in octets.iter() {
                        assert_eq!(got, octet(0, *received), "at octet {received}");
                        *received += 1;
                    }
                    (octets.len(), ())
                })
                .unwrap();
        }
        while self.sent < self.to_send && socket.can_send() {
            let (sent, to_send) = (self.sent, self.to_send);
            let len = socket
                .send(|octets| {
                    let len = octets.len().min(usize::try_from(to_send - sent).unwrap());
                    for (offset, place) in (sent..).zip(&mut octets[..len]) {
                        *place = octet(1, offset);
                    }
                    (len, len)
                })
                .unwrap();
            self.sent += u64::try_from(len).unwrap();
        }
        if self.sent == self.to_send && self.received == self.to_receive && socket.may_send() {
            socket.close();
        }
    }
}

struct Plan {
    version: Version,
    active: bool,
    octets: [u64; 2],
    peer_buffer: usize,
}

fn transfer(seed: u64, faults: Faults, config: StackConfig, plan: &Plan) {
    let mut world = World::new(seed, faults, config, plan.peer_buffer);
    let id = world.connect(plan.version, plan.active);
    let mut ours = Stream::new(id, 0, plan.octets[0], seed);
    ours.ragged = seed % 2 == 1;
    let mut peer = PeerStream { sent: 0, to_send: plan.octets[1], received: 0, to_receive: plan.octets[0] };
    let mut closed = false;
    let done = world.run(Duration::from_secs(3600), |world| {
        ours.work(&mut world.stack, &mut world.device);
        let handle = world.socket;
        peer.work(world.sockets.get_mut(handle));
        while let Some((_, events)) = world.stack.next_event() {
            closed |= events.contains(Events::CLOSED);
        }
        closed
    });
    let info = world.stack.info(id);
    assert!(
        done,
        "{}/{} there, {}/{} back, {info:?}",
        peer.received, plan.octets[0], ours.received, plan.octets[1]
    );
    ours.work(&mut world.stack, &mut world.device);
    assert_eq!((ours.received, peer.received), (plan.octets[1], plan.octets[0]));
    world.stack.release(id);
    // Old frames still under way find nobody.
    world.run(Duration::from_secs(200), |_| false);
    assert_eq!(world.stack.connections().count(), 0);
    assert_eq!(world.wire.outstanding(), 0, "a frame has leaked");
}

fn link() -> Faults {
    Faults::link(Duration::from_micros(50), 10_000_000_000)
}

#[test]
fn a_clean_wire_both_ways() {
    for version in [Version::V4, Version::V6] {
        for active in [true, false] {
            for timestamps in [true, false] {
                let plan = Plan { version, active, octets: [500_000, 500_000], peer_buffer: 65_000 };
                transfer(1, link(), StackConfig { timestamps, ..config() }, &plan);
            }
        }
    }
}

#[test]
fn a_scaled_window_of_the_peer() {
    let plan =
        Plan { version: Version::V4, active: true, octets: [3_000_000, 3_000_000], peer_buffer: 1 << 20 };
    transfer(2, link(), config(), &plan);
}

#[test]
fn a_small_buffer_of_the_peer() {
    for peer_buffer in [1000, 3000] {
        let plan = Plan { version: Version::V4, active: true, octets: [30_000, 30_000], peer_buffer };
        transfer(3, link(), config(), &plan);
    }
}

#[test]
fn with_loss_reordering_and_duplicates() {
    sweep("smoltcp_peer", "with_loss_reordering_and_duplicates", 12, |seed| {
        let faults = Faults {
            loss: Chance::percent(2),
            reorder: Chance::percent(2),
            reorder_delay: Duration::from_micros(200),
            duplicate: Chance::percent(1),
            ..link()
        };
        let version = if seed % 2 == 0 { Version::V4 } else { Version::V6 };
        let octets = if seed % 3 == 0 { [100_000, 100_000] } else { [150_000, 20_000] };
        let plan = Plan { version, active: seed % 4 < 2, octets, peer_buffer: 65_000 };
        transfer(seed, faults, StackConfig { sack: seed % 5 > 0, ..config() }, &plan);
    });
}
