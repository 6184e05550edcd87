//! Migrations: once, whole, and never a guess.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::path::Path;

use postrider::{Store, StoreErrorCode};
use postrider_sqlite::SqliteStore;
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::testing::TestDatabase;

#[tokio::test]
async fn an_empty_file_has_everything_to_come_and_a_migrated_one_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("new.db")).unwrap();
    assert_eq!(store.pending_migrations().await.unwrap(), ["0001_places", "0002_server", "0003_checks"]);
    let error = store.check_schema().await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Schema);
    assert!(error.message.contains("0001_places") && error.message.contains("postrider migrate"), "{error}");

    assert_eq!(store.migrate().await.unwrap(), ["0001_places", "0002_server", "0003_checks"]);
    assert_eq!(store.migrate().await.unwrap(), [""; 0]);
    assert_eq!(store.pending_migrations().await.unwrap(), [""; 0]);
    store.check_schema().await.unwrap();
}

#[tokio::test]
async fn work_on_a_file_without_tables_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("new.db")).unwrap();
    for error in [store.promote(1).await.unwrap_err(), store.overview(None).await.unwrap_err()] {
        assert_eq!(error.code, StoreErrorCode::Schema, "{error}");
        assert!(error.message.contains("postrider migrate"), "{error}");
    }
}

#[test]
fn of_many_that_open_and_migrate_at_once_exactly_one_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.db");
    let start = std::sync::Barrier::new(8);
    let migrate = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        start.wait();
        let store = SqliteStore::open(&path).unwrap();
        runtime.block_on(async {
            let applied = store.migrate().await.unwrap();
            store.check_schema().await.unwrap();
            applied.len()
        })
    };
    let applied: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(migrate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(applied.iter().filter(|count| **count > 0).count(), 1, "{applied:?}");
}

fn change(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn a_migration_that_was_altered_is_refused() {
    let database = TestDatabase::create().await;
    change(database.path(), "update postrider_migrations set sha256 = replace(sha256, substr(sha256, 1, 1), 'x')");
    for error in [database.store().migrate().await.unwrap_err(), database.store().check_schema().await.unwrap_err()] {
        assert_eq!(error.code, StoreErrorCode::Schema);
        assert!(error.message.contains("0001_places") && error.message.contains("another text"), "{error}");
    }
}

#[tokio::test]
async fn a_migration_of_a_newer_program_is_refused() {
    let database = TestDatabase::create().await;
    change(database.path(), "insert into postrider_migrations values (9, '0009_later', 'ab', 0)");
    for error in [database.store().migrate().await.unwrap_err(), database.store().check_schema().await.unwrap_err()] {
        assert_eq!(error.code, StoreErrorCode::Schema);
        assert!(error.message.contains("0009_later") && error.message.contains("newer program"), "{error}");
    }
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.db");
    // The application has a table where the migration wants to create its own.
    change(&path, "create table postrider_leases (id integer)");
    let store = SqliteStore::open(&path).unwrap();
    let error = store.migrate().await.unwrap_err();
    assert!(error.message.contains("0001_places"), "{error}");
    let tables = "select count(*) from sqlite_schema where name like 'postrider%'";
    let left: i64 = Connection::open(&path).unwrap().query_row(tables, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 1, "only the application's own");
}

#[tokio::test]
async fn what_is_no_database_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "buy milk\n".repeat(200)).unwrap();
    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Internal);
    assert!(error.message.contains("notes.txt") && error.message.contains("not an SQLite database"), "{error}");

    let error = SqliteStore::open(folder.path().join("no such folder/new.db")).unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Unavailable);
    assert!(error.message.contains("no such folder"), "{error}");
}

/// `schema.sql` shows what all migrations together come to. `POSTRIDER_BLESS=1` writes it anew.
#[tokio::test]
async fn the_schema_is_the_one_that_was_reviewed() {
    let database = TestDatabase::create().await;
    let connection = Connection::open(database.path()).unwrap();
    let mut statement = connection
        .prepare("select sql from sqlite_schema where sql is not null and name like 'postrider%' order by tbl_name, type desc, name")
        .unwrap();
    let found: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let found = format!(
        "-- What the migrations come to. Written by a test: POSTRIDER_BLESS=1 cargo test -p postrider-sqlite\n\n{};\n",
        found.join(";\n\n")
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.sql");
    if std::env::var_os("POSTRIDER_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let reviewed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == reviewed, "schema.sql differs; look at what changed after POSTRIDER_BLESS=1:\n{found}");
}
