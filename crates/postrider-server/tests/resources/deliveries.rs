//! Deliveries: look, explain, retry, cancel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually};
use serde_json::{Value, json};

use crate::stage::{Stage, text};

/// A receiver whose answer can be changed.
async fn fickle(status: u16) -> (Receiver, Arc<AtomicU16>) {
    let answers = Arc::new(AtomicU16::new(status));
    let shared = Arc::clone(&answers);
    (
        Receiver::start(move |_, _| Answer::status(shared.load(Ordering::SeqCst)).body("says the receiver")).await,
        answers,
    )
}

fn only_delivery(event: &Value) -> String {
    let deliveries = event["deliveries"].as_array().unwrap();
    assert_eq!(deliveries.len(), 1, "{event}");
    text(&deliveries[0]["id"]).to_owned()
}

async fn listed(stage: &Stage, query: &str) -> Vec<String> {
    let list = stage.expect(200, "GET", &format!("/v1/deliveries?{query}"), None).await;
    list["data"].as_array().unwrap().iter().map(|delivery| text(&delivery["id"]).to_owned()).collect()
}

#[tokio::test]
async fn a_delivery_is_shown_with_its_attempts() {
    let stage = Stage::dispatching().await;
    let (receiver, _) = fickle(503).await;
    let endpoint = stage.endpoint(json!({"url": receiver.url()})).await;
    let event = stage.event("invoice.paid", json!({"a": 1})).await;
    let id = only_delivery(&event);
    let dead = stage.delivery_in(&id, "dead").await;
    assert_eq!(dead["id"], id);
    assert_eq!(dead["tenant"], "default");
    assert_eq!(dead["event_id"], event["id"]);
    assert_eq!(dead["event_type"], "invoice.paid");
    assert_eq!(dead["endpoint_id"], endpoint["id"]);
    assert_eq!(dead["destination_url"], receiver.url());
    assert_eq!((&dead["attempt_count"], &dead["next_attempt_at"]), (&json!(3), &Value::Null));
    assert_eq!((&dead["lease_owner"], &dead["lease_until"]), (&Value::Null, &Value::Null));
    assert!(dead["last_attempted_at"].is_string() && dead["created_at"].is_string());
    assert_eq!(dead["error_detail"], "HTTP 503: says the receiver");
    let attempts = dead["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 3);
    for (attempt, number) in attempts.iter().zip(1..) {
        assert_eq!(attempt["number"], number);
        assert_eq!((&attempt["outcome"], &attempt["status_code"]), (&json!("response"), &json!(503)));
        assert_eq!(attempt["response_excerpt"], "says the receiver");
        assert!(attempt["started_at"].is_string() && attempt["duration_ms"].is_u64(), "{attempt}");
    }
    let list = stage.expect(200, "GET", "/v1/deliveries", None).await;
    let mut without_attempts = dead.clone();
    without_attempts.as_object_mut().unwrap().remove("attempts");
    assert_eq!(list, json!({"data": [without_attempts], "next_cursor": null}));
}

#[tokio::test]
async fn filters_narrow_together() {
    let stage = Stage::quiet().await;
    let [first, second] = [
        stage.endpoint(json!({"url": "https://a.example.com/"})).await,
        stage.endpoint(json!({"url": "https://b.example.com/", "event_types": ["invoice.*"]})).await,
    ];
    let paid = stage.event("invoice.paid", json!({})).await;
    let left = stage.event("customer.left", json!({})).await;
    let id = |endpoint: &Value| text(&endpoint["id"]).to_owned();
    let created = text(&paid["created_at"]).to_owned();
    assert_eq!(listed(&stage, "").await.len(), 3);
    assert_eq!(listed(&stage, &format!("endpoint_id={}", id(&first))).await.len(), 2);
    assert_eq!(listed(&stage, &format!("endpoint_id={}", id(&second))).await.len(), 1);
    assert_eq!(listed(&stage, &format!("event_id={}", id(&left))).await, [only_delivery(&left)]);
    assert_eq!(listed(&stage, "event_type=invoice.paid").await.len(), 2);
    assert_eq!(listed(&stage, &format!("event_type=invoice.paid&endpoint_id={}", id(&first))).await.len(), 1);
    assert_eq!(listed(&stage, "status=pending").await.len(), 3);
    assert_eq!(listed(&stage, "status=dead").await.len(), 0);
    assert_eq!(listed(&stage, "since=1h").await.len(), 3);
    assert_eq!(listed(&stage, "until=1h").await.len(), 0);
    assert_eq!(listed(&stage, "since=2026-01-01&until=9000-01-01").await.len(), 3);
    assert_eq!(listed(&stage, &format!("until={created}")).await.len(), 0, "until is exclusive");
    assert_eq!(listed(&stage, &format!("since={created}")).await.len(), 3, "since is inclusive");

    for (query, status, code) in [
        ("status=unknown", 422, "status_invalid"),
        ("endpoint_id=evt_x", 422, "id_invalid"),
        ("event_id=ep_x", 422, "id_invalid"),
        ("event_type=%00", 422, "event_type_invalid"),
        ("since=yesterday", 422, "instant_invalid"),
        ("until=-1h", 422, "instant_invalid"),
        ("since=-009999-01-01T00:00:00Z", 422, "instant_invalid"),
        ("limit=many", 400, "query_invalid"),
        ("status=dead&status=failed", 400, "query_invalid"),
        ("state=dead", 400, "query_invalid"),
    ] {
        let answer = stage.ask("GET", &format!("/v1/deliveries?{query}"), None).await;
        assert_eq!(answer.problem(), (status, code), "{query}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_dead_delivery_is_retried_and_delivered_and_that_is_audited() {
    let stage = Stage::dispatching().await;
    let (receiver, answers) = fickle(500).await;
    stage.endpoint(json!({"url": receiver.url()})).await;
    let id = only_delivery(&stage.event("invoice.paid", json!({})).await);
    stage.delivery_in(&id, "dead").await;
    answers.store(200, Ordering::SeqCst);
    let retried = stage.expect(200, "POST", &format!("/v1/deliveries/{id}/retry"), None).await;
    assert_eq!(retried["id"], id);
    assert_eq!(retried["earlier_attempts"], 3, "a new round");
    let delivered = stage.delivery_in(&id, "delivered").await;
    assert_eq!(delivered["attempts"].as_array().unwrap().len(), 4, "the history is kept");
    let audit = stage.expect(200, "GET", "/v1/audit?limit=1", None).await;
    let entry = &audit["data"][0];
    assert_eq!((&entry["action"], &entry["subject"]), (&json!("delivery.retry"), &json!(id)));
    assert_eq!(entry["tenant"], "default");

    for (action, code) in [("retry", "delivery_already_delivered"), ("cancel", "delivery_already_settled")] {
        let answer = stage.ask("POST", &format!("/v1/deliveries/{id}/{action}"), None).await;
        assert_eq!(answer.problem(), (409, code), "{action}");
    }
}

#[tokio::test]
async fn a_delivery_is_cancelled_also_while_an_attempt_is_under_way() {
    let stage = Stage::dispatching().await;
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    stage.endpoint(json!({"url": receiver.url()})).await;
    let id = only_delivery(&stage.event("invoice.paid", json!({})).await);
    receiver.wait_for(1, PATIENCE).await;
    let shown = stage.expect(200, "GET", &format!("/v1/deliveries/{id}"), None).await;
    assert!(shown["lease_owner"].is_string() && shown["lease_until"].is_string(), "{shown}");
    let answer = stage.ask("POST", &format!("/v1/deliveries/{id}/retry"), None).await;
    assert_eq!(answer.problem(), (409, "delivery_in_flight"));

    let reason = json!({"reason": "the customer has left"});
    let cancelled = stage.expect(200, "POST", &format!("/v1/deliveries/{id}/cancel"), Some(reason)).await;
    assert_eq!((&cancelled["status"], &cancelled["lease_owner"]), (&json!("cancelled"), &Value::Null));
    assert!(text(&cancelled["error_detail"]).contains("the customer has left"), "{cancelled}");
    gate.open();
    let marker = only_delivery(&stage.event("invoice.paid", json!({})).await);
    stage.delivery_in(&marker, "delivered").await;
    let still = stage.expect(200, "GET", &format!("/v1/deliveries/{id}"), None).await;
    assert_eq!(still["status"], "cancelled", "the answer came too late");
}

#[tokio::test]
async fn what_is_due_already_cannot_be_retried() {
    let stage = Stage::quiet().await;
    stage.endpoint(json!({"url": "https://a.example.com/"})).await;
    let id = only_delivery(&stage.event("invoice.paid", json!({})).await);
    let answer = stage.ask("POST", &format!("/v1/deliveries/{id}/retry"), None).await;
    assert_eq!(answer.problem(), (409, "delivery_already_due"));
    let cancelled = stage.expect(200, "POST", &format!("/v1/deliveries/{id}/cancel"), None).await;
    assert_eq!(cancelled["status"], "cancelled", "without a body as well");
    for action in ["retry", "cancel"] {
        let answer = stage.ask("POST", &format!("/v1/deliveries/dlv_01jd8x4k2hf4xr5zt3yq7m9nbw/{action}"), None).await;
        assert_eq!(answer.problem(), (404, "delivery_not_found"));
    }
}

#[tokio::test]
async fn many_are_retried_at_once_and_only_those_that_match() {
    let stage = Stage::dispatching().await;
    let (receiver, answers) = fickle(500).await;
    stage.endpoint(json!({"url": receiver.url(), "max_attempts": 1})).await;
    let mut ids = Vec::new();
    for n in 0..12 {
        let event_type = if n < 9 { "invoice.paid" } else { "customer.left" };
        ids.push(only_delivery(&stage.event(event_type, json!({"n": n})).await));
    }
    for id in &ids {
        stage.delivery_in(id, "dead").await;
    }
    let retry = async |body: Value| stage.expect(202, "POST", "/v1/deliveries/retry", Some(body)).await;
    let dry = retry(json!({"status": "dead", "event_type": "invoice.paid", "dry_run": true})).await;
    assert_eq!(dry, json!({"matched": 9, "retried": 0}));
    assert_eq!(listed(&stage, "status=dead").await.len(), 12, "that was dry");

    answers.store(200, Ordering::SeqCst);
    let some = retry(json!({"status": "dead", "event_type": "invoice.paid", "limit": 4, "since": "1h"})).await;
    assert_eq!(some, json!({"matched": 9, "retried": 4}));
    for id in &ids[..4] {
        stage.delivery_in(id, "delivered").await;
    }
    assert_eq!(listed(&stage, "status=dead").await.len(), 8, "the oldest four are not dead any more");
    let rest = retry(json!({"status": "dead", "event_type": "invoice.paid"})).await;
    assert_eq!(rest, json!({"matched": 5, "retried": 5}));
    assert_eq!(retry(json!({"status": "dead", "until": "1h"})).await, json!({"matched": 0, "retried": 0}));
    for id in &ids[..9] {
        stage.delivery_in(id, "delivered").await;
    }
    let left = listed(&stage, "status=dead").await;
    assert_eq!(left.len(), 3);
}

#[tokio::test]
async fn a_retry_of_many_that_die_again_at_once_retries_no_more_than_matched() {
    const DEAD: usize = 600;
    let stage = Stage::dispatching().await;
    let (receiver, _) = fickle(500).await;
    stage.endpoint(json!({"url": receiver.url(), "max_attempts": 1})).await;
    let events: Vec<Value> = (0..DEAD).map(|n| json!({"type": "invoice.paid", "payload": n})).collect();
    stage.expect(202, "POST", "/v1/events/batch", Some(json!(events))).await;
    let dry = json!({"status": "dead", "dry_run": true});
    eventually("all are dead", PATIENCE, async || {
        let told = stage.expect(202, "POST", "/v1/deliveries/retry", Some(dry.clone())).await;
        (told["matched"] == DEAD).then_some(())
    })
    .await;
    let retried = stage.expect(202, "POST", "/v1/deliveries/retry", Some(json!({"status": "dead"}))).await;
    assert_eq!(retried, json!({"matched": DEAD, "retried": DEAD}));
}

#[tokio::test]
async fn nobody_retries_everything_by_mistake() {
    let stage = Stage::quiet().await;
    for (body, code) in [
        (json!({}), "field_missing"),
        (json!({"status": "pending"}), "status_not_retryable"),
        (json!({"status": "delivered"}), "status_not_retryable"),
        (json!({"status": "all"}), "status_invalid"),
        (json!({"status": "dead", "limit": 0}), "limit_invalid"),
        (json!({"status": "dead", "limit": 10_001}), "limit_invalid"),
        (json!({"status": "dead", "endpoint": "ep_1"}), "field_unknown"),
        (json!({"status": "dead", "endpoint_id": "ep_1"}), "id_invalid"),
        (json!({"status": "dead", "since": "last week"}), "instant_invalid"),
    ] {
        let answer = stage.ask("POST", "/v1/deliveries/retry", Some(body.clone())).await;
        assert_eq!(answer.problem(), (422, code), "{body}: {}", answer.text);
    }
    let answer = stage.ask("POST", "/v1/deliveries/retry", None).await;
    assert_eq!(answer.status, 415, "{}", answer.text);
}

#[tokio::test]
async fn why_tells_in_words_how_a_delivery_stands() {
    let stage = Stage::dispatching().await;
    let (receiver, _) = fickle(503).await;
    let endpoint = stage.endpoint(json!({"url": receiver.url(), "retry_schedule": ["1h"], "max_attempts": 2})).await;
    let id = only_delivery(&stage.event("invoice.paid", json!({})).await);
    stage.delivery_in(&id, "failed").await;
    let why = stage.expect(200, "GET", &format!("/v1/deliveries/{id}/why"), None).await;
    assert!(text(&why["summary"]).contains("503"), "{why}");
    assert!(!why["facts"].as_array().unwrap().is_empty(), "{why}");

    stage.expect(200, "POST", &format!("/v1/endpoints/{}/pause", text(&endpoint["id"])), None).await;
    let paused = stage.expect(200, "GET", &format!("/v1/deliveries/{id}/why"), None).await;
    assert!(text(&paused["summary"]).contains("paused"), "{paused}");
    stage.ask("DELETE", &format!("/v1/endpoints/{}", text(&endpoint["id"])), None).await;
    let removed = stage.expect(200, "GET", &format!("/v1/deliveries/{id}/why"), None).await;
    assert!(text(&removed["summary"]).contains("cancelled"), "{removed}");
    let answer = stage.ask("GET", "/v1/deliveries/dlv_01jd8x4k2hf4xr5zt3yq7m9nbw/why", None).await;
    assert_eq!(answer.problem(), (404, "delivery_not_found"));
}
