//! Announcements as server-sent events: who follows misses nothing and gets nothing twice.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use postrider::Scope;
use postrider_conformance::receiver::{Answer, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually, within};
use serde_json::{Value, json};

use crate::stage::{Ask, Stage, text};

/// One block of a stream.
#[derive(Debug, Default, Clone, PartialEq)]
struct Block {
    id: Option<String>,
    event: Option<String>,
    data: Option<Value>,
    retry: Option<String>,
    comment: Option<String>,
}

/// A stream that is being read.
struct Reading {
    body: Incoming,
    text: String,
    /// What a browser would send when it connects again.
    last_id: Option<String>,
}

impl Reading {
    async fn open(stage: &Stage, ask: Ask) -> Self {
        let (head, body) = within("the stream opens", PATIENCE, stage.open_answer(ask)).await;
        assert_eq!(head.status, 200);
        assert_eq!(head.headers["content-type"], "text/event-stream");
        Self { body, text: String::new(), last_id: None }
    }

    /// Opens it, and reads its first block.
    async fn opened(stage: &Stage, ask: Ask) -> Self {
        let mut reading = Self::open(stage, ask).await;
        let opening = reading.block().await.unwrap();
        assert_eq!((opening.retry.as_deref(), &opening.event, &opening.data), (Some("2000"), &None, &None));
        assert!(opening.id.is_some(), "whoever is cut off before the first event knows where to go on");
        reading
    }

    /// The next block; none when the stream has ended.
    async fn block(&mut self) -> Option<Block> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let rest = self.text.split_off(end + 2);
                let block = parsed(self.text.trim_end());
                self.text = rest;
                if block.id.is_some() {
                    self.last_id.clone_from(&block.id);
                }
                return Some(block);
            }
            let frame = within("something in the stream", PATIENCE, self.body.frame()).await?;
            // A connection that is cut is an end as well.
            let data = frame.ok()?.into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }

    /// The next announcement. Heartbeats do not count as a sign of life.
    async fn told(&mut self) -> Value {
        let told = async {
            loop {
                let block = self.block().await.expect("the stream goes on");
                if let Some(data) = block.data {
                    assert_eq!(block.event.as_deref(), data["fact"].as_str());
                    assert!(block.id.is_some());
                    return data;
                }
            }
        };
        within("an announcement", PATIENCE, told).await
    }
}

fn parsed(text: &str) -> Block {
    let mut block = Block::default();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap();
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match name {
            "id" => block.id = Some(value),
            "event" => block.event = Some(value),
            "data" => block.data = Some(serde_json::from_str(&value).unwrap()),
            "retry" => block.retry = Some(value),
            "" => block.comment = Some(value),
            _ => panic!("{line}"),
        }
    }
    block
}

fn follow(stage: &Stage, query: &str) -> Ask {
    Ask::new("GET", &format!("/v1/stream{query}")).key(&stage.admin)
}

async fn send(stage: &Stage, body: Value) -> Value {
    stage.expect(202, "POST", "/v1/events", Some(body)).await
}

#[tokio::test]
async fn announcements_come_as_they_happen() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::answering(200).await;
    let endpoint = stage.endpoint(json!({"url": receiver.url()})).await;
    let mut reading = Reading::opened(&stage, follow(&stage, "")).await;
    let event = send(&stage, json!({"type": "invoice.paid", "payload": {}, "metadata": {"customer": "cus_9"}})).await;
    let told = reading.told().await;
    let expected = json!({
        "tenant": "default",
        "topic": "postrider",
        "fact": "delivery.delivered",
        "delivery_id": event["deliveries"][0]["id"],
        "event_id": event["id"],
        "endpoint_id": endpoint["id"],
        "attempt_count": 1,
        "metadata": {"customer": "cus_9"},
        "at": told["at"],
    });
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_client_that_connects_again_misses_nothing_and_gets_nothing_twice_also_after_a_restart() {
    const EVENTS: usize = 40;
    let mut stage = Stage::dispatching().await;
    let receiver = Receiver::answering(200).await;
    stage.endpoint(json!({"url": receiver.url()})).await;
    let mut reading = Reading::opened(&stage, follow(&stage, "")).await;
    let mut heard = Vec::new();
    let mut sent = Vec::new();
    // Every time a few more are read than before, and the rest of what the connection had is thrown away with it.
    for round in 0..4 {
        for n in 0..EVENTS / 4 {
            let event = send(&stage, json!({"type": "invoice.paid", "payload": {"n": n}})).await;
            sent.push(text(&event["deliveries"][0]["id"]).to_owned());
        }
        receiver.wait_for(sent.len(), PATIENCE).await;
        for _ in 0..=round * 3 {
            heard.push(text(&reading.told().await["delivery_id"]).to_owned());
        }
        let place = reading.last_id.clone().unwrap();
        drop(reading);
        if round == 1 {
            stage.restart().await;
        }
        let ask = if round == 2 {
            follow(&stage, &format!("?after={place}"))
        } else {
            follow(&stage, "").header("last-event-id", &place)
        };
        reading = Reading::opened(&stage, ask).await;
    }
    while heard.len() < EVENTS {
        heard.push(text(&reading.told().await["delivery_id"]).to_owned());
    }
    let marker = send(&stage, json!({"type": "invoice.paid", "payload": {}})).await;
    let last = reading.told().await;
    assert_eq!(last["delivery_id"], marker["deliveries"][0]["id"], "nothing comes twice");
    heard.sort_unstable();
    sent.sort_unstable();
    assert_eq!(heard, sent);
}

#[tokio::test]
async fn a_client_that_is_cut_off_again_and_again_hears_everything_once_while_many_write() {
    const EVENTS: usize = 160;
    const WRITERS: usize = 8;
    let stage = Stage::quiet().await;
    stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let mut sent = Vec::new();
    for n in 0..EVENTS {
        let event = send(&stage, json!({"type": "invoice.paid", "payload": {"n": n}})).await;
        sent.push(text(&event["deliveries"][0]["id"]).to_owned());
    }
    let reading = Reading::opened(&stage, follow(&stage, "")).await;
    let place = reading.last_id.clone().unwrap();
    drop(reading);
    let writing = futures_util::future::join_all(sent.chunks(EVENTS / WRITERS).map(async |ids| {
        for id in ids {
            stage.expect(200, "POST", &format!("/v1/deliveries/{id}/cancel"), None).await;
        }
    }));
    let hearing = async {
        let (mut heard, mut place) = (Vec::new(), place);
        while heard.len() < EVENTS {
            let mut reading = Reading::opened(&stage, follow(&stage, "").header("last-event-id", &place)).await;
            for _ in 0..(1 + heard.len() % 7).min(EVENTS - heard.len()) {
                heard.push(text(&reading.told().await["delivery_id"]).to_owned());
            }
            place = reading.last_id.clone().unwrap();
        }
        heard
    };
    let (_, mut heard) = tokio::join!(writing, hearing);
    heard.sort_unstable();
    sent.sort_unstable();
    assert_eq!(heard, sent);
}

#[tokio::test]
async fn a_stream_is_of_one_tenant_and_can_be_narrowed() {
    let stage = Stage::dispatching().await;
    let receiver =
        Receiver::start(|request, _| Answer::status(if request.body.starts_with(b"\"bad") { 500 } else { 200 })).await;
    for tenant in ["acme", "globex"] {
        let body = json!({"url": receiver.url(), "max_attempts": 1});
        let ask = Ask::new("POST", "/v1/endpoints").key(&stage.admin).tenant(tenant).json(&body);
        assert_eq!(stage.send(ask).await.status, 201);
    }
    let acme = stage.key(Some("acme"), Scope::Read).await;
    let ask = |query: &str| Ask::new("GET", &format!("/v1/stream{query}")).key(&acme);
    let mut own = Reading::opened(&stage, ask("")).await;
    let mut dead = Reading::opened(&stage, ask("?fact=delivery.dead")).await;
    let mut topic = Reading::opened(&stage, ask("?topic=billing")).await;
    let mut all = Reading::opened(&stage, follow(&stage, "").tenant("*")).await;
    let mut ids = Vec::new();
    for (tenant, payload, topic) in [
        ("globex", "good", "billing"),
        ("acme", "good", "postrider"),
        ("acme", "bad", "postrider"),
        ("acme", "good", "billing"),
    ] {
        let body = json!({"type": "a.b", "payload": payload, "topic": topic});
        let answer = stage.send(Ask::new("POST", "/v1/events").key(&stage.admin).tenant(tenant).json(&body)).await;
        let id = text(&answer.body["deliveries"][0]["id"]).to_owned();
        // One after the other, so that the order of what is announced is known.
        eventually("it is over", PATIENCE, async || {
            let path = format!("/v1/deliveries/{id}");
            let shown = stage.send(Ask::new("GET", &path).key(&stage.admin).tenant(tenant)).await.body;
            matches!(text(&shown["status"]), "delivered" | "dead").then_some(())
        })
        .await;
        ids.push(id);
    }
    for id in &ids {
        assert_eq!(all.told().await["delivery_id"], *id);
    }
    for id in &ids[1..] {
        let told = own.told().await;
        assert_eq!((&told["delivery_id"], &told["tenant"]), (&json!(id), &json!("acme")));
    }
    assert_eq!(dead.told().await["delivery_id"], ids[2]);
    assert_eq!(topic.told().await["delivery_id"], ids[3]);
}

#[tokio::test]
async fn what_cannot_be_followed_is_refused() {
    let stage = Stage::quiet().await;
    for (query, status, code) in [
        ("?fact=delivery.lost", 422, "fact_invalid"),
        ("?topic=%00", 422, "topic_invalid"),
        ("?after=yesterday", 422, "last_event_id_invalid"),
        ("?since=1h", 400, "query_invalid"),
    ] {
        let answer = stage.send(follow(&stage, query)).await;
        assert_eq!(answer.problem(), (status, code), "{query}: {}", answer.text);
    }
    let answer = stage.send(follow(&stage, "").header("last-event-id", "x")).await;
    assert_eq!(answer.problem(), (422, "last_event_id_invalid"));
    let answer = stage.send(Ask::new("GET", "/v1/stream")).await;
    assert_eq!(answer.problem(), (401, "key_missing"));
}

#[tokio::test]
async fn a_stream_ends_when_its_key_is_revoked() {
    let stage = Stage::quiet().await;
    let created = stage.expect(201, "POST", "/v1/keys", Some(json!({"name": "a", "scope": "read"}))).await;
    let mut reading = Reading::opened(&stage, Ask::new("GET", "/v1/stream").key(text(&created["key"]))).await;
    let mut other = Reading::opened(&stage, follow(&stage, "")).await;
    let answer = stage.ask("DELETE", &format!("/v1/keys/{}", text(&created["id"])), None).await;
    assert_eq!(answer.status, 204);
    assert_eq!(reading.block().await, None);
    stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let event = send(&stage, json!({"type": "a.b", "payload": {}})).await;
    let path = format!("/v1/deliveries/{}/cancel", text(&event["deliveries"][0]["id"]));
    stage.expect(200, "POST", &path, None).await;
    assert_eq!(other.told().await["fact"], "delivery.cancelled", "other streams go on");
}

#[tokio::test]
async fn streams_end_at_once_when_the_server_stops() {
    let mut stage = Stage::quiet().await;
    let mut reading = Reading::opened(&stage, follow(&stage, "")).await;
    stage.stop().await;
    assert_eq!(within("the stream ends", Duration::from_secs(10), reading.block()).await, None);
}

#[tokio::test]
async fn there_are_not_more_streams_than_a_server_can_bear_nor_one_tenant_has_them_all() {
    let stage = Stage::quiet().await;
    let mut streams = Vec::new();
    let mut fill = async |tenant: &str| {
        let mut count = 0;
        loop {
            let (head, body) = stage.open_answer(follow(&stage, "").tenant(tenant)).await;
            if head.status != 200 {
                assert_eq!(head.status, 503);
                assert!(head.headers.contains_key("retry-after"));
                let body = body.collect().await.unwrap().to_bytes();
                assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["code"], "too_many_streams");
                return count;
            }
            streams.push(body);
            count += 1;
            assert!(count < 1_000);
        }
    };
    for tenant in ["a", "b", "c", "*"] {
        assert_eq!(fill(tenant).await, 64, "{tenant}");
    }
    assert_eq!(fill("d").await, 0);
    drop(streams);
    for tenant in ["a", "d"] {
        eventually("a place is free again", PATIENCE, async || {
            let (head, _) = stage.open_answer(follow(&stage, "").tenant(tenant)).await;
            (head.status == 200).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_quiet_stream_sends_heartbeats_that_know_what_was_not_for_it() {
    let stage = Stage::quiet().await;
    let acme = stage.key(Some("acme"), Scope::Read).await;
    let mut reading = Reading::opened(&stage, Ask::new("GET", "/v1/stream").key(&acme)).await;
    let opened_at = reading.last_id.clone();
    stage.endpoint(json!({"url": "https://hooks.example.com/"})).await;
    let event = send(&stage, json!({"type": "a.b", "payload": {}})).await;
    let path = format!("/v1/deliveries/{}/cancel", text(&event["deliveries"][0]["id"]));
    stage.expect(200, "POST", &path, None).await;
    let block = reading.block().await.unwrap();
    assert_eq!((block.comment.as_deref(), &block.event), (Some("heartbeat"), &None), "nothing of another tenant's");
    assert!(block.id.is_some() && block.id != opened_at, "but the place has moved");
}
