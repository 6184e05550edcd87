//! Group commit: concurrent single enqueues are written together, and nobody pays for a neighbour.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use futures_util::future::join_all;
use postrider_conformance::wait::{PATIENCE, eventually};
use postrider_server::QueueSettings;
use postrider_sqlite::SqliteStore;
use serde_json::{Value, json};

use crate::support::{Api, sqlite};

const TO: &str = "https://hooks.example.com/billing";

/// Keeps the store's one writer busy until the sender is dropped.
async fn hold(store: &SqliteStore) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel::<()>();
    let (held, holding) = tokio::sync::oneshot::channel();
    let store = store.clone();
    tokio::spawn(async move {
        let transaction = store.transaction(move |_| {
            let _ = held.send(());
            let _ = released.recv();
            Ok::<_, postrider::StoreError>(())
        });
        let _ = transaction.await;
    });
    holding.await.unwrap();
    release
}

fn event(number: usize) -> String {
    json!({"type": "load.test", "payload": number, "destination_url": TO}).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_posts_become_few_calls_of_the_store() {
    let (store, folder) = sqlite().await;
    let api = Arc::new(Api::start_on(Arc::new(store.clone()), folder, |_| {}).await);
    let release = hold(&store).await;
    let posts: Vec<_> = (0..64)
        .map(|number| {
            let api = Arc::clone(&api);
            tokio::spawn(async move { api.post("/v1/events", event(number)).await })
        })
        .collect();
    // The first ones went off, alone or in company, and keep both writers busy; the others gather.
    eventually("all events have come", PATIENCE, async || {
        let waiting = api.metric("postrider_queue_depth ").await;
        (waiting + api.metric("postrider_queue_batch_size_sum ").await == 64).then_some(())
    })
    .await;
    drop(release);
    let mut ids: Vec<String> = Vec::new();
    for answer in join_all(posts).await {
        let (status, enqueued) = answer.unwrap();
        assert_eq!(status, 202, "{enqueued}");
        ids.push(enqueued["id"].as_str().unwrap().to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 64);
    assert_eq!(api.metric("postrider_queue_batch_size_sum ").await, 64);
    let batches = api.metric("postrider_queue_batch_size_count ").await;
    assert!((3..=4).contains(&batches), "{batches} batches");
    assert_eq!(api.metric("postrider_queue_depth ").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_posts_are_all_written_on_postgres() {
    let api = Arc::new(Api::start_on_postgres().await);
    let post = |number: usize| {
        let api = Arc::clone(&api);
        tokio::spawn(async move { api.post("/v1/events", event(number)).await })
    };
    let posts: Vec<_> = (0..200).map(post).collect();
    let mut payloads = std::collections::BTreeSet::new();
    for (number, answer) in join_all(posts).await.into_iter().enumerate() {
        let (status, enqueued) = answer.unwrap();
        assert_eq!(status, 202, "{enqueued}");
        let (_, shown) = api.get(&format!("/v1/events/{}", enqueued["id"].as_str().unwrap())).await;
        assert_eq!(shown["payload"], number, "each is answered with its own event");
        payloads.insert(number);
    }
    assert_eq!(payloads.len(), 200);
    assert_eq!(api.metric("postrider_queue_batch_size_sum ").await, 200);
}

#[tokio::test]
async fn a_full_queue_sends_away_and_recovers() {
    let (store, folder) = sqlite().await;
    let api = Arc::new(
        Api::start_on(Arc::new(store.clone()), folder, |setup| {
            setup.settings.queue = QueueSettings { most_waiting: 3, ..QueueSettings::default() };
        })
        .await,
    );
    let release = hold(&store).await;
    let mut posts = Vec::new();
    for number in 0..5 {
        let posting = Arc::clone(&api);
        posts.push(tokio::spawn(async move { posting.post("/v1/events", event(number)).await }));
        // One after the other, so that each writer takes one alone.
        let seen = async || {
            let taken = api.metric("postrider_queue_batch_size_count ").await;
            let waiting = api.metric("postrider_queue_depth ").await;
            (taken + waiting > number as u64).then_some(())
        };
        eventually("the event is in the queue", PATIENCE, seen).await;
    }
    let refused = api.request(reqwest::Method::POST, "/v1/events").header("content-type", "application/json");
    let refused = refused.body(event(9)).send().await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "1");
    let (status, problem) = crate::support::read(refused).await;
    assert_eq!((status, &problem["code"]), (503, &json!("queue_full")));
    assert_eq!(api.metric("postrider_queue_refused_total ").await, 1);
    drop(release);
    for answer in join_all(posts).await {
        assert_eq!(answer.unwrap().0, 202);
    }
    assert_eq!(api.post("/v1/events", event(9)).await.0, 202, "there is room again");
    assert_eq!(api.get("/v1/events").await.1["data"].as_array().unwrap().len(), 6);
}

/// Posts these at once, gathered into one batch behind two events that keep the writers busy.
async fn together(api: &Arc<Api>, store: &SqliteStore, bodies: Vec<Value>) -> Vec<(u16, Value)> {
    let release = hold(store).await;
    let before = api.metric("postrider_queue_batch_size_count ").await;
    let post = |body: Value| {
        let api = Arc::clone(api);
        tokio::spawn(async move { api.post("/v1/events", body.to_string()).await })
    };
    let mut ahead = Vec::new();
    for number in 1..=2 {
        let mut first = json!({"type": "goes.ahead", "payload": 1});
        // Those with a key have a queue of their own.
        if bodies.iter().any(|body| body.get("idempotency_key").is_some()) {
            first["idempotency_key"] = json!(format!("ahead-{number}"));
        }
        ahead.push(post(first));
        let busy = async || (api.metric("postrider_queue_batch_size_count ").await >= before + number).then_some(());
        eventually("a writer is busy", PATIENCE, busy).await;
    }
    let count = bodies.len() as u64;
    let posts: Vec<_> = bodies.into_iter().map(post).collect();
    let waiting = async || (api.metric("postrider_queue_depth ").await >= count).then_some(());
    eventually("all wait", PATIENCE, waiting).await;
    drop(release);
    join_all(ahead).await;
    join_all(posts).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_conflict_does_not_touch_its_neighbours() {
    let (store, folder) = sqlite().await;
    let api = Arc::new(Api::start_on(Arc::new(store.clone()), folder, |_| {}).await);
    let keyed = |payload: i64| json!({"type": "a.b", "payload": payload, "idempotency_key": "k"});
    assert_eq!(api.post("/v1/events", keyed(1).to_string()).await.0, 202);
    let once = json!({"type": "a.b", "payload": 1, "once": {"subject": "s"}});
    let bodies = vec![
        json!({"type": "a.b", "payload": 1, "idempotency_key": "own"}),
        keyed(2),
        keyed(1),
        once.clone(),
        once,
        json!({"type": "c.d", "payload": 2, "idempotency_key": "another"}),
    ];
    let answers = together(&api, &store, bodies).await;
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!([statuses[0], statuses[1], statuses[2], statuses[5]], [202, 409, 200, 202], "{answers:?}");
    assert_eq!(statuses[3] + statuses[4], 402, "of two that claim one subject, one does: {answers:?}");
}

/// What makes a whole transaction fail is found out, and the others are written without it.
#[tokio::test]
async fn an_event_that_cannot_be_written_does_not_take_its_neighbours_down() {
    let (store, folder) = sqlite().await;
    let api = Arc::new(Api::start_on(Arc::new(store.clone()), folder, |_| {}).await);
    poison(
        &store,
        "create trigger poison before insert on postrider_events when new.event_type = 'poi.son' \
                    begin select raise(abort, 'poisoned'); end",
    )
    .await;
    let bodies = vec![
        json!({"type": "a.b", "payload": 1}),
        json!({"type": "poi.son", "payload": 2}),
        json!({"type": "c.d", "payload": 3}),
    ];
    let answers = together(&api, &store, bodies).await;
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [202, 500, 202], "{answers:?}");
    assert!(!answers[1].1.to_string().contains("poisoned"), "what the driver says is for the log: {}", answers[1].1);
    let (_, listed) = api.get("/v1/events").await;
    assert_eq!(listed["data"].as_array().unwrap().len(), 4, "two went ahead, two of three are there");
}

async fn poison(store: &SqliteStore, statement: &'static str) {
    let poisoning = store.transaction(move |transaction| {
        transaction.connection().execute_batch(statement).unwrap();
        Ok::<_, postrider::StoreError>(())
    });
    poisoning.await.unwrap();
}

#[tokio::test]
async fn trouble_that_passes_is_told_to_everybody_in_the_batch() {
    let (store, folder) = sqlite().await;
    let api = Arc::new(Api::start_on(Arc::new(store.clone()), folder, |_| {}).await);
    // The file may not grow any more, as if the disk were full.
    poison(&store, "pragma max_page_count = 1").await;
    let large = json!({"type": "a.b", "payload": "x".repeat(200_000)});
    let answers = together(&api, &store, vec![large.clone(), large]).await;
    for (status, problem) in answers {
        assert_eq!((status, &problem["code"]), (503, &json!("store_full")), "{problem}");
    }
    poison(&store, "pragma max_page_count = 1000000").await;
    assert_eq!(api.post("/v1/events", event(1)).await.0, 202, "it goes on when there is room again");
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_disturb() {
    let (store, folder) = sqlite().await;
    let api = Arc::new(Api::start_on(Arc::new(store.clone()), folder, |_| {}).await);
    let release = hold(&store).await;
    for number in 0..4 {
        let request = api.request(reqwest::Method::POST, "/v1/events").header("content-type", "application/json");
        let gone = request.body(event(number)).timeout(Duration::from_millis(300)).send().await;
        assert!(gone.unwrap_err().is_timeout());
    }
    let staying = {
        let api = Arc::clone(&api);
        tokio::spawn(async move { api.post("/v1/events", event(5)).await })
    };
    drop(release);
    assert_eq!(staying.await.unwrap().0, 202);
    let all = async || (api.get("/v1/events").await.1["data"].as_array().unwrap().len() == 5).then_some(());
    eventually("what was taken is written, whoever waits", PATIENCE, all).await;
}

/// An application that does not end its transaction holds up those who need what it holds, and nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_left_open_holds_up_nobody_but_whoever_needs_its_key() {
    let database = postrider_postgres::testing::TestDatabase::create().await;
    let store = database.store();
    let application = store.pool();
    let mut open = application.begin().await.unwrap();
    for key in ["held-1", "held-2", "held-3"] {
        let taken = postrider::NewEvent::new("a.b", "1").to(TO).idempotency_key(key);
        store.enqueue_in(&mut open, taken).await.unwrap();
    }
    let subject = postrider::NewEvent::new("a.b", "1").to(TO).once("plan/1");
    store.enqueue_in(&mut open, subject).await.unwrap();

    let api = Arc::new(Api::start_on(Arc::new(store.clone()), database, |_| {}).await);
    let post = |body: Value| {
        let api = Arc::clone(&api);
        tokio::spawn(async move { api.post("/v1/events", body.to_string()).await })
    };
    let body = |more: Value| {
        let mut body = json!({"type": "a.b", "payload": 1, "destination_url": TO});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let mut held = Vec::new();
    for round in 0..3 {
        for key in ["held-1", "held-2", "held-3"] {
            held.push(post(body(json!({"idempotency_key": key}))));
        }
        held.push(post(body(json!({"once": {"subject": "plan/1"}}))));
        let innocent = post(body(json!({})));
        let with_key = post(body(json!({"idempotency_key": format!("free-{round}")})));
        let with_subject = post(body(json!({"once": {"subject": format!("plan/free-{round}")}})));
        for free in [innocent, with_key, with_subject] {
            let (status, enqueued) = free.await.unwrap();
            assert_eq!(status, 202, "{enqueued}");
        }
    }
    for answer in join_all(held).await {
        let (status, problem) = answer.unwrap();
        assert_eq!((status, problem["code"].as_str()), (503, Some("store_contended")), "{problem}");
    }
    open.rollback().await.unwrap();
    eventually("the key is free", PATIENCE, async || {
        let (status, _) = api.post("/v1/events", body(json!({"idempotency_key": "held-1"})).to_string()).await;
        (status == 202).then_some(())
    })
    .await;
}
