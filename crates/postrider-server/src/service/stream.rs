//! Following announcements, each follower at its own pace.
//!
//! A follower reads the store's record from its place on. Nothing is kept for it and nobody waits for it: one that is slow
//! is behind, and that is all. A follower that comes back with the place of the last announcement that it got goes on right
//! after it, in this process or any other on the same database.

use std::sync::Arc;
use std::time::Duration;

use postrider::event::check_name;
use postrider::store::{Announced, FeedPlace};
use postrider::{Fact, Store};
use tokio::time::Instant;

use super::{Caller, Service, Tenancy};
use crate::api::Problem;
use crate::api::stream::{Announcement, StreamQuery};

/// How many announcements are read at once, of all tenants.
const READ_AT_ONCE: u32 = 250;

/// Between two reads, however much is announced: what comes in the meantime is read at once, and many followers together do
/// not keep the database busy.
const READ_PAUSE: Duration = Duration::from_millis(25);

/// A place whose text is longer is not told: its many gaps are there for a moment only, while a long transaction goes on.
const MOST_PLACE_BYTES: usize = 4_096;

/// An announcement, and the place after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// What is announced.
    pub announcement: Announcement,
    /// Where to go on after it; none when that is better said after a later one.
    pub place: Option<String>,
}

/// Somebody who follows announcements.
#[derive(Debug)]
pub struct Follower {
    store: Arc<dyn Store>,
    tenancy: Tenancy,
    topic: Option<String>,
    fact: Option<Fact>,
    place: FeedPlace,
    may_read_at: Instant,
}

impl Service {
    /// Follows the caller's announcements after a place: that of `last_event_id`, that of the query, or the end.
    pub async fn follow(
        &self,
        caller: &Caller,
        query: &StreamQuery,
        last_event_id: Option<&str>,
    ) -> Result<Follower, Problem> {
        if let Some(topic) = &query.topic {
            check_name("topic", "topic_invalid", topic)?;
        }
        let fact = query.fact.as_deref().map(str::parse).transpose()?;
        let place = match last_event_id.or(query.after.as_deref()) {
            Some(text) => text.parse()?,
            None => self.store().announcements_end().await?,
        };
        let store = Arc::clone(self.store());
        let (tenancy, topic) = (caller.tenant.clone(), query.topic.clone());
        Ok(Follower { store, tenancy, topic, fact, place, may_read_at: Instant::now() })
    }
}

impl Follower {
    /// Where it is.
    pub fn place(&self) -> Option<String> {
        told_place(&self.place)
    }

    /// What has been announced meanwhile; waits for something up to `patience`, and then has nothing.
    pub async fn next(&mut self, patience: Duration) -> Result<Vec<Told>, Problem> {
        let deadline = Instant::now() + patience;
        loop {
            tokio::time::sleep_until(self.may_read_at).await;
            self.may_read_at = Instant::now() + READ_PAUSE;
            let announced = self.store.announcements(&self.place, READ_AT_ONCE).await?;
            let full = announced.announcements.len() >= READ_AT_ONCE as usize;
            let told = self.take(announced);
            let left = deadline.saturating_duration_since(Instant::now());
            if !told.is_empty() || left.is_zero() {
                return Ok(told);
            }
            if !full {
                self.store.wait_announced(left).await;
            }
        }
    }

    fn take(&mut self, announced: Announced) -> Vec<Told> {
        let places = places_between(&self.place, &announced);
        self.place = announced.place;
        let followed = announced.announcements.into_iter().zip(places).filter(|(announcement, _)| {
            self.tenancy.covers(&announcement.tenant)
                && self.topic.as_ref().is_none_or(|topic| *topic == announcement.topic)
                && self.fact.is_none_or(|fact| fact == announcement.fact)
        });
        followed
            .map(|(announcement, place)| Told { announcement: announcement.into(), place: told_place(&place) })
            .collect()
    }
}

fn told_place(place: &FeedPlace) -> Option<String> {
    Some(place.to_string()).filter(|text| text.len() <= MOST_PLACE_BYTES)
}

/// The place after each announcement of a read, so that a follower who has got only some of them misses none of the rest.
///
/// The read tells where it began and where it ended. In between, what was seen is everything up to the highest position so
/// far, but for the gaps that are still open, and for the gaps that this read has filled with announcements that are yet to
/// come; those keep the mark that they had.
fn places_between(before: &FeedPlace, announced: &Announced) -> Vec<FeedPlace> {
    let positions: Vec<i64> = announced.announcements.iter().map(|announcement| announcement.position).collect();
    let filled: Vec<&(i64, u64)> = before.gaps.iter().filter(|(gap, _)| positions.contains(gap)).collect();
    let mut highest = before.position;
    let place_after = |(index, position): (usize, &i64)| {
        highest = highest.max(*position);
        let open = announced.place.gaps.iter().filter(|(gap, _)| *gap < highest);
        let yet_to_come = filled.iter().copied().filter(|(gap, _)| positions[index + 1..].contains(gap));
        let mut gaps: Vec<(i64, u64)> = open.chain(yet_to_come).copied().collect();
        gaps.sort_unstable();
        FeedPlace { position: highest, gaps }
    };
    positions.iter().enumerate().map(place_after).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use postrider::{DeliveryId, EventId, Metadata};
    use uuid::Uuid;

    use super::*;

    fn announced(positions: &[i64], place: FeedPlace) -> Announced {
        let announcement = |position: &i64| postrider::Announcement {
            position: *position,
            tenant: "acme".to_owned(),
            topic: "postrider".to_owned(),
            fact: Fact::Delivered,
            delivery_id: DeliveryId::from_uuid(Uuid::nil()),
            event_id: EventId::from_uuid(Uuid::nil()),
            endpoint_id: None,
            attempt_count: 1,
            metadata: Metadata::new(),
            at: Timestamp::UNIX_EPOCH,
        };
        Announced { announcements: positions.iter().map(announcement).collect(), place }
    }

    fn place(position: i64, gaps: &[(i64, u64)]) -> FeedPlace {
        FeedPlace { position, gaps: gaps.to_vec() }
    }

    #[test]
    fn without_gaps_the_place_is_the_position() {
        let read = announced(&[4, 5, 6], place(6, &[]));
        assert_eq!(places_between(&place(3, &[]), &read), [place(4, &[]), place(5, &[]), place(6, &[])]);
    }

    #[test]
    fn a_gap_is_open_from_the_first_announcement_above_it() {
        let read = announced(&[4, 7], place(7, &[(5, 100), (6, 100)]));
        assert_eq!(places_between(&place(3, &[]), &read), [place(4, &[]), place(7, &[(5, 100), (6, 100)])]);
    }

    #[test]
    fn a_gap_that_is_filled_stays_open_until_its_announcement_has_been_told() {
        let before = place(9, &[(2, 50), (5, 60), (7, 70)]);
        let read = announced(&[2, 5, 10], place(10, &[(7, 70)]));
        let expected = [place(9, &[(5, 60), (7, 70)]), place(9, &[(7, 70)]), place(10, &[(7, 70)])];
        assert_eq!(places_between(&before, &read), expected);
    }

    #[test]
    fn a_place_with_very_many_gaps_is_not_told() {
        let gaps: Vec<(i64, u64)> = (0..1_000).map(|gap| (gap, 4_711)).collect();
        assert_eq!(told_place(&place(2_000, &gaps)), None);
        assert_eq!(told_place(&place(7, &[(5, 9)])).as_deref(), Some("7.5-9"));
    }
}
