//! The tidier: removes what is old and done, and cancels what was left of removed endpoints.
//!
//! It takes small steps and rests between them for many times as long as a step took, so that on a store that is slow or
//! busy it becomes slower itself instead of getting into the deliveries' way. Where that is too slow for what becomes old
//! meanwhile, it rests less: a store that grows for ever is worse. Every dispatcher does it; a step that finds nothing is cheap.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Backoff, Shared};
use crate::ids::EventId;
use crate::store::{Retained, StoreError};

/// How many events one step removes at most.
const STEP: u32 = 200;

/// How much longer than a step the rest after it is.
const REST_FACTOR: u32 = 10;

/// The same, when it does not keep up.
const SHORT_REST_FACTOR: u32 = 2;

/// How long after the start it begins: whoever starts has more urgent things to do.
const FIRST_AFTER: Duration = Duration::from_secs(1);

/// How often it begins anew.
const EVERY: Duration = Duration::from_mins(1);

pub(super) async fn run(shared: Arc<Shared>) {
    tokio::time::sleep(FIRST_AFTER).await;
    loop {
        pass(&shared).await;
        tokio::time::sleep(EVERY).await;
    }
}

/// Steps until nothing is left to do.
async fn pass(shared: &Shared) {
    let (mut sum, mut backoff) = (Retained::default(), Backoff::new());
    let pass_began = Instant::now();
    loop {
        let began = Instant::now();
        match step(shared, sum.next).await {
            Ok(Retained { events, deliveries, cancelled, next }) => {
                backoff.reset();
                shared.count(|totals| totals.removed_events += events);
                sum.events += events;
                sum.deliveries += deliveries;
                sum.cancelled += cancelled;
                sum.next = next;
                if next.is_none() && cancelled < u64::from(STEP) {
                    break;
                }
                tokio::time::sleep(rest(began.elapsed(), pass_began.elapsed())).await;
            }
            Err(error) => {
                shared.store_failed("remove what is old", &error);
                backoff.wait().await;
            }
        }
    }
    if sum.events + sum.cancelled > 0 {
        tracing::info!(
            worker_id = %shared.settings.worker,
            events = sum.events,
            deliveries = sum.deliveries,
            cancelled = sum.cancelled,
            "removed what is older than the retention, and cancelled what was left of removed endpoints"
        );
    }
}

/// How long to rest after a step. A pass that takes longer than the time between two has more to do than it should have.
fn rest(step: Duration, pass: Duration) -> Duration {
    step * if pass < EVERY { REST_FACTOR } else { SHORT_REST_FACTOR }
}

/// Where everything is kept, nothing is old enough to be removed; what was left of removed endpoints is cancelled all the
/// same.
async fn step(shared: &Shared, after: Option<EventId>) -> Result<Retained, StoreError> {
    let older_than = shared.settings.retention.unwrap_or(Duration::MAX);
    shared.store.retain(older_than, after, STEP).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_long_unless_it_falls_behind() {
        let step = Duration::from_millis(20);
        assert_eq!(rest(step, Duration::from_secs(1)), step * 10);
        assert_eq!(rest(step, EVERY), step * 2);
    }
}
