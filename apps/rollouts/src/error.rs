//! What can go wrong.

use postrider::{Refusal, StoreError};

/// Why something was not done. Nothing of it was.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is not acceptable.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The request is fine, but the plan does not stand so that it could be done.
    #[error("{0}")]
    Conflict(Refusal),
    /// There is no such plan.
    #[error("plan_not_found: there is no plan {0}")]
    PlanNotFound(i64),
    /// The database could not do its work.
    #[error("database_failed: {0}")]
    Database(#[from] sqlx::Error),
    /// Postrider's store could not do its work.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
