//! What is said about the file, its dispatcher and its secrets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]

use postrider::store::{Finding, FindingLevel, Operator};
use postrider::{
    DestinationPolicy, EndpointSettings, Keyring, NewEndpoint, NewEvent, Secret, SecretKey, Store, StoreErrorCode,
    WorkerId,
};
use postrider_sqlite::SqliteStore;
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::testing::TestDatabase;

async fn look(store: &SqliteStore, check: &str) -> Finding {
    let findings = store.diagnose().await.unwrap();
    let finding = findings.iter().find(|finding| finding.check == check);
    finding.unwrap_or_else(|| panic!("{check} in {findings:#?}")).clone()
}

async fn register(store: &SqliteStore) -> String {
    let endpoint = NewEndpoint {
        tenant: "acme".to_owned(),
        url: DestinationPolicy::default().check_url("https://hooks.example.com/").unwrap(),
        event_types: vec!["*".parse().unwrap()],
        settings: EndpointSettings { secrets: vec![Secret::generate()], ..EndpointSettings::default() },
    };
    store.create_endpoint(endpoint, &Operator("kim".to_owned())).await.unwrap().id.to_string()
}

#[tokio::test]
async fn a_new_file_is_fine() {
    let database = TestDatabase::create().await;
    register(database.store()).await;
    let findings = database.store().diagnose().await.unwrap();
    let checks: Vec<_> = findings.iter().map(|finding| finding.check).collect();
    assert_eq!(
        checks,
        [
            "sqlite_version",
            "journal_mode",
            "integrity",
            "write_ahead_log",
            "disk_space",
            "schema",
            "dispatcher",
            "endpoint_settings",
            "secret_key"
        ]
    );
    // The machine's disk may be fuller than it should be.
    let fine = |finding: &&Finding| finding.check == "disk_space" || finding.level == FindingLevel::Ok;
    assert_eq!(findings.iter().find(|finding| !fine(finding)), None);
}

#[tokio::test]
async fn it_says_who_dispatches_and_when_somebody_should() {
    let database = TestDatabase::create().await;
    let store = database.store();
    store.enqueue(vec![NewEvent::new("invoice.paid", "{}").to("https://hooks.example.com/")]).await.unwrap();
    let nobody = look(store, "dispatcher").await;
    assert_eq!(nobody.level, FindingLevel::Warning);
    assert!(nobody.hint.unwrap().contains("postrider dispatch"));

    let guard = store.start_dispatching(&WorkerId::new("w1").unwrap()).await.unwrap();
    let somebody = look(store, "dispatcher").await;
    assert_eq!(somebody.level, FindingLevel::Ok);
    assert!(somebody.detail.contains(&std::process::id().to_string()), "{somebody:?}");
    drop(guard);
    store.start_dispatching(&WorkerId::new("w2").unwrap()).await.expect("to look is not to keep the lock");
}

#[tokio::test]
async fn secrets_of_an_older_key_and_of_an_unknown_one_are_told_apart() {
    let database = TestDatabase::create().await;
    let [older, newer] = [SecretKey::generate(), SecretKey::generate()];
    let before = database.store().clone().with_keyring(Keyring::new([older.clone()]));
    let id = register(&before).await;

    let rotating = database.store().clone().with_keyring(Keyring::new([newer.clone(), older]));
    assert_eq!(look(&rotating, "endpoint_settings").await.level, FindingLevel::Ok);
    let outdated = look(&rotating, "secret_key").await;
    assert!(outdated.level == FindingLevel::Warning && outdated.detail.contains(&id), "{outdated:?}");

    let too_soon = database.store().clone().with_keyring(Keyring::new([newer]));
    let unreadable = look(&too_soon, "endpoint_settings").await;
    assert!(unreadable.level == FindingLevel::Problem && unreadable.detail.contains(&id), "{unreadable:?}");
    assert_eq!(look(&too_soon, "secret_key").await.level, FindingLevel::Ok, "counted once");
}

#[tokio::test]
async fn a_damaged_file_and_one_without_tables_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("empty.db")).unwrap();
    let schema = look(&store, "schema").await;
    assert!(schema.level == FindingLevel::Problem && schema.detail.contains("postrider migrate"), "{schema:?}");
    assert_eq!(store.health().await.unwrap_err().code, StoreErrorCode::Schema);

    let path = folder.path().join("damaged.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("create table notes (text text); insert into notes values (null)").unwrap();
    // What is there is not what the schema says, as after a damage.
    let change =
        "pragma writable_schema = on; update sqlite_schema set sql = 'create table notes (text text not null)'";
    connection.execute_batch(change).unwrap();
    drop(connection);
    let damaged = look(&SqliteStore::open(&path).unwrap(), "integrity").await;
    assert_eq!(damaged.level, FindingLevel::Problem, "{damaged:?}");
}

#[tokio::test]
async fn a_healthy_store_tells_its_time_and_its_connections() {
    let database = TestDatabase::create().await;
    let at = "2031-05-01T12:00:00Z".parse().unwrap();
    database.store().freeze_clock(Some(at));
    let health = database.store().health().await.unwrap();
    assert_eq!(health.at, at);
    let connections = health.connections.unwrap();
    assert!((1..=connections.most).contains(&connections.open) && connections.idle <= connections.open);
}
