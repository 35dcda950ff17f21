//! A hostile peer of a Stream, behind a valid start-up: input chooses the profiles of both sides, then what
//! the peer and the application do.

use arbitrary::{Result, Unstructured};
use iwarp::mpa::{Initiator, InitiatorOutcome, Negotiated, Responder};

use super::start_up::profile;
use crate::common::hostile::{Ground, REGION_LEN, Step};

/// Steps that an input may ask for.
const STEPS_MAX: usize = 200;

pub(super) fn run(input: &[u8]) {
    let mut u = Unstructured::new(input);
    let Ok(Some(negotiated)) = start_up(&mut u) else { return };
    let mut ground = Ground::new(&negotiated);
    for _ in 0..STEPS_MAX {
        // An input that ends early has said enough.
        let (Ok(step), Ok(cut), false) = (step(&mut u), u.int_in_range(0..=80), u.is_empty()) else { break };
        ground.take(&step, cut);
        ground.check();
    }
    ground.finish();
}

/// What two honest sides agree on, if they do: as the side under test sees it.
fn start_up(u: &mut Unstructured<'_>) -> Result<Option<Negotiated>> {
    let (mut initiator, request) = Initiator::start(profile(u)?, &[]).expect("no private data fits");
    let Ok((_, Some(request))) = Responder::new(profile(u)?).receive(&request) else { return Ok(None) };
    let (reply, negotiated) = request.accept(&[]).expect("no private data fits");
    if u.arbitrary()? {
        return Ok(Some(negotiated));
    }
    Ok(match initiator.receive(&reply) {
        Ok((_, Some(InitiatorOutcome::Accepted { negotiated, .. }))) => Some(negotiated),
        _ => None,
    })
}

fn step(u: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match u.int_in_range(0..=15_u8)? {
        0..6 => segment(u)?,
        6 | 7 => Step::Read {
            msn: u.int_in_range(0..=3)?,
            stag: u.int_in_range(0..=7)?,
            offset: near(u, REGION_LEN)?,
            len: u.int_in_range(0..=70)?,
        },
        8 if u.arbitrary()? => Step::Atomic {
            msn: u.int_in_range(0..=3)?,
            stag: u.int_in_range(0..=7)?,
            offset: near(u, REGION_LEN)? & !7,
            code: u.int_in_range(0..=3)?,
        },
        8 => Step::Anything(octets(u, 60)?),
        9 => Step::Noise(octets(u, 60)?),
        10 | 11 => Step::Build(u.int_in_range(0..=3)?),
        12 => Step::Deregister(u.int_in_range(0..=5)?),
        13 | 14 => Step::Post(u.int_in_range(0..=3)?),
        _ if u.arbitrary()? => Step::Close,
        _ => Step::Build(9),
    })
}

fn segment(u: &mut Unstructured<'_>) -> Result<Step> {
    let control = 0x40 ^ u.arbitrary::<u8>()? & if u.ratio(1, 16)? { 0xff } else { 0x0f };
    // Mostly on the queue that the opcode is for.
    let own = match control & 0x0f {
        1 | 10 => 1,
        7 => 2,
        11 => 3,
        _ => 0,
    };
    Ok(Step::Segment {
        last: u.arbitrary()?,
        control,
        stag: u.int_in_range(0..=7)?,
        to: near(u, REGION_LEN)?,
        queue: if u.ratio(1, 16)? { u.int_in_range(0..=4)? } else { own },
        msn: u.int_in_range(0..=5)?,
        mo: near(u, 28)?,
        // What is written shows.
        payload: vec![0x5a; u.int_in_range(0..=40)?],
    })
}

/// Around the limits, or anywhere.
fn near(u: &mut Unstructured<'_>, limit: usize) -> Result<u64> {
    let within = u64::try_from(u.int_in_range(0..=limit + 2)?).expect("a small number");
    Ok(match u.int_in_range(0..=15_u8)? {
        0 => u.arbitrary()?,
        1 => u64::MAX - within,
        _ => within,
    })
}

fn octets(u: &mut Unstructured<'_>, max: usize) -> Result<Vec<u8>> {
    let len = u.int_in_range(0..=max)?.min(u.len());
    Ok(u.bytes(len)?.to_vec())
}
