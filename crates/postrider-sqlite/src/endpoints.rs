//! Endpoints: registered, looked at, changed, held back.

use postrider::store::{EndpointChange, Operator};
use postrider::{
    Endpoint, EndpointFilter, EndpointId, EndpointStatus, EventTypePattern, NewEndpoint, Page, PageRequest,
};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

use crate::browse::{cut, one_more};
use crate::filter::Conditions;
use crate::operate::audit;
use crate::rows;
use crate::sql::sql;
use crate::sweep;
use crate::vault::Vault;
use crate::writer::Session;

/// At most so many deliveries are cancelled in the transaction that removes their endpoint.
const CANCELLED_AT_ONCE: u32 = 1000;

fn patterns(event_types: &[EventTypePattern]) -> String {
    serde_json::to_string(event_types).expect("patterns are plain data")
}

/// Writes a new endpoint, whose settings were sealed as `stored`.
pub(crate) fn create(
    session: &mut Session,
    endpoint: NewEndpoint,
    stored: &str,
    operator: &Operator,
) -> rusqlite::Result<Endpoint> {
    let id = session.mint();
    let mut statement = session.connection.prepare_cached(sql!("create_endpoint"))?;
    let event_types = patterns(&endpoint.event_types);
    statement.execute(params![id, endpoint.tenant, endpoint.url.as_str(), event_types, stored, session.now])?;
    drop(statement);
    let id = EndpointId::from_uuid(id);
    audit(session, operator, Some(&endpoint.tenant), "endpoint.create", &id.to_string(), None)?;
    Ok(Endpoint {
        id,
        tenant: endpoint.tenant,
        url: endpoint.url.as_str().to_owned(),
        event_types: endpoint.event_types,
        status: EndpointStatus::Active,
        status_reason: None,
        settings: endpoint.settings,
        trouble: None,
        revision: 1,
        failing_since: None,
        created_at: rows::timestamp(session.now)?,
    })
}

pub(crate) fn find(connection: &Connection, vault: &Vault, id: EndpointId) -> rusqlite::Result<Option<Endpoint>> {
    let mut statement = connection.prepare_cached(sql!("endpoint"))?;
    statement.query_row(params![id.as_uuid()], |row| vault.endpoint(row)).optional()
}

pub(crate) fn list(
    connection: &Connection,
    vault: &Vault,
    filter: &EndpointFilter,
    page: &PageRequest,
) -> rusqlite::Result<Page<Endpoint>> {
    let status = filter.status.map(|status| Value::Text(status.as_str().to_owned()));
    let conditions = Conditions::none()
        .and("tenant = :tenant", ":tenant", filter.tenant.clone().map(Value::Text))
        .and("status = :status", ":status", status)
        .after(page, "id")
        .with(&[(":limit", Value::Integer(one_more(page)))]);
    let sql = sql!("endpoints").replace("{conditions}", &conditions.sql);
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_map(&conditions.named()[..], |row| vault.endpoint(row))?;
    Ok(cut(found.collect::<rusqlite::Result<_>>()?, page, |endpoint: &Endpoint| endpoint.id.as_uuid()))
}

/// Writes what an operator changed, if the endpoint is still of the revision that the change is based on.
pub(crate) fn replace(
    session: &mut Session,
    vault: &Vault,
    endpoint: &Endpoint,
    stored: &str,
    change: EndpointChange,
    operator: &Operator,
) -> rusqlite::Result<Option<Endpoint>> {
    let mut statement = session.connection.prepare_cached(sql!("replace_endpoint"))?;
    let replaced = statement.execute(params![
        endpoint.id.as_uuid(),
        endpoint.tenant,
        rows::counted(endpoint.revision),
        endpoint.url,
        patterns(&endpoint.event_types),
        stored,
    ])?;
    drop(statement);
    if replaced == 0 {
        return Ok(None);
    }
    audit(session, operator, Some(&endpoint.tenant), change.action(), &endpoint.id.to_string(), None)?;
    // A higher limit, or a longer deadline, may let something go that waited.
    session.made_ready = true;
    find(&session.connection, vault, endpoint.id)
}

pub(crate) fn set_status(
    session: &mut Session,
    id: EndpointId,
    status: EndpointStatus,
    reason: Option<&str>,
    operator: &Operator,
) -> rusqlite::Result<bool> {
    let kept_reason = reason.filter(|_| status != EndpointStatus::Active);
    let mut statement = session.connection.prepare_cached(sql!("set_endpoint_status"))?;
    let values = params![id.as_uuid(), status.as_str(), kept_reason];
    let tenant: Option<String> = statement.query_row(values, |row| row.get("tenant")).optional()?;
    drop(statement);
    let Some(tenant) = tenant else {
        return Ok(false);
    };
    let action = match status {
        EndpointStatus::Active => "endpoint.resume",
        EndpointStatus::Paused => "endpoint.pause",
        EndpointStatus::Disabled => "endpoint.disable",
    };
    audit(session, operator, Some(&tenant), action, &id.to_string(), reason)?;
    // What waited for a paused endpoint can be claimed from now on.
    session.made_ready |= status == EndpointStatus::Active;
    Ok(true)
}

/// Removes an endpoint with its secrets, and cancels what of its deliveries can be cancelled at once.
pub(crate) fn remove(session: &mut Session, id: EndpointId, operator: &Operator) -> rusqlite::Result<bool> {
    let mut statement = session.connection.prepare_cached(sql!("remove_endpoint"))?;
    let values = params![id.as_uuid(), Uuid::max()];
    let tenant: Option<String> = statement.query_row(values, |row| row.get("tenant")).optional()?;
    drop(statement);
    let Some(tenant) = tenant else {
        return Ok(false);
    };
    session.connection.prepare_cached(sql!("remove_endpoint_bucket"))?.execute(params![id.as_uuid()])?;
    audit(session, operator, Some(&tenant), "endpoint.remove", &id.to_string(), None)?;
    sweep::sweep(session, id, Some(Uuid::max()), &mut sweep::Budget::of(CANCELLED_AT_ONCE))?;
    Ok(true)
}
