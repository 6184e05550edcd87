//! A refusal: input that is not taken, with a stable code, the field it is about, and what to do.

use std::fmt;

use serde::Serialize;

/// Why something was not accepted. A value, not a fault: nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Refusal {
    /// Stable, for programs: `destination_private_address`.
    pub code: &'static str,
    /// Which input: `destination_url`.
    pub field: &'static str,
    /// For people: what is wrong with which value. Never contains a payload or a secret.
    pub detail: String,
    /// What to do about it, where there is something to do.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal of `field` for the reason `code`.
    pub fn new(code: &'static str, field: &'static str, detail: impl Into<String>) -> Self {
        Self { code, field, detail: detail.into(), hint: None }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}
