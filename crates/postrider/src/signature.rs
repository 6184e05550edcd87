//! Signatures.

use serde::{Deserialize, Serialize};

/// How a payload is signed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureScheme {
    /// Standard Webhooks.
    #[default]
    Standard,
}
