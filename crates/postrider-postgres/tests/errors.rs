//! Trouble is told apart, and never tells what was being written.

use std::time::Duration;

use postrider::{EnqueueError, NewEvent, Store, StoreError, StoreErrorCode};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::Executor;
use sqlx::postgres::PgPoolOptions;

fn event() -> NewEvent {
    NewEvent::new("order.placed", r#"{"secret":"canary-4711"}"#).to("https://hooks.example.com/")
}

async fn enqueue_error(store: &PostgresStore) -> StoreError {
    match store.enqueue(vec![event()]).await {
        Err(EnqueueError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let url = format!("postgres://someone:canary-4711@127.0.0.1:{port}/nowhere");
    let error = PostgresStore::connect(&url).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Unavailable, "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_unavailable() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    // Time flies while nothing happens.
    tokio::time::pause();
    let error = PostgresStore::connect(&format!("postgres://someone@127.0.0.1:{port}/nowhere")).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Unavailable, "{error}");
    assert!(error.message.contains("no answer within 4s"), "{error}");
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_not_repeated() {
    let error = PostgresStore::connect("postgres://someone:canary-4711@host:not-a-port/x").await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    assert!(error.message.contains("postgres://user:password@host"), "{error}");
}

#[tokio::test]
async fn a_connection_that_was_ended_is_unavailable_and_the_next_try_works() {
    let database = TestDatabase::create().await;
    let pool =
        PgPoolOptions::new().max_connections(1).test_before_acquire(false).connect(database.url()).await.unwrap();
    let store = PostgresStore::from_pool(pool);
    store.enqueue(vec![event()]).await.unwrap();
    // A connection goes back to its pool in a task of its own, which would find it broken.
    while store.pool().num_idle() == 0 {
        tokio::task::yield_now().await;
    }
    let end = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid()";
    database.store().pool().execute(end).await.unwrap();
    let error = enqueue_error(&store).await;
    assert_eq!(error.code, StoreErrorCode::Unavailable, "{error}");
    assert!(error.code.is_transient());
    store.enqueue(vec![event()]).await.unwrap();
}

#[tokio::test]
async fn a_pool_that_is_used_up_is_busy() {
    let database = TestDatabase::create().await;
    let options = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(50));
    let pool = options.connect(database.url()).await.unwrap();
    let held = pool.acquire().await.unwrap();
    let store = PostgresStore::from_pool(pool);
    assert_eq!(enqueue_error(&store).await.code, StoreErrorCode::Busy);
    drop(held);
    store.enqueue(vec![event()]).await.unwrap();
}

#[tokio::test]
async fn somebody_elses_constraint_is_reported_without_the_row() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let foreign = "alter table postrider.events add constraint nothing_may_enter check (length(topic) > 1000)";
    store.pool().execute(foreign).await.unwrap();
    let error = enqueue_error(&store).await;
    assert_eq!(error.code, StoreErrorCode::Internal);
    assert!(error.message.contains("nothing_may_enter") && error.message.contains("23514"), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"), "the failing row is in the server's detail: {error:?}");
    let payload = hex_of(event().payload.as_ref());
    assert!(!format!("{error:?}").contains(&payload[..20]), "nor as bytes");
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
