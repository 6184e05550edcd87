//! Looking costs what is shown, not what there is.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use postrider::{DeliveryFilter, EventFilter, PageRequest, Store};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor};

/// One tenant's few events, then another's many, each delivered and told of long ago.
const HISTORY: &str = "
insert into postrider.events (id, tenant, type, payload, metadata, topic, created_at)
select postrider.new_id(), case when n <= 20 then 'small' else 'large' end, 'a.b', '{}', '{}', 'postrider', now()
from generate_series(1, 20000) n;
insert into postrider.deliveries (id, event_id, tenant, destination_url, lane, status, attempt_count, last_attempted_at, created_at)
select postrider.new_id(), e.id, e.tenant, 'https://hooks.example.com/', 'hooks.example.com', 'delivered', 1, now(), now()
from postrider.events e order by e.id;
insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
select 'delivery.delivered', 1, now() - interval '1 hour', array[d.id], array[d.event_id], array[null::uuid], array[1]
from postrider.deliveries d order by d.id;
insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
select 'delivery.delivered', 2, now(), array[d.id, d.id], array[d.event_id, d.event_id], array[null, null::uuid], array[1, 1]
from postrider.deliveries d order by d.id limit 10;
";

async fn history() -> (TestDatabase, PostgresStore) {
    let database = TestDatabase::create().await;
    let store = database.store();
    sqlx::raw_sql(HISTORY).execute(store.pool()).await.unwrap();
    for table in ["events", "deliveries", "announced"] {
        store.pool().execute(AssertSqlSafe(format!("vacuum analyze postrider.{table}"))).await.unwrap();
    }
    (database, store)
}

/// Runs a statement of the store under EXPLAIN, with the settings under which the store looks at things.
async fn explain(store: &PostgresStore, types: &str, statement: &str, values: &str) -> Value {
    let mut transaction = store.pool().begin().await.unwrap();
    let settings = "set local plan_cache_mode = force_custom_plan; set local enable_seqscan = on";
    sqlx::raw_sql(settings).execute(&mut *transaction).await.unwrap();
    let prepare = format!("prepare looking ({types}) as {statement}");
    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut *transaction).await.unwrap();
    let explain = format!("explain (analyze, buffers, format json) execute looking ({values})");
    let query = sqlx::query_scalar(AssertSqlSafe(explain)).persistent(false);
    let plan = query.fetch_one(&mut *transaction).await.unwrap();
    sqlx::raw_sql("deallocate looking").execute(&mut *transaction).await.unwrap();
    plan
}

fn nodes<'a>(plan: &'a Value, found: &mut Vec<&'a Value>) {
    found.push(plan);
    for child in plan["Plans"].as_array().into_iter().flatten() {
        nodes(child, found);
    }
}

fn pages(plan: &Value) -> u64 {
    let root = &plan[0]["Plan"];
    root["Shared Hit Blocks"].as_u64().unwrap() + root["Shared Read Blocks"].as_u64().unwrap()
}

#[tokio::test]
async fn a_page_of_events_is_read_by_an_index_whoever_has_the_most() {
    let (_database, store) = history().await;
    let types = "text, text, timestamptz, timestamptz, uuid, int, boolean, bigint, uuid";
    for (tenant, index) in [("'small'", "events_by_tenant"), ("'large'", "events_"), ("null", "events_pkey")] {
        let values = format!("{tenant}, null, null, null, null, 51, false, 1000000, null");
        let plan = explain(&store, types, include_str!("../sql/events.sql"), &values).await;
        assert!(plan.to_string().contains(index), "{tenant}: {plan:#}");
        assert!(pages(&plan) < 300, "{tenant}: {} pages", pages(&plan));
    }
    let filter = EventFilter { tenant: Some("small".to_owned()), ..EventFilter::default() };
    assert_eq!(store.events(&filter, &PageRequest::default(), 1_000_000).await.unwrap().items.len(), 20);
}

#[tokio::test]
async fn an_overview_counts_by_index_and_looks_at_the_last_announcements_only() {
    let (_database, store) = history().await;
    for tenant in ["null", "'small'"] {
        let values = format!("null, {tenant}");
        let plan = explain(&store, "timestamptz, text", include_str!("../sql/overview.sql"), &values).await;
        let mut all = Vec::new();
        nodes(&plan[0]["Plan"], &mut all);
        let of = |table: &'static str| all.iter().filter(move |node| node["Relation Name"] == table);
        // What joins them to places that are empty is not run at all.
        for node in of("deliveries").filter(|node| node["Actual Loops"].as_f64() > Some(0.0)) {
            assert_ne!(node["Node Type"], "Seq Scan", "{node:#}");
        }
        let read = |node: &&&Value| node["Actual Rows"].as_f64().unwrap() * node["Actual Loops"].as_f64().unwrap();
        let skipped = |node: &&&Value| node["Rows Removed by Filter"].as_f64().unwrap_or(0.0);
        let told: f64 = of("announced").map(|node| read(&node) + skipped(&node)).sum();
        assert!(told > 0.0 && told < 3_000.0, "{told} of 20,010 announcements were read for {tenant}");
    }
    let overview = store.overview(None).await.unwrap();
    assert_eq!((overview.delivered, overview.last_minute.delivered), (20_000, 20));
    let overview = store.overview(Some("small")).await.unwrap();
    assert_eq!((overview.delivered, overview.last_minute.delivered), (20, 20));
}

/// Of 20,000 deliveries none is in the status, of the type or to the endpoint that is asked for.
#[tokio::test]
async fn a_page_of_which_nothing_matches_reads_as_far_as_its_floor() {
    let (_database, store) = history().await;
    let types = "text, uuid, timestamptz, uuid, int, boolean";
    for (tenant, index) in [("'large'", "deliveries_by_tenant"), ("null", "deliveries_pkey")] {
        let values = format!("{tenant}, null, null, null, 999, false");
        let plan = explain(&store, types, include_str!("../sql/deliveries_floor.sql"), &values).await;
        assert!(plan.to_string().contains(index), "{tenant}: {plan:#}");
        assert!(pages(&plan) < 100, "{tenant}: {} pages", pages(&plan));
    }
    let floor = "select id from postrider.deliveries order by id desc offset 999 limit 1";
    let floor: uuid::Uuid = sqlx::query_scalar(floor).fetch_one(store.pool()).await.unwrap();
    let types = "text, text, uuid, uuid, text, timestamptz, timestamptz, uuid, int, boolean, uuid";
    for (status, event_type) in [("'failed'", "null"), ("null", "'no.such'")] {
        let values = format!("'large', {status}, null, null, {event_type}, null, null, null, 51, false, '{floor}'");
        let plan = explain(&store, types, include_str!("../sql/deliveries.sql"), &values).await;
        assert!(pages(&plan) < 4_500, "{status} {event_type}: {} pages, of a thousand deliveries", pages(&plan));
    }
    let filter = DeliveryFilter { event_type: Some("no.such".to_owned()), ..DeliveryFilter::default() };
    let page = PageRequest::default().looking_at(1_000);
    let page = store.deliveries(&filter, &page).await.unwrap();
    assert_eq!((page.items.len(), page.next.map(|cursor| cursor.0)), (0, Some(floor)));
}

#[tokio::test]
async fn a_page_of_subjects_is_read_by_the_primary_key() {
    let (_database, store) = history().await;
    let subjects = "insert into postrider.once (tenant, subject, generation)
        select 'default', format('plan/%s', n), 1 from generate_series(1, 20000) n";
    sqlx::raw_sql(subjects).execute(store.pool()).await.unwrap();
    store.pool().execute("vacuum analyze postrider.once").await.unwrap();
    let types = "text, text, text, text, int";
    for values in [
        "'default', 'plan/7', null, null, 999",
        "null, 'plan/7', null, null, 999",
        "'default', 'x', 'default', 'plan/5', 999",
    ] {
        let plan = explain(&store, types, include_str!("../sql/once_claims_floor.sql"), values).await;
        assert!(plan.to_string().contains("once_pkey") && pages(&plan) < 60, "{values}: {} {plan:#}", pages(&plan));
    }
    let types = "text, text, text, text, text, text, int";
    for values in [
        "'default', 'plan/7', null, null, 'default', 'plan/9', 51",
        "null, null, null, null, null, null, 51",
        "'default', null, 'default', 'plan/5', null, null, 51",
    ] {
        let plan = explain(&store, types, include_str!("../sql/once_claims.sql"), values).await;
        assert!(plan.to_string().contains("once_pkey") && pages(&plan) < 120, "{values}: {} {plan:#}", pages(&plan));
    }
}
