//! The goodput table: loss, round trip and algorithm, and how flows share, as a snapshot.
//!
//! Seeds, virtual time and integer arithmetic make it the same on every machine, so any change of
//! behaviour shows in the committed text:
//!
//! ```text
//! cargo test -p tcpstack --test goodput                                     compares with goodput.txt
//! TCP_UPDATE=1 cargo test -p tcpstack --test goodput                        writes it; look at the difference
//! TCP_LONG=1 cargo test --release -p tcpstack --test goodput                more seeds, longer: goodput-long.txt
//! ```

mod common;

use core::fmt::Write;
use core::time::Duration;
use std::thread;

use common::path::{Path, PathPlan, jain, large};
use tcpstack::config::StackConfig;
use tcpstack::tcp::congestion::CongestionControl::{self, Cubic, Dctcp, NewReno};
use tcpstack::tcp::ecn::Ecn;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// Octets of payload in a segment, and of the frame around it.
const SEGMENT: u32 = 1448;
const FRAME: u32 = 1514;

const ALGORITHMS: [CongestionControl; 3] = [NewReno, Cubic, Dctcp];

/// In parts per million, with what stands above the column.
const LOSSES: [(u32, &str); 7] =
    [(0, "0"), (100, "0.01"), (1000, "0.1"), (10_000, "1"), (30_000, "3"), (100_000, "10"), (300_000, "30")];

/// A path: its round trip, bits a second, and how long it is watched.
struct Row {
    name: &'static str,
    rtt: Duration,
    bandwidth: u64,
    span: Duration,
}

const ROWS: [Row; 6] = [
    Row {
        name: "10 us, 10 Gb/s",
        rtt: Duration::from_micros(10),
        bandwidth: 10_000_000_000,
        span: Duration::from_millis(10),
    },
    Row {
        name: "100 us, 10 Gb/s",
        rtt: Duration::from_micros(100),
        bandwidth: 10_000_000_000,
        span: Duration::from_millis(10),
    },
    Row { name: "1 ms, 10 Gb/s", rtt: MS, bandwidth: 10_000_000_000, span: Duration::from_millis(20) },
    Row { name: "1 ms, 1 Gb/s", rtt: MS, bandwidth: 1_000_000_000, span: Duration::from_millis(100) },
    Row {
        name: "10 ms, 1 Gb/s",
        rtt: Duration::from_millis(10),
        bandwidth: 1_000_000_000,
        span: Duration::from_millis(300),
    },
    Row {
        name: "100 ms, 100 Mb/s",
        rtt: Duration::from_millis(100),
        bandwidth: 100_000_000,
        span: Duration::from_secs(3),
    },
];

/// Seeds, and by how much longer than usual to run.
fn effort() -> (u64, u32) {
    if std::env::var_os("TCP_LONG").is_some() { (5, 4) } else { (1, 1) }
}

/// A router's queue that holds one path's worth, or a burst where that is less; DCTCP's marks
/// begin at a third of it.
fn plan(row: &Row, seed: u64) -> PathPlan {
    let plan = PathPlan { seed, rtt: row.rtt, bandwidth: row.bandwidth, ..PathPlan::default() };
    let queue = plan.bdp().max(200_000);
    let poll = (row.rtt / 10).clamp(US, 20 * US);
    PathPlan { host: 4 * row.bandwidth, queue, mark_above: Some(queue / 3), poll, ..plan }
}

/// ECN where the algorithm is made for it.
fn config(congestion: CongestionControl) -> StackConfig {
    let ecn = if congestion == Dctcp { Ecn::Request } else { Ecn::Off };
    StackConfig { congestion, ecn, ..large() }
}

fn goodput(row: &Row, loss_ppm: u32, congestion: CongestionControl) -> u64 {
    let (seeds, factor) = effort();
    let of_seed = |seed| {
        let mut path = Path::new(PathPlan { loss_ppm, ..plan(row, seed) }, &config(congestion));
        path.add_flow();
        let span = row.span * factor;
        // It has settled when it has answered some losses; where there are many more of them are cheap.
        let losses = match loss_ppm {
            0 => 0,
            1..=999 => 3,
            1000..=9999 => 8,
            _ => 60,
        };
        watch(&mut path, span / 2, losses / 3);
        watch(&mut path, span, losses * u64::from(factor)) / row.bandwidth
    };
    (1..=seeds).map(of_seed).sum::<u64>() / seeds
}

/// Runs for a time, and on until that many segments were lost at random; payload in millibits a second.
fn watch(path: &mut Path, span: Duration, losses: u64) -> u64 {
    let (mut octets, began, lost) = (0, path.now, path.wire.counters().lost);
    while octets == 0 || path.now < began + span || path.wire.counters().lost < lost + losses {
        octets += path.run(span)[0];
    }
    u64::try_from(u128::from(octets) * 8_000_000_000_000 / (path.now - began).as_nanos()).unwrap()
}

/// What random loss leaves of a path in thousandths, by the algorithms' formulas: Mathis'
/// 1.22 / sqrt(p) segments a round trip for NewReno, and for CUBIC the greater of that and RFC 9438's
/// figure 5, 1.054 (RTT / p)^(3/4).
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1000")]
fn formula(row: &Row, loss_ppm: u32, congestion: CongestionControl) -> u64 {
    let most = f64::from(SEGMENT) / f64::from(FRAME) * 1000.0;
    let loss = f64::from(loss_ppm) / 1e6;
    let mathis = (1.5 / loss).sqrt();
    let ratio = row.rtt.as_secs_f64() / loss;
    let window = match congestion {
        Cubic => mathis.max(1.054 * (ratio * ratio * ratio).sqrt().sqrt()),
        _ => mathis,
    };
    let bits = window * f64::from(SEGMENT) * 8.0 / row.rtt.as_secs_f64();
    (bits / u32::try_from(row.bandwidth / 1000).map_or(1.0, f64::from)).min(most) as u64
}

fn line(text: &mut String, name: &str, cells: impl IntoIterator<Item = String>) {
    let mut line = format!("{name:18}");
    for cell in cells {
        write!(line, "{cell:>7}").unwrap();
    }
    writeln!(text, "{}", line.trim_end()).unwrap();
}

fn block(row: &Row) -> String {
    let mut text = format!("\n{}\n", row.name);
    for algorithm in ALGORITHMS {
        let cells = LOSSES.map(|(loss, _)| goodput(row, loss, algorithm).to_string());
        line(&mut text, &format!("  {}", algorithm.name()), cells);
        if algorithm != Dctcp {
            let cells = LOSSES.map(|(loss, _)| format!("({})", formula(row, loss, algorithm)));
            line(&mut text, "    by formula", cells);
        }
    }
    text
}

/// Two flows, the second of which comes when the first one has all: each one's share, and Jain's index.
fn fairness(text: &mut String) {
    const BANDWIDTH: u64 = 200_000_000;
    let (seeds, factor) = effort();
    let unit = 300 * MS * factor;
    for (name, far) in [("1 ms and 1 ms", None), ("1 ms and 4 ms", Some(4 * MS))] {
        for algorithm in ALGORITHMS {
            let mut shares = vec![0, 0];
            for seed in 1..=seeds {
                let (queue, mark_above) = (100_000, Some(33_000));
                let plan = PathPlan {
                    seed,
                    bandwidth: BANDWIDTH,
                    rtt: MS,
                    queue,
                    mark_above,
                    far,
                    ..PathPlan::default()
                };
                let mut path = Path::new(plan, &config(algorithm));
                path.add_flow();
                path.run(unit);
                path.add_flow_to(if far.is_some() { 2 } else { 1 });
                path.run(2 * unit);
                for (sum, share) in shares.iter_mut().zip(path.run(4 * unit)) {
                    *sum += share;
                }
            }
            let span = u64::try_from((4 * unit).as_micros()).unwrap() * seeds;
            let [near, far] = [shares[0], shares[1]].map(|octets| octets * 8_000_000_000 / span / BANDWIDTH);
            let (algorithm, jain) = (algorithm.name(), jain(&shares));
            writeln!(text, "  {name}  {algorithm:8}{near:>7}{far:>7}   Jain {jain:>3} %").unwrap();
        }
    }
}

#[test]
fn goodput_is_what_it_was() {
    let mut text = String::from(
        "Goodput of one flow over a simulated bottleneck, in thousandths of its bits; headers take 44 of them.\n\
         Router queue: one path's worth or 200 kB; for DCTCP it marks from a third on. SACK, timestamps, RACK-TLP.\n\
         Random loss of data segments. In brackets what Mathis' and RFC 9438's formulas say.\n\n",
    );
    line(&mut text, "loss in %", LOSSES.map(|(_, name)| name.to_owned()));
    let blocks = thread::scope(|scope| {
        let threads = ROWS.each_ref().map(|row| scope.spawn(move || block(row)));
        threads.map(|thread| thread.join().unwrap())
    });
    text.extend(blocks);
    text.push_str("\nTwo flows at 200 Mb/s, the second one later: thousandths of the bottleneck each\n\n");
    fairness(&mut text);

    let name = if std::env::var_os("TCP_LONG").is_some() { "goodput-long.txt" } else { "goodput.txt" };
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    if std::env::var_os("TCP_UPDATE").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    if text != before {
        let changed = text.lines().zip(before.lines()).filter(|(now, then)| now != then);
        let changed: Vec<String> = changed.map(|(now, then)| format!("-{then}\n+{now}")).collect();
        panic!("{name} differs; TCP_UPDATE=1 writes it anew\n{}", changed.join("\n"));
    }
}

/// At 1 % and 1 ms both formulas are Mathis': 12.2 segments a round trip, 142 Mb/s of the 10 Gb/s.
#[test]
fn a_hundredth_lost_at_ten_gigabits_leaves_what_mathis_says() {
    let (seeds, _) = effort();
    let mathis = (1.5_f64 / 0.01).sqrt() * f64::from(SEGMENT) * 8.0 * 1000.0;
    for congestion in [NewReno, Cubic] {
        for seed in 1..=seeds {
            let row = Row { name: "", rtt: MS, bandwidth: 10_000_000_000, span: 100 * MS };
            let mut path = Path::new(PathPlan { loss_ppm: 10_000, ..plan(&row, seed) }, &config(congestion));
            path.add_flow();
            watch(&mut path, row.span, 20);
            #[expect(clippy::cast_precision_loss, reason = "small enough")]
            let ratio = watch(&mut path, row.span, 300) as f64 / 1000.0 / mathis;
            assert!((0.8..1.25).contains(&ratio), "{congestion:?} seed {seed}: {ratio}");
        }
    }
}
