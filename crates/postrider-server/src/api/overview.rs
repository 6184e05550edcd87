//! How everything stands.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many deliveries are where, of one tenant or of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overview {
    /// No attempt has been made yet.
    pub pending: u64,
    /// The last attempt failed, another one is scheduled.
    pub failed: u64,
    /// Done.
    pub delivered: u64,
    /// Dead letters, which wait for an operator.
    pub dead: u64,
    /// Stopped by an operator.
    pub cancelled: u64,
    /// Ready to be attempted.
    pub due: u64,
    /// Being attempted.
    pub in_flight: u64,
    /// Waiting for their time.
    pub scheduled: u64,
    /// How long the oldest of those that are due has been so; null when none is.
    pub oldest_due_age_ms: Option<u64>,
    /// What happened in the last minute.
    pub rates: Rates,
    /// When this was counted. Counting takes time, so an answer may be a little old.
    pub counted_at: Timestamp,
}

/// What happened in the last minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Attempts that ended a delivery well.
    pub delivered_per_minute: u64,
    /// Attempts that failed and will be followed by another.
    pub failed_per_minute: u64,
    /// Deliveries that died.
    pub dead_per_minute: u64,
}
