//! Enqueueing inside the application's own transaction.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use postrider::{EnqueueError, Enqueued, NewEvent, Store, StoreErrorCode};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::{Executor, PgConnection};

fn event(name: &str) -> NewEvent {
    NewEvent::new("order.placed", format!(r#"{{"order":"{name}"}}"#)).to("https://hooks.example.com/orders")
}

async fn with_orders() -> (TestDatabase, PostgresStore) {
    let database = TestDatabase::create().await;
    let store = database.store();
    store.pool().execute("create table public.orders (name text primary key)").await.unwrap();
    (database, store)
}

async fn place_order(connection: &mut PgConnection, name: &str) {
    sqlx::query("insert into public.orders (name) values ($1)").bind(name).execute(connection).await.unwrap();
}

async fn orders_and_events(store: &PostgresStore) -> (i64, i64) {
    let counts = "select (select count(*) from public.orders), (select count(*) from postrider.events)";
    sqlx::query_as(counts).fetch_one(store.pool()).await.unwrap()
}

#[tokio::test]
async fn the_event_commits_with_the_applications_own_row() {
    let (_database, store) = with_orders().await;
    let mut transaction = store.pool().begin().await.unwrap();
    place_order(&mut transaction, "o1").await;
    let enqueued = store.enqueue_in(&mut transaction, event("o1")).await.unwrap();
    assert_eq!(orders_and_events(&store).await, (0, 0), "nobody sees either before the commit");
    transaction.commit().await.unwrap();
    assert_eq!(orders_and_events(&store).await, (1, 1));
    let stored = store.event(enqueued.event_id().unwrap()).await.unwrap().unwrap();
    assert_eq!(stored.payload, r#"{"order":"o1"}"#);
    assert_eq!(stored.deliveries.len(), 1);
}

#[tokio::test]
async fn the_event_rolls_back_with_the_applications_own_row() {
    let (_database, store) = with_orders().await;
    let mut transaction = store.pool().begin().await.unwrap();
    place_order(&mut transaction, "o1").await;
    store.enqueue_in(&mut transaction, event("o1").idempotency_key("o1")).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(orders_and_events(&store).await, (0, 0));
    let again = store.enqueue(vec![event("o1").idempotency_key("o1")]).await.unwrap();
    assert!(matches!(again[..], [Enqueued::New { .. }]), "the key was not taken either: {again:?}");
}

#[tokio::test]
async fn a_transaction_that_is_dropped_leaves_nothing_and_no_open_transaction() {
    let (_database, store) = with_orders().await;
    let mut transaction = store.pool().begin().await.unwrap();
    store.enqueue_in(&mut transaction, event("o1")).await.unwrap();
    drop(transaction);
    let open = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'";
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while sqlx::query_scalar::<_, i64>(open).fetch_one(store.pool()).await.unwrap() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "a connection stays idle in its transaction");
        tokio::task::yield_now().await;
    }
    assert_eq!(orders_and_events(&store).await, (0, 0));
}

#[tokio::test]
async fn after_a_refused_key_the_callers_transaction_goes_on_without_the_list() {
    let (_database, store) = with_orders().await;
    let taken = store.enqueue(vec![event("o1").idempotency_key("k")]).await.unwrap()[0].event_id().unwrap();
    let mut transaction = store.pool().begin().await.unwrap();
    place_order(&mut transaction, "o2").await;
    let list = vec![event("fresh"), event("o3").idempotency_key("k3"), event("other content").idempotency_key("k")];
    let error = store.enqueue_all_in(&mut transaction, list).await.unwrap_err();
    match error {
        EnqueueError::IdempotencyConflict { key, event_id } => assert_eq!((key.as_str(), event_id), ("k", taken)),
        other => panic!("{other}"),
    }
    let single = store.enqueue_in(&mut transaction, event("other content").idempotency_key("k")).await.unwrap_err();
    assert!(matches!(single, EnqueueError::IdempotencyConflict { .. }), "{single}");
    place_order(&mut transaction, "o4").await;
    transaction.commit().await.unwrap();
    assert_eq!(orders_and_events(&store).await, (2, 1), "the orders are there, of the list there is nothing");
    let keys: i64 =
        sqlx::query_scalar("select count(*) from postrider.idempotency_keys").fetch_one(store.pool()).await.unwrap();
    assert_eq!(keys, 1);
}

#[tokio::test]
async fn a_key_that_another_transaction_took_meanwhile_is_waited_for() {
    let (_database, store) = with_orders().await;
    let mut first = store.pool().begin().await.unwrap();
    let winner = store.enqueue_in(&mut first, event("o1").idempotency_key("k")).await.unwrap().event_id().unwrap();
    let racing = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue(vec![event("o1").idempotency_key("k")]).await.unwrap() }
    });
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(10);
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(store.pool()).await.unwrap() == 0 {
        assert!(tokio::time::Instant::now() < deadline, "the second enqueue did not wait for the first");
        tokio::task::yield_now().await;
    }
    first.commit().await.unwrap();
    assert_eq!(racing.await.unwrap(), [Enqueued::Duplicate { event_id: winner }]);
}

#[tokio::test]
async fn a_winner_that_the_isolation_level_hides_is_a_conflict_to_repeat() {
    let (_database, store) = with_orders().await;
    let mut transaction = store.pool().begin_with("begin isolation level repeatable read").await.unwrap();
    transaction.execute("select 1").await.unwrap();
    store.enqueue(vec![event("o1").idempotency_key("k")]).await.unwrap();
    let error = store.enqueue_in(&mut transaction, event("o1").idempotency_key("k")).await.unwrap_err();
    match error {
        EnqueueError::Store(error) => {
            assert_eq!(error.code, StoreErrorCode::Conflict, "{error}");
            assert!(error.message.contains("repeat the transaction"), "{error}");
        }
        other => panic!("{other}"),
    }
}
