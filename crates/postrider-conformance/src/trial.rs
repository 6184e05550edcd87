//! The bench on which a case works: a subject, two workers, a clock, and short words for what cases do all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::store::{
    Action, AttemptResult, AuditEntry, Claim, ClaimRequest, FeedPlace, Lane, Operator, Overview, Settle, Settlement,
};
use postrider::{
    Announcement, Attempt, Delivery, DeliveryFilter, DeliveryId, DeliveryStatus, DestinationPolicy, Endpoint,
    EndpointId, EndpointSettings, EndpointStatus, Enqueued, Fact, Lease, NewEndpoint, NewEvent, Outcome, OutcomeKind,
    PageRequest, Response, RetryPolicy, Store, Verdict, WorkerId, verdict,
};

use crate::subject::{Places, Subject};

/// How long leases last, unless a case says otherwise.
pub const LEASE: Duration = Duration::from_secs(30);

/// One case on one database.
pub struct Trial {
    subject: Box<dyn Subject>,
    now: Mutex<Timestamp>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// A second handle on the same database.
    pub other: Arc<dyn Store>,
}

/// Runs one case, and looks afterwards whether everything is where it belongs.
pub async fn run<S: Subject, F: AsyncFnOnce(&Trial)>(subject: S, case: F) {
    let trial = Trial::new(subject);
    case(&trial).await;
    trial.check_places().await;
}

/// A worker of this name.
pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

/// An operator of this name.
pub fn operator() -> Operator {
    Operator("olga".to_owned())
}

/// An event of no interest to this lane's host.
pub fn event_to(host: &str) -> NewEvent {
    NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#).to(url_of(host))
}

/// A destination on this host.
pub fn url_of(host: &str) -> String {
    format!("https://{host}.example.com/hook")
}

/// The lane of bare destinations on this host.
pub fn lane_of(host: &str) -> Lane {
    DestinationPolicy::default().check_url(&url_of(host)).unwrap().lane()
}

/// What the n-th failure of a round comes to, by the default policy.
pub fn failure(claim: &Claim) -> Settle {
    let response = Response { status: 500, retry_after: None, excerpt: "out of order".to_owned() };
    let outcome = Outcome::Response(response);
    let id = claim.lease.delivery_id;
    let verdict = verdict(&outcome, claim.attempt_count + 1, &RetryPolicy::default(), id);
    settle_of(claim.lease, verdict)
}

/// A settle with this verdict, with an attempt that fits it.
pub fn settle_of(lease: Lease, verdict: Verdict) -> Settle {
    let delivered = verdict == Verdict::Delivered;
    let attempt = AttemptResult {
        outcome: OutcomeKind::Response,
        status_code: Some(if delivered { 204 } else { 500 }),
        took: Duration::from_millis(40),
        started_ago: Duration::from_millis(50),
        response_excerpt: (!delivered).then(|| "out of order".to_owned()),
        error_detail: (!delivered).then(|| "HTTP 500: out of order".to_owned()),
    };
    Settle { lease, verdict, attempt, disable_endpoint: false, disable_after: None }
}

/// Another attempt after so many seconds.
pub const fn retry_after(seconds: u64) -> Verdict {
    Verdict::Retry { after: Duration::from_secs(seconds) }
}

impl Trial {
    /// A trial of this subject.
    pub fn new(subject: impl Subject) -> Self {
        let start: Timestamp = "2026-03-01T12:00:00.123456Z".parse().expect("a valid instant");
        let (store, other) = (subject.store(), subject.other());
        Self { subject: Box::new(subject), now: Mutex::new(start), store, other }
    }

    /// The subject itself.
    pub fn subject(&self) -> &dyn Subject {
        &*self.subject
    }

    /// Stops the clock at an instant that has microseconds, and returns it.
    pub fn freeze(&self) -> Timestamp {
        self.advance(Duration::ZERO)
    }

    /// Sets the stopped clock forward.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let mut now = self.now.lock().unwrap();
        *now += SignedDuration::try_from(by).unwrap();
        self.subject.freeze_clock(Some(*now));
        *now
    }

    /// Sets the stopped clock forward by whole seconds.
    pub fn advance_secs(&self, seconds: u64) -> Timestamp {
        self.advance(Duration::from_secs(seconds))
    }

    /// Enqueues one event.
    pub async fn enqueue(&self, event: NewEvent) -> Enqueued {
        self.enqueue_all(vec![event]).await.remove(0)
    }

    /// Enqueues these events.
    pub async fn enqueue_all(&self, events: Vec<NewEvent>) -> Vec<Enqueued> {
        let count = events.len();
        let enqueued = self.store.enqueue(events).await.unwrap();
        assert_eq!(enqueued.len(), count, "one result per event");
        enqueued
    }

    /// Enqueues one event to this host, and returns its one delivery.
    pub async fn deliver_to(&self, host: &str) -> DeliveryId {
        let enqueued = self.enqueue(event_to(host)).await;
        assert_eq!(enqueued.deliveries().len(), 1);
        enqueued.deliveries()[0].id
    }

    /// Enqueues so many events to this host in one call.
    pub async fn backlog(&self, host: &str, count: usize) -> Vec<DeliveryId> {
        let enqueued = self.enqueue_all(vec![event_to(host); count]).await;
        enqueued.iter().flat_map(|enqueued| enqueued.deliveries().iter().map(|delivery| delivery.id)).collect()
    }

    /// Registers an endpoint of the default tenant.
    pub async fn endpoint(&self, host: &str, patterns: &[&str]) -> Endpoint {
        self.endpoint_of("default", host, patterns, EndpointSettings::default()).await
    }

    /// Registers an endpoint.
    pub async fn endpoint_of(
        &self,
        tenant: &str,
        host: &str,
        patterns: &[&str],
        settings: EndpointSettings,
    ) -> Endpoint {
        let url = DestinationPolicy::default().check_url(&url_of(host)).unwrap();
        let event_types = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        let endpoint = NewEndpoint { tenant: tenant.to_owned(), url, event_types, settings };
        self.store.create_endpoint(endpoint, &operator()).await.unwrap()
    }

    /// Pauses, resumes or disables an endpoint.
    pub async fn set_endpoint(&self, id: EndpointId, status: EndpointStatus) {
        assert!(self.store.set_endpoint_status(id, status, Some("a drill"), &operator()).await.unwrap());
    }

    /// Claims up to `limit`, lane after lane, until that many are taken or nothing is left.
    pub async fn claim(&self, name: &str, limit: u32) -> Vec<Claim> {
        claim_from(&*self.store, name, limit, LEASE).await
    }

    /// Claims the one delivery that is ready.
    pub async fn claim_one(&self, name: &str) -> Claim {
        let mut claims = self.claim(name, 2).await;
        assert_eq!(claims.len(), 1, "exactly one is ready");
        claims.remove(0)
    }

    /// Settles one lease.
    pub async fn settle(&self, name: &str, lease: Lease, verdict: Verdict) -> Settlement {
        self.settle_all(name, &[settle_of(lease, verdict)]).await[0]
    }

    /// Settles these.
    pub async fn settle_all(&self, name: &str, settles: &[Settle]) -> Vec<Settlement> {
        let settlements = self.store.settle(&worker(name), settles).await.unwrap();
        assert_eq!(settlements.len(), settles.len(), "one answer per settle");
        settlements
    }

    /// Claims what is ready and settles all of it alike.
    pub async fn claim_and_settle(&self, verdict: Verdict) -> Vec<DeliveryId> {
        let claims = self.claim("w1", 1000).await;
        let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim.lease, verdict)).collect();
        for settlement in self.settle_all("w1", &settles).await {
            assert_eq!(settlement, Settlement::Applied);
        }
        claims.iter().map(|claim| claim.lease.delivery_id).collect()
    }

    /// A new delivery that has come to this status.
    pub async fn delivery_in(&self, status: DeliveryStatus) -> DeliveryId {
        let id = self.deliver_to("a").await;
        let verdict = match status {
            DeliveryStatus::Pending => return id,
            DeliveryStatus::Cancelled => {
                assert_eq!(self.store.cancel(id, "not wanted", &operator()).await.unwrap(), Action::Done);
                return id;
            }
            DeliveryStatus::Failed => retry_after(30),
            DeliveryStatus::Delivered => Verdict::Delivered,
            DeliveryStatus::Dead => Verdict::Dead,
        };
        let claims = self.claim("w1", 1000).await;
        let claim = claims.iter().find(|claim| claim.lease.delivery_id == id).expect("it was just enqueued");
        assert_eq!(self.settle("w1", claim.lease, verdict).await, Settlement::Applied);
        let others: Vec<_> = claims.iter().map(|claim| claim.lease).filter(|lease| lease.delivery_id != id).collect();
        assert_eq!(self.store.release(&worker("w1"), &others).await.unwrap(), others.len() as u64);
        id
    }

    /// The delivery as the store shows it.
    pub async fn delivery(&self, id: DeliveryId) -> Delivery {
        self.store.delivery(id).await.unwrap().expect("the delivery exists").delivery
    }

    /// The delivery's attempts.
    pub async fn attempts(&self, id: DeliveryId) -> Vec<Attempt> {
        self.store.delivery(id).await.unwrap().expect("the delivery exists").attempts
    }

    /// Every delivery, newest first.
    pub async fn deliveries(&self) -> Vec<Delivery> {
        self.list(&DeliveryFilter::default(), PageRequest::MAX_LIMIT).await
    }

    /// Every delivery that matches, in pages of this size.
    pub async fn list(&self, filter: &DeliveryFilter, page_size: u32) -> Vec<Delivery> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.store.deliveries(filter, &PageRequest::new(page_size, cursor).unwrap()).await.unwrap();
            assert!(page.items.len() <= page_size as usize, "a page keeps its limit");
            all.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                return all;
            }
        }
    }

    /// The first page of the audit trail.
    pub async fn audit(&self) -> Vec<AuditEntry> {
        self.store.audit(None, &PageRequest::default()).await.unwrap().items
    }

    /// What is where.
    pub async fn overview(&self) -> Overview {
        self.store.overview(None).await.unwrap()
    }

    /// Everything that was ever announced.
    pub async fn announced(&self) -> Vec<Announcement> {
        let mut all = Vec::new();
        let mut place = FeedPlace::default();
        loop {
            let announced = self.store.announcements(&place, 100).await.unwrap();
            place = announced.place;
            if announced.announcements.is_empty() {
                return all;
            }
            all.extend(announced.announcements);
        }
    }

    /// How often this was announced of this delivery.
    pub async fn times_announced(&self, fact: Fact, id: DeliveryId) -> usize {
        self.announced().await.iter().filter(|told| told.fact == fact && told.delivery_id == id).count()
    }

    /// The raw tables.
    pub async fn places(&self) -> Places {
        self.subject.places().await
    }

    /// Panics unless every delivery is in exactly one place, and that one fits its status; nothing else is in any
    /// place; the rows of attempts are as many as were counted; and the overview says the same.
    pub async fn check_places(&self) {
        let places = self.places().await;
        let deliveries = self.deliveries().await;
        assert_eq!(places.deliveries, deliveries.len() as u64, "the listing shows every delivery");
        let mut found: BTreeMap<DeliveryId, Vec<&str>> = BTreeMap::new();
        for (name, ids) in [
            ("ready", &places.ready),
            ("scheduled", &places.scheduled),
            ("leases", &places.leases),
            ("dead_letters", &places.dead_letters),
        ] {
            for id in ids {
                found.entry(*id).or_default().push(name);
            }
        }
        for delivery in &deliveries {
            let id = delivery.id;
            let found = found.remove(&id).unwrap_or_default();
            let fits = match delivery.status {
                DeliveryStatus::Pending | DeliveryStatus::Failed => {
                    found.len() == 1 && found != ["dead_letters"] && delivery.next_attempt_at.is_some()
                }
                DeliveryStatus::Dead => found == ["dead_letters"] && delivery.next_attempt_at.is_none(),
                DeliveryStatus::Delivered | DeliveryStatus::Cancelled => {
                    found.is_empty() && delivery.next_attempt_at.is_none()
                }
            };
            assert!(fits, "{id} is {} and in {found:?}", delivery.status);
            assert_eq!(delivery.lease_owner.is_some(), found == ["leases"], "{id} shows a lease while it is leased");
            assert_eq!(delivery.lease_until.is_some(), found == ["leases"], "{id} shows a lease while it is leased");
            let rows = places.attempts.get(&id).copied().unwrap_or_default();
            let counted = u64::from(delivery.attempt_count + delivery.earlier_attempts);
            assert_eq!(rows, counted, "p7: {id} has one row per attempt that was counted");
        }
        assert!(found.is_empty(), "rows without a delivery were left behind: {found:?}");
        let known: BTreeSet<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        assert!(places.attempts.keys().all(|id| known.contains(id)), "attempts without a delivery were left behind");

        let overview = self.overview().await;
        let with = |status| deliveries.iter().filter(|delivery| delivery.status == status).count() as u64;
        assert_eq!(overview.pending, with(DeliveryStatus::Pending));
        assert_eq!(overview.failed, with(DeliveryStatus::Failed));
        assert_eq!(overview.delivered, with(DeliveryStatus::Delivered));
        assert_eq!(overview.dead, with(DeliveryStatus::Dead));
        assert_eq!(overview.cancelled, with(DeliveryStatus::Cancelled));
        assert_eq!(overview.due, places.ready.len() as u64);
        assert_eq!(overview.in_flight, places.leases.len() as u64);
        assert_eq!(overview.scheduled, places.scheduled.len() as u64);
    }
}

/// A request of this worker for up to `limit`, with room in every lane.
pub fn request(name: &str, limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: worker(name),
        lease: LEASE,
        limit,
        lane_limit: 10_000,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    }
}

/// Claims up to `limit`, going round the lanes until that many are taken or a whole round found nothing.
pub async fn claim_from(store: &dyn Store, name: &str, limit: u32, lease: Duration) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    let mut after = None;
    for _ in 0..10_000 {
        let free = limit - u32::try_from(claims.len()).unwrap();
        if free == 0 {
            return claims;
        }
        let from_start = after.is_none();
        let claimed = store.claim(&ClaimRequest { lease, after, ..request(name, free) }).await.unwrap();
        assert!(claimed.claims.len() <= free as usize, "a claim never exceeds its limit");
        let nothing = claimed.claims.is_empty();
        claims.extend(claimed.claims);
        after = claimed.cursor;
        if nothing && from_start && after.is_none() {
            return claims;
        }
    }
    panic!("10,000 claims in a row did not come to the last lane");
}
