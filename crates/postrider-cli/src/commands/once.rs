//! `postrider once`: once-only claims.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use postrider_server::api::once::OnceClaim;

use crate::client::{ActFlags, LookFlags};
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::{self, Output, plain};

/// Look at once-only claims, and begin their next generation
///
/// Of all events that are sent with `--once SUBJECT`, the first one is stored and the others are not. A reset begins the
/// next generation of the subject, in which there is again one.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: OnceCommand,
}

#[derive(Debug, Subcommand)]
enum OnceCommand {
    Show(ShowArguments),
    Reset(ResetArguments),
}

/// Show how a subject stands: its generation, and which event has claimed it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider once show plan/123")]
struct ShowArguments {
    /// The subject, such as `plan/123`
    #[arg(value_name = "SUBJECT")]
    subject: String,
    #[command(flatten)]
    look: LookFlags,
}

/// Begin the next generation of a subject, in which it can be claimed again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider once reset plan/123
  postrider send plan.due --once plan/123 --data '{\"plan\":123}'")]
struct ResetArguments {
    /// The subject, such as `plan/123`
    #[arg(value_name = "SUBJECT")]
    subject: String,
    #[command(flatten)]
    act: ActFlags,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    match arguments.command {
        OnceCommand::Show(arguments) => {
            let claim = arguments.look.client(context).await?.once(&arguments.subject).await?;
            show(&claim, context.output)
        }
        OnceCommand::Reset(arguments) => {
            let claim = arguments.act.client(context).await?.reset_once(&arguments.subject).await?;
            if context.output.json {
                return context.output.document(&claim);
            }
            let subject = plain(&claim.subject, 255);
            context
                .output
                .line(format!("{subject} is in generation {} now, and can be claimed again", claim.generation))
        }
    }
}

fn show(claim: &OnceClaim, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(claim);
    }
    let mut facts = vec![
        ("subject", plain(&claim.subject, 255)),
        ("tenant", plain(&claim.tenant, 255)),
        ("generation", claim.generation.to_string()),
    ];
    match &claim.winner {
        Some(winner) => {
            facts.push(("winner", format!("{} ({})", winner.event_id, plain(&winner.event_type, 255))));
            facts.push(("claimed", output::when(winner.claimed_at, Timestamp::now())));
        }
        None => facts.push(("winner", "nobody has claimed it in this generation".to_owned())),
    }
    output.facts(&facts)
}
