//! Events: enqueue and look.

use bytes::Bytes;
use postrider::event::check_name;
use postrider::{
    DeliveryStatus, EndpointId, EndpointStatus, EnqueueError, Enqueued, EventFilter, EventId, NewEvent, Once,
};

use super::deliveries::storable;
use super::endpoints::disabled;
use super::{Caller, Service};
use crate::api::events::{EnqueuedBatch, EnqueuedEvent, Event, EventDelivery, EventRequest, EventsQuery};
use crate::api::{Listing, Problem, page_request};

/// A batch has at most this many events.
const MOST_PER_BATCH: usize = 1_000;

/// A page of events ends when its payloads come to this.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// What remains of a request when its event is on its way, for the answer.
struct Asked {
    event_type: String,
    once: bool,
}

impl Service {
    /// Enqueues one event, in one transaction with whatever else arrives at the same time.
    pub async fn enqueue(&self, caller: &Caller, request: EventRequest) -> Result<EnqueuedEvent, Problem> {
        let tenant = caller.tenant_for_write()?;
        let asked = Asked::of(&request);
        let event = self.admitted(new_event(tenant, request))?;
        self.must_reach(tenant, event.endpoint_id).await?;
        let enqueued = self.0.queue_for(&event).enqueue(event).await?;
        self.told(caller, asked, enqueued).await
    }

    /// Enqueues events, all or none.
    pub async fn enqueue_batch(&self, caller: &Caller, requests: Vec<EventRequest>) -> Result<EnqueuedBatch, Problem> {
        let tenant = caller.tenant_for_write()?;
        if requests.is_empty() || requests.len() > MOST_PER_BATCH {
            let detail = format!("a batch has 1 to {MOST_PER_BATCH} events, this one has {}", requests.len());
            return Err(Problem::new(422, "batch_size_invalid", detail));
        }
        let asked: Vec<Asked> = requests.iter().map(Asked::of).collect();
        let admit = |(at, request)| self.admitted(new_event(tenant, request)).map_err(|problem| problem.within(at));
        let events = requests.into_iter().enumerate().map(admit).collect::<Result<Vec<_>, Problem>>()?;
        for (at, event) in events.iter().enumerate() {
            self.must_reach(tenant, event.endpoint_id).await.map_err(|problem| problem.within(at))?;
        }
        let keys: Vec<_> = events.iter().map(|event| event.idempotency_key.clone()).collect();
        let enqueued = self.0.store.enqueue(events).await.map_err(|error| match &error {
            EnqueueError::IdempotencyConflict { key, .. } => {
                // The first of two may be what the second contradicts; if there is but one, it contradicts what was there.
                let mut places = (0..keys.len()).filter(|&at| keys[at].as_ref() == Some(key));
                let first = places.next();
                let at = places.next().or(first);
                let problem = Problem::from(error);
                at.map_or(problem.clone(), |at| problem.about("idempotency_key").within(at))
            }
            EnqueueError::Refused(_) | EnqueueError::Store(_) => Problem::from(error),
        })?;
        let mut data = Vec::with_capacity(enqueued.len());
        for (asked, enqueued) in asked.into_iter().zip(enqueued) {
            data.push(self.told(caller, asked, enqueued).await?);
        }
        Ok(EnqueuedBatch { data })
    }

    /// One event.
    pub async fn event(&self, caller: &Caller, id: EventId) -> Result<Event, Problem> {
        let event = self.0.store.event(id).await?.filter(|event| caller.tenant.covers(&event.tenant));
        event.map(Event::from).ok_or_else(|| Problem::not_found("event", id))
    }

    /// Events that match, newest first.
    pub async fn events(&self, caller: &Caller, query: &EventsQuery) -> Result<Listing<Event>, Problem> {
        if let Some(event_type) = &query.event_type {
            check_name("type", "event_type_invalid", event_type)?;
        }
        let filter = EventFilter {
            tenant: caller.tenant.filter().map(str::to_owned),
            event_type: query.event_type.clone(),
            since: self.instant("since", query.since.as_deref()).await?,
            until: self.instant("until", query.until.as_deref()).await?,
        };
        let page = page_request(query.limit, query.cursor.as_deref())?;
        Ok(Listing::from_page(self.0.store.events(&filter, &page, PAGE_BYTES).await?, Event::from))
    }

    /// Refuses what the store would refuse before it takes anybody's place in the queue.
    fn admitted(&self, event: NewEvent) -> Result<NewEvent, Problem> {
        if event.deliver_at.is_some_and(|at| storable(at).is_none()) {
            let detail = "deliver_at is before 1970, which not every database can keep";
            return Err(Problem::new(422, "deliver_at_invalid", detail).about("deliver_at"));
        }
        let admitted = self.0.settings.admission.admit(event)?;
        Ok(admitted.event().clone())
    }

    /// Refuses an endpoint that is named and not there: the store would take the event, and nobody would get it.
    async fn must_reach(&self, tenant: &str, id: Option<EndpointId>) -> Result<(), Problem> {
        let Some(id) = id else { return Ok(()) };
        let endpoint = self.0.store.endpoint(id).await?.filter(|endpoint| endpoint.tenant == tenant);
        let problem = match endpoint.map(|endpoint| endpoint.status) {
            Some(EndpointStatus::Active | EndpointStatus::Paused) => return Ok(()),
            Some(EndpointStatus::Disabled) => disabled(id),
            None => Problem::new(422, "endpoint_not_found", format!("there is no endpoint {id}")),
        };
        Err(problem.about("endpoint_id"))
    }

    async fn told(&self, caller: &Caller, asked: Asked, enqueued: Enqueued) -> Result<EnqueuedEvent, Problem> {
        let (id, duplicate, claimed, generation) = match enqueued {
            Enqueued::New { event_id, created_at, deliveries } => {
                let pending = |delivery: postrider::EnqueuedDelivery| EventDelivery {
                    id: delivery.id,
                    destination_url: delivery.destination_url,
                    status: DeliveryStatus::Pending,
                };
                return Ok(EnqueuedEvent {
                    id: Some(event_id),
                    event_type: asked.event_type,
                    created_at: Some(created_at),
                    duplicate: false,
                    claimed: asked.once.then_some(true),
                    generation: None,
                    deliveries: deliveries.into_iter().map(pending).collect(),
                });
            }
            Enqueued::Duplicate { event_id } => (Some(event_id), true, asked.once.then_some(true), None),
            Enqueued::NotClaimed { generation, winner } => (winner, false, Some(false), Some(generation)),
        };
        // The event that was there before. It may be gone: keys and claims are kept for longer than events.
        let earlier = match id {
            Some(id) => self.0.store.event(id).await?.filter(|event| caller.tenant.covers(&event.tenant)),
            None => None,
        };
        Ok(match earlier {
            Some(event) => EnqueuedEvent {
                id,
                event_type: event.event_type,
                created_at: Some(event.created_at),
                duplicate,
                claimed,
                generation,
                deliveries: event.deliveries.into_iter().map(EventDelivery::from).collect(),
            },
            None => EnqueuedEvent {
                id,
                event_type: asked.event_type,
                created_at: None,
                duplicate,
                claimed,
                generation,
                deliveries: Vec::new(),
            },
        })
    }
}

impl Asked {
    fn of(request: &EventRequest) -> Self {
        Self { event_type: request.event_type.clone(), once: request.once.is_some() }
    }
}

fn new_event(tenant: &str, request: EventRequest) -> NewEvent {
    let payload: Box<str> = request.payload.into();
    let mut event = NewEvent::new(request.event_type, Bytes::from(String::from(payload))).tenant(tenant);
    event.destination_url = request.destination_url;
    event.endpoint_id = request.endpoint_id;
    event.idempotency_key = request.idempotency_key;
    event.once = request.once.map(|once| Once { subject: once.subject, generation: once.generation });
    event.deliver_at = request.deliver_at;
    event.metadata = request.metadata.unwrap_or_default();
    if let Some(topic) = request.topic {
        event.topic = topic;
    }
    event
}
