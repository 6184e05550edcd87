//! `postrider dead`: the dead letters.

use clap::{Args, Subcommand};
use postrider::{DeliveryFilter, DeliveryStatus};

use crate::commands::Context;
use crate::commands::deliveries::{self, PageFlags, span};
use crate::failure::Failure;
use crate::operator::OperatorFlag;

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
    /// Of this tenant [default: of all]
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl DeadFilter {
    fn parse(&self) -> Result<DeliveryFilter, Failure> {
        let (since, until) = span(self.since.as_deref(), self.until.as_deref())?;
        Ok(DeliveryFilter {
            status: Some(DeliveryStatus::Dead),
            event_type: self.event_type.clone(),
            since,
            until,
            tenant: self.tenant.clone(),
            ..DeliveryFilter::default()
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
    operator: OperatorFlag,
    #[command(flatten)]
    filter: DeadFilter,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    match arguments.command {
        DeadCommand::List(arguments) => {
            let (filter, page) = (arguments.filter.parse()?, arguments.page.parse()?);
            let store = context.existing_store().await?;
            deliveries::list(&*store, &filter, &page, "no dead letter", context.output).await
        }
        DeadCommand::Retry(arguments) => {
            let operator = arguments.operator.operator()?;
            if arguments.all {
                let filter = arguments.filter.parse()?;
                let store = context.existing_store().await?;
                return deliveries::retry_matching(&*store, &filter, arguments.dry_run, &operator, context.output)
                    .await;
            }
            let ids = deliveries::parse_ids(&arguments.ids)?;
            let store = context.existing_store().await?;
            deliveries::check_dead(&*store, &ids).await?;
            deliveries::retry_each(&*store, &ids, &operator, context.output).await
        }
    }
}
