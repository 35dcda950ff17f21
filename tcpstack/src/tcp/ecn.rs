//! Explicit Congestion Notification (RFC 3168): agreed on by the SYNs, marks echoed to the
//! sender, and told to the network by the codepoint of new data.
//!
//! | SYN | SYN,ACK | then |
//! | --- | --- | --- |
//! | ECE, CWR | ECE | data go out as ECT(0); CE is echoed by ECE until CWR comes |
//! | anything else | anything else | no ECN |
//!
//! Repetitions, probes, SYNs, resets and segments without data go out as Not-ECT. With DCTCP
//! the echo says exactly which octets were marked (RFC 8257 section 3.2).

use super::connection::Connection;
use super::input::Context;
use super::segment::{Flags, Segment};
use crate::config::StackConfig;
use crate::device::Frame;

/// The codepoint of packets that must not be marked.
pub(crate) const NOT_ECT: u8 = 0b00;

/// The codepoint of packets that may be marked: ECT(0).
pub(crate) const ECT_0: u8 = 0b10;

/// Congestion Experienced.
pub(crate) const CE: u8 = 0b11;

/// Both flags of an ECN-setup SYN.
pub(crate) const SETUP: Flags = Flags::ECE.or(Flags::CWR);

/// When a connection uses ECN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Never.
    Off,
    /// When the peer asks for it; with DCTCP as [`Ecn::Request`].
    #[default]
    Accept,
    /// When the peer has it: we ask.
    Request,
}

/// What one connection has agreed on, and what it owes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EcnState {
    policy: Ecn,
    /// Marks that come are echoed.
    echoes: bool,
    /// New data go out as ECT(0), and an ECE that comes means something.
    capable: bool,
    /// The echo follows each change of the marks (DCTCP).
    exact: bool,
    /// ECE while a mark is to be echoed: it goes into each segment.
    pub(crate) echo: Flags,
}

impl EcnState {
    /// Nothing agreed on yet.
    pub(crate) fn new(config: &StackConfig) -> Self {
        let exact = config.congestion == super::congestion::CongestionControl::Dctcp;
        // Without marks DCTCP is NewReno: it asks.
        let policy = if exact && config.ecn == Ecn::Accept { Ecn::Request } else { config.ecn };
        Self { policy, echoes: false, capable: false, exact, echo: Flags::NONE }
    }

    /// The state of a connection after the peer's SYN.
    pub(crate) fn of_syn(flags: Flags, config: &StackConfig) -> Self {
        let mut state = Self::new(config);
        state.take_syn(flags, false);
        state
    }

    /// The flags of our SYN or SYN,ACK; `again` when an earlier one got no answer.
    pub(crate) fn syn_flags(&self, flags: Flags, again: bool) -> Flags {
        if flags.contains(Flags::ACK) {
            return if self.echoes { flags | Flags::ECE } else { flags };
        }
        // A SYN that is sent again does not ask, lest the asking was its end (section 6.1.1.1).
        if self.policy == Ecn::Request && !again { flags | SETUP } else { flags }
    }

    /// Takes the peer's SYN: alone it asks, with ACK it answers; `again` when ours was repeated.
    pub(crate) fn take_syn(&mut self, flags: Flags, again: bool) {
        let agreed = if flags.contains(Flags::ACK) {
            // CWR with it is our own SYN's flags reflected, and no answer.
            self.policy == Ecn::Request && flags.contains(Flags::ECE) && !flags.contains(Flags::CWR)
        } else {
            self.policy != Ecn::Off && flags.contains(SETUP)
        };
        self.echoes = agreed;
        // Who has sent a SYN without ECN must not send ECT, but echo he must.
        self.capable = agreed && !again;
    }

    /// Whether ECN is in use for what we send.
    pub(crate) fn capable(&self) -> bool {
        self.capable
    }

    /// Whether an ACK must go before a data segment with this codepoint is processed, so that it
    /// covers what came with the other one and nothing else.
    #[inline]
    pub(crate) fn turns(&self, codepoint: u8) -> bool {
        self.exact && self.echoes && (codepoint == CE) != (self.echo == Flags::ECE)
    }

    /// Takes the marks of a data segment into account; true when an ACK is due at once.
    #[inline]
    fn receive(&mut self, flags: Flags, codepoint: u8) -> bool {
        if self.exact {
            let before = self.echo;
            self.echo = if codepoint == CE { Flags::ECE } else { Flags::NONE };
            return self.echo != before;
        }
        // CWR first: a mark on the same segment is a new one.
        if flags.contains(Flags::CWR) {
            self.echo = Flags::NONE;
        }
        if codepoint == CE {
            self.echo = Flags::ECE;
        }
        false
    }
}

impl<F: Frame> Connection<F> {
    /// The flags and the codepoint of a data segment.
    #[inline]
    pub(crate) fn mark(&mut self, flags: Flags, again: bool) -> (Flags, u8) {
        if !self.ecn.capable || again {
            return (flags, NOT_ECT);
        }
        if core::mem::take(&mut self.congestion.reduced) {
            return (flags | Flags::CWR, ECT_0);
        }
        (flags, ECT_0)
    }

    /// Whether something is still to be acknowledged when this segment, marked otherwise, comes.
    #[cold]
    pub(crate) fn owes_ack_before(&self, segment: &Segment) -> bool {
        let owes = self.ack.octets > 0 && self.template.is_some();
        owes && segment.payload_len > 0 && self.receiver.is_acceptable(segment.seq, segment.payload_len)
    }

    /// Looks at the marks of a data segment that was taken.
    #[inline]
    pub(crate) fn take_marks(&mut self, flags: Flags, context: &mut Context<'_>) {
        if self.ecn.echoes {
            context.counters.ecn_marks_received += u64::from(context.ecn == CE);
            self.ack.now |= self.ecn.receive(flags, context.ecn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::CongestionControl;

    const SYN_ACK: Flags = Flags::SYN.or(Flags::ACK);

    fn state(ecn: Ecn) -> EcnState {
        EcnState::new(&StackConfig { ecn, ..StackConfig::default() })
    }

    #[test]
    fn the_syns_agree_only_when_both_want_it() {
        for (client, server, agreed) in [
            (Ecn::Off, Ecn::Request, false),
            (Ecn::Accept, Ecn::Accept, false),
            (Ecn::Request, Ecn::Off, false),
            (Ecn::Request, Ecn::Accept, true),
            (Ecn::Request, Ecn::Request, true),
        ] {
            let (mut client, mut server) = (state(client), state(server));
            server.take_syn(client.syn_flags(Flags::SYN, false), false);
            client.take_syn(server.syn_flags(SYN_ACK, false), false);
            assert_eq!((client.capable, server.capable), (agreed, agreed));
        }
    }

    #[test]
    fn dctcp_asks_unless_it_must_not() {
        for (ecn, asks) in [(Ecn::Off, false), (Ecn::Accept, true), (Ecn::Request, true)] {
            let congestion = CongestionControl::Dctcp;
            let client = EcnState::new(&StackConfig { ecn, congestion, ..StackConfig::default() });
            assert_eq!(client.syn_flags(Flags::SYN, false).contains(SETUP), asks);
        }
    }

    #[test]
    fn reflected_flags_are_no_answer() {
        let mut client = state(Ecn::Request);
        client.take_syn(SYN_ACK | SETUP, false);
        assert!(!client.capable && !client.echoes);
    }

    #[test]
    fn half_an_offer_is_none() {
        for flags in [Flags::ECE, Flags::CWR] {
            let mut server = state(Ecn::Request);
            server.take_syn(Flags::SYN | flags, false);
            assert!(!server.capable && !server.echoes);
        }
    }

    #[test]
    fn a_repeated_syn_does_not_ask_and_a_late_answer_binds_the_echo_alone() {
        let mut client = state(Ecn::Request);
        assert_eq!(client.syn_flags(Flags::SYN, true), Flags::SYN);
        client.take_syn(SYN_ACK | Flags::ECE, true);
        assert!(!client.capable && client.echoes);
    }

    #[test]
    fn a_mark_is_echoed_until_cwr() {
        let mut server = state(Ecn::Accept);
        assert!(!server.receive(Flags::ACK, CE));
        assert!(!server.receive(Flags::ACK, ECT_0));
        assert_eq!(server.echo, Flags::ECE);
        server.receive(Flags::CWR, CE);
        assert_eq!(server.echo, Flags::ECE);
        server.receive(Flags::CWR, ECT_0);
        assert_eq!(server.echo, Flags::NONE);
    }

    // RFC 8257 section 3.2, figure 1.
    #[test]
    fn the_exact_echo_follows_each_change_and_acknowledges_it() {
        let config = StackConfig { congestion: CongestionControl::Dctcp, ..StackConfig::default() };
        let mut server = EcnState::new(&config);
        server.take_syn(Flags::SYN | SETUP, false);
        for (codepoint, echo, now) in [
            (ECT_0, Flags::NONE, false),
            (CE, Flags::ECE, true),
            (CE, Flags::ECE, false),
            (ECT_0, Flags::NONE, true),
            (NOT_ECT, Flags::NONE, false),
        ] {
            assert_eq!(server.turns(codepoint), now);
            assert_eq!(server.receive(Flags::ACK, codepoint), now);
            assert_eq!(server.echo, echo);
        }
    }
}
