//! A database of its own for each test. Not for production, and not part of the crate's promises.

use std::sync::atomic::{AtomicU32, Ordering};

use postrider::{Keyring, SecretKey};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};

use crate::PostgresStore;

/// The variable that names the server on which test databases are created.
pub const SERVER_VARIABLE: &str = "POSTRIDER_TEST_POSTGRES";

/// A migrated database on the test server, dropped with this value.
#[derive(Debug)]
pub struct TestDatabase {
    server: PgConnectOptions,
    name: String,
    url: String,
    keyring: Keyring,
    store: PostgresStore,
}

impl TestDatabase {
    /// Creates a database and migrates it.
    ///
    /// # Panics
    ///
    /// When [`SERVER_VARIABLE`] is not set or the server cannot be used: a test that needs Postgres must not pass
    /// without one.
    pub async fn create() -> Self {
        let database = Self::create_empty().await;
        database.store.migrate().await.expect("an empty database can be migrated");
        database
    }

    /// Creates a database without Postrider's schema.
    pub async fn create_empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server_url = std::env::var(SERVER_VARIABLE).unwrap_or_else(|_| {
            panic!(
                "{SERVER_VARIABLE} is not set; it names the Postgres server on which tests create their databases, \
                 such as postgres://postgres@127.0.0.1:5432/postgres"
            )
        });
        let server: PgConnectOptions =
            server_url.parse().unwrap_or_else(|error| panic!("{SERVER_VARIABLE} is not a Postgres URL: {error}"));
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let random = &uuid::Uuid::new_v4().simple().to_string()[..8];
        let name = format!("postrider_test_{}_{count}_{random}", std::process::id());
        let mut connection =
            server.connect().await.unwrap_or_else(|error| panic!("cannot connect to {SERVER_VARIABLE}: {error}"));
        connection
            .execute(AssertSqlSafe(format!("create database {name}")))
            .await
            .unwrap_or_else(|error| panic!("cannot create a test database: {error}"));
        let options = server.clone().database(&name);
        let url = options.to_url_lossy().to_string();
        let keyring = Keyring::new([SecretKey::generate()]);
        let store = PostgresStore::with_options(options).with_keyring(keyring.clone());
        Self { server, name, url, keyring, store }
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The keys of its store, for others on the same database.
    pub fn keyring(&self) -> Keyring {
        self.keyring.clone()
    }

    /// The store on it; the same one each time. Another process is played by `PostgresStore::connect(database.url())`.
    pub fn store(&self) -> PostgresStore {
        self.store.clone()
    }

    /// Drops the database now, and says what is wrong if that fails.
    pub async fn drop(self) {
        remove(&self.server, &self.name).await.expect("the test database can be dropped");
    }
}

async fn remove(server: &PgConnectOptions, name: &str) -> Result<(), sqlx::Error> {
    let mut connection = server.connect().await?;
    connection.execute(AssertSqlSafe(format!("drop database if exists {name} with (force)"))).await?;
    Ok(())
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // The test's own runtime may be ending, so the database is dropped from a thread with one of its own.
        let (server, name) = (self.server.clone(), self.name.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(remove(&server, &name)).ok()
        });
        // A database that could not be dropped is no reason to fail a test that has passed.
        let _ = thread.join();
    }
}
