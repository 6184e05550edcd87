//! Documents 000 and 001: leases of the webhook dispatcher, as the application configures it. How the engine keeps them is
//! proven in its own suite; here it is seen from outside, in the database and in the log.

use postrider::store::Operator;
use postrider::{DeliveryId, Store as _};
use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::eventually;
use sqlx::Row as _;
use uuid::Uuid;

use crate::support::{AMOUNT, Anvil, PATIENCE, Process, SECRET, World};

/// One delivery that a dispatcher named `w1` holds at its receiver.
struct Held {
    world: World,
    receiver: Receiver,
    gate: Gate,
    dispatcher: Process,
}

/// Short enough for a test, long enough for a busy machine to renew it in time.
const LEASE: (&str, &str) = ("PAYMENTS_WEBHOOK_LEASE", "3s");

async fn enqueued(world: &World, receiver: &Receiver, count: i64) {
    let anvil = Anvil::start().await;
    for _ in 0..count {
        let request = world.request(Some(&receiver.url())).await;
        anvil.pay(&request.address, AMOUNT).await;
    }
    let mut reconciler = world.reconciler(&anvil, &[]);
    world.eventually_counts("postrider.deliveries", count).await;
    assert!(reconciler.stop().await.success());
}

async fn held(status: u16, count: u32) -> Held {
    let world = World::new().await;
    let gate = Gate::new();
    let closed = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(status).after(&closed)).await;
    enqueued(&world, &receiver, count.into()).await;
    let variables =
        [LEASE, ("PAYMENTS_WORKER_ID", "w1"), ("PAYMENTS_LOG", "debug"), ("PAYMENTS_WEBHOOK_TIMEOUT", "60s")];
    let dispatcher = world.start("webhook-dispatcher", &variables);
    receiver.wait_for(count as usize, PATIENCE).await;
    Held { world, receiver, gate, dispatcher }
}

impl Held {
    /// The leases, by delivery: owner and end.
    async fn leases(&self) -> Vec<(Uuid, String, String)> {
        let rows =
            sqlx::query("select delivery_id, owner, lease_until::text as until from postrider.leases order by 1");
        let rows = rows.fetch_all(&self.world.pool()).await.unwrap();
        rows.iter().map(|row| (row.get("delivery_id"), row.get("owner"), row.get("until"))).collect()
    }

    /// Waits until every lease was renewed, and gives them.
    async fn renewed(&self) -> Vec<(Uuid, String, String)> {
        let before = self.leases().await;
        eventually("all leases to be renewed", PATIENCE, async || {
            let now = self.leases().await;
            let forward = now.len() == before.len() && now.iter().zip(&before).all(|(now, before)| now.2 > before.2);
            forward.then_some(now)
        })
        .await
    }

    async fn delivery(&self) -> DeliveryId {
        let id = sqlx::query_scalar("select id from postrider.deliveries order by id limit 1");
        DeliveryId::from_uuid(id.fetch_one(&self.world.pool()).await.unwrap())
    }
}

#[tokio::test]
async fn doc_000_flow_1_a_slow_success_is_renewed_delivered_and_let_go() {
    let held = held(200, 1).await;
    held.renewed().await;
    held.gate.open();
    held.world.eventually_counts("postrider.deliveries where status = 'delivered'", 1).await;
    assert!(held.leases().await.is_empty());
    assert_eq!(held.receiver.request_count(), 1);
}

#[tokio::test]
async fn doc_000_flow_2_a_slow_failure_is_renewed_and_marked_for_retry() {
    let held = held(500, 1).await;
    held.renewed().await;
    held.gate.open();
    // The gate stays open, so the retries follow until the last.
    held.world.eventually_counts("postrider.deliveries where status = 'dead' and attempt_count = 3", 1).await;
    assert!(held.leases().await.is_empty());
}

#[tokio::test]
async fn doc_000_flow_3_a_lost_lease_ends_renewal_and_its_result_does_not_count() {
    let held = held(200, 1).await;
    let id = held.delivery().await;
    held.world.store().cancel(id, "taken away", &Operator("test".to_owned())).await.unwrap();
    held.dispatcher.says(&["renewal ended", "reason=lost", &id.to_string()]).await;
    assert_eq!(held.receiver.open_requests(), 1, "the attempt goes on");
    held.gate.open();
    held.dispatcher.says(&["lost=1"]).await;
    held.world.eventually_counts("postrider.deliveries where status = 'cancelled' and attempt_count = 0", 1).await;
}

#[tokio::test]
async fn doc_000_interval_is_a_third_of_the_configured_lease() {
    let world = World::new().await;
    for (lease, heartbeat) in [("30s", "heartbeat=10s"), ("1500ms", "heartbeat=500ms"), ("101ms", "heartbeat=100ms")] {
        let dispatcher = world.start("webhook-dispatcher", &[("PAYMENTS_WEBHOOK_LEASE", lease)]);
        dispatcher.says(&["dispatching", heartbeat]).await;
    }
}

#[tokio::test]
async fn doc_001_fr_001_ac1_what_is_in_flight_is_leased_and_renewed_from_its_start() {
    let held = held(200, 5).await;
    assert_eq!(held.leases().await.len(), 5, "each is leased when its request arrives");
    held.renewed().await;
    assert_eq!(held.receiver.open_requests(), 5);
}

#[tokio::test]
async fn doc_001_fr_001_ac2_lease_until_moves_forward_for_the_same_owner() {
    let held = held(200, 1).await;
    for _ in 0..3 {
        assert_eq!(held.renewed().await[0].1, "w1");
    }
}

#[tokio::test]
async fn doc_001_fr_001_ac3_renewal_stops_after_the_final_update() {
    let held = held(200, 1).await;
    let id = held.delivery().await.to_string();
    held.renewed().await;
    held.gate.open();
    held.dispatcher.says(&["renewal ended", "reason=completed", &id]).await;
    held.world.eventually_counts("postrider.leases", 0).await;
    assert!(held.dispatcher.lines_with(&["renewal ended", "reason=lost"]).is_empty());
}

#[tokio::test]
async fn doc_001_fr_002_another_dispatcher_neither_renews_nor_takes_what_is_held() {
    let held = held(200, 2).await;
    let other = held.world.start("webhook-dispatcher", &[LEASE, ("PAYMENTS_WORKER_ID", "w2")]);
    other.says(&["dispatching"]).await;
    // Held for longer than the lease.
    for _ in 0..5 {
        assert!(held.renewed().await.iter().all(|(_, owner, _)| owner == "w1"));
    }
    held.gate.open();
    held.world.eventually_counts("postrider.deliveries where status = 'delivered' and attempt_count = 1", 2).await;
    assert_eq!(held.receiver.request_count(), 2, "nobody sent anything twice");
    assert_eq!(held.world.count("postrider.attempts where worker_id = 'w1'").await, 2);
}

#[tokio::test]
async fn doc_001_fr_004_a_killed_dispatchers_rows_are_taken_up_and_nothing_stays_locked() {
    let mut held = held(200, 2).await;
    held.dispatcher.kill_9().await;
    assert_eq!(held.leases().await.len(), 2, "a crash leaves its leases");
    let _other = held.world.start("webhook-dispatcher", &[LEASE, ("PAYMENTS_WORKER_ID", "w2")]);
    held.receiver.wait_for(4, PATIENCE).await;
    assert_eq!(held.world.count("postrider.deliveries where attempt_count = 0 and abandoned_count = 1").await, 2);
    held.gate.open();
    held.world.eventually_counts("postrider.deliveries where status = 'delivered' and attempt_count = 1", 2).await;
    assert!(held.leases().await.is_empty());
}

#[tokio::test]
async fn doc_001_fr_005_ac1_a_failed_renewal_is_logged_with_delivery_worker_and_code() {
    let held = held(200, 1).await;
    let id = held.delivery().await.to_string();
    let pool = held.world.pool();
    let mut lock = pool.begin().await.unwrap();
    sqlx::query("lock table postrider.leases in access exclusive mode").execute(&mut *lock).await.unwrap();
    held.dispatcher.says(&["WARN", "a lease was not renewed", &id, "worker_id=w1", "code=store_"]).await;
    lock.rollback().await.unwrap();
    held.gate.open();
    held.world.eventually_counts("postrider.leases", 0).await;
}

#[tokio::test]
async fn doc_001_fr_005_ac2_the_reasons_for_which_renewal_ends_are_told_apart() {
    let held = held(200, 2).await;
    let id = held.delivery().await;
    held.world.store().cancel(id, "taken away", &Operator("test".to_owned())).await.unwrap();
    held.dispatcher.says(&["renewal ended", "reason=lost", "code=\"lease_lost\"", &id.to_string()]).await;
    held.gate.open();
    held.dispatcher.says(&["renewal ended", "reason=completed", "code=\"lease_settled\""]).await;
    assert_eq!(held.dispatcher.lines_with(&["renewal ended", "reason=completed"]).len(), 1);
}

#[tokio::test]
async fn doc_001_nfr_003_renewal_logs_carry_neither_body_nor_secret() {
    let held = held(200, 1).await;
    let id = held.delivery().await;
    held.renewed().await;
    held.world.store().cancel(id, "taken away", &Operator("test".to_owned())).await.unwrap();
    held.dispatcher.says(&["renewal ended"]).await;
    let log = held.dispatcher.log();
    assert!(!log.contains(SECRET) && !log.contains("previous_status"), "{log}");
}
