//! What a dispatcher does when its store fails.

use std::sync::Arc;
use std::time::Duration;

use postrider::{DeliveryStatus, Fact, Store, StoreErrorCode};

use super::{Running, all_become, becomes, dispatcher, enqueue_for};
use crate::faulty::{Call, Fault, FaultyStore};
use crate::receiver::{Answer, Gate, Receiver};
use crate::trial::Trial;
use crate::wait::{PATIENCE, eventually};

async fn injected_faults_to_happen(wire: &FaultyStore, call: Call) {
    eventually("the faults to happen", PATIENCE, || async { (wire.remaining(call) == 0).then_some(()) }).await;
}

pub async fn p5_a_settle_whose_answer_was_lost_is_applied_once(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.inject(Call::Settle, Fault::LoseAnswer, 3);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1"));
    let ids = enqueue_for(t, &receiver, 10).await;
    injected_faults_to_happen(&wire, Call::Settle).await;
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    let totals = running.stop().await;
    assert_eq!((totals.delivered, totals.lost), (10, 0), "the repetition found its own work done");
    for id in ids {
        assert_eq!(t.attempts(id).await.len(), 1);
        assert_eq!(t.times_announced(Fact::Delivered, id).await, 1);
    }
    assert_eq!(receiver.request_count(), 10);
}

pub async fn p25_while_the_store_is_away_nothing_is_lost_and_then_everything_goes_on(t: &Trial) {
    let receiver = Receiver::answering(200).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1"));
    let mut ids = enqueue_for(t, &receiver, 20).await;
    for call in [Call::Claim, Call::Renew, Call::Settle, Call::Tend] {
        wire.inject(call, Fault::Refuse(StoreErrorCode::Unavailable), u32::MAX);
    }
    ids.extend(enqueue_for(t, &receiver, 20).await);
    eventually("some calls to fail", PATIENCE, || async { (wire.refused() >= 5).then_some(()) }).await;
    wire.heal();
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    let totals = running.stop().await;
    assert!(totals.errors >= 5);
    assert_eq!(totals.delivered, 40);
    assert_eq!(receiver.request_count(), 40, "the leases outlasted the outage, so nothing was sent twice");
}

pub async fn a_renewal_that_fails_once_does_no_harm(t: &Trial) {
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.inject(Call::Renew, Fault::Refuse(StoreErrorCode::Unavailable), 1);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1").lease(Duration::from_secs(3)));
    receiver.wait_for(1, PATIENCE).await;
    let granted = t.delivery(id).await.lease_until.unwrap();
    injected_faults_to_happen(&wire, Call::Renew).await;
    eventually("a renewal to succeed", PATIENCE, || async {
        (t.delivery(id).await.lease_until.expect("it is still leased") > granted).then_some(())
    })
    .await;
    gate.open();
    becomes(t, id, DeliveryStatus::Delivered).await;
    let totals = running.stop().await;
    assert_eq!((totals.errors, totals.lost, totals.delivered), (1, 0, 1));
}

pub async fn one_result_that_cannot_be_settled_does_not_hold_up_the_others(t: &Trial) {
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    let ids = enqueue_for(t, &receiver, 6).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.poison(ids[2]);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1"));
    receiver.wait_for(6, PATIENCE).await;
    gate.open();
    for (index, id) in ids.iter().enumerate() {
        if index != 2 {
            becomes(t, *id, DeliveryStatus::Delivered).await;
        }
    }
    let totals = running.stop().await;
    assert_eq!(totals.delivered, 5);
    let poisoned = t.delivery(ids[2]).await;
    assert_eq!(poisoned.status, DeliveryStatus::Pending);
    assert_eq!(
        poisoned.lease_owner.as_deref(),
        Some("w1"),
        "its lease is left to expire, and counts as abandoned then"
    );
}

pub async fn a_dispatcher_does_not_go_on_without_one_of_its_parts(t: &Trial) {
    let receiver = Receiver::start(|_, number| if number == 1 { Answer::never() } else { Answer::status(200) }).await;
    let mut ids = Vec::new();
    for (call, name) in [(Call::Renew, "w1"), (Call::Settle, "w2"), (Call::Tend, "w3")] {
        ids.extend(enqueue_for(t, &receiver, 1).await);
        let wire = FaultyStore::new(Arc::clone(&t.store));
        wire.inject(call, Fault::Panic, 1);
        let store = wire.clone() as Arc<dyn Store>;
        Running::start(dispatcher(&store, name).lease(Duration::from_millis(300))).panics().await;
    }
    // Whoever comes after it finds everything.
    let running = Running::start(dispatcher(&t.store, "w4"));
    all_become(t, &ids, DeliveryStatus::Delivered).await;
    running.stop().await;
}
