//! The database that a command works on, and how to reach it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider::{Keyring, Store, StoreErrorCode};
use postrider_postgres::PostgresStore;
use postrider_sqlite::SqliteStore;
use url::Url;

use crate::config::Config;
use crate::failure::{Exit, Failure};
use crate::secret_key;

/// A parsed `database` URL. Printed without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    Postgres(Url),
}

/// What to do when a database is not there, or not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preparation {
    /// Create a missing SQLite file, and keep its schema current. Postgres must be migrated already.
    Create,
    /// The same, and migrate Postgres too.
    Migrate,
    /// Change nothing: whatever is missing is refused.
    Check,
    /// It must be there: a command that only looks does not leave files behind.
    Existing,
}

impl Database {
    /// The database that a URL names, or why it names none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")) {
            return match path {
                "" => Err("the path of the file is missing; use sqlite://postrider.db".to_owned()),
                ":memory:" => Err("a database in memory cannot be shared; name a file".to_owned()),
                path if path.contains('?') => Err("an SQLite URL has no parameters".to_owned()),
                path => Ok(Self::Sqlite(PathBuf::from(path))),
            };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let url = Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
            return Ok(Self::Postgres(url));
        }
        Err("it must begin with sqlite:// or postgres://".to_owned())
    }

    /// Opens it, with the rules for what is enqueued and with the key that encrypts secrets where there is one.
    pub(crate) async fn open(&self, config: &Config, preparation: Preparation) -> Result<Arc<dyn Store>, Failure> {
        match self {
            Self::Sqlite(path) => {
                if preparation == Preparation::Existing {
                    must_exist(path)?;
                }
                let store = open_sqlite(path)?.with_admission(config.admission.clone());
                // Looked at first, since a migration waits for the writers of other processes even if it is empty.
                let missing = store.pending_migrations().await?;
                if preparation == Preparation::Check {
                    refuse_missing(&missing)?;
                } else if !missing.is_empty() {
                    store.migrate().await?;
                }
                let keyring = sqlite_keyring(path, config, &store, preparation).await?;
                Ok(Arc::new(store.with_keyring(keyring)))
            }
            Self::Postgres(url) => Ok(Arc::new(open_postgres(url, config, preparation).await?)),
        }
    }

    /// Opens it for a process that needs the key of secrets: there must be one, and the right one. Found at the start, it is a
    /// wrong setting; found later, it is a night of deliveries that cannot be signed.
    pub(crate) async fn open_for_work(
        &self,
        config: &Config,
        preparation: Preparation,
    ) -> Result<Arc<dyn Store>, Failure> {
        if let (Self::Postgres(url), true) = (self, config.secret_keys.is_empty()) {
            // A server that is not there is the more pressing thing to know.
            connect_postgres(url).await?;
            return Err(secret_key::required());
        }
        let store = self.open(config, preparation).await?;
        secret_key::must_fit(&*store).await?;
        Ok(store)
    }

    /// The same for a process that delivers or serves. Its rules are those by which SQL functions accept events from now on;
    /// a command that somebody runs once must not change them.
    pub(crate) async fn open_for_service(
        &self,
        config: &Config,
        preparation: Preparation,
    ) -> Result<Arc<dyn Store>, Failure> {
        let store = self.open_for_work(config, preparation).await?;
        if let Self::Postgres(url) = self {
            let rules = connect_postgres(url).await?.with_admission(config.admission.clone());
            // A standby takes no writes, and can be waited on until it is promoted.
            if let Err(error) = rules.publish_admission().await {
                tracing::warn!(code = error.code.as_str(), "SQL functions go on by the rules that they had: {error}");
            }
        }
        Ok(store)
    }
}

impl Database {
    /// The keys that secrets are encrypted with, which also seal the sessions of the dashboard: every server on the database
    /// has them. To be asked for when it is open; until then an SQLite file may have none.
    pub(crate) fn keyring(&self, config: &Config) -> Result<Keyring, Failure> {
        match self {
            Self::Sqlite(path) if config.secret_keys.is_empty() => {
                Ok(secret_key::read(&secret_key::file_beside(path))?.unwrap_or_default())
            }
            _ => Ok(Keyring::new(config.secret_keys.clone())),
        }
    }
}

async fn open_postgres(url: &Url, config: &Config, preparation: Preparation) -> Result<PostgresStore, Failure> {
    let store = connect_postgres(url).await?.with_keyring(Keyring::new(config.secret_keys.clone()));
    // Before it is given its rules, which a migration would publish.
    if preparation == Preparation::Migrate {
        store.migrate().await?;
    } else {
        store.check_schema().await?;
    }
    Ok(store.with_admission(config.admission.clone()))
}

/// A database as it is, for whoever only wants to know.
pub(crate) struct Inspected {
    pub(crate) store: Arc<dyn Store>,
    /// Migrations that it lacks.
    pub(crate) missing: Vec<String>,
}

impl Database {
    /// Opens it as it is. An SQLite file must be there.
    pub(crate) async fn inspect(&self, config: &Config) -> Result<Inspected, Failure> {
        Ok(match self {
            Self::Sqlite(path) => {
                must_exist(path)?;
                let store = open_sqlite(path)?;
                let missing = store.pending_migrations().await?;
                let keyring = sqlite_keyring(path, config, &store, Preparation::Existing).await?;
                Inspected { store: Arc::new(store.with_keyring(keyring)), missing }
            }
            Self::Postgres(url) => {
                let store = connect_postgres(url).await?.with_keyring(Keyring::new(config.secret_keys.clone()));
                let missing = store.pending_migrations().await?;
                Inspected { store: Arc::new(store), missing }
            }
        })
    }
}

/// The key that is configured, or else the one beside the file, which is made with it.
async fn sqlite_keyring(
    path: &Path,
    config: &Config,
    keyless: &SqliteStore,
    preparation: Preparation,
) -> Result<Keyring, Failure> {
    if !config.secret_keys.is_empty() {
        return Ok(Keyring::new(config.secret_keys.clone()));
    }
    let file = secret_key::file_beside(path);
    match secret_key::read(&file)? {
        Some(keyring) => Ok(keyring),
        None if preparation == Preparation::Existing => Ok(Keyring::default()),
        // Every endpoint has a secret.
        None if !secret_key::endpoints(keyless).await?.is_empty() => Err(secret_key::lost(&file)),
        None => secret_key::create(&file),
    }
}

fn refuse_missing(migrations: &[String]) -> Result<(), Failure> {
    if migrations.is_empty() {
        return Ok(());
    }
    let message = format!("the database lacks the migrations {}", migrations.join(", "));
    Err(Failure::new(Exit::Failed, StoreErrorCode::Schema.as_str(), message)
        .hint("run `postrider migrate` on this database"))
}

/// Opens an SQLite file, which is made if it is not there.
pub(crate) fn open_sqlite(path: &Path) -> Result<SqliteStore, Failure> {
    if path.is_dir() {
        let message = format!("`{}` is a folder, not a database file", path.display());
        return Err(Failure::new(Exit::CannotConnect, "database_is_a_folder", message)
            .hint(format!("name a file in it: sqlite://{}", path.join("postrider.db").display())));
    }
    SqliteStore::open(path).map_err(|error| Failure::from(error).hint("check `--database` (or POSTRIDER_DATABASE)"))
}

/// Connects to a Postgres server. Whatever the reason is why that fails, a wrong password as much as a server that is
/// down, the database is not to be reached.
pub(crate) async fn connect_postgres(url: &Url) -> Result<PostgresStore, Failure> {
    PostgresStore::connect(url.as_str()).await.map_err(|error| {
        let message = format!("cannot connect to {}: {}", masked(url), error.message);
        Failure::new(Exit::CannotConnect, error.code.as_str(), message)
            .hint("check `--database` (or POSTRIDER_DATABASE), and that the database is running")
    })
}

/// Refuses a file that is not there.
pub(crate) fn must_exist(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let message = format!("there is no database at `{}`", path.display());
    Err(Failure::new(Exit::CannotConnect, "database_missing", message)
        .hint("name it with `--database` or POSTRIDER_DATABASE; `postrider serve`, `postrider send` and `postrider migrate` create it"))
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(url) => f.write_str(&masked(url)),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn masked(url: &Url) -> String {
    let mut shown = url.clone();
    if shown.password().is_some() {
        // Only a URL without a host refuses a password, and it cannot have had one.
        let _ = shown.set_password(Some("****"));
    }
    if url.query_pairs().any(|(name, _)| name == "password") {
        let masked = url.query_pairs().map(|(name, value)| {
            let value = if name == "password" { "****".into() } else { value };
            (name, value)
        });
        shown.query_pairs_mut().clear().extend_pairs(masked);
    }
    shown.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_databases() {
        for (text, path) in [
            ("sqlite://postrider.db", "postrider.db"),
            ("sqlite:postrider.db", "postrider.db"),
            ("sqlite:///var/lib/postrider.db", "/var/lib/postrider.db"),
            ("sqlite://../a b.db", "../a b.db"),
        ] {
            assert_eq!(Database::parse(text), Ok(Database::Sqlite(PathBuf::from(path))), "{text}");
        }
        assert!(matches!(Database::parse("postgresql://localhost/app"), Ok(Database::Postgres(_))));
        for text in
            ["", "postrider.db", "mysql://x", "sqlite://", "sqlite::memory:", "sqlite://a?mode=ro", "postgres://["]
        {
            assert!(Database::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_password_is_never_printed() {
        for text in ["postgres://u:hush@localhost/app", "postgres://localhost/app?user=u&password=hush&sslmode=disable"]
        {
            let database = Database::parse(text).unwrap();
            let shown = format!("{database} {database:?}");
            assert!(!shown.contains("hush") && shown.contains("****"), "{shown}");
            assert!(shown.contains("localhost/app"), "{shown}");
        }
    }
}
