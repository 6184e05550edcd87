//! What SQLite's errors mean for a caller.

use std::path::Path;

use postrider::{StoreError, StoreErrorCode};
use rusqlite::{Error, ErrorCode};

/// What a statement of ours, or the file under it, could not do. `doing` completes "could not ...".
pub(crate) fn store_error(doing: &str, error: Error) -> StoreError {
    let (code, because) = explain(&error);
    let described = StoreError::new(code, format!("could not {doing}: {because}"));
    match error {
        // What SQLite says names tables and columns, never values. A failed conversion could quote one.
        Error::SqliteFailure(..) => described.caused_by(error),
        _ => described,
    }
}

/// The file could not be opened.
pub(crate) fn open_error(path: &Path, error: Error) -> StoreError {
    store_error(&format!("open the database file {}", path.display()), error)
}

/// The writer thread is gone, which only a panic outside of callers' code can have caused.
pub(crate) fn writer_is_gone() -> StoreError {
    StoreError::new(StoreErrorCode::Internal, "the writer thread of the SQLite store has ended; reopen the store")
}

/// The same trouble, told to one more caller.
pub(crate) fn again(error: &StoreError) -> StoreError {
    StoreError::new(error.code, error.message.clone())
}

fn explain(error: &Error) -> (StoreErrorCode, String) {
    let Error::SqliteFailure(failure, message) = error else {
        return match error {
            Error::SqlInputError { msg, .. } if is_about_schema(msg) => (StoreErrorCode::Schema, schema_message(msg)),
            Error::FromSqlConversionFailure(column, ..) | Error::InvalidColumnType(column, ..) => {
                (StoreErrorCode::Internal, format!("column {column} of a row holds what this program never writes"))
            }
            Error::SqlInputError { msg, .. } => (StoreErrorCode::Internal, msg.clone()),
            Error::QueryReturnedNoRows => (StoreErrorCode::Internal, "a row that must be there is missing".to_owned()),
            _ => (StoreErrorCode::Internal, "the driver was used in a way that it refuses".to_owned()),
        };
    };
    let said = message.clone().unwrap_or_else(|| failure.to_string());
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed => {
            (StoreErrorCode::Busy, "another process kept the file locked for too long; try again".to_owned())
        }
        ErrorCode::DiskFull => {
            (StoreErrorCode::Full, "the disk is full; nothing was written, free some space".to_owned())
        }
        ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::PermissionDenied => (
            StoreErrorCode::Unavailable,
            format!("{said}; check that the folder exists, can be written to, and is on a working disk"),
        ),
        ErrorCode::ReadOnly => (StoreErrorCode::Unavailable, "the file may not be written to".to_owned()),
        ErrorCode::DatabaseCorrupt => (
            StoreErrorCode::Internal,
            format!("the file is damaged ({said}); restore it from a backup or use sqlite3's `.recover`"),
        ),
        ErrorCode::NotADatabase => {
            (StoreErrorCode::Internal, "the file is not an SQLite database; name another one".to_owned())
        }
        ErrorCode::SchemaChanged => (StoreErrorCode::Busy, "the schema was being changed; try again".to_owned()),
        _ if is_about_schema(&said) => (StoreErrorCode::Schema, schema_message(&said)),
        _ => (StoreErrorCode::Internal, said),
    }
}

fn is_about_schema(said: &str) -> bool {
    ["no such table", "no such column", "has no column named"].iter().any(|text| said.contains(text))
}

fn schema_message(said: &str) -> String {
    format!("{said}; run `postrider migrate` on this database")
}
