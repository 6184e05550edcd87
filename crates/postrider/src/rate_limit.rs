//! How often an endpoint may be called.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;

/// So many attempts per second, minute or hour: `100/s`.
///
/// A store keeps a bucket of tokens per endpoint that fills at this rate, and takes a token for each delivery that it hands
/// out. The bucket holds a tenth of a second's worth, and at least one: attempts are spread evenly, not bunched at the
/// beginning of every second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RateLimit {
    count: NonZeroU32,
    per: Per,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Per {
    Second,
    Minute,
    Hour,
}

impl Per {
    const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::Hour];

    const fn letter(self) -> &'static str {
        match self {
            Self::Second => "s",
            Self::Minute => "m",
            Self::Hour => "h",
        }
    }

    const fn duration(self) -> Duration {
        match self {
            Self::Second => Duration::from_secs(1),
            Self::Minute => Duration::from_mins(1),
            Self::Hour => Duration::from_hours(1),
        }
    }
}

impl RateLimit {
    const MAX_COUNT: u32 = 1_000_000;

    /// Tokens that the bucket gets in a second.
    pub fn per_second(self) -> f64 {
        f64::from(self.count.get()) / self.per.duration().as_secs_f64()
    }

    /// Tokens that the bucket holds.
    pub fn burst(self) -> f64 {
        (self.per_second() / 10.0).max(1.0)
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per.letter())
    }
}

impl FromStr for RateLimit {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parse = || {
            let (count, letter) = text.split_once('/')?;
            let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
            let count: NonZeroU32 = count.parse().ok().filter(|_| digits)?;
            let per = Per::ALL.into_iter().find(|per| per.letter() == letter)?;
            (count.get() <= Self::MAX_COUNT).then_some(Self { count, per })
        };
        parse().ok_or_else(|| {
            let shown: String = text.chars().take(32).collect();
            let detail = format!("`{}` is not a rate limit", shown.escape_default());
            Refusal::new("rate_limit_invalid", "rate_limit", detail)
                .hint(format!("write 100/s, 600/m or 5000/h, with a number from 1 to {}", Self::MAX_COUNT))
        })
    }
}

impl TryFrom<String> for RateLimit {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<RateLimit> for String {
    fn from(limit: RateLimit) -> Self {
        limit.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_and_printed() {
        for (text, per_second, burst) in
            [("100/s", 100.0, 10.0), ("1/s", 1.0, 1.0), ("600/m", 10.0, 1.0), ("36000/h", 10.0, 1.0)]
        {
            let limit: RateLimit = text.parse().unwrap();
            assert_eq!(limit.to_string(), text);
            assert!((limit.per_second() - per_second).abs() < 1e-9 && (limit.burst() - burst).abs() < 1e-9, "{text}");
        }
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        for text in ["", "100", "0/s", "-1/s", "+1/s", "1.5/s", "100/d", "100/", "/s", "1000001/s", "1/s/s", "1 /s"] {
            assert_eq!(text.parse::<RateLimit>().unwrap_err().code, "rate_limit_invalid", "{text}");
        }
    }
}
