//! What operators do: retry, cancel, look at the audit trail, and remove what is old.
//!
//! A delivery moves while an operator looks at it. Each action therefore tries first, in one statement that takes the
//! delivery out of its place, and asks only afterwards why that was not possible. If the answer is that it should have
//! been possible, the delivery was between two places, and the action is tried again.

use std::time::Duration;

use postrider::store::{Action, AuditEntry, Forbidden, Operator, Retained};
use postrider::{
    Cursor, DeliveryFilter, DeliveryId, DeliveryStatus, EndpointId, EventId, KeyId, Page, PageRequest, StoreError,
    StoreErrorCode,
};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::PostgresStore;
use crate::browse::{READ_ANYTHING, filtered};
use crate::error::{Result, store_error};
use crate::values::{Columns as _, count, int, micros, text};

/// How often an action follows a delivery that moves under its hands.
const MAX_TRIES: u32 = 20;

struct Place {
    status: DeliveryStatus,
    leased: bool,
    scheduled: bool,
}

impl PostgresStore {
    pub(crate) async fn retry_one(&self, id: DeliveryId, operator: &Operator) -> Result<Action> {
        for _ in 0..MAX_TRIES {
            let mut lent = self.lend("retrying a delivery").await?;
            let retried = self.make_due(&mut lent, &[id.as_uuid()], operator).await?;
            lent.give_back();
            if retried > 0 {
                return Ok(Action::Done);
            }
            let Some(place) = self.place(id).await? else { return Ok(Action::NotFound) };
            let forbidden = match place.status {
                DeliveryStatus::Delivered => Forbidden::AlreadyDelivered,
                DeliveryStatus::Pending | DeliveryStatus::Failed if place.leased => Forbidden::InFlight,
                DeliveryStatus::Pending => Forbidden::AlreadyDue,
                DeliveryStatus::Failed if !place.scheduled => Forbidden::AlreadyDue,
                DeliveryStatus::Failed | DeliveryStatus::Dead | DeliveryStatus::Cancelled => continue,
            };
            return Ok(Action::Forbidden(forbidden));
        }
        Err(still_moving(id))
    }

    pub(crate) async fn retry_all_matching(
        &self,
        filter: &DeliveryFilter,
        limit: u32,
        operator: &Operator,
    ) -> Result<u64> {
        let failed = || store_error("retrying deliveries");
        for _ in 0..MAX_TRIES {
            let mut transaction = self.lend("retrying deliveries").await?.begin(READ_ANYTHING).await?;
            let rows = filtered(include_str!("../sql/retry_matching.sql"), filter)
                .bind(int(limit))
                .fetch_all(&mut *transaction)
                .await
                .map_err(failed())?;
            let ids = rows.iter().map(|row| row.value("id")).collect::<Result<Vec<Uuid>>>()?;
            if ids.is_empty() {
                transaction.roll_back().await?;
                return Ok(0);
            }
            let retried = self.make_due(&mut transaction, &ids, operator).await?;
            transaction.commit().await?;
            // None at all means that somebody else retried exactly these meanwhile; there may be others.
            if retried > 0 {
                return Ok(retried);
            }
        }
        Err(StoreError::new(StoreErrorCode::Conflict, "others keep retrying the same deliveries; try again"))
    }

    async fn make_due(&self, connection: &mut PgConnection, ids: &[Uuid], operator: &Operator) -> Result<u64> {
        let row = sqlx::query(include_str!("../sql/retry.sql"))
            .bind(self.now())
            .bind(ids)
            .bind(text(&operator.0))
            .fetch_one(connection)
            .await
            .map_err(store_error("retrying deliveries"))?;
        count(row.value("retried")?)
    }

    pub(crate) async fn cancel_one(&self, id: DeliveryId, reason: &str, operator: &Operator) -> Result<Action> {
        for _ in 0..MAX_TRIES {
            let query = sqlx::query(include_str!("../sql/cancel.sql"))
                .bind(self.now())
                .bind(id.as_uuid())
                .bind(text(reason))
                .bind(text(&operator.0));
            let row = self.row("cancelling a delivery", query).await?;
            if row.value::<i64>("cancelled")? > 0 {
                return Ok(Action::Done);
            }
            match self.place(id).await? {
                None => return Ok(Action::NotFound),
                Some(place) if place.status.is_settled() => {
                    return Ok(Action::Forbidden(Forbidden::AlreadySettled(place.status)));
                }
                Some(_) => {}
            }
        }
        Err(still_moving(id))
    }

    async fn place(&self, id: DeliveryId) -> Result<Option<Place>> {
        let query = sqlx::query(include_str!("../sql/operate_look.sql")).bind(id.as_uuid());
        let row = self.maybe_row("reading a delivery", query).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Place {
            status: row.status("status")?,
            leased: row.value("leased")?,
            scheduled: row.value("scheduled")?,
        }))
    }

    pub(crate) async fn audit_page(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<AuditEntry>> {
        let failed = || store_error("reading the audit trail");
        let mut transaction = self.reading().await?;
        let rows = sqlx::query(include_str!("../sql/audit.sql"))
            .bind(page.cursor().map(|cursor| cursor.0))
            .bind(int(page.limit() + 1))
            .bind(tenant.map(text))
            .fetch_all(&mut *transaction)
            .await
            .map_err(failed())?;
        transaction.commit().await?;
        let mut items = Vec::with_capacity(rows.len());
        for row in &rows {
            let action: String = row.value("action")?;
            let subject = subject_of(&action, row.value("subject")?);
            items.push(AuditEntry {
                id: row.value("id")?,
                at: row.instant("at")?,
                tenant: row.value("tenant")?,
                operator: row.value("operator")?,
                action,
                subject,
                reason: row.value("reason")?,
            });
        }
        Ok(page_of(items, page, |entry| entry.id))
    }

    pub(crate) async fn retain_step(
        &self,
        older_than: Duration,
        after: Option<EventId>,
        limit: u32,
    ) -> Result<Retained> {
        let query = sqlx::query(self.shared.plans.current(include_str!("../sql/retain.sql")))
            .bind(self.now())
            .bind(micros(older_than))
            .bind(after.map(|id| id.as_uuid()))
            .bind(int(limit));
        let row = self.row("removing old events", query).await?;
        let looked_at = count(row.value("looked_at")?)?;
        let last: Option<Uuid> = row.value("last")?;
        let next = last.filter(|_| looked_at > 0 && looked_at >= u64::from(limit)).map(EventId::from_uuid);
        let cancelled = if row.value("any_removed")? { self.cancel_removed(None, limit).await? } else { 0 };
        Ok(Retained {
            events: count(row.value("events")?)?,
            deliveries: count(row.value("deliveries")?)?,
            cancelled,
            next,
        })
    }
}

/// What was acted on, as people know it: rows keep the UUID of what has one.
fn subject_of(action: &str, kept: String) -> String {
    let Ok(id) = Uuid::try_parse(&kept) else { return kept };
    match action.split_once('.') {
        Some(("delivery", _)) => DeliveryId::from_uuid(id).to_string(),
        Some(("endpoint", _)) => EndpointId::from_uuid(id).to_string(),
        Some(("key", _)) => KeyId::from_uuid(id).to_string(),
        _ => kept,
    }
}

fn still_moving(id: DeliveryId) -> StoreError {
    let message = format!("{id} kept moving while it was acted on; try again");
    StoreError::new(StoreErrorCode::Conflict, message)
}

/// A page of rows of which one more than asked for was read, to know whether there is a next page.
pub(crate) fn page_of<T>(mut items: Vec<T>, page: &PageRequest, id: impl Fn(&T) -> Uuid) -> Page<T> {
    let limit = page.limit() as usize;
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| Cursor(id(last)));
    Page { items, next }
}
