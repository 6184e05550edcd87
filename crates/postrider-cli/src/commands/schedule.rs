//! `postrider schedule`: the attempts with their times.

use std::time::Duration;

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use postrider::RetryPolicy;
use serde::Serialize;

use crate::commands::Context;
use crate::config::{Flags, Key};
use crate::failure::{Exit, Failure};
use crate::output;
use postrider::duration;

const EXAMPLES: &str = "\
Without options it is the configured schedule that is printed.

Examples:
  postrider schedule
  postrider schedule --schedule 1s,10s,1m --max-attempts 6
  postrider schedule --exponential 5s,2,1h --max-attempts 12 --jitter 0.2";

/// Print the attempts of a retry schedule with their times
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The delays between attempts, such as `30s,2m,10m,1h,6h`; the last one repeats
    #[arg(long, value_name = "DELAYS", alias = "retry-schedule", conflicts_with = "exponential")]
    schedule: Option<String>,
    /// The first delay, the factor from each to the next, and the longest delay, such as `5s,2,1h`
    #[arg(long, value_name = "INITIAL,FACTOR,MAX")]
    exponential: Option<String>,
    /// How many attempts there are at most
    #[arg(long, value_name = "COUNT")]
    max_attempts: Option<String>,
    /// Lengthen each delay by up to this share of it, 0 to 1
    #[arg(long, value_name = "SHARE", alias = "retry-jitter")]
    jitter: Option<String>,
}

#[derive(Serialize)]
struct Step {
    attempt: u32,
    /// After the one before.
    delay: Option<String>,
    delay_ms: Option<u64>,
    /// After the first attempt, if every delay is as short as it can be.
    offset_ms: u64,
    /// The same with the longest jitter.
    latest_offset_ms: u64,
    at: Timestamp,
}

pub(crate) fn run(arguments: Arguments, context: &Context) -> Result<(), Failure> {
    let mut flags = Flags::new();
    flags.extend(arguments.schedule.map(|text| (Key::RetrySchedule, text)));
    flags.extend(arguments.max_attempts.map(|text| (Key::MaxAttempts, text)));
    flags.extend(arguments.jitter.map(|text| (Key::RetryJitter, text)));
    let mut policy = context.config(flags)?.retry_policy;
    if let Some(text) = &arguments.exponential {
        policy = exponential(text, &policy)?;
    }
    let steps = steps(&policy, Timestamp::now());
    let jitter = policy.jitter();
    if context.output.json {
        return context.output.document(&serde_json::json!({
            "max_attempts": policy.max_attempts(),
            "jitter": jitter,
            "attempts": steps,
        }));
    }
    let rows = steps.iter().map(|step| {
        let (earliest, latest) = (Duration::from_millis(step.offset_ms), Duration::from_millis(step.latest_offset_ms));
        let offset = match step.attempt {
            1 => "at once".to_owned(),
            _ if earliest == latest => duration::format(earliest),
            _ => format!("{} to {}", duration::format(earliest), duration::format(latest)),
        };
        vec![
            step.attempt.to_string().into(),
            step.delay.as_ref().map_or_else(String::new, |delay| format!("+{delay}")).into(),
            offset.into(),
            output::instant(step.at).into(),
        ]
    });
    context.output.table(&["attempt", "delay", "after the first", "if it began now"], rows)?;
    if jitter > 0.0 {
        context.output.line(format!("Each delay is lengthened by up to {}% of itself.", jitter * 100.0))?;
    }
    context.output.line(format!(
        "After failure {} the delivery is a dead letter, until an operator retries it.",
        policy.max_attempts()
    ))
}

fn exponential(text: &str, base: &RetryPolicy) -> Result<RetryPolicy, Failure> {
    let refuse = |reason: String| {
        let message = format!("--exponential `{}` is refused: {reason}", output::plain(text, 64));
        Failure::new(Exit::Refused, "retry_exponential_invalid", message)
            .hint("give the first delay, the factor and the longest delay, such as 5s,2,1h")
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [initial, factor, max] = parts[..] else {
        return Err(refuse(format!("it has {} parts, not 3", parts.len())));
    };
    let initial = duration::parse(initial).map_err(|reason| refuse(format!("`{initial}`: {reason}")))?;
    let max = duration::parse(max).map_err(|reason| refuse(format!("`{max}`: {reason}")))?;
    let factor: f64 = factor.parse().map_err(|_| refuse(format!("`{factor}` is not a number")))?;
    let policy = RetryPolicy::exponential(initial, factor, max, base.max_attempts())
        .and_then(|policy| policy.with_jitter(base.jitter()))?;
    Ok(policy)
}

fn steps(policy: &RetryPolicy, now: Timestamp) -> Vec<Step> {
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (mut earliest, mut latest) = (Duration::ZERO, Duration::ZERO);
    let delays = std::iter::once(None).chain(policy.delays().map(Some));
    let mut steps = Vec::new();
    for (attempt, delay) in (1..).zip(delays) {
        let waited = delay.unwrap_or_default();
        earliest += waited;
        latest += waited + waited.mul_f64(policy.jitter());
        let at = SignedDuration::try_from(earliest).ok().and_then(|offset| now.checked_add(offset).ok());
        steps.push(Step {
            attempt,
            delay: delay.map(duration::format),
            delay_ms: delay.map(milliseconds),
            offset_ms: milliseconds(earliest),
            latest_offset_ms: milliseconds(latest),
            at: at.unwrap_or(Timestamp::MAX),
        });
    }
    steps
}
