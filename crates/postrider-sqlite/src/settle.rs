//! What becomes of a lease: renewed, settled, released, or recovered. Whoever deletes its row decides.

use postrider::store::{Promoted, Recovered, Settle, Settlement};
use postrider::{DeliveryId, EndpointId, Fact, Lease, Verdict, WorkerId};
use rusqlite::{CachedStatement, params};
use uuid::Uuid;

use crate::clock::{self, Micros};
use crate::places;
use crate::remembered::Facts;
use crate::rows;
use crate::sql::sql;
use crate::streak::Streaks;
use crate::writer::Session;

pub(crate) fn renew(
    session: &Session,
    worker: &WorkerId,
    leases: &[Lease],
    lease: std::time::Duration,
) -> rusqlite::Result<Vec<Lease>> {
    let until = clock::after(session.now, lease);
    let mut statement = session.connection.prepare_cached(sql!("renew"))?;
    let mut renewed = Vec::with_capacity(leases.len());
    for lease in leases {
        if statement.execute(params![lease.delivery_id.as_uuid(), worker.as_str(), lease.token.0, until])? == 1 {
            renewed.push(*lease);
        }
    }
    Ok(renewed)
}

/// Deletes the lease if it is held by `worker` under this token: the right to go on.
fn consume(session: &Session, worker: &WorkerId, lease: &Lease) -> rusqlite::Result<bool> {
    let mut statement = session.connection.prepare_cached(sql!("consume_lease"))?;
    let deleted = statement.execute(params![lease.delivery_id.as_uuid(), worker.as_str(), lease.token.0])?;
    Ok(deleted == 1)
}

pub(crate) fn settle(
    session: &mut Session,
    worker: &WorkerId,
    settles: &[Settle],
) -> rusqlite::Result<Vec<Settlement>> {
    let (mut streaks, mut applied) = (Streaks::default(), Vec::new());
    let mut known: Vec<Option<Facts>> =
        settles.iter().map(|settle| session.remembered.take(settle.lease.token.0)).collect();
    let settlements = settle_each(session, worker, settles, &mut known, &mut applied)?;
    session.announced |= !applied.is_empty();
    // What comes last in the list counts for its endpoint.
    applied.sort_unstable_by_key(|(index, _)| *index);
    for (index, endpoint_id) in applied {
        if let Some(endpoint_id) = endpoint_id {
            streaks.note(session, endpoint_id, &settles[index])?;
        }
    }
    Ok(settlements)
}

/// Settles one by one with statements that are looked up once for all, in the order of the deliveries, whose rows are then
/// found and written page by page. Of those that were applied it notes the endpoint, which is looked after when all
/// are done.
fn settle_each(
    session: &Session,
    worker: &WorkerId,
    settles: &[Settle],
    known: &mut [Option<Facts>],
    applied: &mut Vec<(usize, Option<EndpointId>)>,
) -> rusqlite::Result<Vec<Settlement>> {
    let mut statements = Statements::prepare(session)?;
    let mut settlements = vec![Settlement::LeaseLost; settles.len()];
    let mut order: Vec<usize> = (0..settles.len()).collect();
    order.sort_by_key(|&index| settles[index].lease.delivery_id);
    for index in order {
        let settle = &settles[index];
        let (id, token) = (settle.lease.delivery_id.as_uuid(), settle.lease.token.0);
        if statements.consume.execute(params![id, worker.as_str(), token])? == 0 {
            let earlier: Option<i64> = rows::find(&session.connection, sql!("settle_earlier"), params![id, token])?;
            if earlier.is_some() {
                settlements[index] = Settlement::AppliedEarlier;
            }
            continue;
        }
        #[cfg(feature = "failpoints")]
        postrider::failpoint::reached(postrider::failpoint::MID_TRANSACTION);
        applied.push((index, statements.apply(session, worker, settle, known[index].take())?));
        settlements[index] = Settlement::Applied;
    }
    Ok(settlements)
}

/// What every settle runs.
struct Statements<'session> {
    consume: CachedStatement<'session>,
    look: CachedStatement<'session>,
    update: CachedStatement<'session>,
    attempt: CachedStatement<'session>,
    announce: CachedStatement<'session>,
}

impl<'session> Statements<'session> {
    fn prepare(session: &'session Session) -> rusqlite::Result<Self> {
        let connection = &session.connection;
        Ok(Self {
            consume: connection.prepare_cached(sql!("consume_lease"))?,
            look: connection.prepare_cached(sql!("settle_look"))?,
            update: connection.prepare_cached(sql!("settle"))?,
            attempt: connection.prepare_cached(sql!("settle_attempt"))?,
            announce: connection.prepare_cached(sql!("settle_announce"))?,
        })
    }

    /// Writes the result of an attempt whose lease was consumed, and returns whose endpoint it is about.
    ///
    /// What the claim has not left is read before it is written. `RETURNING` would say the same, but SQLite makes a table of
    /// its own for what it returns, each time, which costs more than the update.
    fn apply(
        &mut self,
        session: &Session,
        worker: &WorkerId,
        settle: &Settle,
        known: Option<Facts>,
    ) -> rusqlite::Result<Option<EndpointId>> {
        let (now, delivery_id, attempt) = (session.now, settle.lease.delivery_id, &settle.attempt);
        let id = delivery_id.as_uuid();
        let (status, next_attempt_at, fact) = match settle.verdict {
            Verdict::Delivered => ("delivered", None, Fact::Delivered),
            Verdict::Retry { after } => ("failed", Some(clock::after(now, after)), Fact::Failed),
            Verdict::Dead => ("dead", None, Fact::Dead),
        };
        let Facts { attempt_count, earlier_attempts, endpoint_id, tenant, event_id, topic, metadata } = match known {
            Some(facts) => facts,
            None => self.look(id)?,
        };
        let attempt_count = attempt_count + 1;
        self.update.execute(params![id, status, next_attempt_at, now, attempt.error_detail, attempt_count])?;
        self.attempt.execute(params![
            id,
            earlier_attempts + attempt_count,
            settle.lease.token.0,
            clock::before(now, attempt.started_ago),
            u32::try_from(attempt.took.as_millis()).unwrap_or(u32::MAX),
            attempt.outcome.as_str(),
            attempt.status_code,
            attempt.response_excerpt,
            attempt.error_detail,
            worker.as_str(),
        ])?;
        if let Some(due_at) = next_attempt_at {
            places::schedule(session, delivery_id, due_at)?;
        }
        if fact == Fact::Dead {
            places::bury(session, delivery_id, "exhausted")?;
        }
        let fact = fact.as_str();
        self.announce.execute(params![tenant, topic, fact, id, event_id, endpoint_id, attempt_count, metadata, now])?;
        Ok(endpoint_id.map(EndpointId::from_uuid))
    }
}

impl Statements<'_> {
    fn look(&mut self, id: Uuid) -> rusqlite::Result<Facts> {
        self.look.query_row(params![id], |row| {
            Ok(Facts {
                attempt_count: row.get(0)?,
                earlier_attempts: row.get(1)?,
                endpoint_id: row.get(2)?,
                tenant: row.get(3)?,
                event_id: row.get(4)?,
                topic: row.get(5)?,
                metadata: row.get(6)?,
            })
        })
    }
}

pub(crate) fn release(session: &mut Session, worker: &WorkerId, leases: &[Lease]) -> rusqlite::Result<u64> {
    let mut released = 0;
    for lease in leases {
        if consume(session, worker, lease)? {
            places::make_ready(session, lease.delivery_id)?;
            released += 1;
        }
    }
    Ok(released)
}

pub(crate) fn recover(session: &mut Session, limit: u32, max_abandoned: u32) -> rusqlite::Result<Recovered> {
    let expired: Vec<Uuid> = session
        .connection
        .prepare_cached(sql!("recover"))?
        .query_map(params![session.now, limit], |row| row.get("delivery_id"))?
        .collect::<rusqlite::Result<_>>()?;
    let mut recovered = Recovered::default();
    for id in expired {
        let connection = &session.connection;
        connection.prepare_cached(sql!("recover_lease"))?.execute(params![id])?;
        let mut abandon = connection.prepare_cached(sql!("recover_abandon"))?;
        let abandoned: u32 = abandon.query_row(params![id], |row| row.get("abandoned_count"))?;
        drop(abandon);
        let id = DeliveryId::from_uuid(id);
        if abandoned < max_abandoned {
            places::make_ready(session, id)?;
            recovered.returned += 1;
        } else {
            let detail = format!("abandoned: claimed {abandoned} times in a row, and never settled");
            let mut die = connection.prepare_cached(sql!("recover_die"))?;
            die.execute(params![id.as_uuid(), detail])?;
            drop(die);
            places::bury(session, id, "abandoned")?;
            places::announce(session, id, Fact::Dead)?;
            recovered.dead += 1;
        }
    }
    Ok(recovered)
}

/// Ends the leases that an earlier process left behind, so that the next recovery takes their deliveries back.
///
/// It does not take them back itself, because it must not decide alone: a delivery that crashes its worker again and
/// again has to be counted, and to die in the end, and that is what a recovery does. Leases of workers that claimed
/// through this very store are alive.
pub(crate) fn end_left_behind(session: &Session) -> rusqlite::Result<u64> {
    let connection = &session.connection;
    let mut leases = connection.prepare_cached(sql!("recover_left_behind"))?;
    let mut end = connection.prepare_cached(sql!("recover_end"))?;
    let mut rows = leases.query(params![session.now])?;
    let mut ended = Vec::new();
    while let Some(row) = rows.next()? {
        if !session.claimers.contains(row.get_ref("owner")?.as_str()?) {
            ended.push(row.get::<_, Uuid>("delivery_id")?);
        }
    }
    for id in &ended {
        end.execute(params![id, session.now])?;
    }
    Ok(ended.len() as u64)
}

pub(crate) fn promote(session: &mut Session, limit: u32) -> rusqlite::Result<Promoted> {
    let due: Vec<(Micros, Uuid)> = session
        .connection
        .prepare_cached(sql!("promote"))?
        .query_map(params![session.now, limit], |row| Ok((row.get("due_at")?, row.get("delivery_id")?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (due_at, id) in &due {
        unschedule(session, DeliveryId::from_uuid(*id), *due_at)?;
        places::make_ready(session, DeliveryId::from_uuid(*id))?;
    }
    let next: Option<Option<Micros>> = rows::find(&session.connection, sql!("promote_next"), params![])?;
    let next_due_in = next.flatten().map(|due_at| clock::between(session.now, due_at));
    Ok(Promoted { ready: due.len() as u64, next_due_in })
}

/// Takes a delivery out of the scheduled ones, and says whether it was there.
pub(crate) fn unschedule(session: &Session, id: DeliveryId, due_at: Micros) -> rusqlite::Result<bool> {
    let mut statement = session.connection.prepare_cached(sql!("promote_unschedule"))?;
    Ok(statement.execute(params![due_at, id.as_uuid()])? == 1)
}
