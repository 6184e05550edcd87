//! Idempotency keys: one event per key, for ever.

use std::sync::Arc;

use postrider::{EnqueueError, Enqueued, NewEvent};
use tokio::sync::Barrier;

use crate::subject::Ending;
use crate::trial::{Trial, event_to};

fn keyed(host: &str, key: &str) -> NewEvent {
    event_to(host).idempotency_key(key)
}

pub async fn the_same_key_and_content_is_a_duplicate_of_the_first(t: &Trial) {
    let first = t.enqueue(keyed("a", "k1")).await;
    let before = t.places().await;
    for store in [&t.store, &t.other] {
        let again = store.enqueue(vec![keyed("a", "k1")]).await.unwrap();
        assert_eq!(again, [Enqueued::Duplicate { event_id: first.event_id().unwrap() }]);
    }
    assert_eq!(t.places().await, before, "nothing was written");
}

pub async fn the_same_key_with_other_content_is_a_conflict(t: &Trial) {
    let first = t.enqueue(keyed("a", "k1")).await;
    let before = t.places().await;
    let other_payload = NewEvent { payload: r#"{"invoice": "in_42"}"#.into(), ..keyed("a", "k1") };
    let other_type = NewEvent { event_type: "invoice.voided".to_owned(), ..keyed("a", "k1") };
    for event in [other_payload, other_type, keyed("b", "k1"), keyed("a", "k1").metadata("x", 1)] {
        match t.store.enqueue(vec![event]).await {
            Err(EnqueueError::IdempotencyConflict { key, event_id }) => {
                assert_eq!((key.as_str(), event_id), ("k1", first.event_id().unwrap()));
            }
            other => panic!("k1 belongs to another content: {other:?}"),
        }
    }
    assert_eq!(t.places().await, before, "nothing was written");
}

pub async fn a_key_belongs_to_its_tenant(t: &Trial) {
    let ours = t.enqueue(keyed("a", "k1")).await;
    let theirs = t.enqueue(keyed("b", "k1").tenant("acme")).await;
    assert_eq!(theirs.deliveries().len(), 1, "p21: another tenant's key is not ours: {theirs:?}");
    assert_ne!(ours.event_id().unwrap(), theirs.event_id().unwrap());
}

pub async fn a_key_that_repeats_within_a_batch_is_a_duplicate_there(t: &Trial) {
    let enqueued = t.enqueue_all(vec![keyed("a", "k1"), event_to("b"), keyed("a", "k1"), keyed("a", "k2")]).await;
    let first = enqueued[0].event_id().unwrap();
    assert_eq!(enqueued[0].deliveries().len(), 1);
    assert_eq!(enqueued[1].deliveries().len(), 1);
    assert_eq!(enqueued[2], Enqueued::Duplicate { event_id: first });
    assert_eq!(enqueued[3].deliveries().len(), 1);
    assert_eq!(t.places().await.events, 3);
}

pub async fn a_key_that_repeats_within_a_batch_with_other_content_writes_nothing(t: &Trial) {
    let before = t.places().await;
    match t.store.enqueue(vec![keyed("a", "k1"), keyed("b", "k1")]).await {
        Err(EnqueueError::IdempotencyConflict { key, .. }) => assert_eq!(key, "k1"),
        other => panic!("the second has other content: {other:?}"),
    }
    assert_eq!(t.places().await, before);
}

pub async fn a_duplicate_inside_a_callers_transaction_names_the_first(t: &Trial) {
    let first = t.enqueue(keyed("a", "k1")).await;
    let again = t.subject().enqueue_in_transaction(vec![keyed("a", "k1")], Ending::Commit).await.unwrap();
    assert_eq!(again, [Enqueued::Duplicate { event_id: first.event_id().unwrap() }]);
    assert_eq!(t.places().await.events, 1);
}

pub async fn sixteen_racers_with_one_key_make_exactly_one_event(t: &Trial) {
    let barrier = Arc::new(Barrier::new(16));
    let racers: Vec<_> = (0..16)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            let barrier = Arc::clone(&barrier);
            tokio::spawn(async move {
                barrier.wait().await;
                store.enqueue(vec![keyed("a", "k1")]).await
            })
        })
        .collect();
    let mut winners = Vec::new();
    let mut events = Vec::new();
    for racer in racers {
        let enqueued =
            racer.await.unwrap().expect("a racer that lost is told of the winner, not of an error").remove(0);
        events.push(enqueued.event_id().unwrap());
        winners.extend(enqueued.deliveries().iter().map(|delivery| delivery.id));
    }
    assert_eq!(winners.len(), 1, "exactly one is new");
    assert!(events.iter().all(|event| *event == events[0]), "all name the same event");
    let places = t.places().await;
    assert_eq!((places.events, places.idempotency_keys), (1, 1));
    assert_eq!(places.ready, winners);
}

pub async fn racers_with_several_keys_in_opposite_orders_all_succeed(t: &Trial) {
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    let barrier = Arc::new(Barrier::new(8));
    let racers: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            let barrier = Arc::clone(&barrier);
            let mut events: Vec<_> = keys.iter().map(|key| keyed("a", key)).collect();
            if number % 2 == 0 {
                events.reverse();
            }
            tokio::spawn(async move {
                barrier.wait().await;
                store.enqueue(events).await
            })
        })
        .collect();
    let mut new = 0;
    for racer in racers {
        let enqueued = racer.await.unwrap().expect("no racer's batch is lost to a deadlock");
        new += enqueued.iter().filter(|enqueued| !enqueued.deliveries().is_empty()).count();
    }
    assert_eq!(new, keys.len(), "each key made exactly one event");
    assert_eq!(t.places().await.events, keys.len() as u64);
}
