//! The names, events and errors of the stack's interface.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use crate::tcp::congestion::CongestionControl;
use crate::tcp::state::State;

/// A connection of one stack. Never ambiguous: a stale id names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    /// Place in the stack's table.
    pub index: u32,
    /// Counts the connections that had this place.
    pub generation: u32,
}

/// A listener of one stack. Never ambiguous: a stale id names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    /// Place in the stack's table.
    pub index: u32,
    /// Counts the listeners that had this place.
    pub generation: u32,
}

/// What has happened on a connection since the last time it was asked.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Events(u8);

impl Events {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A listener's connection is established.
    pub const ACCEPTED: Self = Self(1);
    /// A connection that was opened here is established.
    pub const CONNECTED: Self = Self(2);
    /// There is payload to be received.
    pub const READABLE: Self = Self(4);
    /// There is room to send again.
    pub const WRITABLE: Self = Self(8);
    /// The peer has closed; all data before its FIN are there.
    pub const PEER_CLOSED: Self = Self(16);
    /// The connection is over; see [`Stack::close_reason`](super::Stack::close_reason).
    pub const CLOSED: Self = Self(32);

    const NAMES: [(Self, &'static str); 6] = [
        (Self::ACCEPTED, "ACCEPTED"),
        (Self::CONNECTED, "CONNECTED"),
        (Self::READABLE, "READABLE"),
        (Self::WRITABLE, "WRITABLE"),
        (Self::PEER_CLOSED, "PEER_CLOSED"),
        (Self::CLOSED, "CLOSED"),
    ];

    /// Whether all of `other` are in here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds `other`.
    pub const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl core::ops::BitOr for Events {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES.iter().filter(|(event, _)| self.contains(*event));
        f.debug_set().entries(names.map(|(_, name)| name)).finish()
    }
}

/// Why a connection is over.
// req 9293-3.6-1
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// Both sides closed, and all data arrived.
    Graceful,
    /// The peer reset it.
    Reset,
    /// The peer did not want it.
    Refused,
    /// The peer did not answer.
    TimedOut,
    /// There is no way to the peer.
    Unreachable,
    /// We aborted it.
    Aborted,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Graceful => "closed by both sides",
            Self::Reset => "reset by the peer",
            Self::Refused => "refused by the peer",
            Self::TimedOut => "timed out",
            Self::Unreachable => "peer unreachable",
            Self::Aborted => "aborted",
        })
    }
}

/// Why a listener cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenError {
    /// Another listener has this address and port.
    InUse,
    /// The address is none of ours.
    NotOurs,
    /// A listener needs a port and a backlog of at least one.
    Invalid,
    /// The table of listeners is full.
    Full,
}

/// Why a connection cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The remote address names no single host, or the port is zero.
    InvalidRemote,
    /// The local address is none of ours or of the other IP version.
    InvalidLocal,
    /// There is no route to the remote address.
    NoRoute,
    /// A connection between these addresses and ports exists.
    InUse,
    /// All ephemeral ports are in use to this remote address and port.
    PortsExhausted,
    /// The table of connections is full.
    Full,
}

/// Why a record was not queued; the record comes back.
#[derive(Debug)]
pub enum SendError<F> {
    /// The connection cannot send: not yet established, closed, or unknown.
    NotOpen(F),
    /// There is no room now; [`Events::WRITABLE`] follows.
    Full(F),
    /// The record is empty or larger than the connection's EMSS.
    Size(F),
    /// The frame has too little headroom for the headers.
    Headroom(F),
}

impl<F> SendError<F> {
    /// The record.
    pub fn into_record(self) -> F {
        match self {
            Self::NotOpen(record) | Self::Full(record) | Self::Size(record) | Self::Headroom(record) => {
                record
            }
        }
    }
}

macro_rules! describe {
    ($name:ty { $($variant:path => $text:literal,)* }) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($variant => $text,)* })
            }
        }

        impl core::error::Error for $name {}
    };
}

describe!(ListenError {
    ListenError::InUse => "another listener has this address and port",
    ListenError::NotOurs => "the address is none of this host's",
    ListenError::Invalid => "a listener needs a port and a backlog of at least one",
    ListenError::Full => "there are too many listeners",
});

describe!(ConnectError {
    ConnectError::InvalidRemote => "the remote address names no host, or the port is zero",
    ConnectError::InvalidLocal => "the local address is none of this host's",
    ConnectError::NoRoute => "there is no route to the remote address",
    ConnectError::InUse => "the connection exists already",
    ConnectError::PortsExhausted => "all ephemeral ports are in use to this remote address and port",
    ConnectError::Full => "there are too many connections",
});

/// A connection as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// The state.
    pub state: State,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// The retransmission timeout, back-off included.
    pub rto: Duration,
    /// The congestion window in octets.
    pub cwnd: u32,
    /// The slow start threshold in octets.
    pub ssthresh: u32,
    /// The peer's window in octets.
    pub snd_wnd: u32,
    /// Our window in octets.
    pub rcv_wnd: u32,
    /// The largest record in octets.
    pub emss: u32,
    /// Octets in flight.
    pub in_flight: u32,
    /// Octets queued and never sent.
    pub unsent: u32,
    /// Octets received and not released by the application.
    pub unreleased: u32,
    /// Segments sent again.
    pub retransmits: u64,
    /// ICMP errors noted.
    // req 9293-3.9.1.8-1
    pub soft_errors: u32,
    /// Whether timestamps are in use.
    pub timestamps: bool,
    /// Whether SACK is in use.
    pub sack: bool,
    /// Whether ECN is in use.
    pub ecn: bool,
    /// The algorithm of the congestion window.
    pub congestion: CongestionControl,
}
