//! The acceptance criteria of the original documents, as far as a store can meet them.
//!
//! Document 001 wants leases that are renewed by their owner only, and deliveries that survive a crash. Document 003
//! wants an exact schedule, and dead letters that are announced on the topic `gateway:webhooks`.

use std::time::Duration;

use jiff::SignedDuration;
use postrider::store::{Action, Settlement};
use postrider::{Announcement, Delivery, DeliveryId, DeliveryStatus, Fact, Lease, LeaseToken, NewEvent, Verdict};
use uuid::Uuid;

use crate::trial::{LEASE, Trial, claim_from, failure, operator, retry_after, url_of, worker};

const MINUTE: Duration = Duration::from_mins(1);

pub async fn doc_001_fr_002_ac1_a_renewal_matches_id_owner_and_an_unsettled_status(t: &Trial) {
    t.freeze();
    t.backlog("a", 2).await;
    let claims = t.claim("w1", 2).await;
    let (lease, another) = (claims[0].lease, claims[1].lease);
    let renew = async |name: &str, lease: Lease| t.store.renew(&worker(name), &[lease], MINUTE).await.unwrap();
    assert_eq!(renew("w1", lease).await, [lease], "id, owner and token fit");
    assert!(renew("w1", Lease { delivery_id: another.delivery_id, ..lease }).await.is_empty(), "another id");
    assert!(renew("w2", lease).await.is_empty(), "another owner");
    assert!(renew("w1", Lease { token: LeaseToken(Uuid::new_v4()), ..lease }).await.is_empty(), "another token");
    t.settle("w1", lease, Verdict::Delivered).await;
    assert!(renew("w1", lease).await.is_empty(), "settled");
}

pub async fn doc_001_fr_002_ac2_a_refused_renewal_leaves_unrelated_rows_alone(t: &Trial) {
    t.freeze();
    t.backlog("a", 4).await;
    let claims = t.claim("w1", 2).await;
    claim_from(&*t.other, "w2", 1, LEASE).await;
    let before = (t.deliveries().await, t.places().await);
    t.advance_secs(10);
    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    assert!(t.store.renew(&worker("w3"), &leases, MINUTE).await.unwrap().is_empty());
    assert_eq!((t.deliveries().await, t.places().await), before);
}

pub async fn doc_001_fr_002_ac3_every_final_mark_checks_the_owner(t: &Trial) {
    for verdict in [Verdict::Delivered, retry_after(30), Verdict::Dead] {
        let id = t.deliver_to("a").await;
        let claim = t.claim_one("w1").await;
        let before = (t.delivery(id).await, t.places().await);
        assert_eq!(t.settle("w2", claim.lease, verdict).await, Settlement::LeaseLost);
        assert_eq!((t.delivery(id).await, t.places().await), before, "{verdict:?}");
        assert_eq!(t.settle("w1", claim.lease, verdict).await, Settlement::Applied);
    }
}

pub async fn doc_001_fr_004_ac1_no_lock_rows_are_left_behind(t: &Trial) {
    t.freeze();
    let ids = t.backlog("a", 7).await;
    let claims = t.claim("w1", 7).await;
    assert_eq!(t.places().await.leases.len(), 7);
    t.settle("w1", claims[0].lease, Verdict::Delivered).await;
    t.settle("w1", claims[1].lease, retry_after(30)).await;
    t.settle("w1", claims[2].lease, Verdict::Dead).await;
    t.store.release(&worker("w1"), &[claims[3].lease]).await.unwrap();
    t.store.cancel(claims[4].lease.delivery_id, "not wanted", &operator()).await.unwrap();
    // Two are held by a worker that is gone.
    t.advance_secs(31);
    assert_eq!(t.other.recover(10, 10).await.unwrap().returned, 2);
    let places = t.places().await;
    assert!(places.leases.is_empty());
    assert_eq!((places.ready.len(), places.scheduled.len(), places.dead_letters.len()), (3, 1, 1));
    assert_eq!(places.deliveries, ids.len() as u64);
}

pub async fn doc_001_fr_004_ac2_an_expired_lease_is_reclaimable_and_a_live_one_is_not(t: &Trial) {
    t.freeze();
    t.backlog("a", 2).await;
    let claims = t.claim("crashed", 2).await;
    t.advance_secs(20);
    t.store.renew(&worker("crashed"), &[claims[1].lease], LEASE).await.unwrap();
    t.advance_secs(11);
    t.other.recover(10, 10).await.unwrap();
    let reclaimed = claim_from(&*t.other, "w2", 10, LEASE).await;
    assert_eq!(reclaimed.len(), 1, "the renewed one is not reclaimable yet");
    assert_eq!(reclaimed[0].lease.delivery_id, claims[0].lease.delivery_id);
    t.advance_secs(20);
    t.other.recover(10, 10).await.unwrap();
    let reclaimed = claim_from(&*t.other, "w2", 10, LEASE).await;
    assert_eq!(reclaimed.len(), 1, "without further renewals it is");
    assert_eq!(reclaimed[0].lease.delivery_id, claims[1].lease.delivery_id);
}

pub async fn doc_001_fr_004_ac3_a_crash_changes_no_counter_and_no_status(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    t.claim_and_settle(retry_after(30)).await;
    t.advance_secs(30);
    t.store.promote(10).await.unwrap();
    t.claim("crashed", 1).await;
    t.advance_secs(31);
    t.store.recover(10, 10).await.unwrap();
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(t.attempts(id).await.len(), 1);

    let claim = t.claim_one("w1").await;
    assert_eq!(claim.attempt_count, 1);
    let now = t.freeze();
    assert_eq!(t.settle_all("w1", &[failure(&claim)]).await, [Settlement::Applied]);
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Failed, 2));
    assert_eq!(delivery.next_attempt_at, Some(now + SignedDuration::from_secs(120)), "the second delay");
}

const TOPIC: &str = "gateway:webhooks";

/// A delivery with so many failures behind it, claimed when it was due.
async fn failed_times(t: &Trial, failures: u32) -> DeliveryId {
    t.freeze();
    let event = NewEvent::new("agent.stopped", "{}").to(url_of("a")).topic(TOPIC);
    let event = event.metadata("webhook_id", "wh_1").metadata("session_id", "s_1");
    let id = t.enqueue(event).await.deliveries()[0].id;
    for _ in 0..failures {
        fail(t).await;
        t.advance_secs(3600);
        assert_eq!(t.store.promote(10).await.unwrap().ready, 1);
    }
    id
}

async fn fail(t: &Trial) {
    let claim = t.claim_one("w1").await;
    assert_eq!(t.settle_all("w1", &[failure(&claim)]).await, [Settlement::Applied]);
}

async fn told(t: &Trial, fact: Fact) -> Vec<Announcement> {
    t.announced().await.into_iter().filter(|told| told.fact == fact && told.topic == TOPIC).collect()
}

fn assert_dead(delivery: &Delivery) {
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Dead, 5));
    assert_eq!(delivery.next_attempt_at, None);
}

pub async fn doc_003_s1_the_first_failure_schedules_a_retry_in_30_seconds(t: &Trial) {
    let id = failed_times(t, 0).await;
    assert_eq!((t.delivery(id).await.status, t.delivery(id).await.attempt_count), (DeliveryStatus::Pending, 0));
    fail(t).await;
    let now = t.freeze();
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(delivery.next_attempt_at, Some(now + SignedDuration::from_secs(30)));
    assert!(delivery.error_detail.unwrap().contains("500"));
}

pub async fn doc_003_s2_the_fifth_failure_is_dead_and_broadcast(t: &Trial) {
    let id = failed_times(t, 4).await;
    assert_eq!((t.delivery(id).await.status, t.delivery(id).await.attempt_count), (DeliveryStatus::Failed, 4));
    fail(t).await;
    assert_dead(&t.delivery(id).await);
    assert_eq!(told(t, Fact::Dead).await.len(), 1);
}

pub async fn doc_003_a1_a_success_is_delivered_and_broadcast(t: &Trial) {
    let id = failed_times(t, 1).await;
    let now = t.advance_secs(1);
    t.claim_and_settle(Verdict::Delivered).await;
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.status, DeliveryStatus::Delivered);
    assert_eq!((delivery.last_attempted_at, delivery.next_attempt_at), (Some(now), None));
    assert_eq!(told(t, Fact::Delivered).await.len(), 1);
    t.advance_secs(100_000);
    assert_eq!(t.store.promote(10).await.unwrap().ready, 0, "no further retries");
    assert!(t.claim("w1", 10).await.is_empty());
}

pub async fn doc_003_f1_a_dead_letter_is_broadcast_with_its_ids_and_waits_for_an_operator(t: &Trial) {
    let id = failed_times(t, 4).await;
    fail(t).await;
    assert_dead(&t.delivery(id).await);
    let dead = told(t, Fact::Dead).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].delivery_id, id);
    assert_eq!((&dead[0].metadata["webhook_id"], &dead[0].metadata["session_id"]), (&"wh_1".into(), &"s_1".into()));
    t.advance_secs(1_000_000);
    t.store.promote(10).await.unwrap();
    assert!(t.claim("w1", 10).await.is_empty(), "no further automatic retry");

    assert_eq!(t.store.retry(id, &operator()).await.unwrap(), Action::Done);
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Pending, 0));
    assert_eq!(t.claim_one("w1").await.lease.delivery_id, id);
}

pub async fn doc_003_criterion_1_a_failure_with_attempt_count_0_is_due_again_after_30_seconds(t: &Trial) {
    let id = failed_times(t, 0).await;
    fail(t).await;
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Failed, 1));
    t.advance(Duration::from_millis(29_999));
    assert_eq!(t.store.promote(10).await.unwrap().ready, 0);
    t.advance(Duration::from_millis(1));
    assert_eq!(t.store.promote(10).await.unwrap().ready, 1);
}

pub async fn doc_003_criterion_2_a_failure_with_attempt_count_4_is_dead_and_broadcast_elsewhere_too(t: &Trial) {
    let id = failed_times(t, 4).await;
    let place = t.other.announcements_end().await.unwrap();
    fail(t).await;
    assert_dead(&t.delivery(id).await);
    let heard = t.other.announcements(&place, 10).await.unwrap().announcements;
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].fact, heard[0].delivery_id, heard[0].topic.as_str()), (Fact::Dead, id, TOPIC));
}
