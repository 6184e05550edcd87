//! The handle on a store.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use postrider::{Admission, Keyring, StoreError, StoreErrorCode};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::clock::Clock;
use crate::error::{open_error, store_error};
use crate::in_place::InPlace;
use crate::migrate;
use crate::readers::{BUSY_TIMEOUT, CACHED_STATEMENTS, Readers};
use crate::syncer::{Durability, Log};
use crate::transaction::SqliteTransaction;
use crate::vault::Vault;
use crate::wake::Wake;
use crate::writer::{Session, Writer};

/// A [`postrider::Store`] on an SQLite file. Cheap to clone; clones share the writer thread.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use postrider::{NewEvent, Store, StoreError};
/// use postrider_sqlite::SqliteStore;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("app.db");
/// let store = SqliteStore::open(&path)?;
/// store.migrate().await?;
/// let enqueued = store.enqueue(vec![NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#)]).await.unwrap();
/// assert_eq!(enqueued.len(), 1);
/// # Ok::<(), StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) vault: Arc<Vault>,
}

/// The readers come first, because fields are dropped in their order: SQLite moves the log into the file when its last
/// connection is closed, if that is one that may write.
pub(crate) struct Shared {
    pub(crate) readers: Readers,
    pub(crate) writer: Writer,
    pub(crate) wake: Arc<Wake>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) in_place: Arc<InPlace>,
    log: Arc<Log>,
    pub(crate) path: PathBuf,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.shared.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, and creates an empty one if there is none. It does not [migrate](Self::migrate).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() || path == Path::new(":memory:") {
            let message = "a database in memory would be lost with its connection, and each has its own; name a file";
            return Err(StoreError::new(StoreErrorCode::Unavailable, message));
        }
        let (clock, wake) = (Arc::<Clock>::default(), Arc::<Wake>::default());
        let in_place = Arc::new(InPlace::new(path));
        let log = Arc::new(Log::new(in_place.log().to_owned()));
        let writer = open_writer(path)
            .and_then(|connection| {
                let (clock, wake) = (Arc::clone(&clock), Arc::clone(&wake));
                Writer::start(connection, Arc::clone(&in_place), Arc::clone(&log), clock, wake)
            })
            .map_err(|error| open_error(path, error))?;
        let shared = Shared { writer, readers: Readers::new(path), wake, clock, in_place, log, path: path.to_owned() };
        Ok(Self { shared: Arc::new(shared), admission: Arc::default(), vault: Arc::default() })
    }

    /// The same store, which admits events by these rules.
    #[must_use]
    pub fn with_admission(self, admission: Admission) -> Self {
        Self { admission: Arc::new(admission), ..self }
    }

    /// The same store, which keeps the secrets of endpoints encrypted under these keys. Without a key no endpoint that has
    /// a secret can be written, and nothing can be signed for those that are there.
    #[must_use]
    pub fn with_keyring(self, keyring: Keyring) -> Self {
        Self { vault: Arc::new(Vault::new(keyring)), ..self }
    }

    /// Applies the migrations that are missing, and returns their names. Safe when several processes do it at once.
    pub async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        self.shared.writer.write(Durability::Synced, |session| migrate::migrate(&session.connection, session.now)).await
    }

    /// The names of the migrations that are missing.
    pub async fn pending_migrations(&self) -> Result<Vec<String>, StoreError> {
        self.read("read the table of migrations", |connection| Ok(migrate::pending(connection))).await?
    }

    /// Refuses a database whose schema is older, newer or other than this program's.
    pub async fn check_schema(&self) -> Result<(), StoreError> {
        self.read("read the table of migrations", |connection| Ok(migrate::check(connection))).await?
    }

    /// How often the log was brought to the disk since the file was opened. For those who count what things cost.
    pub fn log_syncs(&self) -> u64 {
        self.shared.log.syncs()
    }

    /// Stops the store's clock at an instant, or lets it run again. For tests.
    pub fn freeze_clock(&self, at: Option<Timestamp>) {
        self.shared.clock.freeze(at);
    }

    /// Runs `work` in a transaction on the writer thread. Its statements on the application's own tables and its
    /// enqueues are committed together when it returns `Ok`, and are all undone when it returns `Err` or panics. This
    /// returns after the commit.
    ///
    /// The transaction is one part of a group that is committed at once, so `BEGIN`, `COMMIT` and `ROLLBACK` are
    /// refused inside of `work`. Everybody's writes wait while it runs: it should only talk to the database.
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// use postrider::NewEvent;
    /// use postrider_sqlite::SqliteStore;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("app.db");
    /// # let store = SqliteStore::open(&path)?;
    /// # store.migrate().await?;
    /// store
    ///     .transaction(|tx| {
    ///         tx.connection().execute("create table invoices (id text primary key, paid integer)", [])?;
    ///         tx.connection().execute("insert into invoices values ('in_42', 1)", [])?;
    ///         tx.enqueue(NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#))?;
    ///         Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    ///     })
    ///     .await?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// # }).unwrap();
    /// ```
    pub async fn transaction<T, E>(
        &self,
        work: impl FnOnce(&mut SqliteTransaction<'_>) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let admission = Arc::clone(&self.admission);
        let work = move |session: &mut Session| {
            session.guarded(|session| work(&mut SqliteTransaction::new(session, &admission)))
        };
        self.shared.writer.write(Durability::Synced, work).await
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&mut Session) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write_as(Durability::Synced, doing, work).await
    }

    pub(crate) async fn write_as<T: Send + 'static>(
        &self,
        durability: Durability,
        doing: &'static str,
        work: impl FnOnce(&mut Session) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let work = move |session: &mut Session| work(session).map_err(|error| store_error(doing, error));
        self.shared.writer.write(durability, work).await
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.shared.readers.read(doing, read).await
    }
}

const CACHE_KIB: i64 = 16 * 1024;
const CHECKPOINT_PAGES: i64 = 10_000;

fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    // Without this SQLite plans a statement anew whenever its limit is another number than before, which is at almost every
    // claim. What the writer runs has one good plan; readers, whose filters differ, are better off without.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    use_write_ahead_log(&connection)?;
    // What is acknowledged survives a loss of power, not only a crash of the process: the syncer sees to that, after the
    // commit and beside it. NORMAL keeps the file whole, whatever of the log is lost.
    connection.pragma_update(None, "synchronous", "normal")?;
    // Each piece of work runs in a savepoint, for which SQLite notes the pages as they were: in memory, not in a file.
    connection.pragma_update(None, "temp_store", "memory")?;
    // In KiB when negative. The queues and the upper levels of the large tables' indexes should not be read again.
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    // Every checkpoint writes and syncs the pages once more, and most of them change again soon.
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(connection)
}

/// The switch to WAL needs the file for itself for a moment, and SQLite does not wait for that by its own timeout when
/// two processes switch at once.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if failure.code == ErrorCode::DatabaseBusy && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}
