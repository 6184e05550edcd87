//! What operators do, each under their name in the audit trail, and what is removed with time.

use postrider::store::{Action, Forbidden, Operator, Retained};
use postrider::{
    DeliveryFilter, DeliveryId, DeliveryStatus, Endpoint, EndpointId, EndpointStatus, EventId, Fact, NewEndpoint,
};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

use crate::clock::{self, Micros};
use crate::filter::Conditions;
use crate::places;
use crate::rows;
use crate::settle::unschedule;
use crate::sql::sql;
use crate::writer::Session;

/// A delivery as an operator's action finds it.
struct Found {
    status: DeliveryStatus,
    next_attempt_at: Option<Micros>,
    is_leased: bool,
}

fn look(session: &Session, id: DeliveryId) -> rusqlite::Result<Option<Found>> {
    let mut statement = session.connection.prepare_cached(sql!("operate_look"))?;
    let found = |row: &rusqlite::Row<'_>| {
        Ok(Found {
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
    audit(session, operator, "delivery.retry", &id.to_string(), None)?;
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
    audit(session, operator, "delivery.cancel", &id.to_string(), Some(reason))?;
    Ok(Action::Done)
}

pub(crate) fn create_endpoint(session: &mut Session, endpoint: NewEndpoint) -> rusqlite::Result<Endpoint> {
    let id = session.mint();
    let event_types = serde_json::to_string(&endpoint.event_types).expect("patterns are plain data");
    session.connection.prepare_cached(sql!("create_endpoint"))?.execute(params![
        id,
        endpoint.tenant,
        endpoint.url.as_str(),
        event_types,
        endpoint.settings.to_stored(&crate::keyring_for_now(), &endpoint.tenant).expect("there is a key"),
        session.now,
    ])?;
    Ok(Endpoint {
        id: EndpointId::from_uuid(id),
        tenant: endpoint.tenant,
        url: endpoint.url.as_str().to_owned(),
        event_types: endpoint.event_types,
        status: EndpointStatus::Active,
        status_reason: None,
        settings: endpoint.settings,
        trouble: None,
        revision: 0,
        failing_since: None,
        created_at: rows::timestamp(session.now)?,
    })
}

pub(crate) fn set_endpoint_status(
    session: &mut Session,
    id: EndpointId,
    status: EndpointStatus,
    reason: Option<&str>,
    operator: &Operator,
) -> rusqlite::Result<bool> {
    let kept_reason = reason.filter(|_| status != EndpointStatus::Active);
    let mut statement = session.connection.prepare_cached(sql!("set_endpoint_status"))?;
    if statement.execute(params![id.as_uuid(), status.as_str(), kept_reason])? == 0 {
        return Ok(false);
    }
    drop(statement);
    let action = match status {
        EndpointStatus::Active => "endpoint.resume",
        EndpointStatus::Paused => "endpoint.pause",
        EndpointStatus::Disabled => "endpoint.disable",
    };
    audit(session, operator, action, &id.to_string(), reason)?;
    // What waited for a paused endpoint can be claimed from now on.
    session.made_ready |= status == EndpointStatus::Active;
    Ok(true)
}

fn audit(
    session: &mut Session,
    operator: &Operator,
    action: &str,
    subject: &str,
    reason: Option<&str>,
) -> rusqlite::Result<()> {
    let id = session.mint();
    let mut statement = session.connection.prepare_cached(sql!("audit_record"))?;
    statement.execute(params![id, session.now, operator.0, action, subject, reason])?;
    Ok(())
}

pub(crate) fn retain(
    session: &Session,
    older_than: std::time::Duration,
    after: Option<EventId>,
    limit: u32,
) -> rusqlite::Result<Retained> {
    let connection = &session.connection;
    let before = clock::before(session.now, older_than);
    let after = after.map_or(Uuid::nil(), |id| id.as_uuid());
    let old: Vec<(Uuid, Micros, bool)> = connection
        .prepare_cached(sql!("retain"))?
        .query_map(params![after, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut retained = Retained::default();
    // Identifiers sort by time, so behind the first event that is young enough there are no older ones.
    for (id, _, is_unfinished) in old.iter().take_while(|(_, created_at, _)| *created_at < before) {
        if !is_unfinished {
            connection.prepare_cached(sql!("retain_attempts"))?.execute(params![id])?;
            let mut deliveries = connection.prepare_cached(sql!("retain_deliveries"))?;
            retained.deliveries += deliveries.execute(params![id])? as u64;
            connection.prepare_cached(sql!("retain_event"))?.execute(params![id])?;
            retained.events += 1;
        }
    }
    let is_full = old.len() == limit as usize;
    retained.next = old.last().filter(|(_, at, _)| is_full && *at < before).map(|(id, ..)| EventId::from_uuid(*id));
    // The last step leaves no old announcement behind; the others keep their share of the work bounded.
    let mut announcements = connection.prepare_cached(sql!("retain_announcements"))?;
    let share = limit.max(100).saturating_mul(10);
    while announcements.execute(params![before, share])? == share as usize && retained.next.is_none() {}
    Ok(retained)
}
