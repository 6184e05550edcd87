//! Endpoints with a dispatcher and real receivers: what the API says is what happens.

use std::time::Duration;

use postrider::Scope;
use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually};
use serde_json::{Value, json};

use crate::stage::{Stage, text, verified};

fn path(endpoint: &Value) -> String {
    format!("/v1/endpoints/{}", text(&endpoint["id"]))
}

#[tokio::test]
async fn a_paused_endpoint_keeps_its_backlog_and_gets_it_when_it_is_resumed() {
    let stage = Stage::dispatching().await;
    let (paused, other) = (Receiver::answering(200).await, Receiver::answering(200).await);
    let endpoint = stage.endpoint(json!({"url": paused.url()})).await;
    stage.endpoint(json!({"url": other.url()})).await;
    stage.expect(200, "POST", &format!("{}/pause", path(&endpoint)), None).await;
    for n in 0..10 {
        stage.event("invoice.paid", json!({"n": n})).await;
    }
    other.wait_for(10, PATIENCE).await;
    assert_eq!(paused.request_count(), 0, "it is paused, while its neighbour has got everything");
    let waiting = format!("/v1/deliveries?status=pending&endpoint_id={}", text(&endpoint["id"]));
    assert_eq!(stage.expect(200, "GET", &waiting, None).await["data"].as_array().unwrap().len(), 10);

    stage.expect(200, "POST", &format!("{}/resume", path(&endpoint)), None).await;
    let arrived = paused.wait_for(10, PATIENCE).await;
    assert!(arrived.iter().all(|request| verified(&endpoint["secret"], request)));
    let delivered = format!("/v1/deliveries?status=delivered&endpoint_id={}", text(&endpoint["id"]));
    eventually("the backlog is delivered", PATIENCE, async || {
        let listed = stage.expect(200, "GET", &delivered, None).await;
        (listed["data"].as_array().unwrap().len() == 10).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_test_event_arrives_signed_whatever_the_endpoint_wants() {
    let stage = Stage::dispatching().await;
    let (tested, other) = (Receiver::answering(204).await, Receiver::answering(204).await);
    let endpoint = stage.endpoint(json!({"url": tested.url(), "event_types": ["invoice.paid"]})).await;
    stage.endpoint(json!({"url": other.url()})).await;
    let event = stage.expect(202, "POST", &format!("{}/test", path(&endpoint)), None).await;
    assert_eq!((&event["type"], &event["duplicate"]), (&json!("postrider.test"), &json!(false)));
    assert_eq!(event["deliveries"].as_array().unwrap().len(), 1);
    let request = &tested.wait_for(1, PATIENCE).await[0];
    assert!(verified(&endpoint["secret"], request));
    assert_eq!(request.header("webhook-id"), text(&event["id"]));
    assert_eq!(request.header("postrider-event-type"), "postrider.test");
    let payload: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(payload["endpoint_id"], endpoint["id"]);
    stage.delivery_in(text(&event["deliveries"][0]["id"]), "delivered").await;
    assert_eq!(other.request_count(), 0, "nobody else is tested");
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_disabled_and_shown_so_until_it_is_resumed() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 410 } else { 200 })).await;
    let endpoint = stage.endpoint(json!({"url": receiver.url()})).await;
    stage.event("invoice.paid", json!({})).await;
    let shown = eventually("it is disabled", PATIENCE, async || {
        let shown = stage.expect(200, "GET", &path(&endpoint), None).await;
        (shown["status"] == "disabled").then_some(shown)
    })
    .await;
    assert!(shown["status_reason"].is_string() && shown["failing_since"].is_string(), "{shown}");
    let event = stage.event("invoice.paid", json!({})).await;
    assert_eq!(event["deliveries"], json!([]), "new events pass it by");
    let answer = stage.ask("POST", &format!("{}/test", path(&endpoint)), None).await;
    assert_eq!(answer.problem(), (409, "endpoint_disabled"));

    let resumed = stage.expect(200, "POST", &format!("{}/resume", path(&endpoint)), None).await;
    assert_eq!(resumed["status"], "active");
    let event = stage.event("invoice.paid", json!({})).await;
    stage.delivery_in(text(&event["deliveries"][0]["id"]), "delivered").await;
}

#[tokio::test]
async fn an_endpoints_own_headers_schedule_and_signature_are_used() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number < 5 { 500 } else { 200 })).await;
    let endpoint = stage
        .endpoint(json!({
            "url": receiver.url(),
            "secret": "a secret of sixteen or more",
            "retry_schedule": ["10ms", "30ms"],
            "max_attempts": 5,
            "signature": {"scheme": "hmac-sha256-hex", "header_prefix": "X-Acme-", "signed": "body"},
            "headers": {"X-Team": "billing", "Authorization": "Bearer abc"},
        }))
        .await;
    let event = stage.event("invoice.paid", json!({"a": 1})).await;
    let delivery = stage.delivery_in(text(&event["deliveries"][0]["id"]), "delivered").await;
    assert_eq!(delivery["attempt_count"], 5, "the server's default is three");
    let numbers: Vec<_> = delivery["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["number"]).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
    for request in receiver.requests() {
        assert_eq!(request.header("x-team"), "billing");
        assert_eq!(request.header("authorization"), "Bearer abc");
        assert_eq!(request.header("x-acme-event-id"), text(&event["id"]));
        assert!(request.header("x-acme-signature").starts_with("sha256="));
        assert_eq!(request.header("webhook-signature"), "");
    }

    let change = json!({"headers": {"x-team": "support"}, "signature": null});
    stage.expect(200, "PATCH", &path(&endpoint), Some(change)).await;
    stage.event("invoice.paid", json!({"a": 2})).await;
    let request = &receiver.wait_for(6, PATIENCE).await[5];
    assert_eq!((request.header("x-team"), request.header("authorization")), ("support", ""));
    assert!(request.header("webhook-signature").starts_with("v1,"));
}

#[tokio::test]
async fn an_endpoints_own_limits_are_kept() {
    let stage = Stage::dispatching().await;
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    stage.endpoint(json!({"url": receiver.url(), "max_in_flight": 2})).await;
    for n in 0..6 {
        stage.event("invoice.paid", json!({"n": n})).await;
    }
    receiver.wait_until("two at a time", PATIENCE, |receiver| receiver.open_requests() == 2).await;
    gate.open();
    receiver.wait_for(6, PATIENCE).await;
    assert_eq!(receiver.most_open_requests(), 2);
}

#[tokio::test]
async fn an_endpoint_that_is_removed_in_the_middle_of_an_attempt_gets_nothing_more() {
    let stage = Stage::dispatching().await;
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(500).after(&held)).await;
    let endpoint = stage.endpoint(json!({"url": receiver.url(), "max_in_flight": 1})).await;
    let mut deliveries = Vec::new();
    for n in 0..3 {
        let event = stage.event("invoice.paid", json!({"n": n})).await;
        deliveries.push(text(&event["deliveries"][0]["id"]).to_owned());
    }
    receiver.wait_for(1, PATIENCE).await;
    assert_eq!(stage.ask("DELETE", &path(&endpoint), None).await.status, 204);
    gate.open();
    for delivery in &deliveries {
        eventually("it is over", PATIENCE, async || {
            let delivery = stage.expect(200, "GET", &format!("/v1/deliveries/{delivery}"), None).await;
            matches!(text(&delivery["status"]), "cancelled" | "dead").then_some(())
        })
        .await;
    }
    assert_eq!(receiver.request_count(), 1, "nothing is sent to an endpoint that was removed");
}

#[tokio::test]
async fn an_endpoints_own_timeout_ends_an_attempt() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::start(|_, _| Answer::never()).await;
    stage.endpoint(json!({"url": receiver.url(), "timeout": "100ms", "max_attempts": 1})).await;
    let event = stage.event("invoice.paid", json!({})).await;
    let delivery = stage.delivery_in(text(&event["deliveries"][0]["id"]), "dead").await;
    assert_eq!(delivery["attempts"][0]["outcome"], "timeout");
    let took = delivery["attempts"][0]["duration_ms"].as_u64().unwrap();
    assert!(took < u64::try_from(Duration::from_secs(15).as_millis()).unwrap(), "the server's default is 15 s");
}

#[tokio::test]
async fn what_becomes_of_attempts_is_counted_for_each_endpoint() {
    let stage = Stage::dispatching().await;
    let (good, bad) = (Receiver::answering(200).await, Receiver::answering(500).await);
    let good = stage.endpoint(json!({"url": good.url(), "event_types": ["good"]})).await;
    let bad = stage.endpoint(json!({"url": bad.url(), "event_types": ["bad"]})).await;
    stage.event("good", json!({})).await;
    stage.event("good", json!({})).await;
    let died = stage.event("bad", json!({})).await;
    stage.delivery_in(text(&died["deliveries"][0]["id"]), "dead").await;
    let line = |endpoint: &Value, result: &str, count: u32| {
        format!(
            "postrider_endpoint_attempts_total{{endpoint=\"{}\",result=\"{result}\"}} {count}",
            text(&endpoint["id"])
        )
    };
    let wanted = [
        line(&good, "delivered", 2),
        line(&good, "failed", 0),
        line(&good, "dead", 0),
        line(&bad, "delivered", 0),
        line(&bad, "failed", 2),
        line(&bad, "dead", 1),
    ];
    let figures = async |key: &str| stage.ask_with(key, "GET", "/metrics", None).await.text;
    let told = |figures: &str| wanted.iter().all(|line| figures.lines().any(|told| told == line));
    eventually("every attempt is counted once", PATIENCE, async || told(&figures(&stage.admin).await).then_some(()))
        .await;
    let own = stage.key(Some("default"), Scope::Read).await;
    assert!(told(&figures(&own).await), "and not again; whoever may look sees their own");
    let acme = stage.key(Some("acme"), Scope::Admin).await;
    for key in [acme.as_str(), "prk_nonsense", ""] {
        let figures = figures(key).await;
        assert!(figures.contains("postrider_store_up 1") && !figures.contains("ep_"), "{figures}");
    }
}
