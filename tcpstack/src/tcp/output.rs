//! What a connection may send now, and the headers in front of it.

use super::connection::{Connection, Offer};
use super::counters::TcpCounters;
use super::ecn::NOT_ECT;
use super::options::{OptionOctets, Options, emit_timestamps};
use super::receiver::Receiver;
use super::segment::{CHECKSUM, Flags, HEADER_LEN, Header};
use super::sender::Departure;
use super::state::State;
use crate::checksum;
use crate::config::StackConfig;
use crate::device::{ChecksumLayout, Device, Frame};
use crate::header::HeaderTemplate;
use crate::interface::{Interface, Resolution};
use crate::queue::TransmitQueue;
use crate::seq::SeqNumber;
use crate::time::Instant;

/// Segments that one connection sends before others have their turn.
const TURN_MAX: usize = 64;

/// Where segments go, and what is needed on the way.
pub(crate) struct Egress<'a, D: Device> {
    pub(crate) device: &'a mut D,
    pub(crate) interface: &'a mut Interface,
    pub(crate) out: &'a mut TransmitQueue<D::Frame>,
    pub(crate) counters: &'a mut TcpCounters,
    pub(crate) config: &'a StackConfig,
    pub(crate) now: Instant,
    /// Whether the device fills in checksums.
    pub(crate) offload: bool,
}

impl<D: Device> Egress<'_, D> {
    /// Puts a frame into the transmit queue, in which its sender has found room before.
    #[inline]
    fn send(&mut self, frame: D::Frame) {
        if self.out.push(frame).is_err() {
            unreachable!("there was room just now");
        }
        self.counters.segments_sent += 1;
        if self.out.is_burst() {
            self.out.flush(self.device);
        }
    }

    /// What [`wrap`] wants to know of the data.
    #[inline]
    fn data_sum(&self, sum: u16) -> Option<u16> {
        (!self.offload).then_some(sum)
    }
}

/// What became of a connection's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All that may be sent now was sent.
    Done,
    /// There is more, but the transmit queue or the turn is full.
    Again,
    /// The neighbour's Ethernet address is asked for.
    Waiting,
    /// The neighbour does not answer, or there is no route.
    Unreachable,
}

impl<F: Frame> Connection<F> {
    /// Sends what may be sent: resets, SYNs, repetitions, new data, FIN, and an ACK if one is
    /// owed and nothing carried it.
    pub(crate) fn output<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) -> Progress {
        match self.find_path(egress) {
            Progress::Done => {}
            other => return other,
        }
        if self.reset_due {
            return self.send_reset(egress);
        }
        match self.state {
            State::Closed => return Progress::Done,
            State::TimeWait => {
                // The ACK of the peer's FIN; whatever comes later is the table's.
                let owed = self.ack.now && !self.send_ack(egress);
                return if owed { Progress::Again } else { Progress::Done };
            }
            State::SynSent | State::SynReceived => return self.send_syn(egress),
            _ => {}
        }
        if self.search.is_on() && egress.config.path_search {
            self.search_path(egress.interface.link_mtu(), egress.now, egress.counters);
        }
        let progress = self.send_records(egress);
        self.congestion.used(self.sender.una, self.sender.nxt, self.sender.flight());
        if progress == Progress::Done && self.sender.fin_is_next() && !self.send_fin(egress) {
            return Progress::Again;
        }
        if (self.ack.is_due(egress.now) || self.receiver.update_due()) && !self.send_ack(egress) {
            return Progress::Again;
        }
        self.arm(egress.now);
        progress
    }

    /// Sends an ACK without data; false when there is no room or frame for it now.
    pub(crate) fn send_ack<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) -> bool {
        let seq = self.sender.nxt;
        let sent = self.send_control(seq, Flags::ACK, egress);
        egress.counters.acks_sent += u64::from(sent);
        sent
    }

    /// Sends a segment that makes the peer answer with an ACK: one that it has acknowledged before.
    // req 9293-3.8.4-6
    pub(crate) fn send_probe<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) {
        let seq = self.sender.una - 1;
        self.send_control(seq, Flags::ACK, egress);
    }

    /// Sends of the first unsent record as much as a window takes that is smaller than it.
    // req 9293-3.8.6.2.1-1
    pub(crate) fn squeeze<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) {
        let Some(index) = self.sender.first_unsent() else { return };
        let room = self.sender.wnd.saturating_sub(self.sender.flight());
        self.search.cancel();
        if room > 0 && room < self.sender.record(index).len && !self.sender.split(index, room, egress.device)
        {
            egress.counters.no_frame += 1;
        }
    }

    /// Whether the way to the peer is known; asks for it otherwise.
    #[inline]
    fn find_path<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) -> Progress {
        if let Some(template) = &self.template
            && egress.interface.template_is_current(template)
        {
            if core::mem::take(&mut self.progressed) {
                egress.interface.confirm(template.neighbor());
            }
            return Progress::Done;
        }
        let Some(route) = egress.interface.route(self.remote.ip()) else {
            return Progress::Unreachable;
        };
        match egress.interface.resolve(route.next_hop, egress.device, egress.out, egress.now) {
            Resolution::Ready(neighbor) => {
                // req 9293-3.9.1.1-5: the local address stays, whatever the route says now.
                let header = egress.interface.header(neighbor, self.local.ip(), self.remote.ip());
                self.template = Some(header);
                Progress::Done
            }
            Resolution::Pending => Progress::Waiting,
            Resolution::Unreachable => Progress::Unreachable,
        }
    }

    fn send_records<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) -> Progress {
        if egress.config.restart_after_idle
            && !self.sender.has_outstanding()
            && self.sender.first_unsent().is_some()
            && egress.now - self.sent_at > self.rto.value()
        {
            let window =
                super::congestion::Congestion::initial_window(self.emss, egress.config.initial_window);
            self.congestion.restart(window);
        }
        let Some(template) = self.template else { return Progress::Waiting };
        // Nothing is received in between: all that differs are numbers and PSH.
        let mut common = None;
        let pacing = egress.config.pacing;
        if pacing {
            self.pace(egress.now);
        }
        for _ in 0..TURN_MAX {
            let Some(index) = self.sender.next(self.congestion.window()) else {
                return Progress::Done;
            };
            if pacing && self.is_held_back(index, egress.now) {
                return Progress::Done;
            }
            if egress.out.room() == 0 {
                return Progress::Again;
            }
            // The path's MTU shrank after the record was made, or the record is a probe of it.
            if self.sender.record(index).len > self.emss
                && !self.goes_whole(index, egress.counters)
                && !self.sender.split(index, self.emss, egress.device)
            {
                egress.counters.no_frame += 1;
                return Progress::Done;
            }
            let Some(departure) = self.sender.take(index, egress.device) else {
                // The retransmission timer tries again.
                egress.counters.no_frame += 1;
                return Progress::Done;
            };
            let Departure { mut frame, seq, len, push, sum, again } = departure;
            let (mut header, stamp) = *common.get_or_insert_with(|| {
                let stamp = self.timestamps.map(|state| emit_timestamps(state.stamp(egress.now)));
                (self.header(seq, Flags::ACK), stamp)
            });
            header.seq = seq;
            if push {
                header.flags = header.flags | Flags::PSH;
            }
            let ecn;
            (header.flags, ecn) = self.mark(header.flags, again);
            let sum = egress.data_sum(sum);
            // The options' length is a constant in each of these.
            let header_len = match &stamp {
                None => wrap(&mut frame, &header, &[], &template, ecn, sum),
                Some(options) => wrap(&mut frame, &header, options, &template, ecn, sum),
            };
            let held = frame.hold(header_len);
            self.sender.keep(index, held, egress.now);
            self.congestion.sent(len);
            if pacing {
                self.pacer.spend(len);
            }
            egress.send(frame);
            egress.counters.octets_sent += u64::from(len);
            if again {
                self.retransmits += 1;
                let stamp = self.timestamps.map(|state| state.stamp(egress.now).value);
                self.congestion.repeated(len, stamp);
                egress.counters.retransmissions += 1;
            }
            if seq == self.sender.una && !again {
                self.progress_at = egress.now;
            }
            self.sent_at = egress.now;
            self.ack.sent();
        }
        Progress::Again
    }

    fn send_fin<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) -> bool {
        let seq = self.sender.fin_seq();
        if !self.sender.has_outstanding() {
            self.progress_at = egress.now;
        }
        if !self.send_control(seq, Flags::FIN | Flags::ACK, egress) {
            return false;
        }
        if self.sender.nxt.after(seq) {
            self.retransmits += 1;
            egress.counters.retransmissions += 1;
        }
        self.sender.fin_sent();
        true
    }

    fn send_syn<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) -> Progress {
        if !self.syn_due {
            if self.ack.now && !self.send_ack(egress) {
                return Progress::Again;
            }
            return Progress::Done;
        }
        let flags = if self.state == State::SynSent { Flags::SYN } else { Flags::SYN | Flags::ACK };
        let seq = self.iss;
        if !self.send_control(seq, flags, egress) {
            return Progress::Again;
        }
        if self.retries > 0 {
            self.retransmits += 1;
            egress.counters.retransmissions += 1;
        } else {
            // For the round-trip time of the handshake.
            self.sent_at = egress.now;
        }
        self.syn_due = false;
        self.arm(egress.now);
        Progress::Done
    }

    fn send_reset<D: Device<Frame = F>>(&mut self, egress: &mut Egress<'_, D>) -> Progress {
        let seq = self.sender.nxt;
        if !self.send_control(seq, Flags::RST | Flags::ACK, egress) {
            return Progress::Again;
        }
        egress.counters.resets_sent += 1;
        self.reset_due = false;
        Progress::Done
    }

    /// Sends a segment without data.
    fn send_control<D: Device<Frame = F>>(
        &mut self,
        seq: SeqNumber,
        flags: Flags,
        egress: &mut Egress<'_, D>,
    ) -> bool {
        let Some(template) = self.template else { return false };
        if egress.out.room() == 0 {
            return false;
        }
        let Some(mut frame) = egress.device.allocate_control() else {
            egress.counters.no_frame += 1;
            return false;
        };
        let options = if flags.contains(Flags::SYN) {
            self.syn_options(egress.now)
        } else {
            self.ack_options(flags, egress.now)
        };
        let header =
            if flags.contains(Flags::SYN) { self.syn_header(flags) } else { self.header(seq, flags) };
        wrap(&mut frame, &header, &options, &template, NOT_ECT, egress.data_sum(0));
        egress.send(frame);
        if flags.contains(Flags::ACK) {
            self.ack.sent();
        }
        true
    }

    /// The fields of a segment of a synchronized connection; advertises the window.
    #[inline]
    fn header(&mut self, seq: SeqNumber, flags: Flags) -> Header {
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.last_ack = self.receiver.nxt;
        }
        Header {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            seq,
            ack: self.receiver.nxt,
            flags: flags | self.ecn.echo,
            window: self.receiver.advertise(),
        }
    }

    fn syn_header(&self, flags: Flags) -> Header {
        let acknowledges = flags.contains(Flags::ACK);
        Header {
            source_port: self.local.port(),
            destination_port: self.remote.port(),
            seq: self.iss,
            ack: if acknowledges { self.receiver.nxt } else { SeqNumber::default() },
            flags: self.ecn.syn_flags(flags, self.retries > 0),
            window: self.receiver.syn_window(),
        }
    }

    // req 9293-3.2-2
    // req 9293-3.7.1-1
    // req 9293-3.7.1-2
    fn syn_options(&self, now: Instant) -> OptionOctets {
        let Offer { window_scale, timestamps, sack } = self.offer;
        Options {
            mss: Some(u16::try_from(self.mss_local).unwrap_or(u16::MAX)),
            window_scale: window_scale.then_some(Receiver::<F>::scale_for(self.receiver.limit())),
            sack_permitted: sack,
            timestamps: self.timestamps.filter(|_| timestamps).map(|state| state.stamp(now)),
            ..Options::default()
        }
        .emit()
    }

    fn ack_options(&mut self, flags: Flags, now: Instant) -> OptionOctets {
        let timestamps =
            self.timestamps.filter(|_| !flags.contains(Flags::RST)).map(|state| state.stamp(now));
        let mut options = Options { timestamps, ..Options::default() };
        if self.sack && self.receiver.has_reports() {
            options.sack = self.receiver.take_reports();
        }
        options.emit()
    }
}

/// Puts TCP, IP and link header in front of the frame's data; returns their length.
///
/// `data_sum` is the checksum's sum over the data; without it the device makes the checksum.
// req 9293-3.1-3
#[inline(always)]
pub(crate) fn wrap<F: Frame>(
    frame: &mut F,
    header: &Header,
    options: &[u8],
    template: &HeaderTemplate,
    ecn: u8,
    data_sum: Option<u16>,
) -> usize {
    let transport_len = HEADER_LEN + options.len();
    frame.push_front(transport_len);
    let octets = frame.bytes_mut();
    let of_header = header.emit(octets, options);
    let pseudo = template.pseudo_header_sum(octets.len());
    let field = match data_sum {
        // The device adds the rest to it.
        None => !checksum::finish(pseudo),
        Some(sum) => {
            let of_headers = checksum::combine(pseudo, of_header);
            checksum::finish(checksum::combine(of_headers, u32::from(sum)))
        }
    };
    octets[CHECKSUM].copy_from_slice(&field.to_be_bytes());
    template.write(frame, ecn, 0);
    let (link_len, network_len) = (template.link_len(), template.network_len());
    if data_sum.is_none() {
        let octets = |len| u8::try_from(len).expect("a header is shorter than 256 octets");
        frame.request_checksum(ChecksumLayout {
            link_len: octets(link_len),
            network_len: octets(network_len),
            transport_len: octets(transport_len),
            ipv6: template.is_ipv6(),
        });
    }
    link_len + network_len + transport_len
}
