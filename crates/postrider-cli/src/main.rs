//! The binary `postrider`.

use std::process::ExitCode;

fn main() -> ExitCode {
    postrider_cli::run()
}
