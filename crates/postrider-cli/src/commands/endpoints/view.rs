//! Endpoints as people and programs see them.

use jiff::Timestamp;
use postrider::EndpointStatus;
use postrider_server::api::endpoints::{Endpoint, EndpointWithSecret, Signature};

use crate::failure::Failure;
use crate::output::{self, Cell, Output, Tone, plain};

pub(super) fn table(endpoints: &[Endpoint], output: Output) -> Result<(), Failure> {
    let now = Timestamp::now();
    let rows = endpoints.iter().map(|endpoint| {
        vec![
            endpoint.id.to_string().into(),
            Cell::toned(endpoint.status.as_str(), tone(endpoint.status)),
            plain(&endpoint.event_types.join(","), 40).into(),
            plain(&endpoint.url, 60).into(),
            plain(&endpoint.tenant, 40).into(),
            output::relative(endpoint.created_at, now).into(),
            plain(&remark(endpoint, now), 60).into(),
        ]
    });
    output.table(&["endpoint", "status", "event types", "url", "tenant", "created", "remark"], rows)
}

/// The most important thing to know about it, if there is any.
fn remark(endpoint: &Endpoint, now: Timestamp) -> String {
    if let Some(trouble) = &endpoint.trouble {
        return trouble.clone();
    }
    if let Some(reason) = &endpoint.status_reason {
        return reason.clone();
    }
    match endpoint.failing_since {
        Some(since) => format!("failing since {}", output::relative(since, now)),
        None => endpoint.description.clone(),
    }
}

fn tone(status: EndpointStatus) -> Tone {
    match status {
        EndpointStatus::Active => Tone::Good,
        EndpointStatus::Paused => Tone::Waiting,
        EndpointStatus::Disabled => Tone::Bad,
    }
}

/// Everything about one endpoint.
pub(super) fn show(endpoint: &Endpoint, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(endpoint);
    }
    output.facts(&facts(endpoint, output))
}

/// What was done to it, in a word.
pub(super) fn done(endpoint: &Endpoint, what: &str, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(endpoint);
    }
    output.line(format!("{} {what}", endpoint.id))
}

/// A new endpoint, with its secret.
pub(super) fn created(created: &EndpointWithSecret, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(created);
    }
    output.facts(&facts(&created.endpoint, output))?;
    secret(created, output)
}

/// A new secret.
pub(super) fn rotated(rotated: &EndpointWithSecret, output: Output) -> Result<(), Failure> {
    if output.json {
        return output.document(rotated);
    }
    output.line(format!("{} has a new secret", rotated.endpoint.id))?;
    match rotated.endpoint.secrets_retiring_until {
        Some(until) => {
            let until = output::when(until, Timestamp::now());
            output.line(format!("the old one signs beside it until {until}"))?;
        }
        None => output.line("the old one signs nothing any more")?,
    }
    secret(rotated, output)
}

fn secret(shown: &EndpointWithSecret, output: Output) -> Result<(), Failure> {
    output.line("")?;
    output.line(format!("secret  {}", shown.secret.reveal()))?;
    output.line("\nGive it to the receiver now, who verifies signatures with it; it is not shown again.")
}

fn facts(endpoint: &Endpoint, output: Output) -> Vec<(&'static str, String)> {
    let now = Timestamp::now();
    let mut facts = vec![
        ("endpoint", endpoint.id.to_string()),
        ("url", plain(&endpoint.url, 2_048)),
        ("event types", plain(&endpoint.event_types.join(","), 2_000)),
        ("status", output.toned(endpoint.status.as_str(), tone(endpoint.status))),
    ];
    facts.extend(endpoint.status_reason.as_deref().map(|reason| ("reason", plain(reason, 1_000))));
    facts.extend(endpoint.trouble.as_deref().map(|trouble| ("trouble", plain(trouble, 1_000))));
    facts.extend(endpoint.failing_since.map(|at| ("failing since", output::when(at, now))));
    facts.push(("tenant", plain(&endpoint.tenant, 255)));
    facts.extend(endpoint.retry_schedule.as_ref().map(|delays| ("retry schedule", delays.join(","))));
    facts.extend(endpoint.max_attempts.map(|count| ("max attempts", count.to_string())));
    facts.extend(endpoint.max_in_flight.map(|count| ("max in flight", count.to_string())));
    facts.extend(endpoint.rate_limit.clone().map(|limit| ("rate limit", limit)));
    facts.extend(endpoint.timeout.clone().map(|timeout| ("timeout", timeout)));
    facts.extend(endpoint.signature.as_ref().map(|signature| ("signature", scheme(signature))));
    facts.extend(endpoint.headers.iter().map(|(name, value)| ("header", plain(&format!("{name}: {value}"), 300))));
    if !endpoint.description.is_empty() {
        facts.push(("description", plain(&endpoint.description, 1_000)));
    }
    facts.extend(endpoint.secrets_retiring_until.map(|at| ("old secret until", output::when(at, now))));
    facts.push(("created", output::when(endpoint.created_at, now)));
    facts
}

fn scheme(signature: &Signature) -> String {
    match signature {
        Signature::Name(name) => plain(name, 64),
        Signature::Table(table) => {
            let parts = [Some(&table.scheme), table.header_prefix.as_ref(), table.signed.as_ref()];
            plain(&parts.into_iter().flatten().cloned().collect::<Vec<_>>().join(" "), 200)
        }
    }
}
