//! What callers are told when the file, the disk or another process is in the way, and that the store goes on after.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::io::{Seek, SeekFrom, Write};
use std::time::{Duration, Instant};

use postrider::{EnqueueError, NewEvent, Store, StoreError, StoreErrorCode};
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::testing::TestDatabase;
use postrider_sqlite::{SqliteStore, SqliteTransaction};

type Anything = Box<dyn std::error::Error + Send + Sync>;

/// A word that must not appear in any error.
const CANARY: &str = "canary-in-the-payload";

fn event(bytes: usize) -> NewEvent {
    let payload = format!(r#"{{"word":"{CANARY}","filling":"{}"}}"#, "x".repeat(bytes));
    NewEvent::new("invoice.paid", payload).to("https://hooks.example.com/billing")
}

async fn pragma(store: &SqliteStore, pragma: &'static str) {
    let set = move |tx: &mut SqliteTransaction<'_>| {
        tx.connection().query_row(&format!("pragma {pragma}"), [], |_| Ok(()))?;
        Ok::<_, Anything>(())
    };
    store.transaction(set).await.unwrap();
}

fn assert_tells_no_payload(error: &StoreError) {
    let told = format!("{error} {error:?}");
    assert!(!told.contains(CANARY) && !told.contains("xxxx"), "{told}");
}

#[tokio::test]
async fn a_full_disk_is_told_and_the_store_goes_on_when_there_is_room() {
    let database = TestDatabase::create().await;
    let store = database.store();
    store.enqueue(vec![event(10)]).await.unwrap();
    // SQLite answers as it does on a full disk when the file may not grow.
    pragma(store, "max_page_count = 60").await;
    let error = store.enqueue((0..20).map(|_| event(20_000)).collect()).await.unwrap_err();
    let EnqueueError::Store(error) = error else { panic!("{error}") };
    assert_eq!(error.code, StoreErrorCode::Full, "{error}");
    assert!(error.code.is_transient());
    assert_tells_no_payload(&error);
    assert_eq!(store.overview(None).await.unwrap().pending, 1, "nothing of it was written");

    pragma(store, "max_page_count = 100000").await;
    store.enqueue((0..20).map(|_| event(20_000)).collect()).await.unwrap();
    assert_eq!(store.overview(None).await.unwrap().pending, 21);
}

#[tokio::test]
async fn a_file_that_another_process_keeps_locked_is_busy_for_writers_and_open_to_readers() {
    let database = TestDatabase::create().await;
    let store = database.store();
    store.enqueue(vec![event(10)]).await.unwrap();
    let shorten = |tx: &mut SqliteTransaction<'_>| {
        tx.connection().busy_timeout(Duration::from_millis(50))?;
        Ok::<_, Anything>(())
    };
    store.transaction(shorten).await.unwrap();
    let other = Connection::open(database.path()).unwrap();
    other.execute_batch("begin immediate").unwrap();

    let EnqueueError::Store(error) = store.enqueue(vec![event(10)]).await.unwrap_err() else { panic!("not refused") };
    assert_eq!(error.code, StoreErrorCode::Busy, "{error}");
    assert!(error.code.is_transient());
    assert_tells_no_payload(&error);
    assert_eq!(store.overview(None).await.unwrap().pending, 1);

    other.execute_batch("rollback").unwrap();
    store.enqueue(vec![event(10)]).await.unwrap();
    assert_eq!(store.overview(None).await.unwrap().pending, 2);
}

#[tokio::test]
async fn a_writer_waits_for_another_process_that_is_about_to_finish() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let other = Connection::open(database.path()).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let mut enqueue = store.enqueue(vec![event(10)]);
    let waited = tokio::time::timeout(Duration::from_millis(200), &mut enqueue).await;
    assert!(waited.is_err(), "it waits");
    other.execute_batch("commit").unwrap();
    enqueue.await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.db");
    let store = SqliteStore::open(&path).unwrap();
    store.migrate().await.unwrap();
    store.enqueue((0..200).map(|_| event(100)).collect()).await.unwrap();
    drop(store);
    let mut file = std::fs::File::options().write(true).open(&path).unwrap();
    let length = file.metadata().unwrap().len();
    assert!(length > 100_000, "the write-ahead log was emptied into the file when the store was closed");
    // All but the first page, which says that it is a database.
    file.seek(SeekFrom::Start(4096)).unwrap();
    file.write_all(&vec![0xa5; usize::try_from(length - 4096).unwrap()]).unwrap();
    drop(file);

    let error = SqliteStore::open(&path).unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Internal, "{error}");
    assert!(error.message.contains("damaged"), "{error}");
    assert!(!error.code.is_transient());
}

#[test]
fn a_database_in_memory_is_refused() {
    for path in ["", ":memory:"] {
        let error = SqliteStore::open(path).unwrap_err();
        assert_eq!(error.code, StoreErrorCode::Unavailable);
        assert!(error.message.contains("name a file"), "{error}");
    }
}

#[tokio::test]
async fn a_row_that_makes_no_sense_is_told_without_its_content() {
    let database = TestDatabase::create().await;
    let enqueued = database.store().enqueue(vec![event(10)]).await.unwrap();
    let other = Connection::open(database.path()).unwrap();
    other.execute("update postrider_events set metadata = ?1", [format!("[\"{CANARY}\"]")]).unwrap();
    let error = database.store().event(enqueued[0].event_id().unwrap()).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Internal, "{error}");
    assert_tells_no_payload(&error);
}

#[tokio::test]
async fn many_callers_wait_for_a_locked_file_together_and_not_one_after_the_other() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let timeout = Duration::from_millis(400);
    let shorten = move |tx: &mut SqliteTransaction<'_>| {
        tx.connection().busy_timeout(timeout)?;
        Ok::<_, Anything>(())
    };
    store.transaction(shorten).await.unwrap();
    let other = Connection::open(database.path()).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let began = Instant::now();
    let callers: Vec<_> = (0..20)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.enqueue(vec![event(10)]).await })
        })
        .collect();
    for caller in callers {
        let EnqueueError::Store(error) = caller.await.unwrap().unwrap_err() else { panic!("not refused") };
        assert_eq!(error.code, StoreErrorCode::Busy, "{error}");
    }
    // The first may have begun to wait alone, and then the others wait once more after it.
    assert!(began.elapsed() < timeout * 6, "{:?}", began.elapsed());
}
