//! Which runs a command line asks for: one or two legs for each test and size.

use std::time::Duration;

use control::services::perf::channel::Arena;
use control::services::perf::message::{Mode, Operation, Plan, SIZE_MAX};

use crate::cli::{Options, TestName};

/// A test, as perftest has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Bandwidth of RDMA Writes.
    WriteBw,
    /// Latency of RDMA Writes.
    WriteLat,
    /// Bandwidth of RDMA Reads.
    ReadBw,
    /// Latency of RDMA Reads.
    ReadLat,
    /// Bandwidth of Sends.
    SendBw,
    /// Latency of Sends.
    SendLat,
}

impl Test {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::WriteBw, Self::ReadBw, Self::SendBw, Self::WriteLat, Self::ReadLat, Self::SendLat];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteBw => "write_bw",
            Self::WriteLat => "write_lat",
            Self::ReadBw => "read_bw",
            Self::ReadLat => "read_lat",
            Self::SendBw => "send_bw",
            Self::SendLat => "send_lat",
        }
    }

    /// perftest's title.
    pub fn title(self) -> &'static str {
        match self {
            Self::WriteBw => "RDMA_Write BW Test",
            Self::WriteLat => "RDMA_Write Latency Test",
            Self::ReadBw => "RDMA_Read BW Test",
            Self::ReadLat => "RDMA_Read Latency Test",
            Self::SendBw => "Send BW Test",
            Self::SendLat => "Send Latency Test",
        }
    }

    /// What its messages do.
    pub fn operation(self) -> Operation {
        match self {
            Self::WriteBw | Self::WriteLat => Operation::Write,
            Self::ReadBw | Self::ReadLat => Operation::Read,
            Self::SendBw | Self::SendLat => Operation::Send,
        }
    }

    /// Whether one message at a time is measured.
    pub fn is_latency(self) -> bool {
        matches!(self, Self::WriteLat | Self::ReadLat | Self::SendLat)
    }

    /// A sample's share in a round trip: Writes and Sends are answered by one, a Read is one.
    pub fn divisor(self) -> u32 {
        match self {
            Self::WriteLat | Self::SendLat => 2,
            _ => 1,
        }
    }
}

/// A test of the bare wire below TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawTest {
    /// Latency of a small frame.
    Latency,
    /// Bandwidth of whole frames.
    Bandwidth,
}

impl RawTest {
    /// A title like perftest's.
    pub fn title(self) -> &'static str {
        match self {
            Self::Latency => "Raw Frame Latency Test",
            Self::Bandwidth => "Raw Frame BW Test",
        }
    }

    /// How much it does unless told otherwise: a good part of a second, or less.
    pub fn usual(self) -> Amount {
        match self {
            Self::Latency => Amount::Messages(RAW_BOUNCES),
            Self::Bandwidth => Amount::Messages(RAW_FRAMES),
        }
    }

    /// How much it does with these options.
    pub fn amount(self, options: &Options) -> Amount {
        match (options.duration, options.iterations) {
            (Some(seconds), _) => Amount::Time(Duration::from_secs(seconds.into())),
            (None, Some(frames)) => Amount::Messages(frames),
            (None, None) => self.usual(),
        }
    }
}

const RAW_BOUNCES: u64 = 20_000;
const RAW_FRAMES: u64 = 1_000_000;

/// How much a leg does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many messages a queue pair.
    Messages(u64),
    /// As many as come in this time.
    Time(Duration),
}

/// One run over connections of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The test it belongs to.
    pub test: Test,
    /// What both ends agree on, for each connection.
    pub plan: Plan,
    /// Connections.
    pub queue_pairs: u32,
    /// How much it does.
    pub amount: Amount,
    /// Messages a queue pair that go before, unmeasured.
    pub warm_up: u64,
}

/// Options that do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// With a HOST a test is needed.
    #[error("which test? One of write_bw write_lat read_bw read_lat send_bw send_lat all rping")]
    NoTest,
    /// One message at a time has no second direction.
    #[error("-b is for bandwidth tests: a latency test uses both directions in turn anyway")]
    BothWaysLatency,
    /// One message at a time is on one connection.
    #[error("-q is for bandwidth tests: a latency test has one queue pair")]
    ManyLatency,
    /// One sample a test has no distribution.
    #[error("-H is for latency tests: a bandwidth test has no distribution to print")]
    HistogramOfBandwidth,
    /// Beyond what a service gives away.
    #[error(
        "{queue_pairs} queue pairs (-q) with messages of {size} octets (-s) and these depths (-t, -r) need \
         {mebibytes} MiB at each end, at most {} are given; ask for less of one of them", MEMORY_MAX >> 20
    )]
    TooMuchMemory {
        /// Of one test.
        queue_pairs: u32,
        /// Octets of its messages.
        size: u32,
        /// Of one end.
        mebibytes: u64,
    },
}

/// The legs of each test that is asked for, in order.
///
/// # Errors
/// When options do not go together.
pub fn legs(options: &Options) -> Result<Vec<Leg>, PlanError> {
    let tests = match options.test {
        Some(name) => name.tests(),
        None if options.common.loopback => TestName::All.tests(),
        None => return Err(PlanError::NoTest),
    };
    // `all` runs the latency tests too, whatever is asked of the others.
    if tests[..].iter().all(|test| test.is_latency()) {
        if options.bidirectional {
            return Err(PlanError::BothWaysLatency);
        }
        if options.queue_pairs > 1 {
            return Err(PlanError::ManyLatency);
        }
    }
    if options.report_histogram && !tests.iter().any(|test| test.is_latency()) && !tests.is_empty() {
        return Err(PlanError::HistogramOfBandwidth);
    }
    let mut legs = Vec::new();
    for test in tests {
        for size in sizes(options, test) {
            let timed = timed(options, test, size);
            check_memory(&timed)?;
            if options.data_validation {
                legs.push(verified(options, &timed));
            }
            legs.push(timed);
        }
    }
    Ok(legs)
}

/// Octets of buffers and queues of one end's connections; what a service of ours gives away too.
pub const MEMORY_MAX: u64 = 2 << 30;

/// Octets of a request that waits and of its completion, about.
const QUEUE_ENTRY_OCTETS: u64 = 256;

/// A leg of more queue pairs than fit must not begin: running out of memory has no good end.
fn check_memory(leg: &Leg) -> Result<(), PlanError> {
    let Leg { plan, queue_pairs, .. } = *leg;
    let receives = if plan.operation == Operation::Send { plan.receive_depth } else { 0 };
    let queues = u64::from(plan.depth + receives) * QUEUE_ENTRY_OCTETS;
    let octets = u64::from(queue_pairs) * (Arena::octets(&plan) as u64 + queues);
    if octets > MEMORY_MAX {
        let mebibytes = octets.div_ceil(1 << 20);
        return Err(PlanError::TooMuchMemory { queue_pairs, size: plan.size, mebibytes });
    }
    Ok(())
}

/// Octets that a size of `-a` moves unless `-n` says otherwise, and that are compared at most.
const OCTETS_A_SIZE: u64 = 1 << 30;
const OCTETS_COMPARED: u64 = 128 << 20;

/// Messages a size has at least, however large they are.
const MESSAGES_MIN: u64 = 32;

/// Above this size perftest asks for each completion.
const MODERATED_SIZE_MAX: u32 = 8192;

/// perftest's defaults.
const BANDWIDTH_SIZE: u32 = 65_536;
const LATENCY_SIZE: u32 = 2;
const WRITE_BANDWIDTH_MESSAGES: u64 = 5000;
const MESSAGES: u64 = 1000;
const MODERATION: u32 = 100;

fn sizes(options: &Options, test: Test) -> Vec<u32> {
    if options.all {
        return (1..=SIZE_MAX.ilog2()).map(|power| 1 << power).collect();
    }
    let usual = if test.is_latency() { LATENCY_SIZE } else { BANDWIDTH_SIZE };
    vec![options.size.map_or(usual, |size| size.0)]
}

fn timed(options: &Options, test: Test, size: u32) -> Leg {
    let latency = test.is_latency();
    let depth = if latency { 1 } else { options.tx_depth };
    let usual = if size > MODERATED_SIZE_MAX { 1 } else { MODERATION };
    // A whole queue without a completion would stand still until its last message is gone.
    let moderation = options.cq_mod.unwrap_or(usual).min((depth / 2).max(1));
    let usual = if test == Test::WriteBw { WRITE_BANDWIDTH_MESSAGES } else { MESSAGES };
    let usual =
        if options.all { usual.min(OCTETS_A_SIZE / u64::from(size)).max(MESSAGES_MIN) } else { usual };
    let amount = match options.duration {
        Some(seconds) => Amount::Time(Duration::from_secs(seconds.into())),
        None => Amount::Messages(options.iterations.unwrap_or(usual)),
    };
    let warm_up = match amount {
        _ if !options.warm_up => 0,
        Amount::Messages(messages) => messages.min(u64::from(depth).max(WARM_UP_MIN)),
        Amount::Time(_) => u64::from(depth).max(WARM_UP_MIN),
    };
    let plan = Plan {
        operation: test.operation(),
        mode: if latency { Mode::Latency } else { Mode::Bandwidth },
        both_ways: options.bidirectional && !latency,
        size,
        depth,
        receive_depth: options.rx_depth,
        moderation,
    };
    let queue_pairs = if latency { 1 } else { options.queue_pairs };
    Leg { test, plan, queue_pairs, amount, warm_up }
}

/// A warm-up has at least so many messages.
const WARM_UP_MIN: u64 = 100;

/// The leg that compares what `timed` only measures.
fn verified(options: &Options, timed: &Leg) -> Leg {
    let latency = timed.test.is_latency();
    let messages = match timed.amount {
        Amount::Messages(messages) => messages,
        Amount::Time(_) => MESSAGES,
    };
    let most = (OCTETS_COMPARED / u64::from(timed.plan.size)).max(4);
    let plan = Plan {
        mode: Mode::Verify,
        // The answers of a latency test are messages too.
        both_ways: options.bidirectional || (latency && timed.test.operation() != Operation::Read),
        ..timed.plan
    };
    Leg { plan, amount: Amount::Messages(messages.min(most)), warm_up: 0, ..*timed }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn legs_of(line: &str) -> Result<Vec<Leg>, PlanError> {
        let options = Options::try_parse_from(format!("bench {line}").split_whitespace()).unwrap();
        legs(&options)
    }

    #[test]
    fn the_defaults_are_perftests() {
        let [leg] = legs_of("write_bw").unwrap()[..] else { panic!() };
        assert_eq!((leg.plan.size, leg.amount), (65_536, Amount::Messages(5000)));
        assert_eq!((leg.plan.depth, leg.plan.moderation, leg.queue_pairs), (128, 1, 1));
        let [leg] = legs_of("send_bw -s 64").unwrap()[..] else { panic!() };
        assert_eq!((leg.amount, leg.plan.moderation), (Amount::Messages(1000), 64));
        let [leg] = legs_of("read_lat").unwrap()[..] else { panic!() };
        assert_eq!((leg.plan.size, leg.plan.depth, leg.plan.mode), (2, 1, Mode::Latency));
    }

    #[test]
    fn all_sizes_are_the_powers_of_two_up_to_8_mib() {
        let legs = legs_of("write_lat -a").unwrap();
        assert_eq!(legs.len(), 23);
        assert_eq!((legs[0].plan.size, legs[22].plan.size), (2, 8 << 20));
        assert_eq!(legs[22].amount, Amount::Messages(128), "a gigabyte is enough of a size");
        let legs = legs_of("write_lat -a -n 7").unwrap();
        assert!(legs.iter().all(|leg| leg.amount == Amount::Messages(7)));
    }

    #[test]
    fn a_loopback_runs_all_tests_by_itself() {
        assert_eq!(legs_of("--loopback").unwrap().len(), 6);
        assert_eq!(legs_of("--loopback all -a --data_validation").unwrap().len(), 6 * 23 * 2);
        assert_eq!(legs_of("").unwrap_err(), PlanError::NoTest);
    }

    #[test]
    fn validation_goes_before_and_covers_what_is_measured() {
        let [verify, timed] = legs_of("send_lat --data_validation").unwrap()[..] else { panic!() };
        assert_eq!((verify.plan.mode, verify.plan.both_ways), (Mode::Verify, true));
        assert_eq!((timed.plan.mode, timed.plan.both_ways), (Mode::Latency, false));
        let [verify, _] = legs_of("read_bw -s 8m --data_validation").unwrap()[..] else { panic!() };
        assert_eq!((verify.amount, verify.plan.both_ways), (Amount::Messages(16), false));
    }

    #[test]
    fn every_plan_is_one_that_a_service_takes() {
        for line in
            ["all --loopback -a --data_validation -b -q 3", "send_bw -t 1 -Q 1024 -r 1", "write_bw -D 1"]
        {
            for leg in legs_of(line).unwrap() {
                assert!(leg.plan.checked().is_ok(), "{line}: {leg:?}");
            }
        }
    }

    #[test]
    fn more_memory_than_there_is_for_tests_is_refused() {
        let refused = |line| matches!(legs_of(line), Err(PlanError::TooMuchMemory { .. }));
        assert!(refused("write_bw -q 16384 -s 64k"));
        assert!(refused("write_bw -q 16384 -t 16384 -s 64"));
        assert!(refused("send_bw -q 16384 -r 16384 -s 64"));
        assert!(refused("write_bw -q 129 -a"), "8 MiB are the largest of them");
        assert!(!refused("write_bw -q 16384 -s 64"));
        assert!(!refused("write_bw -q 64 -a"));
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        assert_eq!(legs_of("write_lat -b").unwrap_err(), PlanError::BothWaysLatency);
        assert_eq!(legs_of("read_lat -q 2").unwrap_err(), PlanError::ManyLatency);
        assert_eq!(legs_of("read_bw -H").unwrap_err(), PlanError::HistogramOfBandwidth);
        assert!(legs_of("--loopback all -H").is_ok(), "three of them have a distribution");
    }
}
