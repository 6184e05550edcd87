//! Connections that only read. They see the last commit, and never wait for the writer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider::store::Connections;
use postrider::{StoreError, StoreErrorCode};
use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

use crate::error::{open_error, store_error};

/// At most so many reads at a time; each has a connection and a thread of the runtime's blocking pool. Some more than
/// there are processors: a few that count for seconds must not keep a server from looking up the key of a request.
const MAX_READERS: usize = 8;
/// Statements that a connection keeps prepared.
pub(crate) const CACHED_STATEMENTS: usize = 128;
/// How long a connection waits for a lock that another process holds.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Arc::default(), permits: Arc::new(Semaphore::new(MAX_READERS)) }
    }

    /// How many there are, and how many of them are used right now.
    pub(crate) fn connections(&self) -> Connections {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        let used = MAX_READERS.saturating_sub(self.permits.available_permits());
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Connections { open: count(idle + used), idle: count(idle), most: count(MAX_READERS) }
    }

    /// Runs `read` on one snapshot of the database.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.expect("the semaphore is never closed");
        let (path, idle) = (self.path.clone(), Arc::clone(&self.idle));
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match pooled {
                Some(connection) => connection,
                None => open(&path).map_err(|error| open_error(&path, error))?,
            };
            let result = connection.unchecked_transaction().and_then(|snapshot| read(&snapshot));
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            result.map_err(|error| store_error(doing, error))
        });
        match work.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(StoreError::new(StoreErrorCode::Unavailable, "the runtime is shutting down")),
        }
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    Ok(connection)
}
