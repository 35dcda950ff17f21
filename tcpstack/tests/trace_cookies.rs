//! Packet traces of SYN cookies, and crowds of SYNs.

mod common;

use core::time::Duration;

use common::bench::{OURS, PORT, THEIRS, plain, seg};
use common::trace::Trace;
use proptest::prelude::*;
use tcpstack::addr::IpCidr;
use tcpstack::config::{SourceLimit, StackConfig, SynCookies};
use tcpstack::tcp::TcpCounters;

fn always() -> StackConfig {
    StackConfig { syn_cookies: SynCookies::Always, timestamps: true, sack: true, ..plain() }
}

fn counters(trace: &Trace) -> &TcpCounters {
    trace.bench.stack.counters()
}

/// Nothing at all is kept of a SYN that was answered with a cookie.
fn assert_nothing_kept(trace: &Trace) {
    assert_eq!((trace.bench.stack.half_open_len(), trace.bench.stack.connections().count()), (0, 0));
}

#[test]
fn with_timestamps_a_cookie_carries_all_options() {
    let mut trace = Trace::listening(StackConfig { receive_window: 1 << 20, ..always() });
    trace.run(
        "0.000 < S 0 mss 1460 ws 7 sackok ts 500:0
         0.000 > SA 0 ack 1 mss 1460 ws 5 sackok ts *:500",
    );
    assert_nothing_kept(&trace);
    trace.run(
        "0.010 < A 1 ack 1 win 100 ts 510:*
         0.011 > A 1 ack 1 ts *:510              # the whole window, which a SYN cannot say
         0.011 = ESTABLISHED",
    );
    let info = trace.bench.stack.info(trace.bench.id()).unwrap();
    assert!(info.sack && info.timestamps);
    assert_eq!((info.snd_wnd, info.emss, info.cwnd), (100 << 7, 1448, 14_480));
    // The round trip is not known, and nothing is said to be lost.
    assert_eq!((info.srtt, info.rto), (None, Duration::from_millis(100)));
    assert_eq!((counters(&trace).syn_cookies_sent, counters(&trace).syn_cookies_accepted), (1, 1));
    // Timestamps only ever rise.
    trace.run(
        "0.020 < PA 1+100 ack 1 win 100 ts 520:*
         0.021 > A 1 ack 101 ts *:520",
    );
    assert_eq!(trace.bench.read(), 100);
}

#[test]
fn without_timestamps_a_cookie_carries_the_segment_size_alone() {
    let mut trace = Trace::listening(always());
    trace.run(
        "0.000 < S 0 mss 1460 ws 7 sackok
         0.000 > SA 0 ack 1 mss 1460
         0.010 < A 1 ack 1 win 100
         0.010 = ESTABLISHED",
    );
    let info = trace.bench.stack.info(trace.bench.id()).unwrap();
    assert!(!info.sack && !info.timestamps);
    assert_eq!((info.snd_wnd, info.emss), (100, 1460));
}

#[test]
fn data_may_come_with_a_cookie() {
    let mut trace = Trace::listening(always());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < FA 1+100 ack 1
         0.010 > A 1 ack 102
         0.010 = CLOSE-WAIT",
    );
    assert_eq!(trace.bench.read(), 100);
}

#[test]
fn data_that_overtake_the_acknowledgment_are_not_reset() {
    let mut trace = Trace::listening(always());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < PA 101+100 ack 1        # what begins at 1 is late
         0.020 < FA 201 ack 1",
    );
    assert_nothing_kept(&trace);
    trace.run(
        "0.030 < PA 1+100 ack 1
         0.031 > A 1 ack 101
         0.031 = ESTABLISHED",
    );
}

#[test]
fn a_forged_cookie_is_refused() {
    let mut trace = Trace::listening(always());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460
         0.010 < A 1 ack 4000000000       # a forged one
         0.010 > R 4000000000
         0.020 < A 2 ack 1                # the right one, but not its first segment
         0.030 < R 1                      # a reset finds nothing",
    );
    assert_nothing_kept(&trace);
    assert_eq!(counters(&trace).syn_cookies_failed, 2);
}

#[test]
fn cookies_grow_stale() {
    let mut trace = Trace::listening(always());
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460",
    );
    // Another one, so that cookies are looked for.
    let iss = trace.bench.iss;
    trace.bench.now += Duration::from_secs(128);
    trace.bench.remote.1 = 6000;
    assert_eq!(trace.bench.recv(&seg("S", 0, 0)).len(), 1);
    trace.bench.remote.1 = common::bench::PEER_PORT;
    trace.bench.iss = iss;
    trace.run(
        "128.010 < A 1 ack 1
         128.010 > R 1",
    );
    assert_eq!((counters(&trace).syn_cookies_failed, counters(&trace).syn_cookies_accepted), (1, 0));
}

#[test]
fn under_pressure_only_what_finds_no_room_gets_a_cookie() {
    let config = StackConfig { half_open_max: 1, ..always() };
    let mut trace = Trace::listening(StackConfig { syn_cookies: SynCookies::UnderPressure, ..config });
    trace.run(
        "0.000 < S 0 mss 1000
         0.000 > SA 0 ack 1 mss 1460",
    );
    assert_eq!(counters(&trace).syn_cookies_sent, 0);
    trace.bench.remote.1 = 6000;
    trace.bench.iss = None;
    trace.run(
        "0.010 < S 0 mss 1000
         0.010 > SA 0 ack 1 mss 1460
         0.020 < A 1 ack 1
         0.020 = ESTABLISHED",
    );
    assert_eq!((counters(&trace).syn_cookies_sent, counters(&trace).syn_cookies_accepted), (1, 1));
    assert_eq!(trace.bench.stack.half_open_len(), 1);
}

#[test]
fn the_backlog_bounds_cookies_too() {
    let mut trace = Trace::new(always());
    trace.bench.stack.listen((OURS, PORT).into(), 1).unwrap();
    let handshake = |trace: &mut Trace, port| {
        trace.bench.remote.1 = port;
        trace.bench.iss = None;
        trace.bench.recv(&seg("S", 0, 0)).len()
    };
    assert_eq!(handshake(&mut trace, 6000), 1);
    let first = trace.bench.iss;
    assert_eq!(handshake(&mut trace, 6001), 1);
    assert_eq!(trace.bench.recv(&seg("A", 1, 1)), []);
    // The application has not heard of that one yet: no room for the first, nor for a third.
    (trace.bench.remote.1, trace.bench.iss) = (6000, first);
    assert_eq!(trace.bench.recv(&seg("A", 1, 1)), []);
    assert_eq!(trace.bench.stack.connections().count(), 1);
    assert_eq!(handshake(&mut trace, 6002), 0);
    assert_eq!(counters(&trace).backlog_full, 2);
    trace.accepted();
    (trace.bench.remote.1, trace.bench.iss) = (6000, first);
    assert_eq!(trace.bench.recv(&seg("PA", 1, 1).payload(10)), []);
    assert_eq!(trace.bench.stack.connections().count(), 2);
}

#[test]
fn a_flood_of_syns_costs_a_bounded_table_and_keeps_nobody_out() {
    let config = StackConfig { half_open_max: 64, ..always() };
    let mut trace = Trace::new(StackConfig { syn_cookies: SynCookies::UnderPressure, ..config });
    trace.bench.stack.listen((OURS, PORT).into(), 1000).unwrap();
    let all = IpCidr::new([0, 0, 0, 0].into(), 0).unwrap();
    trace.bench.stack.interface_mut().add_route(all, [192, 0, 2, 254].into()).unwrap();
    for number in 0u32..20_000 {
        let [a, b, c, _] = number.to_le_bytes();
        trace.bench.remote = ([198, 51, a, 1 + b % 200], u16::from(c) + 1000);
        trace.bench.inject(&seg("S", number, 0));
        if number % 32 == 0 {
            trace.bench.turn();
        }
    }
    trace.bench.turn();
    assert_eq!(trace.bench.stack.half_open_len(), 64);
    assert_eq!(trace.bench.stack.connections().count(), 0);
    // Each was answered, by what little came back nobody was.
    assert_eq!(counters(&trace).syn_cookies_sent + 64, 20_000);
    (trace.bench.remote, trace.bench.iss) = ((THEIRS, 7000), None);
    assert_eq!(trace.bench.recv(&seg("S", 0, 0)).len(), 1);
    trace.bench.recv(&seg("A", 1, 1));
    trace.accepted();
    // What was half-open is given up in time, and no frame is left.
    trace.bench.quiet_pass(Duration::from_secs(30));
    assert_eq!((trace.bench.stack.half_open_len(), trace.bench.wire.outstanding()), (0, 0));
}

#[test]
fn one_source_does_not_open_all_connections() {
    let limit = SourceLimit { per_second: 10, burst: 5, sources: 1024 };
    let mut trace = Trace::listening(StackConfig { source_limit: Some(limit), ..plain() });
    let mut opened = 0;
    for port in 6000..6020 {
        trace.bench.remote.1 = port;
        trace.bench.iss = None;
        opened += trace.bench.recv(&seg("S", 0, 0)).len();
        trace.bench.recv(&seg("A", 1, 1));
        while trace.bench.stack.next_event().is_some() {}
    }
    assert_eq!((opened, counters(&trace).source_limited), (5, 15));
    // Others are not concerned, and a tenth of a second brings one more.
    trace.bench.remote.0 = [192, 0, 2, 77];
    assert_eq!(trace.bench.recv(&seg("S", 0, 0)).len(), 1);
    trace.bench.now += Duration::from_millis(100);
    trace.bench.remote.0 = THEIRS;
    assert_eq!(trace.bench.recv(&seg("S", 0, 0)).len(), 1);
}

proptest! {
    #[test]
    fn any_offer_survives_a_cookie(
        mss in 536u16..9000,
        scale in prop::option::of(0u8..15),
        sack in any::<bool>(),
        stamped in any::<bool>(),
        peer_clock in any::<u32>(),
        pause in 0u64..60_000,
    ) {
        let mut trace = Trace::listening(always());
        trace.bench.quiet_pass(Duration::from_millis(pause));
        (trace.bench.mss, trace.bench.scale, trace.bench.sack_permitted) = (Some(mss), scale, sack);
        let mut syn = seg("S", 0, 0);
        syn.timestamps = stamped.then_some((peer_clock, 0));
        let answer = trace.bench.recv(&syn);
        assert_nothing_kept(&trace);
        let mut ack = seg("A", 1, 1).window(1000);
        ack.timestamps = answer[0].timestamps.map(|(value, _)| (peer_clock, value));
        trace.bench.recv(&ack);
        let id = trace.accepted();
        let info = trace.bench.stack.info(id).unwrap();
        prop_assert_eq!(info.timestamps, stamped);
        prop_assert_eq!(info.sack, sack && stamped);
        prop_assert_eq!(info.snd_wnd, 1000 << scale.filter(|_| stamped).unwrap_or(0));
        let emss = info.emss + if stamped { 12 } else { 0 };
        prop_assert!(emss <= mss.min(1460).into() && emss >= 536);
    }
}
