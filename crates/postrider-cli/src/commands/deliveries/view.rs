//! Deliveries as people and programs see them.

use std::time::Duration;

use jiff::Timestamp;
use postrider::{Attempt, Delivery, DeliveryFilter, DeliveryId, DeliveryStatus, PageRequest, Store};

use crate::failure::{Exit, Failure};
use crate::output::{self, Cell, Output, Tone, plain};
use postrider::duration;

/// Prints one page.
pub(crate) async fn list(
    store: &dyn Store,
    filter: &DeliveryFilter,
    page: &PageRequest,
    when_empty: &str,
    output: Output,
) -> Result<(), Failure> {
    let page = store.deliveries(filter, page).await?;
    let next = page.next.map(|cursor| cursor.to_string());
    if output.json {
        return output.document(&serde_json::json!({ "data": page.items, "next_cursor": next }));
    }
    if page.items.is_empty() {
        return output.line(when_empty);
    }
    table(&page.items, Timestamp::now(), output)?;
    match next {
        Some(cursor) => output.line(format!("more: --cursor {cursor}")),
        None => Ok(()),
    }
}

/// Prints deliveries as a table.
pub(crate) fn table(deliveries: &[Delivery], now: Timestamp, output: Output) -> Result<(), Failure> {
    let rows = deliveries.iter().map(|delivery| {
        vec![
            delivery.id.to_string().into(),
            Cell::toned(delivery.status.as_str(), tone(delivery.status)),
            attempts(delivery).into(),
            delivery.event_type.clone().into(),
            plain(&delivery.destination_url, 60).into(),
            output::relative(delivery.created_at, now).into(),
            whereabouts(delivery, now).into(),
            delivery.error_detail.as_deref().map(|detail| plain(detail, 60)).unwrap_or_default().into(),
        ]
    });
    output.table(&["delivery", "status", "attempts", "event type", "destination", "created", "next", "error"], rows)
}

fn tone(status: DeliveryStatus) -> Tone {
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
pub(crate) async fn show(store: &dyn Store, id: DeliveryId, output: Output) -> Result<(), Failure> {
    let Some(detail) = store.delivery(id).await? else {
        return Err(not_found(id));
    };
    if output.json {
        return output.document(&detail);
    }
    let now = Timestamp::now();
    for (name, value) in facts(&detail.delivery, now, output) {
        output.line(format!("{name:<16}{value}"))?;
    }
    if detail.attempts.is_empty() {
        return output.line("\nno attempt has been made");
    }
    output.line("")?;
    let heading = ["attempt", "started", "took", "outcome", "status", "error", "response", "worker"];
    output.table(&heading, detail.attempts.iter().map(attempt_row))
}

/// There is no such delivery.
pub(crate) fn not_found(id: DeliveryId) -> Failure {
    Failure::new(Exit::NotFound, "delivery_not_found", format!("there is no delivery {id}"))
        .hint("`postrider deliveries list` prints those that there are")
}

fn facts(delivery: &Delivery, now: Timestamp, output: Output) -> Vec<(&'static str, String)> {
    let when = |at: Timestamp| format!("{} ({})", output::instant(at), output::relative(at, now));
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
