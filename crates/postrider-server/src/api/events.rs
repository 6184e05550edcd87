//! Events over the wire. Payloads are raw slices of JSON in both directions, so that their bytes stay as they are.

use std::fmt;

use jiff::Timestamp;
use postrider::{DeliveryId, DeliveryStatus, EndpointId, EventId, Metadata};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::{object, schemas};

/// An event to be enqueued.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EventRequest {
    /// What happened: parts of letters, digits and `_ - : /`, joined by dots.
    #[serde(rename = "type")]
    #[schema(max_length = 255, pattern = "^[A-Za-z0-9_:/-]+([.][A-Za-z0-9_:/-]+)*$", example = "invoice.paid")]
    pub event_type: String,
    /// What receivers get.
    #[schema(schema_with = schemas::payload)]
    pub payload: Box<RawValue>,
    /// To this URL only. Without it, and without `endpoint_id`, the event goes to every endpoint that wants its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "https://hooks.example.com/billing")]
    pub destination_url: Option<String>,
    /// To this endpoint only, whatever event types it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schemas::endpoint_id)]
    pub endpoint_id: Option<EndpointId>,
    /// Not before this instant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<Timestamp>,
    /// Only if this subject is not claimed yet.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub once: Option<OnceRequest>,
    /// Travels with announcements, never to the receiver. At most 16 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({"customer": "cus_9"}))]
    pub metadata: Option<Metadata>,
    /// Where facts about its deliveries are announced; `postrider` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub topic: Option<String>,
    /// The same as the header `Idempotency-Key`, for batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub idempotency_key: Option<String>,
}

impl EventRequest {
    /// An event of this type with this payload.
    pub fn new(event_type: impl Into<String>, payload: Box<RawValue>) -> Self {
        Self {
            event_type: event_type.into(),
            payload,
            destination_url: None,
            endpoint_id: None,
            deliver_at: None,
            once: None,
            metadata: None,
            topic: None,
            idempotency_key: None,
        }
    }
}

/// Without the payload.
impl fmt::Debug for EventRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRequest")
            .field("event_type", &self.event_type)
            .field("payload_bytes", &self.payload.get().len())
            .field("destination_url", &self.destination_url)
            .finish_non_exhaustive()
    }
}

/// What an event claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OnceRequest {
    /// What there is to tell of, once.
    #[schema(max_length = 255, pattern = "^[!-~]([ -~]*[!-~])?$", example = "plan/123")]
    pub subject: String,
    /// Only in this generation of the subject; otherwise in the current one, whichever it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub generation: Option<u64>,
}

/// What became of an enqueue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnqueuedEvent {
    /// The event: the new one, the one found under the same idempotency key, or the one that has claimed the subject.
    /// Null when the generation that was asked for is over and nobody has claimed the current one.
    #[schema(schema_with = nullable_event_id, required)]
    pub id: Option<EventId>,
    /// Its type.
    #[serde(rename = "type")]
    #[schema(example = "invoice.paid")]
    pub event_type: String,
    /// When it was enqueued. Null when it is older than the retention.
    #[schema(required)]
    pub created_at: Option<Timestamp>,
    /// It was there before, under the same idempotency key. Nothing was written.
    pub duplicate: bool,
    /// Whether the subject was claimed; only there when `once` was asked for. Where it is false, nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<bool>,
    /// The subject's current generation; only there when it could not be claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// One per destination; none when no endpoint wants the type.
    pub deliveries: Vec<EventDelivery>,
}

fn nullable_event_id() -> utoipa::openapi::Schema {
    use utoipa::openapi::{ObjectBuilder, OneOfBuilder, Type};
    let null = ObjectBuilder::new().schema_type(Type::Null);
    OneOfBuilder::new().item(schemas::event_id()).item(null).build().into()
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EnqueuedBatch {
    /// One for each event, in their order.
    pub data: Vec<EnqueuedEvent>,
}

/// One of an event's deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventDelivery {
    /// Its id.
    #[schema(schema_with = schemas::delivery_id)]
    pub id: DeliveryId,
    /// Where it goes.
    #[schema(example = "https://hooks.example.com/billing")]
    pub destination_url: String,
    /// How it stands.
    #[schema(schema_with = schemas::delivery_status)]
    pub status: DeliveryStatus,
}

impl From<postrider::EventDelivery> for EventDelivery {
    fn from(delivery: postrider::EventDelivery) -> Self {
        Self { id: delivery.id, destination_url: delivery.destination_url, status: delivery.status }
    }
}

/// An event as it is kept.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its id; receivers see it as `webhook-id`.
    #[schema(schema_with = schemas::event_id)]
    pub id: EventId,
    /// Whose it is.
    #[schema(example = "default")]
    pub tenant: String,
    /// What happened.
    #[serde(rename = "type")]
    #[schema(example = "invoice.paid")]
    pub event_type: String,
    /// What receivers get.
    #[schema(schema_with = schemas::payload)]
    pub payload: Box<RawValue>,
    /// Travels with announcements.
    #[schema(value_type = Object)]
    pub metadata: Metadata,
    /// Where its deliveries are announced.
    #[schema(example = "postrider")]
    pub topic: String,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Its deliveries, oldest first.
    pub deliveries: Vec<EventDelivery>,
}

/// Without the payload.
impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("id", &self.id).field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl From<postrider::Event> for Event {
    fn from(event: postrider::Event) -> Self {
        let text = String::from_utf8_lossy(&event.payload).into_owned();
        Self {
            id: event.id,
            tenant: event.tenant,
            event_type: event.event_type,
            payload: raw(text),
            metadata: event.metadata,
            topic: event.topic,
            created_at: event.created_at,
            deliveries: event.deliveries.into_iter().map(EventDelivery::from).collect(),
        }
    }
}

/// What was admitted is JSON. If a row is not, because somebody has changed it, then it is shown as text.
fn raw(text: String) -> Box<RawValue> {
    let quoted = serde_json::Value::String(text.clone()).to_string();
    RawValue::from_string(text).or_else(|_| RawValue::from_string(quoted)).expect("a quoted string is JSON")
}

/// Which events to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Of exactly this type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[param(example = "invoice.paid")]
    pub event_type: Option<String>,
    /// Enqueued at or after this instant: `2026-02-21T12:00:00Z`, or that long ago: `1h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "1h")]
    pub since: Option<String>,
    /// Enqueued before this instant, or that long ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "2026-02-21T12:00:00Z")]
    pub until: Option<String>,
    /// At most this many; fewer are answered when their payloads are large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 250, default = 50)]
    pub limit: Option<u32>,
    /// Where the page before this one ended: its `next_cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
