//! The appliance's program; see `ironwarp --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use control::appliance::{self, Failure};
use control::cli::{self, OptionError};
use control::output;

fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os().skip(1)) {
        Ok(invocation) => invocation,
        Err(OptionError::Information(text)) => {
            output::line(text.trim_end());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            output::error(error);
            return ExitCode::from(2);
        }
    };
    match appliance::run(invocation) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(errors)) => {
            errors.iter().for_each(output::error);
            ExitCode::from(2)
        }
        Err(Failure::Run(error)) => {
            output::error(error);
            ExitCode::FAILURE
        }
    }
}
