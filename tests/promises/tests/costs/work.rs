//! The fixed work: so many events over so many lanes, claimed and settled in batches of one size.

use std::time::Duration;

use postrider::store::{Claim, ClaimRequest, Lane, Settle, Settlement};
use postrider::{NewEvent, Store, Verdict};
use postrider_conformance::trial::{LEASE, settle_of, url_of, worker};

/// Over how many lanes the work is spread.
pub(crate) const LANES: usize = 16;

/// How many are enqueued, claimed or settled at once.
pub(crate) const BATCH: usize = 200;

/// How large a payload is.
pub(crate) const PAYLOAD_BYTES: usize = 500;

/// An event to a lane.
pub(crate) fn event(number: usize) -> NewEvent {
    event_to(&url_of(&format!("lane-{:02}", number % LANES)))
}

/// An event to a destination.
pub(crate) fn event_to(url: &str) -> NewEvent {
    NewEvent::new("cost.counted", payload()).to(url)
}

/// JSON of the right size.
pub(crate) fn payload() -> String {
    format!(r#"{{"filling":"{}"}}"#, "x".repeat(PAYLOAD_BYTES - 14))
}

/// Enqueues so many in lists.
pub(crate) async fn enqueue(store: &dyn Store, count: usize, event: impl Fn(usize) -> NewEvent) {
    for first in (0..count).step_by(BATCH) {
        let events: Vec<NewEvent> = (first..count.min(first + BATCH)).map(&event).collect();
        store.enqueue(events).await.unwrap();
    }
}

/// Somebody who claims in full batches, with nothing in flight.
#[derive(Debug, Default)]
pub(crate) struct Claimer {
    cursor: Option<Lane>,
}

impl Claimer {
    /// One full batch.
    pub(crate) async fn claim(&mut self, store: &dyn Store) -> Vec<Claim> {
        let claims = self.claim_up_to(store, BATCH).await;
        assert_eq!(claims.len(), BATCH, "enough is ready");
        claims
    }

    /// One batch, or what there is.
    pub(crate) async fn claim_up_to(&mut self, store: &dyn Store, limit: usize) -> Vec<Claim> {
        let limit = u32::try_from(limit).unwrap();
        let request = ClaimRequest {
            worker: worker("w1"),
            lease: LEASE,
            limit,
            lane_limit: limit,
            in_flight: Vec::new(),
            ahead: Vec::new(),
            after: self.cursor.take(),
        };
        let claimed = store.claim(&request).await.unwrap();
        self.cursor = claimed.cursor;
        claimed.claims
    }

    /// So many, batch after batch.
    pub(crate) async fn claim_all(&mut self, store: &dyn Store, count: usize) -> Vec<Claim> {
        let mut claims = Vec::with_capacity(count);
        while claims.len() < count {
            claims.extend(self.claim(store).await);
        }
        claims
    }
}

/// Settles all of them alike, batch after batch.
pub(crate) async fn settle_all(store: &dyn Store, claims: &[Claim], verdict: Verdict) {
    for batch in claims.chunks(BATCH) {
        let settles: Vec<Settle> = batch.iter().map(|claim| settle_of(claim.lease, verdict)).collect();
        let settlements = store.settle(&worker("w1"), &settles).await.unwrap();
        assert!(settlements.iter().all(|settlement| *settlement == Settlement::Applied));
    }
}

/// What makes a database old and full: a lane with many waiting, as many that are scheduled, and as many settled.
pub(crate) async fn fill(store: &dyn Store, each: usize) {
    enqueue(store, each, event).await;
    let claims = Claimer::default().claim_all(store, each).await;
    settle_all(store, &claims, Verdict::Delivered).await;
    enqueue(store, each, |_| event_to(&url_of("long"))).await;
    let later = jiff::Timestamp::now() + Duration::from_hours(24);
    enqueue(store, each, |number| event(number).deliver_at(later)).await;
}
