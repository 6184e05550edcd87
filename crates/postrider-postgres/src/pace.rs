//! How much is claimed: whether being woken is worth what it costs those who enqueue.
//!
//! NOTIFY takes a lock that serialises the commits of a database, each with its wait for the disk. Where much is enqueued by
//! and by, that would bound it, and whoever claims all the time need not be woken. So beyond a rate the dispatcher looks by
//! itself, and below a lower one it is woken again.

use std::time::Duration;

use tokio::time::Instant;

/// Over how long deliveries are counted, with those of longer ago counting less and less.
const MEMORY: Duration = Duration::from_millis(100);
/// From how many deliveries per second on it is busy.
const BUSY_FROM: f64 = 400.0;
/// Below how many it is not any more.
const QUIET_BELOW: f64 = 200.0;
/// How soon it looks again after it has found something.
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// It is not busy any more when it would look later than this.
const LAST_BUSY_LOOK: Duration = Duration::from_millis(16);
/// It does not look by itself any more when it would do so later than this.
const LAST_LOOK: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// How many per second, when something was last counted.
    rate: f64,
    counted_at: Option<Instant>,
    is_busy: bool,
    /// After how long to look although nobody has called, if it was busy not long ago.
    look_after: Option<Duration>,
}

impl Pace {
    /// A claim took so many.
    pub(crate) fn took(&mut self, count: usize, now: Instant) {
        #[expect(clippy::cast_precision_loss, reason = "a claim takes hundreds")]
        let added = count as f64 / MEMORY.as_secs_f64();
        self.rate = self.rate_at(now) + added;
        self.counted_at = Some(now);
        self.is_busy |= self.rate >= BUSY_FROM;
        if self.is_busy && count > 0 {
            self.look_after = Some(FIRST_LOOK);
        }
    }

    /// It has waited as long as [`Self::look_after`] says. If there is something, it says so by [`Self::took`].
    pub(crate) fn looks(&mut self) {
        self.look_after = self.look_after.map(|after| after * 2).filter(|after| *after <= LAST_LOOK);
    }

    pub(crate) const fn look_after(&self) -> Option<Duration> {
        self.look_after
    }

    pub(crate) fn is_busy(&mut self, now: Instant) -> bool {
        let has_found = self.look_after.is_some_and(|after| after <= LAST_BUSY_LOOK);
        self.is_busy &= has_found && self.rate_at(now) >= QUIET_BELOW;
        self.is_busy
    }

    fn rate_at(&self, now: Instant) -> f64 {
        let Some(counted_at) = self.counted_at else { return 0.0 };
        let elapsed = now.saturating_duration_since(counted_at);
        self.rate * (-elapsed.div_duration_f64(MEMORY)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it says of deliveries that come one by one, so many per second, for a second.
    fn is_busy_at(per_second: u32) -> bool {
        let (mut pace, began) = (Pace::default(), Instant::now());
        let mut now = began;
        for number in 1..=per_second {
            now = began + Duration::from_secs(1) / per_second * number;
            pace.took(1, now);
        }
        pace.is_busy(now)
    }

    #[test]
    fn many_per_second_are_busy_and_few_are_not() {
        assert!(!Pace::default().is_busy(Instant::now()));
        assert!(!is_busy_at(100));
        assert!(!is_busy_at(300));
        assert!(is_busy_at(500));
        assert!(is_busy_at(2000));
    }

    #[test]
    fn a_batch_is_as_good_as_many_claims() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.took(50, now);
        assert!(pace.is_busy(now));
    }

    #[test]
    fn it_stays_busy_for_a_while_and_then_is_quiet() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.took(50, now);
        assert!(pace.is_busy(now + MEMORY / 2));
        assert!(!pace.is_busy(now + MEMORY));
        pace.took(10, now + MEMORY);
        assert!((QUIET_BELOW..BUSY_FROM).contains(&pace.rate));
        assert!(!pace.is_busy(now + MEMORY), "between the two rates it stays as it is");
    }

    #[test]
    fn whoever_looks_in_vain_is_not_busy_for_long_and_looks_less_and_less() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.took(5_000, now);
        pace.looks();
        pace.took(1, now);
        assert_eq!(pace.look_after(), Some(FIRST_LOOK), "there was something");
        let mut looks = Vec::new();
        while let Some(after) = pace.look_after() {
            looks.push((after.as_millis(), pace.is_busy(now)));
            pace.looks();
            pace.took(0, now);
        }
        let is_busy_at = [2, 4, 8, 16].map(|after| (after, true));
        let is_quiet_at = [32, 64, 128, 256, 512].map(|after| (after, false));
        assert_eq!(looks, [is_busy_at.as_slice(), &is_quiet_at].concat());
    }

    #[test]
    fn whoever_was_never_busy_does_not_look() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        pace.took(1, now);
        assert_eq!(pace.look_after(), None);
    }
}
