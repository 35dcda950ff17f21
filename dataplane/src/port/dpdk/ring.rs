//! A wire inside the process: two ports over rings.
//!
//! ```text
//! port A, queue i  transmit -- ring (A to B, i) --> receive  port B, queue i
//!                  receive  <-- ring (B to A, i) -- transmit
//! ```
//!
//! The mbuf itself crosses: the receiver's frame and the sender's held octets share it.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::ffi::CString;
use std::sync::Arc;

use dpdk_sys::{rte_mbuf, rte_ring};
use tcpstack::device::BURST_MAX;

use super::PortConfig;
use super::eal::Environment;
use super::error::{Errno, PortError};
use super::port::{self, Port, RingEnd};
use super::queue::PortQueue;

/// `net_ring_` and the name are a ring's name in DPDK (28 octets).
pub(super) const NAME_MAX: usize = 19;

/// DPDK's limit for a ring port.
const QUEUES_MAX: u16 = 16;

/// The rings of a pair, kept by both ports.
pub(super) struct Wire {
    rings: Vec<NonNull<rte_ring>>,
    /// Outlives the rings.
    _environment: Arc<Environment>,
}

// SAFETY: the rings are used through ports' queues, each end of a ring by one queue, which one thread has at a time.
// This owner touches them only when the last port is closed.
unsafe impl Send for Wire {}
// SAFETY: a shared reference only gives access to nothing of the rings (`forget_device`).
unsafe impl Sync for Wire {}

pub(super) fn pair(
    environment: &Arc<Environment>,
    names: [&str; 2],
    config: &PortConfig,
) -> Result<[(Port, Vec<PortQueue>); 2], PortError> {
    let queues = config.queues.max(1);
    if queues > QUEUES_MAX {
        return Err(PortError::TooManyQueues {
            port: names[0].to_owned(),
            driver: "net_ring".to_owned(),
            most: QUEUES_MAX,
            wanted: queues,
        });
    }
    // A ring is both its sender's transmit ring and its receiver's receive ring.
    let slots =
        u32::from(config.transmit_descriptors.max(config.receive_descriptors)).next_power_of_two().max(64);
    let mut wire = Wire { rings: Vec::new(), _environment: Arc::clone(environment) };
    for _ in 0..2 * queues {
        wire.rings.push(new_ring(environment, slots)?);
    }
    let wire = Arc::new(wire);
    let (forth, back) = wire.rings.split_at(usize::from(queues));

    let mac = config.mac.unwrap_or_else(|| made_up(environment));
    let mut second = mac;
    second[5] = second[5].wrapping_add(1);
    let first_config = PortConfig { mac: None, ..config.clone() };
    let first = new_port(&wire, names[0], back, forth)?;
    let first =
        port::open(environment, first, &first_config, Some(RingEnd { wire: Arc::clone(&wire), mac }))?;
    let other = new_port(&wire, names[1], forth, back)?;
    let end = RingEnd { wire: Arc::clone(&wire), mac: second };
    let other = port::open(environment, other, &first_config, Some(end))?;
    Ok([first, other])
}

fn new_ring(environment: &Environment, slots: u32) -> Result<NonNull<rte_ring>, PortError> {
    let name = format!("iw_wire_{}", environment.lock().next_name());
    let failed = |error| PortError::Driver { port: name.clone(), step: "making a ring", error };
    let c_name = CString::new(name.as_str()).expect("no NUL");
    // SAFETY: a NUL-terminated name that is copied and numbers that are checked. One queue produces, one consumes.
    let ring = unsafe {
        dpdk_sys::rte_ring_create(c_name.as_ptr(), slots, dpdk_sys::IW_SOCKET_ANY, dpdk_sys::IW_RING_SPSC)
    };
    NonNull::new(ring).ok_or_else(|| failed(Errno::last()))
}

fn new_port(
    wire: &Wire,
    name: &str,
    receive: &[NonNull<rte_ring>],
    transmit: &[NonNull<rte_ring>],
) -> Result<u16, PortError> {
    let bad = || PortError::BadName(name.to_owned());
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(bad());
    }
    let c_name = CString::new(name).map_err(|_| bad())?;
    debug_assert!(receive.iter().chain(transmit).all(|ring| wire.rings.contains(ring)));
    let count = u32::try_from(receive.len()).expect("at most 65,535 queues");
    let node = u32::from_ne_bytes(dpdk_sys::IW_SOCKET_ANY.to_ne_bytes());
    // SAFETY: a NUL-terminated name and two arrays of `count` live rings, copied by the callee. The rings outlive the
    // port: `PortShared` keeps the wire until it is closed.
    let port = unsafe {
        dpdk_sys::rte_eth_from_rings(
            c_name.as_ptr(),
            receive.as_ptr().cast(),
            count,
            transmit.as_ptr().cast(),
            count,
            node,
        )
    };
    // Too long, or in use: the number of rings was checked before.
    u16::try_from(port).map_err(|_| bad())
}

/// A locally administered address that no other pair of the process has.
fn made_up(environment: &Environment) -> [u8; 6] {
    let [.., c, d] = (environment.lock().next_name() * 2).to_be_bytes();
    [port::LOCALLY_ADMINISTERED, b'I', b'W', b'R', c, d]
}

impl Wire {
    /// Frees the name of a closed port for another.
    pub(super) fn forget_device(&self, name: &str) {
        if let Ok(name) = CString::new(name) {
            // SAFETY: a virtual device that `rte_eth_from_rings` made and whose port is closed.
            unsafe { dpdk_sys::rte_vdev_uninit(name.as_ptr()) };
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for ring in &self.rings {
            let mut lost: [*mut c_void; BURST_MAX] = [core::ptr::null_mut(); BURST_MAX];
            let most = u32::try_from(BURST_MAX).expect("a small constant");
            loop {
                // SAFETY: a live ring that no port uses any more, and room for `most` pointers.
                let count = unsafe { dpdk_sys::iw_ring_dequeue(ring.as_ptr(), lost.as_mut_ptr(), most) };
                if count == 0 {
                    break;
                }
                // SAFETY: mbufs that were transmitted and not received: their references are ours.
                unsafe { dpdk_sys::rte_pktmbuf_free_bulk(lost.as_mut_ptr().cast::<*mut rte_mbuf>(), count) };
            }
            // SAFETY: made by `rte_ring_create`, used by nobody.
            unsafe { dpdk_sys::rte_ring_free(ring.as_ptr()) };
        }
    }
}
