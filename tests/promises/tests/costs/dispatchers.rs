//! Whole dispatchers, at work and at rest.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::Store;
use postrider_conformance::flights::{Running as InProcess, admission, dispatcher};
use postrider_conformance::receiver::{Answer, Gate, Receiver};
use postrider_conformance::wait::eventually;
use postrider_postgres::PostgresStore;
use postrider_promises::load::loopback;
use postrider_promises::process::{PATIENCE, Running, Workplace};
use postrider_sqlite::testing::TestDatabase;

use crate::ledger::{Ledger, per, whole};
use crate::tracer::Tracer;
use crate::wire::Wired;
use crate::work::{LANES, enqueue, event_to};

/// So slow that results come in while others are settled, also on a machine that is busy with something else.
const EACH_WAY: Duration = Duration::from_millis(10);

async fn receivers() -> Vec<Receiver> {
    let mut receivers = Vec::new();
    for _ in 0..LANES {
        receivers.push(Receiver::answering(204).await);
    }
    receivers
}

fn arrived(receivers: &[Receiver]) -> usize {
    receivers.iter().map(Receiver::request_count).sum()
}

/// Past the wire.
async fn direct(wired: &Wired) -> PostgresStore {
    PostgresStore::connect(wired.database.url()).await.unwrap().with_admission(loopback())
}

fn workplace(wired: &Wired) -> Workplace {
    Workplace::on(&wired.url())
}

fn dispatch(workplace: &Workplace) -> Running {
    workplace.start(["dispatch", "--json"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_drains_in_batches() {
    const COUNT: usize = 10_000;
    let wired = Wired::new().await;
    let store = direct(&wired).await;
    let receivers = receivers().await;
    enqueue(&store, COUNT, |number| event_to(&receivers[number % LANES].url())).await;

    wired.proxy.delay(EACH_WAY);
    let before = wired.proxy.counts();
    let workplace = workplace(&wired);
    let dispatcher = dispatch(&workplace);
    let settled = async || {
        let is_too_much = wired.proxy.counts().since(&before).carried_out() > COUNT as u64 / 4;
        (is_too_much || store.overview(None).await.unwrap().delivered == COUNT as u64).then_some(())
    };
    eventually("everything is delivered, or it has cost too much", PATIENCE * 2, settled).await;
    let counts = wired.proxy.counts().since(&before);
    dispatcher.stopped().await;

    let mut ledger = Ledger::of("Dispatchers");
    ledger.remark("statements", &counts.beginnings());
    ledger.note("10,000 deliveries on Postgres: statements each", per(counts.carried_out(), COUNT), 0.25);
    ledger.note("10,000 deliveries on Postgres: round trips each", per(counts.round_trips, COUNT), 0.5);
    ledger.note("10,000 deliveries on Postgres: transactions each", per(counts.transactions, COUNT), 0.25);
    ledger.note("10,000 deliveries on Postgres: statements prepared", whole(counts.prepared), 100.0);
    ledger.note("10,000 deliveries on Postgres: bytes sent each", per(counts.bytes_asked, COUNT), 500.0);
    ledger.note("10,000 deliveries on Postgres: bytes received each", per(counts.bytes_answered, COUNT), 1_200.0);
    ledger.close();
    assert_eq!(arrived(&receivers), COUNT, "nothing is sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_on_sqlite_drains_in_batches() {
    const COUNT: usize = 4_000;
    let database = TestDatabase::create().await;
    let store = database.store().clone().with_admission(admission());
    let writer = Tracer::follow(&store, database.path()).await;
    let receivers = receivers().await;
    enqueue(&store, COUNT, |number| event_to(&receivers[number % LANES].url())).await;
    writer.move_log();
    let (traced, totals) = writer
        .traced(async || {
            let running = InProcess::start(
                dispatcher(&(Arc::new(store.clone()) as Arc<dyn Store>), "w1").poll_interval(Duration::from_secs(1)),
            );
            let settled = async || {
                let is_too_much = writer.commits() > COUNT as u64 / 2;
                (is_too_much || store.overview(None).await.unwrap().delivered == COUNT as u64).then_some(())
            };
            eventually("everything is delivered, or it has cost too much", PATIENCE * 2, settled).await;
            running.stop().await
        })
        .await;
    let mut ledger = Ledger::of("Dispatchers");
    ledger.note("4,000 deliveries on SQLite: statements each", per(traced.statements, COUNT), 10.0);
    ledger.note("4,000 deliveries on SQLite: steps each", per(traced.steps, COUNT), 700.0);
    ledger.note("4,000 deliveries on SQLite: commits each", per(traced.commits, COUNT), 0.5);
    ledger.note("4,000 deliveries on SQLite: commits that wait for the disk each", per(traced.syncs, COUNT), 0.25);
    ledger.close();
    assert_eq!((arrived(&receivers), totals.claimed), (COUNT, COUNT as u64), "nothing is sent twice");
}

/// How many statements there are in a period, over some of them.
async fn asked_per(wired: &Wired, period: Duration, periods: u32, ledger: &mut Ledger) -> f64 {
    let (before, began) = (wired.proxy.counts(), Instant::now());
    tokio::time::sleep(period * periods).await;
    let counts = wired.proxy.counts().since(&before);
    ledger.remark("statements", &counts.beginnings());
    assert!(counts.carried_out() > 0, "it does something");
    whole(counts.carried_out()) / (began.elapsed().as_secs_f64() / period.as_secs_f64())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dispatcher_that_waits_asks_little() {
    const HELD: usize = 400;
    let wired = Wired::new().await;
    let store = direct(&wired).await;
    let gate = Gate::new();
    let own = gate.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(204).after(&own)).await;
    let mut ledger = Ledger::of("Dispatchers");

    let poll = Duration::from_millis(100);
    let idle = workplace(&wired).with("POSTRIDER_POLL_INTERVAL", "100ms");
    let dispatcher = dispatch(&idle);
    enqueue(&store, 1, |_| event_to(&receiver.url())).await;
    gate_passed(&receiver, 1).await;
    let asked = asked_per(&wired, poll, 20, &mut ledger).await;
    ledger.note("a poll with nothing to do: statements", asked, 5.0);
    gate.open();
    dispatcher.stopped().await;

    let own = Gate::new();
    let gate = own.clone();
    let receiver = Receiver::start(move |_, _| Answer::status(204).after(&own)).await;
    let heartbeat = Duration::from_millis(1_000);
    let holding = workplace(&wired)
        .with("POSTRIDER_POLL_INTERVAL", "10s")
        .with("POSTRIDER_LEASE", "3s")
        .with("POSTRIDER_MAX_IN_FLIGHT_PER_DESTINATION", "400");
    enqueue(&store, HELD, |_| event_to(&receiver.url())).await;
    let dispatcher = dispatch(&holding);
    gate_passed(&receiver, HELD).await;
    // For a second after the claims it looks for more, less and less often: ten looks that are not the heartbeat's.
    let asked = asked_per(&wired, heartbeat, 8, &mut ledger).await;
    ledger.note("a heartbeat with 400 held: statements", asked, 5.0);
    gate.open();
    dispatcher.stopped().await;
    ledger.close();
}

async fn gate_passed(receiver: &Receiver, count: usize) {
    receiver.wait_until("all of them are held", PATIENCE, |receiver| receiver.open_requests() == count).await;
}
