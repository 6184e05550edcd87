//! The audit trail over the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// One thing that an operator did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its place in the trail, by time.
    #[schema(value_type = String, example = "0190a5d2-7f3c-7c1a-9a52-3b6f0c1d2e3f")]
    pub id: Uuid,
    /// When.
    pub at: Timestamp,
    /// Whose thing it was done to; null for what belongs to all.
    #[schema(example = "default")]
    pub tenant: Option<String>,
    /// Who: the name and id of a key.
    pub operator: String,
    /// What: `delivery.retry`, `endpoint.pause`, `key.create`.
    #[schema(example = "delivery.retry")]
    pub action: String,
    /// To which: an id, or the subject of a once-only claim.
    #[schema(example = "dlv_01jd8x4k2hf4xr5zt3yq7m9nbw")]
    pub subject: String,
    /// Why, where a reason was given.
    pub reason: Option<String>,
}

impl From<postrider::store::AuditEntry> for AuditEntry {
    fn from(entry: postrider::store::AuditEntry) -> Self {
        Self {
            id: entry.id,
            at: entry.at,
            tenant: entry.tenant,
            operator: entry.operator,
            action: entry.action,
            subject: entry.subject,
            reason: entry.reason,
        }
    }
}
