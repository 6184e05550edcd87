//! The books: what was acknowledged, what the database has, what arrived. They must agree, whatever has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use postrider::EventId;
use postrider_conformance::receiver::Receiver;
use postrider_promises::process::PATIENCE;
use rusqlite::OpenFlags;
use sqlx::{Connection as _, PgConnection, Row as _};
use uuid::Uuid;

/// A database, looked at from outside.
#[derive(Debug, Clone)]
pub(crate) enum Ledger {
    Postgres(String),
    Sqlite(PathBuf),
}

/// An event and its delivery. Each event here has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) event_id: String,
    pub(crate) status: String,
    /// What the delivery counts.
    pub(crate) attempt_count: i64,
    /// What the history has.
    pub(crate) attempts: i64,
    pub(crate) abandoned: i64,
}

const ENTRIES: &str = "select d.event_id, d.status, d.attempt_count + d.earlier_attempts, \
                       (select count(*) from ATTEMPTS a where a.delivery_id = d.id), d.abandoned_count from DELIVERIES d";

fn entry(id: Uuid, status: String, attempt_count: i64, attempts: i64, abandoned: i64) -> Entry {
    Entry { event_id: EventId::from_uuid(id).to_string(), status, attempt_count, attempts, abandoned }
}

impl Ledger {
    pub(crate) fn sqlite(path: &Path) -> Self {
        Self::Sqlite(path.to_owned())
    }

    /// All that was enqueued, in no order.
    pub(crate) async fn entries(&self) -> Vec<Entry> {
        match self {
            Self::Postgres(url) => {
                let statement =
                    ENTRIES.replace("ATTEMPTS", "postrider.attempts").replace("DELIVERIES", "postrider.deliveries");
                let mut connection = PgConnection::connect(url).await.unwrap();
                let rows = sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_all(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                let number = |row: &sqlx::postgres::PgRow, column: usize| i64::from(row.get::<i32, _>(column));
                rows.iter()
                    .map(|row| entry(row.get(0), row.get(1), number(row, 2), row.get(3), number(row, 4)))
                    .collect()
            }
            Self::Sqlite(path) => {
                let statement =
                    ENTRIES.replace("ATTEMPTS", "postrider_attempts").replace("DELIVERIES", "postrider_deliveries");
                let connection = look(path);
                let mut statement = connection.prepare(&statement).unwrap();
                let rows = statement
                    .query_map([], |row| Ok(entry(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)));
                rows.unwrap().map(Result::unwrap).collect()
            }
        }
    }

    /// Waits until everything that was enqueued is delivered.
    pub(crate) async fn until_delivered(&self) -> Vec<Entry> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let entries = self.entries().await;
            let open: Vec<&Entry> = entries.iter().filter(|entry| entry.status != "delivered").collect();
            if open.is_empty() {
                return entries;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{} of {} are not delivered after {PATIENCE:?}, the first of them {:?}",
                open.len(),
                entries.len(),
                open[0]
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
}

/// Opens a file for looking only.
pub(crate) fn look(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection
}

/// What SQLite says of a file: `ok`, or what is wrong with it.
pub(crate) fn integrity(path: &Path) -> String {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap()
}

/// How many times each event has arrived.
pub(crate) fn arrivals(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in receiver.requests() {
        *counts.entry(request.header("webhook-id").to_owned()).or_default() += 1;
    }
    counts
}

/// Compares the three. Everything is delivered by one recorded attempt. Returns how often something arrived once more.
#[track_caller]
pub(crate) fn balance(acknowledged: &BTreeSet<String>, entries: &[Entry], receiver: &Receiver) -> usize {
    assert!(!acknowledged.is_empty(), "something was acknowledged");
    let stored: BTreeSet<&String> = entries.iter().map(|entry| &entry.event_id).collect();
    let lost: Vec<_> = acknowledged.iter().filter(|id| !stored.contains(id)).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged events are not stored: {lost:?}", lost.len(), acknowledged.len());
    let arrived = arrivals(receiver);
    let missing: Vec<_> = acknowledged.iter().filter(|id| !arrived.contains_key(*id)).collect();
    assert!(missing.is_empty(), "{} of {} acknowledged events never arrived", missing.len(), acknowledged.len());
    let unknown: Vec<_> = arrived.keys().filter(|id| !stored.contains(id)).collect();
    assert!(unknown.is_empty(), "{unknown:?} arrived, and the database knows nothing of them");
    for entry in entries {
        assert_eq!((&*entry.status, entry.attempt_count, entry.attempts), ("delivered", 1, 1), "{entry:?}");
    }
    arrived.values().map(|times| times - 1).sum()
}
