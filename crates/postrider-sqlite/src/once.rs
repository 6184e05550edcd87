//! Once-only claims: one winner per subject and generation.
//!
//! A subject that nobody has claimed or reset has no row, and its current generation is the first. There is one writer
//! at a time, so what a claim has looked at cannot change before it writes; the primary key says so as well.

use postrider::store::Operator;
use postrider::{AdmittedEvent, EventId, Once, OnceClaim, OnceCursor, OnceFilter, OncePage, OnceWinner, PageRequest};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::operate::audit;
use crate::rows;
use crate::sql::sql;
use crate::writer::Session;

const FIRST_GENERATION: u64 = 1;

/// How an enqueue that names a subject stands.
pub(crate) enum Standing {
    /// It may claim this generation.
    Free { generation: u64 },
    /// The generation has a winner, or is not the one that the enqueue named.
    Taken { generation: u64, winner: Option<EventId> },
}

pub(crate) fn once(connection: &Connection, tenant: &str, subject: &str) -> rusqlite::Result<Option<OnceClaim>> {
    let mut statement = connection.prepare_cached(sql!("once"))?;
    let claim = |row: &Row<'_>| {
        Ok(OnceClaim {
            tenant: tenant.to_owned(),
            subject: subject.to_owned(),
            generation: rows::count(row, "generation")?,
            winner: winner(row)?,
        })
    };
    statement.query_row(params![tenant, subject], claim).optional()
}

/// Subjects in the order of the primary key, each found by a seek: how many generations there are makes no difference.
pub(crate) fn list(
    connection: &Connection,
    filter: &OnceFilter,
    after: Option<&OnceCursor>,
    page: &PageRequest,
) -> rusqlite::Result<OncePage> {
    let (tenant, prefix) = (filter.tenant.as_deref(), filter.prefix.as_deref().unwrap_or_default());
    let mut next_subject = connection.prepare_cached(sql!("once_next"))?;
    let mut items = Vec::new();
    let mut at = if let Some(cursor) = after {
        OnceCursor { tenant: tenant.unwrap_or(&cursor.tenant).to_owned(), subject: cursor.subject.clone() }
    } else {
        let first = OnceCursor { tenant: tenant.unwrap_or_default().to_owned(), subject: prefix.to_owned() };
        // The search goes on after it.
        items.extend(once(connection, &first.tenant, &first.subject)?);
        if tenant.is_some() { first } else { OnceCursor { subject: String::new(), ..first } }
    };
    let limit = page.limit() as usize;
    for _ in 0..page.most_looked_at() {
        let found = next_subject.query_row(params![at.tenant, at.subject], |row| {
            Ok(OnceCursor { tenant: row.get("tenant")?, subject: row.get("subject")? })
        });
        let Some(found) = found.optional()? else { return Ok(OncePage { items, next: None }) };
        let matches = found.subject.starts_with(prefix);
        // What begins alike is in one piece, for each tenant.
        if tenant.is_some_and(|tenant| tenant != found.tenant || !matches) {
            return Ok(OncePage { items, next: None });
        }
        if matches && items.len() == limit {
            return Ok(OncePage { items, next: Some(at) });
        }
        if matches {
            items.extend(once(connection, &found.tenant, &found.subject)?);
        }
        at = found;
    }
    Ok(OncePage { items, next: Some(at) })
}

fn winner(row: &Row<'_>) -> rusqlite::Result<Option<OnceWinner>> {
    let Some(event_id) = rows::maybe_id(row, "event_id", EventId::from_uuid)? else {
        return Ok(None);
    };
    let claimed_at = rows::instant(row, "claimed_at")?;
    Ok(Some(OnceWinner { event_id, event_type: row.get("event_type")?, claimed_at }))
}

pub(crate) fn look(session: &Session, tenant: &str, wanted: &Once) -> rusqlite::Result<Standing> {
    let found = once(&session.connection, tenant, &wanted.subject)?;
    let (generation, winner) = found.map_or((FIRST_GENERATION, None), |claim| (claim.generation, claim.winner));
    let is_current = wanted.generation.is_none_or(|wanted| wanted == generation);
    Ok(match winner {
        None if is_current => Standing::Free { generation },
        winner => Standing::Taken { generation, winner: winner.map(|winner| winner.event_id) },
    })
}

/// Makes the event the winner of a generation that was found free in this transaction.
pub(crate) fn claim(
    session: &Session,
    admitted: &AdmittedEvent,
    once: &Once,
    generation: u64,
    event_id: EventId,
) -> rusqlite::Result<()> {
    let event = admitted.event();
    session.connection.prepare_cached(sql!("once_claim"))?.execute(params![
        event.tenant,
        once.subject,
        rows::counted(generation),
        event_id.as_uuid(),
        event.event_type,
        session.now,
    ])?;
    Ok(())
}

/// Begins the next generation of a subject, and returns it.
pub(crate) fn reset(session: &mut Session, tenant: &str, subject: &str, operator: &Operator) -> rusqlite::Result<u64> {
    let current = once(&session.connection, tenant, subject)?.map_or(FIRST_GENERATION, |claim| claim.generation);
    let next = current + 1;
    let connection = &session.connection;
    let mut end = connection.prepare_cached(sql!("once_end"))?;
    end.execute(params![tenant, subject, rows::counted(current), session.now])?;
    drop(end);
    connection.prepare_cached(sql!("once_begin"))?.execute(params![tenant, subject, rows::counted(next)])?;
    audit(session, operator, Some(tenant), "once.reset", subject, None)?;
    Ok(next)
}
