//! Care for endpoints that fail: since when they do, and when it is enough.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::store::{Settle, Settlement};
use postrider::{EndpointId, EndpointStatus, Fact, NewEvent, Verdict};

use crate::trial::{Trial, retry_after, settle_of};

const HOUR: Duration = Duration::from_hours(1);

async fn shown(t: &Trial, id: EndpointId) -> (EndpointStatus, Option<Timestamp>) {
    let endpoint = t.store.endpoint(id).await.unwrap().unwrap();
    (endpoint.status, endpoint.failing_since)
}

/// Sends `count` events to the endpoint and settles them all in one call, patient for an hour.
async fn attempt(t: &Trial, id: EndpointId, count: usize, verdict: Verdict) {
    t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}").to_endpoint(id); count]).await;
    let claims = t.claim("w1", 100).await;
    assert_eq!(claims.len(), count);
    let settles: Vec<_> =
        claims.iter().map(|claim| Settle { disable_after: Some(HOUR), ..settle_of(claim.lease, verdict) }).collect();
    assert!(t.settle_all("w1", &settles).await.iter().all(|settlement| *settlement == Settlement::Applied));
}

async fn told(t: &Trial) -> usize {
    t.announced().await.iter().filter(|told| told.fact == Fact::EndpointDisabled).count()
}

/// The attempt that failed first was settled at `at`, and began a moment before.
fn began_at(since: Option<Timestamp>, at: Timestamp) -> bool {
    since.is_some_and(|since| since <= at && since >= at - SignedDuration::from_secs(1))
}

pub async fn an_endpoint_shows_since_when_it_fails(t: &Trial) {
    let first = t.freeze();
    let id = t.endpoint("a", &["*"]).await.id;
    attempt(t, id, 1, Verdict::Delivered).await;
    assert_eq!(shown(t, id).await, (EndpointStatus::Active, None));
    attempt(t, id, 1, Verdict::Dead).await;
    assert!(began_at(shown(t, id).await.1, first));
    t.advance_secs(60);
    attempt(t, id, 2, Verdict::Dead).await;
    assert!(began_at(shown(t, id).await.1, first), "the first of the row counts");
    t.advance_secs(60);
    attempt(t, id, 1, Verdict::Delivered).await;
    assert_eq!(shown(t, id).await.1, None, "a success ends it");
    let again = t.advance_secs(60);
    attempt(t, id, 1, retry_after(7200)).await;
    assert!(began_at(shown(t, id).await.1, again), "a failure that will be retried is one");
}

pub async fn an_endpoint_that_fails_for_long_enough_is_disabled_and_told_once(t: &Trial) {
    t.freeze();
    let id = t.endpoint("a", &["*"]).await.id;
    attempt(t, id, 1, Verdict::Dead).await;
    t.advance_secs(3590);
    attempt(t, id, 1, Verdict::Dead).await;
    assert_eq!(shown(t, id).await.0, EndpointStatus::Active, "not yet");
    t.advance_secs(20);
    attempt(t, id, 3, Verdict::Dead).await;
    let endpoint = t.store.endpoint(id).await.unwrap().unwrap();
    assert_eq!(endpoint.status, EndpointStatus::Disabled);
    assert!(endpoint.status_reason.is_some(), "it says why");
    assert_eq!(told(t).await, 1, "once, however many failed at the same time");
    let announced = t.announced().await;
    let told = announced.iter().find(|told| told.fact == Fact::EndpointDisabled).unwrap();
    assert_eq!((told.endpoint_id, told.tenant.as_str()), (Some(id), "default"));
    assert!(t.enqueue(NewEvent::new("invoice.paid", "{}")).await.deliveries().is_empty(), "new events pass it by");
}

pub async fn what_was_in_flight_when_it_was_disabled_does_not_tell_again(t: &Trial) {
    t.freeze();
    let id = t.endpoint("a", &["*"]).await.id;
    attempt(t, id, 1, Verdict::Dead).await;
    t.enqueue_all(vec![NewEvent::new("invoice.paid", "{}"); 3]).await;
    let claims = t.claim("w1", 3).await;
    t.advance(HOUR * 2);
    for claim in &claims {
        let settle = Settle { disable_after: Some(HOUR), ..settle_of(claim.lease, retry_after(30)) };
        assert_eq!(t.settle_all("w1", &[settle]).await, [Settlement::Applied]);
    }
    assert_eq!((shown(t, id).await.0, told(t).await), (EndpointStatus::Disabled, 1));
}

pub async fn a_success_in_between_gives_it_its_time_anew(t: &Trial) {
    t.freeze();
    let id = t.endpoint("a", &["*"]).await.id;
    attempt(t, id, 1, Verdict::Dead).await;
    t.advance(HOUR / 2);
    attempt(t, id, 1, Verdict::Delivered).await;
    attempt(t, id, 1, Verdict::Dead).await;
    t.advance(HOUR * 3 / 4);
    attempt(t, id, 1, Verdict::Dead).await;
    assert_eq!((shown(t, id).await.0, told(t).await), (EndpointStatus::Active, 0));
    t.advance(HOUR / 2);
    attempt(t, id, 1, Verdict::Dead).await;
    assert_eq!((shown(t, id).await.0, told(t).await), (EndpointStatus::Disabled, 1));
}

pub async fn without_a_time_nothing_is_disabled(t: &Trial) {
    t.freeze();
    let id = t.endpoint("a", &["*"]).await.id;
    for _ in 0..3 {
        t.advance(HOUR * 1000);
        t.enqueue(NewEvent::new("invoice.paid", "{}")).await;
        t.claim_and_settle(Verdict::Dead).await;
    }
    assert_eq!((shown(t, id).await.0, told(t).await), (EndpointStatus::Active, 0));
}

pub async fn a_stale_settle_neither_starts_nor_ends_a_row_of_failures(t: &Trial) {
    t.freeze();
    let id = t.endpoint("a", &["*"]).await.id;
    t.enqueue(NewEvent::new("invoice.paid", "{}")).await;
    let claim = t.claim_one("w1").await;
    t.advance_secs(31);
    t.store.recover(10, 10).await.unwrap();
    assert_eq!(t.settle("w1", claim.lease, Verdict::Dead).await, Settlement::LeaseLost);
    assert_eq!(shown(t, id).await.1, None);
    t.claim_and_settle(Verdict::Dead).await;
    let failing = shown(t, id).await;
    assert!(failing.1.is_some());
    assert_eq!(t.settle("w1", claim.lease, Verdict::Delivered).await, Settlement::LeaseLost);
    assert_eq!(shown(t, id).await, failing);
}

pub async fn a_resumed_endpoint_has_its_whole_time_again(t: &Trial) {
    t.freeze();
    let id = t.endpoint("a", &["*"]).await.id;
    attempt(t, id, 1, Verdict::Dead).await;
    t.advance(HOUR * 2);
    attempt(t, id, 1, Verdict::Dead).await;
    assert_eq!(shown(t, id).await.0, EndpointStatus::Disabled);
    t.set_endpoint(id, EndpointStatus::Active).await;
    assert_eq!(shown(t, id).await, (EndpointStatus::Active, None));
    attempt(t, id, 1, Verdict::Dead).await;
    assert_eq!((shown(t, id).await.0, told(t).await), (EndpointStatus::Active, 1));
    t.advance(HOUR * 2);
    attempt(t, id, 1, Verdict::Dead).await;
    assert_eq!((shown(t, id).await.0, told(t).await), (EndpointStatus::Disabled, 2), "a second time is told as well");
}
