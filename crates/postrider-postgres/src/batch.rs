//! Writing a list of events, and finding out what became of each.
//!
//! One statement writes all that can be written at once (a smaller one, if that is a single event), after another one has
//! claimed subjects, where events claim any.
//! What they cannot do is decide between two events of the same list:
//! of those with the same idempotency key or the same subject, the first is sent, and the others wait. Mostly what became
//! of the first says what becomes of them. Where it does not (the first lost its claim, so its key is free for the
//! next), they are sent in another round. Each round settles at least the first event that is left.
//!
//! What an event lost against is read afterwards, in statements with snapshots of their own. A key that is known comes
//! before a subject that is claimed: whoever repeats an event that has won is told that it is a duplicate.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use postrider::{
    AdmittedEvent, DeliveryId, Destination, EndpointId, Enqueued, EnqueuedDelivery, EventId, StoreError, StoreErrorCode,
};
use sqlx::postgres::{PgArguments, PgDatabaseError, PgRow};
use sqlx::query::Query;
use sqlx::types::Json;
use sqlx::{PgConnection, Postgres};
use uuid::Uuid;

use crate::error::{Result, store_error};
use crate::values::{Columns as _, Instant, generation, instant, signed};

/// How many rounds more than there are events: subjects may be reset again and again while they are claimed.
const SPARE_ROUNDS: usize = 20;

/// What became of one event.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    Enqueued(Enqueued),
    /// Its key belongs to this event, whose content differs.
    Conflict(EventId),
}

/// Why a list was not written.
#[derive(Debug)]
pub(crate) enum Failure {
    Store(StoreError),
    /// An event has claimed its subject, and then somebody else had its key: the claim must be taken back, with the whole
    /// list, and then repeated.
    Overtaken,
    /// An event brought an id that another one has.
    IdTaken(EventId),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A tenant's idempotency key, or a tenant's subject.
type Name<'a> = (&'a str, &'a str);

/// Whose a key is.
struct KeyOwner {
    event_id: EventId,
    fingerprint: Vec<u8>,
}

/// How a subject stands.
#[derive(Clone, Copy)]
struct Standing {
    generation: u64,
    winner: Option<EventId>,
}

/// What one event of a round has written.
struct Written {
    event_id: EventId,
    is_new: bool,
    created_at: Timestamp,
    deliveries: Vec<EnqueuedDelivery>,
}

pub(crate) fn key_of(event: &AdmittedEvent) -> Option<Name<'_>> {
    let event = event.event();
    event.idempotency_key.as_deref().map(|key| (event.tenant.as_str(), key))
}

fn subject_of(event: &AdmittedEvent) -> Option<Name<'_>> {
    let event = event.event();
    event.once.as_ref().map(|once| (event.tenant.as_str(), once.subject.as_str()))
}

fn index_of(row: &PgRow) -> Result<usize> {
    Ok(usize::try_from(row.value::<i64>("index")?).expect("the list's own index"))
}

/// The id that an event brought and another one has. Postgres names it only in the detail, which holds nothing else here.
fn taken_id(error: &sqlx::Error) -> Option<EventId> {
    let error = error.as_database_error()?.try_downcast_ref::<PgDatabaseError>()?;
    if error.constraint() != Some("events_pkey") {
        return None;
    }
    let (_, value) = error.detail()?.split_once("=(")?;
    value.split_once(')')?.0.parse().ok()
}

fn statement_for_one(
    now: Option<Instant>,
    admitted: &AdmittedEvent,
    brought: Option<Uuid>,
) -> Query<'_, Postgres, PgArguments> {
    let (event, destination) = (admitted.event(), admitted.destination());
    sqlx::query(include_str!("../sql/enqueue_one.sql"))
        .bind(now)
        .bind(event.tenant.as_str())
        .bind(event.event_type.as_str())
        .bind(&event.payload[..])
        .bind(Json(&event.metadata))
        .bind(event.topic.as_str())
        .bind(event.deliver_at.map(instant))
        .bind(destination.map(Destination::as_str))
        .bind(destination.map(|it| it.lane().0))
        .bind(event.endpoint_id.map(|id| id.as_uuid()))
        .bind(brought)
}

/// The list while it is written.
struct Batch<'a> {
    events: &'a [AdmittedEvent],
    /// Of those with a key.
    prints: Vec<Option<[u8; 32]>>,
    fates: Vec<Option<Fate>>,
    /// Whose the keys are that were looked at; none when a key is nobody's.
    keys: HashMap<Name<'a>, Option<KeyOwner>>,
    /// How the subjects stand that somebody lost.
    subjects: HashMap<Name<'a>, Standing>,
}

/// Writes the list on a connection. What it does in several statements is one thing only in a transaction; see
/// [`crate::enqueue`] for when it needs one.
pub(crate) async fn write(
    connection: &mut PgConnection,
    now: Option<Instant>,
    events: &[AdmittedEvent],
) -> Result<Vec<Fate>, Failure> {
    let prints = events.iter().map(|event| key_of(event).map(|_| event.fingerprint())).collect();
    let fates = vec![None; events.len()];
    let mut batch = Batch { events, prints, fates, keys: HashMap::new(), subjects: HashMap::new() };
    for _ in 0..events.len() + SPARE_ROUNDS {
        let sent = batch.choose();
        let claimed = batch.claim(connection, now, &sent).await?;
        let written = batch.insert(connection, now, &sent, &claimed).await?;
        batch.take_in(connection, &sent, &claimed, written).await?;
        if batch.fates.iter().all(Option::is_some) {
            return Ok(batch.fates.into_iter().flatten().collect());
        }
    }
    let message = "subjects were reset again and again while they were claimed; try again";
    Err(StoreError::new(StoreErrorCode::Conflict, message).into())
}

impl<'a> Batch<'a> {
    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.events.len()).filter(|&index| self.fates[index].is_none())
    }

    /// The events of the next round: all that are left, but of each key and each subject only the first. One whose
    /// subject is known to be lost waits for a look at its key.
    fn choose(&self) -> Vec<usize> {
        let mut seen = HashSet::new();
        let mut first = |index: &usize| {
            let event = &self.events[*index];
            if self.has_lost(event) {
                return false;
            }
            let is_first_of_key = key_of(event).is_none_or(|key| seen.insert(("key", key)));
            let is_first_of_subject = subject_of(event).is_none_or(|subject| seen.insert(("subject", subject)));
            is_first_of_key && is_first_of_subject
        };
        self.open().filter(|index| first(index)).collect()
    }

    /// The id under which an event wants to be written.
    fn brought(&self, index: usize) -> Option<Uuid> {
        self.events[index].event().id.map(|id| id.as_uuid())
    }

    /// Whether an event is known to have lost its claim.
    fn has_lost(&self, event: &AdmittedEvent) -> bool {
        self.lost_to(event).is_some()
    }

    fn lost_to(&self, event: &AdmittedEvent) -> Option<Standing> {
        let standing = self.subjects.get(&subject_of(event)?)?;
        let wanted = event.event().once.as_ref().and_then(|once| once.generation);
        let is_over = wanted.is_some_and(|wanted| wanted != standing.generation);
        (standing.winner.is_some() || is_over).then_some(*standing)
    }

    /// Claims the subjects of those that want one, and returns under which id each may be written.
    async fn claim(
        &self,
        connection: &mut PgConnection,
        now: Option<Instant>,
        sent: &[usize],
    ) -> Result<HashMap<usize, Uuid>> {
        let wanting: Vec<usize> =
            sent.iter().copied().filter(|&index| self.events[index].event().once.is_some()).collect();
        if wanting.is_empty() {
            return Ok(HashMap::new());
        }
        let each = || wanting.iter().map(|&index| self.events[index].event());
        let once = || each().filter_map(|event| event.once.as_ref());
        let rows = sqlx::query(include_str!("../sql/once_claim.sql"))
            .bind(now)
            .bind(each().map(|event| event.tenant.as_str()).collect::<Vec<_>>())
            .bind(once().map(|once| once.subject.as_str()).collect::<Vec<_>>())
            .bind(once().map(|once| once.generation.map(signed)).collect::<Vec<_>>())
            .bind(each().map(|event| event.event_type.as_str()).collect::<Vec<_>>())
            .bind(each().map(|event| event.idempotency_key.as_deref()).collect::<Vec<_>>())
            .bind(wanting.iter().map(|index| self.brought(*index)).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(store_error("claiming a subject"))?;
        rows.iter().map(|row| Ok((wanting[index_of(row)?], row.value("event_id")?))).collect()
    }

    /// Writes those that want no subject or have claimed it.
    async fn insert(
        &self,
        connection: &mut PgConnection,
        now: Option<Instant>,
        sent: &[usize],
        claimed: &HashMap<usize, Uuid>,
    ) -> Result<HashMap<usize, Written>, Failure> {
        let may_be_written = |index: &usize| self.events[*index].event().once.is_none() || claimed.contains_key(index);
        let sent: Vec<usize> = sent.iter().copied().filter(may_be_written).collect();
        if sent.is_empty() {
            return Ok(HashMap::new());
        }
        let brought = |index: usize| claimed.get(&index).copied().or(self.brought(index));
        let statement = match sent[..] {
            [only] if self.prints[only].is_none() => statement_for_one(now, &self.events[only], brought(only)),
            _ => self.statement_for_all(now, &sent, brought),
        };
        let rows = statement.fetch_all(connection).await.map_err(|error| {
            taken_id(&error).map_or_else(|| store_error("enqueueing")(error).into(), Failure::IdTaken)
        })?;
        let mut written = HashMap::<usize, Written>::with_capacity(sent.len());
        for row in &rows {
            let entry = written.entry(sent[index_of(row)?]).or_insert(Written {
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

    fn statement_for_all(
        &self,
        now: Option<Instant>,
        sent: &[usize],
        brought: impl Fn(usize) -> Option<Uuid>,
    ) -> Query<'static, Postgres, PgArguments> {
        let each = || sent.iter().map(|&index| self.events[index].event());
        let destinations = || sent.iter().map(|&index| self.events[index].destination());
        sqlx::query(include_str!("../sql/enqueue.sql"))
            .bind(now)
            .bind(each().map(|event| event.tenant.as_str()).collect::<Vec<_>>())
            .bind(each().map(|event| event.event_type.as_str()).collect::<Vec<_>>())
            .bind(each().map(|event| &event.payload[..]).collect::<Vec<_>>())
            .bind(each().map(|event| Json(&event.metadata)).collect::<Vec<_>>())
            .bind(each().map(|event| event.topic.as_str()).collect::<Vec<_>>())
            .bind(each().map(|event| event.idempotency_key.as_deref()).collect::<Vec<_>>())
            .bind(sent.iter().map(|&index| self.prints[index].as_ref().map(|print| &print[..])).collect::<Vec<_>>())
            .bind(each().map(|event| event.deliver_at.map(instant)).collect::<Vec<Option<Instant>>>())
            .bind(destinations().map(|destination| destination.map(Destination::as_str)).collect::<Vec<_>>())
            .bind(destinations().map(|destination| destination.map(|it| it.lane().0)).collect::<Vec<_>>())
            .bind(each().map(|event| event.endpoint_id.map(|id| id.as_uuid())).collect::<Vec<_>>())
            .bind(sent.iter().map(|&index| brought(index)).collect::<Vec<_>>())
    }

    /// Learns from a round what it can, and settles all events that follow from it.
    async fn take_in(
        &mut self,
        connection: &mut PgConnection,
        sent: &[usize],
        claimed: &HashMap<usize, Uuid>,
        mut written: HashMap<usize, Written>,
    ) -> Result<(), Failure> {
        let events = self.events;
        let mut lost_keys = Vec::new();
        let mut subjects = Vec::new();
        for &index in sent {
            let event = &events[index];
            subjects.extend(subject_of(event));
            match written.remove(&index) {
                Some(Written { event_id, is_new: true, created_at, deliveries }) => {
                    if let (Some(key), Some(print)) = (key_of(event), &self.prints[index]) {
                        self.keys.insert(key, Some(KeyOwner { event_id, fingerprint: print.to_vec() }));
                    }
                    self.fates[index] = Some(Fate::Enqueued(Enqueued::New { event_id, created_at, deliveries }));
                }
                Some(_) if claimed.contains_key(&index) => return Err(Failure::Overtaken),
                Some(_) => lost_keys.extend(key_of(event)),
                None => {}
            }
        }
        // Whoever has won is asked about only if somebody else in the list wants the same.
        let wanted: HashSet<Name<'a>> = self.open().filter_map(|index| subject_of(&events[index])).collect();
        subjects.retain(|subject| wanted.contains(subject));
        self.look_at_subjects(connection, subjects).await?;
        let uncertain = |index: &usize| {
            let event = &events[*index];
            subject_of(event).is_some() && (self.has_lost(event) || sent.contains(index))
        };
        let asked: Vec<Name<'a>> = self.open().filter(uncertain).filter_map(|index| key_of(&events[index])).collect();
        self.look_at_keys(connection, asked, &lost_keys).await?;
        for index in 0..events.len() {
            if self.fates[index].is_none() {
                self.fates[index] = self.fate(index);
            }
        }
        Ok(())
    }

    /// What becomes of an event, as far as is known.
    fn fate(&self, index: usize) -> Option<Fate> {
        let event = &self.events[index];
        if let Some(key) = key_of(event) {
            match self.keys.get(&key) {
                Some(Some(owner)) if self.prints[index].is_some_and(|print| print[..] == owner.fingerprint[..]) => {
                    return Some(Fate::Enqueued(Enqueued::Duplicate { event_id: owner.event_id }));
                }
                Some(Some(owner)) => return Some(Fate::Conflict(owner.event_id)),
                Some(None) => {}
                None => return None,
            }
        }
        let Standing { generation, winner } = self.lost_to(event)?;
        Some(Fate::Enqueued(Enqueued::NotClaimed { generation, winner }))
    }

    async fn look_at_subjects(&mut self, connection: &mut PgConnection, asked: Vec<Name<'a>>) -> Result<()> {
        if asked.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query(include_str!("../sql/once.sql"))
            .bind(asked.iter().map(|(tenant, _)| *tenant).collect::<Vec<_>>())
            .bind(asked.iter().map(|(_, subject)| *subject).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(store_error("reading once-only claims"))?;
        let mut found = HashMap::new();
        for row in &rows {
            let winner: Option<Uuid> = row.value("event_id")?;
            let generation = generation(row.value("generation")?)?;
            let name: (String, String) = (row.value("tenant")?, row.value("subject")?);
            found.insert(name, Standing { generation, winner: winner.map(EventId::from_uuid) });
        }
        // A subject that is not there is in its first generation.
        let standing = |(tenant, subject): Name<'_>| {
            let found = found.get(&(tenant.to_owned(), subject.to_owned()));
            found.copied().unwrap_or(Standing { generation: 1, winner: None })
        };
        self.subjects.extend(asked.into_iter().map(|subject| (subject, standing(subject))));
        Ok(())
    }

    /// Looks up whose keys are: those that are certainly taken, and those that may be.
    async fn look_at_keys(
        &mut self,
        connection: &mut PgConnection,
        uncertain: Vec<Name<'a>>,
        lost: &[Name<'a>],
    ) -> Result<()> {
        let asked: HashSet<Name<'a>> = uncertain.into_iter().chain(lost.iter().copied()).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query(include_str!("../sql/enqueue_earlier.sql"))
            .bind(asked.iter().map(|(tenant, _)| *tenant).collect::<Vec<_>>())
            .bind(asked.iter().map(|(_, key)| *key).collect::<Vec<_>>())
            .fetch_all(connection)
            .await
            .map_err(store_error("reading idempotency keys"))?;
        let mut found = HashMap::new();
        for row in &rows {
            let event_id = EventId::from_uuid(row.value("event_id")?);
            let name: (String, String) = (row.value("tenant")?, row.value("key")?);
            found.insert(name, KeyOwner { event_id, fingerprint: row.value("fingerprint")? });
        }
        for (tenant, key) in asked {
            self.keys.insert((tenant, key), found.remove(&(tenant.to_owned(), key.to_owned())));
        }
        // Under REPEATABLE READ the winner may be younger than the transaction's snapshot.
        if lost.iter().any(|key| self.keys.get(key).is_some_and(Option::is_none)) {
            return Err(StoreError::new(
                StoreErrorCode::Conflict,
                "a concurrent transaction has just taken the same idempotency key, and this transaction's isolation \
                 level hides it; repeat the transaction",
            ));
        }
        Ok(())
    }
}
