//! What a store does, said once more without a store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::store::{Action, Claim, ClaimRequest, Forbidden, Lane, Settle, Settlement};
use postrider::{
    DeliveryId, DeliveryStatus, EndpointId, EndpointStatus, EventId, Fact, Lease, LeaseToken, NewEvent, Verdict,
};

use super::subjects::Subjects;

/// Everything that a store knows.
#[derive(Debug)]
pub struct Specification {
    /// The time.
    pub now: Timestamp,
    /// Events, with the time of their enqueue.
    pub events: BTreeMap<EventId, Timestamp>,
    /// Deliveries.
    pub deliveries: BTreeMap<DeliveryId, Delivery>,
    /// Endpoints.
    pub endpoints: BTreeMap<EndpointId, EndpointStatus>,
    /// Idempotency keys, with what was enqueued under them.
    pub keys: BTreeMap<String, (EventId, NewEvent)>,
    /// Once-only claims.
    pub subjects: Subjects,
    /// What was announced and is kept.
    pub announcements: Vec<Told>,
    /// What operators did: action and subject.
    pub audit: Vec<(&'static str, String)>,
}

/// One delivery.
#[derive(Debug)]
pub struct Delivery {
    /// Its event.
    pub event: EventId,
    /// Its endpoint, unless its event named a destination.
    pub endpoint: Option<EndpointId>,
    /// Its lane.
    pub lane: Lane,
    /// How it stands.
    pub status: DeliveryStatus,
    /// Where it is.
    pub place: Place,
    /// Attempts of this round.
    pub attempt_count: u32,
    /// Attempts of earlier rounds.
    pub earlier_attempts: u32,
    /// Leases that expired in a row.
    pub abandoned_count: u32,
    /// When it is due.
    pub due: Due,
    /// When an attempt was last settled.
    pub last_attempted_at: Option<Timestamp>,
    /// Why it failed.
    pub detail: Detail,
    /// The lease of each attempt that was settled, in order.
    pub attempts: Vec<LeaseToken>,
}

/// A delivery is in exactly one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Due and unclaimed; since when, unless the contract leaves its turn open.
    Ready(Option<Timestamp>),
    /// Not yet due.
    Scheduled,
    /// Claimed.
    Leased {
        /// By whom.
        owner: String,
        /// Under which token.
        token: LeaseToken,
        /// Until when others keep off.
        until: Timestamp,
    },
    /// Nothing happens to it by itself.
    Settled,
}

/// When a delivery is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At exactly this instant.
    At(Timestamp),
    /// It was given or taken back: at once, so not after this instant.
    NotAfter(Timestamp),
    /// Never, it is settled.
    Never,
}

/// What `error_detail` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// Exactly this.
    Is(Option<String>),
    /// Something with this word.
    Mentions(&'static str),
    /// The contract does not say.
    Open,
}

/// One announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// When.
    pub at: Timestamp,
    /// About which delivery.
    pub delivery: DeliveryId,
    /// What.
    pub fact: &'static str,
    /// After how many attempts.
    pub attempt_count: u32,
}

fn plus(instant: Timestamp, duration: Duration) -> Timestamp {
    instant + SignedDuration::try_from(duration).unwrap()
}

impl Specification {
    /// Nothing yet.
    pub fn new(now: Timestamp, endpoints: impl IntoIterator<Item = EndpointId>) -> Self {
        let endpoints: BTreeMap<_, _> = endpoints.into_iter().map(|id| (id, EndpointStatus::Active)).collect();
        Self {
            now,
            events: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            audit: endpoints.keys().map(|id| ("endpoint.create", id.to_string())).collect(),
            endpoints,
            keys: BTreeMap::new(),
            subjects: Subjects::default(),
            announcements: Vec::new(),
        }
    }

    /// An event was enqueued, with these deliveries.
    pub fn enqueue(&mut self, id: EventId, event: &NewEvent, deliveries: Vec<(DeliveryId, Option<EndpointId>, Lane)>) {
        self.events.insert(id, self.now);
        self.subjects.enqueued(event, id);
        if let Some(key) = &event.idempotency_key {
            self.keys.insert(key.clone(), (id, event.clone()));
        }
        for (delivery, endpoint, lane) in deliveries {
            let later = event.deliver_at.filter(|at| *at > self.now);
            let delivery_state = Delivery {
                event: id,
                endpoint,
                lane,
                status: DeliveryStatus::Pending,
                place: if later.is_some() { Place::Scheduled } else { Place::Ready(Some(self.now)) },
                attempt_count: 0,
                earlier_attempts: 0,
                abandoned_count: 0,
                due: match event.deliver_at {
                    Some(past) if past < self.now => Due::NotAfter(self.now),
                    at => Due::At(at.unwrap_or(self.now)),
                },
                last_attempted_at: None,
                detail: Detail::Is(None),
                attempts: Vec::new(),
            };
            let known = self.deliveries.insert(delivery, delivery_state);
            assert!(known.is_none(), "{delivery} was given out twice");
        }
    }

    /// Whether deliveries of this lane may be claimed.
    fn is_open(&self, delivery: &Delivery) -> bool {
        delivery.endpoint.is_none_or(|endpoint| self.endpoints[&endpoint] == EndpointStatus::Active)
    }

    /// How many a claim may still take of each lane that has something ready, in the order of lanes.
    fn free_slots(&self, request: &ClaimRequest) -> BTreeMap<Lane, u32> {
        let in_flight: BTreeMap<_, _> = request.in_flight.iter().cloned().collect();
        self.deliveries
            .values()
            .filter(|delivery| matches!(delivery.place, Place::Ready(_)) && self.is_open(delivery))
            .map(|delivery| {
                let taken = in_flight.get(&delivery.lane).copied().unwrap_or_default();
                (delivery.lane.clone(), request.lane_limit.saturating_sub(taken))
            })
            .collect()
    }

    /// Checks that these are claims that the request may be answered with, and follows them.
    pub fn claim(&mut self, request: &ClaimRequest, claims: &[Claim]) {
        assert!(claims.len() <= request.limit as usize, "more than the limit");
        let mut free = self.free_slots(request);
        let claimable = request.limit > 0 && free.values().any(|slots| *slots > 0);
        assert_eq!(claims.is_empty(), !claimable, "something is taken if and only if something may be: {free:?}");

        let mut shares: BTreeMap<Lane, u32> = BTreeMap::new();
        let mut tokens = BTreeSet::new();
        for claim in claims {
            let id = claim.lease.delivery_id;
            let delivery = &self.deliveries[&id];
            assert!(matches!(delivery.place, Place::Ready(_)), "{id} was not ready but {:?}", delivery.place);
            assert!(self.is_open(delivery), "the endpoint of {id} takes nothing now");
            assert_eq!(claim.lane, delivery.lane);
            assert_eq!(claim.event_id, delivery.event);
            assert_eq!(claim.attempt_count, delivery.attempt_count);
            assert_eq!(claim.earlier_attempts, delivery.earlier_attempts);
            assert_eq!(claim.abandoned_count, delivery.abandoned_count);
            let slots = free.get_mut(&claim.lane).expect("its lane has something ready");
            assert!(*slots > 0, "{:?} has no free slot", claim.lane);
            *slots -= 1;
            *shares.entry(claim.lane.clone()).or_default() += 1;
            assert!(tokens.insert(claim.lease.token.0), "a token of its own");
        }
        let mut turns = Vec::new();
        for claim in claims {
            let until = plus(self.now, request.lease);
            let (owner, token) = (request.worker.to_string(), claim.lease.token);
            let delivery = self.deliveries.get_mut(&claim.lease.delivery_id).expect("it was just looked at");
            let Place::Ready(since) = std::mem::replace(&mut delivery.place, Place::Leased { owner, token, until })
            else {
                unreachable!("it was ready a moment ago");
            };
            turns.push((&claim.lane, since));
        }
        for (lane, since) in turns {
            self.check_turn(lane, since);
        }
        self.check_fairness(request.limit, &free, &shares);
    }

    /// Nothing that is left in the lane was ready before.
    fn check_turn(&self, lane: &Lane, since: Option<Timestamp>) {
        for (id, left) in self.deliveries.iter().filter(|(_, delivery)| delivery.lane == *lane) {
            if let (Place::Ready(Some(waiting)), Some(since)) = (&left.place, since) {
                assert!(since <= *waiting, "{id} was ready before what was claimed in its lane");
            }
        }
    }

    /// While a lane that got less than an equal share still has something ready and a free slot, no other lane got more
    /// than that share.
    fn check_fairness(&self, limit: u32, free: &BTreeMap<Lane, u32>, shares: &BTreeMap<Lane, u32>) {
        let lanes = free.keys().filter(|lane| free[*lane] > 0 || shares.contains_key(*lane)).count();
        let share = (limit / u32::try_from(lanes.max(1)).unwrap()).max(1);
        for delivery in self.deliveries.values().filter(|delivery| self.is_open(delivery)) {
            if matches!(delivery.place, Place::Ready(_)) && free[&delivery.lane] > 0 {
                let own = shares.get(&delivery.lane).copied().unwrap_or_default();
                let most = shares.values().copied().max().unwrap_or_default();
                assert!(own >= share || most <= share, "{:?} got {own} of {share}, and another {most}", delivery.lane);
            }
        }
    }

    fn held(&mut self, owner: &str, lease: Lease) -> Option<&mut Delivery> {
        let delivery = self.deliveries.get_mut(&lease.delivery_id)?;
        let held = matches!(&delivery.place,
            Place::Leased { owner: by, token, .. } if by == owner && *token == lease.token);
        held.then_some(delivery)
    }

    /// Whether the lease was renewed.
    pub fn renew(&mut self, owner: &str, lease: Lease, duration: Duration) -> bool {
        let new = plus(self.now, duration);
        let Some(delivery) = self.held(owner, lease) else { return false };
        if let Place::Leased { until, .. } = &mut delivery.place {
            *until = new.max(*until);
        }
        true
    }

    /// Whether the lease was given back.
    pub fn release(&mut self, owner: &str, lease: Lease) -> bool {
        let now = self.now;
        let Some(delivery) = self.held(owner, lease) else { return false };
        delivery.place = Place::Ready(None);
        delivery.due = Due::NotAfter(now);
        true
    }

    /// What becomes of a settle.
    pub fn settle(&mut self, owner: &str, settle: &Settle) -> Settlement {
        let now = self.now;
        let id = settle.lease.delivery_id;
        let Some(delivery) = self.held(owner, settle.lease) else {
            let earlier = self.deliveries.get(&id).is_some_and(|it| it.attempts.contains(&settle.lease.token));
            return if earlier { Settlement::AppliedEarlier } else { Settlement::LeaseLost };
        };
        delivery.attempt_count += 1;
        delivery.abandoned_count = 0;
        delivery.last_attempted_at = Some(now);
        delivery.attempts.push(settle.lease.token);
        delivery.detail = Detail::Is(settle.attempt.error_detail.clone());
        let fact = match settle.verdict {
            Verdict::Delivered => {
                delivery.settled(DeliveryStatus::Delivered);
                Fact::Delivered
            }
            Verdict::Dead => {
                delivery.settled(DeliveryStatus::Dead);
                Fact::Dead
            }
            Verdict::Retry { after } => {
                delivery.status = DeliveryStatus::Failed;
                delivery.place = Place::Scheduled;
                delivery.due = Due::At(plus(now, after));
                Fact::Failed
            }
        };
        let endpoint = delivery.endpoint.filter(|_| settle.disable_endpoint);
        self.announce(fact, id);
        if let Some(endpoint) = endpoint {
            let status = self.endpoints.get_mut(&endpoint).expect("a delivery's endpoint is registered");
            if std::mem::replace(status, EndpointStatus::Disabled) != EndpointStatus::Disabled {
                self.announce(Fact::EndpointDisabled, id);
            }
        }
        Settlement::Applied
    }

    fn announce(&mut self, fact: Fact, delivery: DeliveryId) {
        let attempt_count = self.deliveries[&delivery].attempt_count;
        self.announcements.push(Told { at: self.now, delivery, fact: fact.as_str(), attempt_count });
    }

    /// The leases that may be taken back now.
    pub fn expired(&self) -> BTreeSet<DeliveryId> {
        let expired = |place: &Place| matches!(place, Place::Leased { until, .. } if *until <= self.now);
        self.deliveries.iter().filter(|(_, delivery)| expired(&delivery.place)).map(|(id, _)| *id).collect()
    }

    /// An expired lease was taken back. Whether that was the end of its delivery.
    pub fn recover(&mut self, id: DeliveryId, max_abandoned: u32) -> bool {
        let now = self.now;
        let delivery = self.deliveries.get_mut(&id).expect("it had a lease");
        delivery.abandoned_count += 1;
        let dead = delivery.abandoned_count >= max_abandoned;
        if dead {
            delivery.settled(DeliveryStatus::Dead);
            delivery.detail = Detail::Mentions("abandoned");
            self.announce(Fact::Dead, id);
        } else {
            delivery.place = Place::Ready(None);
            delivery.due = Due::NotAfter(now);
        }
        dead
    }

    /// What is scheduled and due, the earliest first.
    pub fn promotable(&self) -> Vec<(Timestamp, DeliveryId)> {
        let mut all = self.scheduled();
        all.retain(|(at, _)| *at <= self.now);
        all
    }

    /// What is scheduled, the earliest first.
    pub fn scheduled(&self) -> Vec<(Timestamp, DeliveryId)> {
        let scheduled = self.deliveries.iter().filter(|(_, delivery)| delivery.place == Place::Scheduled);
        let mut all: Vec<_> = scheduled
            .map(|(id, delivery)| match delivery.due {
                Due::At(at) => (at, *id),
                other => panic!("{id} is scheduled, and due {other:?}"),
            })
            .collect();
        all.sort();
        all
    }

    /// A scheduled delivery became ready.
    pub fn promote(&mut self, id: DeliveryId) {
        self.deliveries.get_mut(&id).expect("it was scheduled").place = Place::Ready(Some(self.now));
    }

    /// What becomes of an operator's retry.
    pub fn retry(&mut self, id: DeliveryId) -> Action {
        let now = self.now;
        let Some(delivery) = self.deliveries.get_mut(&id) else { return Action::NotFound };
        match (delivery.status, &delivery.place) {
            (_, Place::Leased { .. }) => return Action::Forbidden(Forbidden::InFlight),
            (DeliveryStatus::Delivered, _) => return Action::Forbidden(Forbidden::AlreadyDelivered),
            (DeliveryStatus::Pending, _) | (_, Place::Ready(_)) => return Action::Forbidden(Forbidden::AlreadyDue),
            (DeliveryStatus::Failed, _) => {}
            (DeliveryStatus::Dead | DeliveryStatus::Cancelled, _) => {
                delivery.status = DeliveryStatus::Pending;
                delivery.earlier_attempts += std::mem::take(&mut delivery.attempt_count);
                delivery.abandoned_count = 0;
            }
        }
        delivery.place = Place::Ready(Some(now));
        delivery.due = Due::At(now);
        delivery.detail = Detail::Open;
        self.audit.push(("delivery.retry", id.to_string()));
        Action::Done
    }

    /// Retries the oldest of this status that may be. How many.
    pub fn retry_matching(&mut self, status: Option<DeliveryStatus>, limit: usize) -> u64 {
        let matching = self.deliveries.iter().filter(|(_, it)| status.is_none_or(|status| it.status == status));
        let ids: Vec<_> = matching.map(|(id, _)| *id).collect();
        let mut done = 0;
        for id in ids {
            if done < limit && self.retry(id) == Action::Done {
                done += 1;
            }
        }
        done as u64
    }

    /// What becomes of an operator's cancellation.
    pub fn cancel(&mut self, id: DeliveryId, reason: &str) -> Action {
        let Some(delivery) = self.deliveries.get_mut(&id) else { return Action::NotFound };
        if delivery.status.is_settled() {
            return Action::Forbidden(Forbidden::AlreadySettled(delivery.status));
        }
        delivery.settled(DeliveryStatus::Cancelled);
        delivery.detail = Detail::Is(Some(reason.to_owned()));
        self.announce(Fact::Cancelled, id);
        self.audit.push(("delivery.cancel", id.to_string()));
        Action::Done
    }

    /// An operator pauses, resumes or disables an endpoint.
    pub fn set_endpoint(&mut self, id: EndpointId, status: EndpointStatus) {
        self.endpoints.insert(id, status);
        let action = match status {
            EndpointStatus::Active => "endpoint.resume",
            EndpointStatus::Paused => "endpoint.pause",
            EndpointStatus::Disabled => "endpoint.disable",
        };
        self.audit.push((action, id.to_string()));
    }

    /// Removes what is older and done. How many events and deliveries.
    pub fn retain(&mut self, older_than: Duration) -> (u64, u64) {
        let border = self.now - SignedDuration::try_from(older_than).unwrap();
        let done = |status| matches!(status, DeliveryStatus::Delivered | DeliveryStatus::Cancelled);
        let unfinished: BTreeSet<_> =
            self.deliveries.values().filter(|it| !done(it.status)).map(|delivery| delivery.event).collect();
        let (events, deliveries) = (self.events.len(), self.deliveries.len());
        self.events.retain(|id, created_at| *created_at >= border || unfinished.contains(id));
        self.deliveries.retain(|_, delivery| self.events.contains_key(&delivery.event));
        self.announcements.retain(|told| told.at >= border);
        ((events - self.events.len()) as u64, (deliveries - self.deliveries.len()) as u64)
    }
}

impl Delivery {
    fn settled(&mut self, status: DeliveryStatus) {
        self.status = status;
        self.place = Place::Settled;
        self.due = Due::Never;
    }
}
