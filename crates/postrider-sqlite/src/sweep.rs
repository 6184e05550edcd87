//! Cancelling what a removed endpoint has left behind, in bounded steps.
//!
//! What is ready is the endpoint's lane. What is scheduled is found by a walk over all that was ever sent to the
//! endpoint, newest first; the endpoint's row keeps how far it has come. What is in flight is left alone: it comes back
//! into the lane when its lease is given back or lapses, and a settle that would try again sends the walk back to it.

use postrider::store::Lane;
use postrider::{DeliveryId, EndpointId, Fact};
use rusqlite::params;
use uuid::Uuid;

use crate::clock::Micros;
use crate::places;
use crate::settle::unschedule;
use crate::sql::sql;
use crate::writer::Session;

const REASON: &str = "the endpoint was removed";

/// How much one step may do.
#[derive(Debug)]
pub(crate) struct Budget {
    cancels: u32,
    visits: u32,
}

impl Budget {
    /// To look at ten deliveries costs less than to cancel one.
    pub(crate) fn of(cancels: u32) -> Self {
        Self { cancels, visits: cancels.max(100).saturating_mul(10) }
    }

    /// There may be more to do.
    pub(crate) fn is_spent(&self) -> bool {
        self.cancels == 0 || self.visits == 0
    }
}

/// Goes on with every removed endpoint, and returns how many deliveries it cancelled.
pub(crate) fn sweep_all(session: &mut Session, budget: &mut Budget) -> rusqlite::Result<u64> {
    let removed: Vec<(Uuid, Option<Uuid>)> = session
        .connection
        .prepare_cached(sql!("cancel_removed_endpoints"))?
        .query_map([], |row| Ok((row.get("id")?, row.get("sweep_from")?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut cancelled = 0;
    for (id, sweep_from) in removed {
        if budget.is_spent() {
            break;
        }
        cancelled += sweep(session, EndpointId::from_uuid(id), sweep_from, budget)?;
    }
    Ok(cancelled)
}

/// Goes on with one endpoint, from where its walk has come to; none when that is at its end.
pub(crate) fn sweep(
    session: &mut Session,
    id: EndpointId,
    sweep_from: Option<Uuid>,
    budget: &mut Budget,
) -> rusqlite::Result<u64> {
    let ready = cancel_ready(session, id, budget)?;
    let scheduled = match sweep_from {
        Some(sweep_from) if !budget.is_spent() => cancel_scheduled(session, id, sweep_from, budget)?,
        _ => 0,
    };
    Ok(ready + scheduled)
}

fn cancel_ready(session: &mut Session, id: EndpointId, budget: &mut Budget) -> rusqlite::Result<u64> {
    let lane = Lane::of_endpoint(id);
    let front: Vec<(i64, Uuid)> = session
        .connection
        .prepare_cached(sql!("cancel_removed_ready"))?
        .query_map(params![lane.0, budget.cancels], |row| Ok((row.get("position")?, row.get("delivery_id")?)))?
        .collect::<rusqlite::Result<_>>()?;
    let Some((last_position, _)) = front.last() else {
        return Ok(0);
    };
    let mut leave = session.connection.prepare_cached(sql!("claim_leave_ready"))?;
    leave.execute(params![lane.0, last_position])?;
    drop(leave);
    for (_, delivery_id) in &front {
        cancel(session, DeliveryId::from_uuid(*delivery_id))?;
    }
    budget.cancels -= u32::try_from(front.len()).unwrap_or(budget.cancels);
    Ok(front.len() as u64)
}

fn cancel_scheduled(
    session: &mut Session,
    id: EndpointId,
    sweep_from: Uuid,
    budget: &mut Budget,
) -> rusqlite::Result<u64> {
    // One more than is looked at: where the walk goes on.
    let most = i64::from(budget.visits) + 1;
    let deliveries: Vec<(Uuid, Option<Micros>)> = session
        .connection
        .prepare_cached(sql!("cancel_removed_deliveries"))?
        .query_map(params![id.as_uuid(), sweep_from, most], |row| Ok((row.get("id")?, row.get("next_attempt_at")?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut cancelled = 0;
    let mut goes_on_at = None;
    for (delivery_id, next_attempt_at) in deliveries {
        if budget.is_spent() {
            goes_on_at = Some(delivery_id);
            break;
        }
        budget.visits -= 1;
        let delivery_id = DeliveryId::from_uuid(delivery_id);
        // An unsettled delivery that is not scheduled is in flight, or in the lane by now.
        if let Some(due_at) = next_attempt_at
            && unschedule(session, delivery_id, due_at)?
        {
            cancel(session, delivery_id)?;
            budget.cancels -= 1;
            cancelled += 1;
        }
    }
    session.connection.prepare_cached(sql!("cancel_removed_progress"))?.execute(params![id.as_uuid(), goes_on_at])?;
    Ok(cancelled)
}

/// After it was taken from its place.
fn cancel(session: &mut Session, id: DeliveryId) -> rusqlite::Result<()> {
    session.connection.prepare_cached(sql!("cancel"))?.execute(params![id.as_uuid(), REASON])?;
    places::announce(session, id, Fact::Cancelled)
}
