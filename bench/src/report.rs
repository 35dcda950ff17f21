//! What the harness prints and writes: perftest's columns, and the same as JSON.

use std::io::{self, Write};

use serde::Serialize;

use crate::calibrate::PingPong;
use crate::plan::{Leg, RawTest, Test};
use crate::stats::LatencySummary;
use crate::traffic::BandwidthSummary;

/// Under which circumstances a test ran; stands above its results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Circumstances {
    /// perftest's title.
    pub test: &'static str,
    /// What joins the ends.
    pub wire: String,
    /// Largest IP packet.
    #[serde(rename = "MTU")]
    pub mtu: usize,
    /// Whether FPDUs have a CRC.
    #[serde(rename = "CRC")]
    pub crc: bool,
    /// The MPA revision that was negotiated.
    #[serde(rename = "MPA_revision")]
    pub revision: u8,
    /// Outstanding Reads, ours and the peer's.
    #[serde(rename = "ORD")]
    pub ord: u16,
    /// Of the peer.
    #[serde(rename = "IRD")]
    pub ird: u16,
    /// Connections.
    #[serde(rename = "Number_of_qps")]
    pub queue_pairs: u32,
    /// Most messages in flight, a queue pair.
    #[serde(rename = "TX_depth")]
    pub depth: u32,
    /// Receives posted for Sends at most, a queue pair.
    #[serde(rename = "RX_depth")]
    pub receive_depth: u32,
    /// Messages a completion.
    #[serde(rename = "CQ_Moderation")]
    pub moderation: u32,
    /// Whether both ends send.
    #[serde(rename = "Bidirectional")]
    pub both_ways: bool,
    /// Which core does what.
    pub cores: String,
    /// Where the application runs, and what idle workers do.
    pub mode: String,
    /// What a cache line's round trip between the cores took just before, in nanoseconds.
    pub ping_pong_ns: Option<u64>,
}

/// One line of results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Row {
    /// Of a bandwidth test.
    Bandwidth {
        /// Octets.
        #[serde(rename = "MsgSize")]
        size: u32,
        /// Messages.
        #[serde(rename = "n_iterations")]
        messages: u64,
        /// In the unit of the table.
        #[serde(rename = "BW_peak")]
        peak: f64,
        /// In the unit of the table.
        #[serde(rename = "BW_average")]
        average: f64,
        /// Millions a second.
        #[serde(rename = "MsgRate")]
        rate: f64,
    },
    /// Of a latency test; microseconds.
    Latency {
        /// Octets.
        #[serde(rename = "MsgSize")]
        size: u32,
        /// Messages.
        #[serde(rename = "n_iterations")]
        messages: u64,
        /// The least.
        t_min: f64,
        /// The greatest.
        t_max: f64,
        /// The median.
        t_typical: f64,
        /// The mean.
        t_avg: f64,
        /// The standard deviation.
        t_stdev: f64,
        /// 99 % are no greater.
        percentile_99: f64,
        /// 99.9 % are no greater.
        #[serde(rename = "percentile_99.9")]
        percentile_999: f64,
    },
}

/// A unit of bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// 2^20 octets a second.
    MebiBytes,
    /// 10^9 bits a second.
    GigaBits,
}

/// A test and what it came to, as JSON has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Document {
    /// The circumstances.
    pub test_info: Circumstances,
    /// Unit of the bandwidths.
    #[serde(rename = "BW_unit")]
    pub unit: &'static str,
    /// Lines, by size.
    pub results: Vec<Row>,
    /// What was compared octet by octet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_validation: Vec<Verified>,
    /// The test beside the bare wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare_wire: Option<Comparison>,
}

/// A figure of a test and what the bare wire below TCP came to right before and right after it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// `usec` for the typical latency, else the unit of the average bandwidth, of frames on the wire.
    pub unit: &'static str,
    /// Of the wire, before the test.
    pub before: f64,
    /// Of the wire, after the test.
    pub after: f64,
    /// The test's figure over the mean of the wire's two.
    pub ratio: f64,
}

impl Comparison {
    /// Sets a test's row beside the same figure of the wire.
    pub fn new(row: &Row, before: &Row, after: &Row, unit: Unit) -> Self {
        let (before, after) = (before.figure(), after.figure());
        let unit = match row {
            Row::Bandwidth { .. } => unit.name(),
            Row::Latency { .. } => "usec",
        };
        Self { unit, before, after, ratio: row.figure() / ((before + after) / 2.0) }
    }
}

/// What was compared of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Octets of a message.
    #[serde(rename = "MsgSize")]
    pub size: u32,
    /// Messages.
    #[serde(rename = "n_iterations")]
    pub messages: u64,
    /// Octets of all.
    pub octets: u64,
}

impl Unit {
    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::MebiBytes => "MiB/sec",
            Self::GigaBits => "Gb/sec",
        }
    }

    /// So many messages of `size` octets a second.
    fn of(self, rate: f64, size: u32) -> f64 {
        let octets = rate * f64::from(size);
        match self {
            Self::MebiBytes => octets / f64::from(1 << 20),
            Self::GigaBits => octets * 8.0 / 1e9,
        }
    }
}

impl Row {
    /// Of a bandwidth test.
    pub fn bandwidth(summary: &BandwidthSummary, unit: Unit) -> Self {
        Self::Bandwidth {
            size: summary.size,
            messages: summary.messages,
            peak: unit.of(summary.peak, summary.size),
            average: unit.of(summary.rate(), summary.size),
            rate: summary.rate() / 1e6,
        }
    }

    /// The one figure that stands for it: the average bandwidth, or the typical latency.
    fn figure(&self) -> f64 {
        match *self {
            Self::Bandwidth { average, .. } => average,
            Self::Latency { t_typical, .. } => t_typical,
        }
    }

    /// Of a latency test.
    pub fn latency(size: u32, summary: &LatencySummary) -> Self {
        Self::Latency {
            size,
            messages: summary.count,
            t_min: summary.min,
            t_max: summary.max,
            t_typical: summary.median,
            t_avg: summary.mean,
            t_stdev: summary.stdev,
            percentile_99: summary.p99,
            percentile_999: summary.p999,
        }
    }
}

impl Circumstances {
    /// What the leg itself says; the rest is filled in by who knows it.
    pub fn of(leg: &Leg) -> Self {
        Self {
            queue_pairs: leg.queue_pairs,
            depth: leg.plan.depth,
            receive_depth: leg.plan.receive_depth,
            moderation: leg.plan.moderation,
            both_ways: leg.plan.both_ways,
            ..Self::titled(leg.test.title())
        }
    }

    /// Of a test of the bare wire, which knows no connections.
    pub fn of_raw(test: RawTest) -> Self {
        Self::titled(test.title())
    }

    fn titled(test: &'static str) -> Self {
        Self {
            test,
            wire: String::new(),
            mtu: 0,
            crc: false,
            revision: 0,
            ord: 0,
            ird: 0,
            queue_pairs: 0,
            depth: 0,
            receive_depth: 0,
            moderation: 0,
            both_ways: false,
            cores: String::new(),
            mode: String::new(),
            ping_pong_ns: None,
        }
    }
}

/// Prints the circumstances and the head of the table.
///
/// # Errors
/// When `out` takes nothing.
pub fn head(out: &mut impl Write, test: Test, info: &Circumstances, unit: Unit) -> io::Result<()> {
    writeln!(out, "{LINE}")?;
    writeln!(out, "                    {}{}", if info.both_ways { "Bidirectional " } else { "" }, info.test)?;
    let crc = if info.crc { "on" } else { "off" };
    pair(out, ("Wire", &info.wire), ("Mtu", &format!("{}[B]", info.mtu)))?;
    pair(out, ("MPA CRC", &crc), ("MPA revision", &info.revision))?;
    pair(out, ("Number of qps", &info.queue_pairs), ("CQ Moderation", &info.moderation))?;
    pair(out, ("TX depth", &info.depth), ("RX depth", &info.receive_depth))?;
    pair(out, ("Outstanding reads", &info.ord), ("Of the peer", &info.ird))?;
    surroundings(out, info)?;
    columns(out, test.is_latency(), unit)
}

/// Prints the same for a test of the bare wire; its bandwidths are in Gb/s.
///
/// # Errors
/// When `out` takes nothing.
pub fn raw_head(out: &mut impl Write, test: RawTest, info: &Circumstances) -> io::Result<()> {
    writeln!(out, "{LINE}")?;
    writeln!(out, "                    {}", info.test)?;
    pair(out, ("Wire", &info.wire), ("Mtu", &format!("{}[B]", info.mtu)))?;
    surroundings(out, info)?;
    columns(out, test == RawTest::Latency, Unit::GigaBits)
}

fn surroundings(out: &mut impl Write, info: &Circumstances) -> io::Result<()> {
    writeln!(out, " {:<18}: {}", "Cores", info.cores)?;
    writeln!(out, " {:<18}: {}", "Mode", info.mode)?;
    let calibration = match info.ping_pong_ns {
        Some(nanos) => format!("a cache line's round trip between the cores takes {nanos} ns now"),
        None => "not possible: two cores are needed".to_owned(),
    };
    writeln!(out, " {:<18}: {calibration}", "Calibration")?;
    writeln!(out, "{LINE}")
}

fn columns(out: &mut impl Write, latency: bool, unit: Unit) -> io::Result<()> {
    if latency {
        writeln!(
            out,
            " #bytes     #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
             t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
        )
    } else {
        let unit = unit.name();
        writeln!(out, " #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]")
    }
}

/// Prints a line of results.
///
/// # Errors
/// When `out` takes nothing.
pub fn row(out: &mut impl Write, row: &Row) -> io::Result<()> {
    match row {
        Row::Bandwidth { size, messages, peak, average, rate } => {
            writeln!(out, " {size:<10} {messages:<14} {peak:<18.2} {average:<20.2} {rate:<.6}")
        }
        Row::Latency {
            size,
            messages,
            t_min,
            t_max,
            t_typical,
            t_avg,
            t_stdev,
            percentile_99,
            percentile_999,
        } => writeln!(
            out,
            " {size:<10} {messages:<14} {t_min:<14.3} {t_max:<12.3} {t_typical:<18.3} {t_avg:<14.3} \
             {t_stdev:<15.3} {percentile_99:<22.3} {percentile_999:<.3}"
        ),
    }
}

/// Prints the whole distribution of a latency test.
///
/// # Errors
/// When `out` takes nothing.
pub fn histogram(out: &mut impl Write, summary: &LatencySummary) -> io::Result<()> {
    writeln!(out, "   t[usec]        count   percentile")?;
    for step in &summary.distribution {
        writeln!(out, "   {:<14.3} {:<7} {:.4}", step.micros, step.count, step.percentile)?;
    }
    Ok(())
}

/// Prints what was compared.
///
/// # Errors
/// When `out` takes nothing.
pub fn verified(out: &mut impl Write, verified: &Verified) -> io::Result<()> {
    let Verified { size, messages, octets } = verified;
    writeln!(out, " {size:<10} {messages:<14} validated: all {octets} octets are as they were sent")
}

/// Prints how a test does beside the bare wire.
///
/// # Errors
/// When `out` takes nothing.
pub fn comparison(out: &mut impl Write, comparison: &Comparison) -> io::Result<()> {
    let Comparison { unit, before, after, ratio } = comparison;
    writeln!(
        out,
        " Bare wire below TCP: {before:.3} {unit} before, {after:.3} {unit} after; ratio {ratio:.3}"
    )
}

/// Prints how many frames of a test of the bare wire were lost.
///
/// # Errors
/// When `out` takes nothing.
pub fn lost(out: &mut impl Write, frames: u64) -> io::Result<()> {
    writeln!(out, " {frames} frames were lost on the wire")
}

/// Prints the line below a table.
///
/// # Errors
/// When `out` takes nothing.
pub fn foot(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{LINE}")
}

/// Prints how the cores' distance changed during the run.
///
/// # Errors
/// When `out` takes nothing.
pub fn calibration(out: &mut impl Write, before: PingPong, after: PingPong) -> io::Result<()> {
    let (before, after) = (before.round_trip.as_nanos(), after.round_trip.as_nanos());
    writeln!(
        out,
        " A cache line's round trip between the cores, before and after: {before} ns -> {after} ns{}",
        steadiness(before, after)
    )
}

fn pair(
    out: &mut impl Write,
    left: (&str, &dyn std::fmt::Display),
    right: (&str, &dyn std::fmt::Display),
) -> io::Result<()> {
    let value = left.1.to_string();
    writeln!(out, " {:<18}: {value:<22} {:<15}: {}", left.0, right.0, right.1)
}

/// Figures between cores say little when the cores moved apart meanwhile.
fn steadiness(before: u128, after: u128) -> &'static str {
    let (less, more) = (before.min(after), before.max(after));
    if more > 2 * less { " (the host moved the cores: do not trust figures between them)" } else { "" }
}

const LINE: &str = "---------------------------------------------------------------------------------------";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::Amount;
    use crate::stats::Latencies;
    use control::services::perf::message::{Mode, Operation, Plan};

    fn leg(test: Test) -> Leg {
        let plan = Plan {
            operation: Operation::Write,
            mode: Mode::Bandwidth,
            both_ways: false,
            size: 65_536,
            depth: 128,
            receive_depth: 512,
            moderation: 1,
        };
        Leg { test, plan, queue_pairs: 1, amount: Amount::Messages(5000), warm_up: 0 }
    }

    fn summary() -> BandwidthSummary {
        BandwidthSummary { messages: 1000, size: 1 << 20, elapsed: Duration::from_secs(1), peak: 2000.0 }
    }

    fn printed(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn units_are_perftests() {
        let Row::Bandwidth { peak, average, rate, .. } = Row::bandwidth(&summary(), Unit::MebiBytes) else {
            panic!()
        };
        assert_eq!((peak, average, rate), (2000.0, 1000.0, 0.001));
        let Row::Bandwidth { average, .. } = Row::bandwidth(&summary(), Unit::GigaBits) else { panic!() };
        assert!((average - 8.388_608).abs() < 1e-9);
    }

    #[test]
    fn columns_stand_below_their_heads() {
        let info = Circumstances::of(&leg(Test::WriteBw));
        let text = printed(|out| head(out, Test::WriteBw, &info, Unit::GigaBits))
            + &printed(|out| row(out, &Row::bandwidth(&summary(), Unit::GigaBits)));
        let [.., heads, line] = text.lines().collect::<Vec<_>>()[..] else { panic!() };
        for name in ["#bytes", "#iterations", "BW peak[Gb/sec]", "BW average[Gb/sec]", "MsgRate[Mpps]"] {
            let at = heads.find(name).unwrap();
            assert_ne!(line.as_bytes()[at], b' ', "{name}:\n{heads}\n{line}");
            assert_eq!(line.as_bytes()[at - 1], b' ', "{name}:\n{heads}\n{line}");
        }

        let mut latencies = Latencies::new(2);
        latencies.record(Duration::from_nanos(1500));
        let row_of = Row::latency(8, &latencies.finish(2));
        let text = printed(|out| head(out, Test::WriteLat, &info, Unit::GigaBits))
            + &printed(|out| row(out, &row_of));
        let [.., heads, line] = text.lines().collect::<Vec<_>>()[..] else { panic!() };
        for name in ["t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99% p", "99.9% p"] {
            let at = heads.find(name).unwrap();
            assert_ne!(line.as_bytes()[at], b' ', "{name}:\n{heads}\n{line}");
            assert_eq!(line.as_bytes()[at - 1], b' ', "{name}:\n{heads}\n{line}");
        }
        assert!(line.contains("0.750"), "{line}");
    }

    #[test]
    fn json_has_perftests_names() {
        let document = Document {
            test_info: Circumstances::of(&leg(Test::WriteBw)),
            unit: Unit::GigaBits.name(),
            results: vec![Row::bandwidth(&summary(), Unit::GigaBits)],
            data_validation: vec![],
            bare_wire: None,
        };
        let json = serde_json::to_value(&document).unwrap();
        assert_eq!(json["test_info"]["TX_depth"], 128);
        assert_eq!(json["results"][0]["MsgSize"], 1 << 20);
        assert_eq!(json["results"][0]["n_iterations"], 1000);
        assert!(json["results"][0]["BW_average"].as_f64().unwrap() > 8.0);
        assert!(json.get("data_validation").is_none() && json.get("bare_wire").is_none());
    }

    #[test]
    fn a_test_stands_beside_the_wire() {
        let wire = |rate| Row::Bandwidth { size: 1514, messages: 1, peak: 99.0, average: rate, rate: 0.1 };
        let row = Row::bandwidth(&summary(), Unit::MebiBytes);
        let beside = Comparison::new(&row, &wire(3000.0), &wire(5000.0), Unit::MebiBytes);
        assert_eq!((beside.unit, beside.ratio), ("MiB/sec", 0.25));
        let text = printed(|out| comparison(out, &beside));
        assert!(text.contains("3000.000 MiB/sec before, 5000.000 MiB/sec after; ratio 0.250"), "{text}");
        let info = Circumstances::of_raw(RawTest::Bandwidth);
        let text = printed(|out| raw_head(out, RawTest::Bandwidth, &info));
        assert!(text.contains("BW average[Gb/sec]") && !text.contains("MPA"), "{text}");
    }

    #[test]
    fn a_host_that_moved_the_cores_is_pointed_out() {
        let figure = |nanos| PingPong { cores: (0, 1), round_trip: Duration::from_nanos(nanos) };
        let text = printed(|out| calibration(out, figure(110), figure(530)));
        assert!(text.contains("110 ns -> 530 ns") && text.contains("do not trust"), "{text}");
        assert!(!printed(|out| calibration(out, figure(110), figure(120))).contains("trust"));
    }
}
