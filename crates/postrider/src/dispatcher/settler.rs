//! Hands the results of attempts to the store, in batches.
//!
//! A settle is safe to repeat: the store recognises an attempt that it has already recorded by its token. So when an
//! answer is lost, the batch is simply sent again. While the store is away the results wait here and their leases are
//! held, of which there are only so many: that stops new claims, and nothing piles up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use super::held::RenewalEnd;
use super::{Backoff, Shared, heartbeat};
use crate::outcome::Verdict;
use crate::store::{Settle, Settlement, StoreError};

/// How many results one statement settles at most.
const MAX_BATCH: usize = 256;

/// How long a result waits for others to share its statement.
const LINGER: Duration = Duration::from_millis(5);

/// How many batches are under way at most. While one waits for the disk, the next is at work, and a store that
/// gathers what comes at the same time commits both at once.
const MAX_UNDER_WAY: usize = 2;

pub(super) async fn run(shared: Arc<Shared>, mut inbox: mpsc::Receiver<Settle>) {
    let mut under_way = JoinSet::new();
    let mut batch = Vec::with_capacity(MAX_BATCH);
    loop {
        tokio::select! {
            received = inbox.recv_many(&mut batch, MAX_BATCH) => {
                if received == 0 {
                    break;
                }
            }
            Some(result) = under_way.join_next() => {
                ended(result);
                continue;
            }
        }
        fill(&mut batch, &mut inbox, &shared).await;
        while under_way.len() >= MAX_UNDER_WAY
            && let Some(result) = under_way.join_next().await
        {
            ended(result);
        }
        // What has come while it waited for its turn.
        while batch.len() < MAX_BATCH
            && let Ok(settle) = inbox.try_recv()
        {
            batch.push(settle);
        }
        shared.held.mark_settling(batch.iter().map(|settle| settle.lease.token));
        let full = std::mem::replace(&mut batch, Vec::with_capacity(MAX_BATCH));
        under_way.spawn(settle_and_free(Arc::clone(&shared), full));
    }
    while let Some(result) = under_way.join_next().await {
        ended(result);
    }
}

/// A panic in a batch is one of the settler, and ends it at once.
fn ended(result: Result<(), JoinError>) {
    if let Err(error) = result
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

async fn settle_and_free(shared: Arc<Shared>, batch: Vec<Settle>) {
    settle(&shared, &batch).await;
    shared.held.remove(batch.iter().map(|settle| settle.lease.token));
}

/// Waits a little for more results, unless no attempt is under way that could have one.
async fn fill(batch: &mut Vec<Settle>, inbox: &mut mpsc::Receiver<Settle>, shared: &Shared) {
    let until = Instant::now() + LINGER;
    while batch.len() < MAX_BATCH && (shared.held.flying() > 0 || !inbox.is_empty()) {
        let room = MAX_BATCH - batch.len();
        match timeout_at(until, inbox.recv_many(batch, room)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

async fn settle_once(shared: &Shared, batch: &[Settle]) -> Result<Vec<Settlement>, StoreError> {
    let settling = shared.store.settle(&shared.settings.worker, batch);
    #[cfg(feature = "failpoints")]
    {
        use crate::failpoint::{self, AFTER_SETTLE, BEFORE_SETTLE, INSIDE_SETTLE};
        failpoint::reached(BEFORE_SETTLE);
        let settled = failpoint::amid(INSIDE_SETTLE, settling).await;
        failpoint::reached(AFTER_SETTLE);
        settled
    }
    #[cfg(not(feature = "failpoints"))]
    settling.await
}

async fn settle(shared: &Shared, batch: &[Settle]) {
    let mut backoff = Backoff::new();
    loop {
        match settle_once(shared, batch).await {
            Ok(settlements) => return record(shared, batch, &settlements),
            Err(error) if error.code.is_transient() => {
                shared.store_failed("settle", &error);
                backoff.wait().await;
            }
            Err(error) => return settle_one_by_one(shared, batch, error).await,
        }
    }
}

/// One result that the store cannot take must not hold up the others of its batch.
async fn settle_one_by_one(shared: &Shared, batch: &[Settle], error: StoreError) {
    if let [only] = batch {
        shared.store_failed("settle", &error);
        tracing::error!(
            delivery_id = %only.lease.delivery_id,
            worker_id = %shared.settings.worker,
            code = %error.code,
            "this result cannot be settled; its lease will expire and be counted as abandoned"
        );
        return;
    }
    for only in batch {
        Box::pin(settle(shared, std::slice::from_ref(only))).await;
    }
}

fn record(shared: &Shared, batch: &[Settle], settlements: &[Settlement]) {
    shared.count(|totals| {
        for (settle, settlement) in batch.iter().zip(settlements) {
            match settlement {
                Settlement::Applied | Settlement::AppliedEarlier => totals.settled(settle.verdict),
                Settlement::LeaseLost => totals.lost += 1,
            }
        }
    });
    let poll_interval = shared.settings.poll_interval;
    let mut due_soon = false;
    for (settle, settlement) in batch.iter().zip(settlements) {
        if *settlement == Settlement::LeaseLost {
            tell_lost(shared, settle);
            continue;
        }
        heartbeat::tell_end(shared, settle.lease, RenewalEnd::Completed);
        if settle.disable_endpoint {
            tracing::warn!(delivery_id = %settle.lease.delivery_id, "the receiver answered 410 Gone: its endpoint is disabled");
        }
        due_soon |= matches!(settle.verdict, Verdict::Retry { after } if after < poll_interval);
    }
    if due_soon {
        shared.due_soon.notify_one();
    }
}

fn tell_lost(shared: &Shared, settle: &Settle) {
    tracing::warn!(
        delivery_id = %settle.lease.delivery_id,
        worker_id = %shared.settings.worker,
        code = "lease_lost",
        "the attempt's lease was gone when it was to be settled; nothing was changed"
    );
}
