//! An SQLite file as a subject of the conformance suite.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use postrider::{DeliveryId, EndpointId, EnqueueError, Enqueued, NewEvent, Store, StoreError};
use postrider_conformance::flights::admission;
use postrider_conformance::{Ending, Places, Subject, keyring};
use postrider_sqlite::SqliteStore;
use postrider_sqlite::testing::TestDatabase;
use rusqlite::Connection;
use uuid::Uuid;

pub(crate) struct SqliteSubject {
    // Fields are dropped in order: nobody uses the file any more when it goes.
    other: SqliteStore,
    raw: std::sync::Mutex<Connection>,
    database: TestDatabase,
}

pub(crate) async fn open() -> SqliteSubject {
    let database = TestDatabase::create().await;
    let other = SqliteStore::open(database.path()).unwrap().with_keyring(keyring());
    let raw = std::sync::Mutex::new(Connection::open(database.path()).unwrap());
    SqliteSubject { other, raw, database }
}

/// What the closure of a transaction ends with when it is to be rolled back.
enum Undone {
    OnPurpose(Vec<Enqueued>),
    ByError(EnqueueError),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::ByError(error.into())
    }
}

#[async_trait]
impl Subject for SqliteSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.database.store().clone().with_admission(admission()).with_keyring(keyring()))
    }

    fn other(&self) -> Arc<dyn Store> {
        Arc::new(self.other.clone().with_admission(admission()))
    }

    fn freeze_clock(&self, at: Option<Timestamp>) {
        self.database.store().freeze_clock(at);
        self.other.freeze_clock(at);
    }

    async fn enqueue_in_transaction(
        &self,
        events: Vec<NewEvent>,
        ending: Ending,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let store = self.database.store();
        let enqueued = store.transaction(move |transaction| {
            let enqueued = transaction.enqueue_all(events).map_err(Undone::ByError)?;
            match ending {
                Ending::Commit => Ok(enqueued),
                Ending::Rollback => Err(Undone::OnPurpose(enqueued)),
            }
        });
        match enqueued.await {
            Ok(enqueued) | Err(Undone::OnPurpose(enqueued)) => Ok(enqueued),
            Err(Undone::ByError(error)) => Err(error),
        }
    }

    async fn places(&self) -> Places {
        let raw = self.raw.lock().unwrap();
        let count = |table: &str| -> u64 {
            let query = format!("select count(*) from postrider_{table}");
            raw.query_row(&query, [], |row| row.get::<_, i64>(0)).unwrap().unsigned_abs()
        };
        Places {
            ready: delivery_ids(&raw, "ready"),
            scheduled: delivery_ids(&raw, "scheduled"),
            leases: delivery_ids(&raw, "leases"),
            dead_letters: delivery_ids(&raw, "dead_letters"),
            attempts: delivery_ids(&raw, "attempts").into_iter().fold(BTreeMap::new(), |mut counts, id| {
                *counts.entry(id).or_default() += 1;
                counts
            }),
            events: count("events"),
            deliveries: count("deliveries"),
            announcements: count("announcements"),
            idempotency_keys: count("idempotency_keys"),
        }
    }

    async fn stored_settings(&self, id: EndpointId) -> String {
        let raw = self.raw.lock().unwrap();
        let query = "select settings from postrider_endpoints where id = ?1";
        raw.query_row(query, [id.as_uuid()], |row| row.get(0)).unwrap()
    }

    async fn overwrite_settings(&self, id: EndpointId, text: &str) {
        let raw = self.raw.lock().unwrap();
        // A damage does not ask whether it is JSON.
        raw.pragma_update(None, "ignore_check_constraints", true).unwrap();
        let change = "update postrider_endpoints set settings = ?2 where id = ?1";
        assert_eq!(raw.execute(change, (id.as_uuid(), text)).unwrap(), 1);
        raw.pragma_update(None, "ignore_check_constraints", false).unwrap();
    }
}

fn delivery_ids(raw: &Connection, table: &str) -> Vec<DeliveryId> {
    let mut query = raw.prepare(&format!("select delivery_id from postrider_{table} order by delivery_id")).unwrap();
    let ids = query.query_map([], |row| row.get::<_, Uuid>(0)).unwrap();
    ids.map(|id| DeliveryId::from_uuid(id.unwrap())).collect()
}
