//! What a worker counts.

/// Counts since the worker started; none of them is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounters {
    /// Turns of the poll loop.
    pub turns: u64,
    /// Turns that found something to do.
    pub busy_turns: u64,
    /// FPDUs built.
    pub fpdus_sent: u64,
    /// Streams that reached Full Operation Phase.
    pub streams_established: u64,
    /// Streams that ended, in whatever way.
    pub streams_ended: u64,
    /// Terminate Messages sent.
    pub terminates_sent: u64,
    /// Terminate Messages received.
    pub terminates_received: u64,
    /// MPA start-ups that failed: malformed, refused by the profile, or too slow.
    pub mpa_startups_failed: u64,
    /// Connections refused at the limit.
    pub connections_refused: u64,
    /// Times a Stream had FPDUs to build but TCP's windows no room.
    pub window_stalls: u64,
    /// Times there was no mbuf to build an FPDU in; the work waited.
    pub transmit_frames_exhausted: u64,
    /// FPDUs that TCP did not take because the connection was closing.
    pub sends_refused: u64,
    /// Requests posted to a queue pair that does not exist (any more).
    pub work_refused: u64,
}

impl WorkerCounters {
    /// Each counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("turns", self.turns),
            ("busy_turns", self.busy_turns),
            ("fpdus_sent", self.fpdus_sent),
            ("streams_established", self.streams_established),
            ("streams_ended", self.streams_ended),
            ("terminates_sent", self.terminates_sent),
            ("terminates_received", self.terminates_received),
            ("mpa_startups_failed", self.mpa_startups_failed),
            ("connections_refused", self.connections_refused),
            ("window_stalls", self.window_stalls),
            ("transmit_frames_exhausted", self.transmit_frames_exhausted),
            ("sends_refused", self.sends_refused),
            ("work_refused", self.work_refused),
        ]
        .into_iter()
    }
}
