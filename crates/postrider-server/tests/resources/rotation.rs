//! A secret is replaced in the middle of traffic, and no receiver notices who does not want to.

use jiff::Timestamp;
use postrider_conformance::receiver::{Received, Receiver};
use postrider_conformance::wait::PATIENCE;
use serde_json::{Value, json};

use crate::stage::{Stage, text, verified};

fn number(request: &Received) -> usize {
    let payload: Value = serde_json::from_slice(&request.body).unwrap();
    usize::try_from(payload["n"].as_u64().unwrap()).unwrap()
}

#[tokio::test]
async fn at_every_moment_a_receiver_can_verify_with_the_old_secret_or_the_new() {
    const EACH: usize = 20;
    let stage = Stage::dispatching().await;
    let receiver = Receiver::answering(200).await;
    let created = stage.endpoint(json!({"url": receiver.url()})).await;
    let rotate = format!("/v1/endpoints/{}/rotate-secret", text(&created["id"]));
    let mut secrets = vec![created["secret"].clone()];
    for round in 0..3 {
        for n in 0..EACH {
            stage.event("invoice.paid", json!({"n": round * EACH + n})).await;
        }
        // Without waiting for anything: what was enqueued before is signed before or after.
        if round < 2 {
            let rotated = stage.expect(200, "POST", &rotate, None).await;
            let until: Timestamp = text(&rotated["secrets_retiring_until"]).parse().unwrap();
            assert!(until > Timestamp::now() + jiff::SignedDuration::from_hours(23), "a day is the default");
            secrets.push(rotated["secret"].clone());
        }
    }
    let arrived = receiver.wait_for(3 * EACH, PATIENCE).await;
    for request in &arrived {
        assert!(verified(&secrets[0], request), "whoever has not changed over goes on");
        let round = number(request) / EACH;
        assert!(verified(&secrets[round], request), "whoever has changed over can go on at once");
    }
    assert!(arrived.iter().any(|request| !verified(&secrets[2], request)), "some were signed before");
}

#[tokio::test]
async fn without_an_overlap_the_old_secret_is_gone_at_once() {
    let stage = Stage::dispatching().await;
    let receiver = Receiver::answering(200).await;
    let created = stage.endpoint(json!({"url": receiver.url()})).await;
    let rotate = format!("/v1/endpoints/{}/rotate-secret", text(&created["id"]));
    let given = json!({"secret": "a secret that was agreed upon", "overlap": "0s"});
    let rotated = stage.expect(200, "POST", &rotate, Some(given)).await;
    assert_eq!(rotated["secrets_retiring_until"], Value::Null);
    assert_eq!(rotated["secret"], postrider::Secret::parse("a secret that was agreed upon").unwrap().reveal());
    stage.event("invoice.paid", json!({"n": 0})).await;
    let request = &receiver.wait_for(1, PATIENCE).await[0];
    assert!(verified(&rotated["secret"], request));
    assert!(!verified(&created["secret"], request));

    let audit = stage.ask("GET", "/v1/audit", None).await;
    assert_eq!(audit.body["data"][0]["action"], "endpoint.rotate_secret", "{}", audit.text);
    for (body, code) in [
        (json!({"overlap": "tomorrow"}), "overlap_invalid"),
        (json!({"overlap": "31d"}), "overlap_invalid"),
        (json!({"secret": "short"}), "secret_invalid"),
        (json!({"overlap": "1h", "why": "x"}), "field_unknown"),
    ] {
        let answer = stage.ask("POST", &rotate, Some(body)).await;
        assert_eq!(answer.problem(), (422, code), "{}", answer.text);
    }
    stage.event("invoice.paid", json!({"n": 1})).await;
    let request = &receiver.wait_for(2, PATIENCE).await[1];
    assert!(verified(&rotated["secret"], request), "what was refused has changed nothing");
}
