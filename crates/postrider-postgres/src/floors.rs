//! From where on a claim looks, while vacuum is held back.
//!
//! A claim finds the first waiting row of a lane through an index. Rows that earlier claims took stay in that index until
//! no transaction anywhere can see them any more; a transaction that is open for an hour keeps an hour's worth of them,
//! and each claim wades through all of it. So while claims are slow, the store remembers for each lane where it found the
//! first waiting row, and the next claim begins there.
//!
//! That is not exact: a transaction that took its place in the lane earlier, and commits later, is below the floor, and
//! so is what a claim that failed gave back. Floors are therefore used only while claims without them are slow, and are
//! dropped again and again: after four times as long as the last full claim took, a claim looks at everything. At most
//! a fifth of the time is spent on such claims, however slow they are, and a row below a floor is found with the next
//! one. A claim that finds nothing above the floors looks at everything at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A full claim that takes longer than this is slow: it takes a few milliseconds when the index is tidy.
const SLOW: Duration = Duration::from_millis(25);
/// How much longer floors are used than the last full claim took.
const LASTING: u32 = 4;
/// Lanes beyond this number have no floor.
const MAX_LANES: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Floors {
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    until: Instant,
    positions: BTreeMap<String, i64>,
}

/// How one claim is to look.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) lanes: Vec<String>,
    pub(crate) positions: Vec<i64>,
    /// Whether it should tell where it found the first rows.
    pub(crate) observe: bool,
    is_full: bool,
}

impl Look {
    /// Without floors, while they are in use.
    pub(crate) fn at_everything() -> Self {
        Self { observe: true, is_full: true, ..Self::default() }
    }

    /// Whether it has no floors.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }
}

impl Floors {
    /// How a claim that begins now is to look.
    pub(crate) fn look(&self, now: Instant) -> Look {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            None => Look { is_full: true, ..Look::default() },
            Some(state) if now >= state.until => Look::at_everything(),
            Some(state) => Look {
                lanes: state.positions.keys().cloned().collect(),
                positions: state.positions.values().copied().collect(),
                observe: true,
                is_full: false,
            },
        }
    }

    /// Learns from a claim: how long it took, and where it found the first row of each lane.
    pub(crate) fn learn(&self, look: &Look, now: Instant, took: Duration, seen: impl Iterator<Item = (String, i64)>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if look.is_full {
            *state = (took > SLOW).then(|| State { until: now + took * LASTING, positions: BTreeMap::new() });
        }
        let Some(state) = &mut *state else { return };
        for (lane, position) in seen {
            if state.positions.len() < MAX_LANES || state.positions.contains_key(&lane) {
                state.positions.insert(lane, position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(rows: &[(&str, i64)]) -> impl Iterator<Item = (String, i64)> {
        rows.iter().map(|(lane, position)| ((*lane).to_owned(), *position)).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn quick_claims_look_at_everything() {
        let floors = Floors::default();
        let now = Instant::now();
        let look = floors.look(now);
        assert!(look.lanes.is_empty() && !look.observe);
        floors.learn(&look, now, Duration::from_millis(3), seen(&[]));
        assert_eq!(floors.look(now), look);
    }

    #[test]
    fn after_a_slow_claim_the_next_ones_begin_where_rows_were_found_until_it_is_time_to_look_again() {
        let floors = Floors::default();
        let now = Instant::now();
        floors.learn(&floors.look(now), now, Duration::from_millis(100), seen(&[]));
        let first = floors.look(now);
        assert!(first.lanes.is_empty() && first.observe, "nothing is known yet");
        floors.learn(&first, now, Duration::from_millis(100), seen(&[("a", 7), ("b", 9)]));
        floors.learn(&floors.look(now), now, Duration::from_millis(2), seen(&[("a", 12)]));
        let look = floors.look(now + Duration::from_millis(399));
        assert_eq!(
            (look.lanes.as_slice(), look.positions.as_slice()),
            (["a".to_owned(), "b".to_owned()].as_slice(), [12, 9].as_slice())
        );

        let later = now + Duration::from_millis(400);
        let full = floors.look(later);
        assert!(full.lanes.is_empty() && full.observe);
        floors.learn(&full, later, Duration::from_millis(100), seen(&[("a", 3)]));
        assert_eq!(floors.look(later).positions, [3], "a row that appeared below the floor lowers it");

        let end = later + Duration::from_millis(400);
        floors.learn(&floors.look(end), end, Duration::from_millis(2), seen(&[("a", 20)]));
        assert!(!floors.look(end).observe, "claims are quick again");
    }

    #[test]
    fn the_number_of_floors_is_bounded() {
        let floors = Floors::default();
        let now = Instant::now();
        floors.learn(&floors.look(now), now, Duration::from_secs(1), seen(&[]));
        let lanes = (0..1000).map(|number| (format!("lane-{number}"), 1));
        floors.learn(&floors.look(now), now, Duration::from_millis(2), lanes);
        assert_eq!(floors.look(now).lanes.len(), MAX_LANES);
    }
}
