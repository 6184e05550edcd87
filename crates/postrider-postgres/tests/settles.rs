//! Settles that meet each other.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use postrider::store::{ClaimRequest, Settlement};
use postrider::{Lease, NewEvent, Store, Verdict};
use postrider_conformance::trial::{request, settle_of, worker};
use postrider_conformance::wait::{PATIENCE, eventually};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// A store whose statements find rows in one way only.
fn store_with(database: &TestDatabase, planner: [(&str, &str); 3]) -> PostgresStore {
    let options: PgConnectOptions = database.url().parse().unwrap();
    PostgresStore::from_pool(PgPoolOptions::new().connect_lazy_with(options.options(planner)))
}

/// Leases that lie in the opposite order of their keys.
async fn leases_backwards(store: &PostgresStore) -> Vec<Lease> {
    for host in ["c", "b", "a"] {
        let event = NewEvent::new("order.placed", "{}").to(format!("https://{host}.example.com/"));
        store.enqueue(vec![event]).await.unwrap();
    }
    let (mut leases, mut after) = (Vec::new(), None);
    for _ in 0..3 {
        let claimed = store.claim(&ClaimRequest { after, ..request("w1", 1) }).await.unwrap();
        leases.push(claimed.claims[0].lease);
        after = claimed.cursor;
    }
    assert!(leases.is_sorted_by(|one, next| one.delivery_id > next.delivery_id), "{leases:?}");
    leases
}

async fn so_many_wait(pool: &PgPool, expected: i64) {
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    eventually("a settle waits for a lease", PATIENCE, async || {
        (sqlx::query_scalar::<_, i64>(waiting).fetch_one(pool).await.unwrap() == expected).then_some(())
    })
    .await;
}

/// A settle is repeated when its answer did not come, and the first may be at work still, with another plan.
#[tokio::test]
async fn two_of_the_same_leases_that_wait_for_each_other_are_both_answered() {
    let database = TestDatabase::create().await;
    let by_key =
        store_with(&database, [("enable_seqscan", "off"), ("enable_bitmapscan", "off"), ("enable_indexscan", "on")]);
    let by_place =
        store_with(&database, [("enable_seqscan", "on"), ("enable_bitmapscan", "off"), ("enable_indexscan", "off")]);
    let leases = leases_backwards(&by_key).await;
    let settles: Vec<_> = leases.iter().map(|lease| settle_of(*lease, Verdict::Delivered)).collect();

    // With the one in the middle held, each of the two takes another of the rest, and then waits.
    let pool = by_key.pool().clone();
    let mut holder = pool.begin().await.unwrap();
    let hold = "select from postrider.leases where delivery_id = $1 for update";
    sqlx::query(hold).bind(leases[1].delivery_id.as_uuid()).execute(&mut *holder).await.unwrap();
    let mut answers = Vec::new();
    for (store, so_many) in [(by_key, 1), (by_place, 2)] {
        let settles = settles.clone();
        answers.push(tokio::spawn(async move { store.settle(&worker("w1"), &settles).await }));
        so_many_wait(&pool, so_many).await;
    }
    holder.rollback().await.unwrap();

    let mut settlements = Vec::new();
    for answer in answers {
        settlements.push(answer.await.unwrap().unwrap());
    }
    settlements.sort_by_key(|settlements| settlements[0] == Settlement::AppliedEarlier);
    assert_eq!(settlements, [[Settlement::Applied; 3], [Settlement::AppliedEarlier; 3]]);
    let attempts: i64 = sqlx::query_scalar("select count(*) from postrider.attempts").fetch_one(&pool).await.unwrap();
    assert_eq!(attempts, 3);
    eventually("they did wait for each other", PATIENCE, async || {
        let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
        (sqlx::query_scalar::<_, i64>(deadlocks).fetch_one(&pool).await.unwrap() == 1).then_some(())
    })
    .await;
}
