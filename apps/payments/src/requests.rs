//! Payment requests in Postgres, beside Postrider's own tables.
//!
//! The one statement that matters is the transition: the new status and the event that tells of it are written in one
//! transaction, so that there is never one without the other, whoever crashes when.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use postrider::{Admission, DestinationPolicy, EnqueueError, EventId, WorkerId};
use postrider_postgres::PostgresStore;
use serde::Serialize;
use sqlx::postgres::PgRow;
use sqlx::{Executor as _, PgConnection, PgPool, Row as _};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::failure::Failure;
use crate::status::Status;
use crate::status_change::StatusChange;

/// In the order in which they are applied.
const MIGRATIONS: [(&str, &str); 2] = [
    ("0001_requests", include_str!("../migrations/0001_requests.sql")),
    ("0002_webhooks", include_str!("../migrations/0002_webhooks.sql")),
];

/// A payment request.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct PaymentRequest {
    /// Its id.
    pub(crate) id: Uuid,
    /// Where the payment is expected.
    pub(crate) address: String,
    /// How much, in wei. A text, because it exceeds what JSON numbers hold exactly.
    pub(crate) amount_wei: String,
    /// Where it stands.
    pub(crate) status: Status,
    /// Who is told when that changes; missing only in requests that are older than webhooks.
    pub(crate) webhook_url: Option<String>,
    /// When it was made.
    pub(crate) created_at: Timestamp,
    /// When its status last changed.
    pub(crate) updated_at: Timestamp,
    /// Until when it can be paid.
    pub(crate) expires_at: Timestamp,
}

/// An open request that this worker may change until its lease runs out.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) id: Uuid,
    pub(crate) token: Uuid,
    pub(crate) address: String,
    pub(crate) amount_wei: u128,
    pub(crate) status: Status,
    /// Its time was over when it was claimed, by the database's clock.
    pub(crate) is_past: bool,
}

/// What came of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    Done,
    /// The lease is over or the status is another: too late, or somebody else was quicker. Nothing was written.
    Overtaken,
}

/// A request that nobody can be told about.
#[derive(Debug, Serialize)]
pub(crate) struct LegacyRequest {
    pub(crate) id: Uuid,
    pub(crate) status: Status,
    pub(crate) address: String,
    pub(crate) held_changes: i64,
    pub(crate) reason: String,
}

/// Payment requests, and the outbox that tells of their changes.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    store: PostgresStore,
}

impl Requests {
    /// Connects, and applies missing migrations: Postrider's and then this application's. Any number of processes may do so
    /// at once.
    pub(crate) async fn open(database_url: &str) -> Result<Self, Failure> {
        // A destination was checked against the allowlist when its request was made, and the dispatcher checks again at
        // every dial. In between it is a snapshot: a list that has become stricter must not stop a transition.
        let any = DestinationPolicy::default().allow_networks(["0.0.0.0/0", "::/0"])?;
        let admission = Admission { destinations: any, ..Admission::default() };
        let store = PostgresStore::connect(database_url).await?;
        // Before the store is told what to admit: whoever enqueues by Postrider's SQL functions has nobody who checked.
        store.migrate().await?;
        migrate(store.pool()).await?;
        Ok(Self { store: store.with_admission(admission) })
    }

    pub(crate) fn store(&self) -> &PostgresStore {
        &self.store
    }

    /// A new request, or none if its address is taken.
    pub(crate) async fn create(
        &self,
        address: &str,
        amount_wei: u128,
        webhook_url: &str,
        expires_in: Duration,
    ) -> Result<Option<PaymentRequest>, Failure> {
        let row = sqlx::query(include_str!("../sql/create.sql"))
            .bind(address)
            .bind(amount_wei.to_string())
            .bind(webhook_url)
            .bind(micros(expires_in))
            .fetch_optional(self.store.pool())
            .await?;
        row.map(|row| request(&row)).transpose()
    }

    pub(crate) async fn show(&self, id: Uuid) -> Result<Option<PaymentRequest>, Failure> {
        let row = sqlx::query(include_str!("../sql/show.sql")).bind(id).fetch_optional(self.store.pool()).await?;
        row.map(|row| request(&row)).transpose()
    }

    pub(crate) async fn claim(&self, worker: &WorkerId, lease: Duration, limit: u32) -> Result<Vec<Claim>, Failure> {
        let rows = sqlx::query(include_str!("../sql/claim.sql"))
            .bind(worker.as_str())
            .bind(micros(lease))
            .bind(i64::from(limit))
            .fetch_all(self.store.pool())
            .await?;
        let claim = |row: &PgRow| {
            Ok(Claim {
                id: row.try_get("id")?,
                token: row.try_get("lease_token")?,
                address: row.try_get("address")?,
                amount_wei: row.try_get::<&str, _>("amount_wei")?.parse().map_err(|_| damaged("amount_wei"))?,
                status: status(row, "status")?,
                is_past: row.try_get("is_past")?,
            })
        };
        rows.iter().map(claim).collect()
    }

    /// Gives leases back unchanged; the requests are looked at again after `pause`.
    pub(crate) async fn release(&self, worker: &WorkerId, claims: &[Claim], pause: Duration) -> Result<(), Failure> {
        sqlx::query(include_str!("../sql/release.sql"))
            .bind(worker.as_str())
            .bind(claims.iter().map(|claim| claim.id).collect::<Vec<_>>())
            .bind(claims.iter().map(|claim| claim.token).collect::<Vec<_>>())
            .bind(micros(pause))
            .execute(self.store.pool())
            .await?;
        Ok(())
    }

    /// Changes a request's status, if it is still what was claimed, and enqueues the event that tells of it: both or
    /// neither.
    pub(crate) async fn transition(
        &self,
        worker: &WorkerId,
        claim: &Claim,
        new_status: Status,
        pause: Duration,
        tells: bool,
    ) -> Result<Transition, Failure> {
        let mut transaction = self.store.pool().begin().await?;
        let row = sqlx::query(include_str!("../sql/transition.sql"))
            .bind(claim.id)
            .bind(worker.as_str())
            .bind(claim.token)
            .bind(claim.status.as_str())
            .bind(new_status.as_str())
            .bind(micros(pause))
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else {
            return Ok(Transition::Overtaken);
        };
        if tells {
            let change = StatusChange {
                event_id: EventId::generate(),
                occurred_at: instant(&row, "updated_at")?,
                payment_request_id: claim.id,
                previous_status: claim.status,
                new_status,
            };
            self.tell(&mut transaction, &change, row.try_get("webhook_url")?).await?;
        }
        transaction.commit().await?;
        Ok(Transition::Done)
    }

    /// Enqueues the event of a change, to a snapshot of the destination; or holds it back if there is none that can be used.
    async fn tell(
        &self,
        transaction: &mut PgConnection,
        change: &StatusChange,
        webhook_url: Option<&str>,
    ) -> Result<(), Failure> {
        let reason = match webhook_url {
            None => "no webhook_url".to_owned(),
            Some(url) => match self.store.enqueue_in(transaction, change.to_event().to(url)).await {
                Ok(_) => return Ok(()),
                Err(EnqueueError::Refused(refusal)) => refusal.to_string(),
                Err(error) => return Err(error.into()),
            },
        };
        sqlx::query(include_str!("../sql/hold.sql"))
            .bind(change.event_id.as_uuid())
            .bind(change.payment_request_id)
            .bind(change.previous_status.as_str())
            .bind(change.new_status.as_str())
            .bind(change.occurred_at.to_sqlx())
            .bind(reason)
            .execute(transaction)
            .await?;
        Ok(())
    }

    /// Requests that nobody can be told about, oldest first.
    pub(crate) async fn legacy(&self) -> Result<Vec<LegacyRequest>, Failure> {
        let rows = sqlx::query(include_str!("../sql/legacy.sql")).fetch_all(self.store.pool()).await?;
        let legacy = |row: &PgRow| {
            Ok(LegacyRequest {
                id: row.try_get("id")?,
                status: status(row, "status")?,
                address: row.try_get("address")?,
                held_changes: row.try_get("held_changes")?,
                reason: row.try_get::<Option<String>, _>("reason")?.unwrap_or_else(|| "no webhook_url".to_owned()),
            })
        };
        rows.iter().map(legacy).collect()
    }

    /// Gives a legacy request a destination, and enqueues what was held back. Returns how many changes that were, or none if
    /// there is no legacy request of this id.
    pub(crate) async fn assign(&self, id: Uuid, webhook_url: &str) -> Result<Option<usize>, Failure> {
        let mut transaction = self.store.pool().begin().await?;
        let assigned = sqlx::query(include_str!("../sql/assign.sql")).bind(id).bind(webhook_url);
        if assigned.fetch_optional(&mut *transaction).await?.is_none() {
            return Ok(None);
        }
        let held = sqlx::query(include_str!("../sql/take_held.sql")).bind(id).fetch_all(&mut *transaction).await?;
        let mut events = Vec::with_capacity(held.len());
        for row in &held {
            let change = StatusChange {
                event_id: EventId::from_uuid(row.try_get("event_id")?),
                occurred_at: instant(row, "occurred_at")?,
                payment_request_id: id,
                previous_status: status(row, "previous_status")?,
                new_status: status(row, "new_status")?,
            };
            events.push(change.to_event().to(webhook_url));
        }
        self.store.enqueue_all_in(&mut transaction, events).await?;
        transaction.commit().await?;
        Ok(Some(held.len()))
    }
}

async fn migrate(pool: &PgPool) -> Result<(), Failure> {
    let mut transaction = pool.begin().await?;
    // One process at a time; the lock ends with the transaction.
    sqlx::query("select pg_advisory_xact_lock(hashtext('payments'))").execute(&mut *transaction).await?;
    sqlx::raw_sql(
        "create schema if not exists payments; \
         create table if not exists payments.migrations (name text primary key, applied_at timestamptz not null default now())",
    )
    .execute(&mut *transaction)
    .await?;
    for (name, script) in MIGRATIONS {
        let record = sqlx::query("insert into payments.migrations (name) values ($1) on conflict do nothing");
        if record.bind(name).execute(&mut *transaction).await?.rows_affected() == 1 {
            transaction.execute(sqlx::raw_sql(script)).await?;
        }
    }
    transaction.commit().await?;
    Ok(())
}

fn request(row: &PgRow) -> Result<PaymentRequest, Failure> {
    Ok(PaymentRequest {
        id: row.try_get("id")?,
        address: row.try_get("address")?,
        amount_wei: row.try_get("amount_wei")?,
        status: status(row, "status")?,
        webhook_url: row.try_get("webhook_url")?,
        created_at: instant(row, "created_at")?,
        updated_at: instant(row, "updated_at")?,
        expires_at: instant(row, "expires_at")?,
    })
}

fn status(row: &PgRow, column: &'static str) -> Result<Status, Failure> {
    Status::parse(row.try_get(column)?).ok_or_else(|| damaged(column))
}

fn instant(row: &PgRow, column: &'static str) -> Result<Timestamp, Failure> {
    Ok(row.try_get::<jiff_sqlx::Timestamp, _>(column)?.to_jiff())
}

fn damaged(column: &'static str) -> Failure {
    Failure::Database(sqlx::Error::Decode(format!("{column} has a value that this program does not know").into()))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
