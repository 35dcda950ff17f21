//! One stack against segments made by hand: what it answers, segment by segment.
//!
//! The peer is a few lines that know no TCP: a test says what it sends and what must come back.

mod common;

use core::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr,
    IpAddress, IpProtocol, Ipv4Address, Ipv4Packet, Ipv4Repr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};
use tcpstack::addr::IpCidr;
use tcpstack::config::StackConfig;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::sim::{Faults, SimDevice, Wire};
use tcpstack::stack::{CloseReason, ConnectionId, Events, Stack};
use tcpstack::tcp::state::State;
use tcpstack::time::Instant;

const OURS: [u8; 4] = [192, 0, 2, 1];
const THEIRS: [u8; 4] = [192, 0, 2, 2];
const THEIR_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 2]);
const OUR_MAC: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
const PORT: u16 = 4791;
const PEER_PORT: u16 = 5000;
const MS: Duration = Duration::from_millis(1);

/// A segment as a test sees it; `seq` and `ack` count from the initial numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seg {
    flags: &'static str,
    seq: u32,
    ack: u32,
    window: u16,
    payload: Vec<u8>,
    sack: Vec<(u32, u32)>,
}

fn seg(flags: &'static str, seq: u32, ack: u32) -> Seg {
    Seg { flags, seq, ack, window: 60_000, payload: Vec::new(), sack: Vec::new() }
}

impl Seg {
    fn payload(mut self, len: usize) -> Self {
        self.payload = vec![0x55; len];
        self
    }

    fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    fn sack(mut self, blocks: &[(u32, u32)]) -> Self {
        self.sack = blocks.to_vec();
        self
    }
}

struct Bench {
    wire: Wire,
    device: SimDevice,
    stack: Stack<SimDevice>,
    peer: SimDevice,
    now: Instant,
    /// The peer's initial number and ours.
    irs: u32,
    iss: Option<u32>,
    id: Option<ConnectionId>,
    mss: Option<u16>,
    scale: Option<u8>,
    sack_permitted: bool,
}

fn plain() -> StackConfig {
    StackConfig {
        timestamps: false,
        sack: false,
        rto_initial: 100 * MS,
        receive_window: 20_000,
        ..StackConfig::default()
    }
}

impl Bench {
    fn new(config: StackConfig) -> Self {
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
        };
        bench.pass(3000 * MS);
        bench
    }

    /// Lets time pass; what the stack sends meanwhile is returned.
    fn pass(&mut self, span: Duration) -> Vec<Seg> {
        let until = self.now + span;
        let mut all = Vec::new();
        loop {
            all.extend(self.turn());
            let next = self.stack.poll_at(self.now).unwrap_or(until);
            if next > until || (self.now >= until) {
                self.now = until;
                // What the peer answered to the last turn.
                all.extend(self.turn());
                all.extend(self.turn());
                return all;
            }
            self.now = next.max(self.now + Duration::from_micros(1)).min(until);
        }
    }

    /// One turn of the stack; returns the segments that it sent.
    fn turn(&mut self) -> Vec<Seg> {
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

    fn peer_receives(&mut self, octets: &[u8]) -> Option<Seg> {
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
                Some(self.relative(&tcp, &repr))
            }
            _ => None,
        }
    }

    fn relative(&mut self, tcp: &TcpPacket<&[u8]>, repr: &TcpRepr<'_>) -> Seg {
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
        }
    }

    fn peer_answers_arp(&mut self, mac: EthernetAddress, addr: Ipv4Address) {
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
    fn recv(&mut self, segment: &Seg) -> Vec<Seg> {
        self.inject(segment);
        self.turn()
    }

    /// The peer sends a segment, and the stack does not yet get its turn.
    fn inject(&mut self, segment: &Seg) {
        let has = |flag| segment.flags.contains(flag);
        let absolute = |base: u32, offset: u32| TcpSeqNumber(base.wrapping_add(offset).cast_signed());
        let mut sack = [None; 3];
        for (place, &(start, end)) in sack.iter_mut().zip(&segment.sack) {
            let iss = self.iss.unwrap();
            *place = Some((iss.wrapping_add(start), iss.wrapping_add(end)));
        }
        let repr = TcpRepr {
            src_port: PEER_PORT,
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
            timestamp: None,
            payload: &segment.payload,
        };
        let ip = Ipv4Repr {
            src_addr: THEIRS.into(),
            dst_addr: OURS.into(),
            next_header: IpProtocol::Tcp,
            payload_len: repr.buffer_len(),
            hop_limit: 64,
        };
        let mut octets = vec![0; 14 + ip.buffer_len() + repr.buffer_len()];
        let mut ethernet = EthernetFrame::new_unchecked(&mut octets[..]);
        EthernetRepr { src_addr: THEIR_MAC, dst_addr: OUR_MAC, ethertype: EthernetProtocol::Ipv4 }
            .emit(&mut ethernet);
        let mut packet = Ipv4Packet::new_unchecked(ethernet.payload_mut());
        ip.emit(&mut packet, &ChecksumCapabilities::default());
        repr.emit(
            &mut TcpPacket::new_unchecked(packet.payload_mut()),
            &IpAddress::Ipv4(THEIRS.into()),
            &IpAddress::Ipv4(OURS.into()),
            &ChecksumCapabilities::default(),
        );
        self.wire.inject(0, &octets);
    }

    /// Up to ESTABLISHED by a passive open; sequence numbers go on at 1 on both sides.
    fn established(config: StackConfig) -> Self {
        Self::established_with(config, |_| {})
    }

    fn established_with(config: StackConfig, set_up: impl FnOnce(&mut Self)) -> Self {
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

    fn id(&self) -> ConnectionId {
        self.id.unwrap()
    }

    fn state(&self) -> State {
        self.stack.info(self.id()).unwrap().state
    }

    /// Queues records of these lengths and lets the stack send.
    fn send(&mut self, lens: &[usize]) -> Vec<Seg> {
        for &len in lens {
            let mut frame = self.device.allocate().unwrap();
            frame.push_back(len);
            frame.bytes_mut().fill(0x55);
            self.stack.send(self.id(), frame, true).map_err(|_| "no room").unwrap();
        }
        self.turn()
    }

    fn events(&mut self) -> Events {
        let mut all = Events::NONE;
        while let Some((_, events)) = self.stack.next_event() {
            all.insert(events);
        }
        all
    }

    fn read(&mut self) -> usize {
        let mut len = 0;
        while let Some(frame) = self.stack.receive_payload(self.id()) {
            assert!(frame.bytes().iter().all(|&octet| octet == 0x55));
            len += frame.bytes().len();
        }
        len
    }
}

/// What matters of segments: flags, numbers and length.
fn brief(segments: &[Seg]) -> Vec<(&'static str, u32, u32, usize)> {
    segments.iter().map(|segment| (segment.flags, segment.seq, segment.ack, segment.payload.len())).collect()
}

// ---- LISTEN, SYN-SENT, SYN-RECEIVED

#[test]
fn listen_answers_an_ack_with_a_reset_and_ignores_a_reset() {
    let mut bench = Bench::new(plain());
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.iss = Some(0);
    assert_eq!(brief(&bench.recv(&seg("A", 10, 77))), [("R", 77, 0, 0)]);
    assert_eq!(bench.recv(&seg("R", 10, 0)), []);
    assert_eq!(bench.recv(&seg("RA", 10, 5)), []);
}

#[test]
fn without_a_listener_all_but_resets_is_refused() {
    let mut bench = Bench::new(plain());
    bench.iss = Some(0);
    assert_eq!(brief(&bench.recv(&seg("S", 0, 0))), [("RA", 0, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("FA", 0, 9).payload(10))), [("R", 9, 0, 0)]);
    assert_eq!(bench.recv(&seg("R", 0, 0)), []);
}

#[test]
fn a_syn_ack_goes_again_and_then_no_more() {
    let config = StackConfig { syn_ack_retries: 2, ..plain() };
    let mut bench = Bench::new(config);
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0));
    let all = bench.pass(10_000 * MS);
    assert_eq!(brief(&all), [("SA", 0, 1, 0), ("SA", 0, 1, 0), ("SA", 0, 1, 0), ("RA", 1, 1, 0)]);
    assert_eq!(bench.stack.connections().count(), 0);
    assert_eq!(bench.stack.next_event(), None);
}

#[test]
fn a_repeated_syn_gets_the_answer_again() {
    let mut bench = Bench::new(plain());
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0));
    bench.pass(MS);
    assert_eq!(brief(&bench.recv(&seg("S", 0, 0))), [("SA", 0, 1, 0)]);
}

#[test]
fn syn_received_goes_back_to_listen_on_a_reset() {
    let mut bench = Bench::new(plain());
    bench.stack.listen((OURS, PORT).into(), 1).unwrap();
    bench.inject(&seg("S", 0, 0));
    bench.pass(MS);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 99))), [("R", 99, 0, 0)]);
    assert_eq!(bench.recv(&seg("R", 1, 0)), []);
    assert_eq!(bench.stack.connections().count(), 0);
    assert_eq!(bench.stack.next_event(), None);
    // The backlog of one is free again.
    bench.iss = None;
    bench.inject(&seg("S", 0, 0));
    assert_eq!(brief(&bench.pass(MS)), [("SA", 0, 1, 0)]);
}

fn opening() -> Bench {
    let mut bench = Bench::new(plain());
    let remote = (THEIRS, PEER_PORT).into();
    let id = bench.stack.connect(remote, Some((OURS, PORT).into()), bench.now).unwrap();
    bench.id = Some(id);
    assert_eq!(brief(&bench.pass(MS)), [("S", 0, 0, 0)]);
    bench
}

#[test]
fn syn_sent_to_established() {
    let mut bench = opening();
    assert_eq!(brief(&bench.recv(&seg("SA", 0, 1))), [("A", 1, 1, 0)]);
    assert_eq!(bench.state(), State::Established);
    assert!(bench.events().contains(Events::CONNECTED));
    // Without a window scale option the peer's window is what it says.
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 60_000);
    assert_eq!(bench.stack.emss(bench.id()), 1000);
}

#[test]
fn syn_sent_with_a_bad_ack_sends_a_reset() {
    let mut bench = opening();
    assert_eq!(brief(&bench.recv(&seg("SA", 0, 2))), [("R", 2, 0, 0)]);
    assert_eq!(brief(&bench.recv(&seg("A", 0, 0))), [("R", 0, 0, 0)]);
    assert_eq!(bench.recv(&seg("RA", 0, 2)), []);
    assert_eq!(bench.recv(&seg("R", 0, 0)), []);
    assert_eq!(bench.state(), State::SynSent);
    assert_eq!(bench.recv(&seg("RA", 0, 1)), []);
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Refused);
}

// proves 9293-3.5-1
// proves 9293-3.5-2
#[test]
fn syn_sent_to_syn_received_and_reset() {
    let mut bench = opening();
    assert_eq!(brief(&bench.recv(&seg("S", 0, 0))), [("SA", 0, 1, 0)]);
    assert_eq!(bench.state(), State::SynReceived);
    bench.recv(&seg("RA", 1, 1));
    // It was opened here, so the application hears of it.
    assert!(bench.events().contains(Events::CLOSED));
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Refused);
}

#[test]
fn a_syn_goes_again_with_back_off() {
    let mut bench = opening();
    let start = bench.now;
    let mut times = Vec::new();
    while times.len() < 3 {
        if !bench.pass(MS).is_empty() {
            times.push((bench.now - start).as_millis());
        }
    }
    // 100 ms, then 200, then 400.
    for (time, expected) in times.iter().zip([100, 300, 700]) {
        assert!(time.abs_diff(expected) <= 2, "{times:?}");
    }
    // After a lost SYN the window is one segment, and the first timeout three seconds.
    bench.recv(&seg("SA", 0, 1));
    let info = bench.stack.info(bench.id()).unwrap();
    assert_eq!((info.cwnd, info.rto), (1000, Duration::from_secs(3)));
}

// proves 9293-3.7.1-3
#[test]
fn without_an_mss_option_segments_are_of_536_octets() {
    let bench = Bench::established_with(plain(), |bench| bench.mss = None);
    assert_eq!(bench.stack.emss(bench.id()), 536);
}

#[test]
fn a_silly_mss_is_not_followed_to_the_bottom() {
    let bench = Bench::established_with(plain(), |bench| bench.mss = Some(0));
    assert_eq!(bench.stack.emss(bench.id()), 64);
}

#[test]
fn the_window_is_scaled_only_when_both_say_so() {
    let config = StackConfig { receive_window: 1 << 20, ..plain() };
    let mut bench = Bench::established_with(config.clone(), |bench| bench.scale = Some(3));
    bench.recv(&seg("A", 1, 1).window(1000));
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 8000);
    bench.recv(&seg("A", 1, 1).payload(100));
    let ack = bench.pass(5 * MS);
    assert_eq!(ack[0].window, u16::try_from(((1u32 << 20) - 100) >> 5).unwrap());

    let mut bench = Bench::established(config);
    bench.recv(&seg("A", 1, 1).payload(100));
    assert_eq!(bench.pass(5 * MS)[0].window, u16::MAX - 100);
}

// ---- ESTABLISHED: receiving

// proves 9293-3.8.6.3-1
// proves 9293-3.8.6.3-2
// proves 9293-3.10.7.4-1
#[test]
fn one_segment_is_acknowledged_late_and_a_burst_once() {
    let mut bench = Bench::established(plain());
    assert_eq!(bench.recv(&seg("A", 1, 1).payload(1000)), []);
    assert_eq!(brief(&bench.pass(2 * MS)), [("A", 1, 1001, 0)]);
    for number in 0..7 {
        bench.inject(&seg("A", 1001 + 1000 * number, 1).payload(1000));
    }
    assert_eq!(brief(&bench.turn()), [("A", 1, 8001, 0)]);
    assert_eq!(bench.read(), 8000);
}

#[test]
fn an_ack_rides_on_data() {
    let mut bench = Bench::established(plain());
    bench.inject(&seg("PA", 1, 1).payload(100));
    assert_eq!(brief(&bench.send(&[50])), [("PA", 1, 101, 50)]);
    assert_eq!(bench.pass(3 * MS), []);
}

// proves 9293-3.10.7.4-3
#[test]
fn a_gap_is_told_at_once_and_so_is_its_filling() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("A", 1001, 1).payload(1000))), [("A", 1, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("A", 3001, 1).payload(1000))), [("A", 1, 1, 0)]);
    assert_eq!(bench.stack.early_frames(), 2);
    assert_eq!(bench.read(), 0);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1).payload(1000))), [("A", 1, 2001, 0)]);
    assert_eq!(bench.read(), 2000);
    assert_eq!(brief(&bench.recv(&seg("A", 2001, 1).payload(1000))), [("A", 1, 4001, 0)]);
    assert_eq!((bench.read(), bench.stack.early_frames()), (2000, 0));
}

#[test]
fn each_segment_beyond_a_gap_gets_its_own_ack() {
    let mut bench = Bench::established(plain());
    for number in 1..5 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(1000));
    }
    assert_eq!(brief(&bench.turn()), [("A", 1, 1, 0); 4]);
}

#[test]
fn overlaps_are_trimmed() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).payload(1000));
    bench.recv(&seg("A", 501, 1).payload(1000));
    assert_eq!(bench.read(), 1500);
    // Wholly old: told at once.
    assert_eq!(brief(&bench.recv(&seg("A", 501, 1).payload(1000))), [("A", 1, 1501, 0)]);
    assert_eq!(bench.read(), 0);
}

#[test]
fn sack_blocks_tell_the_newest_first() {
    let config = StackConfig { sack: true, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = true);
    let blocks = |segments: Vec<Seg>| segments[0].sack.clone();
    assert_eq!(blocks(bench.recv(&seg("A", 1001, 1).payload(1000))), [(1001, 2001)]);
    assert_eq!(blocks(bench.recv(&seg("A", 3001, 1).payload(1000))), [(3001, 4001), (1001, 2001)]);
    assert_eq!(blocks(bench.recv(&seg("A", 2001, 1).payload(1000))), [(1001, 4001)]);
    assert_eq!(bench.recv(&seg("A", 1, 1).payload(1000))[0].sack, []);
}

// proves 9293-3.4-1
// proves 9293-3.8.6.1-1
#[test]
fn a_closed_window_still_takes_acks_and_answers_probes() {
    let config = StackConfig { receive_window: 3000, ..plain() };
    let mut bench = Bench::established(config);
    bench.send(&[100]);
    for number in 0..3 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(1000));
    }
    let ack = bench.turn();
    assert_eq!((ack[0].ack, ack[0].window), (3001, 0));
    for _ in 0..20 {
        // With an octet, and with an old number.
        let answer = bench.recv(&seg("A", 3001, 1).payload(1));
        assert_eq!((answer[0].ack, answer[0].window), (3001, 0));
        let answer = bench.recv(&seg("A", 3000, 1));
        assert_eq!((answer[0].ack, answer[0].window), (3001, 0));
    }
    assert!(!bench.stack.all_acknowledged(bench.id()));
    bench.recv(&seg("A", 3001, 101).payload(1));
    assert!(bench.stack.all_acknowledged(bench.id()));
}

// proves 9293-3.8.6-1
// proves 9293-3.8.6.2.2-1
#[test]
fn the_window_opens_by_two_segments_or_not_at_all() {
    let config = StackConfig { receive_window: 10_000, ..plain() };
    let mut bench = Bench::established(config);
    for number in 0..10 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(1000));
    }
    assert_eq!(bench.turn()[0].window, 0);
    let id = bench.id();
    bench.read();
    bench.stack.release_window(id, 2919);
    assert_eq!(bench.turn(), []);
    bench.stack.release_window(id, 1);
    let update = bench.turn();
    assert_eq!((update.len(), update[0].ack, update[0].window), (1, 10_001, 2920));
}

#[test]
fn data_beyond_the_window_are_cut_off() {
    let config = StackConfig { receive_window: 1500, ..plain() };
    let mut bench = Bench::established(config);
    bench.recv(&seg("A", 1, 1).payload(1000));
    let ack = bench.recv(&seg("FA", 1001, 1).payload(1000));
    assert_eq!((ack[0].ack, ack[0].window), (1501, 0));
    assert_eq!(bench.read(), 1500);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(brief(&bench.recv(&seg("A", 5001, 1).payload(10))), [("A", 1, 1501, 0)]);
}

#[test]
fn early_frames_are_bounded() {
    let config = StackConfig { early_frames_max: 2, ..plain() };
    let mut bench = Bench::established(config);
    for number in 1..5 {
        bench.inject(&seg("A", 1 + 1000 * number, 1).payload(500));
    }
    bench.turn();
    assert_eq!(bench.stack.early_frames(), 2);
    assert_eq!(bench.stack.counters().early_dropped, 2);
}

// ---- ESTABLISHED: sending

#[test]
fn the_initial_window_is_ten_segments() {
    let mut bench = Bench::established(plain());
    let sent = bench.send(&[1000; 14]);
    assert_eq!(sent.len(), 10);
    assert_eq!(sent[9].seq, 9001);
    // Each segment is one record, and an acknowledgment of two lets four more go.
    assert_eq!(brief(&bench.recv(&seg("A", 1, 2001))).len(), 4);
}

#[test]
fn records_keep_their_boundaries() {
    let mut bench = Bench::established(plain());
    let sent = bench.send(&[1, 999, 17, 1000]);
    assert_eq!(
        brief(&sent),
        [("PA", 1, 1, 1), ("PA", 2, 1, 999), ("PA", 1001, 1, 17), ("PA", 1018, 1, 1000)]
    );
    // A timeout sends them again just so, as the window of one segment lets them go.
    assert_eq!(bench.pass(7 * MS), sent[0..2]);
    assert_eq!(bench.recv(&seg("A", 1, 2)), []);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), sent[2..4]);
}

// proves 9293-3.8.1-1
#[test]
fn timeouts_back_off_and_give_up_only_after_the_user_timeout() {
    let mut bench = Bench::established(plain());
    bench.send(&[100]);
    let start = bench.now;
    let mut times = Vec::new();
    while bench.state() != State::Closed {
        for segment in bench.pass(MS) {
            if segment.flags == "PA" {
                assert_eq!((segment.seq, segment.payload.len()), (1, 100));
                times.push((bench.now - start).as_millis());
            }
        }
    }
    // The handshake took no time, so the first timeout is the minimum.
    assert!(times[0] <= 7, "{times:?}");
    for pair in times.windows(3) {
        let (first, second) = (pair[1] - pair[0], pair[2] - pair[1]);
        assert!(second.abs_diff(2 * first) <= 3 || second >= 59_000, "{times:?}");
    }
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::TimedOut);
    assert!((bench.now - start) >= Duration::from_secs(100));
}

#[test]
fn three_duplicates_send_the_first_segment_again() {
    let mut bench = Bench::established(plain());
    bench.send(&[1000; 10]);
    bench.now += Duration::from_micros(100);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), []);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), []);
    assert_eq!(bench.recv(&seg("A", 1, 1001)), []);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1001))), [("PA", 1001, 1, 1000)]);
    assert_eq!(bench.stack.counters().fast_recoveries, 1);
    // A partial ACK shows the next hole.
    assert_eq!(brief(&bench.recv(&seg("A", 1, 3001))), [("PA", 3001, 1, 1000)]);
    bench.recv(&seg("A", 1, 10_001));
    assert!(bench.stack.all_acknowledged(bench.id()));
    assert_eq!(bench.stack.counters().retransmissions, 2);
    assert_eq!(bench.stack.counters().timeouts, 0);
}

#[test]
fn a_changed_window_is_no_duplicate() {
    let mut bench = Bench::established(plain());
    bench.send(&[1000; 10]);
    for number in 0..10 {
        assert_eq!(bench.recv(&seg("A", 1, 1).window(50_000 + number)), []);
    }
    assert_eq!(bench.stack.counters().fast_recoveries, 0);
}

#[test]
fn sack_repairs_all_holes_in_one_round_trip() {
    let config = StackConfig { sack: true, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = true);
    bench.send(&[1000; 10]);
    bench.now += Duration::from_micros(100);
    // The first and the third are lost.
    let mut repaired = Vec::new();
    for blocks in [
        &[(1001, 2001)][..],
        &[(3001, 4001), (1001, 2001)],
        &[(3001, 5001), (1001, 2001)],
        &[(3001, 6001), (1001, 2001)],
        &[(3001, 8001), (1001, 2001)],
        &[(3001, 10_001), (1001, 2001)],
    ] {
        repaired.extend(bench.recv(&seg("A", 1, 1).sack(blocks)));
    }
    assert_eq!(brief(&repaired), [("PA", 1, 1, 1000), ("PA", 2001, 1, 1000)]);
    bench.recv(&seg("A", 1, 2001).sack(&[(3001, 10_001)]));
    bench.recv(&seg("A", 1, 10_001));
    assert!(bench.stack.all_acknowledged(bench.id()));
    assert_eq!(bench.stack.counters().retransmissions, 2);
}

#[test]
fn sack_blocks_of_nonsense_are_ignored() {
    let config = StackConfig { sack: true, ..plain() };
    let mut bench = Bench::established_with(config, |bench| bench.sack_permitted = true);
    bench.send(&[1000; 4]);
    for blocks in [[(5000, 9000)], [(3001, 1001)], [(0, 4001)], [(2_000_000_000, 4_000_000_000)]] {
        assert_eq!(bench.recv(&seg("A", 1, 1).sack(&blocks)), []);
    }
    bench.recv(&seg("A", 1, 4001));
    assert!(bench.stack.all_acknowledged(bench.id()));
}

// proves 9293-3.8.6-5
// proves 9293-3.8.6.1-1
// proves 9293-3.8.6.1-3
// proves 9293-3.8.6.1-4
#[test]
fn a_closed_window_is_probed_with_back_off_for_ever() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).window(0));
    assert_eq!(bench.send(&[100]), []);
    let mut gaps = Vec::new();
    let mut last = bench.now;
    for _ in 0..20 {
        while bench.pass(MS).is_empty() {}
        gaps.push((bench.now - last).as_millis());
        last = bench.now;
        // The probe is of an old number, and it is answered.
        assert_eq!(bench.recv(&seg("A", 1, 1).window(0)), []);
    }
    assert!(gaps[0] <= 7 && gaps[1] >= 9 && gaps[19] >= 59_000, "{gaps:?}");
    assert!(bench.now.as_nanos() > 100_000_000_000);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1).window(100))), [("PA", 1, 1, 100)]);
}

// proves 9293-3.8.6.2.1-1
#[test]
fn a_window_smaller_than_a_record_is_used_after_a_while() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).window(300));
    assert_eq!(bench.send(&[1000]), []);
    assert_eq!(brief(&bench.pass(7 * MS)), [("A", 1, 1, 300)]);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 301))), [("PA", 301, 1, 700)]);
}

// proves 9293-3.8.6-2
// proves 9293-3.8.6-3
#[test]
fn a_shrunk_window_stops_new_data() {
    let mut bench = Bench::established(plain());
    bench.send(&[1000; 4]);
    bench.recv(&seg("A", 1, 1001).window(1000));
    assert_eq!(bench.send(&[500]), []);
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 1000);
    // What is in flight beyond it is not given up for that.
    bench.recv(&seg("A", 1, 4001).window(1000));
    assert!(bench.stack.all_acknowledged(bench.id()) || bench.stack.unsent(bench.id()) == 0);
}

#[test]
fn an_old_segment_does_not_change_the_window() {
    let mut bench = Bench::established(plain());
    bench.recv(&seg("A", 1, 1).payload(100).window(5000));
    bench.send(&[100]);
    bench.recv(&seg("A", 101, 101).payload(100).window(4000));
    // Overtaken on the way: an older ACK, from before.
    bench.recv(&seg("A", 101, 1).window(9000));
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 4000);
}

#[test]
fn room_comes_back_as_an_event() {
    let config = StackConfig { send_ahead: 0, ..plain() };
    let mut bench = Bench::established(config);
    bench.send(&[1000; 10]);
    let id = bench.id();
    assert_eq!(bench.stack.send_room(id), 0);
    bench.events();
    bench.recv(&seg("A", 1, 1001));
    assert!(bench.events().contains(Events::WRITABLE));
    assert!(bench.stack.send_room(id) >= 1000);
}

// ---- RFC 5961

// proves 9293-3.10.7.4-4
// proves 9293-3.10.7.4-5
// proves 9293-3.10.7.4-6
#[test]
fn a_reset_must_hit_the_next_octet() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("R", 2, 0))), [("A", 1, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("R", 20_000, 0))), [("A", 1, 1, 0)]);
    assert_eq!(bench.recv(&seg("R", 20_001, 0)), []);
    assert_eq!(bench.recv(&seg("R", 0, 0)), []);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(bench.recv(&seg("R", 1, 0)), []);
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Reset);
}

// proves 9293-3.10.7.4-7
// proves 9293-3.10.7.4-8
#[test]
fn a_syn_is_challenged_wherever_it_is() {
    let mut bench = Bench::established(plain());
    for seq in [0, 1, 500, 30_000] {
        assert_eq!(brief(&bench.recv(&seg("S", seq, 0))), [("A", 1, 1, 0)], "{seq}");
    }
    assert_eq!(bench.state(), State::Established);
}

// proves 9293-3.10.7.4-10
// proves 9293-3.10.7.4-11
#[test]
fn an_impossible_ack_is_challenged_and_its_data_dropped() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("A", 1, 2).payload(10))), [("A", 1, 1, 0)]);
    let old = 1u32.wrapping_sub(60_001);
    assert_eq!(brief(&bench.recv(&seg("A", 1, old).payload(10))), [("A", 1, 1, 0)]);
    assert_eq!(bench.read(), 0);
    assert_eq!(bench.stack.counters().ack_unacceptable, 2);
    bench.recv(&seg("A", 1, 1u32.wrapping_sub(60_000)).payload(10));
    assert_eq!(bench.read(), 10);
}

#[test]
fn challenge_acks_are_limited() {
    let config = StackConfig { challenge_acks: 3, ..plain() };
    let mut bench = Bench::established(config);
    let answers: usize = (0..10).map(|_| bench.recv(&seg("S", 1, 0)).len()).sum();
    assert_eq!(answers, 3);
    assert_eq!(bench.stack.counters().challenge_acks_limited, 7);
    bench.now += 1000 * MS;
    assert_eq!(bench.recv(&seg("S", 1, 0)).len(), 1);
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut bench = Bench::established(plain());
    assert_eq!(bench.recv(&seg("", 1, 0).payload(10)), []);
    assert_eq!(bench.read(), 0);
}

#[test]
fn a_wrong_checksum_is_dropped() {
    let mut bench = Bench::established(plain());
    bench.wire.advance(bench.now);
    let before = bench.stack.counters().segments_received;
    // A frame of zeros but for the headers in front.
    let mut octets = vec![0; 60];
    let mut ethernet = EthernetFrame::new_unchecked(&mut octets[..]);
    EthernetRepr { src_addr: THEIR_MAC, dst_addr: OUR_MAC, ethertype: EthernetProtocol::Ipv4 }
        .emit(&mut ethernet);
    let ip = Ipv4Repr {
        src_addr: THEIRS.into(),
        dst_addr: OURS.into(),
        next_header: IpProtocol::Tcp,
        payload_len: 20,
        hop_limit: 64,
    };
    let mut packet = Ipv4Packet::new_unchecked(ethernet.payload_mut());
    ip.emit(&mut packet, &ChecksumCapabilities::default());
    packet.payload_mut()[12] = 0x50;
    bench.wire.inject(0, &octets);
    octets[14 + 20 + 12] = 0x40;
    bench.wire.inject(0, &octets);
    bench.turn();
    let counters = bench.stack.counters();
    assert_eq!((counters.segments_received, counters.checksum_bad, counters.malformed), (before, 1, 1));
}

// ---- closing

#[test]
fn fin_wait_1_to_closing_to_time_wait() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 1, 1, 0)]);
    assert_eq!(bench.state(), State::FinWait1);
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 1))), [("A", 2, 2, 0)]);
    assert_eq!(bench.state(), State::Closing);
    bench.recv(&seg("A", 2, 2));
    assert_eq!(bench.state(), State::TimeWait);
}

#[test]
fn fin_wait_1_straight_to_time_wait() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    bench.send(&[100]);
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 101, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 102).payload(50))), [("A", 102, 52, 0)]);
    assert_eq!(bench.state(), State::TimeWait);
    assert_eq!(bench.read(), 50);
    bench.stack.release(id);
    // The peer's FIN again is acknowledged without a connection.
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 102).payload(50))), [("A", 102, 52, 0)]);
    assert_eq!(bench.recv(&seg("A", 52, 102)), []);
    assert_eq!(bench.recv(&seg("R", 40, 0)), []);
    assert_eq!(bench.stack.time_wait_len(), 1);
    bench.recv(&seg("R", 52, 0));
    assert_eq!(bench.stack.time_wait_len(), 0);
}

#[test]
fn close_wait_to_last_ack_to_closed() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 1).payload(10))), [("A", 1, 12, 0)]);
    assert!(bench.events().contains(Events::PEER_CLOSED | Events::READABLE));
    assert_eq!(bench.state(), State::CloseWait);
    assert_eq!(brief(&bench.send(&[30])), [("PA", 1, 12, 30)]);
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 31, 12, 0)]);
    assert_eq!(bench.state(), State::LastAck);
    // Data after the FIN are not the peer's to send.
    bench.recv(&seg("A", 12, 1).payload(10));
    bench.recv(&seg("A", 12, 32));
    assert_eq!(bench.state(), State::Closed);
    assert_eq!(bench.read(), 10);
    assert!(bench.events().contains(Events::CLOSED));
}

#[test]
fn a_fin_is_sent_again() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    bench.send(&[100]);
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 101, 1, 0)]);
    bench.recv(&seg("A", 1, 101));
    assert_eq!(brief(&bench.pass(12 * MS)), [("FA", 101, 1, 0)]);
    bench.recv(&seg("A", 1, 102));
    assert_eq!(bench.state(), State::FinWait2);
}

#[test]
fn an_early_fin_waits_for_its_data() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("FA", 101, 1).payload(100))), [("A", 1, 1, 0)]);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1).payload(100))), [("A", 1, 202, 0)]);
    assert_eq!(bench.state(), State::CloseWait);
    assert_eq!(bench.read(), 200);
}

#[test]
fn an_abort_sends_a_reset_of_the_next_number() {
    let mut bench = Bench::established(plain());
    let (id, now) = (bench.id(), bench.now);
    bench.send(&[100]);
    bench.stack.abort(id, now);
    assert_eq!(brief(&bench.turn()), [("RA", 101, 1, 0)]);
    assert_eq!(bench.stack.close_reason(id), CloseReason::Aborted);
    // The number is nobody's now.
    assert_eq!(brief(&bench.recv(&seg("A", 1, 101))), [("R", 101, 0, 0)]);
}

// ---- PAWS

#[test]
fn segments_without_agreed_timestamps_are_dropped() {
    // The peer of these tests has no timestamps, so they are not agreed on.
    let config = StackConfig { timestamps: true, ..plain() };
    let bench = Bench::established(config);
    assert!(!bench.stack.info(bench.id()).unwrap().timestamps);
    assert_eq!(bench.stack.emss(bench.id()), 1000);
}
