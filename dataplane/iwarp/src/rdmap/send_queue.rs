//! Posted send requests: sent in order, completed in order (RFC 5040 section 5.5).
//!
//! ```text
//! front            sent                   back
//!   | sent, waiting  | being sent | posted |
//!   | for a Read     | or next    |        |
//! ```
//!
//! A Send or Write is complete once its last FPDU is built, a Read or Atomic once its Response is
//! delivered; what overtakes an earlier Read waits for it in front of `sent`.

use std::collections::VecDeque;

use super::completion_queue::CompletionQueue;
use crate::atomic::{AtomicOperation, WORD_LEN};
use crate::ddp::sg_list;
use crate::types::Stag;
use crate::work::{CompletedOperation, Completion, PostError, SendOperation, SendRequest, SgList, Status};

/// A posted request: a [`SendRequest`] without an Atomic's operands, which would make each entry
/// half a cache line longer.
pub(crate) struct Entry {
    id: u64,
    pub(crate) operation: Queued,
    /// Octets of its message; of an Atomic, the word's.
    pub(crate) len: u32,
    state: State,
    signaled: bool,
    pub(crate) fence: bool,
    pub(crate) sg_list: SgList,
}

/// A [`SendOperation`] as it is kept.
#[derive(Clone, Copy)]
pub(crate) enum Queued {
    Send { invalidate: Option<Stag>, solicited: bool },
    Write { stag: Stag, offset: u64 },
    Read { stag: Stag, offset: u64 },
    Atomic { stag: Stag, offset: u64 },
    Immediate { data: [u8; 8], solicited: bool },
}

/// The rest of an Atomic.
struct Word {
    operation: AtomicOperation,
    /// What the word was, once the Response is delivered.
    original: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its message is not wholly sent, or is a Read waiting for its Response.
    Pending,
    /// Over, though maybe not yet at the front.
    Ended(Status),
}

/// Names a request while it is in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// The send queue.
pub(crate) struct SendQueue {
    entries: VecDeque<Entry>,
    depth: usize,
    /// Entries whose message is sent or will never be: `0 <= sent <= entries.len()`.
    sent: usize,
    /// Entries that left at the front, ever: the front's ticket.
    retired: u64,
    /// One for each Atomic among the entries, with its ticket, in their order.
    words: VecDeque<(Ticket, Word)>,
}

impl SendQueue {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            entries: VecDeque::with_capacity(depth),
            depth,
            sent: 0,
            retired: 0,
            words: VecDeque::with_capacity(depth),
        }
    }

    /// Queues a request, or refuses it.
    #[inline]
    pub(crate) fn post(
        &mut self,
        request: SendRequest,
        completions: &CompletionQueue,
    ) -> Result<(), PostError> {
        let len = match request.operation {
            // req 5040-5.2.1-10
            SendOperation::Read { .. } if request.sg_list.len() != 1 => None,
            SendOperation::Atomic { .. } | SendOperation::Immediate { .. } => word_len(&request),
            _ => sg_list::length(&request.sg_list),
        };
        let len = len.ok_or(PostError::BadSgList)?;
        if self.room(completions) == 0 {
            return Err(PostError::QueueFull);
        }
        let operation = match request.operation {
            SendOperation::Send { invalidate, solicited } => Queued::Send { invalidate, solicited },
            SendOperation::Write { stag, offset } => Queued::Write { stag, offset },
            SendOperation::Read { stag, offset } => Queued::Read { stag, offset },
            SendOperation::Atomic { stag, offset, operation } => {
                self.keep_word(operation);
                Queued::Atomic { stag, offset }
            }
            SendOperation::Immediate { data, solicited } => Queued::Immediate { data, solicited },
        };
        let SendRequest { id, sg_list, signaled, fence, .. } = request;
        self.entries.push_back(Entry { id, operation, len, state: State::Pending, signaled, fence, sg_list });
        Ok(())
    }

    /// Keeps the operands of the Atomic that is queued next.
    #[cold]
    fn keep_word(&mut self, operation: AtomicOperation) {
        let ticket = Ticket(self.retired + self.entries.len() as u64);
        self.words.push_back((ticket, Word { operation, original: 0 }));
    }

    /// What the next request, an Atomic, does with the peer's word.
    #[cold]
    pub(crate) fn next_word(&self) -> Option<AtomicOperation> {
        let index = self.word_index(self.next_ticket())?;
        Some(self.words[index].1.operation)
    }

    fn word_index(&self, ticket: Ticket) -> Option<usize> {
        self.words.binary_search_by_key(&ticket, |(ticket, _)| *ticket).ok()
    }

    /// Ends the newest request unsent, because the application closed the Stream before it.
    pub(crate) fn flush_newest(&mut self, completions: &mut CompletionQueue) {
        if let Some(newest) = self.entries.back_mut() {
            newest.state = State::Ended(Status::Flushed);
        }
        self.skip_ended();
        self.retire(completions);
    }

    /// The request to send next, or being sent.
    #[inline]
    pub(crate) fn next(&self) -> Option<&Entry> {
        self.entries.get(self.sent)
    }

    /// The next request's ticket.
    pub(crate) fn next_ticket(&self) -> Ticket {
        Ticket(self.retired + self.sent as u64)
    }

    /// The next request's message is sent, and with it the request complete.
    #[inline]
    pub(crate) fn sent_next(&mut self, completions: &mut CompletionQueue) {
        self.end_next(Status::Success, completions);
    }

    /// The next request's Read Request is sent; its Response completes it.
    pub(crate) fn requested_next(&mut self) {
        self.sent += 1;
        self.skip_ended();
    }

    /// The next request ends, sent or not.
    #[inline]
    pub(crate) fn end_next(&mut self, status: Status, completions: &mut CompletionQueue) {
        self.entries[self.sent].state = State::Ended(status);
        self.sent += 1;
        self.skip_ended();
        self.retire(completions);
    }

    /// A request that was sent ends.
    pub(crate) fn end(&mut self, ticket: Ticket, status: Status, completions: &mut CompletionQueue) {
        let index = usize::try_from(ticket.0 - self.retired).expect("a ticket names a queued request");
        self.entries[index].state = State::Ended(status);
        self.retire(completions);
    }

    /// An Atomic's Response is delivered: its word was `original`.
    pub(crate) fn answered(&mut self, ticket: Ticket, original: u64, completions: &mut CompletionQueue) {
        if let Some(index) = self.word_index(ticket) {
            self.words[index].1.original = original;
        }
        self.end(ticket, Status::Success, completions);
    }

    /// A request keeps the status that the end of the Stream will report.
    pub(crate) fn doom(&mut self, ticket: Ticket, status: Status) {
        let index = usize::try_from(ticket.0 - self.retired).expect("a ticket names a queued request");
        self.entries[index].state = State::Ended(status);
    }

    /// Ends all requests, in order.
    ///
    /// What was sent behind a Read that never completed is flushed with it, because nobody can
    /// tell whether the peer got it.
    // req 5040-6.2.1-2
    pub(crate) fn flush(&mut self, completions: &mut CompletionQueue) {
        for entry in &mut self.entries {
            if matches!(entry.state, State::Pending | State::Ended(Status::Success)) {
                entry.state = State::Ended(Status::Flushed);
            }
        }
        self.sent = self.entries.len();
        self.retire(completions);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Requests that may be posted now.
    #[inline]
    pub(crate) fn room(&self, completions: &CompletionQueue) -> usize {
        self.depth.saturating_sub(self.entries.len() + completions.sends())
    }

    /// Steps over what ended before its turn.
    #[inline]
    fn skip_ended(&mut self) {
        while self.next().is_some_and(|entry| matches!(entry.state, State::Ended(_))) {
            self.sent += 1;
        }
    }

    /// Completes what ended, as far as everything before it did.
    // req 5040-5.5-11
    #[inline]
    fn retire(&mut self, completions: &mut CompletionQueue) {
        while let Some(entry) = self.entries.front()
            && let State::Ended(status) = entry.state
        {
            let word = match entry.operation {
                Queued::Atomic { .. } => self.words.pop_front(),
                _ => None,
            };
            if entry.signaled || status != Status::Success {
                let succeeded = status == Status::Success;
                let original = word.filter(|_| succeeded).map_or(0, |(_, word)| word.original);
                let operation = match entry.operation {
                    Queued::Send { .. } => CompletedOperation::Send,
                    Queued::Write { .. } => CompletedOperation::Write,
                    Queued::Read { .. } => CompletedOperation::Read,
                    Queued::Atomic { .. } => CompletedOperation::Atomic { original },
                    Queued::Immediate { .. } => CompletedOperation::Immediate,
                };
                let len = if succeeded { entry.len } else { 0 };
                completions.push(Completion { id: entry.id, operation, status, len });
            }
            self.entries.pop_front();
            self.sent -= 1;
            self.retired += 1;
        }
    }
}

/// Octets of an Atomic's word or of Immediate Data; none when the request's list does not suit it.
#[cold]
fn word_len(request: &SendRequest) -> Option<u32> {
    let suits = match (request.operation, &request.sg_list[..]) {
        (_, []) => true,
        (SendOperation::Atomic { .. }, [sink]) => sink.len == WORD_LEN,
        _ => false,
    };
    suits.then_some(WORD_LEN)
}
