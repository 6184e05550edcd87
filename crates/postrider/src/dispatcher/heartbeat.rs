//! The heartbeat: one call per tick renews every lease that is held.
//!
//! It runs apart from everything else, so that a slow receiver, a full queue or a long settle cannot delay it. A call
//! that does not come back within a heartbeat is given up and made again: what was lost with it is one renewal of
//! three.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Shared;
use super::held::{Ended, RenewalEnd};
use crate::lease::Lease;
use crate::store::{StoreError, StoreErrorCode};

pub(super) async fn run(shared: Arc<Shared>) {
    let mut ticks = interval(shared.settings.term.heartbeat());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_failing = false;
    loop {
        ticks.tick().await;
        is_failing = beat(&shared, is_failing).await;
    }
}

/// Renews what is held. Returns whether that has failed. That is told once, and not at every beat of a store that stays
/// away; whoever claims and settles tells of it as well.
async fn beat(shared: &Shared, has_failed: bool) -> bool {
    let term = shared.settings.term;
    // Taken before the renewal is sent: the store counts from a later moment, so this end is never too late.
    let sent_at = Instant::now();
    let (leases, overdue) = shared.held.due_for_renewal(sent_at);
    tell(shared, &overdue);
    if leases.is_empty() {
        return false;
    }
    let renewal = shared.store.renew(&shared.settings.worker, &leases, term.lease());
    let answer = timeout(term.heartbeat(), renewal).await.unwrap_or_else(|_| {
        Err(StoreError::new(StoreErrorCode::Busy, format!("no answer within {:?}", term.heartbeat())))
    });
    match answer {
        Ok(renewed) => {
            tell(shared, &shared.held.renewed(&leases, &renewed, sent_at + term.lease()));
            false
        }
        Err(error) => {
            shared.count(|totals| totals.renewals_failed += leases.len() as u64);
            if has_failed {
                shared.count(|totals| totals.errors += 1);
            } else {
                shared.store_failed("renew leases", &error);
            }
            for lease in leases.iter().filter(|_| !has_failed) {
                tracing::warn!(
                    delivery_id = %lease.delivery_id,
                    worker_id = %shared.settings.worker,
                    code = %error.code,
                    "a lease was not renewed: {}",
                    error.message
                );
            }
            tell(shared, &shared.held.renewal_failed(Instant::now()));
            true
        }
    }
}

fn tell(shared: &Shared, ended: &[Ended]) {
    shared.count(|totals| totals.renewals_lost += ended.len() as u64);
    for Ended { lease, reason } in ended {
        tell_end(shared, *lease, *reason);
    }
}

/// Tells why a lease is not renewed any more.
pub(super) fn tell_end(shared: &Shared, lease: Lease, reason: RenewalEnd) {
    let code = match reason {
        RenewalEnd::Completed => "lease_settled",
        RenewalEnd::Lost => "lease_lost",
        RenewalEnd::StoreError => "lease_not_renewed",
        RenewalEnd::Deadline => "lease_deadline",
        RenewalEnd::Shutdown => "lease_released",
    };
    let (delivery_id, worker_id) = (lease.delivery_id, &shared.settings.worker);
    match reason {
        RenewalEnd::Completed | RenewalEnd::Shutdown => {
            tracing::debug!(%delivery_id, %worker_id, code, %reason, "renewal ended");
        }
        RenewalEnd::Lost | RenewalEnd::StoreError | RenewalEnd::Deadline => {
            tracing::warn!(%delivery_id, %worker_id, code, %reason, "renewal ended: {}", explain(reason));
        }
    }
}

fn explain(reason: RenewalEnd) -> &'static str {
    match reason {
        RenewalEnd::Completed => "it is settled",
        RenewalEnd::Lost => "the lease expired and was taken back; the attempt goes on, its result will not count",
        RenewalEnd::StoreError => "the store did not renew it in time; nothing new is sent under it",
        RenewalEnd::Deadline => "its attempt did not end by its hard deadline",
        RenewalEnd::Shutdown => "the dispatcher stops",
    }
}
