use super::*;
use crate::sim::SimFrame;
use crate::tcp::sender::tests::{Frames, MSS, frames, queue, send, sender};
use proptest::prelude::*;

const US: Duration = Duration::from_micros(1);

/// A sender that tells losses by time, over a path of 100 us.
fn racked(iss: u32) -> Sender<SimFrame> {
    let mut sender = sender(iss);
    sender.rack.start(true, 100_000, Duration::ZERO);
    sender
}

fn at_us(micros: u64) -> Instant {
    Instant::from_micros(1000 + micros)
}

/// Sends new records of MSS octets, one at each of these times.
fn send_at(sender: &mut Sender<SimFrame>, frames: &mut Frames, micros: &[u64]) {
    for &micros in micros {
        queue(sender, frames, MSS);
        send(sender, frames, u32::MAX, at_us(micros), None).unwrap();
    }
}

/// A block that reports records, by their numbers.
fn report(sender: &mut Sender<SimFrame>, first: u32, end: u32) {
    sender.rack.fack = sender.sacked_to;
    let start = sender.una + first * MSS;
    sender.mark_sacked(&[SackBlock { start, end: sender.una + end * MSS }]);
}

fn lost(sender: &Sender<SimFrame>) -> Vec<usize> {
    (0..sender.records.len()).filter(|&index| sender.records[index].lost).collect()
}

#[test]
fn what_was_sent_before_the_newest_delivered_is_lost_when_its_time_has_passed() {
    let (mut frames, mut sender) = (frames(10), racked(0));
    send_at(&mut sender, &mut frames, &[0, 30, 30, 60, 90]);
    report(&mut sender, 3, 4);
    assert_eq!(sender.judge_by_time(125 * US, at_us(160)), 2 + 1);
    let mut sender = racked(0);
    send_at(&mut sender, &mut frames, &[0, 50, 50, 60, 90]);
    report(&mut sender, 3, 4);
    // The first one at once, the next two later, the last one never: it was sent after it.
    assert_eq!((sender.judge_by_time(125 * US, at_us(160)), lost(&sender)), (1, vec![0]));
    assert_eq!(sender.rack.deadline, at_us(185));
    assert_eq!((sender.judge_by_time(125 * US, at_us(185)), lost(&sender)), (2, vec![0, 1, 2]));
    assert_eq!(sender.rack.deadline, NEVER);
    assert_eq!(sender.judge_by_time(125 * US, at_us(10_000)), 0);
}

/// Records of one burst have one time: the sequence numbers tell which is newer.
#[test]
fn sequence_numbers_break_ties() {
    let (mut frames, mut sender) = (frames(10), racked(u32::MAX - 250));
    send_at(&mut sender, &mut frames, &[0; 5]);
    report(&mut sender, 2, 3);
    assert_eq!((sender.judge_by_time(100 * US, at_us(100)), lost(&sender)), (2, vec![0, 1]));
}

#[test]
fn an_answer_too_early_for_a_repetition_is_no_proof_of_it() {
    for (believed, found) in [(200, 0), (201, 2)] {
        let (mut frames, mut sender) = (frames(10), racked(0));
        send_at(&mut sender, &mut frames, &[0, 0, 0]);
        sender.urgent = Urgent::Tail;
        assert!(send(&mut sender, &mut frames, 0, at_us(200), None).is_some());
        sender.rack.repeats().aged_before = at_us(believed);
        report(&mut sender, 2, 3);
        assert_eq!(sender.judge_by_time(100 * US, at_us(300)), found);
    }
}

#[test]
fn the_least_round_trip_is_forgotten_in_time() {
    let mut rack = Rack::new(SeqNumber::new(0));
    let mut now = at_us(0);
    let mut sample = |rack: &mut Rack, micros: u64, after: Duration| {
        now += after;
        rack.latest = now;
        rack.settle(now + Duration::from_micros(micros));
        rack.least_rtt_ns().unwrap()
    };
    assert_eq!(rack.least_rtt_ns(), None);
    assert_eq!(sample(&mut rack, 70, Duration::from_secs(11)), 70_000);
    assert_eq!(sample(&mut rack, 50, US), 50_000);
    assert_eq!(sample(&mut rack, 90, Duration::from_secs(9)), 50_000);
    assert_eq!(sample(&mut rack, 90, Duration::from_secs(2)), 50_000);
    assert_eq!(sample(&mut rack, 95, Duration::from_secs(11)), 90_000);
}

#[test]
fn a_wider_window_stays_for_sixteen_recoveries() {
    let mut rack = Rack::new(SeqNumber::new(0));
    rack.start(true, 100_000, Duration::ZERO);
    let seq = SeqNumber::new;
    let block = SackBlock { start: seq(1), end: seq(101) };
    let window_us = |rack: &Rack| rack.patience(false, 80_000).as_micros() - 100;
    assert_eq!((window_us(&rack), rack.patience(true, 80_000).as_micros()), (25, 100));
    rack.arrived_twice(block, seq(200), seq(1000));
    // Once a round trip.
    rack.arrived_twice(block, seq(999), seq(2000));
    assert_eq!(window_us(&rack), 50);
    rack.arrived_twice(block, seq(1000), seq(2000));
    assert_eq!(window_us(&rack), 75);
    rack.arrived_twice(block, seq(2000), seq(3000));
    // SRTT is the most.
    assert_eq!(window_us(&rack), 80);
    for _ in 0..15 {
        rack.left_recovery(seq(3000));
        assert_eq!(window_us(&rack), 80);
    }
    rack.left_recovery(seq(3000));
    assert_eq!(window_us(&rack), 25);
}

#[derive(Clone, Debug)]
enum Step {
    Queue(u32),
    Send(u32),
    Acknowledge(u32),
    Sack(u32, u32),
    Pass(u64),
    Timeout,
    Probe,
    GiveUpAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..=MSS).prop_map(Step::Queue),
        5 => (1..10u32).prop_map(Step::Send),
        2 => (0..500u32).prop_map(Step::Acknowledge),
        4 => (0..1500u32, 1..600u32).prop_map(|(start, len)| Step::Sack(start, len)),
        6 => (0..120u64).prop_map(Step::Pass),
        1 => Just(Step::Timeout),
        1 => Just(Step::Probe),
        1 => Just(Step::GiveUpAll),
    ]
}

proptest! {
    /// The cursor and the queue find what a look at every record would (RACK_detect_loss).
    #[test]
    fn nothing_that_is_lost_is_overlooked(
        iss: u32,
        patience_us in 50..200u64,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let (mut frames, mut sender) = (frames(4000), racked(iss));
        let patience = Duration::from_micros(patience_us);
        let mut now = at_us(0);
        for step in steps {
            // What goes in one turn goes in the order of the numbers.
            now += Duration::from_nanos(1);
            sender.rack.fack = sender.sacked_to;
            let repeats = sender.rack.repeats();
            (repeats.believed_before, repeats.aged_before) = (now, now);
            match step {
                Step::Queue(len) => queue(&mut sender, &frames, len),
                Step::Send(count) => {
                    for _ in 0..count {
                        if send(&mut sender, &mut frames, 2000, now, None).is_none() {
                            break;
                        }
                    }
                }
                Step::Acknowledge(octets) => {
                    let ack = (sender.una + octets).min(sender.nxt);
                    if ack.after(sender.una) {
                        sender.acknowledge(ack, now);
                    }
                }
                Step::Sack(start, len) => {
                    let start = sender.una + start;
                    sender.mark_sacked(&[SackBlock { start, end: start + len }]);
                }
                Step::Pass(micros) => now += Duration::from_micros(micros),
                Step::Timeout => sender.time_out(patience, now),
                Step::Probe => if sender.may_lose_tail() { sender.urgent = Urgent::Tail },
                Step::GiveUpAll => sender.resend_all(),
            }
            let before = lost(&sender);
            let older = |sender: &Sender<SimFrame>, index: usize| {
                let record = &sender.records[index];
                !record.sacked && sender.rack.is_older(record.sent_at, record.end())
            };
            let due: Vec<usize> = (0..sender.resend)
                .filter(|&index| {
                    before.contains(&index)
                        || (older(&sender, index) && sender.records[index].sent_at + patience <= now)
                })
                .collect();
            let found = sender.judge_by_time(patience, now);
            prop_assert_eq!(lost(&sender), due.clone());
            prop_assert_eq!(found as usize, due.len() - before.len());
            let waits = (0..sender.resend).any(|index| older(&sender, index) && !due.contains(&index));
            prop_assert_eq!(sender.rack.deadline, if waits { sender.rack.newest_at + patience } else { NEVER });
            let octets: u32 = due.iter().map(|&index| sender.records[index].len).sum();
            prop_assert_eq!(sender.lost, octets);
            let first = sender.first_lost();
            prop_assert_eq!(first, due.first().copied());
        }
    }
}
