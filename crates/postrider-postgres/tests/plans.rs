//! Statements that were planned while there was next to nothing in the tables.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use postrider::{NewEvent, Store, Verdict};
use postrider_conformance::trial::{request, settle_of, worker};
use postrider_conformance::wait::{PATIENCE, eventually};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, PgConnection};

const BACKLOG: usize = 20_000;
const BATCH: u32 = 200;

async fn enqueue(store: &PostgresStore, count: usize) {
    let event = || NewEvent::new("order.placed", "{}").to("https://hooks.example.com/");
    for _ in 0..count.div_ceil(1_000) {
        store.enqueue((0..count.min(1_000)).map(|_| event()).collect()).await.unwrap();
    }
}

async fn claim_and_settle(store: &PostgresStore, count: u32) {
    let claims = store.claim(&request("w1", count)).await.unwrap().claims;
    assert_eq!(claims.len(), count as usize);
    let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim.lease, Verdict::Delivered)).collect();
    store.settle(&worker("w1"), &settles).await.unwrap();
}

/// Retention may empty the tables and vacuum count that they are empty; then much is enqueued at once, long before anybody
/// counts again.
#[tokio::test]
async fn a_backlog_that_came_after_a_statement_was_planned_is_not_read_through() {
    let database = TestDatabase::create().await;
    let enqueuer = database.store();
    // A single connection, on which everything is planned, as the store's own connections plan it.
    let options: PgConnectOptions = database.url().parse().unwrap();
    let options = options.options([("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off")]);
    let store = PostgresStore::from_pool(PgPoolOptions::new().max_connections(1).connect_lazy_with(options));
    for table in ["events", "deliveries", "attempts"] {
        let alone = format!("alter table postrider.{table} set (autovacuum_enabled = off)");
        sqlx::raw_sql(sqlx::AssertSqlSafe(alone)).execute(enqueuer.pool()).await.unwrap();
    }
    sqlx::raw_sql("vacuum analyze").execute(enqueuer.pool()).await.unwrap();
    enqueue(&enqueuer, 1).await;
    claim_and_settle(&store, 1).await;
    enqueue(&enqueuer, BACKLOG).await;
    claim_and_settle(&store, BATCH).await;

    // Backends tell their counts when they end.
    store.pool().close().await;
    let mut observer = PgConnection::connect(database.url()).await.unwrap();
    let read = eventually("what was read is told", PATIENCE, async || {
        let counts = "select n_tup_upd, idx_tup_fetch + seq_tup_read from pg_stat_user_tables \
                      where schemaname = 'postrider' and relname = 'deliveries'";
        let (updated, read): (i64, i64) = sqlx::query_as(counts).fetch_one(&mut observer).await.unwrap();
        (updated > i64::from(BATCH)).then_some(read)
    })
    .await;
    assert!(read < 10 * i64::from(BATCH), "{read} rows were read to deliver {BATCH}");
}

/// Keys and subjects are there for good, and are looked up by whoever enqueues: reading all of them would get slower and
/// slower, until somebody counts them.
#[tokio::test]
async fn keys_and_subjects_are_looked_up_one_by_one_also_where_none_was_counted() {
    let database = TestDatabase::create().await;
    let pool = database.store().pool().clone();
    sqlx::raw_sql("vacuum analyze").execute(&pool).await.unwrap();
    let statements = [
        ("(text[], text[])", include_str!("../sql/enqueue_earlier.sql"), "'{}', '{}'"),
        (
            "(timestamptz, text[], text[], bigint[], text[], text[], uuid[])",
            include_str!("../sql/once_claim.sql"),
            "null, '{}', '{}', '{}', '{}', '{}', '{}'",
        ),
    ];
    for (types, statement, arguments) in statements {
        let mut transaction = pool.begin().await.unwrap();
        let prepare = format!("prepare planned {types} as {statement}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(prepare)).execute(&mut *transaction).await.unwrap();
        let explain = sqlx::AssertSqlSafe(format!("explain execute planned ({arguments})"));
        let plan: Vec<String> =
            sqlx::query_scalar(explain).persistent(false).fetch_all(&mut *transaction).await.unwrap();
        let looks: Vec<_> = plan.windows(2).filter(|lines| lines[0].contains(" using ")).collect();
        assert!(!looks.is_empty(), "{plan:#?}");
        for look in looks {
            assert!(look[1].contains("Index Cond: ((tenant = "), "read through: {plan:#?}");
        }
    }
}
