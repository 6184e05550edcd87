//! Secrets without a key, with another key, and with an older one.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use postrider::store::{EndpointChange, Finding, FindingLevel, Operator};
use postrider::{
    DestinationPolicy, Endpoint, EndpointSettings, Keyring, NewEndpoint, Secret, SecretKey, Store, StoreError,
    StoreErrorCode,
};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;

fn anna() -> Operator {
    Operator("anna".to_owned())
}

async fn create(store: &PostgresStore, secrets: Vec<Secret>) -> Result<Endpoint, StoreError> {
    let url = DestinationPolicy::default().check_url("https://hooks.example.com/").unwrap();
    let settings = EndpointSettings { secrets, ..EndpointSettings::default() };
    let new = NewEndpoint { tenant: "default".to_owned(), url, event_types: vec!["*".parse().unwrap()], settings };
    store.create_endpoint(new, &anna()).await
}

async fn finding(store: &PostgresStore, check: &str) -> Finding {
    let findings = store.diagnose().await.unwrap();
    findings.into_iter().find(|finding| finding.check == check).unwrap()
}

#[tokio::test]
async fn without_a_key_no_secret_is_written_and_the_rest_works() {
    let database = TestDatabase::create().await;
    let store = database.store().with_keyring(Keyring::default());
    let error = create(&store, vec![Secret::generate()]).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::SecretKey);
    assert!(error.message.contains("secret_key") && error.message.contains("openssl rand"), "{error}");
    let mut plain = create(&store, Vec::new()).await.unwrap();
    plain.settings.secrets = vec![Secret::generate()];
    let error = store.replace_endpoint(&plain, EndpointChange::RotateSecret, &anna()).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::SecretKey);
    let sealed = create(&database.store(), vec![Secret::generate()]).await.unwrap();
    let shown = store.endpoint(sealed.id).await.unwrap().unwrap();
    assert!(shown.trouble.is_some_and(|trouble| trouble.contains("secret_key_unknown")));
}

#[tokio::test]
async fn a_diagnosis_finds_secrets_under_an_older_key_and_those_that_nobody_opens() {
    let (old, new) = (SecretKey::generate(), SecretKey::generate());
    let database = TestDatabase::create().await;
    let before = database.store().with_keyring(Keyring::new([old.clone()]));
    let endpoint = create(&before, vec![Secret::generate()]).await.unwrap();
    for check in ["endpoint_settings", "secret_key"] {
        assert_eq!(finding(&before, check).await.level, FindingLevel::Ok);
    }
    let rotating = database.store().with_keyring(Keyring::new([new.clone(), old]));
    assert_eq!(finding(&rotating, "endpoint_settings").await.level, FindingLevel::Ok);
    assert_eq!(finding(&rotating, "secret_key").await.level, FindingLevel::Warning);

    let after = database.store().with_keyring(Keyring::new([new]));
    let lost = finding(&after, "endpoint_settings").await;
    assert_eq!(lost.level, FindingLevel::Problem);
    assert!(lost.detail.contains(&endpoint.id.to_string()), "{lost:?}");
    let unreadable = after.endpoint(endpoint.id).await.unwrap().unwrap();
    let error = after.replace_endpoint(&unreadable, EndpointChange::Reseal, &anna()).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::SecretKey, "sealing nothing in their place would lose them: {error}");

    let readable = rotating.endpoint(endpoint.id).await.unwrap().unwrap();
    let resealed = rotating.replace_endpoint(&readable, EndpointChange::Reseal, &anna()).await.unwrap().unwrap();
    assert_eq!(resealed.settings, endpoint.settings);
    assert_eq!(after.endpoint(endpoint.id).await.unwrap().unwrap().settings, endpoint.settings);
    assert_eq!(finding(&after, "secret_key").await.level, FindingLevel::Ok);
}

#[tokio::test]
async fn a_diagnosis_of_an_empty_database_says_that_it_must_be_migrated() {
    let database = TestDatabase::create_empty().await;
    let schema = finding(&database.store(), "schema").await;
    assert_eq!(schema.level, FindingLevel::Problem);
    assert!(schema.detail.contains("0002_server"), "{schema:?}");
}
