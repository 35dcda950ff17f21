//! The octets of a verified message: a function of its sequence, its sender and the place.
//!
//! An octet that went to another place, message or direction therefore shows, not only one that changed.

use dataplane::mem::{Buffer, OutOfBounds};

use super::message::Mismatch;

/// Who sent a message; each end has octets of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The end that connected.
    Harness,
    /// The end that accepted.
    Service,
}

/// Writes a message's `len` octets to `offset` of `buffer`.
///
/// # Errors
/// When they are not within the buffer.
pub fn write(
    buffer: &Buffer,
    offset: usize,
    len: usize,
    sender: Sender,
    sequence: u64,
) -> Result<(), OutOfBounds> {
    let mut chunk = [0; CHUNK];
    for done in (0..len).step_by(CHUNK) {
        let part = &mut chunk[..CHUNK.min(len - done)];
        generate(part, done, sender, sequence);
        buffer.write(offset + done, part)?;
    }
    Ok(())
}

/// Compares `len` octets at `offset` of `buffer` with a message's.
///
/// # Errors
/// When they are not within the buffer. A difference is a value: the first octet that differs.
pub fn compare(
    buffer: &Buffer,
    offset: usize,
    len: usize,
    sender: Sender,
    sequence: u64,
) -> Result<Option<Mismatch>, OutOfBounds> {
    let mut expected = [0; CHUNK];
    let mut found = [0; CHUNK];
    for done in (0..len).step_by(CHUNK) {
        let part = CHUNK.min(len - done);
        generate(&mut expected[..part], done, sender, sequence);
        buffer.read(offset + done, &mut found[..part])?;
        if expected[..part] == found[..part] {
            continue;
        }
        let differs = |at: &usize| expected[*at] != found[*at];
        if let Some(at) = (0..part).find(differs) {
            return Ok(Some(Mismatch {
                sequence,
                offset: u32::try_from(done + at).unwrap_or(u32::MAX),
                expected: expected[at],
                found: found[at],
            }));
        }
    }
    Ok(None)
}

/// Octets made at a time; a multiple of a word, so that a word is never split.
const CHUNK: usize = 4096;

/// The octets of a message from `first` on, which is a multiple of [`CHUNK`].
fn generate(out: &mut [u8], first: usize, sender: Sender, sequence: u64) {
    // Odd constants with well-spread bits: neighbouring words and sequences share no pattern.
    const WORD: u64 = 0x9e37_79b9_7f4a_7c15;
    const SEQUENCE: u64 = 0xd1b5_4a32_d192_ed03;
    let salt = match sender {
        Sender::Harness => 1_u64,
        Sender::Service => 1 << 63,
    };
    let mut state = (sequence ^ salt).wrapping_mul(SEQUENCE);
    state = state.wrapping_add((first as u64 / 8).wrapping_mul(WORD));
    for word in out.chunks_mut(8) {
        state = state.wrapping_add(WORD);
        let mixed = (state ^ state >> 32).wrapping_mul(SEQUENCE);
        let mixed = mixed ^ mixed >> 29;
        word.copy_from_slice(&mixed.to_le_bytes()[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use dataplane::mem::HugePages;

    use super::*;

    #[test]
    fn the_same_message_compares_equal_at_any_size_and_place() {
        let buffer = Buffer::allocate(3 * CHUNK, HugePages::Never).unwrap();
        for len in [1, 2, 7, 8, 9, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 3] {
            for offset in [0, 1, 64, 3 * CHUNK - len] {
                if offset + len > buffer.len() {
                    continue;
                }
                write(&buffer, offset, len, Sender::Harness, 7).unwrap();
                assert_eq!(compare(&buffer, offset, len, Sender::Harness, 7), Ok(None), "{len} at {offset}");
            }
        }
    }

    #[test]
    fn every_changed_octet_is_found() {
        let buffer = Buffer::allocate(CHUNK + 16, HugePages::Never).unwrap();
        write(&buffer, 0, CHUNK + 16, Sender::Service, 1).unwrap();
        for at in [0, 1, CHUNK - 1, CHUNK, CHUNK + 15] {
            let good = buffer.load_u8(at);
            buffer.store_u8(at, !good);
            let mismatch =
                Mismatch { sequence: 1, offset: u32::try_from(at).unwrap(), expected: good, found: !good };
            assert_eq!(compare(&buffer, 0, CHUNK + 16, Sender::Service, 1), Ok(Some(mismatch)));
            buffer.store_u8(at, good);
        }
    }

    #[test]
    fn another_sender_sequence_or_place_differs() {
        let buffer = Buffer::allocate(256, HugePages::Never).unwrap();
        write(&buffer, 0, 256, Sender::Harness, 5).unwrap();
        for (offset, sender, sequence) in [
            (0, Sender::Service, 5),
            (0, Sender::Harness, 6),
            (0, Sender::Harness, 4),
            (64, Sender::Harness, 5),
        ] {
            let found = compare(&buffer, offset, 64, sender, sequence).unwrap();
            assert!(found.is_some(), "{sender:?} {sequence} at {offset}");
        }
    }

    #[test]
    fn beyond_the_buffer_is_an_error() {
        let buffer = Buffer::allocate(16, HugePages::Never).unwrap();
        assert!(write(&buffer, 8, 9, Sender::Harness, 0).is_err());
        assert!(compare(&buffer, 8, 9, Sender::Harness, 0).is_err());
    }
}
