//! How long a receiver asks us to wait: the `Retry-After` header, as seconds or as an HTTP date.
//!
//! A date is an instant on the receiver's clock, and a worker's own clock may be wrong. So where the response has a
//! `Date` header, the two are subtracted from each other, and no clock of ours takes part. Only without one is `now`
//! consulted, which a dispatcher takes from its database; the verdict's upper bound limits what a wrong clock can do.

use std::time::{Duration, SystemTime};

/// The wait that `value` asks for, or none when it says nothing usable.
///
/// An instant that has passed asks for no wait at all, which is an answer: zero. Seconds that do not fit are as long as
/// can be expressed; [`verdict`](crate::verdict) bounds them.
pub fn retry_after(value: &str, response_date: Option<&str>, now: SystemTime) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let since =
        response_date.and_then(|date| httpdate::parse_http_date(date.trim_matches([' ', '\t'])).ok()).unwrap_or(now);
    Some(until.duration_since(since).unwrap_or_default())
}
