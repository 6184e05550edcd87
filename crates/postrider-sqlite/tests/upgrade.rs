//! A file of an earlier program, with everything in it, is carried over.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use postrider::store::{ClaimRequest, Operator};
use postrider::{EndpointFilter, EndpointId, EndpointStatus, EventFilter, NewEvent, PageRequest, Store, WorkerId};
use postrider_sqlite::SqliteStore;
use postrider_sqlite::rusqlite::Connection;
use sha2::{Digest, Sha256};
use uuid::Uuid;

const FIRST: &str = include_str!("../migrations/0001_places.sql");

/// Two tenants with an endpoint each, one event with a delivery each, of which one is dead and one is ready, and an
/// announcement that has outlived its event. The newest announcement, of position 41, is gone.
const CONTENT: &str = "
insert into postrider_endpoints values
  (x'01900000000070008000000000000001', 'acme', 'https://acme.example.com/', '[\"*\"]', 'active', null, '{}', 1000),
  (x'01900000000070008000000000000002', 'globex', 'https://globex.example.com/', '[\"invoice.*\"]', 'disabled',
   'the receiver answered 410 Gone', '{\"description\":\"kept\"}', 2000);
insert into postrider_events values
  (x'01900000000070008000000000000011', 'acme', 'invoice.paid', x'7b7d', '{}', 'postrider', 3000),
  (x'01900000000070008000000000000012', 'globex', 'invoice.paid', x'7b7d', '{}', 'postrider', 4000);
insert into postrider_deliveries
  (id, event_id, tenant, endpoint_id, lane, destination_url, status, attempt_count, next_attempt_at, last_attempted_at,
   created_at)
values
  (x'01900000000070008000000000000021', x'01900000000070008000000000000011', 'acme',
   x'01900000000070008000000000000001', '01900000-0000-7000-8000-000000000001', 'https://acme.example.com/', 'pending', 0,
   3000, null, 3000),
  (x'01900000000070008000000000000022', x'01900000000070008000000000000012', 'globex',
   x'01900000000070008000000000000002', '01900000-0000-7000-8000-000000000002', 'https://globex.example.com/', 'dead', 5,
   null, 4500, 4000);
insert into postrider_ready values
  ('01900000-0000-7000-8000-000000000001', 1, x'01900000000070008000000000000021');
insert into postrider_dead_letters values (x'01900000000070008000000000000022', 'exhausted', 4500);
insert into postrider_announcements values
  (39, 'postrider', 'delivery.delivered', x'01900000000070008000000000000029', x'01900000000070008000000000000019', null, 1,
   '{}', 4000),
  (40, 'postrider', 'delivery.dead', x'01900000000070008000000000000022', x'01900000000070008000000000000012',
   x'01900000000070008000000000000002', 5, '{\"order\":7}', 4500),
  (41, 'postrider', 'delivery.dead', x'01900000000070008000000000000022', x'01900000000070008000000000000012', null, 5, '{}',
   4600);
delete from postrider_announcements where position = 41;
insert into postrider_audit values
  (x'01900000000070008000000000000031', 5000, 'kim', 'endpoint.disable', 'ep_1', 'too slow');
create table partners (endpoint_id blob references postrider_endpoints (id));
";

fn file_of_the_first_program(path: &Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(FIRST).unwrap();
    let sha256 = Sha256::digest(FIRST).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    });
    connection
        .execute_batch(&format!(
            "create table postrider_migrations (version integer not null primary key, name text not null,
               sha256 text not null, applied_at integer not null) strict;
             insert into postrider_migrations values (1, '0001_places', '{sha256}', 0);"
        ))
        .unwrap();
    connection.execute_batch(CONTENT).unwrap();
}

#[tokio::test]
async fn a_file_of_the_first_program_is_carried_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    file_of_the_first_program(&path);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.pending_migrations().await.unwrap(), ["0002_server", "0003_checks"]);
    assert_eq!(store.migrate().await.unwrap(), ["0002_server", "0003_checks"]);
    store.check_schema().await.unwrap();

    let page = PageRequest::default();
    let endpoints = store.endpoints(&EndpointFilter::default(), &page).await.unwrap().items;
    let shown: Vec<_> = endpoints.iter().map(|endpoint| (endpoint.tenant.as_str(), endpoint.status)).collect();
    assert_eq!(shown, [("globex", EndpointStatus::Disabled), ("acme", EndpointStatus::Active)]);
    assert_eq!(endpoints[0].status_reason.as_deref(), Some("the receiver answered 410 Gone"));
    assert_eq!(endpoints[0].settings.description, "kept");
    assert!(endpoints.iter().all(|endpoint| endpoint.revision == 1 && endpoint.failing_since.is_none()));

    let of_globex = EventFilter { tenant: Some("globex".to_owned()), ..EventFilter::default() };
    assert_eq!(store.events(&of_globex, &page, 1000).await.unwrap().items.len(), 1);
    let overview = store.overview(None).await.unwrap();
    assert_eq!((overview.pending, overview.dead), (1, 1));

    let trail = store.audit(None, &page).await.unwrap().items;
    assert_eq!((trail[0].action.as_str(), trail[0].tenant.as_deref()), ("endpoint.disable", None));
    assert_eq!(trail[0].reason.as_deref(), Some("too slow"));
    assert!(store.audit(Some("globex"), &page).await.unwrap().items.is_empty());

    let announced = store.announcements(&"0".parse().unwrap(), 10).await.unwrap().announcements;
    assert_eq!(announced.len(), 1, "the one whose tenant can be told");
    assert_eq!((announced[0].position, announced[0].tenant.as_str()), (40, "globex"));
    assert_eq!(announced[0].metadata["order"], 7);
}

#[tokio::test]
async fn what_was_waiting_is_delivered_after_the_upgrade() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    file_of_the_first_program(&path);
    let store = SqliteStore::open(&path).unwrap();
    store.migrate().await.unwrap();
    let request = ClaimRequest {
        worker: WorkerId::new("w1").unwrap(),
        lease: Duration::from_secs(30),
        limit: 10,
        lane_limit: 10,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    };
    let claims = store.claim(&request).await.unwrap().claims;
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].endpoint.as_ref().unwrap().url, "https://acme.example.com/");

    // Positions go on behind the newest that was ever given out, so that nobody who follows misses what comes next.
    let operator = Operator("kim".to_owned());
    store.cancel(claims[0].lease.delivery_id, "not wanted", &operator).await.unwrap();
    let told = store.announcements(&"41".parse().unwrap(), 10).await.unwrap().announcements;
    assert_eq!((told[0].position, told[0].tenant.as_str()), (42, "acme"));
    let fan_out = store.enqueue(vec![NewEvent::new("invoice.paid", "{}").tenant("acme")]).await.unwrap();
    assert_eq!(fan_out[0].deliveries().len(), 1);
}

#[tokio::test]
async fn an_applications_own_references_survive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    file_of_the_first_program(&path);
    let store = SqliteStore::open(&path).unwrap();
    store.migrate().await.unwrap();
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "foreign_keys", true).unwrap();
    let known = EndpointId::from_uuid(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001));
    assert_eq!(connection.execute("insert into partners values (?1)", [known.as_uuid()]).unwrap(), 1);
    connection.execute("insert into partners values (?1)", [Uuid::nil()]).unwrap_err();
    let leftovers = "select count(*) from sqlite_schema where name like '%\\_0002' escape '\\'";
    assert_eq!(connection.query_row(leftovers, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}
