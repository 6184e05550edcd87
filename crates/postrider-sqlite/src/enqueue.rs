//! Enqueueing: an event, its deliveries, and their places, in the transaction that is under way.

use std::collections::HashMap;

use postrider::store::Lane;
use postrider::{
    Admission, AdmittedEvent, DeliveryId, EndpointId, EnqueueError, Enqueued, EnqueuedDelivery, EventId,
    EventTypePattern, NewEvent, Refusal, StoreError,
};
use rusqlite::types::Type;
use rusqlite::{Error, OptionalExtension, params};
use uuid::Uuid;

use crate::error::store_error;
use crate::once::{self, Standing};
use crate::places;
use crate::sql::sql;
use crate::writer::Session;

/// Checks all events before anything is written.
pub(crate) fn admit(admission: &Admission, events: Vec<NewEvent>) -> Result<Vec<AdmittedEvent>, Refusal> {
    events.into_iter().map(|event| admission.admit(event)).collect()
}

/// Writes events that have nothing to do with each other: what is wrong with one is told, and the others are written.
/// Nothing was written yet of an event that is refused or in conflict, so it needs no savepoint of its own. An error of
/// the store is for all of them.
pub(crate) fn enqueue_each(
    session: &mut Session,
    events: Vec<Result<AdmittedEvent, Refusal>>,
) -> Result<Vec<Result<Enqueued, EnqueueError>>, StoreError> {
    let mut endpoints = HashMap::new();
    let each = events.into_iter().map(|event| {
        let enqueued = event.map_err(EnqueueError::from).and_then(|event| enqueue_one(session, &mut endpoints, &event));
        match enqueued {
            Err(EnqueueError::Store(error)) => Err(error),
            result => Ok(result),
        }
    });
    each.collect()
}

/// Writes the events. After an error the caller rolls its savepoint back: some may have been written.
pub(crate) fn enqueue(session: &mut Session, events: &[AdmittedEvent]) -> Result<Vec<Enqueued>, EnqueueError> {
    // Endpoints cannot change while this transaction is open, so those of a tenant are read once per call.
    let mut endpoints = HashMap::new();
    events.iter().map(|event| enqueue_one(session, &mut endpoints, event)).collect()
}

struct FanOut {
    id: EndpointId,
    url: String,
    event_types: Vec<EventTypePattern>,
}

fn enqueue_one(
    session: &mut Session,
    endpoints: &mut HashMap<String, Vec<FanOut>>,
    admitted: &AdmittedEvent,
) -> Result<Enqueued, EnqueueError> {
    let sql_error = |error| store_error("enqueue an event", error);
    if let Some(earlier) = earlier_event(session, admitted).map_err(sql_error)? {
        let (event_id, fingerprint) = earlier;
        return if fingerprint == admitted.fingerprint() {
            Ok(Enqueued::Duplicate { event_id })
        } else {
            let key = admitted.event().idempotency_key.clone().unwrap_or_default();
            Err(EnqueueError::IdempotencyConflict { key, event_id })
        };
    }
    let event = admitted.event();
    let claim = match &event.once {
        None => None,
        Some(wanted) => match once::look(session, &event.tenant, wanted).map_err(sql_error)? {
            Standing::Free { generation } => Some((wanted, generation)),
            Standing::Taken { generation, winner } => return Ok(Enqueued::NotClaimed { generation, winner }),
        },
    };
    if let Some(id) = event.id
        && is_taken(session, id).map_err(sql_error)?
    {
        return Err(EnqueueError::id_taken(id));
    }
    let event_id = write_event(session, admitted).map_err(sql_error)?;
    if let Some((wanted, generation)) = claim {
        once::claim(session, admitted, wanted, generation, event_id).map_err(sql_error)?;
    }
    let deliveries = write_deliveries(session, endpoints, admitted, event_id).map_err(sql_error)?;
    let created_at = crate::rows::timestamp(session.now).map_err(sql_error)?;
    Ok(Enqueued::New { event_id, created_at, deliveries })
}

/// One to the event's own destination, or one to each endpoint that takes it.
fn write_deliveries(
    session: &mut Session,
    endpoints: &mut HashMap<String, Vec<FanOut>>,
    admitted: &AdmittedEvent,
    event_id: EventId,
) -> rusqlite::Result<Vec<EnqueuedDelivery>> {
    let event = admitted.event();
    let mut deliveries = Vec::new();
    if let Some(destination) = admitted.destination() {
        let id = write_delivery(session, admitted, event_id, None, &destination.lane(), destination.as_str());
        deliveries.push(EnqueuedDelivery {
            id: id?,
            destination_url: destination.as_str().to_owned(),
            endpoint_id: None,
        });
    } else if let Some(endpoint_id) = event.endpoint_id {
        if let Some(url) = url_of(session, &event.tenant, endpoint_id)? {
            let lane = Lane::of_endpoint(endpoint_id);
            let id = write_delivery(session, admitted, event_id, Some(endpoint_id), &lane, &url)?;
            deliveries.push(EnqueuedDelivery { id, destination_url: url, endpoint_id: Some(endpoint_id) });
        }
    } else {
        if !endpoints.contains_key(&event.tenant) {
            let found = endpoints_of(session, &event.tenant)?;
            endpoints.insert(event.tenant.clone(), found);
        }
        let wants = |endpoint: &&FanOut| endpoint.event_types.iter().any(|pattern| pattern.matches(&event.event_type));
        for endpoint in endpoints[&event.tenant].iter().filter(wants) {
            let lane = Lane::of_endpoint(endpoint.id);
            let id = write_delivery(session, admitted, event_id, Some(endpoint.id), &lane, &endpoint.url);
            deliveries.push(EnqueuedDelivery {
                id: id?,
                destination_url: endpoint.url.clone(),
                endpoint_id: Some(endpoint.id),
            });
        }
    }
    Ok(deliveries)
}

fn earlier_event(session: &Session, admitted: &AdmittedEvent) -> rusqlite::Result<Option<(EventId, [u8; 32])>> {
    let event = admitted.event();
    let Some(key) = &event.idempotency_key else {
        return Ok(None);
    };
    let mut statement = session.connection.prepare_cached(sql!("enqueue_earlier"))?;
    statement
        .query_row(params![event.tenant, key], |row| {
            Ok((EventId::from_uuid(row.get("event_id")?), row.get("fingerprint")?))
        })
        .optional()
}

fn is_taken(session: &Session, id: EventId) -> rusqlite::Result<bool> {
    session.connection.prepare_cached(sql!("event"))?.exists(params![id.as_uuid()])
}

fn write_event(session: &mut Session, admitted: &AdmittedEvent) -> rusqlite::Result<EventId> {
    let event = admitted.event();
    let id = event.id.map_or_else(|| session.mint(), |id| id.as_uuid());
    let metadata = serde_json::to_string(&event.metadata).expect("a map of JSON values is JSON");
    let connection = &session.connection;
    connection.prepare_cached(sql!("enqueue_event"))?.execute(params![
        id,
        event.tenant,
        event.event_type,
        event.payload.as_ref(),
        metadata,
        event.topic,
        session.now,
    ])?;
    if let Some(key) = &event.idempotency_key {
        let fingerprint = admitted.fingerprint();
        connection.prepare_cached(sql!("enqueue_key"))?.execute(params![event.tenant, key, fingerprint, id])?;
    }
    Ok(EventId::from_uuid(id))
}

fn write_delivery(
    session: &mut Session,
    admitted: &AdmittedEvent,
    event_id: EventId,
    endpoint_id: Option<EndpointId>,
    lane: &Lane,
    url: &str,
) -> rusqlite::Result<DeliveryId> {
    let id = DeliveryId::from_uuid(session.mint());
    let due_at = admitted.event().deliver_at.map_or(session.now, jiff::Timestamp::as_microsecond);
    session.connection.prepare_cached(sql!("enqueue_delivery"))?.execute(params![
        id.as_uuid(),
        event_id.as_uuid(),
        admitted.event().tenant,
        endpoint_id.map(|id| id.as_uuid()),
        lane.0,
        url,
        due_at,
        session.now,
    ])?;
    if due_at > session.now {
        places::schedule(session, id, due_at)?;
    } else {
        places::make_ready(session, id)?;
    }
    Ok(id)
}

/// Where an endpoint of the tenant's is, unless it is disabled or gone.
fn url_of(session: &Session, tenant: &str, id: EndpointId) -> rusqlite::Result<Option<String>> {
    crate::rows::find(&session.connection, sql!("enqueue_endpoint"), params![id.as_uuid(), tenant])
}

fn endpoints_of(session: &Session, tenant: &str) -> rusqlite::Result<Vec<FanOut>> {
    let mut statement = session.connection.prepare_cached(sql!("enqueue_endpoints"))?;
    let rows = statement.query_map(params![tenant], |row| {
        let event_types: String = row.get("event_types")?;
        Ok(FanOut {
            id: EndpointId::from_uuid(row.get::<_, Uuid>("id")?),
            url: row.get("url")?,
            event_types: serde_json::from_str(&event_types)
                .map_err(|error| Error::FromSqlConversionFailure(2, Type::Text, error.into()))?,
        })
    })?;
    rows.collect()
}
