//! Moves between places that several operations share. Each is one statement, on one delivery.

use postrider::{DeliveryId, Fact};
use rusqlite::params;

use crate::clock::Micros;
use crate::sql::sql;
use crate::writer::Session;

/// Puts a delivery at the end of its lane.
pub(crate) fn make_ready(session: &mut Session, id: DeliveryId) -> rusqlite::Result<()> {
    session.connection.prepare_cached(sql!("make_ready"))?.execute(params![id.as_uuid()])?;
    session.made_ready = true;
    Ok(())
}

/// Lets a delivery wait until `due_at`, which is its `next_attempt_at`.
pub(crate) fn schedule(session: &Session, id: DeliveryId, due_at: Micros) -> rusqlite::Result<()> {
    session.connection.prepare_cached(sql!("schedule"))?.execute(params![due_at, id.as_uuid()])?;
    Ok(())
}

/// Puts a delivery among the dead letters.
pub(crate) fn bury(session: &Session, id: DeliveryId, reason: &str) -> rusqlite::Result<()> {
    let mut statement = session.connection.prepare_cached(sql!("bury"))?;
    statement.execute(params![id.as_uuid(), reason, session.now])?;
    Ok(())
}

/// Records a fact about a delivery, as the delivery stands now.
pub(crate) fn announce(session: &mut Session, id: DeliveryId, fact: Fact) -> rusqlite::Result<()> {
    let mut statement = session.connection.prepare_cached(sql!("announce"))?;
    statement.execute(params![id.as_uuid(), fact.as_str(), session.now])?;
    session.announced = true;
    Ok(())
}
