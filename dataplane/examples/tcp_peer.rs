//! Ironwarp's TCP as a plain host with the services echo (TCP port 7), discard (9), daytime (13) and
//! chargen (19), so that another TCP can be tried against it; port 11 is chargen that resets the
//! connection at the first octet it is sent:
//!
//! ```text
//! tcp_peer [EAL options] -- --address ADDR/LEN... [--connect ADDR:PORT...]
//! ```
//!
//! It also connects to each `--connect` again and again and echoes there. SIGTERM and SIGINT end it in
//! order.

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dataplane::port::dpdk::{Eal, PortConfig, PortQueue, Tsc};
use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::stack::{ConnectionId, Events, Stack};
use tcpstack::time::Instant;

const ECHO: u16 = 7;
const DISCARD: u16 = 9;
const RESET: u16 = 11;
const DAYTIME: u16 = 13;
const CHARGEN: u16 = 19;

/// Chargen's stream: octet i is i mod 251.
const PATTERN: usize = 251;

/// Between two attempts of an active open.
const RECONNECT: Duration = Duration::from_millis(200);

type QueueFrame = <PortQueue as Device>::Frame;

/// What a connection is for.
enum Service {
    Echo { pending: Option<QueueFrame> },
    Discard,
    Daytime { sent: bool },
    Chargen { sent: usize, resets: bool },
}

struct Peer {
    device: PortQueue,
    stack: Stack<PortQueue>,
    connections: BTreeMap<ConnectionId, Conversation>,
    /// Where to connect to, with the connection or the time to try again.
    targets: Vec<(SocketAddr, Option<ConnectionId>, Instant)>,
}

struct Conversation {
    service: Service,
    peer_closed: bool,
    closed: bool,
    /// Whether to close by a reset.
    aborts: bool,
}

impl Peer {
    fn turn(&mut self, now: Instant) -> bool {
        let mut burst = Burst::new();
        self.device.receive_burst(&mut burst);
        let mut busy = !burst.is_empty();
        for frame in burst {
            self.stack.receive(frame, &mut self.device, now);
        }
        while let Some((id, events)) = self.stack.next_event() {
            busy = true;
            self.handle(id, events, now);
        }
        for target in &mut self.targets {
            if target.1.is_none() && target.2 <= now {
                target.1 = self.stack.connect(target.0, None, now).ok();
                target.2 = now + RECONNECT;
                if let Some(id) = target.1 {
                    let service = Service::Echo { pending: None };
                    let conversation = Conversation::new(service);
                    self.connections.insert(id, conversation);
                }
            }
        }
        self.stack.transmit(&mut self.device, now) || busy
    }

    fn handle(&mut self, id: ConnectionId, events: Events, now: Instant) {
        if events.contains(Events::ACCEPTED) {
            let port = self.stack.info(id).map_or(0, |info| info.local.port());
            let service = match port {
                DISCARD => Service::Discard,
                DAYTIME => Service::Daytime { sent: false },
                CHARGEN | RESET => Service::Chargen { sent: 0, resets: port == RESET },
                _ => Service::Echo { pending: None },
            };
            let conversation = Conversation::new(service);
            self.connections.insert(id, conversation);
        }
        if let Some(conversation) = self.connections.get_mut(&id) {
            conversation.peer_closed |= events.contains(Events::PEER_CLOSED);
            let finished = conversation.serve(id, &mut self.stack, &mut self.device);
            if finished && !conversation.closed {
                conversation.closed = true;
                if conversation.aborts {
                    self.stack.abort(id, now);
                } else {
                    self.stack.close(id);
                }
            }
        }
        if events.contains(Events::CLOSED) {
            self.connections.remove(&id);
            self.stack.release(id);
            for target in &mut self.targets {
                if target.1 == Some(id) {
                    target.1 = None;
                    target.2 = now + RECONNECT;
                }
            }
        }
    }
}

impl Conversation {
    fn new(service: Service) -> Self {
        Self { service, peer_closed: false, closed: false, aborts: false }
    }

    /// Does what can be done now; true when nothing more is to be sent.
    fn serve(&mut self, id: ConnectionId, stack: &mut Stack<PortQueue>, device: &mut PortQueue) -> bool {
        match &mut self.service {
            Service::Echo { pending } => loop {
                let Some(mut frame) = pending.take().or_else(|| stack.receive_payload(id)) else {
                    return self.peer_closed;
                };
                let Some(len) = send_copy(id, frame.bytes(), stack, device) else {
                    *pending = Some(frame);
                    return false;
                };
                stack.release_window(id, len);
                frame.trim_front(len);
                if !frame.bytes().is_empty() {
                    *pending = Some(frame);
                }
            },
            Service::Discard => {
                drain(id, stack);
                self.peer_closed
            }
            Service::Daytime { sent } => {
                drain(id, stack);
                *sent = *sent || send_copy(id, b"just now\r\n", stack, device).is_some();
                *sent
            }
            Service::Chargen { sent, resets } => {
                self.aborts = drain(id, stack) > 0 && *resets;
                if self.peer_closed || self.aborts {
                    return true;
                }
                let mut octets = [0; 1400];
                loop {
                    for (octet, at) in octets.iter_mut().zip(*sent..) {
                        *octet = u8::try_from(at % PATTERN).expect("less than 251");
                    }
                    let Some(len) = send_copy(id, &octets, stack, device) else { return false };
                    *sent += len;
                }
            }
        }
    }
}

/// Sends at most one segment's worth of `octets`; says how many, or that there is no room now.
fn send_copy(
    id: ConnectionId,
    octets: &[u8],
    stack: &mut Stack<PortQueue>,
    device: &mut PortQueue,
) -> Option<usize> {
    if stack.send_room(id) == 0 {
        return None;
    }
    let mut frame = device.allocate()?;
    let len = octets.len().min(stack.emss(id)).min(frame.tailroom());
    frame.push_back(len);
    frame.bytes_mut().copy_from_slice(&octets[..len]);
    stack.send(id, frame, true).ok()?;
    Some(len)
}

/// Drops what was received; its octets.
fn drain(id: ConnectionId, stack: &mut Stack<PortQueue>) -> usize {
    let mut octets = 0;
    stack.consume(id, |frame| octets += frame.bytes().len());
    octets
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let eal = Eal::init(&args[..split])?;
    let (_port, mut queues) = eal.open(0, &PortConfig::default())?;
    let device = queues.pop().ok_or("the port has no queue")?;
    let clock = Tsc::new(&eal);
    let mut stack = Stack::new(StackConfig::default(), device.capabilities(), [7; 32]);
    let mut targets = Vec::new();
    let mut options = args.iter().skip(split + 1);
    while let Some(option) = options.next() {
        let value = options.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--address" => {
                let (addr, prefix) = value.split_once('/').ok_or("an address is ADDR/LEN")?;
                stack.interface_mut().add_address(IpCidr::new(addr.parse()?, prefix.parse()?)?)?;
            }
            "--connect" => targets.push((value.parse()?, None, clock.now())),
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    for port in [ECHO, DISCARD, RESET, DAYTIME, CHARGEN] {
        stack.listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port), 256)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut peer = Peer { device, stack, connections: BTreeMap::new(), targets };
    println!("ready");
    while !stop.load(Ordering::Relaxed) {
        if !peer.turn(clock.now()) {
            std::thread::yield_now();
        }
    }
    for id in peer.connections.keys().copied().collect::<Vec<_>>() {
        peer.stack.abort(id, clock.now());
        peer.stack.release(id);
    }
    peer.connections.clear();
    peer.turn(clock.now());
    for (name, count) in peer.stack.counters().iter().filter(|(_, count)| *count > 0) {
        println!("{name} {count}");
    }
    Ok(())
}
