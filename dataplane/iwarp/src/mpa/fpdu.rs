//! Where the octets of an FPDU are in the stream (RFC 5044 sections 4.1 to 4.3).
//!
//! ```text
//! ULPDU Length (2) | ULPDU | pad to a multiple of 4 | CRC (4)
//! ```
//!
//! With Markers, each 512th octet of the stream starts one (4 octets), wherever in an FPDU
//! that is. Two counts are kept apart here: *FPDU octets*, without Markers, and *stream
//! octets*, with them; both from the start of the FPDU, to which a Marker in front of it belongs.

/// Octets of the ULPDU Length field.
pub(super) const LENGTH_LEN: usize = 2;

/// Octets of the CRC field.
pub(super) const CRC_LEN: usize = 4;

/// What the length of an FPDU is a multiple of, by its pad.
pub(super) const PAD_UNIT: usize = 4;

/// Octets of a Marker.
pub(super) const MARKER_LEN: usize = 4;

/// A Marker starts at each multiple of this many stream octets.
const MARKER_INTERVAL: usize = 512;

/// FPDU octets between two Markers.
const RUN_LEN: usize = MARKER_INTERVAL - MARKER_LEN;

/// FPDU octets of an FPDU.
pub(super) const fn fpdu_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).next_multiple_of(PAD_UNIT) + CRC_LEN
}

/// The Markers of one FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Markers {
    /// Stream octets from the start of the FPDU to its first Marker; `usize::MAX` if Markers
    /// are off.
    first: usize,
}

impl Markers {
    /// Of the first FPDU of a half connection.
    pub(super) const fn new(enabled: bool) -> Self {
        // req 5044-4.3-7: the first octets of Full Operation are a Marker.
        // req 5044-7.1.1-8
        Self { first: if enabled { 0 } else { usize::MAX } }
    }

    pub(super) const fn enabled(self) -> bool {
        self.first != usize::MAX
    }

    /// The stream octet at which FPDU octet `at` is.
    #[inline]
    pub(super) const fn stream_offset(self, at: usize) -> usize {
        if at < self.first { at } else { at + MARKER_LEN * (1 + (at - self.first) / RUN_LEN) }
    }

    /// The stream octets that `len` FPDU octets take, from the start of the FPDU.
    #[inline]
    pub(super) const fn stream_len(self, len: usize) -> usize {
        if len <= self.first { len } else { self.stream_offset(len - 1) + 1 }
    }

    /// How many FPDU octets from `at` on no Marker interrupts.
    pub(super) const fn run_len(self, at: usize) -> usize {
        if at < self.first { self.first - at } else { RUN_LEN - (at - self.first) % RUN_LEN }
    }

    /// The FPDU octets of an FPDU of `len` that have a Marker directly in front.
    pub(super) fn marked(self, len: usize) -> impl DoubleEndedIterator<Item = usize> {
        let count = if self.first < len { 1 + (len - 1 - self.first) / RUN_LEN } else { 0 };
        (0..count).map(move |index| self.first + index * RUN_LEN)
    }

    /// What the Marker in front of FPDU octet `at` says: how far back the ULPDU Length field is.
    pub(super) const fn pointer(self, at: usize) -> usize {
        // req 5044-4.3-3
        // req 5044-4.3-4: counted from the FPDU's start, which no sequence number's wrap affects.
        // req 5044-4.3-8
        // req 5044-4.3-9: a Marker in front of the FPDU points nowhere.
        if at == 0 { 0 } else { self.stream_offset(at) - MARKER_LEN - self.stream_offset(0) }
    }

    /// The Markers of the FPDU that follows this one of `len` FPDU octets.
    pub(super) const fn after(self, len: usize) -> Self {
        if !self.enabled() {
            return self;
        }
        // req 5044-4.3-2
        let past = (self.stream_len(len) + MARKER_INTERVAL - self.first) % MARKER_INTERVAL;
        Self { first: (MARKER_INTERVAL - past) % MARKER_INTERVAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_markers_the_counts_are_the_same() {
        let off = Markers::new(false);
        assert_eq!(off.stream_len(65_544), 65_544);
        assert_eq!(off.marked(65_544).count(), 0);
        assert_eq!(off.after(100), off);
    }

    // proves 5044-4.3-2, 5044-4.3-7
    #[test]
    fn markers_are_512_stream_octets_apart_across_fpdus() {
        let mut markers = Markers::new(true);
        let mut start = 0;
        let mut next_marker = 0;
        for len in (8..4000).step_by(4) {
            for at in markers.marked(len) {
                assert_eq!(start + markers.stream_offset(at) - MARKER_LEN, next_marker);
                next_marker += 512;
            }
            start += markers.stream_len(len);
            markers = markers.after(len);
        }
    }

    #[test]
    fn padding_makes_a_multiple_of_four() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(fpdu_len), [8, 8, 8, 12, 12, 12, 12, 16]);
    }
}
