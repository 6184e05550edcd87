//! How a dispatcher stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::{DeliveryStatus, Store, StoreErrorCode};

use super::{Running, all_become, becomes, dispatcher, enqueue_for, stalling};
use crate::faulty::{Call, Fault, FaultyStore};
use crate::receiver::{Answer, Gate, Receiver};
use crate::trial::Trial;
use crate::wait::{PATIENCE, eventually};

async fn gated() -> (Gate, Receiver) {
    let gate = Gate::new();
    let held = gate.clone();
    (gate, Receiver::start(move |_, _| Answer::status(200).after(&held)).await)
}

pub async fn p22_a_stop_waits_for_what_is_under_way_and_settles_it(t: &Trial) {
    let (gate, receiver) = gated().await;
    let ids = enqueue_for(t, &receiver, 5).await;
    let running = Running::start(dispatcher(&t.store, "w1"));
    receiver.wait_for(5, PATIENCE).await;
    let stopping = tokio::spawn(running.stop());
    gate.open();
    let totals = stopping.await.unwrap();
    assert_eq!((totals.claimed, totals.delivered, totals.released), (5, 5, 0));
    for id in ids {
        assert_eq!(t.delivery(id).await.status, DeliveryStatus::Delivered);
    }
}

pub async fn p22_a_stop_claims_nothing_new(t: &Trial) {
    let (gate, receiver) = gated().await;
    let first = enqueue_for(t, &receiver, 2).await;
    let running = Running::start(dispatcher(&t.store, "w1").max_in_flight(2));
    receiver.wait_for(2, PATIENCE).await;
    let (stop, task) = (running.stop, running.task);
    stop.send(()).unwrap();
    let later = enqueue_for(t, &receiver, 3).await;
    gate.open();
    let totals = crate::wait::within("the dispatcher to stop", PATIENCE, task).await.unwrap().unwrap();
    assert_eq!((totals.claimed, totals.delivered), (2, 2));
    all_become(t, &first, DeliveryStatus::Delivered).await;
    for id in later {
        assert_eq!(t.delivery(id).await.status, DeliveryStatus::Pending);
    }
    assert_eq!(receiver.request_count(), 2);
}

pub async fn p22_what_does_not_end_in_time_is_given_back_uncharged(t: &Trial) {
    let (_gate, receiver) = gated().await;
    let ids = enqueue_for(t, &receiver, 4).await;
    let grace = Duration::from_millis(300);
    let running = Running::start(dispatcher(&t.store, "w1").drain_timeout(grace));
    receiver.wait_for(4, PATIENCE).await;
    let stopped = Instant::now();
    let totals = running.stop().await;
    assert!(stopped.elapsed() >= grace, "it waited for as long as it may");
    assert_eq!((totals.claimed, totals.released, totals.delivered), (4, 4, 0));
    let places = t.places().await;
    assert_eq!((places.ready.len(), places.leases.len()), (4, 0), "ready at once, without waiting for the leases");
    for id in ids {
        let delivery = t.delivery(id).await;
        assert_eq!((delivery.attempt_count, delivery.abandoned_count), (0, 0));
    }
}

pub async fn p22_a_claim_that_is_under_way_at_the_stop_is_given_back(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.delay_answers(Call::Claim, Duration::from_millis(500), 1);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1"));
    eventually("the claim to take effect", PATIENCE, || async {
        t.delivery(id).await.lease_owner.is_some().then_some(())
    })
    .await;
    let totals = running.stop().await;
    assert_eq!((totals.claimed, totals.released), (1, 1));
    assert_eq!((t.places().await.ready.len(), receiver.request_count()), (1, 0));
    assert_eq!(t.delivery(id).await.abandoned_count, 0);
}

pub async fn p22_what_is_in_line_at_the_stop_is_given_back_and_not_sent(t: &Trial) {
    const SENT: usize = 1004;
    let gate = Gate::new();
    let receiver = stalling(1000, &gate).await;
    enqueue_for(t, &receiver, 1500).await;
    let running = Running::start(dispatcher(&t.store, "w1").max_in_flight_per_destination(4));
    receiver.wait_until("it to stall", PATIENCE, |receiver| receiver.request_count() == SENT).await;
    let (stop, task) = (running.stop, running.task);
    stop.send(()).unwrap();
    eventually("what is in line to be given back", PATIENCE, || async {
        (t.overview().await.in_flight == 4).then_some(())
    })
    .await;
    gate.open();
    let totals = crate::wait::within("the dispatcher to stop", PATIENCE, task).await.unwrap().unwrap();
    assert_eq!((totals.delivered, receiver.request_count()), (SENT as u64, SENT));
    assert_eq!(totals.claimed, SENT as u64 + totals.released);
    let places = t.places().await;
    assert_eq!((places.ready.len(), places.leases.len()), (1500 - SENT, 0));
}

pub async fn a_dispatcher_stops_also_while_the_store_is_away(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.inject(Call::Settle, Fault::Refuse(StoreErrorCode::Unavailable), u32::MAX);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1").drain_timeout(Duration::from_millis(100)));
    receiver.wait_for(1, PATIENCE).await;
    let totals = running.stop().await;
    assert_eq!(totals.delivered, 0);
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Pending, "it will be sent again");
}

pub async fn p22_a_store_that_hangs_does_not_double_the_grace_period(t: &Trial) {
    let receiver = Receiver::start(|_, _| Answer::never()).await;
    enqueue_for(t, &receiver, 2).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn Store>;
    let grace = Duration::from_secs(3);
    let running = Running::start(dispatcher(&store, "w1").drain_timeout(grace));
    receiver.wait_for(2, PATIENCE).await;
    // The next claim never returns, and neither do the attempts.
    wire.inject(Call::Claim, Fault::Hang, u32::MAX);
    enqueue_for(t, &receiver, 1).await;
    eventually("a claim to hang", PATIENCE, || async { (wire.remaining(Call::Claim) < u32::MAX).then_some(()) }).await;
    let stopped = Instant::now();
    let totals = running.stop().await;
    assert_eq!(totals.released, 2);
    assert!(stopped.elapsed() < grace * 2, "one grace period for all, not {:?}", stopped.elapsed());
}

pub async fn a_dispatcher_can_be_started_again(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    for round in ["w1", "w2", "w3"] {
        let id = enqueue_for(t, &receiver, 1).await[0];
        let running = Running::start(dispatcher(&t.store, round));
        becomes(t, id, DeliveryStatus::Delivered).await;
        running.stop().await;
    }
}
