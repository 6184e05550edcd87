//! An endpoint's own limits, with several claimers at once.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use postrider::store::{AttemptResult, Claim, ClaimRequest, Claimed, EndpointChange, Lane, Operator, Settle};
use postrider::{
    DestinationPolicy, Endpoint, EndpointSettings, NewEndpoint, NewEvent, OutcomeKind, Store, Verdict, WorkerId,
};
use postrider_conformance::wait::within;
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::Executor;
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(120);

fn request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::random(),
        lease: Duration::from_secs(300),
        limit,
        lane_limit: 64,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    }
}

async fn endpoint(store: &PostgresStore, settings: EndpointSettings) -> Endpoint {
    let url = DestinationPolicy::default().check_url("https://hooks.example.com/").unwrap();
    let new = NewEndpoint { tenant: "default".to_owned(), url, event_types: vec!["*".parse().unwrap()], settings };
    store.create_endpoint(new, &Operator("anna".to_owned())).await.unwrap()
}

fn at_a_time(max_in_flight: u32) -> EndpointSettings {
    EndpointSettings { max_in_flight: NonZeroU32::new(max_in_flight), ..EndpointSettings::default() }
}

fn rated(rate: &str) -> EndpointSettings {
    EndpointSettings { rate_limit: Some(rate.parse().unwrap()), ..EndpointSettings::default() }
}

async fn backlog(store: &PostgresStore, endpoint: &Endpoint, count: usize) {
    store.enqueue(vec![NewEvent::new("a.b", "{}").to_endpoint(endpoint.id); count]).await.unwrap();
}

async fn bare_backlog(store: &PostgresStore, host: &str, count: usize) {
    store.enqueue(vec![NewEvent::new("a.b", "{}").to(format!("https://{host}/")); count]).await.unwrap();
}

async fn settle(store: &PostgresStore, worker: &WorkerId, claims: &[Claim]) {
    let settle = |claim: &Claim| Settle {
        lease: claim.lease,
        verdict: Verdict::Delivered,
        attempt: AttemptResult {
            outcome: OutcomeKind::Response,
            status_code: Some(200),
            took: Duration::from_millis(5),
            started_ago: Duration::from_millis(6),
            response_excerpt: None,
            error_detail: None,
        },
        disable_endpoint: false,
        disable_after: None,
    };
    store.settle(worker, &claims.iter().map(settle).collect::<Vec<_>>()).await.unwrap();
}

fn of(claimed: &Claimed, endpoint: &Endpoint) -> usize {
    claimed.claims.iter().filter(|claim| claim.lane == Lane::of_endpoint(endpoint.id)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_claimers_at_once_never_have_more_in_flight_than_the_endpoint_allows() {
    const ALLOWED: u32 = 3;
    let database = TestDatabase::create().await;
    let limited = endpoint(&database.store(), at_a_time(ALLOWED)).await;
    backlog(&database.store(), &limited, 120).await;
    let in_flight = Arc::new(AtomicU32::new(0));
    let done = Arc::new(AtomicU32::new(0));
    let mut claimers = JoinSet::new();
    for _ in 0..4 {
        let store = PostgresStore::connect(database.url()).await.unwrap();
        let (in_flight, done) = (Arc::clone(&in_flight), Arc::clone(&done));
        claimers.spawn(async move {
            let request = request(10);
            while done.load(Ordering::SeqCst) < 120 {
                let claims = store.claim(&request).await.unwrap().claims;
                let count = u32::try_from(claims.len()).unwrap();
                let now = in_flight.fetch_add(count, Ordering::SeqCst) + count;
                assert!(now <= ALLOWED, "{now} in flight at once");
                tokio::task::yield_now().await;
                // They are counted out before they are settled: the claim that follows may be another's.
                in_flight.fetch_sub(count, Ordering::SeqCst);
                settle(&store, &request.worker, &claims).await;
                done.fetch_add(count, Ordering::SeqCst);
            }
        });
    }
    within("120 deliveries", PATIENCE, claimers.join_all()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_claimers_at_once_hand_out_no_more_than_the_rate() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let limited = endpoint(&store, rated("100/s")).await;
    backlog(&store, &limited, 1000).await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(PostgresStore::connect(database.url()).await.unwrap());
    }
    let mut at = jiff::Timestamp::now() + Duration::from_secs(10);
    let mut taken = 0;
    for round in 0..20_usize {
        for store in &stores {
            store.freeze_clock(Some(at));
        }
        let mut claimers = JoinSet::new();
        for store in stores.clone() {
            claimers.spawn(async move {
                let mut taken = 0;
                for _ in 0..5 {
                    taken += store.claim(&request(50)).await.unwrap().claims.len();
                }
                taken
            });
        }
        taken += claimers.join_all().await.into_iter().sum::<usize>();
        // Somebody alone finds whatever those have left because they were in each other's way.
        taken += stores[0].claim(&request(50)).await.unwrap().claims.len();
        assert_eq!(taken, 10 + round * 5, "the burst at first, then five per twentieth of a second");
        at += Duration::from_millis(50);
    }
}

#[tokio::test]
async fn neither_kind_of_lane_starves_the_other() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let limited = endpoint(&store, at_a_time(40)).await;
    backlog(&store, &limited, 200).await;
    bare_backlog(&store, "a.example.com", 500).await;
    let first = store.claim(&request(20)).await.unwrap();
    assert_eq!((first.claims.len(), of(&first, &limited)), (20, 10), "an even share each");
    let full = database.store();
    full.claim(&request(200)).await.unwrap();
    let next = store.claim(&request(20)).await.unwrap();
    assert_eq!((next.claims.len(), of(&next, &limited)), (20, 0), "what the limit leaves unused goes to the others");
    let alone = TestDatabase::create().await;
    let store = alone.store();
    let limited = endpoint(&store, at_a_time(40)).await;
    backlog(&store, &limited, 200).await;
    bare_backlog(&store, "a.example.com", 3).await;
    let claimed = store.claim(&request(30)).await.unwrap();
    assert_eq!((claimed.claims.len(), of(&claimed, &limited)), (30, 27), "and the other way round");
}

#[tokio::test]
async fn a_claim_passes_by_what_another_has_in_its_hands_and_does_not_rest() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let limited = endpoint(&store, at_a_time(5)).await;
    backlog(&store, &limited, 10).await;
    bare_backlog(&store, "a.example.com", 2).await;
    let mut other = store.pool().begin().await.unwrap();
    other.execute("select * from postrider.meters for update").await.unwrap();
    let claimed = within("a claim", PATIENCE, store.claim(&request(20))).await.unwrap();
    assert_eq!((claimed.claims.len(), of(&claimed, &limited)), (2, 0));
    assert!(claimed.cursor.is_some(), "there may be more as soon as the other is done");
    other.rollback().await.unwrap();
    let claimed = store.claim(&request(20)).await.unwrap();
    assert_eq!((of(&claimed, &limited), claimed.cursor), (5, None));
}

#[tokio::test]
async fn a_new_limit_counts_what_is_in_flight_already() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut limited = endpoint(&store, EndpointSettings::default()).await;
    backlog(&store, &limited, 20).await;
    let request = request(4);
    let before = store.claim(&request).await.unwrap().claims;
    limited.settings = at_a_time(5);
    store.replace_endpoint(&limited, EndpointChange::Update, &Operator("anna".to_owned())).await.unwrap().unwrap();
    assert_eq!(store.claim(&request).await.unwrap().claims.len(), 1);
    settle(&store, &request.worker, &before[..2]).await;
    assert_eq!(store.claim(&request).await.unwrap().claims.len(), 2);
}

#[tokio::test]
async fn a_meter_that_is_missing_is_made() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let limited = endpoint(&store, at_a_time(2)).await;
    backlog(&store, &limited, 5).await;
    store.pool().execute("delete from postrider.meters").await.unwrap();
    assert!(store.claim(&request(10)).await.unwrap().claims.is_empty());
    assert_eq!(store.claim(&request(10)).await.unwrap().claims.len(), 2);
}

#[tokio::test]
async fn what_is_in_flight_elsewhere_is_not_read_to_count_an_endpoints_own() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let limited = endpoint(&store, at_a_time(2)).await;
    backlog(&store, &limited, 5).await;
    let many = "insert into postrider.leases (delivery_id, lane, owner, token, lease_until) \
                select gen_random_uuid(), 'x.example.com', 'w', gen_random_uuid(), now() + interval '1 hour' \
                from generate_series(1, 20000)";
    store.pool().execute(many).await.unwrap();
    let mut connection = store.pool().acquire().await.unwrap();
    let prepare = concat!(
        "prepare claim (timestamptz, text, bigint, int, int, text[], int[], bigint[]) as ",
        include_str!("../sql/claim_metered.sql")
    );
    sqlx::raw_sql(prepare).execute(&mut *connection).await.unwrap();
    let lane = Lane::of_endpoint(limited.id).0;
    let explain = format!(
        "explain (analyze, buffers, format json) execute claim (null, 'w', 30000000, 10, 64, '{{{lane}}}', '{{0}}', '{{0}}')"
    );
    let plan: serde_json::Value =
        sqlx::query_scalar(sqlx::AssertSqlSafe(explain)).persistent(false).fetch_one(&mut *connection).await.unwrap();
    let text = plan.to_string();
    assert!(text.contains("leases_metered") && !text.contains("Seq Scan"), "{plan:#}");
    let root = &plan[0]["Plan"];
    let pages = root["Shared Hit Blocks"].as_u64().unwrap() + root["Shared Read Blocks"].as_u64().unwrap();
    assert_eq!(root["Actual Rows"].as_f64(), Some(2.0));
    assert!(pages < 200, "{pages} pages");
}
