//! What becomes of a lease: renewed, settled, released, or recovered. Whoever deletes its row decides.

use postrider::store::{Promoted, Recovered, Settle, Settlement};
use postrider::{DeliveryId, EndpointId, Fact, Lease, Verdict, WorkerId};
use rusqlite::params;
use uuid::Uuid;

use crate::clock::{self, Micros};
use crate::places;
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
    let mut streaks = Streaks::default();
    settles.iter().map(|settle| settle_one(session, worker, &mut streaks, settle)).collect()
}

fn settle_one(
    session: &mut Session,
    worker: &WorkerId,
    streaks: &mut Streaks,
    settle: &Settle,
) -> rusqlite::Result<Settlement> {
    let id = settle.lease.delivery_id;
    if !consume(session, worker, &settle.lease)? {
        let earlier: Option<i64> =
            rows::find(&session.connection, sql!("settle_earlier"), params![id.as_uuid(), settle.lease.token.0])?;
        return Ok(if earlier.is_some() { Settlement::AppliedEarlier } else { Settlement::LeaseLost });
    }
    let (status, next_attempt_at, fact) = match settle.verdict {
        Verdict::Delivered => ("delivered", None, Fact::Delivered),
        Verdict::Retry { after } => ("failed", Some(clock::after(session.now, after)), Fact::Failed),
        Verdict::Dead => ("dead", None, Fact::Dead),
    };
    let (number, endpoint_id) = settle_delivery(session, settle, status, next_attempt_at)?;
    write_attempt(session, worker, settle, number)?;
    if let Some(due_at) = next_attempt_at {
        places::schedule(session, id, due_at)?;
    }
    if fact == Fact::Dead {
        places::bury(session, id, "exhausted")?;
    }
    places::announce(session, id, fact)?;
    if let Some(endpoint_id) = endpoint_id {
        streaks.note(session, endpoint_id, settle)?;
    }
    Ok(Settlement::Applied)
}

fn settle_delivery(
    session: &Session,
    settle: &Settle,
    status: &str,
    next_attempt_at: Option<Micros>,
) -> rusqlite::Result<(u32, Option<EndpointId>)> {
    let mut statement = session.connection.prepare_cached(sql!("settle"))?;
    let id = settle.lease.delivery_id.as_uuid();
    let values = params![id, status, next_attempt_at, session.now, settle.attempt.error_detail];
    statement
        .query_row(values, |row| Ok((row.get("number")?, rows::maybe_id(row, "endpoint_id", EndpointId::from_uuid)?)))
}

fn write_attempt(session: &Session, worker: &WorkerId, settle: &Settle, number: u32) -> rusqlite::Result<()> {
    let attempt = &settle.attempt;
    session.connection.prepare_cached(sql!("settle_attempt"))?.execute(params![
        settle.lease.delivery_id.as_uuid(),
        number,
        settle.lease.token.0,
        clock::before(session.now, attempt.started_ago),
        u32::try_from(attempt.took.as_millis()).unwrap_or(u32::MAX),
        attempt.outcome.as_str(),
        attempt.status_code,
        attempt.response_excerpt,
        attempt.error_detail,
        worker.as_str(),
    ])?;
    Ok(())
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
