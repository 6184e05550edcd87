//! Events that have nothing to do with each other, in one call: what is wrong with one is nobody else's trouble.

use std::sync::Arc;

use futures_util::future::join_all;
use postrider::{EnqueueError, Enqueued, NewEvent};

use crate::trial::{Trial, event_to};

async fn each(t: &Trial, events: Vec<NewEvent>) -> Vec<Result<Enqueued, EnqueueError>> {
    let count = events.len();
    let results = t.store.enqueue_each(events).await.unwrap();
    assert_eq!(results.len(), count, "one result per event");
    results
}

fn new(result: &Result<Enqueued, EnqueueError>) -> bool {
    matches!(result, Ok(Enqueued::New { deliveries, .. }) if deliveries.len() == 1)
}

pub async fn no_event_is_held_up_by_its_neighbours(t: &Trial) {
    let first = t.enqueue(event_to("a").idempotency_key("taken")).await.event_id().unwrap();
    let claimed = t.enqueue(event_to("a").once("s")).await.event_id().unwrap();
    let results = each(
        t,
        vec![
            event_to("b").metadata("number", 0),
            NewEvent::new("not a type", "{}").to("https://a.example.com/"),
            event_to("b").idempotency_key("taken"),
            event_to("a").idempotency_key("taken"),
            event_to("b").once("s"),
            NewEvent::new("invoice.paid", "not JSON").to("https://a.example.com/"),
            event_to("b").to("http://127.0.0.1.nip.io.\u{e9}/"),
            event_to("c").metadata("number", 7).idempotency_key("free"),
        ],
    )
    .await;
    assert!(new(&results[0]), "{:?}", results[0]);
    assert!(matches!(&results[1], Err(EnqueueError::Refused(refusal)) if refusal.code == "event_type_invalid"));
    match &results[2] {
        Err(EnqueueError::IdempotencyConflict { key, event_id }) => {
            assert_eq!((key.as_str(), *event_id), ("taken", first));
        }
        other => panic!("the key belongs to another content: {other:?}"),
    }
    assert_eq!(results[3].as_ref().unwrap(), &Enqueued::Duplicate { event_id: first });
    assert_eq!(results[4].as_ref().unwrap(), &Enqueued::NotClaimed { generation: 1, winner: Some(claimed) });
    assert!(matches!(&results[5], Err(EnqueueError::Refused(_))), "{:?}", results[5]);
    assert!(matches!(&results[6], Err(EnqueueError::Refused(_))), "{:?}", results[6]);
    assert!(new(&results[7]), "{:?}", results[7]);
    for (place, number) in [(0, 0), (7, 7)] {
        let id = results[place].as_ref().unwrap().event_id().unwrap();
        let event = t.store.event(id).await.unwrap().unwrap();
        assert_eq!(event.metadata["number"], number, "results are in the order of the events");
    }
    let places = t.places().await;
    assert_eq!((places.events, places.ready.len(), places.idempotency_keys), (4, 4, 2));
}

pub async fn a_key_that_repeats_in_the_list_is_a_duplicate_or_a_conflict_there(t: &Trial) {
    let keyed = |host: &str| event_to(host).idempotency_key("k");
    let results = each(t, vec![keyed("a"), keyed("b"), event_to("c"), keyed("a")]).await;
    let first = results[0].as_ref().unwrap().event_id().unwrap();
    assert!(new(&results[0]) && new(&results[2]));
    assert!(matches!(&results[1], Err(EnqueueError::IdempotencyConflict { event_id, .. }) if *event_id == first));
    assert_eq!(results[3].as_ref().unwrap(), &Enqueued::Duplicate { event_id: first });
    assert_eq!(t.places().await.events, 2);
}

pub async fn a_subject_that_repeats_in_the_list_is_claimed_by_the_first(t: &Trial) {
    let results = each(t, vec![event_to("a").once("s"), event_to("b").once("s"), event_to("c").once("r")]).await;
    let winner = results[0].as_ref().unwrap().event_id();
    assert!(new(&results[0]) && new(&results[2]));
    assert_eq!(results[1].as_ref().unwrap(), &Enqueued::NotClaimed { generation: 1, winner });
    assert_eq!(t.places().await.events, 2);
}

pub async fn a_list_of_refused_events_writes_nothing(t: &Trial) {
    assert!(each(t, vec![]).await.is_empty());
    let results = each(t, vec![NewEvent::new("", "{}"), NewEvent::new("a b", "{}")]).await;
    assert!(results.iter().all(|result| matches!(result, Err(EnqueueError::Refused(_)))));
    assert_eq!(t.places().await, crate::Places::default());
}

pub async fn events_fan_out_as_they_do_alone(t: &Trial) {
    let [a, b] = [t.endpoint("a", &["invoice.*"]).await.id, t.endpoint("b", &["*"]).await.id];
    let results = each(
        t,
        vec![NewEvent::new("invoice.paid", "{}"), NewEvent::new("other", "{}"), NewEvent::new("invoice.paid", "[1]")],
    )
    .await;
    let mut receivers: Vec<Vec<_>> = results
        .iter()
        .map(|result| result.as_ref().unwrap().deliveries().iter().map(|line| line.endpoint_id.unwrap()).collect())
        .collect();
    for ids in &mut receivers {
        ids.sort();
    }
    assert_eq!(receivers, [vec![a, b], vec![b], vec![a, b]]);
}

pub async fn two_hundred_lists_at_once_with_shared_keys_all_succeed(t: &Trial) {
    let lists = (0..200).map(|number: usize| {
        let store = Arc::clone(if number.is_multiple_of(2) { &t.store } else { &t.other });
        let keyed = |key: usize| event_to("a").idempotency_key(format!("k{}", key % 10));
        let events = vec![keyed(number), event_to("b"), keyed(number + 3), keyed(number * 7)];
        tokio::spawn(async move { store.enqueue_each(events).await.expect("no list is lost to a deadlock") })
    });
    let results: Vec<_> = join_all(lists).await.into_iter().flat_map(Result::unwrap).collect();
    assert!(results.iter().all(Result::is_ok));
    let places = t.places().await;
    assert_eq!((places.events, places.idempotency_keys), (210, 10));
}
