//! What operators do to deliveries: retry and cancel.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};
use postrider::{DeliveryId, DeliveryStatus};
use postrider_server::api::deliveries::{BulkRetry, CancelRequest, DeliveryQuery};
use serde::Serialize;

use crate::client::Client;
use crate::failure::{Exit, Failure, Problem};
use crate::output::{self, Output};

/// How many deliveries one step of a bulk retry takes: few enough to see it go on, and not fewer, since each step counts
/// what matches.
const BATCH: u32 = 1_000;

/// What became of one retry, for programs.
#[derive(Serialize)]
struct Retried {
    id: DeliveryId,
    /// `retried`, or the code of why not.
    result: String,
}

/// Refuses deliveries that are not dead letters, before any of them is touched.
pub(crate) async fn check_dead(client: &Client, ids: &[DeliveryId]) -> Result<(), Failure> {
    for id in ids {
        let status = client.delivery(*id).await?.delivery.status;
        if status != DeliveryStatus::Dead {
            let message = format!("{id} is not a dead letter, it is {status}");
            return Err(Failure::new(Exit::Refused, "delivery_not_dead", message)
                .hint(format!("`postrider deliveries retry {id}` retries what is failed or cancelled")));
        }
    }
    Ok(())
}

/// Retries each of these. Those that can be retried are, also if others cannot.
pub(crate) async fn retry_each(client: &Client, ids: &[DeliveryId], output: Output) -> Result<(), Failure> {
    let mut results = Vec::new();
    let mut problems: Vec<Box<Problem>> = Vec::new();
    for id in ids {
        match client.retry(*id).await {
            Ok(_) => {
                results.push(Retried { id: *id, result: "retried".to_owned() });
                if !output.json {
                    output.line(format!("{id} is due now"))?;
                }
            }
            Err(failure) => {
                let problem = about(*id, "retried", failure)?;
                results.push(Retried { id: *id, result: problem.code.clone() });
                if ids.len() > 1 && !output.json {
                    output::note(&problem.to_string());
                }
                problems.push(problem);
            }
        }
    }
    if output.json {
        output.document(&serde_json::json!({ "data": results }))?;
    }
    // Of several, each was told already; one that does not exist says more than one that cannot be retried.
    match problems.pop() {
        None => Ok(()),
        Some(problem) if ids.len() == 1 => Err(Failure::Told(problem)),
        Some(last) => {
            let missing = problems.iter().find(|problem| problem.exit == Exit::NotFound);
            Err(Failure::Quiet(missing.unwrap_or(&last).exit))
        }
    }
}

/// What is wrong with this one delivery; anything else that went wrong ends the command.
fn about(id: DeliveryId, what: &str, failure: Failure) -> Result<Box<Problem>, Failure> {
    match failure {
        Failure::Told(mut problem) if problem.exit == Exit::Refused => {
            problem.message = format!("{id} cannot be {what}: {}", problem.message);
            problem.hint.get_or_insert_with(|| format!("`postrider deliveries show {id}` tells more"));
            Ok(problem)
        }
        Failure::Told(problem) if problem.exit == Exit::NotFound => Ok(problem),
        other => Err(other),
    }
}

/// Refuses a bulk retry of what can never be retried, which would otherwise just find nothing.
pub(crate) fn check_retryable(query: &DeliveryQuery) -> Result<(), Failure> {
    match query.status.as_deref() {
        Some(status @ ("pending" | "delivered")) => {
            let message = format!("deliveries that are {status} cannot be retried");
            Err(Failure::new(Exit::Refused, "status_not_retryable", message).hint("use dead, failed or cancelled"))
        }
        _ => Ok(()),
    }
}

/// Retries everything that matches, some hundreds at a time.
pub(crate) async fn retry_matching(
    client: &Client,
    query: &DeliveryQuery,
    dry_run: bool,
    output: Output,
) -> Result<(), Failure> {
    let which = BulkRetry {
        status: query.status.clone().unwrap_or_default(),
        endpoint_id: query.endpoint_id.clone(),
        event_id: query.event_id.clone(),
        event_type: query.event_type.clone(),
        since: query.since.clone(),
        until: query.until.clone(),
        dry_run: true,
        limit: None,
    };
    let matched = client.retry_matching(&which).await?.matched;
    let mut retried = 0;
    let bar = progress(matched, dry_run || output.json);
    // A retried delivery may fail and match again while this goes on, so what matched at first is the most.
    while !dry_run && retried < matched {
        let batch = u32::try_from(matched - retried).unwrap_or(BATCH).min(BATCH);
        let step = BulkRetry { dry_run: false, limit: Some(batch), ..which.clone() };
        let done = client.retry_matching(&step).await?.retried;
        if done == 0 {
            break;
        }
        retried += done;
        bar.set_position(retried);
    }
    bar.finish_and_clear();
    if output.json {
        output.document(&serde_json::json!({ "matched": matched, "retried": retried, "dry_run": dry_run }))
    } else if dry_run {
        output.line(format!("{matched} would be retried"))
    } else {
        output.line(format!("{retried} of {matched} are due now"))
    }
}

/// A bar on a terminal, and nothing elsewhere.
fn progress(all: u64, hidden: bool) -> ProgressBar {
    if hidden || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("retrying [{bar:30}] {pos} of {len}, {eta} left");
    let style = style.expect("the template is a constant that is in order");
    ProgressBar::new(all).with_style(style.progress_chars("#> "))
}

/// Stops one delivery.
pub(crate) async fn cancel(client: &Client, id: DeliveryId, reason: &str, output: Output) -> Result<(), Failure> {
    let reason = CancelRequest { reason: Some(reason.to_owned()) };
    let detail = match client.cancel(id, &reason).await {
        Ok(detail) => detail,
        Err(failure) => return Err(Failure::Told(about(id, "cancelled", failure)?)),
    };
    if output.json {
        return output.document(&detail);
    }
    output.line(format!("{id} is cancelled"))
}

/// Refuses a reason that says nothing.
pub(crate) fn check_reason(reason: &str) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        return Err(Failure::new(Exit::Refused, "reason_missing", "--reason is empty")
            .hint("say why, whoever looks at the audit trail will ask"));
    }
    Ok(())
}
