//! API keys, of which the database knows the digests only.

use postrider::store::Operator;
use postrider::{ApiKey, KeyDigest, KeyId, NewApiKey, Page, PageRequest};
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use crate::browse::{cut, one_more};
use crate::operate::audit;
use crate::rows;
use crate::sql::sql;
use crate::writer::Session;

/// None when it should have been the first key and there is one already.
pub(crate) fn create(session: &mut Session, key: NewApiKey, operator: &Operator) -> rusqlite::Result<Option<ApiKey>> {
    let id = session.mint();
    let mut statement = session.connection.prepare_cached(sql!("create_key"))?;
    let values = params![id, key.name, key.tenant, key.scope.as_str(), key.digest, session.now, key.only_first];
    if statement.execute(values)? == 0 {
        return Ok(None);
    }
    drop(statement);
    let id = KeyId::from_uuid(id);
    audit(session, operator, key.tenant.as_deref(), "key.create", &id.to_string(), None)?;
    let created_at = rows::timestamp(session.now)?;
    Ok(Some(ApiKey { id, name: key.name, tenant: key.tenant, scope: key.scope, created_at, revoked_at: None }))
}

pub(crate) fn list(
    connection: &Connection,
    tenant: Option<&str>,
    page: &PageRequest,
) -> rusqlite::Result<Page<ApiKey>> {
    let mut statement = connection.prepare_cached(sql!("keys"))?;
    let after = page.cursor().map_or(Uuid::max(), |cursor| cursor.0);
    let found = statement.query_map(params![after, tenant, one_more(page)], key)?.collect::<rusqlite::Result<_>>()?;
    Ok(cut(found, page, |key: &ApiKey| key.id.as_uuid()))
}

pub(crate) fn of_digest(connection: &Connection, digest: &KeyDigest) -> rusqlite::Result<Option<ApiKey>> {
    connection.prepare_cached(sql!("key_of_digest"))?.query_row(params![digest], key).optional()
}

pub(crate) fn revoke(
    session: &mut Session,
    id: KeyId,
    tenant: Option<&str>,
    operator: &Operator,
) -> rusqlite::Result<bool> {
    let mut statement = session.connection.prepare_cached(sql!("revoke_key"))?;
    let revoked = statement.query_row(params![id.as_uuid(), session.now, tenant], |row| row.get("tenant"));
    let revoked: Option<Option<String>> = revoked.optional()?;
    drop(statement);
    let Some(tenant) = revoked else {
        return Ok(false);
    };
    audit(session, operator, tenant.as_deref(), "key.revoke", &id.to_string(), None)?;
    Ok(true)
}

fn key(row: &Row<'_>) -> rusqlite::Result<ApiKey> {
    Ok(ApiKey {
        id: KeyId::from_uuid(row.get("id")?),
        name: row.get("name")?,
        tenant: row.get("tenant")?,
        scope: rows::parsed(row, "scope")?,
        created_at: rows::instant(row, "created_at")?,
        revoked_at: rows::maybe_instant(row, "revoked_at")?,
    })
}
