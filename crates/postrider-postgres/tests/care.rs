//! Since when an endpoint fails, when one settle brings successes and failures of it.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use postrider::store::{AttemptResult, ClaimRequest, Operator, Settle, Settlement};
use postrider::{
    DestinationPolicy, EndpointId, EndpointSettings, EndpointStatus, NewEndpoint, NewEvent, OutcomeKind, Store,
    Verdict, WorkerId,
};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;

const OK: Verdict = Verdict::Delivered;
const BAD: Verdict = Verdict::Dead;

/// Sends as many events as there are verdicts, and settles them in one call, in this order.
async fn attempt(store: &PostgresStore, id: EndpointId, verdicts: &[Verdict]) {
    let worker = WorkerId::random();
    let events = vec![NewEvent::new("a.b", "{}").to_endpoint(id); verdicts.len()];
    store.enqueue(events).await.unwrap();
    let lease = Duration::from_mins(1);
    let request = ClaimRequest {
        worker: worker.clone(),
        lease,
        limit: 99,
        lane_limit: 99,
        in_flight: vec![],
        ahead: vec![],
        after: None,
    };
    let claims = store.claim(&request).await.unwrap().claims;
    assert_eq!(claims.len(), verdicts.len());
    let settle = |(claim, verdict): (&postrider::store::Claim, &Verdict)| {
        let attempt = AttemptResult {
            outcome: OutcomeKind::Response,
            status_code: Some(if *verdict == OK { 200 } else { 500 }),
            took: Duration::from_millis(5),
            started_ago: Duration::from_millis(6),
            response_excerpt: None,
            error_detail: (*verdict != OK).then(|| "HTTP 500".to_owned()),
        };
        let disable_after = Some(Duration::from_hours(1));
        Settle { lease: claim.lease, verdict: *verdict, attempt, disable_endpoint: false, disable_after }
    };
    let settles: Vec<Settle> = claims.iter().zip(verdicts).map(settle).collect();
    let settled = store.settle(&worker, &settles).await.unwrap();
    assert!(settled.iter().all(|settlement| *settlement == Settlement::Applied));
}

#[tokio::test]
async fn the_last_result_of_a_list_says_whether_an_endpoint_fails_and_a_success_in_it_since_when() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let new = NewEndpoint {
        tenant: "default".to_owned(),
        url: DestinationPolicy::default().check_url("https://hooks.example.com/").unwrap(),
        event_types: vec!["*".parse().unwrap()],
        settings: EndpointSettings::default(),
    };
    let id = store.create_endpoint(new, &Operator("anna".to_owned())).await.unwrap().id;
    let begin = Timestamp::from_second(2_000_000_000).unwrap();
    let minute = |number: i64| begin + SignedDuration::from_mins(number);
    // Minute, results, and since which minute it fails then.
    let course: [(i64, &[Verdict], Option<i64>); 9] = [
        (0, &[OK, OK], None),
        (1, &[OK, BAD], Some(1)),
        (2, &[BAD, BAD], Some(1)),
        (3, &[BAD, OK, BAD], Some(3)),
        (4, &[BAD, OK], None),
        (5, &[BAD, BAD, OK, OK], None),
        (6, &[BAD], Some(6)),
        // An hour is over, but a success lies between.
        (70, &[BAD, OK, BAD], Some(70)),
        (80, &[BAD], Some(70)),
    ];
    for (now, verdicts, since) in course {
        store.freeze_clock(Some(minute(now)));
        attempt(&store, id, verdicts).await;
        let endpoint = store.endpoint(id).await.unwrap().unwrap();
        assert_eq!(
            (endpoint.status, endpoint.failing_since),
            (EndpointStatus::Active, since.map(minute)),
            "minute {now}"
        );
    }
    store.freeze_clock(Some(minute(131)));
    attempt(&store, id, &[BAD, BAD]).await;
    assert_eq!(store.endpoint(id).await.unwrap().unwrap().status, EndpointStatus::Disabled);
}
