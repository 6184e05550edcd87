//! Migrations: embedded, in order, each applied once, never edited.
//!
//! All that are missing are applied in one transaction that first takes an advisory lock, so that any number of
//! processes may start at once: the first applies, the others wait and find nothing left to do. What was applied is
//! kept with a checksum. A migration whose text differs from what was applied, or one that this program does not know,
//! means that program and database do not belong together; nothing is touched then.

use postrider::{Admission, StoreError, StoreErrorCode};
use sha2::{Digest, Sha256};
use sqlx::{PgConnection, PgPool};

use crate::error::{Result, store_error};

/// One step of the schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "places", sql: include_str!("../migrations/0001_places.sql") },
    Migration { version: 2, name: "server", sql: include_str!("../migrations/0002_server.sql") },
    Migration { version: 3, name: "admission", sql: include_str!("../migrations/0003_admission.sql") },
    Migration { version: 4, name: "functions", sql: include_str!("../migrations/0004_functions.sql") },
    Migration { version: 5, name: "views", sql: include_str!("../migrations/0005_views.sql") },
    Migration { version: 6, name: "bounds", sql: include_str!("../migrations/0006_bounds.sql") },
    Migration { version: 7, name: "announced", sql: include_str!("../migrations/0007_announced.sql") },
];

impl Migration {
    /// Names it as its file is named.
    fn label(&self) -> String {
        format!("{:04}_{}", self.version, self.name)
    }

    fn checksum(&self) -> Vec<u8> {
        Sha256::digest(self.sql.as_bytes()).to_vec()
    }
}

type Applied = Vec<(i32, String, Vec<u8>)>;

pub(crate) async fn migrate(pool: &PgPool) -> Result<Vec<String>> {
    let failed = || store_error("applying migrations");
    let mut transaction = pool.begin().await.map_err(failed())?;
    must_be_utf8(&mut transaction).await?;
    sqlx::query(include_str!("../sql/migrations_lock.sql")).execute(&mut *transaction).await.map_err(failed())?;
    if !recorded(&mut transaction).await? {
        sqlx::raw_sql(include_str!("../sql/migrations_create.sql"))
            .execute(&mut *transaction)
            .await
            .map_err(failed())?;
    }
    let pending = missing(&applied(&mut transaction).await?)?;
    for migration in &pending {
        sqlx::raw_sql(migration.sql).execute(&mut *transaction).await.map_err(failed())?;
        sqlx::query(include_str!("../sql/migrations_record.sql"))
            .bind(migration.version)
            .bind(migration.name)
            .bind(migration.checksum())
            .execute(&mut *transaction)
            .await
            .map_err(failed())?;
    }
    transaction.commit().await.map_err(failed())?;
    Ok(pending.iter().map(Migration::label).collect())
}

/// Payloads are bytes, but what receivers answer, metadata and reasons are texts. One character that the database's encoding
/// lacks would keep a delivery from being settled, time and again.
async fn must_be_utf8(connection: &mut PgConnection) -> Result<()> {
    let encoding: String = sqlx::query_scalar("select current_setting('server_encoding')")
        .fetch_one(connection)
        .await
        .map_err(store_error("asking for the database's encoding"))?;
    // SQL_ASCII keeps whatever bytes it is given, and Postrider gives it UTF-8.
    if ["UTF8", "SQL_ASCII"].contains(&encoding.as_str()) {
        return Ok(());
    }
    let message = format!(
        "the database has the encoding {encoding}, and Postrider needs UTF8; use one that was made with \
         `create database name encoding 'UTF8' template template0`"
    );
    Err(StoreError::new(StoreErrorCode::Schema, message))
}

/// Leaves the rules of admission where the SQL functions find them.
pub(crate) async fn publish_admission(pool: &PgPool, admission: &Admission) -> Result<()> {
    let destinations = &admission.destinations;
    sqlx::query(include_str!("../sql/publish_admission.sql"))
        .bind(i64::try_from(admission.max_payload_bytes).unwrap_or(i64::MAX))
        .bind(admission.bare_destinations)
        .bind(destinations.requires_https())
        .bind(destinations.allowed_hosts().iter().map(ToString::to_string).collect::<Vec<_>>())
        .bind(destinations.allowed_networks().iter().map(ToString::to_string).collect::<Vec<_>>())
        .execute(pool)
        .await
        .map_err(store_error("writing the rules of admission"))?;
    Ok(())
}

pub(crate) async fn pending(connection: &mut PgConnection) -> Result<Vec<String>> {
    let applied = if recorded(connection).await? { applied(connection).await? } else { Applied::new() };
    Ok(missing(&applied)?.iter().map(Migration::label).collect())
}

/// Whether a database with exactly these migrations has all that this program knows, and none that it does not.
pub(crate) fn are_known(versions: &[i32]) -> bool {
    versions.iter().copied().eq(MIGRATIONS.iter().map(|migration| migration.version))
}

/// Whether the database has a record of migrations at all.
async fn recorded(connection: &mut PgConnection) -> Result<bool> {
    sqlx::query_scalar(include_str!("../sql/migrations_recorded.sql"))
        .fetch_one(connection)
        .await
        .map_err(store_error("reading migrations"))
}

async fn applied(connection: &mut PgConnection) -> Result<Applied> {
    sqlx::query_as(include_str!("../sql/migrations_applied.sql"))
        .fetch_all(connection)
        .await
        .map_err(store_error("reading migrations"))
}

/// What is yet to be applied, once what was applied is found to be what this program knows.
fn missing(applied: &Applied) -> Result<Vec<Migration>> {
    let refuse = |message: String| Err(StoreError::new(StoreErrorCode::Schema, message));
    for (version, name, checksum) in applied {
        let Some(known) = MIGRATIONS.iter().find(|migration| migration.version == *version) else {
            return refuse(format!(
                "the database has the migration {version:04}_{name}, which this program does not know: it was \
                 migrated by a newer Postrider; run that version, or a newer one"
            ));
        };
        if known.checksum() != *checksum {
            return refuse(format!(
                "the migration {} was applied to the database with another text than this program has; use the \
                 program that applied it, or restore the database",
                known.label()
            ));
        }
    }
    let is_missing = |migration: &&Migration| !applied.iter().any(|(version, ..)| *version == migration.version);
    Ok(MIGRATIONS.iter().filter(is_missing).copied().collect())
}
