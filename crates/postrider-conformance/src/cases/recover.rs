//! Recovery: what a crashed worker held is taken up again, and what crashes its worker is not taken up for ever.

use std::sync::Arc;
use std::time::Duration;

use postrider::store::{Recovered, Settlement};
use postrider::{DeliveryStatus, Fact, Verdict};

use crate::trial::{LEASE, Trial, claim_from, operator, retry_after, worker};

async fn abandon(t: &Trial, max_abandoned: u32) -> Recovered {
    t.claim_one("w1").await;
    t.advance(LEASE + Duration::from_secs(1));
    t.store.recover(10, max_abandoned).await.unwrap()
}

pub async fn only_expired_leases_are_taken_back(t: &Trial) {
    t.freeze();
    let first = t.deliver_to("a").await;
    t.claim_one("w1").await;
    t.advance_secs(20);
    let second = t.deliver_to("a").await;
    t.claim_one("w1").await;
    t.advance(Duration::from_micros(9_999_999));
    assert_eq!(t.store.recover(10, 10).await.unwrap(), Recovered::default(), "a microsecond before its end");
    t.advance(Duration::from_micros(2));
    assert_eq!(t.store.recover(10, 10).await.unwrap(), Recovered { returned: 1, dead: 0 });
    let places = t.places().await;
    assert_eq!((places.ready, places.leases), (vec![first], vec![second]));
    let delivery = t.delivery(first).await;
    assert_eq!((delivery.abandoned_count, delivery.attempt_count), (1, 0));
    assert_eq!(delivery.status, DeliveryStatus::Pending);
    assert!(t.announced().await.is_empty());
}

pub async fn recovery_keeps_its_limit(t: &Trial) {
    t.freeze();
    t.backlog("a", 10).await;
    assert_eq!(t.claim("w1", 10).await.len(), 10);
    t.advance_secs(31);
    for expected in [4, 4, 2, 0] {
        assert_eq!(t.store.recover(4, 10).await.unwrap().returned, expected);
    }
    assert_eq!(t.claim("w1", 20).await.len(), 10);
}

pub async fn p11_another_handles_leases_are_taken_back_too(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    assert_eq!(claim_from(&*t.other, "crashed", 10, LEASE).await.len(), 1);
    assert!(t.claim("w1", 10).await.is_empty(), "p3: it is leased");
    t.advance_secs(31);
    assert_eq!(t.store.recover(10, 10).await.unwrap().returned, 1);
    let claim = t.claim_one("w1").await;
    assert_eq!(claim.lease.delivery_id, id);
    assert_eq!(t.settle("w1", claim.lease, Verdict::Delivered).await, Settlement::Applied);
}

pub async fn recovery_from_two_handles_returns_each_once(t: &Trial) {
    t.freeze();
    t.backlog("a", 60).await;
    assert_eq!(t.claim("w1", 60).await.len(), 60);
    t.advance_secs(31);
    let mut recoveries = Vec::new();
    for store in [&t.store, &t.other, &t.store, &t.other] {
        let store = Arc::clone(store);
        recoveries.push(tokio::spawn(async move {
            let mut sum = 0;
            loop {
                let recovered = store.recover(7, 10).await.unwrap();
                sum += recovered.returned;
                if recovered.returned == 0 {
                    return sum;
                }
            }
        }));
    }
    let mut sum = 0;
    for recovery in recoveries {
        sum += recovery.await.unwrap();
    }
    // One that meets another may leave the rest to it; together they leave nothing.
    sum += t.store.recover(100, 10).await.unwrap().returned;
    assert_eq!(sum, 60);
    for delivery in t.deliveries().await {
        assert_eq!(delivery.abandoned_count, 1);
    }
}

pub async fn p14_the_tenth_abandonment_in_a_row_is_death(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    for number in 1..10 {
        assert_eq!(abandon(t, 10).await, Recovered { returned: 1, dead: 0 }, "{number}");
        assert_eq!(t.delivery(id).await.abandoned_count, number);
    }
    assert_eq!(abandon(t, 10).await, Recovered { returned: 0, dead: 1 });
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.status, DeliveryStatus::Dead);
    assert_eq!((delivery.abandoned_count, delivery.attempt_count), (10, 0), "no attempt was counted");
    assert_eq!(delivery.next_attempt_at, None);
    let reason = delivery.error_detail.expect("it says why");
    assert!(reason.contains("abandoned"), "{reason}");
    assert!(t.attempts(id).await.is_empty());
    assert_eq!(t.places().await.dead_letters, [id]);
    assert_eq!(t.times_announced(Fact::Dead, id).await, 1);
    assert!(t.claim("w1", 10).await.is_empty());
}

pub async fn p14_an_applied_settle_in_between_starts_the_count_again(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    for _ in 0..2 {
        abandon(t, 3).await;
    }
    assert_eq!(t.delivery(id).await.abandoned_count, 2);
    t.claim_and_settle(retry_after(0)).await;
    assert_eq!(t.delivery(id).await.abandoned_count, 0);
    t.store.promote(10).await.unwrap();
    for _ in 0..2 {
        assert_eq!(abandon(t, 3).await, Recovered { returned: 1, dead: 0 });
    }
    assert_eq!(t.delivery(id).await.attempt_count, 1, "what was counted stays");
    assert_eq!(abandon(t, 3).await, Recovered { returned: 0, dead: 1 });
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Dead, 1));
}

pub async fn a_release_in_between_neither_counts_nor_starts_again(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    abandon(t, 3).await;
    let claim = t.claim_one("w1").await;
    t.store.release(&worker("w1"), &[claim.lease]).await.unwrap();
    assert_eq!(t.delivery(id).await.abandoned_count, 1);
}

pub async fn a_delivery_that_was_abandoned_to_death_can_be_retried_by_an_operator(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    for _ in 0..2 {
        abandon(t, 2).await;
    }
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Dead);
    t.store.retry(id, &operator()).await.unwrap();
    assert_eq!(t.delivery(id).await.abandoned_count, 0, "the operator's retry is a new start");
    assert_eq!(abandon(t, 2).await, Recovered { returned: 1, dead: 0 });
}

pub async fn an_abandoned_failed_delivery_stays_failed(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    t.claim_and_settle(retry_after(0)).await;
    t.store.promote(10).await.unwrap();
    assert_eq!(abandon(t, 10).await, Recovered { returned: 1, dead: 0 });
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(t.claim_one("w1").await.attempt_count, 1);
}
