//! The Terminate header: input is one.

use iwarp::wire::terminate::{TERMINATE_LEN_MAX, Terminate};

pub(super) fn run(input: &[u8]) {
    let Some(terminate) = Terminate::parse(input) else {
        assert!(input.len() < 4);
        return;
    };
    assert!(!terminate.code.to_string().is_empty());
    if let Some(cause) = &terminate.cause {
        let header = cause.header.octets();
        // What is shown is what came: behind Control and DDP Segment Length.
        assert_eq!(input[6..].get(..header.len()), Some(header));
        assert_eq!(cause.segment_len.to_be_bytes(), input[4..6]);
    }
    let written = terminate.emit();
    assert!(written.len() <= TERMINATE_LEN_MAX);
    assert_eq!(Terminate::parse(&written).as_ref(), Some(&terminate));
}
