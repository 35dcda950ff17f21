//! Taking back what a loss did that was none (Eifel: RFC 3522 finds it, RFC 4015 answers it).
//!
//! The first acknowledgment of something sent again tells by its timestamp which of the two it
//! answers: an echo older than the repetition is the original's, so nothing was lost.

use super::cubic::Memory;
use crate::seq::SeqNumber;

/// What was before a reduction that may turn out to be wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    pub(super) recover: SeqNumber,
    pub(super) memory: Memory,
    /// TSval of the first repetition, once it was sent.
    pub(super) stamp: Option<u32>,
    /// Whether a timeout was the cause.
    pub(super) timeout: bool,
}

impl Undo {
    /// Whether an acknowledgment that echoes `echoed` answers what was sent first.
    ///
    /// One in the same tick of the clock may answer either, which is no proof.
    pub(super) fn is_due(&self, echoed: Option<u32>) -> bool {
        let (Some(stamp), Some(echoed)) = (self.stamp, echoed) else { return false };
        SeqNumber::new(echoed).before(SeqNumber::new(stamp))
    }
}
