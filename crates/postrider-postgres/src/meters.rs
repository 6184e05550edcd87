//! Claiming for endpoints with limits of their own, which hold for all dispatchers together.
//!
//! Each such endpoint has a meter: a row with its bucket of tokens. Whoever claims for it locks the row first, and passes the
//! endpoint by if another claim has it, so that nobody waits. Then, in a statement of its own whose snapshot is younger than
//! the lock, it counts what is in flight, fills the bucket up, takes what both allow, and takes the tokens. That every
//! earlier holder has committed before the lock was had is what makes the count right.

use std::collections::HashMap;
use std::time::Duration;

use postrider::store::ClaimRequest;

use crate::PostgresStore;
use crate::claim::Taken;
use crate::error::Result;
use crate::values::{Columns as _, int, micros};

/// A lane of an endpoint with limits in which something waits.
pub(crate) struct MeteredLane {
    pub(crate) lane: String,
    /// Where its first waiting row is.
    pub(crate) position: i64,
}

/// How it went.
#[derive(Default)]
pub(crate) struct Metered {
    /// When there is a token for something that was left behind for lack of one.
    pub(crate) next_token_in: Option<Duration>,
    /// Whether another claim had one of the endpoints in its hands.
    pub(crate) passed_by: bool,
}

impl PostgresStore {
    pub(crate) async fn take_metered(
        &self,
        request: &ClaimRequest,
        lanes: &[MeteredLane],
        limit: u32,
        taken: &mut Taken,
    ) -> Result<Metered> {
        let mut lent = self.lend("claiming for endpoints with limits").await?;
        // Whatever the database's default is: each statement must have a snapshot of its own.
        lent.run(sqlx::query("begin isolation level read committed")).await?;
        let lock = sqlx::query(include_str!("../sql/claim_meters.sql"))
            .bind(self.now())
            .bind(lanes.iter().map(|metered| metered.lane.as_str()).collect::<Vec<_>>());
        let rows = lent.run(lock).await?;
        let held = rows.iter().map(|row| row.value("lane")).collect::<Result<Vec<String>>>()?;
        let passed_by = held.len() < lanes.len();
        let mut claimed = Vec::new();
        if !held.is_empty() {
            let busy: HashMap<&str, u32> =
                request.in_flight.iter().map(|(lane, count)| (lane.0.as_str(), *count)).collect();
            let held = || lanes.iter().filter(|metered| held.contains(&metered.lane));
            let claim = sqlx::query(self.shared.plans.current(include_str!("../sql/claim_metered.sql")))
                .bind(self.now())
                .bind(request.worker.as_str())
                .bind(micros(request.lease))
                .bind(int(limit))
                .bind(int(request.lane_limit))
                .bind(held().map(|metered| metered.lane.as_str()).collect::<Vec<_>>())
                .bind(held().map(|it| int(busy.get(it.lane.as_str()).copied().unwrap_or(0))).collect::<Vec<_>>())
                .bind(held().map(|metered| metered.position).collect::<Vec<_>>());
            claimed = lent.run(claim).await?;
        }
        lent.run(sqlx::query("commit")).await?;
        lent.give_back();
        taken.extend(&claimed)?;
        let wait: Option<i64> = claimed.first().map_or(Ok(None), |row| row.value("next_token_in"))?;
        let next_token_in = wait.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default()));
        Ok(Metered { next_token_in, passed_by })
    }
}
