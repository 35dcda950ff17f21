//! What is fuzzed, one function a target: octets in, panic when something is wrong.
//!
//! `dataplane/iwarp/fuzz` runs them under libFuzzer; the test beside this folder over the inputs that are kept.

mod ddp;
mod deframer;
mod mpa;
mod rdmap;
mod start_up;
mod stream;
mod terminate;

/// A target: its name, and what takes an input.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets.
pub(crate) const TARGETS: &[Target] = &[
    ("ddp", ddp::run),
    ("deframer", deframer::run),
    ("mpa", mpa::run),
    ("rdmap", rdmap::run),
    ("start_up", start_up::run),
    ("stream", stream::run),
    ("terminate", terminate::run),
];
