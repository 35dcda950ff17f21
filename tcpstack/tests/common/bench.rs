//! One stack and a peer made by hand: a few lines that know no TCP. A test says what the peer
//! sends and looks at what comes back.

use core::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    IpAddress, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
    TcpTimestampRepr,
};
use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::sim::{Faults, SimDevice, Wire};
use tcpstack::stack::{ConnectionId, Events, Stack};
use tcpstack::tcp::state::State;
use tcpstack::time::Instant;

pub const OURS: [u8; 4] = [192, 0, 2, 1];
pub const THEIRS: [u8; 4] = [192, 0, 2, 2];
pub const THEIR_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
pub const OUR_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
pub const PORT: u16 = 4791;
pub const PEER_PORT: u16 = 5000;
pub const MS: Duration = Duration::from_millis(1);

/// A segment as a test sees it; `seq` and `ack` count from the initial numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seg {
    pub flags: &'static str,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub payload: Vec<u8>,
    pub sack: Vec<(u32, u32)>,
    /// Value and echo of the Timestamps option.
    pub timestamps: Option<(u32, u32)>,
    /// The options of a SYN of the stack; those of the peer's are the bench's.
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_permitted: bool,
    /// The ECE and CWR flags.
    pub ece: bool,
    pub cwr: bool,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
}

pub fn seg(flags: &'static str, seq: u32, ack: u32) -> Seg {
    Seg {
        flags,
        seq,
        ack,
        window: 60_000,
        payload: Vec::new(),
        sack: Vec::new(),
        timestamps: None,
        mss: None,
        scale: None,
        sack_permitted: false,
        ece: false,
        cwr: false,
        ecn: 0,
    }
}

impl Seg {
    pub fn payload(mut self, len: usize) -> Self {
        self.payload = vec![0x55; len];
        self
    }

    pub fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    pub fn timestamps(mut self, value: u32, echo: u32) -> Self {
        self.timestamps = Some((value, echo));
        self
    }

    pub fn ece(mut self) -> Self {
        self.ece = true;
        self
    }

    pub fn cwr(mut self) -> Self {
        self.cwr = true;
        self
    }

    pub fn ecn(mut self, ecn: u8) -> Self {
        self.ecn = ecn;
        self
    }

    pub fn sack(mut self, blocks: &[(u32, u32)]) -> Self {
        self.sack = blocks.to_vec();
        self
    }
}

pub struct Bench {
    pub wire: Wire,
    pub device: SimDevice,
    pub stack: Stack<SimDevice>,
    pub peer: SimDevice,
    pub now: Instant,
    /// The peer's initial number and ours.
    pub irs: u32,
    pub iss: Option<u32>,
    pub id: Option<ConnectionId>,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_permitted: bool,
    /// Where the peer sends from; the Ethernet address stays.
    pub remote: ([u8; 4], u16),
    /// Segments that the stack sent elsewhere.
    pub elsewhere: usize,
}

pub fn plain() -> StackConfig {
    StackConfig {
        timestamps: false,
        sack: false,
        rto_initial: 100 * MS,
        receive_window: 20_000,
        ..StackConfig::default()
    }
}

/// The same without retransmissions in the first second.
pub fn calm() -> StackConfig {
    StackConfig { rto_initial: 1000 * MS, rto_min: 1000 * MS, ..plain() }
}

impl Bench {
    pub fn new(config: StackConfig) -> Self {
        let wire = Wire::new(1, Faults::default());
        let device = wire.port(0);
        let peer = wire.port(1);
        let mut stack = Stack::new(config, &device.capabilities().clone(), [7; 32]);
        stack.interface_mut().add_address(IpCidr::new(OURS.into(), 24).unwrap()).unwrap();
        let mut bench = Self {
            wire,
            device,
            stack,
            peer,
            now: Instant::ZERO,
            // The circle's end is a good place to begin.
            irs: u32::MAX - 2,
            iss: None,
            id: None,
            mss: Some(1000),
            scale: None,
            sack_permitted: false,
            remote: (THEIRS, PEER_PORT),
            elsewhere: 0,
        };
        bench.pass(3000 * MS);
        bench
    }

    /// Lets time pass; what the stack sends meanwhile is returned.
    pub fn pass(&mut self, span: Duration) -> Vec<Seg> {
        self.pass_timed(span).into_iter().map(|(_, segment)| segment).collect()
    }

    /// The same, with the times at which the segments were sent.
    pub fn pass_timed(&mut self, span: Duration) -> Vec<(Instant, Seg)> {
        let until = self.now + span;
        let mut all = Vec::new();
        loop {
            all.extend(self.turn().into_iter().map(|segment| (self.now, segment)));
            // What the peer answered to that, without delay.
            all.extend(self.turn().into_iter().map(|segment| (self.now, segment)));
            let next = self.stack.poll_at(self.now).unwrap_or(until);
            if next > until || (self.now >= until) {
                self.now = until;
                // What the peer answered to the last turn.
                for _ in 0..2 {
                    all.extend(self.turn().into_iter().map(|segment| (self.now, segment)));
                }
                return all;
            }
            self.now = next.max(self.now + Duration::from_micros(1)).min(until);
        }
    }

    /// Lets time pass; what the stack sends is not looked at.
    pub fn quiet_pass(&mut self, span: Duration) {
        let until = self.now + span;
        while self.now < until {
            self.wire.advance(self.now);
            let mut burst = Burst::new();
            self.device.receive_burst(&mut burst);
            for frame in burst.drain(..) {
                self.stack.receive(frame, &mut self.device, self.now);
            }
            self.stack.transmit(&mut self.device, self.now);
            self.wire.advance(self.now);
            loop {
                self.peer.receive_burst(&mut burst);
                if burst.is_empty() {
                    break;
                }
                burst.clear();
            }
            let next = self.stack.poll_at(self.now).unwrap_or(until);
            self.now = next.max(self.now + Duration::from_micros(1)).min(until);
        }
    }

    /// One turn of the stack; returns the segments that it sent.
    pub fn turn(&mut self) -> Vec<Seg> {
        self.wire.advance(self.now);
        let mut burst = Burst::new();
        self.device.receive_burst(&mut burst);
        for frame in burst.drain(..) {
            self.stack.receive(frame, &mut self.device, self.now);
        }
        self.stack.transmit(&mut self.device, self.now);
        self.wire.advance(self.now);
        let mut burst = Burst::new();
        let mut all = Vec::new();
        loop {
            self.peer.receive_burst(&mut burst);
            if burst.is_empty() {
                return all;
            }
            for frame in burst.drain(..) {
                all.extend(self.peer_receives(frame.bytes()));
            }
        }
    }

    pub fn peer_receives(&mut self, octets: &[u8]) -> Option<Seg> {
        let ethernet = EthernetFrame::new_checked(octets).unwrap();
        match ethernet.ethertype() {
            EthernetProtocol::Arp => {
                let arp = ArpRepr::parse(&ArpPacket::new_checked(ethernet.payload()).unwrap()).unwrap();
                let ArpRepr::EthernetIpv4 { operation, source_hardware_addr, source_protocol_addr, .. } = arp
                else {
                    return None;
                };
                if operation == ArpOperation::Request && source_protocol_addr.octets() == OURS {
                    self.peer_answers_arp(source_hardware_addr, source_protocol_addr);
                }
                None
            }
            EthernetProtocol::Ipv4 => {
                let ip = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
                assert!(ip.verify_checksum());
                if ip.next_header() != IpProtocol::Tcp {
                    return None;
                }
                let (source, destination) = (ip.src_addr(), ip.dst_addr());
                let tcp = TcpPacket::new_checked(ip.payload()).unwrap();
                let repr = TcpRepr::parse(
                    &tcp,
                    &IpAddress::Ipv4(source),
                    &IpAddress::Ipv4(destination),
                    &ChecksumCapabilities::default(),
                )
                .expect("the stack sends good segments");
                if (destination.octets(), repr.dst_port) != self.remote {
                    self.elsewhere += 1;
                    return None;
                }
                Some(self.relative(&tcp, &repr).ecn(ip.ecn()))
            }
            _ => None,
        }
    }

    pub fn relative(&mut self, tcp: &TcpPacket<&[u8]>, repr: &TcpRepr<'_>) -> Seg {
        let seq = repr.seq_number.0.cast_unsigned();
        if tcp.syn() && self.iss.is_none() {
            self.iss = Some(seq);
        }
        let iss = self.iss.unwrap_or(seq);
        let ack = repr.ack_number.map_or(0, |ack| ack.0.cast_unsigned().wrapping_sub(self.irs));
        let flags = match (tcp.syn(), tcp.fin(), tcp.rst(), tcp.psh(), tcp.ack()) {
            (true, false, false, false, false) => "S",
            (true, false, false, false, true) => "SA",
            (false, false, false, false, true) => "A",
            (false, false, false, true, true) => "PA",
            (false, true, false, false, true) => "FA",
            (false, false, true, false, false) => "R",
            (false, false, true, false, true) => "RA",
            other => panic!("odd flags {other:?}"),
        };
        let sack = repr.sack_ranges.iter().flatten();
        let sack = sack.map(|&(start, end)| (start.wrapping_sub(self.irs), end.wrapping_sub(self.irs)));
        Seg {
            flags,
            seq: seq.wrapping_sub(iss),
            ack,
            window: repr.window_len,
            payload: repr.payload.to_vec(),
            sack: sack.collect(),
            timestamps: repr.timestamp.map(|timestamp| (timestamp.tsval, timestamp.tsecr)),
            mss: repr.max_seg_size,
            scale: repr.window_scale,
            sack_permitted: repr.sack_permitted,
            ece: tcp.ece(),
            cwr: tcp.cwr(),
            ecn: 0,
        }
    }

    pub fn peer_answers_arp(&mut self, mac: EthernetAddress, addr: Ipv4Address) {
        let repr = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: THEIR_MAC,
            source_protocol_addr: THEIRS.into(),
            target_hardware_addr: mac,
            target_protocol_addr: addr,
        };
        let mut octets = vec![0; 14 + repr.buffer_len()];
        let mut ethernet = EthernetFrame::new_unchecked(&mut octets[..]);
        EthernetRepr { src_addr: THEIR_MAC, dst_addr: mac, ethertype: EthernetProtocol::Arp }
            .emit(&mut ethernet);
        repr.emit(&mut ArpPacket::new_unchecked(ethernet.payload_mut()));
        self.wire.inject(0, &octets);
    }

    /// The peer sends a segment; returned is what the stack answers in the same turn.
    pub fn recv(&mut self, segment: &Seg) -> Vec<Seg> {
        self.inject(segment);
        self.turn()
    }

    /// The peer sends a segment, and the stack does not yet get its turn.
    pub fn inject(&mut self, segment: &Seg) {
        let has = |flag| segment.flags.contains(flag);
        let absolute = |base: u32, offset: u32| TcpSeqNumber(base.wrapping_add(offset).cast_signed());
        let mut sack = [None; 3];
        for (place, &(start, end)) in sack.iter_mut().zip(&segment.sack) {
            let iss = self.iss.unwrap();
            *place = Some((iss.wrapping_add(start), iss.wrapping_add(end)));
        }
        let repr = TcpRepr {
            src_port: self.remote.1,
            dst_port: PORT,
            control: match () {
                () if has('S') => TcpControl::Syn,
                () if has('F') => TcpControl::Fin,
                () if has('R') => TcpControl::Rst,
                () if has('P') => TcpControl::Psh,
                () => TcpControl::None,
            },
            seq_number: absolute(self.irs, segment.seq),
            ack_number: has('A').then(|| absolute(self.iss.unwrap_or(0), segment.ack)),
            window_len: segment.window,
            window_scale: self.scale.filter(|_| has('S')),
            max_seg_size: self.mss.filter(|_| has('S')),
            sack_permitted: self.sack_permitted && has('S'),
            sack_ranges: sack,
            timestamp: segment.timestamps.map(|(tsval, tsecr)| TcpTimestampRepr { tsval, tsecr }),
            payload: &segment.payload,
        };
        let mut octets = vec![0; repr.buffer_len()];
        let (source, destination) = (IpAddress::Ipv4(self.remote.0.into()), IpAddress::Ipv4(OURS.into()));
        let mut packet = TcpPacket::new_unchecked(&mut octets[..]);
        repr.emit(&mut packet, &source, &destination, &ChecksumCapabilities::default());
        packet.set_ece(segment.ece);
        packet.set_cwr(segment.cwr);
        packet.fill_checksum(&source, &destination);
        self.inject_marked(IpProtocol::Tcp, &octets, segment.ecn);
    }

    /// The peer sends an IP packet.
    pub fn inject_ip(&mut self, protocol: IpProtocol, payload: &[u8]) {
        self.inject_marked(protocol, payload, 0);
    }

    /// The same, with these ECN bits.
    pub fn inject_marked(&mut self, protocol: IpProtocol, payload: &[u8], ecn: u8) {
        let ip = Ipv4Repr {
            src_addr: self.remote.0.into(),
            dst_addr: OURS.into(),
            next_header: protocol,
            payload_len: payload.len(),
            hop_limit: 64,
        };
        let mut octets = vec![0; 14 + ip.buffer_len() + payload.len()];
        let mut ethernet = EthernetFrame::new_unchecked(&mut octets[..]);
        EthernetRepr { src_addr: THEIR_MAC, dst_addr: OUR_MAC, ethertype: EthernetProtocol::Ipv4 }
            .emit(&mut ethernet);
        let mut packet = Ipv4Packet::new_unchecked(ethernet.payload_mut());
        ip.emit(&mut packet, &ChecksumCapabilities::default());
        packet.payload_mut().copy_from_slice(payload);
        packet.set_ecn(ecn);
        packet.fill_checksum();
        self.wire.inject(0, &octets);
    }

    /// An ICMP error from a router about a segment of ours with the number `seq`.
    pub fn inject_icmp(&mut self, code: u8, mtu: u16, seq: u32) {
        let mut quoted = vec![0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0];
        quoted.extend_from_slice(&OURS);
        quoted.extend_from_slice(&THEIRS);
        quoted.extend_from_slice(&PORT.to_be_bytes());
        quoted.extend_from_slice(&PEER_PORT.to_be_bytes());
        quoted.extend_from_slice(&self.iss.unwrap().wrapping_add(seq).to_be_bytes());
        let header_sum = tcpstack::checksum::finish(tcpstack::checksum::sum(&quoted[..20]));
        quoted[10..12].copy_from_slice(&header_sum.to_be_bytes());
        let mut message = vec![3, code, 0, 0, 0, 0];
        message.extend_from_slice(&mtu.to_be_bytes());
        message.extend_from_slice(&quoted);
        let sum = tcpstack::checksum::finish(tcpstack::checksum::sum(&message));
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.inject_ip(IpProtocol::Icmp, &message);
    }

    /// Up to ESTABLISHED by a passive open; sequence numbers go on at 1 on both sides.
    pub fn established(config: StackConfig) -> Self {
        Self::established_with(config, |_| {})
    }

    pub fn established_with(config: StackConfig, set_up: impl FnOnce(&mut Self)) -> Self {
        let mut bench = Self::new(config);
        set_up(&mut bench);
        bench.stack.listen((OURS, PORT).into(), 4).unwrap();
        bench.recv(&seg("S", 0, 0));
        // The answer may have waited for our address.
        bench.pass(MS);
        assert!(bench.iss.is_some(), "the SYN was answered");
        // A window that a SYN cannot say is told now.
        for update in bench.recv(&seg("A", 1, 1)) {
            assert!(update.window > 0 && update.payload.is_empty());
        }
        let (id, events) = bench.stack.next_event().unwrap();
        assert!(events.contains(Events::ACCEPTED));
        bench.id = Some(id);
        bench
    }

    pub fn id(&self) -> ConnectionId {
        self.id.unwrap()
    }

    pub fn state(&self) -> State {
        self.stack.info(self.id()).unwrap().state
    }

    /// Queues records of these lengths and lets the stack send.
    pub fn send(&mut self, lens: &[usize]) -> Vec<Seg> {
        for &len in lens {
            let mut frame = self.device.allocate().unwrap();
            frame.push_back(len);
            frame.bytes_mut().fill(0x55);
            self.stack.send(self.id(), frame, true).map_err(|_| "no room").unwrap();
        }
        self.turn()
    }

    pub fn events(&mut self) -> Events {
        let mut all = Events::NONE;
        while let Some((_, events)) = self.stack.next_event() {
            all.insert(events);
        }
        all
    }

    pub fn read(&mut self) -> usize {
        let mut len = 0;
        while let Some(frame) = self.stack.receive_payload(self.id()) {
            assert!(frame.bytes().iter().all(|&octet| octet == 0x55));
            len += frame.bytes().len();
        }
        len
    }
}

/// What matters of segments: flags, numbers and length.
pub fn brief(segments: &[Seg]) -> Vec<(&'static str, u32, u32, usize)> {
    segments.iter().map(|segment| (segment.flags, segment.seq, segment.ack, segment.payload.len())).collect()
}
