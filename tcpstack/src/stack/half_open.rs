//! From a SYN to a connection: the SYN,ACK, what is kept until it is acknowledged, or a cookie
//! when there is no room to keep anything.

use core::net::SocketAddr;

use super::{HALF_OPEN, Stack, Way};
use crate::config::SynCookies;
use crate::device::{Device, Frame};
use crate::flow::FlowKey;
use crate::icmp::{IcmpError, IcmpErrorKind};
use crate::interface::{Route, TcpDatagram};
use crate::seq::SeqNumber;
use crate::tcp::connection::{Connection, NEVER, Opening, TimestampState, mss_of};
use crate::tcp::cookie::{self, Redeemed};
use crate::tcp::ecn::EcnState;
use crate::tcp::half_open::{HalfOpen, Offered, Verdict};
use crate::tcp::input::Reset;
use crate::tcp::isn;
use crate::tcp::options::{Options, Timestamps};
use crate::tcp::receiver::Receiver;
use crate::tcp::segment::{Flags, Header, Segment};
use crate::tcp::state::Event;
use crate::time::{Coarse, Instant};

impl<D: Device> Stack<D> {
    /// Connections in SYN-RECEIVED that came from listeners.
    pub fn half_open_len(&self) -> usize {
        self.half_open.len()
    }

    /// Answers a SYN for a listener; false when nobody listens.
    // req 9293-3.5-2: what was opened here is never looked up among the half-open ones.
    pub(super) fn open_passively(
        &mut self,
        segment: &Segment,
        datagram: &TcpDatagram<D::Frame>,
        after: Option<SeqNumber>,
        device: &mut D,
        now: Instant,
    ) -> bool {
        let (local, remote) = sockets(segment, datagram);
        let Some(id) = self.listeners.find(local) else { return false };
        // The interface hands up nothing that is not from and for single hosts (req 9293-3.9.2.3-2).
        if segment.source_port == 0 {
            self.counters.malformed += 1;
            return true;
        }
        if !self.sources.allow(remote.ip(), now) {
            self.counters.source_limited += 1;
            return true;
        }
        let Some(route) = self.interface.route(remote.ip()).filter(|_| self.has_room()) else {
            self.counters.half_open_full += 1;
            return true;
        };
        let Some(listener) = self.listeners.get(id) else { return false };
        // An application that does not take what is there is not helped by more.
        let unheard = listener.is_unheard();
        let crowded = self.half_open.is_full() || listener.is_full();
        let cookie = match self.config.syn_cookies {
            SynCookies::Off => false,
            SynCookies::UnderPressure => crowded,
            SynCookies::Always => true,
        };
        let options = Options::parse(segment.options(datagram.frame.bytes()));
        let offered = Offered::of(segment.flags, &options, remote, &self.config);
        // A cookie cannot begin above an old connection's numbers.
        if cookie && after.is_none() && !unheard {
            let way = (datagram.destination, datagram.source, datagram.source_mac);
            self.send_cookie(segment, &offered, route, way, device, now);
            return true;
        }
        if unheard || listener.is_full() {
            self.counters.backlog_full += 1;
            return true;
        }
        if self.half_open.is_full() {
            self.counters.half_open_full += 1;
            return true;
        }
        listener.half_open += 1;

        let opening = self.opening(local, remote, route, Some(id), after, now);
        let numbers = (opening.iss, segment.seq);
        let entry = HalfOpen::new((local, remote), id, numbers, offered, datagram.source_mac, now);
        let index = self.half_open.insert(entry);
        self.half_open.wait(index, now + entry.patience(&self.config));
        self.flows.insert(entry.key(), HALF_OPEN | index);
        self.send_syn_ack(&entry, device, now);
        true
    }

    /// A segment for a half-open connection.
    #[cold]
    pub(super) fn arrives_half_open(
        &mut self,
        index: u32,
        segment: &Segment,
        datagram: TcpDatagram<D::Frame>,
        device: &mut D,
        now: Instant,
    ) {
        let options = Options::parse(segment.options(datagram.frame.bytes()));
        let window = self.syn_window();
        let limit = self.config.challenge_acks;
        let entry = self.half_open.get(index);
        let verdict = entry.arrives(segment, &options, window);
        let answers = matches!(verdict, Verdict::Repeat | Verdict::Acknowledge { .. });
        let may_answer = answers && entry.may_answer(limit);
        let entry = *entry;
        self.counters.paws += u64::from(verdict == Verdict::Acknowledge { paws: true });
        match verdict {
            Verdict::Ignore => {}
            Verdict::Unstamped => self.counters.timestamps_missing += 1,
            Verdict::Repeat if may_answer => {
                self.counters.retransmissions += 1;
                self.send_syn_ack(&entry, device, now);
            }
            Verdict::Acknowledge { .. } if may_answer => {
                self.counters.challenge_acks += 1;
                let echo = entry.offered.timestamp;
                let timestamps = echo.map(|recent| self.clock(&entry.key(), recent, now).stamp(now));
                let options = Options { timestamps, ..Options::default() };
                let header = Header { seq: entry.iss + 1, flags: Flags::ACK, ..self.syn_ack_header(&entry) };
                self.send_stateless(&header, &options, way(&entry), device);
            }
            Verdict::Repeat | Verdict::Acknowledge { .. } => self.counters.challenge_acks_limited += 1,
            Verdict::Reset(reset) => self.send_reset(reset, segment, way(&entry), device, now),
            Verdict::Delete => {
                self.counters.resets_received += u64::from(segment.flags.contains(Flags::RST));
                self.forget_half_open(index);
            }
            Verdict::Establish => self.establish(index, segment, datagram, device, now),
        }
    }

    /// An acknowledgment of no connection, for a listener: whether it is one of a cookie, and so
    /// dealt with.
    pub(super) fn redeem_cookie(
        &mut self,
        segment: &Segment,
        datagram: TcpDatagram<D::Frame>,
        device: &mut D,
        now: Instant,
    ) -> bool {
        let answers =
            segment.flags.contains(Flags::ACK) && !segment.flags.intersects(Flags::SYN | Flags::RST);
        if !answers || !self.cookies.are_out(now) {
            return false;
        }
        let (local, remote) = sockets(segment, &datagram);
        let Some(id) = self.listeners.find(local) else { return false };
        let key = FlowKey::of(local, remote);
        let (iss, irs) = (segment.ack - 1, segment.seq - 1);
        let timestamps = Options::parse(segment.options(datagram.frame.bytes())).timestamps;
        let timestamps = timestamps.filter(|_| self.config.timestamps);
        let redeemed = self.cookies.redeem(&key, irs, iss, now);
        let offered = match (redeemed, timestamps) {
            (Redeemed::Good(mss), None) => {
                Some(Offered { mss, window_scale: None, sack: false, ecn: false, timestamp: None })
            }
            (Redeemed::Good(mss), Some(Timestamps { value, echo })) => {
                let clock = self.clock(&key, 0, now).stamp(now).value;
                cookie::read_stamp(echo, clock, mss, value)
            }
            _ => None,
        };
        let Some(offered) = offered else {
            self.counters.syn_cookies_failed += 1;
            // What follows a first segment that was lost is not reset: the peer begins again there.
            return redeemed == Redeemed::Misplaced;
        };
        let Some(route) = self.interface.route(remote.ip()).filter(|_| self.has_room()) else {
            self.counters.half_open_full += 1;
            return true;
        };
        let Some(listener) = self.listeners.get(id).filter(|listener| !listener.is_unheard()) else {
            self.counters.backlog_full += 1;
            return true;
        };
        listener.half_open += 1;
        self.counters.syn_cookies_accepted += 1;
        let timestamp_offset = isn::timestamp_offset(&self.secret, &key);
        let opening = Opening { local, remote, route, iss, timestamp_offset, listener: Some(id) };
        let mut connection = self.half_way(&opening, irs, &offered, datagram.source_mac, now);
        // How long the round trip took is not known, nor that anything was lost.
        connection.sent_at = NEVER;
        let index = self.admit(key, connection).index;
        self.arrives(index, segment, datagram, device, now);
        true
    }

    /// Sends SYN,ACKs again, and gives up those that were sent often enough.
    pub(super) fn expire_half_open(&mut self, device: &mut D, now: Instant) {
        while let Some(index) = self.half_open.expire(now) {
            let entry = self.half_open.get(index);
            if entry.timed_out(self.config.syn_ack_retries) {
                let entry = *entry;
                self.half_open.wait(index, now + entry.patience(&self.config));
                self.counters.timeouts += 1;
                self.counters.retransmissions += 1;
                self.send_syn_ack(&entry, device, now);
                continue;
            }
            self.counters.half_open_expired += 1;
            let entry = self.forget_half_open(index);
            if self.resets.allow(self.config.resets, now) {
                let flags = Flags::RST | Flags::ACK;
                let header = Header { seq: entry.iss + 1, flags, window: 0, ..self.syn_ack_header(&entry) };
                let sent = self.send_stateless(&header, &Options::default(), way(&entry), device);
                self.counters.resets_sent += u64::from(sent);
            }
        }
    }

    /// An ICMP error about a SYN,ACK: one more reason to wait, none to give up.
    pub(super) fn receive_error_half_open(&mut self, index: u32, error: &IcmpError, now: Instant) {
        if SeqNumber::new(error.sequence) != self.half_open.get(index).iss {
            self.counters.icmp_ignored += 1;
            return;
        }
        match error.kind {
            IcmpErrorKind::PacketTooBig { mtu } => self.interface.update_path_mtu(error.remote, mtu, now),
            _ => self.counters.icmp_soft_errors += 1,
        }
    }

    /// The SYN,ACK was acknowledged: makes the connection, and gives it the segment.
    fn establish(
        &mut self,
        index: u32,
        segment: &Segment,
        datagram: TcpDatagram<D::Frame>,
        device: &mut D,
        now: Instant,
    ) {
        let entry = *self.half_open.get(index);
        let Some(listener) = self.listeners.get(entry.listener) else {
            // Nobody is there any more who would take it.
            self.forget_half_open(index);
            self.send_reset(Reset::answering(segment), segment, way(&entry), device, now);
            return;
        };
        // The peer believes to be connected: what it sends again, or we, decides it later.
        if listener.is_unheard() {
            self.counters.backlog_full += 1;
            return;
        }
        let Some(route) = self.interface.route(entry.remote.ip()).filter(|_| self.has_room()) else {
            self.counters.half_open_full += 1;
            return;
        };
        let key = entry.key();
        let opening = Opening {
            local: entry.local,
            remote: entry.remote,
            route,
            iss: entry.iss,
            timestamp_offset: isn::timestamp_offset(&self.secret, &key),
            listener: Some(entry.listener),
        };
        let mut connection = self.half_way(&opening, entry.irs, &entry.offered, entry.mac, now);
        connection.sent_at = entry.sent_at;
        connection.retries = entry.retries.max(u8::from(entry.repeated));
        self.half_open.remove(index);
        // It takes the entry's place in the flow table.
        let index = self.admit(key, connection).index;
        self.arrives(index, segment, datagram, device, now);
    }

    /// A connection in SYN-RECEIVED whose SYN,ACK was sent.
    fn half_way(
        &self,
        opening: &Opening,
        irs: SeqNumber,
        offered: &Offered,
        mac: [u8; 6],
        now: Instant,
    ) -> Connection<D::Frame> {
        let mut connection = Connection::open(opening, &self.config, now);
        connection.take_syn(irs, &offered.options(), now, &self.config);
        connection.ecn = EcnState::of_syn(offered.flags(), &self.config);
        connection.step(Event::SynCrossed);
        connection.syn_due = false;
        // Until the neighbour is asked for, ACKs go where the segments come from.
        connection.template = Some(self.interface.header_to(mac, opening.local.ip(), opening.remote.ip()));
        connection
    }

    fn forget_half_open(&mut self, index: u32) -> HalfOpen {
        let entry = self.half_open.remove(index);
        self.flows.remove(&entry.key());
        self.listeners.gave_up(entry.listener);
        entry
    }

    /// Sends a SYN,ACK; when it cannot be, the timer tries again.
    fn send_syn_ack(&mut self, entry: &HalfOpen, device: &mut D, now: Instant) {
        let Some(route) = self.interface.route(entry.remote.ip()) else { return };
        let header = self.syn_ack_header(entry);
        let mut options = self.syn_ack_options(&entry.offered, entry.local, route);
        options.timestamps =
            entry.offered.timestamp.map(|recent| self.clock(&entry.key(), recent, now).stamp(now));
        self.send_stateless(&header, &options, way(entry), device);
    }

    /// Answers a SYN and forgets it.
    fn send_cookie(
        &mut self,
        segment: &Segment,
        offered: &Offered,
        route: Route,
        way: Way,
        device: &mut D,
        now: Instant,
    ) {
        let (local, remote) =
            (SocketAddr::new(way.0, segment.destination_port), SocketAddr::new(way.1, segment.source_port));
        let key = FlowKey::of(local, remote);
        let header = Header {
            source_port: local.port(),
            destination_port: remote.port(),
            seq: self.cookies.issue(&key, segment.seq, offered.mss, now),
            ack: segment.seq + 1,
            flags: offered.syn_ack_flags(),
            window: self.syn_window(),
        };
        let mut options = self.syn_ack_options(offered, local, route);
        options.timestamps = offered.timestamp.map(|recent| {
            let stamp = self.clock(&key, recent, now).stamp(now);
            Timestamps { value: cookie::stamp(stamp.value, offered), ..stamp }
        });
        if options.timestamps.is_none() {
            // There is nowhere to note that they were agreed on.
            (options.window_scale, options.sack_permitted) = (None, false);
        }
        if self.send_stateless(&header, &options, way, device) {
            self.counters.syn_cookies_sent += 1;
        }
    }

    fn syn_ack_header(&self, entry: &HalfOpen) -> Header {
        Header {
            source_port: entry.local.port(),
            destination_port: entry.remote.port(),
            seq: entry.iss,
            ack: entry.rcv_nxt(),
            flags: entry.offered.syn_ack_flags(),
            window: self.syn_window(),
        }
    }

    /// The options of a SYN,ACK but for the timestamps: what the peer offered, too.
    // req 9293-3.7.1-1
    // req 9293-3.7.1-2
    fn syn_ack_options(&self, offered: &Offered, local: SocketAddr, route: Route) -> Options {
        let scale = Receiver::<D::Frame>::scale_for(self.config.receive_window);
        Options {
            mss: Some(u16::try_from(mss_of(route.mtu, local.ip())).unwrap_or(u16::MAX)),
            window_scale: offered.window_scale.map(|_| scale),
            sack_permitted: offered.sack,
            ..Options::default()
        }
    }

    /// The window of a SYN,ACK, which is never scaled.
    fn syn_window(&self) -> u16 {
        u16::try_from(self.config.first_window()).unwrap_or(u16::MAX)
    }

    /// The timestamp clock of a connection that does not exist yet.
    fn clock(&self, key: &FlowKey, recent: u32, now: Instant) -> TimestampState {
        let offset = isn::timestamp_offset(&self.secret, key);
        TimestampState {
            recent,
            recent_at: Coarse::of(now),
            offset,
            last_ack: SeqNumber::default(),
            echoed: 0,
        }
    }

    /// Whether one more connection fits.
    fn has_room(&self) -> bool {
        !self.free.is_empty() || self.connections.len() < self.config.connections_max
    }
}

/// Our socket and the peer's.
fn sockets<F: Frame>(segment: &Segment, datagram: &TcpDatagram<F>) -> (SocketAddr, SocketAddr) {
    let local = SocketAddr::new(datagram.destination, segment.destination_port);
    let remote = SocketAddr::new(datagram.source, segment.source_port);
    (local, remote)
}

fn way(entry: &HalfOpen) -> Way {
    (entry.local.ip(), entry.remote.ip(), entry.mac)
}
