//! Several reconcilers and dispatchers on one database, and crashes in the middle.

use std::collections::BTreeMap;

use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::eventually;
use serde_json::Value;

use crate::support::{AMOUNT, Anvil, PATIENCE, Process, World, bodies};

const URL: &str = "https://hooks.example.com/";

/// Locks on the events of this database, and those among them that are waited for.
const LOCKED: &str = "pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database() \
                      where l.relation = 'postrider.events'::regclass";
const WAITING: &str = "pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database() \
                       where l.relation = 'postrider.events'::regclass and not l.granted";

#[tokio::test]
async fn doc_002_replicas_of_a_reconciler_tell_each_transition_exactly_once() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let receiver = Receiver::answering(200).await;
    let mut requests = Vec::new();
    for _ in 0..30 {
        requests.push(world.request(Some(&receiver.url())).await);
    }
    // Small rounds, so that the replicas get in each other's way.
    let small = [
        ("PAYMENTS_RECONCILE_BATCH", "3"),
        ("PAYMENTS_RECONCILE_INTERVAL", "10ms"),
        ("PAYMENTS_MIN_CONFIRMATIONS", "3"),
    ];
    let _reconcilers: Vec<_> = (0..4).map(|_| world.reconciler(&anvil, &small)).collect();
    let _dispatchers: Vec<_> = (0..2).map(|_| world.start("webhook-dispatcher", &[])).collect();
    for request in &requests {
        anvil.pay(&request.address, AMOUNT).await;
    }
    for request in &requests {
        world.becomes(request.id, "detected").await;
    }
    anvil.mine(5).await;
    for request in &requests {
        world.becomes(request.id, "confirmed").await;
    }
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    for request in &requests {
        let told = world.told(request.id).await;
        assert_eq!(told, [pair("pending", "detected"), pair("detected", "confirmed")], "{}", request.id);
    }
    world.eventually_counts("postrider.deliveries where status = 'delivered'", 60).await;
    let mut arrived = BTreeMap::<String, u32>::new();
    for body in bodies(&receiver) {
        *arrived.entry(format!("{} {}", body["payment_request_id"], body["new_status"])).or_default() += 1;
    }
    assert_eq!(arrived.len(), 60);
    assert!(arrived.values().all(|count| *count == 1), "nobody crashed, so nothing came twice: {arrived:?}");
}

#[tokio::test]
async fn a_reconciler_that_is_killed_while_it_looks_is_replaced_after_its_lease() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let held = world.request(Some(URL)).await;
    anvil.pay(&held.address, AMOUNT).await;
    let silent = Receiver::start(|_, _| Answer::never()).await;
    let url = silent.url();
    let patient = [
        ("PAYMENTS_RPC_URL", url.as_str()),
        ("PAYMENTS_RPC_TIMEOUT", "60s"),
        ("PAYMENTS_RECONCILE_LEASE", "121s"),
        ("PAYMENTS_WORKER_ID", "first"),
    ];
    let mut first = world.start("reconciler", &patient);
    silent.wait_for(1, PATIENCE).await;
    first.kill_9().await;
    assert_eq!(world.count("payments.requests where lease_owner = 'first'").await, 1, "a crash leaves its lease");

    let _second = world.reconciler(&anvil, &[]);
    let later = world.request(Some(URL)).await;
    anvil.pay(&later.address, AMOUNT).await;
    world.becomes(later.id, "detected").await;
    assert_eq!(world.status(held.id).await, "pending", "not before the lease is over");
    // As if two minutes had passed.
    sqlx::query("update payments.requests set lease_until = clock_timestamp() where lease_owner = 'first'")
        .execute(&world.pool())
        .await
        .unwrap();
    world.becomes(held.id, "detected").await;
    assert_eq!(world.told(held.id).await.len(), 1);
}

#[tokio::test]
async fn a_reconciler_that_is_killed_between_transition_and_outbox_leaves_neither() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let request = world.request(Some(URL)).await;
    anvil.pay(&request.address, AMOUNT).await;
    // While we hold this lock, a transition is written and its event cannot be.
    let pool = world.pool();
    let mut lock = pool.begin().await.unwrap();
    sqlx::query("lock table postrider.events in exclusive mode").execute(&mut *lock).await.unwrap();
    let mut first = world.reconciler(&anvil, &[]);
    world.eventually_counts(WAITING, 1).await;
    first.kill_9().await;
    lock.rollback().await.unwrap();
    // The server notices that its client is gone, and rolls back.
    world.eventually_counts(LOCKED, 0).await;
    assert_eq!(world.status(request.id).await, "pending");
    assert!(world.told(request.id).await.is_empty());

    let _second = world.reconciler(&anvil, &[]);
    world.becomes(request.id, "detected").await;
    assert_eq!(world.told(request.id).await.len(), 1);
}

#[tokio::test]
async fn a_reconciler_that_comes_back_after_its_lease_changes_nothing() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let request = world.request(Some(URL)).await;
    anvil.pay(&request.address, AMOUNT).await;
    // A node that lets the first one wait, and then tells it of a payment.
    let gate = Gate::new();
    let closed = gate.clone();
    let node = Receiver::start(move |question, _| {
        let is_length = question.body.windows(15).any(|window| window == b"eth_blockNumber");
        let number = if is_length { "0x64" } else { "0xffffffffffffffffffff" };
        Answer::status(200).body(format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{number}"}}"#)).after(&closed)
    })
    .await;
    let url = node.url();
    let slow = [
        ("PAYMENTS_RPC_URL", url.as_str()),
        ("PAYMENTS_RPC_TIMEOUT", "60s"),
        ("PAYMENTS_RECONCILE_LEASE", "121s"),
        ("PAYMENTS_LOG", "debug"),
        ("PAYMENTS_WORKER_ID", "slow"),
        ("PAYMENTS_RECONCILE_INTERVAL", "1h"),
    ];
    let slow = world.start("reconciler", &slow);
    node.wait_for(1, PATIENCE).await;
    // As if two minutes had passed.
    sqlx::query("update payments.requests set lease_until = clock_timestamp()").execute(&world.pool()).await.unwrap();
    let _quick = world.reconciler(&anvil, &[]);
    world.becomes(request.id, "detected").await;
    gate.open();
    slow.says(&["another replica was quicker", &request.id.to_string()]).await;
    let told = world.told(request.id).await;
    assert_eq!(told, [("pending".to_owned(), "detected".to_owned())], "the observation of the slow one did not count");
}

/// What it saw is too old by then to decide anything, whether or not somebody else has looked meanwhile.
#[tokio::test]
async fn a_lease_that_has_lapsed_changes_nothing_even_if_nobody_took_over() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let request = world.request(Some(URL)).await;
    let gate = Gate::new();
    let closed = gate.clone();
    let node = Receiver::start(move |question, _| {
        let is_length = question.body.windows(15).any(|window| window == b"eth_blockNumber");
        let number = if is_length { "0x64" } else { "0xffffffffffffffffffff" };
        Answer::status(200).body(format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{number}"}}"#)).after(&closed)
    })
    .await;
    let url = node.url();
    let slow = [
        ("PAYMENTS_RPC_URL", url.as_str()),
        ("PAYMENTS_RPC_TIMEOUT", "60s"),
        ("PAYMENTS_RECONCILE_LEASE", "121s"),
        ("PAYMENTS_LOG", "debug"),
        ("PAYMENTS_RECONCILE_INTERVAL", "1h"),
    ];
    let mut slow = world.start("reconciler", &slow);
    node.wait_for(1, PATIENCE).await;
    // As if two minutes had passed.
    sqlx::query("update payments.requests set lease_until = clock_timestamp()").execute(&world.pool()).await.unwrap();
    gate.open();
    slow.says(&["its lease is over", &request.id.to_string()]).await;
    assert!(slow.stop().await.success());
    assert_eq!(world.status(request.id).await, "pending");
    assert!(world.told(request.id).await.is_empty());

    let _another = world.reconciler(&anvil, &[]);
    anvil.pay(&request.address, AMOUNT).await;
    world.becomes(request.id, "detected").await;
    assert_eq!(world.told(request.id).await.len(), 1);
}

/// Freezes a reconciler at a moment at which it holds leases. They last for milliseconds, so it is tried until it succeeds.
async fn freeze_with_leases(world: &World, reconciler: &Process, held: &'static str) {
    eventually("a reconciler is frozen with leases", PATIENCE, async || {
        reconciler.signal("STOP").await;
        if world.count(held).await > 0 {
            return Some(());
        }
        reconciler.signal("CONT").await;
        None
    })
    .await;
}

/// One after the other is frozen, and wakes up when its leases have lapsed and others have done its work.
#[tokio::test]
async fn reconcilers_that_are_frozen_beyond_their_leases_tell_nothing_twice() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let mut requests = Vec::new();
    for _ in 0..8 {
        requests.push(world.request(Some(URL)).await);
    }
    let settings = |worker| {
        [
            ("PAYMENTS_WORKER_ID", worker),
            ("PAYMENTS_RECONCILE_BATCH", "4"),
            ("PAYMENTS_RECONCILE_INTERVAL", "10ms"),
            ("PAYMENTS_RPC_TIMEOUT", "500ms"),
            ("PAYMENTS_RECONCILE_LEASE", "1500ms"),
            ("PAYMENTS_MIN_CONFIRMATIONS", "3"),
        ]
    };
    let (one, two) = (world.reconciler(&anvil, &settings("one")), world.reconciler(&anvil, &settings("two")));
    freeze_with_leases(&world, &one, "payments.requests where lease_owner = 'one'").await;
    for request in &requests {
        anvil.pay(&request.address, AMOUNT).await;
    }
    for request in &requests {
        world.becomes(request.id, "detected").await;
    }
    freeze_with_leases(&world, &two, "payments.requests where lease_owner = 'two'").await;
    anvil.mine(5).await;
    one.signal("CONT").await;
    for request in &requests {
        world.becomes(request.id, "confirmed").await;
    }
    two.signal("CONT").await;
    // Both go on as if nothing had happened.
    let later = world.request(Some(URL)).await;
    anvil.pay(&later.address, AMOUNT).await;
    anvil.mine(5).await;
    world.becomes(later.id, "confirmed").await;
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    for request in &requests {
        let told = world.told(request.id).await;
        assert_eq!(told, [pair("pending", "detected"), pair("detected", "confirmed")], "{}", request.id);
    }
}

#[tokio::test]
async fn doc_002_flow_3_dispatchers_do_not_claim_the_same_row() {
    let (world, anvil) = (World::new().await, Anvil::start().await);
    let gate = Gate::new();
    let closed = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(200).after(&closed)).await;
    for _ in 0..20 {
        let request = world.request(Some(&receiver.url())).await;
        anvil.pay(&request.address, AMOUNT).await;
    }
    let _reconciler = world.reconciler(&anvil, &[]);
    world.eventually_counts("postrider.deliveries", 20).await;
    let dispatchers: Vec<_> = (0..3).map(|_| world.start("webhook-dispatcher", &[])).collect();
    receiver.wait_for(20, PATIENCE).await;
    eventually("all three to have started", PATIENCE, async || {
        dispatchers.iter().all(|dispatcher| !dispatcher.lines_with(&["dispatching"]).is_empty()).then_some(())
    })
    .await;
    gate.open();
    world.eventually_counts("postrider.deliveries where status = 'delivered' and attempt_count = 1", 20).await;
    let ids: std::collections::BTreeSet<String> =
        bodies(&receiver).iter().map(|body: &Value| body["event_id"].to_string()).collect();
    assert_eq!((receiver.request_count(), ids.len()), (20, 20));
}
