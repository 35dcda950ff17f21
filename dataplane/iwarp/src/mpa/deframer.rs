//! Receiving FPDUs from an octet stream cut anywhere (RFC 5044 sections 4 and 6).
//!
//! FPDU boundaries come from the ULPDU Length fields alone, as the stream is in order;
//! Markers are checked and removed. No ULPDU is handed out before its FPDU is verified.
//!
//! The common segment begins and ends with an FPDU and has no Markers: [`Deframer::split`] then
//! takes it apart where it is, and nothing is held.

use core::fmt;

use super::fpdu::{CRC_LEN, LENGTH_LEN, MARKER_LEN, Markers, fpdu_len};
use super::held::Held;
use super::{MpaError, Segment};
use crate::crc::{Crc, crc32c};

/// Takes the segments of one half connection, in order, and gives its ULPDUs.
///
/// While [`Deframer::is_plain`], whole FPDUs may be taken from a segment by [`Deframer::split`];
/// what is left of it goes to [`Deframer::push_rest`]. After that, call [`Deframer::next`] until it says
/// `None`: only then are the segments that were used up given back.
#[derive(Debug)]
pub struct Deframer<B> {
    crc: bool,
    /// Of the FPDU at the front.
    markers: Markers,
    held: Held<B>,
    /// The front FPDU's ULPDU Length, once it is here.
    ulpdu_len: Option<usize>,
    /// Stream octets of the FPDU that was handed out last; consumed with the next call.
    handed_out: usize,
    /// Nothing is handed out any more.
    ended: Option<End>,
}

/// Why nothing is handed out any more.
#[derive(Clone, Copy, Debug)]
enum End {
    Discarded,
    Failed(MpaError),
}

impl<B: Segment> Deframer<B> {
    /// Starts with the first FPDU of Full Operation.
    pub const fn new(crc: bool, receive_markers: bool) -> Self {
        Self {
            crc,
            markers: Markers::new(receive_markers),
            held: Held::new(),
            ulpdu_len: None,
            handed_out: 0,
            ended: None,
        }
    }

    /// Whether the next segment can be given to [`Deframer::split`]: nothing is held of the one
    /// before, and there are no Markers.
    #[inline]
    pub const fn is_plain(&self) -> bool {
        self.held.len() == 0 && !self.markers.enabled() && self.ended.is_none()
    }

    /// The FPDU at the front of a segment; `None` when it is not here as a whole. Only while
    /// [`Deframer::is_plain`].
    ///
    /// # Errors
    /// As [`Deframer::next`].
    #[inline]
    pub fn split<'o>(&mut self, octets: &'o [u8]) -> Result<Option<Front<'o>>, MpaError> {
        debug_assert!(self.is_plain(), "what is held comes first");
        let Some((&length, _)) = octets.split_first_chunk::<LENGTH_LEN>() else { return Ok(None) };
        // req 5044-6-3: the stream is in order and starts with an FPDU.
        let ulpdu_len = usize::from(u16::from_be_bytes(length));
        // req 5044-6-4
        let Some((fpdu, rest)) = octets.split_at_checked(fpdu_len(ulpdu_len)) else { return Ok(None) };
        // req 5044-6-1
        // req 5044-6-2
        if self.crc && !crc_field_matches(fpdu) {
            // req 5044-8-7
            self.end(End::Failed(MpaError::Crc));
            return Err(MpaError::Crc);
        }
        Ok(Some(Front { ulpdu: &fpdu[LENGTH_LEN..LENGTH_LEN + ulpdu_len], rest }))
    }

    /// Takes the next octets of the stream.
    // req 5044-5.1-5, 5044-appendix-A.4-1: cut anywhere.
    pub fn push(&mut self, segment: B) {
        self.push_rest(segment, 0);
    }

    /// The same, without the first `skip` octets of the segment: [`Deframer::split`] took those.
    pub fn push_rest(&mut self, segment: B, skip: usize) {
        if self.ended.is_none() {
            self.held.push(segment, skip);
        }
    }

    /// Drops all octets, those still to come too: nothing more of this half connection counts.
    pub fn discard(&mut self) {
        self.end(End::Discarded);
    }

    /// The next ULPDU, if its FPDU is here as a whole.
    ///
    /// # Errors
    /// The FPDU is invalid. The same error is given from then on, and no ULPDU.
    #[expect(clippy::should_implement_trait, reason = "the ULPDU borrows from the deframer")]
    pub fn next(&mut self) -> Result<Option<Ulpdu<'_, B>>, MpaError> {
        match self.ended {
            Some(End::Failed(error)) => return Err(error),
            Some(End::Discarded) => return Ok(None),
            None => {}
        }
        self.held.consume(core::mem::take(&mut self.handed_out));
        let Some(fpdu) = self.front() else {
            self.held.bound();
            return Ok(None);
        };
        // req 5044-6-1
        // req 5044-6-2
        if let Err(error) = self.verify(fpdu) {
            // req 5044-8-7
            self.end(End::Failed(error));
            return Err(error);
        }
        self.handed_out = fpdu.stream_len;
        self.ulpdu_len = None;
        self.markers = fpdu.markers.after(fpdu.len);
        // req 5044-3-7, 5044-4.3-10, 5041-3-5, 5041-3-8, 5041-3-13
        Ok(Some(self.ulpdu(fpdu)))
    }

    /// Octets that wait for the rest of their FPDU, or for a call of [`Deframer::next`].
    pub const fn pending(&self) -> usize {
        self.held.len() - self.handed_out
    }

    /// The FPDU at the front, if all of it is here.
    fn front(&mut self) -> Option<Fpdu> {
        let markers = self.markers;
        let ulpdu_len = match self.ulpdu_len {
            Some(len) => len,
            None => {
                // req 5044-5.2-1
                // req 5044-6-3: the stream is in order and starts with an FPDU.
                if self.held.len() < markers.stream_len(LENGTH_LEN) {
                    return None;
                }
                let mut length = [0; LENGTH_LEN];
                self.held.gather(markers.stream_offset(0), &mut length);
                *self.ulpdu_len.insert(usize::from(u16::from_be_bytes(length)))
            }
        };
        let len = fpdu_len(ulpdu_len);
        let stream_len = markers.stream_len(len);
        // req 5044-6-4
        (self.held.len() >= stream_len).then_some(Fpdu { ulpdu_len, len, stream_len, markers })
    }

    fn verify(&self, fpdu: Fpdu) -> Result<(), MpaError> {
        // req 5044-4.1-3
        // req 5044-7.1.1-12
        // req 5044-4.4-12, 5041-3-7
        // req 5044-4.4-13
        if self.crc && !self.crc_matches(fpdu) {
            return Err(MpaError::Crc);
        }
        // req 5044-5.2-2, 5044-8-2: what the CRC found good, the Markers must agree with.
        for at in fpdu.markers.marked(fpdu.len) {
            let mut marker = [0; MARKER_LEN];
            self.held.gather(fpdu.markers.stream_offset(at) - MARKER_LEN, &mut marker);
            // req 5044-4.2-2
            // req 5044-4.3-6
            let pointer = usize::from(u16::from_be_bytes([marker[2], marker[3] & !0x03]));
            // An FPDU longer than any that may be sent has Markers too far from its start to say so.
            if pointer != fpdu.markers.pointer(at) & 0xffff {
                return Err(MpaError::Marker);
            }
        }
        Ok(())
    }

    fn crc_matches(&self, fpdu: Fpdu) -> bool {
        let covered_len = fpdu.stream_len - CRC_LEN;
        if let Some(octets) = self.held.contiguous(fpdu.stream_len) {
            return crc_field_matches(octets);
        }
        let mut crc = Crc::new();
        let mut at = 0;
        while at < covered_len {
            let run = self.held.run(at, covered_len - at);
            crc.update(run);
            at += run.len();
        }
        let mut field = [0; CRC_LEN];
        self.held.gather(covered_len, &mut field);
        field == crc.finish().to_le_bytes()
    }

    fn ulpdu(&self, fpdu: Fpdu) -> Ulpdu<'_, B> {
        let end = LENGTH_LEN + fpdu.ulpdu_len;
        let start = fpdu.markers.stream_offset(LENGTH_LEN);
        let unmarked = fpdu.markers.run_len(LENGTH_LEN) >= fpdu.ulpdu_len;
        if unmarked && let Some(octets) = self.held.contiguous(fpdu.stream_len) {
            return Ulpdu(Octets::Whole(&octets[start..start + fpdu.ulpdu_len]));
        }
        Ulpdu(Octets::Cut { held: &self.held, markers: fpdu.markers, at: LENGTH_LEN, end })
    }

    fn end(&mut self, end: End) {
        self.held.clear();
        self.handed_out = 0;
        self.ended = Some(end);
    }
}

/// A segment that begins with a whole, verified FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front<'o> {
    /// The ULPDU of it.
    pub ulpdu: &'o [u8],
    /// What follows it.
    pub rest: &'o [u8],
}

/// Whether the last octets of an FPDU are the CRC of the others.
// req 5044-4.1-3
// req 5044-7.1.1-12
#[inline]
fn crc_field_matches(octets: &[u8]) -> bool {
    octets.split_last_chunk().is_some_and(|(covered, field)| crc32c(covered).to_le_bytes() == *field)
}

/// An FPDU that is here as a whole, at the front of what is held.
#[derive(Clone, Copy)]
struct Fpdu {
    ulpdu_len: usize,
    /// FPDU octets.
    len: usize,
    /// Octets with Markers.
    stream_len: usize,
    markers: Markers,
}

/// A verified ULPDU: a DDP Segment.
pub struct Ulpdu<'a, B>(Octets<'a, B>);

/// The octets of a ULPDU, or what is left of them.
enum Octets<'a, B> {
    Whole(&'a [u8]),
    /// FPDU octets `at..end`, in several places or interrupted by Markers.
    Cut {
        held: &'a Held<B>,
        markers: Markers,
        at: usize,
        end: usize,
    },
}

impl<'a, B: Segment> Ulpdu<'a, B> {
    /// Octets of the ULPDU, at most 65,535.
    pub const fn len(&self) -> usize {
        match self.0 {
            Octets::Whole(octets) => octets.len(),
            Octets::Cut { at, end, .. } => end - at,
        }
    }

    /// Whether there is no octet.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the octets from `offset` on to `out`, as many as both have; returns how many.
    pub fn gather(&self, offset: usize, out: &mut [u8]) -> usize {
        let mut gathered = 0;
        for piece in self.pieces(offset) {
            let len = piece.len().min(out.len() - gathered);
            out[gathered..gathered + len].copy_from_slice(&piece[..len]);
            gathered += len;
            if gathered == out.len() {
                break;
            }
        }
        gathered
    }

    /// The octets from `offset` on, in order, as slices of where they are; none is empty.
    pub fn pieces(&self, offset: usize) -> Pieces<'a, B> {
        Pieces(match self.0 {
            Octets::Whole(octets) => Octets::Whole(octets.get(offset..).unwrap_or_default()),
            Octets::Cut { held, markers, at, end } => {
                Octets::Cut { held, markers, at: at.saturating_add(offset).min(end), end }
            }
        })
    }
}

impl<B: Segment> fmt::Debug for Ulpdu<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ulpdu").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The pieces of a ULPDU.
pub struct Pieces<'a, B>(Octets<'a, B>);

impl<'a, B: Segment> Iterator for Pieces<'a, B> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        match &mut self.0 {
            Octets::Whole(octets) => {
                let piece = core::mem::take(octets);
                (!piece.is_empty()).then_some(piece)
            }
            Octets::Cut { at, end, .. } if at == end => None,
            Octets::Cut { held, markers, at, end } => {
                // req 5044-4.3-11
                let piece = held.run(markers.stream_offset(*at), markers.run_len(*at).min(*end - *at));
                *at += piece.len();
                Some(piece)
            }
        }
    }
}
