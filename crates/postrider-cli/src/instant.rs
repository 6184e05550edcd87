//! Instants as people write them: a timestamp, a date, or a distance from now.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::failure::{Exit, Failure};
use postrider::duration;

/// Which way a distance from now goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `2h` was two hours ago.
    Past,
    /// `2h` is in two hours.
    Future,
}

/// The instant that an option's text means.
pub(crate) fn parse(option: &str, text: &str, now: Timestamp, direction: Direction) -> Result<Timestamp, Failure> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    if let Ok(date) = text.parse::<Date>()
        && let Ok(midnight) = date.to_zoned(TimeZone::UTC)
    {
        return Ok(midnight.timestamp());
    }
    let distance = duration::parse(text).ok().and_then(|distance| SignedDuration::try_from(distance).ok());
    let at = distance.and_then(|distance| {
        let distance = if direction == Direction::Past { -distance } else { distance };
        now.checked_add(distance).ok()
    });
    at.ok_or_else(|| {
        let message = format!("{option} `{}` is not an instant", crate::output::plain(text, 64));
        let distance = match direction {
            Direction::Past => "2h for two hours ago",
            Direction::Future => "2h for in two hours",
        };
        Failure::new(Exit::Refused, "instant_invalid", message)
            .hint(format!("use 2026-02-21T12:00:00Z, 2026-02-21 (UTC), or {distance}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_timestamps_dates_or_distances() {
        let now: Timestamp = "2026-02-21T12:00:00Z".parse().unwrap();
        for (text, direction, expected) in [
            ("2026-01-02T03:04:05Z", Direction::Past, "2026-01-02T03:04:05Z"),
            ("2026-01-02T03:04:05+01:00", Direction::Past, "2026-01-02T02:04:05Z"),
            ("2026-01-02", Direction::Future, "2026-01-02T00:00:00Z"),
            ("90m", Direction::Past, "2026-02-21T10:30:00Z"),
            ("90m", Direction::Future, "2026-02-21T13:30:00Z"),
        ] {
            let at = parse("--since", text, now, direction).unwrap();
            assert_eq!(at.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_instant_is_refused() {
        for text in ["", "yesterday", "12:00", "2026-13-01", "999999d"] {
            let Failure::Told(problem) = parse("--since", text, Timestamp::UNIX_EPOCH, Direction::Past).unwrap_err()
            else {
                panic!("{text} is told");
            };
            assert_eq!((problem.exit, problem.code.as_str()), (Exit::Refused, "instant_invalid"), "{text}");
        }
    }
}
