//! One attempt: sign, POST, judge, hand over to be settled.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::mpsc;

use super::crew::Duty;
use super::held::Clearance;
use super::{Shared, exhaustion, request};
use crate::lease::{Lease, LeaseToken};
use crate::outcome::{Outcome, verdict};
use crate::store::{AttemptResult, Claim, Lane, Settle};
use crate::transport::Exhausted;

/// An attempt under way.
pub(super) struct Flight {
    shared: Arc<Shared>,
    claim: Claim,
    /// The database's time of the claim, and the local instant that goes with it.
    claimed_at: Timestamp,
    answered_at: Instant,
}

impl Duty for Flight {
    fn lane(&self) -> &Lane {
        &self.claim.lane
    }

    async fn run(self, results: &mpsc::Sender<Settle>) {
        let token = self.claim.lease.token;
        let _slot = Slot { shared: &self.shared, token };
        let started = Instant::now();
        let hard_deadline = request::hard_deadline(&self.claim, &self.shared.settings, started);
        let clearance = self.shared.held.begin(token, started, hard_deadline);
        if clearance != Clearance::Given {
            self.tell_grounded(clearance);
            // Left to expire it would count as abandoned, and nothing was tried.
            give_back(&self.shared, &[self.claim.lease]).await;
            return;
        }
        let outcome = match self.attempt(started).await {
            Ok(outcome) => outcome,
            Err(exhausted) => {
                self.shared.exhaustion.tell(&self.shared.settings.worker, &exhausted);
                // Whoever kept its slot for a while does not ask again at once, nor does anybody else in its place.
                tokio::time::sleep(exhaustion::PAUSE).await;
                give_back(&self.shared, &[self.claim.lease]).await;
                return;
            }
        };
        #[cfg(feature = "failpoints")]
        crate::failpoint::reached(crate::failpoint::AFTER_SEND);
        let result = self.judge(&outcome, started);
        self.shared.held.landed(token, result.disable_endpoint);
        // The settler is gone only when the dispatcher stops; then the lease is still held, and is given back.
        let _ = results.send(result).await;
    }
}

impl Flight {
    pub(super) fn new(shared: Arc<Shared>, claim: Claim, claimed_at: Timestamp, answered_at: Instant) -> Self {
        Self { shared, claim, claimed_at, answered_at }
    }

    pub(super) fn lease(&self) -> Lease {
        self.claim.lease
    }

    fn tell_grounded(&self, clearance: Clearance) {
        let (delivery_id, worker_id) = (self.claim.lease.delivery_id, &self.shared.settings.worker);
        if clearance == Clearance::LaneClosed {
            tracing::debug!(%delivery_id, %worker_id, "not sent: the receiver has just said that it is gone");
        } else {
            let code = "lease_expired";
            tracing::warn!(%delivery_id, %worker_id, code, "not sent: its lease may have run out before the attempt began");
        }
    }

    async fn attempt(&self, started: Instant) -> Result<Outcome, Exhausted> {
        // The wall clock of this machine may be wrong; the database's, carried on by the monotonic one, is not.
        let now = self.claimed_at + (started - self.answered_at);
        #[cfg(feature = "failpoints")]
        crate::failpoint::reached_with(&self.claim.payload);
        let post = || request::post(&self.claim, &self.shared.settings, now);
        self.shared.transport.try_post(post, now.into()).await
    }

    fn judge(&self, outcome: &Outcome, started: Instant) -> Settle {
        let Claim { lease, endpoint, attempt_count, .. } = &self.claim;
        let took = started.elapsed();
        self.shared.count(|totals| totals.attempted(outcome, took));
        let own_policy = endpoint.as_ref().and_then(|endpoint| endpoint.settings.retry_policy.as_ref());
        let policy = own_policy.unwrap_or(&self.shared.settings.retry_policy);
        let attempt = AttemptResult {
            outcome: outcome.kind(),
            status_code: outcome.status_code(),
            took,
            started_ago: took,
            response_excerpt: outcome.excerpt().map(str::to_owned),
            error_detail: outcome.error_detail(),
        };
        Settle {
            lease: *lease,
            verdict: verdict(outcome, attempt_count + 1, policy, lease.delivery_id),
            attempt,
            disable_endpoint: endpoint.is_some() && outcome.disables_endpoint(),
            disable_after: self.shared.settings.disable_after,
        }
    }
}

/// Gives leases back as if they had never been granted. While the store does not take them, they are kept: left to expire
/// they would count as abandoned, and nothing was tried.
pub(super) async fn give_back(shared: &Shared, leases: &[Lease]) {
    loop {
        match shared.store.release(&shared.settings.worker, leases).await {
            Ok(released) => {
                shared.count(|totals| totals.released += released);
                break;
            }
            Err(error) => {
                shared.count(|totals| totals.errors += 1);
                // Whatever keeps the store from it is told by those who claim and settle.
                tracing::debug!(leases = leases.len(), code = %error.code, "leases are to be given back");
            }
        }
        let now = Instant::now();
        if !leases.iter().any(|lease| shared.held.is_safe(lease.token, now)) {
            break;
        }
        tokio::time::sleep(exhaustion::PAUSE).await;
    }
    shared.held.remove(leases.iter().map(|lease| lease.token));
}

/// The slot that a flight occupies. When the flight panics, the slot is free again and the lease no longer renewed: it
/// expires and counts as abandoned, as after a crash.
struct Slot<'a> {
    shared: &'a Shared,
    token: LeaseToken,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(
                worker_id = %self.shared.settings.worker,
                code = "attempt_panicked",
                "an attempt panicked; its lease will expire and be counted as abandoned"
            );
            self.shared.held.remove([self.token]);
        }
    }
}
