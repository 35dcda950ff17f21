//! Traces of one stack against a peer made by hand: opening, resets, closing.

mod common;

use core::time::Duration;

use common::bench::{Bench, MS, OURS, PEER_PORT, PORT, THEIRS, brief, plain, seg};
use smoltcp::wire::IpProtocol;
use tcpstack::config::StackConfig;
use tcpstack::stack::{CloseReason, Events};
use tcpstack::tcp::state::State;

// ---- LISTEN, SYN-SENT, SYN-RECEIVED

#[test]
fn listen_answers_an_ack_with_a_reset_and_ignores_a_reset() {
    let mut bench = Bench::new(plain());
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.iss = Some(0);
    assert_eq!(brief(&bench.recv(&seg("A", 10, 77))), [("R", 77, 0, 0)]);
    assert_eq!(bench.recv(&seg("R", 10, 0)), []);
    assert_eq!(bench.recv(&seg("RA", 10, 5)), []);
}

#[test]
fn without_a_listener_all_but_resets_is_refused() {
    let mut bench = Bench::new(plain());
    bench.iss = Some(0);
    assert_eq!(brief(&bench.recv(&seg("S", 0, 0))), [("RA", 0, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("FA", 0, 9).payload(10))), [("R", 9, 0, 0)]);
    assert_eq!(bench.recv(&seg("R", 0, 0)), []);
}

#[test]
fn a_syn_ack_goes_again_and_then_no_more() {
    let config = StackConfig { syn_ack_retries: 2, ..plain() };
    let mut bench = Bench::new(config);
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0));
    let all = bench.pass(10_000 * MS);
    assert_eq!(brief(&all), [("SA", 0, 1, 0), ("SA", 0, 1, 0), ("SA", 0, 1, 0), ("RA", 1, 1, 0)]);
    assert_eq!(bench.stack.connections().count(), 0);
    assert_eq!(bench.stack.next_event(), None);
}

#[test]
fn a_repeated_syn_gets_the_answer_again() {
    let mut bench = Bench::new(plain());
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0));
    bench.pass(MS);
    assert_eq!(brief(&bench.recv(&seg("S", 0, 0))), [("SA", 0, 1, 0)]);
}

#[test]
fn syn_received_goes_back_to_listen_on_a_reset() {
    let mut bench = Bench::new(plain());
    bench.stack.listen((OURS, PORT).into(), 1).unwrap();
    bench.inject(&seg("S", 0, 0));
    bench.pass(MS);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 99))), [("R", 99, 0, 0)]);
    assert_eq!(bench.recv(&seg("R", 1, 0)), []);
    assert_eq!(bench.stack.connections().count(), 0);
    assert_eq!(bench.stack.next_event(), None);
    // The backlog of one is free again.
    bench.iss = None;
    bench.inject(&seg("S", 0, 0));
    assert_eq!(brief(&bench.pass(MS)), [("SA", 0, 1, 0)]);
}

fn opening() -> Bench {
    let mut bench = Bench::new(plain());
    let remote = (THEIRS, PEER_PORT).into();
    let id = bench.stack.connect(remote, Some((OURS, PORT).into()), bench.now).unwrap();
    bench.id = Some(id);
    assert_eq!(brief(&bench.pass(MS)), [("S", 0, 0, 0)]);
    bench
}

// proves 9293-3.1-1, 9293-3.7.1-4
#[test]
fn syn_sent_to_established() {
    let mut bench = opening();
    assert_eq!(brief(&bench.recv(&seg("SA", 0, 1))), [("A", 1, 1, 0)]);
    assert_eq!(bench.state(), State::Established);
    assert!(bench.events().contains(Events::CONNECTED));
    // Without a window scale option the peer's window is what it says.
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 60_000);
    assert_eq!(bench.stack.emss(bench.id()), 1000);
}

#[test]
fn syn_sent_with_a_bad_ack_sends_a_reset() {
    let mut bench = opening();
    assert_eq!(brief(&bench.recv(&seg("SA", 0, 2))), [("R", 2, 0, 0)]);
    assert_eq!(brief(&bench.recv(&seg("A", 0, 0))), [("R", 0, 0, 0)]);
    assert_eq!(bench.recv(&seg("RA", 0, 2)), []);
    assert_eq!(bench.recv(&seg("R", 0, 0)), []);
    assert_eq!(bench.state(), State::SynSent);
    assert_eq!(bench.recv(&seg("RA", 0, 1)), []);
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Refused);
}

// proves 9293-3.5-1
// proves 9293-3.5-2
#[test]
fn syn_sent_to_syn_received_and_reset() {
    let mut bench = opening();
    assert_eq!(brief(&bench.recv(&seg("S", 0, 0))), [("SA", 0, 1, 0)]);
    assert_eq!(bench.state(), State::SynReceived);
    bench.recv(&seg("RA", 1, 1));
    // It was opened here, so the application hears of it.
    assert!(bench.events().contains(Events::CLOSED));
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Refused);
}

#[test]
fn a_syn_goes_again_with_back_off() {
    let mut bench = opening();
    let start = bench.now;
    let mut times = Vec::new();
    while times.len() < 3 {
        if !bench.pass(MS).is_empty() {
            times.push((bench.now - start).as_millis());
        }
    }
    // 100 ms, then 200, then 400.
    for (time, expected) in times.iter().zip([100, 300, 700]) {
        assert!(time.abs_diff(expected) <= 2, "{times:?}");
    }
    // After a lost SYN the window is one segment, and the first timeout three seconds.
    bench.recv(&seg("SA", 0, 1));
    let info = bench.stack.info(bench.id()).unwrap();
    assert_eq!((info.cwnd, info.rto), (1000, Duration::from_secs(3)));
}

// proves 9293-3.7.1-3
#[test]
fn without_an_mss_option_segments_are_of_536_octets() {
    let bench = Bench::established_with(plain(), |bench| bench.mss = None);
    assert_eq!(bench.stack.emss(bench.id()), 536);
}

#[test]
fn a_silly_mss_is_not_followed_to_the_bottom() {
    let bench = Bench::established_with(plain(), |bench| bench.mss = Some(0));
    assert_eq!(bench.stack.emss(bench.id()), 64);
}

// proves 9293-3.1-2
#[test]
fn the_window_is_scaled_only_when_both_say_so() {
    let window = 1 << 20;
    let config = StackConfig { receive_window: window, receive_window_initial: window, ..plain() };
    let mut bench = Bench::established_with(config.clone(), |bench| bench.scale = Some(3));
    bench.recv(&seg("A", 1, 1).window(1000));
    assert_eq!(bench.stack.info(bench.id()).unwrap().snd_wnd, 8000);
    bench.recv(&seg("A", 1, 1).payload(100));
    let ack = bench.pass(5 * MS);
    assert_eq!(ack[0].window, u16::try_from(((1u32 << 20) - 100) >> 5).unwrap());

    let mut bench = Bench::established(config);
    bench.recv(&seg("A", 1, 1).payload(100));
    assert_eq!(bench.pass(5 * MS)[0].window, u16::MAX - 100);
}

// ---- RFC 5961

// proves 9293-3.10.7.4-4
// proves 9293-3.10.7.4-5
// proves 9293-3.10.7.4-6
#[test]
fn a_reset_must_hit_the_next_octet() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("R", 2, 0))), [("A", 1, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("R", 20_000, 0))), [("A", 1, 1, 0)]);
    assert_eq!(bench.recv(&seg("R", 20_001, 0)), []);
    assert_eq!(bench.recv(&seg("R", 0, 0)), []);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(bench.recv(&seg("R", 1, 0)), []);
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Reset);
}

// proves 9293-3.10.7.4-7
// proves 9293-3.10.7.4-8
#[test]
fn a_syn_is_challenged_wherever_it_is() {
    let mut bench = Bench::established(plain());
    for seq in [0, 1, 500, 30_000] {
        assert_eq!(brief(&bench.recv(&seg("S", seq, 0))), [("A", 1, 1, 0)], "{seq}");
    }
    assert_eq!(bench.state(), State::Established);
}

// proves 9293-3.10.7.4-10
// proves 9293-3.10.7.4-11
#[test]
fn an_impossible_ack_is_challenged_and_its_data_dropped() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("A", 1, 2).payload(10))), [("A", 1, 1, 0)]);
    let old = 1u32.wrapping_sub(60_001);
    assert_eq!(brief(&bench.recv(&seg("A", 1, old).payload(10))), [("A", 1, 1, 0)]);
    assert_eq!(bench.read(), 0);
    assert_eq!(bench.stack.counters().ack_unacceptable, 2);
    bench.recv(&seg("A", 1, 1u32.wrapping_sub(60_000)).payload(10));
    assert_eq!(bench.read(), 10);
}

#[test]
fn challenge_acks_are_limited() {
    let config = StackConfig { challenge_acks: 3, ..plain() };
    let mut bench = Bench::established(config);
    let answers: usize = (0..10).map(|_| bench.recv(&seg("S", 1, 0)).len()).sum();
    assert_eq!(answers, 3);
    assert_eq!(bench.stack.counters().challenge_acks_limited, 7);
    bench.now += 1000 * MS;
    assert_eq!(bench.recv(&seg("S", 1, 0)).len(), 1);
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut bench = Bench::established(plain());
    assert_eq!(bench.recv(&seg("", 1, 0).payload(10)), []);
    assert_eq!(bench.read(), 0);
}

// proves 9293-3.1-3
#[test]
fn a_wrong_checksum_is_dropped() {
    let mut bench = Bench::established(plain());
    let before = bench.stack.counters().segments_received;
    let mut octets = [0; 20];
    octets[12] = 0x50;
    bench.inject_ip(IpProtocol::Tcp, &octets);
    octets[12] = 0x40;
    bench.inject_ip(IpProtocol::Tcp, &octets);
    bench.turn();
    let counters = bench.stack.counters();
    assert_eq!((counters.segments_received, counters.checksum_bad, counters.malformed), (before, 1, 1));
}

// ---- closing

#[test]
fn fin_wait_1_to_closing_to_time_wait() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 1, 1, 0)]);
    assert_eq!(bench.state(), State::FinWait1);
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 1))), [("A", 2, 2, 0)]);
    assert_eq!(bench.state(), State::Closing);
    bench.recv(&seg("A", 2, 2));
    assert_eq!(bench.state(), State::TimeWait);
}

#[test]
fn fin_wait_1_straight_to_time_wait() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    bench.send(&[100]);
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 101, 1, 0)]);
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 102).payload(50))), [("A", 102, 52, 0)]);
    assert_eq!(bench.state(), State::TimeWait);
    assert_eq!(bench.read(), 50);
    bench.stack.release(id);
    // The peer's FIN again is acknowledged without a connection.
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 102).payload(50))), [("A", 102, 52, 0)]);
    assert_eq!(bench.recv(&seg("A", 52, 102)), []);
    assert_eq!(bench.recv(&seg("R", 40, 0)), []);
    assert_eq!(bench.stack.time_wait_len(), 1);
    bench.recv(&seg("R", 52, 0));
    assert_eq!(bench.stack.time_wait_len(), 0);
}

#[test]
fn close_wait_to_last_ack_to_closed() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    assert_eq!(brief(&bench.recv(&seg("FA", 1, 1).payload(10))), [("A", 1, 12, 0)]);
    assert!(bench.events().contains(Events::PEER_CLOSED | Events::READABLE));
    assert_eq!(bench.state(), State::CloseWait);
    assert_eq!(brief(&bench.send(&[30])), [("PA", 1, 12, 30)]);
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 31, 12, 0)]);
    assert_eq!(bench.state(), State::LastAck);
    // Data after the FIN are not the peer's to send.
    bench.recv(&seg("A", 12, 1).payload(10));
    bench.recv(&seg("A", 12, 32));
    assert_eq!(bench.state(), State::Closed);
    assert_eq!(bench.read(), 10);
    assert!(bench.events().contains(Events::CLOSED));
}

#[test]
fn a_fin_is_sent_again() {
    let mut bench = Bench::established(plain());
    let id = bench.id();
    bench.send(&[100]);
    bench.stack.close(id);
    assert_eq!(brief(&bench.turn()), [("FA", 101, 1, 0)]);
    bench.recv(&seg("A", 1, 101));
    assert_eq!(brief(&bench.pass(12 * MS)), [("FA", 101, 1, 0)]);
    bench.recv(&seg("A", 1, 102));
    assert_eq!(bench.state(), State::FinWait2);
}

#[test]
fn an_early_fin_waits_for_its_data() {
    let mut bench = Bench::established(plain());
    assert_eq!(brief(&bench.recv(&seg("FA", 101, 1).payload(100))), [("A", 1, 1, 0)]);
    assert_eq!(bench.state(), State::Established);
    assert_eq!(brief(&bench.recv(&seg("A", 1, 1).payload(100))), [("A", 1, 202, 0)]);
    assert_eq!(bench.state(), State::CloseWait);
    assert_eq!(bench.read(), 200);
}

#[test]
fn an_abort_sends_a_reset_of_the_next_number() {
    let mut bench = Bench::established(plain());
    let (id, now) = (bench.id(), bench.now);
    bench.send(&[100]);
    bench.stack.abort(id, now);
    assert_eq!(brief(&bench.turn()), [("RA", 101, 1, 0)]);
    assert_eq!(bench.stack.close_reason(id), CloseReason::Aborted);
    // The number is nobody's now.
    assert_eq!(brief(&bench.recv(&seg("A", 1, 101))), [("R", 101, 0, 0)]);
}

// ---- RFC 7323

/// Established with timestamps; the peer's clock starts at 1000.
fn with_timestamps() -> Bench {
    let mut bench = Bench::new(StackConfig { timestamps: true, ..plain() });
    bench.stack.listen((OURS, PORT).into(), 4).unwrap();
    bench.inject(&seg("S", 0, 0).timestamps(1000, 0));
    let answer = bench.pass(MS);
    assert_eq!(answer[0].timestamps.unwrap().1, 1000);
    assert_eq!(bench.recv(&seg("A", 1, 1).timestamps(1001, answer[0].timestamps.unwrap().0)), []);
    bench.id = Some(bench.stack.next_event().unwrap().0);
    assert_eq!(bench.stack.emss(bench.id()), 988);
    bench
}

// proves 9293-3.1-6
#[test]
fn timestamps_are_echoed_from_the_first_segment_of_an_ack() {
    let mut bench = with_timestamps();
    bench.inject(&seg("A", 1, 1).payload(100).timestamps(1002, 0));
    bench.inject(&seg("A", 101, 1).payload(100).timestamps(1005, 0));
    let ack = bench.turn();
    assert_eq!((ack[0].ack, ack[0].timestamps.unwrap().1), (201, 1002));
    // One that was overtaken does not set it back.
    bench.inject(&seg("A", 201, 1).payload(100).timestamps(1006, 0));
    bench.inject(&seg("A", 301, 1).payload(100).timestamps(1006, 0));
    assert_eq!(bench.turn()[0].timestamps.unwrap().1, 1006);
}

#[test]
fn an_older_timestamp_is_dropped_and_answered() {
    let mut bench = with_timestamps();
    let answer = bench.recv(&seg("A", 1, 1).payload(100).timestamps(1000, 0));
    assert_eq!(brief(&answer), [("A", 1, 1, 0)]);
    assert_eq!((bench.read(), bench.stack.counters().paws), (0, 1));
    // A reset has no timestamp to be judged by.
    bench.recv(&seg("R", 1, 0).timestamps(1, 0));
    assert_eq!(bench.state(), State::Closed);
}

#[test]
fn after_24_days_an_old_timestamp_is_believed() {
    let mut bench = with_timestamps();
    bench.now += Duration::from_secs(25 * 24 * 3600);
    bench.recv(&seg("A", 1, 1).payload(100).timestamps(3, 0));
    assert_eq!((bench.read(), bench.stack.counters().paws), (100, 0));
}

#[test]
fn segments_without_the_agreed_timestamps_are_dropped() {
    let mut bench = with_timestamps();
    assert_eq!(bench.recv(&seg("A", 1, 1).payload(100)), []);
    assert_eq!((bench.read(), bench.stack.counters().timestamps_missing), (0, 1));
}

#[test]
fn timestamps_are_used_only_when_both_say_so() {
    let bench = Bench::established(StackConfig { timestamps: true, ..plain() });
    assert!(!bench.stack.info(bench.id()).unwrap().timestamps);
    assert_eq!(bench.stack.emss(bench.id()), 1000);
}

// ---- ICMP

// proves 9293-3.9.2.2-1, 9293-3.9.2.2-3, 9293-3.9.1.8-1
#[test]
fn icmp_errors_do_not_end_an_established_connection() {
    let mut bench = Bench::established(plain());
    bench.send(&[100]);
    for code in [0, 1, 2, 3, 13] {
        bench.inject_icmp(code, 0, 1);
    }
    // Of a segment that is not in flight.
    bench.inject_icmp(3, 0, 101);
    bench.turn();
    assert_eq!(bench.state(), State::Established);
    assert_eq!(bench.stack.info(bench.id()).unwrap().soft_errors, 5);
    assert_eq!(bench.stack.counters().icmp_ignored, 1);
}

// proves 9293-3.9.2.2-4
#[test]
fn a_refusal_by_icmp_ends_an_open() {
    let mut bench = opening();
    bench.inject_icmp(1, 0, 0);
    bench.inject_icmp(3, 0, 7);
    bench.turn();
    assert_eq!(bench.state(), State::SynSent);
    bench.inject_icmp(3, 0, 0);
    bench.turn();
    assert_eq!(bench.stack.close_reason(bench.id()), CloseReason::Refused);
}

// proves 9293-3.7.1-4
#[test]
fn packet_too_big_cuts_what_is_in_flight() {
    let mut bench = Bench::established(plain());
    assert_eq!(bench.send(&[1000, 1000]).len(), 2);
    bench.inject_icmp(4, 640, 1);
    let again = bench.turn();
    assert_eq!(
        brief(&again),
        [("A", 1, 1, 600), ("PA", 601, 1, 400), ("A", 1001, 1, 600), ("PA", 1601, 1, 400)]
    );
    assert_eq!(bench.stack.emss(bench.id()), 600);
    // A larger one says nothing.
    bench.inject_icmp(4, 900, 1);
    assert_eq!(bench.turn(), []);
    bench.recv(&seg("A", 1, 2001));
    assert!(bench.stack.all_acknowledged(bench.id()));
}
