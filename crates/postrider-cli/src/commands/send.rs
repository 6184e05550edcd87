//! `postrider send`: one event into the outbox.

use clap::Args;
use jiff::Timestamp;
use postrider::{DeliveryStatus, Enqueued, Event, EventDelivery, EventId, Metadata, NewEvent};
use serde::Serialize;

use crate::commands::Context;
use crate::config::Config;
use crate::database::Preparation;
use crate::failure::{Exit, Failure};
use crate::flags::{DestinationFlags, PayloadFlags, SigningSecretFlag};
use crate::instant::{self, Direction};
use crate::{output, payload};

const EXAMPLES: &str = "\
The event is stored when the command returns; `postrider dispatch` delivers it. Sending again under
the same idempotency key and with the same content finds the first event.

Examples:
  postrider send invoice.paid --data '{\"invoice\":\"in_42\"}' --to https://hooks.example.com/billing
  postrider send report.ready --data @report.json --to https://hooks.example.com/ --deliver-at 10m
  postrider send invoice.paid --data - --idempotency-key in_42/paid < invoice.json";

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
    /// At most one event under this key, for ever
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Not before: `2026-02-21T12:00:00Z`, `2026-02-21`, or `10m` from now
    #[arg(long, value_name = "WHEN")]
    deliver_at: Option<String>,
    /// Whose event it is
    #[arg(long, value_name = "NAME", default_value = postrider::DEFAULT_TENANT)]
    tenant: String,
    /// A fact that travels with announcements, never to the receiver; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    metadata: Vec<String>,
    /// Where facts about its deliveries are announced
    #[arg(long, value_name = "NAME", default_value = postrider::DEFAULT_TOPIC)]
    topic: String,
    /// Apply missing migrations first, also on Postgres
    #[arg(long)]
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
    let config = context.config(flags)?;
    let event = describe(&arguments)?;
    // Admission is a pure function, and refuses before a database is opened or made for nothing.
    config.admission.admit(event.clone())?;
    require_signing_secret(&arguments, &config)?;
    let preparation = if arguments.migrate { Preparation::Migrate } else { Preparation::Create };
    let store = config.database.open(&config, preparation).await?;
    let enqueued = store.enqueue(vec![event]).await?;
    let enqueued = enqueued.first().expect("one event gives one result");
    // The event is stored. What is read now is only to tell of it, and a failure to read must not look like one to
    // send: whoever sent it again would send it twice.
    let read = match enqueued.event_id() {
        Some(id) => store.event(id).await.ok().flatten(),
        None => None,
    };
    tell(&Sent::new(enqueued, &arguments.event_type, read), context)
}

fn describe(arguments: &Arguments) -> Result<NewEvent, Failure> {
    let mut event = NewEvent::new(&arguments.event_type, payload::read(&arguments.data)?)
        .tenant(&arguments.tenant)
        .topic(&arguments.topic);
    event.metadata = metadata(&arguments.metadata)?;
    event.destination_url.clone_from(&arguments.to);
    event.idempotency_key.clone_from(&arguments.idempotency_key);
    if let Some(text) = &arguments.deliver_at {
        event.deliver_at = Some(instant::parse("--deliver-at", text, Timestamp::now(), Direction::Future)?);
    }
    Ok(event)
}

fn metadata(pairs: &[String]) -> Result<Metadata, Failure> {
    let mut metadata = Metadata::new();
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let message = format!("--metadata `{}` has no name and value", output::plain(pair, 64));
            return Err(Failure::new(Exit::Refused, "metadata_invalid", message).hint("write it as name=value"));
        };
        if metadata.insert(name.to_owned(), value.into()).is_some() {
            let message = format!("--metadata names `{}` twice", output::plain(name, 64));
            return Err(Failure::new(Exit::Refused, "metadata_invalid", message).hint("give each name one value"));
        }
    }
    Ok(metadata)
}

/// A bare destination has no endpoint, and so no secret of its own; nothing is ever sent unsigned.
fn require_signing_secret(arguments: &Arguments, config: &Config) -> Result<(), Failure> {
    if arguments.to.is_none() || !config.signing_secrets.is_empty() {
        return Ok(());
    }
    let message = "--to needs `signing_secret`, which signs deliveries to URLs without a registered endpoint";
    Err(Failure::new(Exit::Refused, "signing_secret_missing", message).hint(
        "export POSTRIDER_SIGNING_SECRET=$(postrider sign --new-secret), for `send`, `dispatch` and `listen` alike",
    ))
}

/// What there is to tell of an event that is stored.
#[derive(Debug, Serialize)]
struct Sent {
    id: Option<EventId>,
    #[serde(rename = "type")]
    event_type: String,
    /// None if it could not be read back.
    created_at: Option<Timestamp>,
    duplicate: bool,
    deliveries: Vec<EventDelivery>,
}

impl Sent {
    /// As it was read back, or else as it was written.
    fn new(enqueued: &Enqueued, event_type: &str, read: Option<Event>) -> Self {
        let created_at = read.as_ref().map(|event| event.created_at);
        let written = || {
            let deliveries = enqueued.deliveries().iter().map(|delivery| EventDelivery {
                id: delivery.id,
                destination_url: delivery.destination_url.clone(),
                status: DeliveryStatus::Pending,
            });
            deliveries.collect()
        };
        Self {
            id: enqueued.event_id(),
            event_type: event_type.to_owned(),
            created_at,
            duplicate: matches!(enqueued, Enqueued::Duplicate { .. }),
            deliveries: read.map_or_else(written, |event| event.deliveries),
        }
    }
}

fn tell(sent: &Sent, context: &Context) -> Result<(), Failure> {
    if context.output.json {
        return context.output.document(sent);
    }
    let note = if sent.duplicate { "  (sent before under this idempotency key; nothing new was stored)" } else { "" };
    let id = sent.id.map(|id| id.to_string()).unwrap_or_default();
    context.output.line(format!("event     {id}  {}{note}", sent.event_type))?;
    for delivery in &sent.deliveries {
        let destination = output::plain(&delivery.destination_url, 200);
        context.output.line(format!("delivery  {}  {}  {destination}", delivery.id, delivery.status))?;
    }
    if sent.deliveries.is_empty() && sent.created_at.is_some() {
        context.output.line("no delivery: no endpoint takes this type; name a destination with --to")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use postrider::{DeliveryId, EnqueuedDelivery};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_is_stored_is_told_also_if_it_cannot_be_read_back() {
        let (event_id, id) = (EventId::from_uuid(Uuid::now_v7()), DeliveryId::from_uuid(Uuid::now_v7()));
        let destination_url = "https://hooks.example.com/".to_owned();
        let deliveries = vec![EnqueuedDelivery { id, destination_url: destination_url.clone(), endpoint_id: None }];
        let sent = Sent::new(&Enqueued::New { event_id, created_at: Timestamp::now(), deliveries }, "a.b", None);
        assert_eq!((sent.id, sent.event_type.as_str(), sent.duplicate), (Some(event_id), "a.b", false));
        let status = DeliveryStatus::Pending;
        assert_eq!(sent.deliveries, [EventDelivery { id, destination_url, status }]);
        let again = Sent::new(&Enqueued::Duplicate { event_id }, "a.b", None);
        assert!(again.duplicate && again.deliveries.is_empty());
    }
}
