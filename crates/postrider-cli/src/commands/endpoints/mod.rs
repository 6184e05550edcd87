//! `postrider endpoints`: registered receivers.

mod settings;
mod trial;
mod view;

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use postrider::EndpointId;
use postrider_server::api::endpoints::{EndpointQuery, NewEndpoint, PauseRequest, RotateRequest};
use postrider_server::api::keys::PageQuery;

use self::settings::{SecretFlag, SettingFlags, UnsetFlag};
use crate::client::{ActFlags, Client, LookFlags, refuse_with_server};
use crate::commands::Context;
use crate::commands::deliveries::{PageFlags, parse_id, print};
use crate::config::Flags;
use crate::database::Preparation;
use crate::failure::{Exit, Failure};
use crate::flags::DestinationFlags;
use crate::output::plain;

/// Register, look at and act on endpoints
///
/// An endpoint is a receiver with a name: events whose type it wants are delivered to its URL, signed with its own secret,
/// under its own limits.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: EndpointsCommand,
}

#[derive(Debug, Subcommand)]
enum EndpointsCommand {
    Add(Box<AddArguments>),
    List(ListArguments),
    Show(ShowArguments),
    Update(Box<UpdateArguments>),
    Pause(PauseArguments),
    Resume(ActArguments),
    RotateSecret(RotateArguments),
    Test(TestArguments),
    Remove(RemoveArguments),
}

/// Register an endpoint; its secret is shown this once
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider endpoints add https://hooks.example.com/billing --event-types 'invoice.*,refund.paid'
  postrider endpoints add https://hooks.example.com/ --rate-limit 100/s --header 'X-Team: billing'
  postrider endpoints add https://hooks.example.com/ --retry-schedule 1m,10m,1h --max-attempts 8")]
struct AddArguments {
    /// Where events are sent
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    secret: SecretFlag,
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    destinations: DestinationFlags,
    #[command(flatten)]
    act: ActFlags,
}

/// List endpoints, newest first
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider endpoints list
  postrider endpoints list --status disabled --json")]
struct ListArguments {
    /// In this status
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(["active", "paused", "disabled"]), help_heading = "Filter")]
    status: Option<String>,
    #[command(flatten)]
    page: PageFlags,
    #[command(flatten)]
    look: LookFlags,
}

/// Show one endpoint with its settings, without its secret
#[derive(Debug, Args)]
struct ShowArguments {
    /// The endpoint: `ep_…`, or its UUID
    id: String,
    #[command(flatten)]
    look: LookFlags,
}

/// Change an endpoint; what is not named stays as it is
///
/// Deliveries that exist keep their destination, but follow the other settings from their next attempt on. A secret is
/// replaced with `rotate-secret`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider endpoints update ep_01jd3nqqz4e8tv5h3s6g9x2m7k --rate-limit 20/s
  postrider endpoints update ep_01jd3nqqz4e8tv5h3s6g9x2m7k --unset rate_limit --unset headers")]
struct UpdateArguments {
    /// The endpoint: `ep_…`, or its UUID
    id: String,
    /// Where events are sent
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    unset: UnsetFlag,
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    destinations: DestinationFlags,
    #[command(flatten)]
    act: ActFlags,
}

/// Hold an endpoint's deliveries back; new ones keep coming in and wait
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider endpoints pause ep_01jd3nqqz4e8tv5h3s6g9x2m7k --reason 'the receiver moves house'")]
struct PauseArguments {
    /// The endpoint: `ep_…`, or its UUID
    id: String,
    /// Why, for whoever looks at it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    act: ActFlags,
}

/// Make a paused or disabled endpoint's deliveries again, those that have waited too
#[derive(Debug, Args)]
struct ActArguments {
    /// The endpoint: `ep_…`, or its UUID
    id: String,
    #[command(flatten)]
    act: ActFlags,
}

/// Replace an endpoint's secret; the new one is shown this once
///
/// For the time of the overlap both sign, so that the receiver can change over when it suits it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider endpoints rotate-secret ep_01jd3nqqz4e8tv5h3s6g9x2m7k
  postrider endpoints rotate-secret ep_01jd3nqqz4e8tv5h3s6g9x2m7k --overlap 0s")]
struct RotateArguments {
    /// The endpoint: `ep_…`, or its UUID
    id: String,
    /// How long the old secret signs beside the new one; `0s` not at all [default: 24h]
    #[arg(long, value_name = "DURATION")]
    overlap: Option<String>,
    #[command(flatten)]
    secret: SecretFlag,
    #[command(flatten)]
    act: ActFlags,
}

/// Send an endpoint an event for trying out, and tell what came of it
///
/// A dispatcher must be running: `postrider serve`, or `postrider dispatch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider endpoints test ep_01jd3nqqz4e8tv5h3s6g9x2m7k --wait 10s

Exit codes:
  0  the receiver took it
  1  the attempt failed, or none was made in time")]
struct TestArguments {
    /// The endpoint: `ep_…`, or its UUID
    id: String,
    /// How long to wait for the first attempt; `0s` not at all
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    wait: String,
    #[command(flatten)]
    act: ActFlags,
}

/// Remove an endpoint with its secret; what waits to be delivered to it is cancelled
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postrider endpoints remove ep_01jd3nqqz4e8tv5h3s6g9x2m7k --yes")]
struct RemoveArguments {
    /// The endpoint: `ep_…`, or its UUID
    id: String,
    /// Do not ask first
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    act: ActFlags,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    match arguments.command {
        EndpointsCommand::Add(arguments) => add(*arguments, context).await,
        EndpointsCommand::List(arguments) => list(&arguments, context).await,
        EndpointsCommand::Show(arguments) => {
            let id = endpoint_id(&arguments.id)?;
            view::show(&arguments.look.client(context).await?.endpoint(id).await?, output)
        }
        EndpointsCommand::Update(arguments) => update(*arguments, context).await,
        EndpointsCommand::Pause(arguments) => {
            let id = endpoint_id(&arguments.id)?;
            let reason = PauseRequest { reason: arguments.reason };
            let endpoint = arguments.act.client(context).await?.pause_endpoint(id, reason).await?;
            view::done(&endpoint, "is paused: its deliveries wait", output)
        }
        EndpointsCommand::Resume(arguments) => {
            let id = endpoint_id(&arguments.id)?;
            let endpoint = arguments.act.client(context).await?.resume_endpoint(id).await?;
            view::done(&endpoint, "is active: its deliveries are made", output)
        }
        EndpointsCommand::RotateSecret(arguments) => {
            let id = endpoint_id(&arguments.id)?;
            let how = RotateRequest { secret: arguments.secret.read()?, overlap: arguments.overlap };
            let client = arguments.act.sealing_client(&context.config(Flags::new())?, Preparation::Existing).await?;
            let rotated = client.rotate_secret(id, how).await?;
            view::rotated(&rotated, output)
        }
        EndpointsCommand::Test(arguments) => {
            let id = endpoint_id(&arguments.id)?;
            let wait = trial::wait(&arguments.wait)?;
            trial::run(&arguments.act.client(context).await?, id, wait, output).await
        }
        EndpointsCommand::Remove(arguments) => remove(&arguments, context).await,
    }
}

async fn add(arguments: AddArguments, context: &Context) -> Result<(), Failure> {
    let flags = arguments.destinations.flags();
    let config = context.config(flags.clone())?;
    refuse_with_server(&config, &flags)?;
    let settings = arguments.settings.parse()?;
    let endpoint = NewEndpoint { url: arguments.url, secret: arguments.secret.read()?, ..settings.into_new() };
    if config.server.is_none() {
        // A URL that is refused must not leave a new database behind.
        config.admission.destinations.check_url(&endpoint.url)?;
    }
    let client = arguments.act.sealing_client(&config, Preparation::Create).await?;
    view::created(&client.create_endpoint(endpoint).await?, context.output)
}

async fn list(arguments: &ListArguments, context: &Context) -> Result<(), Failure> {
    arguments.page.check()?;
    let client = arguments.look.client(context).await?;
    let status = &arguments.status;
    let fetch = async |page: PageQuery| {
        let query = EndpointQuery { status: status.clone(), limit: page.limit, cursor: page.cursor };
        client.endpoints(&query).await
    };
    let listing = arguments.page.gather(fetch).await?;
    let none = "no endpoint; `postrider endpoints add URL` registers one";
    print(&listing, none, context.output, |endpoints| view::table(endpoints, context.output))
}

async fn update(arguments: UpdateArguments, context: &Context) -> Result<(), Failure> {
    let id = endpoint_id(&arguments.id)?;
    let flags = arguments.destinations.flags();
    let config = context.config(flags.clone())?;
    refuse_with_server(&config, &flags)?;
    let mut patch = arguments.settings.parse()?.into_patch();
    patch.url = arguments.url;
    arguments.unset.apply(&mut patch)?;
    if patch == <_>::default() {
        let message = "nothing is named that is to change";
        return Err(
            Failure::new(Exit::Usage, "usage", message).hint("`postrider endpoints update --help` lists what can")
        );
    }
    let client = arguments.act.sealing_client(&config, Preparation::Existing).await?;
    view::show(&client.update_endpoint(id, patch).await?, context.output)
}

async fn remove(arguments: &RemoveArguments, context: &Context) -> Result<(), Failure> {
    let id = endpoint_id(&arguments.id)?;
    let client = arguments.act.client(context).await?;
    if !arguments.yes {
        confirm(&client, id).await?;
    }
    client.remove_endpoint(id).await?;
    if context.output.json {
        return context.output.document(&serde_json::json!({ "id": id, "removed": true }));
    }
    context.output.line(format!("{id} is removed"))
}

/// Asks a person; a script must say that it means it.
async fn confirm(client: &Client, id: EndpointId) -> Result<(), Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let message = "an endpoint is removed with its secret, and what waits for it is cancelled";
        return Err(Failure::new(Exit::Usage, "confirmation_missing", message).hint("add --yes if that is meant"));
    }
    let endpoint = client.endpoint(id).await?;
    let mut stderr = std::io::stderr();
    write!(stderr, "remove {id} ({}), and cancel what waits for it? [y/N] ", plain(&endpoint.url, 200))?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        Ok(())
    } else {
        Err(Failure::new(Exit::Failed, "not_confirmed", "nothing was removed"))
    }
}

fn endpoint_id(text: &str) -> Result<EndpointId, Failure> {
    parse_id(text, "endpoints")
}
