//! The bucket of tokens that keeps an endpoint's rate limit.
//!
//! One instant says all of it: when the bucket will be full again. What is missing until then has been taken, each token
//! moves the instant by the time in which one comes in, and an instant in the past is a full bucket. Nobody has to fill
//! it, and there is no fraction of a token to be rounded.

use std::time::Duration;

use postrider::RateLimit;

use crate::clock::{self, Micros};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    limit: RateLimit,
    now: Micros,
    full_at: Micros,
    is_corrected: bool,
}

impl Bucket {
    /// The bucket as it is now. No bucket is emptier than empty: a limit that was raised, or a clock that was set back,
    /// must not make an endpoint wait for longer than its bucket takes to fill.
    pub(crate) fn new(limit: RateLimit, full_at: Option<Micros>, now: Micros) -> Self {
        let empty = clock::after(now, time_for(limit.burst(), limit));
        let full_at = full_at.unwrap_or(now).max(now);
        Self { limit, now, full_at: full_at.min(empty), is_corrected: full_at > empty }
    }

    /// What is kept of it says that it is emptier than empty, and has to be written anew: it would stay empty otherwise.
    pub(crate) fn is_corrected(&self) -> bool {
        self.is_corrected
    }

    pub(crate) fn full_at(&self) -> Micros {
        self.full_at
    }

    /// How many deliveries may be taken.
    pub(crate) fn tokens(&self) -> u32 {
        // What arithmetic loses must not cost a whole token.
        const ROUNDING: f64 = 1e-6;
        let whole = (self.level() + ROUNDING).floor();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 100,000")]
        let tokens = whole.clamp(0.0, self.limit.burst().floor()) as u32;
        tokens
    }

    pub(crate) fn take(&mut self, count: u32) {
        self.full_at = clock::after(self.full_at, time_for(f64::from(count), self.limit));
    }

    /// How long until there is a token again.
    pub(crate) fn next_token_in(&self) -> Duration {
        time_for(1.0 - self.level(), self.limit)
    }

    fn level(&self) -> f64 {
        let missing = clock::between(self.now, self.full_at).as_secs_f64() * self.limit.per_second();
        self.limit.burst() - missing
    }
}

/// How long it takes until so many tokens have come in, in whole microseconds.
fn time_for(tokens: f64, limit: RateLimit) -> Duration {
    let exactly = Duration::from_secs_f64((tokens / limit.per_second()).max(0.0));
    let micros = exactly.as_nanos().div_ceil(1000);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(limit: &str, full_at: Option<Micros>, now: Micros) -> Bucket {
        Bucket::new(limit.parse().unwrap(), full_at, now)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_one_at_a_time() {
        let mut full = bucket("100/s", None, 0);
        assert_eq!(full.tokens(), 10);
        full.take(10);
        assert_eq!((full.tokens(), full.next_token_in()), (0, Duration::from_millis(10)));
        let later = bucket("100/s", Some(full.full_at()), 9_999);
        assert_eq!((later.tokens(), later.next_token_in()), (0, Duration::from_micros(1)));
        assert_eq!(bucket("100/s", Some(full.full_at()), 10_000).tokens(), 1);
        assert_eq!(bucket("100/s", Some(full.full_at()), 1_000_000).tokens(), 10, "it does not overflow");
    }

    #[test]
    fn in_the_long_run_it_gives_what_the_limit_says_and_no_more() {
        for (limit, seconds, most) in [("3/s", 100, 301), ("7/m", 600, 71), ("1000/s", 10, 10_100), ("1/h", 7200, 3)] {
            let (mut full_at, mut now, mut given) = (None, 0, 0);
            while now <= seconds * 1_000_000 {
                let mut bucket = bucket(limit, full_at, now);
                let tokens = bucket.tokens();
                bucket.take(tokens);
                given += tokens;
                full_at = Some(bucket.full_at());
                let wait = bucket.next_token_in();
                assert!(tokens > 0 || wait > Duration::ZERO, "{limit}: nobody waits for nothing");
                now = clock::after(now, wait);
            }
            assert!(given <= most && given + 2 >= most, "{limit}: {given} in {seconds} s");
        }
    }

    #[test]
    fn a_raised_limit_or_a_clock_set_back_does_not_block_an_endpoint() {
        let hours_ahead = Some(3_600_000_000 * 5);
        let raised = bucket("100/s", hours_ahead, 0);
        assert_eq!((raised.tokens(), raised.next_token_in()), (0, Duration::from_millis(10)));
        assert!(raised.is_corrected());
        let later = bucket("100/s", Some(raised.full_at()), 1_000_000);
        assert!(later.tokens() == 10 && !later.is_corrected());
    }
}
