//! What operators do to deliveries: retry and cancel.

use std::io::{IsTerminal as _, Write as _};

use postrider::store::{Action, Operator};
use postrider::{DeliveryFilter, DeliveryId, DeliveryStatus, Store};
use serde::Serialize;

use super::view::not_found;
use crate::failure::{Exit, Failure};
use crate::output::Output;

/// How many deliveries one transaction of a bulk retry takes.
const BATCH: u32 = 500;

/// What became of one retry, for programs.
#[derive(Serialize)]
struct Retried {
    id: DeliveryId,
    /// `retried`, or the code of why not.
    result: &'static str,
}

/// Refuses deliveries that are not dead letters, before any of them is touched.
pub(crate) async fn check_dead(store: &dyn Store, ids: &[DeliveryId]) -> Result<(), Failure> {
    for id in ids {
        let status = store.delivery(*id).await?.ok_or_else(|| not_found(*id))?.delivery.status;
        if status != DeliveryStatus::Dead {
            let message = format!("{id} is not a dead letter, it is {status}");
            return Err(Failure::new(Exit::Refused, "delivery_not_dead", message)
                .hint(format!("`postrider deliveries retry {id}` retries what is failed or cancelled")));
        }
    }
    Ok(())
}

/// Retries each of these. Those that can be retried are, also if others cannot.
pub(crate) async fn retry_each(
    store: &dyn Store,
    ids: &[DeliveryId],
    operator: &Operator,
    output: Output,
) -> Result<(), Failure> {
    let mut results = Vec::new();
    let mut worst = None;
    for id in ids {
        let action = store.retry(*id, operator).await?;
        let result = match action {
            Action::Done => "retried",
            Action::NotFound => "delivery_not_found",
            Action::Forbidden(reason) => reason.code(),
        };
        results.push(Retried { id: *id, result });
        if let Some(failure) = refused(*id, "retried", action) {
            if ids.len() > 1
                && !output.json
                && let Failure::Told(problem) = &failure
            {
                let _ = writeln!(std::io::stderr(), "{problem}");
            }
            worst = Some(failure);
        } else if !output.json {
            output.line(format!("{id} is due now"))?;
        }
    }
    if output.json {
        output.document(&serde_json::json!({ "data": results }))?;
    }
    match worst {
        None => Ok(()),
        Some(failure) if ids.len() == 1 => Err(failure),
        Some(_) if results.iter().any(|retried| retried.result == "delivery_not_found") => {
            Err(Failure::Quiet(Exit::NotFound))
        }
        Some(_) => Err(Failure::Quiet(Exit::Refused)),
    }
}

fn refused(id: DeliveryId, what: &str, action: Action) -> Option<Failure> {
    match action {
        Action::Done => None,
        Action::NotFound => Some(not_found(id)),
        Action::Forbidden(reason) => {
            let failure = Failure::new(Exit::Refused, reason.code(), format!("{id} cannot be {what}: {reason}"));
            Some(failure.hint(format!("`postrider deliveries show {id}` tells more")))
        }
    }
}

/// Refuses a bulk retry of what can never be retried, which would otherwise just find nothing.
pub(crate) fn check_retriable(filter: &DeliveryFilter) -> Result<(), Failure> {
    match filter.status {
        Some(status @ (DeliveryStatus::Pending | DeliveryStatus::Delivered)) => {
            let message = format!("deliveries that are {status} cannot be retried");
            Err(Failure::new(Exit::Refused, "status_not_retriable", message).hint("use dead, failed or cancelled"))
        }
        _ => Ok(()),
    }
}

/// Retries everything that matches, some hundreds at a time.
pub(crate) async fn retry_matching(
    store: &dyn Store,
    filter: &DeliveryFilter,
    dry_run: bool,
    operator: &Operator,
    output: Output,
) -> Result<(), Failure> {
    let matched = store.count_deliveries(filter).await?;
    let mut retried = 0;
    // A retried delivery may fail and match again while this goes on, so what matched at first is the most.
    while !dry_run && retried < matched {
        let batch = u32::try_from(matched - retried).unwrap_or(BATCH).min(BATCH);
        let done = store.retry_matching(filter, batch, operator).await?;
        if done == 0 {
            break;
        }
        retried += done;
        progress(retried, matched);
    }
    if output.json {
        output.document(&serde_json::json!({ "matched": matched, "retried": retried, "dry_run": dry_run }))
    } else if dry_run {
        output.line(format!("{matched} would be retried"))
    } else {
        output.line(format!("{retried} of {matched} are due now"))
    }
}

/// A bar on a terminal, and nothing elsewhere.
fn progress(done: u64, all: u64) {
    let mut stderr = std::io::stderr();
    if !stderr.is_terminal() {
        return;
    }
    let filled = usize::try_from(done * 30 / all.max(1)).unwrap_or(30).min(30);
    let end = if done >= all { "\n" } else { "" };
    // A bar that cannot be drawn is no reason to stop.
    let _ = write!(stderr, "\r[{}{}] {done} of {all}{end}", "#".repeat(filled), " ".repeat(30 - filled));
    let _ = stderr.flush();
}

/// Stops one delivery.
pub(crate) async fn cancel(
    store: &dyn Store,
    id: DeliveryId,
    reason: &str,
    operator: &Operator,
    output: Output,
) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        return Err(Failure::new(Exit::Refused, "reason_missing", "--reason is empty")
            .hint("say why, whoever looks at the audit trail will ask"));
    }
    if let Some(failure) = refused(id, "cancelled", store.cancel(id, reason, operator).await?) {
        return Err(failure);
    }
    if output.json {
        let detail = store.delivery(id).await?.ok_or_else(|| not_found(id))?;
        return output.document(&detail);
    }
    output.line(format!("{id} is cancelled"))
}
