//! The targets, which live with the tests: each is run there over the inputs that are kept.

#![forbid(unsafe_code)]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/fuzz/targets/mod.rs"]
mod targets;

/// Gives an input to the target of this name.
///
/// # Panics
/// When there is none, or it finds something wrong.
pub fn run(name: &str, input: &[u8]) {
    let (_, target) = targets::TARGETS.iter().find(|(of, _)| *of == name).expect("a target of this name");
    target(input);
}
