//! What the last quarter of an hour was like, for plots.
//!
//! Announcements are counted into steps of five seconds; what can only be looked at (how much waits) is the last look of each
//! step. A rate is shown over the minute before, as the overview does it, which is also what makes a plot calm.

use std::collections::VecDeque;

use jiff::Timestamp;
use postrider::Fact;

use crate::api::overview::Overview;

/// How long one step is.
const STEP_SECONDS: i64 = 5;

/// How many there are: a quarter of an hour.
pub(super) const STEPS: usize = 180;

/// How many make a minute.
const MINUTE: usize = 12;

/// Of this many deliveries it is remembered how long they took.
const MOST_LATENCIES: usize = 100;

/// What happened within one step, and what was seen at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Step {
    delivered: u32,
    failed: u32,
    dead: u32,
    seen: Option<Seen>,
    latency: Option<Latency>,
}

/// What waited.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Seen {
    due: u64,
    in_flight: u64,
    oldest_due_ms: u64,
}

/// How long deliveries took from being enqueued to being acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Latency {
    pub(super) median_ms: u64,
    pub(super) p95_ms: u64,
}

/// The last quarter of an hour of one tenant, or of all.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// The newest step's number, counted from 1970.
    newest: i64,
    steps: VecDeque<Step>,
    /// The first step of which everything is known.
    known_from: i64,
    latencies: VecDeque<u64>,
}

/// What can be drawn: one value for each step, none where nothing is known.
pub(super) type Values = Vec<Option<f64>>;

impl History {
    /// Nothing has been seen yet; what comes is complete from `known_from` on, or from always.
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            newest: number(now),
            steps: VecDeque::from([Step::default(); STEPS]),
            known_from: i64::MIN,
            latencies: VecDeque::new(),
        }
    }

    /// Before this instant there was more than was read.
    pub(super) fn known_from(&mut self, at: Timestamp) {
        self.known_from = number(at);
    }

    /// Time passes.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let passed = number(now) - self.newest;
        for _ in 0..passed.clamp(0, STEPS.try_into().unwrap_or(i64::MAX)) {
            self.steps.pop_front();
            self.steps.push_back(Step::default());
        }
        self.newest += passed.max(0);
    }

    /// Something was announced.
    pub(super) fn tell(&mut self, fact: Fact, at: Timestamp) {
        // The database's clock may be a little ahead of ours.
        let back = usize::try_from((self.newest - number(at)).max(0)).unwrap_or(usize::MAX);
        let Some(step) = (STEPS - 1).checked_sub(back).and_then(|place| self.steps.get_mut(place)) else { return };
        match fact {
            Fact::Delivered => step.delivered += 1,
            Fact::Failed => step.failed += 1,
            Fact::Dead => step.dead += 1,
            _ => {}
        }
    }

    /// What waits now.
    pub(super) fn see(&mut self, overview: &Overview) {
        let latency = self.latency();
        if let Some(step) = self.steps.back_mut() {
            step.seen = Some(Seen {
                due: overview.due,
                in_flight: overview.in_flight,
                oldest_due_ms: overview.oldest_due_age_ms.unwrap_or_default(),
            });
            step.latency = latency;
        }
    }

    /// A delivery took this long.
    pub(super) fn took(&mut self, milliseconds: u64) {
        if self.latencies.len() >= MOST_LATENCIES {
            self.latencies.pop_front();
        }
        self.latencies.push_back(milliseconds);
    }

    /// How long the latest deliveries took.
    pub(super) fn latency(&self) -> Option<Latency> {
        let mut sorted: Vec<u64> = self.latencies.iter().copied().collect();
        sorted.sort_unstable();
        let at =
            |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied();
        Some(Latency { median_ms: at(50)?, p95_ms: at(95)? })
    }

    /// Per minute: delivered, failed, dead.
    pub(super) fn rates(&self) -> [Values; 3] {
        [|step: &Step| step.delivered, |step: &Step| step.failed, |step: &Step| step.dead]
            .map(|count| self.minutes(|steps| Some(f64::from(steps.iter().map(count).sum::<u32>()))))
    }

    /// How many of a hundred attempts went well; none where there were none.
    pub(super) fn success(&self) -> Values {
        self.minutes(|steps| {
            let good: u32 = steps.iter().map(|step| step.delivered).sum();
            let all: u32 = steps.iter().map(|step| step.delivered + step.failed + step.dead).sum();
            (all > 0).then(|| 100.0 * f64::from(good) / f64::from(all))
        })
    }

    pub(super) fn due(&self) -> Values {
        self.seen(|seen| seen.due)
    }

    pub(super) fn in_flight(&self) -> Values {
        self.seen(|seen| seen.in_flight)
    }

    pub(super) fn oldest_due_ms(&self) -> Values {
        self.seen(|seen| seen.oldest_due_ms)
    }

    /// Median and 95th percentile.
    pub(super) fn latencies_ms(&self) -> [Values; 2] {
        [|latency: Latency| latency.median_ms, |latency: Latency| latency.p95_ms]
            .map(|pick| self.steps.iter().map(|step| step.latency.map(pick).map(float)).collect())
    }

    fn seen(&self, pick: impl Fn(Seen) -> u64) -> Values {
        self.steps.iter().map(|step| step.seen.map(&pick).map(float)).collect()
    }

    /// Something about each step and the minute that it ends.
    fn minutes(&self, count: impl Fn(&[Step]) -> Option<f64>) -> Values {
        let steps: Vec<Step> = self.steps.iter().copied().collect();
        let oldest = self.newest - i64::try_from(STEPS).unwrap_or(i64::MAX) + 1;
        let known = |place: usize| oldest + i64::try_from(place).unwrap_or(i64::MAX) >= self.known_from;
        let value = |place: usize| count(&steps[(place + 1).saturating_sub(MINUTE)..=place]);
        (0..STEPS).map(|place| known(place).then(|| value(place)).flatten()).collect()
    }
}

fn number(at: Timestamp) -> i64 {
    at.as_second().div_euclid(STEP_SECONDS)
}

#[expect(clippy::cast_precision_loss, reason = "a plot shows no more than three digits")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn now() -> Timestamp {
        "2026-02-21T12:00:00Z".parse().unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        now() + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn facts_count_for_the_minute_after_them() {
        let mut history = History::new(now());
        history.tell(Fact::Delivered, after(-300));
        history.tell(Fact::Delivered, after(-300));
        history.tell(Fact::Failed, after(2));
        history.tell(Fact::Dead, after(-3_600));
        let [delivered, failed, dead] = history.rates();
        let happened = delivered.iter().filter(|value| **value == Some(2.0)).count();
        assert_eq!((happened, delivered.len(), delivered[STEPS - 1]), (MINUTE, STEPS, Some(0.0)));
        assert_eq!(failed[STEPS - 1], Some(1.0), "a clock that is ahead");
        assert!(dead.iter().all(|value| *value == Some(0.0)), "an hour ago is too long ago");
        let success = history.success();
        assert_eq!((success[STEPS - 1], success[0]), (Some(0.0), None));
    }

    #[test]
    fn time_passes_and_what_is_old_goes() {
        let mut history = History::new(now());
        history.tell(Fact::Delivered, now());
        history.advance(after(60));
        assert_eq!(history.rates()[0][STEPS - 1], Some(0.0));
        assert_eq!(history.rates()[0][STEPS - 2], Some(1.0));
        history.advance(after(10_000));
        assert!(history.rates()[0].iter().all(|value| *value == Some(0.0)));
        history.advance(after(0));
        history.tell(Fact::Delivered, after(10_000));
        assert_eq!(history.rates()[0][STEPS - 1], Some(1.0), "a clock that goes back changes nothing");
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        let mut history = History::new(now());
        history.known_from(after(-60));
        let [delivered, ..] = history.rates();
        assert_eq!((delivered[STEPS - 1], delivered[STEPS - 13], delivered[STEPS - 14]), (Some(0.0), Some(0.0), None));
        assert!(history.due().iter().all(Option::is_none));
    }

    #[test]
    fn latencies_are_those_of_the_latest() {
        let mut history = History::new(now());
        assert_eq!(history.latency(), None);
        for milliseconds in 0..1_000 {
            history.took(milliseconds);
        }
        assert_eq!(history.latency(), Some(Latency { median_ms: 950, p95_ms: 995 }));
    }
}
