//! A host that speaks TCP and no iWARP: it sends what a script says.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::sim::{SimDevice, SimFrame};
use tcpstack::stack::{CloseReason, ConnectionId, Events, Stack};
use tcpstack::time::Instant;

use super::world::{Actor, World};

/// How a script ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a FIN.
    Close,
    /// With a reset.
    Abort,
    /// Not at all: TCP goes on acknowledging, even past the peer's FIN.
    Silence,
}

/// What a stranger sends on one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// Octets, part by part.
    pub parts: Vec<Vec<u8>>,
    /// From a part to the next, and from the last to the end.
    pub gap: Duration,
    /// What comes after the last.
    pub ending: Ending,
}

/// What became of a stranger's connections, in the order of their ends.
#[derive(Debug, Default)]
pub struct StrangerLog {
    /// When and why each ended.
    pub closed: Vec<(Instant, CloseReason)>,
    /// What each received.
    pub received: Vec<Vec<u8>>,
}

/// The host 10.0.0.3.
pub struct Stranger {
    stack: Stack<SimDevice>,
    device: SimDevice,
    /// For connections that others open.
    answers: VecDeque<Script>,
    running: Vec<Running>,
    log: Rc<RefCell<StrangerLog>>,
}

/// A script at work.
struct Running {
    connection: ConnectionId,
    script: Script,
    /// Octets that were queued, of the part that is being sent.
    sent: usize,
    /// When to go on: none before the connection is there, and none when the script is over.
    due: Option<Instant>,
    received: Vec<u8>,
}

/// The stranger's place on the wire.
const PORT_INDEX: usize = 2;

impl Stranger {
    /// A stranger in `world`, and what became of its connections.
    ///
    /// # Panics
    /// When there is one already.
    pub fn new(world: &World, seed: u64) -> (Self, Rc<RefCell<StrangerLog>>) {
        let device = world.wire().port(PORT_INDEX);
        let mut stack_seed = [0x77; 32];
        stack_seed[..8].copy_from_slice(&seed.to_be_bytes());
        let mut stack = Stack::new(StackConfig::default(), device.capabilities(), stack_seed);
        let cidr = IpCidr::new(World::ipv4(PORT_INDEX), 24).expect("a valid prefix");
        stack.interface_mut().add_address(cidr).expect("an address of its own");
        let log = Rc::<RefCell<StrangerLog>>::default();
        let stranger =
            Self { stack, device, answers: VecDeque::new(), running: Vec::new(), log: Rc::clone(&log) };
        (stranger, log)
    }

    /// Connects to `remote` and carries `script` out.
    ///
    /// # Panics
    /// When there is no way to the remote.
    pub fn connect(&mut self, remote: SocketAddr, script: Script, now: Instant) {
        let connection = self.stack.connect(remote, None, now).expect("a way to the remote");
        self.running.push(Running { connection, script, sent: 0, due: None, received: Vec::new() });
    }

    /// Listens on a TCP port and answers each connection's first octets with the next of `scripts`.
    ///
    /// # Panics
    /// When it listens already.
    pub fn listen(&mut self, port: u16, scripts: Vec<Script>) {
        let local = SocketAddr::new(World::ipv4(PORT_INDEX), port);
        self.stack.listen(local, 64).expect("a free port");
        self.answers.extend(scripts);
    }

    fn handle(&mut self, connection: ConnectionId, events: Events, now: Instant) {
        if events.contains(Events::ACCEPTED) {
            let Some(script) = self.answers.pop_front() else {
                self.stack.abort(connection, now);
                self.stack.release(connection);
                return;
            };
            self.running.push(Running { connection, script, sent: 0, due: None, received: Vec::new() });
        }
        let mut received = Vec::new();
        while let Some(frame) = self.stack.receive_payload(connection) {
            self.stack.release_window(connection, frame.bytes().len());
            received.extend_from_slice(frame.bytes());
        }
        let Some(at) = self.running.iter().position(|it| it.connection == connection) else { return };
        let running = &mut self.running[at];
        if running.received.is_empty() && (events.contains(Events::CONNECTED) || !received.is_empty()) {
            running.due = running.due.or(Some(now));
        }
        running.received.extend(received);
        if events.contains(Events::PEER_CLOSED) && running.script.ending != Ending::Silence {
            self.stack.close(connection);
        }
        if events.contains(Events::CLOSED) {
            let running = self.running.swap_remove(at);
            let mut log = self.log.borrow_mut();
            log.closed.push((now, self.stack.close_reason(connection)));
            log.received.push(running.received);
            drop(log);
            self.stack.release(connection);
        }
    }

    fn send(&mut self, index: usize, now: Instant) -> bool {
        let running = &mut self.running[index];
        let connection = running.connection;
        let Some(part) = running.script.parts.first() else {
            running.due = None;
            match running.script.ending {
                Ending::Close => self.stack.close(connection),
                Ending::Abort => self.stack.abort(connection, now),
                Ending::Silence => {}
            }
            return true;
        };
        let room = self.stack.send_room(connection).min(self.stack.emss(connection));
        let rest = &part[running.sent..];
        let len = rest.len().min(room);
        let Some(mut frame) = self.device.allocate().filter(|_| len > 0 || rest.is_empty()) else {
            running.due = Some(now + Duration::from_micros(100));
            return false;
        };
        if len > 0 {
            frame.push_back(len);
            frame.bytes_mut().copy_from_slice(&rest[..len]);
            if self.stack.send(connection, frame, true).is_err() {
                // The peer ended it.
                running.script.parts.clear();
                return true;
            }
        }
        running.sent += len;
        if running.sent == part.len() {
            running.sent = 0;
            running.script.parts.remove(0);
            running.due = Some(now + running.script.gap);
        }
        true
    }
}

impl Actor for Stranger {
    fn turn(&mut self, now: Instant, _: bool) -> bool {
        let mut burst: Burst<SimFrame> = Burst::new();
        self.device.receive_burst(&mut burst);
        let mut busy = !burst.is_empty();
        for frame in burst.drain(..) {
            self.stack.receive(frame, &mut self.device, now);
        }
        while let Some((connection, events)) = self.stack.next_event() {
            busy = true;
            self.handle(connection, events, now);
        }
        for index in 0..self.running.len() {
            if self.running[index].due.is_some_and(|due| due <= now) {
                busy |= self.send(index, now);
            }
        }
        busy | self.stack.transmit(&mut self.device, now)
    }

    fn poll_at(&self) -> Option<Instant> {
        let due = self.running.iter().filter_map(|it| it.due);
        // The clock only goes forward, and a turn was just taken: zero means at once.
        due.chain(self.stack.poll_at(Instant::ZERO)).min()
    }
}
