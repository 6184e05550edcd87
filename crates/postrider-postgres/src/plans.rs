//! Plans that fit the size of their tables.
//!
//! A statement is planned once for a connection, for the tables as they are then, and anew when autovacuum has counted
//! them, a minute later or more. A plan that suits an empty table reads all of it, for each delivery: when retention has
//! emptied the tables, and then much is enqueued at once, the next claim would take minutes. So a statement says in its
//! text, which is what plans are kept by, for which sizes it is meant; and a claim looks at the sizes first, and takes
//! nothing if they have outgrown it. It is then sent again with the text for the larger ones.
//!
//! The sizes are classes, each four times as large as the one before, so that a connection has few plans.

use std::sync::atomic::{AtomicI64, Ordering};

use sqlx::AssertSqlSafe;

/// The smallest class: what is so small may be read through.
const SMALLEST: i64 = 16 * 8_192;
const STEP: i64 = 4;

/// How large the two tables are that deliveries are read from, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) deliveries: i64,
    pub(crate) events: i64,
}

impl Sizes {
    const fn fit(self, most: Self) -> bool {
        self.deliveries <= most.deliveries && self.events <= most.events
    }
}

/// Up to which sizes the plans are meant that are in use.
#[derive(Debug)]
pub(crate) struct Plans {
    deliveries: AtomicI64,
    events: AtomicI64,
}

impl Default for Plans {
    fn default() -> Self {
        Self { deliveries: AtomicI64::new(SMALLEST), events: AtomicI64::new(SMALLEST) }
    }
}

impl Plans {
    pub(crate) fn most(&self) -> Sizes {
        Sizes { deliveries: self.deliveries.load(Ordering::Relaxed), events: self.events.load(Ordering::Relaxed) }
    }

    /// The text of a statement whose plan is meant for sizes up to these.
    pub(crate) fn text(statement: &'static str, most: Sizes) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "{statement}\n-- for deliveries up to {} bytes, events up to {}",
            most.deliveries, most.events
        ))
    }

    /// The same for those that are in use.
    pub(crate) fn current(&self, statement: &'static str) -> AssertSqlSafe<String> {
        Self::text(statement, self.most())
    }

    /// Takes note of the sizes. False if a statement that was meant for sizes up to `most` is not for these.
    pub(crate) fn learn(&self, sizes: Sizes, most: Sizes) -> bool {
        for (limit, size) in [(&self.deliveries, sizes.deliveries), (&self.events, sizes.events)] {
            limit.store(class_of(size, limit.load(Ordering::Relaxed)), Ordering::Relaxed);
        }
        sizes.fit(most)
    }
}

/// The class of a size, or the one that was, if it is only one too large: a table that is at the edge does not go to and
/// fro.
fn class_of(size: i64, before: i64) -> i64 {
    let mut class = SMALLEST;
    while class < size {
        class = class.saturating_mul(STEP);
    }
    if before == class.saturating_mul(STEP) { before } else { class }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(bytes: i64) -> Sizes {
        Sizes { deliveries: bytes, events: bytes }
    }

    #[test]
    fn tables_that_have_grown_need_other_plans_and_each_has_its_own_class() {
        let plans = Plans::default();
        let small = plans.most();
        assert!(plans.learn(both(0), small));
        assert!(plans.learn(both(SMALLEST), small));
        assert_eq!(plans.most(), small);
        assert!(!plans.learn(Sizes { deliveries: SMALLEST + 1, events: 0 }, small));
        assert_eq!(plans.most(), Sizes { deliveries: 4 * SMALLEST, events: SMALLEST });
        assert!(!plans.learn(both(1_000 * SMALLEST), small));
        assert_eq!(plans.most(), both(1_024 * SMALLEST));
        assert!(plans.learn(both(1_000 * SMALLEST), plans.most()), "the next one fits");
        assert_ne!(Plans::text("select 1", small).0, plans.current("select 1").0);
    }

    #[test]
    fn tables_that_have_shrunk_have_the_plans_of_small_ones_again() {
        let plans = Plans::default();
        plans.learn(both(1_024 * SMALLEST), both(i64::MAX));
        assert!(plans.learn(both(200 * SMALLEST), plans.most()));
        assert_eq!(plans.most(), both(1_024 * SMALLEST), "one class less may be for a moment");
        assert!(plans.learn(both(0), plans.most()));
        assert_eq!(plans.most(), both(SMALLEST));
    }

    #[test]
    fn no_size_is_too_large() {
        assert_eq!(class_of(i64::MAX, SMALLEST), i64::MAX);
    }
}
