//! Announcements: facts about deliveries, told to whoever follows them.
//!
//! Stores record an announcement in the transaction that makes it true. A [`Feed`] reads what was recorded, by this
//! process or by any other on the same database, and hands it to in-process subscribers. A subscriber that does not
//! keep up loses announcements, and is told how many; it never slows a delivery.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use crate::event::Metadata;
use crate::ids::{DeliveryId, EndpointId, EventId};
use crate::refusal::Refusal;
use crate::store::{FeedPlace, Store, StoreError};

/// What is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fact {
    /// A receiver answered with a 2xx.
    Delivered,
    /// An attempt failed, another one is scheduled.
    Failed,
    /// It is a dead letter now.
    Dead,
    /// An operator stopped it.
    Cancelled,
    /// The endpoint said that it is gone.
    EndpointDisabled,
}

impl Fact {
    /// Every fact.
    pub const ALL: [Self; 5] = [Self::Delivered, Self::Failed, Self::Dead, Self::Cancelled, Self::EndpointDisabled];

    /// Its name, in SQL, JSON and server-sent events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivery.delivered",
            Self::Failed => "delivery.failed",
            Self::Dead => "delivery.dead",
            Self::Cancelled => "delivery.cancelled",
            Self::EndpointDisabled => "endpoint.disabled",
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Fact {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|fact| fact.as_str() == text).ok_or_else(|| {
            Refusal::new("fact_invalid", "fact", format!("`{}` is not announced", text.escape_default()))
        })
    }
}

impl Serialize for Fact {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One fact about one delivery.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Announcement {
    /// Its place in the store's record; what a follower resumes after.
    pub position: i64,
    /// Whose it is.
    pub tenant: String,
    /// The event's topic.
    pub topic: String,
    /// What happened.
    pub fact: Fact,
    /// To which delivery.
    pub delivery_id: DeliveryId,
    /// Of which event.
    pub event_id: EventId,
    /// To which endpoint.
    pub endpoint_id: Option<EndpointId>,
    /// After how many attempts.
    pub attempt_count: u32,
    /// What the event's sender attached.
    pub metadata: Metadata,
    /// When, by the database's clock.
    pub at: Timestamp,
}

/// How many announcements wait for a slow subscriber before it loses the oldest.
const SUBSCRIBER_BACKLOG: usize = 4096;

/// How many announcements are read at once.
const READ_AT_ONCE: u32 = 500;

/// Follows what a store announces, and tells it to subscribers in this process.
///
/// ```no_run
/// # async fn example(store: std::sync::Arc<dyn postrider::Store>) -> Result<(), Box<dyn std::error::Error>> {
/// use postrider::{Fact, Feed, Heard};
///
/// let feed = Feed::start(store).await?;
/// let mut subscription = feed.subscribe("postrider");
/// while let Some(heard) = subscription.next().await {
///     match heard {
///         Heard::Announcement(fact) if fact.fact == Fact::Dead => println!("{} is dead", fact.delivery_id),
///         Heard::Announcement(_) => {}
///         Heard::Missed(count) => println!("too slow: missed {count}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Feed {
    sender: broadcast::Sender<Arc<Announcement>>,
    task: JoinHandle<()>,
}

impl Feed {
    /// Follows everything that is announced from now on, by any process on the store's database.
    pub async fn start(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let place = store.announcements_end().await?;
        Ok(Self::start_after(store, place))
    }

    /// Follows everything that is announced after a place.
    pub fn start_after(store: Arc<dyn Store>, place: FeedPlace) -> Self {
        let (sender, _) = broadcast::channel(SUBSCRIBER_BACKLOG);
        let task = tokio::spawn(follow(store, place, sender.clone()));
        Self { sender, task }
    }

    /// Hears what is announced on `topic` from now on.
    pub fn subscribe(&self, topic: impl Into<String>) -> Subscription {
        Subscription { receiver: self.sender.subscribe(), topic: Some(topic.into()) }
    }

    /// Hears every topic.
    pub fn subscribe_all(&self) -> Subscription {
        Subscription { receiver: self.sender.subscribe(), topic: None }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(store: Arc<dyn Store>, mut place: FeedPlace, sender: broadcast::Sender<Arc<Announcement>>) {
    const POLL: Duration = Duration::from_secs(1);
    loop {
        match store.announcements(&place, READ_AT_ONCE).await {
            Ok(announced) => {
                let full = announced.announcements.len() >= READ_AT_ONCE as usize;
                place = announced.place;
                for announcement in announced.announcements {
                    // Nobody listening is fine.
                    let _ = sender.send(Arc::new(announcement));
                }
                if !full {
                    store.wait_announced(POLL).await;
                }
            }
            Err(error) => {
                tracing::warn!(code = %error.code, "announcements cannot be read: {}", error.message);
                tokio::time::sleep(POLL).await;
            }
        }
    }
}

/// What a subscriber hears.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// A fact.
    Announcement(Arc<Announcement>),
    /// The subscriber was too slow: this many announcements, of all topics, passed it by.
    Missed(u64),
}

/// One subscriber's end of a [`Feed`].
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Announcement>>,
    topic: Option<String>,
}

impl Subscription {
    /// Waits for the next announcement on the topic; none when the feed is gone.
    pub async fn next(&mut self) -> Option<Heard> {
        loop {
            match self.receiver.recv().await {
                Ok(announcement) if self.topic.as_ref().is_none_or(|topic| *topic == announcement.topic) => {
                    return Some(Heard::Announcement(announcement));
                }
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(count)) => return Some(Heard::Missed(count)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
