//! Runs operations against the specification and against a store, and compares.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use postrider::store::{ClaimRequest, FeedPlace, Lane, Promoted, Recovered, Settle};
use postrider::{
    Delivery, DeliveryFilter, DeliveryId, DestinationPolicy, EndpointId, EndpointStatus, EnqueueError, Enqueued, Lease,
    LeaseToken, NewEvent, Once, PageRequest,
};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use super::operations::{By, Operation, operations};
use super::specification::{Detail, Due, Place, Specification, Told};
use crate::subject::Subject;
use crate::trial::{Trial, operator, request, settle_of, url_of, worker};

/// The variable that repeats a search: the number that a failure printed.
const SEED_VARIABLE: &str = "POSTRIDER_MODEL_SEED";

/// Runs `cases` random lists of up to `most` operations, each on a subject of its own. A failure prints the shortest
/// list that it could find, and the seed.
pub fn search<S: Subject>(cases: u32, most: usize, open: impl AsyncFn() -> S) {
    let seed = match std::env::var(SEED_VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE} is a number, not `{text}`")),
        Err(_) => uuid::Uuid::new_v4().as_u64_pair().0,
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 120, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let result = runner.run(&operations(most), |operations| {
        runtime.block_on(async {
            let mut run = Run::new(Trial::new(open().await)).await;
            for operation in operations {
                run.step(&operation).await;
                run.compare().await;
            }
            run.compare_histories().await;
        });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}\n\nrepeat it with {SEED_VARIABLE}={seed}");
    }
}

struct Run {
    trial: Trial,
    specification: Specification,
    endpoints: Vec<(EndpointId, &'static [&'static str])>,
    /// Every lease that was ever granted, with its first holder.
    flights: Vec<(String, Lease)>,
    /// Every delivery that there ever was.
    deliveries: Vec<DeliveryId>,
    /// How far the announcements were followed, and how many of them the specification had told then.
    feed: FeedPlace,
}

const PATTERNS: [&[&str]; 3] = [&["*"], &["invoice.*"], &["refund.made", "invoice.paid"]];

impl Run {
    async fn new(trial: Trial) -> Self {
        let now = trial.freeze();
        let mut endpoints = Vec::new();
        for (number, patterns) in PATTERNS.into_iter().enumerate() {
            endpoints.push((trial.endpoint(&format!("endpoint{number}"), patterns).await.id, patterns));
        }
        let specification = Specification::new(now, endpoints.iter().map(|(id, _)| *id));
        let (flights, deliveries) = (Vec::new(), Vec::new());
        Self { trial, specification, endpoints, flights, deliveries, feed: FeedPlace::default() }
    }

    fn flight(&self, number: u16, by: By) -> Option<(String, Lease)> {
        // The newest first, since old leases are rarely still held.
        let index = usize::from(number) % self.flights.len().clamp(1, 12);
        let (holder, lease) = self.flights.iter().rev().nth(index).cloned()?;
        Some(match by {
            By::Holder => (holder, lease),
            By::Another => ("another".to_owned(), lease),
            By::Forger => (holder, Lease { token: LeaseToken(uuid::Uuid::from_u128(1)), ..lease }),
        })
    }

    async fn step(&mut self, operation: &Operation) {
        let store = self.trial.store.clone();
        let told_before = self.specification.announcements.len();
        match operation {
            Operation::Enqueue { target, delay_secs, key, once } => {
                self.enqueue(*target, *delay_secs, *key, *once).await;
            }
            Operation::ResetOnce { subject } => {
                let subject = subject_of(*subject);
                let generation = store.reset_once("default", &subject, &operator()).await.unwrap();
                assert_eq!(generation, self.specification.subjects.reset(&subject));
                self.specification.audit.push(("once.reset", subject));
            }
            Operation::Claim { worker, limit, lane_limit, lease_secs } => {
                let lease = Duration::from_secs(*lease_secs);
                let name = format!("w{worker}");
                self.claim(&name, ClaimRequest { lease, lane_limit: *lane_limit, ..request(&name, *limit) }).await;
            }
            Operation::Renew { flight, by, lease_secs } => {
                let Some((name, lease)) = self.flight(*flight, *by) else { return };
                let duration = Duration::from_secs(*lease_secs);
                let renewed = store.renew(&worker(&name), &[lease], duration).await.unwrap();
                let expected = self.specification.renew(&name, lease, duration);
                assert_eq!(renewed, if expected { vec![lease] } else { vec![] });
            }
            Operation::Settle { flights, by } => {
                let first = flights.first().and_then(|(flight, ..)| self.flight(*flight, *by));
                let Some((name, _)) = first else { return };
                let settles: Vec<_> = flights
                    .iter()
                    .filter_map(|(flight, verdict, disable)| Some((self.flight(*flight, *by)?.1, *verdict, *disable)))
                    .map(|(lease, verdict, disable_endpoint)| Settle { disable_endpoint, ..settle_of(lease, verdict) })
                    .collect();
                let settlements = store.settle(&worker(&name), &settles).await.unwrap();
                let expected: Vec<_> = settles.iter().map(|settle| self.specification.settle(&name, settle)).collect();
                assert_eq!(settlements, expected);
            }
            Operation::Release { flight, by } => {
                let Some((name, lease)) = self.flight(*flight, *by) else { return };
                let released = store.release(&worker(&name), &[lease]).await.unwrap();
                assert_eq!(released == 1, self.specification.release(&name, lease));
            }
            Operation::Advance { by } => self.specification.now = self.trial.advance(*by),
            Operation::Promote { limit } => self.promote(*limit).await,
            Operation::Recover { limit, max_abandoned } => self.recover(*limit, *max_abandoned).await,
            Operation::Retry { delivery } => {
                let Some(id) = choose(&self.deliveries, *delivery) else { return };
                assert_eq!(store.retry(id, &operator()).await.unwrap(), self.specification.retry(id));
            }
            Operation::RetryMatching { status, limit } => {
                let filter = DeliveryFilter { status: *status, ..DeliveryFilter::default() };
                let retried = store.retry_matching(&filter, *limit, &operator()).await.unwrap();
                assert_eq!(retried, self.specification.retry_matching(*status, *limit as usize));
            }
            Operation::Cancel { delivery } => {
                let Some(id) = choose(&self.deliveries, *delivery) else { return };
                let action = store.cancel(id, "not wanted", &operator()).await.unwrap();
                assert_eq!(action, self.specification.cancel(id, "not wanted"));
            }
            Operation::SetEndpoint { endpoint, status } => {
                let (id, _) = self.endpoints[usize::from(*endpoint) % self.endpoints.len()];
                self.trial.set_endpoint(id, *status).await;
                self.specification.set_endpoint(id, *status);
            }
            Operation::Retain { older_than_secs, limit } => {
                self.retain(Duration::from_secs(*older_than_secs), *limit).await;
                return;
            }
        }
        self.follow(told_before).await;
    }

    async fn enqueue(&mut self, target: u8, delay_secs: Option<u64>, key: Option<u8>, once: Option<(u8, Option<u64>)>) {
        let mut event = match target {
            0..2 => NewEvent::new("invoice.paid", "{}").to(url_of(&format!("host{target}"))),
            2 | 3 => NewEvent::new("invoice.paid", "{}"),
            4 => NewEvent::new("refund.made", "{}"),
            _ => NewEvent::new("other", "{}"),
        };
        if let Some(delay) = delay_secs {
            event = event
                .deliver_at(self.specification.now + SignedDuration::try_from(Duration::from_secs(delay)).unwrap());
        }
        if let Some(key) = key {
            event = event.idempotency_key(format!("key{key}"));
        }
        event.once = once.map(|(subject, generation)| Once { subject: subject_of(subject), generation });
        let answer = self.trial.store.enqueue(vec![event.clone()]).await;
        let known = event.idempotency_key.as_ref().and_then(|key| self.specification.keys.get(key));
        match (answer, known) {
            (Ok(enqueued), Some((id, earlier))) => {
                assert_eq!(*earlier, event, "a duplicate is the same as what it repeats");
                assert_eq!(enqueued, [Enqueued::Duplicate { event_id: *id }]);
            }
            (Err(EnqueueError::IdempotencyConflict { event_id, .. }), Some((id, earlier))) => {
                assert_ne!(*earlier, event, "a conflict is about a difference");
                assert_eq!(event_id, *id);
            }
            (Ok(enqueued), None) => match self.specification.subjects.refusal(&event) {
                Some(refusal) => assert_eq!(enqueued, [refusal]),
                None => self.enqueued(&event, &enqueued[0]),
            },
            (Err(error), _) => panic!("{error}"),
        }
    }

    fn enqueued(&mut self, event: &NewEvent, enqueued: &Enqueued) {
        let matches =
            |pattern: &&str| pattern.parse::<postrider::EventTypePattern>().unwrap().matches(&event.event_type);
        let expected: BTreeSet<_> = if event.destination_url.is_some() {
            BTreeSet::from([None])
        } else {
            let open = |id: &EndpointId| self.specification.endpoints[id] != EndpointStatus::Disabled;
            let wanting = self.endpoints.iter().filter(|(id, patterns)| open(id) && patterns.iter().any(matches));
            wanting.map(|(id, _)| Some(*id)).collect()
        };
        let written = enqueued.deliveries();
        assert_eq!(written.len(), expected.len());
        assert_eq!(written.iter().map(|delivery| delivery.endpoint_id).collect::<BTreeSet<_>>(), expected);
        let deliveries = written.iter().map(|delivery| {
            let host = || DestinationPolicy::default().check_url(&delivery.destination_url).unwrap().lane();
            (delivery.id, delivery.endpoint_id, delivery.endpoint_id.map_or_else(host, Lane::of_endpoint))
        });
        self.specification.enqueue(enqueued.event_id().unwrap(), event, deliveries.collect());
        self.deliveries.extend(written.iter().map(|delivery| delivery.id));
    }

    async fn claim(&mut self, name: &str, request: ClaimRequest) {
        let mut in_flight: BTreeMap<Lane, u32> = BTreeMap::new();
        for delivery in self.specification.deliveries.values() {
            if matches!(&delivery.place, Place::Leased { owner, .. } if owner == name) {
                *in_flight.entry(delivery.lane.clone()).or_default() += 1;
            }
        }
        let request = ClaimRequest { in_flight: in_flight.into_iter().collect(), ..request };
        let claimed = self.trial.store.claim(&request).await.unwrap();
        assert_eq!(claimed.at, self.specification.now);
        self.specification.claim(&request, &claimed.claims);
        self.flights.extend(claimed.claims.iter().map(|claim| (name.to_owned(), claim.lease)));
    }

    async fn promote(&mut self, limit: u32) {
        let due = self.specification.promotable();
        let expected = due.len().min(limit as usize);
        let promoted = self.trial.store.promote(limit).await.unwrap();
        // Of several that are due at the same instant, the limit may cut off any.
        let ready: BTreeSet<_> = self.trial.places().await.ready.into_iter().collect();
        let chosen: Vec<_> = due.iter().filter(|(_, id)| ready.contains(id)).collect();
        assert_eq!(chosen.len(), expected);
        assert!(chosen.iter().map(|(at, _)| at).eq(due[..expected].iter().map(|(at, _)| at)), "the earliest first");
        for (_, id) in chosen {
            self.specification.promote(*id);
        }
        let next = self.specification.scheduled().first().map(|(at, _)| {
            let wait = at.duration_since(self.specification.now);
            Duration::try_from(wait).unwrap_or_default()
        });
        assert_eq!(promoted, Promoted { ready: expected as u64, next_due_in: next });
    }

    async fn recover(&mut self, limit: u32, max_abandoned: u32) {
        let expired = self.specification.expired();
        let recovered = self.trial.store.recover(limit, max_abandoned).await.unwrap();
        let left: BTreeSet<_> = self.trial.places().await.leases.into_iter().collect();
        let chosen: Vec<_> = expired.difference(&left).copied().collect();
        assert_eq!(chosen.len(), expired.len().min(limit as usize), "as many as the limit allows");
        let mut expected = Recovered::default();
        for id in chosen {
            if self.specification.recover(id, max_abandoned) {
                expected.dead += 1;
            } else {
                expected.returned += 1;
            }
        }
        assert_eq!(recovered, expected);
    }

    async fn retain(&mut self, older_than: Duration, limit: u32) {
        let (mut events, mut deliveries, mut after) = (0, 0, None);
        loop {
            let step = self.trial.store.retain(older_than, after, limit).await.unwrap();
            assert!(step.events <= u64::from(limit));
            events += step.events;
            deliveries += step.deliveries;
            after = step.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((events, deliveries), self.specification.retain(older_than));
    }

    /// What the operation announced is what a follower hears next.
    async fn follow(&mut self, told_before: usize) {
        let announced = self.trial.store.announcements(&self.feed, 1000).await.unwrap();
        self.feed = announced.place;
        let mut heard: Vec<_> = announced
            .announcements
            .iter()
            .map(|heard| Told {
                at: heard.at,
                delivery: heard.delivery_id,
                fact: heard.fact.as_str(),
                attempt_count: heard.attempt_count,
            })
            .collect();
        let mut told = self.specification.announcements[told_before..].to_vec();
        heard.sort();
        told.sort();
        assert_eq!(heard, told);
    }

    async fn compare(&self) {
        let specification = &self.specification;
        let listed = self.trial.deliveries().await;
        let ids: Vec<_> = listed.iter().rev().map(|delivery| delivery.id).collect();
        assert_eq!(ids, specification.deliveries.keys().copied().collect::<Vec<_>>());
        for shown in &listed {
            self.compare_delivery(shown);
        }
        let places = self.trial.places().await;
        let at = |wanted: fn(&Place) -> bool| -> Vec<DeliveryId> {
            specification.deliveries.iter().filter(|(_, it)| wanted(&it.place)).map(|(id, _)| *id).collect()
        };
        assert_eq!(places.ready, at(|place| matches!(place, Place::Ready(_))));
        assert_eq!(places.scheduled, at(|place| *place == Place::Scheduled));
        assert_eq!(places.leases, at(|place| matches!(place, Place::Leased { .. })));
        assert_eq!(places.events, specification.events.len() as u64);
        assert_eq!(places.announcements, specification.announcements.len() as u64);
        assert_eq!(places.idempotency_keys, specification.keys.len() as u64);
        for (id, status) in &specification.endpoints {
            assert_eq!(self.trial.store.endpoint(*id).await.unwrap().unwrap().status, *status);
        }
        self.trial.check_places().await;
    }

    fn compare_delivery(&self, shown: &Delivery) {
        let id = shown.id;
        let expected = &self.specification.deliveries[&id];
        assert_eq!(shown.event_id, expected.event);
        assert_eq!(shown.endpoint_id, expected.endpoint);
        assert_eq!(shown.status, expected.status, "{id}");
        assert_eq!(shown.attempt_count, expected.attempt_count, "attempt_count of {id}");
        assert_eq!(shown.earlier_attempts, expected.earlier_attempts, "earlier_attempts of {id}");
        assert_eq!(shown.abandoned_count, expected.abandoned_count, "abandoned_count of {id}");
        assert_eq!(shown.last_attempted_at, expected.last_attempted_at, "last_attempted_at of {id}");
        assert_eq!(shown.created_at, self.specification.events[&expected.event], "created_at of {id}");
        match (shown.next_attempt_at, expected.due) {
            (Some(shown), Due::At(at)) => assert_eq!(shown, at, "next_attempt_at of {id}"),
            (Some(shown), Due::NotAfter(at)) => assert!(shown <= at, "next_attempt_at of {id} is {shown}, now {at}"),
            (None, Due::Never) => {}
            (shown, expected) => panic!("next_attempt_at of {id} is {shown:?}, not {expected:?}"),
        }
        match &expected.detail {
            Detail::Is(detail) => assert_eq!(shown.error_detail, *detail, "error_detail of {id}"),
            Detail::Mentions(word) => assert!(shown.error_detail.as_ref().unwrap().contains(word), "{shown:?}"),
            Detail::Open => {}
        }
        let (owner, until) = match &expected.place {
            Place::Leased { owner, until, .. } => (Some(owner.clone()), Some(*until)),
            _ => (None, None),
        };
        assert_eq!((&shown.lease_owner, shown.lease_until), (&owner, until), "the lease of {id}");
    }

    /// The attempts of every delivery, the subjects, and the audit trail.
    async fn compare_histories(&self) {
        for subject in (0..3).map(subject_of) {
            let shown = self.trial.store.once("default", &subject).await.unwrap();
            let shown = shown.map(|claim| (claim.generation, claim.winner.map(|winner| winner.event_id)));
            let expected = self.specification.subjects.standing(&subject);
            assert_eq!(shown, expected.map(|standing| (standing.generation, standing.winner)), "{subject}");
        }
        for (id, expected) in &self.specification.deliveries {
            let attempts = self.trial.attempts(*id).await;
            let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.number as usize).collect();
            assert_eq!(numbers, (1..=expected.attempts.len()).collect::<Vec<_>>(), "attempts of {id}");
        }
        let page = PageRequest::new(PageRequest::MAX_LIMIT, None).unwrap();
        let audit = self.trial.store.audit(None, &page).await.unwrap().items;
        // At a standing clock entries of the same instant have no order to keep.
        let mut audited: Vec<_> = audit.into_iter().map(|entry| (entry.action, entry.subject)).collect();
        let mut expected: Vec<_> =
            self.specification.audit.iter().map(|(action, subject)| ((*action).to_owned(), subject.clone())).collect();
        audited.sort();
        expected.sort();
        assert_eq!(audited, expected);
    }
}

fn subject_of(number: u8) -> String {
    format!("subject/{number}")
}

fn choose(ids: &[DeliveryId], number: u16) -> Option<DeliveryId> {
    (!ids.is_empty()).then(|| ids[usize::from(number) % ids.len()])
}
