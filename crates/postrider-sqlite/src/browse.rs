//! Looking: everything that only reads, on one snapshot each.

use std::time::Duration;

use bytes::Bytes;
use postrider::store::{Announced, AuditEntry, FeedPlace, LastMinute, Overview};
use postrider::{
    Announcement, Cursor, Delivery, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryStatus, EndpointId, Event,
    EventDelivery, EventFilter, EventId, Page, PageRequest,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::clock::{self, Micros};
use crate::filter::Conditions;
use crate::rows;
use crate::sql::sql;

pub(crate) fn delivery(connection: &Connection, id: DeliveryId) -> rusqlite::Result<Option<DeliveryDetail>> {
    let sql = sql!("deliveries").replace("{conditions}", "d.id = :id");
    let mut statement = connection.prepare_cached(&sql)?;
    let limit = 1;
    let found =
        statement.query_row(&[(":id", &id.as_uuid() as &dyn rusqlite::ToSql), (":limit", &limit)], rows::delivery);
    let Some(delivery) = found.optional()? else {
        return Ok(None);
    };
    let mut statement = connection.prepare_cached(sql!("attempts"))?;
    let attempts = statement.query_map(params![id.as_uuid()], rows::attempt)?.collect::<rusqlite::Result<_>>()?;
    Ok(Some(DeliveryDetail { delivery, attempts }))
}

pub(crate) fn deliveries(
    connection: &Connection,
    filter: &DeliveryFilter,
    page: &PageRequest,
) -> rusqlite::Result<Page<Delivery>> {
    let read = |filter: &DeliveryFilter, sql: &str, floor: Option<Uuid>, column: &str| {
        let conditions = Conditions::listing(filter).after(page, column).down_to(floor, column);
        let conditions = conditions.with(&[(":limit", Value::Integer(one_more(page)))]);
        let mut statement = connection.prepare_cached(&sql.replace("{conditions}", &conditions.sql))?;
        let found = statement.query_map(&conditions.named()[..], rows::delivery)?.collect::<rusqlite::Result<_>>()?;
        rusqlite::Result::Ok(cut(found, page, |delivery: &Delivery| delivery.id.as_uuid()))
    };
    let in_order = match filter.status {
        Some(DeliveryStatus::Dead) => {
            Some((sql!("deliveries_dead"), sql!("deliveries_dead_floor"), "p.delivery_id", "p.delivery_id"))
        }
        Some(DeliveryStatus::Cancelled) => {
            Some((sql!("deliveries_cancelled"), sql!("deliveries_cancelled_floor"), "d.id", "p.id"))
        }
        _ => None,
    };
    if let Some((of_place, floor_of_place, column, floor_column)) = in_order {
        let floor = floor_of(connection, floor_of_place, Conditions::none(), page, floor_column, |row| row.get("id"))?;
        let page = read(filter, of_place, floor, column)?;
        // A cursor is one of the tenant's own, and not where among those of others it was stopped.
        let last = page.items.last().map(|delivery| delivery.id.as_uuid());
        let next = last.or(floor.filter(|_| filter.tenant.is_none()));
        if page.next.is_some() || floor.is_none() || next.is_some() {
            return Ok(Page { next: page.next.or(next.filter(|_| floor.is_some()).map(Cursor)), ..page });
        }
    }
    if matches!(filter.status, Some(DeliveryStatus::Pending | DeliveryStatus::Failed)) {
        let most = i64::from(page.most_looked_at()) + 1;
        let unsettled: i64 = connection
            .prepare_cached(sql!("deliveries_unsettled_count"))?
            .query_row(params![most], |row| row.get("count"))?;
        if unsettled < most {
            return read(filter, sql!("deliveries_unsettled"), None, "d.id");
        }
    }
    let is_narrowed = filter.status.is_some() || filter.event_type.is_some() || filter.until.is_some();
    let of_whom = |row: &Row<'_>| Ok((row.get::<_, Uuid>("id")?, row.get::<_, String>("tenant")?));
    let floor = match filter.event_id {
        None if is_narrowed => {
            floor_of(connection, sql!("deliveries_floor"), Conditions::along(filter), page, "p.id", of_whom)?
        }
        _ => None,
    };
    // An endpoint has one tenant's deliveries: nobody else is told that there are any, and nobody looks at all of them for that.
    let is_foreign = |whose: &str| filter.tenant.as_ref().is_some_and(|tenant| tenant != whose);
    let nothing = Page { items: Vec::new(), next: None };
    if floor.as_ref().is_some_and(|(_, whose)| is_foreign(whose)) {
        return Ok(nothing);
    }
    let floor = floor.map(|(id, _)| id);
    let tenant = filter.tenant.clone().filter(|_| filter.endpoint_id.is_none());
    let page = read(&DeliveryFilter { tenant, ..filter.clone() }, sql!("deliveries"), floor, "d.id")?;
    if page.items.first().is_some_and(|first| is_foreign(&first.tenant)) {
        return Ok(nothing);
    }
    Ok(Page { next: page.next.or(floor.map(Cursor)), ..page })
}

/// The last row that a page looks at, if there are as many.
fn floor_of<T>(
    connection: &Connection,
    sql: &str,
    along: Conditions,
    page: &PageRequest,
    column: &str,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let conditions =
        along.after(page, column).with(&[(":looked", Value::Integer(i64::from(page.most_looked_at()) - 1))]);
    let mut statement = connection.prepare_cached(&sql.replace("{conditions}", &conditions.sql))?;
    statement.query_row(&conditions.named()[..], read).optional()
}

/// One row more than the page has says whether there is another page.
pub(crate) fn one_more(page: &PageRequest) -> i64 {
    i64::from(page.limit()) + 1
}

pub(crate) fn cut<T>(mut items: Vec<T>, page: &PageRequest, id: impl Fn(&T) -> Uuid) -> Page<T> {
    let limit = page.limit() as usize;
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|last| Cursor(id(last)));
    Page { items, next }
}

pub(crate) fn count_deliveries(connection: &Connection, filter: &DeliveryFilter) -> rusqlite::Result<u64> {
    let conditions = Conditions::of(filter);
    let sql = sql!("count_deliveries").replace("{conditions}", &conditions.sql);
    connection.prepare_cached(&sql)?.query_row(&conditions.named()[..], |row| rows::count(row, "count"))
}

pub(crate) fn event(connection: &Connection, id: EventId) -> rusqlite::Result<Option<Event>> {
    let mut statement = connection.prepare_cached(sql!("event_deliveries"))?;
    let line = |row: &Row<'_>| {
        Ok(EventDelivery {
            id: DeliveryId::from_uuid(row.get("id")?),
            destination_url: row.get("destination_url")?,
            status: rows::parsed(row, "status")?,
        })
    };
    let deliveries = statement.query_map(params![id.as_uuid()], line)?.collect::<rusqlite::Result<_>>()?;
    let mut statement = connection.prepare_cached(sql!("event"))?;
    let event = |row: &Row<'_>| {
        Ok(Event {
            id,
            tenant: row.get("tenant")?,
            event_type: row.get("event_type")?,
            payload: Bytes::from(row.get::<_, Vec<u8>>("payload")?),
            metadata: rows::metadata(row)?,
            topic: row.get("topic")?,
            created_at: rows::instant(row, "created_at")?,
            deliveries,
        })
    };
    statement.query_row(params![id.as_uuid()], event).optional()
}

/// A page of events whose payloads come to at most `max_bytes`, or that has one event only.
pub(crate) fn events(
    connection: &Connection,
    filter: &EventFilter,
    page: &PageRequest,
    max_bytes: usize,
) -> rusqlite::Result<Page<Event>> {
    let along = Conditions::none().and("p.tenant = :tenant", ":tenant", filter.tenant.clone().map(Value::Text));
    let floor: Option<Uuid> = match filter.event_type {
        Some(_) => floor_of(connection, sql!("events_floor"), along, page, "p.id", |row| row.get("id"))?,
        None => None,
    };
    let conditions = Conditions::of_events(filter)
        .after(page, "e.id")
        .down_to(floor, "e.id")
        .with(&[(":limit", Value::Integer(one_more(page)))]);
    let sql = sql!("events").replace("{conditions}", &conditions.sql);
    let mut statement = connection.prepare_cached(&sql)?;
    let found: Vec<(Uuid, u64)> = statement
        .query_map(&conditions.named()[..], |row| Ok((row.get("id")?, rows::count(row, "payload_bytes")?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut items = Vec::new();
    let mut bytes = 0_u64;
    for (id, payload_bytes) in &found {
        bytes = bytes.saturating_add(*payload_bytes);
        let is_full = items.len() == page.limit() as usize || (bytes > max_bytes as u64 && !items.is_empty());
        if is_full {
            break;
        }
        // It is there: all of this sees one snapshot.
        items.extend(event(connection, EventId::from_uuid(*id))?);
    }
    let next = items.last().filter(|_| items.len() < found.len()).map(|last| Cursor(last.id.as_uuid()));
    Ok(Page { items, next: next.or(floor.map(Cursor)) })
}

/// Every delivery is in exactly one place, so those that are delivered are the ones in none: nobody reads the history.
pub(crate) fn overview(connection: &Connection, tenant: Option<&str>, now: Micros) -> rusqlite::Result<Overview> {
    let mut overview = connection.prepare_cached(sql!("overview"))?.query_row(params![tenant], |row| {
        let oldest: Option<Micros> = row.get("oldest_due_at")?;
        Ok(Overview {
            pending: rows::count(row, "pending")?,
            failed: rows::count(row, "failed")?,
            due: rows::count(row, "due")?,
            in_flight: rows::count(row, "in_flight")?,
            scheduled: rows::count(row, "scheduled")?,
            oldest_due_age: oldest.map(|due_at| clock::between(due_at, now)),
            ..Overview::default()
        })
    })?;
    connection.prepare_cached(sql!("overview_settled"))?.query_row(params![tenant], |row| {
        overview.dead = rows::count(row, "dead")?;
        overview.cancelled = rows::count(row, "cancelled")?;
        let elsewhere = overview.pending + overview.failed + overview.dead + overview.cancelled;
        overview.delivered = rows::count(row, "deliveries")?.saturating_sub(elsewhere);
        Ok(())
    })?;
    overview.last_minute = last_minute(connection, tenant, now)?;
    Ok(overview)
}

/// Positions are in the order of time, so the first of the last minute is found by halving, not by reading.
fn last_minute(connection: &Connection, tenant: Option<&str>, now: Micros) -> rusqlite::Result<LastMinute> {
    let since = clock::before(now, Duration::from_secs(60));
    let mut seek = connection.prepare_cached(sql!("overview_seek"))?;
    let mut at_or_after = |position: i64| {
        let found = |row: &Row<'_>| Ok((row.get::<_, i64>("position")?, row.get::<_, Micros>("at")?));
        seek.query_row(params![position], found).optional()
    };
    let end = announcements_end(connection)?.position + 1;
    let (mut first, mut beyond) = (at_or_after(0)?.map_or(end, |(position, _)| position), end);
    while first < beyond {
        let middle = first + (beyond - first) / 2;
        match at_or_after(middle)? {
            Some((position, at)) if at <= since => first = position + 1,
            _ => beyond = middle,
        }
    }
    connection.prepare_cached(sql!("overview_last_minute"))?.query_row(params![first, since, tenant], |row| {
        Ok(LastMinute {
            delivered: rows::count(row, "delivered")?,
            failed: rows::count(row, "failed")?,
            dead: rows::count(row, "dead")?,
        })
    })
}

/// Positions are given out in the order of commits, so there are never gaps that fill up later.
pub(crate) fn announcements(connection: &Connection, after: &FeedPlace, limit: u32) -> rusqlite::Result<Announced> {
    let mut statement = connection.prepare_cached(sql!("announcements"))?;
    let announcement = |row: &Row<'_>| {
        Ok(Announcement {
            position: row.get("position")?,
            tenant: row.get("tenant")?,
            topic: row.get("topic")?,
            fact: rows::parsed(row, "fact")?,
            delivery_id: DeliveryId::from_uuid(row.get("delivery_id")?),
            event_id: EventId::from_uuid(row.get("event_id")?),
            endpoint_id: rows::maybe_id(row, "endpoint_id", EndpointId::from_uuid)?,
            attempt_count: row.get("attempt_count")?,
            metadata: rows::metadata(row)?,
            at: rows::instant(row, "at")?,
        })
    };
    let found = statement.query_map(params![after.position, limit], announcement)?;
    let announcements = found.collect::<rusqlite::Result<Vec<_>>>()?;
    let position = announcements.last().map_or(after.position, |last| last.position);
    Ok(Announced { announcements, place: FeedPlace { position, gaps: Vec::new() } })
}

pub(crate) fn announcements_end(connection: &Connection) -> rusqlite::Result<FeedPlace> {
    let position = rows::find(connection, sql!("announcements_end"), [])?.unwrap_or_default();
    Ok(FeedPlace { position, gaps: Vec::new() })
}

pub(crate) fn audit(
    connection: &Connection,
    tenant: Option<String>,
    page: &PageRequest,
) -> rusqlite::Result<Page<AuditEntry>> {
    let conditions = Conditions::none()
        .and("tenant = :tenant", ":tenant", tenant.map(Value::Text))
        .after(page, "id")
        .with(&[(":limit", Value::Integer(one_more(page)))]);
    let sql = sql!("audit").replace("{conditions}", &conditions.sql);
    let mut statement = connection.prepare_cached(&sql)?;
    let entry = |row: &Row<'_>| {
        Ok(AuditEntry {
            id: row.get("id")?,
            at: rows::instant(row, "at")?,
            tenant: row.get("tenant")?,
            operator: row.get("operator")?,
            action: row.get("action")?,
            subject: row.get("subject")?,
            reason: row.get("reason")?,
        })
    };
    let found = statement.query_map(&conditions.named()[..], entry)?.collect::<rusqlite::Result<_>>()?;
    Ok(cut(found, page, |entry: &AuditEntry| entry.id))
}
