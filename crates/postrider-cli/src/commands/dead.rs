//! `postrider dead`: the dead letters.

use clap::{Args, Subcommand};
use postrider::{DeliveryStatus, EndpointId};
use postrider_server::api::deliveries::DeliveryQuery;

use crate::client::{ActFlags, LookFlags};
use crate::commands::Context;
use crate::commands::deliveries::{self, PageFlags, span};
use crate::failure::Failure;

/// Look at dead letters, and retry them
///
/// A delivery is a dead letter when its last allowed attempt failed. It stays until an operator retries it, which
/// starts a new round of attempts; its history is kept.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: DeadCommand,
}

#[derive(Debug, Subcommand)]
enum DeadCommand {
    List(ListArguments),
    Retry(RetryArguments),
}

/// Which dead letters.
#[derive(Debug, Args)]
#[group(id = "DeadFilter", multiple = true)]
#[command(next_help_heading = "Filter")]
struct DeadFilter {
    /// Of events of exactly this type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// Created at or after: `2026-02-21T12:00:00Z`, `2026-02-21`, or `2h` ago
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Created before
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// To this endpoint
    #[arg(long, value_name = "ID")]
    endpoint: Option<String>,
}

impl DeadFilter {
    fn parse(&self) -> Result<DeliveryQuery, Failure> {
        let (since, until) = span(self.since.as_deref(), self.until.as_deref())?;
        let endpoint: Option<EndpointId> =
            self.endpoint.as_deref().map(|id| deliveries::parse_id(id, "endpoints")).transpose()?;
        Ok(DeliveryQuery {
            status: Some(DeliveryStatus::Dead.to_string()),
            endpoint_id: endpoint.map(|id| id.to_string()),
            event_type: self.event_type.clone(),
            since: since.map(|at| at.to_string()),
            until: until.map(|at| at.to_string()),
            ..DeliveryQuery::default()
        })
    }
}

/// List dead letters, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider dead list --since 1d
  postrider dead list --json")]
struct ListArguments {
    #[command(flatten)]
    filter: DeadFilter,
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    look: LookFlags,
}

/// Start a new round of attempts for dead letters
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider dead retry dlv_01jd3nqqz4e8tv5h3s6g9x2m7k
  postrider dead retry --all --event-type invoice.paid --dry-run")]
struct RetryArguments {
    /// Dead letters by id
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with_all = ["all", "DeadFilter", "dry_run"])]
    ids: Vec<String>,
    /// All of them, or all that the filter leaves
    #[arg(long)]
    all: bool,
    /// Only say how many there are
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    act: ActFlags,
    #[command(flatten)]
    filter: DeadFilter,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        DeadCommand::List(arguments) => {
            let query = arguments.filter.parse()?;
            arguments.page.check()?;
            let client = arguments.look.client(context).await?;
            deliveries::list(&client, &query, &arguments.page, "no dead letter", output).await
        }
        DeadCommand::Retry(arguments) if arguments.all => {
            let query = arguments.filter.parse()?;
            let client = arguments.act.client(context).await?;
            deliveries::retry_matching(&client, &query, arguments.dry_run, output).await
        }
        DeadCommand::Retry(arguments) => {
            let ids = deliveries::parse_ids(&arguments.ids)?;
            let client = arguments.act.client(context).await?;
            deliveries::check_dead(&client, &ids).await?;
            deliveries::retry_each(&client, &ids, output).await
        }
    }
}
