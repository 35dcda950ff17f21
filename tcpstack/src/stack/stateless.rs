//! Segments that no connection sends: resets for what nobody wants, and the answers of half-open
//! connections and of those in TIME-WAIT. They go straight to where their cause came from.

use core::net::IpAddr;

use super::Stack;
use crate::device::Device;
use crate::tcp::ecn::NOT_ECT;
use crate::tcp::input::Reset;
use crate::tcp::options::Options;
use crate::tcp::output::wrap;
use crate::tcp::segment::{Flags, Header, Segment};
use crate::time::Instant;

/// Our address, the peer's, and the Ethernet address to send to.
pub(super) type Way = (IpAddr, IpAddr, [u8; 6]);

impl<D: Device> Stack<D> {
    /// A reset for a segment that nobody wants; never in answer to a reset.
    #[cold]
    pub(super) fn send_reset(
        &mut self,
        reset: Reset,
        segment: &Segment,
        way: Way,
        device: &mut D,
        now: Instant,
    ) {
        if segment.flags.contains(Flags::RST) {
            return;
        }
        if !self.resets.allow(self.config.resets, now) {
            self.counters.resets_limited += 1;
            return;
        }
        let header = Header {
            source_port: segment.destination_port,
            destination_port: segment.source_port,
            seq: reset.seq,
            ack: reset.ack.unwrap_or_default(),
            flags: if reset.ack.is_some() { Flags::RST | Flags::ACK } else { Flags::RST },
            window: 0,
        };
        if self.send_stateless(&header, &Options::default(), way, device) {
            self.counters.resets_sent += 1;
        } else {
            self.counters.resets_limited += 1;
        }
    }

    /// Sends a segment without a connection, straight to where its cause came from.
    pub(super) fn send_stateless(
        &mut self,
        header: &Header,
        options: &Options,
        way: Way,
        device: &mut D,
    ) -> bool {
        let (local, remote, mac) = way;
        if self.out.room() == 0 {
            return false;
        }
        let Some(mut frame) = device.allocate_control() else {
            self.counters.no_frame += 1;
            return false;
        };
        let template = self.interface.header_to(mac, local, remote);
        wrap(&mut frame, header, &options.emit(), &template, NOT_ECT, (!self.offload).then_some(0));
        self.counters.segments_sent += 1;
        self.out.push(frame).is_ok()
    }
}
