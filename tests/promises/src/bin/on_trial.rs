//! The command line `postrider`, in the build that the promises are tried on.

use std::process::ExitCode;

fn main() -> ExitCode {
    postrider_cli::run()
}
