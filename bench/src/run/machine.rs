//! The cores of this machine, and what lies between them.

use std::io;

use core_affinity::CoreId;

use super::{RunError, system};
use crate::calibrate::{PingPong, ping_pong};
use crate::report;

/// The cores that this process may use.
pub(super) struct Machine {
    pub(super) cores: Vec<CoreId>,
}

impl Machine {
    /// Looks at the cores of the calling thread, which must not be pinned yet.
    pub(super) fn new() -> Self {
        Self { cores: core_affinity::get_core_ids().unwrap_or_default() }
    }

    /// A core that the calling thread is not pinned to.
    pub(super) fn beside_this(&self) -> Option<CoreId> {
        let here = core_affinity::get_core_ids().unwrap_or_default();
        self.cores.iter().find(|core| !here.contains(core)).copied()
    }

    /// The core that the calling thread is pinned to, and another one.
    pub(super) fn here_and_beside(&self) -> Option<(CoreId, CoreId)> {
        let here = core_affinity::get_core_ids()?.first().copied()?;
        Some((here, self.beside_this()?))
    }

    /// Where the calling thread runs, in words.
    pub(super) fn describe_here(&self) -> String {
        let here = core_affinity::get_core_ids().unwrap_or_default();
        let names: Vec<String> = here.iter().map(|core| core.id.to_string()).collect();
        format!("harness on core {}", names.join(","))
    }
}

/// The round trip between two cores, before a run and after it.
pub(super) struct Calibration {
    cores: Option<(CoreId, CoreId)>,
    before: Option<PingPong>,
}

impl Calibration {
    pub(super) fn begin(cores: Option<(CoreId, CoreId)>) -> Self {
        Self { cores, before: measure(cores) }
    }

    pub(super) fn nanos(&self) -> Option<u64> {
        self.before.map(|figure| u64::try_from(figure.round_trip.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Measures once more and prints both.
    pub(super) fn end(self) -> Result<(), RunError> {
        if let (Some(before), Some(after)) = (self.before, measure(self.cores)) {
            report::calibration(&mut io::stdout().lock(), before, after)
                .map_err(|error| system("standard output", error))?;
        }
        Ok(())
    }
}

fn measure(cores: Option<(CoreId, CoreId)>) -> Option<PingPong> {
    let (first, second) = cores?;
    ping_pong(first, second)
}
