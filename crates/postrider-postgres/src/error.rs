//! What Postgres and the driver say, as the few kinds of trouble that callers tell apart.
//!
//! Messages name the SQLSTATE and the driver's own summary. Postgres puts parameter values into the *detail* of some
//! errors (a duplicate key, a failing row), never into the primary message of those that can happen here, so the detail
//! is dropped, also from the `source`.

use postrider::{StoreError, StoreErrorCode};

pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A driver's error without anything that a row or a parameter may have contributed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Driver(String);

/// Maps a driver's error. `doing` says what was under way, for people.
pub(crate) fn store_error(doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| map(doing, &error)
}

fn map(doing: &'static str, error: &sqlx::Error) -> StoreError {
    use StoreErrorCode::{Busy, Internal, Unavailable};
    let (code, message) = match error {
        sqlx::Error::Database(database) => {
            let state = database.code().unwrap_or_default();
            let code = code_of_state(&state);
            let hint = match code {
                StoreErrorCode::Schema => "; run `postrider migrate`",
                StoreErrorCode::Conflict => "; repeat the transaction",
                _ => "",
            };
            (code, format!("{} (SQLSTATE {state}){hint}", database.message()))
        }
        sqlx::Error::PoolTimedOut => (Busy, "no connection became free in time".to_owned()),
        sqlx::Error::PoolClosed => (Unavailable, "the connection pool is closed".to_owned()),
        sqlx::Error::Io(error) => (Unavailable, error.to_string()),
        sqlx::Error::Tls(error) => (Unavailable, format!("TLS: {error}")),
        sqlx::Error::WorkerCrashed => (Unavailable, "the connection's task ended".to_owned()),
        // The driver reports a connection that broke off in the middle of a message in this way.
        sqlx::Error::Protocol(text) => (Unavailable, format!("protocol: {text}")),
        sqlx::Error::ColumnDecode { index, .. } => (Internal, format!("column {index} has an unexpected value")),
        other => (Internal, other.to_string()),
    };
    StoreError::new(code, format!("{doing}: {message}")).caused_by(Driver(message))
}

/// The kind of trouble that a SQLSTATE means.
fn code_of_state(state: &str) -> StoreErrorCode {
    match state {
        // Too many connections; out of memory; a lock or a statement that took too long.
        "53300" | "53200" | "57014" => StoreErrorCode::Busy,
        "55P03" => StoreErrorCode::Contended,
        "53100" => StoreErrorCode::Full,
        // A server that ends, crashed or is starting; a standby that takes no writes; a database that is not there.
        "57P01" | "57P02" | "57P03" | "57P05" | "25006" | "3D000" => StoreErrorCode::Unavailable,
        "40001" | "40P01" => StoreErrorCode::Conflict,
        // A table, schema, column or function that is not there.
        "42P01" | "3F000" | "42703" | "42883" => StoreErrorCode::Schema,
        // A connection that broke; a role or a password that is not accepted, which an operator mends while we wait.
        _ if state.starts_with("08") || state.starts_with("28") => StoreErrorCode::Unavailable,
        _ => StoreErrorCode::Internal,
    }
}

/// A row that does not say what this program understands.
pub(crate) fn damaged(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorCode::Internal, format!("{what} in the database cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_mean_the_trouble_that_callers_tell_apart() {
        for (state, code) in [
            ("08006", StoreErrorCode::Unavailable),
            ("57P01", StoreErrorCode::Unavailable),
            ("57P03", StoreErrorCode::Unavailable),
            ("28P01", StoreErrorCode::Unavailable),
            ("3D000", StoreErrorCode::Unavailable),
            ("53300", StoreErrorCode::Busy),
            ("55P03", StoreErrorCode::Contended),
            ("53100", StoreErrorCode::Full),
            ("40001", StoreErrorCode::Conflict),
            ("40P01", StoreErrorCode::Conflict),
            ("42P01", StoreErrorCode::Schema),
            ("3F000", StoreErrorCode::Schema),
            ("23514", StoreErrorCode::Internal),
        ] {
            assert_eq!(code_of_state(state), code, "{state}");
        }
    }

    #[test]
    fn a_pool_without_a_free_connection_is_busy_and_a_broken_socket_is_unavailable() {
        let busy = store_error("claiming")(sqlx::Error::PoolTimedOut);
        assert_eq!(busy.code, StoreErrorCode::Busy);
        assert!(busy.to_string().contains("claiming"), "{busy}");
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert_eq!(store_error("claiming")(sqlx::Error::Io(reset)).code, StoreErrorCode::Unavailable);
    }
}
