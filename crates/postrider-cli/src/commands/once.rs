//! `postrider once`: once-only claims.

use clap::{Args, Subcommand};
use jiff::Timestamp;
use postrider::OnceCursor;
use postrider_server::api::keys::PageQuery;
use postrider_server::api::once::{OnceClaim, OnceQuery};

use crate::client::{ActFlags, LookFlags};
use crate::commands::Context;
use crate::commands::deliveries::{PageFlags, print};
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
    List(ListArguments),
    Show(ShowArguments),
    Reset(ResetArguments),
}

/// List subjects by name, each with its generation and who has claimed it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider once list
  postrider once list --prefix plan/ --all --json")]
struct ListArguments {
    /// Those that begin with this, to the letter
    #[arg(long, value_name = "TEXT", help_heading = "Filter")]
    prefix: Option<String>,
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    look: LookFlags,
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
        OnceCommand::List(arguments) => {
            arguments.page.check_as::<OnceCursor>()?;
            let client = arguments.look.client(context).await?;
            let fetch = async |page: PageQuery| {
                let PageQuery { limit, cursor } = page;
                client.once_claims(&OnceQuery { prefix: arguments.prefix.clone(), limit, cursor }).await
            };
            let listing = arguments.page.gather(fetch).await?;
            print(&listing, "no subject matches", context.output, |claims| table(claims, context.output))
        }
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

fn table(claims: &[OnceClaim], output: Output) -> Result<(), Failure> {
    let now = Timestamp::now();
    let rows = claims.iter().map(|claim| {
        let winner = claim.winner.as_ref();
        vec![
            plain(&claim.subject, 80).into(),
            plain(&claim.tenant, 40).into(),
            claim.generation.to_string().into(),
            winner.map_or_else(|| "nobody".to_owned(), |winner| winner.event_id.to_string()).into(),
            winner.map(|winner| plain(&winner.event_type, 40)).unwrap_or_default().into(),
            winner.map(|winner| output::relative(winner.claimed_at, now)).unwrap_or_default().into(),
        ]
    });
    output.table(&["subject", "tenant", "generation", "winner", "type", "claimed"], rows)
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
