//! Wake-ups: told when somebody waits, and only then.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use postrider::store::{ClaimRequest, Operator};
use postrider::{DeliveryId, NewEvent, Store, WorkerId};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgListener};
use tokio::time::Instant;

/// Long enough that a test which would have to sit it out has failed.
const NEVER: Duration = Duration::from_secs(60);

async fn enqueue(store: &PostgresStore) -> DeliveryId {
    let event = NewEvent::new("order.placed", "{}").to("https://hooks.example.com/");
    store.enqueue(vec![event]).await.unwrap()[0].deliveries()[0].id
}

async fn listeners(store: &PostgresStore, channel: &str) -> i64 {
    let live = "select count(*) from postrider.listeners where channel = $1 and until > clock_timestamp()";
    sqlx::query_scalar(live).bind(channel).fetch_one(store.pool()).await.unwrap()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::task::yield_now().await;
    }
}

/// Waits until the store listens: its connection is up, its row is there, and the wake-ups of the start are spent.
async fn settle_down(store: &PostgresStore, wait: impl AsyncFn(Duration)) {
    let listening = "select count(*) from pg_stat_activity \
                     where datname = current_database() and state = 'idle' and query like 'LISTEN%'";
    wait(Duration::from_millis(1)).await;
    until("the store listens", async || {
        sqlx::query_scalar::<_, i64>(listening).fetch_one(store.pool()).await.unwrap() == 1
    })
    .await;
    until("a wait lasts as long as its timeout", async || {
        let started = Instant::now();
        wait(Duration::from_millis(50)).await;
        started.elapsed() >= Duration::from_millis(50)
    })
    .await;
}

async fn an_enqueue_ends_the_wait(store: &PostgresStore) {
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_ready(NEVER).await }
    });
    enqueue(store).await;
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken long before the timeout").unwrap();
}

#[tokio::test]
async fn an_enqueue_of_another_process_ends_the_wait() {
    let database = TestDatabase::create().await;
    let store = database.store();
    settle_down(&store, async |timeout| store.wait_ready(timeout).await).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_ready(NEVER).await }
    });
    until("the wait is registered", async || listeners(&store, "ready").await == 1).await;
    let other = PostgresStore::connect(database.url()).await.unwrap();
    enqueue(&other).await;
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken long before the timeout").unwrap();
}

#[tokio::test]
async fn an_announcement_ends_the_wait_of_who_follows_and_not_of_who_dispatches() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let id = enqueue(&store).await;
    settle_down(&store, async |timeout| store.wait_announced(timeout).await).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_announced(NEVER).await }
    });
    let other = PostgresStore::connect(database.url()).await.unwrap();
    other.cancel(id, "not needed", &Operator("anna".to_owned())).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken long before the timeout").unwrap();
    assert_eq!(listeners(&store, "ready").await, 0, "nobody said that it waits for deliveries");
}

#[tokio::test]
async fn nobody_is_notified_while_nobody_listens() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut ear = PgListener::connect(database.url()).await.unwrap();
    ear.listen_all(["postrider_ready", "postrider_announced", "end"]).await.unwrap();
    let mut connection = PgConnection::connect(database.url()).await.unwrap();
    let mut heard_until_end = async |number: u32| {
        sqlx::query("select pg_notify('end', $1::text)")
            .bind(number.to_string())
            .execute(&mut connection)
            .await
            .unwrap();
        let mut heard = Vec::new();
        loop {
            let notification = ear.recv().await.unwrap();
            if notification.channel() == "end" && notification.payload() == number.to_string() {
                return heard;
            }
            heard.push(notification.channel().to_owned());
        }
    };
    let id = enqueue(&store).await;
    store.cancel(id, "not needed", &Operator("anna".to_owned())).await.unwrap();
    assert_eq!(heard_until_end(1).await, Vec::<String>::new());

    for channel in ["ready", "announced"] {
        let register =
            "insert into postrider.listeners (id, channel, until) values ($1, $2, now() + interval '1 hour')";
        sqlx::query(register).bind(uuid::Uuid::new_v4()).bind(channel).execute(store.pool()).await.unwrap();
    }
    let id = enqueue(&store).await;
    store.cancel(id, "not needed", &Operator("anna".to_owned())).await.unwrap();
    assert_eq!(heard_until_end(2).await, ["postrider_ready", "postrider_announced"]);

    sqlx::query("update postrider.listeners set until = now() - interval '1 hour'")
        .execute(store.pool())
        .await
        .unwrap();
    enqueue(&store).await;
    assert_eq!(heard_until_end(3).await, Vec::<String>::new(), "a listener that has lapsed is none");
    store.recover(1, 10).await.unwrap();
    let left: i64 =
        sqlx::query_scalar("select count(*) from postrider.listeners").fetch_one(store.pool()).await.unwrap();
    assert_eq!(left, 0, "what lapsed long ago is swept out");
}

#[tokio::test]
async fn waiting_again_and_again_registers_once() {
    let database = TestDatabase::create().await;
    let store = database.store();
    settle_down(&store, async |timeout| store.wait_ready(timeout).await).await;
    let written = "select xmin::text from postrider.listeners";
    let before: String = sqlx::query_scalar(written).fetch_one(store.pool()).await.unwrap();
    for _ in 0..20 {
        store.wait_ready(Duration::from_millis(1)).await;
    }
    let after: String = sqlx::query_scalar(written).fetch_one(store.pool()).await.unwrap();
    assert_eq!(before, after, "the row was not written again");
}

#[tokio::test]
async fn a_lost_listening_connection_comes_back() {
    let database = TestDatabase::create().await;
    let store = database.store();
    settle_down(&store, async |timeout| store.wait_ready(timeout).await).await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
               where datname = current_database() and query like 'LISTEN%'";
    let ended: i64 = sqlx::query_scalar(end).fetch_one(store.pool()).await.unwrap();
    assert_eq!(ended, 1);
    settle_down(&store, async |timeout| store.wait_ready(timeout).await).await;
    an_enqueue_ends_the_wait(&store).await;
}

#[tokio::test]
async fn whoever_waits_is_registered_for_as_long_as_the_wait() {
    let database = TestDatabase::create().await;
    let store = database.store();
    // Returns at once, for what is there, and is registered for 18 seconds: too short for what follows.
    enqueue(&store).await;
    store.wait_ready(Duration::from_secs(6)).await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_ready(Duration::from_secs(30)).await }
    });
    until("the registration outlasts the wait", async || {
        let lasting = "select count(*) from postrider.listeners \
                       where channel = 'ready' and until > clock_timestamp() + interval '29 seconds'";
        sqlx::query_scalar::<_, i64>(lasting).fetch_one(store.pool()).await.unwrap() == 1
    })
    .await;
    waiting.abort();
}

/// Claims much, as a dispatcher does that has much to do, until it need not be woken.
async fn be_busy(store: &PostgresStore) {
    settle_down(store, async |timeout| store.wait_ready(timeout).await).await;
    assert_eq!(listeners(store, "ready").await, 1);
    let (worker, lease) = (WorkerId::random(), Duration::from_secs(60));
    let request =
        ClaimRequest { worker, lease, limit: 500, lane_limit: 500, in_flight: vec![], ahead: vec![], after: None };
    until("those who enqueue need not notify it", async || {
        let events = (0..500).map(|_| NewEvent::new("order.placed", "{}").to("https://hooks.example.com/"));
        store.enqueue(events.collect()).await.unwrap();
        assert_eq!(store.claim(&request).await.unwrap().claims.len(), 500);
        store.wait_ready(Duration::from_millis(1)).await;
        listeners(store, "ready").await == 0
    })
    .await;
}

async fn be_quiet(store: &PostgresStore) {
    until("it is registered again", async || {
        store.wait_ready(Duration::from_millis(1)).await;
        listeners(store, "ready").await == 1
    })
    .await;
}

#[tokio::test]
async fn who_is_busy_looks_by_itself_and_is_woken_again_when_it_is_quiet() {
    let database = TestDatabase::create().await;
    let store = database.store();
    be_busy(&store).await;
    be_quiet(&store).await;
    settle_down(&store, async |timeout| store.wait_ready(timeout).await).await;
    an_enqueue_ends_the_wait(&store).await;
}

/// Whoever has enqueued while the dispatcher was busy has seen nobody to notify, and may commit much later.
#[tokio::test]
async fn what_is_committed_when_it_is_quiet_again_is_found_before_the_timeout() {
    let database = TestDatabase::create().await;
    let store = database.store();
    be_busy(&store).await;
    let mut transaction = store.pool().begin().await.unwrap();
    let event = NewEvent::new("order.placed", "{}").to("https://hooks.example.com/");
    store.enqueue_in(&mut transaction, event).await.unwrap();
    be_quiet(&store).await;
    settle_down(&store, async |timeout| store.wait_ready(timeout).await).await;
    transaction.commit().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), store.wait_ready(NEVER)).await.expect("it looks once more");
}
