//! The only way to standard output and standard error.

use std::fmt::Display;
use std::io::{self, Write};

/// Prints status or an answer to standard output.
pub fn line(text: impl Display) {
    let mut stdout = io::stdout().lock();
    // A closed pipe is no reason to stop serving peers.
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// Prints an error to standard error.
pub fn error(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "ironwarp: {text}");
}
