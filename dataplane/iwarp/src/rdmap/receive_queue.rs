//! Posted receive requests: one for each Send or Immediate Data of the peer, in order (RFC 5040
//! section 5.3, RFC 7306 section 6.3).

use std::collections::VecDeque;

use super::RdmapError;
use super::completion_queue::CompletionQueue;
use crate::atomic::WORD_LEN;
use crate::ddp::sg_list::{self, SgCursor};
use crate::ddp::untagged::UntaggedReceiver;
use crate::ddp::{DdpError, Payload, Queue};
use crate::error::StreamError;
use crate::memory::{Accessor, Memory};
use crate::wire::rdmap::Opcode;
use crate::work::{CompletedOperation, Completion, PostError, ReceiveRequest, Status};

/// A posted request.
struct Entry {
    request: ReceiveRequest,
    /// Octets that it can take.
    capacity: u32,
}

/// The receive queue, and with it untagged queue 0.
pub(crate) struct ReceiveQueue {
    entries: VecDeque<Entry>,
    depth: usize,
    queue: UntaggedReceiver,
    /// Where in the front request the next octet goes.
    cursor: SgCursor,
    /// Of the message that is arriving.
    opcode: Option<Opcode>,
    /// The Immediate Data that is arriving.
    immediate: [u8; WORD_LEN as usize],
    /// Why the front request failed, for the end of the Stream to report.
    failure: Option<Status>,
}

/// A segment of a Send.
pub(crate) struct SendSegment {
    pub(crate) opcode: Opcode,
    pub(crate) last: bool,
    pub(crate) msn: u32,
    pub(crate) offset: u32,
}

impl ReceiveQueue {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            entries: VecDeque::with_capacity(depth),
            depth,
            queue: UntaggedReceiver::new(Queue::Send),
            cursor: SgCursor::default(),
            opcode: None,
            immediate: [0; WORD_LEN as usize],
            failure: None,
        }
    }

    /// Queues a request, or refuses it.
    #[inline]
    pub(crate) fn post(
        &mut self,
        request: ReceiveRequest,
        completions: &CompletionQueue,
    ) -> Result<(), PostError> {
        let capacity = sg_list::length(&request.sg_list).ok_or(PostError::BadSgList)?;
        if self.room(completions) == 0 {
            return Err(PostError::QueueFull);
        }
        self.entries.push_back(Entry { request, capacity });
        Ok(())
    }

    /// Checks and places a segment; the message's length when that was the last one.
    #[inline]
    pub(crate) fn place<P: Payload, M: Memory>(
        &mut self,
        segment: &SendSegment,
        payload: &P,
        memory: &mut M,
        who: Accessor,
    ) -> Result<Option<u32>, StreamError> {
        let front = self.entries.front();
        let len = payload.len();
        let capacity = front.map(|entry| entry.capacity);
        if let Err(error) = self.queue.check(segment.msn, segment.offset, len as usize, capacity) {
            if matches!(error, DdpError::MessageTooLong(_)) {
                self.failure = Some(Status::LengthError);
            }
            return Err(error.into());
        }
        // req 5041-4.3-4: the octet that holds the opcode is the same in all segments.
        if *self.opcode.get_or_insert(segment.opcode) != segment.opcode {
            return Err(RdmapError::UnexpectedOpcode.into());
        }
        if let Some(entry) = front.filter(|_| len > 0) {
            let list = &entry.request.sg_list;
            sg_list::scatter(memory, who, list, &mut self.cursor, len, payload.pieces()).map_err(
                |error| {
                    self.failure = Some(Status::LocalAccess);
                    DdpError::ReceiveBuffer(error)
                },
            )?;
        }
        Ok(self.queue.placed(len, segment.last))
    }

    /// Checks and takes a segment of Immediate Data; all of it when that was the last one. It consumes
    /// a request as a Send does, whose octets stay as they are.
    // req 7306-6.3-8: not fewer and not more.
    pub(crate) fn place_immediate<P: Payload>(
        &mut self,
        segment: &SendSegment,
        payload: &P,
    ) -> Result<Option<[u8; WORD_LEN as usize]>, StreamError> {
        let len = payload.len();
        let capacity = self.entries.front().map(|_| WORD_LEN);
        self.queue.check(segment.msn, segment.offset, len as usize, capacity).map_err(|error| {
            // The request's size is not what is too small.
            if matches!(error, DdpError::MessageTooLong(_)) {
                RdmapError::ImmediateLength.into()
            } else {
                StreamError::from(error)
            }
        })?;
        if *self.opcode.get_or_insert(segment.opcode) != segment.opcode {
            return Err(RdmapError::UnexpectedOpcode.into());
        }
        let at = segment.offset as usize;
        payload.gather(&mut self.immediate[at..at + len as usize]);
        match self.queue.placed(len, segment.last) {
            None => Ok(None),
            Some(WORD_LEN) => Ok(Some(self.immediate)),
            Some(_) => Err(RdmapError::ImmediateLength.into()),
        }
    }

    /// Takes a message that consumes no request: the RTR indication.
    pub(crate) fn pass_over(&mut self, msn: u32, offset: u32) -> Result<(), DdpError> {
        self.queue.check(msn, offset, 0, Some(0))?;
        self.queue.placed(0, true);
        Ok(())
    }

    /// Completes the front request: the Send of `len` octets is delivered.
    // req 5040-5.3-3, 5040-5.3-4, 5040-5.3-5, 5041-4.1-7, 5041-5.3-6, 5041-5.3-7
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        operation: CompletedOperation,
        len: u32,
        completions: &mut CompletionQueue,
    ) {
        let entry = self.entries.pop_front().expect("a placed message has a request");
        self.cursor = SgCursor::default();
        self.opcode = None;
        completions.push(Completion { id: entry.request.id, operation, status: Status::Success, len });
    }

    /// Ends all requests, in order.
    pub(crate) fn flush(&mut self, completions: &mut CompletionQueue) {
        let operation = CompletedOperation::Receive { invalidated: None, solicited: false };
        while let Some(entry) = self.entries.pop_front() {
            let status = self.failure.take().unwrap_or(Status::Flushed);
            completions.push(Completion { id: entry.request.id, operation, status, len: 0 });
        }
    }

    /// Requests that may be posted now.
    #[inline]
    pub(crate) fn room(&self, completions: &CompletionQueue) -> usize {
        self.depth.saturating_sub(self.entries.len() + completions.receives())
    }
}
