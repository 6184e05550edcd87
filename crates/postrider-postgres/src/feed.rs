//! Reading announcements so that none is missed.
//!
//! Announcements are numbered when they are written, and become visible when their transaction commits, which is
//! another order: number 7 may appear after number 8. A reader that simply went on after the highest number it has seen
//! would miss 7. So it keeps the numbers it did not see as *gaps*, and asks for them again.
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
        let query = sqlx::query(include_str!("../sql/announcements.sql"))
            .bind(after.position)
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
        // When the page is full, what lies in the gaps above its last row has not been read yet.
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

/// Where to go on after `seen`, which is in order. Gaps above `read_up_to` were not asked for, if it is given.
fn next_place(after: &FeedPlace, seen: &[i64], read_up_to: Option<i64>, bounds: &Bounds) -> FeedPlace {
    let may_still_appear = |mark: u64| bounds.oldest_running < mark;
    let was_read = |position: i64| read_up_to.is_none_or(|last| position <= last);
    let mut gaps: Vec<(i64, u64)> = after
        .gaps
        .iter()
        .copied()
        .filter(|(position, mark)| {
            seen.binary_search(position).is_err() && (may_still_appear(*mark) || !was_read(*position))
        })
        .collect();
    let position = seen.last().copied().unwrap_or_default().max(after.position);
    if may_still_appear(bounds.next_transaction) {
        let bound = i64::try_from(MAX_GAPS).expect("the bound is small");
        let missing = after.position.saturating_add(1).max(position - bound)..position;
        let new = missing.filter(|number| seen.binary_search(number).is_err());
        gaps.extend(new.map(|number| (number, bounds.next_transaction)));
    }
    gaps.sort_unstable();
    if gaps.len() > MAX_GAPS {
        gaps.drain(..gaps.len() - MAX_GAPS);
    }
    FeedPlace { position, gaps }
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
        assert_eq!(next_place(&place(3, &[]), &[4, 6], None, &running), place(6, &[(5, 100)]));
        let quiet = Bounds { oldest_running: 100, next_transaction: 100 };
        assert_eq!(next_place(&place(3, &[]), &[4, 6], None, &quiet), place(6, &[]));
    }

    #[test]
    fn a_gap_ends_when_it_is_seen_or_when_nobody_is_left_to_fill_it() {
        let bounds = Bounds { oldest_running: 100, next_transaction: 120 };
        let before = place(6, &[(2, 100), (3, 101), (5, 110)]);
        assert_eq!(next_place(&before, &[5], None, &bounds), place(6, &[(3, 101)]));
    }

    #[test]
    fn a_gap_that_a_full_page_did_not_reach_is_kept_whatever_its_mark() {
        let bounds = Bounds { oldest_running: 100, next_transaction: 100 };
        let before = place(9, &[(2, 50), (5, 50)]);
        assert_eq!(next_place(&before, &[2], Some(2), &bounds), place(9, &[(5, 50)]));
    }

    /// Anybody may come with a place of their own making.
    #[test]
    fn a_place_at_the_end_of_all_numbers_is_no_trouble() {
        let running = Bounds { oldest_running: 90, next_transaction: 100 };
        assert_eq!(next_place(&place(i64::MAX, &[]), &[], None, &running), place(i64::MAX, &[]));
    }

    #[test]
    fn gaps_are_bounded_and_the_newest_are_kept() {
        let bounds = Bounds { oldest_running: 1, next_transaction: 2 };
        let next = next_place(&place(0, &[]), &[1_000_000], None, &bounds);
        assert_eq!(next.gaps.len(), MAX_GAPS);
        assert_eq!(next.gaps.last(), Some(&(999_999, 2)));
    }
}
