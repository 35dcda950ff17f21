//! Connections from TCP's SYN to their end: MPA start-up, and telling applications.

use iwarp::memory::Accessor;
use iwarp::mpa::{Initiator, InitiatorOutcome, Negotiated, PeerDepths, Responder};
use iwarp::stream::{Stream, StreamLimits, StreamState};
use iwarp::types::StreamId;
use iwarp::work::ReceiveRequest;
use tcpstack::device::{Device, Frame};
use tcpstack::stack::{CloseReason, ConnectionId};

use super::clients::{ClientId, EVENTS_WAITING_MAX};
use super::engine::{Engine, deliver_completions};
use super::pair::{Offer, Pair, Payload, Phase, Streaming, pair_id};
use crate::rings::Work;
use crate::verbs::{
    ConnectError, DisconnectReason, Event, ListenerId, QueuePairAttributes, QueuePairId, Token,
};

impl<D: Device> Engine<D> {
    /// A listener's TCP handshake is complete: wait for the MPA Request.
    pub(super) fn accepted(&mut self, connection: ConnectionId) {
        let listener = self.stack.listener_of(connection);
        let found = listener.and_then(|it| {
            let index = it.index;
            self.listeners.get(index as usize)?.as_ref().map(|listener| (index, listener))
        });
        let Some((index, listener)) = found else {
            // The listener went away while the handshake was under way.
            self.stack.abort(connection, self.now);
            self.stack.release(connection);
            return;
        };
        // req 5042-6.4.1-1
        let unheard = self.clients.port(listener.client).events.len();
        if self.pairs.len() >= self.limits.connections_max || unheard >= EVENTS_WAITING_MAX {
            self.counters.connections_refused += 1;
            self.stack.abort(connection, self.now);
            self.stack.release(connection);
            return;
        }
        let id = pair_id(connection);
        let responder = Box::new(Responder::new(listener.profile.clone()));
        self.pairs.insert(Pair {
            id,
            connection,
            client: listener.client,
            token: Token::default(),
            phase: Phase::AwaitingRequest(ListenerId(index), responder),
            in_output: false,
        });
        self.startup_deadlines.add(self.now, id);
    }

    /// Our own TCP connection is up: send the MPA Request.
    pub(super) fn connected(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.find(id) else { return };
        let Phase::Connecting(offer) = std::mem::replace(&mut pair.phase, Phase::Closing) else {
            return;
        };
        let connection = pair.connection;
        match Initiator::start(offer.profile.clone(), &offer.private_data) {
            Ok((initiator, request)) => {
                pair.phase = Phase::Requesting(Box::new((initiator, *offer)));
                self.startup_deadlines.add(self.now, id);
                self.send_octets(connection, &request);
            }
            Err(_) => self.connect_failed(id, ConnectError::PrivateDataTooLong),
        }
    }

    /// Octets that arrived before the Stream is up.
    pub(super) fn startup_octets(&mut self, id: QueuePairId, mut frame: D::Frame) {
        let Some(pair) = self.pairs.find(id) else { return };
        match &mut pair.phase {
            Phase::Requesting(startup) => match startup.0.receive(frame.bytes()) {
                Ok((_, None)) => {}
                Ok((consumed, Some(InitiatorOutcome::Accepted { negotiated, private_data, depths }))) => {
                    let Phase::Requesting(startup) = std::mem::replace(&mut pair.phase, Phase::Closing)
                    else {
                        return;
                    };
                    let offer = startup.1;
                    self.start_stream(id, negotiated, &offer.attributes, offer.receives);
                    self.established(id, negotiated, depths, private_data);
                    frame.trim_front(consumed);
                    if !frame.bytes().is_empty() {
                        self.feed_stream(id, frame);
                    }
                }
                Ok((_, Some(InitiatorOutcome::Rejected { private_data, depths, .. }))) => {
                    self.rejected(id, depths, private_data);
                }
                Ok((_, Some(InitiatorOutcome::Disagreed { error, terminate }))) => {
                    let connection = pair.connection;
                    self.counters.mpa_startups_failed += 1;
                    self.counters.terminates_sent += 1;
                    self.send_octets(connection, &terminate);
                    self.connect_failed(id, ConnectError::Mpa(error));
                }
                Err(error) => {
                    self.counters.mpa_startups_failed += 1;
                    self.connect_failed(id, ConnectError::Mpa(error));
                }
            },
            Phase::AwaitingRequest(listener, responder) => match responder.receive(frame.bytes()) {
                Ok((_, None)) => {}
                Ok((consumed, Some(request))) if consumed == frame.bytes().len() => {
                    let (listener, client) = (*listener, pair.client);
                    let (private_data, depths) = (request.private_data.to_vec(), request.depths);
                    pair.phase = Phase::AwaitingDecision(Box::new(request));
                    let remote = self.stack.info(pair.connection).map(|info| info.remote);
                    let Some(remote) = remote else { return };
                    let event = Event::ConnectRequest { listener, qp: id, remote, depths, private_data };
                    self.clients.event(client, event);
                }
                // Nothing may follow the Request before the Reply.
                // req 5044-8-5
                Ok(_) | Err(_) => {
                    self.counters.mpa_startups_failed += 1;
                    self.drop_silently(id);
                }
            },
            Phase::AwaitingDecision(_) => {
                self.counters.mpa_startups_failed += 1;
                let client = pair.client;
                self.drop_silently(id);
                let reason = DisconnectReason::Reset;
                self.clients.event(client, Event::Disconnected { qp: id, reason });
            }
            Phase::Connecting(_) | Phase::Streaming(_) | Phase::Closing => {}
        }
    }

    /// The application accepted a request: send the Reply and start the Stream.
    pub(super) fn accept(
        &mut self,
        id: QueuePairId,
        private_data: &[u8],
        attributes: &QueuePairAttributes,
        receives: Vec<ReceiveRequest>,
    ) {
        let Some(pair) = self.pairs.find(id) else { return };
        if !matches!(pair.phase, Phase::AwaitingDecision(_)) {
            return;
        }
        let Phase::AwaitingDecision(request) = std::mem::replace(&mut pair.phase, Phase::Closing) else {
            return;
        };
        let (connection, client) = (pair.connection, pair.client);
        let depths = request.depths;
        match request.accept(private_data) {
            Ok((reply, negotiated)) => {
                self.start_stream(id, negotiated, attributes, receives);
                self.send_octets(connection, &reply);
                self.established(id, negotiated, depths, Vec::new());
            }
            Err(_) => {
                self.counters.mpa_startups_failed += 1;
                self.drop_silently(id);
                let reason = DisconnectReason::PrivateDataTooLong;
                self.clients.event(client, Event::Disconnected { qp: id, reason });
            }
        }
    }

    /// The application refused a request: say so to the peer.
    pub(super) fn reject(&mut self, id: QueuePairId, private_data: &[u8]) {
        let Some(pair) = self.pairs.find(id) else { return };
        let Phase::AwaitingDecision(request) = &pair.phase else { return };
        // Private data that does not fit is left out: the peer still learns of the refusal.
        let reply = request.reject(private_data).or_else(|_| request.reject(&[]));
        let connection = pair.connection;
        pair.phase = Phase::Closing;
        if let Ok(reply) = reply {
            self.send_octets(connection, &reply);
        }
        self.stack.close(connection);
        self.close_deadlines.add(self.now, id);
    }

    /// Begins an active open.
    pub(super) fn connect(
        &mut self,
        client: ClientId,
        token: Token,
        remote: std::net::SocketAddr,
        offer: Offer,
    ) {
        let refused = |error| Event::ConnectFailed { token, error, depths: None, private_data: Vec::new() };
        if self.pairs.len() >= self.limits.connections_max {
            self.clients.event(client, refused(ConnectError::TooMany));
            return;
        }
        match self.stack.connect(remote, None, self.now) {
            Ok(connection) => self.pairs.insert(Pair {
                id: pair_id(connection),
                connection,
                client,
                token,
                phase: Phase::Connecting(Box::new(offer)),
                in_output: false,
            }),
            Err(tcpstack::stack::ConnectError::NoRoute) => {
                self.clients.event(client, refused(ConnectError::NoRoute));
            }
            Err(tcpstack::stack::ConnectError::InvalidRemote) => {
                self.clients.event(client, refused(ConnectError::NotAHost));
            }
            Err(_) => self.clients.event(client, refused(ConnectError::TooMany)),
        }
    }

    /// Ends a Stream in order: what is posted is sent first.
    pub(super) fn disconnect(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.find(id) else { return };
        if let Phase::Streaming(streaming) = &mut pair.phase {
            if streaming.ending.is_none() {
                streaming.ending = Some(DisconnectReason::Local);
                streaming.stream.close();
            }
            self.wants_output(id);
            self.after_progress(id);
        } else {
            self.abort(id, DisconnectReason::Local);
        }
    }

    /// Ends a connection at once, in whatever phase.
    pub(super) fn abort(&mut self, id: QueuePairId, reason: DisconnectReason) {
        let Some(pair) = self.pairs.find(id) else { return };
        let (connection, client) = (pair.connection, pair.client);
        match &pair.phase {
            Phase::Connecting(_) | Phase::Requesting(_) => {
                self.connect_failed(id, ConnectError::Aborted);
            }
            Phase::Streaming(_) => self.end_stream(id, reason),
            Phase::AwaitingDecision(_) => {
                self.clients.event(client, Event::Disconnected { qp: id, reason });
            }
            Phase::AwaitingRequest(..) | Phase::Closing => {}
        }
        self.stack.abort(connection, self.now);
        self.finish(connection);
    }

    /// The peer sent all that it will ever send.
    // req 5041-3-10, 5041-3-11
    pub(super) fn peer_closed(&mut self, id: QueuePairId, connection: ConnectionId) {
        let Some(pair) = self.pairs.find(id) else { return };
        match &mut pair.phase {
            // TCP still sends after the peer's FIN: the Terminate that is due goes first.
            Phase::Streaming(streaming) if streaming.stream.state() == StreamState::Terminating => {
                self.wants_output(id);
                return;
            }
            Phase::Streaming(streaming) => {
                streaming.stream.peer_closed();
                let reason = streaming.ending.unwrap_or(DisconnectReason::Peer);
                self.end_stream(id, reason);
            }
            Phase::Connecting(_) | Phase::Requesting(_) => {
                self.connect_failed(id, ConnectError::ClosedByPeer);
            }
            Phase::AwaitingDecision(_) => {
                let client = pair.client;
                pair.phase = Phase::Closing;
                let reason = DisconnectReason::Peer;
                self.clients.event(client, Event::Disconnected { qp: id, reason });
            }
            Phase::AwaitingRequest(..) => pair.phase = Phase::Closing,
            Phase::Closing => {}
        }
        self.stack.close(connection);
        self.close_deadlines.add(self.now, id);
    }

    /// TCP is done with a connection, in one way or another.
    pub(super) fn closed(&mut self, id: QueuePairId, connection: ConnectionId) {
        let reason = self.stack.close_reason(connection);
        if let Some(pair) = self.pairs.find(id) {
            match &mut pair.phase {
                Phase::Connecting(_) | Phase::Requesting(_) => {
                    let error = match reason {
                        CloseReason::Refused => ConnectError::Refused,
                        CloseReason::TimedOut => ConnectError::TimedOut,
                        CloseReason::Unreachable => ConnectError::Unreachable,
                        _ => ConnectError::ClosedByPeer,
                    };
                    self.connect_failed(id, error);
                }
                Phase::Streaming(streaming) => {
                    let reason = streaming.ending.unwrap_or(match reason {
                        CloseReason::Graceful => DisconnectReason::Peer,
                        CloseReason::TimedOut | CloseReason::Unreachable => DisconnectReason::TimedOut,
                        CloseReason::Aborted => DisconnectReason::Local,
                        CloseReason::Reset | CloseReason::Refused => DisconnectReason::Reset,
                    });
                    self.end_stream(id, reason);
                }
                Phase::AwaitingDecision(_) => {
                    let client = pair.client;
                    let reason = DisconnectReason::Reset;
                    self.clients.event(client, Event::Disconnected { qp: id, reason });
                }
                Phase::AwaitingRequest(..) | Phase::Closing => {}
            }
        }
        self.finish(connection);
    }

    /// MPA start-up took too long.
    // req 5044-7.1.2-17, 5044-7.1.2-21
    pub(super) fn startup_timed_out(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.find(id) else { return };
        match &pair.phase {
            Phase::Requesting(_) => {
                self.counters.mpa_startups_failed += 1;
                self.connect_failed(id, ConnectError::TimedOut);
            }
            Phase::AwaitingRequest(..) => {
                self.counters.mpa_startups_failed += 1;
                self.drop_silently(id);
            }
            Phase::AwaitingDecision(_) => {
                let client = pair.client;
                self.counters.mpa_startups_failed += 1;
                self.drop_silently(id);
                let reason = DisconnectReason::TimedOut;
                self.clients.event(client, Event::Disconnected { qp: id, reason });
            }
            Phase::Connecting(_) | Phase::Streaming(_) | Phase::Closing => {}
        }
    }

    /// Flushes a Stream's queues, then tells the application that it ended.
    pub(super) fn end_stream(&mut self, id: QueuePairId, reason: DisconnectReason) {
        let Some(pair) = self.pairs.find(id) else { return };
        let Phase::Streaming(streaming) = &mut pair.phase else { return };
        // An error that was found is the reason, whatever the peer did in the meantime.
        let reason = match streaming.stream.error() {
            Some(error) => DisconnectReason::Error(error),
            None => streaming.ending.unwrap_or(reason),
        };
        streaming.stream.fail();
        deliver_completions(&mut self.clients, pair.client, id, streaming);
        pair.phase = Phase::Closing;
        let client = pair.client;
        self.counters.streams_ended += 1;
        self.clients.event(client, Event::Disconnected { qp: id, reason });
    }

    /// Forgets a connection that TCP is done with.
    pub(super) fn finish(&mut self, connection: ConnectionId) {
        self.pairs.remove(pair_id(connection));
        self.stack.release(connection);
    }

    fn start_stream(
        &mut self,
        id: QueuePairId,
        negotiated: Negotiated,
        attributes: &QueuePairAttributes,
        receives: Vec<ReceiveRequest>,
    ) {
        let Some(pair) = self.pairs.find(id) else { return };
        let stream = StreamId(u64::from(id.generation) << 32 | u64::from(id.index));
        let accessor = Accessor { domain: pair.client.domain(attributes.domain), stream };
        let limits =
            StreamLimits { send_depth: attributes.send_depth, receive_depth: attributes.receive_depth };
        let mut stream = Stream::new(&negotiated, accessor, limits);
        for receive in receives {
            let work = Work::Receive(id, receive.clone());
            if stream.post_receive(receive).is_err() {
                // More than its own queue holds: the application's mistake, told by a flush.
                self.clients.port(pair.client).completions.push_back(work.refusal());
            }
        }
        let streaming = Streaming { stream, accessor, negotiated, ending: None, closing: false };
        // req 5044-7.1-4
        pair.phase = Phase::Streaming(Box::new(streaming));
    }

    fn established(
        &mut self,
        id: QueuePairId,
        negotiated: Negotiated,
        depths: Option<PeerDepths>,
        private_data: Vec<u8>,
    ) {
        let Some(pair) = self.pairs.find(id) else { return };
        let event = Event::Established { token: pair.token, qp: id, private_data, negotiated, depths };
        let client = pair.client;
        self.counters.streams_established += 1;
        self.clients.event(client, event);
        // The initiator's RTR frame, if one was agreed on.
        self.wants_output(id);
    }

    fn feed_stream(&mut self, id: QueuePairId, frame: D::Frame) {
        let Some(pair) = self.pairs.find(id) else { return };
        if let Phase::Streaming(streaming) = &mut pair.phase {
            streaming.stream.receive(Payload(frame), &mut self.memory);
        }
    }

    fn connect_failed(&mut self, id: QueuePairId, error: ConnectError) {
        self.connect_ended(id, error, None, Vec::new());
    }

    /// The Responder's application sent a Reject.
    fn rejected(&mut self, id: QueuePairId, depths: Option<PeerDepths>, private_data: Vec<u8>) {
        self.connect_ended(id, ConnectError::Rejected, depths, private_data);
    }

    fn connect_ended(
        &mut self,
        id: QueuePairId,
        error: ConnectError,
        depths: Option<PeerDepths>,
        private_data: Vec<u8>,
    ) {
        let Some(pair) = self.pairs.find(id) else { return };
        let (client, token, connection) = (pair.client, pair.token, pair.connection);
        pair.phase = Phase::Closing;
        self.clients.event(client, Event::ConnectFailed { token, error, depths, private_data });
        self.stack.close(connection);
        self.close_deadlines.add(self.now, id);
    }

    /// Closes TCP below a Stream that has ended, or resets what never became one.
    pub(super) fn close_for_good(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.find(id) else { return };
        let connection = pair.connection;
        if matches!(pair.phase, Phase::Closing) {
            self.stack.close(connection);
            self.close_deadlines.add(self.now, id);
        } else {
            self.abort(id, DisconnectReason::Stopped);
        }
    }

    /// Resets a connection that no application knows of.
    fn drop_silently(&mut self, id: QueuePairId) {
        let Some(pair) = self.pairs.find(id) else { return };
        let connection = pair.connection;
        self.stack.abort(connection, self.now);
        self.finish(connection);
    }

    /// Sends a start-up frame, in one segment.
    // Start-up frames are far smaller than any EMSS but the smallest.
    fn send_octets(&mut self, connection: ConnectionId, octets: &[u8]) {
        let emss = self.stack.emss(connection).max(1);
        for part in octets.chunks(emss) {
            let Some(mut frame) = self.device.allocate_control().or_else(|| self.device.allocate()) else {
                // The peer's start-up timer and ours end this connection.
                self.counters.transmit_frames_exhausted += 1;
                return;
            };
            frame.push_back(part.len());
            frame.bytes_mut().copy_from_slice(part);
            if self.stack.send(connection, frame, true).is_err() {
                self.counters.sends_refused += 1;
                return;
            }
        }
    }
}
