//! Tends the queues: makes scheduled deliveries ready when they are due, and takes back expired leases.
//!
//! Every dispatcher does it, and the store sees to it that they do not get into each other's way.

use std::sync::Arc;
use std::time::Duration;

use super::{Backoff, Shared};
use crate::store::StoreError;

/// How many deliveries one statement moves at most.
const BATCH: u32 = 500;

pub(super) async fn run(shared: Arc<Shared>) {
    let mut backoff = Backoff::new();
    loop {
        match tend(&shared).await {
            Ok(next_due_in) => {
                backoff.reset();
                let wait =
                    next_due_in.map_or(shared.settings.poll_interval, |due| due.min(shared.settings.poll_interval));
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = shared.due_soon.notified() => {}
                }
            }
            Err(error) => {
                shared.store_failed("promote and recover", &error);
                backoff.wait().await;
            }
        }
    }
}

/// Moves all that can be moved now. Returns when the next delivery is due, if one is scheduled.
async fn tend(shared: &Shared) -> Result<Option<Duration>, StoreError> {
    loop {
        let recovered = shared.store.recover(BATCH, shared.settings.max_abandoned).await?;
        if recovered.returned + recovered.dead > 0 {
            tracing::warn!(
                worker_id = %shared.settings.worker,
                returned = recovered.returned,
                dead = recovered.dead,
                "took back expired leases"
            );
            shared.ready.notify_one();
        }
        let promoted = shared.store.promote(BATCH).await?;
        if promoted.ready > 0 {
            shared.ready.notify_one();
        }
        let more = recovered.returned + recovered.dead >= u64::from(BATCH) || promoted.ready >= u64::from(BATCH);
        if !more {
            return Ok(promoted.next_due_in);
        }
    }
}
