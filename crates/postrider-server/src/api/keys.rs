//! API keys over the wire.

use jiff::Timestamp;
use postrider::{KeyId, Scope};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::endpoints::{Confidential, Patched};
use super::schemas;

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// For people: whose it is, what it is for.
    #[schema(example = "billing service", min_length = 1, max_length = 255)]
    pub name: String,
    /// The one tenant it is for; null for all tenants; the caller's own if it is left out.
    #[serde(default, skip_serializing_if = "Patched::is_unchanged")]
    #[schema(value_type = Option<String>, example = "acme")]
    pub tenant: Patched<String>,
    /// What it permits; each scope includes those before it: `read`, `write`, `admin`.
    #[schema(schema_with = schemas::scope)]
    pub scope: String,
}

/// A key, without the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// Its id.
    #[schema(schema_with = schemas::key_id)]
    pub id: KeyId,
    /// For people.
    #[schema(example = "billing service")]
    pub name: String,
    /// The one tenant it is for; null for all tenants.
    #[schema(example = "acme")]
    pub tenant: Option<String>,
    /// What it permits.
    #[schema(schema_with = schemas::scope)]
    pub scope: Scope,
    /// When it was made.
    pub created_at: Timestamp,
    /// Since when it opens nothing.
    pub revoked_at: Option<Timestamp>,
}

impl From<postrider::ApiKey> for Key {
    fn from(key: postrider::ApiKey) -> Self {
        Self {
            id: key.id,
            name: key.name,
            tenant: key.tenant,
            scope: key.scope,
            created_at: key.created_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// A key as it is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// What is known about it.
    #[serde(flatten)]
    pub about: Key,
    /// The key itself. Keep it; it is not shown again.
    #[schema(value_type = String, example = "prk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYq")]
    pub key: Confidential,
}

/// Which part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// How many: 1 to 250, 50 if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 250)]
    pub limit: Option<u32>,
    /// The `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
