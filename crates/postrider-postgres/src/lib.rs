//! Postrider's store on Postgres 15 to 18.
//!
//! Any number of processes may share one database: enqueue from all of them, dispatch from all of them. Everything lives
//! in the schema `postrider`, and no statement relies on the `search_path`.
//!
//! # How it is made
//!
//! A delivery is in exactly one place, and each place is a table (`migrations/`). Each method of
//! [`postrider::Store`] is one statement wherever that is possible, in a file of its own under `sql/` that opens with why
//! it is shaped so. One statement is one round trip, one snapshot and one transaction: nothing is left half done, and
//! no connection is left in an open transaction when a caller gives up waiting.
//!
//! # Connections
//!
//! [`PostgresStore::connect`] keeps a pool for the work, a connection for heartbeats (so that a lease is renewed however
//! busy the others are), and one that listens for wake-ups and exists only once somebody waits. What a dispatcher asks, and
//! what is enqueued, is answered within a deadline, also over connections that went dead without a word.

mod batch;
mod browse;
mod claim;
mod diagnose;
mod endpoints;
mod enqueue;
mod error;
mod feed;
mod floors;
mod freight;
mod health;
mod keys;
mod lent;
mod meters;
mod migrate;
mod once;
mod operate;
mod pace;
mod plans;
mod settle;
mod store;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod values;
mod wake;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use postrider::{Admission, Keyring, StoreError, StoreErrorCode};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};

use crate::error::Result;
use crate::floors::Floors;
use crate::freight::Freight;
use crate::lent::{Heartbeats, Reach};
use crate::plans::Plans;
use crate::values::Instant;
use crate::wake::Wake;

/// Postrider's record in a Postgres database. Cheap to clone; clones share their connections.
///
/// ```no_run
/// use postrider::{NewEvent, Store as _};
/// use postrider_postgres::PostgresStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::connect("postgres://localhost/shop").await?;
/// store.migrate().await?;
/// store.enqueue(vec![NewEvent::new("invoice.paid", "{}").to("https://hooks.example.com/")]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
    admission: Arc<Admission>,
    /// Whether the rules are those of whoever made this store, and not merely what holds where nobody has said anything.
    is_admission_given: bool,
    keyring: Arc<Keyring>,
}

struct Shared {
    pool: PgPool,
    heartbeats: Heartbeats,
    wake: Wake,
    floors: Floors,
    freight: Freight,
    plans: Plans,
    frozen_clock: RwLock<Option<Timestamp>>,
    reach: Reach,
    /// Whether the schema was found to be the one that this program knows.
    is_schema_known: AtomicBool,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The pools' own output would show the address and user of the database.
        f.debug_struct("PostgresStore").field("admission", &self.admission).finish_non_exhaustive()
    }
}

/// How long a statement waits for a connection before the store calls itself busy.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(4);
const MAX_CONNECTIONS: u32 = 10;

impl PostgresStore {
    /// Connects to the database that a URL names: `postgres://user:password@host:5432/database`.
    pub async fn connect(url: &str) -> Result<Self> {
        let options: PgConnectOptions = url.parse().map_err(|_| {
            // The driver's own message may quote a part of the URL, which may hold a password.
            StoreError::new(
                StoreErrorCode::Unavailable,
                "the database URL cannot be read; write it as postgres://user:password@host:5432/database",
            )
        })?;
        // The pool would try for seconds, and then only know that it has no connection; one attempt says why.
        let failed = || error::store_error("connecting to Postgres");
        let attempt = tokio::time::timeout(ACQUIRE_TIMEOUT, options.connect()).await;
        let silent = |_| {
            let message =
                format!("connecting to Postgres: no answer within {ACQUIRE_TIMEOUT:?}; is this its host and port?");
            StoreError::new(StoreErrorCode::Unavailable, message)
        };
        let connection = attempt.map_err(silent)?.map_err(failed())?;
        connection.close().await.map_err(failed())?;
        Ok(Self::with_options(options))
    }

    /// Uses connection options that the application made. Connects when it is first needed.
    pub fn with_options(options: PgConnectOptions) -> Self {
        let options = dispatching(options);
        let pool = pool_of(MAX_CONNECTIONS).connect_lazy_with(options.clone());
        Self::on(pool, &options)
    }

    /// Shares the application's own pool. Heartbeats and wake-ups still have connections of their own, with the same
    /// options. The application's connections plan statements as they were set up to; a busy dispatcher is better off
    /// with the connections that [`PostgresStore::connect`] makes, on which plans do not depend on statistics.
    pub fn from_pool(pool: PgPool) -> Self {
        let options = dispatching(PgConnectOptions::clone(&pool.connect_options()));
        Self::on(pool, &options)
    }

    fn on(pool: PgPool, options: &PgConnectOptions) -> Self {
        // One that waits for a lock is given up by its caller, and would otherwise go on waiting in the server, with others.
        let heartbeats = Heartbeats::new(options.clone().options([("lock_timeout", "5s")]));
        let wake = Wake::new(pool_of(1).idle_timeout(None).max_lifetime(None).connect_lazy_with(options.clone()));
        let shared = Shared {
            pool,
            heartbeats,
            wake,
            floors: Floors::default(),
            freight: Freight::default(),
            plans: Plans::default(),
            frozen_clock: RwLock::new(None),
            reach: Reach::default(),
            is_schema_known: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), admission: Arc::default(), is_admission_given: false, keyring: Arc::default() }
    }

    /// The same store, which admits events by these rules.
    #[must_use]
    pub fn with_admission(mut self, admission: Admission) -> Self {
        self.admission = Arc::new(admission);
        self.is_admission_given = true;
        self
    }

    /// The same store, which encrypts the secrets of endpoints with these keys. Without any, an endpoint that has secrets
    /// cannot be written, and none of those that were can be sent to.
    #[must_use]
    pub fn with_keyring(mut self, keyring: Keyring) -> Self {
        self.keyring = Arc::new(keyring);
        self
    }

    /// Applies the migrations that are missing, and names them. Safe to call from any number of processes at once.
    ///
    /// A store that was given rules of admission also leaves them in the database, for those who enqueue by the SQL functions.
    pub async fn migrate(&self) -> Result<Vec<String>> {
        let applied = migrate::migrate(self.pool()).await?;
        if self.is_admission_given {
            self.publish_admission().await?;
        }
        Ok(applied)
    }

    /// Leaves the store's rules of admission in the database, for those who enqueue by the SQL functions. The last one
    /// counts; where nobody has, the defaults hold. Nothing is written if they are there already.
    pub async fn publish_admission(&self) -> Result<()> {
        migrate::publish_admission(self.pool(), &self.admission).await
    }

    /// The migrations that are missing.
    pub async fn pending_migrations(&self) -> Result<Vec<String>> {
        let mut lent = self.lend("reading migrations").await?;
        let pending = migrate::pending(&mut lent).await?;
        lent.give_back();
        Ok(pending)
    }

    /// Says whether the schema is the one that this program knows, and what to do if it is not.
    pub async fn check_schema(&self) -> Result<()> {
        let pending = self.pending_migrations().await?;
        if pending.is_empty() {
            return Ok(());
        }
        let message = format!("the database lacks the migrations {}; run `postrider migrate`", pending.join(", "));
        Err(StoreError::new(StoreErrorCode::Schema, message))
    }

    /// The pool that the store works on, for an application's own statements beside it.
    pub fn pool(&self) -> &PgPool {
        &self.shared.pool
    }

    /// Stops this store's clock at an instant, or lets it go on with `None`. **For tests**: production takes the time
    /// from the database alone.
    pub fn freeze_clock(&self, at: Option<Timestamp>) {
        *self.shared.frozen_clock.write().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// What statements take as their first parameter: nothing, and they ask the database; or the frozen instant.
    fn now(&self) -> Option<Instant> {
        let frozen = *self.shared.frozen_clock.read().unwrap_or_else(PoisonError::into_inner);
        frozen.map(values::instant)
    }
}

/// Statements on the queues are planned once and for all values, and never by a scan of a table that happened to be
/// small when it was planned: a queue that is empty now has a million rows tomorrow. Compiling them costs more than it saves.
fn dispatching(options: PgConnectOptions) -> PgConnectOptions {
    let options =
        options.options([("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")]);
    match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("postrider"),
    }
}

/// Connections are not tried before each use: a statement that finds its connection broken reports the store as
/// unavailable, and the caller tries again anyway.
fn pool_of(max_connections: u32) -> PgPoolOptions {
    PgPoolOptions::new().max_connections(max_connections).acquire_timeout(ACQUIRE_TIMEOUT).test_before_acquire(false)
}
