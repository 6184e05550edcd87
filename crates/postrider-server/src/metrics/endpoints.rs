//! What became of attempts, endpoint by endpoint.
//!
//! It is counted from the announcements, which all dispatchers on a database record: whoever scrapes one of several servers sees
//! them all. They are read when somebody scrapes, and not otherwise. Endpoints come and go, and every name stays in a scraper's
//! memory, so only so many are told apart. Ids are somebody's: only who shows a key sees those that it is for.

use std::collections::BTreeMap;
use std::sync::Mutex;

use postrider::store::FeedPlace;
use postrider::{Announcement, EndpointId, Fact, Store, StoreError};

use crate::service::Tenancy;

/// How many endpoints are told apart.
const MOST_ENDPOINTS: usize = 250;

/// How many announcements are read at once, and in how many steps for one scrape. What is left is read for the next one.
const READ_AT_ONCE: u32 = 500;
const READS: usize = 100;

/// Whose attempts they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    Endpoint(EndpointId),
    /// Of events that named their own destination.
    None,
    /// Of endpoints beyond those that are told apart.
    Other,
}

/// What became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Results {
    /// Whose endpoint it is; empty where it is not one endpoint.
    tenant: String,
    delivered: u64,
    failed: u64,
    dead: u64,
}

/// Counts that go on from scrape to scrape.
#[derive(Debug, Default)]
pub(crate) struct EndpointCounts {
    /// Up to where announcements were counted; none before the first look. Held while somebody reads.
    place: tokio::sync::Mutex<Option<FeedPlace>>,
    counts: Mutex<BTreeMap<Label, Results>>,
}

impl EndpointCounts {
    /// Counts what was announced since the last time. The first time it only takes its place, at the end.
    pub(crate) async fn catch_up(&self, store: &dyn Store) -> Result<(), StoreError> {
        // Whoever reads already does it for both.
        let Ok(mut place) = self.place.try_lock() else { return Ok(()) };
        let Some(place) = &mut *place else {
            *place = Some(store.announcements_end().await?);
            return Ok(());
        };
        for _ in 0..READS {
            let announced = store.announcements(place, READ_AT_ONCE).await?;
            *place = announced.place;
            self.count(&announced.announcements);
            if announced.announcements.len() < READ_AT_ONCE as usize {
                break;
            }
        }
        Ok(())
    }

    fn count(&self, announcements: &[Announcement]) {
        let mut counts = self.counts.lock().expect("no code panics while it holds this lock");
        for announcement in announcements {
            let label = announcement.endpoint_id.map_or(Label::None, Label::Endpoint);
            let told_apart = counts.keys().filter(|label| matches!(label, Label::Endpoint(_))).count();
            let known = counts.contains_key(&label) || label == Label::None || told_apart < MOST_ENDPOINTS;
            let label = if known { label } else { Label::Other };
            let results = match announcement.fact {
                Fact::Delivered | Fact::Failed | Fact::Dead => counts.entry(label).or_default(),
                Fact::Cancelled | Fact::EndpointDisabled => continue,
            };
            if matches!(label, Label::Endpoint(_)) && results.tenant.is_empty() {
                results.tenant.clone_from(&announcement.tenant);
            }
            match announcement.fact {
                Fact::Delivered => results.delivered += 1,
                Fact::Failed => results.failed += 1,
                _ => results.dead += 1,
            }
        }
    }

    /// The endpoint, the result and how often, in a fixed order, as far as somebody may see them. What is not one endpoint's is
    /// for those who see all.
    pub(crate) fn seen_by(&self, tenancy: &Tenancy) -> Vec<(String, &'static str, u64)> {
        let counts = self.counts.lock().expect("no code panics while it holds this lock");
        let seen = counts.iter().filter(|(_, results)| tenancy.covers(&results.tenant));
        let lines = seen.flat_map(|(label, results)| {
            let name = match label {
                Label::Endpoint(id) => id.to_string(),
                Label::None => "none".to_owned(),
                Label::Other => "other".to_owned(),
            };
            [("delivered", results.delivered), ("failed", results.failed), ("dead", results.dead)]
                .map(|(result, count)| (name.clone(), result, count))
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use postrider::{DeliveryId, EventId, Metadata};
    use uuid::Uuid;

    use super::*;

    fn announcement(fact: Fact, endpoint: Option<u128>) -> Announcement {
        Announcement {
            position: 1,
            tenant: "default".to_owned(),
            topic: "postrider".to_owned(),
            fact,
            delivery_id: DeliveryId::from_uuid(Uuid::nil()),
            event_id: EventId::from_uuid(Uuid::nil()),
            endpoint_id: endpoint.map(|id| EndpointId::from_uuid(Uuid::from_u128(id))),
            attempt_count: 1,
            metadata: Metadata::default(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn only_so_many_endpoints_are_told_apart() {
        let counts = EndpointCounts::default();
        let ids = 0..MOST_ENDPOINTS as u128 + 7;
        let each: Vec<_> = ids.clone().map(|id| announcement(Fact::Delivered, Some(id))).collect();
        counts.count(&each);
        counts.count(&[
            announcement(Fact::Failed, None),
            announcement(Fact::Dead, Some(3)),
            announcement(Fact::Cancelled, Some(4)),
            announcement(Fact::Failed, Some(ids.end)),
        ]);
        let all = counts.seen_by(&Tenancy::All);
        assert_eq!(all.len(), (MOST_ENDPOINTS + 2) * 3, "and what is none's, and the rest");
        let of = |name: &str| -> Vec<u64> { all.iter().filter(|line| line.0 == name).map(|line| line.2).collect() };
        assert_eq!((of("other"), of("none")), (vec![7, 1, 0], vec![0, 1, 0]));
        assert_eq!(of(&EndpointId::from_uuid(Uuid::from_u128(3)).to_string()), [1, 0, 1]);
        assert_eq!(of(&EndpointId::from_uuid(Uuid::from_u128(4)).to_string()), [1, 0, 0], "cancelled is no attempt");
        let of_tenant = |tenant: &str| counts.seen_by(&Tenancy::One(tenant.to_owned())).len();
        assert_eq!((of_tenant("default"), of_tenant("acme")), (MOST_ENDPOINTS * 3, 0), "of endpoints, and one's own");
    }
}
