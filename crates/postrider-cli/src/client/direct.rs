//! The service straight on a database, for whoever has it at hand.
//!
//! Such a person is an admin of all tenants. Without `--tenant` they see everything, and act on what they name whosever it
//! is; what they make is the default tenant's.

use std::sync::Arc;

use jiff::Timestamp;
use postrider::store::Operator;
use postrider::{DEFAULT_TENANT, DeliveryFilter, DeliveryId, EndpointId, EventId, KeyId, Store};
use postrider_server::api::deliveries::{
    BulkRetried, BulkRetry, CancelRequest, Delivery, DeliveryDetail, DeliveryQuery,
};
use postrider_server::api::endpoints::{
    Endpoint, EndpointPatch, EndpointQuery, EndpointWithSecret, NewEndpoint, PauseRequest, RotateRequest,
};
use postrider_server::api::events::{EnqueuedEvent, Event, EventRequest, EventsQuery};
use postrider_server::api::keys::{CreatedKey, Key, NewKey, PageQuery};
use postrider_server::api::once::{OnceClaim, OnceQuery};
use postrider_server::api::why::Why;
use postrider_server::api::{Listing, Problem};
use postrider_server::{Caller, Service, Tenancy};

use crate::commands::deliveries::parse_id;
use crate::config::Config;
use crate::failure::Failure;
use crate::instant::{self, Direction};
use crate::process;

/// Everybody's, when it is asked for by name.
const ALL_TENANTS: &str = "*";

/// The service on a database, and who uses it.
#[derive(Debug)]
pub(crate) struct Direct {
    service: Service,
    tenant: Option<String>,
    operator: Operator,
}

impl Direct {
    /// The service on this store.
    pub(super) fn new(store: Arc<dyn Store>, config: &Config, tenant: Option<&str>, operator: Operator) -> Self {
        let service = Service::new(store, process::service_settings(config));
        Self { service, tenant: tenant.map(str::to_owned), operator }
    }

    fn caller(&self, tenant: Tenancy) -> Caller {
        Caller::operator(tenant, self.operator.0.clone())
    }

    /// As which to look.
    fn looking(&self) -> Caller {
        self.caller(match self.tenant.as_deref() {
            None | Some(ALL_TENANTS) => Tenancy::All,
            Some(tenant) => Tenancy::One(tenant.to_owned()),
        })
    }

    /// As which to make something.
    fn making(&self) -> Caller {
        self.caller(match self.tenant.as_deref() {
            Some(ALL_TENANTS) => Tenancy::All,
            tenant => Tenancy::One(tenant.unwrap_or(DEFAULT_TENANT).to_owned()),
        })
    }

    /// As which to act on a delivery: as its tenant, if that is one of those who are looked at.
    async fn acting_on_delivery(&self, id: DeliveryId) -> Result<Caller, Problem> {
        let delivery = self.service.delivery(&self.looking(), id).await?.delivery;
        Ok(self.caller(Tenancy::One(delivery.tenant)))
    }

    /// As which to act on an endpoint.
    async fn acting_on_endpoint(&self, id: EndpointId) -> Result<Caller, Problem> {
        let endpoint = self.service.endpoint(&self.looking(), id).await?;
        Ok(self.caller(Tenancy::One(endpoint.tenant)))
    }

    pub(super) async fn send(&self, event: EventRequest) -> Result<EnqueuedEvent, Failure> {
        Ok(self.service.enqueue(&self.making(), event).await?)
    }

    pub(super) async fn events(&self, query: &EventsQuery) -> Result<Listing<Event>, Failure> {
        Ok(self.service.events(&self.looking(), query).await?)
    }

    pub(super) async fn event(&self, id: EventId) -> Result<Event, Failure> {
        Ok(self.service.event(&self.looking(), id).await?)
    }

    pub(super) async fn deliveries(&self, query: &DeliveryQuery) -> Result<Listing<Delivery>, Failure> {
        Ok(self.service.deliveries(&self.looking(), query).await?)
    }

    pub(super) async fn delivery(&self, id: DeliveryId) -> Result<DeliveryDetail, Failure> {
        Ok(self.service.delivery(&self.looking(), id).await?)
    }

    pub(super) async fn retry(&self, id: DeliveryId) -> Result<DeliveryDetail, Failure> {
        Ok(self.service.retry_delivery(&self.acting_on_delivery(id).await?, id).await?)
    }

    pub(super) async fn retry_matching(&self, which: &BulkRetry) -> Result<BulkRetried, Failure> {
        let caller = self.looking();
        if caller.tenant != Tenancy::All {
            return Ok(self.service.retry_deliveries(&caller, which).await?);
        }
        // The service changes one tenant's things at a time. Whoever has the database at hand means all of them.
        let filter = filter(which)?;
        let store = self.service.store();
        let matched = store.count_deliveries(&filter).await?;
        let limit = if which.dry_run { 0 } else { which.limit.unwrap_or(u32::MAX) };
        let retried = if limit == 0 { 0 } else { store.retry_matching(&filter, limit, &self.operator).await? };
        Ok(BulkRetried { matched, retried })
    }

    pub(super) async fn cancel(&self, id: DeliveryId, reason: &CancelRequest) -> Result<DeliveryDetail, Failure> {
        Ok(self.service.cancel_delivery(&self.acting_on_delivery(id).await?, id, reason.reason.as_deref()).await?)
    }

    pub(super) async fn why(&self, id: DeliveryId) -> Result<Why, Failure> {
        Ok(self.service.why(&self.looking(), id).await?)
    }

    pub(super) async fn create_endpoint(&self, endpoint: NewEndpoint) -> Result<EndpointWithSecret, Failure> {
        Ok(self.service.create_endpoint(&self.making(), endpoint).await?)
    }

    pub(super) async fn endpoints(&self, query: &EndpointQuery) -> Result<Listing<Endpoint>, Failure> {
        Ok(self.service.endpoints(&self.looking(), query).await?)
    }

    pub(super) async fn endpoint(&self, id: EndpointId) -> Result<Endpoint, Failure> {
        Ok(self.service.endpoint(&self.looking(), id).await?)
    }

    pub(super) async fn update_endpoint(&self, id: EndpointId, patch: EndpointPatch) -> Result<Endpoint, Failure> {
        Ok(self.service.update_endpoint(&self.acting_on_endpoint(id).await?, id, patch).await?)
    }

    pub(super) async fn pause_endpoint(&self, id: EndpointId, reason: PauseRequest) -> Result<Endpoint, Failure> {
        Ok(self.service.pause_endpoint(&self.acting_on_endpoint(id).await?, id, reason.reason.as_deref()).await?)
    }

    pub(super) async fn resume_endpoint(&self, id: EndpointId) -> Result<Endpoint, Failure> {
        Ok(self.service.resume_endpoint(&self.acting_on_endpoint(id).await?, id).await?)
    }

    pub(super) async fn rotate_secret(
        &self,
        id: EndpointId,
        how: RotateRequest,
    ) -> Result<EndpointWithSecret, Failure> {
        Ok(self.service.rotate_secret(&self.acting_on_endpoint(id).await?, id, &how).await?)
    }

    pub(super) async fn test_endpoint(&self, id: EndpointId) -> Result<EnqueuedEvent, Failure> {
        Ok(self.service.test_endpoint(&self.acting_on_endpoint(id).await?, id).await?)
    }

    pub(super) async fn remove_endpoint(&self, id: EndpointId) -> Result<(), Failure> {
        Ok(self.service.remove_endpoint(&self.acting_on_endpoint(id).await?, id).await?)
    }

    pub(super) async fn once(&self, subject: &str) -> Result<OnceClaim, Failure> {
        Ok(self.service.once(&self.making(), subject).await?)
    }

    pub(super) async fn once_claims(&self, query: &OnceQuery) -> Result<Listing<OnceClaim>, Failure> {
        Ok(self.service.once_claims(&self.looking(), query).await?)
    }

    pub(super) async fn reset_once(&self, subject: &str) -> Result<OnceClaim, Failure> {
        Ok(self.service.reset_once(&self.making(), subject).await?)
    }

    pub(super) async fn create_key(&self, key: NewKey) -> Result<CreatedKey, Failure> {
        Ok(self.service.create_key(&self.making(), &key).await?)
    }

    pub(super) async fn keys(&self, query: &PageQuery) -> Result<Listing<Key>, Failure> {
        Ok(self.service.keys(&self.looking(), query).await?)
    }

    pub(super) async fn revoke_key(&self, id: KeyId) -> Result<(), Failure> {
        Ok(self.service.revoke_key(&self.looking(), id, None).await?)
    }
}

/// What is written in a query, of all tenants. The command line has checked it already.
fn filter(which: &BulkRetry) -> Result<DeliveryFilter, Failure> {
    let now = Timestamp::now();
    let instant = |option, text: &Option<String>| {
        text.as_deref().map(|text| instant::parse(option, text, now, Direction::Past)).transpose()
    };
    Ok(DeliveryFilter {
        tenant: None,
        status: Some(which.status.parse()?),
        endpoint_id: which.endpoint_id.as_deref().map(|id| parse_id(id, "endpoints")).transpose()?,
        event_id: which.event_id.as_deref().map(|id| parse_id(id, "events")).transpose()?,
        event_type: which.event_type.clone(),
        since: instant("--since", &which.since)?,
        until: instant("--until", &which.until)?,
    })
}
