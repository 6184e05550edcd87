//! Reading announcements so that none is missed.
//!
//! What is announced at once is one row, a *list*. Lists are numbered when they are written, in steps of [`STEP`], and have
//! the positions from their number on, one for each announcement. They become visible when their transaction commits,
//! which is another order: number 7000 may appear after number 8000. A reader that simply went on after the highest
//! position it has seen would miss 7000. So it keeps the numbers it did not see as *gaps*, and asks for them again. When
//! a page ends in the middle of a list that fills a gap, the rest of it is a gap.
//!
//! Most gaps are filled within milliseconds. Some never are: a transaction that was rolled back leaves its number
//! unused. A gap is given up when nobody can fill it any more. Whoever took the number had a transaction id before it
//! took the number (every statement that announces writes something else first), and that was before a higher number was
//! seen; so its id is below any that is given out after the gap was noticed. Such a one is taken, and is the gap's mark.
//! (The snapshot's own `xmax` would be too low: it is above those that have ended, and of two transactions that run the
//! one with the higher id may have taken the lower number.) Once every transaction below the mark has ended, which is when a
//! later snapshot's `xmin` has reached it, the number has been seen in that snapshot or never will be.
//!
//! A transaction that stays open for hours keeps its gaps, and those of all that were rolled back meanwhile. The list
//! is bounded; beyond the bound the lowest are given up.

use postrider::store::{Announced, FeedPlace};
use postrider::{Announcement, DeliveryId, EndpointId, EventId};
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::PostgresStore;
use crate::browse::metadata;
use crate::error::{Result, damaged};
use crate::values::{Columns as _, int};

/// The most gaps that a place remembers.
const MAX_GAPS: usize = 10_000;
/// From one list's number to the next one's.
const STEP: i64 = 1_000;

/// The number of the list in which a position is.
fn number_of(position: i64) -> i64 {
    position - position % STEP
}

/// What a snapshot says about which transactions may still commit.
struct Bounds {
    /// The lowest transaction id that was still running.
    oldest_running: u64,
    /// One that had not been given out, if a number is missing.
    next_transaction: u64,
}

impl Bounds {
    fn of(row: &PgRow) -> Result<Self> {
        let id = |name: &'static str| {
            u64::try_from(row.value::<i64>(name)?).map_err(|error| damaged("a transaction id", error))
        };
        Ok(Self { oldest_running: id("oldest_running")?, next_transaction: id("next_transaction")? })
    }
}

impl PostgresStore {
    pub(crate) async fn read_announcements(&self, after: &FeedPlace, limit: u32) -> Result<Announced> {
        // Anybody may come with a place of their own making.
        let position = after.position.clamp(0, i64::MAX - STEP);
        let query = sqlx::query(include_str!("../sql/announcements.sql"))
            .bind(position)
            .bind(after.gaps.iter().map(|(position, _)| *position).collect::<Vec<_>>())
            .bind(int(limit.max(1)));
        let rows = self.rows("reading announcements", query).await?;
        let bounds = Bounds::of(rows.first().expect("the bounds are always told"))?;
        let mut seen = Vec::with_capacity(rows.len());
        let mut announcements = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(position) = row.value::<Option<i64>>("position")? else { continue };
            seen.push(position);
            if row.value::<Option<&str>>("topic")?.is_some() {
                announcements.push(announcement(row, position)?);
            }
        }
        // When the page is full, what lies in the gaps above its last announcement has not been read yet.
        let read_up_to = (seen.len() >= limit.max(1) as usize).then(|| seen.last().copied()).flatten();
        Ok(Announced { announcements, place: next_place(after, &seen, read_up_to, &bounds) })
    }

    pub(crate) async fn end_of_announcements(&self) -> Result<FeedPlace> {
        let query = sqlx::query(include_str!("../sql/announcements_end.sql"))
            .bind(i64::try_from(MAX_GAPS).expect("the bound is small"));
        let row = self.row("reading announcements", query).await?;
        let bounds = Bounds::of(&row)?;
        let missing: Vec<i64> = row.value("missing")?;
        let gaps = missing.into_iter().map(|position| (position, bounds.next_transaction)).collect();
        Ok(FeedPlace { position: row.value("position")?, gaps })
    }
}

/// Where to go on after `seen`, which is in order. Gaps above `read_up_to` were not read, if it is given.
fn next_place(after: &FeedPlace, seen: &[i64], read_up_to: Option<i64>, bounds: &Bounds) -> FeedPlace {
    let may_still_appear = |mark: u64| bounds.oldest_running < mark;
    // What is left of a gap.
    let left = |&(first, mark): &(i64, u64)| match read_up_to {
        Some(last) if number_of(last) == number_of(first) => Some((last + 1, mark)),
        Some(last) if last < first => Some((first, mark)),
        _ => (!was_seen(seen, first, number_of(first).saturating_add(STEP)) && may_still_appear(mark))
            .then_some((first, mark)),
    };
    let mut gaps: Vec<(i64, u64)> = after.gaps.iter().filter_map(left).collect();
    let position = seen.last().copied().unwrap_or_default().max(after.position);
    if may_still_appear(bounds.next_transaction) {
        let last = number_of(position);
        let most = i64::try_from(MAX_GAPS).expect("the bound is small");
        let first = number_of(after.position.max(0)).saturating_add(STEP).max(last.saturating_sub(most * STEP));
        let missing = (0..).map(|step| first.saturating_add(step * STEP)).take_while(|number| *number < last);
        let new = missing.filter(|&number| !was_seen(seen, number, number + STEP));
        gaps.extend(new.map(|number| (number, bounds.next_transaction)));
    }
    gaps.sort_unstable();
    if gaps.len() > MAX_GAPS {
        gaps.drain(..gaps.len() - MAX_GAPS);
    }
    FeedPlace { position, gaps }
}

/// Whether one of the positions from `first` to before `end` was seen.
fn was_seen(seen: &[i64], first: i64, end: i64) -> bool {
    let next = seen.partition_point(|position| *position < first);
    seen.get(next).is_some_and(|position| *position < end)
}

fn announcement(row: &PgRow, position: i64) -> Result<Announcement> {
    Ok(Announcement {
        position,
        tenant: row.value("tenant")?,
        topic: row.value("topic")?,
        fact: row.value::<&str>("fact")?.parse().map_err(|error| damaged("an announcement", error))?,
        delivery_id: DeliveryId::from_uuid(row.value("delivery_id")?),
        event_id: EventId::from_uuid(row.value("event_id")?),
        endpoint_id: row.value::<Option<Uuid>>("endpoint_id")?.map(EndpointId::from_uuid),
        attempt_count: row.unsigned("attempt_count")?,
        metadata: metadata(row)?,
        at: row.instant("at")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(position: i64, gaps: &[(i64, u64)]) -> FeedPlace {
        FeedPlace { position, gaps: gaps.to_vec() }
    }

    #[test]
    fn a_number_that_is_skipped_becomes_a_gap_only_while_somebody_may_fill_it() {
        let running = Bounds { oldest_running: 90, next_transaction: 100 };
        let next = next_place(&place(3_002, &[]), &[3_003, 4_000, 6_000, 6_001], None, &running);
        assert_eq!(next, place(6_001, &[(5_000, 100)]), "and the ends of lists are none");
        let quiet = Bounds { oldest_running: 100, next_transaction: 100 };
        assert_eq!(next_place(&place(3_000, &[]), &[4_000, 6_000], None, &quiet), place(6_000, &[]));
    }

    #[test]
    fn a_gap_ends_when_it_is_seen_or_when_nobody_is_left_to_fill_it() {
        let bounds = Bounds { oldest_running: 100, next_transaction: 120 };
        let before = place(6_000, &[(2_000, 100), (3_000, 101), (5_000, 110)]);
        assert_eq!(next_place(&before, &[5_000, 5_001], None, &bounds), place(6_000, &[(3_000, 101)]));
    }

    #[test]
    fn a_gap_that_a_full_page_did_not_reach_is_kept_whatever_its_mark() {
        let bounds = Bounds { oldest_running: 100, next_transaction: 100 };
        let before = place(9_000, &[(1_000, 50), (2_000, 50), (5_000, 50)]);
        let next = next_place(&before, &[2_000, 2_001], Some(2_001), &bounds);
        assert_eq!(
            next,
            place(9_000, &[(2_002, 50), (5_000, 50)]),
            "and the rest of a list that it did not come through"
        );
        assert_eq!(next_place(&next, &[2_002], Some(2_002), &bounds), place(9_000, &[(2_003, 50), (5_000, 50)]));
        assert_eq!(next_place(&next, &[2_002, 5_000], None, &bounds), place(9_000, &[]));
    }

    /// Numbers were in steps of one once, and somebody may have kept a place from then.
    #[test]
    fn a_gap_from_before_there_were_lists_ends_as_well() {
        let bounds = Bounds { oldest_running: 100, next_transaction: 100 };
        let before = place(523, &[(517, 50), (520, 50)]);
        assert_eq!(next_place(&before, &[517, 1_000], None, &bounds), place(1_000, &[]));
    }

    /// Anybody may come with a place of their own making.
    #[test]
    fn a_place_at_the_end_of_all_numbers_is_no_trouble() {
        let running = Bounds { oldest_running: 90, next_transaction: 100 };
        assert_eq!(next_place(&place(i64::MAX, &[]), &[], None, &running), place(i64::MAX, &[]));
        assert_eq!(next_place(&place(i64::MIN, &[]), &[], None, &running), place(0, &[]));
    }

    #[test]
    fn gaps_are_bounded_and_the_newest_are_kept() {
        let bounds = Bounds { oldest_running: 1, next_transaction: 2 };
        let next = next_place(&place(0, &[]), &[1_000_000_000], None, &bounds);
        assert_eq!(next.gaps.len(), MAX_GAPS);
        assert_eq!(next.gaps.last(), Some(&(999_999_000, 2)));
    }
}
