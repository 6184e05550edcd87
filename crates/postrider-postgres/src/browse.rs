//! Looking: deliveries, events, counts.
//!
//! These statements have optional filters, so they are planned for the values at hand, in a read-only transaction that
//! says so; the dispatcher's statements are planned once for all values (see [`crate::PostgresStore::connect`]).

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use postrider::store::{LastMinute, Overview};
use postrider::{
    Attempt, Cursor, Delivery, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryStatus, EndpointId, Event,
    EventDelivery, EventFilter, EventId, Metadata, Page, PageRequest,
};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::PostgresStore;
use crate::error::{Result, damaged, store_error};
use crate::lent::Lent;
use crate::operate::page_of;
use crate::values::{Columns as _, count, instant, int};

/// Begins a transaction whose statements are planned for their values.
pub(crate) const READ_ANYTHING: &str =
    "begin; set local plan_cache_mode = force_custom_plan; set local enable_seqscan = on; set local jit = off";

/// The same, reading only, and everything from one snapshot.
const READ_ONE_SNAPSHOT: &str = "begin isolation level repeatable read read only; \
     set local plan_cache_mode = force_custom_plan; set local enable_seqscan = on; set local jit = off";

/// A statement over the deliveries that match, which takes the filter as its first seven parameters.
pub(crate) fn filtered<'q>(statement: &'static str, filter: &'q DeliveryFilter) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(statement)
        .bind(filter.tenant.as_deref())
        .bind(filter.status.map(DeliveryStatus::as_str))
        .bind(filter.endpoint_id.map(|id| id.as_uuid()))
        .bind(filter.event_id.map(|id| id.as_uuid()))
        .bind(filter.event_type.as_deref())
        .bind(filter.since.map(instant))
        .bind(filter.until.map(instant))
}

impl PostgresStore {
    pub(crate) async fn reading(&self) -> Result<Lent> {
        self.lend("reading").await?.begin(READ_ONE_SNAPSHOT).await
    }

    /// Ids are of the real clock, so a frozen one says nothing about them.
    fn is_frozen(&self) -> bool {
        self.now().is_some()
    }

    /// The row that `one` finds by its id, with the rows that `many` finds by the same, all from one snapshot.
    async fn read_with_parts(
        &self,
        doing: &'static str,
        id: Uuid,
        one: &'static str,
        many: &'static str,
    ) -> Result<Option<(PgRow, Vec<PgRow>)>> {
        let failed = || store_error(doing);
        let mut transaction = self.reading().await?;
        let row = sqlx::query(one).bind(id).fetch_optional(&mut *transaction).await.map_err(failed())?;
        let parts = sqlx::query(many).bind(id).fetch_all(&mut *transaction).await.map_err(failed())?;
        transaction.commit().await?;
        Ok(row.map(|row| (row, parts)))
    }

    pub(crate) async fn read_delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>> {
        let (one, many) = (include_str!("../sql/delivery.sql"), include_str!("../sql/attempts.sql"));
        let Some((row, attempts)) = self.read_with_parts("reading a delivery", id.as_uuid(), one, many).await? else {
            return Ok(None);
        };
        let attempts = attempts.iter().map(attempt).collect::<Result<_>>()?;
        Ok(Some(DeliveryDetail { delivery: delivery(&row)?, attempts }))
    }

    pub(crate) async fn browse(&self, filter: &DeliveryFilter, page: &PageRequest) -> Result<Page<Delivery>> {
        let mut transaction = self.reading().await?;
        let found = self.browse_in(&mut transaction, filter, page).await?;
        transaction.commit().await?;
        Ok(found)
    }

    /// What is dead or cancelled is found through its place, and what is unsettled as well, unless that is too much; the rest
    /// by walking along the deliveries, down to a floor.
    async fn browse_in(
        &self,
        transaction: &mut PgConnection,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>> {
        let failed = || store_error("listing deliveries");
        let cursor = page.cursor().map(|cursor| cursor.0);
        let looked = int(page.most_looked_at());
        let in_order = match filter.status {
            Some(DeliveryStatus::Dead) => {
                Some((include_str!("../sql/deliveries_dead.sql"), include_str!("../sql/deliveries_dead_floor.sql")))
            }
            Some(DeliveryStatus::Cancelled) => Some((
                include_str!("../sql/deliveries_cancelled.sql"),
                include_str!("../sql/deliveries_cancelled_floor.sql"),
            )),
            _ => None,
        };
        if let Some((listing, floor)) = in_order {
            let floor = sqlx::query(floor).bind(cursor).bind(looked - 1);
            let floor = floor.fetch_optional(&mut *transaction).await.map_err(failed())?;
            let floor: Option<Uuid> = floor.map(|row| row.value("id")).transpose()?;
            let page = self.list(transaction, listing, filter, page, floor).await?;
            // A cursor is one of the tenant's own, and not where among those of others it was stopped.
            let last = page.items.last().map(|delivery| delivery.id.as_uuid());
            let next = last.or(floor.filter(|_| filter.tenant.is_none()));
            if page.next.is_some() || floor.is_none() || next.is_some() {
                return Ok(Page { next: page.next.or(next.filter(|_| floor.is_some()).map(Cursor)), ..page });
            }
        }
        if matches!(filter.status, Some(DeliveryStatus::Pending | DeliveryStatus::Failed)) {
            let most = looked.saturating_add(1);
            let counting = sqlx::query(include_str!("../sql/deliveries_unsettled_count.sql")).bind(most);
            let row = counting.fetch_one(&mut *transaction).await.map_err(failed())?;
            if row.value::<i64>("unsettled")? < i64::from(most) {
                let listing = include_str!("../sql/deliveries_unsettled.sql");
                return self.list(transaction, listing, filter, page, None).await;
            }
        }
        // An endpoint has one tenant's deliveries: nobody else is told that there are any, and nobody looks at all of them for
        // that.
        let is_foreign = |whose: &str| filter.tenant.as_ref().is_some_and(|tenant| tenant != whose);
        let nothing = Page { items: Vec::new(), next: None };
        let mut floor = None;
        if filter.event_id.is_none() && (filter.status.is_some() || filter.event_type.is_some()) {
            let row = sqlx::query(include_str!("../sql/deliveries_floor.sql"))
                .bind(filter.tenant.as_deref())
                .bind(filter.endpoint_id.map(|id| id.as_uuid()))
                .bind(filter.until.map(instant))
                .bind(cursor)
                .bind(looked - 1)
                .bind(self.is_frozen());
            if let Some(row) = row.fetch_optional(&mut *transaction).await.map_err(failed())? {
                if is_foreign(row.value("tenant")?) {
                    return Ok(nothing);
                }
                floor = Some(row.value::<Uuid>("id")?);
            }
        }
        let tenant = filter.tenant.clone().filter(|_| filter.endpoint_id.is_none());
        let listed = DeliveryFilter { tenant, ..filter.clone() };
        let page = self.list(transaction, include_str!("../sql/deliveries.sql"), &listed, page, floor).await?;
        if page.items.first().is_some_and(|first| is_foreign(&first.tenant)) {
            return Ok(nothing);
        }
        Ok(Page { next: page.next.or(floor.map(Cursor)), ..page })
    }

    /// The page that a statement finds, down to a floor if there is one.
    async fn list(
        &self,
        transaction: &mut PgConnection,
        statement: &'static str,
        filter: &DeliveryFilter,
        page: &PageRequest,
        floor: Option<Uuid>,
    ) -> Result<Page<Delivery>> {
        let rows = filtered(statement, filter)
            .bind(page.cursor().map(|cursor| cursor.0))
            .bind(int(page.limit() + 1))
            .bind(self.is_frozen())
            .bind(floor)
            .fetch_all(transaction)
            .await
            .map_err(store_error("listing deliveries"))?;
        let items = rows.iter().map(delivery).collect::<Result<Vec<_>>>()?;
        Ok(page_of(items, page, |delivery| delivery.id.as_uuid()))
    }

    pub(crate) async fn count(&self, filter: &DeliveryFilter) -> Result<u64> {
        let failed = || store_error("counting deliveries");
        let mut transaction = self.reading().await?;
        let row = filtered(include_str!("../sql/count_deliveries.sql"), filter)
            .bind(self.is_frozen())
            .fetch_one(&mut *transaction)
            .await
            .map_err(failed())?;
        transaction.commit().await?;
        count(row.value("matching")?)
    }

    pub(crate) async fn read_event(&self, id: EventId) -> Result<Option<Event>> {
        let (one, many) = (include_str!("../sql/event.sql"), include_str!("../sql/event_deliveries.sql"));
        let Some((row, deliveries)) = self.read_with_parts("reading an event", id.as_uuid(), one, many).await? else {
            return Ok(None);
        };
        let deliveries = deliveries.iter().map(event_delivery).collect::<Result<_>>()?;
        Ok(Some(event(&row, deliveries)?))
    }

    pub(crate) async fn browse_events(
        &self,
        filter: &EventFilter,
        page: &PageRequest,
        max_bytes: usize,
    ) -> Result<Page<Event>> {
        let failed = || store_error("listing events");
        let mut transaction = self.reading().await?;
        let mut floor: Option<Uuid> = None;
        if filter.event_type.is_some() {
            let row = sqlx::query(include_str!("../sql/events_floor.sql"))
                .bind(filter.tenant.as_deref())
                .bind(filter.until.map(instant))
                .bind(page.cursor().map(|cursor| cursor.0))
                .bind(int(page.most_looked_at()) - 1)
                .bind(self.is_frozen())
                .fetch_optional(&mut *transaction)
                .await
                .map_err(failed())?;
            floor = row.map(|row| row.value("id")).transpose()?;
        }
        let rows = sqlx::query(include_str!("../sql/events.sql"))
            .bind(filter.tenant.as_deref())
            .bind(filter.event_type.as_deref())
            .bind(filter.since.map(instant))
            .bind(filter.until.map(instant))
            .bind(page.cursor().map(|cursor| cursor.0))
            .bind(int(page.limit() + 1))
            .bind(self.is_frozen())
            .bind(i64::try_from(max_bytes).unwrap_or(i64::MAX))
            .bind(floor)
            .fetch_all(&mut *transaction)
            .await
            .map_err(failed())?;
        let rows_of_page = &rows[..rows.len().min(page.limit() as usize)];
        let ids = rows_of_page.iter().map(|row| row.value("id")).collect::<Result<Vec<Uuid>>>()?;
        let parts = sqlx::query(include_str!("../sql/events_deliveries.sql"))
            .bind(&ids)
            .fetch_all(&mut *transaction)
            .await
            .map_err(failed())?;
        transaction.commit().await?;
        let mut deliveries = HashMap::<Uuid, Vec<EventDelivery>>::new();
        for part in &parts {
            deliveries.entry(part.value("event_id")?).or_default().push(event_delivery(part)?);
        }
        let read = |(row, id)| event(row, deliveries.remove(id).unwrap_or_default());
        let items = rows_of_page.iter().zip(&ids).map(read).collect::<Result<Vec<_>>>()?;
        // There is more when more was found than fits, for its number or for its size.
        let found = rows.first().map_or(Ok(0), |row| count(row.value("found")?))?;
        let next = ids.last().filter(|_| found > items.len() as u64).copied().or(floor).map(Cursor);
        Ok(Page { items, next })
    }

    pub(crate) async fn count_places(&self, tenant: Option<&str>) -> Result<Overview> {
        let failed = || store_error("reading the overview");
        let mut transaction = self.reading().await?;
        let row = sqlx::query(include_str!("../sql/overview.sql"))
            .bind(self.now())
            .bind(tenant)
            .fetch_one(&mut *transaction)
            .await
            .map_err(failed())?;
        transaction.commit().await?;
        let number = |name: &'static str| count(row.value(name)?);
        let age: Option<i64> = row.value("oldest_due_age")?;
        Ok(Overview {
            pending: number("pending")?,
            failed: number("failed")?,
            delivered: number("delivered")?,
            dead: number("dead")?,
            cancelled: number("cancelled")?,
            due: number("due")?,
            in_flight: number("in_flight")?,
            scheduled: number("scheduled")?,
            oldest_due_age: age.map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or_default())),
            last_minute: LastMinute {
                delivered: number("told_delivered")?,
                failed: number("told_failed")?,
                dead: number("told_dead")?,
            },
        })
    }
}

/// The metadata that an event's sender attached.
pub(crate) fn metadata(row: &PgRow) -> Result<Metadata> {
    let metadata: Result<Json<Metadata>, _> = row.try_get("metadata");
    // The driver's message could quote what it could not read.
    metadata.map(|json| json.0).map_err(|_| damaged("an event's metadata", "it is not a JSON object"))
}

fn event(row: &PgRow, deliveries: Vec<EventDelivery>) -> Result<Event> {
    Ok(Event {
        id: EventId::from_uuid(row.value("id")?),
        tenant: row.value("tenant")?,
        event_type: row.value("type")?,
        payload: Bytes::from(row.value::<Vec<u8>>("payload")?),
        metadata: metadata(row)?,
        topic: row.value("topic")?,
        created_at: row.instant("created_at")?,
        deliveries,
    })
}

fn delivery(row: &PgRow) -> Result<Delivery> {
    Ok(Delivery {
        id: DeliveryId::from_uuid(row.value("id")?),
        tenant: row.value("tenant")?,
        event_id: EventId::from_uuid(row.value("event_id")?),
        event_type: row.value("event_type")?,
        endpoint_id: row.value::<Option<Uuid>>("endpoint_id")?.map(EndpointId::from_uuid),
        destination_url: row.value("destination_url")?,
        status: row.status("status")?,
        attempt_count: row.unsigned("attempt_count")?,
        earlier_attempts: row.unsigned("earlier_attempts")?,
        abandoned_count: row.unsigned("abandoned_count")?,
        next_attempt_at: row.maybe_instant("next_attempt_at")?,
        last_attempted_at: row.maybe_instant("last_attempted_at")?,
        error_detail: row.value("error_detail")?,
        lease_owner: row.value("lease_owner")?,
        lease_until: row.maybe_instant("lease_until")?,
        created_at: row.instant("created_at")?,
    })
}

fn event_delivery(row: &PgRow) -> Result<EventDelivery> {
    Ok(EventDelivery {
        id: DeliveryId::from_uuid(row.value("id")?),
        destination_url: row.value("destination_url")?,
        status: row.status("status")?,
    })
}

fn attempt(row: &PgRow) -> Result<Attempt> {
    let status_code: Option<i32> = row.value("status_code")?;
    Ok(Attempt {
        number: row.unsigned("number")?,
        started_at: row.instant("started_at")?,
        duration_ms: row.unsigned("duration_ms")?,
        outcome: row.value::<&str>("outcome")?.parse().map_err(|error| damaged("an attempt's outcome", error))?,
        status_code: status_code.map(u16::try_from).transpose().map_err(|error| damaged("a status code", error))?,
        response_excerpt: row.value("response_excerpt")?,
        error_detail: row.value("error_detail")?,
        worker_id: row.value("worker_id")?,
    })
}
