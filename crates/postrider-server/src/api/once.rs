//! Once-only claims over the wire.

use jiff::Timestamp;
use postrider::EventId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::schemas;

/// How a subject stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OnceClaim {
    /// Whose it is.
    #[schema(example = "default")]
    pub tenant: String,
    /// The subject.
    #[schema(example = "plan/123")]
    pub subject: String,
    /// The current generation, counted from 1.
    #[schema(minimum = 1)]
    pub generation: u64,
    /// The event that claimed it in this generation; null when none has yet.
    pub winner: Option<OnceWinner>,
}

/// The event that claimed a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OnceWinner {
    /// Which one.
    #[schema(schema_with = schemas::event_id)]
    pub event_id: EventId,
    /// Its type.
    #[schema(example = "plan.due")]
    pub event_type: String,
    /// When.
    pub claimed_at: Timestamp,
}

impl From<postrider::OnceClaim> for OnceClaim {
    fn from(claim: postrider::OnceClaim) -> Self {
        let winner = claim.winner.map(|winner| OnceWinner {
            event_id: winner.event_id,
            event_type: winner.event_type,
            claimed_at: winner.claimed_at,
        });
        Self { tenant: claim.tenant, subject: claim.subject, generation: claim.generation, winner }
    }
}
