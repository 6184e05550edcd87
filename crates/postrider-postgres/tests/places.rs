//! What the places are for: updates that stay on their page, claims that cost what they take.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use postrider::store::{AttemptResult, ClaimRequest, Claimed, Lane, Settle};
use postrider::{Lease, NewEvent, OutcomeKind, Store, Verdict, WorkerId};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(30);

fn settle(lease: Lease, verdict: Verdict) -> Settle {
    let attempt = AttemptResult {
        outcome: OutcomeKind::Response,
        status_code: Some(if verdict == Verdict::Delivered { 200 } else { 500 }),
        took: Duration::from_millis(5),
        started_ago: Duration::from_millis(6),
        response_excerpt: None,
        error_detail: (verdict != Verdict::Delivered).then(|| "HTTP 500".to_owned()),
    };
    Settle { lease, verdict, attempt, disable_endpoint: false, disable_after: None }
}

async fn claim(store: &PostgresStore, worker: &WorkerId, limit: u32) -> Claimed {
    let request = ClaimRequest {
        worker: worker.clone(),
        lease: LEASE,
        limit,
        lane_limit: limit,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    };
    store.claim(&request).await.unwrap()
}

#[tokio::test]
async fn every_update_of_a_delivery_stays_on_its_page() {
    const DELIVERIES: usize = 40;
    const ROUNDS: usize = 4;
    let database = TestDatabase::create().await;
    let store = database.store();
    let worker = WorkerId::random();
    let event = |number| NewEvent::new("order.placed", "{}").to(format!("https://h{}.example.com/", number % 7));
    store.enqueue((0..DELIVERIES).map(event).collect()).await.unwrap();
    for round in 1..=ROUNDS {
        let claims = claim(&store, &worker, 200).await.claims;
        assert_eq!(claims.len(), DELIVERIES);
        let leases: Vec<Lease> = claims.iter().map(|claim| claim.lease).collect();
        assert_eq!(store.renew(&worker, &leases, LEASE * 2).await.unwrap().len(), DELIVERIES);
        let verdict = if round < ROUNDS { Verdict::Retry { after: Duration::ZERO } } else { Verdict::Delivered };
        for some in leases.chunks(10) {
            let settles: Vec<Settle> = some.iter().map(|lease| settle(*lease, verdict)).collect();
            store.settle(&worker, &settles).await.unwrap();
            // Pages are also tidied up as they are read, but a long transaction of another test would put that off.
            store.pool().execute("vacuum postrider.deliveries").await.unwrap();
        }
        store.promote(1000).await.unwrap();
    }
    // Backends tell their counts when they end.
    store.pool().close().await;
    let mut observer = PgConnection::connect(database.url()).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let expected = i64::try_from(DELIVERIES * ROUNDS).unwrap();
    loop {
        let counts = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables \
                      where schemaname = 'postrider' and relname = 'deliveries'";
        let (updated, hot): (i64, i64) = sqlx::query_as(counts).fetch_one(&mut observer).await.unwrap();
        if updated >= expected {
            assert_eq!((updated, hot), (expected, expected), "one update per settle, and each of them HOT");
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "only {updated} of {expected} updates were counted");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn large_payloads_come_a_few_megabytes_at_a_time_until_all_have_come() {
    const DELIVERIES: usize = 300;
    let database = TestDatabase::create().await;
    let store = database.store();
    let worker = WorkerId::random();
    let payload = format!("\"{}\"", "x".repeat(100_000));
    let event =
        |number| NewEvent::new("order.placed", payload.clone()).to(format!("https://h{}.example.com/", number % 7));
    for first in (0..DELIVERIES).step_by(50) {
        store.enqueue((first..first + 50).map(event).collect()).await.unwrap();
    }
    let (mut came, mut counts) = (0, Vec::new());
    while came < DELIVERIES {
        let claimed = claim(&store, &worker, 128).await;
        assert!(!claimed.claims.is_empty(), "{came} have come");
        came += claimed.claims.len();
        counts.push(claimed.claims.len());
        assert!(claimed.cursor.is_some() || came == DELIVERIES, "whoever was given less is told to go on");
    }
    assert_eq!(counts[0], 128, "nothing is known yet");
    assert!(counts[3..].iter().all(|count| *count < 64), "about 4 MB each: {counts:?}");
    assert_eq!(claim(&store, &worker, 128).await.claims.len(), 0);
}

/// A backlog that is written by hand, since it is large: `count` deliveries in one lane.
async fn backlog(store: &PostgresStore, lane: &str, count: u32) {
    let statement = format!(
        "with made as (
           insert into postrider.deliveries (id, event_id, tenant, destination_url, lane, next_attempt_at, created_at)
           select postrider.new_id(), e.id, 'default', 'https://{lane}/', '{lane}', now(), now()
           from (insert_event) e, generate_series(1, {count})
           returning id)
         insert into postrider.ready (lane, delivery_id) select '{lane}', id from made order by id"
    );
    let event = store.enqueue(vec![NewEvent::new("order.placed", "{}")]).await.unwrap()[0].event_id().unwrap();
    let statement = statement.replace("(insert_event)", &format!("(select '{}'::uuid as id)", event.as_uuid()));
    store.pool().execute(AssertSqlSafe(statement)).await.unwrap();
}

fn tokens(count: usize) -> impl Iterator<Item = Uuid> {
    std::iter::repeat_with(Uuid::new_v4).take(count)
}

/// Runs the claim under EXPLAIN on a connection of the store's own, with the settings that those have, and takes it back.
async fn explain_claim(store: &PostgresStore, saturated: &str, floor: Option<(&str, i64)>) -> Value {
    let mut transaction = store.pool().begin().await.unwrap();
    let prepare = concat!(
        "prepare claim (timestamptz, text, bigint, int, int, text[], int[], text, int, int, text[], bigint[], boolean, uuid[], bigint, bigint) as ",
        include_str!("../sql/claim.sql")
    );
    sqlx::raw_sql(prepare).execute(&mut *transaction).await.unwrap();
    let (floor_lane, floor) =
        floor.map_or((String::new(), String::new()), |(lane, at)| (lane.to_owned(), at.to_string()));
    let tokens = tokens(10).map(|token| token.to_string()).collect::<Vec<_>>().join(",");
    let explain = format!(
        "explain (analyze, buffers, format json) execute claim \
         (null, 'w', 30000000, 10, 64, '{{{saturated}}}', '{{64}}', null, 10, 512, '{{{floor_lane}}}', '{{{floor}}}', true, \
          '{{{tokens}}}', 1000000000, 1000000000)"
    );
    let plan = sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false).fetch_one(&mut *transaction).await.unwrap();
    sqlx::raw_sql("deallocate claim").execute(&mut *transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    plan
}

fn pages_read(plan: &Value) -> u64 {
    let root = &plan[0]["Plan"];
    assert_eq!(root["Actual Rows"].as_f64(), Some(11.0), "as many as were asked for, and where the claim went");
    root["Shared Hit Blocks"].as_u64().unwrap() + root["Shared Read Blocks"].as_u64().unwrap()
}

fn nodes<'a>(plan: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(plan);
    for child in plan["Plans"].as_array().into_iter().flatten() {
        nodes(child, found);
    }
}

#[tokio::test]
async fn a_claim_reads_by_index_and_does_not_read_a_saturated_lane() {
    let database = TestDatabase::create().await;
    let store = database.store();
    // Planned while the queues are empty, as a dispatcher plans at its start, and used when they are not.
    claim(&store, &WorkerId::random(), 1).await;
    backlog(&store, "a.example.com", 50_000).await;
    backlog(&store, "b.example.com", 10).await;
    let plan = explain_claim(&store, "a.example.com", None).await;
    let root = &plan[0]["Plan"];
    let mut all = Vec::new();
    nodes(root, &mut all);
    for node in &all {
        assert_ne!(node["Node Type"], "Seq Scan", "{node:#}");
    }
    assert!(all.iter().any(|node| node["Index Name"] == "ready_by_lane"), "{root:#}");
    let pages = pages_read(&plan);
    assert!(pages < 300, "a claim of 10 beside 50,000 that it may not take has read {pages} pages");
}

#[tokio::test]
async fn a_floor_spares_a_claim_what_vacuum_may_not_remove() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let lane = "a.example.com";
    backlog(&store, lane, 50_000).await;
    let mut elsewhere = store.pool().begin_with("begin isolation level repeatable read").await.unwrap();
    elsewhere.execute("select count(*) from postrider.events").await.unwrap();
    store.pool().execute("delete from postrider.ready where position <= 40000").await.unwrap();
    let wading = pages_read(&explain_claim(&store, "", None).await);
    let stepping = pages_read(&explain_claim(&store, "", Some((lane, 40_001))).await);
    assert!(wading > 300, "the open transaction keeps the deleted rows: {wading} pages");
    assert!(stepping < 300, "from the floor on there is nothing to wade through: {stepping} pages");
    elsewhere.rollback().await.unwrap();
}

#[tokio::test]
async fn lanes_with_and_without_a_floor_are_all_visited_in_order() {
    let database = TestDatabase::create().await;
    let store = database.store();
    // Positions 1-2, 3-4, 5-6, 7-8.
    for lane in ["a", "b", "c", "d"] {
        backlog(&store, lane, 2).await;
    }
    let claimed = |after: Option<&'static str>, floors: &'static [(&str, i64)]| {
        let store = store.clone();
        async move {
            let mut transaction = store.pool().begin().await.unwrap();
            let rows = sqlx::query(include_str!("../sql/claim.sql"))
                .bind(None::<jiff_sqlx::Timestamp>)
                .bind("w")
                .bind(30_000_000_i64)
                .bind(100)
                .bind(64)
                .bind(Vec::<String>::new())
                .bind(Vec::<i32>::new())
                .bind(after)
                .bind(32)
                .bind(512)
                .bind(floors.iter().map(|(lane, _)| *lane).collect::<Vec<_>>())
                .bind(floors.iter().map(|(_, position)| *position).collect::<Vec<_>>())
                .bind(true)
                .bind(tokens(100).collect::<Vec<_>>())
                .bind(i64::MAX)
                .bind(i64::MAX)
                .fetch_all(&mut *transaction)
                .await
                .unwrap();
            transaction.rollback().await.unwrap();
            let mut positions: Vec<i64> = rows.iter().filter_map(|row| row.get("position")).collect();
            positions.sort_unstable();
            let head = rows.last().unwrap();
            (head.get::<String, _>("first_lane"), positions)
        }
    };
    assert_eq!(claimed(None, &[]).await, ("a".to_owned(), (1..=8).collect()));
    assert_eq!(claimed(Some("b"), &[]).await, ("c".to_owned(), (1..=8).collect()));
    assert_eq!(claimed(None, &[("b", 4)]).await, ("a".to_owned(), vec![1, 2, 4, 5, 6, 7, 8]));
    assert_eq!(claimed(None, &[("b", 99)]).await, ("a".to_owned(), vec![1, 2, 5, 6, 7, 8]), "b is a stepping stone");
    assert_eq!(claimed(Some("b"), &[("a", 2), ("d", 99)]).await, ("c".to_owned(), vec![2, 3, 4, 5, 6]));
    assert_eq!(claimed(Some("b"), &[("a", 2), ("b", 4), ("c", 6)]).await, ("c".to_owned(), vec![2, 4, 6, 7, 8]));
    assert_eq!(claimed(Some("c"), &[("a", 1), ("c", 99), ("d", 99)]).await, ("a".to_owned(), vec![1, 2, 3, 4]));
    assert_eq!(claimed(Some("x"), &[("bb", 1), ("zz", 1)]).await, ("a".to_owned(), (1..=8).collect()));
}

/// While claims fill their slots, each begins where the last one ended. Who took a place before that, and commits only
/// now, must not wait until the backlog is worked off.
#[tokio::test]
async fn what_commits_below_a_floor_has_its_turn_long_before_the_backlog_ends() {
    const BACKLOG: u32 = 40_000;
    let lane = "hooks.example.com";
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut slow = store.pool().begin().await.unwrap();
    let event = NewEvent::new("order.placed", "{}").to("https://hooks.example.com/");
    let late_id = store.enqueue_in(&mut slow, event).await.unwrap().deliveries()[0].id;
    backlog(&store, lane, BACKLOG).await;
    let worker = WorkerId::random();
    assert_eq!(claim(&store, &worker, 100).await.claims.len(), 100);
    slow.commit().await.unwrap();
    let mut taken = 100;
    loop {
        let claims = claim(&store, &worker, 100).await.claims;
        taken += u32::try_from(claims.len()).unwrap();
        if claims.iter().any(|claim| claim.lease.delivery_id == late_id) {
            break;
        }
        assert!(taken < BACKLOG, "it was passed over until nothing else was left");
    }
}

#[tokio::test]
async fn one_lane_with_a_backlog_does_not_keep_the_others_from_their_turn() {
    let database = TestDatabase::create().await;
    let store = database.store();
    backlog(&store, "a.example.com", 2_000).await;
    for lane in ["b.example.com", "c.example.com", "d.example.com"] {
        backlog(&store, lane, 5).await;
    }
    let claims = claim(&store, &WorkerId::random(), 100).await.claims;
    let taken = |lane: &str| claims.iter().filter(|claim| claim.lane == Lane(lane.to_owned())).count();
    assert_eq!(["b.example.com", "c.example.com", "d.example.com"].map(taken), [5, 5, 5]);
    assert_eq!(taken("a.example.com"), 85, "what the others leave is filled up from the backlog");
}

#[tokio::test]
async fn a_claim_whose_slots_run_out_gives_each_lane_its_turn() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let lanes = ["a.example.com", "b.example.com", "c.example.com"];
    for lane in lanes {
        backlog(&store, lane, 10).await;
    }
    let mut request = ClaimRequest {
        worker: WorkerId::random(),
        lease: LEASE,
        limit: 1,
        lane_limit: 64,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    };
    let mut order = Vec::new();
    for _ in 0..6 {
        let claimed = store.claim(&request).await.unwrap();
        order.extend(claimed.claims.iter().map(|claim| claim.lane.0.clone()));
        request.after = claimed.cursor;
    }
    assert_eq!(order, [lanes, lanes].concat());
}

/// Statements are planned once for a connection, which may be made while nothing is in flight and `leases` was vacuumed: a
/// plan that suits an empty table would compare each of a thousand leases with each that is given.
#[tokio::test]
async fn leases_are_looked_up_by_their_keys_also_where_none_was_counted() {
    let database = TestDatabase::create().await;
    let store = database.store();
    sqlx::raw_sql("vacuum analyze postrider.leases").execute(store.pool()).await.unwrap();
    let nothing = ["'{}'"; 14].join(", ");
    let statements = [
        ("(timestamptz, text, uuid[], uuid[], bigint)", include_str!("../sql/renew.sql"), "null, 'w', '{}', '{}', 1"),
        ("(text, uuid[], uuid[])", include_str!("../sql/release.sql"), "'w', '{}', '{}'"),
        (
            "(timestamptz, text, uuid[], uuid[], int[], int[], int[], bigint[], text[], \
              int[], text[], bigint[], text[], text[], boolean[], bigint[])",
            include_str!("../sql/settle.sql"),
            &format!("null, 'w', {nothing}"),
        ),
    ];
    for (types, statement, arguments) in statements {
        let mut transaction = store.pool().begin().await.unwrap();
        let prepare = format!("prepare planned {types} as {statement}");
        sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *transaction).await.unwrap();
        let explain = format!("explain (format json) execute planned ({arguments})");
        let plan: Value =
            sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false).fetch_one(&mut *transaction).await.unwrap();
        sqlx::raw_sql("deallocate planned").execute(&mut *transaction).await.unwrap();
        let mut all = Vec::new();
        nodes(&plan[0]["Plan"], &mut all);
        let looks: Vec<_> = all.iter().filter(|node| node["Index Name"] == "leases_pkey").collect();
        assert!(!looks.is_empty(), "{statement}");
        for look in looks {
            let condition = look["Index Cond"].as_str().unwrap_or_default();
            assert!(condition.contains("= ANY"), "the leases are read through: {look}");
        }
        for join in all.iter().filter(|node| node["Node Type"] == "Nested Loop") {
            let filter = join["Join Filter"].as_str().unwrap_or_default();
            assert!(!filter.contains("token"), "each lease is compared with each: {join}");
            assert!(!filter.contains("o.n"), "each result is compared with each: {join}");
        }
    }
}
