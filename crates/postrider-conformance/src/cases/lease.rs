//! Leases: renewed only forwards and only by their holder, given back uncharged, never left behind.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::store::Settlement;
use postrider::{DeliveryId, DeliveryStatus, Lease, LeaseToken, Verdict};
use uuid::Uuid;

use crate::trial::{LEASE, Trial, claim_from, retry_after, worker};

const MINUTE: Duration = Duration::from_mins(1);

fn after(now: Timestamp, duration: Duration) -> Timestamp {
    now + SignedDuration::try_from(duration).unwrap()
}

async fn renew(t: &Trial, name: &str, leases: &[Lease], lease: Duration) -> Vec<Lease> {
    t.store.renew(&worker(name), leases, lease).await.unwrap()
}

async fn lease_until(t: &Trial, id: DeliveryId) -> Option<Timestamp> {
    t.delivery(id).await.lease_until
}

pub async fn a_renewal_counts_from_now(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let now = t.advance(Duration::from_micros(10_000_001));
    assert_eq!(renew(t, "w1", &[claim.lease], LEASE).await, [claim.lease]);
    assert_eq!(lease_until(t, id).await, Some(after(now, LEASE)));
}

pub async fn a_renewal_never_goes_backwards(t: &Trial) {
    let now = t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    assert_eq!(renew(t, "w1", &[claim.lease], MINUTE).await, [claim.lease]);
    assert_eq!(renew(t, "w1", &[claim.lease], Duration::from_secs(1)).await, [claim.lease], "it is still held");
    assert_eq!(lease_until(t, id).await, Some(after(now, MINUTE)));
}

pub async fn a_renewal_with_another_token_changes_nothing(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let before = lease_until(t, id).await;
    let forged = Lease { token: LeaseToken(Uuid::new_v4()), ..claim.lease };
    assert!(renew(t, "w1", &[forged], MINUTE).await.is_empty());
    assert_eq!(lease_until(t, id).await, before);
}

pub async fn a_renewal_by_another_worker_changes_nothing(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let before = lease_until(t, id).await;
    assert!(renew(t, "w2", &[claim.lease], MINUTE).await.is_empty());
    assert_eq!(lease_until(t, id).await, before);
    assert_eq!(t.delivery(id).await.lease_owner.as_deref(), Some("w1"));
}

pub async fn a_settled_lease_is_not_renewed(t: &Trial) {
    for (number, verdict) in [Verdict::Delivered, retry_after(60), Verdict::Dead].into_iter().enumerate() {
        t.deliver_to("a").await;
        let claim = t.claim_one("w1").await;
        assert_eq!(t.settle("w1", claim.lease, verdict).await, Settlement::Applied);
        assert!(renew(t, "w1", &[claim.lease], MINUTE).await.is_empty(), "{number}: {verdict:?}");
    }
    assert!(t.places().await.leases.is_empty());
}

pub async fn an_expired_lease_that_nobody_took_is_renewed(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let now = t.advance_secs(300);
    assert_eq!(renew(t, "w1", &[claim.lease], LEASE).await, [claim.lease]);
    assert_eq!(lease_until(t, id).await, Some(after(now, LEASE)));
    assert_eq!(t.store.recover(10, 10).await.unwrap().returned, 0, "it is alive again");
}

pub async fn a_lease_that_was_taken_back_is_not_renewed(t: &Trial) {
    t.freeze();
    t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    t.advance_secs(31);
    assert_eq!(t.store.recover(10, 10).await.unwrap().returned, 1);
    assert!(renew(t, "w1", &[claim.lease], LEASE).await.is_empty(), "nobody holds it");
    let again = t.claim_one("w1").await;
    assert!(renew(t, "w1", &[claim.lease], MINUTE).await.is_empty(), "the same worker holds it under another token");
    assert_eq!(renew(t, "w1", &[again.lease], MINUTE).await, [again.lease]);
}

pub async fn one_renewal_of_many_tells_which_are_held(t: &Trial) {
    t.freeze();
    t.backlog("a", 6).await;
    let leases: Vec<_> = t.claim("w1", 6).await.iter().map(|claim| claim.lease).collect();
    t.settle("w1", leases[1], Verdict::Delivered).await;
    t.store.release(&worker("w1"), &[leases[3]]).await.unwrap();
    let unknown = Lease { delivery_id: DeliveryId::from_uuid(Uuid::now_v7()), token: LeaseToken(Uuid::new_v4()) };
    let mut asked = leases.clone();
    asked.push(unknown);
    let now = t.advance_secs(10);
    let mut held = renew(t, "w1", &asked, LEASE).await;
    held.sort_by_key(|lease| lease.delivery_id);
    let mut expected = vec![leases[0], leases[2], leases[4], leases[5]];
    expected.sort_by_key(|lease| lease.delivery_id);
    assert_eq!(held, expected);
    for lease in expected {
        assert_eq!(lease_until(t, lease.delivery_id).await, Some(after(now, LEASE)));
    }
    assert!(renew(t, "w1", &[], LEASE).await.is_empty());
}

pub async fn renewing_one_leaves_the_others_as_they_are(t: &Trial) {
    t.freeze();
    t.backlog("a", 3).await;
    let leases: Vec<_> = t.claim("w1", 3).await.iter().map(|claim| claim.lease).collect();
    let before = lease_until(t, leases[1].delivery_id).await;
    t.advance_secs(10);
    renew(t, "w1", &leases[..1], LEASE).await;
    assert_eq!(lease_until(t, leases[1].delivery_id).await, before);
    assert_eq!(lease_until(t, leases[2].delivery_id).await, before);
}

pub async fn a_renewed_lease_is_not_taken_back(t: &Trial) {
    t.freeze();
    t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    for _ in 0..10 {
        t.advance_secs(20);
        assert_eq!(renew(t, "w1", &[claim.lease], LEASE).await.len(), 1);
        assert_eq!(t.store.recover(10, 10).await.unwrap().returned, 0);
        assert!(claim_from(&*t.other, "w2", 10, LEASE).await.is_empty());
    }
}

pub async fn a_released_delivery_is_ready_at_once_and_uncharged(t: &Trial) {
    t.freeze();
    let ids = t.backlog("a", 3).await;
    let leases: Vec<_> = t.claim("w1", 3).await.iter().map(|claim| claim.lease).collect();
    assert_eq!(t.store.release(&worker("w1"), &leases).await.unwrap(), 3);
    for id in &ids {
        let delivery = t.delivery(*id).await;
        assert_eq!(delivery.status, DeliveryStatus::Pending);
        assert_eq!((delivery.attempt_count, delivery.abandoned_count), (0, 0));
        assert_eq!((delivery.lease_owner, delivery.lease_until), (None, None));
        assert!(t.attempts(*id).await.is_empty());
    }
    assert!(t.announced().await.is_empty());
    let again: Vec<_> = t.claim("w2", 10).await.iter().map(|claim| claim.lease.delivery_id).collect();
    assert_eq!(again.len(), 3, "another worker takes them at once");
    assert_eq!(t.settle("w1", leases[0], Verdict::Delivered).await, Settlement::LeaseLost);
}

pub async fn only_the_holder_releases(t: &Trial) {
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let forged = Lease { token: LeaseToken(Uuid::new_v4()), ..claim.lease };
    assert_eq!(t.store.release(&worker("w2"), &[claim.lease]).await.unwrap(), 0);
    assert_eq!(t.store.release(&worker("w1"), &[forged]).await.unwrap(), 0);
    assert_eq!(t.store.release(&worker("w1"), &[]).await.unwrap(), 0);
    assert_eq!(t.places().await.leases, [id]);
    assert_eq!(t.store.release(&worker("w1"), &[claim.lease]).await.unwrap(), 1);
    assert_eq!(t.store.release(&worker("w1"), &[claim.lease]).await.unwrap(), 0, "it is gone");
    assert_eq!(t.places().await.ready, [id]);
}

pub async fn a_release_of_a_failed_delivery_keeps_its_count(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    t.claim_and_settle(retry_after(30)).await;
    t.advance_secs(30);
    t.store.promote(10).await.unwrap();
    let claim = t.claim_one("w1").await;
    assert_eq!(t.store.release(&worker("w1"), &[claim.lease]).await.unwrap(), 1);
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(t.claim_one("w1").await.attempt_count, 1);
}
