//! Once-only claims inside of the application's own transactions.

use postrider::store::Operator;
use postrider::{DeliveryFilter, Enqueued, NewEvent, PageRequest, Store};
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::testing::TestDatabase;

type Anything = Box<dyn std::error::Error + Send + Sync>;

fn event() -> NewEvent {
    NewEvent::new("plan.ready", "{}").to("https://hooks.example.com/plans").once("plan/1")
}

fn operator() -> Operator {
    Operator("kim".to_owned())
}

#[tokio::test]
async fn a_claim_lasts_if_and_only_if_its_transaction_commits() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let undone = store.transaction(|tx| {
        assert!(matches!(tx.enqueue(event())?, Enqueued::New { .. }));
        assert!(matches!(tx.enqueue(event())?, Enqueued::NotClaimed { winner: Some(_), .. }), "the first has it");
        Err::<(), Anything>("on purpose".into())
    });
    undone.await.unwrap_err();
    assert_eq!(store.once("default", "plan/1").await.unwrap(), None);

    let won = store.transaction(|tx| Ok::<_, Anything>(tx.enqueue(event())?)).await.unwrap();
    let claim = store.once("default", "plan/1").await.unwrap().unwrap();
    assert_eq!(claim.winner.map(|winner| winner.event_id), won.event_id());
    assert_eq!(store.count_deliveries(&DeliveryFilter::default()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_reset_and_the_next_claim_are_one_transaction() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let first = store.enqueue(vec![event()]).await.unwrap().remove(0);

    let undone = store.transaction(|tx| {
        assert_eq!(tx.reset_once("default", "plan/1", &operator())?, 2);
        assert!(matches!(tx.enqueue(event())?, Enqueued::New { .. }));
        Err::<(), Anything>("on purpose".into())
    });
    undone.await.unwrap_err();
    let claim = store.once("default", "plan/1").await.unwrap().unwrap();
    assert_eq!((claim.generation, claim.winner.map(|winner| winner.event_id)), (1, first.event_id()));

    let again = store.transaction(|tx| {
        assert_eq!(tx.reset_once("default", "plan/1", &operator())?, 2);
        assert!(matches!(
            tx.enqueue(event().once_in("plan/1", 1))?,
            Enqueued::NotClaimed { generation: 2, winner: None }
        ));
        Ok::<_, Anything>(tx.enqueue(event())?)
    });
    let again = again.await.unwrap();
    let claim = store.once("default", "plan/1").await.unwrap().unwrap();
    assert_eq!((claim.generation, claim.winner.map(|winner| winner.event_id)), (2, again.event_id()));
    let trail = store.audit(Some("default"), &PageRequest::default()).await.unwrap().items;
    let shown: Vec<_> = trail.iter().map(|entry| (entry.action.as_str(), entry.subject.as_str())).collect();
    assert_eq!(shown, [("once.reset", "plan/1")], "what was undone is not in the trail");
}

/// Whoever looks into the file sees who won each generation, until retention removes those that are over.
#[tokio::test]
async fn every_generation_keeps_its_winner() {
    let database = TestDatabase::create().await;
    let store = database.store();
    for _ in 0..3 {
        store.enqueue(vec![event()]).await.unwrap();
        store.reset_once("default", "plan/1", &operator()).await.unwrap();
    }
    let connection = Connection::open(database.path()).unwrap();
    let winners = || {
        let query = "select generation from postrider_once where event_id is not null order by generation";
        let mut statement = connection.prepare(query).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect::<Vec<i64>>()
    };
    assert_eq!(winners(), [1, 2, 3]);
    let other = "update postrider_once set generation = 1 where generation = 2";
    connection.execute(other, []).expect_err("the primary key is the promise");
    store.retain(std::time::Duration::ZERO, None, 100).await.unwrap();
    assert_eq!(winners(), [0; 0]);
    assert_eq!(store.once("default", "plan/1").await.unwrap().unwrap().generation, 4, "the current one stays");
}
