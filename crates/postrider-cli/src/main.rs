//! The binary `postrider`: everything that the engine does, from a shell.
//!
//! One module per command under [`commands`]; what they share is here. Standard output carries what was asked for, as a
//! table or with `--json`; standard error carries errors, logs and progress.

mod cli;
mod commands;
mod config;
mod database;
mod duration;
mod failure;
mod flags;
mod instant;
mod logging;
mod operator;
mod output;
mod payload;
mod receiver;
mod signals;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return end(&Failure::new(Exit::Failed, "runtime_failed", format!("cannot start the runtime: {error}")));
        }
    };
    let result = runtime.block_on(commands::run(cli));
    // A read of standard input that nobody waits for any more must not hold up the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure),
    }
}

fn end(failure: &Failure) -> ExitCode {
    if let Failure::Told(problem) = failure {
        // With standard error gone there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "{problem}");
    }
    ExitCode::from(failure.exit().code())
}

/// What the command line parser has to say, in the form of every other error.
fn usage(error: &clap::Error) -> ExitCode {
    let text = error.render();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = write!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = write!(std::io::stderr(), "{text}");
            ExitCode::from(Exit::Usage.code())
        }
        _ => {
            let text = text.to_string();
            let text = text.strip_prefix("error: ").unwrap_or(&text).replace("  tip: ", "hint: ");
            let text = text.replace("For more information, try '--help'.", "hint: `--help` says more");
            let _ = write!(std::io::stderr(), "error[usage]: {text}");
            ExitCode::from(Exit::Usage.code())
        }
    }
}
