use super::*;
use crate::tcp::options::SackBlock;
use proptest::prelude::*;

const MSS: u32 = 1000;

const ALL: [CongestionControl; 3] =
    [CongestionControl::NewReno, CongestionControl::Cubic, CongestionControl::Dctcp];

fn of(which: CongestionControl) -> Congestion {
    Congestion::new(which, MSS, 10 * MSS, 1 << 24, false, SeqNumber::new(0))
}

fn congestion() -> Congestion {
    of(CongestionControl::NewReno)
}

fn flight(una: u32, nxt: u32, octets: u32) -> Flight {
    let (una, nxt) = (SeqNumber::new(una), SeqNumber::new(nxt));
    Flight { nxt, octets, pipe: nxt.since(una), delivered: MSS, ..Flight::at(una) }
}

#[test]
fn the_initial_window_follows_rfc_6928() {
    assert_eq!(Congestion::initial_window(1460, 10), 14600);
    assert_eq!(Congestion::initial_window(536, 10), 5360);
    assert_eq!(Congestion::initial_window(8960, 10), 17920);
}

// proves 9293-3.8.2-1
#[test]
fn slow_start_grows_by_what_is_acknowledged() {
    let mut congestion = congestion();
    assert_eq!(congestion.acknowledge(2 * MSS, flight(2001, 10_001, 10 * MSS)), Response::Proceed);
    assert_eq!(congestion.cwnd(), 12 * MSS);
    let _ = congestion.acknowledge(100 * MSS, flight(102_001, 110_001, 12 * MSS));
    assert_eq!(congestion.cwnd(), 20 * MSS);
}

#[test]
fn paced_slow_start_has_no_limit_an_acknowledgment() {
    let mut congestion = congestion();
    congestion.paced = true;
    let _ = congestion.acknowledge(10 * MSS, flight(10_001, 10_001, 10 * MSS));
    assert_eq!(congestion.cwnd(), 20 * MSS);
}

#[test]
fn a_loss_is_answered_after_any_number_of_octets_without_one() {
    for which in ALL {
        let mut congestion = of(which);
        let mut una = 1;
        for _ in 0..5 {
            una += 700_000_000;
            let _ = congestion.acknowledge(MSS, flight(una, una + 10 * MSS, 10 * MSS));
        }
        let loss = || flight(una, una + 10 * MSS, 10 * MSS);
        assert_eq!(congestion.duplicate(loss(), false), Response::Proceed);
        assert_eq!(congestion.duplicate(loss(), false), Response::Proceed);
        assert_eq!(congestion.duplicate(loss(), false), Response::RetransmitFirst);
    }
}

#[test]
fn an_unused_window_does_not_grow() {
    let mut congestion = congestion();
    let _ = congestion.acknowledge(MSS, flight(1001, 1001, MSS));
    assert_eq!(congestion.cwnd(), 10 * MSS);
}

#[test]
fn congestion_avoidance_grows_by_one_segment_a_window() {
    let mut congestion = congestion();
    congestion.timeout(flight(1, 20_001, 20 * MSS), false);
    assert_eq!((congestion.cwnd(), congestion.ssthresh()), (MSS, 10 * MSS));
    for _ in 0..9 {
        let _ = congestion.acknowledge(MSS, flight(30_001, 50_000, congestion.cwnd()));
    }
    assert_eq!(congestion.cwnd(), 10 * MSS);
    for _ in 0..10 {
        let _ = congestion.acknowledge(MSS, flight(40_001, 60_000, congestion.cwnd()));
    }
    assert_eq!(congestion.cwnd(), 11 * MSS);
}

#[test]
fn two_duplicates_let_two_new_segments_go() {
    let mut congestion = congestion();
    for segments in [11, 12] {
        assert_eq!(congestion.duplicate(flight(1, 10_001, 10 * MSS), false), Response::Proceed);
        assert_eq!(congestion.window(), segments * MSS);
    }
    assert_eq!(congestion.cwnd(), 10 * MSS);
}

#[test]
fn the_third_duplicate_enters_recovery_and_partial_acks_stay_in_it() {
    let mut congestion = congestion();
    let lost = flight(1, 10_001, 10 * MSS);
    let _ = congestion.duplicate(lost, false);
    let _ = congestion.duplicate(lost, false);
    assert_eq!(congestion.duplicate(lost, false), Response::RetransmitFirst);
    assert!(congestion.in_recovery());
    assert_eq!((congestion.ssthresh(), congestion.window()), (5 * MSS, 8 * MSS));
    assert_eq!(congestion.duplicate(lost, false), Response::Proceed);
    assert_eq!(congestion.window(), 9 * MSS);
    let partial = flight(3001, 10_001, 10 * MSS);
    assert_eq!(congestion.acknowledge(3 * MSS, partial), Response::RetransmitFirst);
    assert_eq!(congestion.window(), 7 * MSS);
    assert_eq!(congestion.acknowledge(7 * MSS, flight(10_001, 12_001, 7 * MSS)), Response::Proceed);
    assert!(!congestion.in_recovery());
    assert_eq!(congestion.cwnd(), 3 * MSS);
}

#[test]
fn duplicates_of_a_repaired_loss_start_no_second_recovery() {
    let mut congestion = congestion();
    congestion.timeout(flight(1, 10_001, 10 * MSS), false);
    for _ in 0..5 {
        assert_eq!(congestion.duplicate(flight(5001, 10_001, 5 * MSS), false), Response::Proceed);
    }
    assert!(!congestion.in_recovery());
}

#[test]
fn a_second_timeout_of_the_same_data_leaves_the_threshold() {
    let mut congestion = congestion();
    congestion.timeout(flight(1, 10_001, 10 * MSS), false);
    congestion.timeout(flight(1, 10_001, MSS), true);
    assert_eq!((congestion.cwnd(), congestion.ssthresh()), (MSS, 5 * MSS));
}

#[test]
fn idleness_restarts_from_the_initial_window() {
    let mut congestion = congestion();
    let _ = congestion.acknowledge(8 * MSS, flight(8001, 10_001, 10 * MSS));
    congestion.restart(10 * MSS);
    assert_eq!(congestion.cwnd(), 10 * MSS);
}

#[test]
fn acknowledgments_of_one_burst_leave_the_window_in_use() {
    let mut congestion = congestion();
    congestion.timeout(flight(1, 20_001, 20 * MSS), false);
    let una = SeqNumber::new(20_001);
    for _ in 0..10 {
        let _ = congestion.acknowledge(MSS, flight(20_001, 50_000, congestion.cwnd()));
    }
    congestion.used(una, una + 10 * MSS, 10 * MSS);
    let before = congestion.cwnd();
    // Ten acknowledgments are processed before the next turn to send.
    for left in (0..10).rev() {
        let _ = congestion.acknowledge(MSS, flight(30_001 - left * MSS, 30_001, (left + 1) * MSS));
    }
    assert_eq!(congestion.cwnd(), before + MSS);
}

#[test]
fn a_loss_found_in_a_burst_counts_what_was_in_flight_before_it() {
    let mut congestion = congestion();
    congestion.used(SeqNumber::new(1), SeqNumber::new(10_001), 10 * MSS);
    let _ = congestion.acknowledge(6 * MSS, flight(6001, 10_001, 10 * MSS));
    assert_eq!(congestion.duplicate(flight(6001, 10_001, 4 * MSS), true), Response::RetransmitFirst);
    assert_eq!(congestion.ssthresh(), 5 * MSS);
}

// ---- Marks

fn marked(una: u32, nxt: u32, octets: u32) -> Flight {
    Flight { echo: true, ..flight(una, nxt, octets) }
}

// proves 9293-3.8.2-3
#[test]
fn a_mark_lowers_the_window_once_a_window_of_data() {
    let mut congestion = congestion();
    assert_eq!(congestion.acknowledge(MSS, marked(1001, 11_001, 10 * MSS)), Response::Reduced);
    assert_eq!(congestion.ssthresh(), 5 * MSS);
    assert!(core::mem::take(&mut congestion.reduced), "the peer is told");
    assert!(!congestion.in_recovery());
    // Proportionally: one segment for two that arrived.
    let mut sent = 0;
    for una in (2001..11_001).step_by(1000) {
        assert_eq!(congestion.acknowledge(MSS, marked(una, 11_001 + sent, 10 * MSS)), Response::Proceed);
        while congestion.cwnd() >= 11_001 + sent - una + MSS {
            congestion.sent(MSS);
            sent += MSS;
        }
    }
    assert_eq!(sent, 4 * MSS);
    // What was sent before the reduction is acknowledged: the end of it.
    assert_eq!(congestion.acknowledge(MSS, marked(11_001, 15_001, 5 * MSS)), Response::Proceed);
    assert_eq!((congestion.cwnd(), congestion.ssthresh()), (5 * MSS, 5 * MSS));
    // And a mark on what was sent after it is another one.
    assert_eq!(congestion.acknowledge(MSS, marked(12_001, 16_001, 5 * MSS)), Response::Reduced);
    assert_eq!(congestion.ssthresh(), 5 * MSS / 2);
}

#[test]
fn a_mark_and_a_loss_in_one_window_are_one_event() {
    let mut congestion = congestion();
    assert_eq!(congestion.acknowledge(MSS, marked(1001, 11_001, 10 * MSS)), Response::Reduced);
    let lost = marked(1001, 11_001, 9 * MSS);
    let _ = congestion.duplicate(lost, false);
    let _ = congestion.duplicate(lost, false);
    assert_eq!(congestion.duplicate(lost, false), Response::RetransmitFirst);
    assert!(congestion.in_recovery());
    assert_eq!(congestion.ssthresh(), 5 * MSS);
}

#[test]
fn a_duplicate_may_tell_of_a_mark() {
    let mut congestion = congestion();
    assert_eq!(congestion.duplicate(marked(1, 10_001, 10 * MSS), false), Response::Reduced);
    assert_eq!(congestion.ssthresh(), 5 * MSS);
}

#[test]
fn the_share_of_marks_decides_with_dctcp() {
    let mut congestion = of(CongestionControl::Dctcp);
    let mut una = 1;
    for _ in 0..2000 {
        una += MSS;
        let _ = congestion.acknowledge(MSS, flight(una, una + 9 * MSS, congestion.cwnd()));
    }
    let before = congestion.cwnd();
    una += MSS;
    assert_eq!(congestion.acknowledge(MSS, marked(una, una + 9 * MSS, before)), Response::Reduced);
    let fallen = before - congestion.ssthresh();
    assert!(fallen <= before / 20, "{fallen} of {before}");
    // A loss is a loss.
    let una = una + 20 * MSS;
    let _ = congestion.acknowledge(20 * MSS, flight(una, una + 9 * MSS, 20 * MSS));
    let cwnd = congestion.cwnd();
    let _ = congestion.duplicate(flight(una, una + 9 * MSS, cwnd), true);
    assert_eq!(congestion.ssthresh(), cwnd / 2);
}

// ---- Taken back

fn echoing(stamp: u32, una: u32, nxt: u32) -> Flight {
    Flight { echoed: Some(stamp), ..flight(una, nxt, nxt - una) }
}

fn lost(congestion: &mut Congestion) {
    for _ in 0..2 {
        let _ = congestion.duplicate(flight(1, 10_001, 10 * MSS), false);
    }
    assert_eq!(congestion.duplicate(flight(1, 10_001, 10 * MSS), false), Response::RetransmitFirst);
    congestion.repeated(MSS, Some(500));
    congestion.repeated(MSS, Some(501));
}

#[test]
fn an_answer_to_the_original_takes_the_recovery_back() {
    for which in ALL {
        let mut congestion = of(which);
        lost(&mut congestion);
        let answer = congestion.acknowledge(MSS, echoing(499, 1001, 10_001));
        assert_eq!(answer, Response::Undone { timeout: false });
        assert_eq!((congestion.cwnd(), congestion.ssthresh()), (10 * MSS, u32::MAX));
        assert!(!congestion.in_recovery() && !congestion.reduced);
        // And the next loss is a new one.
        lost(&mut congestion);
    }
}

#[test]
fn an_answer_to_the_repetition_does_not() {
    for echoed in [Some(500), Some(502), None] {
        let mut congestion = congestion();
        lost(&mut congestion);
        let partial = Flight { echoed, ..flight(1001, 10_001, 10 * MSS) };
        assert_eq!(congestion.acknowledge(MSS, partial), Response::RetransmitFirst);
        // Only the first one could have told.
        assert_eq!(congestion.acknowledge(MSS, echoing(499, 2001, 10_001)), Response::RetransmitFirst);
        assert_eq!(congestion.ssthresh(), 5 * MSS);
    }
}

#[test]
fn where_a_mark_came_with_it_nothing_is_taken_back() {
    let mut congestion = congestion();
    lost(&mut congestion);
    let answer = Flight { echo: true, ..echoing(499, 1001, 10_001) };
    assert_eq!(congestion.acknowledge(MSS, answer), Response::RetransmitFirst);
    assert_eq!(congestion.ssthresh(), 5 * MSS);
}

#[test]
fn an_answer_to_the_original_takes_the_timeout_back_however_often_it_was_repeated() {
    for which in ALL {
        let mut congestion = of(which);
        congestion.timeout(flight(1, 10_001, 10 * MSS), false);
        congestion.repeated(MSS, Some(500));
        congestion.timeout(flight(1, 10_001, MSS), true);
        congestion.repeated(MSS, Some(700));
        assert_eq!(congestion.cwnd(), MSS);
        let answer = congestion.acknowledge(2 * MSS, echoing(400, 2001, 10_001));
        assert_eq!(answer, Response::Undone { timeout: true });
        assert_eq!((congestion.cwnd(), congestion.ssthresh()), (10 * MSS, u32::MAX));
    }
}

#[test]
fn a_window_taken_back_makes_no_burst() {
    let mut congestion = congestion();
    for una in 1..=40 {
        let _ = congestion.acknowledge(MSS, flight(una * MSS, una * MSS + 1, congestion.cwnd()));
    }
    assert_eq!(congestion.cwnd(), 50 * MSS);
    congestion.timeout(flight(50_000, 100_000, 50 * MSS), false);
    congestion.repeated(MSS, Some(500));
    // All but two segments are acknowledged at once.
    let answer = congestion.acknowledge(3 * MSS, echoing(499, 98_000, 100_000));
    assert_eq!(answer, Response::Undone { timeout: true });
    assert_eq!((congestion.cwnd(), congestion.ssthresh()), (12 * MSS, u32::MAX));
}

#[test]
fn cubic_comes_back_to_its_old_epoch() {
    let mut congestion = of(CongestionControl::Cubic);
    let _ = congestion.duplicate(flight(1, 10_001, 10 * MSS), true);
    let _ = congestion.acknowledge(10 * MSS, flight(10_001, 17_001, 10 * MSS));
    let mut una = 10_001;
    for _ in 0..20 {
        una += MSS;
        let _ = congestion.acknowledge(MSS, flight(una, una + 7 * MSS, 7 * MSS));
    }
    let before = congestion.algorithm.memory();
    congestion.timeout(flight(una, una + 7 * MSS, 7 * MSS), false);
    congestion.repeated(MSS, Some(500));
    assert_ne!(congestion.algorithm.memory(), before);
    let _ = congestion.acknowledge(MSS, echoing(499, una + MSS, una + 7 * MSS));
    assert_eq!(congestion.algorithm.memory(), before);
}

fn block(start: u32, end: u32) -> SackBlock {
    SackBlock { start: SeqNumber::new(start), end: SeqNumber::new(end) }
}

#[test]
fn what_arrived_twice_is_told_by_the_first_block() {
    let ack = SeqNumber::new(5000);
    for (blocks, told) in [
        (vec![], false),
        (vec![block(6000, 7000)], false),
        (vec![block(4000, 5000)], true),
        (vec![block(4000, 5000), block(6000, 7000)], true),
        // Beyond a gap, within the second block.
        (vec![block(6000, 7000), block(6000, 9000)], true),
        (vec![block(6000, 7000), block(8000, 9000)], false),
        (vec![block(4000, 4000)], false),
    ] {
        assert_eq!(arrived_twice(&blocks, ack), blocks.first().copied().filter(|_| told));
    }
}

// RFC 3708: the repetitions arrived twice, so none was needed.
#[test]
fn when_all_repetitions_arrived_twice_the_window_grows_back() {
    for which in ALL {
        let mut congestion = of(which);
        lost(&mut congestion);
        // Both were sent at a tick that tells nothing.
        let _ = congestion.acknowledge(10 * MSS, echoing(500, 10_001, 10_001));
        assert_eq!(congestion.arrived_twice(block(1, 1001)), None);
        let ssthresh = congestion.ssthresh();
        assert!(ssthresh < 10 * MSS);
        // Neither what was never in doubt nor what came later counts.
        assert_eq!(congestion.arrived_twice(block(10_001, 11_001)), None);
        assert_eq!(congestion.arrived_twice(block(1001, 2001)), Some(false));
        assert_eq!(congestion.ssthresh(), u32::MAX);
        assert_eq!(congestion.arrived_twice(block(1001, 2001)), None);
    }
}

#[test]
fn a_recovery_that_was_none_ends_first() {
    let mut congestion = congestion();
    lost(&mut congestion);
    assert_eq!(congestion.arrived_twice(block(1, 2001)), None);
    assert!(congestion.in_recovery());
    let full = flight(10_001, 10_001, 10 * MSS);
    assert_eq!(congestion.acknowledge(10 * MSS, full), Response::Restored { timeout: false });
    assert!(!congestion.in_recovery());
    assert_eq!(congestion.ssthresh(), u32::MAX);
}

#[test]
fn reports_of_long_ago_count_no_longer() {
    let mut congestion = congestion();
    lost(&mut congestion);
    let _ = congestion.acknowledge(10 * MSS, flight(10_001, 14_001, 10 * MSS));
    let _ = congestion.acknowledge(4 * MSS, flight(14_001, 15_001, 4 * MSS));
    assert_eq!(congestion.arrived_twice(block(1, 2001)), None);
    assert!(congestion.ssthresh() < 10 * MSS);
}

// A mark of what was sent before the last reduction is part of it.
#[test]
fn a_mark_from_before_a_timeout_is_no_other_event() {
    let mut congestion = congestion();
    congestion.timeout(flight(1, 10_001, 10 * MSS), false);
    assert_eq!(congestion.acknowledge(MSS, marked(1001, 10_001, 10 * MSS)), Response::Proceed);
    assert_eq!(congestion.acknowledge(9 * MSS, marked(10_001, 12_001, 9 * MSS)), Response::Proceed);
    assert_eq!(congestion.ssthresh(), 5 * MSS);
    assert_eq!(congestion.acknowledge(MSS, marked(11_001, 13_001, 9 * MSS)), Response::Reduced);
}

// ---- Windows that are not filled

#[test]
fn a_restarted_window_remembers_where_it_was() {
    let mut congestion = congestion();
    congestion.timeout(flight(1, 10_001, 10 * MSS), false);
    for _ in 0..200 {
        let _ = congestion.acknowledge(MSS, flight(30_001, 90_001, congestion.cwnd()));
    }
    let before = congestion.cwnd();
    congestion.restart(10 * MSS);
    assert_eq!(congestion.cwnd(), 10 * MSS);
    assert_eq!(congestion.ssthresh(), before - before / 4);
}

#[test]
fn a_window_that_was_not_filled_for_five_minutes_is_halved() {
    let mut congestion = congestion();
    for una in 1..=40 {
        let _ = congestion.acknowledge(MSS, flight(una * MSS, una * MSS + 1, congestion.cwnd()));
    }
    congestion.window.ssthresh = 20 * MSS;
    let trickle =
        |seconds| Flight { now: Instant::ZERO + Duration::from_secs(seconds), ..flight(50_000, 51_000, MSS) };
    let mut at = |seconds| {
        let _ = congestion.acknowledge(MSS, trickle(seconds));
        (congestion.cwnd() / MSS, congestion.ssthresh() / MSS)
    };
    assert_eq!(at(300), (50, 20));
    assert_eq!(at(301), (25, 37));
    assert_eq!(at(600), (25, 37));
    // Never below the initial window.
    assert_eq!(at(602), (12, 37));
    assert_eq!(at(903), (10, 37));
    assert_eq!(at(2000), (10, 37));
}

// ---- Any order of events

#[derive(Clone, Debug)]
enum Step {
    Acknowledge { segments: u32, echo: bool, echoed: u32, unused: bool },
    Duplicate { lost: bool, echo: bool },
    Timeout { again: bool },
    Send(u32),
    Repeat(u32),
    Twice(u32, u32),
    Restart,
    Pass(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let acknowledge = (1..50u32, prop::bool::weighted(0.05), 0..20u32, prop::bool::weighted(0.1));
    prop_oneof![
        20 => acknowledge.prop_map(|(segments, echo, echoed, unused)| {
            Step::Acknowledge { segments, echo, echoed, unused }
        }),
        5 => (prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(lost, echo)| Step::Duplicate { lost, echo }),
        1 => any::<bool>().prop_map(|again| Step::Timeout { again }),
        5 => (1..50u32).prop_map(Step::Send),
        2 => (0..20u32).prop_map(Step::Repeat),
        2 => (0..20u32, 1..4u32).prop_map(|(back, segments)| Step::Twice(back, segments)),
        1 => Just(Step::Restart),
        5 => (0..1_000_000u32).prop_map(Step::Pass),
    ]
}

proptest! {
    /// The window stays within its bounds, and falls only for a loss, a mark or idleness.
    #[test]
    fn the_window_is_bounded_and_falls_for_a_reason(
        which in prop::sample::select(&ALL[..]), sack: bool, iss: u32, max in 1u32..200,
        steps in prop::collection::vec(step(), 0..300),
    ) {
        let max = max * MSS;
        let mut una = SeqNumber::new(iss) + 1;
        let mut nxt = una;
        let mut now = Instant::ZERO;
        let mut congestion = Congestion::new(which, MSS, 10 * MSS, max, sack, SeqNumber::new(iss));
        for step in steps {
            let before = congestion.clone();
            let outstanding = nxt.since(una);
            let base =
                Flight { nxt, octets: outstanding, pipe: outstanding, now, srtt_ns: 1_000_000, ..Flight::at(una) };
            let mut may_fall = true;
            match step {
                Step::Acknowledge { segments, echo, echoed, unused } => {
                    let acked = (segments * MSS).min(outstanding);
                    if acked == 0 {
                        continue;
                    }
                    una += acked;
                    let pipe = nxt.since(una);
                    let octets = if unused { MSS } else { outstanding };
                    let rtt = Some(Duration::from_millis(u64::from(echoed)));
                    let flight = Flight {
                        una, octets, pipe, echo, rtt, delivered: acked, echoed: Some(echoed), ..base
                    };
                    let response = congestion.acknowledge(acked, flight);
                    may_fall = response != Response::Proceed || before.phase != Phase::Open;
                }
                Step::Duplicate { lost, echo } => {
                    if outstanding == 0 {
                        continue;
                    }
                    let flight = Flight { echo, delivered: MSS, ..base };
                    let response = congestion.duplicate(flight, lost);
                    may_fall = response != Response::Proceed || before.phase != Phase::Open;
                }
                Step::Timeout { again } => congestion.timeout(base, again),
                Step::Send(segments) => {
                    let room = congestion.window().saturating_sub(outstanding);
                    let octets = room.min(segments * MSS);
                    nxt += octets;
                    congestion.sent(octets);
                    congestion.used(una, nxt, nxt.since(una));
                    may_fall = false;
                }
                Step::Repeat(stamp) => congestion.repeated(MSS, Some(stamp)),
                Step::Twice(back, segments) => {
                    let start = una - back * MSS;
                    let _ = congestion.arrived_twice(SackBlock { start, end: start + segments * MSS });
                    may_fall = false;
                }
                Step::Restart => congestion.restart(10 * MSS),
                Step::Pass(micros) => now += Duration::from_micros(u64::from(micros)),
            }
            prop_assert!(congestion.cwnd() >= MSS && congestion.cwnd() <= max);
            prop_assert!(congestion.ssthresh() >= 2 * MSS);
            prop_assert!(may_fall || congestion.cwnd() >= before.cwnd(), "{before:?} {congestion:?}");
            prop_assert!(congestion.window() <= max + 2 * MSS);
        }
    }
}

// A connection has a kilobyte, and other parts.
#[test]
fn it_stays_small() {
    assert!(size_of::<Congestion>() <= 192, "{}", size_of::<Congestion>());
}
