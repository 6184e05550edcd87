//! How the engine's values cross into SQL and back.

use std::time::Duration;

use jiff::{Timestamp, Unit};
use jiff_sqlx::ToSqlx as _;
use postrider::{DeliveryStatus, StoreError, StoreErrorCode};
use sqlx::postgres::PgRow;
use sqlx::{Decode, Postgres, Row, Type};

use crate::error::{Result, damaged, store_error};

/// An instant as the driver takes it.
pub(crate) type Instant = jiff_sqlx::Timestamp;

/// Postgres counts microseconds; what is finer is cut off.
pub(crate) fn instant(at: Timestamp) -> Instant {
    let rounding = jiff::TimestampRound::new().smallest(Unit::Microsecond).mode(jiff::RoundMode::Floor);
    at.round(rounding).unwrap_or(at).to_sqlx()
}

/// The longest duration that is taken literally: a century. Anything longer means the same to a delivery.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// A duration in microseconds, as statements take them.
pub(crate) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(LONGEST).as_micros()).expect("a century has fewer than 2^63 microseconds")
}

/// A count or limit, as statements take them.
pub(crate) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A generation or revision, as statements take them.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A generation or revision, as the database keeps it.
pub(crate) fn generation(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|error| damaged("a generation", error))
}

/// Postgres keeps no NUL in a text. Nothing that reaches the store should have one; one that does must not stop the
/// whole batch it is in.
pub(crate) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Columns by name, with errors that name the column and not its value.
pub(crate) trait Columns {
    fn value<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, name: &'static str) -> Result<T>;
    fn instant(&self, name: &'static str) -> Result<Timestamp>;
    fn maybe_instant(&self, name: &'static str) -> Result<Option<Timestamp>>;
    fn unsigned(&self, name: &'static str) -> Result<u32>;
    fn status(&self, name: &'static str) -> Result<DeliveryStatus>;
}

impl Columns for PgRow {
    fn value<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, name: &'static str) -> Result<T> {
        self.try_get(name).map_err(store_error("reading a row"))
    }

    fn instant(&self, name: &'static str) -> Result<Timestamp> {
        Ok(self.value::<Instant>(name)?.to_jiff())
    }

    fn maybe_instant(&self, name: &'static str) -> Result<Option<Timestamp>> {
        Ok(self.value::<Option<Instant>>(name)?.map(Instant::to_jiff))
    }

    fn unsigned(&self, name: &'static str) -> Result<u32> {
        u32::try_from(self.value::<i32>(name)?).map_err(|error| damaged(name, error))
    }

    fn status(&self, name: &'static str) -> Result<DeliveryStatus> {
        self.value::<&str>(name)?.parse().map_err(|error| damaged(name, error))
    }
}

/// A count as Postgres counts.
pub(crate) fn count(number: i64) -> Result<u64> {
    u64::try_from(number)
        .map_err(|_| StoreError::new(StoreErrorCode::Internal, format!("the database counted {number} rows")))
}
