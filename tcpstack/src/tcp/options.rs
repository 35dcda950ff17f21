//! TCP options (RFC 9293 section 3.2, RFC 7323, RFC 2018): parsed from hostile octets, and written.

use arrayvec::ArrayVec;

use super::segment::OPTIONS_MAX;
use crate::seq::SeqNumber;

/// Most SACK blocks that fit a header.
pub const SACK_BLOCKS_MAX: usize = 4;

/// Largest shift of the Window Scale option (RFC 7323 section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;

/// Octets of the Timestamps option with the padding in front.
pub const TIMESTAMPS_LEN: usize = 12;

/// The first four octets of a segment's options when they begin in the usual way: NOP, NOP, Timestamps.
const TIMESTAMPS_ALIGNED: [u8; 4] = [kind::NOP, kind::NOP, kind::TIMESTAMPS, 10];

mod kind {
    pub(super) const END: u8 = 0;
    pub(super) const NOP: u8 = 1;
    pub(super) const MSS: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// The octets of a segment's options, padded to whole words.
pub type OptionOctets = ArrayVec<u8, OPTIONS_MAX>;

/// The fields of the Timestamps option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the receiver's clock, echoed.
    pub echo: u32,
}

/// Octets that arrived beyond a gap: `start <= x < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlock {
    /// The first one.
    pub start: SeqNumber,
    /// The first one after them.
    pub end: SeqNumber,
}

/// The options that this implementation knows; the others are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Maximum Segment Size.
    pub mss: Option<u16>,
    /// Window Scale, at most [`WINDOW_SCALE_MAX`].
    pub window_scale: Option<u8>,
    /// SACK Permitted.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// SACK.
    pub sack: ArrayVec<SackBlock, SACK_BLOCKS_MAX>,
}

impl Options {
    /// Reads options, cut anywhere and in any order; what comes after an illegal length is ignored.
    // req 9293-3.1-5, 9293-3.1-6, 9293-3.1-7
    // req 9293-3.1-9: an illegal length ends the list, it does not end the connection.
    // req 9293-3.2-1
    pub fn parse(mut octets: &[u8]) -> Self {
        let mut options = Self::default();
        while let [kind, rest @ ..] = octets {
            match *kind {
                kind::END => break,
                kind::NOP => {
                    octets = rest;
                    continue;
                }
                _ => {}
            }
            let Some(&len) = rest.first() else { break };
            let Some((option, rest)) = octets.split_at_checked(usize::from(len)) else { break };
            let [_, _, data @ ..] = option else { break };
            octets = rest;
            options.take(*kind, data);
        }
        options
    }

    /// Writes the options, padded with NOPs in front so that each begins on a word.
    ///
    /// SACK blocks that do not fit are left out.
    // req 9293-3.1-8
    pub fn emit(&self) -> OptionOctets {
        let mut out = OptionOctets::new();
        let mut put =
            |octets: &[u8]| out.try_extend_from_slice(octets).expect("what is put in fits the header");
        if let Some(mss) = self.mss {
            let [hi, lo] = mss.to_be_bytes();
            put(&[kind::MSS, 4, hi, lo]);
        }
        if let Some(shift) = self.window_scale {
            put(&[kind::NOP, kind::WINDOW_SCALE, 3, shift]);
        }
        if self.sack_permitted {
            put(&[kind::NOP, kind::NOP, kind::SACK_PERMITTED, 2]);
        }
        if let Some(timestamps) = self.timestamps {
            put(&emit_timestamps(timestamps));
        }
        let fit = (OPTIONS_MAX - out.len()).saturating_sub(4) / 8;
        let blocks = &self.sack[..self.sack.len().min(fit)];
        if !blocks.is_empty() {
            let len = u8::try_from(2 + 8 * blocks.len()).expect("at most four blocks");
            out.try_extend_from_slice(&[kind::NOP, kind::NOP, kind::SACK, len]).expect("it fits");
            for block in blocks {
                out.try_extend_from_slice(&block.start.value().to_be_bytes()).expect("it fits");
                out.try_extend_from_slice(&block.end.value().to_be_bytes()).expect("it fits");
            }
        }
        out
    }

    fn take(&mut self, kind: u8, data: &[u8]) {
        match (kind, data) {
            (kind::MSS, &[hi, lo]) => self.mss = Some(u16::from_be_bytes([hi, lo])),
            (kind::WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(WINDOW_SCALE_MAX)),
            (kind::SACK_PERMITTED, &[]) => self.sack_permitted = true,
            (kind::TIMESTAMPS, data) => self.timestamps = timestamps(data).or(self.timestamps),
            (kind::SACK, data) => {
                let (blocks, []) = data.as_chunks::<8>() else { return };
                for &[a, b, c, d, e, f, g, h] in blocks.iter().take(SACK_BLOCKS_MAX - self.sack.len()) {
                    let start = SeqNumber::new(u32::from_be_bytes([a, b, c, d]));
                    let end = SeqNumber::new(u32::from_be_bytes([e, f, g, h]));
                    self.sack.push(SackBlock { start, end });
                }
            }
            _ => {}
        }
    }
}

/// The Timestamps option of a segment in the common layout, at the price of one comparison.
#[inline]
pub(crate) fn leading_timestamps(octets: &[u8]) -> Option<Timestamps> {
    let (head, rest) = octets.split_first_chunk::<4>()?;
    if *head != TIMESTAMPS_ALIGNED {
        return None;
    }
    timestamps(rest.get(..8)?)
}

/// The Timestamps option with its padding.
#[inline]
pub(crate) fn emit_timestamps(timestamps: Timestamps) -> [u8; TIMESTAMPS_LEN] {
    let mut octets = [0; TIMESTAMPS_LEN];
    octets[..4].copy_from_slice(&TIMESTAMPS_ALIGNED);
    octets[4..8].copy_from_slice(&timestamps.value.to_be_bytes());
    octets[8..].copy_from_slice(&timestamps.echo.to_be_bytes());
    octets
}

fn timestamps(data: &[u8]) -> Option<Timestamps> {
    let &[a, b, c, d, e, f, g, h] = data else { return None };
    Some(Timestamps { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(start: u32, end: u32) -> SackBlock {
        SackBlock { start: SeqNumber::new(start), end: SeqNumber::new(end) }
    }

    fn syn_options() -> Options {
        Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            sack: ArrayVec::new(),
        }
    }

    const SYN_OCTETS: [u8; 24] =
        [2, 4, 0x05, 0xb4, 1, 3, 3, 7, 1, 1, 4, 2, 1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

    #[test]
    fn deconstruct() {
        assert_eq!(Options::parse(&SYN_OCTETS), syn_options());
        assert_eq!(leading_timestamps(&SYN_OCTETS), None);
        assert_eq!(leading_timestamps(&SYN_OCTETS[12..]), Some(Timestamps { value: 1, echo: 2 }));
    }

    // proves 9293-3.1-8
    #[test]
    fn construct() {
        assert_eq!(syn_options().emit().as_slice(), &SYN_OCTETS);
    }

    // proves 9293-3.1-9
    #[test]
    fn illegal_lengths_end_the_list() {
        for octets in [&[2u8, 0, 5, 180][..], &[2, 1, 5, 180], &[2, 200, 5, 180], &[2], &[3, 3]] {
            assert_eq!(Options::parse(octets), Options::default(), "{octets:?}");
        }
        let octets = [4, 2, 2, 0, 3, 3, 7];
        assert_eq!(Options::parse(&octets), Options { sack_permitted: true, ..Options::default() });
    }

    // proves 9293-3.1-5, 9293-3.1-7, 9293-3.2-1
    #[test]
    fn unknown_options_are_skipped_and_none_need_be_aligned() {
        let octets = [1, 253, 5, 1, 2, 3, 2, 4, 1, 0, 0, 3, 3, 1];
        assert_eq!(Options::parse(&octets), Options { mss: Some(256), ..Options::default() });
    }

    #[test]
    fn known_options_of_a_wrong_length_are_ignored() {
        let octets = [2, 3, 9, 3, 4, 1, 1, 8, 3, 0, 5, 9, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Options::parse(&octets), Options::default());
    }

    #[test]
    fn the_window_scale_is_clamped() {
        assert_eq!(Options::parse(&[3, 3, 200]).window_scale, Some(14));
    }

    #[test]
    fn sack_blocks_give_way_to_timestamps() {
        let blocks: ArrayVec<_, 4> = [block(1, 2), block(3, 4), block(5, 6), block(7, 8)].into();
        let mut options = Options { sack: blocks, ..Options::default() };
        assert_eq!(Options::parse(&options.emit()).sack.len(), 4);
        options.timestamps = Some(Timestamps { value: 3, echo: 4 });
        let parsed = Options::parse(&options.emit());
        assert_eq!(parsed.sack[..], options.sack[..3]);
        assert_eq!(parsed.timestamps, options.timestamps);
    }

    proptest! {
        #[test]
        fn any_octets(octets in prop::collection::vec(any::<u8>(), 0..60)) {
            let options = Options::parse(&octets);
            // Nothing is invented: the meaning survives a round trip when all of it fits a header.
            if octets.len() <= 20 {
                prop_assert_eq!(Options::parse(&options.emit()), options);
            }
            let _ = leading_timestamps(&octets);
        }

        #[test]
        fn truncation_at_every_length(len in 0usize..24) {
            let options = Options::parse(&SYN_OCTETS[..len]);
            prop_assert_eq!(options.mss.is_some(), len >= 4);
            prop_assert_eq!(options.window_scale.is_some(), len >= 8);
            prop_assert_eq!(options.timestamps.is_some(), len >= 24);
        }
    }
}
