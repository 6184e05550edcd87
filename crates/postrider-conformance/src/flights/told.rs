//! What is announced and what is logged.

use std::sync::Arc;
use std::time::Duration;

use postrider::{
    Announcement, DeliveryStatus, EndpointSettings, Fact, Feed, Heard, NewEvent, RetryPolicy, Secret, Subscription,
};

use super::{Running, SECRET, all_become, becomes, dispatcher, endpoint_at, enqueue_for, event_for};
use crate::logs::Logs;
use crate::receiver::{Answer, Receiver};
use crate::trial::Trial;
use crate::wait::{PATIENCE, eventually, within};

async fn next(subscription: &mut Subscription) -> Arc<Announcement> {
    match within("an announcement", PATIENCE, subscription.next()).await {
        Some(Heard::Announcement(announcement)) => announcement,
        other => panic!("expected an announcement, heard {other:?}"),
    }
}

fn one_attempt() -> RetryPolicy {
    RetryPolicy::schedule([Duration::from_secs(1)], 1).unwrap()
}

pub async fn announcements_reach_a_subscriber_here_and_one_elsewhere(t: &Trial) {
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 500 } else { 200 })).await;
    let here = Feed::start(Arc::clone(&t.store)).await.unwrap();
    let elsewhere = Feed::start(Arc::clone(&t.other)).await.unwrap();
    let mut subscriptions = [here.subscribe("postrider"), elsewhere.subscribe("postrider")];
    let running = Running::start(dispatcher(&t.store, "w1").retry_policy(one_attempt()));
    let dead = t.enqueue(event_for(&receiver).metadata("order", 42)).await;
    becomes(t, dead.deliveries()[0].id, DeliveryStatus::Dead).await;
    let delivered = enqueue_for(t, &receiver, 1).await[0];
    for subscription in &mut subscriptions {
        let first = next(subscription).await;
        assert_eq!((first.fact, first.delivery_id), (Fact::Dead, dead.deliveries()[0].id));
        assert_eq!((first.event_id, first.attempt_count, first.endpoint_id), (dead.event_id().unwrap(), 1, None));
        assert_eq!(first.metadata["order"], 42);
        let second = next(subscription).await;
        assert_eq!((second.fact, second.delivery_id), (Fact::Delivered, delivered));
    }
    running.stop().await;
}

pub async fn a_subscriber_hears_its_topic_only(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let feed = Feed::start(Arc::clone(&t.store)).await.unwrap();
    let (mut billing, mut all) = (feed.subscribe("billing"), feed.subscribe_all());
    let running = Running::start(dispatcher(&t.store, "w1").max_in_flight(1));
    let plain = enqueue_for(t, &receiver, 1).await[0];
    becomes(t, plain, DeliveryStatus::Delivered).await;
    let billed = t.enqueue(event_for(&receiver).topic("billing")).await.deliveries()[0].id;
    assert_eq!(next(&mut billing).await.delivery_id, billed);
    assert_eq!(next(&mut all).await.delivery_id, plain);
    assert_eq!(next(&mut all).await.delivery_id, billed);
    running.stop().await;
}

pub async fn a_subscriber_that_does_not_listen_slows_nothing_and_is_told_what_it_missed(t: &Trial) {
    const EVENTS: usize = 6000;
    let feed = Feed::start(Arc::clone(&t.store)).await.unwrap();
    let (mut deaf, mut attentive) = (feed.subscribe_all(), feed.subscribe_all());
    let attentive = tokio::spawn(async move {
        for _ in 0..EVENTS {
            next(&mut attentive).await;
        }
    });
    // Settled by hand, since this is about the feed.
    for _ in 0..EVENTS / 500 {
        t.backlog("a", 500).await;
        t.claim_and_settle(postrider::Verdict::Delivered).await;
    }
    attentive.await.unwrap();
    let Some(Heard::Missed(missed)) = deaf.next().await else { panic!("it cannot have kept all of them") };
    let mut heard = 0;
    while let Ok(Some(Heard::Announcement(_))) = tokio::time::timeout(Duration::from_millis(200), deaf.next()).await {
        heard += 1;
    }
    assert_eq!(missed + heard, EVENTS as u64, "what it missed and what it heard is everything");
}

pub async fn a_summary_is_logged_once_per_active_period_and_nothing_when_idle(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let receiver = Receiver::start(|_, number| Answer::status(if number == 3 { 404 } else { 200 })).await;
    let running = Running::start(dispatcher(&t.store, "w1"));
    for round in 1..=2 {
        let ids = enqueue_for(t, &receiver, 4).await;
        eventually("a summary", PATIENCE, || async {
            (logs.lines_with(&["dispatched", "claimed="]).len() >= round).then_some(())
        })
        .await;
        assert!(t.delivery(ids[0]).await.attempt_count == 1);
    }
    let summaries = logs.lines_with(&["dispatched", "claimed="]);
    let sum = |field: &str| {
        let value = |line: &String| -> u64 {
            let (_, rest) = line.split_once(&format!(" {field}=")).unwrap_or_else(|| panic!("{field} in {line}"));
            rest.split(' ').next().unwrap().parse().unwrap()
        };
        summaries.iter().map(value).sum::<u64>()
    };
    assert_eq!((sum("claimed"), sum("delivered"), sum("retried"), sum("dead"), sum("errors")), (8, 7, 1, 0, 0));
    assert_eq!((sum("responses_2xx"), sum("responses_4xx"), sum("network_failures")), (7, 1, 0));
    assert!(summaries.iter().all(|line| line.contains("latency_mean_ms=")));
    let lines = logs.text().lines().filter(|line| line.contains("INFO") && line.contains("postrider")).count();
    assert_eq!(lines, summaries.len(), "an idle poll says nothing: {}", logs.text());
    running.stop().await;
}

pub async fn p20_neither_payload_nor_secret_is_ever_logged(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let canary = "canary-in-the-payload";
    let plain_secret = "canary-of-an-endpoint-secret";
    let receivers = [Receiver::answering(200).await, Receiver::answering(500).await, Receiver::answering(410).await];
    let settings = || EndpointSettings {
        secrets: vec![Secret::parse(plain_secret).unwrap()],
        headers: vec![("authorization".to_owned(), "Bearer canary-of-a-header".to_owned())],
        ..EndpointSettings::default()
    };
    for receiver in &receivers {
        endpoint_at(t, receiver, settings()).await;
    }
    let payload = format!(r#"{{"text":"{canary}"}}"#);
    let enqueued = t.enqueue(NewEvent::new("invoice.paid", payload.clone())).await;
    t.store
        .enqueue(vec![NewEvent::new("invoice.paid", format!("{{{canary}")).to(receivers[0].url())])
        .await
        .unwrap_err();
    let running = Running::start(dispatcher(&t.store, "w1").retry_policy(one_attempt()));
    let ids: Vec<_> = enqueued.deliveries().iter().map(|delivery| delivery.id).collect();
    all_become(t, &ids[..1], DeliveryStatus::Delivered).await;
    all_become(t, &ids[1..], DeliveryStatus::Dead).await;
    running.stop().await;
    tracing::info!("the end");
    let text = logs.text();
    assert!(text.contains("the end") && text.contains("claimed="), "the logs were collected");
    let encoded = Secret::parse(plain_secret).unwrap().reveal();
    for secret in [canary, plain_secret, encoded.as_str(), SECRET, "canary-of-a-header"] {
        assert!(!text.contains(secret), "{secret} was logged");
    }
}
