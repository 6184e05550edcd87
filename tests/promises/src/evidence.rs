//! What the database knows, for the checker: its rows, and a history of every claim, its end, and every change of a
//! delivery, kept by triggers that are added for the trial.
//!
//! Both databases answer in lines of JSON of the same shape, so that only the questions differ.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

/// Everything read from a database. Instants are microseconds since 1970, by the database's clock.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// All events.
    pub events: Vec<EventRow>,
    /// Numbers that callers wrote in the transactions of their enqueues.
    pub witnesses: Vec<u64>,
    /// All deliveries.
    pub deliveries: Vec<DeliveryRow>,
    /// All attempts.
    pub attempts: Vec<AttemptRow>,
    /// All announcements.
    pub announcements: Vec<AnnouncementRow>,
    /// All dead letters.
    pub dead: Vec<DeadRow>,
    /// What happened to leases and deliveries, in order.
    pub history: Vec<Step>,
    /// Deliveries that are ready, scheduled or leased.
    pub waiting: Vec<Uuid>,
}

/// An event.
#[derive(Debug, Clone, Deserialize)]
pub struct EventRow {
    /// Its id.
    pub id: Uuid,
    /// Its payload, which in these trials is text.
    pub payload: String,
}

/// A delivery.
#[derive(Debug, Clone, Deserialize)]
pub struct DeliveryRow {
    /// Its id.
    pub id: Uuid,
    /// Its event.
    pub event_id: Uuid,
    /// Its state.
    #[serde(flatten)]
    pub state: State,
}

/// What changes about a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct State {
    /// Its status.
    pub status: String,
    /// Attempts settled in this round.
    pub attempt_count: u32,
    /// Attempts settled before.
    pub earlier_attempts: u32,
    /// Claims in a row that ended without a result.
    pub abandoned_count: u32,
    /// When the last attempt was settled.
    pub last_attempted_at: Option<i64>,
    /// When the next one is due.
    pub next_attempt_at: Option<i64>,
}

/// An attempt.
#[derive(Debug, Clone, Deserialize)]
pub struct AttemptRow {
    /// Of which delivery.
    pub delivery_id: Uuid,
    /// Its number.
    pub number: u32,
    /// Under which lease.
    pub token: Uuid,
    /// By whom.
    pub worker_id: String,
    /// What happened.
    pub outcome: String,
    /// What was answered.
    pub status_code: Option<u16>,
}

/// An announcement.
#[derive(Debug, Clone, Deserialize)]
pub struct AnnouncementRow {
    /// What it says.
    pub fact: String,
    /// Of which delivery.
    pub delivery_id: Uuid,
}

/// A dead letter.
#[derive(Debug, Clone, Deserialize)]
pub struct DeadRow {
    /// Which delivery.
    pub delivery_id: Uuid,
    /// Of what it died.
    pub reason: String,
}

/// One line of the history.
#[derive(Debug, Clone, Deserialize)]
pub struct Step {
    /// Of which delivery.
    pub delivery_id: Uuid,
    /// When.
    pub at: i64,
    /// What.
    #[serde(flatten)]
    pub deed: Deed,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "deed", rename_all = "snake_case")]
pub enum Deed {
    /// A lease was granted.
    Claimed(Grant),
    /// A lease was settled, released or taken back.
    Ended(Grant),
    /// A delivery was changed.
    Changed {
        /// From this.
        before: State,
        /// To this.
        after: State,
    },
}

/// A lease as its row had it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Grant {
    /// Its token.
    pub token: Uuid,
    /// Whose it was.
    pub owner: String,
    /// Until when it held.
    pub until: i64,
}

/// A database under trial.
#[derive(Debug, Clone)]
pub enum Source {
    /// By its URL.
    Postgres(String),
    /// By its file.
    Sqlite(PathBuf),
}

impl Source {
    /// Adds the triggers, their table and the witnesses' to a migrated database.
    pub async fn observe(&self) {
        match self {
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(include_str!("evidence/postgres.sql")).execute(&mut connection).await.unwrap();
            }
            Self::Sqlite(path) => {
                let connection = open(path);
                connection.execute_batch(include_str!("evidence/sqlite.sql")).unwrap();
            }
        }
    }

    /// Reads everything.
    pub async fn rows(&self) -> Rows {
        Rows {
            events: self.read("events").await,
            witnesses: self.read("witnesses").await,
            deliveries: self.read("deliveries").await,
            attempts: self.read("attempts").await,
            announcements: self.read("announcements").await,
            dead: self.read("dead").await,
            history: self.read("history").await,
            waiting: self.read("waiting").await,
        }
    }

    /// How many deliveries are not settled.
    pub async fn unsettled(&self) -> Result<u64, String> {
        match self {
            Self::Postgres(url) => {
                let text = |error: sqlx::Error| error.to_string();
                let mut connection = PgConnection::connect(url).await.map_err(text)?;
                let question = "select count(*) from postrider.deliveries where status in ('pending', 'failed')";
                let count: i64 = sqlx::query_scalar(question).fetch_one(&mut connection).await.map_err(text)?;
                Ok(count.unsigned_abs())
            }
            Self::Sqlite(path) => {
                let question = "select count(*) from postrider_deliveries where status in ('pending', 'failed')";
                let count = open(path).query_row(question, [], |row| row.get::<_, i64>(0));
                count.map(i64::unsigned_abs).map_err(|error| error.to_string())
            }
        }
    }

    async fn read<T: DeserializeOwned>(&self, what: &str) -> Vec<T> {
        let lines: Vec<String> = match self {
            Self::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let question = sqlx::AssertSqlSafe(format!("select line::text from trial.{what}_lines"));
                sqlx::query_scalar(question).fetch_all(&mut connection).await.unwrap()
            }
            Self::Sqlite(path) => {
                let connection = open(path);
                let mut statement = connection.prepare(&format!("select line from trial_{what}_lines")).unwrap();
                statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
            }
        };
        let parse = |line: &String| serde_json::from_str(line).unwrap_or_else(|error| panic!("{what}: {error}"));
        lines.iter().map(parse).collect()
    }
}

fn open(path: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(crate::process::PATIENCE).unwrap();
    connection
}
