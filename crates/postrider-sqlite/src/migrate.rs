//! Migrations: embedded, in order, checksummed.
//!
//! They run on the writer thread inside its `BEGIN IMMEDIATE`, so that of several processes that start at once one
//! migrates and the others find it done. What has been applied is never altered: a different text under an applied
//! version, or a version that this program does not know, is refused, because going on would be a guess.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::LazyLock;

use postrider::{StoreError, StoreErrorCode};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use crate::clock::Micros;
use crate::error::store_error;

struct Migration {
    version: i64,
    name: &'static str,
    sql: &'static str,
}

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "0001_places", sql: include_str!("../migrations/0001_places.sql") },
    Migration { version: 2, name: "0002_server", sql: include_str!("../migrations/0002_server.sql") },
    Migration { version: 3, name: "0003_checks", sql: include_str!("../migrations/0003_checks.sql") },
];

const CREATE_TABLE: &str = "\
create table if not exists postrider_migrations (
  version    integer not null primary key,
  name       text not null,
  sha256     text not null,
  applied_at integer not null
) strict";

impl Migration {
    fn sha256(&self) -> String {
        Sha256::digest(self.sql).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// The same, computed once: probes ask for it every few seconds.
    fn digest(&self) -> &'static str {
        static DIGESTS: LazyLock<HashMap<i64, String>> =
            LazyLock::new(|| MIGRATIONS.iter().map(|migration| (migration.version, migration.sha256())).collect());
        &DIGESTS[&self.version]
    }
}

/// Applies what is missing, and returns the names of that.
pub(crate) fn migrate(connection: &Connection, now: Micros) -> Result<Vec<String>, StoreError> {
    connection.execute_batch(CREATE_TABLE).map_err(|error| store_error("create the table of migrations", error))?;
    let mut applied = Vec::new();
    for migration in pending_migrations(connection)? {
        let apply = || {
            connection.execute_batch(migration.sql)?;
            connection.execute(
                "insert into postrider_migrations (version, name, sha256, applied_at) values (?1, ?2, ?3, ?4)",
                params![migration.version, migration.name, migration.digest(), now],
            )
        };
        apply().map_err(|error| store_error(&format!("apply migration {}", migration.name), error))?;
        applied.push(migration.name.to_owned());
    }
    Ok(applied)
}

/// The names of what is missing.
pub(crate) fn pending(connection: &Connection) -> Result<Vec<String>, StoreError> {
    Ok(pending_migrations(connection)?.into_iter().map(|migration| migration.name.to_owned()).collect())
}

/// Refuses a database on which something is missing.
pub(crate) fn check(connection: &Connection) -> Result<(), StoreError> {
    let pending = pending(connection)?;
    if pending.is_empty() {
        return Ok(());
    }
    let message = format!("the database lacks {}; run `postrider migrate` on it", pending.join(", "));
    Err(StoreError::new(StoreErrorCode::Schema, message))
}

fn pending_migrations(connection: &Connection) -> Result<Vec<&'static Migration>, StoreError> {
    let applied = applied(connection).map_err(|error| store_error("read the table of migrations", error))?;
    for (version, name, sha256) in &applied {
        let refuse = |message: String| Err(StoreError::new(StoreErrorCode::Schema, message));
        match MIGRATIONS.iter().find(|migration| migration.version == *version) {
            None => {
                return refuse(format!(
                    "the database has migration {name}, which this program does not know; use a newer program"
                ));
            }
            Some(known) if known.digest() != sha256 => {
                return refuse(format!(
                    "migration {name} was applied to the database with another text than this program has; use the \
                     program that applied it, or restore the database from a backup"
                ));
            }
            Some(_) => {}
        }
    }
    let is_applied = |migration: &&Migration| applied.iter().any(|(version, ..)| *version == migration.version);
    Ok(MIGRATIONS.iter().filter(|migration| !is_applied(migration)).collect())
}

fn applied(connection: &Connection) -> rusqlite::Result<Vec<(i64, String, String)>> {
    let table = "select 1 from sqlite_schema where type = 'table' and name = 'postrider_migrations'";
    if connection.query_row(table, [], |_| Ok(())).optional()?.is_none() {
        return Ok(Vec::new());
    }
    let mut statement =
        connection.prepare("select version, name, sha256 from postrider_migrations order by version")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}
