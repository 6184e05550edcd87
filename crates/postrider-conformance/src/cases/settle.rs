//! Settles: each takes effect once, in the hands of the lease's holder only.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use postrider::store::{AttemptResult, Settle, Settlement};
use postrider::{DeliveryId, DeliveryStatus, Fact, Lease, LeaseToken, OutcomeKind, Verdict};
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::trial::{LEASE, Trial, claim_from, operator, retry_after, settle_of, worker};

pub async fn a_delivered_delivery_is_done(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let now = t.advance(Duration::from_micros(1_000_001));
    assert_eq!(t.settle("w1", claim.lease, Verdict::Delivered).await, Settlement::Applied);
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.status, DeliveryStatus::Delivered);
    assert_eq!(delivery.attempt_count, 1);
    assert_eq!(delivery.last_attempted_at, Some(now));
    assert_eq!(delivery.next_attempt_at, None);
    assert_eq!(delivery.error_detail, None);
    assert!(t.places().await.leases.is_empty());
}

pub async fn p7_an_attempt_is_recorded_as_it_was_reported(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let now = t.advance_secs(2);
    let attempt = AttemptResult {
        outcome: OutcomeKind::Timeout,
        status_code: None,
        took: Duration::from_millis(1234),
        started_ago: Duration::from_micros(1_500_007),
        response_excerpt: Some("half of a \"body\" é😀\n".to_owned()),
        error_detail: Some("timeout: the deadline passed while reading the response body".to_owned()),
    };
    let settle = Settle { attempt: attempt.clone(), ..settle_of(claim.lease, retry_after(30)) };
    assert_eq!(t.settle_all("w1", &[settle]).await, [Settlement::Applied]);
    let recorded = t.attempts(id).await;
    assert_eq!(recorded.len(), 1);
    let recorded = &recorded[0];
    assert_eq!(recorded.number, 1);
    assert_eq!(recorded.started_at, now - SignedDuration::try_from(attempt.started_ago).unwrap());
    assert_eq!(recorded.duration_ms, 1234);
    assert_eq!((recorded.outcome, recorded.status_code), (attempt.outcome, attempt.status_code));
    assert_eq!(recorded.response_excerpt, attempt.response_excerpt);
    assert_eq!(recorded.error_detail, attempt.error_detail);
    assert_eq!(recorded.worker_id, "w1");
    assert_eq!(t.delivery(id).await.error_detail, attempt.error_detail);
}

pub async fn every_kind_of_outcome_is_recorded_as_itself(t: &Trial) {
    t.backlog("a", OutcomeKind::ALL.len()).await;
    let claims = t.claim("w1", 100).await;
    let settles: Vec<_> = claims
        .iter()
        .zip(OutcomeKind::ALL)
        .map(|(claim, outcome)| {
            let mut settle = settle_of(claim.lease, Verdict::Dead);
            settle.attempt.outcome = outcome;
            settle.attempt.status_code = settle.attempt.status_code.filter(|_| outcome == OutcomeKind::Response);
            settle
        })
        .collect();
    t.settle_all("w1", &settles).await;
    for (claim, outcome) in claims.iter().zip(OutcomeKind::ALL) {
        assert_eq!(t.attempts(claim.lease.delivery_id).await[0].outcome, outcome);
    }
}

pub async fn p4_a_settle_by_another_owner_changes_nothing(t: &Trial) {
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let before = (t.delivery(id).await, t.places().await);
    for verdict in [Verdict::Delivered, retry_after(1), Verdict::Dead] {
        assert_eq!(t.settle("w2", claim.lease, verdict).await, Settlement::LeaseLost);
        let forged = Lease { token: LeaseToken(Uuid::new_v4()), ..claim.lease };
        assert_eq!(t.settle("w1", forged, verdict).await, Settlement::LeaseLost);
    }
    assert_eq!((t.delivery(id).await, t.places().await), before);
    assert_eq!(t.settle("w1", claim.lease, Verdict::Delivered).await, Settlement::Applied, "the holder still may");
}

pub async fn p4_a_stale_settle_after_the_same_owner_reclaimed_changes_nothing(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let stale = t.claim_one("w1").await;
    t.advance_secs(31);
    assert_eq!(t.store.recover(10, 10).await.unwrap().returned, 1);
    let current = t.claim_one("w1").await;
    assert_eq!(current.lease.delivery_id, id);
    assert_ne!(current.lease.token, stale.lease.token);
    let before = (t.delivery(id).await, t.places().await);
    for verdict in [Verdict::Delivered, retry_after(1), Verdict::Dead] {
        assert_eq!(t.settle("w1", stale.lease, verdict).await, Settlement::LeaseLost);
    }
    assert_eq!((t.delivery(id).await, t.places().await), before, "the newer claim is untouched");
    assert_eq!(t.settle("w1", current.lease, Verdict::Delivered).await, Settlement::Applied);
    assert_eq!(t.attempts(id).await.len(), 1);
}

pub async fn p4_a_stale_settle_after_another_took_over_changes_nothing(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let stale = t.claim_one("w1").await;
    t.advance_secs(31);
    t.other.recover(10, 10).await.unwrap();
    let current = claim_from(&*t.other, "w2", 1, LEASE).await.remove(0);
    t.other.settle(&worker("w2"), &[settle_of(current.lease, Verdict::Delivered)]).await.unwrap();
    let before = (t.delivery(id).await, t.places().await);
    assert_eq!(t.settle("w1", stale.lease, Verdict::Dead).await, Settlement::LeaseLost);
    assert_eq!((t.delivery(id).await, t.places().await), before);
}

pub async fn p5_a_settle_applies_once_also_when_its_reply_was_lost(t: &Trial) {
    for verdict in [Verdict::Delivered, retry_after(600), Verdict::Dead] {
        let id = t.deliver_to("a").await;
        let claim = t.claim_one("w1").await;
        assert_eq!(t.settle("w1", claim.lease, verdict).await, Settlement::Applied);
        let after = (t.delivery(id).await, t.places().await);
        for store in [&t.store, &t.other] {
            let again = store.settle(&worker("w1"), &[settle_of(claim.lease, verdict)]).await.unwrap();
            assert_eq!(again, [Settlement::AppliedEarlier], "{verdict:?}");
        }
        assert_eq!((t.delivery(id).await, t.places().await), after, "{verdict:?}");
        assert_eq!(t.attempts(id).await.len(), 1);
    }
}

pub async fn p5_a_late_repetition_does_not_touch_the_next_claim(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let first = t.claim_one("w1").await;
    assert_eq!(t.settle("w1", first.lease, retry_after(30)).await, Settlement::Applied);
    t.advance_secs(30);
    t.store.promote(10).await.unwrap();
    let second = t.claim_one("w1").await;
    assert_eq!(t.settle("w1", first.lease, retry_after(30)).await, Settlement::AppliedEarlier);
    assert_eq!(t.places().await.leases, [id], "the second claim is untouched");
    assert_eq!(t.settle("w1", second.lease, Verdict::Delivered).await, Settlement::Applied);
    assert_eq!(t.attempts(id).await.len(), 2);
}

pub async fn p5_a_lease_named_twice_in_one_settle_applies_once(t: &Trial) {
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    let settle = settle_of(claim.lease, Verdict::Dead);
    assert_eq!(t.settle_all("w1", &[settle.clone(), settle]).await, [Settlement::Applied, Settlement::AppliedEarlier]);
    assert_eq!(t.attempts(id).await.len(), 1);
    assert_eq!(t.times_announced(Fact::Dead, id).await, 1);
}

pub async fn p5_concurrent_settles_of_one_lease_apply_once(t: &Trial) {
    let id = t.deliver_to("a").await;
    let lease = t.claim_one("w1").await.lease;
    let barrier = Arc::new(Barrier::new(8));
    let racers: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                barrier.wait().await;
                store.settle(&worker("w1"), &[settle_of(lease, retry_after(30))]).await.unwrap()[0]
            })
        })
        .collect();
    let mut applied = 0;
    for racer in racers {
        match racer.await.unwrap() {
            Settlement::Applied => applied += 1,
            Settlement::AppliedEarlier => {}
            Settlement::LeaseLost => panic!("it was applied, not lost"),
        }
    }
    assert_eq!(applied, 1);
    assert_eq!(t.delivery(id).await.attempt_count, 1);
    assert_eq!(t.attempts(id).await.len(), 1);
    assert_eq!(t.times_announced(Fact::Failed, id).await, 1);
}

pub async fn a_mixed_batch_is_answered_in_its_order(t: &Trial) {
    t.freeze();
    t.backlog("a", 6).await;
    let mut leases: Vec<_> = t.claim("w1", 6).await.iter().map(|claim| claim.lease).collect();
    // Not in the order of ids, so that an answer in another order than the question's is seen.
    leases.reverse();
    assert_eq!(t.settle("w1", leases[4], Verdict::Delivered).await, Settlement::Applied);
    let unknown = Lease { delivery_id: DeliveryId::from_uuid(Uuid::now_v7()), token: LeaseToken(Uuid::new_v4()) };
    let batch = [
        (leases[0], Verdict::Delivered, Settlement::Applied),
        (Lease { token: unknown.token, ..leases[3] }, Verdict::Dead, Settlement::LeaseLost),
        (leases[1], retry_after(30), Settlement::Applied),
        (leases[4], Verdict::Delivered, Settlement::AppliedEarlier),
        (leases[2], Verdict::Dead, Settlement::Applied),
        (unknown, Verdict::Dead, Settlement::LeaseLost),
        (leases[5], Verdict::Delivered, Settlement::Applied),
    ];
    let settles: Vec<_> = batch.iter().map(|(lease, verdict, _)| settle_of(*lease, *verdict)).collect();
    let expected: Vec<_> = batch.iter().map(|(_, _, expected)| *expected).collect();
    assert_eq!(t.settle_all("w1", &settles).await, expected);

    let mut statuses = Vec::new();
    for lease in &leases {
        statuses.push(t.delivery(lease.delivery_id).await.status);
    }
    assert_eq!(
        statuses,
        [
            DeliveryStatus::Delivered,
            DeliveryStatus::Failed,
            DeliveryStatus::Dead,
            DeliveryStatus::Pending,
            DeliveryStatus::Delivered,
            DeliveryStatus::Delivered,
        ]
    );
    assert_eq!(t.places().await.leases, [leases[3].delivery_id]);
    assert!(t.settle_all("w1", &[]).await.is_empty());
}

pub async fn an_expired_lease_that_nobody_took_is_settled_however_late(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    t.advance_secs(86_400);
    assert_eq!(t.settle("w1", claim.lease, Verdict::Delivered).await, Settlement::Applied);
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Delivered);
}

pub async fn p6_settled_states_are_final(t: &Trial) {
    t.freeze();
    let settled = [DeliveryStatus::Delivered, DeliveryStatus::Dead, DeliveryStatus::Cancelled];
    let mut ids = Vec::new();
    for status in settled {
        ids.push(t.delivery_in(status).await);
    }
    let before = t.places().await;
    t.advance_secs(100_000);
    t.store.promote(100).await.unwrap();
    t.store.recover(100, 10).await.unwrap();
    assert!(t.claim("w1", 100).await.is_empty());
    for (status, id) in settled.into_iter().zip(&ids) {
        for verdict in [Verdict::Delivered, retry_after(1), Verdict::Dead] {
            let forged = Lease { delivery_id: *id, token: LeaseToken(Uuid::new_v4()) };
            assert_eq!(t.settle("w1", forged, verdict).await, Settlement::LeaseLost);
            assert_eq!(t.store.release(&worker("w1"), &[forged]).await.unwrap(), 0);
        }
        assert_eq!(t.delivery(*id).await.status, status);
    }
    assert_eq!(t.places().await, before);
}

pub async fn p6_the_flight_of_a_cancelled_delivery_settles_nothing(t: &Trial) {
    let id = t.deliver_to("a").await;
    let claim = t.claim_one("w1").await;
    t.store.cancel(id, "not wanted", &operator()).await.unwrap();
    for verdict in [Verdict::Delivered, retry_after(1), Verdict::Dead] {
        assert_eq!(t.settle("w1", claim.lease, verdict).await, Settlement::LeaseLost);
    }
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Cancelled);
    assert!(t.attempts(id).await.is_empty());
}
