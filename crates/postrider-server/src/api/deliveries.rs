//! Deliveries over the wire.

use jiff::Timestamp;
use postrider::{DeliveryId, DeliveryStatus, EndpointId, EventId, OutcomeKind};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use super::schemas;

/// One event to one destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Its id.
    #[schema(schema_with = schemas::delivery_id)]
    pub id: DeliveryId,
    /// Whose it is.
    #[schema(example = "default")]
    pub tenant: String,
    /// The event it carries.
    #[schema(schema_with = schemas::event_id)]
    pub event_id: EventId,
    /// The event's type.
    #[schema(example = "invoice.paid")]
    pub event_type: String,
    /// The endpoint it was fanned out to; null when the event named its own destination.
    #[schema(value_type = Option<String>, example = "ep_01jd8x4k2hf4xr5zt3yq7m9nbw")]
    pub endpoint_id: Option<EndpointId>,
    /// Where it goes; frozen when the event was enqueued.
    #[schema(example = "https://hooks.example.com/billing")]
    pub destination_url: String,
    /// How it stands.
    #[schema(schema_with = schemas::delivery_status)]
    pub status: DeliveryStatus,
    /// Attempts in this round; an operator's retry of a settled delivery starts a new round from 0.
    pub attempt_count: u32,
    /// Attempts in earlier rounds.
    pub earlier_attempts: u32,
    /// Attempts in a row of which the worker never reported anything.
    pub abandoned_count: u32,
    /// When it is due, while it is not settled.
    pub next_attempt_at: Option<Timestamp>,
    /// When the last attempt ended.
    pub last_attempted_at: Option<Timestamp>,
    /// Why the last attempt failed, or why it is dead or cancelled.
    pub error_detail: Option<String>,
    /// The worker that has it in flight.
    pub lease_owner: Option<String>,
    /// Until when others keep off.
    pub lease_until: Option<Timestamp>,
    /// When it was enqueued.
    pub created_at: Timestamp,
}

impl From<postrider::Delivery> for Delivery {
    fn from(delivery: postrider::Delivery) -> Self {
        Self {
            id: delivery.id,
            tenant: delivery.tenant,
            event_id: delivery.event_id,
            event_type: delivery.event_type,
            endpoint_id: delivery.endpoint_id,
            destination_url: delivery.destination_url,
            status: delivery.status,
            attempt_count: delivery.attempt_count,
            earlier_attempts: delivery.earlier_attempts,
            abandoned_count: delivery.abandoned_count,
            next_attempt_at: delivery.next_attempt_at,
            last_attempted_at: delivery.last_attempted_at,
            error_detail: delivery.error_detail,
            lease_owner: delivery.lease_owner,
            lease_until: delivery.lease_until,
            created_at: delivery.created_at,
        }
    }
}

/// One POST and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// 1-based over all rounds: what the receiver saw as `postrider-attempt`.
    pub number: u32,
    /// When it began, by the database's clock.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u32,
    /// What happened: the receiver answered, or why it did not.
    #[schema(schema_with = schemas::outcome)]
    pub outcome: OutcomeKind,
    /// The answer's status, if there was one.
    #[schema(example = 503)]
    pub status_code: Option<u16>,
    /// The first bytes of the answer's body.
    pub response_excerpt: Option<String>,
    /// Why it failed.
    pub error_detail: Option<String>,
    /// The worker that made it.
    pub worker_id: String,
}

impl From<postrider::Attempt> for Attempt {
    fn from(attempt: postrider::Attempt) -> Self {
        Self {
            number: attempt.number,
            started_at: attempt.started_at,
            duration_ms: attempt.duration_ms,
            outcome: attempt.outcome,
            status_code: attempt.status_code,
            response_excerpt: attempt.response_excerpt,
            error_detail: attempt.error_detail,
            worker_id: attempt.worker_id,
        }
    }
}

/// A delivery with its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryDetail {
    /// The delivery.
    #[serde(flatten)]
    pub delivery: Delivery,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
}

impl From<postrider::DeliveryDetail> for DeliveryDetail {
    fn from(detail: postrider::DeliveryDetail) -> Self {
        Self { delivery: detail.delivery.into(), attempts: detail.attempts.into_iter().map(Attempt::from).collect() }
    }
}

/// Which deliveries to list. Filters narrow together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeliveryQuery {
    /// Only those in this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(schema_with = schemas::delivery_status)]
    pub status: Option<String>,
    /// Only those to this endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "ep_01jd8x4k2hf4xr5zt3yq7m9nbw")]
    pub endpoint_id: Option<String>,
    /// Only those of this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "evt_01jd8x4k2hf4xr5zt3yq7m9nbw")]
    pub event_id: Option<String>,
    /// Only those of events of exactly this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "invoice.paid")]
    pub event_type: Option<String>,
    /// Created at or after this instant: `2026-02-21T12:00:00Z`, or that long ago: `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "1h")]
    pub since: Option<String>,
    /// Created before this instant, or that long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "2026-02-21T12:00:00Z")]
    pub until: Option<String>,
    /// How many: 1 to 250, 50 if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 250)]
    pub limit: Option<u32>,
    /// The `next_cursor` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Why a delivery is cancelled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// For people; it is shown with the delivery, and in the audit trail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "the customer has left", max_length = 1000)]
    pub reason: Option<String>,
}

/// Which deliveries to retry at once, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkRetry {
    /// `dead`, `failed` or `cancelled`; required, so that nobody retries everything by mistake.
    #[schema(schema_with = retryable_status)]
    pub status: String,
    /// Only those to this endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "ep_01jd8x4k2hf4xr5zt3yq7m9nbw")]
    pub endpoint_id: Option<String>,
    /// Only those of this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "evt_01jd8x4k2hf4xr5zt3yq7m9nbw")]
    pub event_id: Option<String>,
    /// Only those of events of exactly this type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "invoice.paid")]
    pub event_type: Option<String>,
    /// Created at or after this instant: `2026-02-21T12:00:00Z`, or that long ago: `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1h")]
    pub since: Option<String>,
    /// Created before this instant, or that long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2026-02-21T12:00:00Z")]
    pub until: Option<String>,
    /// Only tell how many match.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// At most this many: 1 to 10,000, which is also what it is if it is left out. Ask again for the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub limit: Option<u32>,
}

/// What a retry of many did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BulkRetried {
    /// How many matched before any was retried.
    pub matched: u64,
    /// How many are due now because of it.
    pub retried: u64,
}

fn retryable_status() -> Object {
    let retryable = [DeliveryStatus::Dead, DeliveryStatus::Failed, DeliveryStatus::Cancelled];
    let names = retryable.map(DeliveryStatus::as_str);
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).build()
}
