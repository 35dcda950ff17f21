//! Completions that the application has not taken.

use std::collections::VecDeque;

use crate::work::Completion;

/// Completions of both queues, oldest first.
///
/// A request keeps its place in its queue's depth until its completion is taken, so that this
/// never holds more than both depths together.
pub(crate) struct CompletionQueue {
    ring: VecDeque<Completion>,
    /// How many in `ring` are of the receive queue.
    receives: usize,
}

impl CompletionQueue {
    pub(crate) fn new(depth: usize) -> Self {
        Self { ring: VecDeque::with_capacity(depth), receives: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, completion: Completion) {
        debug_assert!(self.ring.len() < self.ring.capacity());
        self.receives += usize::from(is_receive(&completion));
        self.ring.push_back(completion);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Completion> {
        let completion = self.ring.pop_front()?;
        self.receives -= usize::from(is_receive(&completion));
        Some(completion)
    }

    pub(crate) fn receives(&self) -> usize {
        self.receives
    }

    pub(crate) fn sends(&self) -> usize {
        self.ring.len() - self.receives
    }
}

fn is_receive(completion: &Completion) -> bool {
    completion.operation.is_receive()
}
