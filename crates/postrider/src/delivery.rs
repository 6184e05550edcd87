//! Deliveries: one event to one destination, and the attempts made at it.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::{DeliveryId, EndpointId, EventId};
use crate::outcome::OutcomeKind;
use crate::refusal::Refusal;

/// How a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryStatus {
    /// No attempt has been made in this round.
    Pending,
    /// The last attempt failed, another one is scheduled.
    Failed,
    /// A receiver answered with a 2xx.
    Delivered,
    /// No more attempts; waits for an operator.
    Dead,
    /// An operator stopped it.
    Cancelled,
}

impl DeliveryStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Failed, Self::Delivered, Self::Dead, Self::Cancelled];

    /// Its name, in SQL, JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Failed => "failed",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Nothing but an operator changes it any more.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Delivered | Self::Dead | Self::Cancelled)
    }
}

impl fmt::Display for DeliveryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DeliveryStatus {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Refusal::new("status_invalid", "status", format!("`{}` is not a delivery status", shown.escape_default()))
                .hint("use pending, failed, delivered, dead or cancelled")
        })
    }
}

/// A delivery as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// Whose it is.
    pub tenant: String,
    /// The event it carries.
    pub event_id: EventId,
    /// The event's type.
    pub event_type: String,
    /// The endpoint it was fanned out to.
    pub endpoint_id: Option<EndpointId>,
    /// Where it goes; frozen when the event was enqueued.
    pub destination_url: String,
    /// How it stands.
    pub status: DeliveryStatus,
    /// Attempts settled in this round; an operator's retry starts a new round from 0.
    pub attempt_count: u32,
    /// Attempts settled in earlier rounds.
    pub earlier_attempts: u32,
    /// Claims that expired unsettled, in a row.
    pub abandoned_count: u32,
    /// When it is due, while it is not settled.
    pub next_attempt_at: Option<Timestamp>,
    /// When the last attempt was settled.
    pub last_attempted_at: Option<Timestamp>,
    /// Why the last attempt failed, or why it is dead or cancelled.
    pub error_detail: Option<String>,
    /// Who holds its lease.
    pub lease_owner: Option<String>,
    /// Until when others keep off.
    pub lease_until: Option<Timestamp>,
    /// When it was enqueued.
    pub created_at: Timestamp,
}

/// One POST and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// 1-based over all rounds: what the receiver saw as `postrider-attempt`.
    pub number: u32,
    /// When it began, by the database's clock.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u32,
    /// What happened.
    pub outcome: OutcomeKind,
    /// The response's status, if there was one.
    pub status_code: Option<u16>,
    /// The first bytes of the response's body.
    pub response_excerpt: Option<String>,
    /// Why it failed.
    pub error_detail: Option<String>,
    /// Who made it.
    pub worker_id: String,
}

/// A delivery with its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeliveryDetail {
    /// The delivery.
    #[serde(flatten)]
    pub delivery: Delivery,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
}

/// Which deliveries to look at; what is not given does not narrow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Of this tenant.
    pub tenant: Option<String>,
    /// In this status.
    pub status: Option<DeliveryStatus>,
    /// To this endpoint.
    pub endpoint_id: Option<EndpointId>,
    /// Of this event.
    pub event_id: Option<EventId>,
    /// Of events of exactly this type.
    pub event_type: Option<String>,
    /// Created at or after.
    pub since: Option<Timestamp>,
    /// Created before.
    pub until: Option<Timestamp>,
}

/// How many to list, and after which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    limit: u32,
    cursor: Option<Cursor>,
    most_looked_at: u32,
}

impl PageRequest {
    /// The most that one page has.
    pub const MAX_LIMIT: u32 = 250;

    /// How many rows are looked at for one page, if nothing else is said.
    pub const LOOKED_AT: u32 = 20_000;

    /// A page of `limit` (1 to 250) rows after `cursor`.
    pub fn new(limit: u32, cursor: Option<Cursor>) -> Result<Self, Refusal> {
        if (1..=Self::MAX_LIMIT).contains(&limit) {
            Ok(Self { limit, cursor, most_looked_at: Self::LOOKED_AT })
        } else {
            let detail = format!("limit is 1 to {}, not {limit}", Self::MAX_LIMIT);
            Err(Refusal::new("limit_invalid", "limit", detail))
        }
    }

    /// The same page, for which no more than this many rows are looked at, one at least. Where a filter matches few of many, a
    /// page then ends before its limit, or has no row at all, and says where to go on: what a page costs does not depend on
    /// how much there is.
    #[must_use]
    pub fn looking_at(self, most: u32) -> Self {
        Self { most_looked_at: most.max(1), ..self }
    }

    /// How many rows are looked at, at most.
    pub fn most_looked_at(&self) -> u32 {
        self.most_looked_at
    }

    /// How many rows.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// After which row.
    pub fn cursor(&self) -> Option<Cursor> {
        self.cursor
    }
}

impl Default for PageRequest {
    fn default() -> Self {
        Self { limit: 50, cursor: None, most_looked_at: Self::LOOKED_AT }
    }
}

/// Where a listing goes on. Lists are newest first, so rows that are written meanwhile do not shift it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub Uuid);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl FromStr for Cursor {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| Refusal::new("cursor_invalid", "cursor", "the cursor is not one that a listing returned"))
    }
}

/// Some rows, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The rows, newest first.
    pub items: Vec<T>,
    /// Where the next page begins, or none at the end.
    pub next: Option<Cursor>,
}
