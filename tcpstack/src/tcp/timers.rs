//! What happens when a connection's time has come: retransmission (RFC 6298 section 5),
//! zero-window probes (RFC 9293 section 3.8.6.1), keep-alives (section 3.8.4) and the end of
//! FIN-WAIT-2.
//!
//! The user timeout (RFC 9293 section 3.8.3, RFC 5482) is the application's alone: the option by
//! which a peer proposes one is never sent, and ignored when it comes, as a peer that is not
//! trusted could have its memory held for longer, or a connection ended sooner.
//!
//! One of them runs at a time: the first while anything is unacknowledged, the second while
//! something waits for the window, otherwise the third, or the last when nobody waits any more.

use core::time::Duration;

use super::compact::Millis;
use super::connection::{Connection, NEVER};
use super::counters::TcpCounters;
use super::sender::Fin;
use super::state::State;
use crate::config::StackConfig;
use crate::device::Frame;
use crate::stack::CloseReason;
use crate::time::Instant;

/// Timeouts after which data that found no end are given up, however short they were: R1.
// req 9293-3.8.3-4
const RETRIES_MIN: u8 = 3;

/// The one timer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Nothing to wait for.
    Off,
    /// Until unacknowledged data, SYN or FIN go again.
    Retransmit(Instant),
    /// Until those are lost that a newer one has overtaken (RFC 8985 section 6.2).
    Reorder(Instant),
    /// Until the last record is probed for (RFC 8985 section 7.2): PTO.
    Tail(Instant),
    /// Until the next probe of a closed window.
    Persist {
        /// When it is sent.
        at: Instant,
        /// Probes sent.
        probes: u8,
    },
    /// Until a peer that does not close, and whose data nobody wants, is given up (FIN-WAIT-2).
    Linger(Instant),
    /// Until the next keep-alive probe.
    Keepalive {
        /// When it is sent.
        at: Instant,
        /// Probes sent without an answer.
        probes: u8,
    },
}

impl Timer {
    /// When it expires.
    #[inline]
    pub(crate) fn expires(self) -> Instant {
        match self {
            Self::Off => NEVER,
            Self::Retransmit(at)
            | Self::Reorder(at)
            | Self::Tail(at)
            | Self::Linger(at)
            | Self::Persist { at, .. }
            | Self::Keepalive { at, .. } => at,
        }
    }
}

/// What an expired timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expired {
    /// It was the delayed ACK's time, or none at all.
    Nothing,
    /// There is something to be sent again.
    Resend,
    /// A segment that makes the peer answer.
    Probe,
    /// As much of the first record as the small window takes.
    Squeeze,
    /// The connection is given up.
    GiveUp(CloseReason),
}

impl<F: Frame> Connection<F> {
    /// Looks at the timer; the caller sends what it asks for.
    pub(crate) fn expire(
        &mut self,
        now: Instant,
        config: &StackConfig,
        counters: &mut TcpCounters,
    ) -> Expired {
        if self.timer.expires() > now {
            return Expired::Nothing;
        }
        match self.timer {
            Timer::Off => Expired::Nothing,
            Timer::Retransmit(_) => self.retransmission_timeout(now, config, counters),
            Timer::Reorder(_) => self.reordering_timeout(now, counters),
            Timer::Tail(_) => self.tail_timeout(now, counters),
            Timer::Persist { probes, .. } => self.persist_timeout(probes, now, config, counters),
            Timer::Linger(_) => {
                counters.fin_wait_2_timeouts += 1;
                Expired::GiveUp(CloseReason::TimedOut)
            }
            Timer::Keepalive { probes, .. } => self.keepalive_timeout(probes, now, counters),
        }
    }

    /// Starts, keeps or stops the timer after something was sent or acknowledged.
    #[inline]
    pub(crate) fn arm(&mut self, now: Instant) {
        if self.sender.has_outstanding() && !self.syn_due {
            if !matches!(self.timer, Timer::Retransmit(_) | Timer::Reorder(_) | Timer::Tail(_)) {
                self.rto_at = now + self.rto.value();
                self.timer = Timer::Retransmit(self.rto_at);
            }
            self.rack_sent(now);
            return;
        }
        if self.sender.first_unsent().is_some() || self.sender.fin == Fin::Pending {
            // req 9293-3.8.6.1-4: the first probe comes after the retransmission timeout.
            if !matches!(self.timer, Timer::Persist { .. }) {
                self.timer = Timer::Persist { at: now + self.rto.value(), probes: 0 };
            }
            return;
        }
        if matches!(self.timer, Timer::Linger(_)) {
            return;
        }
        match self.keepalive.filter(|_| self.state.is_synchronized()) {
            // req 9293-3.8.4-3
            Some(keepalive) => {
                if !matches!(self.timer, Timer::Keepalive { .. }) {
                    self.timer = Timer::Keepalive { at: self.heard_at + keepalive.idle(), probes: 0 };
                }
            }
            None => self.timer = Timer::Off,
        }
    }

    // req 9293-3.8.3-1, 9293-3.8.3-6
    fn retransmission_timeout(
        &mut self,
        now: Instant,
        config: &StackConfig,
        counters: &mut TcpCounters,
    ) -> Expired {
        if !self.sender.has_outstanding() {
            self.timer = Timer::Off;
            return Expired::Nothing;
        }
        let mut give_up_at = None;
        match self.state {
            State::SynSent | State::SynReceived => {
                let retries =
                    if self.listener.is_some() { config.syn_ack_retries } else { config.syn_retries };
                if self.retries >= retries {
                    return Expired::GiveUp(CloseReason::TimedOut);
                }
                self.syn_due = true;
            }
            _ => {
                // A closed window is no failure as long as the peer answers (req 9293-3.8.6-4).
                let patient = self.sender.wnd == 0 && !self.released;
                let since = if patient { self.heard_at } else { self.progress_at };
                let timeout = self.user_timeout.span();
                let limit = if patient { self.silence_max(self.rto.value(), config) } else { timeout };
                if now - since >= limit && self.retries >= RETRIES_MIN {
                    return Expired::GiveUp(CloseReason::TimedOut);
                }
                give_up_at = (self.sender.wnd > 0).then(|| since + timeout);
                let flight = self.flight(self.sender.flight(), 0, now);
                self.congestion.timeout(flight, self.retries > 0);
                if config.path_search {
                    self.suspect_black_hole(config, counters);
                }
                if self.sender.rack.on {
                    self.rack_time_out(now);
                } else {
                    self.sender.resend_all();
                }
            }
        }
        counters.timeouts += 1;
        self.retries = self.retries.saturating_add(1);
        self.rto.back_off();
        let at = now + self.rto.value();
        let at = if self.sender.wnd > 0 { at } else { now + self.patient(self.rto.value(), config) };
        self.timer = Timer::Retransmit(before_end(at, give_up_at, self.retries, now));
        Expired::Resend
    }

    /// Another user timeout: what waits for its end now waits for that one.
    // req 9293-3.8.3-2
    pub(crate) fn set_user_timeout(&mut self, timeout: Millis, now: Instant) {
        self.user_timeout = timeout;
        let give_up_at = (self.progress_at + timeout.span()).max(now + Duration::from_nanos(1));
        match &mut self.timer {
            Timer::Retransmit(at) if self.state.is_synchronized() && self.sender.wnd > 0 => {
                *at = before_end(*at, Some(give_up_at), self.retries, now);
            }
            Timer::Persist { at, .. } => *at = (*at).min(give_up_at),
            _ => {}
        }
    }

    /// The interval at which a closed window is asked about: as it has grown; but when it could
    /// outgrow the user timeout several questions are to find room in that, as far as answers take
    /// no longer.
    fn patient(&self, interval: Duration, config: &StackConfig) -> Duration {
        let timeout = self.user_timeout.span();
        if config.rto_max <= timeout {
            return interval;
        }
        interval.min((timeout / (u32::from(RETRIES_MIN) + 1)).max(self.rto.base()))
    }

    /// How long a peer that is asked at this interval must be silent to be given up: it has left
    /// more than one question unanswered by then.
    fn silence_max(&self, interval: Duration, config: &StackConfig) -> Duration {
        self.user_timeout.span().max(2 * self.patient(interval, config))
    }

    // req 9293-3.8.6-5
    // req 9293-3.8.6.1-1
    // req 9293-3.8.6.1-3
    fn persist_timeout(
        &mut self,
        probes: u8,
        now: Instant,
        config: &StackConfig,
        counters: &mut TcpCounters,
    ) -> Expired {
        // Nobody waits for what an orphan still has to say, so answers alone do not keep it.
        let since = if self.released { self.progress_at } else { self.heard_at };
        let interval = |probes: u8| {
            let grown = self.rto.value().saturating_mul(1 << probes.min(20));
            grown.min(config.rto_max)
        };
        // A peer that answers is alive, however long ago it was asked.
        if now - since >= self.silence_max(interval(probes), config) && probes >= RETRIES_MIN {
            return Expired::GiveUp(CloseReason::TimedOut);
        }
        let probes = probes.saturating_add(1);
        self.timer = Timer::Persist { at: now + self.patient(interval(probes), config), probes };
        if self.sender.wnd > 0 {
            return Expired::Squeeze;
        }
        counters.window_probes += 1;
        Expired::Probe
    }

    // req 9293-3.8.4-5
    fn keepalive_timeout(&mut self, probes: u8, now: Instant, counters: &mut TcpCounters) -> Expired {
        let Some(keepalive) = self.keepalive else {
            self.timer = Timer::Off;
            return Expired::Nothing;
        };
        // What was heard meanwhile moved nothing; it counts now.
        let due: Duration = if probes == 0 { keepalive.idle() } else { keepalive.interval() };
        let silent = now - self.heard_at;
        if silent < due {
            self.timer = Timer::Keepalive { at: self.heard_at + keepalive.idle(), probes: 0 };
            return Expired::Nothing;
        }
        self.trim();
        if probes >= keepalive.probes {
            return Expired::GiveUp(CloseReason::TimedOut);
        }
        self.timer = Timer::Keepalive { at: now + keepalive.interval(), probes: probes + 1 };
        counters.keepalive_probes += 1;
        Expired::Probe
    }
}

/// The next timeout at `at`, or before that the time to give up, once there were enough.
fn before_end(at: Instant, give_up_at: Option<Instant>, retries: u8, now: Instant) -> Instant {
    let end = give_up_at.filter(|&end| retries >= RETRIES_MIN && end > now);
    end.map_or(at, |end| at.min(end))
}
