//! From where on a claim looks, while more is waiting than it can take.
//!
//! A claim finds the first waiting row of a lane through an index. Rows that earlier claims took stay in that index until
//! vacuum has been there, and each claim wades through them again: through a few thousand while a backlog is worked off,
//! and through an hour's worth when a transaction that is open for an hour holds vacuum back. So while claims fill their
//! slots, or are slow, the store remembers for each lane how far it has come, and the next claim begins there.
//!
//! That is not exact: a transaction that took its place in the lane earlier, and commits later, is below the floor, and
//! so is what a claim that failed gave back. Floors are therefore used only in these two cases, and are dropped again and
//! again: after a tenth of a second, or four times as long as the last full claim took, a claim looks at everything. At
//! most a fifth of the time is spent on such claims, however slow they are, and a row below a floor is found with the
//! next one. A claim that does not fill its slots above the floors ends them, if claims are quick, and one that finds
//! nothing there looks at everything at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A full claim that takes longer than this is slow: it takes a few milliseconds when the index is tidy.
const SLOW: Duration = Duration::from_millis(25);
/// How much longer floors are used than the last full claim took.
const LASTING: u32 = 4;
/// How long they are used at least.
const LASTING_AT_LEAST: Duration = Duration::from_millis(100);
/// Lanes beyond this number have no floor.
const MAX_LANES: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Floors {
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    until: Instant,
    /// Whether claims without floors are slow, and not only full.
    is_slow: bool,
    positions: BTreeMap<String, i64>,
}

/// How one claim is to look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Lanes with a floor, in their order.
    pub(crate) lanes: Vec<String>,
    pub(crate) positions: Vec<i64>,
    is_partial: bool,
}

impl Look {
    /// Without floors.
    pub(crate) fn at_everything() -> Self {
        Self::default()
    }

    /// Whether it has no floors.
    pub(crate) fn is_full(&self) -> bool {
        !self.is_partial
    }
}

/// What is to be learned from a claim.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// How long it took.
    pub(crate) took: Duration,
    /// Whether it took as much as it was asked for.
    pub(crate) is_filled: bool,
    /// Lanes that it took from, with the last position in each.
    pub(crate) last: &'a BTreeMap<String, i64>,
}

impl Floors {
    /// How a claim that begins now is to look.
    pub(crate) fn look(&self, now: Instant) -> Look {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            Some(state) if now < state.until => Look {
                lanes: state.positions.keys().cloned().collect(),
                positions: state.positions.values().copied().collect(),
                is_partial: true,
            },
            _ => Look::at_everything(),
        }
    }

    pub(crate) fn learn(&self, look: &Look, now: Instant, seen: &Seen<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_slow = seen.took > SLOW;
        if look.is_full() {
            *state = (is_slow || seen.is_filled).then(|| State {
                until: now + (seen.took * LASTING).max(LASTING_AT_LEAST),
                is_slow,
                positions: BTreeMap::new(),
            });
        } else if !seen.is_filled && state.as_ref().is_some_and(|state| !state.is_slow) {
            *state = None;
        }
        let Some(state) = &mut *state else { return };
        for (lane, position) in seen.last {
            if let Some(floor) = state.positions.get_mut(lane) {
                *floor = position + 1;
            } else if state.positions.len() < MAX_LANES {
                state.positions.insert(lane.clone(), position + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(3);

    /// A claim that took the rows up to these positions.
    fn claimed(floors: &Floors, now: Instant, took: Duration, is_filled: bool, last: &[(&str, i64)]) {
        let last = last.iter().map(|(lane, position)| ((*lane).to_owned(), *position)).collect();
        floors.learn(&floors.look(now), now, &Seen { took, is_filled, last: &last });
    }

    fn floors_of(look: &Look) -> Vec<(&str, i64)> {
        look.lanes.iter().map(String::as_str).zip(look.positions.iter().copied()).collect()
    }

    #[test]
    fn claims_that_are_quick_and_take_all_there_is_look_at_everything() {
        let floors = Floors::default();
        let now = Instant::now();
        claimed(&floors, now, QUICK, false, &[("a", 7)]);
        assert_eq!(floors.look(now), Look::at_everything());
    }

    #[test]
    fn after_a_filled_claim_the_next_ones_begin_behind_it_for_a_tenth_of_a_second() {
        let floors = Floors::default();
        let now = Instant::now();
        claimed(&floors, now, QUICK, true, &[("b", 9), ("a", 7)]);
        claimed(&floors, now, QUICK, true, &[("a", 12), ("c", 3)]);
        let look = floors.look(now + Duration::from_millis(99));
        assert_eq!(floors_of(&look), [("a", 13), ("b", 10), ("c", 4)]);
        assert!(!look.is_full());

        let later = now + LASTING_AT_LEAST;
        assert!(floors.look(later).is_full());
        claimed(&floors, later, QUICK, true, &[("a", 3)]);
        assert_eq!(floors_of(&floors.look(later)), [("a", 4)], "a row that appeared below the floor lowers it");
    }

    #[test]
    fn a_claim_that_is_not_filled_ends_the_floors() {
        let floors = Floors::default();
        let now = Instant::now();
        claimed(&floors, now, QUICK, true, &[("a", 7)]);
        claimed(&floors, now, QUICK, false, &[("a", 8)]);
        assert_eq!(floors.look(now), Look::at_everything());
    }

    #[test]
    fn while_claims_are_slow_floors_last_in_proportion_whether_claims_are_filled_or_not() {
        let floors = Floors::default();
        let now = Instant::now();
        claimed(&floors, now, Duration::from_millis(200), false, &[("a", 7)]);
        claimed(&floors, now, QUICK, false, &[("a", 8)]);
        assert_eq!(floors_of(&floors.look(now + Duration::from_millis(799))), [("a", 9)]);

        let end = now + Duration::from_millis(800);
        claimed(&floors, end, QUICK, false, &[("a", 20)]);
        assert!(floors.look(end).is_full(), "claims are quick again");
    }

    #[test]
    fn the_number_of_floors_is_bounded() {
        let floors = Floors::default();
        let now = Instant::now();
        let last = (0..1000).map(|number| (format!("lane-{number}"), 1)).collect();
        floors.learn(&floors.look(now), now, &Seen { took: QUICK, is_filled: true, last: &last });
        assert_eq!(floors.look(now).lanes.len(), MAX_LANES);
    }
}
