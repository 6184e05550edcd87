//! Event-type patterns: the library, a naive reader, and the statements of both stores agree on who wants what. And lists
//! go on where a cursor says, but never with what is another tenant's.

use std::collections::{BTreeMap, BTreeSet};

use postrider::store::Operator;
use postrider::{
    ApiKey, Cursor, DeliveryFilter, DestinationPolicy, EndpointFilter, EndpointId, EndpointSettings, Enqueued,
    EventFilter, EventTypePattern, KeyToken, NewApiKey, NewEndpoint, NewEvent, PageRequest, Scope, Store,
};
use postrider_promises::canary;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use uuid::Uuid;

use super::{cases, is_code};

/// Parts of types that are alike, and characters that mean something in SQL.
fn part() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "ab", "A", "a_", "_", "a:b"])
}

fn event_type() -> impl Strategy<Value = String> {
    prop::collection::vec(part(), 1..4).prop_map(|parts| parts.join("."))
}

fn pattern() -> impl Strategy<Value = EventTypePattern> {
    let text = prop_oneof![
        1 => Just("*".to_owned()),
        4 => event_type().prop_map(|stem| format!("{stem}.*")),
        3 => event_type(),
    ];
    text.prop_map(|text| text.parse().unwrap())
}

/// Part by part: what stands before a star is the same, and where the star is there is something.
fn naively_matches(pattern: &str, event_type: &str) -> bool {
    let (wanted, given): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), event_type.split('.').collect());
    match wanted.split_last() {
        Some((&"*", stem)) => given.len() > stem.len() && given[..stem.len()] == *stem,
        _ => wanted == given,
    }
}

fn sample<T>(strategy: &impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::new(cases(1));
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

fn operator() -> Operator {
    Operator("test".to_owned())
}

async fn endpoint(store: &dyn Store, tenant: &str, event_types: Vec<EventTypePattern>) -> EndpointId {
    let url = DestinationPolicy::default().check_url("https://hooks.example.com/").unwrap();
    let new = NewEndpoint { tenant: tenant.to_owned(), url, event_types, settings: EndpointSettings::default() };
    store.create_endpoint(new, &operator()).await.unwrap().id
}

/// Endpoints with random patterns, and for each of many random types those that want it.
async fn wishes(store: &dyn Store, tenant: &str) -> BTreeMap<String, BTreeSet<EndpointId>> {
    let types: BTreeSet<String> = sample(&event_type(), 150).into_iter().collect();
    let mut wishes: BTreeMap<_, _> = types.into_iter().map(|event_type| (event_type, BTreeSet::new())).collect();
    for patterns in sample(&prop::collection::vec(pattern(), 1..3), 60) {
        let id = endpoint(store, tenant, patterns.clone()).await;
        for (event_type, wanted_by) in &mut wishes {
            if patterns.iter().any(|pattern| naively_matches(pattern.as_str(), event_type)) {
                wanted_by.insert(id);
            }
        }
    }
    wishes
}

async fn agrees(store: &dyn Store) {
    let wishes = wishes(store, "acme").await;
    let event = |event_type: &String| NewEvent::new(event_type, format!("\"{}\"", canary::PAYLOAD)).tenant("acme");
    let enqueued = store.enqueue(wishes.keys().map(event).collect()).await.unwrap();
    for ((event_type, wanted_by), enqueued) in wishes.iter().zip(&enqueued) {
        let reached: BTreeSet<_> = enqueued.deliveries().iter().filter_map(|delivery| delivery.endpoint_id).collect();
        assert_eq!(&reached, wanted_by, "{event_type}");
    }
    assert!(enqueued.iter().map(|enqueued| enqueued.deliveries().len()).sum::<usize>() > 100);
}

#[tokio::test]
async fn the_statement_of_sqlite_reaches_whom_a_naive_reader_would() {
    agrees(postrider_sqlite::testing::TestDatabase::create().await.store()).await;
}

#[tokio::test]
async fn the_statement_of_postgres_and_its_sql_function_reach_whom_a_naive_reader_would() {
    let database = postrider_postgres::testing::TestDatabase::create().await;
    let store = database.store();
    agrees(&store).await;

    store.publish_admission().await.unwrap();
    for (event_type, wanted_by) in wishes(&store, "globex").await {
        let enqueue = sqlx::query_scalar("select postrider.enqueue($1, $2::text, tenant => 'globex')");
        let payload = format!("\"{}\"", canary::PAYLOAD);
        let id: Uuid = enqueue.bind(&event_type).bind(payload).fetch_one(store.pool()).await.unwrap();
        let filter = DeliveryFilter { event_id: Some(postrider::EventId::from_uuid(id)), ..DeliveryFilter::default() };
        let found = store.deliveries(&filter, &PageRequest::new(250, None).unwrap()).await.unwrap();
        let reached: BTreeSet<_> = found.items.iter().filter_map(|delivery| delivery.endpoint_id).collect();
        assert_eq!(reached, wanted_by, "{event_type}");
    }
    database.drop().await;
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn the_library_matches_what_a_naive_reader_would(pattern in pattern(), event_type in event_type()) {
        prop_assert_eq!(pattern.matches(&event_type), naively_matches(pattern.as_str(), &event_type));
    }

    #[test]
    fn what_is_no_pattern_is_refused_by_a_code(text in any::<String>(), nearly in "[a-z.*_ -]{0,12}") {
        for text in [text, nearly] {
            match text.parse::<EventTypePattern>() {
                Ok(pattern) => {
                    prop_assert_eq!(pattern.as_str(), text.as_str());
                    prop_assert!(text == "*" || !text.trim_end_matches(".*").contains('*'), "{}", text);
                }
                Err(refusal) => prop_assert!(refusal.code == "event_type_pattern_invalid" && is_code(refusal.code)),
            }
        }
    }
}

/// P21: whatever a cursor says, a tenant's lists have what is its own.
async fn cursors_lead_nowhere_else(store: &dyn Store) {
    let mut ids: Vec<Uuid> = Vec::new();
    for tenant in ["acme", "globex", "acme", "globex"] {
        ids.push(endpoint(store, tenant, vec!["*".parse().unwrap()]).await.as_uuid());
        let event = NewEvent::new("a.b", format!("\"{}\"", canary::PAYLOAD)).tenant(tenant);
        for enqueued in store.enqueue(vec![event.clone(), event]).await.unwrap() {
            let Enqueued::New { event_id, deliveries, .. } = enqueued else { panic!("it is new") };
            ids.extend(deliveries.iter().map(|delivery| delivery.id.as_uuid()).chain([event_id.as_uuid()]));
        }
        let (tenant, digest) = (Some(tenant.to_owned()), KeyToken::generate().digest());
        let key = NewApiKey { name: "a key".to_owned(), tenant, scope: Scope::Read, digest, only_first: false };
        ids.push(store.create_key(key, &operator()).await.unwrap().unwrap().id.as_uuid());
    }
    let near =
        |id: &Uuid| [id.as_u128().wrapping_sub(1), id.as_u128(), id.as_u128().wrapping_add(1)].map(Uuid::from_u128);
    let forged = ids.iter().flat_map(near).chain([Uuid::nil(), Uuid::max()]);
    let random = sample(&any::<u128>(), 50).into_iter().map(Uuid::from_u128);
    let mut seen = 0;
    for cursor in forged.chain(random).collect::<Vec<_>>() {
        let page = PageRequest::new(250, Some(Cursor(cursor))).unwrap();
        let tenant = Some("globex".to_owned());
        let of_tenant = EventFilter { tenant: tenant.clone(), ..EventFilter::default() };
        let mut owners: Vec<Option<String>> = Vec::new();
        let events = store.events(&of_tenant, &page, usize::MAX).await.unwrap();
        owners.extend(events.items.into_iter().map(|event| Some(event.tenant)));
        let of_tenant = DeliveryFilter { tenant: tenant.clone(), ..DeliveryFilter::default() };
        let deliveries = store.deliveries(&of_tenant, &page).await.unwrap();
        owners.extend(deliveries.items.into_iter().map(|delivery| Some(delivery.tenant)));
        let of_tenant = EndpointFilter { tenant: tenant.clone(), ..EndpointFilter::default() };
        let endpoints = store.endpoints(&of_tenant, &page).await.unwrap();
        owners.extend(endpoints.items.into_iter().map(|endpoint| Some(endpoint.tenant)));
        let keys = store.keys(tenant.as_deref(), &page).await.unwrap();
        owners.extend(keys.items.into_iter().map(|ApiKey { tenant, .. }| tenant));
        let audit = store.audit(tenant.as_deref(), &page).await.unwrap();
        owners.extend(audit.items.into_iter().map(|entry| entry.tenant));
        assert!(owners.iter().all(|owner| *owner == tenant), "after {cursor}: {owners:?}");
        seen += owners.len();
    }
    assert!(seen > 100, "something was listed");
}

#[tokio::test]
async fn a_forged_cursor_shows_nothing_of_another_tenant_on_sqlite() {
    cursors_lead_nowhere_else(postrider_sqlite::testing::TestDatabase::create().await.store()).await;
}

#[tokio::test]
async fn a_forged_cursor_shows_nothing_of_another_tenant_on_postgres() {
    let database = postrider_postgres::testing::TestDatabase::create().await;
    cursors_lead_nowhere_else(&database.store()).await;
    database.drop().await;
}
