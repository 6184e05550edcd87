//! UC-0268, line by line: the flows and the acceptance criteria, each under its name.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::fmt::Write as _;

use gateway::{RETRY_SCHEDULE_SECONDS, TopicEvent, WebhookDLQEvent, WebhookDeliveredEvent};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::{SignedDuration, Timestamp};
use postrider::{DeliveryStatus, PageRequest, Store as _};
use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::{PATIENCE, eventually};

use support::{Bench, Router, SECRET, heard, operator};

fn seconds(count: u64) -> SignedDuration {
    SignedDuration::from_secs(count.try_into().unwrap())
}

fn a_year_after(at: Timestamp) -> Timestamp {
    at + SignedDuration::from_hours(365 * 24)
}

#[tokio::test]
async fn doc_003_main_flow_1_rows_are_selected_when_they_are_due_and_not_before() {
    let mut bench = Bench::new().await;
    let failed = bench.failed(1).await;
    bench.answers(200);
    bench.travel_to(failed.next_retry_at.unwrap() - SignedDuration::from_millis(1));
    let pending = bench.change().await;
    bench.process(pending.id).await;
    assert_eq!(bench.row(pending.id).await.status, DeliveryStatus::Delivered, "pending and due");
    assert_eq!(bench.row(failed.id).await, failed, "failed, and due in a millisecond");
    bench.travel_to(failed.next_retry_at.unwrap());
    assert_eq!(bench.process(failed.id).await.status, DeliveryStatus::Delivered, "failed and due");
}

#[tokio::test]
async fn doc_003_main_flow_2_a_post_with_an_hmac_of_the_body_goes_to_the_target_url() {
    let mut bench = Bench::new().await;
    let row = bench.pending().await;
    assert_eq!(row.target_url, bench.receiver.url());
    bench.process(row.id).await;
    let request = &bench.receiver.requests()[0];
    assert_eq!(request.method, "POST");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(&request.body);
    let mut expected = "sha256=".to_owned();
    for byte in mac.finalize().into_bytes() {
        write!(expected, "{byte:02x}").unwrap();
    }
    assert_eq!(request.header("X-Observatory-Signature"), expected);
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(body["session_id"], row.session_id.unwrap().to_string());
    assert_eq!((&body["type"], &body["previous_status"]), (&"session.active".into(), &serde_json::Value::Null));
}

#[tokio::test]
async fn doc_003_main_flow_3_a_network_error_and_every_answer_but_2xx_are_failures() {
    let mut bench = Bench::new().await;
    let row = bench.pending().await;
    for status in [301, 404, 429, 500] {
        bench.answers(status);
        let row = bench.process(row.id).await;
        assert_eq!(row.status, DeliveryStatus::Failed);
        assert_eq!(row.error_detail.unwrap(), format!("HTTP {status}: said the receiver"));
    }

    let mut bench = Bench::new().await;
    let gone = Receiver::answering(200).await.url();
    bench.webhook_at(&gone).await;
    let row = bench.change().await;
    let row = bench.process(row.id).await;
    assert_eq!(row.status, DeliveryStatus::Failed);
    assert!(row.error_detail.unwrap().starts_with("connect: "));
}

#[tokio::test]
async fn doc_003_main_flow_4_to_7_a_failure_updates_the_row() {
    let mut bench = Bench::new().await;
    let row = bench.pending().await;
    assert_eq!((row.status, row.attempt_count, row.last_attempted_at), (DeliveryStatus::Pending, 0, None));
    bench.answers(502);
    let row = bench.process(row.id).await;
    assert_eq!((row.status, row.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(row.last_attempted_at, Some(bench.now()));
    assert_eq!(row.next_retry_at, Some(bench.now() + seconds(30)));
    assert_eq!(row.error_detail.as_deref(), Some("HTTP 502: said the receiver"));
}

#[tokio::test]
async fn doc_003_main_flow_8_a_failure_is_in_the_file_when_the_gateway_starts_again() {
    let mut bench = Bench::new().await;
    let failed = bench.failed(2).await;
    let mut bench = bench.restarted().await;
    assert_eq!(bench.row(failed.id).await, failed);
    bench.answers(200);
    let delivered = bench.process(failed.id).await;
    assert_eq!((delivered.status, delivered.attempt_count), (DeliveryStatus::Delivered, 3));
}

#[tokio::test]
async fn doc_003_main_flow_8_a_crash_in_the_middle_of_an_attempt_loses_nothing_and_counts_nothing() {
    let mut bench = Bench::new().await;
    let gate = Gate::new();
    let closed = gate.clone();
    let slow = Receiver::start(move |_, _| Answer::status(200).after(&closed)).await;
    bench.webhook_at(&slow.url()).await;
    let row = bench.change().await;
    let router = Router::start(&bench.gateway);
    slow.wait_for(1, PATIENCE).await;
    router.crash().await;
    bench = bench.restarted().await;
    let after = bench.row(row.id).await;
    assert_eq!((after.status, after.attempt_count), (DeliveryStatus::Pending, 0));
    gate.open();
    let delivered = bench.process(row.id).await;
    assert_eq!((delivered.status, delivered.attempt_count), (DeliveryStatus::Delivered, 1));
    let requests = slow.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].header("X-Observatory-Event-Id"), requests[1].header("X-Observatory-Event-Id"));
}

#[tokio::test]
async fn doc_003_main_flow_9_the_router_goes_on_after_a_failure() {
    let bench = Bench::new().await;
    let failing = bench.pending().await;
    bench.answers(500);
    let router = Router::start(&bench.gateway);
    eventually("the failure", PATIENCE, async || (bench.row(failing.id).await.attempt_count == 1).then_some(())).await;
    bench.answers(200);
    let next = bench.change().await;
    let delivered = async || (bench.row(next.id).await.status == DeliveryStatus::Delivered).then_some(());
    eventually("the next to be delivered", PATIENCE, delivered).await;
    router.stop().await;
}

#[tokio::test]
async fn doc_003_a1_a_success_is_marked_and_broadcast_and_not_repeated() {
    for status in [200, 201, 204] {
        let mut bench = Bench::new().await;
        let mut subscription = bench.gateway.subscribe();
        let row = bench.failed(1).await;
        bench.answers(status);
        let row = bench.process(row.id).await;
        assert_eq!((row.status, row.next_retry_at), (DeliveryStatus::Delivered, None));
        assert_eq!(row.last_attempted_at, Some(bench.now()));
        let expected = TopicEvent::Delivered(WebhookDeliveredEvent {
            webhook_delivery_id: row.id,
            webhook_id: row.webhook_id.unwrap(),
            session_id: row.session_id.unwrap(),
        });
        assert_eq!(heard(&mut subscription).await, expected, "and not the failure before");
        nothing_more_is_sent(&mut bench, &row).await;
    }
}

/// A year later another change is delivered to the same receiver, and nothing has happened to `row`.
async fn nothing_more_is_sent(bench: &mut Bench, row: &gateway::deliveries::WebhookDelivery) {
    bench.travel_to(a_year_after(bench.now()));
    let requests = bench.receiver.request_count();
    let next = bench.change().await;
    bench.process(next.id).await;
    assert_eq!(bench.receiver.request_count(), requests + 1);
    assert_eq!(bench.row(row.id).await, *row);
}

#[tokio::test]
async fn doc_003_f1_five_failures_wait_by_the_schedule_and_end_as_one_dead_letter() {
    let mut bench = Bench::new().await;
    let mut subscription = bench.gateway.subscribe();
    let mut row = bench.pending().await;
    bench.answers(500);
    for delay in &RETRY_SCHEDULE_SECONDS[..4] {
        row = bench.process(row.id).await;
        assert_eq!(row.status, DeliveryStatus::Failed);
        assert_eq!(row.next_retry_at, Some(bench.now() + seconds(*delay)));
    }
    row = bench.process(row.id).await;
    assert_eq!((row.status, row.attempt_count, row.next_retry_at), (DeliveryStatus::Dead, 5, None));
    let expected = WebhookDLQEvent {
        webhook_delivery_id: row.id,
        webhook_id: row.webhook_id.unwrap(),
        session_id: row.session_id.unwrap(),
    };
    assert_eq!(heard(&mut subscription).await, TopicEvent::DeadLetter(expected));
    bench.answers(200);
    nothing_more_is_sent(&mut bench, &row).await;
    assert!(matches!(heard(&mut subscription).await, TopicEvent::Delivered(_)), "the dead letter was broadcast once");
}

#[tokio::test]
async fn doc_003_f1_result_an_operators_reset_enables_another_five_attempts() {
    let mut bench = Bench::new().await;
    let dead = bench.failed(5).await;
    assert_eq!(dead.status, DeliveryStatus::Dead);
    let reset = bench.gateway.reset_delivery(dead.id, &operator()).await.unwrap();
    assert_eq!((reset.delivery.status, reset.delivery.attempt_count), (DeliveryStatus::Pending, 0));
    assert_eq!(reset.attempts.len(), 5, "the history stays");
    for attempt_count in 1..=4 {
        let row = bench.process(dead.id).await;
        assert_eq!((row.status, row.attempt_count), (DeliveryStatus::Failed, attempt_count));
    }
    assert_eq!(bench.process(dead.id).await.status, DeliveryStatus::Dead);
    let audit = bench.gateway.store().audit(None, &PageRequest::default()).await.unwrap().items;
    let entry = audit.iter().find(|entry| entry.action == "delivery.retry").unwrap();
    assert_eq!((entry.operator.as_str(), entry.subject.as_str()), ("ada", dead.id.to_string().as_str()));
}

#[tokio::test]
async fn doc_003_ac1_a_failure_with_attempt_count_0_sets_failed_1_and_30_seconds() {
    let mut bench = Bench::new().await;
    let row = bench.failed(1).await;
    assert_eq!((row.status, row.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(row.next_retry_at, Some(bench.now() + seconds(30)));
}

#[tokio::test]
async fn doc_003_ac2_a_failure_with_attempt_count_4_sets_dead_and_broadcasts() {
    let mut bench = Bench::new().await;
    let row = bench.failed(4).await;
    assert_eq!(row.attempt_count, 4);
    let mut subscription = bench.gateway.subscribe();
    assert_eq!(bench.process(row.id).await.status, DeliveryStatus::Dead);
    let TopicEvent::DeadLetter(dead) = heard(&mut subscription).await else { panic!("a dead letter is broadcast") };
    assert_eq!(dead.webhook_delivery_id, row.id);
}
