//! Enqueueing: what exists afterwards, and what does not.

use std::time::Duration;

use jiff::SignedDuration;
use postrider::{DeliveryStatus, EnqueueError, EventId, NewEvent};

use crate::subject::Ending;
use crate::trial::{Trial, event_to, lane_of, url_of};

pub async fn an_enqueued_event_has_one_pending_delivery_that_is_ready(t: &Trial) {
    let now = t.freeze();
    let enqueued = t.enqueue(event_to("a")).await;
    let [written] = enqueued.deliveries() else { panic!("one destination, one delivery: {enqueued:?}") };
    assert_eq!(written.destination_url, url_of("a"));
    assert_eq!(written.endpoint_id, None);

    let delivery = t.delivery(written.id).await;
    assert_eq!(delivery.event_id, enqueued.event_id().unwrap());
    assert_eq!(delivery.event_type, "invoice.paid");
    assert_eq!(delivery.tenant, "default");
    assert_eq!(delivery.status, DeliveryStatus::Pending);
    assert_eq!((delivery.attempt_count, delivery.earlier_attempts, delivery.abandoned_count), (0, 0, 0));
    assert_eq!(delivery.created_at, now);
    assert_eq!(delivery.next_attempt_at, Some(now));
    assert_eq!(delivery.last_attempted_at, None);
    assert_eq!(delivery.error_detail, None);
    assert_eq!(t.places().await.ready, [written.id]);
}

pub async fn p2_an_event_whose_transaction_committed_exists(t: &Trial) {
    let events = vec![event_to("a"), event_to("b")];
    let enqueued = t.subject().enqueue_in_transaction(events, Ending::Commit).await.unwrap();
    assert_eq!(enqueued.len(), 2);
    for enqueued in &enqueued {
        assert!(t.other.event(enqueued.event_id().unwrap()).await.unwrap().is_some());
    }
    assert_eq!(t.claim("w1", 10).await.len(), 2);
}

pub async fn p2_an_event_whose_transaction_rolled_back_does_not_exist(t: &Trial) {
    t.endpoint("a", &["*"]).await;
    let events = vec![event_to("b").idempotency_key("k1"), NewEvent::new("invoice.paid", "{}")];
    let before = t.places().await;
    let enqueued = t.subject().enqueue_in_transaction(events.clone(), Ending::Rollback).await.unwrap();
    for enqueued in &enqueued {
        assert_eq!(t.store.event(enqueued.event_id().unwrap()).await.unwrap(), None);
        for delivery in enqueued.deliveries() {
            assert_eq!(t.store.delivery(delivery.id).await.unwrap(), None);
        }
    }
    assert_eq!(t.places().await, before, "no row of any kind is left");
    assert!(t.claim("w1", 10).await.is_empty());

    let again = t.enqueue_all(events).await;
    assert_eq!(again[0].deliveries().len(), 1, "the idempotency key is free: {again:?}");
}

/// Unwraps the refusal of an event whose id another one has.
fn refused_for_its_id<T: std::fmt::Debug>(result: Result<T, EnqueueError>, id: EventId) {
    match result {
        Err(EnqueueError::Refused(refusal)) => {
            assert_eq!(refusal.code, "event_id_taken");
            assert!(refusal.to_string().contains(&id.to_string()), "{refusal}");
        }
        other => panic!("{id} is taken: {other:?}"),
    }
}

pub async fn an_event_is_kept_under_the_id_that_it_brings(t: &Trial) {
    let ids = [EventId::generate(), EventId::generate(), EventId::generate()];
    let events = vec![
        event_to("a").id(ids[0]),
        event_to("a").id(ids[1]).once("subject"),
        event_to("a").id(ids[2]).idempotency_key("k1"),
        event_to("a"),
    ];
    let enqueued = t.enqueue_all(events).await;
    assert_eq!(enqueued[..3].iter().map(postrider::Enqueued::event_id).collect::<Vec<_>>(), ids.map(Some));
    for (id, enqueued) in ids.iter().zip(&enqueued) {
        assert_eq!(t.store.event(*id).await.unwrap().expect("it is there").id, *id);
        assert_eq!(t.delivery(enqueued.deliveries()[0].id).await.event_id, *id);
    }
    let claim = t.store.once("default", "subject").await.unwrap().expect("it was claimed");
    assert_eq!(claim.winner.expect("by somebody").event_id, ids[1]);
    let again = t.enqueue(event_to("a").id(EventId::generate()).idempotency_key("k1")).await;
    assert_eq!(again.event_id(), Some(ids[2]), "what was enqueued under a key keeps its id");
}

pub async fn an_id_that_is_taken_is_refused_and_nothing_is_written(t: &Trial) {
    let id = EventId::generate();
    t.enqueue(event_to("a").id(id)).await;
    let before = t.places().await;
    refused_for_its_id(t.store.enqueue(vec![event_to("b").id(id)]).await, id);
    refused_for_its_id(t.store.enqueue(vec![event_to("b"), event_to("c").once("s").id(id)]).await, id);
    let twice = EventId::generate();
    refused_for_its_id(t.store.enqueue(vec![event_to("b").id(twice), event_to("c").id(twice)]).await, twice);
    refused_for_its_id(t.subject().enqueue_in_transaction(vec![event_to("b").id(id)], Ending::Commit).await, id);
    assert_eq!(t.places().await, before);
    assert!(t.store.once("default", "s").await.unwrap().is_none(), "nothing was claimed");
}

pub async fn an_id_that_is_taken_does_not_hurt_the_others_of_a_list(t: &Trial) {
    let id = EventId::generate();
    t.enqueue(event_to("a").id(id)).await;
    let events = vec![event_to("b"), event_to("c").id(id), event_to("d").idempotency_key("k1"), event_to("e")];
    let mut results = t.store.enqueue_each(events).await.unwrap();
    refused_for_its_id(results.remove(1), id);
    assert_eq!(results.len(), 3);
    for result in results {
        assert_eq!(result.unwrap().deliveries().len(), 1);
    }
    assert_eq!(t.claim("w1", 10).await.len(), 4);
}

pub async fn an_id_that_does_not_sort_by_time_is_refused(t: &Trial) {
    let id = EventId::from_uuid(uuid::Uuid::new_v4());
    match t.store.enqueue(vec![event_to("a").id(id)]).await {
        Err(EnqueueError::Refused(refusal)) => assert_eq!(refusal.code, "event_id_invalid"),
        other => panic!("{id} is random: {other:?}"),
    }
}

pub async fn a_batch_is_enqueued_in_order_with_one_result_each(t: &Trial) {
    let hosts = ["a", "b", "c", "d", "e"];
    let enqueued = t.enqueue_all(hosts.iter().map(|host| event_to(host)).collect()).await;
    for (host, enqueued) in hosts.iter().zip(&enqueued) {
        assert_eq!(enqueued.deliveries()[0].destination_url, url_of(host));
    }
    assert!(t.store.enqueue(Vec::new()).await.unwrap().is_empty(), "an empty batch is nothing");
}

pub async fn a_batch_with_one_refused_event_writes_nothing(t: &Trial) {
    let before = t.places().await;
    let events = vec![event_to("a").idempotency_key("k1"), NewEvent::new("invoice.paid", "{not json").to(url_of("a"))];
    match t.store.enqueue(events).await {
        Err(EnqueueError::Refused(refusal)) => {
            assert_eq!(refusal.code, "payload_not_json");
            assert!(!refusal.to_string().contains("not json}"), "p20: {refusal}");
        }
        other => panic!("the second event is no JSON: {other:?}"),
    }
    assert_eq!(t.places().await, before);
}

pub async fn a_batch_with_one_conflict_writes_nothing(t: &Trial) {
    let first = t.enqueue(event_to("a").idempotency_key("k1")).await;
    let before = t.places().await;
    let events = vec![event_to("b"), event_to("c").idempotency_key("k1"), event_to("d").idempotency_key("k2")];
    match t.store.enqueue(events).await {
        Err(EnqueueError::IdempotencyConflict { key, event_id }) => {
            assert_eq!((key.as_str(), event_id), ("k1", first.event_id().unwrap()));
        }
        other => panic!("k1 belongs to another content: {other:?}"),
    }
    assert_eq!(t.places().await, before);
}

pub async fn a_delivery_for_later_is_scheduled_and_not_claimed_before(t: &Trial) {
    let now = t.freeze();
    let at = now + SignedDuration::from_micros(60_000_001);
    let id = t.enqueue(event_to("a").deliver_at(at)).await.deliveries()[0].id;
    assert_eq!(t.delivery(id).await.next_attempt_at, Some(at));
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Pending);
    assert_eq!(t.places().await.scheduled, [id]);
    assert!(t.claim("w1", 10).await.is_empty());

    t.advance_secs(60);
    assert_eq!(t.store.promote(10).await.unwrap().ready, 0, "a microsecond is missing");
    t.advance(Duration::from_micros(1));
    assert_eq!(t.store.promote(10).await.unwrap().ready, 1);
    assert_eq!(t.claim_one("w1").await.lease.delivery_id, id);
}

pub async fn a_delivery_for_a_time_that_has_passed_is_ready_at_once(t: &Trial) {
    let now = t.freeze();
    let id = t.enqueue(event_to("a").deliver_at(now - SignedDuration::from_hours(1))).await.deliveries()[0].id;
    assert_eq!(t.places().await.ready, [id]);
    assert_eq!(t.claim_one("w1").await.lease.delivery_id, id);
}

pub async fn p18_the_payload_is_kept_byte_for_byte(t: &Trial) {
    let odd = [
        r#"{"z":1,"a":2,"m":3}"#,
        r#"{"same":1,"same":2}"#,
        "1e400",
        "-0.0",
        "1.10000000000000000000",
        "123456789012345678901234567890",
        r#""\u0041\ud83d\ude00 \/ é 😀""#,
        "  { \"spaced\" :\t[ 1 ,\n2 ] }\r\n",
        "null",
        r#"{"":{"":[]}}"#,
    ];
    let events = odd.iter().map(|payload| NewEvent::new("odd.json", *payload).to(url_of("a"))).collect();
    let enqueued = t.enqueue_all(events).await;
    let claims = t.claim("w1", 100).await;
    assert_eq!(claims.len(), odd.len());
    for (payload, enqueued) in odd.iter().zip(&enqueued) {
        let event = t.store.event(enqueued.event_id().unwrap()).await.unwrap().unwrap();
        assert_eq!(event.payload, payload.as_bytes(), "{payload}");
        let claim = claims.iter().find(|claim| claim.event_id == event.id).expect("it was claimed");
        assert_eq!(claim.payload, payload.as_bytes(), "{payload}");
    }
}

pub async fn a_payload_at_the_limit_is_kept_whole_and_one_byte_more_is_refused(t: &Trial) {
    let payload = format!("\"{}\"", "x".repeat(262_142));
    assert_eq!(payload.len(), 262_144);
    let enqueued = t.enqueue(NewEvent::new("large", payload.clone()).to(url_of("a"))).await;
    assert_eq!(t.store.event(enqueued.event_id().unwrap()).await.unwrap().unwrap().payload, payload.as_bytes());
    match t.store.enqueue(vec![NewEvent::new("large", payload + " ").to(url_of("a"))]).await {
        Err(EnqueueError::Refused(refusal)) => assert_eq!(refusal.code, "payload_too_large"),
        other => panic!("it is one byte too large: {other:?}"),
    }
}

pub async fn ids_are_stable_and_sort_in_the_order_of_enqueueing(t: &Trial) {
    let mut events = Vec::new();
    let mut deliveries = Vec::new();
    for _ in 0..20 {
        // The clock must move, because within one tick of it ids have no order to keep.
        t.advance(Duration::from_millis(1));
        let enqueued = t.enqueue(event_to("a")).await;
        events.push(enqueued.event_id().unwrap());
        deliveries.push(enqueued.deliveries()[0].id);
    }
    assert!(events.is_sorted() && deliveries.is_sorted(), "{events:?} {deliveries:?}");
    let listed: Vec<_> = t.deliveries().await.iter().rev().map(|delivery| delivery.id).collect();
    assert_eq!(listed, deliveries);
    for (event, delivery) in events.iter().zip(&deliveries) {
        assert_eq!(t.other.event(*event).await.unwrap().unwrap().deliveries[0].id, *delivery);
        assert_eq!(t.other.delivery(*delivery).await.unwrap().unwrap().delivery.event_id, *event);
    }
}

pub async fn metadata_comes_back_as_it_was(t: &Trial) {
    let event = event_to("a")
        .metadata("large", u64::MAX)
        .metadata("small", i64::MIN)
        .metadata("float", 1e300)
        .metadata("largest", serde_json::json!([1e308, -1e308]))
        .metadata("smallest", 5e-324)
        .metadata("fraction", 0.1)
        .metadata("é 😀 \"quoted\"", "it's \\ and \n")
        .metadata("nested", serde_json::json!({"b": [null, true, {}], "a": ""}));
    let id = t.enqueue(event.clone()).await.event_id().unwrap();
    assert_eq!(t.store.event(id).await.unwrap().unwrap().metadata, event.metadata);
    t.claim_and_settle(postrider::Verdict::Delivered).await;
    assert_eq!(t.announced().await[0].metadata, event.metadata);
}

pub async fn what_was_enqueued_is_what_a_claim_and_the_event_show(t: &Trial) {
    let now = t.freeze();
    let event = event_to("a").tenant("acme").topic("billing").metadata("order", 7).metadata("nested", vec!["x"]);
    let id = t.enqueue(event.clone()).await.event_id().unwrap();
    let stored = t.store.event(id).await.unwrap().unwrap();
    assert_eq!(stored.tenant, "acme");
    assert_eq!(stored.event_type, event.event_type);
    assert_eq!(stored.payload, event.payload);
    assert_eq!(stored.metadata, event.metadata);
    assert_eq!(stored.topic, "billing");
    assert_eq!(stored.created_at, now);
    assert_eq!(stored.deliveries.len(), 1);

    let claim = t.claim_one("w1").await;
    assert_eq!(claim.event_id, id);
    assert_eq!(claim.event_type, event.event_type);
    assert_eq!(claim.payload, event.payload);
    assert_eq!(claim.tenant, "acme");
    assert_eq!(claim.lane, lane_of("a"));
    assert_eq!(claim.destination_url, url_of("a"));
    assert_eq!((claim.attempt_count, claim.earlier_attempts), (0, 0));
    assert!(claim.endpoint.is_none());
}
