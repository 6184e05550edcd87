//! What a dispatcher did: counted per active period, told once when the period ends.

use std::time::{Duration, Instant};

use crate::outcome::{Outcome, OutcomeKind, Verdict};

/// Counts of what a dispatcher did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Deliveries taken under a lease.
    pub claimed: u64,
    /// Settled as delivered.
    pub delivered: u64,
    /// Settled as failed, with another attempt scheduled.
    pub retried: u64,
    /// Settled as dead.
    pub dead: u64,
    /// Attempts whose lease was gone when they were to be settled.
    pub lost: u64,
    /// Given back unused.
    pub released: u64,
    /// Calls to the store that failed.
    pub errors: u64,
    /// Leases that were not kept: gone when they were to be renewed, run out because the store did not renew them, or given
    /// up at their attempt's hard deadline.
    pub renewals_lost: u64,
    /// Renewals of a lease that failed, and that a later one may have made good.
    pub renewals_failed: u64,
    /// Events that retention removed.
    pub removed_events: u64,
    /// Attempts answered with a 2xx.
    pub responses_2xx: u64,
    /// With a 3xx.
    pub responses_3xx: u64,
    /// With a 4xx.
    pub responses_4xx: u64,
    /// With a 5xx.
    pub responses_5xx: u64,
    /// Attempts without an answer: timeout, connection, TLS, name, blocked, protocol.
    pub network_failures: u64,
    /// Attempts by outcome; see [`Totals::outcome`].
    outcomes: [u64; OutcomeKind::ALL.len()],
    /// How many attempts took up to each of [`Totals::LATENCY_BOUNDS`] and longer than the bound before; the last is for
    /// those that took longer than all of them.
    pub latency_buckets: [u64; Totals::LATENCY_BOUNDS.len() + 1],
    /// Time spent in attempts, in all.
    pub latency_sum: Duration,
    /// The longest attempt.
    pub latency_max: Duration,
    /// The longest attempt that no summary has told of yet. A maximum cannot be taken apart by subtraction.
    pub(crate) latency_max_untold: Duration,
}

impl Totals {
    /// The upper bounds of the latency's histogram, each included.
    pub const LATENCY_BOUNDS: [Duration; 13] = [
        Duration::from_millis(5),
        Duration::from_millis(10),
        Duration::from_millis(25),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(250),
        Duration::from_millis(500),
        Duration::from_secs(1),
        Duration::from_millis(2500),
        Duration::from_secs(5),
        Duration::from_secs(10),
        Duration::from_secs(30),
        Duration::from_secs(60),
    ];

    /// Attempts made.
    pub fn attempts(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Attempts with this outcome.
    pub fn outcome(&self, kind: OutcomeKind) -> u64 {
        self.outcomes[kind as usize]
    }

    /// Time of an attempt on average.
    pub fn latency_mean(&self) -> Duration {
        let attempts = u32::try_from(self.attempts()).unwrap_or(u32::MAX);
        self.latency_sum.checked_div(attempts).unwrap_or_default()
    }

    pub(crate) fn attempted(&mut self, outcome: &Outcome, took: Duration) {
        match outcome.status_code() {
            Some(200..=299) => self.responses_2xx += 1,
            Some(500..) => self.responses_5xx += 1,
            Some(400..=499) => self.responses_4xx += 1,
            Some(_) => self.responses_3xx += 1,
            None => self.network_failures += 1,
        }
        self.outcomes[outcome.kind() as usize] += 1;
        self.latency_buckets[Self::LATENCY_BOUNDS.partition_point(|bound| *bound < took)] += 1;
        self.latency_sum += took;
        self.latency_max = self.latency_max.max(took);
        self.latency_max_untold = self.latency_max_untold.max(took);
    }

    pub(crate) fn settled(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Delivered => self.delivered += 1,
            Verdict::Retry { .. } => self.retried += 1,
            Verdict::Dead => self.dead += 1,
        }
    }

    fn since(&self, earlier: &Self) -> Self {
        Self {
            claimed: self.claimed - earlier.claimed,
            delivered: self.delivered - earlier.delivered,
            retried: self.retried - earlier.retried,
            dead: self.dead - earlier.dead,
            lost: self.lost - earlier.lost,
            released: self.released - earlier.released,
            errors: self.errors - earlier.errors,
            renewals_lost: self.renewals_lost - earlier.renewals_lost,
            renewals_failed: self.renewals_failed - earlier.renewals_failed,
            removed_events: self.removed_events - earlier.removed_events,
            responses_2xx: self.responses_2xx - earlier.responses_2xx,
            responses_3xx: self.responses_3xx - earlier.responses_3xx,
            responses_4xx: self.responses_4xx - earlier.responses_4xx,
            responses_5xx: self.responses_5xx - earlier.responses_5xx,
            network_failures: self.network_failures - earlier.network_failures,
            outcomes: std::array::from_fn(|kind| self.outcomes[kind] - earlier.outcomes[kind]),
            latency_buckets: std::array::from_fn(|bound| self.latency_buckets[bound] - earlier.latency_buckets[bound]),
            latency_sum: self.latency_sum.saturating_sub(earlier.latency_sum),
            latency_max: self.latency_max_untold,
            latency_max_untold: Duration::ZERO,
        }
    }
}

/// Turns totals into one summary per active period, and one a minute while a period goes on.
#[derive(Debug)]
pub(crate) struct Periods {
    told: Totals,
    began: Option<Instant>,
}

impl Periods {
    const LONGEST: Duration = Duration::from_mins(1);

    pub(crate) fn new() -> Self {
        Self { told: Totals::default(), began: None }
    }

    /// Called now and then. Gives the summary to tell, with the period's length, if there is one.
    pub(crate) fn observe(&mut self, totals: &mut Totals, idle: bool, now: Instant) -> Option<(Totals, Duration)> {
        let period = totals.since(&self.told);
        // A maximum is of another period's attempts, and what is removed is told by whoever removes it.
        let nothing =
            Totals { latency_max: period.latency_max, removed_events: period.removed_events, ..Totals::default() };
        let active = period != nothing;
        if !active {
            return None;
        }
        let began = *self.began.get_or_insert(now);
        if !idle && now - began < Self::LONGEST {
            return None;
        }
        self.began = None;
        totals.latency_max_untold = Duration::ZERO;
        self.told = *totals;
        Some((period, now - began))
    }
}

/// Tells totals in one line of the log.
pub(crate) fn tell(message: &str, totals: &Totals, length: Option<Duration>) {
    tracing::info!(
        claimed = totals.claimed,
        delivered = totals.delivered,
        retried = totals.retried,
        dead = totals.dead,
        lost = totals.lost,
        released = totals.released,
        errors = totals.errors,
        renewals_lost = totals.renewals_lost,
        responses_2xx = totals.responses_2xx,
        responses_3xx = totals.responses_3xx,
        responses_4xx = totals.responses_4xx,
        responses_5xx = totals.responses_5xx,
        network_failures = totals.network_failures,
        latency_mean_ms = in_millis(totals.latency_mean()),
        latency_max_ms = in_millis(totals.latency_max),
        period_ms = length.map(in_millis),
        "{message}"
    );
}

/// Milliseconds, to a hundredth: for people who read logs.
fn in_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_told_once_per_active_period_and_never_when_idle() {
        let mut periods = Periods::new();
        let mut totals = Totals::default();
        let start = Instant::now();
        assert_eq!(periods.observe(&mut totals, true, start), None, "nothing happened");

        totals.claimed = 3;
        totals.settled(Verdict::Delivered);
        let timeout = Outcome::Timeout { during: crate::outcome::Phase::Waiting };
        totals.attempted(&timeout, Duration::from_millis(40));
        assert_eq!(periods.observe(&mut totals, false, start), None, "the period goes on");
        let (told, length) = periods.observe(&mut totals, true, start + Duration::from_secs(2)).unwrap();
        assert_eq!((told.claimed, told.delivered, told.network_failures), (3, 1, 1));
        assert_eq!((told.latency_max, length), (Duration::from_millis(40), Duration::from_secs(2)));
        assert_eq!(periods.observe(&mut totals, true, start + Duration::from_secs(3)), None, "told once");

        totals.claimed = 10;
        assert_eq!(periods.observe(&mut totals, false, start + Duration::from_secs(4)), None);
        let (told, _) = periods.observe(&mut totals, false, start + Duration::from_secs(65)).unwrap();
        assert_eq!(told.claimed, 7, "a long period is told every minute, each time what is new");
        assert_eq!(told.latency_max, Duration::ZERO, "the long attempt belongs to the period before");
        assert_eq!(totals.latency_max, Duration::from_millis(40), "and to the dispatcher's whole life");
    }

    #[test]
    fn attempts_are_counted_by_outcome_and_by_how_long_they_took() {
        let mut totals = Totals::default();
        let refused = Outcome::Connect { detail: "connection refused".to_owned() };
        for millis in [0, 5, 6, 59_999, 60_000, 60_001, 3_600_000] {
            totals.attempted(&refused, Duration::from_millis(millis));
        }
        totals.attempted(&Outcome::Dns { detail: "no such name".to_owned() }, Duration::from_millis(300));
        assert_eq!((totals.outcome(OutcomeKind::Connect), totals.outcome(OutcomeKind::Dns)), (7, 1));
        assert_eq!((totals.outcome(OutcomeKind::Response), totals.attempts()), (0, 8));
        assert_eq!(totals.latency_buckets, [2, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 2]);
        assert!(Totals::LATENCY_BOUNDS.is_sorted());
        for (place, kind) in OutcomeKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "each has a place of its own");
        }
    }
}
