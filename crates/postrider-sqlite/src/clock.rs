//! The store's time, and the identifiers that are minted from it.
//!
//! On an embedded database the machine's clock is the database's clock. Every unit of work reads it once, on the writer
//! thread, so that all that one settle writes carries one instant. Tests may stop it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use uuid::{ContextV7, Uuid};

/// An instant as the database keeps it: microseconds since 1970.
pub(crate) type Micros = i64;

/// The value that says that the clock runs; no instant that [`Timestamp`] can express is as early.
const RUNNING: Micros = Micros::MIN;

#[derive(Debug)]
pub(crate) struct Clock {
    frozen_at: AtomicI64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { frozen_at: AtomicI64::new(RUNNING) }
    }
}

impl Clock {
    pub(crate) fn freeze(&self, at: Option<Timestamp>) {
        self.frozen_at.store(at.map_or(RUNNING, Timestamp::as_microsecond), Ordering::SeqCst);
    }

    fn frozen_at(&self) -> Option<Micros> {
        Some(self.frozen_at.load(Ordering::SeqCst)).filter(|at| *at != RUNNING)
    }

    pub(crate) fn now(&self) -> Micros {
        self.frozen_at().unwrap_or_else(|| Timestamp::now().as_microsecond())
    }
}

/// Mints identifiers that sort by time, and within a millisecond by the order of minting.
///
/// A clock that steps back does not take the identifiers with it; one that a test has set does, since a test that
/// travels wants identifiers of the time that it travelled to.
#[derive(Debug)]
pub(crate) struct Mint {
    context: ContextV7,
    frozen_at: Option<Micros>,
}

impl Default for Mint {
    fn default() -> Self {
        Self { context: ContextV7::new(), frozen_at: None }
    }
}

impl Mint {
    pub(crate) fn mint(&mut self, clock: &Clock, now: Micros) -> Uuid {
        let frozen_at = clock.frozen_at();
        if frozen_at != self.frozen_at {
            *self = Self { context: ContextV7::new(), frozen_at };
        }
        let now = u64::try_from(now).unwrap_or_default();
        let nanoseconds = u32::try_from(now % 1_000_000 * 1000).expect("less than a second");
        Uuid::new_v7(uuid::Timestamp::from_unix(&self.context, now / 1_000_000, nanoseconds))
    }
}

/// The instant `duration` after `at`; the last instant that can be expressed, when it would be later.
pub(crate) fn after(at: Micros, duration: Duration) -> Micros {
    let micros = Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX);
    at.saturating_add(micros).min(Timestamp::MAX.as_microsecond())
}

/// The instant `duration` before `at`.
pub(crate) fn before(at: Micros, duration: Duration) -> Micros {
    let micros = Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX);
    at.saturating_sub(micros).max(Timestamp::MIN.as_microsecond())
}

/// How long it is from `earlier` to `later`; nothing when it is the other way round.
pub(crate) fn between(earlier: Micros, later: Micros) -> Duration {
    Duration::from_micros(u64::try_from(later.saturating_sub(earlier)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_sort_in_the_order_of_minting_also_when_time_stands_still() {
        let (clock, mut mint) = (Clock::default(), Mint::default());
        clock.freeze(Some("2031-05-01T12:00:00Z".parse().unwrap()));
        let ids: Vec<_> = (0..1000).map(|_| mint.mint(&clock, clock.now())).collect();
        assert!(ids.is_sorted() && ids[0] != ids[999]);
        let (seconds, _) = ids[0].get_timestamp().unwrap().to_unix();
        assert_eq!(i64::try_from(seconds * 1_000_000).unwrap(), clock.now());
    }

    #[test]
    fn identifiers_follow_a_clock_that_a_test_sets_back() {
        let (clock, mut mint) = (Clock::default(), Mint::default());
        clock.freeze(Some("2031-05-01T12:00:00Z".parse().unwrap()));
        let later = mint.mint(&clock, clock.now());
        clock.freeze(Some("2030-05-01T12:00:00Z".parse().unwrap()));
        assert!(mint.mint(&clock, clock.now()) < later);
    }

    #[test]
    fn instants_stay_within_what_can_be_expressed() {
        assert_eq!(after(5, Duration::from_micros(7)), 12);
        assert_eq!(after(5, Duration::MAX), Timestamp::MAX.as_microsecond());
        assert_eq!(before(5, Duration::MAX), Timestamp::MIN.as_microsecond());
        assert_eq!(between(5, 12), Duration::from_micros(7));
        assert_eq!(between(12, 5), Duration::ZERO);
    }
}
