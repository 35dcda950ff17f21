//! An RDMAP Stream in Full Operation: octets of the LLP in, FPDUs out, work requests in,
//! completions out.
//!
//! Composes MPA's [`Deframer`] and [`Framer`] with RDMAP's endpoint. Knows nothing of TCP
//! beyond ordered octets and EMSS, and nothing of time: the owner bounds how long a Stream may take
//! to drain or to get its Terminate out.
//!
//! In order: [`Stream::receive`] what arrived; post work; [`Stream::build`] FPDUs while there is
//! room in the LLP; take completions. When [`Stream::is_drained`], close the LLP; when that is
//! over, [`Stream::llp_closed`].

use crate::ddp::Payload;
use crate::error::StreamError;
use crate::memory::{Accessor, Memory};
use crate::mpa::{Deframer, Framer, Negotiated, Segment, Ulpdu};
use crate::rdmap::Endpoint;
pub use crate::rdmap::{StreamLimits, StreamState};
use crate::wire::ddp::HEADER_LEN_MAX;
use crate::wire::terminate::TerminateCode;
use crate::work::{Completion, PostError, ReceiveRequest, SendRequest};

/// One end of an RDMAP Stream.
///
/// Does not allocate after construction, except for an FPDU that arrives in very small pieces.
pub struct Stream<B: Segment> {
    deframer: Deframer<B>,
    framer: Framer,
    endpoint: Endpoint,
}

/// What [`Stream::build_segment`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltSegment {
    /// Octets.
    pub len: usize,
    /// FPDUs.
    pub fpdus: u64,
    /// Whether the last of them ends its message.
    pub ends_message: bool,
    /// Whether another segment could follow at once.
    pub more: bool,
}

/// What became of building an FPDU.
enum Attempt {
    /// It is there, of so many octets.
    Built(usize),
    /// It is longer than the room for it.
    NoRoom,
    /// There is nothing to send now.
    Nothing,
}

impl<B: Segment> Stream<B> {
    /// A Stream that begins with the first FPDU after start-up. `accessor` is on whose behalf
    /// memory is accessed.
    pub fn new(negotiated: &Negotiated, accessor: Accessor, limits: StreamLimits) -> Self {
        Self {
            deframer: Deframer::new(negotiated.crc, negotiated.receive_markers),
            framer: Framer::new(negotiated.crc, negotiated.send_markers),
            endpoint: Endpoint::new(negotiated, accessor, limits),
        }
    }

    /// Queues a Send, Write or Read. On a Stream that ended or is closing this succeeds, and
    /// the request completes as flushed in its turn.
    ///
    /// # Errors
    /// Says why nothing was queued.
    #[inline]
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.endpoint.post_send(request)
    }

    /// Queues a buffer for one Send of the peer. On a Stream that ended this succeeds, and the
    /// request completes as flushed.
    ///
    /// # Errors
    /// Says why nothing was queued.
    #[inline]
    pub fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        self.endpoint.post_receive(request)
    }

    /// Takes the next octets of the LLP: verifies, places and delivers what is whole.
    ///
    /// After an error octets are dropped unseen.
    #[inline]
    pub fn receive<M: Memory>(&mut self, segment: B, memory: &mut M) {
        // req 5041-7.1-9
        if !self.endpoint.is_receiving() {
            return;
        }
        let octets = segment.octets();
        let mut rest = octets;
        if self.deframer.is_plain() {
            loop {
                match self.deframer.split(rest) {
                    Ok(None) => break,
                    Ok(Some(front)) => {
                        self.endpoint.receive(&front.ulpdu, memory);
                        rest = front.rest;
                    }
                    // req 5044-8-8: the LLP stays open for the Terminate.
                    Err(error) => self.endpoint.receive_failed(error.into()),
                }
                if !self.endpoint.is_receiving() {
                    self.deframer.discard();
                    return;
                }
            }
            if rest.is_empty() {
                return;
            }
        }
        let taken = octets.len() - rest.len();
        self.receive_cut(segment, taken, memory);
    }

    /// Takes the octets of a segment behind the first `taken`, which are not whole FPDUs without
    /// Markers.
    fn receive_cut<M: Memory>(&mut self, segment: B, taken: usize, memory: &mut M) {
        self.deframer.push_rest(segment, taken);
        loop {
            match self.deframer.next() {
                Ok(None) => return,
                Ok(Some(ulpdu)) => self.endpoint.receive(&ulpdu, memory),
                Err(error) => self.endpoint.receive_failed(error.into()),
            }
            if !self.endpoint.is_receiving() {
                self.deframer.discard();
                return;
            }
        }
    }

    /// Whether [`Stream::build`] has something to build now.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.endpoint.has_output()
    }

    /// Writes the next FPDU to the start of `out` and returns its length.
    ///
    /// 0 when there is nothing to send now, or when the FPDU does not fit in `out`. FPDUs are
    /// cut for segments of `emss` octets; those that are smaller may share a segment, by calling
    /// again with the rest of `out`.
    #[inline]
    pub fn build<M: Memory>(&mut self, out: &mut [u8], emss: usize, memory: &M) -> usize {
        match self.try_build(out, emss, memory) {
            Attempt::Built(len) => len,
            Attempt::NoRoom | Attempt::Nothing => 0,
        }
    }

    #[inline]
    fn try_build<M: Memory>(&mut self, out: &mut [u8], emss: usize, memory: &M) -> Attempt {
        // req 5044-5.1-1
        let mulpdu = self.framer.mulpdu(emss);
        // Twice at most: a plan that fails is followed by the Terminate's.
        while let Some(plan) = self.endpoint.plan(mulpdu) {
            let ulpdu_len = plan.ulpdu_len();
            if self.framer.fpdu_len(ulpdu_len) > out.len() {
                return Attempt::NoRoom;
            }
            let endpoint = &mut self.endpoint;
            let framed = self.framer.try_frame(out, ulpdu_len, |ulpdu| endpoint.fill(&plan, ulpdu, memory));
            match framed {
                Ok(len) => {
                    self.endpoint.built(&plan);
                    return Attempt::Built(len);
                }
                Err(error) => {
                    self.endpoint.fill_failed(&plan, error);
                    self.discard_input_if_ended();
                }
            }
        }
        Attempt::Nothing
    }

    /// Fills `out`, which becomes the data of one TCP segment, with as many FPDUs as there are and as
    /// fit into `emss` octets: small ones that are there already share a segment.
    // req 5044-5.1-3, 5044-5.1-4
    #[inline]
    pub fn build_segment<M: Memory>(&mut self, out: &mut [u8], emss: usize, memory: &M) -> BuiltSegment {
        let mut built = BuiltSegment { len: 0, fpdus: 0, ends_message: false, more: true };
        loop {
            match self.try_build(&mut out[built.len..], emss, memory) {
                Attempt::Built(len) => built.len += len,
                Attempt::NoRoom => return built,
                Attempt::Nothing => return BuiltSegment { more: false, ..built },
            }
            built.fpdus += 1;
            built.ends_message = self.endpoint.message_ended();
            // What does not end its message was cut to fill the segment.
            if !built.ends_message {
                return built;
            }
        }
    }

    /// The next completion; those of one queue come in the order of its requests.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.endpoint.next_completion()
    }

    /// Closes gracefully: what was posted is still sent, and the peer's Reads answered. The
    /// LLP may be closed when [`Stream::is_drained`].
    pub fn close(&mut self) {
        self.endpoint.close();
    }

    /// Ends the Stream because of `error`, with a Terminate that says so. For what is found
    /// outside: a start-up that cannot be agreed to, or an application that gives up.
    pub fn terminate(&mut self, error: StreamError) {
        self.endpoint.terminate(error, None);
        self.discard_input_if_ended();
    }

    /// The peer closed its half of the LLP. All requests complete, in order.
    ///
    /// A half-closed Stream is not kept: whatever waits for the peer can't complete, and a
    /// peer that closed takes nothing more.
    // req 5044-7.2-1
    pub fn peer_closed(&mut self) {
        self.llp_closed();
    }

    /// The LLP was reset or lost. All requests complete, in order.
    pub fn fail(&mut self) {
        self.llp_closed();
    }

    /// The LLP ended, however. All requests complete, in order.
    pub fn llp_closed(&mut self) {
        self.endpoint.llp_ended();
        self.deframer.discard();
    }

    /// Whether nothing more will be sent, so that the LLP may be closed: the Stream is closing
    /// and all is sent and answered, or it ended.
    pub fn is_drained(&self) -> bool {
        self.endpoint.is_drained()
    }

    /// Where the Stream is in its life.
    pub fn state(&self) -> StreamState {
        self.endpoint.state()
    }

    /// The first error that was found on this side.
    pub fn error(&self) -> Option<StreamError> {
        self.endpoint.error()
    }

    /// What the peer's Terminate said, if there was one.
    pub fn terminate_received(&self) -> Option<TerminateCode> {
        self.endpoint.terminate_received()
    }

    /// Send requests that may be posted now.
    pub fn send_room(&self) -> usize {
        self.endpoint.send_room()
    }

    /// Receive requests that may be posted now.
    pub fn receive_room(&self) -> usize {
        self.endpoint.receive_room()
    }

    /// Octets that wait for the rest of their FPDU.
    pub fn pending_octets(&self) -> usize {
        self.deframer.pending()
    }

    /// Gives the segments back that will not be looked at.
    fn discard_input_if_ended(&mut self) {
        if !self.endpoint.is_receiving() {
            self.deframer.discard();
        }
    }
}

impl<B: Segment> crate::rdmap::ReceivedSegment for Ulpdu<'_, B> {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn head<'a>(&'a self, scratch: &'a mut [u8; HEADER_LEN_MAX]) -> &'a [u8] {
        let len = self.gather(0, scratch);
        &scratch[..len]
    }

    #[inline]
    fn payload(&self, header_len: usize) -> impl Payload {
        UlpduPayload { ulpdu: self, header_len }
    }
}

/// What follows the DDP header in a ULPDU.
struct UlpduPayload<'a, 'b, B> {
    ulpdu: &'a Ulpdu<'b, B>,
    header_len: usize,
}

impl<B: Segment> Payload for UlpduPayload<'_, '_, B> {
    #[inline]
    fn len(&self) -> u32 {
        u32::try_from(self.ulpdu.len() - self.header_len).unwrap_or(u32::MAX)
    }

    #[inline]
    fn gather(&self, out: &mut [u8]) {
        self.ulpdu.gather(self.header_len, out);
    }

    #[inline]
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.ulpdu.pieces(self.header_len)
    }
}
