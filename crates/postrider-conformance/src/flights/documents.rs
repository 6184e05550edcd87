//! The acceptance criteria of the founding documents, one by one, with a real dispatcher. Each name says which.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use postrider::{
    DeliveryId, DeliveryStatus, Dispatcher, Fact, Feed, Heard, InvalidDispatcher, Lease, LeaseTerm, Store,
    StoreErrorCode,
};

use super::{Running, SECRET, becomes, dispatcher, enqueue_for, event_for, leases};
use crate::faulty::{Call, Fault, FaultyStore, Seen};
use crate::logs::Logs;
use crate::receiver::{Answer, Gate, Receiver};
use crate::trial::{Trial, operator};
use crate::wait::{PATIENCE, eventually, within};

/// Short enough for a test, long enough for a busy machine to renew it in time.
const LEASE: Duration = Duration::from_millis(1500);

/// A dispatcher behind a wire, with one attempt that is held at its receiver.
struct Held {
    wire: Arc<FaultyStore>,
    receiver: Receiver,
    gate: Gate,
    ids: Vec<DeliveryId>,
    running: Running,
}

async fn held(t: &Trial, status: u16, count: usize) -> Held {
    let gate = Gate::new();
    let closed = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(status).after(&closed)).await;
    let wire = FaultyStore::new(Arc::clone(&t.store));
    let store = wire.clone() as Arc<dyn Store>;
    let running = Running::start(dispatcher(&store, "w1").lease(LEASE));
    let ids = enqueue_for(t, &receiver, count).await;
    receiver.wait_for(count, PATIENCE).await;
    Held { wire, receiver, gate, ids, running }
}

fn names(leases: &[Lease], id: DeliveryId) -> bool {
    leases.iter().any(|lease| lease.delivery_id == id)
}

impl Held {
    /// How many renewals asked for this one.
    fn renewals_of(&self, id: DeliveryId) -> usize {
        let asks = |seen: &Seen| matches!(seen, Seen::Renewing(leases) if names(leases, id));
        self.wire.seen().into_iter().filter(asks).count()
    }

    /// How many renewals were refused to this one.
    fn refusals_of(&self, id: DeliveryId) -> usize {
        let refuses = |seen: &Seen| matches!(seen, Seen::Refused(leases) if names(leases, id));
        self.wire.seen().into_iter().filter(refuses).count()
    }

    async fn renewed(&self, id: DeliveryId, times: usize) {
        let already = self.renewals_of(id);
        eventually("renewals", PATIENCE, || async { (self.renewals_of(id) >= already + times).then_some(()) }).await;
    }
}

pub async fn doc_000_flow_1_a_success_is_renewed_sent_and_marked_delivered(t: &Trial) {
    let held = held(t, 200, 1).await;
    held.renewed(held.ids[0], 2).await;
    held.gate.open();
    becomes(t, held.ids[0], DeliveryStatus::Delivered).await;
    held.running.stop().await;
    assert_eq!(held.receiver.request_count(), 1);
}

pub async fn doc_000_flow_2_a_failure_is_renewed_sent_and_marked_for_retry(t: &Trial) {
    let held = held(t, 500, 1).await;
    held.renewed(held.ids[0], 2).await;
    held.gate.open();
    becomes(t, held.ids[0], DeliveryStatus::Failed).await;
    assert!(t.delivery(held.ids[0]).await.lease_owner.is_none());
    held.running.stop().await;
}

pub async fn doc_000_flow_3_a_lost_lease_ends_renewal_and_the_attempt_goes_on(t: &Trial) {
    let held = held(t, 200, 1).await;
    t.store.cancel(held.ids[0], "taken away", &operator()).await.unwrap();
    // A renewal may be under way beside the cancellation, so the refusal itself is waited for, and not one more renewal.
    eventually("a refusal", PATIENCE, || async { (held.refusals_of(held.ids[0]) > 0).then_some(()) }).await;
    let neighbour = enqueue_for(t, &held.receiver, 1).await[0];
    held.renewed(neighbour, 3).await;
    assert_eq!(held.refusals_of(held.ids[0]), 1, "renewal ended with the first refusal");
    let last = held.wire.seen().into_iter().rev().find_map(|seen| match seen {
        Seen::Renewing(leases) => Some(leases),
        Seen::Claimed { .. } | Seen::Refused(_) | Seen::Settled(_) => None,
    });
    assert!(last.unwrap().iter().all(|lease| lease.delivery_id == neighbour), "only the neighbour is still renewed");
    assert_eq!(held.receiver.open_requests(), 2, "the attempt goes on");
    held.gate.open();
    becomes(t, neighbour, DeliveryStatus::Delivered).await;
    assert_eq!(held.running.stop().await.lost, 1);
}

pub async fn doc_000_interval_is_a_third_of_the_lease_at_least_100_ms_and_less_than_the_lease(t: &Trial) {
    for (lease_ms, heartbeat_ms) in [(30_000, 10_000), (3_000, 1_000), (250, 100), (101, 100)] {
        let builder = Dispatcher::builder(Arc::clone(&t.store)).lease(Duration::from_millis(lease_ms));
        assert_eq!(builder.build().unwrap().heartbeat(), Duration::from_millis(heartbeat_ms));
    }
}

pub async fn doc_000_risk_no_renewal_outlives_its_attempt(t: &Trial) {
    let held = held(t, 200, 20).await;
    held.gate.open();
    for id in &held.ids {
        becomes(t, *id, DeliveryStatus::Delivered).await;
    }
    let settled = held.wire.seen().len();
    // A later attempt is renewed several times; none of these renewals names one that has ended.
    let gate = Gate::new();
    let closed = gate.clone();
    let slow = Receiver::start(move |_, _| Answer::status(200).after(&closed)).await;
    let later = enqueue_for(t, &slow, 1).await[0];
    slow.wait_for(1, PATIENCE).await;
    held.renewed(later, 3).await;
    for seen in &held.wire.seen()[settled..] {
        if let Seen::Renewing(leases) = seen {
            assert!(leases.iter().all(|lease| lease.delivery_id == later), "{leases:?}");
        }
    }
    gate.open();
    held.running.stop().await;
}

pub async fn doc_001_fr_001_ac1_renewal_starts_before_or_at_delivery_start(t: &Trial) {
    let held = held(t, 200, 10).await;
    for id in &held.ids {
        let delivery = t.delivery(*id).await;
        assert_eq!(delivery.lease_owner.as_deref(), Some("w1"), "it is leased when its request arrives");
        held.renewed(*id, 1).await;
    }
    assert_eq!(held.receiver.open_requests(), 10, "each was renewed while its attempt was under way");
    held.gate.open();
    held.running.stop().await;
}

pub async fn doc_001_fr_001_ac2_renewal_moves_lease_until_forward_for_the_owner(t: &Trial) {
    let held = held(t, 200, 1).await;
    let mut last = t.delivery(held.ids[0]).await.lease_until.unwrap();
    for _ in 0..3 {
        last = eventually("lease_until to move forward", PATIENCE, || async {
            let delivery = t.delivery(held.ids[0]).await;
            assert_eq!(delivery.lease_owner.as_deref(), Some("w1"));
            let lease_until = delivery.lease_until.unwrap();
            assert!(lease_until >= last, "never backwards");
            (lease_until > last).then_some(lease_until)
        })
        .await;
    }
    held.gate.open();
    held.running.stop().await;
}

pub async fn doc_001_fr_001_ac3_renewal_stops_after_the_final_update(t: &Trial) {
    for (status, final_status) in [(200, DeliveryStatus::Delivered), (500, DeliveryStatus::Failed)] {
        let held = held(t, status, 1).await;
        held.renewed(held.ids[0], 1).await;
        held.gate.open();
        becomes(t, held.ids[0], final_status).await;
        held.running.stop().await;
        let seen = held.wire.seen();
        let settled = seen.iter().position(|seen| matches!(seen, Seen::Settled(_))).unwrap();
        assert!(!seen[settled..].iter().any(|seen| matches!(seen, Seen::Renewing(_))), "{seen:?}");
    }
}

pub async fn doc_001_fr_002_ac2_a_lost_lease_ends_its_own_renewal_and_no_other(t: &Trial) {
    let held = held(t, 200, 3).await;
    t.store.cancel(held.ids[0], "taken away", &operator()).await.unwrap();
    let before = [t.delivery(held.ids[1]).await.lease_until, t.delivery(held.ids[2]).await.lease_until];
    held.renewed(held.ids[1], 3).await;
    for (id, before) in held.ids[1..].iter().zip(before) {
        let delivery = t.delivery(*id).await;
        assert!(delivery.lease_until > before, "the others are renewed as before");
    }
    held.gate.open();
    let totals = held.running.stop().await;
    assert_eq!((totals.delivered, totals.lost), (2, 1));
}

pub async fn doc_001_fr_002_ac3_a_stale_final_mark_changes_nothing(t: &Trial) {
    leases::p4_a_dispatcher_whose_lease_was_taken_changes_nothing(t).await;
}

pub async fn doc_001_fr_003_ac1_the_interval_is_derived_and_positive(_t: &Trial) {
    for lease_ms in [101, 1_000, 30_000, 3_600_000] {
        let term = LeaseTerm::new(Duration::from_millis(lease_ms)).unwrap();
        assert!(term.heartbeat() > Duration::ZERO);
    }
}

pub async fn doc_001_fr_003_ac2_the_interval_is_less_than_the_lease(_t: &Trial) {
    for lease_ms in 101..1_000 {
        let term = LeaseTerm::new(Duration::from_millis(lease_ms)).unwrap();
        assert!(term.heartbeat() < term.lease(), "{term:?}");
    }
}

pub async fn doc_001_fr_003_ac3_a_lease_without_a_valid_interval_is_refused_at_construction(t: &Trial) {
    for lease_ms in [0, 1, 100] {
        let built = Dispatcher::builder(Arc::clone(&t.store)).lease(Duration::from_millis(lease_ms)).build();
        let error = built.unwrap_err();
        assert!(matches!(error, InvalidDispatcher::Lease(_)));
        assert!(error.to_string().starts_with("lease_too_short: "), "{error}");
    }
}

pub async fn doc_001_fr_004_ac1_no_lock_rows_are_left_behind(t: &Trial) {
    let receiver = Receiver::start(|_, number| Answer::status(if number % 3 == 0 { 500 } else { 200 })).await;
    let ids = enqueue_for(t, &receiver, 30).await;
    let running = Running::start(dispatcher(&t.store, "w1"));
    eventually("all to be settled", PATIENCE, || async {
        let overview = t.overview().await;
        (overview.delivered + overview.failed == ids.len() as u64).then_some(())
    })
    .await;
    running.stop().await;
    assert_eq!(t.places().await.leases, []);
}

pub async fn doc_001_fr_004_ac2_a_crashed_workers_rows_are_reclaimed_after_lease_until(t: &Trial) {
    leases::p11_a_crashed_dispatchers_deliveries_are_taken_up_by_another(t).await;
}

pub async fn doc_001_fr_004_ac3_a_crash_leaves_counters_and_status_as_they_were(t: &Trial) {
    t.freeze();
    let receiver = Receiver::start(|_, number| if number == 1 { Answer::status(500) } else { Answer::never() }).await;
    let id = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1"));
    becomes(t, id, DeliveryStatus::Failed).await;
    t.advance_secs(30);
    receiver.wait_for(2, PATIENCE).await;
    let before = t.delivery(id).await;
    running.crash().await;
    t.advance_secs(31);
    t.other.recover(10, 10).await.unwrap();
    let after = t.delivery(id).await;
    assert_eq!((after.status, after.attempt_count), (DeliveryStatus::Failed, 1));
    assert_eq!(after.next_attempt_at, before.next_attempt_at);
    assert_eq!(after.last_attempted_at, before.last_attempted_at);
    assert_eq!(after.abandoned_count, 1, "crashes are counted apart");
}

pub async fn doc_001_fr_005_ac1_a_failed_renewal_is_logged_with_delivery_worker_code_and_message(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let held = held(t, 200, 1).await;
    held.wire.inject(Call::Renew, Fault::Refuse(StoreErrorCode::Unavailable), 1);
    let id = held.ids[0].to_string();
    let parts = ["WARN", id.as_str(), "worker_id=w1", "code=store_unavailable", "the wire is cut"];
    eventually("the failure to be logged", PATIENCE, || async { (!logs.lines_with(&parts).is_empty()).then_some(()) })
        .await;
    held.gate.open();
    becomes(t, held.ids[0], DeliveryStatus::Delivered).await;
    held.running.stop().await;
}

pub async fn doc_001_fr_005_ac2_the_reasons_for_which_renewal_ends_are_told_apart(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let ended = |id: DeliveryId, reason: &str| {
        logs.lines_with(&["renewal ended", &id.to_string(), &format!("reason={reason}"), "worker_id=w1"]).len()
    };
    // Completed and lost.
    let first = held(t, 200, 2).await;
    t.store.cancel(first.ids[0], "taken away", &operator()).await.unwrap();
    eventually("the loss to be noticed", PATIENCE, || async { (ended(first.ids[0], "lost") == 1).then_some(()) }).await;
    first.gate.open();
    becomes(t, first.ids[1], DeliveryStatus::Delivered).await;
    first.running.stop().await;
    assert_eq!((ended(first.ids[0], "completed"), ended(first.ids[1], "completed")), (0, 1));
    // Store error: renewals fail until the lease has run out.
    let second = held(t, 200, 1).await;
    second.wire.inject(Call::Renew, Fault::Refuse(StoreErrorCode::Unavailable), u32::MAX);
    second.wire.inject(Call::Tend, Fault::Hang, u32::MAX);
    eventually("the lease to run out", PATIENCE, || async { (ended(second.ids[0], "store_error") == 1).then_some(()) })
        .await;
    second.gate.open();
    becomes(t, second.ids[0], DeliveryStatus::Delivered).await;
    second.running.stop().await;
    // Shutdown: the attempt does not end in time.
    let receiver = Receiver::start(|_, _| Answer::never()).await;
    let third = enqueue_for(t, &receiver, 1).await[0];
    let running = Running::start(dispatcher(&t.store, "w1").drain_timeout(Duration::ZERO));
    receiver.wait_for(1, PATIENCE).await;
    running.stop().await;
    assert_eq!(ended(third, "shutdown"), 1, "{}", logs.text());
    // Deadline: see `p13_an_attempt_without_end_is_renewed_only_until_its_hard_deadline`.
}

pub async fn doc_001_nfr_003_renewal_logs_carry_neither_body_nor_secret(t: &Trial) {
    let logs = Logs::new();
    let _guard = logs.collect_on_this_thread();
    let held = held(t, 200, 1).await;
    held.wire.inject(Call::Renew, Fault::Refuse(StoreErrorCode::Unavailable), 2);
    held.renewed(held.ids[0], 3).await;
    held.gate.open();
    held.running.stop().await;
    let text = logs.text();
    assert!(text.contains("a lease was not renewed"));
    assert!(!text.contains("in_42") && !text.contains(&SECRET[6..]));
}

/// A delivery with so many failures behind it, and the receiver that will fail it again.
async fn failed_times(t: &Trial, failures: u32, topic: &str) -> (Receiver, DeliveryId, Running) {
    let receiver = Receiver::start(|_, _| Answer::status(500).body("out of order")).await;
    let running = Running::start(dispatcher(&t.store, "router"));
    let id = t.enqueue(event_for(&receiver).topic(topic)).await.deliveries()[0].id;
    for attempt in 1..=failures {
        fails(t, id, attempt).await;
    }
    (receiver, id, running)
}

/// Waits for the `attempt`-th failure, checks its delay, and lets it pass.
async fn fails(t: &Trial, id: DeliveryId, attempt: u32) {
    eventually("the next failure", PATIENCE, || async {
        (t.delivery(id).await.attempt_count == attempt).then_some(())
    })
    .await;
    let delivery = t.delivery(id).await;
    let delay = [30, 120, 600, 3600][attempt as usize - 1];
    assert_eq!(delivery.status, DeliveryStatus::Failed);
    let due = delivery.next_attempt_at.unwrap();
    assert_eq!(due.duration_since(delivery.last_attempted_at.unwrap()), SignedDuration::from_secs(delay));
    t.advance_secs(delay.unsigned_abs());
}

pub async fn doc_003_s1_first_delivery_failure_schedules_a_30_second_retry(t: &Trial) {
    let now = t.freeze();
    let (_receiver, id, running) = failed_times(t, 0, "webhooks").await;
    becomes(t, id, DeliveryStatus::Failed).await;
    let delivery = t.delivery(id).await;
    assert_eq!(delivery.attempt_count, 1);
    assert_eq!(delivery.next_attempt_at, Some(now + SignedDuration::from_secs(30)));
    assert_eq!(delivery.error_detail.as_deref(), Some("HTTP 500: out of order"));
    running.stop().await;
}

pub async fn doc_003_s2_fifth_failure_marks_dead_and_broadcasts(t: &Trial) {
    t.freeze();
    let feed = Feed::start(Arc::clone(&t.store)).await.unwrap();
    let (receiver, id, running) = failed_times(t, 3, "webhooks").await;
    let mut before = feed.subscribe("webhooks");
    fails(t, id, 4).await;
    is_dead_after(t, id, &mut before).await;
    assert_eq!(receiver.request_count(), 5);
    running.stop().await;
}

/// Hears the death on a subscription that was there before it.
async fn is_dead_after(t: &Trial, id: DeliveryId, heard: &mut postrider::Subscription) {
    let told = within("the broadcast", PATIENCE, async {
        loop {
            match heard.next().await {
                Some(Heard::Announcement(told)) if told.fact == Fact::Dead => return told,
                Some(_) => {}
                None => panic!("the feed ended"),
            }
        }
    })
    .await;
    assert_eq!((told.delivery_id, told.topic.as_str(), told.attempt_count), (id, "webhooks", 5));
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Dead, 5));
    assert_eq!(delivery.next_attempt_at, None);
    assert_eq!(t.times_announced(Fact::Dead, id).await, 1);
}

pub async fn doc_003_a1_delivery_succeeds(t: &Trial) {
    let now = t.freeze();
    let feed = Feed::start(Arc::clone(&t.store)).await.unwrap();
    let mut heard = feed.subscribe("webhooks");
    let receiver = Receiver::answering(204).await;
    let running = Running::start(dispatcher(&t.store, "router"));
    let id = t.enqueue(event_for(&receiver).topic("webhooks")).await.deliveries()[0].id;
    becomes(t, id, DeliveryStatus::Delivered).await;
    let delivery = t.delivery(id).await;
    assert_eq!((delivery.last_attempted_at, delivery.next_attempt_at), (Some(now), None));
    let Some(Heard::Announcement(told)) = within("the broadcast", PATIENCE, heard.next()).await else {
        panic!("the feed ended")
    };
    assert_eq!((told.fact, told.delivery_id), (Fact::Delivered, id));
    t.advance_secs(86_400);
    assert_eq!(t.store.promote(10).await.unwrap().next_due_in, None, "no further retries are scheduled");
    running.stop().await;
}

pub async fn doc_003_f1_all_five_failures_wait_by_the_schedule_and_end_dead(t: &Trial) {
    t.freeze();
    let feed = Feed::start(Arc::clone(&t.store)).await.unwrap();
    let mut heard = feed.subscribe("webhooks");
    let (receiver, id, running) = failed_times(t, 4, "webhooks").await;
    is_dead_after(t, id, &mut heard).await;
    // No further automatic retry, however long one waits; an operator starts anew.
    t.advance_secs(1_000_000);
    let other = Receiver::answering(200).await;
    let later = enqueue_for(t, &other, 1).await[0];
    becomes(t, later, DeliveryStatus::Delivered).await;
    assert_eq!(receiver.request_count(), 5);
    t.store.retry(id, &operator()).await.unwrap();
    receiver.wait_for(6, PATIENCE).await;
    becomes(t, id, DeliveryStatus::Failed).await;
    assert_eq!(t.delivery(id).await.attempt_count, 1);
    running.stop().await;
}

pub async fn doc_003_ac1_attempt_count_0_fails_to_1_with_30_seconds(t: &Trial) {
    t.freeze();
    let (_receiver, id, running) = failed_times(t, 1, "webhooks").await;
    assert!(t.delivery(id).await.attempt_count >= 1);
    running.stop().await;
}

pub async fn doc_003_ac2_attempt_count_4_fails_to_dead_with_a_broadcast(t: &Trial) {
    t.freeze();
    let feed = Feed::start(Arc::clone(&t.store)).await.unwrap();
    let mut heard = feed.subscribe("webhooks");
    let (_receiver, id, running) = failed_times(t, 4, "webhooks").await;
    is_dead_after(t, id, &mut heard).await;
    running.stop().await;
}
