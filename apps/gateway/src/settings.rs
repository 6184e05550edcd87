//! What the gateway is told from outside.

use std::path::PathBuf;
use std::time::Duration;

use postrider::{DestinationPolicy, SecretKey};

/// What the gateway works by.
#[derive(Clone)]
pub struct Settings {
    /// The SQLite file.
    pub database: PathBuf,
    /// What encrypts the webhooks' secrets; without it, the key in the file `<database>.key`, which is made if it is
    /// not there.
    pub secret_key: Option<SecretKey>,
    /// Which targets webhooks may have.
    pub destinations: DestinationPolicy,
    /// How often the router looks for what is due, when nothing wakes it.
    pub poll_interval: Duration,
    /// For one whole attempt.
    pub timeout: Duration,
    /// How long a stop waits for attempts that are under way.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            database: PathBuf::from("gateway.db"),
            secret_key: None,
            destinations: DestinationPolicy::default(),
            poll_interval: Duration::from_secs(1),
            timeout: Duration::from_secs(15),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("database", &self.database).finish_non_exhaustive()
    }
}
