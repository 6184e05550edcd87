//! What receivers get, and what becomes of their answers.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::signature::Signed;
use postrider::{
    DeliveryStatus, DestinationPolicy, EndpointSettings, EndpointStatus, Fact, NewEvent, OutcomeKind, RetryPolicy,
    Secret, SignatureScheme,
};

use super::{Running, SECRET, all_become, becomes, dispatcher, endpoint_at, enqueue_for, event_for, loopback};
use crate::receiver::{Answer, Received, Receiver};
use crate::trial::{Trial, operator};
use crate::wait::{PATIENCE, eventually};

/// Verifies with the reference library, which is not ours.
fn verified_by_others(secret: &str, request: &Received) -> bool {
    let webhook = standardwebhooks::Webhook::new(secret).unwrap();
    webhook.verify(&request.body, &request.headers).is_ok()
}

pub async fn an_attempt_carries_the_documented_headers_and_a_signature_that_others_verify(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let enqueued = t.enqueue(event_for(&receiver)).await;
    let delivery = enqueued.deliveries()[0].id;
    let running = Running::start(dispatcher(&t.store, "w1"));
    becomes(t, delivery, DeliveryStatus::Delivered).await;

    let requests = receiver.requests();
    assert_eq!(requests.len(), 1);
    let request = &requests[0];
    assert_eq!(request.method, "POST");
    assert_eq!(request.header("content-type"), "application/json");
    assert_eq!(request.header("user-agent"), format!("Postrider/{}", env!("CARGO_PKG_VERSION")));
    assert_eq!(request.header("webhook-id"), enqueued.event_id().unwrap().to_string());
    assert_eq!(request.header("postrider-event-type"), "invoice.paid");
    assert_eq!(request.header("postrider-delivery-id"), delivery.to_string());
    assert_eq!(request.header("postrider-attempt"), "1");
    assert!(verified_by_others(SECRET, request));
    assert!(!verified_by_others("whsec_c29tZWJvZHkgZWxzZSdzIHNlY3JldA==", request));

    let attempt = &t.attempts(delivery).await[0];
    assert_eq!((attempt.number, attempt.outcome, attempt.status_code), (1, OutcomeKind::Response, Some(200)));
    assert_eq!(attempt.worker_id, "w1");
    let totals = running.stop().await;
    assert_eq!((totals.claimed, totals.delivered, totals.responses_2xx), (1, 1, 1));
}

pub async fn the_id_and_the_attempt_are_said_in_headers_of_ones_own_too_and_these_replace_none_of_ours(t: &Trial) {
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 500 } else { 200 })).await;
    let enqueued = t.enqueue(event_for(&receiver)).await;
    let retry = RetryPolicy::schedule([Duration::from_millis(1)], 2).unwrap();
    let builder = dispatcher(&t.store, "w1")
        .retry_policy(retry)
        .event_id_header(http::HeaderName::from_static("idempotency-key"))
        .attempt_header(http::HeaderName::from_static("content-type"));
    let running = Running::start(builder);
    becomes(t, enqueued.deliveries()[0].id, DeliveryStatus::Delivered).await;
    running.stop().await;
    for request in receiver.requests() {
        assert_eq!(request.header("idempotency-key"), enqueued.event_id().unwrap().to_string());
        assert_eq!(request.header("content-type"), "application/json");
    }
}

pub async fn p18_the_receiver_gets_exactly_the_bytes_that_were_accepted(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let odd = [
        r#"{"b":1,"a":2,"b":3}"#,
        "  [1e400, 1.0, -0, 0.10, 12345678901234567890123]\n",
        r#"{"\u0061":"\u00e9\/\ud83d\ude00","é":"😀"}"#,
        "\"just a text\"",
        "null",
    ];
    for payload in odd {
        t.enqueue(NewEvent::new("odd.json", payload).to(receiver.url())).await;
    }
    let running = Running::start(dispatcher(&t.store, "w1"));
    let requests = receiver.wait_for(odd.len(), PATIENCE).await;
    let mut sent: Vec<_> = odd.iter().map(|payload| payload.as_bytes().to_vec()).collect();
    let mut got: Vec<_> = requests.iter().map(|request| request.body.to_vec()).collect();
    sent.sort();
    got.sort();
    assert_eq!(got, sent);
    assert!(requests.iter().all(|request| verified_by_others(SECRET, request)));
    running.stop().await;
}

pub async fn p19_the_id_stays_the_same_while_timestamp_and_signature_are_fresh(t: &Trial) {
    t.freeze();
    let receiver = Receiver::start(|_, number| Answer::status(if number < 3 { 500 } else { 204 })).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1"));
    for (number, delay) in [(1, 30), (2, 120)] {
        eventually("the next failure", PATIENCE, || async {
            (t.delivery(id).await.attempt_count == number).then_some(())
        })
        .await;
        t.advance_secs(delay);
    }
    becomes(t, id, DeliveryStatus::Delivered).await;
    running.stop().await;

    let requests = receiver.requests();
    let values = |name: &str| requests.iter().map(|request| request.header(name).to_owned()).collect::<Vec<_>>();
    assert_eq!(values("postrider-attempt"), ["1", "2", "3"]);
    for name in ["webhook-id", "postrider-delivery-id"] {
        let ids = values(name);
        assert!(!ids[0].is_empty() && ids.iter().all(|id| *id == ids[0]), "{name}: {ids:?}");
    }
    for name in ["webhook-timestamp", "webhook-signature"] {
        let mut fresh = values(name);
        fresh.sort();
        fresh.dedup();
        assert_eq!(fresh.len(), 3, "{name} differs each time");
    }
}

pub async fn p24_the_signed_timestamp_is_the_databases_whatever_the_worker_thinks(t: &Trial) {
    let now = t.freeze();
    let skew = Timestamp::now().duration_since(now).abs();
    assert!(skew > SignedDuration::from_hours(1), "this machine's clock must be far off for the case to mean anything");
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1"));
    becomes(t, id, DeliveryStatus::Delivered).await;
    running.stop().await;
    let signed: i64 = receiver.requests()[0].header("webhook-timestamp").parse().unwrap();
    assert!((signed - now.as_second()).abs() <= 60, "signed at {signed}, the database says {}", now.as_second());
}

pub async fn every_endpoint_gets_its_own_secret_headers_scheme_and_policy(t: &Trial) {
    let now = t.freeze();
    let standard = Receiver::answering(200).await;
    let plain = Receiver::answering(500).await;
    let (newest, older) = (Secret::generate(), Secret::generate());
    let settings = EndpointSettings {
        secrets: vec![newest.clone(), older.clone()],
        headers: vec![("x-team".to_owned(), "billing".to_owned())],
        ..EndpointSettings::default()
    };
    endpoint_at(t, &standard, settings).await;
    let scheme = SignatureScheme::hmac_sha256_hex("X-Acme-", Signed::TimestampBody).unwrap();
    let settings = EndpointSettings {
        secrets: vec![Secret::parse("a plain shared secret").unwrap()],
        signature: Some(scheme.clone()),
        retry_policy: Some(RetryPolicy::schedule([Duration::from_secs(7)], 2).unwrap()),
        ..EndpointSettings::default()
    };
    let plain_endpoint = endpoint_at(t, &plain, settings).await;
    let enqueued = t.enqueue(NewEvent::new("invoice.paid", "{}")).await;
    let running = Running::start(dispatcher(&t.store, "w1"));

    let request = standard.wait_for(1, PATIENCE).await.remove(0);
    assert_eq!(request.header("x-team"), "billing");
    assert_eq!(request.header("webhook-signature").split(' ').count(), 2, "one signature per secret while rotating");
    let signed_with = |scheme: &SignatureScheme, secret: &Secret, request: &Received| {
        let (secrets, patience) = (std::slice::from_ref(secret), Duration::from_secs(60));
        scheme.verify_headers(secrets, &request.headers, &request.body, now.as_second(), patience).is_ok()
    };
    assert!(signed_with(&SignatureScheme::Standard, &newest, &request));
    assert!(signed_with(&SignatureScheme::Standard, &older, &request));
    let own = Secret::parse(SECRET).unwrap();
    assert!(!signed_with(&SignatureScheme::Standard, &own, &request), "that one is for bare destinations");

    let request = plain.wait_for(1, PATIENCE).await.remove(0);
    assert_eq!(request.header("x-acme-event-id"), enqueued.event_id().unwrap().to_string());
    assert_eq!(request.header("x-acme-event-type"), "invoice.paid");
    assert!(request.header("x-acme-signature").starts_with("sha256="));
    assert!(signed_with(&scheme, &Secret::parse("a plain shared secret").unwrap(), &request));
    assert_eq!(request.header("webhook-signature"), "");
    let delivery = enqueued.deliveries().iter().find(|line| line.endpoint_id == Some(plain_endpoint.id)).unwrap().id;
    becomes(t, delivery, DeliveryStatus::Failed).await;
    let failed = t.delivery(delivery).await;
    let wait = failed.next_attempt_at.unwrap().duration_since(failed.last_attempted_at.unwrap());
    assert_eq!(wait, SignedDuration::from_secs(7), "the endpoint's own schedule");
    t.advance_secs(7);
    becomes(t, delivery, DeliveryStatus::Dead).await;
    running.stop().await;
}

pub async fn no_header_of_an_endpoint_replaces_one_of_ours(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let names = ["content-type", "user-agent", "webhook-id", "webhook-signature", "postrider-attempt"];
    let settings = EndpointSettings {
        secrets: vec![Secret::parse(SECRET).unwrap()],
        headers: names.map(|name| (name.to_owned(), "forged".to_owned())).to_vec(),
        ..EndpointSettings::default()
    };
    endpoint_at(t, &receiver, settings).await;
    t.enqueue(NewEvent::new("invoice.paid", "{}")).await;
    let running = Running::start(dispatcher(&t.store, "w1"));
    let request = receiver.wait_for(1, PATIENCE).await.remove(0);
    for name in names {
        assert_ne!(request.header(name), "forged", "{name}");
    }
    assert!(verified_by_others(SECRET, &request));
    running.stop().await;
}

pub async fn every_2xx_is_a_success_and_a_redirect_is_a_failure(t: &Trial) {
    t.freeze();
    let elsewhere = Receiver::answering(200).await;
    let target = elsewhere.url();
    let running = Running::start(dispatcher(&t.store, "w1"));
    for (status, expected) in [
        (200, DeliveryStatus::Delivered),
        (201, DeliveryStatus::Delivered),
        (204, DeliveryStatus::Delivered),
        (299, DeliveryStatus::Delivered),
        (302, DeliveryStatus::Failed),
        (307, DeliveryStatus::Failed),
        (400, DeliveryStatus::Failed),
        (404, DeliveryStatus::Failed),
        (500, DeliveryStatus::Failed),
        (503, DeliveryStatus::Failed),
    ] {
        let target = target.clone();
        let receiver = Receiver::start(move |_, _| Answer::status(status).header("location", &target)).await;
        let id = enqueue_for(t, &receiver, 1).await[0];
        becomes(t, id, expected).await;
        let attempt = &t.attempts(id).await[0];
        assert_eq!((attempt.outcome, attempt.status_code), (OutcomeKind::Response, Some(status)));
    }
    assert_eq!(elsewhere.request_count(), 0, "redirects are not followed");
    running.stop().await;
}

pub async fn retry_after_lengthens_the_scheduled_delay(t: &Trial) {
    t.freeze();
    let running = Running::start(dispatcher(&t.store, "w1"));
    for (status, asked, expected) in
        [(429, "90", 90), (503, "45", 45), (429, "5", 30), (500, "90", 30), (503, "9999999", 86_400)]
    {
        let receiver = Receiver::start(move |_, _| Answer::status(status).header("retry-after", asked)).await;
        let id = enqueue_for(t, &receiver, 1).await[0];
        becomes(t, id, DeliveryStatus::Failed).await;
        let delivery = t.delivery(id).await;
        let wait = delivery.next_attempt_at.unwrap().duration_since(delivery.last_attempted_at.unwrap());
        assert_eq!(wait, SignedDuration::from_secs(expected), "{status} with Retry-After: {asked}");
    }
    running.stop().await;
}

pub async fn a_receiver_that_is_gone_disables_its_endpoint(t: &Trial) {
    t.freeze();
    let gone = Receiver::answering(410).await;
    let secrets = vec![Secret::generate()];
    let endpoint = endpoint_at(t, &gone, EndpointSettings { secrets, ..EndpointSettings::default() }).await;
    let first = t.enqueue(NewEvent::new("invoice.paid", "{}")).await.deliveries()[0].id;
    let running = Running::start(dispatcher(&t.store, "w1"));
    becomes(t, first, DeliveryStatus::Failed).await;
    let endpoint = t.store.endpoint(endpoint.id).await.unwrap().unwrap();
    assert_eq!(endpoint.status, EndpointStatus::Disabled);
    assert!(endpoint.status_reason.unwrap().contains("410"));
    assert_eq!(t.times_announced(Fact::EndpointDisabled, first).await, 1);
    assert_eq!(t.enqueue(NewEvent::new("invoice.paid", "{}")).await.deliveries(), [], "new events pass it by");

    // Its retry has become due, and waits: another receiver is served meanwhile, and it is not.
    t.advance_secs(30);
    let healthy = Receiver::answering(200).await;
    let other = enqueue_for(t, &healthy, 1).await;
    all_become(t, &other, DeliveryStatus::Delivered).await;
    assert_eq!(gone.request_count(), 1);
    t.set_endpoint(endpoint.id, EndpointStatus::Active).await;
    gone.wait_for(2, PATIENCE).await;
    running.stop().await;
}

pub async fn nothing_goes_out_unsigned(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1").signing_secrets(vec![]));
    becomes(t, id, DeliveryStatus::Failed).await;
    let attempt = &t.attempts(id).await[0];
    assert_eq!(attempt.outcome, OutcomeKind::Blocked);
    let detail = attempt.error_detail.clone().unwrap();
    assert!(detail.contains("secret"), "{detail}");
    assert_eq!(receiver.request_count(), 0);
    running.stop().await;
}

pub async fn a_destination_that_is_no_longer_allowed_is_blocked_at_dial(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1").destinations(DestinationPolicy::default()));
    becomes(t, id, DeliveryStatus::Failed).await;
    let attempt = &t.attempts(id).await[0];
    assert_eq!(attempt.outcome, OutcomeKind::Blocked);
    let refusal = DestinationPolicy::default().check_url(&receiver.url()).unwrap_err();
    let detail = attempt.error_detail.clone().unwrap();
    assert!(detail.contains(refusal.code), "{detail}");
    assert_eq!(receiver.connections(), 0, "it was not even dialled");
    loopback().check_url(&receiver.url()).unwrap();
    running.stop().await;
}

pub async fn a_retry_goes_out_when_its_time_has_come(t: &Trial) {
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 500 } else { 200 })).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let delay = Duration::from_millis(400);
    // With so long a poll, only the promise of the retry itself can bring it out in time.
    let builder = dispatcher(&t.store, "w1").poll_interval(PATIENCE * 2);
    let running = Running::start(builder.retry_policy(RetryPolicy::schedule([delay], 2).unwrap()));
    becomes(t, id, DeliveryStatus::Delivered).await;
    let requests = receiver.requests();
    assert!(requests[1].arrived - requests[0].arrived >= delay, "not before its time");
    running.stop().await;
}

pub async fn an_operators_retry_is_another_attempt_of_the_same_event(t: &Trial) {
    let receiver = Receiver::start(|_, number| Answer::status(if number == 1 { 500 } else { 200 })).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let policy = RetryPolicy::schedule([Duration::from_secs(1)], 1).unwrap();
    let running = Running::start(dispatcher(&t.store, "w1").retry_policy(policy));
    becomes(t, id, DeliveryStatus::Dead).await;
    t.store.retry(id, &operator()).await.unwrap();
    becomes(t, id, DeliveryStatus::Delivered).await;
    running.stop().await;
    let requests = receiver.requests();
    assert_eq!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
    assert_eq!(requests[1].header("postrider-attempt"), "2");
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.attempt_count, delivery.earlier_attempts), (1, 1));
}

pub async fn a_delivery_for_later_waits_until_then(t: &Trial) {
    let now = t.freeze();
    let receiver = Receiver::answering(200).await;
    let later = event_for(&receiver).deliver_at(now + SignedDuration::from_mins(10));
    let later = t.enqueue(later).await.deliveries()[0].id;
    let running = Running::start(dispatcher(&t.store, "w1"));
    let first = enqueue_for(t, &receiver, 1).await[0];
    becomes(t, first, DeliveryStatus::Delivered).await;
    t.advance_secs(599);
    let second = enqueue_for(t, &receiver, 1).await[0];
    becomes(t, second, DeliveryStatus::Delivered).await;
    assert_eq!(t.delivery(later).await.status, DeliveryStatus::Pending);
    t.advance_secs(1);
    becomes(t, later, DeliveryStatus::Delivered).await;
    running.stop().await;
}
