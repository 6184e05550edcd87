//! An example on Postrider: sessions whose changes are told to webhooks, with an exact retry schedule and dead
//! letters, in one process on one SQLite file.
//!
//! The gateway's nouns on Postrider's: a webhook configuration is an endpoint, a row of `webhook_deliveries` is a
//! delivery, the `WebhookRouter` is the dispatcher, and the topic `gateway:webhooks` is fed by announcements. What is
//! left to write is what only the gateway knows: what a session is, and what is told of it.

pub mod deliveries;
pub mod http;
mod key;
mod serve;
pub mod sessions;
mod settings;
pub mod topic;
pub mod webhooks;

use std::sync::Arc;
use std::time::Duration;

use postrider::signature::Signed;
use postrider::{
    Admission, Dispatcher, EndpointFilter, Feed, InvalidDispatcher, PageRequest, Refusal, RetryPolicy, SignatureScheme,
    Store, StoreError,
};
use postrider_sqlite::SqliteStore;

pub use serve::{ServeError, serve};
pub use settings::Settings;
pub use topic::{TopicEvent, TopicSubscription, WebhookDLQEvent, WebhookDeliveredEvent};

/// How long a delivery waits after each failure. There are as many attempts as delays, and the fifth failure is final:
/// the last delay is there because the document has it, and would be waited before a sixth attempt.
pub const RETRY_SCHEDULE_SECONDS: [u64; 5] = [30, 120, 600, 3600, 21600];

/// How many attempts a delivery has.
pub const MAX_ATTEMPTS: u32 = 5;

/// What the headers of every delivery begin with; the signature is in `X-Observatory-Signature`.
pub const HEADER_PREFIX: &str = "X-Observatory-";

/// The gateway on its file.
#[derive(Debug)]
pub struct Gateway {
    store: SqliteStore,
    feed: Feed,
    settings: Settings,
}

/// Why the gateway cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The key that encrypts the webhooks' secrets cannot be had.
    #[error(transparent)]
    Key(#[from] key::KeyError),
    /// The file cannot be worked with.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Gateway {
    /// Opens the file, makes what is missing in it, and begins to follow what is announced.
    pub async fn open(settings: Settings) -> Result<Self, OpenError> {
        let store = SqliteStore::open(&settings.database)?
            .with_keyring(key::keyring(&settings)?)
            .with_admission(Admission { destinations: settings.destinations.clone(), ..Admission::default() });
        store.migrate().await?;
        sessions::create_tables(&store).await?;
        let page = PageRequest::default();
        let webhooks = store.endpoints(&EndpointFilter::default(), &page).await?;
        if let Some(webhook) = webhooks.items.iter().find(|webhook| webhook.lacks_our_key()) {
            return Err(key::KeyError::wrong(&settings, webhook.id).into());
        }
        let feed = Feed::start(Arc::new(store.clone())).await?;
        Ok(Self { store, feed, settings })
    }

    /// The `WebhookRouter`: polls for what is due, makes one signed attempt each, and settles it by the schedule.
    pub fn webhook_router(&self) -> Result<Dispatcher, InvalidDispatcher> {
        Dispatcher::builder(Arc::new(self.store.clone()))
            .retry_policy(retry_policy())
            .signature(signature())
            .destinations(self.settings.destinations.clone())
            // The dead letter is the gateway's answer to a receiver that keeps failing.
            .disable_after(None)
            .poll_interval(self.settings.poll_interval)
            .timeout(self.settings.timeout)
            .drain_timeout(self.settings.drain_timeout)
            .build()
    }

    /// Hears what is broadcast on the topic from now on.
    pub fn subscribe(&self) -> TopicSubscription {
        TopicSubscription::new(self.feed.subscribe(topic::TOPIC))
    }

    /// The store.
    pub fn store(&self) -> &SqliteStore {
        &self.store
    }
}

/// The document's schedule.
fn retry_policy() -> RetryPolicy {
    let policy = RetryPolicy::schedule(RETRY_SCHEDULE_SECONDS.map(Duration::from_secs), MAX_ATTEMPTS);
    policy.expect("five delays for five attempts are a policy")
}

/// `X-Observatory-Signature: sha256=<hex>` over the body alone.
fn signature() -> SignatureScheme {
    SignatureScheme::hmac_sha256_hex(HEADER_PREFIX, Signed::Body).expect("the prefix can begin a header")
}

/// Which rows a listing wants, as its caller wrote it.
fn page(limit: Option<u32>, cursor: Option<&str>) -> Result<PageRequest, Refusal> {
    let cursor = cursor.map(str::parse).transpose()?;
    PageRequest::new(limit.unwrap_or_else(|| PageRequest::default().limit()), cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doc_003_main_flow_5_failures_one_to_four_wait_by_the_schedule_and_the_fifth_is_the_last() {
        let seconds: Vec<u64> = retry_policy().delays().map(|delay| delay.as_secs()).collect();
        assert_eq!(seconds, [30, 120, 600, 3600]);
        assert_eq!(retry_policy().scheduled_delay(5), None);
        assert!(retry_policy().jitter().abs() < f64::EPSILON, "the schedule is exact");
    }
}
