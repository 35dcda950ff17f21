//! The states of a connection and their transitions (RFC 9293 section 3.3.2), all in one table.
//!
//! LISTEN is not among them: it is a listener's only state, and a SYN makes a connection of
//! its own in SYN-RECEIVED.

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// No connection at all.
    Closed,
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and sent, and ours not yet acknowledged.
    SynReceived,
    /// Data flow both ways.
    Established,
    /// We closed; our FIN is not yet acknowledged.
    FinWait1,
    /// We closed, the peer has acknowledged it and may go on sending.
    FinWait2,
    /// The peer closed; we may go on sending.
    CloseWait,
    /// Both closed at the same time; our FIN is not yet acknowledged.
    Closing,
    /// The peer closed, then we; our FIN is not yet acknowledged.
    LastAck,
    /// All is said; old segments may still be under way.
    TimeWait,
}

/// What moves a connection from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer's SYN crossed ours.
    SynCrossed,
    /// Our SYN was acknowledged, and the peer's has come.
    Synchronized,
    /// The application closed.
    Close,
    /// The peer's FIN and all data before it have come.
    FinReceived,
    /// Our FIN was acknowledged.
    FinAcknowledged,
    /// A reset, either way; a timeout; the end of TIME-WAIT.
    Delete,
}

impl State {
    /// The state that `event` leads to, or `None` when it cannot happen in this one.
    pub fn next(self, event: Event) -> Option<Self> {
        use State::*;
        Some(match (self, event) {
            (SynSent, Event::SynCrossed) => SynReceived,
            (SynSent | SynReceived, Event::Synchronized) => Established,
            (SynSent, Event::Close) => Closed,
            (SynReceived | Established, Event::Close) => FinWait1,
            (CloseWait, Event::Close) => LastAck,
            (Established, Event::FinReceived) => CloseWait,
            (FinWait1, Event::FinReceived) => Closing,
            (FinWait2, Event::FinReceived) => TimeWait,
            (FinWait1, Event::FinAcknowledged) => FinWait2,
            (Closing, Event::FinAcknowledged) => TimeWait,
            (LastAck, Event::FinAcknowledged) => Closed,
            (Closed, Event::Delete) => return None,
            (_, Event::Delete) => Closed,
            _ => return None,
        })
    }

    /// Whether both SYNs were exchanged and acknowledged.
    pub fn is_synchronized(self) -> bool {
        self >= Self::Established
    }

    /// Whether the peer may still send data that we have not seen.
    pub fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// Whether nothing is left to be said: the connection is closed, or waits for old segments.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Closed | Self::TimeWait)
    }

    /// Whether the application may send more.
    pub fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// The state's name in the RFC.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
        }
    }
}

impl core::fmt::Display for State {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 10] = [
        State::Closed,
        State::SynSent,
        State::SynReceived,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ];

    const EVENTS: [Event; 6] = [
        Event::SynCrossed,
        Event::Synchronized,
        Event::Close,
        Event::FinReceived,
        Event::FinAcknowledged,
        Event::Delete,
    ];

    #[test]
    fn the_whole_table() {
        let mut table = String::new();
        for state in STATES {
            for event in EVENTS {
                if let Some(next) = state.next(event) {
                    table += &format!("{state} {event:?} {next}\n");
                }
            }
        }
        assert_eq!(
            table,
            "SYN-SENT SynCrossed SYN-RECEIVED\n\
             SYN-SENT Synchronized ESTABLISHED\n\
             SYN-SENT Close CLOSED\n\
             SYN-SENT Delete CLOSED\n\
             SYN-RECEIVED Synchronized ESTABLISHED\n\
             SYN-RECEIVED Close FIN-WAIT-1\n\
             SYN-RECEIVED Delete CLOSED\n\
             ESTABLISHED Close FIN-WAIT-1\n\
             ESTABLISHED FinReceived CLOSE-WAIT\n\
             ESTABLISHED Delete CLOSED\n\
             FIN-WAIT-1 FinReceived CLOSING\n\
             FIN-WAIT-1 FinAcknowledged FIN-WAIT-2\n\
             FIN-WAIT-1 Delete CLOSED\n\
             FIN-WAIT-2 FinReceived TIME-WAIT\n\
             FIN-WAIT-2 Delete CLOSED\n\
             CLOSE-WAIT Close LAST-ACK\n\
             CLOSE-WAIT Delete CLOSED\n\
             CLOSING FinAcknowledged TIME-WAIT\n\
             CLOSING Delete CLOSED\n\
             LAST-ACK FinAcknowledged CLOSED\n\
             LAST-ACK Delete CLOSED\n\
             TIME-WAIT Delete CLOSED\n"
        );
    }
}
