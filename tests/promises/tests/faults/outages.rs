//! The database goes away and comes back.

use std::time::Duration;

use postrider_conformance::receiver::Receiver;
use postrider_promises::cluster::{Cluster, Stop};
use postrider_promises::process::PATIENCE;
use tokio::time::Instant;

use crate::books::{Ledger, balance};
use crate::stage::{LEASE, Load, dispatch, holding, measured, serve, workplace};

/// P1, P25: a server that is stopped under load, at once and in order, loses nothing that was acknowledged, and work
/// goes on by itself when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_postgres_is_stopped_under_load() {
    let cluster = Cluster::start(&[]);
    let place = workplace(&cluster.url());
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let dispatchers = [dispatch(&place, &[]).await, dispatch(&place, &[]).await];
    let load = Load::start(&server.api, &receiver.url(), 4);
    for how in [Stop::Immediate, Stop::Fast, Stop::Immediate] {
        load.goes_on(30).await;
        cluster.stop(how);
        cluster.start_again();
        let began = Instant::now();
        load.goes_on(1).await;
        measured(&format!("acknowledged again after a stop ({how:?})"), began.elapsed());
    }
    load.goes_on(30).await;
    let notes = load.ends().await;
    let began = Instant::now();
    let entries = Ledger::Postgres(cluster.url()).until_delivered().await;
    measured("everything delivered after the last stop", began.elapsed());
    let repeated = balance(&notes.ids(), &entries, &receiver);
    measured("sent twice because of three stops", repeated);
    assert_eq!(entries.len(), notes.acknowledged.len(), "each key has one event");
    for refusal in &notes.refusals {
        refusal.must_be_unavailable(&["store_unavailable", "store_busy"]);
    }
    for dispatcher in dispatchers {
        dispatcher.running.stopped().await;
    }
    server.running.stopped().await;
}

/// P25: a database that is away for longer than the lease. What was in flight is settled when it is back, everybody says
/// meanwhile that it is away, and nobody fills the log with it.
#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_after_the_database_was_away_for_longer_than_the_lease() {
    const HELD: usize = 40;
    let cluster = Cluster::start(&[]);
    let place = workplace(&cluster.url());
    let (receiver, gate) = holding(HELD).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let dispatcher = dispatch(&place, &[]).await;
    let load = Load::start(&server.api, &receiver.url(), 4);
    receiver.wait_for(HELD, PATIENCE).await;
    dispatcher.api.until_ready().await;
    let lines_before = dispatcher.running.count(|_| true);

    cluster.stop(Stop::Fast);
    // What has arrived by now was in flight at most.
    let in_flight = receiver.request_count();
    let away_since = Instant::now();
    tokio::join!(server.api.until_not_ready("store_unavailable"), dispatcher.api.until_not_ready("store_unavailable"));
    gate.open();
    load.is_refused(4).await;
    let refused = server.api.get("/v1/deliveries").await;
    refused.must_be_unavailable(&["store_unavailable"]);
    assert!(refused.took < Duration::from_secs(20), "it does not keep whoever asks waiting: {:?}", refused.took);
    // The point is to be away for longer than the lease; there is nothing to wait for but the time.
    tokio::time::sleep_until(away_since + LEASE * 4).await;
    let told = dispatcher.running.count(|_| true) - lines_before;
    measured("lines in the dispatcher's log of an outage of four leases, with forty in flight", told);
    // Each lease's trouble is told when it begins and when the lease is given up; the store's, less and less often.
    assert!(told <= 2 * HELD + 40, "{told} lines tell of one outage:\n{}", dispatcher.running.text());
    dispatcher.running.line("the dispatcher tells", |line| line.contains("store_unavailable")).await;

    cluster.start_again();
    let back_since = Instant::now();
    load.goes_on(1).await;
    measured("acknowledged again after an outage of four leases", back_since.elapsed());
    tokio::join!(server.api.until_ready(), dispatcher.api.until_ready());
    measured("ready again after an outage of four leases", back_since.elapsed());
    load.goes_on(20).await;
    let notes = load.ends().await;
    let entries = Ledger::Postgres(cluster.url()).until_delivered().await;
    measured("everything delivered after an outage of four leases", back_since.elapsed());
    let repeated = balance(&notes.ids(), &entries, &receiver);
    measured("sent twice because of an outage of four leases", repeated);
    assert!(repeated <= in_flight, "{in_flight} were in flight, and {repeated} were sent again");
    assert!(!notes.refusals.is_empty(), "the outage was seen");
    for refusal in &notes.refusals {
        refusal.must_be_unavailable(&["store_unavailable"]);
    }
    dispatcher.running.stopped().await;
    server.running.stopped().await;
}
