//! The retry schedule, to the microsecond, and what is at its end.

use std::time::Duration;

use jiff::SignedDuration;
use postrider::store::Settlement;
use postrider::{DeliveryFilter, DeliveryStatus, Fact, NewEvent, Verdict};

use crate::trial::{Trial, event_to, failure, url_of};

/// The delays after failures 1 to 4 of the default policy; the fifth failure is the last.
const DELAYS_SECS: [i64; 4] = [30, 120, 600, 3600];

pub async fn p8_the_next_attempt_is_at_the_time_of_the_settle_plus_the_delay(t: &Trial) {
    t.freeze();
    let id = t.deliver_to("a").await;
    for (number, delay) in (1..).zip(DELAYS_SECS) {
        let claim = t.claim_one("w1").await;
        // The attempt takes a while: what counts is when it is settled, not when it was claimed.
        let settled_at = t.advance(Duration::from_micros(1_234_567));
        assert_eq!(t.settle_all("w1", &[failure(&claim)]).await, [Settlement::Applied]);
        let delivery = t.delivery(id).await;
        assert_eq!(delivery.status, DeliveryStatus::Failed);
        assert_eq!(delivery.attempt_count, number);
        assert_eq!(delivery.last_attempted_at, Some(settled_at));
        assert_eq!(delivery.next_attempt_at, Some(settled_at + SignedDuration::from_secs(delay)));
        assert_eq!(delivery.error_detail.as_deref(), Some("HTTP 500: out of order"));

        t.advance(Duration::from_micros(delay.unsigned_abs() * 1_000_000 - 1));
        assert_eq!(t.store.promote(10).await.unwrap().ready, 0, "a microsecond before its time");
        assert!(t.claim("w1", 10).await.is_empty());
        t.advance(Duration::from_micros(1));
        assert_eq!(t.store.promote(10).await.unwrap().ready, 1, "at its time");
    }
}

pub async fn p8_a_delay_of_any_length_is_kept_to_the_millisecond(t: &Trial) {
    for millis in [0, 1, 999, 1001, 86_399_999, 2_592_000_000] {
        let now = t.freeze();
        let id = t.deliver_to("a").await;
        let claim = t.claim_one("w1").await;
        t.settle("w1", claim.lease, Verdict::Retry { after: Duration::from_millis(millis) }).await;
        let delay = SignedDuration::from_millis(i64::try_from(millis).unwrap());
        assert_eq!(t.delivery(id).await.next_attempt_at, Some(now + delay), "{millis} ms");
        t.store.cancel(id, "seen enough", &crate::trial::operator()).await.unwrap();
    }
}

pub async fn p9_the_fifth_failure_is_death_and_is_announced_once(t: &Trial) {
    t.freeze();
    let event = NewEvent::new("invoice.paid", "{}").to(url_of("a")).topic("billing").metadata("order", 7);
    let id = t.enqueue(event).await.deliveries()[0].id;
    for number in 1..=5 {
        let claim = t.claim_one("w1").await;
        assert_eq!(claim.attempt_count, number - 1);
        let settle = failure(&claim);
        assert_eq!(settle.verdict == Verdict::Dead, number == 5);
        assert_eq!(t.settle_all("w1", &[settle]).await, [Settlement::Applied]);
        if number < 5 {
            t.advance_secs(3600);
            assert_eq!(t.store.promote(10).await.unwrap().ready, 1);
        }
    }
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.status, DeliveryStatus::Dead);
    assert_eq!(delivery.attempt_count, 5);
    assert_eq!(delivery.next_attempt_at, None);
    assert_eq!(delivery.error_detail.as_deref(), Some("HTTP 500: out of order"));
    let numbers: Vec<_> = t.attempts(id).await.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    assert_eq!(t.places().await.dead_letters, [id]);
    let dead = DeliveryFilter { status: Some(DeliveryStatus::Dead), ..DeliveryFilter::default() };
    assert_eq!(t.list(&dead, 10).await.len(), 1);

    let told: Vec<_> = t.announced().await.into_iter().filter(|told| told.fact == Fact::Dead).collect();
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].delivery_id, told[0].attempt_count), (id, 5));
    assert_eq!((told[0].topic.as_str(), &told[0].metadata["order"]), ("billing", &7.into()));
    assert_eq!(t.times_announced(Fact::Failed, id).await, 4);

    for _ in 0..5 {
        t.advance_secs(100_000);
        t.store.promote(10).await.unwrap();
        t.store.recover(10, 10).await.unwrap();
        assert!(t.claim("w1", 10).await.is_empty(), "never again by itself");
    }
}

pub async fn promotion_takes_only_what_is_due_and_tells_when_the_next_is(t: &Trial) {
    let now = t.freeze();
    let mut ids = Vec::new();
    for seconds in [10, 20, 30, 40] {
        let at = now + SignedDuration::from_secs(seconds);
        ids.push(t.enqueue(event_to("a").deliver_at(at)).await.deliveries()[0].id);
    }
    let promoted = t.store.promote(10).await.unwrap();
    assert_eq!((promoted.ready, promoted.next_due_in), (0, Some(Duration::from_secs(10))));
    t.advance_secs(20);
    let promoted = t.store.promote(10).await.unwrap();
    assert_eq!((promoted.ready, promoted.next_due_in), (2, Some(Duration::from_secs(10))));
    let mut ready = t.places().await.ready;
    ready.sort();
    assert_eq!(ready, ids[..2]);
    t.advance(Duration::from_millis(19_500));
    assert_eq!(t.store.promote(10).await.unwrap().ready, 1);
    assert_eq!(t.store.promote(10).await.unwrap().next_due_in, Some(Duration::from_millis(500)));
    t.advance_secs(1);
    let promoted = t.store.promote(10).await.unwrap();
    assert_eq!((promoted.ready, promoted.next_due_in), (1, None), "nothing is scheduled any more");
    assert_eq!(t.claim("w1", 10).await.len(), 4);
}

pub async fn promotion_keeps_its_limit_and_takes_the_earliest_first(t: &Trial) {
    let now = t.freeze();
    let mut ids = Vec::new();
    // The latest is enqueued first, so that the order of ids is not the order of due times.
    for seconds in (1..=10).rev() {
        let at = now + SignedDuration::from_secs(seconds);
        ids.push(t.enqueue(event_to("a").deliver_at(at)).await.deliveries()[0].id);
    }
    ids.reverse();
    t.advance_secs(60);
    let mut claimed = Vec::new();
    for expected in [4, 4, 2, 0] {
        let promoted = t.store.promote(4).await.unwrap();
        assert_eq!(promoted.ready, expected);
        for _ in 0..expected {
            claimed.extend(t.claim("w1", 1).await.iter().map(|claim| claim.lease.delivery_id));
        }
    }
    assert_eq!(claimed, ids, "in the order of their times");
}

pub async fn what_is_due_but_was_left_over_by_the_limit_is_due_in_no_time(t: &Trial) {
    let now = t.freeze();
    let at = now + SignedDuration::from_secs(5);
    t.enqueue_all(vec![event_to("a").deliver_at(at); 3]).await;
    t.advance_secs(10);
    let promoted = t.store.promote(2).await.unwrap();
    assert_eq!((promoted.ready, promoted.next_due_in), (2, Some(Duration::ZERO)));
}

pub async fn promotion_from_two_handles_promotes_each_once(t: &Trial) {
    let now = t.freeze();
    let at = now + SignedDuration::from_secs(5);
    t.enqueue_all(vec![event_to("a").deliver_at(at); 60]).await;
    t.advance_secs(10);
    let mut promotions = Vec::new();
    for store in [&t.store, &t.other, &t.store, &t.other] {
        let store = std::sync::Arc::clone(store);
        promotions.push(tokio::spawn(async move {
            let mut sum = 0;
            loop {
                let promoted = store.promote(7).await.unwrap();
                sum += promoted.ready;
                if promoted.ready == 0 {
                    return sum;
                }
            }
        }));
    }
    let mut sum = 0;
    for promotion in promotions {
        sum += promotion.await.unwrap();
    }
    // A promoter that meets another may leave the rest to it; together they leave nothing.
    sum += t.store.promote(100).await.unwrap().ready;
    assert_eq!(sum, 60);
    assert_eq!(t.places().await.ready.len(), 60);
}
