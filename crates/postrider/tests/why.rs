//! Why a delivery is in the state it is: a table of states, and what is said of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use std::num::NonZeroU32;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::{
    Attempt, Delivery, DeliveryDetail, DeliveryId, DeliveryStatus, Endpoint, EndpointId, EndpointSettings,
    EndpointStatus, EventId, OutcomeKind, RetryPolicy, Why, WhyInput, why,
};
use uuid::Uuid;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn endpoint_id() -> EndpointId {
    EndpointId::from_uuid(Uuid::from_u128(3))
}

fn delivery(status: DeliveryStatus) -> Delivery {
    Delivery {
        id: DeliveryId::from_uuid(Uuid::from_u128(1)),
        tenant: "default".to_owned(),
        event_id: EventId::from_uuid(Uuid::from_u128(2)),
        event_type: "invoice.paid".to_owned(),
        endpoint_id: None,
        destination_url: "https://hooks.example.com/billing".to_owned(),
        status,
        attempt_count: 0,
        earlier_attempts: 0,
        abandoned_count: 0,
        next_attempt_at: None,
        last_attempted_at: None,
        error_detail: None,
        lease_owner: None,
        lease_until: None,
        created_at: at(-3600),
    }
}

/// The attempts that a delivery has behind it: all failed, but for the last one of a delivered one.
fn with_attempts(delivery: Delivery) -> DeliveryDetail {
    let count = delivery.attempt_count + delivery.earlier_attempts;
    let attempt = |number| {
        let delivered = delivery.status == DeliveryStatus::Delivered && number == count;
        Attempt {
            number,
            started_at: at(-120),
            duration_ms: 40,
            outcome: OutcomeKind::Response,
            status_code: Some(if delivered { 204 } else { 503 }),
            response_excerpt: None,
            error_detail: (!delivered).then(|| "HTTP 503: out of order".to_owned()),
            worker_id: "host-1".to_owned(),
        }
    };
    let attempts = (1..=count).map(attempt).collect();
    DeliveryDetail { delivery, attempts }
}

fn endpoint(status: EndpointStatus, reason: Option<&str>) -> Endpoint {
    Endpoint {
        id: endpoint_id(),
        tenant: "default".to_owned(),
        url: "https://hooks.example.com/billing".to_owned(),
        event_types: vec!["*".parse().unwrap()],
        status,
        status_reason: reason.map(str::to_owned),
        settings: EndpointSettings::default(),
        trouble: None,
        revision: 1,
        failing_since: None,
        created_at: at(-7200),
    }
}

fn explain(delivery: Delivery, endpoint: Option<&Endpoint>) -> Why {
    let detail = with_attempts(delivery);
    let default_policy = RetryPolicy::default();
    why(&WhyInput { detail: &detail, endpoint, now: now(), default_policy: &default_policy })
}

fn bare(delivery: Delivery) -> String {
    explain(delivery, None).summary
}

fn of_endpoint(delivery: Delivery, endpoint: &Endpoint) -> String {
    explain(Delivery { endpoint_id: Some(endpoint.id), ..delivery }, Some(endpoint)).summary
}

fn failed(attempt_count: u32, due: i64) -> Delivery {
    Delivery {
        attempt_count,
        next_attempt_at: Some(at(due)),
        last_attempted_at: Some(at(-60)),
        error_detail: Some("HTTP 503: out of order.".to_owned()),
        ..delivery(DeliveryStatus::Failed)
    }
}

fn pending(due: i64) -> Delivery {
    Delivery { next_attempt_at: Some(at(due)), ..delivery(DeliveryStatus::Pending) }
}

#[test]
fn what_is_due_waits_for_a_dispatcher() {
    assert_eq!(
        bare(pending(-5)),
        "Its first attempt is due: it waits for a dispatcher to take it, which is a matter of seconds."
    );
    assert_eq!(
        bare(pending(-300)),
        "Its first attempt is due, and has been for 5m without a dispatcher taking it. Either no dispatcher is running, or \
         much else is waiting for the same destination."
    );
    assert_eq!(
        bare(failed(2, -5)),
        "2 of 5 attempts failed, the last one with \"HTTP 503: out of order\", and the next one is due: it waits for a \
         dispatcher to take it, which is a matter of seconds."
    );
    let mut limited = endpoint(EndpointStatus::Active, None);
    limited.settings.max_in_flight = NonZeroU32::new(1);
    assert!(
        of_endpoint(pending(-300), &limited)
            .ends_with("the same destination, or its endpoint's own limits let no more through.")
    );
    let retried = Delivery { earlier_attempts: 5, ..pending(0) };
    assert_eq!(
        bare(retried),
        "An operator has retried it, and the first attempt of the new round is due: it waits for a dispatcher to take it, \
         which is a matter of seconds."
    );
}

#[test]
fn what_is_for_later_says_when() {
    assert_eq!(bare(pending(5400)), "It was enqueued for later, and its first attempt is due in 1h30m.");
    assert_eq!(
        bare(failed(1, 24)),
        "1 of 5 attempts failed, the last one with \"HTTP 503: out of order\". The next one is due in 24s. If that fails, \
         attempt 3 of 5 follows 2m later."
    );
    assert_eq!(
        bare(failed(4, 3600)),
        "4 of 5 attempts failed, the last one with \"HTTP 503: out of order\". The next one is due in 1h. It is the last \
         one: if that fails, the delivery is dead."
    );
}

#[test]
fn an_endpoints_own_policy_is_the_one_that_counts() {
    let mut own = endpoint(EndpointStatus::Active, None);
    own.settings.retry_policy = Some(RetryPolicy::schedule([Duration::from_secs(7)], 3).unwrap());
    assert_eq!(
        of_endpoint(failed(1, 5), &own),
        "1 of 3 attempts failed, the last one with \"HTTP 503: out of order\". The next one is due in 5s. If that fails, \
         attempt 3 of 3 follows 7s later."
    );
}

#[test]
fn what_is_leased_says_by_whom_and_until_when() {
    let leased = |lease: i64| Delivery {
        lease_owner: Some("host-1".to_owned()),
        lease_until: Some(at(lease)),
        ..failed(1, -40)
    };
    assert_eq!(
        bare(leased(20)),
        "Attempt 2 is under way: host-1 holds it for at least another 20s, and renews that for as long as the receiver \
         takes. If that fails, attempt 3 of 5 follows 2m later."
    );
    assert_eq!(
        bare(leased(-90)),
        "host-1 had it for attempt 2, and its lease expired 1m30s ago: that dispatcher has crashed, is stuck, or cannot reach \
         the database. The next dispatcher that looks takes it over; if none does within seconds, none is running."
    );
    let paused = endpoint(EndpointStatus::Paused, None);
    assert!(
        of_endpoint(leased(20), &paused).starts_with("Attempt 2 is under way"),
        "a pause does not cut an attempt off"
    );
}

#[test]
fn what_is_held_back_says_by_what() {
    let paused = endpoint(EndpointStatus::Paused, Some("maintenance"));
    assert_eq!(
        of_endpoint(pending(-300), &paused),
        "It is due, but its endpoint is paused (maintenance). It waits, and goes out when the endpoint is resumed."
    );
    let disabled = endpoint(EndpointStatus::Disabled, Some("the receiver answered 410 Gone"));
    assert_eq!(
        of_endpoint(failed(1, 60), &disabled),
        "It would be due in 1m, but its endpoint is disabled (the receiver answered 410 Gone). It waits until an operator \
         resumes or removes the endpoint."
    );
    let silent = endpoint(EndpointStatus::Paused, None);
    assert!(of_endpoint(pending(-1), &silent).contains("its endpoint is paused. It waits"));
    let unreadable = Endpoint {
        trouble: Some("secret_key_unknown: it was encrypted with another key".to_owned()),
        ..endpoint(EndpointStatus::Active, None)
    };
    assert_eq!(
        of_endpoint(pending(-1), &unreadable),
        "It is due, but nothing can be sent, because the settings of its endpoint cannot be read: secret_key_unknown: it was \
         encrypted with another key. It waits until they are mended."
    );
    let orphan = Delivery { endpoint_id: Some(endpoint_id()), ..pending(-1) };
    let explained = explain(orphan, None);
    assert_eq!(explained.summary, "It is due, but its endpoint was removed: it will be cancelled shortly.");
    assert!(explained.facts.iter().any(|fact| fact.ends_with("which was removed.")), "{:?}", explained.facts);
}

#[test]
fn what_is_delivered_says_when_and_after_how_many_attempts() {
    let delivered = |attempt_count, earlier_attempts| Delivery {
        attempt_count,
        earlier_attempts,
        last_attempted_at: Some(at(-180)),
        ..delivery(DeliveryStatus::Delivered)
    };
    assert_eq!(
        bare(delivered(1, 0)),
        "It was delivered 3m ago: its receiver answered 204 after one attempt. Nothing more happens."
    );
    assert_eq!(
        bare(delivered(2, 5)),
        "It was delivered 3m ago: its receiver answered 204 after 7 attempts. Nothing more happens."
    );
}

#[test]
fn what_is_dead_says_of_what() {
    let dead = |attempt_count| Delivery {
        attempt_count,
        error_detail: Some("HTTP 503: out of order".to_owned()),
        ..delivery(DeliveryStatus::Dead)
    };
    let waits = "It stays a dead letter until an operator retries it, which begins a new round of attempts.";
    let said = |how: &str| format!("It is dead because {how}, the last one with \"HTTP 503: out of order\". {waits}");
    assert_eq!(bare(dead(5)), said("all 5 attempts failed"));
    assert_eq!(bare(dead(2)), said("2 of 5 attempts failed"));
    assert_eq!(bare(dead(7)), said("7 attempts failed"), "the policy was longer then");
    let abandoned = Delivery { abandoned_count: 10, error_detail: None, ..dead(0) };
    assert_eq!(
        bare(abandoned),
        format!(
            "It is dead because 10 claims of it in a row ended without a result: each time the dispatcher that had it crashed \
             or lost the database, and it may be this very delivery that makes them crash. {waits}"
        )
    );
}

#[test]
fn what_is_cancelled_says_why() {
    let cancelled = |reason: Option<&str>| Delivery {
        error_detail: reason.map(str::to_owned),
        ..delivery(DeliveryStatus::Cancelled)
    };
    assert_eq!(
        bare(cancelled(Some("sent by mistake."))),
        "It was cancelled before any attempt: sent by mistake. Nothing more is sent unless an operator retries it."
    );
    assert!(bare(cancelled(None)).contains("no reason was given"));
    let orphan = Delivery { endpoint_id: Some(endpoint_id()), ..cancelled(Some("the endpoint was removed")) };
    assert_eq!(
        bare(Delivery { attempt_count: 1, ..orphan }),
        "It was cancelled after one attempt: the endpoint was removed. Its endpoint is removed, so nothing more can be sent."
    );
}

#[test]
fn the_facts_are_what_it_follows_from() {
    let mut failing = endpoint(EndpointStatus::Paused, Some("maintenance"));
    failing.failing_since = Some(at(-600));
    let delivery = Delivery {
        endpoint_id: Some(endpoint_id()),
        earlier_attempts: 5,
        abandoned_count: 2,
        lease_owner: Some("host-2".to_owned()),
        lease_until: Some(at(20)),
        ..failed(1, 30)
    };
    let facts = explain(delivery, Some(&failing)).facts;
    let id = endpoint_id();
    assert_eq!(
        facts,
        [
            format!(
                "The event {} of type invoice.paid was enqueued at {}.",
                EventId::from_uuid(Uuid::from_u128(2)),
                at(-3600)
            ),
            format!("It goes to https://hooks.example.com/billing, for the endpoint {id}."),
            format!("The endpoint is paused (maintenance), and has been failing since {}.", at(-600)),
            "One attempt has been made in this round, of 5 that are allowed.".to_owned(),
            "5 attempts have been made in earlier rounds, before an operator retried it.".to_owned(),
            format!(
                "Attempt 6 began at {}, took 40 ms, was made by host-1 and ended with: HTTP 503: out of order.",
                at(-120)
            ),
            "2 claims in a row ended without a result: whoever held it crashed or lost the database.".to_owned(),
            format!("host-2 holds its lease until {}.", at(20)),
            format!("The next attempt is due at {}.", at(30)),
        ]
    );
    let facts = bare_facts();
    assert_eq!(facts.len(), 4, "{facts:?}");
    assert!(facts[1].ends_with("which was given with the event."));
}

fn bare_facts() -> Vec<String> {
    explain(pending(-1), None).facts
}

#[test]
fn it_is_written_as_json() {
    let json = serde_json::to_value(explain(pending(-1), None)).unwrap();
    assert!(json["summary"].is_string() && json["facts"].is_array());
}
