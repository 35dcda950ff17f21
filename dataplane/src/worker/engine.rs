//! One turn of the worker, step by step: frames in, Streams fed, work taken, FPDUs out.
//!
//! Connection set-up and teardown are in `connection`, what applications ask in `verbs`.

use std::collections::VecDeque;
use std::time::Duration;

use iwarp::stream::StreamState;
use tcpstack::device::{Burst, Device, Frame};
use tcpstack::stack::{ConnectionId, Events, Stack};
use tcpstack::time::Instant;

use super::clients::{ClientId, Clients};
use super::counters::WorkerCounters;
use super::pair::{Pairs, Payload, Phase, Streaming, pair_id};
use super::{Limits, Listener};
use crate::mem::Registry;
use crate::verbs::{DisconnectReason, QueuePairCompletion, QueuePairId};

/// Segments that one Stream builds a turn, so that Streams take turns.
const SEGMENTS_PER_TURN_MAX: usize = 32;

/// A worker's state, without the applications that run on it.
pub(super) struct Engine<D: Device> {
    pub(super) device: D,
    pub(super) stack: Stack<D>,
    pub(super) memory: Registry,
    pub(super) pairs: Pairs<D::Frame>,
    /// By the stack's listener index.
    pub(super) listeners: Vec<Option<Listener>>,
    pub(super) clients: Clients,
    pub(super) counters: WorkerCounters,
    pub(super) limits: Limits,
    pub(super) now: Instant,
    /// Pairs whose Stream may have something to send; each at most once ([`super::pair::Pair::in_output`]).
    output: VecDeque<QueuePairId>,
    /// Start-ups that must have come to an end, in order of time.
    pub(super) startup_deadlines: Deadlines,
    /// TCP connections that must have closed, in order of time.
    pub(super) close_deadlines: Deadlines,
    received: Burst<D::Frame>,
}

/// Pairs with one and the same time to finish something, so that a queue keeps them in order.
pub(super) struct Deadlines {
    span: Duration,
    queue: VecDeque<(Instant, QueuePairId)>,
}

impl Deadlines {
    pub(super) fn new(span: Duration) -> Self {
        Self { span, queue: VecDeque::new() }
    }

    pub(super) fn add(&mut self, now: Instant, id: QueuePairId) {
        self.queue.push_back((now + self.span, id));
    }

    pub(super) fn next_due(&mut self, now: Instant) -> Option<QueuePairId> {
        self.queue.pop_front_if(|(due, _)| *due <= now).map(|(_, id)| id)
    }

    fn first(&self) -> Option<Instant> {
        self.queue.front().map(|(due, _)| *due)
    }
}

impl<D: Device> Engine<D> {
    pub(super) fn new(device: D, stack: Stack<D>, memory: Registry, limits: Limits) -> Self {
        Self {
            device,
            stack,
            memory,
            pairs: Pairs::new(),
            listeners: Vec::new(),
            clients: Clients::default(),
            counters: WorkerCounters::default(),
            now: Instant::ZERO,
            output: VecDeque::with_capacity(1024),
            startup_deadlines: Deadlines::new(limits.startup_timeout),
            close_deadlines: Deadlines::new(limits.close_timeout),
            received: Burst::new(),
            limits,
        }
    }

    /// Takes a burst from the port. True when there was one.
    #[inline]
    pub(super) fn fetch(&mut self) -> bool {
        self.device.receive_burst(&mut self.received);
        !self.received.is_empty()
    }

    /// Whether the next turn has something to do even if nothing arrives.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        !self.output.is_empty() || self.clients.have_news() || self.stack.has_ready()
    }

    /// Hands the payload of the burst to the Streams. True when there was one.
    pub(super) fn receive(&mut self) -> bool {
        let busy = !self.received.is_empty();
        for frame in self.received.drain(..) {
            self.stack.receive(frame, &mut self.device, self.now);
        }
        while let Some((connection, events)) = self.stack.next_event() {
            self.handle(connection, events);
        }
        busy
    }

    /// Ends what took too long.
    fn check_deadlines(&mut self) {
        while let Some(id) = self.startup_deadlines.next_due(self.now) {
            self.startup_timed_out(id);
        }
        while let Some(id) = self.close_deadlines.next_due(self.now) {
            self.abort(id, DisconnectReason::TimedOut);
        }
    }

    /// When the worker must take its next turn at the latest, if nothing arrives before.
    pub(super) fn poll_at(&self) -> Option<Instant> {
        if !self.output.is_empty() {
            return Some(self.now);
        }
        let deadlines = [self.startup_deadlines.first(), self.close_deadlines.first()];
        deadlines.into_iter().flatten().chain(self.stack.poll_at(self.now)).min()
    }

    /// Builds FPDUs for every Stream that has something to send and room to send it in.
    pub(super) fn build_output(&mut self) -> bool {
        let mut busy = false;
        for _ in 0..self.output.len() {
            let Some(id) = self.output.pop_front() else { break };
            let Some(pair) = self.pairs.find(id) else { continue };
            pair.in_output = false;
            let Phase::Streaming(streaming) = &mut pair.phase else { continue };
            let connection = pair.connection;
            let client = pair.client;
            let built = Self::build_segments(
                &mut self.device,
                &mut self.stack,
                &mut self.memory,
                &mut self.counters,
                connection,
                streaming,
            );
            busy |= built.segments > 0;
            deliver_completions(&mut self.clients, client, id, streaming);
            if built.more {
                self.wants_output(id);
            }
            self.after_progress(id);
        }
        busy
    }

    /// Does what has become due, or takes too long.
    pub(super) fn poll_timers(&mut self) {
        self.check_deadlines();
        self.stack.poll_timers(&mut self.device, self.now);
    }

    /// Sends what the stack has to send. True when there was something.
    pub(super) fn transmit(&mut self) -> bool {
        self.stack.send_ready(&mut self.device, self.now)
    }

    /// Puts a pair into the output queue, once.
    pub(super) fn wants_output(&mut self, id: QueuePairId) {
        if let Some(pair) = self.pairs.find(id)
            && !pair.in_output
        {
            pair.in_output = true;
            self.output.push_back(id);
        }
    }

    fn handle(&mut self, connection: ConnectionId, events: Events) {
        let id = pair_id(connection);
        if events.contains(Events::ACCEPTED) {
            self.accepted(connection);
        }
        if events.contains(Events::CONNECTED) {
            self.connected(id);
        }
        if events.contains(Events::READABLE) {
            self.feed(id, connection);
        }
        if events.contains(Events::WRITABLE) {
            self.wants_output(id);
        }
        if events.contains(Events::PEER_CLOSED) {
            self.peer_closed(id, connection);
        }
        if events.contains(Events::CLOSED) {
            self.closed(id, connection);
        }
    }

    /// Hands the in-order payload of a connection on.
    fn feed(&mut self, id: QueuePairId, connection: ConnectionId) {
        let Some(mut pair) = self.pairs.find(id) else {
            self.stack.consume(connection, drop);
            return;
        };
        if !matches!(pair.phase, Phase::Streaming(_)) {
            self.feed_startup(id, connection);
            let Some(found) = self.pairs.find(id) else { return };
            pair = found;
        }
        let Phase::Streaming(streaming) = &mut pair.phase else { return };
        let (stream, memory) = (&mut streaming.stream, &mut self.memory);
        self.stack.consume(connection, |frame| stream.receive(Payload(frame), memory));
        deliver_completions(&mut self.clients, pair.client, id, streaming);
        if streaming.stream.has_output() {
            self.wants_output(id);
        }
        self.after_progress(id);
    }

    /// Hands payload on until the Stream is up, whose the rest is, or there is none left.
    #[cold]
    fn feed_startup(&mut self, id: QueuePairId, connection: ConnectionId) {
        loop {
            match self.pairs.find(id).map(|pair| &pair.phase) {
                Some(Phase::Streaming(_)) => return,
                Some(Phase::Requesting(_) | Phase::AwaitingRequest(..) | Phase::AwaitingDecision(_)) => {
                    let Some(frame) = self.stack.receive_payload(connection) else { return };
                    self.stack.release_window(connection, frame.bytes().len());
                    self.startup_octets(id, frame);
                }
                Some(Phase::Connecting(_) | Phase::Closing) | None => {
                    self.stack.consume(connection, drop);
                    return;
                }
            }
        }
    }

    fn build_segments(
        device: &mut D,
        stack: &mut Stack<D>,
        memory: &mut Registry,
        counters: &mut WorkerCounters,
        connection: ConnectionId,
        streaming: &mut Streaming<D::Frame>,
    ) -> Built {
        let mut segments = 0;
        let Some(mut outlet) = stack.outlet(connection) else { return Built { segments, more: false } };
        let mut more = streaming.stream.has_output();
        while more {
            if segments == SEGMENTS_PER_TURN_MAX {
                return Built { segments, more: true };
            }
            // A WRITABLE event follows when the window opens.
            if outlet.room() == 0 {
                counters.window_stalls += 1;
                return Built { segments, more: false };
            }
            let Some(mut frame) = device.allocate() else {
                counters.transmit_frames_exhausted += 1;
                return Built { segments, more: true };
            };
            let emss = outlet.emss();
            frame.push_back(emss.min(frame.tailroom()));
            let built = streaming.stream.build_segment(frame.bytes_mut(), emss, memory);
            if built.len == 0 {
                break;
            }
            more = built.more;
            frame.truncate(built.len);
            segments += 1;
            counters.fpdus_sent += built.fpdus;
            // req 5041-3-3, 5041-3-4: from here on the segment is TCP's, as it is.
            if outlet.send(frame, built.ends_message).is_err() {
                counters.sends_refused += 1;
                break;
            }
        }
        Built { segments, more: false }
    }

    /// Draws the consequences of a Stream's state: nothing, TCP's close, the end.
    pub(super) fn after_progress(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.find(id) else { return };
        let Phase::Streaming(streaming) = &mut pair.phase else { return };
        let connection = pair.connection;
        match streaming.stream.state() {
            StreamState::Operating | StreamState::Closed => {}
            StreamState::Closing => {
                if streaming.stream.is_drained() && !streaming.closing {
                    streaming.closing = true;
                    self.stack.close(connection);
                    self.close_deadlines.add(self.now, id);
                }
            }
            // The Terminate leaves when the window lets it, or not at all.
            StreamState::Terminating => {
                if !streaming.closing {
                    streaming.closing = true;
                    self.close_deadlines.add(self.now, id);
                }
            }
            StreamState::Terminated => {
                let reason = match (streaming.stream.error(), streaming.stream.terminate_received()) {
                    (Some(error), _) => {
                        // An invalid first FPDU is not answered.
                        self.counters.terminates_sent += u64::from(streaming.closing);
                        DisconnectReason::Error(error)
                    }
                    (None, Some(code)) => {
                        self.counters.terminates_received += 1;
                        DisconnectReason::Terminated(code)
                    }
                    (None, None) => DisconnectReason::Peer,
                };
                // req 5041-3-12, 5041-6.2-2: one Stream a connection.
                streaming.ending = Some(reason);
                self.stack.close(connection);
                self.close_deadlines.add(self.now, id);
                self.end_stream(id, reason);
            }
        }
    }
}

/// What one round of building came to.
struct Built {
    segments: usize,
    /// Whether the Stream could go on at once.
    more: bool,
}

/// Moves a Stream's completions to its application.
pub(super) fn deliver_completions<F: Frame>(
    clients: &mut Clients,
    client: ClientId,
    qp: QueuePairId,
    streaming: &mut Streaming<F>,
) {
    while let Some(completion) = streaming.stream.next_completion() {
        clients.port(client).completions.push_back(QueuePairCompletion { qp, completion });
    }
}
