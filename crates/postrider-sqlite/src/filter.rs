//! A filter as SQL. Only what narrows becomes a condition, so that SQLite can choose an index for what is there.

use std::fmt::Write;

use postrider::{DeliveryFilter, DeliveryStatus, EventFilter, PageRequest};
use rusqlite::ToSql;
use rusqlite::types::Value;
use uuid::Uuid;

/// Conditions with their values: on `d`, the delivery, and `e`, its event, or on the only table of a statement.
#[derive(Debug, Clone)]
pub(crate) struct Conditions {
    pub(crate) sql: String,
    values: Vec<(&'static str, Value)>,
}

impl Conditions {
    /// Nothing narrows.
    pub(crate) fn none() -> Self {
        Self { sql: "true".to_owned(), values: Vec::new() }
    }

    pub(crate) fn of_events(filter: &EventFilter) -> Self {
        let mut conditions = Self::none();
        conditions.add("e.tenant = :tenant", ":tenant", filter.tenant.clone().map(Value::Text));
        conditions.add("e.event_type = :type", ":type", filter.event_type.clone().map(Value::Text));
        conditions.add("e.created_at >= :since", ":since", filter.since.map(|at| at.as_microsecond().into()));
        conditions.add("e.created_at < :until", ":until", filter.until.map(|at| at.as_microsecond().into()));
        conditions.add("e.id >= :first", ":first", filter.since.map(|since| blob(first_id_at(since))));
        conditions
    }

    /// For a listing, which finds them in a way of its own.
    pub(crate) fn listing(filter: &DeliveryFilter) -> Self {
        let mut conditions = Self::none();
        conditions.add("d.tenant = :tenant", ":tenant", filter.tenant.clone().map(Value::Text));
        conditions.add("d.endpoint_id = :endpoint", ":endpoint", filter.endpoint_id.map(|id| blob(id.as_uuid())));
        conditions.add("d.event_id = :event", ":event", filter.event_id.map(|id| blob(id.as_uuid())));
        conditions.add("e.event_type = :type", ":type", filter.event_type.clone().map(Value::Text));
        conditions.add("d.created_at >= :since", ":since", filter.since.map(|at| at.as_microsecond().into()));
        conditions.add("d.created_at < :until", ":until", filter.until.map(|at| at.as_microsecond().into()));
        if let Some(since) = filter.since {
            // An identifier is never older than its row, so this bounds the search, which the column alone cannot.
            conditions.add("d.id >= :first", ":first", Some(blob(first_id_at(since))));
        }
        conditions.add("d.id < :beyond", ":beyond", filter.until.map(|until| blob(first_id_beyond(until))));
        if let Some(status) = filter.status {
            // Written out, since the index of cancelled deliveries is used only where the text says so.
            let _ = write!(conditions.sql, " and d.status = '{status}'");
        }
        conditions
    }

    /// What is dead is found through its place, since no index covers the status.
    pub(crate) fn of(filter: &DeliveryFilter) -> Self {
        let mut conditions = Self::listing(filter);
        if filter.status == Some(DeliveryStatus::Dead) {
            conditions.sql.push_str(" and d.id in (select delivery_id from postrider_dead_letters)");
        }
        conditions
    }

    /// Along which index a listing walks: that of the endpoint, or of the tenant, or the primary key.
    pub(crate) fn along(filter: &DeliveryFilter) -> Self {
        let endpoint = filter.endpoint_id.map(|id| blob(id.as_uuid()));
        let tenant = filter.tenant.clone().map(Value::Text).filter(|_| endpoint.is_none());
        let mut conditions = Self::none();
        conditions.add("p.endpoint_id = :endpoint", ":endpoint", endpoint);
        conditions.add("p.tenant = :tenant", ":tenant", tenant);
        conditions.add("p.id < :beyond", ":beyond", filter.until.map(|until| blob(first_id_beyond(until))));
        conditions
    }

    /// Only what a page looks at, by this column.
    pub(crate) fn down_to(self, floor: Option<Uuid>, column: &str) -> Self {
        self.and(&format!("{column} >= :floor"), ":floor", floor.map(blob))
    }

    fn add(&mut self, condition: &str, name: &'static str, value: Option<Value>) {
        if let Some(value) = value {
            self.sql.push_str(" and ");
            self.sql.push_str(condition);
            self.values.push((name, value));
        }
    }

    /// One more condition.
    pub(crate) fn and(mut self, condition: &str, name: &'static str, value: Option<Value>) -> Self {
        self.add(condition, name, value);
        self
    }

    /// Only what a page has after its cursor, by this column.
    pub(crate) fn after(self, page: &PageRequest, column: &str) -> Self {
        let after = page.cursor().map(|cursor| blob(cursor.0));
        self.and(&format!("{column} < :after"), ":after", after)
    }

    /// The values, with others that the statement around the conditions wants.
    pub(crate) fn with(self, others: &[(&'static str, Value)]) -> Self {
        let mut values = self.values;
        values.extend_from_slice(others);
        Self { values, ..self }
    }

    /// As rusqlite takes them.
    pub(crate) fn named(&self) -> Vec<(&str, &dyn ToSql)> {
        self.values.iter().map(|(name, value)| (*name, value as &dyn ToSql)).collect()
    }
}

fn blob(id: Uuid) -> Value {
    Value::Blob(id.as_bytes().to_vec())
}

/// The lowest identifier that can have been minted at or after an instant.
fn first_id_at(at: jiff::Timestamp) -> Uuid {
    let milliseconds = u128::try_from(at.as_millisecond()).unwrap_or_default();
    Uuid::from_u128(milliseconds << 80)
}

/// An identifier that nothing older than an instant has. A clock that stepped back did not take the identifiers with it, so it
/// is that of a day later.
fn first_id_beyond(at: jiff::Timestamp) -> Uuid {
    first_id_at(at.checked_add(jiff::SignedDuration::from_hours(24)).unwrap_or(jiff::Timestamp::MAX))
}
