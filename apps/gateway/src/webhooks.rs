//! Webhook configurations: Postrider's endpoints under the gateway's name.

use jiff::Timestamp;
use postrider::store::Operator;
use postrider::{
    DEFAULT_TENANT, Endpoint, EndpointFilter, EndpointId, EndpointSettings, EndpointStatus, EventTypePattern,
    NewEndpoint, Page, PageRequest, Refusal, Secret, Store, StoreError,
};
use serde::{Deserialize, Serialize};

use crate::Gateway;

/// A webhook to be configured.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// Where deliveries go.
    pub target_url: String,
    /// What it shares with its receiver: a text of 16 to 256 bytes, which signs.
    pub secret: String,
    /// Which changes it wants; all, if not given.
    #[serde(default = "everything")]
    pub event_types: Vec<String>,
}

fn everything() -> Vec<String> {
    vec!["*".to_owned()]
}

/// A configured webhook. Its secret is not shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Webhook {
    /// Its id.
    pub id: EndpointId,
    /// Where deliveries go.
    pub target_url: String,
    /// Which changes it wants.
    pub event_types: Vec<EventTypePattern>,
    /// `disabled` once its receiver has answered with 410 Gone; deliveries wait until it is resumed.
    pub status: EndpointStatus,
    /// When it was configured.
    pub created_at: Timestamp,
}

impl From<Endpoint> for Webhook {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint { id, url, event_types, status, created_at, .. } = endpoint;
        Self { id, target_url: url, event_types, status, created_at }
    }
}

/// Why a webhook was not configured.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// It cannot be accepted as it is.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The file cannot be worked with.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Gateway {
    /// Configures a webhook.
    pub async fn add_webhook(&self, new: NewWebhook, operator: &Operator) -> Result<Webhook, WebhookError> {
        let secret = Secret::parse(&new.secret)
            .map_err(|invalid| Refusal::new("secret_invalid", "secret", invalid.to_string()))?;
        if new.event_types.is_empty() {
            let refusal = Refusal::new("event_types_empty", "event_types", "a webhook that wants nothing gets nothing");
            return Err(refusal.hint("leave it out for everything, or use `session.ended`").into());
        }
        let endpoint = NewEndpoint {
            tenant: DEFAULT_TENANT.to_owned(),
            url: self.settings.destinations.check_url(&new.target_url)?,
            event_types: new.event_types.iter().map(|text| text.parse()).collect::<Result<_, _>>()?,
            settings: EndpointSettings { secrets: vec![secret], ..EndpointSettings::default() },
        };
        Ok(self.store().create_endpoint(endpoint, operator).await?.into())
    }

    /// One webhook.
    pub async fn webhook(&self, id: EndpointId) -> Result<Option<Webhook>, StoreError> {
        Ok(self.store().endpoint(id).await?.map(Webhook::from))
    }

    /// Webhooks, newest first.
    pub async fn webhooks(&self, page: PageRequest) -> Result<Page<Webhook>, StoreError> {
        let page = self.store().endpoints(&EndpointFilter::default(), &page).await?;
        Ok(Page { items: page.items.into_iter().map(Webhook::from).collect(), next: page.next })
    }

    /// Lets deliveries to a webhook go on that its receiver had ended. False when there is none.
    pub async fn resume_webhook(&self, id: EndpointId, operator: &Operator) -> Result<bool, StoreError> {
        self.store().set_endpoint_status(id, EndpointStatus::Active, None, operator).await
    }

    /// Removes a webhook; what is not delivered yet is cancelled. False when there is none.
    pub async fn remove_webhook(&self, id: EndpointId, operator: &Operator) -> Result<bool, StoreError> {
        self.store().remove_endpoint(id, operator).await
    }
}
