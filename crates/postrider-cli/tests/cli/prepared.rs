//! Commands on a database that the test prepared through the library, where the command line has no way to.

use postrider::store::Operator;
use postrider::{
    Admission, DeliveryFilter, DeliveryStatus, EndpointSettings, EndpointStatus, Keyring, NewEndpoint, NewEvent,
    PageRequest, Secret, SecretKey, Store,
};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use tokio::runtime::Runtime;

use crate::support::{SECRET_KEY, Workplace};

struct Prepared {
    runtime: Runtime,
    store: PostgresStore,
    workplace: Workplace,
    _database: TestDatabase,
}

fn prepare() -> Prepared {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(TestDatabase::create());
    let workplace = Workplace::ready_to_send().with("POSTRIDER_DATABASE", database.url());
    let store = database.store().with_keyring(Keyring::new(SecretKey::parse(SECRET_KEY)));
    Prepared { runtime, store, workplace, _database: database }
}

fn tester() -> Operator {
    Operator("tester".to_owned())
}

#[test]
fn what_operators_do_is_audited_under_their_names() {
    let prepared = prepare();
    let workplace = &prepared.workplace;
    let sent = workplace.json(["send", "a.b", "--to", "http://127.0.0.1:9/"]);
    let id = sent["deliveries"][0]["id"].as_str().unwrap();
    workplace.run(["deliveries", "cancel", id, "--reason", "by mistake"]).succeeds();
    workplace.run(["deliveries", "retry", id, "--operator", "ada"]).succeeds();
    let trail = prepared.runtime.block_on(prepared.store.audit(None, &PageRequest::default())).unwrap();
    let entries: Vec<_> = trail.items.iter().map(|entry| (entry.operator.as_str(), entry.reason.as_deref())).collect();
    assert_eq!(entries, [("ada", None), ("tester@cli", Some("by mistake"))], "newest first");
}

#[test]
fn until_idle_does_not_wait_for_a_paused_endpoint() {
    let prepared = prepare();
    let endpoint = NewEndpoint {
        tenant: postrider::DEFAULT_TENANT.to_owned(),
        url: Admission::default().destinations.check_url("https://hooks.example.com/").unwrap(),
        event_types: vec!["*".parse().unwrap()],
        settings: EndpointSettings { secrets: vec![Secret::generate()], ..EndpointSettings::default() },
    };
    prepared.runtime.block_on(async {
        let endpoint = prepared.store.create_endpoint(endpoint, &tester()).await.unwrap();
        let paused = prepared.store.set_endpoint_status(endpoint.id, EndpointStatus::Paused, None, &tester()).await;
        assert!(paused.unwrap());
    });
    let sent = prepared.workplace.json(["send", "a.b"]);
    assert_eq!(sent["deliveries"].as_array().unwrap().len(), 1, "it is fanned out: {sent}");
    let done = prepared.workplace.run(["dispatch", "--until-idle", "--poll-interval", "50ms"]).succeeds();
    assert!(done.stderr.contains("held back"), "{done:?}");
    assert!(done.stdout.starts_with("0 delivered"), "{done:?}");
}

#[test]
fn a_bulk_retry_takes_as_many_transactions_as_it_needs() {
    const COUNT: u64 = 1_100;
    let prepared = prepare();
    prepared.runtime.block_on(async {
        let event = || NewEvent::new("a.b", "{}").to("https://hooks.example.com/");
        let events = std::iter::repeat_with(event).take(usize::try_from(COUNT).unwrap()).collect();
        for enqueued in prepared.store.enqueue(events).await.unwrap() {
            prepared.store.cancel(enqueued.deliveries()[0].id, "to be retried", &tester()).await.unwrap();
        }
    });
    let retried = prepared.workplace.json(["deliveries", "retry", "--status", "cancelled"]);
    assert_eq!((&retried["matched"], &retried["retried"]), (&COUNT.into(), &COUNT.into()));
    let pending = DeliveryFilter { status: Some(DeliveryStatus::Pending), ..DeliveryFilter::default() };
    assert_eq!(prepared.runtime.block_on(prepared.store.count_deliveries(&pending)).unwrap(), COUNT);
}
