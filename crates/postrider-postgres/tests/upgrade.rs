//! A database that an earlier program has used.

use std::time::Duration;

use postrider::store::{ClaimRequest, FeedPlace};
use postrider::{DeliveryStatus, EndpointId, PageRequest, Store, WorkerId};
use postrider_postgres::testing::TestDatabase;
use sqlx::Executor;
use uuid::Uuid;

/// What an earlier program left: an endpoint with a limit and a secret in the clear, a delivery in each state that matters,
/// an audit trail, and what remains of an event that retention has removed.
const LEFT_BEHIND: &str = "
insert into postrider.endpoints (id, tenant, url, event_types, settings, max_in_flight, created_at) values
  ('0190a5d2-0000-7000-8000-000000000001', 'acme', 'https://hooks.example.com/', '{*}',
   '{\"secrets\":[\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"],\"max_in_flight\":2}', 2, now());
insert into postrider.events (id, tenant, type, payload, metadata, topic, created_at) values
  ('0190a5d2-0000-7000-8000-000000000002', 'acme', 'a.b', '{}', '{}', 'postrider', now());
insert into postrider.deliveries (id, event_id, tenant, endpoint_id, destination_url, lane, status, next_attempt_at, created_at)
select d.id, '0190a5d2-0000-7000-8000-000000000002', 'acme', '0190a5d2-0000-7000-8000-000000000001',
       'https://hooks.example.com/', '0190a5d2-0000-7000-8000-000000000001', d.status, d.next_attempt_at, now()
from (values ('0190a5d2-0000-7000-8000-000000000011'::uuid, 'pending', now()),
             ('0190a5d2-0000-7000-8000-000000000012', 'pending', now()),
             ('0190a5d2-0000-7000-8000-000000000013', 'pending', now()),
             ('0190a5d2-0000-7000-8000-000000000014', 'cancelled', null)) as d (id, status, next_attempt_at);
insert into postrider.ready (lane, delivery_id) values
  ('0190a5d2-0000-7000-8000-000000000001', '0190a5d2-0000-7000-8000-000000000011'),
  ('0190a5d2-0000-7000-8000-000000000001', '0190a5d2-0000-7000-8000-000000000012');
insert into postrider.leases (delivery_id, lane, owner, token, lease_until) values
  ('0190a5d2-0000-7000-8000-000000000013', '0190a5d2-0000-7000-8000-000000000001', 'w', gen_random_uuid(),
   now() + interval '1 hour');
insert into postrider.audit (id, at, operator, action, subject) values
  ('0190a5d2-0000-7000-8000-000000000021', now(), 'anna', 'delivery.cancel', '0190a5d2-0000-7000-8000-000000000014'),
  ('0190a5d2-0000-7000-8000-000000000022', now(), 'anna', 'endpoint.pause', '0190a5d2-0000-7000-8000-000000000001'),
  ('0190a5d2-0000-7000-8000-000000000023', now(), 'anna', 'delivery.retry', '0190a5d2-0000-7000-8000-0000000000ff');
insert into postrider.removed_events (event_id, topic, metadata, last_announced_at) values
  ('0190a5d2-0000-7000-8000-000000000031', 'postrider', '{}', now());
insert into postrider.announcements (fact, delivery_id, event_id, attempt_count, at) values
  ('delivery.delivered', '0190a5d2-0000-7000-8000-000000000032', '0190a5d2-0000-7000-8000-000000000031', 1, now()),
  ('delivery.cancelled', '0190a5d2-0000-7000-8000-000000000014', '0190a5d2-0000-7000-8000-000000000002', 0, now());
";

#[tokio::test]
async fn what_an_earlier_program_left_is_carried_over() {
    let database = TestDatabase::create_empty().await;
    let store = database.store();
    sqlx::raw_sql(include_str!("../sql/migrations_create.sql")).execute(store.pool()).await.unwrap();
    let first = include_str!("../migrations/0001_places.sql");
    sqlx::raw_sql(first).execute(store.pool()).await.unwrap();
    sqlx::query("insert into postrider.migrations (version, name, sha256) values (1, 'places', sha256($1))")
        .bind(first.as_bytes())
        .execute(store.pool())
        .await
        .unwrap();
    store.pool().execute(LEFT_BEHIND).await.unwrap();

    let rest = ["0002_server", "0003_admission", "0004_functions", "0005_views", "0006_bounds", "0007_announced"];
    assert_eq!(store.pending_migrations().await.unwrap(), rest);
    assert_eq!(store.migrate().await.unwrap(), rest);
    store.health().await.unwrap();

    let id = |last: u8| Uuid::from_u128(0x0190_a5d2_0000_7000_8000_0000_0000_0000 | u128::from(last));
    let endpoint = store.endpoint(EndpointId::from_uuid(id(1))).await.unwrap().unwrap();
    let trouble = endpoint.trouble.expect("a secret in the clear is not taken for an encrypted one");
    assert!(!trouble.contains("MfKQ9r8G"), "{trouble}");
    assert_eq!(endpoint.revision, 1);

    let overview = store.overview(Some("acme")).await.unwrap();
    assert_eq!((overview.pending, overview.cancelled, overview.delivered), (3, 1, 0));
    let audit = store.audit(None, &PageRequest::default()).await.unwrap().items;
    let told: Vec<_> = audit.iter().map(|entry| (entry.action.as_str(), entry.tenant.as_deref())).collect();
    assert_eq!(
        told,
        [("delivery.retry", None), ("endpoint.pause", Some("acme")), ("delivery.cancel", Some("acme"))],
        "whose a delivery was that is gone cannot be known"
    );
    assert_eq!(audit[1].subject, endpoint.id.to_string());
    assert!(audit[2].subject.starts_with("dlv_"));
    let announced = store.announcements(&FeedPlace::default(), 10).await.unwrap().announcements;
    let tenants: Vec<_> = announced.iter().map(|told| told.tenant.as_str()).collect();
    assert_eq!(tenants, ["", "acme"], "what cannot be known is nobody's");
    let read = async |position, gaps| {
        let place = FeedPlace { position, gaps };
        let told = store.announcements(&place, 10).await.unwrap().announcements;
        told.iter().map(|told| told.position).collect::<Vec<_>>()
    };
    assert_eq!(read(0, Vec::new()).await, [1, 2]);
    assert_eq!(read(1, Vec::new()).await, [2], "a place from before holds");
    assert_eq!(read(2, vec![(1, 1)]).await, [1], "and so does a gap");

    let request = ClaimRequest {
        worker: WorkerId::random(),
        lease: Duration::from_secs(30),
        limit: 10,
        lane_limit: 10,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    };
    let claims = store.claim(&request).await.unwrap().claims;
    assert_eq!(claims.len(), 1, "its limit is two, and one was in flight before");
    assert!(claims[0].endpoint.as_ref().unwrap().trouble.is_some());
    let cancelled = store.delivery(postrider::DeliveryId::from_uuid(id(0x14))).await.unwrap().unwrap().delivery;
    assert_eq!(cancelled.status, DeliveryStatus::Cancelled);
}
