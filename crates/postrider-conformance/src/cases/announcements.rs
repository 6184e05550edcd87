//! Announcements: everything that happened, in an order in which nothing is missed, and wake-ups.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider::store::FeedPlace;
use postrider::{DeliveryId, Fact, NewEvent, Store, Verdict};

use crate::trial::{LEASE, Trial, claim_from, event_to, operator, retry_after, settle_of, url_of, worker};
use crate::wait::{PATIENCE, eventually, within};

pub async fn every_fact_is_announced_in_order_with_topic_and_metadata(t: &Trial) {
    t.freeze();
    let event = NewEvent::new("invoice.paid", "{}").to(url_of("a")).topic("billing").metadata("order", 7);
    let enqueued = t.enqueue(event.clone()).await;
    let id = enqueued.deliveries()[0].id;
    let mut expected = Vec::new();
    for (verdict, fact) in [(retry_after(0), Fact::Failed), (retry_after(0), Fact::Failed), (Verdict::Dead, Fact::Dead)]
    {
        let now = t.advance_secs(10);
        t.store.promote(10).await.unwrap();
        let claim = t.claim_one("w1").await;
        t.settle("w1", claim.lease, verdict).await;
        expected.push((fact, claim.attempt_count + 1, now));
    }
    t.store.retry(id, &operator()).await.unwrap();
    let now = t.advance_secs(10);
    t.claim_and_settle(Verdict::Delivered).await;
    expected.push((Fact::Delivered, 1, now));

    let announced = t.announced().await;
    let told: Vec<_> = announced.iter().map(|told| (told.fact, told.attempt_count, told.at)).collect();
    assert_eq!(told, expected);
    assert!(announced.is_sorted_by(|earlier, later| earlier.position < later.position));
    for told in &announced {
        assert_eq!((told.delivery_id, told.event_id, told.endpoint_id), (id, enqueued.event_id().unwrap(), None));
        assert_eq!(told.topic, "billing");
        assert_eq!(told.metadata, event.metadata);
    }
}

pub async fn an_announcement_names_its_endpoint(t: &Trial) {
    let endpoint = t.endpoint("a", &["*"]).await;
    t.enqueue(NewEvent::new("invoice.paid", "{}")).await;
    t.claim_and_settle(Verdict::Delivered).await;
    let announced = t.announced().await;
    assert_eq!(announced.len(), 1);
    assert_eq!(announced[0].endpoint_id, Some(endpoint.id));
    assert_eq!(announced[0].topic, "postrider");
}

pub async fn a_follower_goes_on_after_its_place(t: &Trial) {
    let end = t.store.announcements_end().await.unwrap();
    assert!(t.store.announcements(&end, 10).await.unwrap().announcements.is_empty());
    t.backlog("a", 25).await;
    t.claim_and_settle(Verdict::Delivered).await;
    let mut place = FeedPlace::default();
    let mut positions = Vec::new();
    for expected in [10, 10, 5, 0] {
        let announced = t.other.announcements(&place, 10).await.unwrap();
        assert_eq!(announced.announcements.len(), expected);
        positions.extend(announced.announcements.iter().map(|told| told.position));
        place = announced.place;
    }
    let distinct: BTreeSet<_> = positions.iter().collect();
    assert_eq!(distinct.len(), 25, "none twice");

    t.backlog("a", 1).await;
    t.claim_and_settle(Verdict::Dead).await;
    let announced = t.store.announcements(&place, 10).await.unwrap();
    assert_eq!(announced.announcements.len(), 1);
    assert_eq!(announced.announcements[0].fact, Fact::Dead);
    assert_eq!(t.store.announcements(&end, 100).await.unwrap().announcements.len(), 26);
}

pub async fn the_end_is_after_everything_that_is_recorded(t: &Trial) {
    t.backlog("a", 3).await;
    t.claim_and_settle(Verdict::Delivered).await;
    let end = t.other.announcements_end().await.unwrap();
    assert!(t.store.announcements(&end, 10).await.unwrap().announcements.is_empty());
    let id = t.deliver_to("a").await;
    t.claim_and_settle(Verdict::Delivered).await;
    let announced = t.store.announcements(&end, 10).await.unwrap().announcements;
    assert_eq!(announced.iter().map(|told| told.delivery_id).collect::<Vec<_>>(), [id]);
}

async fn settle_everything(store: Arc<dyn Store>, name: String) -> Vec<DeliveryId> {
    let mut settled = Vec::new();
    loop {
        let claims = claim_from(&*store, &name, 5, LEASE).await;
        if claims.is_empty() {
            return settled;
        }
        let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim.lease, Verdict::Delivered)).collect();
        store.settle(&worker(&name), &settles).await.unwrap();
        settled.extend(claims.iter().map(|claim| claim.lease.delivery_id));
    }
}

pub async fn a_follower_misses_nothing_while_eight_tasks_settle(t: &Trial) {
    t.backlog("a", 400).await;
    let done = Arc::new(AtomicBool::new(false));
    // Before anybody settles, so that everything is after it.
    let mut place = t.other.announcements_end().await.unwrap();
    let follower = {
        let (store, done) = (Arc::clone(&t.other), Arc::clone(&done));
        tokio::spawn(async move {
            let mut seen = Vec::new();
            loop {
                let finished = done.load(Ordering::SeqCst);
                let announced = store.announcements(&place, 7).await.unwrap();
                place = announced.place;
                // Nothing more after everybody has finished means that nothing more will come.
                if finished && announced.announcements.is_empty() {
                    return seen;
                }
                seen.extend(announced.announcements.iter().map(|told| told.delivery_id));
            }
        })
    };
    let settlers: Vec<_> = (0..8)
        .map(|number| {
            let store = Arc::clone(if number % 2 == 0 { &t.store } else { &t.other });
            tokio::spawn(settle_everything(store, format!("w{number}")))
        })
        .collect();
    let mut settled = BTreeSet::new();
    for settler in settlers {
        settled.extend(settler.await.unwrap());
    }
    settled.extend(settle_everything(Arc::clone(&t.store), "last".to_owned()).await);
    assert_eq!(settled.len(), 400);
    done.store(true, Ordering::SeqCst);
    let seen = within("the follower", PATIENCE, follower).await.unwrap();
    let distinct: BTreeSet<_> = seen.iter().copied().collect();
    assert_eq!(distinct, settled, "none missed");
    assert_eq!(seen.len(), settled.len(), "none told twice");
}

/// Far longer than the test is ready to wait.
const TIMEOUT: Duration = Duration::from_mins(5);

async fn wakes(waiter: Arc<dyn Store>, enqueuer: &dyn Store) {
    let mut waiting = tokio::spawn(async move { waiter.wait_ready(TIMEOUT).await });
    // A wait may miss what became ready just before it began, so there is always something new until it ends.
    eventually("wait_ready returns after an enqueue", PATIENCE, async || {
        enqueuer.enqueue(vec![event_to("a")]).await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.ok()
    })
    .await
    .unwrap();
}

pub async fn a_wait_for_something_ready_ends_with_an_enqueue(t: &Trial) {
    wakes(Arc::clone(&t.store), &*t.store).await;
}

pub async fn a_wait_for_something_ready_ends_with_an_enqueue_elsewhere(t: &Trial) {
    wakes(Arc::clone(&t.store), &*t.other).await;
}

pub async fn a_wait_for_something_ready_ends_with_a_commit_of_the_callers(t: &Trial) {
    let waiter = Arc::clone(&t.store);
    let mut waiting = tokio::spawn(async move { waiter.wait_ready(TIMEOUT).await });
    eventually("wait_ready returns after a commit", PATIENCE, async || {
        let events = vec![event_to("a")];
        t.subject().enqueue_in_transaction(events, crate::subject::Ending::Commit).await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.ok()
    })
    .await
    .unwrap();
}

pub async fn a_wait_for_something_ready_ends_with_an_operators_retry_elsewhere(t: &Trial) {
    // More dead letters than the patience has polls.
    t.backlog("a", 500).await;
    let mut dead = t.claim_and_settle(Verdict::Dead).await;
    let waiter = Arc::clone(&t.store);
    let mut waiting = tokio::spawn(async move { waiter.wait_ready(TIMEOUT).await });
    eventually("wait_ready returns after a retry", PATIENCE, async || {
        let id = dead.pop().expect("a dead letter is left");
        t.other.retry(id, &operator()).await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.ok()
    })
    .await
    .unwrap();
}

pub async fn a_wait_for_something_ready_ends_at_its_timeout(t: &Trial) {
    within("wait_ready keeps its timeout", PATIENCE, t.store.wait_ready(Duration::from_millis(20))).await;
    within("wait_announced keeps its timeout", PATIENCE, t.store.wait_announced(Duration::from_millis(20))).await;
}

async fn wakes_follower(t: &Trial, waiter: Arc<dyn Store>, settler: &dyn Store) {
    let mut waiting = tokio::spawn(async move { waiter.wait_announced(TIMEOUT).await });
    eventually("wait_announced returns after a settle", PATIENCE, async || {
        t.deliver_to("a").await;
        let claims = claim_from(settler, "w1", 10, LEASE).await;
        let settles: Vec<_> = claims.iter().map(|claim| settle_of(claim.lease, Verdict::Delivered)).collect();
        settler.settle(&worker("w1"), &settles).await.unwrap();
        tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.ok()
    })
    .await
    .unwrap();
}

pub async fn a_wait_for_announcements_ends_with_a_settle(t: &Trial) {
    wakes_follower(t, Arc::clone(&t.store), &*t.store).await;
}

pub async fn a_wait_for_announcements_ends_with_a_settle_elsewhere(t: &Trial) {
    wakes_follower(t, Arc::clone(&t.store), &*t.other).await;
}
