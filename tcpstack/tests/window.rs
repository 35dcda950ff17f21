//! The receive window: that it fills the path, stays small where it need not grow, and has bounds.

mod common;

use core::time::Duration;

use common::path::{Path, PathPlan, large};
use common::stream::Stream;
use common::{Host, Version, World, config, sweep};
use tcpstack::config::StackConfig;
use tcpstack::sim::{Chance, Faults};

const MS: Duration = Duration::from_millis(1);

/// Windows that grow from 64 KiB, where nothing else is the limit.
fn growing() -> StackConfig {
    StackConfig { receive_window_initial: 64 << 10, ..large() }
}

/// 9.4 Gb/s over 1 ms are 1.25 MB, just as 100 Gb/s over 100 us are.
fn long() -> PathPlan {
    PathPlan { bandwidth: 9_400_000_000, rtt: MS, queue: 4_000_000, ..PathPlan::default() }
}

#[test]
fn a_path_that_holds_as_much_as_100_gigabit_by_100_us_is_filled() {
    for timestamps in [false, true] {
        let config = StackConfig {
            timestamps,
            send_buffer: 16 << 20,
            send_records_max: 16_384,
            transmit_queue: 4096,
            ..StackConfig::default()
        };
        let mut path = Path::new(long(), &config);
        path.add_flow();
        path.run(30 * MS);
        assert!(path.utilization(30 * MS) > 930);
        // A window that does not grow holds it to a tenth.
        let fixed = StackConfig { receive_window: config.receive_window_initial, ..config };
        let mut path = Path::new(long(), &fixed);
        path.add_flow();
        path.run(30 * MS);
        assert!(path.utilization(30 * MS) < 150);
    }
}

/// What the peer was told, by what it is still allowed.
fn window(path: &Path, flow: usize) -> u32 {
    path.stacks[1].info(path.flows[flow].server).unwrap().rcv_wnd
}

/// What the sender keeps in flight is less than the path and its queue take: nothing is lost.
#[test]
fn it_grows_to_a_few_times_of_what_is_in_flight() {
    let in_flight = 1_000_000;
    let plan = PathPlan { bandwidth: 1_000_000_000, rtt: 2 * MS, ..PathPlan::default() };
    let mut path = Path::new(plan, &StackConfig { send_buffer: in_flight, ..growing() });
    path.add_flow();
    path.run(200 * MS);
    assert!((in_flight..=6 * in_flight).contains(&window(&path, 0)), "{}", window(&path, 0));
    assert!(path.utilization(100 * MS) > 930);
}

#[test]
fn all_windows_together_have_a_bound() {
    let total = 300_000;
    let config = StackConfig { receive_window_total: total, ..growing() };
    let mut path = Path::new(long(), &config);
    let flows: Vec<_> = (0..16).map(|_| path.add_flow()).collect();
    path.run(50 * MS);
    assert_eq!(path.stacks[1].windows_grown(), total);
    // Each has what it began with, at least; together they may have no more than the total.
    let windows: u64 = flows.iter().map(|&flow| u64::from(window(&path, flow))).sum();
    assert!(windows <= 16 * (64 << 10) + total, "{windows}");
    for flow in flows {
        let (client, server) = (path.flows[flow].client, path.flows[flow].server);
        path.flows[flow].left = 0;
        path.stacks[0].abort(client, path.now);
        path.stacks[1].abort(server, path.now);
    }
    path.flows.clear();
    path.run(10 * MS);
    assert_eq!(path.stacks[1].windows_grown(), 0);
}

/// A reader that takes little lets the window fill, not grow.
#[test]
fn a_slow_reader_gets_no_larger_window() {
    let config = StackConfig { receive_window_initial: 64 << 10, ..config() };
    let faults = Faults::link(Duration::from_micros(100), 10_000_000_000);
    let mut world = World::new(3, faults, &config);
    let (client, server) = world.establish(Version::V4, 80);
    let mut sender = Stream::new(client, 0, 20_000_000, 1);
    let (mut held, mut taken) = (0, 0);
    let mut next = world.now;
    world.run(Duration::from_secs(2), |world| {
        let now = world.now;
        let [Host { device, stack, .. }, reader] = &mut world.hosts;
        sender.work(stack, device);
        while let Some(frame) = reader.stack.receive_payload(server) {
            held += tcpstack::device::Frame::bytes(&frame).len();
        }
        // Ten megabytes a second; the window alone would let 300 through.
        if now >= next && held >= 1000 {
            next = now + Duration::from_micros(100);
            reader.stack.release_window(server, 1000);
            (held, taken) = (held - 1000, taken + 1000);
        }
        false
    });
    assert!(taken > 10_000_000, "{taken}");
    assert!(held > 50_000 && held <= 64 << 10, "{held}");
    assert_eq!(world.hosts[1].stack.windows_grown(), 0);
}

/// A peer that sends slowly but steadily does not need a larger one either.
#[test]
fn a_slow_sender_gets_no_larger_window() {
    let plan = PathPlan { bandwidth: 10_000_000, rtt: MS, ..PathPlan::default() };
    let mut path = Path::new(plan, &growing());
    path.add_flow();
    // What the application sends, not what the path takes.
    path.flows[0].left = 0;
    for _ in 0..2000 {
        path.flows[0].left += 1000;
        path.run(MS);
    }
    assert!(path.flows[0].received > 1_900_000);
    assert_eq!(path.stacks[1].windows_grown(), 0);
}

/// Losses, reordering, slow and fast readers: the device looks at each window that is sent.
// proves 9293-3.8.6-1
#[test]
fn it_is_never_taken_back() {
    sweep("window", "it_is_never_taken_back", 30, |seed| {
        let faults = Faults {
            loss: Chance::ppm(if seed % 3 == 0 { 0 } else { 5000 }),
            reorder: Chance::percent(u32::from(seed % 2 == 0)),
            ..Faults::link(Duration::from_micros(100), 10_000_000_000)
        };
        let config = StackConfig {
            receive_window_initial: 16 << 10,
            receive_window_total: if seed % 5 == 0 { 50_000 } else { 64 << 20 },
            timestamps: seed % 4 < 2,
            ..config()
        };
        let mut world = World::new(seed, faults, &config);
        let (client, server) = world.establish(Version::V4, 80);
        let mut streams = [Stream::new(client, 0, 2_000_000, seed), Stream::new(server, 1, 300_000, seed)];
        (streams[1].slow, streams[0].ragged) = (seed % 7 == 0, seed % 2 == 1);
        let mut grown = 0;
        let done = world.run(Duration::from_secs(60), |world| {
            for (Host { device, stack, .. }, stream) in world.hosts.iter_mut().zip(&mut streams) {
                stream.work(stack, device);
            }
            grown = world.hosts[1].stack.windows_grown().max(grown);
            streams[1].received == 2_000_000 && streams[0].received == 300_000
        });
        assert!(done, "{} of 2000000 received", streams[1].received);
        assert!(grown > 0 && grown <= config.receive_window_total, "{grown}");
    });
}
