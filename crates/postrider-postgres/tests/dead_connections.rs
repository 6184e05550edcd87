//! Connections that go dead without being closed, as when a server loses its power or a firewall forgets them.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use postrider::store::{AttemptResult, ClaimRequest, Settle, Settlement};
use postrider::{EnqueueError, Enqueued, Lease, NewEvent, OutcomeKind, Store, StoreErrorCode, Verdict, WorkerId};
use postrider_conformance::wait::{PATIENCE, eventually};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const LEASE: Duration = Duration::from_secs(30);

/// What lies between the store and its server.
struct Wire {
    cuts: watch::Sender<u32>,
    port: u16,
}

impl Wire {
    async fn to(server: (String, u16)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cuts = watch::Sender::new(0);
        let cut = cuts.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (server, mut cut) = (server.clone(), cut.subscribe());
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        // Both ends stay open, and nothing passes any more.
                        _ = cut.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { cuts, port }
    }

    /// Nothing passes over the connections that are open now; new ones work.
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

fn worker() -> WorkerId {
    WorkerId::new("w1").unwrap()
}

/// A store behind a wire, with one lease.
async fn leased(database: &TestDatabase) -> (Wire, PostgresStore, Lease) {
    let options: PgConnectOptions = database.url().parse().unwrap();
    let wire = Wire::to((options.get_host().to_owned(), options.get_port())).await;
    // A single connection, so that it is known which one a statement takes.
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = pool.connect_lazy_with(options.host("127.0.0.1").port(wire.port));
    let store = PostgresStore::from_pool(pool);
    let event = NewEvent::new("order.placed", "{}").to("https://hooks.example.com/");
    store.enqueue(vec![event]).await.unwrap();
    let (in_flight, after) = (Vec::new(), None);
    let request =
        ClaimRequest { worker: worker(), lease: LEASE, limit: 1, lane_limit: 1, in_flight, ahead: vec![], after };
    let lease = store.claim(&request).await.unwrap().claims[0].lease;
    while store.pool().num_idle() == 0 {
        tokio::task::yield_now().await;
    }
    (wire, store, lease)
}

#[tokio::test]
async fn a_heartbeat_that_hangs_does_not_hold_up_the_next() {
    let database = TestDatabase::create().await;
    let (wire, store, lease) = leased(&database).await;
    assert_eq!(store.renew(&worker(), &[lease], LEASE).await.unwrap(), [lease]);
    wire.cut();
    let given_up = tokio::time::timeout(Duration::from_millis(100), store.renew(&worker(), &[lease], LEASE)).await;
    assert!(given_up.is_err(), "nothing passes");
    assert_eq!(store.renew(&worker(), &[lease], LEASE).await.unwrap(), [lease], "over a connection of its own");
}

#[tokio::test]
async fn a_settle_whose_connection_is_dead_comes_back_and_can_be_repeated() {
    let database = TestDatabase::create().await;
    let (wire, store, lease) = leased(&database).await;
    let attempt = AttemptResult {
        outcome: OutcomeKind::Response,
        status_code: Some(204),
        took: Duration::from_millis(40),
        started_ago: Duration::from_millis(50),
        response_excerpt: None,
        error_detail: None,
    };
    let settle = Settle { lease, verdict: Verdict::Delivered, attempt, disable_endpoint: false, disable_after: None };
    let settles = [settle];
    wire.cut();
    // Time flies while nothing happens.
    tokio::time::pause();
    let answer = tokio::time::timeout(Duration::from_hours(1), store.settle(&worker(), &settles)).await;
    tokio::time::resume();
    let error = answer.expect("an answer, however long it takes").unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Unavailable, "{error}");
    assert_eq!(store.settle(&worker(), &settles).await.unwrap(), [Settlement::Applied]);
}

/// The server keeps what was begun on a connection that went dead: here a key that was taken and never committed. It is free
/// again after a while, and whoever comes under it meanwhile is told to come again.
#[tokio::test]
async fn a_key_that_was_taken_over_a_connection_that_went_dead_becomes_free_again() {
    let database = TestDatabase::create().await;
    let (wire, store, _) = leased(&database).await;
    let event = || NewEvent::new("order.placed", "{}").to("https://hooks.example.com/").idempotency_key("k1");
    let direct = database.store();
    let mut holder = direct.pool().begin().await.unwrap();
    direct.enqueue_in(&mut holder, event()).await.unwrap();
    let enqueueing = tokio::spawn(async move { store.enqueue(vec![event()]).await });
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("it waits for the key", PATIENCE, async || {
        let count: i64 = sqlx::query_scalar(waiting).fetch_one(&mut *holder).await.unwrap();
        (count == 1).then_some(())
    })
    .await;
    wire.cut();
    holder.rollback().await.unwrap();
    // The server has taken the key for an enqueue that nobody can commit any more.
    let enqueued =
        eventually("the key is free again", PATIENCE * 2, async || match direct.enqueue(vec![event()]).await {
            Ok(enqueued) => Some(enqueued),
            Err(EnqueueError::Store(error)) => {
                assert_eq!(error.code, StoreErrorCode::Contended, "{error}");
                None
            }
            Err(error) => panic!("{error}"),
        })
        .await;
    assert!(matches!(enqueued[..], [Enqueued::New { .. }]), "{enqueued:?}");
    enqueueing.abort();
}
