//! `postrider url check`: would this destination be accepted.

use clap::{Args, Subcommand};

use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::flags::DestinationFlags;

const EXAMPLES: &str = "\
Examples:
  postrider url check https://hooks.example.com/billing
  postrider url check http://127.0.0.1:9400/ --allowed-networks 127.0.0.0/8

Exit codes:
  0  accepted; the canonical form is printed
  4  refused; the rule's code is printed";

/// Look at destination URLs
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: UrlCommand,
}

#[derive(Debug, Subcommand)]
enum UrlCommand {
    Check(CheckArguments),
}

/// Say whether a destination would be accepted, and if not, by which rule
///
/// The same rules hold when an event is enqueued. When it is sent, every address that the name resolves to is checked
/// by them once more.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
struct CheckArguments {
    /// The URL as it would be given
    url: String,
    #[command(flatten)]
    destinations: DestinationFlags,
}

pub(crate) fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let UrlCommand::Check(arguments) = arguments.command;
    let config = context.config(arguments.destinations.flags())?;
    match config.admission.destinations.check_url(&arguments.url) {
        Ok(destination) if context.output.json => {
            context.output.document(&serde_json::json!({ "accepted": true, "url": destination.as_str() }))
        }
        Ok(destination) => context.output.line(destination.as_str()),
        Err(refusal) => {
            if context.output.json {
                context.output.document(&serde_json::json!({
                    "accepted": false, "code": refusal.code, "detail": refusal.detail, "hint": refusal.hint,
                }))?;
                return Err(Failure::Quiet(Exit::Refused));
            }
            Err(refusal.into())
        }
    }
}
