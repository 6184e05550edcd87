//! Announcements over the wire, as server-sent events.

use jiff::Timestamp;
use postrider::{DeliveryId, EndpointId, EventId, Fact, Metadata};
use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use super::schemas;

/// Which announcements to follow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct StreamQuery {
    /// Only those on this topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "postrider")]
    pub topic: Option<String>,
    /// Only this fact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(schema_with = fact)]
    pub fact: Option<String>,
    /// Go on after this place: the `id` of the last event that was seen. The header `Last-Event-ID` goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "4711")]
    pub after: Option<String>,
}

/// One fact about one delivery: the `data` of a server-sent event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Announcement {
    /// Whose it is.
    #[schema(example = "default")]
    pub tenant: String,
    /// The event's topic.
    #[schema(example = "postrider")]
    pub topic: String,
    /// What happened; also the `event` of the server-sent event.
    #[schema(schema_with = fact)]
    pub fact: String,
    /// To which delivery.
    #[schema(schema_with = schemas::delivery_id)]
    pub delivery_id: DeliveryId,
    /// Of which event.
    #[schema(schema_with = schemas::event_id)]
    pub event_id: EventId,
    /// To which endpoint; null when the event named its own destination.
    #[schema(value_type = Option<String>, example = "ep_01jd8x4k2hf4xr5zt3yq7m9nbw")]
    pub endpoint_id: Option<EndpointId>,
    /// After how many attempts.
    pub attempt_count: u32,
    /// What the event's sender attached.
    #[schema(value_type = Object)]
    pub metadata: Metadata,
    /// When, by the database's clock.
    pub at: Timestamp,
}

impl From<postrider::Announcement> for Announcement {
    fn from(announcement: postrider::Announcement) -> Self {
        Self {
            tenant: announcement.tenant,
            topic: announcement.topic,
            fact: announcement.fact.to_string(),
            delivery_id: announcement.delivery_id,
            event_id: announcement.event_id,
            endpoint_id: announcement.endpoint_id,
            attempt_count: announcement.attempt_count,
            metadata: announcement.metadata,
            at: announcement.at,
        }
    }
}

fn fact() -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(Fact::ALL.map(Fact::as_str))).build()
}
