//! Endpoints whose attempts fail in a row, and what follows from it.
//!
//! An endpoint's row says since when it has been failing, and is written when a row of failures begins and when it ends.
//! A batch of settles reads each endpoint once, so a success at a healthy endpoint writes nothing.

use std::collections::HashMap;

use postrider::store::Settle;
use postrider::{EndpointId, Fact, Verdict};
use rusqlite::{OptionalExtension, params};

use crate::clock::{self, Micros};
use crate::places;
use crate::rows;
use crate::sql::sql;
use crate::writer::Session;

/// Why an endpoint that answered with a 410 is disabled.
const GONE: &str = "the receiver answered 410 Gone";

/// The endpoints of a batch of settles, as they stand after those that were applied.
#[derive(Debug, Default)]
pub(crate) struct Streaks(HashMap<EndpointId, Option<Streak>>);

#[derive(Debug, Clone, Copy)]
struct Streak {
    failing_since: Option<Micros>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Active or paused.
    Enabled,
    Disabled,
    Removed,
}

impl Streaks {
    /// Notes what a settle that was applied says about its delivery's endpoint.
    pub(crate) fn note(&mut self, session: &mut Session, id: EndpointId, settle: &Settle) -> rusqlite::Result<()> {
        let streak = match self.0.get(&id) {
            Some(known) => *known,
            None => look(session, id)?,
        };
        let noted = streak.map(|streak| streak.after(session, id, settle)).transpose()?;
        self.0.insert(id, noted);
        Ok(())
    }
}

fn look(session: &Session, id: EndpointId) -> rusqlite::Result<Option<Streak>> {
    let mut statement = session.connection.prepare_cached(sql!("settle_endpoint"))?;
    let streak = |row: &rusqlite::Row<'_>| {
        let state = match row.get_ref("status")?.as_str()? {
            "disabled" => State::Disabled,
            "removed" => State::Removed,
            _ => State::Enabled,
        };
        Ok(Streak { failing_since: row.get("failing_since")?, state })
    };
    statement.query_row(params![id.as_uuid()], streak).optional()
}

impl Streak {
    fn after(mut self, session: &mut Session, id: EndpointId, settle: &Settle) -> rusqlite::Result<Self> {
        let delivery_id = settle.lease.delivery_id;
        if self.state == State::Removed {
            if matches!(settle.verdict, Verdict::Retry { .. }) {
                let mut statement = session.connection.prepare_cached(sql!("settle_sweep"))?;
                statement.execute(params![id.as_uuid(), delivery_id.as_uuid()])?;
            }
            return Ok(self);
        }
        let has_failed = settle.verdict != Verdict::Delivered;
        let failing_since = has_failed.then(|| self.failing_since.unwrap_or(session.now));
        if failing_since != self.failing_since {
            self.failing_since = failing_since;
            let mut statement = session.connection.prepare_cached(sql!("settle_failing"))?;
            statement.execute(params![id.as_uuid(), failing_since])?;
        }
        if self.state == State::Enabled
            && let Some(reason) = self.reason_to_disable(session.now, settle)?
        {
            let mut statement = session.connection.prepare_cached(sql!("settle_disable_endpoint"))?;
            statement.execute(params![id.as_uuid(), reason])?;
            drop(statement);
            places::announce(session, delivery_id, Fact::EndpointDisabled)?;
            self.state = State::Disabled;
        }
        Ok(self)
    }

    fn reason_to_disable(&self, now: Micros, settle: &Settle) -> rusqlite::Result<Option<String>> {
        if settle.disable_endpoint {
            return Ok(Some(GONE.to_owned()));
        }
        let Some((since, longest)) = self.failing_since.zip(settle.disable_after) else {
            return Ok(None);
        };
        let has_lasted = now >= clock::after(since, longest);
        Ok(if has_lasted { Some(format!("every attempt has failed since {}", rows::timestamp(since)?)) } else { None })
    }
}
