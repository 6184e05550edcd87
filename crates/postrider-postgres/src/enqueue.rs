//! Enqueueing: in the caller's transaction, or in one of the store's own.
//!
//! One statement writes the whole list. What remains to be done here is idempotency: within a list, an event whose key
//! came earlier in it is not even sent; against the database, the keys that lost are looked up, and if the winner's
//! content differs everything that the statement wrote is taken back. For that a list with keys needs a transaction
//! or, in the caller's, a savepoint. A single event needs neither: when its key lost, nothing was written.

use std::collections::HashMap;

use jiff::Timestamp;
use postrider::{
    AdmittedEvent, DeliveryId, Destination, EndpointId, EnqueueError, Enqueued, EnqueuedDelivery, EventId, NewEvent,
    StoreError, StoreErrorCode,
};
use sqlx::types::Json;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::PostgresStore;
use crate::error::store_error;
use crate::values::{Columns as _, Instant, instant};

type Result<T, E = EnqueueError> = std::result::Result<T, E>;

/// A tenant's idempotency key.
type Key<'a> = (&'a str, &'a str);

impl PostgresStore {
    /// Enqueues one event on the caller's connection: inside its transaction, the event exists if and only if that
    /// transaction commits.
    ///
    /// ```no_run
    /// use postrider::NewEvent;
    /// use postrider_postgres::PostgresStore;
    ///
    /// # async fn example(store: PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = store.pool().begin().await?;
    /// sqlx::query("update invoices set status = 'paid' where id = 42").execute(&mut *transaction).await?;
    /// store.enqueue_in(&mut transaction, NewEvent::new("invoice.paid", r#"{"invoice":42}"#)).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_in(&self, connection: &mut PgConnection, event: NewEvent) -> Result<Enqueued> {
        let mut enqueued = self.enqueue_all_in(connection, vec![event]).await?;
        Ok(enqueued.pop().expect("one event has one result"))
    }

    /// Enqueues a list of events in the caller's transaction, all or none. When an idempotency key is refused, the
    /// transaction stays usable and nothing of the list is in it.
    pub async fn enqueue_all_in(&self, connection: &mut PgConnection, events: Vec<NewEvent>) -> Result<Vec<Enqueued>> {
        let events = self.admit_all(events)?;
        if !needs_undo(&events) {
            return self.write(connection, &events).await;
        }
        let failed = || store_error("enqueueing in the caller's transaction");
        sqlx::query("savepoint postrider_enqueue").execute(&mut *connection).await.map_err(failed())?;
        let written = self.write(connection, &events).await;
        let end = match &written {
            Ok(_) => "release savepoint postrider_enqueue",
            Err(_) => "rollback to savepoint postrider_enqueue",
        };
        let ended = sqlx::query(end).execute(&mut *connection).await.map_err(failed());
        let enqueued = written?;
        ended?;
        Ok(enqueued)
    }

    pub(crate) async fn enqueue_all(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>> {
        let events = self.admit_all(events)?;
        let failed = || store_error("enqueueing");
        if needs_undo(&events) {
            let mut transaction = self.pool().begin().await.map_err(failed())?;
            let enqueued = self.write(&mut transaction, &events).await?;
            transaction.commit().await.map_err(failed())?;
            return Ok(enqueued);
        }
        let mut connection = self.pool().acquire().await.map_err(failed())?;
        self.write(&mut connection, &events).await
    }

    fn admit_all(&self, events: Vec<NewEvent>) -> Result<Vec<AdmittedEvent>> {
        Ok(events.into_iter().map(|event| self.admission.admit(event)).collect::<std::result::Result<_, _>>()?)
    }

    async fn write(&self, connection: &mut PgConnection, events: &[AdmittedEvent]) -> Result<Vec<Enqueued>> {
        let prints: Vec<[u8; 32]> = events.iter().map(AdmittedEvent::fingerprint).collect();
        let firsts = first_of_each_key(events);
        let sent: Vec<usize> = (0..events.len()).filter(|&index| firsts[index] == index).collect();
        let mut written = self.insert(connection, events, &prints, &sent).await?;

        let lost: Vec<usize> = sent.iter().copied().filter(|&index| !written[&index].is_new).collect();
        for (index, winner) in winners(connection, events, &lost).await? {
            if winner.fingerprint != prints[index] {
                return Err(conflict(&events[index], winner.event_id));
            }
            written.get_mut(&index).expect("what was sent was answered").event_id = winner.event_id;
        }
        let mut results = Vec::with_capacity(events.len());
        for (index, &first) in firsts.iter().enumerate() {
            if index == first {
                let Written { event_id, is_new, created_at, deliveries } = written[&index].clone();
                results.push(if is_new {
                    Enqueued::New { event_id, created_at, deliveries }
                } else {
                    Enqueued::Duplicate { event_id }
                });
            } else if prints[index] == prints[first] {
                results.push(Enqueued::Duplicate { event_id: written[&first].event_id });
            } else {
                return Err(conflict(&events[index], written[&first].event_id));
            }
        }
        Ok(results)
    }

    async fn insert(
        &self,
        connection: &mut PgConnection,
        events: &[AdmittedEvent],
        prints: &[[u8; 32]],
        sent: &[usize],
    ) -> Result<HashMap<usize, Written>> {
        let each = || sent.iter().map(|&index| events[index].event());
        let destinations = || sent.iter().map(|&index| events[index].destination());
        let rows = sqlx::query(include_str!("../sql/enqueue.sql"))
            .bind(self.now())
            .bind(each().map(|event| event.tenant.as_str()).collect::<Vec<_>>())
            .bind(each().map(|event| event.event_type.as_str()).collect::<Vec<_>>())
            .bind(each().map(|event| &event.payload[..]).collect::<Vec<_>>())
            .bind(each().map(|event| Json(&event.metadata)).collect::<Vec<_>>())
            .bind(each().map(|event| event.topic.as_str()).collect::<Vec<_>>())
            .bind(each().map(|event| event.idempotency_key.as_deref()).collect::<Vec<_>>())
            .bind(sent.iter().map(|&index| &prints[index][..]).collect::<Vec<_>>())
            .bind(each().map(|event| event.deliver_at.map(instant)).collect::<Vec<Option<Instant>>>())
            .bind(destinations().map(|destination| destination.map(Destination::as_str)).collect::<Vec<_>>())
            .bind(destinations().map(|destination| destination.map(|it| it.lane().0)).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(store_error("enqueueing"))?;
        let mut written = HashMap::<usize, Written>::with_capacity(sent.len());
        for row in &rows {
            let index = usize::try_from(row.value::<i64>("index")?).expect("the list's own index");
            let entry = written.entry(sent[index]).or_insert(Written {
                event_id: EventId::from_uuid(row.value("event_id")?),
                is_new: row.value("is_new")?,
                created_at: row.instant("created_at")?,
                deliveries: Vec::new(),
            });
            if let Some(id) = row.value::<Option<Uuid>>("delivery_id")? {
                entry.deliveries.push(EnqueuedDelivery {
                    id: DeliveryId::from_uuid(id),
                    destination_url: row.value("destination_url")?,
                    endpoint_id: row.value::<Option<Uuid>>("endpoint_id")?.map(EndpointId::from_uuid),
                });
            }
        }
        Ok(written)
    }
}

#[derive(Clone)]
struct Written {
    event_id: EventId,
    is_new: bool,
    created_at: Timestamp,
    deliveries: Vec<EnqueuedDelivery>,
}

struct Winner {
    event_id: EventId,
    fingerprint: Vec<u8>,
}

fn key_of(event: &AdmittedEvent) -> Option<Key<'_>> {
    let event = event.event();
    event.idempotency_key.as_deref().map(|key| (event.tenant.as_str(), key))
}

/// A refused key among several events means that what was written for the others must be taken back.
fn needs_undo(events: &[AdmittedEvent]) -> bool {
    events.len() > 1 && events.iter().any(|event| key_of(event).is_some())
}

/// For each event the first one in the list with the same key: itself, for most.
fn first_of_each_key(events: &[AdmittedEvent]) -> Vec<usize> {
    let mut seen = HashMap::new();
    let first = |(index, event)| key_of(event).map_or(index, |key| *seen.entry(key).or_insert(index));
    events.iter().enumerate().map(first).collect()
}

fn conflict(event: &AdmittedEvent, event_id: EventId) -> EnqueueError {
    let key = event.event().idempotency_key.clone().unwrap_or_default();
    EnqueueError::IdempotencyConflict { key, event_id }
}

/// Who has the keys of the events that lost.
async fn winners(
    connection: &mut PgConnection,
    events: &[AdmittedEvent],
    lost: &[usize],
) -> Result<Vec<(usize, Winner)>> {
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    let keys: Vec<Key<'_>> = lost.iter().filter_map(|&index| key_of(&events[index])).collect();
    let rows = sqlx::query(include_str!("../sql/enqueue_earlier.sql"))
        .bind(keys.iter().map(|(tenant, _)| *tenant).collect::<Vec<_>>())
        .bind(keys.iter().map(|(_, key)| *key).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(store_error("reading idempotency keys"))?;
    let mut found = HashMap::new();
    for row in &rows {
        let key = (row.get::<String, _>("tenant"), row.get::<String, _>("key"));
        let event_id = EventId::from_uuid(row.value("event_id")?);
        found.insert(key, Winner { event_id, fingerprint: row.value("fingerprint")? });
    }
    lost.iter()
        .zip(keys)
        .map(|(&index, (tenant, key))| match found.remove(&(tenant.to_owned(), key.to_owned())) {
            Some(winner) => Ok((index, winner)),
            // Under REPEATABLE READ the winner may be younger than the transaction's snapshot.
            None => Err(EnqueueError::Store(StoreError::new(
                StoreErrorCode::Conflict,
                "a concurrent transaction has just taken the same idempotency key, and this transaction's isolation \
                 level hides it; repeat the transaction",
            ))),
        })
        .collect()
}
