//! FPDUs built by the sender's side, cut anywhere, maybe with one octet changed: what is handed out is
//! what was built, in order, and only so many segments are kept.
//!
//! The ULPDUs' content is not the input's, so that no input can make a wrong CRC fit.

use core::cell::Cell;
use std::rc::Rc;

use arbitrary::{Result, Unstructured};
use iwarp::mpa::{Deframer, Framer, MULPDU_MAX, MpaError, Segment};

/// Segments that an incomplete FPDU may keep, and the one that was handed in last.
const SEGMENTS_MAX: usize = 16 + 1;

/// Octets that an input may make.
const STREAM_MAX: usize = 200_000;

pub(super) fn run(input: &[u8]) {
    // An input that ends early has said enough.
    let _ = play(&mut Unstructured::new(input));
}

/// A segment that counts how many of its kind there are.
struct Counted {
    octets: Vec<u8>,
    alive: Rc<Cell<usize>>,
}

impl Counted {
    fn new(octets: &[u8], alive: &Rc<Cell<usize>>) -> Self {
        alive.set(alive.get() + 1);
        Self { octets: octets.to_vec(), alive: Rc::clone(alive) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.set(self.alive.get() - 1);
    }
}

impl Segment for Counted {
    fn octets(&self) -> &[u8] {
        &self.octets
    }
}

/// What was built, and where it is.
struct Built {
    stream: Vec<u8>,
    ulpdus: Vec<Vec<u8>>,
    /// Where each FPDU begins.
    starts: Vec<usize>,
}

fn play(u: &mut Unstructured<'_>) -> Result<()> {
    let (crc, markers) = (u.arbitrary()?, u.arbitrary()?);
    let mut built = build(u, Framer::new(crc, markers))?;
    let damaged = damage(u, &mut built)?;
    let alive = Rc::new(Cell::new(0));
    let mut deframer = Deframer::new(crc, markers);
    let mut seen = 0;
    let mut rest = &built.stream[..];
    while !rest.is_empty() {
        let len = piece_len(u)?.clamp(1, rest.len());
        let (piece, after) = rest.split_at(len);
        rest = after;
        let mut ulpdus = Vec::new();
        let received = receive(&mut deframer, Counted::new(piece, &alive), &mut ulpdus);
        for ulpdu in ulpdus {
            let known = damaged.is_none_or(|damaged| seen < damaged);
            assert!(known || !crc, "a CRC that is wrong was taken for a good one");
            assert!(!known || ulpdu == built.ulpdus[seen], "ULPDU {seen}");
            seen += 1;
        }
        if received.is_err() {
            let damaged = damaged.expect("nothing is wrong");
            assert!(seen == damaged || !crc);
            drop(deframer);
            assert_eq!(alive.get(), 0);
            return Ok(());
        }
        assert!(alive.get() <= SEGMENTS_MAX, "{} segments are kept", alive.get());
        assert!(deframer.pending() <= built.stream.len() - rest.len());
    }
    if damaged.is_none() {
        assert_eq!((seen, deframer.pending()), (built.ulpdus.len(), 0));
        assert_eq!(alive.get(), 0, "all segments are given back");
    }
    Ok(())
}

fn build(u: &mut Unstructured<'_>, mut framer: Framer) -> Result<Built> {
    let mut built = Built { stream: Vec::new(), ulpdus: Vec::new(), starts: Vec::new() };
    for index in 0..u.int_in_range(1..=12_u8)? {
        let len = match u.int_in_range(0..=7_u8)? {
            0 => u.int_in_range(0..=MULPDU_MAX)?,
            1 => u.int_in_range(480..=520)?,
            2..5 => u.int_in_range(0..=2000)?,
            _ => u.int_in_range(0..=40)?,
        };
        let start = built.stream.len();
        if start + len > STREAM_MAX {
            break;
        }
        let ulpdu: Vec<u8> = (0..251_u8).cycle().map(|octet| octet ^ index).take(len).collect();
        built.stream.resize(start + framer.fpdu_len(len), 0xee);
        let written = framer.frame(&mut built.stream[start..], len, |out| out.copy_from_slice(&ulpdu));
        assert_eq!(start + written, built.stream.len());
        built.starts.push(start);
        built.ulpdus.push(ulpdu);
    }
    Ok(built)
}

/// Changes one octet, or none; says of which FPDU.
fn damage(u: &mut Unstructured<'_>, built: &mut Built) -> Result<Option<usize>> {
    let mask = u.arbitrary::<u8>()?;
    if mask == 0 || !u.arbitrary()? {
        return Ok(None);
    }
    let fpdu = u.choose_index(built.starts.len())?;
    let start = built.starts[fpdu];
    let end = built.starts.get(fpdu + 1).copied().unwrap_or(built.stream.len());
    let at = start + u.choose_index(end - start)?;
    built.stream[at] ^= mask;
    Ok(Some(fpdu))
}

fn piece_len(u: &mut Unstructured<'_>) -> Result<usize> {
    // Without more input: one octet in the first piece would make the rest very slow.
    if u.is_empty() {
        return Ok(usize::MAX);
    }
    Ok(match u.int_in_range(0..=3_u8)? {
        0 => 1,
        1 => u.int_in_range(1..=20)?,
        2 => u.int_in_range(1..=1460)?,
        _ => u.int_in_range(1..=9000)?,
    })
}

/// Takes a segment as a Stream does: what is whole where it is, the rest with what is held.
fn receive(
    deframer: &mut Deframer<Counted>,
    segment: Counted,
    ulpdus: &mut Vec<Vec<u8>>,
) -> core::result::Result<(), MpaError> {
    let mut rest = segment.octets();
    if deframer.is_plain() {
        while let Some(front) = deframer.split(rest)? {
            ulpdus.push(front.ulpdu.to_vec());
            rest = front.rest;
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
    let taken = segment.octets().len() - rest.len();
    deframer.push_rest(segment, taken);
    while let Some(ulpdu) = deframer.next()? {
        let octets: Vec<u8> = ulpdu.pieces(0).flatten().copied().collect();
        assert_eq!(octets.len(), ulpdu.len());
        ulpdus.push(octets);
    }
    Ok(())
}
