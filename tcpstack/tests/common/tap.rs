//! A device that watches the segments that pass: no data beyond the window that the peer offered,
//! and no window of ours taken back.

use std::collections::BTreeMap;

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet, TcpOption, TcpPacket,
};
use tcpstack::device::{Burst, Capabilities, Device, Frame};
use tcpstack::seq::SeqNumber;
use tcpstack::sim::{SimDevice, SimFrame};

/// What is known of a connection, by (local port, remote port).
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// The shifts that each side announced, if both did.
    scale_local: Option<u8>,
    scale_remote: Option<u8>,
    /// The furthest edge that the peer has offered.
    edge: Option<SeqNumber>,
    /// The peer's last acknowledgment of ours.
    acknowledged: Option<SeqNumber>,
    /// The furthest edge that we have offered.
    offered: Option<SeqNumber>,
    /// The furthest octet sent.
    sent_to: Option<SeqNumber>,
}

/// A device with an eye on it.
pub struct Tap {
    pub inner: SimDevice,
    watches: BTreeMap<(u16, u16), Watch>,
    /// Most octets in flight that were ever seen.
    pub flight_max: u32,
    /// Resets that were sent.
    pub resets_sent: usize,
}

struct Seen {
    source: u16,
    destination: u16,
    seq: SeqNumber,
    ack: SeqNumber,
    syn: bool,
    rst: bool,
    has_ack: bool,
    window: u16,
    scale: Option<u8>,
    len: u32,
}

impl Tap {
    pub fn new(inner: SimDevice) -> Self {
        Self { inner, watches: BTreeMap::new(), flight_max: 0, resets_sent: 0 }
    }

    fn sent(&mut self, seen: &Seen) {
        let watch = self.watches.entry((seen.source, seen.destination)).or_default();
        if seen.syn {
            watch.scale_local = seen.scale;
            if !seen.has_ack {
                *watch = Watch { scale_local: seen.scale, ..Watch::default() };
            }
        }
        if seen.rst {
            self.resets_sent += 1;
            return;
        }
        if seen.has_ack {
            let scale = match (watch.scale_local, watch.scale_remote) {
                (Some(local), Some(_)) if !seen.syn => local,
                _ => 0,
            };
            let edge = seen.ack + (u32::from(seen.window) << scale);
            let offered = watch.offered.map_or(edge, |offered| offered.max(edge));
            // What the shift rounds away is not said, but accepted (RFC 7323 section 2.4).
            let taken_back = offered.since(edge) >> scale;
            assert_eq!(taken_back, 0, "the window was taken back from {offered} to {edge}");
            watch.offered = Some(offered);
        }
        if seen.len > 0 {
            let end = seen.seq + seen.len;
            let edge = watch.edge.expect("no data before the peer's window is known");
            assert!(
                end.at_or_before(edge),
                "data up to {end} beyond the offered edge {edge} ({} octets)",
                end.since(edge)
            );
            let sent_to = watch.sent_to.map_or(end, |sent_to| sent_to.max(end));
            watch.sent_to = Some(sent_to);
            if let Some(acknowledged) = watch.acknowledged {
                self.flight_max = self.flight_max.max(sent_to.since(acknowledged));
            }
        }
    }

    fn received(&mut self, frame: &SimFrame) {
        let Some(seen) = see(frame.bytes()) else { return };
        let watch = self.watches.entry((seen.destination, seen.source)).or_default();
        if seen.syn {
            watch.scale_remote = seen.scale;
            if !seen.has_ack {
                *watch = Watch { scale_remote: seen.scale, ..Watch::default() };
            }
        }
        if !seen.has_ack {
            return;
        }
        let scale = match (watch.scale_local, watch.scale_remote) {
            (Some(_), Some(remote)) if !seen.syn => remote,
            _ => 0,
        };
        let edge = seen.ack + (u32::from(seen.window) << scale);
        watch.edge = Some(watch.edge.map_or(edge, |old| old.max(edge)));
        watch.acknowledged = Some(watch.acknowledged.map_or(seen.ack, |old| old.max(seen.ack)));
    }
}

impl Device for Tap {
    type Frame = SimFrame;

    fn receive_burst(&mut self, frames: &mut Burst<SimFrame>) {
        let before = frames.len();
        self.inner.receive_burst(frames);
        for frame in &frames[before..] {
            self.received(frame);
        }
    }

    fn transmit_burst(&mut self, frames: &mut Burst<SimFrame>) {
        let offered: Vec<_> = frames.iter().map(|frame| see(frame.bytes())).collect();
        self.inner.transmit_burst(frames);
        // What the device did not take is offered again.
        let taken = offered.len() - frames.len();
        for seen in offered.into_iter().take(taken).flatten() {
            self.sent(&seen);
        }
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.inner.allocate()
    }

    fn allocate_control(&mut self) -> Option<SimFrame> {
        self.inner.allocate_control()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }
}

fn see(octets: &[u8]) -> Option<Seen> {
    let ethernet = EthernetFrame::new_checked(octets).ok()?;
    let segment = match ethernet.ethertype() {
        EthernetProtocol::Ipv4 => {
            let ip = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
            if ip.next_header() != IpProtocol::Tcp || !ip.verify_checksum() {
                return None;
            }
            ip.payload()
        }
        EthernetProtocol::Ipv6 => {
            let ip = Ipv6Packet::new_checked(ethernet.payload()).ok()?;
            if ip.next_header() != IpProtocol::Tcp {
                return None;
            }
            ip.payload()
        }
        _ => return None,
    };
    let tcp = TcpPacket::new_checked(segment).ok()?;
    let mut scale = None;
    let mut options = tcp.options();
    while !options.is_empty() {
        let (rest, option) = TcpOption::parse(options).ok()?;
        if let TcpOption::WindowScale(shift) = option {
            scale = Some(shift);
        }
        if option == TcpOption::EndOfList {
            break;
        }
        options = rest;
    }
    Some(Seen {
        source: tcp.src_port(),
        destination: tcp.dst_port(),
        seq: SeqNumber::new(tcp.seq_number().0.cast_unsigned()),
        ack: SeqNumber::new(tcp.ack_number().0.cast_unsigned()),
        syn: tcp.syn(),
        rst: tcp.rst(),
        has_ack: tcp.ack(),
        window: tcp.window_len(),
        scale,
        len: u32::try_from(tcp.payload().len()).unwrap(),
    })
}
