//! Retention: what is old and done goes, everything else stays.

use std::time::Duration;

use postrider::store::Retained;
use postrider::{DeliveryStatus, Enqueued, EventId, Fact, NewEvent, Verdict};

use crate::trial::{Trial, event_to, operator};

const DAY: Duration = Duration::from_hours(24);

/// Takes steps until there is no next one, and sums up what they removed.
async fn retain_all(t: &Trial, older_than: Duration, limit: u32) -> (u64, u64) {
    let (mut events, mut deliveries, mut after) = (0, 0, None);
    for _ in 0..1000 {
        let Retained { events: some_events, deliveries: some_deliveries, next, .. } =
            t.store.retain(older_than, after, limit).await.unwrap();
        assert!(some_events <= u64::from(limit), "a step keeps its limit");
        events += some_events;
        deliveries += some_deliveries;
        after = next;
        if after.is_none() {
            return (events, deliveries);
        }
    }
    panic!("1,000 steps did not come to an end");
}

async fn one_of_each(t: &Trial) -> Vec<(DeliveryStatus, EventId)> {
    let mut events = Vec::new();
    for status in DeliveryStatus::ALL {
        let id = t.delivery_in(status).await;
        events.push((status, t.delivery(id).await.event_id));
    }
    events
}

pub async fn what_is_old_and_delivered_or_cancelled_goes_and_the_rest_stays(t: &Trial) {
    t.freeze();
    let old = one_of_each(t).await;
    t.advance(DAY);
    let young = one_of_each(t).await;
    t.advance(Duration::from_hours(1));
    assert_eq!(retain_all(t, DAY, 100).await, (2, 2));
    for (status, event) in old {
        let gone = matches!(status, DeliveryStatus::Delivered | DeliveryStatus::Cancelled);
        assert_eq!(t.store.event(event).await.unwrap().is_none(), gone, "old and {status}");
    }
    for (status, event) in young {
        assert!(t.store.event(event).await.unwrap().is_some(), "young and {status}");
    }
    let places = t.places().await;
    assert_eq!((places.events, places.deliveries), (8, 8));
    assert_eq!(places.attempts.len(), 5, "old failed and dead, young delivered, failed and dead");
}

pub async fn the_border_of_old_age_is_exact(t: &Trial) {
    t.freeze();
    t.deliver_to("a").await;
    t.claim_and_settle(Verdict::Delivered).await;
    t.advance(DAY);
    let a_little_more = DAY + Duration::from_micros(1);
    assert_eq!(retain_all(t, a_little_more, 100).await, (0, 0));
    t.advance(Duration::from_micros(2));
    assert_eq!(retain_all(t, a_little_more + Duration::from_micros(2), 100).await, (0, 0));
    assert_eq!(retain_all(t, DAY, 100).await, (1, 1));
}

pub async fn an_event_stays_while_one_of_its_deliveries_is_not_done(t: &Trial) {
    t.freeze();
    t.endpoint("a", &["*"]).await;
    t.endpoint("b", &["*"]).await;
    let event = t.enqueue(NewEvent::new("invoice.paid", "{}")).await.event_id().unwrap();
    let claim = t.claim("w1", 1).await.remove(0);
    t.settle("w1", claim.lease, Verdict::Delivered).await;
    t.advance(DAY * 2);
    assert_eq!(retain_all(t, DAY, 100).await, (0, 0));
    assert_eq!(t.store.event(event).await.unwrap().unwrap().deliveries.len(), 2);

    t.claim_and_settle(Verdict::Dead).await;
    assert_eq!(retain_all(t, DAY, 100).await, (0, 0), "a dead letter stays");
    let dead = t.places().await.dead_letters[0];
    t.store.retry(dead, &operator()).await.unwrap();
    t.claim_and_settle(Verdict::Delivered).await;
    assert_eq!(retain_all(t, DAY, 100).await, (1, 2));
    let places = t.places().await;
    assert_eq!((places.events, places.deliveries), (0, 0));
    assert!(places.attempts.is_empty());
}

pub async fn an_old_event_without_deliveries_goes(t: &Trial) {
    t.freeze();
    let event = t.enqueue(NewEvent::new("invoice.paid", "{}")).await.event_id().unwrap();
    t.advance(DAY * 2);
    assert_eq!(retain_all(t, DAY, 100).await, (1, 0));
    assert_eq!(t.store.event(event).await.unwrap(), None);
}

pub async fn steps_with_a_limit_come_to_everything_that_is_old(t: &Trial) {
    t.freeze();
    for number in 0..25 {
        t.deliver_to("a").await;
        t.claim_and_settle(if number % 5 == 0 { Verdict::Dead } else { Verdict::Delivered }).await;
        t.advance_secs(1);
    }
    t.advance(DAY * 2);
    let first = t.store.retain(DAY, None, 4).await.unwrap();
    assert!(first.events <= 4 && first.next.is_some(), "{first:?}");
    let (events, deliveries) = retain_all(t, DAY, 4).await;
    assert_eq!((first.events + events, first.deliveries + deliveries), (20, 20));
    assert_eq!(retain_all(t, DAY, 4).await, (0, 0));
    assert_eq!(t.places().await.dead_letters.len(), 5);
}

pub async fn a_key_is_known_for_ever(t: &Trial) {
    t.freeze();
    let event = event_to("a").idempotency_key("k1");
    let first = t.enqueue(event.clone()).await.event_id().unwrap();
    t.claim_and_settle(Verdict::Delivered).await;
    t.advance(DAY * 2);
    assert_eq!(retain_all(t, DAY, 100).await, (1, 1));
    assert_eq!(t.store.event(first).await.unwrap(), None);
    assert_eq!(t.enqueue(event).await, Enqueued::Duplicate { event_id: first });
    assert_eq!(t.places().await.idempotency_keys, 1);
    assert!(t.store.enqueue(vec![event_to("b").idempotency_key("k1")]).await.is_err(), "also with other content");
}

pub async fn old_announcements_go_and_a_follower_goes_on(t: &Trial) {
    t.freeze();
    t.deliver_to("a").await;
    t.claim_and_settle(Verdict::Dead).await;
    let place = t.store.announcements_end().await.unwrap();
    t.advance(DAY * 2);
    let young = t.deliver_to("a").await;
    t.claim_and_settle(Verdict::Delivered).await;
    retain_all(t, DAY, 100).await;
    let announced = t.announced().await;
    assert_eq!(
        announced.iter().map(|told| (told.delivery_id, told.fact)).collect::<Vec<_>>(),
        [(young, Fact::Delivered)]
    );
    let seen = t.store.announcements(&place, 10).await.unwrap().announcements;
    assert_eq!(seen, announced, "a place before what was removed is still a place");
}

pub async fn every_old_announcement_goes_however_many_an_event_has(t: &Trial) {
    t.freeze();
    t.deliver_to("a").await;
    for _ in 0..40 {
        t.claim_and_settle(crate::trial::retry_after(0)).await;
        t.store.promote(10).await.unwrap();
    }
    t.claim_and_settle(Verdict::Delivered).await;
    assert_eq!(t.announced().await.len(), 41);
    t.advance(DAY * 2);
    assert_eq!(retain_all(t, DAY, 1).await, (1, 1));
    assert_eq!(t.announced().await.len(), 0);
}

pub async fn a_young_announcement_of_a_removed_event_is_still_told(t: &Trial) {
    t.freeze();
    let id = t.enqueue(event_to("a").topic("billing").metadata("order", 7)).await.deliveries()[0].id;
    t.advance(DAY * 2);
    t.claim_and_settle(Verdict::Delivered).await;
    let before = t.announced().await;
    assert_eq!(retain_all(t, DAY, 100).await, (1, 1));
    assert_eq!(t.store.delivery(id).await.unwrap(), None);
    assert_eq!(t.announced().await, before, "with its topic and metadata");
}

pub async fn nothing_is_older_than_time_itself(t: &Trial) {
    t.freeze();
    t.deliver_to("a").await;
    t.claim_and_settle(Verdict::Delivered).await;
    for older_than in [Duration::from_hours(24 * 366 * 5000), Duration::MAX] {
        assert_eq!(retain_all(t, older_than, 100).await, (0, 0), "{older_than:?}");
    }
    assert_eq!(t.announced().await.len(), 1);
}

pub async fn retention_while_deliveries_go_on_removes_nothing_else(t: &Trial) {
    t.freeze();
    t.backlog("a", 20).await;
    let claims = t.claim("w1", 10).await;
    t.advance(DAY * 2);
    assert_eq!(retain_all(t, DAY, 3).await, (0, 0));
    for claim in &claims {
        t.settle("w1", claim.lease, Verdict::Delivered).await;
    }
    assert_eq!(retain_all(t, DAY, 3).await, (10, 10));
    assert_eq!(t.claim("w1", 100).await.len(), 10);
}
