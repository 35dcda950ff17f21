//! Placement of a tagged segment's payload (RFC 5041 sections 5.1.1 and 7.1).

use crate::memory::{AccessError, Accessor, Memory, Operation};
use crate::types::Stag;

/// Places `len` octets of payload, given in `pieces`, at `offset` of a buffer. Nothing is placed
/// when any of it would be refused.
///
/// A segment without payload is placed unseen.
// req 5041-7.1-6, 5041-4.2-6: the memory checks STag, Stream, right, bounds and wrap; the whole first.
// req 5041-5.2-9, 5041-5.2-10
#[inline]
pub(crate) fn place<'a, M: Memory>(
    memory: &mut M,
    who: Accessor,
    operation: Operation,
    stag: Stag,
    offset: u64,
    len: u32,
    mut pieces: impl Iterator<Item = &'a [u8]>,
) -> Result<(), AccessError> {
    let Some(first) = pieces.next().filter(|_| len > 0) else { return Ok(()) };
    if first.len() == len as usize {
        // One call, which itself checks before it places.
        return memory.place(who, operation, stag, offset, first);
    }
    memory.check(who, operation, stag, offset, len)?;
    memory.place(who, operation, stag, offset, first)?;
    let mut at = offset + first.len() as u64;
    for piece in pieces {
        memory.place(who, operation, stag, at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestMemory, WHO};

    fn place_pieces(
        memory: &mut TestMemory,
        stag: Stag,
        offset: u64,
        pieces: &[&[u8]],
    ) -> Result<(), AccessError> {
        let len = pieces.iter().map(|piece| piece.len()).sum::<usize>().try_into().unwrap();
        place(memory, WHO, Operation::RemoteWrite, stag, offset, len, pieces.iter().copied())
    }

    #[test]
    fn pieces_follow_each_other() {
        let mut memory = TestMemory::new();
        let stag = memory.register(6);
        place_pieces(&mut memory, stag, 1, &[&[1], &[2, 3], &[4]]).unwrap();
        assert_eq!(memory.octets(stag), [0, 1, 2, 3, 4, 0]);
    }

    // proves 5041-7.1-6, 5041-7.1-7
    #[test]
    fn nothing_is_placed_when_the_last_piece_is_out_of_bounds() {
        let mut memory = TestMemory::new();
        let stag = memory.register(6);
        let refused = place_pieces(&mut memory, stag, 3, &[&[1], &[2, 3], &[4]]);
        assert_eq!(refused, Err(AccessError::BaseOrBounds));
        assert_eq!(memory.octets(stag), [0; 6]);
        let wrapped = place_pieces(&mut memory, stag, u64::MAX - 1, &[&[1], &[2, 3], &[4]]);
        assert_eq!(wrapped, Err(AccessError::OffsetWrap));
    }

    // proves 5041-5.2-10
    #[test]
    fn without_payload_stag_and_offset_are_not_checked() {
        let mut memory = TestMemory::new();
        assert_eq!(place_pieces(&mut memory, Stag(0xdead), u64::MAX, &[]), Ok(()));
        assert_eq!(place_pieces(&mut memory, Stag(0xdead), u64::MAX, &[&[]]), Ok(()));
    }
}
