//! Endpoints that are removed while others are still at them.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use postrider::store::{AttemptResult, ClaimRequest, Operator, Retained, Settle, Settlement};
use postrider::{
    DeliveryStatus, DestinationPolicy, Endpoint, EndpointSettings, Fact, NewEndpoint, NewEvent, OutcomeKind,
    PageRequest, Secret, Store, Verdict, WorkerId,
};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::Executor;

const FOR_EVER: Duration = Duration::MAX;

fn anna() -> Operator {
    Operator("anna".to_owned())
}

async fn endpoint(store: &PostgresStore) -> Endpoint {
    let url = DestinationPolicy::default().check_url("https://hooks.example.com/").unwrap();
    let settings = EndpointSettings { secrets: vec![Secret::generate()], ..EndpointSettings::default() };
    let new = NewEndpoint { tenant: "default".to_owned(), url, event_types: vec!["*".parse().unwrap()], settings };
    store.create_endpoint(new, &anna()).await.unwrap()
}

fn event() -> NewEvent {
    NewEvent::new("a.b", "{}")
}

fn request(worker: &WorkerId) -> ClaimRequest {
    let lease = Duration::from_secs(30);
    ClaimRequest {
        worker: worker.clone(),
        lease,
        limit: 100,
        lane_limit: 100,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    }
}

async fn cancelled(store: &PostgresStore) -> i64 {
    let query = "select count(*) from postrider.deliveries \
                 where status = 'cancelled' and error_detail = 'the endpoint was removed'";
    sqlx::query_scalar(query).fetch_one(store.pool()).await.unwrap()
}

#[tokio::test]
async fn a_long_queue_is_cancelled_in_steps_each_told() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let removed = endpoint(&store).await;
    let later = jiff::Timestamp::now() + Duration::from_secs(86_400);
    store.enqueue(vec![event(); 1_200]).await.unwrap();
    store.enqueue(vec![event().deliver_at(later); 900]).await.unwrap();
    assert!(store.remove_endpoint(removed.id, &anna()).await.unwrap());
    assert_eq!(cancelled(&store).await, 1_000, "some at once");
    let mut steps = Vec::new();
    loop {
        let Retained { cancelled, .. } = store.retain(FOR_EVER, None, 400).await.unwrap();
        steps.push(cancelled);
        if cancelled == 0 {
            break;
        }
    }
    assert_eq!(steps, [400, 400, 300, 0]);
    assert_eq!(cancelled(&store).await, 2_100);
    let overview = store.overview(None).await.unwrap();
    assert_eq!((overview.cancelled, overview.due, overview.scheduled), (2_100, 0, 0));
    let told = store.announcements(&postrider::store::FeedPlace::default(), 5_000).await.unwrap().announcements;
    assert_eq!(told.iter().filter(|told| told.fact == Fact::Cancelled).count(), 2_100);
}

#[tokio::test]
async fn nothing_of_its_secrets_is_left() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let removed = endpoint(&store).await;
    store.remove_endpoint(removed.id, &anna()).await.unwrap();
    let kept: String =
        sqlx::query_scalar("select e::text from postrider.endpoints e").fetch_one(store.pool()).await.unwrap();
    assert!(!kept.contains("sealed"), "{kept}");
}

#[tokio::test]
async fn who_had_read_the_endpoint_before_and_commits_later_leaves_nothing_behind() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let removed = endpoint(&store).await;
    let mut late = store.pool().begin().await.unwrap();
    let later = jiff::Timestamp::now() + Duration::from_secs(3_600);
    store.enqueue_all_in(&mut late, vec![event(), event().deliver_at(later)]).await.unwrap();
    store.remove_endpoint(removed.id, &anna()).await.unwrap();
    late.commit().await.unwrap();
    let claimed = store.claim(&request(&WorkerId::random())).await.unwrap();
    assert!(claimed.claims.is_empty(), "its lane is passed by");
    assert_eq!(store.retain(FOR_EVER, None, 100).await.unwrap().cancelled, 2);
}

#[tokio::test]
async fn what_was_in_flight_is_settled_and_not_tried_again() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let worker = WorkerId::random();
    let removed = endpoint(&store).await;
    store.enqueue(vec![event(); 2]).await.unwrap();
    let claims = store.claim(&request(&worker)).await.unwrap().claims;
    store.remove_endpoint(removed.id, &anna()).await.unwrap();
    assert_eq!(cancelled(&store).await, 0);
    let settle = |number: usize, verdict| Settle {
        lease: claims[number].lease,
        verdict,
        attempt: AttemptResult {
            outcome: OutcomeKind::Response,
            status_code: Some(200),
            took: Duration::ZERO,
            started_ago: Duration::ZERO,
            response_excerpt: None,
            error_detail: None,
        },
        disable_endpoint: true,
        disable_after: Some(Duration::ZERO),
    };
    let settles = [settle(0, Verdict::Delivered), settle(1, Verdict::Retry { after: Duration::from_secs(3_600) })];
    assert_eq!(store.settle(&worker, &settles).await.unwrap(), [Settlement::Applied; 2]);
    assert_eq!(store.retain(FOR_EVER, None, 100).await.unwrap().cancelled, 1);
    let delivery = store.delivery(claims[1].lease.delivery_id).await.unwrap().unwrap().delivery;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Cancelled, 1));
    assert!(store.endpoint(removed.id).await.unwrap().is_none(), "it is not there, disabled or otherwise");
    let told = store.announcements(&postrider::store::FeedPlace::default(), 100).await.unwrap().announcements;
    assert!(told.iter().all(|told| told.fact != Fact::EndpointDisabled));
}

#[tokio::test]
async fn an_expired_lease_of_it_is_cancelled_too_and_then_it_is_cleared_and_goes() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let now = jiff::Timestamp::now();
    store.freeze_clock(Some(now));
    let removed = endpoint(&store).await;
    store.enqueue(vec![event()]).await.unwrap();
    store.claim(&request(&WorkerId::random())).await.unwrap();
    store.remove_endpoint(removed.id, &anna()).await.unwrap();
    store.freeze_clock(Some(now + Duration::from_secs(7_200)));
    store.retain(FOR_EVER, None, 100).await.unwrap();
    let is_cleared = "select is_cleared from postrider.endpoints";
    let cleared: bool = sqlx::query_scalar(is_cleared).fetch_one(store.pool()).await.unwrap();
    assert!(!cleared, "one is still in flight");
    store.recover(100, 10).await.unwrap();
    assert_eq!(store.retain(FOR_EVER, None, 100).await.unwrap().cancelled, 1);
    store.retain(FOR_EVER, None, 100).await.unwrap();
    assert!(sqlx::query_scalar::<_, bool>(is_cleared).fetch_one(store.pool()).await.unwrap());

    store.freeze_clock(Some(now + Duration::from_secs(86_400)));
    for _ in 0..2 {
        store.retain(Duration::from_secs(3_600), None, 100).await.unwrap();
    }
    let left: i64 =
        sqlx::query_scalar("select count(*) from postrider.endpoints").fetch_one(store.pool()).await.unwrap();
    assert_eq!(left, 0, "its deliveries are gone, and so is its row");
    assert!(
        store
            .events(&postrider::EventFilter::default(), &PageRequest::default(), 1_000)
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn a_delivery_whose_endpoint_is_gone_without_a_trace_is_handed_out_with_the_trouble_told() {
    let database = TestDatabase::create().await;
    let store = database.store();
    endpoint(&store).await;
    store.enqueue(vec![event()]).await.unwrap();
    store.pool().execute("delete from postrider.endpoints").await.unwrap();
    let claims = store.claim(&request(&WorkerId::random())).await.unwrap().claims;
    let shown = claims[0].endpoint.as_ref().expect("never as if it had been a bare destination");
    assert!(shown.trouble.is_some() && shown.settings.secrets.is_empty());
}
