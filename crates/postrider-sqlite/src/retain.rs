//! What is removed with time, in bounded steps.

use std::time::Duration;

use postrider::EventId;
use postrider::store::Retained;
use rusqlite::params;
use uuid::Uuid;

use crate::clock::{self, Micros};
use crate::sql::sql;
use crate::sweep::{self, Budget};
use crate::writer::Session;

pub(crate) fn retain(
    session: &mut Session,
    older_than: Duration,
    after: Option<EventId>,
    limit: u32,
) -> rusqlite::Result<Retained> {
    let before = clock::before(session.now, older_than);
    let mut retained = Retained::default();
    let place = remove_events(session, before, after, limit, &mut retained)?;
    let mut budget = Budget::of(limit);
    retained.cancelled = sweep::sweep_all(session, &mut budget)?;
    let connection = &session.connection;
    let share = limit.max(100).saturating_mul(10);
    let mut is_done = !budget.is_spent();
    for sql in [sql!("retain_announcements"), sql!("retain_once")] {
        is_done &= connection.prepare_cached(sql)?.execute(params![before, share])? < share as usize;
    }
    if retained.next.is_none() {
        connection.prepare_cached(sql!("retain_endpoints"))?.execute([])?;
        // All old events were looked at, but not all of the rest: the caller comes again, and finds no event.
        retained.next = (!is_done).then_some(place);
    }
    Ok(retained)
}

/// Removes events with all that belongs to them, and returns the last that was looked at.
fn remove_events(
    session: &Session,
    before: Micros,
    after: Option<EventId>,
    limit: u32,
    retained: &mut Retained,
) -> rusqlite::Result<EventId> {
    let connection = &session.connection;
    let after = after.map_or(Uuid::nil(), |id| id.as_uuid());
    let looked_at: Vec<(Uuid, Micros, bool)> = connection
        .prepare_cached(sql!("retain"))?
        .query_map(params![after, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut place = EventId::from_uuid(after);
    // Identifiers sort by time, so behind the first event that is young enough there are no older ones.
    for (id, _, is_unfinished) in looked_at.iter().take_while(|(_, created_at, _)| *created_at < before) {
        if !is_unfinished {
            connection.prepare_cached(sql!("retain_attempts"))?.execute(params![id])?;
            let mut deliveries = connection.prepare_cached(sql!("retain_deliveries"))?;
            retained.deliveries += deliveries.execute(params![id])? as u64;
            connection.prepare_cached(sql!("retain_event"))?.execute(params![id])?;
            retained.events += 1;
        }
        place = EventId::from_uuid(*id);
    }
    let is_full = looked_at.len() == limit as usize;
    retained.next = looked_at.last().filter(|(_, at, _)| is_full && *at < before).map(|_| place);
    Ok(place)
}
