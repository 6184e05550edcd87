//! Retry policies: which delay follows which failure, to the millisecond, and what is no policy.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test that calls them")]

use std::time::Duration;

use postrider::retry::{Backoff, MAX_ATTEMPTS, MAX_DELAY};
use postrider::{DeliveryId, Refusal, RetryPolicy};
use proptest::prelude::*;
use uuid::Uuid;

fn delivery(number: u128) -> DeliveryId {
    DeliveryId::from_uuid(Uuid::from_u128(number))
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn millis(policy: &RetryPolicy, failures: u32) -> Option<u128> {
    policy.delay_after(failures, delivery(7)).map(|delay| delay.as_millis())
}

fn code(result: Result<RetryPolicy, Refusal>) -> &'static str {
    result.unwrap_err().code
}

#[test]
fn the_default_waits_four_delays_and_dies_at_the_fifth_failure() {
    let policy = RetryPolicy::default();
    let waits: Vec<_> = (1..=7).map(|failures| millis(&policy, failures)).collect();
    assert_eq!(waits, [Some(30_000), Some(120_000), Some(600_000), Some(3_600_000), None, None, None]);
    assert_eq!((policy.max_attempts(), policy.jitter()), (5, 0.0));
}

#[test]
fn a_sixth_attempt_waits_the_fifth_delay() {
    let Backoff::Schedule(delays) = RetryPolicy::default().backoff().clone() else {
        panic!("the default is a schedule")
    };
    let policy = RetryPolicy::schedule(delays, 6).unwrap();
    assert_eq!(millis(&policy, 5), Some(21_600_000));
    assert_eq!(millis(&policy, 6), None);
}

#[test]
fn a_short_schedule_repeats_its_last_delay() {
    let policy = RetryPolicy::schedule([ms(1), ms(2)], 5).unwrap();
    let waits: Vec<_> = (1..=5).map(|failures| millis(&policy, failures)).collect();
    assert_eq!(waits, [Some(1), Some(2), Some(2), Some(2), None]);
    assert_eq!(policy.delays().collect::<Vec<_>>(), [ms(1), ms(2), ms(2), ms(2)]);
}

#[test]
fn a_single_attempt_waits_for_nothing() {
    for policy in [RetryPolicy::schedule([], 1).unwrap(), RetryPolicy::schedule([ms(5)], 1).unwrap()] {
        assert_eq!(millis(&policy, 1), None);
        assert_eq!(policy.delays().count(), 0);
    }
}

#[test]
fn counting_beyond_the_end_or_before_the_beginning_is_harmless() {
    let policy = RetryPolicy::schedule([ms(1), ms(2)], 3).unwrap();
    assert_eq!(millis(&policy, 0), Some(1));
    assert_eq!(millis(&policy, u32::MAX), None);
}

#[test]
fn an_exponential_policy_grows_to_its_maximum() {
    let policy = RetryPolicy::exponential(ms(1_000), 2.0, ms(10_000), 8).unwrap();
    let waits: Vec<_> = (1..=8).map(|failures| millis(&policy, failures)).collect();
    let expected = [Some(1_000), Some(2_000), Some(4_000), Some(8_000), Some(10_000), Some(10_000), Some(10_000), None];
    assert_eq!(waits, expected);
}

#[test]
fn an_exponential_policy_is_rounded_to_the_millisecond() {
    let policy = RetryPolicy::exponential(ms(1), 1.5, ms(100), 6).unwrap();
    assert_eq!(policy.delays().collect::<Vec<_>>(), [ms(1), ms(2), ms(2), ms(3), ms(5)]);
    let policy = RetryPolicy::exponential(ms(30_000), 1.0, MAX_DELAY, 1_000).unwrap();
    assert!(policy.delays().all(|delay| delay == ms(30_000)));
}

#[test]
fn the_extremes_neither_overflow_nor_exceed_the_maximum() {
    let policy =
        RetryPolicy::exponential(MAX_DELAY, 1_000.0, MAX_DELAY, MAX_ATTEMPTS).unwrap().with_jitter(1.0).unwrap();
    for failures in [1, 2, 500, 999] {
        let delay = policy.delay_after(failures, delivery(failures.into())).unwrap();
        assert!((MAX_DELAY..=2 * MAX_DELAY).contains(&delay), "{delay:?}");
    }
    assert_eq!(policy.delay_after(1_000, delivery(1)), None);
    let policy = RetryPolicy::exponential(ms(1), 1_000.0, MAX_DELAY, MAX_ATTEMPTS).unwrap();
    assert_eq!(policy.delay_after(999, delivery(1)), Some(MAX_DELAY));
}

#[test]
fn what_is_no_policy_is_refused_with_its_reason() {
    let second = ms(1_000);
    assert_eq!(code(RetryPolicy::schedule([second], 0)), "max_attempts_out_of_range");
    assert_eq!(code(RetryPolicy::schedule([second], 1_001)), "max_attempts_out_of_range");
    assert!(RetryPolicy::schedule([second], 1_000).is_ok());
    assert_eq!(code(RetryPolicy::schedule([], 2)), "retry_schedule_empty");
    assert_eq!(code(RetryPolicy::schedule(vec![second; 1_001], 5)), "retry_schedule_too_long");
    assert!(RetryPolicy::schedule(vec![second; 1_000], 5).is_ok());
    assert_eq!(code(RetryPolicy::schedule([MAX_DELAY + ms(1)], 5)), "retry_delay_too_long");
    assert!(RetryPolicy::schedule([MAX_DELAY], 5).is_ok());
    assert_eq!(code(RetryPolicy::schedule([Duration::MAX], 5)), "retry_delay_too_long");
    assert_eq!(code(RetryPolicy::schedule([Duration::from_micros(1_500)], 5)), "retry_delay_not_whole_milliseconds");
    assert!(RetryPolicy::schedule([Duration::ZERO], 5).is_ok());

    let exponential = RetryPolicy::exponential;
    assert_eq!(code(exponential(Duration::ZERO, 2.0, second, 5)), "retry_initial_zero");
    assert_eq!(code(exponential(second, 2.0, ms(999), 5)), "retry_max_below_initial");
    assert_eq!(code(exponential(second, 2.0, MAX_DELAY + ms(1), 5)), "retry_delay_too_long");
    assert_eq!(code(exponential(second, 2.0, second, 0)), "max_attempts_out_of_range");
    for factor in [0.99, 0.0, -2.0, 1_000.1, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        assert_eq!(code(exponential(second, factor, second, 5)), "retry_factor_out_of_range", "{factor}");
    }
    for jitter in [-0.01, 1.01, f64::NAN, f64::INFINITY] {
        assert_eq!(code(RetryPolicy::default().with_jitter(jitter)), "retry_jitter_out_of_range", "{jitter}");
    }
}

#[test]
fn refusals_name_the_field_and_the_value() {
    let refusal = RetryPolicy::schedule([ms(1)], 1_001).unwrap_err();
    assert_eq!((refusal.field, refusal.detail.contains("1001")), ("max_attempts", true));
    let refusal = RetryPolicy::default().with_jitter(1.5).unwrap_err();
    assert_eq!((refusal.field, refusal.detail.contains("1.5")), ("retry_jitter", true));
}

#[test]
fn jitter_is_the_same_for_the_same_failure_and_differs_otherwise() {
    let policy = RetryPolicy::schedule([ms(100_000)], 50).unwrap().with_jitter(0.5).unwrap();
    let again = policy.clone();
    let mut seen = std::collections::HashSet::new();
    for number in 0..40 {
        for failures in 1..10 {
            let delay = policy.delay_after(failures, delivery(number)).unwrap();
            assert_eq!(again.delay_after(failures, delivery(number)), Some(delay));
            assert!((ms(100_000)..=ms(150_000)).contains(&delay), "{delay:?}");
            seen.insert(delay);
        }
    }
    // 360 draws out of 50,001: far more than half are distinct unless the jitter ignores the delivery or the failure.
    assert!(seen.len() > 340, "{}", seen.len());
    let spread = seen.iter().max().unwrap().saturating_sub(*seen.iter().min().unwrap());
    assert!(spread > ms(45_000), "{spread:?}");
}

#[test]
fn jitter_is_pinned_so_that_versions_agree_during_an_upgrade() {
    let policy = RetryPolicy::schedule([ms(1_000_000)], 5).unwrap().with_jitter(1.0).unwrap();
    // The share is the first 32 bits of SHA-256(uuid ++ failure) over 2^32 - 1; computed with Python's hashlib.
    assert_eq!(policy.delay_after(1, delivery(1)), Some(ms(1_601_907)));
    assert_eq!(policy.delay_after(2, delivery(1)), Some(ms(1_578_373)));
}

#[test]
fn policies_survive_being_stored() {
    let schedule = RetryPolicy::schedule([ms(30_000), ms(1)], 5).unwrap();
    let exponential = RetryPolicy::exponential(ms(5), 1.7, ms(9_999), 12).unwrap().with_jitter(0.25).unwrap();
    let once = RetryPolicy::schedule([], 1).unwrap();
    for policy in [schedule.clone(), exponential.clone(), once, RetryPolicy::default()] {
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<RetryPolicy>(&text).unwrap(), policy, "{text}");
    }
    // What is in databases stays readable.
    assert_eq!(serde_json::to_string(&schedule).unwrap(), r#"{"schedule_ms":[30000,1],"max_attempts":5,"jitter":0.0}"#);
    assert_eq!(
        serde_json::to_string(&exponential).unwrap(),
        r#"{"exponential":{"initial_ms":5,"factor":1.7,"max_ms":9999},"max_attempts":12,"jitter":0.25}"#
    );
    assert_eq!(serde_json::from_str::<RetryPolicy>(r#"{"schedule_ms":[30000,1],"max_attempts":5}"#).unwrap(), schedule);
}

#[test]
fn what_was_stored_wrongly_is_refused_on_the_way_in() {
    for (text, said) in [
        (r#"{"schedule_ms":[1],"max_attempts":0}"#, "max_attempts_out_of_range"),
        (r#"{"schedule_ms":[],"max_attempts":2}"#, "retry_schedule_empty"),
        (r#"{"schedule_ms":[18446744073709551615],"max_attempts":2}"#, "retry_delay_too_long"),
        (r#"{"schedule_ms":[1],"max_attempts":2,"jitter":2}"#, "retry_jitter_out_of_range"),
        (r#"{"exponential":{"initial_ms":1,"factor":0,"max_ms":2},"max_attempts":2}"#, "retry_factor_out_of_range"),
        (r#"{"max_attempts":2}"#, "retry_policy_ambiguous"),
        (
            r#"{"schedule_ms":[1],"exponential":{"initial_ms":1,"factor":1,"max_ms":2},"max_attempts":2}"#,
            "retry_policy_ambiguous",
        ),
        (r#"{"schedule_ms":[1],"max_attempts":2,"extra":1}"#, "unknown field"),
        (r#"{"schedule_ms":[-1],"max_attempts":2}"#, "invalid value"),
    ] {
        let error = serde_json::from_str::<RetryPolicy>(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_policy_that_can_be_made_keeps_its_bounds(
        initial in 1_u64..100_000_000, factor in 1.0..=1_000.0_f64, more in 0_u64..1_000_000_000,
        max_attempts in 1..=1_000_u32, jitter in 0.0..=1.0_f64, number in any::<u128>(), failures in 0..1_200_u32,
    ) {
        let max = ms(initial + more);
        let policy = RetryPolicy::exponential(ms(initial), factor, max, max_attempts).unwrap().with_jitter(jitter).unwrap();
        let scheduled = policy.scheduled_delay(failures);
        prop_assert_eq!(scheduled.is_none(), failures >= max_attempts);
        if let Some(scheduled) = scheduled {
            prop_assert!(scheduled >= ms(initial) && scheduled <= max);
            prop_assert!(policy.scheduled_delay(failures + 1).is_none_or(|next| next >= scheduled));
            let delay = policy.delay_after(failures, delivery(number)).unwrap();
            prop_assert!(delay >= scheduled && delay <= scheduled * 2);
            prop_assert_eq!(delay.subsec_nanos() % 1_000_000, 0);
        }
        let text = serde_json::to_string(&policy).unwrap();
        prop_assert_eq!(serde_json::from_str::<RetryPolicy>(&text).unwrap(), policy);
    }
}
