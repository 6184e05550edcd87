//! `postrider deliveries`: look at deliveries, and act on them.

mod action;
mod filter;
mod view;

use clap::{Args, Subcommand};

pub(crate) use self::action::{check_dead, retry_each, retry_matching};
use self::filter::FilterFlags;
pub(crate) use self::filter::{PageFlags, delivery_ids as parse_ids, parse_id, print, span};
pub(crate) use self::view::{list, show, table, tone};
use crate::client::{ActFlags, LookFlags};
use crate::commands::Context;
use crate::failure::Failure;

/// Look at deliveries, and act on them
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: DeliveriesCommand,
}

#[derive(Debug, Subcommand)]
enum DeliveriesCommand {
    List(ListArguments),
    Show(ShowArguments),
    Retry(RetryArguments),
    Cancel(CancelArguments),
}

/// List deliveries, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider deliveries list --status failed
  postrider deliveries list --event-type invoice.paid --since 2h --json")]
struct ListArguments {
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    look: LookFlags,
}

/// Show one delivery with all its attempts
#[derive(Debug, Args)]
struct ShowArguments {
    /// The delivery: `dlv_…`, or its UUID
    id: String,
    #[command(flatten)]
    look: LookFlags,
}

/// Make deliveries due now
///
/// A dead or cancelled delivery starts a new round of attempts; a failed one keeps its count and does not wait for its
/// time. Either name deliveries, or describe them with --status and the other filters.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider deliveries retry dlv_01jd3nqqz4e8tv5h3s6g9x2m7k
  postrider deliveries retry --status dead --since 1d --dry-run
  postrider deliveries retry --status dead --event-type invoice.paid

Exit codes:
  3  one of the named deliveries does not exist
  4  one of the named deliveries cannot be retried in its state")]
#[group(id = "Which", required = true, multiple = true, args = ["ids", "status"])]
struct RetryArguments {
    /// Deliveries by id
    #[arg(value_name = "ID", conflicts_with = "Filter")]
    ids: Vec<String>,
    /// Only say how many there are
    #[arg(long, conflicts_with = "ids")]
    dry_run: bool,
    #[command(flatten)]
    act: ActFlags,
    #[command(flatten)]
    filter: FilterFlags,
}

/// Stop a delivery that is not settled yet, also while an attempt is under way
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider deliveries cancel dlv_01jd3nqqz4e8tv5h3s6g9x2m7k --reason 'sent to the wrong team'")]
struct CancelArguments {
    /// The delivery: `dlv_…`, or its UUID
    id: String,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    act: ActFlags,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        DeliveriesCommand::List(arguments) => {
            let query = arguments.filter.parse()?;
            arguments.page.check()?;
            let client = arguments.look.client(context).await?;
            list(&client, &query, &arguments.page, "no delivery matches", output).await
        }
        DeliveriesCommand::Show(arguments) => {
            let id = parse_id(&arguments.id, "deliveries")?;
            show(&arguments.look.client(context).await?.delivery(id).await?, output)
        }
        DeliveriesCommand::Retry(arguments) if arguments.ids.is_empty() => {
            let query = arguments.filter.parse()?;
            action::check_retryable(&query)?;
            retry_matching(&arguments.act.client(context).await?, &query, arguments.dry_run, output).await
        }
        DeliveriesCommand::Retry(arguments) => {
            let ids = parse_ids(&arguments.ids)?;
            retry_each(&arguments.act.client(context).await?, &ids, output).await
        }
        DeliveriesCommand::Cancel(arguments) => {
            let id = parse_id(&arguments.id, "deliveries")?;
            action::check_reason(&arguments.reason)?;
            action::cancel(&arguments.act.client(context).await?, id, &arguments.reason, output).await
        }
    }
}
