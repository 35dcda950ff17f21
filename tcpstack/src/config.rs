//! The stack's settings: timers, windows, and the limit of each table and queue.

use core::ops::RangeInclusive;
use core::time::Duration;

use crate::interface::InterfaceConfig;
use crate::tcp::congestion::CongestionControl;
use crate::tcp::ecn::Ecn;

/// Settings of a [`Stack`](crate::stack::Stack), fixed when it is made.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Settings of the layers below TCP.
    pub interface: InterfaceConfig,

    /// Retransmission timeout before there was a round-trip sample.
    pub rto_initial: Duration,
    /// Least retransmission timeout; far below RFC 6298's second, for data-centre paths.
    pub rto_min: Duration,
    /// Greatest retransmission timeout, and greatest interval between window probes.
    pub rto_max: Duration,
    /// R2: how long data may stay unacknowledged before the connection is given up, unless the
    /// connection has [a time of its own](crate::stack::Stack::set_user_timeout).
    pub user_timeout: Duration,
    /// How often a SYN is sent again.
    pub syn_retries: u8,
    /// How often a SYN,ACK is sent again.
    pub syn_ack_retries: u8,
    /// Longest time that an ACK is held back; must be well below a peer's least timeout.
    pub delayed_ack: Duration,
    /// Maximum Segment Lifetime: TIME-WAIT lasts two of them.
    pub msl: Duration,
    /// How long FIN-WAIT-2 lasts at most when the application has let go of the connection.
    pub fin_wait_2: Duration,
    /// Keep-alive of new connections; off by default.
    pub keepalive: Option<Keepalive>,
    /// Challenge ACKs that one connection sends a second (RFC 5961 section 7).
    pub challenge_acks: u32,
    /// Resets that are sent a second in answer to segments of no connection.
    pub resets: u32,

    /// Most octets of a connection's receive window, at most 1 GiB: it grows up to here as the
    /// application takes what comes, and chooses the window scale.
    // req 5041-appendix-A-1
    pub receive_window: u32,
    /// Octets of the window that a connection begins with, if that is less.
    pub receive_window_initial: u32,
    /// Octets by which the windows of all connections may have grown: what peers may make us keep
    /// when applications stop taking it.
    pub receive_window_total: u64,
    /// Octets that a connection may have queued and unacknowledged; at most 1 GiB.
    pub send_buffer: u32,
    /// Octets that may be queued beyond what the windows let go at once, so that the next
    /// acknowledgment finds segments ready.
    pub send_ahead: u32,
    /// The algorithm that governs the congestion window.
    pub congestion: CongestionControl,
    /// When congestion marks are used instead of losses (RFC 3168).
    pub ecn: Ecn,
    /// Whether a window is sent over its round trip and not in bursts; for paths whose queues are
    /// short and whose round trips are not.
    pub pacing: bool,
    /// Initial congestion window in segments (RFC 6928).
    pub initial_window: u32,
    /// Whether an idle connection starts again from the initial window (RFC 5681 section 4.1).
    pub restart_after_idle: bool,
    /// Whether timestamps are offered and accepted (RFC 7323).
    pub timestamps: bool,
    /// Whether selective acknowledgments are offered and accepted (RFC 2018).
    pub sack: bool,

    /// Whether losses are told by time and tails are probed for, on connections with SACK (RFC 8985).
    pub rack: bool,
    /// Whether segments become shorter when a path swallows long ones, and longer again when it
    /// takes them (RFC 4821).
    pub path_search: bool,

    /// What happens to SYNs that find no room.
    pub syn_cookies: SynCookies,
    /// How many connections one source may open to our listeners.
    pub source_limit: Option<SourceLimit>,

    /// Most connections, half-open ones and TIME-WAIT not included.
    pub connections_max: usize,
    /// Most listeners.
    pub listeners_max: usize,
    /// Most connections in SYN-RECEIVED, of all listeners.
    pub half_open_max: usize,
    /// Most connections that the application has let go of and that are not over.
    pub orphans_max: usize,
    /// Most connections in TIME-WAIT; the oldest gives way to the next.
    pub time_wait_max: usize,
    /// Most records that a connection may have queued and unacknowledged.
    pub send_records_max: usize,
    /// Most frames in order that the application of one connection has not fetched.
    pub receive_frames_max: usize,
    /// Most frames beyond a gap that a connection keeps.
    pub early_frames_max: usize,
    /// Most frames beyond gaps that all connections keep.
    pub early_frames_total: usize,
    /// Most frames that wait for the device.
    pub transmit_queue: usize,
    /// Ports for connections opened without one.
    pub ephemeral_ports: RangeInclusive<u16>,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            interface: InterfaceConfig::default(),
            rto_initial: Duration::from_secs(1),
            rto_min: Duration::from_millis(5),
            rto_max: Duration::from_secs(60),
            // req 9293-3.8.3-5
            user_timeout: Duration::from_secs(100),
            // req 9293-3.8.3-7: 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 s.
            syn_retries: 7,
            syn_ack_retries: 5,
            // req 9293-3.8.6.3-1
            delayed_ack: Duration::from_millis(1),
            msl: Duration::from_secs(30),
            fin_wait_2: Duration::from_secs(60),
            // req 9293-3.8.4-2
            keepalive: None,
            challenge_acks: 100,
            resets: 1000,
            // 100 us at 100 Gb/s are 1.25 MB; twice that, as a round trip goes by before the window
            // follows what is taken.
            receive_window: 4 << 20,
            // Ahead of the congestion window, which begins with 15 KB and doubles no faster.
            receive_window_initial: 128 << 10,
            // Connections of one port share its path: a few of them fill it.
            receive_window_total: 64 << 20,
            send_buffer: 4 << 20,
            send_ahead: 64 << 10,
            // req 9293-3.8.2-2
            congestion: CongestionControl::Cubic,
            ecn: Ecn::Accept,
            pacing: false,
            initial_window: 10,
            restart_after_idle: true,
            timestamps: true,
            sack: true,
            rack: true,
            path_search: true,
            syn_cookies: SynCookies::UnderPressure,
            source_limit: None,
            connections_max: 131_072,
            listeners_max: 1024,
            half_open_max: 4096,
            orphans_max: 8192,
            time_wait_max: 65_536,
            send_records_max: 4096,
            // A window of full segments fits twice.
            receive_frames_max: 8192,
            early_frames_max: 4096,
            early_frames_total: 8192,
            transmit_queue: 2048,
            ephemeral_ports: 32_768..=60_999,
        }
    }
}

impl StackConfig {
    /// The receive window that a connection begins with.
    pub(crate) fn first_window(&self) -> u32 {
        self.receive_window_initial.min(self.receive_window)
    }
}

/// When SYNs are answered with cookies (RFC 4987), and nothing is kept of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynCookies {
    /// Never: SYNs that find no room are dropped.
    Off,
    /// When the table of half-open connections or a listener's backlog is full.
    UnderPressure,
    /// Always: for tests.
    Always,
}

/// A limit on new connections from one source: an IPv4 address or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceLimit {
    /// Connections a second, at least one.
    pub per_second: u32,
    /// Connections at once, at least one.
    pub burst: u32,
    /// Sources that are told apart, 16 octets each; beyond them the least busy are forgotten.
    pub sources: usize,
}

/// Probing of idle connections (RFC 9293 section 3.8.4).
// req 9293-3.8.4-1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// How long nothing must have been heard before the first probe.
    pub idle: Duration,
    /// From a probe to the next one.
    pub interval: Duration,
    /// Probes without an answer that end the connection.
    pub probes: u8,
}

impl Default for Keepalive {
    fn default() -> Self {
        // req 9293-3.8.4-4
        // req 9293-3.8.4-5
        Self { idle: Duration::from_secs(7200), interval: Duration::from_secs(75), probes: 9 }
    }
}
