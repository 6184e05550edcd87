//! Explanations over the wire.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a delivery is in the state it is, and what happens next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// In one paragraph.
    #[schema(example = "It is due in 4m 12s: the last of 2 attempts failed with HTTP 503, and 5 are allowed.")]
    pub summary: String,
    /// What that follows from, one sentence each.
    pub facts: Vec<String>,
}
