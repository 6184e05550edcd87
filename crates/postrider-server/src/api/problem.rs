//! How everything that goes wrong is told: RFC 9457, with a stable code.

use postrider::store::Forbidden;
use postrider::{EnqueueError, Refusal, StoreError, StoreErrorCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem: `https://postrider.dev/problems/` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status, in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Stable, for programs.
    pub code: String,
    /// For people: what is wrong with which value.
    pub detail: String,
    /// What to do about it, where there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What is wrong with which field.
    #[serde(default)]
    pub errors: Vec<FieldProblem>,
    /// Under which the server's log tells of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// What the database's driver said, for the log and for whoever has the database at hand. It does not go over the wire.
    #[serde(skip)]
    pub cause: Option<String>,
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldProblem {
    /// Which one.
    pub field: String,
    /// Stable, for programs.
    pub code: String,
    /// For people.
    pub detail: String,
}

impl Problem {
    /// A problem with this status and code.
    pub fn new(status: u16, code: impl Into<String>, detail: impl Into<String>) -> Self {
        let code = code.into();
        let title = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        Self {
            kind: format!("https://postrider.dev/problems/{code}"),
            title: title.unwrap_or("Error").to_owned(),
            status,
            code,
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            request_id: None,
            cause: None,
        }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same, and that it is about this field.
    #[must_use]
    pub fn about(mut self, field: impl Into<String>) -> Self {
        let (code, detail) = (self.code.clone(), self.detail.clone());
        self.errors.push(FieldProblem { field: field.into(), code, detail });
        self
    }

    /// The same, about one of several: each field is told with the place of what it is part of.
    #[must_use]
    pub fn within(mut self, at: usize) -> Self {
        for error in &mut self.errors {
            error.field = format!("[{at}].{}", error.field);
        }
        self.detail = format!("[{at}]: {}", self.detail);
        self
    }

    /// There is no such thing, or it is somebody else's, which nobody is told.
    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(404, format!("{what}_not_found"), format!("there is no {what} {id}"))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = if refusal.code == "payload_too_large" { 413 } else { 422 };
        let error = FieldProblem {
            field: refusal.field.to_owned(),
            code: refusal.code.to_owned(),
            detail: refusal.detail.clone(),
        };
        Self { hint: refusal.hint, errors: vec![error], ..Self::new(status, refusal.code, refusal.detail) }
    }
}

impl From<Forbidden> for Problem {
    fn from(forbidden: Forbidden) -> Self {
        Self::new(409, forbidden.code(), forbidden.to_string())
    }
}

impl From<EnqueueError> for Problem {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Refused(refusal) => refusal.into(),
            EnqueueError::IdempotencyConflict { ref event_id, .. } => Self::new(
                409,
                "idempotency_conflict",
                format!("the idempotency key belongs to {event_id}, whose content differs"),
            )
            .hint("use a new key for new content, or send exactly what was sent before"),
            EnqueueError::Store(error) => error.into(),
        }
    }
}

/// What a store's driver said is the problem's cause, which is not for whoever asks over the wire.
impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = match error.code {
            StoreErrorCode::Unavailable => "the database cannot be reached",
            StoreErrorCode::Busy => "the database is too busy",
            StoreErrorCode::Contended => {
                "another transaction, which has not ended yet, holds the idempotency key or the subject"
            }
            StoreErrorCode::Full => "the database's disk is full",
            StoreErrorCode::Conflict => "a concurrent change got in the way",
            StoreErrorCode::Schema => "the database's schema is not the one that this server knows",
            StoreErrorCode::Locked => "another process has what only one may have",
            StoreErrorCode::SecretKey => "the server's secret_key does not fit the database",
            StoreErrorCode::Internal => "something went wrong in the database",
        };
        let status = if error.code.is_transient() { 503 } else { 500 };
        let cause = Some(error.message).filter(|message| !message.is_empty());
        let problem = Self { cause, ..Self::new(status, error.code.as_str(), detail) };
        if error.code.is_transient() { problem.hint("try again later") } else { problem }
    }
}
