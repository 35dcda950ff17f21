//! One end of the wire: an open port with its queue pair, for a worker or for the bare wire in turn.

use std::thread;
use std::time::{Duration, Instant};

use dataplane::port::dpdk::{Eal, Port, PortConfig, PortQueue, Tsc};
use dataplane::worker::Clock;

use super::RunError;
use crate::cli::Common;

/// One end.
pub(super) struct End {
    pub(super) queue: PortQueue,
    pub(super) rest: Rest,
}

/// What belongs to an end besides the queue pair, which a worker owns while it runs.
pub(super) struct Rest {
    pub(super) port: Port,
    pub(super) clock: TscClock,
    /// Frames in use before anything was sent.
    frames: usize,
}

/// The poll loop's clock.
#[derive(Clone, Copy)]
pub(super) struct TscClock(Tsc);

impl Clock for TscClock {
    fn now(&self) -> tcpstack::time::Instant {
        self.0.now()
    }
}

impl End {
    /// The first port that the EAL options make.
    pub(super) fn open(eal: &Eal, common: &Common) -> Result<Self, RunError> {
        let (id, _) = eal.port_names().into_iter().next().ok_or(RunError::NoPort)?;
        Self::new(eal, eal.open(id, &config(common))?)
    }

    /// Two ports that are joined by rings.
    pub(super) fn ring_pair(eal: &Eal, common: &Common) -> Result<[Self; 2], RunError> {
        let [first, second] = eal.ring_pair(["bench_a", "bench_b"], &config(common))?;
        Ok([Self::new(eal, first)?, Self::new(eal, second)?])
    }

    fn new(eal: &Eal, (port, mut queues): (Port, Vec<PortQueue>)) -> Result<Self, RunError> {
        let queue = queues.pop().ok_or(RunError::NoPort)?;
        let frames = queue.frames_in_use();
        Ok(Self { queue, rest: Rest { port, clock: TscClock(Tsc::new(eal)), frames } })
    }
}

impl Rest {
    /// A software link comes up when its other end connects.
    #[expect(clippy::disallowed_methods, reason = "before anything polls, this thread may wait")]
    pub(super) fn await_link(&self) -> Result<(), RunError> {
        let begin = Instant::now();
        while !self.port.link().up {
            if begin.elapsed() > LINK_PATIENCE {
                return Err(RunError::LinkDown(self.port.name().to_owned()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Looks for frames that nobody gave back.
    pub(super) fn check_frames(&self, queue: &PortQueue) -> Result<(), RunError> {
        // What still waits for a device whose other end is gone is no leak.
        if self.frames_beyond(queue) > 0 && self.port.link().up {
            let port = self.port.name().to_owned();
            return Err(RunError::Leak { frames: queue.frames_in_use() - self.frames, port });
        }
        Ok(())
    }

    /// Frames in use beyond those that there may be at rest.
    pub(super) fn frames_beyond(&self, queue: &PortQueue) -> usize {
        queue.frames_in_use().saturating_sub(self.frames + FRAMES_WITH_DEVICE)
    }

    pub(super) fn mtu(&self) -> usize {
        self.port.capabilities().mtu
    }

    /// The port, in words.
    pub(super) fn describe(&self) -> String {
        format!("{} ({})", self.port.name(), self.port.driver())
    }
}

/// How long a link, or what waits behind it, may take to come up.
pub(super) const LINK_PATIENCE: Duration = Duration::from_secs(5);

/// Frames that a device may keep after the last one was sent: it frees them with later ones.
const FRAMES_WITH_DEVICE: usize = 1024 + 64;

fn config(common: &Common) -> PortConfig {
    PortConfig { mtu: common.mtu, ..PortConfig::default() }
}
