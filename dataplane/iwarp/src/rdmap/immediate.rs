//! Immediate Data, both ways (RFC 7306 section 6): a Send of 8 octets that end up in the completion.

use super::endpoint::Endpoint;
use super::receive_queue::SendSegment;
use crate::atomic::WORD_LEN;
use crate::ddp::Payload;
use crate::ddp::segmenter::Cut;
use crate::error::StreamError;
use crate::wire::ddp::Header;
use crate::wire::rdmap::{Opcode, QUEUE_SEND};
use crate::work::CompletedOperation;

impl Endpoint {
    // req 7306-6.3-1, 7306-6.3-2, 7306-6.3-5, 7306-6.3-6
    pub(super) fn plan_immediate(&self, solicited: bool) -> (Header, Cut) {
        let opcode = if solicited { Opcode::ImmediateDataSolicited } else { Opcode::ImmediateData };
        let cut = Cut { offset: 0, len: WORD_LEN, last: true };
        (self.untagged(opcode, 0, QUEUE_SEND, self.outgoing.send_msn, true), cut)
    }

    /// Takes a segment of Immediate Data; whole ones complete the oldest receive request.
    // req 7306-6.3-3, 7306-6.3-4
    #[cold]
    pub(super) fn immediate<P: Payload>(
        &mut self,
        segment: &SendSegment,
        payload: &P,
    ) -> Result<(), StreamError> {
        let Some(data) = self.receives.place_immediate(segment, payload)? else { return Ok(()) };
        let solicited = segment.opcode == Opcode::ImmediateDataSolicited;
        let operation = CompletedOperation::ReceiveImmediate { data, solicited };
        self.receives.deliver(operation, WORD_LEN, &mut self.completions);
        Ok(())
    }
}
