//! Endpoints that are removed: nothing is sent to them any more, and nothing of theirs is left in a queue.

use std::time::Duration;

use jiff::SignedDuration;
use postrider::store::{EndpointChange, Settlement};
use postrider::{
    DeliveryFilter, DeliveryId, DeliveryStatus, Endpoint, EndpointFilter, EndpointId, EndpointSettings, EndpointStatus,
    Fact, NewEvent, PageRequest, Secret, Verdict,
};
use uuid::Uuid;

use crate::trial::{Trial, operator, retry_after};

const DAY: Duration = Duration::from_hours(24);

fn paid() -> NewEvent {
    NewEvent::new("invoice.paid", "{}")
}

async fn removed(t: &Trial, id: EndpointId) -> bool {
    t.store.remove_endpoint(id, &operator()).await.unwrap()
}

/// Takes steps of retention until nothing is left to do; how many deliveries they cancelled.
async fn sweep(t: &Trial, older_than: Duration, limit: u32) -> u64 {
    let (mut cancelled, mut after) = (0, None);
    for _ in 0..1000 {
        let step = t.store.retain(older_than, after, limit).await.unwrap();
        assert!(step.cancelled <= u64::from(limit), "a step keeps its limit");
        cancelled += step.cancelled;
        after = step.next;
        if after.is_none() && step.cancelled < u64::from(limit) {
            return cancelled;
        }
    }
    panic!("1,000 steps did not come to an end");
}

async fn secretive(t: &Trial, host: &str) -> Endpoint {
    let settings = EndpointSettings { secrets: vec![Secret::generate()], ..EndpointSettings::default() };
    t.endpoint_of("acme", host, &["*"], settings).await
}

pub async fn a_removed_endpoint_is_not_there_any_more(t: &Trial) {
    let now = t.freeze();
    let endpoint = secretive(t, "a").await;
    let kept = secretive(t, "b").await;
    t.advance_secs(1);
    assert!(removed(t, endpoint.id).await);
    for store in [&t.store, &t.other] {
        assert_eq!(store.endpoint(endpoint.id).await.unwrap(), None);
        let page = store.endpoints(&EndpointFilter::default(), &PageRequest::default()).await.unwrap();
        assert_eq!(page.items.iter().map(|endpoint| endpoint.id).collect::<Vec<_>>(), [kept.id]);
    }
    assert!(!removed(t, endpoint.id).await, "there is none left to remove");
    assert!(!removed(t, EndpointId::from_uuid(Uuid::now_v7())).await);
    assert!(!t.store.set_endpoint_status(endpoint.id, EndpointStatus::Active, None, &operator()).await.unwrap());
    let replaced = t.store.replace_endpoint(&endpoint, EndpointChange::Update, &operator()).await.unwrap();
    assert_eq!(replaced, None);

    let audit = t.audit().await;
    assert_eq!(audit.len(), 3, "what was not done is not audited");
    assert_eq!((audit[0].action.as_str(), audit[0].tenant.as_deref()), ("endpoint.remove", Some("acme")));
    assert_eq!(audit[0].subject, endpoint.id.to_string());
    assert_eq!(audit[0].at, now + SignedDuration::from_secs(1));
}

pub async fn no_event_reaches_a_removed_endpoint(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    let kept = t.endpoint("b", &["*"]).await;
    removed(t, endpoint.id).await;
    let enqueued = t.enqueue(paid()).await;
    assert_eq!(enqueued.deliveries().iter().map(|line| line.endpoint_id).collect::<Vec<_>>(), [Some(kept.id)]);
    assert!(t.enqueue(paid().to_endpoint(endpoint.id)).await.deliveries().is_empty());
}

pub async fn what_was_ready_or_scheduled_is_cancelled_and_announced(t: &Trial) {
    let now = t.freeze();
    let endpoint = t.endpoint("a", &["*"]).await;
    let ready = t.enqueue(paid().topic("billing").metadata("order", 7)).await.deliveries()[0].id;
    let later = t.enqueue(paid().deliver_at(now + SignedDuration::from_hours(1))).await.deliveries()[0].id;
    let failed = t.enqueue(paid()).await.deliveries()[0].id;
    let claims = t.claim("w1", 10).await;
    let claim_of = |id: DeliveryId| claims.iter().find(|claim| claim.lease.delivery_id == id).unwrap().lease;
    assert_eq!(t.settle("w1", claim_of(failed), retry_after(600)).await, Settlement::Applied);
    assert_eq!(t.store.release(&crate::trial::worker("w1"), &[claim_of(ready)]).await.unwrap(), 1);
    let bare = t.deliver_to("b").await;

    assert!(removed(t, endpoint.id).await);
    let claims = t.claim("w1", 10).await;
    assert_eq!(claims.iter().map(|claim| claim.lease.delivery_id).collect::<Vec<_>>(), [bare], "nothing is sent to it");
    sweep(t, Duration::MAX, 10).await;
    for (id, attempts) in [(ready, 0), (later, 0), (failed, 1)] {
        let delivery = t.delivery(id).await;
        assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Cancelled, attempts));
        assert_eq!(delivery.endpoint_id, Some(endpoint.id), "it still says whose it was");
        assert!(delivery.error_detail.is_some_and(|detail| detail.contains("removed")), "it says why");
        assert_eq!(t.times_announced(Fact::Cancelled, id).await, 1);
    }
    let announced = t.announced().await;
    let told = announced.iter().find(|told| told.delivery_id == ready).unwrap();
    assert_eq!((told.topic.as_str(), told.endpoint_id), ("billing", Some(endpoint.id)));
    assert_eq!(told.metadata["order"], 7);
    let places = t.places().await;
    assert_eq!((places.ready.len(), places.scheduled.len(), places.leases), (0, 0, vec![bare]));
}

pub async fn a_backlog_larger_than_any_step_is_cancelled_to_the_last(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint("a", &["*"]).await;
    t.enqueue_all(vec![paid(); 300]).await;
    t.enqueue_all(vec![paid().deliver_at(t.freeze() + Duration::from_secs(60)); 300]).await;
    removed(t, endpoint.id).await;
    assert!(t.claim("w1", 1000).await.is_empty());
    t.advance_secs(120);
    t.store.promote(1000).await.unwrap();
    assert!(t.claim("w1", 1000).await.is_empty(), "nor what has become due since");
    sweep(t, Duration::MAX, 40).await;
    assert_eq!(t.overview().await.cancelled, 600);
    assert_eq!(t.announced().await.len(), 600);
    assert_eq!(sweep(t, Duration::MAX, 40).await, 0);
}

pub async fn what_is_in_flight_when_its_endpoint_is_removed_comes_to_its_end(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint("a", &["*"]).await;
    t.enqueue_all(vec![paid(); 4]).await;
    let claims = t.claim("w1", 4).await;
    removed(t, endpoint.id).await;
    sweep(t, Duration::MAX, 10).await;
    let ids: Vec<_> = claims.iter().map(|claim| claim.lease.delivery_id).collect();
    assert_eq!(t.places().await.leases.len(), 4, "an attempt that is under way is not cut off");
    assert_eq!(t.settle("w1", claims[0].lease, Verdict::Delivered).await, Settlement::Applied);
    assert_eq!(t.settle("w1", claims[1].lease, Verdict::Dead).await, Settlement::Applied);
    assert_eq!(t.settle("w1", claims[2].lease, retry_after(30)).await, Settlement::Applied);
    t.advance_secs(31);
    t.store.recover(10, 10).await.unwrap();
    t.store.promote(10).await.unwrap();
    assert!(t.claim("w1", 10).await.is_empty());
    sweep(t, Duration::MAX, 10).await;
    let mut found = Vec::new();
    for id in ids {
        let delivery = t.delivery(id).await;
        found.push((delivery.status, delivery.attempt_count));
    }
    assert_eq!(
        found,
        [
            (DeliveryStatus::Delivered, 1),
            (DeliveryStatus::Dead, 1),
            (DeliveryStatus::Cancelled, 1),
            (DeliveryStatus::Cancelled, 0)
        ],
        "what came to nothing is not tried again"
    );
}

pub async fn an_operators_retry_of_a_removed_endpoints_delivery_sends_nothing(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint("a", &["*"]).await;
    let id = t.enqueue(paid()).await.deliveries()[0].id;
    t.claim_and_settle(Verdict::Dead).await;
    removed(t, endpoint.id).await;
    sweep(t, Duration::MAX, 10).await;
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Dead, "a dead letter is history");
    t.store.retry(id, &operator()).await.unwrap();
    assert!(t.claim("w1", 10).await.is_empty());
    sweep(t, Duration::MAX, 10).await;
    let status = t.delivery(id).await.status;
    assert!(status.is_settled(), "it does not wait for ever: {status}");
}

pub async fn enqueues_beside_a_removal_leave_nothing_behind(t: &Trial) {
    for round in 0..5 {
        let endpoint = t.endpoint(&format!("host{round}"), &["*"]).await;
        let enqueuers: Vec<_> = (0..4)
            .map(|number| {
                let store = if number % 2 == 0 { t.store.clone() } else { t.other.clone() };
                tokio::spawn(async move {
                    for _ in 0..10 {
                        store.enqueue(vec![paid(); 3]).await.unwrap();
                    }
                })
            })
            .collect();
        assert!(removed(t, endpoint.id).await);
        for enqueuer in enqueuers {
            enqueuer.await.unwrap();
        }
        sweep(t, Duration::MAX, 50).await;
        let places = t.places().await;
        assert!(places.ready.is_empty() && places.scheduled.is_empty(), "{} are left", places.ready.len());
    }
}

pub async fn what_a_removed_endpoint_got_is_kept_as_long_as_everything_else(t: &Trial) {
    t.freeze();
    let endpoint = t.endpoint("a", &["*"]).await;
    let delivered = t.enqueue(paid()).await.deliveries()[0].id;
    t.claim_and_settle(Verdict::Delivered).await;
    let cancelled = t.enqueue(paid()).await.deliveries()[0].id;
    removed(t, endpoint.id).await;
    sweep(t, DAY, 10).await;
    let of = DeliveryFilter { endpoint_id: Some(endpoint.id), ..DeliveryFilter::default() };
    let listed: Vec<_> = t.list(&of, 10).await.iter().map(|delivery| delivery.id).collect();
    assert_eq!(listed, [cancelled, delivered]);
    assert_eq!(t.attempts(delivered).await.len(), 1);
    t.advance(DAY * 2);
    sweep(t, DAY, 10).await;
    assert!(t.list(&of, 10).await.is_empty());
    assert_eq!(t.places().await.events, 0);
    // A last time, when nobody names it any more.
    sweep(t, DAY, 10).await;
    assert_eq!(t.store.endpoint(endpoint.id).await.unwrap(), None);
}

pub async fn a_paused_or_disabled_endpoint_is_removed_with_its_backlog(t: &Trial) {
    for status in [EndpointStatus::Paused, EndpointStatus::Disabled] {
        let endpoint = t.endpoint("a", &["*"]).await;
        let id = t.enqueue(paid()).await.deliveries()[0].id;
        t.set_endpoint(endpoint.id, status).await;
        assert!(removed(t, endpoint.id).await);
        sweep(t, Duration::MAX, 10).await;
        assert_eq!(t.delivery(id).await.status, DeliveryStatus::Cancelled);
    }
}
