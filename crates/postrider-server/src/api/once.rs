//! Once-only claims over the wire.

use jiff::Timestamp;
use postrider::EventId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

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

/// Which subjects to list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct OnceQuery {
    /// Those that begin with this, to the letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "plan/", min_length = 1, max_length = 255)]
    pub prefix: Option<String>,
    /// How many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 250, default = 50)]
    pub limit: Option<u32>,
    /// Where the page before ended: its `next_cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
