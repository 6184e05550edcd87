//! Endpoints: register, look, change, hold back, rotate, try out.

mod settings;

use std::time::Duration;

use postrider::store::EndpointChange;
use postrider::{EndpointFilter, EndpointId, EndpointStatus, Secret, duration};

use super::{Caller, Service};
use crate::api::endpoints::{
    Confidential, Endpoint, EndpointPatch, EndpointQuery, EndpointWithSecret, NewEndpoint, RotateRequest,
};
use crate::api::events::{EnqueuedEvent, EventRequest};
use crate::api::{Listing, Problem, page_request};
use settings::Draft;

/// The type of the event that tries an endpoint out.
const TEST_EVENT_TYPE: &str = "postrider.test";

/// The longest that a replaced secret may go on signing.
const MAX_OVERLAP: Duration = Duration::from_hours(30 * 24);

/// The longest reason that an operator may give.
const MAX_REASON_BYTES: usize = 1_000;

/// How often a change is made again because somebody else was faster.
const TRIES: usize = 5;

impl Service {
    /// Registers an endpoint. The answer is the only one that has its secret.
    pub async fn create_endpoint(&self, caller: &Caller, new: NewEndpoint) -> Result<EndpointWithSecret, Problem> {
        let tenant = caller.tenant_for_write()?;
        let secret = secret_or_new(new.secret.as_ref())?;
        let url = self.checked_url(&new.url)?;
        let mut draft = Draft::new(&self.settings().retry_policy);
        draft.settings.secrets = vec![secret.clone()];
        draft.apply(EndpointPatch::from(new))?;
        let new = postrider::NewEndpoint {
            tenant: tenant.to_owned(),
            url,
            event_types: draft.event_types,
            settings: draft.settings,
        };
        let endpoint = self.store().create_endpoint(new, &caller.operator).await?;
        Ok(EndpointWithSecret { endpoint: endpoint.into(), secret: Confidential(secret.reveal()) })
    }

    /// One endpoint.
    pub async fn endpoint(&self, caller: &Caller, id: EndpointId) -> Result<Endpoint, Problem> {
        self.found(caller, id).await.map(Endpoint::from)
    }

    /// Endpoints that match, newest first.
    pub async fn endpoints(&self, caller: &Caller, query: &EndpointQuery) -> Result<Listing<Endpoint>, Problem> {
        let filter = EndpointFilter {
            tenant: caller.tenant.filter().map(str::to_owned),
            status: query.status.as_deref().map(str::parse).transpose()?,
        };
        let page = page_request(query.limit, query.cursor.as_deref())?;
        Ok(Listing::from_page(self.store().endpoints(&filter, &page).await?, Endpoint::from))
    }

    /// Changes what the patch names, and nothing else, whoever else changes it at the same time.
    pub async fn update_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        patch: EndpointPatch,
    ) -> Result<Endpoint, Problem> {
        let url = patch.url.as_deref().map(|url| self.checked_url(url)).transpose()?;
        let default_policy = &self.settings().retry_policy;
        let changed = self
            .change(caller, id, EndpointChange::Update, |endpoint| {
                let mut draft = Draft::of(endpoint, default_policy);
                draft.apply(patch.clone())?;
                (endpoint.event_types, endpoint.settings) = (draft.event_types, draft.settings);
                if let Some(url) = &url {
                    url.as_str().clone_into(&mut endpoint.url);
                }
                Ok(())
            })
            .await?;
        Ok(changed.into())
    }

    /// Puts a new secret in the place of the one that signs. The answer is the only one that has it.
    pub async fn rotate_secret(
        &self,
        caller: &Caller,
        id: EndpointId,
        request: &RotateRequest,
    ) -> Result<EndpointWithSecret, Problem> {
        let secret = secret_or_new(request.secret.as_ref())?;
        let overlap = match &request.overlap {
            Some(text) => checked_overlap(text)?,
            None => self.settings().rotation_overlap,
        };
        caller.tenant_for_write()?;
        // Whether an older secret still signs is decided by the database's clock.
        let now = self.store().health().await?.at;
        let rotated = self
            .change(caller, id, EndpointChange::RotateSecret, |endpoint| {
                if endpoint.settings.secrets.first() != Some(&secret) {
                    endpoint.settings.rotate(secret.clone(), now, now + overlap);
                }
                Ok(())
            })
            .await?;
        Ok(EndpointWithSecret { endpoint: rotated.into(), secret: Confidential(secret.reveal()) })
    }

    /// Removes an endpoint. What of its deliveries waits is cancelled.
    pub async fn remove_endpoint(&self, caller: &Caller, id: EndpointId) -> Result<(), Problem> {
        caller.tenant_for_write()?;
        self.found(caller, id).await?;
        let removed = self.store().remove_endpoint(id, &caller.operator).await?;
        if removed { Ok(()) } else { Err(Problem::not_found("endpoint", id)) }
    }

    /// Holds an endpoint's deliveries back; they wait, and new ones join them.
    pub async fn pause_endpoint(
        &self,
        caller: &Caller,
        id: EndpointId,
        reason: Option<&str>,
    ) -> Result<Endpoint, Problem> {
        let reason = reason.map(checked_reason).transpose()?;
        self.set_status(caller, id, EndpointStatus::Paused, reason).await
    }

    /// Lets an endpoint's deliveries go on, also of one that was disabled.
    pub async fn resume_endpoint(&self, caller: &Caller, id: EndpointId) -> Result<Endpoint, Problem> {
        self.set_status(caller, id, EndpointStatus::Active, None).await
    }

    /// Sends an event to this endpoint alone, whatever event types it wants.
    pub async fn test_endpoint(&self, caller: &Caller, id: EndpointId) -> Result<EnqueuedEvent, Problem> {
        caller.tenant_for_write()?;
        let endpoint = self.found(caller, id).await?;
        if endpoint.status == EndpointStatus::Disabled {
            return Err(disabled(id));
        }
        let payload = serde_json::json!({
            "type": TEST_EVENT_TYPE,
            "endpoint_id": id,
            "message": "If you can read this and its signature fits, the endpoint works.",
        });
        let payload = serde_json::value::to_raw_value(&payload).expect("the payload is plain data");
        let event = EventRequest { endpoint_id: Some(id), ..EventRequest::new(TEST_EVENT_TYPE, payload) };
        self.enqueue(caller, event).await
    }

    async fn found(&self, caller: &Caller, id: EndpointId) -> Result<postrider::Endpoint, Problem> {
        let endpoint = self.store().endpoint(id).await?.filter(|endpoint| caller.tenant.covers(&endpoint.tenant));
        endpoint.ok_or_else(|| Problem::not_found("endpoint", id))
    }

    async fn set_status(
        &self,
        caller: &Caller,
        id: EndpointId,
        status: EndpointStatus,
        reason: Option<&str>,
    ) -> Result<Endpoint, Problem> {
        caller.tenant_for_write()?;
        self.found(caller, id).await?;
        self.store().set_endpoint_status(id, status, reason, &caller.operator).await?;
        self.endpoint(caller, id).await
    }

    /// Makes a change to the endpoint as it is, again and again while others are faster.
    async fn change(
        &self,
        caller: &Caller,
        id: EndpointId,
        kind: EndpointChange,
        change: impl Fn(&mut postrider::Endpoint) -> Result<(), Problem>,
    ) -> Result<postrider::Endpoint, Problem> {
        caller.tenant_for_write()?;
        for _ in 0..TRIES {
            let mut endpoint = self.found(caller, id).await?;
            if let Some(trouble) = &endpoint.trouble {
                // To write it would be to write the defaults over what cannot be read now, but perhaps tomorrow.
                let detail = format!("the endpoint's settings cannot be read, and so not be changed: {trouble}");
                return Err(Problem::new(409, "endpoint_unreadable", detail)
                    .hint("give the server the secret_key that they were encrypted with, or remove the endpoint"));
            }
            change(&mut endpoint)?;
            if let Some(changed) = self.store().replace_endpoint(&endpoint, kind, &caller.operator).await? {
                return Ok(changed);
            }
        }
        let detail = format!("others keep changing {id} at the same time");
        Err(Problem::new(409, "endpoint_changed", detail).hint("look at it and try again"))
    }

    fn checked_url(&self, url: &str) -> Result<postrider::Destination, Problem> {
        let checked = self.settings().admission.destinations.check_url(url);
        checked.map_err(|refusal| postrider::Refusal { field: "url", ..refusal }.into())
    }
}

/// Nothing can be sent to it now.
pub(super) fn disabled(id: EndpointId) -> Problem {
    Problem::new(409, "endpoint_disabled", format!("{id} is disabled: nothing is sent to it")).hint("resume it first")
}

/// A reason as an operator gives one: a line for people.
pub(super) fn checked_reason(reason: &str) -> Result<&str, Problem> {
    if reason.len() > MAX_REASON_BYTES || reason.chars().any(char::is_control) {
        let detail = format!("a reason is one line of at most {MAX_REASON_BYTES} bytes");
        return Err(Problem::new(422, "reason_invalid", detail).about("reason"));
    }
    Ok(reason)
}

fn secret_or_new(given: Option<&Confidential>) -> Result<Secret, Problem> {
    let Some(text) = given else { return Ok(Secret::generate()) };
    Secret::parse(text.reveal()).map_err(|invalid| {
        Problem::new(422, "secret_invalid", invalid.to_string()).about("secret").hint("leave it out, and one is made")
    })
}

fn checked_overlap(text: &str) -> Result<Duration, Problem> {
    let refuse = |detail: String| Problem::new(422, "overlap_invalid", detail).about("overlap");
    let overlap = duration::parse(text).map_err(|error| refuse(format!("overlap is {error}")))?;
    if overlap > MAX_OVERLAP {
        return Err(refuse(format!("overlap is at most {}", duration::format(MAX_OVERLAP))));
    }
    Ok(overlap)
}
