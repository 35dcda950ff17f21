//! Cuts a DDP Message into segments (RFC 5041 section 5.2).

/// One DDP Segment's part of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Octets of the message before it: the MO, or what is added to the message's TO.
    pub(crate) offset: u32,
    /// Octets of payload.
    pub(crate) len: u32,
    /// Whether it ends the message.
    pub(crate) last: bool,
}

/// The next segment of a message of `message_len` octets, `sent` of which are gone.
///
/// `ulpdu_max` is the MULPDU, `header_len` the size of the DDP header in it.
// req 5041-5.2-1, 5041-5.2-3, 5041-4.1-3, 5041-4.1-4, 5041-5.3-3
// req 5044-3-3, 5044-4.5-5: as long as the MULPDU allows, and no longer.
// req 5041-5.2-8: a message without octets is one segment.
#[inline]
pub(crate) fn cut(message_len: u32, sent: u32, ulpdu_max: usize, header_len: usize) -> Cut {
    debug_assert!(sent <= message_len && header_len < ulpdu_max);
    let room = u32::try_from(ulpdu_max - header_len).unwrap_or(u32::MAX);
    let left = message_len - sent;
    Cut { offset: sent, len: left.min(room), last: left <= room }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // proves 5041-5.2-8
    #[test]
    fn a_zero_length_message_is_one_segment() {
        assert_eq!(cut(0, 0, 128, 18), Cut { offset: 0, len: 0, last: true });
    }

    // proves 5041-4.1-3, 5041-4.1-4
    #[test]
    fn a_message_that_just_fits_is_one_segment() {
        assert_eq!(cut(110, 0, 128, 18), Cut { offset: 0, len: 110, last: true });
        assert_eq!(cut(111, 0, 128, 18), Cut { offset: 0, len: 110, last: false });
        assert_eq!(cut(111, 110, 128, 18), Cut { offset: 110, len: 1, last: true });
    }

    #[test]
    fn the_longest_message_ends_at_its_last_octet() {
        let sent = u32::MAX - 10;
        assert_eq!(cut(u32::MAX, sent, 64_768, 14), Cut { offset: sent, len: 10, last: true });
    }

    proptest! {
        // proves 5041-5.2-1, 5041-5.2-3, 5041-5.3-3
        #[test]
        fn segments_cover_the_message_in_order(len in 0_u32..100_000, ulpdu_max in 128_usize..2_000) {
            let mut sent = 0;
            loop {
                let cut = cut(len, sent, ulpdu_max, 18);
                prop_assert_eq!(cut.offset, sent);
                prop_assert!(cut.len as usize + 18 <= ulpdu_max);
                sent += cut.len;
                prop_assert_eq!(cut.last, sent == len);
                if cut.last {
                    break;
                }
                prop_assert_eq!(cut.len as usize + 18, ulpdu_max);
            }
        }
    }
}
