//! Places on a worker that services can be put into while it runs.
//!
//! A worker takes its applications before it runs; so it gets a few empty slots, each with its own view of
//! the engine, and the control plane hands services over to them. An empty slot costs a worker one look at
//! an empty channel a turn.

use std::sync::Arc;

use crossbeam::channel::{self, Receiver, Sender};
use dataplane::verbs::{Application, Verbs};

use super::{Service, ServiceState, Supervision};

/// A slot's end on the worker.
pub struct Slot {
    inbox: Receiver<Box<dyn Service>>,
    occupant: Option<(Box<dyn Service>, Arc<Supervision>)>,
}

/// A slot's end in the control plane.
#[derive(Clone, Debug)]
pub struct SlotHandle {
    outbox: Sender<Box<dyn Service>>,
    occupant: Option<Arc<Supervision>>,
}

/// All slots of the worker are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the poll core has {0} services already, which is the most; stop one first")]
pub struct NoSlot(pub usize);

impl Slot {
    /// An empty slot.
    pub fn new() -> (Self, SlotHandle) {
        let (outbox, inbox) = channel::bounded(1);
        (Self { inbox, occupant: None }, SlotHandle { outbox, occupant: None })
    }
}

impl Application for Slot {
    fn poll(&mut self, verbs: &mut dyn Verbs) -> bool {
        let Some((service, supervision)) = &mut self.occupant else {
            let Ok(service) = self.inbox.try_recv() else { return false };
            // What is left of the occupant before concerns nobody.
            while verbs.next_completion().is_some() || verbs.next_event().is_some() {}
            let supervision = service.supervision();
            self.occupant = Some((service, supervision));
            return true;
        };
        let busy = service.poll(verbs);
        if !busy && supervision.state() == ServiceState::Stopped {
            self.occupant = None;
        }
        busy
    }
}

/// Puts a service into the first free one of a worker's slots.
///
/// # Errors
/// When none is free.
pub fn place(slots: &mut [SlotHandle], service: Box<dyn Service>) -> Result<(), NoSlot> {
    let supervision = service.supervision();
    for slot in &mut *slots {
        let free = slot.occupant.as_ref().is_none_or(|before| before.state() == ServiceState::Stopped);
        if free {
            slot.occupant = Some(supervision);
            // Bounded at one, and the slot takes it when the service before is gone. The worker's end
            // can only be missing when the worker ended, which its owner is told.
            let _ = slot.outbox.send(service);
            return Ok(());
        }
    }
    Err(NoSlot(slots.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::rping::server::{RpingServer, ServerConfig};
    use crate::services::testing::Fabric;

    fn server() -> RpingServer {
        RpingServer::new(ServerConfig {
            local: "0.0.0.0:7174".parse().unwrap(),
            profile: iwarp::mpa::Profile::default(),
            max_connections: 1,
        })
    }

    #[test]
    fn a_slot_serves_one_service_after_the_other() {
        let fabric = Fabric::new();
        let mut verbs = fabric.verbs(0);
        let (mut slot, handle) = Slot::new();
        let mut handles = [handle];
        assert!(!slot.poll(&mut verbs));
        for _ in 0..3 {
            let service = server();
            let supervision = service.supervision();
            place(&mut handles, Box::new(service)).unwrap();
            assert_eq!(place(&mut handles, Box::new(server())), Err(NoSlot(1)));
            for _ in 0..4 {
                slot.poll(&mut verbs);
            }
            assert_eq!(supervision.state(), ServiceState::Listening);
            supervision.stop();
            for _ in 0..4 {
                slot.poll(&mut verbs);
            }
            assert_eq!(supervision.state(), ServiceState::Stopped);
            assert!(slot.occupant.is_none());
        }
    }
}
