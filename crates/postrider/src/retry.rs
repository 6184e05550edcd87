//! When to try again: how long to wait after each failure, and how many attempts there are.
//!
//! A policy is data and one pure function, [`RetryPolicy::delay_after`]. Nothing else in Postrider computes a delay, so
//! what `postrider schedule` prints is what happens.
//!
//! - Failure *n* of `max_attempts` waits the *n*-th delay; failure `max_attempts` is the last and waits for nothing. The
//!   default, `30s, 2m, 10m, 1h, 6h` with five attempts, therefore never waits its fifth delay: a sixth attempt would.
//! - A schedule that is shorter than `max_attempts - 1` repeats its last delay.
//! - Delays are whole milliseconds, since stores keep instants in milliseconds and promise them exactly.
//! - Jitter is off unless asked for. It only lengthens a delay, so that the schedule stays a lower bound, and it is drawn
//!   from the delivery's id and the attempt's number rather than from a generator: the same failure waits the same time
//!   in every process that works it out, and still no two deliveries of a burst come back at once.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::ids::DeliveryId;
use crate::refusal::Refusal;

/// The longest delay that a policy may have.
pub const MAX_DELAY: Duration = Duration::from_hours(365 * 24);

/// The most attempts that a policy may allow.
pub const MAX_ATTEMPTS: u32 = 1_000;

/// The largest factor of an exponential policy.
pub const MAX_FACTOR: f64 = 1_000.0;

const DEFAULT_DELAYS: [Duration; 5] = [
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_hours(1),
    Duration::from_hours(6),
];

/// The delays between attempts, and how many attempts there are. See the [module](self) for what it means.
///
/// ```
/// use std::time::Duration;
/// use postrider::{DeliveryId, RetryPolicy};
///
/// let policy = RetryPolicy::schedule([Duration::from_secs(30), Duration::from_secs(120)], 4)?;
/// let seconds: Vec<u64> = policy.delays().map(|delay| delay.as_secs()).collect();
/// assert_eq!(seconds, [30, 120, 120]);
/// # Ok::<(), postrider::Refusal>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredPolicy", into = "StoredPolicy")]
pub struct RetryPolicy {
    backoff: Backoff,
    max_attempts: NonZeroU32,
    jitter: f64,
}

/// Where a policy's delays come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Backoff {
    /// They are listed; the last one repeats.
    Schedule(Vec<Duration>),
    /// Each is `factor` times the one before, up to `max`.
    Exponential {
        /// After the first failure.
        initial: Duration,
        /// How much longer each delay is than the one before.
        factor: f64,
        /// No delay is longer.
        max: Duration,
    },
}

impl RetryPolicy {
    /// Waits these delays, repeating the last one, for at most `max_attempts` attempts. An empty schedule is accepted
    /// only with a single attempt, which has nothing to wait for.
    pub fn schedule(delays: impl Into<Vec<Duration>>, max_attempts: u32) -> Result<Self, Refusal> {
        let delays = delays.into();
        let max_attempts = check_max_attempts(max_attempts)?;
        if delays.is_empty() && max_attempts.get() > 1 {
            return Err(Refusal::new(
                "retry_schedule_empty",
                "retry_schedule",
                format!("the retry schedule is empty, but there are {max_attempts} attempts to wait between"),
            )
            .hint("give at least one delay, or set `max_attempts` to 1"));
        }
        if delays.len() > MAX_ATTEMPTS as usize {
            return Err(Refusal::new(
                "retry_schedule_too_long",
                "retry_schedule",
                format!("the retry schedule has {} delays, at most {MAX_ATTEMPTS} are taken", delays.len()),
            )
            .hint("the last delay repeats by itself"));
        }
        for delay in &delays {
            check_delay(*delay)?;
        }
        Ok(Self { backoff: Backoff::Schedule(delays), max_attempts, jitter: 0.0 })
    }

    /// Waits `initial` after the first failure and `factor` times longer after each further one, never longer than
    /// `max`, for at most `max_attempts` attempts.
    pub fn exponential(initial: Duration, factor: f64, max: Duration, max_attempts: u32) -> Result<Self, Refusal> {
        let max_attempts = check_max_attempts(max_attempts)?;
        check_delay(initial)?;
        check_delay(max)?;
        if initial.is_zero() {
            return Err(Refusal::new(
                "retry_initial_zero",
                "retry_initial",
                "an exponential policy that begins with no delay at all never gets any longer",
            )
            .hint("begin with at least `1ms`"));
        }
        // The range is false for NaN as well.
        if !(1.0..=MAX_FACTOR).contains(&factor) {
            return Err(Refusal::new(
                "retry_factor_out_of_range",
                "retry_factor",
                format!("the factor between delays is {factor}, it must be from 1 to {MAX_FACTOR}"),
            ));
        }
        if max < initial {
            return Err(Refusal::new(
                "retry_max_below_initial",
                "retry_max",
                format!("the longest delay, {max:?}, is shorter than the initial one, {initial:?}"),
            ));
        }
        let factor = to_millionths(factor);
        Ok(Self { backoff: Backoff::Exponential { initial, factor, max }, max_attempts, jitter: 0.0 })
    }

    /// The same policy with each delay lengthened by up to this share of itself: 0 is exact, 1 up to doubles it.
    pub fn with_jitter(mut self, jitter: f64) -> Result<Self, Refusal> {
        if !(0.0..=1.0).contains(&jitter) {
            return Err(Refusal::new(
                "retry_jitter_out_of_range",
                "retry_jitter",
                format!("the jitter is {jitter}, it must be from 0 (exact) to 1 (up to twice the delay)"),
            ));
        }
        // Negative zero is in the range, and would be kept with its sign.
        self.jitter = to_millionths(jitter).abs();
        Ok(self)
    }

    /// Where its delays come from.
    pub fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// How many attempts there are at most.
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts.get()
    }

    /// By what share of itself a delay may be lengthened.
    pub fn jitter(&self) -> f64 {
        self.jitter
    }

    /// How long to wait after the `failures`-th failure in a row (1-based), or none when that was the last attempt.
    pub fn delay_after(&self, failures: u32, delivery: DeliveryId) -> Option<Duration> {
        let delay = self.scheduled_delay(failures)?;
        Some(lengthen(delay, self.jitter, failures, delivery))
    }

    /// The same without jitter: what the schedule says.
    pub fn scheduled_delay(&self, failures: u32) -> Option<Duration> {
        if failures >= self.max_attempts() {
            return None;
        }
        match &self.backoff {
            Backoff::Schedule(delays) => {
                let index = (failures.saturating_sub(1)) as usize;
                delays.get(index).or(delays.last()).copied()
            }
            Backoff::Exponential { initial, factor, max } => {
                Some(exponential_delay(*initial, *factor, *max, failures.saturating_sub(1)))
            }
        }
    }

    /// Every delay that is ever waited, in order, without jitter: one fewer than there are attempts.
    pub fn delays(&self) -> impl Iterator<Item = Duration> + '_ {
        (1..self.max_attempts()).filter_map(|failures| self.scheduled_delay(failures))
    }
}

impl Default for RetryPolicy {
    /// `30s, 2m, 10m, 1h, 6h`, five attempts, no jitter.
    fn default() -> Self {
        Self::schedule(DEFAULT_DELAYS, 5).expect("the default policy is within the bounds")
    }
}

fn check_max_attempts(max_attempts: u32) -> Result<NonZeroU32, Refusal> {
    NonZeroU32::new(max_attempts).filter(|count| count.get() <= MAX_ATTEMPTS).ok_or_else(|| {
        Refusal::new(
            "max_attempts_out_of_range",
            "max_attempts",
            format!("max_attempts is {max_attempts}, it must be from 1 to {MAX_ATTEMPTS}"),
        )
    })
}

fn check_delay(delay: Duration) -> Result<(), Refusal> {
    if delay > MAX_DELAY {
        return Err(Refusal::new(
            "retry_delay_too_long",
            "retry_schedule",
            format!("the delay {delay:?} is longer than 365 days"),
        ));
    }
    if !delay.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Refusal::new(
            "retry_delay_not_whole_milliseconds",
            "retry_schedule",
            format!("the delay {delay:?} is not a whole number of milliseconds"),
        ));
    }
    Ok(())
}

/// `initial * factor^times`, rounded to the millisecond, at most `max`.
///
/// It multiplies step by step, because the precision of `powi` differs between platforms and two dispatchers must agree
/// to the millisecond; it stops at `max`, so nothing overflows however many times there are.
fn exponential_delay(initial: Duration, factor: f64, max: Duration, times: u32) -> Duration {
    let ceiling = as_exact_millis(max);
    let mut millis = as_exact_millis(initial);
    for _ in 0..times {
        if millis >= ceiling {
            break;
        }
        millis *= factor;
    }
    from_millis_rounded(millis.min(ceiling))
}

/// Adds a share of the delay that is fixed by who waits and for which attempt.
fn lengthen(delay: Duration, jitter: f64, failures: u32, delivery: DeliveryId) -> Duration {
    if jitter == 0.0 {
        return delay;
    }
    let mut hash = Sha256::new();
    hash.update(delivery.as_uuid().as_bytes());
    hash.update(failures.to_be_bytes());
    let hash = hash.finalize();
    let draw = u32::from_be_bytes(hash[..4].try_into().expect("a SHA-256 hash has 32 bytes"));
    let share = f64::from(draw) / f64::from(u32::MAX);
    delay + from_millis_rounded(as_exact_millis(delay) * jitter * share)
}

/// Factor and jitter are kept to the millionth: so few digits survive being written as text and read back, where a full
/// `f64` may come back as its neighbour, and two dispatchers would disagree about a millisecond.
fn to_millionths(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[allow(clippy::cast_precision_loss, reason = "a delay has at most 3.2e10 ms, far below 2^53")]
fn as_exact_millis(delay: Duration) -> f64 {
    delay.as_millis() as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 3.2e10 by construction")]
fn from_millis_rounded(millis: f64) -> Duration {
    Duration::from_millis(millis.round() as u64)
}

/// A policy as stores keep it. Reading one back goes through the same checks as making one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schedule_ms: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exponential: Option<StoredExponential>,
    max_attempts: u32,
    #[serde(default)]
    jitter: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredExponential {
    initial_ms: u64,
    factor: f64,
    max_ms: u64,
}

fn as_stored_millis(delay: Duration) -> u64 {
    u64::try_from(delay.as_millis()).expect("a checked delay is at most 365 days")
}

impl From<RetryPolicy> for StoredPolicy {
    fn from(policy: RetryPolicy) -> Self {
        let (schedule_ms, exponential) = match policy.backoff {
            Backoff::Schedule(delays) => (Some(delays.into_iter().map(as_stored_millis).collect()), None),
            Backoff::Exponential { initial, factor, max } => {
                let initial_ms = as_stored_millis(initial);
                (None, Some(StoredExponential { initial_ms, factor, max_ms: as_stored_millis(max) }))
            }
        };
        Self { schedule_ms, exponential, max_attempts: policy.max_attempts.get(), jitter: policy.jitter }
    }
}

impl TryFrom<StoredPolicy> for RetryPolicy {
    type Error = Refusal;

    fn try_from(stored: StoredPolicy) -> Result<Self, Refusal> {
        let policy = match (stored.schedule_ms, stored.exponential) {
            (Some(delays), None) => {
                let delays: Vec<Duration> = delays.into_iter().map(Duration::from_millis).collect();
                Self::schedule(delays, stored.max_attempts)?
            }
            (None, Some(StoredExponential { initial_ms, factor, max_ms })) => {
                let (initial, max) = (Duration::from_millis(initial_ms), Duration::from_millis(max_ms));
                Self::exponential(initial, factor, max, stored.max_attempts)?
            }
            _ => {
                return Err(Refusal::new(
                    "retry_policy_ambiguous",
                    "retry_policy",
                    "a retry policy has either `schedule_ms` or `exponential`",
                ));
            }
        };
        policy.with_jitter(stored.jitter)
    }
}
