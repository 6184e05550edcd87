//! Connections for the dispatcher's statements, which may go dead without a word.
//!
//! A server that loses its power, or a firewall that forgets a connection, closes nothing: a statement that was sent over
//! it waits for as long as the system goes on repeating its packets, a quarter of an hour. Nor may such a connection go
//! back to its pool, which would first ask it whether it is well, and keep its place until it answers. So an answer has a
//! deadline here, and a connection whose statement was given up, by that deadline or by the caller, is closed. Every
//! statement that is sent this way may be sent again.
//!
//! Heartbeats have a connection of their own, so that leases are renewed however busy the others are. It is in no pool:
//! with a single place, the one that is taken by a dead connection would be the last.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use postrider::{StoreError, StoreErrorCode};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::{ConnectOptions as _, PgConnection, PgPool, Postgres};
use tokio::time::timeout;

use crate::ACQUIRE_TIMEOUT;
use crate::error::{Result, store_error};

/// Far longer than any of these statements takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

type Statement<'q> = Query<'q, Postgres, PgArguments>;

fn given_up(doing: &'static str) -> StoreError {
    let message = format!("{doing}: no answer within {ANSWER_TIMEOUT:?}; the connection was given up");
    StoreError::new(StoreErrorCode::Unavailable, message)
}

/// A pool's connection, for one statement or for a few.
pub(crate) struct Lent {
    doing: &'static str,
    connection: Option<PoolConnection<Postgres>>,
}

impl Lent {
    /// Borrows a connection. `doing` says what for, for people.
    pub(crate) async fn from(pool: &PgPool, doing: &'static str) -> Result<Self> {
        let connection = Some(pool.acquire().await.map_err(store_error(doing))?);
        Ok(Self { doing, connection })
    }

    /// Runs the statement, and gives the connection back if it was answered.
    pub(crate) async fn rows(mut self, statement: Statement<'_>) -> Result<Vec<PgRow>> {
        let answer = self.answer(statement).await?;
        self.give_back();
        answer
    }

    /// Runs one statement of several. After an error, or when it is dropped before it is given back, the connection is
    /// closed, and with it whatever was begun on it.
    pub(crate) async fn run(&mut self, statement: Statement<'_>) -> Result<Vec<PgRow>> {
        self.answer(statement).await?
    }

    /// Gives the connection back.
    pub(crate) fn give_back(mut self) {
        drop(self.connection.take());
    }

    /// What the database says, if it says anything in time.
    async fn answer(&mut self, statement: Statement<'_>) -> Result<Result<Vec<PgRow>>> {
        let connection = self.connection.as_deref_mut().expect("it is there until it is given back");
        let answer = timeout(ANSWER_TIMEOUT, statement.fetch_all(connection)).await;
        Ok(answer.map_err(|_| given_up(self.doing))?.map_err(store_error(self.doing)))
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(connection.detach());
        }
    }
}

/// Runs one statement of the dispatcher's on a connection of this pool.
pub(crate) async fn rows(pool: &PgPool, doing: &'static str, statement: Statement<'_>) -> Result<Vec<PgRow>> {
    Lent::from(pool, doing).await?.rows(statement).await
}

/// The same for a statement that always has one row.
pub(crate) async fn row(pool: &PgPool, doing: &'static str, statement: Statement<'_>) -> Result<PgRow> {
    Ok(rows(pool, doing, statement).await?.pop().expect("a count always has a row"))
}

/// The connection for heartbeats, made when it is first needed, and again after each trouble.
pub(crate) struct Heartbeats {
    options: PgConnectOptions,
    idle: Mutex<Option<PgConnection>>,
}

impl Heartbeats {
    pub(crate) fn new(options: PgConnectOptions) -> Self {
        Self { options, idle: Mutex::new(None) }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Option<PgConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one statement, and keeps the connection if it was answered.
    pub(crate) async fn rows(&self, doing: &'static str, statement: Statement<'_>) -> Result<Vec<PgRow>> {
        let idle = self.idle().take();
        let mut connection = match idle {
            Some(connection) => connection,
            None => timeout(ACQUIRE_TIMEOUT, self.options.connect())
                .await
                .unwrap_or(Err(sqlx::Error::PoolTimedOut))
                .map_err(store_error(doing))?,
        };
        let answer = timeout(ANSWER_TIMEOUT, statement.fetch_all(&mut connection)).await;
        let rows = answer.map_err(|_| given_up(doing))?.map_err(store_error(doing))?;
        *self.idle() = Some(connection);
        Ok(rows)
    }
}
