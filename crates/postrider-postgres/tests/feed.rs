//! Announcements that are committed in another order than they are numbered in.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use postrider::store::{FeedPlace, Operator};
use postrider::{DeliveryId, NewEvent, Store};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use sqlx::{Postgres, Transaction};

const LIMIT: u32 = 100;

async fn pending(store: &PostgresStore) -> DeliveryId {
    let event = NewEvent::new("order.placed", "{}").to("https://hooks.example.com/");
    store.enqueue(vec![event]).await.unwrap()[0].deliveries()[0].id
}

async fn cancel(store: &PostgresStore, id: DeliveryId) {
    store.cancel(id, "not needed", &Operator("anna".to_owned())).await.unwrap();
}

/// Cancels by the store's own statement, in a transaction that the test ends when it likes.
async fn cancel_in_open_transaction(store: &PostgresStore, id: DeliveryId) -> Transaction<'static, Postgres> {
    let mut transaction = store.pool().begin().await.unwrap();
    cancel_in(&mut transaction, id).await;
    transaction
}

async fn cancel_in(transaction: &mut Transaction<'static, Postgres>, id: DeliveryId) {
    sqlx::query(include_str!("../sql/cancel.sql"))
        .bind(None::<jiff_sqlx::Timestamp>)
        .bind(id.as_uuid())
        .bind("not needed")
        .bind("anna")
        .fetch_one(&mut **transaction)
        .await
        .unwrap();
}

async fn read(store: &PostgresStore, place: &mut FeedPlace) -> Vec<DeliveryId> {
    let announced = store.announcements(place, LIMIT).await.unwrap();
    *place = announced.place;
    announced.announcements.iter().map(|announcement| announcement.delivery_id).collect()
}

#[tokio::test]
async fn what_is_committed_late_is_read_late_and_once() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let (slow, quick) = (pending(&store).await, pending(&store).await);
    let mut place = FeedPlace::default();
    let open = cancel_in_open_transaction(&store, slow).await;
    cancel(&store, quick).await;
    assert_eq!(read(&store, &mut place).await, [quick]);
    assert_eq!(place.gaps.len(), 1, "the number that the open transaction has taken");
    assert_eq!(read(&store, &mut place).await, []);
    open.commit().await.unwrap();
    assert_eq!(read(&store, &mut place).await, [slow]);
    assert_eq!(place.gaps, []);
    assert_eq!(read(&store, &mut place).await, []);
}

/// Transaction ids and numbers are given out in different orders as well: the lower number may be that of the higher id, of
/// which a snapshot says nothing while it runs.
#[tokio::test]
async fn the_number_of_a_younger_transaction_is_waited_for_as_well() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let (slow, quick) = (pending(&store).await, pending(&store).await);
    let mut place = FeedPlace::default();
    let mut older = store.pool().begin().await.unwrap();
    sqlx::query("select pg_current_xact_id()").execute(&mut *older).await.unwrap();
    let younger = cancel_in_open_transaction(&store, slow).await;
    cancel_in(&mut older, quick).await;
    older.commit().await.unwrap();
    assert_eq!(read(&store, &mut place).await, [quick]);
    let mut end = store.announcements_end().await.unwrap();
    younger.commit().await.unwrap();
    assert_eq!(read(&store, &mut place).await, [slow]);
    assert_eq!(read(&store, &mut end).await, [slow]);
    assert_eq!((place.gaps, end.gaps), (vec![], vec![]));
}

#[tokio::test]
async fn a_number_that_was_rolled_back_is_given_up_once_nobody_can_use_it() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let (never, quick) = (pending(&store).await, pending(&store).await);
    let mut place = FeedPlace::default();
    let open = cancel_in_open_transaction(&store, never).await;
    cancel(&store, quick).await;
    assert_eq!(read(&store, &mut place).await, [quick]);
    assert_eq!(place.gaps.len(), 1);
    open.rollback().await.unwrap();
    // Transactions of other databases on the server hold the gap as well, so it may take a moment.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !place.gaps.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "the gap is kept for ever: {place:?}");
        assert_eq!(read(&store, &mut place).await, []);
    }
}

#[tokio::test]
async fn a_follower_that_starts_now_hears_what_is_committed_after_it_started() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let (slow, quick) = (pending(&store).await, pending(&store).await);
    let open = cancel_in_open_transaction(&store, slow).await;
    cancel(&store, quick).await;
    let mut place = store.announcements_end().await.unwrap();
    assert_eq!(read(&store, &mut place).await, [], "what was recorded before is not told");
    open.commit().await.unwrap();
    assert_eq!(read(&store, &mut place).await, [slow]);
}

#[tokio::test]
async fn small_pages_with_gaps_still_come_to_everything_once() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let mut place = FeedPlace::default();
    let mut told = Vec::new();
    let mut open = Vec::new();
    let mut all = Vec::new();
    for number in 0..12 {
        let id = pending(&store).await;
        all.push(id);
        if number % 3 == 0 {
            open.push(cancel_in_open_transaction(&store, id).await);
        } else {
            cancel(&store, id).await;
        }
        let announced = store.announcements(&place, 1).await.unwrap();
        place = announced.place;
        told.extend(announced.announcements.iter().map(|announcement| announcement.delivery_id));
    }
    for transaction in open {
        transaction.commit().await.unwrap();
    }
    loop {
        let announced = store.announcements(&place, 1).await.unwrap();
        place = announced.place;
        if announced.announcements.is_empty() {
            break;
        }
        told.extend(announced.announcements.iter().map(|announcement| announcement.delivery_id));
    }
    told.sort_unstable();
    assert_eq!(told, all, "ids sort as they were made");
}

/// Writes what one settle would of these deliveries, in a transaction that the test ends when it likes.
async fn announce_in_open_transaction(store: &PostgresStore, ids: &[DeliveryId]) -> Transaction<'static, Postgres> {
    let mut transaction = store.pool().begin().await.unwrap();
    sqlx::query(
        "insert into postrider.announced (fact, count, at, delivery_ids, event_ids, endpoint_ids, attempt_counts)
         select 'delivery.delivered', count(*), now(), array_agg(d.id order by d.id), array_agg(d.event_id order by d.id),
                array_agg(d.endpoint_id), array_agg(1)
         from postrider.deliveries d where d.id = any ($1)",
    )
    .bind(ids.iter().map(DeliveryId::as_uuid).collect::<Vec<_>>())
    .execute(&mut *transaction)
    .await
    .unwrap();
    transaction
}

async fn several_pending(store: &PostgresStore, count: usize) -> Vec<DeliveryId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(pending(store).await);
    }
    ids
}

/// Reads in pages of so many until nothing comes, and says how many came with each.
async fn read_in_pages(store: &PostgresStore, place: &mut FeedPlace, limit: u32) -> (Vec<DeliveryId>, Vec<usize>) {
    let (mut told, mut pages) = (Vec::new(), Vec::new());
    loop {
        let announced = store.announcements(place, limit).await.unwrap();
        *place = announced.place;
        if announced.announcements.is_empty() {
            return (told, pages);
        }
        pages.push(announced.announcements.len());
        told.extend(announced.announcements.iter().map(|announcement| announcement.delivery_id));
    }
}

#[tokio::test]
async fn what_was_announced_at_once_is_read_in_pages_and_from_any_place_in_it() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let all = several_pending(&store, 10).await;
    for list in [&all[..5], &all[5..]] {
        announce_in_open_transaction(&store, list).await.commit().await.unwrap();
    }
    let told = store.announcements(&FeedPlace::default(), LIMIT).await.unwrap().announcements;
    let positions: Vec<i64> = told.iter().map(|announcement| announcement.position).collect();
    assert_eq!(positions, [1_000, 1_001, 1_002, 1_003, 1_004, 2_000, 2_001, 2_002, 2_003, 2_004]);
    let mut place = FeedPlace::default();
    assert_eq!(read_in_pages(&store, &mut place, 3).await, (all.clone(), vec![3, 3, 3, 1]));
    assert_eq!(place, FeedPlace { position: 2_004, gaps: Vec::new() });
    assert_eq!(store.announcements_end().await.unwrap(), place);
    for (index, position) in positions.into_iter().enumerate() {
        let mut place = FeedPlace { position, gaps: Vec::new() };
        assert_eq!(read(&store, &mut place).await, all[index + 1..], "after {position}");
    }
}

#[tokio::test]
async fn a_list_that_is_committed_late_is_read_in_pages_as_well() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let (slow, quick) = (several_pending(&store, 5).await, several_pending(&store, 2).await);
    let open = announce_in_open_transaction(&store, &slow).await;
    let never = announce_in_open_transaction(&store, &slow).await;
    announce_in_open_transaction(&store, &quick).await.commit().await.unwrap();
    let mut places = [FeedPlace::default(), store.announcements_end().await.unwrap()];
    assert_eq!(read_in_pages(&store, &mut places[0], 1).await, (quick, vec![1, 1]));
    open.commit().await.unwrap();
    never.rollback().await.unwrap();
    let later = several_pending(&store, 2).await;
    announce_in_open_transaction(&store, &later).await.commit().await.unwrap();
    let rest = [slow, later].concat();
    for place in &mut places {
        assert_eq!(read_in_pages(&store, place, 2).await, (rest.clone(), vec![2, 2, 2, 1]));
        assert_eq!(place.position, 4_001);
    }
}
