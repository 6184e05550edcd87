//! What dispatchers do with their leases: renew, settle, release; and what anybody does for those who no longer can:
//! recover, promote.

use std::time::Duration;

use postrider::store::{Promoted, Recovered, Settle, Settlement};
use postrider::{DeliveryId, Lease, LeaseToken, OutcomeKind, StoreErrorCode, Verdict, WorkerId};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use uuid::Uuid;

use crate::PostgresStore;
use crate::error::Result;
use crate::values::{Columns as _, count, int, micros, text};

/// How often a settle is tried that meets another one of the same leases.
const MAX_TRIES: u32 = 5;

fn ids(leases: &[Lease]) -> Vec<Uuid> {
    leases.iter().map(|lease| lease.delivery_id.as_uuid()).collect()
}

fn tokens(leases: &[Lease]) -> Vec<Uuid> {
    leases.iter().map(|lease| lease.token.0).collect()
}

fn index_of(index: i64) -> usize {
    usize::try_from(index).expect("the list's own index")
}

/// A duration in whole milliseconds, as the history shows it.
fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// Whether there is nothing to say of it but that the receiver has answered and has taken it.
fn is_plainly_delivered(settle: &Settle) -> bool {
    settle.verdict == Verdict::Delivered
        && settle.attempt.outcome == OutcomeKind::Response
        && settle.attempt.error_detail.is_none()
        && !settle.disable_endpoint
}

impl PostgresStore {
    pub(crate) async fn renew_leases(
        &self,
        worker: &WorkerId,
        leases: &[Lease],
        lease: Duration,
    ) -> Result<Vec<Lease>> {
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        // What comes later than the lease's end is of no use.
        let rows = self.shared.heartbeats.rows("renewing leases", self.renewal(worker, leases, lease), lease).await?;
        let renewed = |row: &PgRow| {
            let delivery_id = DeliveryId::from_uuid(row.value("delivery_id")?);
            Ok(Lease { delivery_id, token: LeaseToken(row.value("token")?) })
        };
        rows.iter().map(renewed).collect()
    }

    fn renewal(&self, worker: &WorkerId, leases: &[Lease], lease: Duration) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(include_str!("../sql/renew.sql"))
            .bind(self.now())
            .bind(worker.as_str().to_owned())
            .bind(ids(leases))
            .bind(tokens(leases))
            .bind(micros(lease))
    }

    /// Has the connection for heartbeats made, and the statement prepared, before the first lease is to be renewed. Over a
    /// slow wire that takes a while. If it fails, the first heartbeat does it.
    pub(crate) fn prepare_heartbeats(&self, worker: &WorkerId) {
        let (heartbeats, renewal) = (self.shared.heartbeats.clone(), self.renewal(worker, &[], Duration::ZERO));
        tokio::spawn(async move { heartbeats.rows("preparing heartbeats", renewal, Duration::MAX).await });
    }

    pub(crate) async fn settle_all(&self, worker: &WorkerId, settles: &[Settle]) -> Result<Vec<Settlement>> {
        if settles.is_empty() {
            return Ok(Vec::new());
        }
        let leases: Vec<Lease> = settles.iter().map(|settle| settle.lease).collect();
        let mut order: Vec<usize> = (0..settles.len()).collect();
        order.sort_by_key(|&index| (leases[index].delivery_id, leases[index].token.0));
        // Of several results for one lease the first counts.
        order.dedup_by_key(|index| leases[*index]);
        let applied = self.apply(worker, settles, &order).await?;
        let mut settlements = vec![Settlement::LeaseLost; settles.len()];
        for row in &applied {
            settlements[index_of(row.value::<i32>("index")?.into())] = Settlement::Applied;
        }
        if applied.len() < settles.len() {
            self.mark_settled_earlier(&leases, &mut settlements).await?;
        }
        Ok(settlements)
    }

    /// Two calls with the same leases, as when one is repeated while the first is still at work, take them in the order of
    /// their plans, and where these differ they may wait for each other. The one that Postgres ends has done nothing, and repeats.
    async fn apply(&self, worker: &WorkerId, settles: &[Settle], order: &[usize]) -> Result<Vec<PgRow>> {
        for _ in 1..MAX_TRIES {
            match self.rows("settling", self.settling(worker, settles, order)).await {
                Err(error) if error.code == StoreErrorCode::Conflict => {}
                done => return done,
            }
        }
        self.rows("settling", self.settling(worker, settles, order)).await
    }

    /// The results that `order` names, in that order.
    fn settling(
        &self,
        worker: &WorkerId,
        settles: &[Settle],
        order: &[usize],
    ) -> Query<'static, Postgres, PgArguments> {
        let number = |index: usize| i32::try_from(index).expect("a list is short");
        let ordered = || order.iter().map(|&index| &settles[index]);
        let attempts = || ordered().map(|settle| &settle.attempt);
        let others: Vec<usize> =
            order.iter().copied().filter(|&index| !is_plainly_delivered(&settles[index])).collect();
        let others = || others.iter().map(|&index| (number(index), &settles[index]));
        let leases: Vec<Lease> = ordered().map(|settle| settle.lease).collect();
        let verdict = |settle: &Settle| match settle.verdict {
            Verdict::Delivered => ("delivered", None),
            Verdict::Retry { after } => ("failed", Some(micros(after))),
            Verdict::Dead => ("dead", None),
        };
        sqlx::query(self.shared.plans.current(include_str!("../sql/settle.sql")))
            .bind(self.now())
            .bind(worker.as_str().to_owned())
            .bind(ids(&leases))
            .bind(tokens(&leases))
            .bind(order.iter().copied().map(number).collect::<Vec<_>>())
            .bind(attempts().map(|attempt| attempt.status_code.map(i32::from)).collect::<Vec<_>>())
            .bind(attempts().map(|attempt| millis(attempt.took)).collect::<Vec<_>>())
            .bind(attempts().map(|attempt| micros(attempt.started_ago)).collect::<Vec<_>>())
            .bind(attempts().map(|attempt| attempt.response_excerpt.as_deref().map(text)).collect::<Vec<_>>())
            .bind(others().map(|(number, _)| number).collect::<Vec<_>>())
            .bind(others().map(|(_, settle)| verdict(settle).0).collect::<Vec<_>>())
            .bind(others().map(|(_, settle)| verdict(settle).1).collect::<Vec<_>>())
            .bind(others().map(|(_, settle)| settle.attempt.outcome.as_str()).collect::<Vec<_>>())
            .bind(others().map(|(_, settle)| settle.attempt.error_detail.as_deref().map(text)).collect::<Vec<_>>())
            .bind(others().map(|(_, settle)| settle.disable_endpoint).collect::<Vec<_>>())
            .bind(others().map(|(_, settle)| settle.disable_after.map(micros)).collect::<Vec<_>>())
    }

    async fn mark_settled_earlier(&self, leases: &[Lease], settlements: &mut [Settlement]) -> Result<()> {
        let unapplied: Vec<usize> =
            (0..leases.len()).filter(|&index| settlements[index] == Settlement::LeaseLost).collect();
        let asked: Vec<Lease> = unapplied.iter().map(|&index| leases[index]).collect();
        let query = sqlx::query(self.shared.plans.current(include_str!("../sql/settle_earlier.sql")))
            .bind(ids(&asked))
            .bind(tokens(&asked));
        let rows = self.rows("settling", query).await?;
        for row in &rows {
            settlements[unapplied[index_of(row.value("index")?)]] = Settlement::AppliedEarlier;
        }
        Ok(())
    }

    pub(crate) async fn release_leases(&self, worker: &WorkerId, leases: &[Lease]) -> Result<u64> {
        if leases.is_empty() {
            return Ok(0);
        }
        let query = sqlx::query(include_str!("../sql/release.sql"))
            .bind(worker.as_str())
            .bind(ids(leases))
            .bind(tokens(leases));
        let row = self.row("releasing leases", query).await?;
        count(row.value("released")?)
    }

    pub(crate) async fn recover_expired(&self, limit: u32, max_abandoned: u32) -> Result<Recovered> {
        let query = sqlx::query(self.shared.plans.current(include_str!("../sql/recover.sql")))
            .bind(self.now())
            .bind(int(limit))
            .bind(int(max_abandoned));
        let row = self.row("recovering expired leases", query).await?;
        Ok(Recovered { returned: count(row.value("returned")?)?, dead: count(row.value("dead")?)? })
    }

    pub(crate) async fn promote_due(&self, limit: u32) -> Result<Promoted> {
        let query = sqlx::query(include_str!("../sql/promote.sql")).bind(self.now()).bind(int(limit));
        let row = self.row("promoting scheduled deliveries", query).await?;
        let next: Option<i64> = row.value("next_due_in")?;
        let next_due_in = next.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default()));
        Ok(Promoted { ready: count(row.value("ready")?)?, next_due_in })
    }
}
