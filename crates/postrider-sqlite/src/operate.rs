//! What operators do with deliveries, each under their name in the audit trail.

use postrider::store::{Action, Forbidden, Operator};
use postrider::{DeliveryFilter, DeliveryId, DeliveryStatus, Fact};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use crate::clock::Micros;
use crate::filter::Conditions;
use crate::places;
use crate::rows;
use crate::settle::unschedule;
use crate::sql::sql;
use crate::writer::Session;

/// A delivery as an operator's action finds it.
struct Found {
    tenant: String,
    status: DeliveryStatus,
    next_attempt_at: Option<Micros>,
    is_leased: bool,
}

fn look(session: &Session, id: DeliveryId) -> rusqlite::Result<Option<Found>> {
    let mut statement = session.connection.prepare_cached(sql!("operate_look"))?;
    let found = |row: &rusqlite::Row<'_>| {
        Ok(Found {
            tenant: row.get("tenant")?,
            status: rows::parsed(row, "status")?,
            next_attempt_at: row.get("next_attempt_at")?,
            is_leased: row.get("is_leased")?,
        })
    };
    statement.query_row(params![id.as_uuid()], found).optional()
}

pub(crate) fn retry(session: &mut Session, id: DeliveryId, operator: &Operator) -> rusqlite::Result<Action> {
    let Some(found) = look(session, id)? else {
        return Ok(Action::NotFound);
    };
    match found.status {
        _ if found.is_leased => return Ok(Action::Forbidden(Forbidden::InFlight)),
        DeliveryStatus::Delivered => return Ok(Action::Forbidden(Forbidden::AlreadyDelivered)),
        DeliveryStatus::Pending => return Ok(Action::Forbidden(Forbidden::AlreadyDue)),
        DeliveryStatus::Failed => {
            let due_at = found.next_attempt_at.unwrap_or_default();
            if !unschedule(session, id, due_at)? {
                return Ok(Action::Forbidden(Forbidden::AlreadyDue));
            }
            let mut statement = session.connection.prepare_cached(sql!("retry"))?;
            statement.execute(params![id.as_uuid(), session.now])?;
        }
        DeliveryStatus::Dead | DeliveryStatus::Cancelled => {
            let connection = &session.connection;
            connection.prepare_cached(sql!("retry_exhume"))?.execute(params![id.as_uuid()])?;
            let mut statement = connection.prepare_cached(sql!("retry_new_round"))?;
            statement.execute(params![id.as_uuid(), session.now])?;
        }
    }
    places::make_ready(session, id)?;
    audit(session, operator, Some(&found.tenant), "delivery.retry", &id.to_string(), None)?;
    Ok(Action::Done)
}

pub(crate) fn retry_matching(
    session: &mut Session,
    filter: &DeliveryFilter,
    limit: u32,
    operator: &Operator,
) -> rusqlite::Result<u64> {
    let conditions = Conditions::of(filter);
    let sql = sql!("retry_matching").replace("{conditions}", &conditions.sql);
    let ids: Vec<Uuid> = {
        let mut statement = session.connection.prepare_cached(&sql)?;
        let values = conditions.with(&[(":limit", limit.into())]);
        statement.query_map(&values.named()[..], |row| row.get("id"))?.collect::<rusqlite::Result<_>>()?
    };
    let mut retried = 0;
    for id in ids {
        if retry(session, DeliveryId::from_uuid(id), operator)? == Action::Done {
            retried += 1;
        }
    }
    Ok(retried)
}

pub(crate) fn cancel(
    session: &mut Session,
    id: DeliveryId,
    reason: &str,
    operator: &Operator,
) -> rusqlite::Result<Action> {
    let Some(found) = look(session, id)? else {
        return Ok(Action::NotFound);
    };
    let Some(next_attempt_at) = found.next_attempt_at else {
        return Ok(Action::Forbidden(Forbidden::AlreadySettled(found.status)));
    };
    unschedule(session, id, next_attempt_at)?;
    let connection = &session.connection;
    connection.prepare_cached(sql!("cancel_ready"))?.execute(params![id.as_uuid()])?;
    connection.prepare_cached(sql!("cancel_lease"))?.execute(params![id.as_uuid()])?;
    connection.prepare_cached(sql!("cancel"))?.execute(params![id.as_uuid(), reason])?;
    places::announce(session, id, Fact::Cancelled)?;
    audit(session, operator, Some(&found.tenant), "delivery.cancel", &id.to_string(), Some(reason))?;
    Ok(Action::Done)
}

/// Notes what an operator did, to whose thing; none when it belongs to all.
pub(crate) fn audit(
    session: &mut Session,
    operator: &Operator,
    tenant: Option<&str>,
    action: &str,
    subject: &str,
    reason: Option<&str>,
) -> rusqlite::Result<()> {
    let id = session.mint();
    let mut statement = session.connection.prepare_cached(sql!("audit_record"))?;
    statement.execute(params![id, session.now, tenant, operator.0, action, subject, reason])?;
    Ok(())
}
