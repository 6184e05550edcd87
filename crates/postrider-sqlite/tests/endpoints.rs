//! Endpoints: their secrets in the file, and what of them is left when they are removed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use postrider::store::{AttemptResult, Claim, ClaimRequest, EndpointChange, Operator, Retained, Settle};
use postrider::{
    DeliveryFilter, DeliveryStatus, DestinationPolicy, Endpoint, EndpointId, EndpointSettings, Keyring, KeyringError,
    NewEndpoint, NewEvent, OutcomeKind, Secret, SecretKey, Store, StoreErrorCode, Verdict, WorkerId,
};
use postrider_sqlite::SqliteStore;
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::testing::TestDatabase;

fn operator() -> Operator {
    Operator("kim".to_owned())
}

fn new_endpoint(settings: EndpointSettings) -> NewEndpoint {
    NewEndpoint {
        tenant: "acme".to_owned(),
        url: DestinationPolicy::default().check_url("https://hooks.example.com/billing").unwrap(),
        event_types: vec!["*".parse().unwrap()],
        settings,
    }
}

fn secret() -> EndpointSettings {
    EndpointSettings { secrets: vec![Secret::generate()], ..EndpointSettings::default() }
}

async fn create(store: &SqliteStore, settings: EndpointSettings) -> Endpoint {
    store.create_endpoint(new_endpoint(settings), &operator()).await.unwrap()
}

async fn enqueue(store: &SqliteStore, count: usize, deliver_at: Option<Timestamp>) {
    let event = NewEvent { deliver_at, ..NewEvent::new("invoice.paid", "{}").tenant("acme") };
    for enqueued in store.enqueue(vec![event; count]).await.unwrap() {
        assert_eq!(enqueued.deliveries().len(), 1);
    }
}

fn worker() -> WorkerId {
    WorkerId::new("w1").unwrap()
}

async fn claim(store: &SqliteStore, limit: u32) -> Vec<Claim> {
    let request = ClaimRequest {
        worker: worker(),
        lease: Duration::from_secs(30),
        limit,
        lane_limit: 100,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    };
    store.claim(&request).await.unwrap().claims
}

fn failed(claim: &Claim) -> Settle {
    Settle {
        lease: claim.lease,
        verdict: Verdict::Retry { after: Duration::from_secs(60) },
        attempt: AttemptResult {
            outcome: OutcomeKind::Timeout,
            status_code: None,
            took: Duration::from_secs(1),
            started_ago: Duration::from_secs(1),
            response_excerpt: None,
            error_detail: Some("timeout".to_owned()),
        },
        disable_endpoint: false,
        disable_after: None,
    }
}

#[tokio::test]
async fn without_a_key_no_secret_is_written_and_everything_else_works() {
    let database = TestDatabase::create().await;
    let store = database.store().clone().with_keyring(Keyring::default());
    let error = store.create_endpoint(new_endpoint(secret()), &operator()).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::SecretKey);
    assert!(error.message.contains("secret_key") && error.message.contains("openssl"), "{error}");

    let plain = create(&store, EndpointSettings::default()).await;
    let with_secret = Endpoint { settings: secret(), ..plain.clone() };
    let error = store.replace_endpoint(&with_secret, EndpointChange::RotateSecret, &operator()).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::SecretKey);
    assert_eq!(store.endpoint(plain.id).await.unwrap(), Some(plain));

    let sealed = create(database.store(), secret()).await;
    let read = store.endpoint(sealed.id).await.unwrap().unwrap();
    assert!(read.trouble.unwrap().starts_with("secret_key_unknown"));
    assert_eq!(read.settings, EndpointSettings::default());
}

#[tokio::test]
async fn a_secret_is_not_in_the_file() {
    let database = TestDatabase::create().await;
    let settings = secret();
    let text = settings.secrets[0].reveal();
    let endpoint = create(database.store(), settings).await;
    let mut rotated = endpoint.clone();
    let next = Secret::generate();
    rotated.settings.rotate(next.clone(), Timestamp::now(), Timestamp::now() + Duration::from_secs(60));
    database.store().replace_endpoint(&rotated, EndpointChange::RotateSecret, &operator()).await.unwrap().unwrap();
    for path in [database.path().to_owned(), database.path().with_extension("db-wal")] {
        let bytes = std::fs::read(path).unwrap();
        for secret in [&text, &next.reveal()] {
            let needle = secret.strip_prefix("whsec_").unwrap().as_bytes();
            assert!(!bytes.windows(needle.len()).any(|window| window == needle));
        }
    }
    let stored = database.store().endpoint(endpoint.id).await.unwrap().unwrap();
    assert_eq!(stored.settings.signing_secrets(Timestamp::now())[0], next);
}

fn overwrite(path: &Path, id: EndpointId, settings: &str) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "ignore_check_constraints", true).unwrap();
    let change = "update postrider_endpoints set settings = ?2 where id = ?1";
    assert_eq!(connection.execute(change, (id.as_uuid(), settings)).unwrap(), 1);
}

/// A claim does not read the same settings twice, but it never acts by settings that are no longer there.
#[tokio::test]
async fn a_claim_sees_every_change_of_an_endpoint_whoever_made_it() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let endpoint = create(store, secret()).await;
    enqueue(store, 5, None).await;
    let claimed = claim(store, 1).await[0].endpoint.clone().unwrap();
    assert_eq!(*claimed, endpoint);

    let elsewhere = SqliteStore::open(database.path()).unwrap().with_keyring(postrider_sqlite::testing::keyring());
    let changed = Endpoint { settings: secret(), ..endpoint.clone() };
    let changed = elsewhere.replace_endpoint(&changed, EndpointChange::RotateSecret, &operator()).await.unwrap();
    let changed = changed.unwrap();
    assert_eq!(changed.revision, endpoint.revision + 1);
    assert_eq!(**claim(store, 1).await[0].endpoint.as_ref().unwrap(), changed);

    let stranger = Keyring::new([SecretKey::generate()]);
    let foreign = secret().to_stored(&stranger, "acme").unwrap();
    for (text, said) in [("not JSON", "settings_damaged"), (foreign.as_str(), "secret_key_unknown")] {
        overwrite(database.path(), endpoint.id, text);
        let claimed = claim(store, 1).await[0].endpoint.clone().unwrap();
        assert!(claimed.trouble.as_deref().unwrap().starts_with(said), "{:?}", claimed.trouble);
        assert_eq!(claimed.settings, EndpointSettings::default());
    }
    let moved = secret().to_stored(&postrider_sqlite::testing::keyring(), "globex").unwrap();
    overwrite(database.path(), endpoint.id, &moved);
    let claimed = claim(store, 1).await[0].endpoint.clone().unwrap();
    assert_eq!(claimed.trouble.as_deref(), Some(KeyringError::Damaged.to_string().as_str()), "another tenant's secret");
}

async fn retain_all(store: &SqliteStore, limit: u32) -> u64 {
    let mut cancelled = 0;
    let mut next = None;
    for _ in 0..1000 {
        let step: Retained = store.retain(Duration::MAX, next, limit).await.unwrap();
        assert!(step.cancelled <= u64::from(limit), "a step is bounded");
        assert_eq!((step.events, step.deliveries), (0, 0));
        cancelled += step.cancelled;
        next = step.next;
        if next.is_none() {
            return cancelled;
        }
    }
    panic!("it comes to an end");
}

#[tokio::test]
async fn what_a_removed_endpoint_leaves_behind_is_cancelled_in_bounded_steps() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let later = Some(Timestamp::now() + Duration::from_secs(3600));
    let other = create(store, EndpointSettings::default()).await;
    enqueue(store, 30, later).await;
    store.set_endpoint_status(other.id, postrider::EndpointStatus::Disabled, None, &operator()).await.unwrap();
    let endpoint = create(store, secret()).await;
    enqueue(store, 700, None).await;
    enqueue(store, 1500, later).await;
    let in_flight = claim(store, 3).await;

    assert!(store.remove_endpoint(endpoint.id, &operator()).await.unwrap());
    let count = async |status| {
        let filter =
            DeliveryFilter { endpoint_id: Some(endpoint.id), status: Some(status), ..DeliveryFilter::default() };
        store.count_deliveries(&filter).await.unwrap()
    };
    assert_eq!(count(DeliveryStatus::Cancelled).await, 1000, "at once");
    assert_eq!(retain_all(store, 50).await, 2200 - 3 - 1000);
    assert_eq!(count(DeliveryStatus::Cancelled).await, 2197);

    // One is settled and would be tried again, one is given back, one lapses.
    store.settle(&worker(), &[failed(&in_flight[0])]).await.unwrap();
    assert_eq!(store.release(&worker(), &[in_flight[1].lease]).await.unwrap(), 1);
    assert_eq!(retain_all(store, 50).await, 2, "the third is still in flight");
    store.freeze_clock(Some(Timestamp::now() + Duration::from_secs(60)));
    assert_eq!(store.recover(10, 100).await.unwrap().returned, 1);
    assert_eq!(retain_all(store, 50).await, 1);
    assert_eq!(count(DeliveryStatus::Cancelled).await, 2200);
    let why = store.delivery(in_flight[0].lease.delivery_id).await.unwrap().unwrap().delivery.error_detail;
    assert_eq!(why.as_deref(), Some("the endpoint was removed"));

    let connection = Connection::open(database.path()).unwrap();
    let rows = || {
        let query = "select count(*), max(settings) from postrider_endpoints where status = 'removed'";
        connection.query_row(query, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?))).unwrap()
    };
    assert_eq!(rows(), (1, Some("{}".to_owned())), "deliveries still name it");
    store.freeze_clock(Some(Timestamp::now() + Duration::from_secs(120)));
    let mut next = None;
    while let Some(place) = store.retain(Duration::ZERO, next, 500).await.unwrap().next {
        next = Some(place);
    }
    assert_eq!(rows(), (0, None), "nobody names it any more");
    let overview = store.overview(None).await.unwrap();
    assert_eq!((overview.scheduled, overview.cancelled), (30, 0), "the other endpoint's are untouched");
}
