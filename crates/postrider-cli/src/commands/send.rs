//! `postrider send`: one event into the outbox.

use clap::Args;
use jiff::Timestamp;
use postrider::{Admission, DestinationPolicy, EndpointId, Metadata, NewEvent, Refusal};
use postrider_server::api::events::{EnqueuedEvent, EventRequest, OnceRequest};
use serde_json::value::RawValue;

use crate::client::{Client, refuse_with_server};
use crate::commands::Context;
use crate::commands::deliveries::parse_id;
use crate::config::Config;
use crate::database::Preparation;
use crate::failure::{Exit, Failure};
use crate::flags::{DestinationFlags, PayloadFlags, SigningSecretFlag, TenantFlag};
use crate::instant::{self, Direction};
use crate::operator::OperatorFlag;
use crate::output::{Output, plain};
use crate::payload;

const EXAMPLES: &str = "\
The event is stored when the command returns; `postrider serve` or `postrider dispatch` delivers it.
Sending again under the same idempotency key and with the same content finds the first event.

Examples:
  postrider send invoice.paid --data '{\"invoice\":\"in_42\"}' --to https://hooks.example.com/billing
  postrider send report.ready --data @report.json --to https://hooks.example.com/ --deliver-at 10m
  postrider send invoice.paid --data - --idempotency-key in_42/paid < invoice.json
  postrider send plan.due --once plan/123 --data '{\"plan\":123}'";

/// Enqueue one event
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// What happened, such as `invoice.paid`
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// The payload, JSON: in place, `@FILE`, or `-` for standard input
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    data: String,
    /// To this URL only, rather than to the tenant's endpoints
    #[arg(long, value_name = "URL")]
    to: Option<String>,
    /// To this endpoint only, whatever event types it wants
    #[arg(long, value_name = "ID", conflicts_with = "to")]
    endpoint: Option<String>,
    /// At most one event under this key, for ever
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Only if no event has claimed this subject yet
    #[arg(long, value_name = "SUBJECT")]
    once: Option<String>,
    /// Only in this generation of the subject [default: the current one]
    #[arg(long, value_name = "NUMBER", requires = "once")]
    once_generation: Option<u64>,
    /// Not before: `2026-02-21T12:00:00Z`, `2026-02-21`, or `10m` from now
    #[arg(long, value_name = "WHEN")]
    deliver_at: Option<String>,
    #[command(flatten)]
    tenant: TenantFlag,
    /// A fact that travels with announcements, never to the receiver; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    metadata: Vec<String>,
    /// Where facts about its deliveries are announced
    #[arg(long, value_name = "NAME", default_value = postrider::DEFAULT_TOPIC)]
    topic: String,
    /// Apply missing migrations first, also on Postgres
    #[arg(long, conflicts_with = "server")]
    migrate: bool,
    #[command(flatten)]
    payload: PayloadFlags,
    #[command(flatten)]
    destinations: DestinationFlags,
    #[command(flatten)]
    signing_secret: SigningSecretFlag,
}

pub(crate) async fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let flags = [arguments.destinations.flags(), arguments.payload.flags(), arguments.signing_secret.flags()].concat();
    let config = context.config(flags.clone())?;
    refuse_with_server(&config, &flags)?;
    let event = describe(&arguments, &config)?;
    let preparation = if arguments.migrate { Preparation::Migrate } else { Preparation::Create };
    let tenant = arguments.tenant.tenant.as_deref();
    let client = Client::open(&config, preparation, tenant, &OperatorFlag::default()).await?;
    tell(&client.send(event).await?, context.output)
}

fn describe(arguments: &Arguments, config: &Config) -> Result<EventRequest, Failure> {
    let endpoint_id: Option<EndpointId> =
        arguments.endpoint.as_deref().map(|id| parse_id(id, "endpoints")).transpose()?;
    let deliver_at = arguments.deliver_at.as_deref();
    let deliver_at =
        deliver_at.map(|text| instant::parse("--deliver-at", text, Timestamp::now(), Direction::Future)).transpose()?;
    let metadata = metadata(&arguments.metadata)?;
    let bytes = payload::read(&arguments.data)?;
    let mut event = NewEvent::new(&arguments.event_type, bytes).topic(&arguments.topic);
    event.metadata.clone_from(&metadata);
    event.destination_url.clone_from(&arguments.to);
    event.idempotency_key.clone_from(&arguments.idempotency_key);
    let event = check(event, config)?;
    Ok(EventRequest {
        destination_url: arguments.to.clone(),
        endpoint_id,
        deliver_at,
        once: arguments.once.clone().map(|subject| OnceRequest { subject, generation: arguments.once_generation }),
        metadata: (!metadata.is_empty()).then_some(metadata),
        topic: Some(arguments.topic.clone()),
        idempotency_key: arguments.idempotency_key.clone(),
        ..EventRequest::new(&arguments.event_type, raw(&event)?)
    })
}

/// Admission is a pure function, and refuses before a database is opened or made for nothing, or a server asked. Which
/// destinations and sizes are accepted, a server decides.
fn check(event: NewEvent, config: &Config) -> Result<NewEvent, Failure> {
    if config.server.is_some() {
        let admission = Admission {
            destinations: DestinationPolicy::default(),
            max_payload_bytes: usize::MAX,
            bare_destinations: true,
        };
        admission.admit(NewEvent { destination_url: None, ..event.clone() })?;
        return Ok(event);
    }
    // What is wrong with the URL itself is told first: whoever has no secret yet should not fix that for nothing.
    Admission { bare_destinations: true, ..config.admission.clone() }.admit(event.clone())?;
    if event.destination_url.is_some() && config.signing_secrets.is_empty() {
        // A bare destination has no endpoint, and so no secret of its own; nothing is ever sent unsigned.
        let message = "--to needs `signing_secret`, which signs deliveries to URLs without a registered endpoint";
        return Err(Failure::new(Exit::Refused, "signing_secret_missing", message).hint(
            "export POSTRIDER_SIGNING_SECRET=$(postrider sign --new-secret), for `send`, `dispatch` and `listen` alike",
        ));
    }
    Ok(event)
}

/// The payload as it goes into the request: its very bytes, but for white space around it.
fn raw(event: &NewEvent) -> Result<Box<RawValue>, Failure> {
    let text = String::from_utf8(event.payload.to_vec()).ok();
    text.and_then(|text| RawValue::from_string(text).ok())
        .ok_or_else(|| Refusal::new("payload_not_json", "payload", "the payload is not JSON").into())
}

fn metadata(pairs: &[String]) -> Result<Metadata, Failure> {
    let mut metadata = Metadata::new();
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let message = format!("--metadata `{}` has no name and value", plain(pair, 64));
            return Err(Failure::new(Exit::Refused, "metadata_invalid", message).hint("write it as name=value"));
        };
        if metadata.insert(name.to_owned(), value.into()).is_some() {
            let message = format!("--metadata names `{}` twice", plain(name, 64));
            return Err(Failure::new(Exit::Refused, "metadata_invalid", message).hint("give each name one value"));
        }
    }
    Ok(metadata)
}

fn tell(sent: &EnqueuedEvent, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(sent);
    }
    let Some(id) = sent.id else {
        let now = sent.generation.map(|generation| format!(": the subject is in generation {generation} now"));
        return output.line(format!("nothing was stored{}", now.unwrap_or_default()));
    };
    let note = if sent.claimed == Some(false) {
        "  (it has claimed the subject before; nothing new was stored)"
    } else if sent.duplicate {
        "  (sent before under this idempotency key; nothing new was stored)"
    } else {
        ""
    };
    output.line(format!("event     {id}  {}{note}", sent.event_type))?;
    for delivery in &sent.deliveries {
        let destination = plain(&delivery.destination_url, 200);
        output.line(format!("delivery  {}  {}  {destination}", delivery.id, delivery.status))?;
    }
    if sent.deliveries.is_empty() && sent.created_at.is_some() {
        output.line("no delivery: no endpoint takes this type; name a destination with --to")?;
    }
    Ok(())
}
