//! The [`Store`] trait: each method hands its work to the writer thread or to a reader.

use std::time::Duration;

use async_trait::async_trait;
use postrider::store::{
    Action, Announced, AuditEntry, ClaimRequest, Claimed, DispatchGuard, FeedPlace, Operator, Overview, Promoted,
    Recovered, Retained, Settle, Settlement,
};
use postrider::{
    Delivery, DeliveryDetail, DeliveryFilter, DeliveryId, Endpoint, EndpointId, EndpointStatus, EnqueueError, Enqueued,
    Event, EventId, Lease, NewEndpoint, NewEvent, Page, PageRequest, Store, StoreError, WorkerId,
};

use crate::dispatch_lock::DispatchLock;
use crate::writer::{Durability, Session};
use crate::{SqliteStore, browse, claim, enqueue, operate, rows, settle};

#[async_trait]
impl Store for SqliteStore {
    async fn enqueue(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>, EnqueueError> {
        let admitted = enqueue::admit(&self.admission, events)?;
        self.shared.writer.write(Durability::Synced, move |session| enqueue::enqueue(session, &admitted)).await
    }

    /// Takes the lock on `<file>.lock` until the guard is dropped, and ends all leases that an earlier process left
    /// behind, whatever was left of their time. The next [`recover`](Store::recover) takes their deliveries back,
    /// counts them as abandoned, and gives up those that were abandoned too often.
    async fn start_dispatching(&self, worker: &WorkerId) -> Result<DispatchGuard, StoreError> {
        let lock = DispatchLock::take(&self.shared.path)?;
        let end = |session: &mut Session| settle::end_left_behind(session);
        let ended = self.write("end the leases of an earlier process", end).await?;
        if ended > 0 {
            tracing::info!(leases = ended, %worker, "ended the leases that an earlier process left behind");
        }
        Ok(DispatchGuard::holding(lock))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        let request = request.clone();
        self.write_as(Durability::Ordered, "claim deliveries", move |session| claim::claim(session, &request)).await
    }

    async fn renew(&self, worker: &WorkerId, leases: &[Lease], lease: Duration) -> Result<Vec<Lease>, StoreError> {
        let (worker, leases) = (worker.clone(), leases.to_vec());
        let renew = move |session: &mut Session| settle::renew(session, &worker, &leases, lease);
        self.write_as(Durability::Ordered, "renew leases", renew).await
    }

    async fn settle(&self, worker: &WorkerId, settles: &[Settle]) -> Result<Vec<Settlement>, StoreError> {
        let (worker, settles) = (worker.clone(), settles.to_vec());
        self.write("settle deliveries", move |session| settle::settle(session, &worker, &settles)).await
    }

    async fn release(&self, worker: &WorkerId, leases: &[Lease]) -> Result<u64, StoreError> {
        let (worker, leases) = (worker.clone(), leases.to_vec());
        self.write("release leases", move |session| settle::release(session, &worker, &leases)).await
    }

    async fn recover(&self, limit: u32, max_abandoned: u32) -> Result<Recovered, StoreError> {
        self.write("recover expired leases", move |session| settle::recover(session, limit, max_abandoned)).await
    }

    async fn promote(&self, limit: u32) -> Result<Promoted, StoreError> {
        self.write("promote scheduled deliveries", move |session| settle::promote(session, limit)).await
    }

    async fn wait_ready(&self, timeout: Duration) {
        self.shared.wake.ready.wait(&self.shared.writer, timeout).await;
    }

    async fn retry(&self, id: DeliveryId, operator: &Operator) -> Result<Action, StoreError> {
        let operator = operator.clone();
        self.write("retry a delivery", move |session| operate::retry(session, id, &operator)).await
    }

    async fn retry_matching(
        &self,
        filter: &DeliveryFilter,
        limit: u32,
        operator: &Operator,
    ) -> Result<u64, StoreError> {
        let (filter, operator) = (filter.clone(), operator.clone());
        self.write("retry deliveries", move |session| operate::retry_matching(session, &filter, limit, &operator)).await
    }

    async fn cancel(&self, id: DeliveryId, reason: &str, operator: &Operator) -> Result<Action, StoreError> {
        let (reason, operator) = (reason.to_owned(), operator.clone());
        self.write("cancel a delivery", move |session| operate::cancel(session, id, &reason, &operator)).await
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        self.read("look at a delivery", move |connection| browse::delivery(connection, id)).await
    }

    async fn deliveries(&self, filter: &DeliveryFilter, page: &PageRequest) -> Result<Page<Delivery>, StoreError> {
        let (filter, page) = (filter.clone(), *page);
        self.read("list deliveries", move |connection| browse::deliveries(connection, &filter, &page)).await
    }

    async fn count_deliveries(&self, filter: &DeliveryFilter) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.read("count deliveries", move |connection| browse::count_deliveries(connection, &filter)).await
    }

    async fn event(&self, id: EventId) -> Result<Option<Event>, StoreError> {
        self.read("look at an event", move |connection| browse::event(connection, id)).await
    }

    async fn overview(&self, tenant: Option<&str>) -> Result<Overview, StoreError> {
        let (tenant, now) = (tenant.map(str::to_owned), self.shared.clock.now());
        self.read("count what is where", move |connection| browse::overview(connection, tenant.as_deref(), now)).await
    }

    async fn create_endpoint(&self, endpoint: NewEndpoint, _operator: &Operator) -> Result<Endpoint, StoreError> {
        self.write("register an endpoint", move |session| operate::create_endpoint(session, endpoint)).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>, StoreError> {
        self.read("look at an endpoint", move |connection| rows::find_endpoint(connection, id)).await
    }

    async fn set_endpoint_status(
        &self,
        id: EndpointId,
        status: EndpointStatus,
        reason: Option<&str>,
        operator: &Operator,
    ) -> Result<bool, StoreError> {
        let (reason, operator) = (reason.map(str::to_owned), operator.clone());
        self.write("change an endpoint's status", move |session| {
            operate::set_endpoint_status(session, id, status, reason.as_deref(), &operator)
        })
        .await
    }

    async fn announcements(&self, after: &FeedPlace, limit: u32) -> Result<Announced, StoreError> {
        let after = after.clone();
        // Before looking, so that whatever is announced from here on wakes the next wait.
        self.shared.wake.announced.attend();
        self.read("read announcements", move |connection| browse::announcements(connection, &after, limit)).await
    }

    async fn announcements_end(&self) -> Result<FeedPlace, StoreError> {
        self.read("find the end of the announcements", browse::announcements_end).await
    }

    async fn wait_announced(&self, timeout: Duration) {
        self.shared.wake.announced.wait(&self.shared.writer, timeout).await;
    }

    async fn audit(&self, _tenant: Option<&str>, page: &PageRequest) -> Result<Page<AuditEntry>, StoreError> {
        let page = *page;
        self.read("read the audit trail", move |connection| browse::audit(connection, &page)).await
    }

    async fn retain(&self, older_than: Duration, after: Option<EventId>, limit: u32) -> Result<Retained, StoreError> {
        self.write("remove what is old", move |session| operate::retain(session, older_than, after, limit)).await
    }
}
