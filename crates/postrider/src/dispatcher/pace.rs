//! How many attempts are under way at once: as many as there are slots, or a few of them, whichever ends more.
//!
//! Slots are for receivers that take their time: with 512 of them, receivers that answer after a tenth of a second get five thousand
//! attempts a second. But where receivers answer at once, some dozens under way keep the processors busy. Hundreds end no sooner; they
//! wait for each other, and what each of them needs has left the processors' caches when its turn comes.
//! No figure that a dispatcher could look up tells the two apart: while attempts wait for each other they all take long, and
//! processors are busy for many reasons.
//!
//! So it is tried. While many are under way and more waits, here or in the store, it is counted how many end; then an eighth of the slots
//! may be used for a moment. If no fewer end, it stays at that for a while, and otherwise goes back, and waits longer each time before it
//! tries again. What counts is how many end in all lanes together, so nothing has to be known of receivers: if those that answer late come to
//! hold the few slots, fewer end, and all slots may be used again.
//!
//! Where nothing waits, nothing is tried: what comes one by one is sent at once.

use std::time::{Duration, Instant};

/// Fewer are not tried.
const FEWEST: u32 = 64;

/// What part of the slots is few.
const FEW: u32 = 8;

/// How long it is counted what ends.
const WINDOW: Duration = Duration::from_millis(150);

/// How long it may take until only a few are under way. What takes longer is not for few.
const LONGEST_LANDING: Duration = Duration::from_millis(50);

/// When it is counted again after too few ended for a landing as short as that, as they do while connections are made.
const SOON: Duration = Duration::from_millis(500);

/// Before a window is over it may be plain that a few are too few: if by then they have ended less than this part of what all ended.
const GLIMPSES: [(Duration, f64); 2] = [(Duration::from_millis(12), 0.3), (Duration::from_millis(30), FAR_FEWER)];

/// What is far fewer, of what ended with all slots.
const FAR_FEWER: f64 = 0.7;

/// What a few must end, of what all ended. They cost less if all else is the same.
const FEW_MUST_END: f64 = 0.98;

/// How long it stays at a few before all are counted again.
const LONGEST_FEW: Duration = Duration::from_secs(10);

/// After how long a few are tried again that were too few: at first, and at the longest.
const PATIENCE: Duration = Duration::from_secs(3);
const LONGEST_PATIENCE: Duration = Duration::from_secs(60);

/// What is seen when an attempt has ended, or at a look in between.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    pub(super) now: Instant,
    pub(super) ended: u32,
    /// How many are under way.
    pub(super) at_work: u32,
    /// Something waits here that might begin if more were allowed.
    pub(super) holds_up: bool,
    /// Something waits in the store.
    pub(super) more_waits: bool,
}

#[derive(Debug)]
pub(super) struct Pace {
    slots: u32,
    few: u32,
    stage: Stage,
    patience: Duration,
    not_before: Option<Instant>,
}

/// What may be under way, and what is counted. `all` is how many ended each second with all slots.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// All slots may be used, and nothing is counted.
    All,
    /// All slots may be used, many are, and it is counted what ends.
    AllCounted(Window),
    /// More than a few are under way since before a few were to be tried.
    Landing { window: Window, all: f64 },
    /// A few are tried.
    Tried { window: Window, all: f64 },
    /// A few are enough.
    Few { window: Window, all: f64, since: Instant },
}

/// A time in which it is counted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Window {
    start: Instant,
    ended: u32,
    holds_up: bool,
}

impl Window {
    fn new(start: Instant) -> Self {
        Self { start, ended: 0, holds_up: false }
    }

    /// Takes note of what is seen, and returns how long it has counted.
    fn count(&mut self, sight: Sight) -> Duration {
        self.ended += sight.ended;
        self.holds_up |= sight.holds_up;
        sight.now.saturating_duration_since(self.start)
    }

    /// How many ended each second, in as long as this.
    fn rate(&self, passed: Duration) -> f64 {
        f64::from(self.ended) / passed.as_secs_f64()
    }

    /// Before the window is over: far fewer end than `all` a second.
    fn is_plainly_less(&self, passed: Duration, all: f64) -> bool {
        GLIMPSES.iter().any(|(after, share)| passed >= *after && self.rate(passed) < all * share)
    }
}

impl Pace {
    pub(super) fn new(slots: u32) -> Self {
        let few = (slots / FEW).max(FEWEST);
        Self { slots, few, stage: Stage::All, patience: PATIENCE, not_before: None }
    }

    /// One that has found a few to be enough, of which many ended.
    #[cfg(test)]
    pub(super) fn at_few(slots: u32, now: Instant) -> Self {
        Self { stage: Stage::Few { window: Window::new(now), all: 40_000.0, since: now }, ..Self::new(slots) }
    }

    /// How many may be under way.
    pub(super) fn limit(&self) -> u32 {
        match self.stage {
            Stage::All | Stage::AllCounted(_) => self.slots,
            Stage::Landing { .. } | Stage::Tried { .. } | Stage::Few { .. } => self.few.min(self.slots),
        }
    }

    /// Takes note of what is seen, which may change the limit.
    pub(super) fn observe(&mut self, sight: Sight) {
        let Sight { now, ended, at_work, holds_up, more_waits } = sight;
        match &mut self.stage {
            Stage::All => {
                let is_open = self.not_before.is_none_or(|at| now >= at);
                // A few must be far fewer.
                let are_many = at_work + ended >= self.few * 2;
                if is_open && are_many && (holds_up || more_waits) {
                    self.stage = Stage::AllCounted(Window::new(now));
                }
            }
            Stage::AllCounted(window) => {
                let passed = window.count(sight);
                if passed >= WINDOW {
                    let all = window.rate(passed);
                    if !(holds_up || more_waits) || at_work <= self.few {
                        self.stage = Stage::All;
                    } else if all * LONGEST_LANDING.as_secs_f64() < f64::from(at_work - self.few) {
                        self.stage = Stage::All;
                        self.not_before = Some(now + SOON);
                    } else {
                        self.stage = Stage::Landing { window: Window::new(now), all };
                    }
                }
            }
            Stage::Landing { window, all } => {
                let (passed, all) = (window.count(sight), *all);
                if at_work <= self.few {
                    self.stage = Stage::Tried { window: Window::new(now), all };
                } else if passed >= LONGEST_LANDING || window.is_plainly_less(passed, all) {
                    // What is left takes its time, or hangs.
                    self.put_off(now);
                }
            }
            Stage::Tried { window, all } => {
                let passed = window.count(sight);
                let (rate, all) = (window.rate(passed), *all);
                if window.is_plainly_less(passed, all) || passed >= WINDOW && rate < all * FEW_MUST_END {
                    self.put_off(now);
                } else if passed >= WINDOW {
                    self.patience = PATIENCE;
                    self.stage = Stage::Few { window: Window::new(now), all, since: now };
                }
            }
            Stage::Few { window, all, since } => {
                let passed = window.count(sight);
                if passed < WINDOW {
                    return;
                }
                let is_over = now.saturating_duration_since(*since) >= LONGEST_FEW;
                if !(window.holds_up || more_waits) || is_over {
                    self.stage = Stage::All;
                } else if window.rate(passed) < *all * FAR_FEWER {
                    self.put_off(now);
                } else {
                    *window = Window::new(now);
                }
            }
        }
    }

    /// A few were too few, or have become so.
    fn put_off(&mut self, now: Instant) {
        self.stage = Stage::All;
        self.not_before = Some(now + self.patience);
        self.patience = (self.patience * 2).min(LONGEST_PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const SLOTS: u32 = 512;

    /// Receivers that answer after so many milliseconds, on a machine that gets so many attempts done in each.
    struct Site {
        pace: Pace,
        answer_after: u32,
        capacity: u32,
        start: Instant,
        passed: u32,
        /// When those under way began.
        at_work: VecDeque<u32>,
        /// How many are under way besides, and never end.
        hanging: u32,
        /// That more than enough waits in line.
        is_busy: bool,
    }

    impl Site {
        fn new(answer_after: u32, capacity: u32) -> Self {
            let (pace, at_work) = (Pace::new(SLOTS), VecDeque::new());
            Self { pace, answer_after, capacity, start: Instant::now(), passed: 0, at_work, hanging: 0, is_busy: true }
        }

        /// Lets so many milliseconds pass. Returns how many attempts end.
        fn pass(&mut self, milliseconds: u32) -> u32 {
            (0..milliseconds).map(|_| self.pass_one()).sum()
        }

        fn pass_one(&mut self) -> u32 {
            self.passed += 1;
            let now = self.start + Duration::from_millis(u64::from(self.passed));
            let answered = self.at_work.iter().take_while(|began| **began + self.answer_after <= self.passed).count();
            let ended = u32::try_from(answered).expect("few").min(self.capacity);
            for _ in 0..ended {
                self.at_work.pop_front();
                let at_work = self.at_work();
                let holds_up = self.is_busy && at_work + 1 >= self.pace.limit();
                self.pace.observe(Sight { now, ended: 1, at_work, holds_up, more_waits: self.is_busy });
            }
            self.pace.observe(Sight {
                now,
                ended: 0,
                at_work: self.at_work(),
                holds_up: false,
                more_waits: self.is_busy,
            });
            while self.at_work() < if self.is_busy { self.pace.limit() } else { self.capacity.min(16) } {
                self.at_work.push_back(self.passed);
            }
            ended
        }

        fn at_work(&self) -> u32 {
            self.hanging + u32::try_from(self.at_work.len()).expect("as many as there are slots")
        }

        fn limit_after(&mut self, milliseconds: u32) -> u32 {
            self.pass(milliseconds);
            self.pace.limit()
        }
    }

    #[test]
    fn a_few_are_enough_for_receivers_that_answer_at_once() {
        let mut site = Site::new(1, 40);
        assert_eq!(site.limit_after(400), SLOTS / FEW);
        let limits: Vec<u32> = (0..600).map(|_| site.limit_after(100)).collect();
        let at_all = limits.iter().filter(|limit| **limit == SLOTS).count();
        assert!((6..20).contains(&at_all), "it is counted again every ten seconds, not only at first: {at_all} of 600");
    }

    #[test]
    fn trying_costs_receivers_that_answer_late_next_to_nothing() {
        for (answer_after, capacity) in [(5, 40), (20, 40), (20, 1_000), (60, 40), (100, 40), (1_000, 40)] {
            let mut site = Site::new(answer_after, capacity);
            site.pass(2_000);
            let ended = site.pass(60_000);
            let possible = 60_000 * capacity.min(SLOTS / answer_after);
            let share = f64::from(ended) / f64::from(possible);
            assert!(share > 0.99, "{share} of what is possible with {answer_after} ms");
        }
    }

    #[test]
    fn receivers_that_become_slow_get_all_slots_at_once() {
        let mut site = Site::new(1, 40);
        assert_eq!(site.limit_after(1_000), SLOTS / FEW);
        site.answer_after = 20;
        assert_eq!(site.limit_after(2 * 150 + 50), SLOTS);
        site.answer_after = 1;
        assert_eq!(site.limit_after(4_000), SLOTS / FEW, "it is tried again");
    }

    #[test]
    fn a_slow_start_puts_it_off_for_a_moment_only() {
        let mut site = Site::new(1, 5);
        assert_eq!(site.limit_after(1_000), SLOTS, "a landing would take too long");
        site.capacity = 40;
        assert_eq!(site.limit_after(1_000), SLOTS / FEW);
    }

    #[test]
    fn attempts_that_hang_take_nothing_from_the_others() {
        let mut site = Site::new(1, 40);
        assert_eq!(site.limit_after(1_000), SLOTS / FEW);
        // They are at work and never end, and what ends can only begin beside them.
        let hanging = SLOTS / FEW;
        let now = site.start + Duration::from_millis(u64::from(site.passed));
        for look in 1..=4 {
            let now = now + look * Duration::from_millis(100);
            site.pace.observe(Sight { now, ended: 0, at_work: hanging, holds_up: true, more_waits: true });
        }
        assert_eq!(site.pace.limit(), SLOTS);
    }

    #[test]
    fn where_more_hang_than_a_few_are_trying_is_soon_over() {
        let mut site = Site::new(1, 40);
        site.hanging = 2 * SLOTS / FEW;
        let ended = site.pass(10_000);
        assert!(ended > 397_000, "{ended} of 400,000, in three trials");
    }

    #[test]
    fn where_nothing_waits_all_slots_may_be_used() {
        let mut site = Site::new(1, 40);
        assert_eq!(site.limit_after(1_000), SLOTS / FEW);
        site.is_busy = false;
        assert_eq!(site.limit_after(400), SLOTS);
        assert_eq!(site.limit_after(10_000), SLOTS);
    }

    #[test]
    fn with_few_slots_nothing_is_tried() {
        let mut site = Site::new(1, 40);
        site.pace = Pace::new(2 * FEWEST - 1);
        assert!((0..100).all(|_| site.limit_after(50) == 2 * FEWEST - 1));
        let mut site = Site::new(1, 40);
        site.pace = Pace::new(2 * FEWEST);
        assert_eq!(site.limit_after(400), FEWEST);
    }
}
