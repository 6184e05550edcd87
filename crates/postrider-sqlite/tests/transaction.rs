//! The application's own tables and Postrider's share a transaction, and many transactions share a commit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::pin::Pin;
use std::sync::mpsc;
use std::task::Poll;

use postrider::{EnqueueError, NewEvent, Store, StoreError, StoreErrorCode, WorkerId};
use postrider_sqlite::testing::TestDatabase;
use postrider_sqlite::{SqliteStore, SqliteTransaction};

type Anything = Box<dyn std::error::Error + Send + Sync>;

fn event(key: &str) -> NewEvent {
    NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#).to("https://hooks.example.com/billing").idempotency_key(key)
}

async fn database_with_invoices() -> TestDatabase {
    let database = TestDatabase::create().await;
    let create = |tx: &mut SqliteTransaction<'_>| {
        tx.connection().execute_batch("create table invoices (id text primary key) strict").map(drop)?;
        Ok::<_, Anything>(())
    };
    database.store().transaction(create).await.unwrap();
    database
}

fn pay(tx: &mut SqliteTransaction<'_>, id: &str) -> Result<(), Anything> {
    tx.connection().execute("insert into invoices values (?1)", [id])?;
    tx.enqueue(event(id))?;
    Ok(())
}

async fn count(store: &SqliteStore, table: &'static str) -> i64 {
    let count = move |tx: &mut SqliteTransaction<'_>| {
        Ok::<i64, Anything>(tx.connection().query_row(&format!("select count(*) from {table}"), [], |row| row.get(0))?)
    };
    store.transaction(count).await.unwrap()
}

async fn counts(store: &SqliteStore) -> [i64; 4] {
    [
        count(store, "invoices").await,
        count(store, "postrider_events").await,
        count(store, "postrider_deliveries").await,
        count(store, "postrider_ready").await,
    ]
}

#[tokio::test]
async fn an_enqueue_commits_together_with_the_applications_own_rows() {
    let database = database_with_invoices().await;
    database.store().transaction(|tx| pay(tx, "in_1")).await.unwrap();
    assert_eq!(counts(database.store()).await, [1, 1, 1, 1]);
}

#[tokio::test]
async fn an_error_undoes_the_applications_rows_and_the_enqueue() {
    let database = database_with_invoices().await;
    let work = |tx: &mut SqliteTransaction<'_>| {
        pay(tx, "in_1")?;
        Err::<(), Anything>("the card was declined".into())
    };
    let error = database.store().transaction(work).await.unwrap_err();
    assert_eq!(error.to_string(), "the card was declined");
    assert_eq!(counts(database.store()).await, [0, 0, 0, 0]);
    database.store().transaction(|tx| pay(tx, "in_1")).await.expect("the key was not taken");
}

#[tokio::test]
async fn an_enqueue_that_fails_leaves_nothing_while_the_transaction_goes_on() {
    let database = database_with_invoices().await;
    database.store().enqueue(vec![event("taken")]).await.unwrap();
    let work = |tx: &mut SqliteTransaction<'_>| {
        tx.connection().execute("insert into invoices values ('in_1')", [])?;
        let conflict = event("taken").metadata("other", "content");
        let error = tx.enqueue_all(vec![event("new"), conflict]).unwrap_err();
        assert!(matches!(error, EnqueueError::IdempotencyConflict { .. }), "{error}");
        Ok::<_, Anything>(())
    };
    database.store().transaction(work).await.unwrap();
    assert_eq!(counts(database.store()).await, [1, 1, 1, 1]);
}

#[tokio::test]
async fn a_refused_event_is_refused_before_anything_is_written() {
    let database = database_with_invoices().await;
    let work = |tx: &mut SqliteTransaction<'_>| {
        let error = tx.enqueue_all(vec![event("new"), NewEvent::new("invoice.paid", "not JSON")]).unwrap_err();
        assert!(matches!(error, EnqueueError::Refused(_)), "{error}");
        Ok::<_, StoreError>(())
    };
    database.store().transaction(work).await.unwrap();
    assert_eq!(counts(database.store()).await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn a_transaction_cannot_be_ended_from_inside() {
    let database = database_with_invoices().await;
    for statement in ["commit", "rollback", "begin", "release postrider_work", "rollback to postrider_work"] {
        let work = move |tx: &mut SqliteTransaction<'_>| {
            pay(tx, statement)?;
            let error = tx.connection().execute_batch(statement).unwrap_err().to_string();
            assert!(error.contains("not authorized"), "{statement}: {error}");
            // An enqueue in between must not have opened the way.
            pay(tx, &format!("after {statement}"))?;
            assert!(tx.connection().execute_batch(statement).is_err(), "{statement}");
            Err::<(), Anything>("enough".into())
        };
        database.store().transaction(work).await.unwrap_err();
        assert_eq!(counts(database.store()).await, [0, 0, 0, 0], "{statement}");
    }
}

#[tokio::test]
async fn savepoints_of_the_callers_own_are_fine_also_forgotten_ones() {
    let database = database_with_invoices().await;
    let work = |tx: &mut SqliteTransaction<'_>| {
        pay(tx, "in_1")?;
        tx.connection().execute_batch("savepoint mine")?;
        pay(tx, "in_2")?;
        tx.connection().execute_batch("rollback to mine; savepoint forgotten")?;
        pay(tx, "in_3")
    };
    database.store().transaction(work).await.unwrap();
    assert_eq!(counts(database.store()).await, [2, 2, 2, 2]);
}

#[tokio::test]
async fn a_panic_reaches_the_caller_and_leaves_the_store_working() {
    let database = database_with_invoices().await;
    let store = database.store().clone();
    let task = tokio::spawn(async move {
        let work = |tx: &mut SqliteTransaction<'_>| -> Result<(), Anything> {
            pay(tx, "in_1").unwrap();
            panic!("a bug of the application's");
        };
        store.transaction(work).await
    });
    let panic = task.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug of the application's"));
    assert_eq!(counts(database.store()).await, [0, 0, 0, 0]);
    database.store().transaction(|tx| pay(tx, "in_1")).await.unwrap();
    assert_eq!(counts(database.store()).await, [1, 1, 1, 1]);
}

/// Work that has been handed to the writer thread, and its answer.
type Queued<'store, E = Anything> = Pin<Box<dyn Future<Output = Result<(), E>> + 'store>>;

/// Keeps the writer thread busy until it is told to go on, so that what is queued meanwhile makes one group.
struct Blocker<'store> {
    go_on: mpsc::Sender<()>,
    work: Queued<'store, StoreError>,
}

async fn block(store: &SqliteStore) -> Blocker<'_> {
    let (go_on, wait) = mpsc::channel();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let mut work: Queued<'_, StoreError> = Box::pin(store.transaction(move |_| {
        let _ = begun.send(());
        let _ = wait.recv();
        Ok::<_, StoreError>(())
    }));
    poll_once(&mut work).await;
    has_begun.await.unwrap();
    Blocker { go_on, work }
}

/// Polls a future once, which is enough for it to queue its work.
async fn poll_once<E>(future: &mut Queued<'_, E>) {
    std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// How many commits are in the write-ahead log: a frame that ends one carries the size of the database.
fn commits(database: &TestDatabase) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24 + 4096;
    let mut path = database.path().as_os_str().to_owned();
    path.push("-wal");
    let log = std::fs::read(path).unwrap();
    log[HEADER..].chunks_exact(FRAME).filter(|frame| frame[4..8] != [0; 4]).count()
}

#[tokio::test]
async fn neighbours_of_a_group_share_a_commit_and_not_a_failure() {
    let database = database_with_invoices().await;
    let store = database.store();
    let blocker = block(store).await;
    let mut group: Vec<Queued<'_>> = Vec::new();
    for number in 0..20 {
        let work = move |tx: &mut SqliteTransaction<'_>| {
            pay(tx, &format!("in_{number}"))?;
            match number {
                3 => Err("the card was declined".into()),
                // The same invoice again: a constraint of the application's own fails.
                7 => pay(tx, "in_1"),
                _ => Ok(()),
            }
        };
        group.push(Box::pin(store.transaction(work)));
        poll_once(group.last_mut().unwrap()).await;
    }
    let before = commits(&database);
    blocker.go_on.send(()).unwrap();
    blocker.work.await.unwrap();
    for (number, work) in group.into_iter().enumerate() {
        assert_eq!(work.await.is_err(), [3, 7].contains(&number), "{number}");
    }
    // The blocker wrote nothing, so this is the one commit of all that was queued behind it.
    assert_eq!(commits(&database) - before, 1);
    assert_eq!(counts(store).await, [18, 18, 18, 18]);
}

#[tokio::test]
async fn whoever_was_in_a_transaction_that_sqlite_gave_up_is_told() {
    let database = database_with_invoices().await;
    let store = database.store();
    store.transaction(|tx| pay(tx, "in_0")).await.unwrap();
    let blocker = block(store).await;
    let mut first: Queued<'_> = Box::pin(store.transaction(|tx| pay(tx, "in_1")));
    poll_once(&mut first).await;
    let give_up = |tx: &mut SqliteTransaction<'_>| {
        tx.connection().execute("insert or rollback into invoices values ('in_0')", []).unwrap_err();
        // Nothing that follows may be kept either, although there is no transaction any more.
        tx.connection().execute("insert into invoices values ('in_2')", []).unwrap_err();
        tx.enqueue(event("in_2")).unwrap_err();
        Ok::<_, Anything>(())
    };
    let mut second: Queued<'_> = Box::pin(store.transaction(give_up));
    poll_once(&mut second).await;
    let mut third: Queued<'_> = Box::pin(store.transaction(|tx| pay(tx, "in_3")));
    poll_once(&mut third).await;
    blocker.go_on.send(()).unwrap();
    blocker.work.await.unwrap();
    for lost in [first.await, second.await] {
        let error = lost.unwrap_err();
        let error = error.downcast_ref::<StoreError>().unwrap();
        assert_eq!(error.code, StoreErrorCode::Unavailable, "{error}");
    }
    third.await.expect("it ran in a new transaction");
    assert_eq!(counts(store).await, [2, 2, 2, 2]);
}

#[tokio::test]
async fn work_that_nobody_waits_for_any_more_is_done_before_the_store_closes() {
    let database = database_with_invoices().await;
    let store = SqliteStore::open(database.path()).unwrap();
    let blocker = block(&store).await;
    let mut unattended: Queued<'_> = Box::pin(store.transaction(|tx| pay(tx, "in_1")));
    poll_once(&mut unattended).await;
    drop(unattended);
    blocker.go_on.send(()).unwrap();
    drop(blocker);
    drop(store);
    assert_eq!(counts(database.store()).await, [1, 1, 1, 1]);
}

/// A loss of power cannot be tried in a test. What it depends on can: the log was synced when a write is acknowledged, and
/// SQLite itself keeps the file whole.
#[tokio::test]
async fn what_is_acknowledged_is_synced_to_the_disk() {
    const NORMAL: i64 = 1;
    let database = TestDatabase::create().await;
    let store = database.store();
    let look = |tx: &mut SqliteTransaction<'_>| {
        Ok::<i64, Anything>(tx.connection().query_row("pragma synchronous", [], |row| row.get(0))?)
    };
    for _ in 0..3 {
        let before = store.log_syncs();
        assert_eq!(store.transaction(look).await.unwrap(), NORMAL);
        assert!(store.log_syncs() > before);
    }
    // Claims and renewals need no sync. What comes after them does.
    let (worker, before) = (WorkerId::new("w1").unwrap(), store.log_syncs());
    store.renew(&worker, &[], std::time::Duration::from_secs(1)).await.unwrap();
    assert_eq!(store.log_syncs(), before);
    store.transaction(look).await.unwrap();
    assert_eq!(store.log_syncs(), before + 1);
}
