//! Rows as the engine's values.

use jiff::Timestamp;
use postrider::{Attempt, Delivery, DeliveryId, EndpointId, EventId, Metadata};
use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use uuid::Uuid;

use crate::clock::Micros;

/// An instant of the database. Only a damaged file holds one that cannot be expressed.
pub(crate) fn timestamp(at: Micros) -> rusqlite::Result<Timestamp> {
    Timestamp::from_microsecond(at).map_err(|error| Error::FromSqlConversionFailure(0, Type::Integer, error.into()))
}

pub(crate) fn instant(row: &Row<'_>, column: &str) -> rusqlite::Result<Timestamp> {
    timestamp(row.get(column)?)
}

pub(crate) fn maybe_instant(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<Timestamp>> {
    row.get::<_, Option<Micros>>(column)?.map(timestamp).transpose()
}

/// A number that is counted upwards, as the database keeps it. None of ours comes near the end of what it can.
pub(crate) fn counted(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that is never negative.
pub(crate) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)?.unsigned_abs())
}

/// A text that the engine has a type for.
pub(crate) fn parsed<T>(row: &Row<'_>, column: &str) -> rusqlite::Result<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let text: String = row.get(column)?;
    text.parse().map_err(|error: T::Err| unreadable(row, column, error))
}

pub(crate) fn metadata(row: &Row<'_>) -> rusqlite::Result<Metadata> {
    let text: String = row.get("metadata")?;
    serde_json::from_str(&text).map_err(|error| unreadable(row, "metadata", error))
}

fn unreadable(row: &Row<'_>, column: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let index = row.as_ref().column_index(column).unwrap_or_default();
    Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
}

/// An identifier, from a column that may be null.
pub(crate) fn maybe_id<T>(row: &Row<'_>, column: &str, from: impl FnOnce(Uuid) -> T) -> rusqlite::Result<Option<T>> {
    Ok(row.get::<_, Option<Uuid>>(column)?.map(from))
}

/// A value of the first column, or none when there is no row.
pub(crate) fn find<T: FromSql>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()
}

pub(crate) fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        id: DeliveryId::from_uuid(row.get("id")?),
        tenant: row.get("tenant")?,
        event_id: EventId::from_uuid(row.get("event_id")?),
        event_type: row.get("event_type")?,
        endpoint_id: maybe_id(row, "endpoint_id", EndpointId::from_uuid)?,
        destination_url: row.get("destination_url")?,
        status: parsed(row, "status")?,
        attempt_count: row.get("attempt_count")?,
        earlier_attempts: row.get("earlier_attempts")?,
        abandoned_count: row.get("abandoned_count")?,
        next_attempt_at: maybe_instant(row, "next_attempt_at")?,
        last_attempted_at: maybe_instant(row, "last_attempted_at")?,
        error_detail: row.get("error_detail")?,
        lease_owner: row.get("lease_owner")?,
        lease_until: maybe_instant(row, "lease_until")?,
        created_at: instant(row, "created_at")?,
    })
}

pub(crate) fn attempt(row: &Row<'_>) -> rusqlite::Result<Attempt> {
    Ok(Attempt {
        number: row.get("number")?,
        started_at: instant(row, "started_at")?,
        duration_ms: row.get("duration_ms")?,
        outcome: parsed(row, "outcome")?,
        status_code: row.get("status_code")?,
        response_excerpt: row.get("response_excerpt")?,
        error_detail: row.get("error_detail")?,
        worker_id: row.get("worker_id")?,
    })
}
