//! Sessions, in a table of the gateway's own, and which deliveries tell of each, in another.
//!
//! A change of a session, the event that tells of it, and what is noted of its deliveries are one transaction: none is there
//! without the others, whatever crashes in between. The event fans out to the webhooks that want its type; nothing here knows them.

use postrider::{Cursor, DeliveryId, EnqueueError, NewEvent, PageRequest, StoreError};
use postrider_sqlite::rusqlite::{self, Connection, OptionalExtension as _, Row, ToSql, named_params, params, types};
use postrider_sqlite::{SqliteStore, SqliteTransaction};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Gateway, topic};

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// It works.
    Active,
    /// It waits.
    Idle,
    /// It is over, for good.
    Ended,
}

impl SessionStatus {
    const ALL: [Self; 3] = [Self::Active, Self::Idle, Self::Ended];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::Ended => "ended",
        }
    }
}

impl ToSql for SessionStatus {
    fn to_sql(&self) -> rusqlite::Result<types::ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl types::FromSql for SessionStatus {
    fn column_result(value: types::ValueRef<'_>) -> types::FromSqlResult<Self> {
        let text = value.as_str()?;
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or(types::FromSqlError::InvalidType)
    }
}

/// A session as it stands in the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    /// Its id; sorts by time.
    pub id: Uuid,
    /// For people.
    pub name: String,
    /// How it stands.
    pub status: SessionStatus,
    /// When it began, by the database's clock.
    pub created_at: String,
    /// When it changed last.
    pub updated_at: String,
}

impl Session {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let id: String = row.get("id")?;
        Ok(Self {
            id: id.parse().map_err(|_| types::FromSqlError::InvalidType)?,
            name: row.get("name")?,
            status: row.get("status")?,
            created_at: row.get("created_at")?,
            updated_at: row.get("updated_at")?,
        })
    }
}

/// What a webhook gets.
#[derive(Debug, Serialize)]
struct SessionChanged<'a> {
    #[serde(rename = "type")]
    event_type: &'a str,
    session_id: Uuid,
    name: &'a str,
    previous_status: Option<SessionStatus>,
    status: SessionStatus,
    occurred_at: &'a str,
}

/// Why a session was not changed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is none.
    #[error("there is no such session")]
    NotFound,
    /// It is over.
    #[error("the session has ended, and stays so")]
    Ended,
    /// Its event cannot be enqueued, so nothing was changed.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// The table cannot be worked with.
    #[error("the table of sessions: {0}")]
    Sql(#[from] rusqlite::Error),
    /// The file cannot be worked with.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes the gateway's own tables in Postrider's file.
pub(crate) async fn create_tables(store: &SqliteStore) -> Result<(), StoreError> {
    let created = store.transaction(|tx| Ok::<_, SessionError>(tx.connection().execute_batch(TABLES)?)).await;
    created.map_err(|error| match error {
        SessionError::Store(error) => error,
        other => StoreError::new(postrider::StoreErrorCode::Internal, other.to_string()).caused_by(other),
    })
}

const TABLES: &str = "
    create table if not exists gateway_sessions (
        id         text primary key,
        name       text not null,
        status     text not null constraint status_is_known check (status in ('active', 'idle', 'ended')),
        created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
        updated_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    ) strict;
    create table if not exists gateway_session_deliveries (
        session_id  text not null,
        delivery_id text not null,
        primary key (session_id, delivery_id)
    ) strict, without rowid";

impl Gateway {
    /// Begins a session, and tells of it.
    pub async fn start_session(&self, name: String) -> Result<Session, SessionError> {
        let start = move |tx: &mut SqliteTransaction<'_>| {
            let sql = "insert into gateway_sessions (id, name, status) values (?1, ?2, ?3) returning *";
            let values = params![Uuid::now_v7().to_string(), name, SessionStatus::Active];
            let session = tx.connection().query_row(sql, values, Session::from_row)?;
            tell(tx, &session, None)?;
            Ok(session)
        };
        self.store().transaction(start).await
    }

    /// Changes a session's status, and tells of it. To set the status that it has changes and tells nothing.
    pub async fn set_session_status(&self, id: Uuid, status: SessionStatus) -> Result<Session, SessionError> {
        let change = move |tx: &mut SqliteTransaction<'_>| {
            let before = find(tx.connection(), id)?.ok_or(SessionError::NotFound)?;
            if before.status == status {
                return Ok(before);
            }
            if before.status == SessionStatus::Ended {
                return Err(SessionError::Ended);
            }
            let sql = "update gateway_sessions set status = ?2, updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
                       where id = ?1 returning *";
            let after = tx.connection().query_row(sql, params![id.to_string(), status], Session::from_row)?;
            tell(tx, &after, Some(before.status))?;
            Ok(after)
        };
        self.store().transaction(change).await
    }

    /// One session.
    pub async fn session(&self, id: Uuid) -> Result<Option<Session>, SessionError> {
        self.store().transaction(move |tx| Ok(find(tx.connection(), id)?)).await
    }

    /// Sessions, newest first.
    pub async fn sessions(&self, page: PageRequest) -> Result<Vec<Session>, SessionError> {
        let list = move |tx: &mut SqliteTransaction<'_>| {
            let sql =
                "select * from gateway_sessions where :after is null or id < :after order by id desc limit :limit";
            let after = page.cursor().map(|cursor| cursor.0.to_string());
            let mut statement = tx.connection().prepare_cached(sql)?;
            let values = named_params! { ":after": after, ":limit": page.limit() };
            let sessions = statement.query_map(values, Session::from_row)?;
            Ok(sessions.collect::<Result<_, _>>()?)
        };
        self.store().transaction(list).await
    }

    /// The deliveries of a session's changes, newest first.
    pub(crate) async fn delivery_ids_of_session(
        &self,
        session_id: Uuid,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<DeliveryId>, SessionError> {
        let list = move |tx: &mut SqliteTransaction<'_>| {
            let sql = "select delivery_id from gateway_session_deliveries
                       where session_id = :session and (:after is null or delivery_id < :after)
                       order by delivery_id desc limit :limit";
            let (session, after) = (session_id.to_string(), after.map(|cursor| cursor.0.to_string()));
            let mut statement = tx.connection().prepare_cached(sql)?;
            let values = named_params! { ":session": session, ":after": after, ":limit": limit };
            let ids = statement.query_map(values, |row| {
                let id: String = row.get(0)?;
                let id = id.parse().map_err(|_| types::FromSqlError::InvalidType)?;
                Ok(DeliveryId::from_uuid(id))
            })?;
            Ok(ids.collect::<Result<_, _>>()?)
        };
        self.store().transaction(list).await
    }
}

fn find(connection: &Connection, id: Uuid) -> rusqlite::Result<Option<Session>> {
    let sql = "select * from gateway_sessions where id = ?1";
    connection.query_row(sql, params![id.to_string()], Session::from_row).optional()
}

/// Enqueues what webhooks get to know of a change, in the transaction of the change, and notes by which deliveries.
fn tell(
    tx: &mut SqliteTransaction<'_>,
    session: &Session,
    previous_status: Option<SessionStatus>,
) -> Result<(), SessionError> {
    let event_type = format!("session.{}", session.status.as_str());
    let body = SessionChanged {
        event_type: &event_type,
        session_id: session.id,
        name: &session.name,
        previous_status,
        status: session.status,
        occurred_at: &session.updated_at,
    };
    let body = serde_json::to_vec(&body).expect("texts and names are JSON");
    let enqueued = tx.enqueue(topic::about_session(NewEvent::new(&event_type, body), session.id))?;
    let note = "insert into gateway_session_deliveries (session_id, delivery_id) values (?1, ?2)";
    for delivery in enqueued.deliveries() {
        tx.connection().execute(note, params![session.id.to_string(), delivery.id.as_uuid().to_string()])?;
    }
    Ok(())
}
