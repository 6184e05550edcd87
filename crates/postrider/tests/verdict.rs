//! What follows from an outcome: delivered, another attempt, or dead.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use std::time::Duration;

use postrider::outcome::MAX_RETRY_AFTER;
use postrider::{DeliveryId, Outcome, Phase, Refusal, Response, RetryPolicy, Verdict, verdict};
use proptest::prelude::*;
use uuid::Uuid;

const DELIVERY: DeliveryId = DeliveryId::from_uuid(Uuid::from_u128(7));

fn answered(status: u16, retry_after: Option<Duration>) -> Outcome {
    Outcome::Response(Response { status, retry_after, excerpt: String::new() })
}

fn status(status: u16) -> Outcome {
    answered(status, None)
}

fn judge(outcome: &Outcome, attempt: u32) -> Verdict {
    verdict(outcome, attempt, &RetryPolicy::default(), DELIVERY)
}

fn retry(seconds: u64) -> Verdict {
    Verdict::Retry { after: Duration::from_secs(seconds) }
}

fn failures() -> Vec<Outcome> {
    let detail = || "why".to_owned();
    vec![
        status(500),
        Outcome::Timeout { during: Phase::Waiting },
        Outcome::Connect { detail: detail() },
        Outcome::Tls { detail: detail() },
        Outcome::Dns { detail: detail() },
        Outcome::Protocol { detail: detail() },
        Outcome::Blocked(Refusal::new("destination_private_address", "destination_url", "10.0.0.1 is private")),
    ]
}

#[test]
fn every_2xx_is_delivered_in_whichever_attempt() {
    for code in 200..300 {
        for attempt in [1, 4, 5, 6, 1_000] {
            assert_eq!(judge(&status(code), attempt), Verdict::Delivered, "{code}");
        }
    }
}

#[test]
fn every_other_status_is_a_failure_redirects_included() {
    for code in (100..200).chain(300..600).chain([0, 999]) {
        assert_eq!(judge(&status(code), 1), retry(30), "{code}");
        assert_eq!(judge(&status(code), 5), Verdict::Dead, "{code}");
    }
}

#[test]
fn every_failure_follows_the_schedule_and_the_last_is_death() {
    for outcome in failures() {
        let verdicts: Vec<_> = (1..=6).map(|attempt| judge(&outcome, attempt)).collect();
        let expected = [retry(30), retry(120), retry(600), retry(3_600), Verdict::Dead, Verdict::Dead];
        assert_eq!(verdicts, expected, "{outcome:?}");
    }
}

#[test]
fn retry_after_lengthens_the_delay_on_429_and_503_alone() {
    let asked = Some(Duration::from_secs(100));
    for code in [429, 503] {
        assert_eq!(judge(&answered(code, asked), 1), retry(100), "{code}");
    }
    for code in [301, 400, 404, 410, 500, 502, 504] {
        assert_eq!(judge(&answered(code, asked), 1), retry(30), "{code}");
    }
    assert_eq!(judge(&answered(200, asked), 1), Verdict::Delivered);
}

#[test]
fn retry_after_never_shortens_the_delay() {
    for asked in [0, 1, 29, 30] {
        assert_eq!(judge(&answered(429, Some(Duration::from_secs(asked))), 1), retry(30), "{asked}");
    }
    assert_eq!(judge(&answered(429, Some(Duration::from_secs(100))), 2), retry(120));
}

#[test]
fn retry_after_is_honoured_for_a_day_at_most() {
    let day = 24 * 3_600;
    assert_eq!(MAX_RETRY_AFTER, Duration::from_secs(day));
    assert_eq!(judge(&answered(503, Some(Duration::from_secs(day))), 1), retry(day));
    assert_eq!(judge(&answered(503, Some(Duration::from_secs(day + 1))), 1), retry(day));
    assert_eq!(judge(&answered(503, Some(Duration::MAX)), 1), retry(day));
}

#[test]
fn a_schedule_longer_than_the_bound_is_kept() {
    let days = Duration::from_secs(3 * 24 * 3_600);
    let policy = RetryPolicy::schedule([days], 2).unwrap();
    let outcome = answered(503, Some(Duration::MAX));
    assert_eq!(verdict(&outcome, 1, &policy, DELIVERY), Verdict::Retry { after: days });
}

#[test]
fn retry_after_grants_no_attempt_beyond_the_last() {
    assert_eq!(judge(&answered(429, Some(Duration::from_secs(1))), 5), Verdict::Dead);
}

#[test]
fn a_wait_that_was_asked_for_is_settled_in_whole_milliseconds() {
    let outcome = answered(429, Some(Duration::from_nanos(40_000_000_001)));
    assert_eq!(judge(&outcome, 1), Verdict::Retry { after: Duration::from_millis(40_001) });
}

#[test]
fn only_410_disables_an_endpoint_and_it_is_a_failure() {
    for code in 100..600 {
        assert_eq!(status(code).disables_endpoint(), code == 410, "{code}");
    }
    assert!(failures().iter().all(|outcome| !outcome.disables_endpoint()));
    assert_eq!(judge(&status(410), 1), retry(30));
}

#[test]
fn each_failure_says_in_one_line_what_it_was() {
    let details: Vec<_> = failures().iter().map(|outcome| outcome.error_detail().unwrap()).collect();
    assert_eq!(
        details,
        [
            "HTTP 500",
            "timeout: the deadline passed while waiting for the response",
            "connect: why",
            "tls: why",
            "dns: why",
            "protocol: why",
            "blocked: destination_private_address: 10.0.0.1 is private",
        ]
    );
    assert_eq!(status(204).error_detail(), None);
    let excerpt = format!("{}\nsecond line", "x".repeat(500));
    let outcome = Outcome::Response(Response { status: 502, retry_after: None, excerpt });
    assert_eq!(outcome.error_detail(), Some(format!("HTTP 502: {}", "x".repeat(200))));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_failure_waits_at_least_its_delay_and_no_longer_than_a_day_unless_the_schedule_does(
        code in prop::sample::select(vec![429_u16, 500, 503]), asked in any::<Option<Duration>>(),
        attempt in 1..10_u32, max_attempts in 1..10_u32, delay in 0_u64..10_000_000_000,
    ) {
        let policy = RetryPolicy::schedule([Duration::from_millis(delay)], max_attempts).unwrap();
        let scheduled = policy.delay_after(attempt, DELIVERY);
        match verdict(&answered(code, asked), attempt, &policy, DELIVERY) {
            Verdict::Retry { after } => {
                let scheduled = scheduled.unwrap();
                prop_assert!(after >= scheduled && after <= scheduled.max(MAX_RETRY_AFTER));
            }
            Verdict::Dead => prop_assert_eq!(scheduled, None),
            Verdict::Delivered => prop_assert!(false, "{} is no success", code),
        }
    }
}
