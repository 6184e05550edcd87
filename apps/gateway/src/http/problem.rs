//! Errors as answers.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postrider::{EnqueueError, Refusal, StoreError};
use serde::Serialize;

use crate::deliveries::ResetError;
use crate::sessions::SessionError;
use crate::webhooks::WebhookError;

/// Why a request was not done: `application/problem+json` with a stable code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The answer's status.
    pub status: u16,
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub detail: String,
    /// What to do about it, where there is something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Problem {
    /// A problem.
    pub fn new(status: u16, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), hint: None }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self)).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self { hint: refusal.hint, ..Self::new(422, refusal.code, refusal.detail) }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::warn!(code = %error.code, "the store failed: {}", error.message);
        let status = if error.code.is_transient() { 503 } else { 500 };
        Self::new(status, error.code.as_str(), "the gateway's database cannot be worked with right now")
    }
}

impl From<WebhookError> for Problem {
    fn from(error: WebhookError) -> Self {
        match error {
            WebhookError::Refused(refusal) => refusal.into(),
            WebhookError::Store(error) => error.into(),
        }
    }
}

impl From<SessionError> for Problem {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::NotFound => Self::new(404, "not_found", error.to_string()),
            SessionError::Ended => Self::new(409, "session_ended", error.to_string()),
            SessionError::Enqueue(EnqueueError::Refused(refusal)) => refusal.into(),
            SessionError::Enqueue(EnqueueError::Store(error)) | SessionError::Store(error) => error.into(),
            SessionError::Enqueue(EnqueueError::IdempotencyConflict { .. }) | SessionError::Sql(_) => {
                tracing::error!("a session was not written: {error}");
                Self::new(500, "internal", "the session was not written")
            }
        }
    }
}

impl From<ResetError> for Problem {
    fn from(error: ResetError) -> Self {
        match error {
            ResetError::NotFound => Self::new(404, "not_found", error.to_string()),
            ResetError::NotDead(_) => Self::new(409, "delivery_not_dead", error.to_string()),
            ResetError::WebhookRemoved => Self::new(409, "webhook_removed", error.to_string()),
            ResetError::Store(error) => error.into(),
        }
    }
}
