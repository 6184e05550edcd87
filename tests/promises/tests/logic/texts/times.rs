//! Durations, schedules, rates, and how long a receiver asks us to wait.

use std::time::{Duration, SystemTime};

use postrider::{DeliveryId, RateLimit, RetryPolicy, duration, retry_after};
use proptest::prelude::*;
use uuid::Uuid;

use super::{cases, is_code};

const THOUSAND_YEARS_MS: u64 = 1_000 * 365 * 86_400_000;

/// The same notion of a duration, written once more: a number before each unit, units from the longest to the shortest.
fn naive_duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total: u128 = 0;
    let mut any = false;
    for (unit, length) in [("d", 86_400_000_u128), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let letters: String = rest[digits.len()..].chars().take_while(char::is_ascii_lowercase).collect();
        if !digits.is_empty() && letters == unit {
            let number: u64 = digits.parse().ok()?;
            total += u128::from(number) * length;
            rest = &rest[digits.len() + unit.len()..];
            any = true;
        }
    }
    let total = u64::try_from(total).ok()?;
    (any && rest.is_empty() && total <= THOUSAND_YEARS_MS).then_some(total)
}

/// A date as receivers write it, reckoned month by month from 1970.
fn http_date(days: u64, second_of_day: u64) -> String {
    const MONTHS: [(&str, u64); 12] = [
        ("Jan", 31),
        ("Feb", 28),
        ("Mar", 31),
        ("Apr", 30),
        ("May", 31),
        ("Jun", 30),
        ("Jul", 31),
        ("Aug", 31),
        ("Sep", 30),
        ("Oct", 31),
        ("Nov", 30),
        ("Dec", 31),
    ];
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    let weekday = WEEKDAYS[usize::try_from(days % 7).unwrap()];
    let (mut year, mut day, mut month) = (1970, days, 0);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    loop {
        let length = MONTHS[month].1 + u64::from(month == 1 && is_leap(year));
        if day < length {
            break;
        }
        day -= length;
        month += 1;
        if month == 12 {
            (month, year) = (0, year + 1);
        }
    }
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{weekday}, {:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT", day + 1, MONTHS[month].0)
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_duration_means_what_a_naive_reader_makes_of_it(
        text in "([0-9]{1,5}(d|h|m|s|ms)){0,5}|([0-9]{0,20}(d|h|m|s|ms|y|S)?){0,3}|[ -~]{0,12}",
    ) {
        let read = duration::parse(&text).ok();
        prop_assert_eq!(read, naive_duration_ms(&text).map(Duration::from_millis), "{:?}", text);
    }

    #[test]
    fn no_text_makes_a_duration_panic(text in any::<String>()) {
        let read = duration::parse(&text).ok();
        prop_assert_eq!(read, naive_duration_ms(&text).map(Duration::from_millis));
    }

    #[test]
    fn a_duration_survives_its_text(milliseconds in 0..=THOUSAND_YEARS_MS) {
        let given = Duration::from_millis(milliseconds);
        prop_assert_eq!(duration::parse(&duration::format(given)), Ok(given));
        prop_assert!(duration::about(given).len() <= 20);
    }

    #[test]
    fn a_schedule_waits_what_it_says_and_repeats_its_last_delay(
        delays in prop::collection::vec(0..=100_000_000_u64, 0..8), max_attempts in 0..20_u32, number in any::<u128>(),
    ) {
        let given: Vec<Duration> = delays.iter().copied().map(Duration::from_millis).collect();
        let delivery = DeliveryId::from_uuid(Uuid::from_u128(number));
        match RetryPolicy::schedule(given.clone(), max_attempts) {
            Ok(policy) => for failures in 1..=max_attempts {
                let place = (failures as usize).min(given.len());
                let expected = (failures < max_attempts).then(|| given[place - 1]);
                prop_assert_eq!(policy.delay_after(failures, delivery), expected);
            },
            Err(refusal) => {
                prop_assert!(is_code(refusal.code));
                prop_assert!(max_attempts == 0 || (given.is_empty() && max_attempts > 1), "{}", refusal);
            }
        }
    }

    #[test]
    fn no_text_makes_a_schedule_or_a_rate_panic(
        text in any::<String>(), rate in "[0-9]{0,12}/?[smhd]?[ -~]{0,3}",
        schedule in r#"\{("(schedule|max_attempts|jitter|initial|factor|max)":(-?[0-9.e]{1,6}|"[0-9]{1,3}(ms|s|h)"|\["[0-9]{1,9}s"\]),?){0,4}\}"#,
    ) {
        for text in [text, rate] {
            match text.parse::<RateLimit>() {
                Ok(limit) => prop_assert_eq!(limit.to_string().parse::<RateLimit>().ok(), Some(limit)),
                Err(refusal) => prop_assert_eq!(refusal.code, "rate_limit_invalid"),
            }
        }
        if let Ok(policy) = serde_json::from_str::<RetryPolicy>(&schedule) {
            let written = serde_json::to_string(&policy).unwrap();
            prop_assert_eq!(serde_json::from_str::<RetryPolicy>(&written).unwrap(), policy);
        }
    }

    #[test]
    fn a_receiver_waits_as_long_as_it_asks_for(
        day in 0..60_000_u64, second in 0..86_400_u64, later_by in 0..10_000_000_u64, ours in 0..4_000_000_000_u64,
        seconds in any::<u64>(), spaces in "[ \t]{0,3}",
    ) {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(ours);
        let said = day * 86_400 + second;
        let date = http_date(day, second);
        let until = said + later_by;
        let value = format!("{spaces}{}{spaces}", http_date(until / 86_400, until % 86_400));
        // Two instants of the receiver's clock: ours takes no part.
        prop_assert_eq!(retry_after(&value, Some(&date), now), Some(Duration::from_secs(later_by)));
        let by_our_clock = Duration::from_secs(until.saturating_sub(ours));
        prop_assert_eq!(retry_after(&value, None, now), Some(by_our_clock));
        prop_assert_eq!(retry_after(&format!("{spaces}{seconds}"), None, now), Some(Duration::from_secs(seconds)));
    }
}
