//! Why a runtime or a command could not do its work.

use postrider::{EnqueueError, InvalidDispatcher, Refusal, StoreError};

use crate::chain::ChainError;
use crate::config::ConfigError;

/// Each says what happened; none carries a secret or a payload.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A variable is missing or has a value that cannot hold.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Input that is not taken.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Postgres did not do what it was asked.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// Postrider's store did not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An event was not enqueued.
    #[error(transparent)]
    Enqueue(#[from] EnqueueError),
    /// A dispatcher that cannot be.
    #[error(transparent)]
    Dispatcher(#[from] InvalidDispatcher),
    /// The node did not answer, or not sensibly.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// A socket, a file, a child process.
    #[error("{0}: {1}")]
    Io(String, #[source] std::io::Error),
    /// There is nothing of this id, or nothing that can be done with it.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// What the process exits with: 2 where its surroundings must be corrected, 4 where input was refused, 1 otherwise.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Dispatcher(_) => 2,
            Self::Refused(_) => 4,
            _ => 1,
        }
    }
}
