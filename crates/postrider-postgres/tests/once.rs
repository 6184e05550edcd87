//! Once-only claims under the races that several connections make possible.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use postrider::store::Operator;
use postrider::{EnqueueError, Enqueued, EventId, NewEvent, OnceFilter, PageRequest, Store, StoreErrorCode};
use postrider_conformance::wait::within;
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::{Executor, PgConnection};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);

fn claim(subject: &str) -> NewEvent {
    NewEvent::new("plan.done", "{}").to("https://hooks.example.com/").once(subject)
}

fn operator() -> Operator {
    Operator("anna".to_owned())
}

fn winner(enqueued: &Enqueued) -> Option<EventId> {
    matches!(enqueued, Enqueued::New { .. }).then(|| enqueued.event_id().unwrap())
}

async fn count(store: &PostgresStore, table: &str) -> i64 {
    let query = sqlx::AssertSqlSafe(format!("select count(*) from postrider.{table}"));
    sqlx::query_scalar(query).fetch_one(store.pool()).await.unwrap()
}

/// Waits until `count` sessions of this database wait for a lock.
async fn until_waiting(store: &PostgresStore, count: i64) {
    let waiting =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let reached = async {
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(store.pool()).await.unwrap() < count {
            tokio::task::yield_now().await;
        }
    };
    within("somebody waits for a lock", PATIENCE, reached).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_of_fifty_racers_on_five_stores_one_wins_in_each_generation() {
    let database = TestDatabase::create().await;
    let mut stores = Vec::new();
    for _ in 0..5 {
        stores.push(PostgresStore::connect(database.url()).await.unwrap());
    }
    for generation in 1..=3 {
        let mut racers = JoinSet::new();
        for number in 0..50 {
            let store = stores[number % 5].clone();
            racers.spawn(async move { store.enqueue(vec![claim("plan/1")]).await.unwrap().remove(0) });
        }
        let results = racers.join_all().await;
        let winners: Vec<EventId> = results.iter().filter_map(winner).collect();
        assert_eq!(winners.len(), 1, "generation {generation}");
        for result in &results {
            let lost = Enqueued::NotClaimed { generation, winner: Some(winners[0]) };
            assert!(winner(result).is_some() || *result == lost, "{result:?}");
        }
        assert_eq!(stores[0].reset_once("default", "plan/1", &operator()).await.unwrap(), generation + 1);
    }
    assert_eq!((count(&stores[0], "events").await, count(&stores[0], "past_generations").await), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_when_the_winner_rolls_back_one_of_those_who_wait_wins() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut first = store.pool().begin().await.unwrap();
    assert!(winner(&store.enqueue_in(&mut first, claim("plan/1")).await.unwrap()).is_some());
    let mut racers = JoinSet::new();
    for _ in 0..4 {
        let store = store.clone();
        racers.spawn(async move { store.enqueue(vec![claim("plan/1")]).await.unwrap().remove(0) });
    }
    until_waiting(&store, 4).await;
    first.rollback().await.unwrap();
    let results = within("the racers", PATIENCE, racers.join_all()).await;
    assert_eq!(results.iter().filter_map(winner).count(), 1, "{results:?}");
    assert_eq!(count(&store, "events").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p10_after_a_reset_that_rolls_back_the_old_generation_stands() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let won = store.enqueue(vec![claim("plan/1")]).await.unwrap()[0].event_id();
    let mut reset = store.pool().begin().await.unwrap();
    assert_eq!(store.reset_once_in(&mut reset, "default", "plan/1", &operator()).await.unwrap(), 2);
    // Who comes meanwhile sees the generation that is committed, and does not wait.
    let meanwhile = within("a late claim", PATIENCE, store.enqueue(vec![claim("plan/1")])).await.unwrap();
    assert_eq!(meanwhile, [Enqueued::NotClaimed { generation: 1, winner: won }]);
    reset.rollback().await.unwrap();
    let standing = store.once("default", "plan/1").await.unwrap().unwrap();
    assert_eq!((standing.generation, standing.winner.map(|winner| winner.event_id)), (1, won));
    assert!(store.audit(None, &postrider::PageRequest::default()).await.unwrap().items.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_waits_for_a_claim_under_way_and_remembers_its_winner() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut claiming = store.pool().begin().await.unwrap();
    let won = store.enqueue_in(&mut claiming, claim("plan/1")).await.unwrap().event_id().unwrap();
    let resetting = tokio::spawn({
        let store = store.clone();
        async move { store.reset_once("default", "plan/1", &operator()).await.unwrap() }
    });
    until_waiting(&store, 1).await;
    claiming.commit().await.unwrap();
    assert_eq!(within("the reset", PATIENCE, resetting).await.unwrap(), 2);
    let past: (i64, uuid::Uuid) = sqlx::query_as("select generation, event_id from postrider.past_generations")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(past, (1, won.as_uuid()), "the winner belongs to the generation that ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_have_lost_do_not_wait_for_each_other() {
    let database = TestDatabase::create().await;
    let store = database.store();
    store.enqueue(vec![claim("plan/1")]).await.unwrap();
    let mut loser = store.pool().begin().await.unwrap();
    let lost = store.enqueue_in(&mut loser, claim("plan/1")).await.unwrap();
    assert!(matches!(lost, Enqueued::NotClaimed { generation: 1, winner: Some(_) }));
    within("another loser", PATIENCE, store.enqueue(vec![claim("plan/1")])).await.unwrap();
    within("a reset", PATIENCE, store.reset_once("default", "plan/1", &operator())).await.unwrap();
    loser.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_claim_the_same_subjects_in_any_order_do_not_deadlock() {
    let database = TestDatabase::create().await;
    let store = database.store();
    for round in 0..10 {
        let mut lists = JoinSet::new();
        for list in 0..6_usize {
            let store = store.clone();
            lists.spawn(async move {
                let events = (0..12).map(|number| {
                    let number = if list % 2 == 0 { number } else { 11 - number };
                    let event = claim(&format!("plan/{round}/{number}"));
                    // Keys are taken as well, by some with and by some without a subject.
                    match number % 3 {
                        0 => event.idempotency_key(format!("k/{round}/{number}")),
                        1 => NewEvent { once: None, ..event }.idempotency_key(format!("k/{round}/{number}")),
                        _ => event,
                    }
                });
                store.enqueue(events.collect()).await.unwrap()
            });
        }
        let results = within("the lists", PATIENCE, lists.join_all()).await;
        let written = results.iter().flatten().filter_map(winner).count();
        assert_eq!(written, 12, "each subject and each key has one event");
    }
    let conflicts: i64 =
        sqlx::query_scalar("select deadlocks from pg_stat_database where datname = current_database()")
            .fetch_one(store.pool())
            .await
            .unwrap();
    assert_eq!(conflicts, 0);
}

/// Takes a key by hand, as somebody else does between two statements.
async fn take_key(connection: &mut PgConnection, key: &str) {
    let taken = "insert into postrider.idempotency_keys (tenant, key, event_id, fingerprint, created_at) \
                 values ('default', $1, postrider.new_id(), sha256('other'), now())";
    sqlx::query(taken).bind(key).execute(connection).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_key_was_taken_meanwhile_is_taken_back() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut other = store.pool().begin().await.unwrap();
    take_key(&mut other, "k").await;
    let racing = tokio::spawn({
        let store = store.clone();
        async move { store.enqueue(vec![claim("plan/1").idempotency_key("k")]).await }
    });
    // It has claimed the subject, and now waits for the key.
    until_waiting(&store, 1).await;
    other.commit().await.unwrap();
    let error = within("the racer", PATIENCE, racing).await.unwrap().unwrap_err();
    assert!(matches!(error, EnqueueError::IdempotencyConflict { .. }), "{error}");
    assert_eq!(store.once("default", "plan/1").await.unwrap(), None, "the subject is as free as before");
    assert!(winner(&store.enqueue(vec![claim("plan/1")]).await.unwrap()[0]).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_callers_transaction_such_a_claim_is_taken_back_too_and_the_rest_goes_on() {
    let database = TestDatabase::create().await;
    let store = database.store();
    store.pool().execute("create table public.orders (name text primary key)").await.unwrap();
    let mut other = store.pool().begin().await.unwrap();
    take_key(&mut other, "k").await;
    let racing = tokio::spawn({
        let store = store.clone();
        async move {
            let mut transaction = store.pool().begin().await.unwrap();
            transaction.execute("insert into public.orders values ('o1')").await.unwrap();
            let list = vec![claim("plan/2"), claim("plan/1").idempotency_key("k")];
            let error = store.enqueue_all_in(&mut transaction, list).await.unwrap_err();
            transaction.commit().await.unwrap();
            error
        }
    });
    until_waiting(&store, 1).await;
    other.commit().await.unwrap();
    let error = within("the racer", PATIENCE, racing).await.unwrap();
    assert!(matches!(error, EnqueueError::IdempotencyConflict { .. }), "{error}");
    let orders: i64 = sqlx::query_scalar("select count(*) from public.orders").fetch_one(store.pool()).await.unwrap();
    assert_eq!((orders, count(&store, "once").await, count(&store, "events").await), (1, 0, 0));
}

#[tokio::test]
async fn a_claim_that_the_isolation_level_hides_is_a_conflict_to_repeat() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut transaction = store.pool().begin_with("begin isolation level repeatable read").await.unwrap();
    transaction.execute("select 1").await.unwrap();
    store.enqueue(vec![claim("plan/1")]).await.unwrap();
    match store.enqueue_in(&mut transaction, claim("plan/1")).await.unwrap_err() {
        EnqueueError::Store(error) => assert_eq!(error.code, StoreErrorCode::Conflict, "{error}"),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn events_that_have_nothing_to_do_with_each_other_are_one_transaction() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let plain = || NewEvent::new("order.placed", "{}").to("https://hooks.example.com/");
    store.enqueue(vec![plain().idempotency_key("taken")]).await.unwrap();
    let refused = NewEvent::new("", "{}");
    let conflicting = NewEvent::new("order.placed", "[]").idempotency_key("taken");
    let results = store
        .enqueue_each(vec![
            plain(),
            refused,
            conflicting,
            plain().idempotency_key("taken"),
            claim("s"),
            claim("s"),
            plain(),
        ])
        .await
        .unwrap();
    assert!(matches!(
        results[..],
        [
            Ok(Enqueued::New { .. }),
            Err(EnqueueError::Refused(_)),
            Err(EnqueueError::IdempotencyConflict { .. }),
            Ok(Enqueued::Duplicate { .. }),
            Ok(Enqueued::New { .. }),
            Ok(Enqueued::NotClaimed { generation: 1, winner: Some(_) }),
            Ok(Enqueued::New { .. }),
        ]
    ));
    let transactions: i64 = sqlx::query_scalar("select count(distinct xmin::text) from postrider.events")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(transactions, 2, "the one before, and all of these");
    let only_bad = store.enqueue_each(vec![NewEvent::new("", "{}")]).await.unwrap();
    assert!(matches!(only_bad[..], [Err(EnqueueError::Refused(_))]));
    assert!(store.enqueue_each(Vec::new()).await.unwrap().is_empty());
}

/// In a database with the order of a language, what begins alike is not in one piece: `PLAN` is between `plan` and `plan-5`.
#[tokio::test]
async fn subjects_are_found_by_how_they_begin_in_the_order_of_a_language() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let subjects =
        ["plan/1", "plan2", "Plan/3", "plan/10", "PLAN", "plan", "plans/1", "pla", "a-b", "ab", "a b", "plan-5"];
    let english = r#"alter table postrider.once alter column subject type text collate "en-US-x-icu""#;
    sqlx::query(english).execute(store.pool()).await.unwrap();
    let claimed =
        "insert into postrider.once (tenant, subject, generation) select 'default', s, 1 from unnest($1::text[]) s";
    sqlx::query(claimed).bind(subjects).execute(store.pool()).await.unwrap();
    for prefix in ["plan", "plan/", "PLAN", "a", "a-", "p", "z"] {
        let filter = OnceFilter { tenant: Some("default".to_owned()), prefix: Some(prefix.to_owned()) };
        for most in [1, 3, 100] {
            let (mut found, mut after) = (BTreeSet::new(), None);
            loop {
                let page = PageRequest::new(2, None).unwrap().looking_at(most);
                let page = store.once_claims(&filter, after.as_ref(), &page).await.unwrap();
                found.extend(page.items.into_iter().map(|claim| claim.subject));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let expected =
                subjects.iter().filter(|subject| subject.starts_with(prefix)).map(|&subject| subject.to_owned());
            assert_eq!(found, expected.collect(), "{prefix}, looking at {most}");
        }
    }
}
