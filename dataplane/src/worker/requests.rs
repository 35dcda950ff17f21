//! What applications ask of the engine: posted work and commands.

use iwarp::memory::Accessor;
use iwarp::types::Stag;
use iwarp::work::{ReceiveRequest, SendRequest};
use tcpstack::device::Device;
use tcpstack::time::Instant;

use super::Listener;
use super::clients::{ClientId, WORK_BURST_MAX};
use super::engine::{Engine, deliver_completions};
use super::pair::{Offer, Phase};
use crate::mem::{RegisterError, Scope};
use crate::rings::Work;
use crate::verbs::{
    Command, CommandRingFull, DisconnectReason, Event, ListenError, ListenerId, QueuePairCompletion,
    QueuePairId, Token, Verbs, VerbsError,
};

/// Commands taken from one application's ring a turn.
const COMMANDS_PER_TURN_MAX: usize = 16;

/// The [`Verbs`] of an application on the worker itself: direct calls.
pub(super) struct Direct<'a, D: Device> {
    pub(super) engine: &'a mut Engine<D>,
    pub(super) client: ClientId,
}

impl<D: Device> Verbs for Direct<'_, D> {
    fn post_send(&mut self, qp: QueuePairId, request: SendRequest) -> Result<(), VerbsError> {
        self.engine.post_send(self.client, qp, request)
    }

    fn post_receive(&mut self, qp: QueuePairId, request: ReceiveRequest) -> Result<(), VerbsError> {
        self.engine.post_receive(self.client, qp, request)
    }

    fn submit(&mut self, command: Command) -> Result<(), CommandRingFull> {
        self.engine.execute(self.client, command);
        Ok(())
    }

    fn next_completion(&mut self) -> Option<QueuePairCompletion> {
        self.engine.clients.port(self.client).completions.pop_front()
    }

    fn next_event(&mut self) -> Option<Event> {
        let port = self.engine.clients.port(self.client);
        // A Stream's end is told after its last completion.
        if port.completions.is_empty() { port.events.pop_front() } else { None }
    }

    fn now(&self) -> Instant {
        self.engine.now
    }
}

impl<D: Device> Engine<D> {
    /// Takes what applications behind rings posted. True when there was something.
    #[inline]
    pub(super) fn take_work(&mut self) -> bool {
        let mut busy = false;
        for client in self.clients.ids() {
            if self.clients.port(client).has_work() {
                busy |= self.take_work_of(client);
            }
        }
        busy
    }

    /// Takes the commands of applications behind rings. True when there was one.
    pub(super) fn take_commands(&mut self) -> bool {
        let mut busy = false;
        for client in self.clients.ids() {
            busy |= self.take_commands_of(client);
        }
        busy
    }

    fn take_commands_of(&mut self, client: ClientId) -> bool {
        let mut busy = false;
        for _ in 0..COMMANDS_PER_TURN_MAX {
            let Some(command) = self.clients.port(client).next_command() else { break };
            busy = true;
            match command {
                // What was posted before it is sent first, and comes through another ring.
                Command::Disconnect { qp } if self.owns(client, qp) => {
                    self.clients.port(client).disconnect_after_work(qp);
                }
                command => self.execute(client, command),
            }
        }
        busy
    }

    fn take_work_of(&mut self, client: ClientId) -> bool {
        let mut busy = false;
        for _ in 0..WORK_BURST_MAX {
            let port = self.clients.port(client);
            // req 5042-6.4.3.2-2
            // While its ring of completions is full, it gets no more to complete.
            if !port.completions.is_empty() {
                break;
            }
            let Some(work) = port.next_work() else { break };
            if !self.has_room(&work) {
                // The ring waits behind it, so nothing is lost.
                self.clients.port(client).stalled = Some(work);
                break;
            }
            busy = true;
            self.clients.port(client).work_taken += 1;
            self.post(client, work);
        }
        while let Some(qp) = self.clients.port(client).next_disconnect() {
            self.execute(client, Command::Disconnect { qp });
        }
        busy
    }

    /// Ends the Streams, listeners and registrations of applications that went away.
    pub(super) fn reap_clients(&mut self) {
        for client in self.clients.ids() {
            if !self.clients.port(client).is_gone() {
                continue;
            }
            let orphans: Vec<_> =
                self.pairs.iter().filter(|pair| pair.client == client).map(|pair| pair.id).collect();
            for id in orphans {
                self.abort(id, DisconnectReason::Local);
            }
            self.unlisten_all(client);
            for stag in self.clients.port(client).forget() {
                self.memory.deregister(stag);
            }
        }
    }

    /// Whether the queue that `work` is for can take it; one that does not exist can refuse it.
    fn has_room(&mut self, work: &Work) -> bool {
        let (Work::Send(qp, _) | Work::Receive(qp, _)) = work;
        let Some(pair) = self.pairs.find(*qp) else { return true };
        match (&pair.phase, work) {
            (Phase::Streaming(streaming), Work::Send(..)) => streaming.stream.send_room() > 0,
            (Phase::Streaming(streaming), Work::Receive(..)) => streaming.stream.receive_room() > 0,
            _ => true,
        }
    }

    fn post(&mut self, client: ClientId, work: Work) {
        let refusal = work.refusal();
        let result = match work {
            Work::Send(qp, request) => self.post_send(client, qp, request),
            Work::Receive(qp, request) => self.post_receive(client, qp, request),
        };
        if result.is_err() {
            self.counters.work_refused += 1;
            self.clients.port(client).completions.push_back(refusal);
        }
    }

    fn post_send(
        &mut self,
        client: ClientId,
        qp: QueuePairId,
        request: SendRequest,
    ) -> Result<(), VerbsError> {
        let Some(pair) = self.pairs.find(qp).filter(|pair| pair.client == client) else {
            return Err(VerbsError::UnknownQueuePair);
        };
        let Phase::Streaming(streaming) = &mut pair.phase else {
            return Err(VerbsError::UnknownQueuePair);
        };
        streaming.stream.post_send(request).map_err(VerbsError::Post)?;
        deliver_completions(&mut self.clients, client, qp, streaming);
        self.wants_output(qp);
        Ok(())
    }

    fn post_receive(
        &mut self,
        client: ClientId,
        qp: QueuePairId,
        request: ReceiveRequest,
    ) -> Result<(), VerbsError> {
        let Some(pair) = self.pairs.find(qp).filter(|pair| pair.client == client) else {
            return Err(VerbsError::UnknownQueuePair);
        };
        let Phase::Streaming(streaming) = &mut pair.phase else {
            return Err(VerbsError::UnknownQueuePair);
        };
        streaming.stream.post_receive(request).map_err(VerbsError::Post)?;
        deliver_completions(&mut self.clients, client, qp, streaming);
        Ok(())
    }

    fn execute(&mut self, client: ClientId, command: Command) {
        match command {
            Command::Listen { token, local, profile, backlog } => {
                let event = match self.stack.listen(local, backlog as usize) {
                    Ok(listener) => {
                        let index = listener.index as usize;
                        if index >= self.listeners.len() {
                            self.listeners.resize_with(index + 1, || None);
                        }
                        let id = ListenerId(listener.index);
                        self.listeners[index] = Some(Listener { client, profile, local, listener });
                        Event::Listening { token, listener: id }
                    }
                    Err(error) => Event::ListenFailed { token, error: listen_error(error) },
                };
                self.clients.event(client, event);
            }
            Command::Unlisten { listener } => self.unlisten(client, listener),
            Command::Connect { token, remote, profile, private_data, attributes, receives } => {
                let offer = Offer { profile, private_data, attributes, receives };
                self.connect(client, token, remote, offer);
            }
            Command::Accept { qp, private_data, attributes, receives } => {
                if self.owns(client, qp) {
                    self.accept(qp, &private_data, &attributes, receives);
                }
            }
            Command::Reject { qp, private_data } => {
                if self.owns(client, qp) {
                    self.reject(qp, &private_data);
                }
            }
            Command::Register { token, domain, region, rights } => {
                let result = self.memory.register(client.domain(domain), Scope::Domain, region, rights);
                self.registered(client, token, result);
            }
            // req 5041-8.2-4, 5041-8.3-3
            Command::RegisterForStream { token, qp, region, rights } => {
                let result = match self.accessor_of(client, qp) {
                    Some(Accessor { domain, stream }) => {
                        self.memory.register(domain, Scope::Stream(stream), region, rights)
                    }
                    None => Err(RegisterError::NoStream),
                };
                self.registered(client, token, result);
            }
            // req 5041-8.3.1-6, 5041-8.3.1-7, 5042-6.2.2-2
            Command::Deregister { token, stag } => {
                // This core alone places and reads, so nothing is in flight between its steps.
                let owned = self.clients.port(client).registered.remove(&stag);
                let found = owned && self.memory.deregister(stag);
                self.clients.event(client, Event::Deregistered { token, found });
            }
            Command::Disconnect { qp } => {
                if self.owns(client, qp) {
                    self.disconnect(qp);
                }
            }
            Command::Abort { qp } => {
                if self.owns(client, qp) {
                    self.abort(qp, DisconnectReason::Local);
                }
            }
        }
    }

    fn registered(&mut self, client: ClientId, token: Token, result: Result<Stag, RegisterError>) {
        let event = match result {
            Ok(stag) => {
                self.clients.port(client).registered.insert(stag);
                Event::Registered { token, stag }
            }
            Err(error) => Event::RegisterFailed { token, error },
        };
        self.clients.event(client, event);
    }

    /// On whose behalf a Stream of this application accesses memory; none without one.
    fn accessor_of(&mut self, client: ClientId, qp: QueuePairId) -> Option<Accessor> {
        let pair = self.pairs.find(qp).filter(|pair| pair.client == client)?;
        let Phase::Streaming(streaming) = &pair.phase else { return None };
        Some(streaming.accessor)
    }

    // req 5041-8.3-5, 5041-8.3.2-1, 5041-8.3.2-2, 5042-3-1
    fn owns(&mut self, client: ClientId, qp: QueuePairId) -> bool {
        self.pairs.find(qp).is_some_and(|pair| pair.client == client)
    }

    fn unlisten(&mut self, client: ClientId, id: ListenerId) {
        let Some(slot) = self.listeners.get_mut(id.0 as usize) else { return };
        if let Some(listener) = slot.take_if(|listener| listener.client == client) {
            self.stack.unlisten(listener.listener);
        }
    }

    fn unlisten_all(&mut self, client: ClientId) {
        for index in 0..self.listeners.len() {
            let id = ListenerId(u32::try_from(index).expect("listeners have 32-bit indices"));
            self.unlisten(client, id);
        }
    }
}

fn listen_error(error: tcpstack::stack::ListenError) -> ListenError {
    use tcpstack::stack::ListenError as Tcp;
    match error {
        Tcp::InUse => ListenError::AddressInUse,
        Tcp::NotOurs => ListenError::AddressNotAvailable,
        Tcp::Invalid => ListenError::Invalid,
        Tcp::Full => ListenError::TooMany,
    }
}
