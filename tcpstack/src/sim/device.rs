//! A port of the wire as a [`Device`].

use core::cell::RefCell;
use std::rc::Rc;

use super::frame::{SimFrame, SimPool};
use super::wire::Inner;
use crate::device::{Burst, Capabilities, Device};

/// Properties of a port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Ethernet address and offloads.
    pub capabilities: Capabilities,
    /// Frames for [`Device::allocate`].
    pub data_frames: usize,
    /// Frames for [`Device::allocate_control`].
    pub control_frames: usize,
    /// Frames that can be received and not yet dropped.
    pub receive_frames: usize,
    /// Frames that wait to be received; more are dropped.
    pub receive_ring: usize,
    /// Frames that wait to be sent; more are not taken.
    pub transmit_ring: usize,
}

impl PortConfig {
    /// The port number `index` of a wire: an address of its own, no offloads, ample pools.
    pub fn new(index: u8) -> Self {
        Self {
            capabilities: Capabilities {
                mac: [0x02, 0, 0, 0, 0, index + 1],
                mtu: 1500,
                receive_checksum: false,
                transmit_checksum: false,
            },
            data_frames: 4096,
            control_frames: 256,
            receive_frames: 4096,
            receive_ring: 1024,
            transmit_ring: 1024,
        }
    }

    /// The same with another MTU.
    #[must_use]
    pub fn mtu(mut self, mtu: usize) -> Self {
        self.capabilities.mtu = mtu;
        self
    }

    /// The same with checksums computed and verified by the port.
    #[must_use]
    pub fn offloads(mut self) -> Self {
        self.capabilities.receive_checksum = true;
        self.capabilities.transmit_checksum = true;
        self
    }
}

/// One end of a [`Wire`](super::Wire).
#[derive(Debug)]
pub struct SimDevice {
    wire: Rc<RefCell<Inner>>,
    port: usize,
    capabilities: Capabilities,
    data: SimPool,
    control: SimPool,
}

impl SimDevice {
    pub(super) fn new(wire: Rc<RefCell<Inner>>, port: usize) -> Self {
        let (capabilities, data, control) = {
            let inner = wire.borrow();
            let port = inner.port(port);
            (port.capabilities().clone(), port.data.clone(), port.control.clone())
        };
        Self { wire, port, capabilities, data, control }
    }

    /// The pool of [`Device::allocate`].
    pub fn data_pool(&self) -> &SimPool {
        &self.data
    }

    /// The pool of [`Device::allocate_control`].
    pub fn control_pool(&self) -> &SimPool {
        &self.control
    }
}

impl Device for SimDevice {
    type Frame = SimFrame;

    fn receive_burst(&mut self, frames: &mut Burst<SimFrame>) {
        self.wire.borrow_mut().receive(self.port, frames);
    }

    fn transmit_burst(&mut self, frames: &mut Burst<SimFrame>) {
        self.wire.borrow_mut().transmit(self.port, frames);
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        if self.wire.borrow_mut().allocation_fails(self.port) {
            return None;
        }
        self.data.allocate()
    }

    fn allocate_control(&mut self) -> Option<SimFrame> {
        if self.wire.borrow_mut().allocation_fails(self.port) {
            return None;
        }
        self.control.allocate()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
}
