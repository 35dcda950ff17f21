//! One end of an RDMAP Stream, above MPA: its state, its posted work, and how it ends.
//!
//! ```text
//!             close()
//! Operating -----------> Closing
//!     |                     |
//!     | error found here    |          Terminate built
//!     +---------+-----------+--> Terminating ---------> Terminated
//!     |         |                                           ^
//!     |         +-- Terminate received ---------------------+
//!     |
//!     +-- (any state) LLP ended --> Closed
//! ```
//!
//! Entering Terminated or Closed completes every request, queue by queue, in order. From then
//! on what is posted completes at once as flushed, and what arrives is dropped unseen.

use arrayvec::ArrayVec;

use super::atomics::OutboundAtomics;
use super::completion_queue::CompletionQueue;
use super::reads::{InboundReads, OutboundReads, TerminateReceiver};
use super::receive_queue::ReceiveQueue;
use super::receiver::FirstFpdu;
use super::send_queue::SendQueue;
use super::sender::Outgoing;
use crate::error::StreamError;
use crate::memory::Accessor;
use crate::mpa::{Negotiated, Role, RtrKind};
use crate::wire::Version;
use crate::wire::terminate::{Cause, TERMINATE_LEN_MAX, Terminate, TerminateCode};
use crate::work::{Completion, PostError, ReceiveRequest, SendOperation, SendRequest};

/// How much work a Stream can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Most send requests that are posted and whose completion was not taken.
    pub send_depth: u32,
    /// Most receive requests that are posted and whose completion was not taken.
    pub receive_depth: u32,
}

/// Where a Stream is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// Messages flow both ways.
    Operating,
    /// What was posted before the close is still sent; nothing posted later is.
    Closing,
    /// An error was found: a message being sent is finished, then a Terminate follows.
    Terminating,
    /// A Terminate was sent or received. Nothing more is sent; the LLP is to be closed.
    Terminated,
    /// The LLP ended.
    Closed,
}

/// [`StreamState`] with the data that exists only in it.
pub(crate) enum Phase {
    Operating,
    Closing,
    /// The Terminate to send.
    Terminating(ArrayVec<u8, TERMINATE_LEN_MAX>),
    Terminated,
    Closed,
}

/// One end of an RDMAP Stream.
pub(crate) struct Endpoint {
    pub(super) version: Version,
    /// On whose behalf memory is accessed.
    pub(super) who: Accessor,
    pub(super) ord: usize,
    pub(super) phase: Phase,
    error: Option<StreamError>,
    pub(super) terminate_received: Option<TerminateCode>,
    pub(super) first_fpdu: FirstFpdu,
    pub(super) outgoing: Outgoing,
    pub(super) sends: SendQueue,
    pub(super) receives: ReceiveQueue,
    pub(super) reads: OutboundReads,
    pub(super) atomics: OutboundAtomics,
    pub(super) peer_reads: InboundReads,
    pub(super) terminate_in: TerminateReceiver,
    pub(super) completions: CompletionQueue,
}

impl Endpoint {
    pub(crate) fn new(negotiated: &Negotiated, who: Accessor, limits: StreamLimits) -> Self {
        let send_depth = limits.send_depth as usize;
        let receive_depth = limits.receive_depth as usize;
        let rtr = negotiated.rtr;
        // The RTR indication may be a Read although none were negotiated (RFC 6581 section 9.1).
        let rtr_reads = usize::from(rtr == Some(RtrKind::Read));
        // req 5040-6.1-2, 5040-6.1-3, 5040-8.1.1-13
        let ord = usize::from(negotiated.ord);
        let ird = usize::from(negotiated.ird).max(rtr_reads);
        // req 5044-7.1.2-12
        let (outgoing, first_fpdu) = match negotiated.role {
            Role::Initiator => (Outgoing::new(true, rtr), FirstFpdu::Arrived),
            Role::Responder => (Outgoing::new(false, None), rtr.map_or(FirstFpdu::Any, FirstFpdu::Rtr)),
        };
        Self {
            version: negotiated.version(),
            who,
            ord,
            phase: Phase::Operating,
            error: None,
            terminate_received: None,
            first_fpdu,
            outgoing,
            sends: SendQueue::new(send_depth),
            receives: ReceiveQueue::new(receive_depth),
            reads: OutboundReads::new(ord.min(send_depth) + rtr_reads),
            atomics: OutboundAtomics::new(ord.min(send_depth)),
            // req 5040-8.1.2-7
            // req 5042-6.4.3.3-1, 5042-6.4.3.3-2, 5042-appendix-A-5: one queue a Stream, of IRD Reads.
            peer_reads: InboundReads::new(ird),
            terminate_in: TerminateReceiver::new(),
            // req 5040-8.1.1-11, 5040-8.1.1-12, 5040-8.1.2-5
            // req 5042-6.4.3.2-1: as long as all that can complete, so that it does not overflow.
            completions: CompletionQueue::new(send_depth + receive_depth),
        }
    }

    /// Queues a send request; one that comes too late is flushed in its turn.
    #[inline]
    pub(crate) fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        if self.ord == 0
            && matches!(request.operation, SendOperation::Read { .. } | SendOperation::Atomic { .. })
        {
            return Err(PostError::NoReads);
        }
        self.sends.post(request, &self.completions)?;
        match self.phase {
            Phase::Operating | Phase::Terminating(_) => {}
            Phase::Closing => self.sends.flush_newest(&mut self.completions),
            Phase::Terminated | Phase::Closed => self.sends.flush(&mut self.completions),
        }
        Ok(())
    }

    /// Queues a receive request; one that comes too late is flushed.
    #[inline]
    pub(crate) fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.receives.post(request, &self.completions)?;
        if !self.is_receiving() {
            self.receives.flush(&mut self.completions);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop()
    }

    /// Sends nothing that is posted from now on.
    // req 5041-6.2.1-1, 5041-6.2.1-5
    pub(crate) fn close(&mut self) {
        if matches!(self.phase, Phase::Operating) {
            self.phase = Phase::Closing;
        }
    }

    /// The LLP ended.
    // req 5041-6.2.2-2
    pub(crate) fn llp_ended(&mut self) {
        if !matches!(self.phase, Phase::Closed) {
            self.end(Phase::Closed);
        }
    }

    /// Ends reception and lets a Terminate follow the message that is being sent.
    ///
    /// The first error stays: later ones are consequences.
    // req 5040-6.2.1-1, 5040-7.1-1, 5040-7.1-2, 5040-7.1-3
    // req 5041-6.2.2-1, 5041-6.2.2-3, 5041-6.2.2-4, 5041-7.1-4, 5041-7.1-10
    pub(crate) fn terminate(&mut self, error: StreamError, cause: Option<Cause>) {
        if !self.is_receiving() {
            return;
        }
        self.error = Some(error);
        self.receives.flush(&mut self.completions);
        self.peer_reads.truncate(self.outgoing.responses_in_progress());
        if self.outgoing.may_send() {
            let terminate = Terminate { code: error.terminate_code(), cause };
            self.phase = Phase::Terminating(terminate.emit());
        } else {
            self.end(Phase::Terminated);
        }
    }

    /// An error after which no Terminate makes sense.
    pub(super) fn end_in_error(&mut self, error: StreamError) {
        self.error.get_or_insert(error);
        self.end(Phase::Terminated);
    }

    /// Stops everything and completes all requests, in order.
    pub(super) fn end(&mut self, phase: Phase) {
        self.phase = phase;
        self.outgoing.stop();
        self.reads.clear();
        self.atomics.clear();
        self.peer_reads.truncate(0);
        self.sends.flush(&mut self.completions);
        self.receives.flush(&mut self.completions);
    }

    /// Whether what arrives is looked at.
    #[inline]
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Operating | Phase::Closing)
    }

    /// Whether nothing more will be sent, so that the LLP may be closed.
    // req 5040-6.2.1-4, 5040-7-2, 5041-6.2-1: it is closed in order even after an error.
    pub(crate) fn is_drained(&self) -> bool {
        match self.phase {
            Phase::Operating | Phase::Terminating(_) => false,
            Phase::Closing => {
                self.sends.is_empty()
                    && self.peer_reads.is_empty()
                    && self.reads.len() == 0
                    && self.outgoing.is_idle()
            }
            Phase::Terminated | Phase::Closed => true,
        }
    }

    pub(crate) fn state(&self) -> StreamState {
        match self.phase {
            Phase::Operating => StreamState::Operating,
            Phase::Closing => StreamState::Closing,
            Phase::Terminating(_) => StreamState::Terminating,
            Phase::Terminated => StreamState::Terminated,
            Phase::Closed => StreamState::Closed,
        }
    }

    pub(crate) fn error(&self) -> Option<StreamError> {
        self.error
    }

    pub(crate) fn terminate_received(&self) -> Option<TerminateCode> {
        self.terminate_received
    }

    pub(crate) fn send_room(&self) -> usize {
        self.sends.room(&self.completions)
    }

    pub(crate) fn receive_room(&self) -> usize {
        self.receives.room(&self.completions)
    }
}
