//! Enqueueing: in the caller's transaction, or in one of the store's own.
//!
//! One statement writes the whole list (see [`crate::batch`]), and mostly that is all. Some lists may have to be taken back
//! after something was written: all of it, when an idempotency key is refused in a list that is all or nothing; or to be
//! repeated, when an event had claimed its subject and then lost its key. And some need several statements. Such lists need
//! a transaction or, in the caller's, a savepoint.
//!
//! A key or a subject that an application has taken in a transaction of its own, which may stay open for hours, is waited
//! for: whether it is taken is only known at the end. In the caller's transaction that is the caller's business. In one of the
//! store's own it would hold a connection, and whoever is in the same list, so it has a limit.

use postrider::{AdmittedEvent, EnqueueError, Enqueued, EventId, NewEvent, StoreError, StoreErrorCode};
use sqlx::PgConnection;

use crate::PostgresStore;
use crate::batch::{self, Failure, Fate, key_of};
use crate::error::store_error;

type Result<T, E = EnqueueError> = std::result::Result<T, E>;

/// Begins a transaction that waits for others, but not for ever.
const WITH_PATIENCE: &str = "begin; set local lock_timeout = '1s'";

/// How often a list is repeated because others were quicker.
const MAX_TRIES: u32 = 10;

/// Whether a conflict of one event is everybody's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    AllOrNone,
    EachForItself,
}

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
    ///
    /// An event that claims a subject while another transaction is doing the same waits for that one to end.
    pub async fn enqueue_all_in(&self, connection: &mut PgConnection, events: Vec<NewEvent>) -> Result<Vec<Enqueued>> {
        let events = self.admit_all(events)?;
        if !needs_undo(&events) {
            return all(&events, batch::write(connection, self.now(), &events).await.map_err(final_failure)?);
        }
        let failed = || store_error("enqueueing in the caller's transaction");
        for _ in 0..MAX_TRIES {
            sqlx::query("savepoint postrider_enqueue").execute(&mut *connection).await.map_err(failed())?;
            let written = match batch::write(connection, self.now(), &events).await {
                Ok(fates) => Some(all(&events, fates)),
                Err(Failure::Store(error)) => Some(Err(error.into())),
                Err(Failure::IdTaken(id)) => Some(Err(EnqueueError::id_taken(id))),
                Err(Failure::Overtaken) => None,
            };
            let end = match &written {
                Some(Ok(_)) => "release savepoint postrider_enqueue",
                _ => "rollback to savepoint postrider_enqueue",
            };
            let ended = sqlx::query(end).execute(&mut *connection).await.map_err(failed());
            if let Some(written) = written {
                let enqueued = written?;
                ended?;
                return Ok(enqueued);
            }
            ended?;
        }
        Err(overtaken().into())
    }

    pub(crate) async fn enqueue_all(&self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>> {
        let events = self.admit_all(events)?;
        let fates = self.write_own(&events, Bound::AllOrNone).await?;
        all(&events, fates)
    }

    pub(crate) async fn enqueue_apart(&self, events: Vec<NewEvent>) -> Result<Vec<Result<Enqueued>>, StoreError> {
        let mut admitted = Vec::with_capacity(events.len());
        let mut refused = Vec::with_capacity(events.len());
        for event in events {
            match self.admission.admit(event) {
                Ok(event) => {
                    admitted.push(event);
                    refused.push(None);
                }
                Err(refusal) => refused.push(Some(refusal)),
            }
        }
        let mut enqueued = self.write_apart(&admitted).await?.into_iter();
        let each = |refusal: Option<_>| match refusal {
            Some(refusal) => Err(EnqueueError::Refused(refusal)),
            None => enqueued.next().expect("each event that was admitted has a result"),
        };
        Ok(refused.into_iter().map(each).collect())
    }

    async fn write_apart(&self, events: &[AdmittedEvent]) -> Result<Vec<Result<Enqueued>>, StoreError> {
        let error = match self.write_own(events, Bound::EachForItself).await {
            Ok(fates) => return Ok(events.iter().zip(fates).map(|(event, fate)| result_of(event, fate)).collect()),
            Err(EnqueueError::Store(error)) => return Err(error),
            Err(error) => error,
        };
        // Somebody's id was taken, which Postgres tells by refusing the whole statement.
        if events.len() == 1 {
            return Ok(vec![Err(error)]);
        }
        let (first, second) = events.split_at(events.len() / 2);
        let mut results = Box::pin(self.write_apart(first)).await?;
        results.extend(Box::pin(self.write_apart(second)).await?);
        Ok(results)
    }

    fn admit_all(&self, events: Vec<NewEvent>) -> Result<Vec<AdmittedEvent>> {
        Ok(events.into_iter().map(|event| self.admission.admit(event)).collect::<std::result::Result<_, _>>()?)
    }

    /// Writes a list in a transaction of the store's own. Where all are bound together, a conflict leaves nothing behind.
    async fn write_own(&self, events: &[AdmittedEvent], bound: Bound) -> Result<Vec<Fate>> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        if !events.iter().any(may_wait) {
            let mut lent = self.lend("enqueueing").await?;
            let fates = batch::write(&mut lent, self.now(), events).await.map_err(final_failure)?;
            lent.give_back();
            return Ok(fates);
        }
        let mut last = overtaken();
        for _ in 0..MAX_TRIES {
            let mut transaction = self.lend("enqueueing").await?.begin(WITH_PATIENCE).await?;
            match batch::write(&mut transaction, self.now(), events).await {
                Ok(fates) => {
                    if bound == Bound::EachForItself || fates.iter().all(|fate| matches!(fate, Fate::Enqueued(_))) {
                        transaction.commit().await?;
                    } else {
                        transaction.roll_back().await?;
                    }
                    return Ok(fates);
                }
                Err(Failure::Overtaken) => {}
                // Two lists that claim in several rounds may deadlock; the one that was chosen to fail repeats.
                Err(Failure::Store(error)) if error.code == StoreErrorCode::Conflict => last = error,
                Err(failure) => return Err(final_failure(failure)),
            }
            transaction.roll_back().await?;
        }
        Err(last.into())
    }
}

/// Whether somebody else's transaction may have to be waited for.
fn may_wait(event: &AdmittedEvent) -> bool {
    key_of(event).is_some() || event.event().once.is_some()
}

/// Whether what was written may have to be taken back, or is written in several statements.
fn needs_undo(events: &[AdmittedEvent]) -> bool {
    let claims = |event: &AdmittedEvent| event.event().once.is_some();
    let brings = |event: &AdmittedEvent| event.event().id.is_some();
    let is_bound = events.len() > 1;
    events.iter().any(|event| claims(event) || brings(event) || (is_bound && key_of(event).is_some()))
}

fn result_of(event: &AdmittedEvent, fate: Fate) -> Result<Enqueued> {
    match fate {
        Fate::Enqueued(enqueued) => Ok(enqueued),
        Fate::Conflict(event_id) => Err(conflict(event, event_id)),
    }
}

/// The results of a list that is all or nothing.
fn all(events: &[AdmittedEvent], fates: Vec<Fate>) -> Result<Vec<Enqueued>> {
    events.iter().zip(fates).map(|(event, fate)| result_of(event, fate)).collect()
}

fn conflict(event: &AdmittedEvent, event_id: EventId) -> EnqueueError {
    let key = event.event().idempotency_key.clone().unwrap_or_default();
    EnqueueError::IdempotencyConflict { key, event_id }
}

fn overtaken() -> StoreError {
    StoreError::new(StoreErrorCode::Conflict, "others keep taking the same idempotency keys; try again")
}

/// Where nothing has to be taken back, nobody can be overtaken.
fn final_failure(failure: Failure) -> EnqueueError {
    match failure {
        Failure::Store(error) => error.into(),
        Failure::Overtaken => overtaken().into(),
        Failure::IdTaken(id) => EnqueueError::id_taken(id),
    }
}
