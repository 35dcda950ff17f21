//! Sending FPDUs (RFC 5044 section 4).

use core::convert::Infallible;

use super::fpdu::{CRC_LEN, LENGTH_LEN, MARKER_LEN, Markers, PAD_UNIT, fpdu_len};
use crate::crc::crc32c;

/// The smallest MULPDU, however small the segments are.
// req 5044-3-4
pub const MULPDU_MIN: usize = 128;

/// The largest MULPDU, and the largest ULPDU that may be sent.
// req 5044-3-5
pub const MULPDU_MAX: usize = 64_768;

/// Makes the FPDUs of one half connection, in order.
#[derive(Clone, Debug)]
pub struct Framer {
    crc: bool,
    /// Of the next FPDU.
    markers: Markers,
}

impl Framer {
    /// Starts with the first FPDU of Full Operation.
    pub const fn new(crc: bool, send_markers: bool) -> Self {
        Self { crc, markers: Markers::new(send_markers) }
    }

    /// Writes the next FPDU to the start of `out` and returns its length.
    ///
    /// `fill` writes the ULPDU to the slice it is given, all of it.
    ///
    /// # Panics
    /// When `ulpdu_len` is beyond [`MULPDU_MAX`] or `out` shorter than [`Framer::fpdu_len`].
    pub fn frame(&mut self, out: &mut [u8], ulpdu_len: usize, fill: impl FnOnce(&mut [u8])) -> usize {
        let Ok(len) = self.try_frame(out, ulpdu_len, |ulpdu| {
            fill(ulpdu);
            Ok::<_, Infallible>(())
        });
        len
    }

    /// As [`Framer::frame`], for a ULPDU that may turn out not to exist.
    ///
    /// # Errors
    /// Those of `fill`; there is no FPDU then, and the next one takes its place.
    ///
    /// # Panics
    /// As [`Framer::frame`].
    pub fn try_frame<E>(
        &mut self,
        out: &mut [u8],
        ulpdu_len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        // req 5044-3-6: what is longer than the current MULPDU is framed all the same.
        assert!(ulpdu_len <= MULPDU_MAX, "no ULPDU is larger than the largest MULPDU");
        let len = fpdu_len(ulpdu_len);
        let stream_len = self.markers.stream_len(len);
        let out = &mut out[..stream_len];

        // req 5044-3-1
        // req 5044-4.1-1
        let length = u16::try_from(ulpdu_len).expect("checked above");
        let ulpdu_end = LENGTH_LEN + ulpdu_len;
        // req 5044-4.1-2: a store of a fixed size before the ULPDU, which leaves the pad of it.
        out[len - CRC_LEN - PAD_UNIT..len - CRC_LEN].copy_from_slice(&[0; PAD_UNIT]);
        out[..LENGTH_LEN].copy_from_slice(&length.to_be_bytes());
        fill(&mut out[LENGTH_LEN..ulpdu_end])?;

        // req 5044-4.3-1
        if self.markers.enabled() {
            self.insert_markers(out, len);
        }

        // req 5044-4.4-9
        // req 5044-4.3-5, 5044-4.4-11: from the Marker in front to the one behind the pad, if any.
        let (covered, field) = out.split_at_mut(stream_len - CRC_LEN);
        let crc = if self.crc { crc32c(covered) } else { 0 };
        field.copy_from_slice(&crc.to_le_bytes());

        self.markers = self.markers.after(len);
        Ok(stream_len)
    }

    /// Octets that the next FPDU will have with a ULPDU of this length.
    pub const fn fpdu_len(&self, ulpdu_len: usize) -> usize {
        self.markers.stream_len(fpdu_len(ulpdu_len))
    }

    /// The longest ULPDU whose FPDU fits into an empty segment of `emss` octets.
    ///
    /// Never below [`MULPDU_MIN`], so that FPDUs do not fit if `emss` is tiny.
    pub const fn mulpdu(&self, emss: usize) -> usize {
        // req 5041-3-1, 5041-3-2
        // req 5044-3-2, 5044-4.5-1
        // req 5044-4.5-2
        let markers = if self.markers.enabled() { MARKER_LEN * emss.div_ceil(512) } else { 0 };
        let mulpdu = emss.saturating_sub(LENGTH_LEN + CRC_LEN + markers + emss % 4);
        // req 5044-4.5-6
        // req 5044-4.5-7
        if mulpdu < MULPDU_MIN {
            MULPDU_MIN
        } else if mulpdu > MULPDU_MAX {
            MULPDU_MAX
        } else {
            mulpdu
        }
    }

    /// Moves the `len` octets at the start of `out` apart to make room for Markers, and writes those.
    fn insert_markers(&self, out: &mut [u8], len: usize) {
        let mut end = len;
        for at in self.markers.marked(len).rev() {
            let to = self.markers.stream_offset(at);
            out.copy_within(at..end, to);
            // req 5044-4.2-1
            // req 5044-4.2-2
            // req 5044-4.2-3: all offsets in an FPDU with Markers are multiples of four.
            let pointer =
                u16::try_from(self.markers.pointer(at)).expect("MULPDU_MAX leaves room for Markers");
            out[to - MARKER_LEN..to - 2].fill(0);
            out[to - 2..to].copy_from_slice(&pointer.to_be_bytes());
            end = at;
        }
    }
}
