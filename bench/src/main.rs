//! The harness's program; see `ironwarp-bench --help`.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use bench::cli::{CliError, Invocation};
use bench::run;

/// The command line makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let invocation = match Invocation::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(CliError::Clap(error)) => {
            // Help and version go to the standard output, with success. There is nowhere else to say it.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE));
        }
        Err(error) => return fail(&error, ExitCode::from(USAGE)),
    };
    match run::run(&invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_usage() => fail(&error, ExitCode::from(USAGE)),
        Err(error) => fail(&error, ExitCode::FAILURE),
    }
}

fn fail(error: &dyn std::error::Error, code: ExitCode) -> ExitCode {
    // Without a standard error there is nowhere to say it.
    let _ = writeln!(io::stderr(), "ironwarp-bench: {error}");
    code
}
