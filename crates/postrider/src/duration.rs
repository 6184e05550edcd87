//! Durations as people write them: `500ms`, `30s`, `2m`, `1h30m`, `30d`.
//!
//! The unit is never left out, so that nobody has to remember whether a number meant seconds or milliseconds.

use std::fmt::Write as _;
use std::time::Duration;

/// Largest first, which is also the order in which a text has them.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Says what a duration looks like, for hints.
pub const EXAMPLES: &str = "durations look like 500ms, 30s, 2m, 1h30m or 30d";

/// The duration that a text means, or why it means none.
pub fn parse(text: &str) -> Result<Duration, String> {
    let refuse = || format!("not a duration; {EXAMPLES}");
    let mut rest = text.trim();
    let mut total: u64 = 0;
    let mut next_unit = 0;
    if rest.is_empty() {
        return Err(refuse());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_lowercase).count();
        let (number, unit) = (&rest[..digits], &rest[digits..digits + letters]);
        if unit.is_empty() && !number.is_empty() && digits == rest.len() {
            return Err(format!("the unit is missing; {EXAMPLES}"));
        }
        let place = UNITS.iter().position(|(name, _)| *name == unit).filter(|place| *place >= next_unit);
        let (Some(place), Ok(number)) = (place, number.parse::<u64>()) else {
            return Err(refuse());
        };
        let part = number.checked_mul(UNITS[place].1).ok_or("longer than any clock can count")?;
        total = total.checked_add(part).ok_or("longer than any clock can count")?;
        next_unit = place + 1;
        rest = &rest[digits + letters..];
    }
    // Timestamps end with the year 9999; a duration that no timestamp can take is refused here, with its name.
    if total > 1_000 * 365 * 86_400_000 {
        return Err("longer than a thousand years".to_owned());
    }
    Ok(Duration::from_millis(total))
}

/// The shortest text that means this duration, to the millisecond.
pub fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, milliseconds) in UNITS {
        let count = rest / milliseconds;
        rest %= milliseconds;
        if count > 0 {
            write!(text, "{count}{unit}").expect("writing to a string does not fail");
        }
    }
    text
}

/// About how long, for people: at most two units.
pub fn about(duration: Duration) -> String {
    let milliseconds = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let coarse = match milliseconds {
        0..1_000 => milliseconds,
        1_000..10_000 => milliseconds / 100 * 100,
        10_000..3_600_000 => milliseconds / 1_000 * 1_000,
        3_600_000..86_400_000 => milliseconds / 60_000 * 60_000,
        _ => milliseconds / 3_600_000 * 3_600_000,
    };
    match coarse {
        1_000..10_000 if coarse % 1_000 != 0 => format!("{}.{}s", coarse / 1_000, coarse % 1_000 / 100),
        _ => format(Duration::from_millis(coarse)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_mean_what_they_say() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("30d", 2_592_000_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
            (" 90s ", 90_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "s", "30", "30 s", "-3s", "1.5s", "30S", "1m1h", "1s1s", "1y", "30sec", "9999999999999999999d"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("30").unwrap_err().contains("unit is missing"));
        assert!(parse("400000d").unwrap_err().contains("thousand years"));
    }

    #[test]
    fn a_duration_survives_its_text() {
        for milliseconds in [0, 1, 999, 1_000, 61_001, 5_400_000, 93_784_005, 2_592_000_000] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse(&format(duration)), Ok(duration), "{milliseconds}");
        }
    }

    #[test]
    fn people_are_told_two_units_at_most() {
        for (milliseconds, text) in [
            (0, "0s"),
            (85, "85ms"),
            (1_240, "1.2s"),
            (2_000, "2s"),
            (62_345, "1m2s"),
            (5_432_100, "1h30m"),
            (93_784_005, "1d2h"),
        ] {
            assert_eq!(about(Duration::from_millis(milliseconds)), text);
        }
    }
}
