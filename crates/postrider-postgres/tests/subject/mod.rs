//! A Postgres database as a subject of the conformance suite.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use postrider::{DeliveryId, EndpointId, EnqueueError, Enqueued, NewEvent, Store};
use postrider_conformance::flights::admission;
use postrider_conformance::{Ending, Places, Subject, keyring};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

pub(crate) struct PostgresSubject {
    database: TestDatabase,
    other: PostgresStore,
}

pub(crate) async fn open() -> PostgresSubject {
    let database = TestDatabase::create().await;
    let other = PostgresStore::connect(database.url()).await.unwrap().with_keyring(keyring());
    PostgresSubject { database, other }
}

#[async_trait]
impl Subject for PostgresSubject {
    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.database.store().with_keyring(keyring()).with_admission(admission()))
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
        let mut transaction = store.pool().begin().await.unwrap();
        let enqueued = store.enqueue_all_in(&mut transaction, events).await?;
        match ending {
            Ending::Commit => transaction.commit().await.unwrap(),
            Ending::Rollback => transaction.rollback().await.unwrap(),
        }
        Ok(enqueued)
    }

    async fn places(&self) -> Places {
        Places {
            ready: self.delivery_ids("ready").await,
            scheduled: self.delivery_ids("scheduled").await,
            leases: self.delivery_ids("leases").await,
            dead_letters: self.delivery_ids("dead").await,
            attempts: self.delivery_ids("attempts").await.into_iter().fold(BTreeMap::new(), |mut counts, id| {
                *counts.entry(id).or_default() += 1;
                counts
            }),
            events: self.count("events").await,
            deliveries: self.count("deliveries").await,
            announcements: self.count("announcements").await,
            idempotency_keys: self.count("idempotency_keys").await,
        }
    }

    async fn stored_settings(&self, id: EndpointId) -> String {
        let query = sqlx::query_scalar("select settings from postrider.endpoints where id = $1");
        query.bind(id.as_uuid()).fetch_one(self.database.store().pool()).await.unwrap()
    }

    async fn overwrite_settings(&self, id: EndpointId, text: &str) {
        let query = sqlx::query("update postrider.endpoints set settings = $2 where id = $1");
        query.bind(id.as_uuid()).bind(text).execute(self.database.store().pool()).await.unwrap();
    }
}

impl PostgresSubject {
    async fn delivery_ids(&self, table: &str) -> Vec<DeliveryId> {
        let query = AssertSqlSafe(format!("select delivery_id from postrider.{table} order by delivery_id"));
        let ids: Vec<Uuid> = sqlx::query_scalar(query).fetch_all(self.database.store().pool()).await.unwrap();
        ids.into_iter().map(DeliveryId::from_uuid).collect()
    }

    async fn count(&self, table: &str) -> u64 {
        let query = AssertSqlSafe(format!("select count(*) from postrider.{table}"));
        let count: i64 = sqlx::query_scalar(query).fetch_one(self.database.store().pool()).await.unwrap();
        count.unsigned_abs()
    }
}
