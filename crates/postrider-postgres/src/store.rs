//! The [`Store`] trait, each method by the module that does it.

use std::time::Duration;

use async_trait::async_trait;
use postrider::store::{
    Action, Announced, AuditEntry, ClaimRequest, Claimed, DispatchGuard, FeedPlace, Operator, Overview, Promoted,
    Recovered, Retained, Settle, Settlement,
};
use postrider::{
    Delivery, DeliveryDetail, DeliveryFilter, DeliveryId, Endpoint, EndpointId, EndpointStatus, EnqueueError, Enqueued,
    Event, EventId, Lease, NewEndpoint, NewEvent, Page, PageRequest, Store, WorkerId,
};

use crate::PostgresStore;
use crate::error::Result;
use crate::wake::Channel;

#[async_trait]
impl Store for PostgresStore {
    async fn enqueue(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>, EnqueueError> {
        self.enqueue_all(events).await
    }

    /// Any number of processes may dispatch from one database, so there is nothing to lock; a schema that this program
    /// does not know is found out here rather than at the first claim.
    async fn start_dispatching(&self, _worker: &WorkerId) -> Result<DispatchGuard> {
        self.check_schema().await?;
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
        self.shared.wake.wait(self.pool(), Channel::Ready, timeout).await;
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

    async fn event(&self, id: EventId) -> Result<Option<Event>> {
        self.read_event(id).await
    }

    async fn overview(&self, tenant: Option<&str>) -> Result<Overview> {
        self.count_places(tenant).await
    }

    async fn create_endpoint(&self, endpoint: NewEndpoint, _operator: &Operator) -> Result<Endpoint> {
        self.insert_endpoint(endpoint).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>> {
        self.read_endpoint(id).await
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
        self.shared.wake.wait(self.pool(), Channel::Announced, timeout).await;
    }

    async fn audit(&self, _tenant: Option<&str>, page: &PageRequest) -> Result<Page<AuditEntry>> {
        self.audit_page(page).await
    }

    async fn retain(&self, older_than: Duration, after: Option<EventId>, limit: u32) -> Result<Retained> {
        self.retain_step(older_than, after, limit).await
    }
}
