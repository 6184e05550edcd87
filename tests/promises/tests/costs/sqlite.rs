//! What an SQLite store carries out, by the trace of its writer.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider::{Store as _, Verdict};
use postrider_conformance::trial::{LEASE, worker};
use postrider_conformance::wait::eventually;
use postrider_promises::process::PATIENCE;
use postrider_sqlite::testing::TestDatabase;
use tokio::task::JoinSet;

use crate::ledger::{Ledger, per, whole};
use crate::tracer::{Traced, Tracer};
use crate::work::{BATCH, Claimer, enqueue, event, fill, settle_all};

/// How many deliveries are counted each time.
const COUNT: usize = 5 * BATCH;

/// How many wait in a lane of their own, how many are scheduled, and how many are settled, in the larger file.
const MANY: usize = 25 * BATCH;

#[derive(Debug)]
struct Costs {
    enqueue: Traced,
    claim: Traced,
    renew: Traced,
    settle: Traced,
    tend: Traced,
}

impl Costs {
    fn each(&self) -> [(&'static str, &Traced); 4] {
        [("enqueue", &self.enqueue), ("claim", &self.claim), ("renewal", &self.renew), ("settle", &self.settle)]
    }
}

async fn costs(database: &TestDatabase, writer: &Tracer) -> Costs {
    let store = database.store();
    writer.move_log();
    let (enqueue, ()) = writer.traced(async || enqueue(store, COUNT, event).await).await;
    let (claim, claims) = writer.traced(async || Claimer::default().claim_all(store, COUNT).await).await;
    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    let (renew, renewed) = writer.traced(async || store.renew(&worker("w1"), &leases, LEASE * 2).await.unwrap()).await;
    assert_eq!(renewed.len(), COUNT);
    let (settle, ()) = writer.traced(async || settle_all(store, &claims, Verdict::Delivered).await).await;
    let (tend, ()) = writer
        .traced(async || {
            assert_eq!(store.promote(500).await.unwrap().ready, 0);
            assert_eq!(store.recover(500, 5).await.unwrap().returned, 0);
        })
        .await;
    Costs { enqueue, claim, renew, settle, tend }
}

#[tokio::test]
async fn a_delivery_takes_few_statements_and_steps_however_much_else_there_is() {
    let database = TestDatabase::create().await;
    let writer = Tracer::follow(database.store(), database.path()).await;
    let mut ledger = Ledger::of("SQLite: what the writer does");
    let batches = COUNT / BATCH;

    // Once, so that everything is prepared.
    costs(&database, &writer).await;
    let little = costs(&database, &writer).await;
    ledger.remark("little", &little);
    let bounds = [[3.5, 260.0, 2_000.0], [1.8, 80.0, 450.0], [1.5, 45.0, 120.0], [4.5, 250.0, 850.0]];
    for ((what, traced), [statements, steps, log_bytes]) in little.each().into_iter().zip(bounds) {
        ledger.note(format!("{what}: statements"), per(traced.statements, COUNT), statements);
        ledger.note(format!("{what}: steps"), per(traced.steps, COUNT), steps);
        ledger.note(format!("{what}: bytes of the log"), per(traced.log_bytes, COUNT), log_bytes);
    }
    let prepared = little.each().iter().map(|(_, traced)| traced.prepared).sum();
    ledger.note("all of these for 1,000 deliveries: statements prepared anew", whole(prepared), 50.0);
    ledger.note("a list of 200 events: commits", per(little.enqueue.commits, batches), 1.0);
    ledger.note("a list of 200 events: commits that wait for the disk", per(little.enqueue.syncs, batches), 1.0);
    ledger.note("a claim of 200: commits", per(little.claim.commits, batches), 1.0);
    ledger.note("a claim of 200: commits that wait for the disk", per(little.claim.syncs, batches), 0.0);
    ledger.note("a renewal of 1,000: commits", whole(little.renew.commits), 1.0);
    ledger.note("a renewal of 1,000: commits that wait for the disk", whole(little.renew.syncs), 0.0);
    ledger.note("a settle of 200: commits", per(little.settle.commits, batches), 1.0);
    ledger.note("a settle of 200: commits that wait for the disk", per(little.settle.syncs, batches), 1.0);

    fill(database.store(), MANY).await;
    let much = costs(&database, &writer).await;
    ledger.remark("much", &much);
    ledger.note("a poll of 5,000 scheduled: steps", whole(much.tend.steps), 150.0);
    let pairs = much.each().into_iter().zip(little.each());
    let growth =
        pairs.map(|((_, much), (_, little))| per(much.steps, COUNT) / per(little.steps, COUNT)).fold(0.0, f64::max);
    ledger.note("any of these with 15,000 more in the file: steps, as a multiple", growth, 1.25);
    let scanned = much.each().iter().map(|(_, traced)| traced.scan_steps).sum();
    ledger.note("all of these with 15,000 more in the file: rows read without an index", per(scanned, COUNT), 0.5);
    ledger.close();
}

#[tokio::test]
async fn what_waits_for_the_writer_shares_a_commit() {
    const CALLERS: usize = 64;
    let database = TestDatabase::create().await;
    let store = database.store().clone();
    let writer = Tracer::follow(&store, database.path()).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let come = Arc::new(AtomicUsize::new(0));
    let (traced, ()) = writer
        .traced(async || {
            // The writer is kept busy until everybody has come: whoever is asked for the first time gets in line.
            let busy = store.clone();
            let busy = tokio::spawn(async move {
                busy.transaction(move |_| released.recv().map_err(Box::<dyn Error + Send + Sync>::from)).await
            });
            let mut callers = JoinSet::new();
            for number in 0..CALLERS {
                let (store, come) = (store.clone(), Arc::clone(&come));
                callers.spawn(async move {
                    let has_come = async { come.fetch_add(1, Ordering::SeqCst) };
                    tokio::join!(biased; store.enqueue(vec![event(number)]), has_come).0
                });
            }
            let all = async || (come.load(Ordering::SeqCst) == CALLERS).then_some(());
            eventually("everybody has come", PATIENCE, all).await;
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            assert!(callers.join_all().await.iter().all(Result::is_ok));
        })
        .await;
    let mut ledger = Ledger::of("SQLite: what the writer does");
    ledger.note("64 callers who enqueue one event each: commits", whole(traced.commits), 3.0);
    ledger.note("64 callers who enqueue one event each: commits that wait for the disk", whole(traced.syncs), 3.0);
    ledger.close();
}
