use super::*;
use crate::sim::{SimFrame, SimPool};
use proptest::prelude::*;

const WINDOW: u32 = 2000;

/// The octet with this sequence number.
fn octet(seq: SeqNumber) -> u8 {
    u8::try_from((seq.value().wrapping_mul(0x9e37_79b9)) >> 24).unwrap()
}

fn frame(pool: &SimPool, seq: SeqNumber, len: u32) -> SimFrame {
    let data: Vec<u8> = (0..len).map(|at| octet(seq + at)).collect();
    pool.frame(&data).unwrap()
}

fn budget() -> EarlyBudget {
    EarlyBudget { used: 0, total_max: 20, connection_max: 10 }
}

fn receiver(irs: u32) -> Receiver<SimFrame> {
    let mut receiver = Receiver::new(WINDOW, WINDOW, 50);
    receiver.synchronize(SeqNumber::new(irs), 100, 0);
    receiver
}

#[test]
fn the_scale_lets_the_field_say_the_window() {
    assert_eq!(Receiver::<SimFrame>::scale_for(65_535), 0);
    assert_eq!(Receiver::<SimFrame>::scale_for(65_536), 1);
    assert_eq!(Receiver::<SimFrame>::scale_for(1 << 20), 5);
    assert_eq!(Receiver::<SimFrame>::scale_for(1 << 30), 14);
}

#[test]
fn acceptability_follows_the_table_of_rfc_9293() {
    let mut receiver = receiver(99);
    let seq = SeqNumber::new;
    for (at, len, expected) in [
        (100, 0, true),
        (99, 0, false),
        (2099, 0, true),
        (2100, 0, false),
        (50, 50, false),
        (50, 51, true),
        (2099, 500, true),
        (2100, 1, false),
        (50, 5000, false),
    ] {
        assert_eq!(receiver.is_acceptable(seq(at), len), expected, "{at} {len}");
    }
    let pool = SimPool::new(1, 4000);
    let all = frame(&pool, receiver.nxt, WINDOW);
    assert_eq!(
        receiver.accept(receiver.nxt, all, &mut budget()),
        Placement::InOrder { octets: WINDOW, news: false }
    );
    assert_eq!(receiver.advertise(), 0);
    assert!(receiver.is_acceptable(seq(2100), 0));
    assert!(!receiver.is_acceptable(seq(2100), 1));
    assert!(!receiver.is_acceptable(seq(2101), 0));
}

#[test]
fn an_early_frame_that_covers_others_takes_their_place() {
    let pool = SimPool::new(10, 4000);
    let (mut receiver, mut budget) = (receiver(0), budget());
    let start = receiver.nxt;
    for at in [100, 200, 350] {
        receiver.accept(start + at, frame(&pool, start + at, 50), &mut budget);
    }
    assert_eq!(receiver.accept(start + 90, frame(&pool, start + 90, 280), &mut budget), Placement::Early);
    // Two were covered, the third keeps its own part.
    let early = receiver.early.as_ref().unwrap();
    assert_eq!((budget.used, early.frames.len()), (2, 2));
    assert_eq!(early.blocks, [SackBlock { start: start + 90, end: start + 400 }]);
    assert_eq!(
        receiver.accept(start + 120, frame(&pool, start + 120, 50), &mut budget),
        Placement::Duplicate
    );
    receiver.discard_early(&mut budget, &mut WindowBudget { used: 0, max: 0 });
    assert_eq!((budget.used, pool.outstanding()), (0, 0));
}

#[derive(Clone, Debug)]
enum Step {
    Segment { offset: i32, len: u32 },
    Fetch,
    Release,
    Advertise,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (-300..2500i32, 1..300u32).prop_map(|(offset, len)| Step::Segment { offset, len }),
        // Next in order, more often than chance would have it.
        3 => (1..300u32).prop_map(|len| Step::Segment { offset: 0, len }),
        2 => Just(Step::Fetch),
        1 => Just(Step::Release),
        2 => Just(Step::Advertise),
    ]
}

proptest! {
    /// Whatever comes: each octet once, in order, never beyond the edge; the edge never moves
    /// back; blocks say exactly what is kept; every frame is accounted for.
    #[test]
    fn any_segments_in_any_order(irs: u32, steps in prop::collection::vec(step(), 0..150)) {
        let pool = SimPool::new(1000, 400);
        let (mut receiver, mut budget) = (receiver(irs), budget());
        let mut fetched = receiver.nxt;
        let mut released = receiver.nxt;
        let mut edge = receiver.edge;
        for step in steps {
            match step {
                Step::Segment { offset, len } => {
                    let seq = match u32::try_from(offset) {
                        Ok(ahead) => receiver.nxt + ahead,
                        Err(_) => receiver.nxt - offset.unsigned_abs(),
                    };
                    if receiver.is_acceptable(seq, len) {
                        receiver.accept(seq, frame(&pool, seq, len), &mut budget);
                    }
                }
                Step::Fetch => {
                    while let Some(frame) = receiver.fetch() {
                        prop_assert!(!frame.bytes().is_empty());
                        for &got in frame.bytes() {
                            prop_assert_eq!(got, octet(fetched));
                            fetched += 1;
                        }
                    }
                    prop_assert_eq!(fetched, receiver.nxt);
                }
                Step::Release => {
                    receiver.release(fetched.since(released));
                    released = fetched;
                    prop_assert_eq!(receiver.unreleased(), receiver.nxt.since(released));
                }
                Step::Advertise => {
                    let window = u32::from(receiver.advertise());
                    prop_assert_eq!(window, receiver.window());
                }
            }
            prop_assert!(receiver.edge.at_or_after(edge), "the edge moved back");
            edge = receiver.edge;
            prop_assert!(receiver.nxt.at_or_before(edge));
            prop_assert!(edge.since(released) <= WINDOW);
            let nothing = Early::default();
            let kept = receiver.early.as_deref().unwrap_or(&nothing);
            prop_assert_eq!(budget.used, kept.frames.len());
            prop_assert_eq!(receiver.has_gap(), budget.used > 0);
            prop_assert!(budget.used <= 10);
            // The blocks are the early frames, merged.
            let mut merged: Vec<SackBlock> = Vec::new();
            for early in &kept.frames {
                prop_assert!(early.seq.after(receiver.nxt));
                match merged.last_mut() {
                    Some(last) if last.end == early.seq => last.end = early.end(),
                    Some(last) => {
                        prop_assert!(last.end.before(early.seq), "early frames overlap");
                        merged.push(SackBlock { start: early.seq, end: early.end() });
                    }
                    None => merged.push(SackBlock { start: early.seq, end: early.end() }),
                }
            }
            prop_assert_eq!(kept.blocks.iter().copied().collect::<Vec<_>>(), merged);
            prop_assert_eq!(pool.outstanding(), kept.frames.len() + receiver.ready.len());
        }
    }
}
