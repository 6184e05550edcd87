//! Task runs from a replica's point of view: claimed under a lease, kept alive, ended.

use std::time::Duration;

use postrider::WorkerId;
use sqlx::types::Json;
use uuid::Uuid;

use crate::error::Result;
use crate::notice::Change;
use crate::plan::Script;
use crate::rollouts::{self, Rollouts};

/// A run that a replica holds.
#[derive(Debug, Clone)]
pub struct Run {
    /// Its id.
    pub id: i64,
    /// Of which plan.
    pub plan_id: i64,
    /// Of which of its tasks.
    pub task: String,
    /// The number of this run of the task, counted from 0.
    pub attempt: u32,
    /// What it does.
    pub script: Script,
    token: Uuid,
}

/// What became of an attempt to end a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The run has ended so.
    Applied,
    /// The run was no longer this replica's. Nothing was changed, nothing is told.
    LeaseLost,
}

impl Rollouts {
    /// Takes the oldest run that waits, or whose replica let its lease lapse.
    pub async fn claim(&self, replica: &WorkerId, lease: Duration) -> Result<Option<Run>> {
        let row: Option<(i64, i64, String, i32, Uuid, Json<Script>)> = sqlx::query_as(include_str!("../sql/claim.sql"))
            .bind(replica.as_str())
            .bind(milliseconds(lease))
            .fetch_optional(self.pool())
            .await?;
        Ok(row.map(|(id, plan_id, task, attempt, token, Json(script))| Run {
            id,
            plan_id,
            task,
            attempt: attempt.cast_unsigned(),
            script,
            token,
        }))
    }

    /// Keeps a run for another lease. False when it is no longer this replica's.
    pub async fn renew(&self, run: &Run, lease: Duration) -> Result<bool> {
        let renewed = sqlx::query(include_str!("../sql/renew.sql"))
            .bind(run.id)
            .bind(run.token)
            .bind(milliseconds(lease))
            .execute(self.pool())
            .await?;
        Ok(renewed.rows_affected() == 1)
    }

    /// Ends a run, and tells what there is to tell, in one transaction.
    pub async fn finish(&self, run: &Run, succeeded: bool) -> Result<Ending> {
        let (status, change) = if succeeded { ("done", Change::TasksSettled) } else { ("failed", Change::RunFailed) };
        let mut transaction = self.pool().begin().await?;
        let plan = rollouts::hold(&mut transaction, run.plan_id).await?;
        let ended = sqlx::query(include_str!("../sql/finish.sql"))
            .bind(run.id)
            .bind(run.token)
            .bind(status)
            .execute(&mut *transaction)
            .await?;
        if ended.rows_affected() == 0 {
            return Ok(Ending::LeaseLost);
        }
        let tasks = rollouts::tasks(&mut transaction, run.plan_id).await?;
        self.tell(&mut transaction, &plan, change, &tasks).await?;
        transaction.commit().await?;
        Ok(Ending::Applied)
    }

    /// Gives back every run that a replica holds.
    pub async fn release(&self, replica: &WorkerId) -> Result<()> {
        sqlx::query(include_str!("../sql/release.sql")).bind(replica.as_str()).execute(self.pool()).await?;
        Ok(())
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
