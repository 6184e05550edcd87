//! How everything stands. Counting a large history takes a while, so it is done at most a twentieth of the time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::{Caller, Service};
use crate::api::Problem;
use crate::api::overview::{Overview, Rates};

/// An answer is at least this long the same.
const LEAST_FRESH: Duration = Duration::from_millis(50);

/// It stays the same for this many times as long as it took to count.
const FRESH_FACTOR: u32 = 20;

/// Whoever asks while an older count is known waits at most this long for a newer one.
const PATIENCE: Duration = Duration::from_secs(1);

/// For this many tenants counts are remembered.
const MOST: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct OverviewCache {
    counts: Mutex<HashMap<Option<String>, Count>>,
    /// Held while counting: there is never more than one count under way.
    counting: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Clone)]
struct Count {
    overview: Overview,
    fresh_until: Instant,
}

impl OverviewCache {
    fn get(&self, tenant: Option<&str>) -> Option<Count> {
        let counts = self.counts.lock().expect("no code panics while it holds this lock");
        counts.get(&tenant.map(str::to_owned)).cloned()
    }

    fn put(&self, tenant: Option<String>, count: Count) {
        let mut counts = self.counts.lock().expect("no code panics while it holds this lock");
        if counts.len() >= MOST && !counts.contains_key(&tenant) {
            counts.clear();
        }
        counts.insert(tenant, count);
    }
}

impl Service {
    /// How many deliveries are where.
    pub async fn overview(&self, caller: &Caller) -> Result<Overview, Problem> {
        self.overview_of(caller.tenant.filter()).await
    }

    pub(crate) async fn overview_of(&self, tenant: Option<&str>) -> Result<Overview, Problem> {
        let known = self.0.overviews.get(tenant);
        if let Some(count) = &known
            && Instant::now() < count.fresh_until
        {
            return Ok(count.overview.clone());
        }
        // In a task of its own, so that the count is finished and remembered also when nobody waits for it any more.
        let service = self.clone();
        let tenant = tenant.map(str::to_owned);
        let counting = tokio::spawn(async move { service.count(tenant).await });
        let internal = || Problem::new(500, "internal", "counting has failed");
        let Some(known) = known else {
            return counting.await.map_err(|_| internal())?;
        };
        match tokio::time::timeout(PATIENCE, counting).await {
            Ok(counted) => counted.map_err(|_| internal())?,
            Err(_) => Ok(known.overview),
        }
    }

    async fn count(&self, tenant: Option<String>) -> Result<Overview, Problem> {
        let _counting = self.0.overviews.counting.lock().await;
        // Whoever was before may have counted the same.
        if let Some(count) = self.0.overviews.get(tenant.as_deref())
            && Instant::now() < count.fresh_until
        {
            return Ok(count.overview);
        }
        let (began, counted_at) = (Instant::now(), Timestamp::now());
        let counted = self.0.store.overview(tenant.as_deref()).await?;
        let overview = Overview {
            pending: counted.pending,
            failed: counted.failed,
            delivered: counted.delivered,
            dead: counted.dead,
            cancelled: counted.cancelled,
            due: counted.due,
            in_flight: counted.in_flight,
            scheduled: counted.scheduled,
            oldest_due_age_ms: counted.oldest_due_age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            rates: Rates {
                delivered_per_minute: counted.last_minute.delivered,
                failed_per_minute: counted.last_minute.failed,
                dead_per_minute: counted.last_minute.dead,
            },
            counted_at,
        };
        let fresh_until = Instant::now() + LEAST_FRESH.max(began.elapsed() * FRESH_FACTOR);
        self.0.overviews.put(tenant, Count { overview: overview.clone(), fresh_until });
        Ok(overview)
    }
}
