//! Connections that may go dead without a word.
//!
//! A server that loses its power, or a firewall that forgets a connection, closes nothing: a statement that was sent over
//! it waits for as long as the system goes on repeating its packets, a quarter of an hour, and for ever where a backend
//! hangs. Nor may such a connection go back to its pool, which would first ask it whether it is well, and keep its place
//! until it answers. So every connection is lent: one whose statement was given up, by a deadline or by the caller, is
//! closed. What a dispatcher asks has its deadline here, and so has every statement that may be sent again; who lists or
//! counts waits for as long as the caller wants.
//!
//! When a statement was not answered in time, those who come next would find the same on every other connection that was
//! open, one after the other. So the idle ones are closed as well.
//!
//! Heartbeats have a connection of their own, so that leases are renewed however busy the others are. It is in no pool:
//! with a single place, the one that is taken by a dead connection would be the last.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider::{StoreError, StoreErrorCode};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres, SqlSafeStr};
use tokio::time::{Instant, timeout};

use crate::error::{Result, store_error};
use crate::{ACQUIRE_TIMEOUT, PostgresStore};

/// The server hears nothing of a connection that went dead, and would keep a transaction that was begun on it, with its
/// locks on keys and subjects, for hours. Nobody here takes this long between two statements.
const UNLESS_ABANDONED: &str = "set local idle_in_transaction_session_timeout = '15s'";

/// Far longer than any of these statements takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

type Statement<'q> = Query<'q, Postgres, PgArguments>;

fn given_up(doing: &'static str, after: Duration) -> StoreError {
    let message = format!("{doing}: no answer within {after:?}; the connection was given up");
    StoreError::new(StoreErrorCode::Unavailable, message)
}

/// A pool's connection, for one statement or for a few. After an error, or when it is dropped before it is given back, it
/// is closed, and with it whatever was begun on it.
pub(crate) struct Lent {
    doing: &'static str,
    pool: PgPool,
    connection: Option<PoolConnection<Postgres>>,
}

impl Lent {
    /// Borrows a connection. `doing` says what for, for people.
    pub(crate) async fn from(pool: &PgPool, doing: &'static str) -> Result<Self> {
        let connection = Some(pool.acquire().await.map_err(store_error(doing))?);
        Ok(Self { doing, pool: pool.clone(), connection })
    }

    /// Runs the statement, and gives the connection back if it was answered.
    pub(crate) async fn rows(mut self, statement: Statement<'_>) -> Result<Vec<PgRow>> {
        let answer = self.answer(statement).await?;
        self.give_back();
        answer
    }

    /// Runs one statement of several.
    pub(crate) async fn run(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>> {
        self.answer(statement).await?
    }

    /// Begins a transaction, by a statement of the caller's.
    pub(crate) async fn begin(mut self, statement: &'static str) -> Result<Self> {
        self.control(AssertSqlSafe(format!("{statement}; {UNLESS_ABANDONED}"))).await?;
        Ok(self)
    }

    /// Ends a transaction, and gives the connection back.
    pub(crate) async fn commit(mut self) -> Result<()> {
        self.control("commit").await?;
        self.give_back();
        Ok(())
    }

    /// Undoes a transaction, and gives the connection back.
    pub(crate) async fn roll_back(mut self) -> Result<()> {
        self.control("rollback").await?;
        self.give_back();
        Ok(())
    }

    async fn control(&mut self, statement: impl SqlSafeStr) -> Result<()> {
        let doing = self.doing;
        sqlx::raw_sql(statement).execute(&mut **self).await.map(drop).map_err(store_error(doing))
    }

    /// Gives the connection back.
    pub(crate) fn give_back(mut self) {
        drop(self.connection.take());
    }

    /// What the database says, if it says anything in time.
    async fn answer(&mut self, statement: Statement<'_>) -> Result<Result<Vec<PgRow>>> {
        let (doing, pool) = (self.doing, self.pool.clone());
        answered(&pool, doing, async { Ok(statement.fetch_all(&mut **self).await.map_err(store_error(doing))) }).await
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_deref().expect("it is there until it is given back")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_deref_mut().expect("it is there until it is given back")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

/// What work on connections of this pool comes to, if it comes to an end in time. It is given up otherwise, and with it
/// its connection and those that are as likely to be dead.
pub(crate) async fn answered<T, E: From<StoreError>>(
    pool: &PgPool,
    doing: &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(ANSWER_TIMEOUT, work).await.unwrap_or_else(|_| {
        while let Some(idle) = pool.try_acquire() {
            drop(idle.detach());
        }
        Err(given_up(doing, ANSWER_TIMEOUT).into())
    })
}

impl PostgresStore {
    /// Borrows a connection of the pool. `doing` says what for, for people.
    pub(crate) async fn lend(&self, doing: &'static str) -> Result<Lent> {
        match Lent::from(self.pool(), doing).await {
            Err(error) if error.code == StoreErrorCode::Busy => {
                Err(self.shared.reach.explain(doing, &self.pool().connect_options()).await)
            }
            lent => lent,
        }
    }

    /// Runs one statement on a connection of the pool.
    pub(crate) async fn rows(&self, doing: &'static str, statement: Statement<'_>) -> Result<Vec<PgRow>> {
        self.lend(doing).await?.rows(statement).await
    }

    /// The same for a statement that has one row at most.
    pub(crate) async fn maybe_row(&self, doing: &'static str, statement: Statement<'_>) -> Result<Option<PgRow>> {
        Ok(self.rows(doing, statement).await?.pop())
    }

    /// The same for a statement that always has one row.
    pub(crate) async fn row(&self, doing: &'static str, statement: Statement<'_>) -> Result<PgRow> {
        Ok(self.maybe_row(doing, statement).await?.expect("a statement that tells something always has a row"))
    }
}

/// How long it may take to find out why there is no connection.
const EXPLAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long what was found out holds for others.
const EXPLAINED_FOR: Duration = Duration::from_secs(1);

/// Why the pool has no connection. It tries to make one for seconds, and then only knows that it has none: whether all are
/// used, or the server is down, or has none left, one attempt more says. One at a time, since those who wait may be many.
#[derive(Default)]
pub(crate) struct Reach(tokio::sync::Mutex<Option<(Instant, StoreErrorCode, String)>>);

impl Reach {
    async fn explain(&self, doing: &'static str, options: &PgConnectOptions) -> StoreError {
        let mut last = self.0.lock().await;
        if let Some((at, code, reason)) = &*last
            && at.elapsed() < EXPLAINED_FOR
        {
            return StoreError::new(*code, format!("{doing}: {reason}"));
        }
        let error = match timeout(EXPLAIN_TIMEOUT, options.connect()).await {
            Ok(Ok(connection)) => {
                // Whether it hears that it is not needed does not matter.
                let _ = timeout(EXPLAIN_TIMEOUT, connection.close()).await;
                store_error(doing)(sqlx::Error::PoolTimedOut)
            }
            Ok(Err(error)) => store_error(doing)(error),
            Err(_) => given_up(doing, EXPLAIN_TIMEOUT),
        };
        let reason = error.message.strip_prefix(doing).and_then(|rest| rest.strip_prefix(": "));
        *last = Some((Instant::now(), error.code, reason.unwrap_or(&error.message).to_owned()));
        error
    }
}

/// The connection for heartbeats, made when it is first needed, and again after each trouble.
#[derive(Clone)]
pub(crate) struct Heartbeats(Arc<HeartbeatConnection>);

struct HeartbeatConnection {
    options: PgConnectOptions,
    idle: Mutex<Option<PgConnection>>,
}

impl Heartbeats {
    pub(crate) fn new(options: PgConnectOptions) -> Self {
        Self(Arc::new(HeartbeatConnection { options, idle: Mutex::new(None) }))
    }

    /// Runs one statement, for `longest` at most, and keeps the connection if it was answered.
    ///
    /// A caller that stops waiting does not stop it: over a slow wire a connection takes longer to make than a heartbeat
    /// lasts, and would be begun again and again.
    pub(crate) async fn rows(
        &self,
        doing: &'static str,
        statement: Statement<'static>,
        longest: Duration,
    ) -> Result<Vec<PgRow>> {
        // A very short lease is no reason to give up what is only about to connect.
        let longest = longest.clamp(ACQUIRE_TIMEOUT, ANSWER_TIMEOUT);
        let connection = Arc::clone(&self.0);
        let beat = tokio::spawn(async move { timeout(longest, connection.rows(doing, statement)).await });
        match beat.await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(given_up(doing, longest))),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(StoreError::new(StoreErrorCode::Unavailable, "the runtime is shutting down")),
        }
    }
}

impl HeartbeatConnection {
    fn idle(&self) -> std::sync::MutexGuard<'_, Option<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn rows(&self, doing: &'static str, statement: Statement<'static>) -> Result<Vec<PgRow>> {
        let idle = self.idle().take();
        let mut connection = match idle {
            Some(connection) => connection,
            None => timeout(ACQUIRE_TIMEOUT, self.options.connect())
                .await
                .unwrap_or(Err(sqlx::Error::PoolTimedOut))
                .map_err(store_error(doing))?,
        };
        let rows = statement.fetch_all(&mut connection).await.map_err(store_error(doing))?;
        *self.idle() = Some(connection);
        Ok(rows)
    }
}
