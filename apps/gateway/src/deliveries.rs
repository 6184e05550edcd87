//! The rows of `webhook_deliveries`: Postrider's deliveries under the document's names.

use jiff::Timestamp;
use postrider::store::Operator;
use postrider::{
    Attempt, Cursor, Delivery, DeliveryFilter, DeliveryId, DeliveryStatus, EndpointId, Page, PageRequest, Store,
    StoreError,
};
use serde::Serialize;
use uuid::Uuid;

use crate::sessions::SessionError;
use crate::{Gateway, topic};

/// One delivery of one session's change to one webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookDelivery {
    /// Its id.
    pub id: DeliveryId,
    /// To which webhook.
    pub webhook_id: Option<EndpointId>,
    /// Of which session's change.
    pub session_id: Option<Uuid>,
    /// What happened to the session.
    pub event_type: String,
    /// Where it goes; as the webhook had it when the session changed.
    pub target_url: String,
    /// `pending`, `failed` (will be retried), `delivered`, `dead` or `cancelled`.
    pub status: DeliveryStatus,
    /// Attempts since it was made or reset.
    pub attempt_count: u32,
    /// When it is due, while it is `pending` or `failed`.
    pub next_retry_at: Option<Timestamp>,
    /// When the last attempt ended.
    pub last_attempted_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub error_detail: Option<String>,
    /// When the session changed.
    pub created_at: Timestamp,
}

/// A delivery with its history, which a reset does not erase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WebhookDeliveryDetail {
    /// The delivery.
    #[serde(flatten)]
    pub delivery: WebhookDelivery,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
}

/// Which deliveries a listing wants; what is not said does not matter.
#[derive(Debug, Clone, Copy, Default)]
pub struct WebhookDeliveryFilter {
    /// In this status.
    pub status: Option<DeliveryStatus>,
    /// To this webhook.
    pub webhook_id: Option<EndpointId>,
    /// Of this session's changes.
    pub session_id: Option<Uuid>,
}

/// Why a delivery was not reset.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// There is none.
    #[error("there is no such delivery")]
    NotFound,
    /// It is not a dead letter.
    #[error("only a dead delivery is reset, this one is {0}")]
    NotDead(DeliveryStatus),
    /// Nobody is there to deliver it to.
    #[error("its webhook has been removed")]
    WebhookRemoved,
    /// The file cannot be worked with.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Gateway {
    /// One delivery with its attempts.
    pub async fn delivery(&self, id: DeliveryId) -> Result<Option<WebhookDeliveryDetail>, StoreError> {
        let Some(detail) = self.store().delivery(id).await? else { return Ok(None) };
        let delivery = self.row(detail.delivery).await?;
        Ok(Some(WebhookDeliveryDetail { delivery, attempts: detail.attempts }))
    }

    /// Deliveries that match, newest first.
    pub async fn deliveries(
        &self,
        filter: WebhookDeliveryFilter,
        page: PageRequest,
    ) -> Result<Page<WebhookDelivery>, SessionError> {
        let WebhookDeliveryFilter { status, webhook_id, session_id } = filter;
        if let Some(session_id) = session_id {
            return self.deliveries_of_session(session_id, filter, page).await;
        }
        let filter = DeliveryFilter { status, endpoint_id: webhook_id, ..DeliveryFilter::default() };
        let page = self.store().deliveries(&filter, &page).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for delivery in page.items {
            items.push(self.row(delivery).await?);
        }
        Ok(Page { items, next: page.next })
    }

    /// Postrider knows nothing of sessions: which deliveries are a session's is in the gateway's own table, and how each stands is
    /// Postrider's to say. Those that retention has removed are passed by.
    async fn deliveries_of_session(
        &self,
        session_id: Uuid,
        filter: WebhookDeliveryFilter,
        page: PageRequest,
    ) -> Result<Page<WebhookDelivery>, SessionError> {
        let mut items = Vec::new();
        let mut after = page.cursor();
        loop {
            let ids = self.delivery_ids_of_session(session_id, after, page.limit()).await?;
            let is_last = ids.len() < page.limit() as usize;
            for id in ids {
                after = Some(Cursor(id.as_uuid()));
                let Some(detail) = self.store().delivery(id).await? else { continue };
                let delivery = self.row(detail.delivery).await?;
                let is_wanted = filter.status.is_none_or(|status| status == delivery.status)
                    && filter.webhook_id.is_none_or(|id| Some(id) == delivery.webhook_id);
                if is_wanted {
                    items.push(delivery);
                }
                if items.len() == page.limit() as usize {
                    return Ok(Page { items, next: after });
                }
            }
            if is_last {
                return Ok(Page { items, next: None });
            }
        }
    }

    /// Makes a dead letter `pending` again, with `attempt_count` 0.
    pub async fn reset_delivery(
        &self,
        id: DeliveryId,
        operator: &Operator,
    ) -> Result<WebhookDeliveryDetail, ResetError> {
        let delivery = self.store().delivery(id).await?.ok_or(ResetError::NotFound)?.delivery;
        if let Some(webhook_id) = delivery.endpoint_id
            && self.webhook(webhook_id).await?.is_none()
        {
            return Err(ResetError::WebhookRemoved);
        }
        // An event goes to a webhook once, so this matches one delivery, and only while it is dead: of two operators
        // who reset it at once, one does.
        let dead = DeliveryFilter {
            status: Some(DeliveryStatus::Dead),
            event_id: Some(delivery.event_id),
            endpoint_id: delivery.endpoint_id,
            ..DeliveryFilter::default()
        };
        let reset = self.store().retry_matching(&dead, 1, operator).await?;
        let after = self.delivery(id).await?.ok_or(ResetError::NotFound)?;
        if reset == 1 { Ok(after) } else { Err(ResetError::NotDead(after.delivery.status)) }
    }

    /// The session is known by the event, whose metadata has it.
    async fn row(&self, delivery: Delivery) -> Result<WebhookDelivery, StoreError> {
        let event = self.store().event(delivery.event_id).await?;
        Ok(WebhookDelivery {
            id: delivery.id,
            webhook_id: delivery.endpoint_id,
            session_id: event.and_then(|event| topic::session_of(&event.metadata)),
            event_type: delivery.event_type,
            target_url: delivery.destination_url,
            status: delivery.status,
            attempt_count: delivery.attempt_count,
            next_retry_at: delivery.next_attempt_at,
            last_attempted_at: delivery.last_attempted_at,
            error_detail: delivery.error_detail,
            created_at: delivery.created_at,
        })
    }
}
