//! One connection: the state and the parts that work on it.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use super::compact::{Endpoint, KeepaliveTimes, Millis};
use super::congestion::Congestion;
use super::ecn::EcnState;
use super::limit::RateLimit;
use super::options::{Options, TIMESTAMPS_LEN, Timestamps};
use super::pacing::Pacer;
use super::plpmtud::PathSearch;
use super::receiver::{EarlyBudget, Receiver, WindowBudget};
use super::rto::Rto;
use super::segment::HEADER_LEN;
use super::sender::{Fin, Sender};
use super::state::{Event, State};
use super::timers::Timer;
use crate::config::StackConfig;
use crate::device::Frame;
use crate::flow::FlowKey;
use crate::header::{HeaderTemplate, IPV4_LEN, IPV6_LEN};
use crate::interface::Route;
use crate::seq::SeqNumber;
use crate::stack::{CloseReason, ConnectionInfo, Events, ListenerId};
use crate::time::{Coarse, Instant};

/// A deadline that is never reached.
pub(crate) const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// The smallest EMSS: whatever the peer or an ICMP error says, segments do not get smaller.
pub(crate) const EMSS_MIN: u32 = 64;

/// Nanoseconds of a tick of the timestamp clock, as a shift: 1.05 ms.
const TIMESTAMP_SHIFT: u32 = 20;

/// Longer round trips than this (70 s) are nonsense: the peer did not echo our clock.
const RTT_TICKS_MAX: u32 = 1 << 16;

/// The state of one connection.
///
/// The fields lie in the order in which they are needed: what each segment looks at, whichever way
/// it goes, is in the first 192 octets, three cache lines, and in the sender's ([`Receiver`] and
/// [`AckState`] are among them); data that go out need the headers, too, and acknowledgments of
/// them the timers and the window. What follows is for the handshake, for errors and for reports.
/// What most connections never need (reductions to be taken back, repetitions, early frames) has a
/// box of its own and costs a pointer.
///
/// An idle connection has no more than this and its places in the stack's tables, but for the
/// queues of its two halves: they stay as long as they were until [`Connection::trim`].
#[repr(C)]
pub(crate) struct Connection<F: Frame> {
    pub(crate) state: State,
    pub(crate) events: Events,
    /// Whether it is in the stack's queue of connections with something to send.
    pub(crate) in_work: bool,
    /// Whether it is in the stack's queue of events.
    pub(crate) in_events: bool,
    /// Whether it waits for its neighbour's Ethernet address.
    pub(crate) waiting: bool,
    /// The neighbour is to be told that there was progress.
    pub(crate) progressed: bool,
    /// A SYN or SYN,ACK is to be sent.
    pub(crate) syn_due: bool,
    /// A reset is to be sent, then nothing any more.
    pub(crate) reset_due: bool,
    /// The application has forgotten it; the slot goes when nothing is left to be sent.
    pub(crate) released: bool,
    /// Whether SACK was agreed on.
    pub(crate) sack: bool,
    /// Timeouts in a row without an answer.
    pub(crate) retries: u8,
    pub(crate) ecn: EcnState,
    pub(crate) reason: CloseReason,
    /// Whether the options of our SYN offer the peer what it offered (or anything, if we open).
    pub(crate) offer: Offer,
    /// The largest record: EMSS less the options of each segment.
    pub(crate) emss: u32,
    pub(crate) ack: AckState,
    /// When the peer was heard last.
    pub(crate) heard_at: Instant,
    pub(crate) timestamps: Option<TimestampState>,
    pub(crate) receiver: Receiver<F>,
    pub(crate) timer: Timer,
    /// When the stack's timer wheel will look at this connection.
    pub(crate) wheel_at: Instant,
    pub(crate) sender: Sender<F>,

    pub(crate) template: Option<HeaderTemplate>,
    pub(crate) local: Endpoint,
    pub(crate) remote: Endpoint,

    /// When the retransmission timer expires, if another one does not run in its place.
    pub(crate) rto_at: Instant,
    /// When SND.UNA moved last, or data became outstanding.
    pub(crate) progress_at: Instant,
    /// When data were sent last.
    pub(crate) sent_at: Instant,
    pub(crate) rto: Rto,
    pub(crate) pacer: Pacer,
    pub(crate) congestion: Congestion,

    /// When the current recovery began.
    pub(crate) recovery_at: Instant,
    pub(crate) retransmits: u64,
    /// Largest IP packet on the path, as far as known.
    pub(crate) mtu: usize,
    pub(crate) challenge: RateLimit,
    /// The listener that it came from; `None` for an active open (req 9293-3.5-2).
    pub(crate) listener: Option<ListenerId>,
    pub(crate) keepalive: Option<KeepaliveTimes>,
    /// USER TIMEOUT: R2 of what is unacknowledged.
    pub(crate) user_timeout: Millis,
    pub(crate) search: PathSearch,
    /// The MSS that the peer announced.
    pub(crate) mss_peer: u32,
    /// The MSS that we announce.
    pub(crate) mss_local: u32,
    /// ISS.
    pub(crate) iss: SeqNumber,
    /// IRS.
    pub(crate) irs: SeqNumber,
    /// ICMP errors that did not end the connection.
    pub(crate) soft_errors: u32,
}

/// Most octets of a connection, whatever its frames are: what is left to a KiB is for its places
/// in the tables of flows, timers and connections, which may have grown just now.
const SIZE_MAX: usize = 864;

/// What our SYN says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) window_scale: bool,
    pub(crate) timestamps: bool,
    pub(crate) sack: bool,
}

/// The clock of the Timestamps option (RFC 7323).
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimestampState {
    /// TS.Recent: to be echoed.
    pub(crate) recent: u32,
    /// When it was taken; after 24 idle days it means nothing.
    pub(crate) recent_at: Coarse,
    /// Added to our clock.
    pub(crate) offset: u32,
    /// Last.ACK.sent.
    pub(crate) last_ack: SeqNumber,
    /// TSecr of the last segment.
    pub(crate) echoed: u32,
}

impl TimestampState {
    /// The round-trip time that the last echo tells, rounded up to the clock's ticks.
    ///
    /// It is coarse, but holds for what was sent twice, too (RFC 7323 section 4.1).
    pub(crate) fn rtt(&self, now: Instant) -> Option<Duration> {
        let ticks = self.stamp(now).value.wrapping_sub(self.echoed);
        (ticks < RTT_TICKS_MAX).then(|| Duration::from_nanos(u64::from(ticks + 1) << TIMESTAMP_SHIFT))
    }

    /// What the round-trip time is at least, for all that the last echo tells.
    #[cold]
    pub(crate) fn least_rtt_ns(&self, now: Instant) -> u64 {
        // Two ticks of the clock may be none of the time.
        self.rtt(now).map_or(0, |rtt| {
            let rtt_ns = u64::try_from(rtt.as_nanos()).expect("a minute at most");
            rtt_ns.saturating_sub(2 << TIMESTAMP_SHIFT)
        })
    }

    /// The time before which that was sent which the last echo answers.
    #[cold]
    pub(crate) fn echoed_before(&self, now: Instant) -> Instant {
        let age = u64::from(self.stamp(now).value.wrapping_sub(self.echoed));
        let ticks = (now.as_nanos() >> TIMESTAMP_SHIFT).saturating_sub(age) + 1;
        Instant::from_nanos(ticks << TIMESTAMP_SHIFT)
    }

    /// The option of a segment that is sent now.
    #[inline]
    pub(crate) fn stamp(&self, now: Instant) -> Timestamps {
        let ticks =
            u32::try_from((now.as_nanos() >> TIMESTAMP_SHIFT) & 0xffff_ffff).expect("32 bits are left");
        Timestamps { value: ticks.wrapping_add(self.offset), echo: self.recent }
    }
}

/// Whether and when an ACK is owed (RFC 9293 section 3.8.6.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckState {
    /// With the next turn, whatever else there is.
    pub(crate) now: bool,
    /// At the latest then; [`NEVER`] when nothing is owed.
    pub(crate) at: Instant,
    /// Octets received since the last one.
    pub(crate) octets: u32,
    /// The largest segment seen: what counts as a full one.
    pub(crate) full: u32,
}

impl AckState {
    /// Notes data received in order.
    #[inline]
    // req 9293-3.8.6.3-2, 9293-3.10.7.4-1
    pub(crate) fn note(&mut self, octets: u32, now: Instant, delay: Duration) {
        self.full = self.full.max(octets);
        self.octets += octets;
        if self.octets >= 2 * self.full {
            self.now = true;
        } else if self.at == NEVER {
            self.at = now + delay;
        }
    }

    /// An ACK is on its way.
    #[inline]
    pub(crate) fn sent(&mut self) {
        self.now = false;
        self.at = NEVER;
        self.octets = 0;
    }

    /// Whether one is to be sent in this turn.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.now || self.at <= now
    }
}

/// What a new connection is made from.
pub(crate) struct Opening {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) route: Route,
    pub(crate) iss: SeqNumber,
    pub(crate) timestamp_offset: u32,
    pub(crate) listener: Option<ListenerId>,
}

impl<F: Frame> Connection<F> {
    /// A connection in SYN-SENT, its SYN due.
    pub(crate) fn open(opening: &Opening, config: &StackConfig, now: Instant) -> Self {
        const { assert!(size_of::<Self>() <= SIZE_MAX) };
        let Opening { local, remote, route, iss, timestamp_offset, listener } = *opening;
        let mss_local = mss_of(route.mtu, local.ip());
        let mut sender = Sender::new(iss);
        sender.nxt = iss + 1;
        Self {
            state: State::SynSent,
            events: Events::NONE,
            in_work: false,
            in_events: false,
            waiting: false,
            progressed: false,
            syn_due: true,
            reset_due: false,
            released: false,
            ack: AckState { now: false, at: NEVER, octets: 0, full: 1 },
            receiver: Receiver::new(config.first_window(), config.receive_window, config.receive_frames_max),
            sender,
            congestion: Congestion::new(
                config.congestion,
                mss_local,
                mss_local,
                config.send_buffer,
                false,
                iss,
            ),
            ecn: EcnState::new(config),
            pacer: Pacer::new(),
            rto: Rto::new(config.rto_initial, config.rto_min, config.rto_max),
            timer: Timer::Off,
            rto_at: NEVER,
            wheel_at: NEVER,
            retries: 0,
            progress_at: now,
            heard_at: now,
            sent_at: now,
            recovery_at: now,
            emss: mss_local,
            search: PathSearch::new(),
            mss_peer: mss_default(local.ip()),
            mss_local,
            timestamps: config.timestamps.then_some(TimestampState {
                recent: 0,
                recent_at: Coarse::of(now),
                offset: timestamp_offset,
                last_ack: SeqNumber::default(),
                echoed: 0,
            }),
            sack: config.sack,
            offer: Offer { window_scale: true, timestamps: config.timestamps, sack: config.sack },
            iss,
            irs: SeqNumber::default(),
            template: None,
            mtu: route.mtu,
            local: local.into(),
            remote: remote.into(),
            listener,
            keepalive: config.keepalive.map(KeepaliveTimes::from),
            user_timeout: Millis::of(config.user_timeout),
            reason: CloseReason::Graceful,
            challenge: RateLimit::default(),
            retransmits: 0,
            soft_errors: 0,
        }
    }

    /// Takes the peer's SYN: its number, window and options.
    pub(crate) fn take_syn(&mut self, seq: SeqNumber, options: &Options, now: Instant, config: &StackConfig) {
        self.irs = seq;
        // The option counts only when both say it (RFC 7323 section 2.2).
        let scale = match options.window_scale.filter(|_| self.offer.window_scale) {
            Some(theirs) => {
                self.sender.scale = theirs;
                Receiver::<F>::scale_for(config.receive_window)
            }
            None => 0,
        };
        self.receiver.synchronize(seq, self.mss_local, scale);
        match (&mut self.timestamps, options.timestamps) {
            (Some(ours), Some(theirs)) => {
                ours.recent = theirs.value;
                ours.recent_at = Coarse::of(now);
                ours.last_ack = self.receiver.nxt;
            }
            _ => self.timestamps = None,
        }
        self.sack &= options.sack_permitted;
        self.offer = Offer {
            window_scale: options.window_scale.is_some() && self.offer.window_scale,
            timestamps: self.timestamps.is_some(),
            sack: self.sack,
        };
        // req 9293-3.7.1-3
        self.mss_peer = options.mss.map_or(mss_default(self.local.ip()), u32::from);
        self.emss = self.emss_for(self.mtu);
    }

    /// Enters ESTABLISHED: both sides have heard each other's SYN.
    pub(crate) fn establish(&mut self, config: &StackConfig, now: Instant) {
        self.step(Event::Synchronized);
        // A lost SYN makes cautious (RFC 5681 section 3.1, RFC 6298 section 5.7).
        let lost = self.retries > 0;
        let segments = if lost { 1 } else { config.initial_window };
        if lost {
            self.rto.syn_was_lost();
        }
        let window = Congestion::initial_window(self.emss, segments);
        let (which, max) = (config.congestion, config.send_buffer);
        self.congestion = Congestion::new(which, self.emss, window, max, self.sack, self.iss);
        self.congestion.paced = config.pacing;
        let rack = self.sack && config.rack;
        self.congestion.rack = rack;
        self.sender.rack.start(rack, self.rto.srtt_ns(), config.delayed_ack);
        self.retries = 0;
        self.syn_due = false;
        self.timer = Timer::Off;
        (self.progress_at, self.sent_at) = (now, now);
        if self.sender.fin == Fin::Pending {
            self.step(Event::Close);
        }
    }

    /// Moves to the next state.
    pub(crate) fn step(&mut self, event: Event) {
        let next = self.state.next(event);
        self.state = next.unwrap_or_else(|| panic!("{event:?} cannot happen in {}", self.state));
    }

    /// CLOSE (RFC 9293 section 3.10.4), for a state in which the application has not closed.
    pub(crate) fn close(&mut self) {
        // In SYN-RECEIVED it waits until the connection is established.
        if self.state != State::SynReceived {
            self.step(Event::Close);
        }
        self.sender.fin = Fin::Pending;
    }

    /// Ends the connection at once: drops what is queued either way but what is ready to be read.
    pub(crate) fn end(&mut self, reason: CloseReason, early: &mut EarlyBudget, windows: &mut WindowBudget) {
        if self.state != State::Closed {
            self.step(Event::Delete);
        }
        self.reason = reason;
        self.discard(early, windows);
    }

    /// Drops what will not be needed again when the connection is over.
    pub(crate) fn discard(&mut self, early: &mut EarlyBudget, windows: &mut WindowBudget) {
        self.sender.clear();
        self.receiver.discard_early(early, windows);
        self.timer = Timer::Off;
        self.ack.sent();
        self.syn_due = false;
    }

    /// Octets that may be queued now; zero or at least one full record.
    // req 9293-3.8.6-2: a window that shrank leaves no room, not a negative one.
    #[inline]
    pub(crate) fn send_room(&self, config: &StackConfig) -> u32 {
        if !self.state.may_send() || self.sender.records_len() >= config.send_records_max {
            return 0;
        }
        let window = self.congestion.window().min(self.sender.wnd).saturating_add(config.send_ahead);
        let room = window.min(config.send_buffer).saturating_sub(self.sender.queued());
        if room < self.emss { 0 } else { room }
    }

    /// The largest record to be made now: a full segment, but at most half of the peer's largest
    /// window, so that it fits one that is small (RFC 9293 section 3.8.6.2.1).
    pub(crate) fn record_max(&self) -> u32 {
        self.emss.min((self.sender.wnd_max / 2).max(EMSS_MIN))
    }

    /// When this connection must be looked at again.
    #[inline]
    pub(crate) fn deadline(&self) -> Instant {
        self.timer.expires().min(self.ack.at).min(self.pacer.wake_at)
    }

    /// Gives back the memory of queues that are empty: nothing has come or gone for long.
    #[cold]
    pub(crate) fn trim(&mut self) {
        self.sender.trim();
        self.receiver.trim();
    }

    /// Octets that its queues take, frames not included.
    pub(crate) fn queue_octets(&self) -> usize {
        self.sender.octets() + self.receiver.octets() + self.congestion.octets()
    }

    /// The key of the flow table.
    pub(crate) fn key(&self) -> FlowKey {
        FlowKey::new(self.local.ip(), self.local.port(), self.remote.ip(), self.remote.port())
    }

    /// What a `show` command wants to know.
    pub(crate) fn info(&self) -> ConnectionInfo {
        ConnectionInfo {
            local: self.local.into(),
            remote: self.remote.into(),
            state: self.state,
            srtt: self.rto.srtt(),
            rto: self.rto.value(),
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            snd_wnd: self.sender.wnd,
            rcv_wnd: self.receiver.window(),
            emss: self.emss,
            in_flight: self.sender.flight(),
            unsent: self.sender.unsent(),
            unreleased: self.receiver.unreleased(),
            retransmits: self.retransmits,
            soft_errors: self.soft_errors,
            timestamps: self.timestamps.is_some(),
            sack: self.sack,
            ecn: self.ecn.capable(),
            congestion: self.congestion.which(),
        }
    }

    /// Octets of the options of each segment.
    pub(super) fn options_len(&self) -> u32 {
        let options = if self.timestamps.is_some() { TIMESTAMPS_LEN } else { 0 };
        u32::try_from(options).expect("a header's options")
    }
}

/// The MSS that an MTU leaves: less the fixed headers only (RFC 6691).
// req 9293-3.7.1-5
pub(crate) fn mss_of(mtu: usize, addr: IpAddr) -> u32 {
    let network = if addr.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
    let mss = mtu.saturating_sub(network + HEADER_LEN).min(usize::from(u16::MAX));
    u32::try_from(mss).expect("a 16-bit value").max(EMSS_MIN)
}

/// The MSS of a peer that does not say one.
pub(crate) fn mss_default(addr: IpAddr) -> u32 {
    if addr.is_ipv4() { 536 } else { 1220 }
}
