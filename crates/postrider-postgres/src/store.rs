//! The [`Store`] trait, each method by the module that does it.

use std::time::Duration;

use async_trait::async_trait;
use postrider::store::{
    Action, Announced, AuditEntry, ClaimRequest, Claimed, DispatchGuard, EndpointChange, FeedPlace, Finding, Health,
    Operator, Overview, Promoted, Recovered, Retained, Settle, Settlement,
};
use postrider::{
    ApiKey, Delivery, DeliveryDetail, DeliveryFilter, DeliveryId, Endpoint, EndpointFilter, EndpointId, EndpointStatus,
    EnqueueError, Enqueued, Event, EventFilter, EventId, KeyDigest, KeyId, Lease, NewApiKey, NewEndpoint, NewEvent,
    OnceClaim, OnceCursor, OnceFilter, OncePage, Page, PageRequest, Store, WorkerId,
};

use crate::error::Result;
use crate::{PostgresStore, lent};

#[async_trait]
impl Store for PostgresStore {
    async fn enqueue(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>, EnqueueError> {
        lent::answered(self.pool(), "enqueueing", self.enqueue_all(events)).await
    }

    async fn enqueue_each(&self, events: Vec<NewEvent>) -> Result<Vec<Result<Enqueued, EnqueueError>>> {
        lent::answered(self.pool(), "enqueueing", self.enqueue_apart(events)).await
    }

    /// Any number of processes may dispatch from one database, so there is nothing to lock; a schema that this program
    /// does not know is found out here rather than at the first claim.
    async fn start_dispatching(&self, worker: &WorkerId) -> Result<DispatchGuard> {
        self.check_schema().await?;
        self.prepare_heartbeats(worker);
        Ok(DispatchGuard::none())
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed> {
        self.claim_ready(request).await
    }

    async fn renew(&self, worker: &WorkerId, leases: &[Lease], lease: Duration) -> Result<Vec<Lease>> {
        self.renew_leases(worker, leases, lease).await
    }

    async fn settle(&self, worker: &WorkerId, settles: &[Settle]) -> Result<Vec<Settlement>> {
        self.settle_all(worker, settles).await
    }

    async fn release(&self, worker: &WorkerId, leases: &[Lease]) -> Result<u64> {
        self.release_leases(worker, leases).await
    }

    async fn recover(&self, limit: u32, max_abandoned: u32) -> Result<Recovered> {
        self.recover_expired(limit, max_abandoned).await
    }

    async fn promote(&self, limit: u32) -> Result<Promoted> {
        self.promote_due(limit).await
    }

    async fn wait_ready(&self, timeout: Duration) {
        self.shared.wake.wait_ready(self.pool(), timeout).await;
    }

    async fn retry(&self, id: DeliveryId, operator: &Operator) -> Result<Action> {
        self.retry_one(id, operator).await
    }

    async fn retry_matching(&self, filter: &DeliveryFilter, limit: u32, operator: &Operator) -> Result<u64> {
        self.retry_all_matching(filter, limit, operator).await
    }

    async fn cancel(&self, id: DeliveryId, reason: &str, operator: &Operator) -> Result<Action> {
        self.cancel_one(id, reason, operator).await
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>> {
        self.read_delivery(id).await
    }

    async fn deliveries(&self, filter: &DeliveryFilter, page: &PageRequest) -> Result<Page<Delivery>> {
        self.browse(filter, page).await
    }

    async fn count_deliveries(&self, filter: &DeliveryFilter) -> Result<u64> {
        self.count(filter).await
    }

    async fn events(&self, filter: &EventFilter, page: &PageRequest, max_bytes: usize) -> Result<Page<Event>> {
        self.browse_events(filter, page, max_bytes).await
    }

    async fn event(&self, id: EventId) -> Result<Option<Event>> {
        self.read_event(id).await
    }

    async fn overview(&self, tenant: Option<&str>) -> Result<Overview> {
        self.count_places(tenant).await
    }

    async fn once(&self, tenant: &str, subject: &str) -> Result<Option<OnceClaim>> {
        self.read_once(tenant, subject).await
    }

    async fn once_claims(
        &self,
        filter: &OnceFilter,
        after: Option<&OnceCursor>,
        page: &PageRequest,
    ) -> Result<OncePage> {
        self.list_once(filter, after, page).await
    }

    async fn reset_once(&self, tenant: &str, subject: &str, operator: &Operator) -> Result<u64> {
        self.begin_next_generation(tenant, subject, operator).await
    }

    async fn create_endpoint(&self, endpoint: NewEndpoint, operator: &Operator) -> Result<Endpoint> {
        self.insert_endpoint(endpoint, operator).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        self.read_endpoint(id).await
    }

    async fn endpoints(&self, filter: &EndpointFilter, page: &PageRequest) -> Result<Page<Endpoint>> {
        self.endpoints_page(filter, page).await
    }

    async fn replace_endpoint(
        &self,
        endpoint: &Endpoint,
        change: EndpointChange,
        operator: &Operator,
    ) -> Result<Option<Endpoint>> {
        self.write_endpoint(endpoint, change, operator).await
    }

    async fn remove_endpoint(&self, id: EndpointId, operator: &Operator) -> Result<bool> {
        self.mark_endpoint_removed(id, operator).await
    }

    async fn set_endpoint_status(
        &self,
        id: EndpointId,
        status: EndpointStatus,
        reason: Option<&str>,
        operator: &Operator,
    ) -> Result<bool> {
        self.write_endpoint_status(id, status, reason, operator).await
    }

    async fn announcements(&self, after: &FeedPlace, limit: u32) -> Result<Announced> {
        self.read_announcements(after, limit).await
    }

    async fn announcements_end(&self) -> Result<FeedPlace> {
        self.end_of_announcements().await
    }

    async fn wait_announced(&self, timeout: Duration) {
        self.shared.wake.wait_announced(self.pool(), timeout).await;
    }

    async fn create_key(&self, key: NewApiKey, operator: &Operator) -> Result<Option<ApiKey>> {
        self.insert_key(&key, operator).await
    }

    async fn keys(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<ApiKey>> {
        self.keys_page(tenant, page).await
    }

    async fn key_of_digest(&self, digest: &KeyDigest) -> Result<Option<ApiKey>> {
        self.read_key(digest).await
    }

    async fn revoke_key(&self, id: KeyId, tenant: Option<&str>, operator: &Operator) -> Result<bool> {
        self.mark_key_revoked(id, tenant, operator).await
    }

    async fn audit(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<AuditEntry>> {
        self.audit_page(tenant, page).await
    }

    async fn health(&self) -> Result<Health> {
        self.look_at_health().await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.find_trouble().await
    }

    async fn retain(&self, older_than: Duration, after: Option<EventId>, limit: u32) -> Result<Retained> {
        self.retain_step(older_than, after, limit).await
    }
}
