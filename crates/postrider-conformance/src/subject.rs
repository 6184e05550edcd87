//! What a store's tests provide: a database to try things on, and a look at its raw tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use postrider::{DeliveryId, EndpointId, EnqueueError, Enqueued, Keyring, NewEvent, SecretKey, Store};

/// One migrated, empty database that goes away when this is dropped.
#[async_trait]
pub trait Subject: Send + Sync + 'static {
    /// The store.
    fn store(&self) -> Arc<dyn Store>;

    /// A second handle on the same database that shares nothing with the first, as another process would have.
    fn other(&self) -> Arc<dyn Store>;

    /// Stops the clock of both handles at this instant, or lets it go on.
    fn freeze_clock(&self, at: Option<Timestamp>);

    /// Enqueues inside a transaction of the caller's own that then ends as told.
    async fn enqueue_in_transaction(
        &self,
        events: Vec<NewEvent>,
        ending: Ending,
    ) -> Result<Vec<Enqueued>, EnqueueError>;

    /// What is in the raw tables now.
    async fn places(&self) -> Places;

    /// The text that is kept of an endpoint's settings.
    async fn stored_settings(&self, id: EndpointId) -> String;

    /// Puts another text in its place, as nobody but a damage or a stranger would.
    async fn overwrite_settings(&self, id: EndpointId, text: &str);
}

/// The key with which both handles of a subject encrypt secrets, the same in every run.
pub fn keyring() -> Keyring {
    Keyring::new([SecretKey::parse("Y29uZm9ybWFuY2UncyBvd24gc2VjcmV0IGtleSwgMzI=").unwrap()])
}

/// How a caller's transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// With a commit.
    Commit,
    /// With a rollback.
    Rollback,
}

/// The raw tables: one entry per row, sorted, so that a row that is there twice is seen twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// Due and unclaimed.
    pub ready: Vec<DeliveryId>,
    /// Not yet due.
    pub scheduled: Vec<DeliveryId>,
    /// Claimed.
    pub leases: Vec<DeliveryId>,
    /// Dead.
    pub dead_letters: Vec<DeliveryId>,
    /// Rows of attempts per delivery.
    pub attempts: BTreeMap<DeliveryId, u64>,
    /// How many events.
    pub events: u64,
    /// How many deliveries.
    pub deliveries: u64,
    /// How many announcements.
    pub announcements: u64,
    /// How many idempotency keys.
    pub idempotency_keys: u64,
}
