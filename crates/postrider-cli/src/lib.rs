//! The command line `postrider`: everything that the engine does, from a shell.
//!
//! One module per command under [`commands`]; what they share is here. Standard output carries what was asked for, as a
//! table or with `--json`; standard error carries errors, logs and progress.

mod cli;
mod client;
mod commands;
mod config;
mod database;
mod failure;
mod flags;
mod instant;
mod logging;
mod operator;
mod output;
mod payload;
mod process;
mod receiver;
mod secret_key;
mod signals;

use std::io::Write as _;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::cli::Cli;
use crate::failure::{Exit, Failure};

/// A delivery is some hundred small allocations, most of them freed by another thread than the one that made them, which is
/// what the system's allocator is slowest at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the command that the process was started with, to its end.
pub fn run() -> ExitCode {
    let cli = match Cli::parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let json = cli.global.json;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("cannot start the runtime: {error}");
            return end(&Failure::new(Exit::Failed, "runtime_failed", message), json);
        }
    };
    let result = runtime.block_on(commands::run(cli));
    // A read of standard input that nobody waits for any more must not hold up the exit.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure, json),
    }
}

fn end(failure: &Failure, json: bool) -> ExitCode {
    if let Failure::Told(problem) = failure {
        let text = if json { problem.json() } else { problem.to_string() };
        // With standard error gone there is nobody left to tell.
        let _ = writeln!(std::io::stderr(), "{text}");
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
            // What could not be parsed may still have asked for JSON.
            if std::env::args_os().any(|argument| argument == "--json") {
                return end(&Failure::new(Exit::Usage, "usage", in_one_paragraph(&text)).hint("see --help"), true);
            }
            let text = text.strip_prefix("error: ").unwrap_or(&text).replace("  tip: ", "hint: ");
            let text = text.replace("For more information, try '--help'.", "hint: `--help` says more");
            let _ = write!(std::io::stderr(), "error[usage]: {text}");
            ExitCode::from(Exit::Usage.code())
        }
    }
}

/// The parser's message without its usage and tips, which programs have no use for.
fn in_one_paragraph(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().take_while(|line| !line.is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}
