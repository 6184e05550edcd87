//! What a Postgres does for a delivery, by its own books: in a database that is nearly empty, and in one with much in it
//! that is none of a claim's business.

use postrider::{Store as _, Verdict};
use postrider_conformance::trial::{LEASE, worker};

use crate::ledger::{Ledger, per, whole};
use crate::statistics::{Done, Observed};
use crate::work::{BATCH, Claimer, enqueue, event, fill, settle_all};

/// How many deliveries are counted each time.
const COUNT: usize = 10 * BATCH;

/// How many wait in a lane of their own, how many are scheduled, and how many are settled, in the larger database.
const MANY: usize = 50 * BATCH;

/// What a delivery costs from its beginning to its end.
#[derive(Debug)]
struct Costs {
    enqueue: Done,
    claim: Done,
    renew: Done,
    settle: Done,
    tend: Done,
}

impl Costs {
    fn each(&self) -> [(&'static str, &Done); 4] {
        [("enqueue", &self.enqueue), ("claim", &self.claim), ("renewal", &self.renew), ("settle", &self.settle)]
    }
}

async fn costs(observed: &mut Observed) -> Costs {
    let (enqueue, ()) = observed.done_by(async |store| enqueue(store, COUNT, event).await).await;
    let (claim, claims) = observed.done_by(async |store| Claimer::default().claim_all(store, COUNT).await).await;
    let leases: Vec<_> = claims.iter().map(|claim| claim.lease).collect();
    let (renew, ()) = observed
        .done_by(async |store| {
            // Half a minute longer than before, so that it is written.
            assert_eq!(store.renew(&worker("w1"), &leases, LEASE * 2).await.unwrap().len(), COUNT);
        })
        .await;
    let (settle, ()) = observed.done_by(async |store| settle_all(store, &claims, Verdict::Delivered).await).await;
    let (tend, ()) = observed
        .done_by(async |store| {
            assert_eq!(store.promote(500).await.unwrap().ready, 0);
            assert_eq!(store.recover(500, 5).await.unwrap().returned, 0);
        })
        .await;
    Costs { enqueue, claim, renew, settle, tend }
}

#[tokio::test]
async fn a_delivery_costs_the_same_however_much_else_there_is() {
    let mut observed = Observed::start().await;
    let mut ledger = Ledger::of("Postgres: what the server does");

    let little = costs(&mut observed).await;
    let bounds = [
        Bounds { log_bytes: 1_900.0, written: 3.5, read: 1.0, pages: 26.0 },
        Bounds { log_bytes: 400.0, written: 2.5, read: 4.5, pages: 21.0 },
        Bounds { log_bytes: 180.0, written: 1.5, read: 4.5, pages: 18.0 },
        Bounds { log_bytes: 550.0, written: 3.5, read: 3.5, pages: 20.0 },
    ];
    for ((what, done), at_most) in little.each().into_iter().zip(bounds) {
        note(&mut ledger, what, done, at_most);
    }
    let of_indexes = little.each().iter().map(|(_, done)| done.updates_of_indexes()).sum();
    ledger.note("all of these: updates that write to indexes", per(of_indexes, COUNT), 0.05);

    observed.done_by(async |store| fill(store, MANY).await).await;
    observed.tidy_up().await;
    let much = costs(&mut observed).await;
    ledger.note("a poll of 10,000 scheduled: rows read", whole(much.tend.rows_read()), 20.0);
    let growth = |count: fn(&Done) -> u64| {
        let pairs = much.each().into_iter().zip(little.each());
        pairs
            .map(|((_, much), (_, little))| per(count(much), COUNT) / per(count(little), COUNT).max(1.0))
            .fold(0.0, f64::max)
    };
    ledger.note(
        "any of these with 30,000 more in the database: rows read, as a multiple",
        growth(Done::rows_read),
        1.5,
    );
    ledger.note("any of these with 30,000 more in the database: pages, as a multiple", growth(Done::pages), 2.5);
    let scanned = much.each().iter().map(|(_, done)| done.rows_scanned()).sum();
    ledger.note("all of these with 30,000 more in the database: rows read without an index", per(scanned, COUNT), 0.5);
    ledger.remark("little", &little);
    ledger.remark("much", &much);
    ledger.close();
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    log_bytes: f64,
    written: f64,
    read: f64,
    pages: f64,
}

fn note(ledger: &mut Ledger, what: &str, done: &Done, at_most: Bounds) {
    ledger.note(format!("{what}: bytes of the log"), per(done.log_bytes, COUNT), at_most.log_bytes);
    ledger.note(format!("{what}: rows written"), per(done.rows_written(), COUNT), at_most.written);
    ledger.note(format!("{what}: rows read"), per(done.rows_read(), COUNT), at_most.read);
    ledger.note(format!("{what}: pages looked at"), per(done.pages(), COUNT), at_most.pages);
}
