//! Document 002, flow 3: what is in the outbox goes out, signed, until it arrives or is given up.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use postrider_conformance::receiver::{Answer, Received, Receiver};
use sha2::Sha256;

use crate::support::{AMOUNT, Anvil, PATIENCE, Process, SECRET, World, bodies};

/// A transition that is told to a receiver, by a reconciler that ends again.
async fn told(world: &World, receiver_url: &str) -> uuid::Uuid {
    let anvil = Anvil::start().await;
    let request = world.request(Some(receiver_url)).await;
    anvil.pay(&request.address, AMOUNT).await;
    anvil.mine(5).await;
    let mut reconciler = world.reconciler(&anvil, &[]);
    world.becomes(request.id, "confirmed").await;
    assert!(reconciler.stop().await.success());
    request.id
}

fn dispatcher(world: &World) -> Process {
    world.start("webhook-dispatcher", &[])
}

/// Computed here, independently of the engine.
fn expected_signature(request: &Received) -> String {
    let mut code = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    code.update(request.header("x-chaintx-timestamp").as_bytes());
    code.update(b".");
    code.update(&request.body);
    let mut signature = "sha256=".to_owned();
    for byte in code.finalize().into_bytes() {
        write!(signature, "{byte:02x}").unwrap();
    }
    signature
}

#[tokio::test]
async fn doc_002_flow_3_a_signed_post_goes_to_the_destination_and_is_marked_delivered() {
    let world = World::new().await;
    let receiver = Receiver::answering(204).await;
    let id = told(&world, &format!("{}hooks?of=merchant", receiver.url())).await;
    let _dispatcher = dispatcher(&world);
    let requests = receiver.wait_for(1, PATIENCE).await;
    world.eventually_counts("postrider.deliveries where status = 'delivered'", 1).await;
    let request = &requests[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/hooks?of=merchant"));
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(bodies(&receiver)[0]["payment_request_id"], id.to_string());
}

#[tokio::test]
async fn doc_002_api_the_outbound_headers_are_the_four_of_the_contract() {
    let world = World::new().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 503 } else { 200 })).await;
    told(&world, &receiver.url()).await;
    let _dispatcher = dispatcher(&world);
    let requests = receiver.wait_for(2, PATIENCE).await;
    for request in &requests {
        assert_eq!(request.header("x-chaintx-event-type"), "payment_request.status_changed");
        assert_eq!(request.header("x-chaintx-signature"), expected_signature(request));
        let now = jiff::Timestamp::now().as_second();
        let timestamp: i64 = request.header("x-chaintx-timestamp").parse().unwrap();
        assert!((now - timestamp).abs() < 300, "{timestamp}");
    }
    let id = requests[0].header("x-chaintx-event-id");
    assert!(id.starts_with("evt_"), "{id}");
    assert_eq!(requests[1].header("x-chaintx-event-id"), id, "the same in every attempt");
    assert_eq!(requests[0].body, requests[1].body, "and so is the body");
    let body: serde_json::Value = serde_json::from_slice(&requests[0].body).unwrap();
    assert_eq!(body["event_id"], id, "the body and the header name the same event");
}

#[tokio::test]
async fn doc_002_api_later_headers_are_the_idempotency_key_and_the_number_of_the_attempt() {
    let world = World::new().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number < 3 { 500 } else { 200 })).await;
    told(&world, &receiver.url()).await;
    let _dispatcher = dispatcher(&world);
    let requests = receiver.wait_for(3, PATIENCE).await;
    for (request, attempt) in requests.iter().zip(["1", "2", "3"]) {
        assert_eq!(request.header("x-chaintx-delivery-attempt"), attempt);
        assert_eq!(request.header("idempotency-key"), requests[0].header("x-chaintx-event-id"));
    }
}

#[tokio::test]
async fn doc_002_retries_a_failure_is_retried_until_it_succeeds() {
    let world = World::new().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number < 3 { 302 } else { 200 })).await;
    told(&world, &receiver.url()).await;
    let _dispatcher = dispatcher(&world);
    world.eventually_counts("postrider.deliveries where status = 'delivered' and attempt_count = 3", 1).await;
    assert_eq!(receiver.request_count(), 3);
}

#[tokio::test]
async fn doc_002_retries_the_last_failure_is_terminal_and_stays_queryable() {
    let world = World::new().await;
    let receiver = Receiver::start(|_, _| Answer::status(500).body("out of order")).await;
    let id = told(&world, &receiver.url()).await;
    let mut dispatcher = dispatcher(&world);
    world.eventually_counts("postrider.deliveries where status = 'dead' and attempt_count = 3", 1).await;
    world.eventually_counts("postrider.dead_letters where reason = 'exhausted'", 1).await;
    assert_eq!(receiver.request_count(), 3, "as many as PAYMENTS_WEBHOOK_MAX_ATTEMPTS says");
    assert_eq!(world.told(id).await.len(), 1, "the event is still there");
    assert!(dispatcher.stop().await.success());
    let excerpt: String = sqlx::query_scalar("select response_excerpt from postrider.attempts limit 1")
        .fetch_one(&world.pool())
        .await
        .unwrap();
    assert_eq!(excerpt, "out of order");
}

#[tokio::test]
async fn doc_002_retries_the_http_timeout_is_configurable_and_counts_as_a_failure() {
    let world = World::new().await;
    let receiver = Receiver::start(|_, number| if number == 1 { Answer::never() } else { Answer::status(200) }).await;
    told(&world, &receiver.url()).await;
    let _dispatcher = world.start("webhook-dispatcher", &[("PAYMENTS_WEBHOOK_TIMEOUT", "200ms")]);
    world.eventually_counts("postrider.deliveries where status = 'delivered' and attempt_count = 2", 1).await;
    assert_eq!(world.count("postrider.attempts where outcome = 'timeout'").await, 1);
}

#[tokio::test]
async fn doc_002_the_destination_is_the_requests_own() {
    let world = World::new().await;
    let (one, other) = (Receiver::answering(200).await, Receiver::answering(200).await);
    let (first, second) = (told(&world, &one.url()).await, told(&world, &other.url()).await);
    let _dispatcher = dispatcher(&world);
    one.wait_for(1, PATIENCE).await;
    other.wait_for(1, PATIENCE).await;
    world.eventually_counts("postrider.deliveries where status = 'delivered'", 2).await;
    assert_eq!(bodies(&one)[0]["payment_request_id"], first.to_string());
    assert_eq!(bodies(&other)[0]["payment_request_id"], second.to_string());
    assert_eq!((one.request_count(), other.request_count()), (1, 1));
}

#[tokio::test]
async fn doc_002_observability_the_dispatcher_tells_what_it_did() {
    let world = World::new().await;
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 500 } else { 200 })).await;
    told(&world, &receiver.url()).await;
    let mut dispatcher = dispatcher(&world);
    world.eventually_counts("postrider.deliveries where status = 'delivered'", 1).await;
    assert!(dispatcher.stop().await.success());
    let summary = dispatcher.says(&["dispatcher stopped", "delivered=1", "retried=1", "dead=0", "errors=0"]).await;
    assert!(summary.contains("claimed=2") && summary.contains("latency_mean_ms="), "{summary}");
}

#[tokio::test]
async fn doc_002_security_the_secret_and_the_body_are_never_logged() {
    let world = World::new().await;
    let receiver = Receiver::answering(500).await;
    let id = told(&world, &receiver.url()).await;
    let mut dispatcher = world.start("webhook-dispatcher", &[("PAYMENTS_LOG", "trace")]);
    world.eventually_counts("postrider.deliveries where status = 'dead'", 1).await;
    assert!(dispatcher.stop().await.success());
    let log = dispatcher.log();
    let event_id = world.events(id).await[0]["event_id"].as_str().unwrap().to_owned();
    assert!(log.contains("dispatching"));
    assert!(!log.contains(SECRET) && !log.contains(&event_id) && !log.contains("previous_status"), "{log}");
}
