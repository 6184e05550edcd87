//! Who may settle, when receivers are slow, workers crash and renewals stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use postrider::store::Settlement;
use postrider::{DeliveryStatus, Store, Verdict};

use super::{Running, becomes, dispatcher, enqueue_for};
use crate::faulty::{Call, Fault, FaultyStore, Seen};
use crate::logs::Logs;
use crate::receiver::{Answer, Gate, Receiver};
use crate::trial::{Trial, claim_from, operator, settle_of, worker};
use crate::wait::{PATIENCE, eventually};

/// Short enough for a test, long enough for a busy machine to renew it in time.
const LEASE: Duration = Duration::from_secs(2);

pub async fn p12_a_receiver_ten_times_slower_than_the_lease_gets_one_request(t: &Trial) {
    let lease = Duration::from_secs(1);
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1").lease(lease));
    receiver.wait_for(1, PATIENCE).await;
    let first = t.delivery(id).await.lease_until.unwrap();
    eventually("ten leases to pass", PATIENCE, || async {
        let lease_until = t.delivery(id).await.lease_until.expect("it is leased without a break");
        (lease_until.duration_since(first) > SignedDuration::try_from(lease * 10).unwrap()).then_some(())
    })
    .await;
    gate.open();
    becomes(t, id, DeliveryStatus::Delivered).await;
    let totals = running.stop().await;
    assert_eq!(receiver.request_count(), 1, "it was never sent twice");
    assert_eq!((totals.claimed, totals.lost), (1, 0));
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.attempt_count, delivery.abandoned_count), (1, 0));
}

pub async fn p11_a_crashed_dispatchers_deliveries_are_taken_up_by_another(t: &Trial) {
    let receiver = Receiver::start(|_, number| if number <= 20 { Answer::never() } else { Answer::status(200) }).await;
    let ids = enqueue_for(t, &receiver, 20).await;
    let first = Running::start(dispatcher(&t.store, "w1").lease(LEASE));
    receiver.wait_for(20, PATIENCE).await;
    first.crash().await;
    let crashed = Instant::now();
    let second = Running::start(dispatcher(&t.other, "w2").lease(LEASE));
    for id in &ids {
        becomes(t, *id, DeliveryStatus::Delivered).await;
    }
    // Lease and poll, and some time for a machine that does other things as well.
    let bound = LEASE + Duration::from_millis(50) + Duration::from_secs(3);
    assert!(crashed.elapsed() < bound, "taken up after {:?}", crashed.elapsed());
    second.stop().await;
    assert_eq!(receiver.request_count(), 40);
    for id in ids {
        let delivery = t.delivery(id).await;
        assert_eq!((delivery.attempt_count, delivery.abandoned_count), (1, 0), "a crash is not an attempt");
        assert_eq!(t.attempts(id).await[0].worker_id, "w2");
    }
}

pub async fn p4_a_dispatcher_whose_lease_was_taken_changes_nothing(t: &Trial) {
    t.freeze();
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn Store>;
    wire.inject(Call::Renew, Fault::Hang, u32::MAX);
    wire.inject(Call::Tend, Fault::Hang, u32::MAX);
    // With its one slot taken, it cannot claim the delivery a second time itself.
    let running = Running::start(dispatcher(&store, "asleep").max_in_flight(1));
    receiver.wait_for(1, PATIENCE).await;

    t.advance_secs(31);
    assert_eq!(t.other.recover(10, 10).await.unwrap().returned, 1);
    let claim = claim_from(&*t.other, "awake", 1, crate::trial::LEASE).await.remove(0);
    let settled = t.other.settle(&worker("awake"), &[settle_of(claim.lease, Verdict::Dead)]).await.unwrap();
    assert_eq!(settled, [Settlement::Applied]);

    gate.open();
    eventually("the stale result to be refused", PATIENCE, || async {
        wire.seen().iter().any(|seen| matches!(seen, Seen::Settled(_))).then_some(())
    })
    .await;
    let totals = running.stop().await;
    assert_eq!((totals.lost, totals.delivered), (1, 0));
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Dead, 1));
    assert_eq!(t.attempts(id).await.len(), 1, "the stale attempt left no trace");
}

pub async fn p13_an_attempt_without_end_is_renewed_only_until_its_hard_deadline(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn Store>;
    wire.inject(Call::Settle, Fault::Hang, u32::MAX);
    let lease = Duration::from_millis(400);
    let builder = dispatcher(&store, "hung").lease(lease).timeout(Duration::from_millis(400));
    let running = Running::start(builder.drain_timeout(Duration::ZERO));
    eventually("the lease to be given up and taken back", PATIENCE, || async {
        (t.delivery(id).await.abandoned_count > 0).then_some(())
    })
    .await;
    let ended = logs.lines_with(&["renewal ended", "reason=deadline", &id.to_string()]);
    assert_eq!(ended.len(), 1, "{}", logs.text());
    assert!(wire.seen().iter().any(|seen| matches!(seen, Seen::Renewing(_))), "it was renewed before");
    running.stop().await;
}

pub async fn a_cancelled_delivery_is_lost_to_its_attempt(t: &Trial) {
    let gate = Gate::new();
    let held = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&held)).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1"));
    receiver.wait_for(1, PATIENCE).await;
    t.store.cancel(id, "sent by mistake", &operator()).await.unwrap();
    gate.open();
    let totals = running.stop().await;
    assert_eq!((totals.lost, totals.delivered), (1, 0));
    assert_eq!(t.delivery(id).await.status, DeliveryStatus::Cancelled);
}

pub async fn a_dispatcher_that_cannot_renew_starts_nothing_under_an_old_lease(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    // The claim takes effect at once, but its answer comes only after the lease has run out.
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.delay_answers(Call::Claim, Duration::from_millis(400), 1);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "slow").lease(Duration::from_millis(300)));
    becomes(t, id, DeliveryStatus::Delivered).await;
    running.stop().await;
    assert_eq!(logs.lines_with(&["not sent", "lease_expired", &id.to_string()]).len(), 1, "{}", logs.text());
    assert_eq!(receiver.request_count(), 1, "only the attempt under the fresh lease was sent");
    assert_eq!(t.attempts(id).await.len(), 1);
}

pub async fn claims_that_are_answered_too_late_do_not_bury_a_delivery(t: &Trial) {
    // Time stands still in the database, so the leases that run out here do not run out there.
    t.freeze();
    let receiver = Receiver::answering(200).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let wire = FaultyStore::new(Arc::clone(&t.store));
    wire.delay_answers(Call::Claim, Duration::from_millis(1200), 2);
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "slow").lease(Duration::from_secs(1)).max_abandoned(1));
    becomes(t, id, DeliveryStatus::Delivered).await;
    let totals = running.stop().await;
    // The second claim may have been made before the first lease was back, and then has found nothing.
    assert!((1..=2).contains(&totals.released), "{totals:?}");
    assert_eq!((totals.claimed, totals.delivered), (totals.released + 1, 1), "each lease was given back");
    assert_eq!(t.delivery(id).await.abandoned_count, 0);
}
