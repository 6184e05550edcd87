//! `Retry-After`: seconds and HTTP dates, by the receiver's clock where it shows one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postrider::retry_after;
use proptest::prelude::*;

const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const TWO_MINUTES_LATER: &str = "Sun, 06 Nov 1994 08:51:37 GMT";

fn at_date() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(784_111_777)
}

fn seconds(value: &str) -> Option<u64> {
    retry_after(value, None, at_date()).map(|wait| wait.as_secs())
}

#[test]
fn seconds_are_seconds() {
    assert_eq!(seconds("0"), Some(0));
    assert_eq!(seconds("120"), Some(120));
    assert_eq!(seconds(" 120\t"), Some(120));
    assert_eq!(seconds("007"), Some(7));
}

#[test]
fn seconds_that_do_not_fit_are_as_long_as_can_be() {
    assert_eq!(seconds("18446744073709551615"), Some(u64::MAX));
    assert_eq!(seconds("18446744073709551616"), Some(u64::MAX));
    assert_eq!(seconds(&"9".repeat(5_000)), Some(u64::MAX));
}

#[test]
fn what_says_nothing_usable_is_nothing() {
    for value in [
        "",
        " ",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "0x10",
        "12s",
        "soon",
        "1 2",
        "١٢",
        "Sun, 06 Nov 1994",
        "1994-11-06T08:49:37Z",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Mon, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1969 08:49:37 GMT",
    ] {
        assert_eq!(retry_after(value, Some(DATE), at_date()), None, "{value:?}");
    }
}

#[test]
fn all_three_forms_of_http_dates_are_read() {
    let now = at_date() - Duration::from_secs(60);
    for value in [DATE, "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert_eq!(retry_after(value, None, now), Some(Duration::from_secs(60)), "{value}");
    }
}

#[test]
fn a_date_is_relative_to_the_responses_own_date_whatever_our_clock_says() {
    let hour = Duration::from_secs(3_600);
    for now in [at_date(), at_date() - hour, at_date() + hour, UNIX_EPOCH] {
        assert_eq!(retry_after(TWO_MINUTES_LATER, Some(DATE), now), Some(Duration::from_secs(120)));
        assert_eq!(retry_after("120", Some(DATE), now), Some(Duration::from_secs(120)));
    }
}

#[test]
fn without_a_usable_date_our_clock_decides() {
    let now = at_date() - Duration::from_secs(10);
    for date in [None, Some(""), Some("yesterday"), Some("Mon, 06 Nov 1994 08:49:37 GMT")] {
        assert_eq!(retry_after(DATE, date, now), Some(Duration::from_secs(10)), "{date:?}");
    }
}

#[test]
fn an_instant_that_has_passed_asks_for_no_wait() {
    assert_eq!(retry_after(DATE, Some(TWO_MINUTES_LATER), at_date()), Some(Duration::ZERO));
    assert_eq!(retry_after(DATE, None, at_date() + Duration::from_secs(1)), Some(Duration::ZERO));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_a_receiver_sends_makes_it_panic(value in any::<String>(), date in any::<Option<String>>()) {
        let _ = retry_after(&value, date.as_deref(), at_date());
    }

    #[test]
    fn dates_of_any_shape_do_not_make_it_panic(
        value in "(Sun|Mon|Tue), [0-9]{2} (Jan|Feb|Dec) [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
    ) {
        let _ = retry_after(&value, None, at_date());
    }
}
