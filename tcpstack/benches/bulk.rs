//! Bulk data over rings in this process, both ends on one core, next to smoltcp's TCP:
//! `cargo bench -p tcpstack --bench bulk`.
//!
//! MTU 1500, checksums in software in both, windows and buffers of [`WINDOW`]. The sender's
//! application copies each octet from a buffer of its own and the receiver's into one, as with
//! `write` and `read`; the rings hand frames over as they are. The clock is virtual: no time passes
//! that a timer would wait for. The ratio at the end is of minima over alternating runs.

#![allow(missing_docs, clippy::print_stdout, reason = "a bench")]

mod ring;

use core::time::Duration;
use std::hint::black_box;
use std::time::Instant as Clock;

use criterion::{Criterion, Throughput};
use ring::Ring;
use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::stack::{ConnectionId, Events, Stack};
use tcpstack::time::Instant;

/// Receive windows and buffers.
const WINDOW: usize = 256 << 10;

/// What the applications write and read at once.
const PIECE: usize = 64 << 10;

/// Octets of an iteration.
const ITERATION: u64 = 1 << 20;

/// Either stack, with a connection.
trait Pair {
    /// One turn of both ends; octets that the receiver has read.
    fn turn(&mut self, source: &[u8], sink: &mut [u8]) -> usize;
}

struct Ours {
    stacks: [Stack<Ring>; 2],
    devices: [Ring; 2],
    ids: [ConnectionId; 2],
    now: Instant,
}

impl Ours {
    fn new() -> Self {
        let devices = Ring::pair(4096);
        let window = u32::try_from(WINDOW).unwrap();
        let config = StackConfig { receive_window: window, send_buffer: window, ..StackConfig::default() };
        let mut host = 0;
        let mut stacks = devices.each_ref().map(|device| {
            host += 1;
            let mut stack = Stack::new(config.clone(), device.capabilities(), [host; 32]);
            stack.interface_mut().add_address(IpCidr::new([192, 0, 2, host].into(), 24).unwrap()).unwrap();
            stack
        });
        stacks[1].listen(([192, 0, 2, 2], 7).into(), 1).unwrap();
        let none = ConnectionId { index: u32::MAX, generation: 0 };
        let mut pair = Self { stacks, devices, ids: [none; 2], now: Instant::ZERO };
        pair.run_for(Duration::from_secs(3));
        pair.ids[0] = pair.stacks[0].connect(([192, 0, 2, 2], 7).into(), None, pair.now).unwrap();
        pair.run_for(Duration::from_secs(3));
        let (id, events) = pair.stacks[1].next_event().unwrap();
        assert!(events.contains(Events::ACCEPTED));
        pair.ids[1] = id;
        pair
    }

    fn run_for(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            self.now += Duration::from_millis(10);
            for host in 0..2 {
                self.receive(host);
                self.stacks[host].transmit(&mut self.devices[host], self.now);
            }
        }
    }

    fn receive(&mut self, host: usize) {
        let mut burst = Burst::new();
        loop {
            self.devices[host].receive_burst(&mut burst);
            if burst.is_empty() {
                return;
            }
            for frame in burst.drain(..) {
                self.stacks[host].receive(frame, &mut self.devices[host], self.now);
            }
        }
    }
}

impl Pair for Ours {
    fn turn(&mut self, source: &[u8], sink: &mut [u8]) -> usize {
        self.now += Duration::from_micros(1);
        self.receive(0);
        while self.stacks[0].next_event().is_some() {}
        if let Some(mut outlet) = self.stacks[0].outlet(self.ids[0]) {
            let mut at = 0;
            while outlet.room() > 0 {
                let Some(mut frame) = self.devices[0].allocate() else { break };
                let len = outlet.emss();
                at = if at + len > source.len() { 0 } else { at };
                frame.push_back(len);
                frame.bytes_mut().copy_from_slice(&source[at..at + len]);
                at += len;
                assert!(outlet.send(frame, false).is_ok());
            }
        }
        self.stacks[0].transmit(&mut self.devices[0], self.now);
        self.receive(1);
        while self.stacks[1].next_event().is_some() {}
        let (mut octets, mut at) = (0, 0);
        self.stacks[1].consume(self.ids[1], |frame| {
            let len = frame.bytes().len();
            at = if at + len > sink.len() { 0 } else { at };
            sink[at..at + len].copy_from_slice(frame.bytes());
            at += len;
            octets += len;
        });
        self.stacks[1].transmit(&mut self.devices[1], self.now);
        octets
    }
}

mod theirs {
    use core::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
    use smoltcp::phy::{self, Medium};
    use smoltcp::socket::tcp;
    use smoltcp::time::Instant;
    use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};

    use super::{PIECE, Pair, WINDOW};

    /// A frame, and how much of its buffer it fills: buffers are never shortened or cleared.
    type Sized = (Vec<u8>, usize);

    const FRAME_MAX: usize = 1514;
    const RING: usize = 512;

    #[derive(Clone)]
    struct Rings {
        frames: Rc<RefCell<[VecDeque<Sized>; 2]>>,
        spare: Rc<RefCell<Vec<Vec<u8>>>>,
    }

    struct Phy {
        rings: Rings,
        end: usize,
    }

    struct RxToken(Option<Sized>, Rings);

    struct TxToken(Rings, usize);

    impl phy::RxToken for RxToken {
        #[inline]
        fn consume<R, F: FnOnce(&[u8]) -> R>(mut self, read: F) -> R {
            let (octets, len) = self.0.take().expect("it is consumed once");
            let result = read(&octets[..len]);
            self.1.spare.borrow_mut().push(octets);
            result
        }
    }

    impl phy::TxToken for TxToken {
        #[inline]
        fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
            let spare = self.0.spare.borrow_mut().pop();
            let mut octets = spare.unwrap_or_else(|| vec![0; FRAME_MAX]);
            let result = write(&mut octets[..len]);
            self.0.frames.borrow_mut()[self.1].push_back((octets, len));
            result
        }
    }

    impl phy::Device for Phy {
        type RxToken<'a> = RxToken;
        type TxToken<'a> = TxToken;

        #[inline]
        fn receive(&mut self, _: Instant) -> Option<(RxToken, TxToken)> {
            let frame = self.rings.frames.borrow_mut()[self.end].pop_front()?;
            Some((RxToken(Some(frame), self.rings.clone()), TxToken(self.rings.clone(), 1 - self.end)))
        }

        #[inline]
        fn transmit(&mut self, _: Instant) -> Option<TxToken> {
            let room = self.rings.frames.borrow()[1 - self.end].len() < RING;
            room.then(|| TxToken(self.rings.clone(), 1 - self.end))
        }

        fn capabilities(&self) -> phy::DeviceCapabilities {
            let mut capabilities = phy::DeviceCapabilities::default();
            capabilities.medium = Medium::Ethernet;
            capabilities.max_transmission_unit = FRAME_MAX;
            capabilities
        }
    }

    struct Host {
        phy: Phy,
        interface: Interface,
        sockets: SocketSet<'static>,
        socket: SocketHandle,
    }

    pub(super) struct Theirs {
        hosts: [Host; 2],
        micros: i64,
    }

    impl Theirs {
        pub(super) fn new() -> Self {
            let rings = Rings { frames: Rc::default(), spare: Rc::default() };
            let mut hosts = [0_u8, 1].map(|end| {
                let mut phy = Phy { rings: rings.clone(), end: usize::from(end) };
                let mac = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, end + 1]));
                let mut interface = Interface::new(Config::new(mac), &mut phy, Instant::ZERO);
                let address = IpCidr::new(IpAddress::v4(192, 0, 2, end + 1), 24);
                interface.update_ip_addrs(|addresses| addresses.push(address).unwrap());
                let buffer = || tcp::SocketBuffer::new(vec![0; WINDOW]);
                let mut socket = tcp::Socket::new(buffer(), buffer());
                socket.set_nagle_enabled(false);
                let mut sockets = SocketSet::new(Vec::new());
                let socket = sockets.add(socket);
                Host { phy, interface, sockets, socket }
            });
            hosts[1].sockets.get_mut::<tcp::Socket<'_>>(hosts[1].socket).listen(7).unwrap();
            let [client, _] = &mut hosts;
            let socket = client.sockets.get_mut::<tcp::Socket<'_>>(client.socket);
            socket.connect(client.interface.context(), (IpAddress::v4(192, 0, 2, 2), 7), 50_000).unwrap();
            Self { hosts, micros: 0 }
        }
    }

    impl Pair for Theirs {
        fn turn(&mut self, source: &[u8], sink: &mut [u8]) -> usize {
            self.micros += 1;
            let now = Instant::from_micros(self.micros);
            let [client, server] = &mut self.hosts;
            client.interface.poll(now, &mut client.phy, &mut client.sockets);
            let socket = client.sockets.get_mut::<tcp::Socket<'_>>(client.socket);
            while socket.can_send() && socket.send_slice(&source[..PIECE]).is_ok_and(|len| len > 0) {}
            client.interface.poll(now, &mut client.phy, &mut client.sockets);
            server.interface.poll(now, &mut server.phy, &mut server.sockets);
            let socket = server.sockets.get_mut::<tcp::Socket<'_>>(server.socket);
            let mut octets = 0;
            while socket.can_recv() {
                octets += socket.recv_slice(&mut sink[..PIECE]).unwrap();
            }
            server.interface.poll(now, &mut server.phy, &mut server.sockets);
            octets
        }
    }
}

/// How long it takes until this many octets have been read.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn transfer(pair: &mut impl Pair, octets: u64) -> Duration {
    let (source, mut sink) = (vec![0x5a; PIECE], vec![0; PIECE]);
    let (mut left, mut idle) = (usize::try_from(octets).unwrap(), 0);
    let began = Clock::now();
    while left > 0 {
        let read = pair.turn(&source, &mut sink);
        left = left.saturating_sub(read);
        idle = if read > 0 { 0 } else { idle + 1 };
        assert!(idle < 10_000_000, "nothing moves");
    }
    black_box(&sink);
    began.elapsed()
}

fn group(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bulk");
    group.throughput(Throughput::Bytes(ITERATION));
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    let mut ours = Ours::new();
    group.bench_function("tcpstack", |bencher| {
        bencher.iter_custom(|iterations| transfer(&mut ours, iterations * ITERATION));
    });
    let mut theirs = theirs::Theirs::new();
    group.bench_function("smoltcp", |bencher| {
        bencher.iter_custom(|iterations| transfer(&mut theirs, iterations * ITERATION));
    });
    group.finish();
}

fn ratio() {
    const OCTETS: u64 = 32 << 20;
    let (mut ours, mut theirs) = (Ours::new(), theirs::Theirs::new());
    let mut best = [Duration::MAX; 2];
    for _ in 0..20 {
        best[0] = best[0].min(transfer(&mut ours, OCTETS));
        best[1] = best[1].min(transfer(&mut theirs, OCTETS));
    }
    let gigabits =
        best.map(|took| 8.0 * f64::from(u32::try_from(OCTETS).unwrap()) / 1e9 / took.as_secs_f64());
    println!(
        "bulk, minima of {} alternating runs: tcpstack {:.1} Gb/s, smoltcp {:.1} Gb/s, ratio {:.2}",
        20,
        gigabits[0],
        gigabits[1],
        gigabits[0] / gigabits[1]
    );
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    group(&mut criterion);
    criterion.final_summary();
    ratio();
}
