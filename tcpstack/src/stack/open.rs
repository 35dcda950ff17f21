//! LISTEN, active opens, and the ports for them; `half_open` has what follows from a SYN.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    ConnectError, ConnectionId, HALF_OPEN, ListenError, ListenerId, Reset, Slot, Stack, TIME_WAIT, Way,
};
use crate::addr;
use crate::device::Device;
use crate::flow::{FlowKey, make_room};
use crate::interface::{Route, TcpDatagram};
use crate::seq::SeqNumber;
use crate::tcp::connection::{Connection, Opening};
use crate::tcp::isn;
use crate::tcp::segment::{Flags, Segment};
use crate::time::Instant;

/// How long a four-tuple must have waited in TIME-WAIT to be used for an active open.
const REUSE_AFTER: core::time::Duration = core::time::Duration::from_secs(1);

/// Ports that are looked at before one in TIME-WAIT is used again.
const PORT_TRIES: u32 = 64;

/// How far the next connection's numbers begin above the last one's in TIME-WAIT.
const REUSE_DISTANCE: u32 = 1 << 16;

/// A port that is listened on.
#[derive(Debug)]
pub(super) struct Listener {
    local: SocketAddr,
    backlog: usize,
    /// Connections in SYN-RECEIVED.
    pub(super) half_open: usize,
    /// Connections established that the application has not heard of.
    unreported: usize,
}

impl Listener {
    /// Whether no more SYNs find room.
    pub(super) fn is_full(&self) -> bool {
        self.half_open + self.unreported >= self.backlog
    }

    /// Whether all of the backlog are connections that the application has not heard of.
    pub(super) fn is_unheard(&self) -> bool {
        self.unreported >= self.backlog
    }
}

/// The listeners of a stack: few, and looked for only by SYNs.
#[derive(Debug)]
pub(super) struct Listeners {
    places: Vec<(u32, Option<Listener>)>,
    max: usize,
}

impl Listeners {
    pub(super) fn new(max: usize) -> Self {
        Self { places: Vec::new(), max }
    }

    /// The listener for a local address: one for exactly it, or one for any.
    pub(super) fn find(&self, local: SocketAddr) -> Option<ListenerId> {
        let find = |wanted: SocketAddr| {
            let at = |(_, listener): &(u32, Option<Listener>)| {
                listener.as_ref().is_some_and(|listener| listener.local == wanted)
            };
            let index = self.places.iter().position(at)?;
            Some(self.id(index))
        };
        let unspecified: IpAddr = match local {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // `[::]` serves both versions, as elsewhere.
        find(SocketAddr::new(local.ip(), local.port()))
            .or_else(|| find(SocketAddr::new(unspecified, local.port())))
            .or_else(|| find(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), local.port())))
    }

    /// A connection of the listener is established; false, and nothing done, when that is gone.
    pub(super) fn established(&mut self, id: ListenerId) -> bool {
        let Some(listener) = self.get(id) else { return false };
        listener.half_open -= 1;
        listener.unreported += 1;
        true
    }

    /// A connection in SYN-RECEIVED came to nothing.
    pub(super) fn gave_up(&mut self, id: ListenerId) {
        if let Some(listener) = self.get(id) {
            listener.half_open -= 1;
        }
    }

    /// The application has heard of a connection.
    pub(super) fn reported(&mut self, id: ListenerId) {
        if let Some(listener) = self.get(id) {
            listener.unreported -= 1;
        }
    }

    pub(super) fn get(&mut self, id: ListenerId) -> Option<&mut Listener> {
        let (generation, listener) = self.places.get_mut(id.index as usize)?;
        listener.as_mut().filter(|_| *generation == id.generation)
    }

    fn id(&self, index: usize) -> ListenerId {
        let generation = self.places[index].0;
        ListenerId { index: u32::try_from(index).expect("a bounded table"), generation }
    }
}

impl<D: Device> Stack<D> {
    /// Takes connections for a local address and port; the unspecified address stands for all
    /// (`[::]` for those of both IP versions).
    ///
    /// At most `backlog` of them are half-open or not yet reported; more SYNs are dropped.
    ///
    /// # Errors
    /// See [`ListenError`].
    // req 9293-3.9.1.1-1, 9293-3.9.1.1-2, 9293-3.9.1.1-3
    pub fn listen(&mut self, local: SocketAddr, backlog: usize) -> Result<ListenerId, ListenError> {
        // Without scope and flow label, which name no other listener.
        let local = SocketAddr::new(local.ip(), local.port());
        if local.port() == 0 || backlog == 0 {
            return Err(ListenError::Invalid);
        }
        if !local.ip().is_unspecified() && !self.interface.has_address(local.ip()) {
            return Err(ListenError::NotOurs);
        }
        let taken = |listener: &Listener| listener.local == local;
        let places = &mut self.listeners.places;
        if places.iter().any(|(_, listener)| listener.as_ref().is_some_and(taken)) {
            return Err(ListenError::InUse);
        }
        let listener = Listener { local, backlog, half_open: 0, unreported: 0 };
        let index = match places.iter().position(|(_, listener)| listener.is_none()) {
            Some(index) => {
                places[index].1 = Some(listener);
                index
            }
            None if places.len() >= self.listeners.max => return Err(ListenError::Full),
            None => {
                places.push((0, Some(listener)));
                places.len() - 1
            }
        };
        Ok(self.listeners.id(index))
    }

    /// Takes no more connections; those that are established stay.
    pub fn unlisten(&mut self, id: ListenerId) {
        if self.listeners.get(id).is_none() {
            return;
        }
        let place = &mut self.listeners.places[id.index as usize];
        place.0 = place.0.wrapping_add(1);
        place.1 = None;
    }

    /// Opens a connection; [`Events::CONNECTED`](super::Events::CONNECTED) or `CLOSED` follows.
    ///
    /// Without `local` the route chooses the address and an ephemeral port is taken; a port of
    /// zero does the latter alone.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        now: Instant,
    ) -> Result<ConnectionId, ConnectError> {
        self.connect_if(remote, local, now, |_| true)
    }

    /// The same, with an ephemeral port whose four-tuple `fits`: local address first asked.
    ///
    /// So a worker gets the replies on its own receive queue.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect_if(
        &mut self,
        remote: SocketAddr,
        local: Option<SocketAddr>,
        now: Instant,
        fits: impl Fn(SocketAddr) -> bool,
    ) -> Result<ConnectionId, ConnectError> {
        // req 9293-3.9.1.1-6
        if !addr::is_unicast(remote.ip()) || remote.port() == 0 {
            return Err(ConnectError::InvalidRemote);
        }
        let remote = SocketAddr::new(remote.ip(), remote.port());
        // req 9293-3.9.1.1-4
        let route = self.interface.route(remote.ip()).ok_or(ConnectError::NoRoute)?;
        // req 9293-3.9.1.1-3
        let wanted = local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
        let ip = wanted.unwrap_or(route.source);
        if ip.is_ipv4() != remote.is_ipv4() || !self.interface.has_address(ip) {
            return Err(ConnectError::InvalidLocal);
        }
        if self.free.is_empty() && self.connections.len() >= self.config.connections_max {
            return Err(ConnectError::Full);
        }
        let local = match local.map(|local| local.port()).filter(|&port| port != 0) {
            Some(port) => SocketAddr::new(ip, port),
            None => self.ephemeral(ip, remote, now, fits)?,
        };
        let key = FlowKey::of(local, remote);
        let after = match self.flows.get(&key) {
            None => None,
            Some(index) if index & HALF_OPEN != TIME_WAIT => return Err(ConnectError::InUse),
            Some(index) => {
                let entry = (index & !TIME_WAIT) as usize;
                if !self.is_reusable(entry, now) {
                    return Err(ConnectError::InUse);
                }
                let after = self.time_wait.get(entry).snd_nxt;
                self.counters.time_wait_recycled += 1;
                self.forget_time_wait(entry);
                Some(after)
            }
        };
        let connection =
            Connection::open(&self.opening(local, remote, route, None, after, now), &self.config, now);
        Ok(self.admit(key, connection))
    }

    /// The listener that a connection came from.
    pub fn listener_of(&self, id: ConnectionId) -> Option<ListenerId> {
        self.connection(id)?.listener
    }

    /// A segment for no connection: a SYN for a listener, the answer to a cookie, or something to
    /// be refused.
    #[cold]
    pub(super) fn arrives_for_listener(
        &mut self,
        segment: &Segment,
        datagram: TcpDatagram<D::Frame>,
        device: &mut D,
        now: Instant,
    ) {
        let way: Way = (datagram.destination, datagram.source, datagram.source_mac);
        let is_syn = segment.flags.contains(Flags::SYN) && !segment.flags.intersects(Flags::ACK | Flags::RST);
        if is_syn && self.open_passively(segment, &datagram, None, device, now) {
            return;
        }
        if self.redeem_cookie(segment, datagram, device, now) {
            return;
        }
        self.counters.no_connection += 1;
        self.send_reset(Reset::answering(segment), segment, way, device, now);
    }

    pub(super) fn opening(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        route: Route,
        listener: Option<ListenerId>,
        after: Option<SeqNumber>,
        now: Instant,
    ) -> Opening {
        let key = FlowKey::of(local, remote);
        let iss = isn::initial_sequence_number(&self.secret, &key, now);
        // A connection in the place of an old one begins above its numbers.
        let iss = after.map_or(iss, |after| iss.max(after + REUSE_DISTANCE));
        let timestamp_offset = isn::timestamp_offset(&self.secret, &key);
        Opening { local, remote, route, iss, timestamp_offset, listener }
    }

    /// Gives a connection a place, and a turn to send its SYN.
    pub(super) fn admit(&mut self, key: FlowKey, connection: Connection<D::Frame>) -> ConnectionId {
        let connection = Some(Box::new(connection));
        let index = match self.free.pop() {
            Some(index) => {
                self.connections[index as usize].connection = connection;
                index
            }
            None => {
                make_room(&mut self.connections);
                self.connections.push(Slot { generation: 0, connection });
                u32::try_from(self.connections.len() - 1).expect("a bounded table")
            }
        };
        assert!(index < TIME_WAIT, "the table of connections is bounded");
        self.timers.reserve(index as usize + 1);
        self.flows.insert(key, index);
        self.add_work(index);
        ConnectionId { index, generation: self.connections[index as usize].generation }
    }

    /// A local socket with a port that no connection to `remote` uses.
    fn ephemeral(
        &mut self,
        ip: IpAddr,
        remote: SocketAddr,
        now: Instant,
        fits: impl Fn(SocketAddr) -> bool,
    ) -> Result<SocketAddr, ConnectError> {
        let range = &self.config.ephemeral_ports;
        let destination = isn::PortDestination::new(&self.secret, ip, remote);
        let turn = self.port_turns[destination.counter()];
        let mut found = None;
        let mut tried = 0;
        for port in destination.ports(range, turn) {
            tried += 1;
            let local = SocketAddr::new(ip, port);
            if port == 0 || !fits(local) {
                continue;
            }
            match self.flows.peek(&FlowKey::of(local, remote)) {
                None => {
                    found = Some(local);
                    break;
                }
                Some(index) if index & HALF_OPEN == TIME_WAIT && found.is_none() => {
                    found = Some(local).filter(|_| self.is_reusable((index & !TIME_WAIT) as usize, now));
                }
                Some(_) => {}
            }
            // Where most ports wait, one of those that may be used again is as good as any.
            if tried >= PORT_TRIES && found.is_some() {
                break;
            }
        }
        self.port_turns[destination.counter()] = turn.wrapping_add(tried);
        // Better an old one again than none.
        found.ok_or_else(|| {
            self.counters.ports_exhausted += 1;
            ConnectError::PortsExhausted
        })
    }

    /// Whether a four-tuple in TIME-WAIT may be used for an active open: its timestamps tell old
    /// segments from new ones.
    fn is_reusable(&self, entry: usize, now: Instant) -> bool {
        let remains = self.time_wait.get(entry);
        remains.timestamps.is_some() && self.config.timestamps && now - remains.since >= REUSE_AFTER
    }
}
