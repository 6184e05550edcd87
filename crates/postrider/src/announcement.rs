//! Announcements: facts about deliveries, told to whoever follows them.
//!
//! Stores record an announcement in the transaction that makes it true. A [`Feed`] reads what was recorded, by this
//! process or by any other on the same database, and hands it to in-process subscribers. A subscriber that does not
//! keep up loses announcements, and is told how many; it never slows a delivery.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;

use crate::event::Metadata;
use crate::ids::{DeliveryId, EndpointId, EventId};
use crate::refusal::Refusal;

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
