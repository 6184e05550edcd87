//! A real store behind a wire that can break: calls fail before they reach it, or their answers get lost, or they hang.
//!
//! It adds nothing of its own, so a test that uses it still runs on the real database. It also writes down which leases
//! were claimed, renewed and settled, in order.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postrider::store::{
    Action, Announced, AuditEntry, ClaimRequest, Claimed, DispatchGuard, EndpointChange, FeedPlace, Finding, Health,
    Operator, Overview, Promoted, Recovered, Retained, Settle, Settlement,
};
use postrider::{
    ApiKey, Delivery, DeliveryDetail, DeliveryFilter, DeliveryId, Endpoint, EndpointFilter, EndpointId, EndpointStatus,
    EnqueueError, Enqueued, Event, EventFilter, EventId, KeyDigest, KeyId, Lease, NewApiKey, NewEndpoint, NewEvent,
    OnceClaim, OnceCursor, OnceFilter, OncePage, Page, PageRequest, Store, StoreError, StoreErrorCode, WorkerId,
};

/// The calls that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Store::claim`].
    Claim,
    /// [`Store::renew`].
    Renew,
    /// [`Store::settle`].
    Settle,
    /// [`Store::recover`] and [`Store::promote`].
    Tend,
    /// [`Store::retain`].
    Retain,
    /// [`Store::set_endpoint_status`].
    SetEndpoint,
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not reach the store.
    Refuse(StoreErrorCode),
    /// It takes effect, and the answer is lost.
    LoseAnswer,
    /// It never returns, and never takes effect.
    Hang,
    /// The store itself is at fault.
    Panic,
    /// It takes effect at once, and the answer comes this much later.
    DelayAnswer(Duration),
}

/// Something that passed through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A claim asked for this many and got these.
    Claimed {
        /// How many were asked for.
        limit: u32,
        /// What came back.
        leases: Vec<Lease>,
    },
    /// A renewal asked for these.
    Renewing(Vec<Lease>),
    /// A renewal returned, and left out these.
    Refused(Vec<Lease>),
    /// A settle of these returned.
    Settled(Vec<Lease>),
}

/// The store, and the wire.
#[derive(Debug)]
pub struct FaultyStore {
    store: Arc<dyn Store>,
    faults: Mutex<HashMap<Call, (Fault, u32)>>,
    poisoned: Mutex<HashSet<DeliveryId>>,
    refused: AtomicU32,
    rests: AtomicU32,
    seen: Mutex<Vec<Seen>>,
}

impl FaultyStore {
    /// A wire to this store, with no faults.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let (faults, poisoned, seen) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { store, faults, poisoned, refused: AtomicU32::new(0), rests: AtomicU32::new(0), seen })
    }

    /// The next `times` calls go wrong like this.
    pub fn inject(&self, call: Call, fault: Fault, times: u32) {
        self.faults.lock().unwrap().insert(call, (fault, times));
    }

    /// The answers of the next `times` calls come this much later.
    pub fn delay_answers(&self, call: Call, by: Duration, times: u32) {
        self.inject(call, Fault::DelayAnswer(by), times);
    }

    /// Settles that name this delivery fail as if its row were damaged.
    pub fn poison(&self, id: DeliveryId) {
        self.poisoned.lock().unwrap().insert(id);
    }

    /// How many calls did not reach the store.
    pub fn refused(&self) -> u32 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How often somebody began to wait for something to become ready.
    pub fn rests(&self) -> u32 {
        self.rests.load(Ordering::Relaxed)
    }

    /// All calls go through from now on.
    pub fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    /// How many injected faults of this call have not happened yet.
    pub fn remaining(&self, call: Call) -> u32 {
        self.faults.lock().unwrap().get(&call).map_or(0, |(_, times)| *times)
    }

    /// What passed through so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn saw(&self, seen: Seen) {
        self.seen.lock().unwrap().push(seen);
    }

    fn next_fault(&self, call: Call) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let (fault, times) = faults.get_mut(&call)?;
        *times = times.checked_sub(1)?;
        Some(*fault)
    }

    async fn pass<T>(
        &self,
        call: Call,
        through: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        match self.next_fault(call) {
            None => through.await,
            Some(Fault::Refuse(code)) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Err(StoreError::new(code, "the wire is cut"))
            }
            Some(Fault::DelayAnswer(by)) => {
                let answer = through.await;
                tokio::time::sleep(by).await;
                answer
            }
            Some(Fault::LoseAnswer) => {
                through.await?;
                Err(StoreError::new(StoreErrorCode::Unavailable, "the answer was lost"))
            }
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Panic) => panic!("a fault of the store's own"),
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn enqueue(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>, EnqueueError> {
        self.store.enqueue(events).await
    }

    async fn enqueue_each(&self, events: Vec<NewEvent>) -> Result<Vec<Result<Enqueued, EnqueueError>>, StoreError> {
        self.store.enqueue_each(events).await
    }

    async fn start_dispatching(&self, worker: &WorkerId) -> Result<DispatchGuard, StoreError> {
        self.store.start_dispatching(worker).await
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claimed, StoreError> {
        let claimed = self.pass(Call::Claim, self.store.claim(request)).await?;
        let leases = claimed.claims.iter().map(|claim| claim.lease).collect();
        self.saw(Seen::Claimed { limit: request.limit, leases });
        Ok(claimed)
    }

    async fn renew(&self, worker: &WorkerId, leases: &[Lease], lease: Duration) -> Result<Vec<Lease>, StoreError> {
        self.saw(Seen::Renewing(leases.to_vec()));
        let renewed = self.pass(Call::Renew, self.store.renew(worker, leases, lease)).await?;
        let refused: Vec<Lease> = leases.iter().filter(|lease| !renewed.contains(lease)).copied().collect();
        if !refused.is_empty() {
            self.saw(Seen::Refused(refused));
        }
        Ok(renewed)
    }

    async fn settle(&self, worker: &WorkerId, settles: &[Settle]) -> Result<Vec<Settlement>, StoreError> {
        if settles.iter().any(|settle| self.poisoned.lock().unwrap().contains(&settle.lease.delivery_id)) {
            return Err(StoreError::new(StoreErrorCode::Internal, "a damaged row"));
        }
        let settlements = self.pass(Call::Settle, self.store.settle(worker, settles)).await?;
        self.saw(Seen::Settled(settles.iter().map(|settle| settle.lease).collect()));
        Ok(settlements)
    }

    async fn release(&self, worker: &WorkerId, leases: &[Lease]) -> Result<u64, StoreError> {
        self.store.release(worker, leases).await
    }

    async fn recover(&self, limit: u32, max_abandoned: u32) -> Result<Recovered, StoreError> {
        self.pass(Call::Tend, self.store.recover(limit, max_abandoned)).await
    }

    async fn promote(&self, limit: u32) -> Result<Promoted, StoreError> {
        self.pass(Call::Tend, self.store.promote(limit)).await
    }

    async fn wait_ready(&self, timeout: Duration) {
        self.rests.fetch_add(1, Ordering::Relaxed);
        self.store.wait_ready(timeout).await;
    }

    async fn retry(&self, id: DeliveryId, operator: &Operator) -> Result<Action, StoreError> {
        self.store.retry(id, operator).await
    }

    async fn retry_matching(
        &self,
        filter: &DeliveryFilter,
        limit: u32,
        operator: &Operator,
    ) -> Result<u64, StoreError> {
        self.store.retry_matching(filter, limit, operator).await
    }

    async fn cancel(&self, id: DeliveryId, reason: &str, operator: &Operator) -> Result<Action, StoreError> {
        self.store.cancel(id, reason, operator).await
    }

    async fn delivery(&self, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError> {
        self.store.delivery(id).await
    }

    async fn deliveries(&self, filter: &DeliveryFilter, page: &PageRequest) -> Result<Page<Delivery>, StoreError> {
        self.store.deliveries(filter, page).await
    }

    async fn count_deliveries(&self, filter: &DeliveryFilter) -> Result<u64, StoreError> {
        self.store.count_deliveries(filter).await
    }

    async fn events(
        &self,
        filter: &EventFilter,
        page: &PageRequest,
        max_bytes: usize,
    ) -> Result<Page<Event>, StoreError> {
        self.store.events(filter, page, max_bytes).await
    }

    async fn event(&self, id: EventId) -> Result<Option<Event>, StoreError> {
        self.store.event(id).await
    }

    async fn overview(&self, tenant: Option<&str>) -> Result<Overview, StoreError> {
        self.store.overview(tenant).await
    }

    async fn once(&self, tenant: &str, subject: &str) -> Result<Option<OnceClaim>, StoreError> {
        self.store.once(tenant, subject).await
    }

    async fn once_claims(
        &self,
        filter: &OnceFilter,
        after: Option<&OnceCursor>,
        page: &PageRequest,
    ) -> Result<OncePage, StoreError> {
        self.store.once_claims(filter, after, page).await
    }

    async fn reset_once(&self, tenant: &str, subject: &str, operator: &Operator) -> Result<u64, StoreError> {
        self.store.reset_once(tenant, subject, operator).await
    }

    async fn create_endpoint(&self, endpoint: NewEndpoint, operator: &Operator) -> Result<Endpoint, StoreError> {
        self.store.create_endpoint(endpoint, operator).await
    }

    async fn endpoint(&self, id: EndpointId) -> Result<Option<Endpoint>, StoreError> {
        self.store.endpoint(id).await
    }

    async fn endpoints(&self, filter: &EndpointFilter, page: &PageRequest) -> Result<Page<Endpoint>, StoreError> {
        self.store.endpoints(filter, page).await
    }

    async fn replace_endpoint(
        &self,
        endpoint: &Endpoint,
        change: EndpointChange,
        operator: &Operator,
    ) -> Result<Option<Endpoint>, StoreError> {
        self.store.replace_endpoint(endpoint, change, operator).await
    }

    async fn remove_endpoint(&self, id: EndpointId, operator: &Operator) -> Result<bool, StoreError> {
        self.store.remove_endpoint(id, operator).await
    }

    async fn set_endpoint_status(
        &self,
        id: EndpointId,
        status: EndpointStatus,
        reason: Option<&str>,
        operator: &Operator,
    ) -> Result<bool, StoreError> {
        self.pass(Call::SetEndpoint, self.store.set_endpoint_status(id, status, reason, operator)).await
    }

    async fn announcements(&self, after: &FeedPlace, limit: u32) -> Result<Announced, StoreError> {
        self.store.announcements(after, limit).await
    }

    async fn announcements_end(&self) -> Result<FeedPlace, StoreError> {
        self.store.announcements_end().await
    }

    async fn wait_announced(&self, timeout: Duration) {
        self.store.wait_announced(timeout).await;
    }

    async fn create_key(&self, key: NewApiKey, operator: &Operator) -> Result<Option<ApiKey>, StoreError> {
        self.store.create_key(key, operator).await
    }

    async fn keys(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<ApiKey>, StoreError> {
        self.store.keys(tenant, page).await
    }

    async fn key_of_digest(&self, digest: &KeyDigest) -> Result<Option<ApiKey>, StoreError> {
        self.store.key_of_digest(digest).await
    }

    async fn revoke_key(&self, id: KeyId, tenant: Option<&str>, operator: &Operator) -> Result<bool, StoreError> {
        self.store.revoke_key(id, tenant, operator).await
    }

    async fn audit(&self, tenant: Option<&str>, page: &PageRequest) -> Result<Page<AuditEntry>, StoreError> {
        self.store.audit(tenant, page).await
    }

    async fn health(&self) -> Result<Health, StoreError> {
        self.store.health().await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>, StoreError> {
        self.store.diagnose().await
    }

    async fn retain(&self, older_than: Duration, after: Option<EventId>, limit: u32) -> Result<Retained, StoreError> {
        self.pass(Call::Retain, self.store.retain(older_than, after, limit)).await
    }
}
