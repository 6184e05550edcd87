//! The [`Store`] trait: each method hands its work to the writer thread or to a reader.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider::store::{
    Action, Announced, AuditEntry, ClaimRequest, Claimed, DispatchGuard, EndpointChange, FeedPlace, Finding, Health,
    Operator, Overview, Promoted, Recovered, Retained, Settle, Settlement,
};
use postrider::{
    ApiKey, Delivery, DeliveryDetail, DeliveryFilter, DeliveryId, Endpoint, EndpointFilter, EndpointId, EndpointStatus,
    EnqueueError, Enqueued, Event, EventFilter, EventId, KeyDigest, KeyId, Lease, NewApiKey, NewEndpoint, NewEvent,
    OnceClaim, OnceCursor, OnceFilter, OncePage, Page, PageRequest, Store, StoreError, WorkerId,
};

use crate::dispatch_lock::DispatchLock;
use crate::error::store_error;
use crate::syncer::Durability;
use crate::writer::Session;
use crate::{SqliteStore, browse, claim, diagnose, endpoints, enqueue, keys, once, operate, retain, rows, settle};

#[async_trait]
impl Store for SqliteStore {
    async fn enqueue(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>, EnqueueError> {
        let admitted = enqueue::admit(&self.admission, events)?;
        self.shared.writer.write(Durability::Synced, move |session| enqueue::enqueue(session, &admitted)).await
    }

    async fn enqueue_each(&self, events: Vec<NewEvent>) -> Result<Vec<Result<Enqueued, EnqueueError>>, StoreError> {
        let admitted: Vec<_> = events.into_iter().map(|event| self.admission.admit(event)).collect();
        self.shared.writer.write(Durability::Synced, move |session| enqueue::enqueue_each(session, admitted)).await
    }

    /// Takes the lock on `<file>.lock` until the guard is dropped, and ends all leases that an earlier process left
    /// behind, whatever was left of their time. The next [`recover`](Store::recover) takes their deliveries back,
    /// counts them as abandoned, and gives up those that were abandoned too often.
    async fn start_dispatching(&self, worker: &WorkerId) -> Result<DispatchGuard, StoreError> {
        let lock = DispatchLock::take(&self.shared.path).await?;
        let end = |session: &mut Session| settle::end_left_behind(session);
        let ended = self.write("end the leases of an earlier process", end).await?;
        if ended > 0 {
            tracing::info!(leases = ended, %worker, "ended the leases that an earlier process left behind");
        }
        Ok(DispatchGuard::holding(lock))
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        let (request, vault) = (request.clone(), Arc::clone(&self.vault));
        let claim = move |session: &mut Session| claim::claim(session, &vault, &request);
        self.write_as(Durability::Ordered, "claim deliveries", claim).await
    }

    async fn renew(&self, worker: &WorkerId, leases: &[Lease], lease: Duration) -> Result<Vec<Lease>, StoreError> {
        let (worker, leases) = (worker.clone(), leases.to_vec());
        let renew = move |session: &mut Session| settle::renew(session, &worker, &leases, lease);
        self.write_as(Durability::Ordered, "renew leases", renew).await
    }

    async fn settle(&self, worker: &WorkerId, settles: &[Settle]) -> Result<Vec<Settlement>, StoreError> {
        let (worker, settles) = (worker.clone(), settles.to_vec());
        let settle = move |session: &mut Session| settle::settle(session, &worker, &settles);
        self.write_as(Durability::Beside, "settle deliveries", settle).await
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
        self.shared.wake.ready(&self.shared.writer, timeout).await;
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

    async fn events(
        &self,
        filter: &EventFilter,
        page: &PageRequest,
        max_bytes: usize,
    ) -> Result<Page<Event>, StoreError> {
        let (filter, page) = (filter.clone(), *page);
        self.read("list events", move |connection| browse::events(connection, &filter, &page, max_bytes)).await
    }

    async fn event(&self, id: EventId) -> Result<Option<Event>, StoreError> {
        self.read("look at an event", move |connection| browse::event(connection, id)).await
    }

    async fn overview(&self, tenant: Option<&str>) -> Result<Overview, StoreError> {
        let (tenant, now) = (tenant.map(str::to_owned), self.shared.clock.now());
        self.read("count what is where", move |connection| browse::overview(connection, tenant.as_deref(), now)).await
    }

    async fn once(&self, tenant: &str, subject: &str) -> Result<Option<OnceClaim>, StoreError> {
        let (tenant, subject) = (tenant.to_owned(), subject.to_owned());
        self.read("look at a subject", move |connection| once::once(connection, &tenant, &subject)).await
    }

    async fn once_claims(
        &self,
        filter: &OnceFilter,
        after: Option<&OnceCursor>,
        page: &PageRequest,
    ) -> Result<OncePage, StoreError> {
        let (filter, after, page) = (filter.clone(), after.cloned(), *page);
        self.read("list subjects", move |connection| once::list(connection, &filter, after.as_ref(), &page)).await
    }

    async fn reset_once(&self, tenant: &str, subject: &str, operator: &Operator) -> Result<u64, StoreError> {
        let (tenant, subject, operator) = (tenant.to_owned(), subject.to_owned(), operator.clone());
        let reset = move |session: &mut Session| once::reset(session, &tenant, &subject, &operator);
        self.write("begin the next generation of a subject", reset).await
    }

    async fn create_endpoint(&self, endpoint: NewEndpoint, operator: &Operator) -> Result<Endpoint, StoreError> {
        let stored = self.vault.seal(&endpoint.settings, &endpoint.tenant)?;
        let operator = operator.clone();
        let create = move |session: &mut Session| endpoints::create(session, endpoint, &stored, &operator);
        self.write("register an endpoint", create).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>, StoreError> {
        let vault = Arc::clone(&self.vault);
        self.read("look at an endpoint", move |connection| endpoints::find(connection, &vault, id)).await
    }

    async fn endpoints(&self, filter: &EndpointFilter, page: &PageRequest) -> Result<Page<Endpoint>, StoreError> {
        let (vault, filter, page) = (Arc::clone(&self.vault), filter.clone(), *page);
        self.read("list endpoints", move |connection| endpoints::list(connection, &vault, &filter, &page)).await
    }

    async fn replace_endpoint(
        &self,
        endpoint: &Endpoint,
        change: EndpointChange,
        operator: &Operator,
    ) -> Result<Option<Endpoint>, StoreError> {
        let stored = self.vault.seal(&endpoint.settings, &endpoint.tenant)?;
        let (vault, endpoint, operator) = (Arc::clone(&self.vault), endpoint.clone(), operator.clone());
        self.write("change an endpoint", move |session| {
            endpoints::replace(session, &vault, &endpoint, &stored, change, &operator)
        })
        .await
    }

    async fn remove_endpoint(&self, id: EndpointId, operator: &Operator) -> Result<bool, StoreError> {
        let operator = operator.clone();
        self.write("remove an endpoint", move |session| endpoints::remove(session, id, &operator)).await
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
            endpoints::set_status(session, id, status, reason.as_deref(), &operator)
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
        self.shared.wake.announced(&self.shared.writer, timeout).await;
    }

    async fn create_key(&self, key: NewApiKey, operator: &Operator) -> Result<Option<ApiKey>, StoreError> {
        let operator = operator.clone();
        self.write("make a key", move |session| keys::create(session, key, &operator)).await
    }

    async fn keys(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<ApiKey>, StoreError> {
        let (tenant, page) = (tenant.map(str::to_owned), *page);
        self.read("list keys", move |connection| keys::list(connection, tenant.as_deref(), &page)).await
    }

    async fn key_of_digest(&self, digest: &KeyDigest) -> Result<Option<ApiKey>, StoreError> {
        let digest = *digest;
        self.read("look up a key", move |connection| keys::of_digest(connection, &digest)).await
    }

    async fn revoke_key(&self, id: KeyId, tenant: Option<&str>, operator: &Operator) -> Result<bool, StoreError> {
        let (tenant, operator) = (tenant.map(str::to_owned), operator.clone());
        self.write("revoke a key", move |session| keys::revoke(session, id, tenant.as_deref(), &operator)).await
    }

    async fn audit(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<AuditEntry>, StoreError> {
        let (tenant, page) = (tenant.map(str::to_owned), *page);
        self.read("read the audit trail", move |connection| browse::audit(connection, tenant, &page)).await
    }

    /// Asks a reader for the schema, and the writer whether it is there.
    async fn health(&self) -> Result<Health, StoreError> {
        self.shared.in_place.check_from_outside()?;
        self.check_schema().await?;
        self.shared.writer.look().await?;
        let at = rows::timestamp(self.shared.clock.now()).map_err(|error| store_error("read the clock", error))?;
        Ok(Health { at, connections: Some(self.shared.readers.connections()) })
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, StoreError> {
        let (path, vault) = (self.shared.path.clone(), Arc::clone(&self.vault));
        self.read("diagnose the database", move |connection| diagnose::diagnose(connection, &path, &vault)).await
    }

    async fn retain(&self, older_than: Duration, after: Option<EventId>, limit: u32) -> Result<Retained, StoreError> {
        self.write("remove what is old", move |session| retain::retain(session, older_than, after, limit)).await
    }
}
