//! `postrider events`: what was sent.

use std::io::{IsTerminal as _, Write as _};

use clap::{Args, Subcommand};
use jiff::Timestamp;
use postrider::DeliveryStatus;
use postrider_server::api::events::{Event, EventsQuery};
use postrider_server::api::keys::PageQuery;

use crate::client::LookFlags;
use crate::commands::Context;
use crate::commands::deliveries::{self, PageFlags, parse_id, print, span};
use crate::failure::Failure;
use crate::output::{self, Cell, Output, plain};

/// How much of a payload a person is shown.
const MOST_CHARACTERS: usize = 2_000;

/// Look at events
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: EventsCommand,
}

#[derive(Debug, Subcommand)]
enum EventsCommand {
    List(ListArguments),
    Show(ShowArguments),
}

/// List events, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider events list --type invoice.paid --since 2h
  postrider events list --all --json")]
struct ListArguments {
    /// Of exactly this type
    #[arg(long = "type", value_name = "TYPE", help_heading = "Filter")]
    event_type: Option<String>,
    /// Sent at or after: `2026-02-21T12:00:00Z`, `2026-02-21`, or `2h` ago
    #[arg(long, value_name = "WHEN", help_heading = "Filter")]
    since: Option<String>,
    /// Sent before
    #[arg(long, value_name = "WHEN", help_heading = "Filter")]
    until: Option<String>,
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    look: LookFlags,
}

/// Show one event with its payload and deliveries
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider events show evt_01jd3nqqz4e8tv5h3s6g9x2m7k
  postrider events show evt_01jd3nqqz4e8tv5h3s6g9x2m7k --payload > payload.json")]
struct ShowArguments {
    /// The event: `evt_…`, or its UUID
    id: String,
    /// Print the payload and nothing else, byte for byte as receivers get it
    #[arg(long, conflicts_with = "json")]
    payload: bool,
    #[command(flatten)]
    look: LookFlags,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        EventsCommand::List(arguments) => {
            let (since, until) = span(arguments.since.as_deref(), arguments.until.as_deref())?;
            arguments.page.check()?;
            let client = arguments.look.client(context).await?;
            let [since, until] = [since, until].map(|at| at.map(|at| at.to_string()));
            let query = EventsQuery { event_type: arguments.event_type, since, until, ..EventsQuery::default() };
            let fetch = async |page: PageQuery| {
                client.events(&EventsQuery { limit: page.limit, cursor: page.cursor, ..query.clone() }).await
            };
            let listing = arguments.page.gather(fetch).await?;
            print(&listing, "no event matches", output, |events| table(events, output))
        }
        EventsCommand::Show(arguments) => {
            let id = parse_id(&arguments.id, "events")?;
            let event = arguments.look.client(context).await?.event(id).await?;
            if arguments.payload { raw(&event) } else { show(&event, output) }
        }
    }
}

fn table(events: &[Event], output: Output) -> Result<(), Failure> {
    let now = Timestamp::now();
    let rows = events.iter().map(|event| {
        vec![
            event.id.to_string().into(),
            event.event_type.clone().into(),
            plain(&event.tenant, 40).into(),
            output::relative(event.created_at, now).into(),
            event.payload.get().len().to_string().into(),
            summary(event).into(),
        ]
    });
    output.table(&["event", "type", "tenant", "sent", "bytes", "deliveries"], rows)
}

/// How its deliveries stand: `2 delivered, 1 failed`.
fn summary(event: &Event) -> String {
    let counts = DeliveryStatus::ALL.into_iter().filter_map(|status| {
        let count = event.deliveries.iter().filter(|delivery| delivery.status == status).count();
        (count > 0).then(|| format!("{count} {status}"))
    });
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

fn show(event: &Event, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(event);
    }
    let mut facts = vec![
        ("event", event.id.to_string()),
        ("type", event.event_type.clone()),
        ("tenant", plain(&event.tenant, 255)),
        ("sent", output::when(event.created_at, Timestamp::now())),
        ("topic", plain(&event.topic, 255)),
    ];
    facts.extend(event.metadata.iter().map(|(name, value)| {
        // A text reads better without its quotes.
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        ("metadata", plain(&format!("{name}={value}"), 300))
    }));
    facts.push(("payload", plain(event.payload.get(), MOST_CHARACTERS)));
    output.facts(&facts)?;
    output.line("")?;
    if event.deliveries.is_empty() {
        return output.line("no delivery: no endpoint took this type when it was sent");
    }
    let rows = event.deliveries.iter().map(|delivery| {
        vec![
            delivery.id.to_string().into(),
            Cell::toned(delivery.status.as_str(), deliveries::tone(delivery.status)),
            plain(&delivery.destination_url, 100).into(),
        ]
    });
    output.table(&["delivery", "status", "destination"], rows)
}

/// Nothing but the payload's bytes; on a terminal the prompt begins a new line after them.
fn raw(event: &Event) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(event.payload.get().as_bytes())?;
    if stdout.is_terminal() {
        stdout.write_all(b"\n")?;
    }
    Ok(stdout.flush()?)
}
