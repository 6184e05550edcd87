//! Instants and durations as people read them.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

/// About how long, in one unit: `12 s`, `3 min`, `5 h`, `2 d`.
pub(super) fn about(span: SignedDuration) -> String {
    let seconds = span.as_secs().unsigned_abs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// How long ago, or in how long.
pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    let span = at.duration_since(now);
    match span.as_secs() {
        0 => "now".to_owned(),
        1.. => format!("in {}", about(span)),
        _ => format!("{} ago", about(span)),
    }
}

/// To the second, and in which zone.
pub(super) fn exact(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// An instant: relative to now, and exact for whoever points at it. The script keeps it true.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(exact(at)) data-relative { (relative(at, now)) } }
}

/// An instant that is waited for. The script counts down.
pub(super) fn countdown(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(at) title=(exact(at)) data-countdown { (relative(at, now)) } }
}

/// Milliseconds, in a unit that fits: `87 ms`, `1.4 s`, `2 min 5 s`, `3 h 10 min`.
pub(super) fn milliseconds(span: u64) -> String {
    let seconds = span / 1_000;
    match span {
        0..1_000 => format!("{span} ms"),
        1_000..60_000 => format!("{}.{} s", seconds, span % 1_000 / 100),
        60_000..600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        600_000..3_600_000 => format!("{} min", seconds / 60),
        3_600_000..36_000_000 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        36_000_000..86_400_000 => format!("{} h", seconds / 3_600),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A number with its thousands apart.
pub(super) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One thing, or so many of them.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {many}", number(count)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_told_from_now() {
        let now: Timestamp = "2026-02-21T12:00:00Z".parse().unwrap();
        for (seconds, expected) in [
            (0, "now"),
            (-5, "5 s ago"),
            (-119, "1 min ago"),
            (7_200, "in 2 h"),
            (-200_000, "2 d ago"),
            (12, "in 12 s"),
        ] {
            assert_eq!(relative(now + SignedDuration::from_secs(seconds), now), expected);
        }
        assert_eq!(exact(now), "2026-02-21 12:00:00 UTC");
    }

    #[test]
    fn durations_and_numbers_are_readable() {
        let spans = [0, 87, 1_450, 61_000, 3_700_000, 90_000_000].map(milliseconds);
        assert_eq!(spans, ["0 ms", "87 ms", "1.4 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
        assert_eq!([0, 999, 1_000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((counted(1, "day", "days"), counted(1_000, "day", "days")), ("1 day".into(), "1,000 days".into()));
    }
}
