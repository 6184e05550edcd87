//! What receivers are told when a payment request's status changes.

use jiff::Timestamp;
use postrider::{EventId, NewEvent};
use serde::Serialize;
use uuid::Uuid;

use crate::status::Status;

/// The one type of event there is.
pub(crate) const EVENT_TYPE: &str = "payment_request.status_changed";

/// A change of status, once made never altered.
#[derive(Debug, Clone)]
pub(crate) struct StatusChange {
    /// Names the change: in the body, in the header, and while it is held back.
    pub(crate) event_id: EventId,
    /// When the transition was written, by the database's clock.
    pub(crate) occurred_at: Timestamp,
    pub(crate) payment_request_id: Uuid,
    pub(crate) previous_status: Status,
    pub(crate) new_status: Status,
}

/// The body, whose names receivers rely on.
#[derive(Serialize)]
struct Body {
    event_id: EventId,
    event_type: &'static str,
    occurred_at: Timestamp,
    payment_request_id: Uuid,
    previous_status: Status,
    new_status: Status,
}

impl StatusChange {
    /// The event that tells of it, still without a destination.
    pub(crate) fn to_event(&self) -> NewEvent {
        let body = Body {
            event_id: self.event_id,
            event_type: EVENT_TYPE,
            occurred_at: self.occurred_at,
            payment_request_id: self.payment_request_id,
            previous_status: self.previous_status,
            new_status: self.new_status,
        };
        let body = serde_json::to_vec(&body).expect("ids, names and an instant are JSON");
        NewEvent::new(EVENT_TYPE, body)
            .id(self.event_id)
            .metadata("payment_request_id", self.payment_request_id.to_string())
    }
}
