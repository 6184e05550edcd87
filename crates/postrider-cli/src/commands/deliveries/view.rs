//! Deliveries as people and programs see them.

use std::time::Duration;

use jiff::Timestamp;
use postrider::{DeliveryStatus, duration};
use postrider_server::api::deliveries::{Attempt, Delivery, DeliveryDetail, DeliveryQuery};
use postrider_server::api::keys::PageQuery;

use super::filter::{PageFlags, print};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{self, Cell, Output, Tone, plain};

/// Prints the deliveries that match.
pub(crate) async fn list(
    client: &Client,
    query: &DeliveryQuery,
    page: &PageFlags,
    when_empty: &str,
    output: Output,
) -> Result<(), Failure> {
    let fetch = async |page: PageQuery| {
        client.deliveries(&DeliveryQuery { limit: page.limit, cursor: page.cursor, ..query.clone() }).await
    };
    let listing = page.gather(fetch).await?;
    print(&listing, when_empty, output, |deliveries| table(deliveries, Timestamp::now(), output))
}

/// Prints deliveries as a table.
pub(crate) fn table<D: Clone + Into<Delivery>>(
    deliveries: &[D],
    now: Timestamp,
    output: Output,
) -> Result<(), Failure> {
    let rows = deliveries.iter().cloned().map(|delivery| {
        let delivery: Delivery = delivery.into();
        vec![
            delivery.id.to_string().into(),
            Cell::toned(delivery.status.as_str(), tone(delivery.status)),
            attempts(&delivery).into(),
            delivery.event_type.clone().into(),
            plain(&delivery.destination_url, 60).into(),
            output::relative(delivery.created_at, now).into(),
            whereabouts(&delivery, now).into(),
            delivery.error_detail.as_deref().map(|detail| plain(detail, 60)).unwrap_or_default().into(),
        ]
    });
    output.table(&["delivery", "status", "attempts", "event type", "destination", "created", "next", "error"], rows)
}

pub(crate) fn tone(status: DeliveryStatus) -> Tone {
    match status {
        DeliveryStatus::Delivered => Tone::Good,
        DeliveryStatus::Dead => Tone::Bad,
        DeliveryStatus::Pending | DeliveryStatus::Failed => Tone::Waiting,
        DeliveryStatus::Cancelled => Tone::Faint,
    }
}

fn attempts(delivery: &Delivery) -> String {
    match delivery.earlier_attempts {
        0 => delivery.attempt_count.to_string(),
        earlier => format!("{} (+{earlier} earlier)", delivery.attempt_count),
    }
}

/// What happens to it next.
fn whereabouts(delivery: &Delivery, now: Timestamp) -> String {
    if delivery.lease_owner.is_some() {
        return "in flight".to_owned();
    }
    match delivery.next_attempt_at {
        Some(at) if at <= now => "due".to_owned(),
        Some(at) => output::relative(at, now),
        None => String::new(),
    }
}

/// Prints everything about one delivery.
pub(crate) fn show(detail: &DeliveryDetail, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(detail);
    }
    let now = Timestamp::now();
    output.facts(&facts(&detail.delivery, now, output))?;
    if detail.attempts.is_empty() {
        return output.line("\nno attempt has been made");
    }
    output.line("")?;
    let heading = ["attempt", "started", "took", "outcome", "status", "error", "response", "worker"];
    output.table(&heading, detail.attempts.iter().map(attempt_row))
}

fn facts(delivery: &Delivery, now: Timestamp, output: Output) -> Vec<(&'static str, String)> {
    let when = |at: Timestamp| output::when(at, now);
    let mut facts = vec![
        ("delivery", delivery.id.to_string()),
        ("status", output.toned(delivery.status.as_str(), tone(delivery.status))),
        ("event", format!("{} ({})", delivery.event_id, delivery.event_type)),
        ("destination", plain(&delivery.destination_url, 2_048)),
    ];
    facts.extend(delivery.endpoint_id.map(|id| ("endpoint", id.to_string())));
    facts.push(("tenant", plain(&delivery.tenant, 255)));
    facts.push(("attempts", attempts(delivery)));
    if delivery.abandoned_count > 0 {
        facts.push(("abandoned", delivery.abandoned_count.to_string()));
    }
    facts.push(("created", when(delivery.created_at)));
    facts.extend(delivery.last_attempted_at.map(|at| ("last attempted", when(at))));
    facts.extend(delivery.next_attempt_at.map(|at| ("next attempt", when(at))));
    facts.extend(delivery.error_detail.as_ref().map(|detail| ("error", plain(detail, 1_000))));
    facts.extend(delivery.lease_owner.as_ref().map(|owner| ("lease owner", plain(owner, 255))));
    facts.extend(delivery.lease_until.map(|at| ("lease until", when(at))));
    facts
}

fn attempt_row(attempt: &Attempt) -> Vec<Cell> {
    let text = |text: &Option<String>| text.as_deref().map(|text| plain(text.trim_end(), 60)).unwrap_or_default();
    vec![
        attempt.number.to_string().into(),
        output::instant(attempt.started_at).into(),
        duration::about(Duration::from_millis(attempt.duration_ms.into())).into(),
        attempt.outcome.as_str().into(),
        attempt.status_code.map(|code| code.to_string()).unwrap_or_default().into(),
        text(&attempt.error_detail).into(),
        text(&attempt.response_excerpt).into(),
        plain(&attempt.worker_id, 60).into(),
    ]
}
