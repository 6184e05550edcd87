//! A transaction that the application and Postrider share.

use postrider::store::Operator;
use postrider::{Admission, EnqueueError, Enqueued, NewEvent, StoreError};
use rusqlite::Connection;

use crate::error::store_error;
use crate::writer::{Savepoint, Session};
use crate::{enqueue, once};

/// A transaction on the writer thread, in which the application's own statements and enqueues commit together.
///
/// See [`SqliteStore::transaction`](crate::SqliteStore::transaction).
pub struct SqliteTransaction<'session> {
    session: &'session mut Session,
    admission: &'session Admission,
}

impl std::fmt::Debug for SqliteTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteTransaction").finish_non_exhaustive()
    }
}

impl<'session> SqliteTransaction<'session> {
    pub(crate) fn new(session: &'session mut Session, admission: &'session Admission) -> Self {
        Self { session, admission }
    }

    /// The connection, for the application's own tables in the same file.
    ///
    /// `BEGIN`, `COMMIT` and `ROLLBACK` are refused on it, since others share the transaction; savepoints are fine.
    pub fn connection(&self) -> &Connection {
        &self.session.connection
    }

    /// Enqueues an event if and only if this transaction commits.
    pub fn enqueue(&mut self, event: NewEvent) -> Result<Enqueued, EnqueueError> {
        let mut enqueued = self.enqueue_all(vec![event])?;
        Ok(enqueued.pop().expect("one event has one result"))
    }

    /// Enqueues the events, all or none: after an error nothing of this call is left, and the transaction can go on.
    pub fn enqueue_all(&mut self, events: Vec<NewEvent>) -> Result<Vec<Enqueued>, EnqueueError> {
        let admitted = enqueue::admit(self.admission, events)?;
        self.session.unguarded(|session| {
            session.in_savepoint(&Savepoint::ENQUEUE, |session| enqueue::enqueue(session, &admitted))
        })
    }

    /// Begins the next generation of a once-only subject if and only if this transaction commits, and returns it.
    pub fn reset_once(&mut self, tenant: &str, subject: &str, operator: &Operator) -> Result<u64, StoreError> {
        self.session.unguarded(|session| {
            session.in_savepoint(&Savepoint::ENQUEUE, |session| {
                let reset = once::reset(session, tenant, subject, operator);
                reset.map_err(|error| store_error("begin the next generation of a subject", error))
            })
        })
    }
}
