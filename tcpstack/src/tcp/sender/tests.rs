use super::*;
use crate::device::{Burst, Capabilities};
use crate::sim::{SimFrame, SimPool};
use proptest::prelude::*;

pub(in crate::tcp) const MSS: u32 = 100;

/// Frames, and nothing else of a device.
pub(in crate::tcp) struct Frames(SimPool, Capabilities);

impl Device for Frames {
    type Frame = SimFrame;

    fn receive_burst(&mut self, _: &mut Burst<SimFrame>) {}

    fn transmit_burst(&mut self, frames: &mut Burst<SimFrame>) {
        frames.clear();
    }

    fn allocate(&mut self) -> Option<SimFrame> {
        self.0.allocate()
    }

    fn allocate_control(&mut self) -> Option<SimFrame> {
        self.0.allocate()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }
}

pub(in crate::tcp) fn frames(limit: usize) -> Frames {
    let capabilities =
        Capabilities { mac: [2; 6], mtu: 1500, receive_checksum: false, transmit_checksum: false };
    Frames(SimPool::new(limit, 400), capabilities)
}

pub(in crate::tcp) fn sender(iss: u32) -> Sender<SimFrame> {
    let mut sender = Sender::new(SeqNumber::new(iss));
    sender.nxt = SeqNumber::new(iss) + 1;
    sender.una = sender.nxt;
    sender.wnd = 1 << 20;
    sender
}

pub(in crate::tcp) fn queue(sender: &mut Sender<SimFrame>, frames: &Frames, len: u32) {
    let octets: Vec<u8> = (0..len).map(|at| octet(sender.end + at)).collect();
    let frame = frames.0.frame(&octets).unwrap();
    let sum = sum_of(&frame);
    sender.queue(frame, len, true, sum);
}

fn octet(seq: SeqNumber) -> u8 {
    u8::try_from(seq.value() & 0xff).unwrap()
}

/// Sends the next record if one may go; what was sent stays with the NIC when `busy` takes it.
pub(in crate::tcp) fn send(
    sender: &mut Sender<SimFrame>,
    frames: &mut Frames,
    cwnd: u32,
    now: Instant,
    busy: Option<&mut Vec<SimFrame>>,
) -> Option<(SeqNumber, u32)> {
    let index = sender.next(cwnd)?;
    let Departure { mut frame, seq, len, sum, .. } = sender.take(index, frames)?;
    assert_eq!(sum, sum_of(&frame));
    assert_eq!(frame.bytes().len(), len as usize);
    for (at, &got) in (0..).zip(frame.bytes()) {
        assert_eq!(got, octet(seq + at));
    }
    frame.push_front(20);
    frame.bytes_mut()[..20].fill(0xee);
    let held = frame.hold(20);
    sender.keep(index, held, now);
    if let Some(busy) = busy {
        busy.push(frame);
    }
    Some((seq, len))
}

fn at(sender: &Sender<SimFrame>, offset: u32) -> SeqNumber {
    sender.una + offset
}

#[test]
fn a_record_in_use_is_copied_and_one_that_came_back_is_not() {
    let mut frames = frames(3);
    let mut sender = sender(0);
    queue(&mut sender, &frames, 50);
    let mut nic = Vec::new();
    send(&mut sender, &mut frames, 1000, Instant::ZERO, Some(&mut nic)).unwrap();
    sender.resend_all();
    send(&mut sender, &mut frames, 1000, Instant::ZERO, Some(&mut nic)).unwrap();
    assert_eq!(frames.0.outstanding(), 2);
    nic.clear();
    assert_eq!(frames.0.outstanding(), 1);
    sender.resend_all();
    send(&mut sender, &mut frames, 1000, Instant::ZERO, None).unwrap();
    assert_eq!(frames.0.outstanding(), 1);
    sender.acknowledge(at(&sender, 50), Instant::ZERO);
    assert_eq!((frames.0.outstanding(), sender.records_len()), (0, 0));
}

#[test]
fn karn_takes_no_sample_of_what_was_sent_twice() {
    let mut frames = frames(3);
    let mut sender = sender(0);
    for _ in 0..2 {
        queue(&mut sender, &frames, 50);
    }
    send(&mut sender, &mut frames, 50, Instant::ZERO, None).unwrap();
    let rtt = sender.acknowledge(at(&sender, 50), Instant::from_micros(70)).rtt;
    assert_eq!(rtt, Some(Duration::from_micros(70)));
    send(&mut sender, &mut frames, 50, Instant::ZERO, None).unwrap();
    sender.resend_all();
    send(&mut sender, &mut frames, 50, Instant::ZERO, None).unwrap();
    assert_eq!(sender.acknowledge(at(&sender, 50), Instant::from_micros(70)).rtt, None);
}

#[test]
fn a_record_is_cut_without_losing_an_octet() {
    for busy in [false, true] {
        let mut frames = frames(4);
        let mut sender = sender(u32::MAX - 20);
        queue(&mut sender, &frames, 90);
        let mut nic = Vec::new();
        send(&mut sender, &mut frames, 1000, Instant::ZERO, Some(&mut nic)).unwrap();
        if !busy {
            nic.clear();
        }
        sender.resend_all();
        assert!(sender.split(0, 30, &mut frames));
        let start = sender.una;
        let first = send(&mut sender, &mut frames, 1000, Instant::ZERO, None);
        let second = send(&mut sender, &mut frames, 1000, Instant::ZERO, None);
        assert_eq!((first, second), (Some((start, 30)), Some((start + 30, 60))));
        assert_eq!(sender.next(1000), None);
        sender.acknowledge(at(&sender, 90), Instant::ZERO);
        drop(nic);
        assert_eq!(frames.0.outstanding(), 0);
    }
}

#[test]
fn what_sack_reports_is_not_sent_again() {
    let mut frames = frames(10);
    let mut sender = sender(0);
    for _ in 0..8 {
        queue(&mut sender, &frames, MSS);
        send(&mut sender, &mut frames, 10_000, Instant::ZERO, None).unwrap();
    }
    let block = SackBlock { start: at(&sender, 300), end: at(&sender, 700) };
    assert_eq!(sender.mark_sacked(&[block]), 400);
    assert_eq!(sender.mark_sacked(&[block]), 0);
    assert!(sender.judge_lost(MSS));
    // 800 in flight less 400 reported less 300 lost.
    assert_eq!(sender.flight(), 100);
    for offset in [0, 100, 200] {
        let sent = send(&mut sender, &mut frames, 10_000, Instant::ZERO, None);
        assert_eq!(sent, Some((at(&sender, offset), MSS)));
    }
    assert_eq!(sender.next(10_000), None);
    assert_eq!(sender.flight(), 400);
    let acknowledged = sender.acknowledge(at(&sender, 700), Instant::ZERO);
    assert_eq!((acknowledged.octets, acknowledged.reported), (700, 400));
    assert_eq!(sender.flight(), 100);
}

#[derive(Clone, Debug)]
enum Step {
    Queue(u32),
    Send(u32),
    Acknowledge(u32),
    Sack(u32, u32),
    Timeout,
    RepeatFirst,
    Resume,
    Split(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..=MSS).prop_map(Step::Queue),
        4 => (MSS..2000u32).prop_map(Step::Send),
        2 => (0..1000u32).prop_map(Step::Acknowledge),
        2 => (0..1500u32, 1..600u32).prop_map(|(start, len)| Step::Sack(start, len)),
        1 => Just(Step::Timeout),
        1 => Just(Step::RepeatFirst),
        1 => Just(Step::Resume),
        1 => any::<u32>().prop_map(Step::Split),
    ]
}

/// A partial acknowledgment repeats the first record though SACK has reported it: it is in flight
/// again, and reported as before.
#[test]
fn a_reported_record_that_is_sent_again_after_a_timeout_stays_counted() {
    let mut frames = frames(100);
    let mut sender = sender(0);
    for _ in 0..3 {
        queue(&mut sender, &frames, 100);
    }
    while send(&mut sender, &mut frames, 1000, Instant::ZERO, None).is_some() {}
    sender.resend_all();
    sender.mark_sacked(&[SackBlock { start: sender.una, end: sender.una + 100 }]);
    sender.repeat_first(None);
    assert!(send(&mut sender, &mut frames, 100, Instant::ZERO, None).is_some());
    assert_eq!((sender.resend, sender.sacked, sender.flight()), (1, 100, 0));
    sender.acknowledge(sender.una + 100, Instant::ZERO);
    assert_eq!(sender.sacked, 0);
}

proptest! {
    /// Whatever happens, the counts are what the records say, and no octet changes its place.
    #[test]
    fn the_counts_follow_the_records(iss: u32, steps in prop::collection::vec(step(), 0..120)) {
        let mut frames = frames(4000);
        let mut sender = sender(iss);
        for step in steps {
            match step {
                Step::Queue(len) => queue(&mut sender, &frames, len),
                Step::Send(cwnd) => {
                    let mut sent = 0;
                    while send(&mut sender, &mut frames, cwnd, Instant::ZERO, None).is_some() {
                        sent += 1;
                        prop_assert!(sent < 10_000, "it never ends");
                    }
                }
                Step::Acknowledge(octets) => {
                    let ack = (sender.una + octets).min(sender.nxt);
                    if ack.after(sender.una) {
                        sender.acknowledge(ack, Instant::ZERO);
                    }
                }
                Step::Sack(start, len) => {
                    let start = sender.una + start;
                    sender.mark_sacked(&[SackBlock { start, end: start + len }]);
                    sender.judge_lost(MSS);
                }
                Step::Timeout => sender.resend_all(),
                Step::RepeatFirst => sender.repeat_first(None),
                Step::Resume => sender.resume(),
                Step::Split(seed) => {
                    if let Some(index) = (seed as usize).checked_rem(sender.records_len()) {
                        let len = sender.record(index).len;
                        if len > 1 {
                            prop_assert!(sender.split(index, 1 + seed % (len - 1), &mut frames));
                        }
                    }
                }
            }
            prop_assert!(sender.resend <= sender.sent && sender.sent <= sender.records.len());
            let sum = |of: fn(&Record<SimFrame>) -> bool| -> u32 {
                sender.records.range(..sender.resend).filter(|record| of(record)).map(|record| record.len).sum()
            };
            prop_assert_eq!(sender.sacked, sum(|record| record.sacked));
            prop_assert_eq!(sender.lost, sum(|record| record.lost));
            prop_assert!(sender.records.range(sender.sent..).all(|record| !record.sacked && !record.lost));
            let mut next = sender.records.front().map_or(sender.end, |record| record.seq);
            prop_assert!(next.at_or_before(sender.una));
            for record in &sender.records {
                prop_assert_eq!(record.seq, next);
                prop_assert!(record.len > 0);
                next = record.end();
            }
            prop_assert_eq!(next, sender.end);
        }
        sender.clear();
        prop_assert_eq!(frames.0.outstanding(), 0);
    }
}
