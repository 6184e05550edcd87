//! The topic `gateway:webhooks`.
//!
//! Postrider records an announcement in the transaction that makes it true, so a dead letter and its broadcast exist
//! together or not at all. Here announcements become the gateway's own events: the webhook is the endpoint that the
//! announcement names, and the session is in the metadata that the event was enqueued with.

use postrider::{Announcement, DeliveryId, EndpointId, Fact, Heard, NewEvent, Subscription};
use serde::Serialize;
use uuid::Uuid;

/// Where deliveries are broadcast.
pub const TOPIC: &str = "gateway:webhooks";

const SESSION_ID: &str = "session_id";

/// A delivery has failed five times, and will not be tried again unless an operator resets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookDLQEvent {
    /// The dead delivery.
    pub webhook_delivery_id: DeliveryId,
    /// To which webhook.
    pub webhook_id: EndpointId,
    /// Of which session's change.
    pub session_id: Uuid,
}

/// A delivery was acknowledged with a 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookDeliveredEvent {
    /// The delivery.
    pub webhook_delivery_id: DeliveryId,
    /// To which webhook.
    pub webhook_id: EndpointId,
    /// Of which session's change.
    pub session_id: Uuid,
}

/// What is broadcast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum TopicEvent {
    /// A success.
    Delivered(WebhookDeliveredEvent),
    /// A dead letter.
    DeadLetter(WebhookDLQEvent),
}

impl TopicEvent {
    /// The event's name, as server-sent events carry it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Delivered(_) => "WebhookDeliveredEvent",
            Self::DeadLetter(_) => "WebhookDLQEvent",
        }
    }

    /// What an announcement means on the topic; nothing for failures that will be retried, and for other topics.
    pub fn of(announcement: &Announcement) -> Option<Self> {
        if announcement.topic != TOPIC {
            return None;
        }
        let webhook_delivery_id = announcement.delivery_id;
        let webhook_id = announcement.endpoint_id?;
        let session_id = session_of(&announcement.metadata)?;
        match announcement.fact {
            Fact::Delivered => {
                Some(Self::Delivered(WebhookDeliveredEvent { webhook_delivery_id, webhook_id, session_id }))
            }
            Fact::Dead => Some(Self::DeadLetter(WebhookDLQEvent { webhook_delivery_id, webhook_id, session_id })),
            Fact::Failed | Fact::Cancelled | Fact::EndpointDisabled => None,
        }
    }
}

/// The event, to be announced on the topic as this session's.
pub(crate) fn about_session(event: NewEvent, session_id: Uuid) -> NewEvent {
    event.topic(TOPIC).metadata(SESSION_ID, session_id.to_string())
}

/// The session that an event was enqueued for.
pub(crate) fn session_of(metadata: &postrider::Metadata) -> Option<Uuid> {
    metadata.get(SESSION_ID)?.as_str()?.parse().ok()
}

/// One subscriber in this process.
#[derive(Debug)]
pub struct TopicSubscription(Subscription);

/// What a subscriber hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broadcast {
    /// An event.
    Event(TopicEvent),
    /// The subscriber was too slow, and this many passed it by.
    Missed(u64),
}

impl TopicSubscription {
    pub(crate) fn new(subscription: Subscription) -> Self {
        Self(subscription)
    }

    /// Waits for the next event; none when the gateway is gone.
    pub async fn next(&mut self) -> Option<Broadcast> {
        loop {
            match self.0.next().await? {
                Heard::Announcement(announcement) => {
                    if let Some(event) = TopicEvent::of(&announcement) {
                        return Some(Broadcast::Event(event));
                    }
                }
                Heard::Missed(count) => return Some(Broadcast::Missed(count)),
            }
        }
    }
}
