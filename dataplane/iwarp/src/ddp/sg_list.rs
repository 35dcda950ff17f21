//! Placement into, and fetching from, a scatter/gather list.
//!
//! A cursor keeps the place in the list between the segments of a message, so that no segment
//! walks the list from its start.

use core::iter;

use crate::memory::{AccessError, Accessor, Memory, Operation};
use crate::work::Sge;

/// A place in a scatter/gather list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SgCursor {
    /// The element; the list's length at its end.
    element: usize,
    /// Octets of the element that are behind.
    offset: u32,
}

impl SgCursor {
    /// The next octets that lie in one element, at most `max` (not 0) of them; steps over them.
    #[inline]
    fn next_run(&mut self, list: &[Sge], max: usize) -> Option<Sge> {
        loop {
            let sge = list.get(self.element)?;
            let left = sge.len - self.offset;
            if left == 0 {
                *self = Self { element: self.element + 1, offset: 0 };
                continue;
            }
            let len = left.min(u32::try_from(max).unwrap_or(u32::MAX));
            // Whether the sum wraps is the memory's to say.
            let offset = sge.offset.wrapping_add(u64::from(self.offset));
            self.offset += len;
            return Some(Sge { stag: sge.stag, offset, len });
        }
    }
}

/// Octets of a list; none when they exceed what a message can have.
// req 5041-5.2-2
#[inline]
pub(crate) fn length(list: &[Sge]) -> Option<u32> {
    list.iter().try_fold(0_u32, |sum, sge| sum.checked_add(sge.len))
}

/// Checks each whole element.
#[inline]
pub(crate) fn check_all<M: Memory>(
    memory: &M,
    who: Accessor,
    operation: Operation,
    list: &[Sge],
) -> Result<(), AccessError> {
    list.iter()
        .filter(|sge| sge.len > 0)
        .try_for_each(|sge| memory.check(who, operation, sge.stag, sge.offset, sge.len))
}

/// Checks the next `len` octets from `cursor` on.
pub(crate) fn check<M: Memory>(
    memory: &M,
    who: Accessor,
    operation: Operation,
    list: &[Sge],
    mut cursor: SgCursor,
    len: u32,
) -> Result<(), AccessError> {
    let mut left = len as usize;
    while left > 0 {
        let run = cursor.next_run(list, left).ok_or(AccessError::BaseOrBounds)?;
        memory.check(who, operation, run.stag, run.offset, run.len)?;
        left -= run.len as usize;
    }
    Ok(())
}

/// Fills `out` from the list: the copy of a payload into its FPDU.
#[inline]
pub(crate) fn gather<M: Memory>(
    memory: &M,
    who: Accessor,
    list: &[Sge],
    cursor: &mut SgCursor,
    mut out: &mut [u8],
) -> Result<(), AccessError> {
    while !out.is_empty() {
        let run = cursor.next_run(list, out.len()).ok_or(AccessError::BaseOrBounds)?;
        let (now, later) = out.split_at_mut(run.len as usize);
        memory.fetch(who, Operation::LocalRead, run.stag, run.offset, now)?;
        out = later;
    }
    Ok(())
}

/// Places `len` octets of payload, given in `pieces`, from `cursor` on. Nothing is placed when
/// any of it would be refused.
#[inline]
pub(crate) fn scatter<'a, M: Memory>(
    memory: &mut M,
    who: Accessor,
    list: &[Sge],
    cursor: &mut SgCursor,
    len: u32,
    mut pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(), AccessError> {
    let Some(first) = pieces.next() else { return Ok(()) };
    let mut ahead = *cursor;
    if first.len() == len as usize
        && let Some(run) = ahead.next_run(list, first.len())
        && run.len == len
    {
        // One call, which itself checks before it places.
        memory.place(who, Operation::LocalWrite, run.stag, run.offset, first)?;
        *cursor = ahead;
        return Ok(());
    }
    check(memory, who, Operation::LocalWrite, list, *cursor, len)?;
    for mut piece in iter::once(first).chain(pieces) {
        while !piece.is_empty() {
            let run = cursor.next_run(list, piece.len()).ok_or(AccessError::BaseOrBounds)?;
            let (now, later) = piece.split_at(run.len as usize);
            memory.place(who, Operation::LocalWrite, run.stag, run.offset, now)?;
            piece = later;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestMemory, WHO};
    use proptest::prelude::*;

    // proves 5041-5.2-2
    #[test]
    fn lengths_add_up_to_at_most_32_bits() {
        let sge = |len| Sge { stag: crate::types::Stag(1), offset: 0, len };
        assert_eq!(length(&[]), Some(0));
        assert_eq!(length(&[sge(u32::MAX - 1), sge(1)]), Some(u32::MAX));
        assert_eq!(length(&[sge(u32::MAX), sge(1)]), None);
    }

    #[test]
    fn nothing_is_placed_when_a_later_element_is_refused() {
        let mut memory = TestMemory::new();
        let good = memory.register(4);
        let list = [
            Sge { stag: good, offset: 0, len: 4 },
            Sge { stag: crate::types::Stag(0xdead), offset: 0, len: 4 },
        ];
        let mut cursor = SgCursor::default();
        let octets: &[u8] = &[9; 8];
        let placed = scatter(&mut memory, WHO, &list, &mut cursor, 8, iter::once(octets));
        assert_eq!(placed, Err(AccessError::InvalidStag));
        assert_eq!(memory.octets(good), [0; 4]);
    }

    proptest! {
        #[test]
        fn what_is_scattered_is_gathered_again(
            lens in prop::collection::vec(0_u32..40, 1..=6),
            cuts in prop::collection::vec(1_usize..30, 1..200),
            pieces in prop::collection::vec(1_usize..20, 1..40),
        ) {
            let mut memory = TestMemory::new();
            let list: Vec<Sge> = lens
                .iter()
                .map(|&len| Sge { stag: memory.register(len as usize + 3), offset: 2, len })
                .collect();
            let total = length(&list).unwrap() as usize;
            let sent: Vec<u8> = (0..=250).cycle().take(total).collect();

            let mut cursor = SgCursor::default();
            let mut left = &sent[..];
            let mut cuts_left = cuts.iter().cycle();
            let mut piece_lens = pieces.iter().cycle();
            while !left.is_empty() {
                let cut = left.len().min(*cuts_left.next().unwrap());
                let (mut segment, later) = left.split_at(cut);
                let mut parts = Vec::new();
                while !segment.is_empty() {
                    let len = segment.len().min(*piece_lens.next().unwrap());
                    parts.push(&segment[..len]);
                    segment = &segment[len..];
                }
                let len = u32::try_from(cut).unwrap();
                scatter(&mut memory, WHO, &list, &mut cursor, len, parts.into_iter()).unwrap();
                left = later;
            }

            let mut cursor = SgCursor::default();
            let mut got = vec![0; total];
            let middle = total / 2;
            gather(&memory, WHO, &list, &mut cursor, &mut got[..middle]).unwrap();
            gather(&memory, WHO, &list, &mut cursor, &mut got[middle..]).unwrap();
            prop_assert_eq!(got, sent);
        }
    }
}
