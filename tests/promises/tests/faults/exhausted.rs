//! Connections and file descriptors run out.

use std::collections::BTreeSet;
use std::net::TcpStream;
use std::process::Command;

use postrider_conformance::receiver::Receiver;
use postrider_conformance::wait::eventually;
use postrider_promises::cluster::Cluster;
use postrider_promises::process::{PATIENCE, Running};
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use crate::books::{Ledger, balance};
use crate::stage::{Answer, Api, LEASE, Load, Wired, dispatch, measured, serve, workplace};

/// P26: others hold all the connections that Postgres has. Whoever asks is told so, and work goes on by itself when they
/// let go.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_others_hold_are_waited_for() {
    let cluster = Cluster::start(&["max_connections=20"]);
    let place = workplace(&cluster.url());
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let dispatcher = dispatch(&place, &[]).await;
    let load = Load::start(&server.api, &receiver.url(), 4);
    load.goes_on(30).await;
    // One that stays, to end the others' with; and then all that there are.
    let mut others = vec![PgConnection::connect(&cluster.url()).await.unwrap()];
    let deadline = Instant::now() + PATIENCE;
    loop {
        sqlx::query("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'postrider'")
            .execute(&mut others[0])
            .await
            .unwrap();
        while let Ok(connection) = PgConnection::connect(&cluster.url()).await {
            others.push(connection);
        }
        let left: i64 =
            sqlx::query_scalar("select count(*) from pg_stat_activity where application_name = 'postrider'")
                .fetch_one(&mut others[0])
                .await
                .unwrap();
        if left == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "they cannot be kept out: {left} are there");
    }
    tokio::join!(server.api.until_not_ready("store_busy"), dispatcher.api.until_not_ready("store_busy"));
    load.is_refused(4).await;
    dispatcher.running.line("the dispatcher tells", |line| line.contains("store_busy")).await;
    drop(others);
    let since = Instant::now();
    load.goes_on(1).await;
    measured("acknowledged again after connections were free", since.elapsed());
    tokio::join!(server.api.until_ready(), dispatcher.api.until_ready());
    load.goes_on(30).await;
    let notes = load.ends().await;
    let entries = Ledger::Postgres(cluster.url()).until_delivered().await;
    measured("everything delivered after connections were free", since.elapsed());
    balance(&notes.ids(), &entries, &receiver);
    for refusal in &notes.refusals {
        // Those whose connection was taken away from them hear of that.
        refusal.must_be_unavailable(&["store_busy", "store_unavailable"]);
    }
    dispatcher.running.stopped().await;
    server.running.stopped().await;
}

/// How many files a process has open.
fn open_files(running: &Running) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", running.pid())).unwrap().count()
}

/// From now on a process may have this many files open, and no more.
fn limit_files(running: &Running, count: usize) {
    let done = Command::new("prlimit")
        .args(["--pid", &running.pid().to_string(), &format!("--nofile={count}:")])
        .output()
        .expect("there is a command `prlimit`");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

async fn enqueue(api: &Api, receiver: &Receiver, count: usize) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for _ in 0..count {
        ids.insert(api.enqueue(&receiver.url(), None).await.id());
    }
    ids
}

/// P26: a dispatcher without a file descriptor to dial with says so now and then, charges nobody for it, and goes on
/// when there are some again.
#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_without_descriptors_charges_nobody_on_postgres() {
    let wired = Wired::new().await;
    dispatcher_without_descriptors(&wired.url(), wired.ledger()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dispatcher_without_descriptors_charges_nobody_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("postrider.db");
    dispatcher_without_descriptors(&format!("sqlite://{}", file.display()), Ledger::sqlite(&file)).await;
}

const WAITING: usize = 20;

async fn dispatcher_without_descriptors(database: &str, ledger: Ledger) {
    let place = workplace(database);
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let dispatcher = dispatch(&place, &[]).await;
    enqueue(&server.api, &receiver, 1).await;
    ledger.until_delivered().await;
    // What it has it keeps; there is no room for one more.
    limit_files(&dispatcher.running, 1);
    let began = Instant::now();
    // Elsewhere, since the connection that is kept open would still serve.
    let mut others = Vec::new();
    for _ in 0..WAITING {
        let other = Receiver::answering(204).await;
        enqueue(&server.api, &other, 1).await;
        others.push(other);
    }
    dispatcher.running.line("it tells", |line| line.contains("descriptors_exhausted")).await;
    let pending = || async {
        let entries = ledger.entries().await.into_iter();
        entries.filter(|entry| entry.status == "pending" && entry.attempts == 0 && entry.abandoned == 0).count()
    };
    assert_eq!(pending().await, WAITING, "{:?}", ledger.entries().await);
    // There is nothing to wait for but the time in which they are tried again and again.
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(pending().await, WAITING, "{:?}", ledger.entries().await);
    let told = dispatcher.running.count(|line| line.contains("descriptors_exhausted"));
    let most = 2 + usize::try_from(began.elapsed().as_secs() / 10).unwrap();
    assert!(told <= most, "it is told {told} times in {:?}", began.elapsed());
    limit_files(&dispatcher.running, 4096);
    let since = Instant::now();
    let entries = ledger.until_delivered().await;
    measured("everything delivered after a dispatcher had descriptors again", since.elapsed());
    assert!(entries.iter().all(|entry| (entry.attempt_count, entry.attempts) == (1, 1)), "{entries:?}");
    assert!(others.iter().all(|other| other.request_count() == 1));
    dispatcher.running.stopped().await;
    server.running.stopped().await;
}

/// P26: a server without a file descriptor for one more client says so, answers those that it has, and takes clients
/// again when there are some.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_descriptors_takes_clients_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("postrider.db");
    let place = workplace(&format!("sqlite://{}", file.display()));
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &[]).await;
    let mut acknowledged = enqueue(&server.api, &receiver, 3).await;
    Ledger::sqlite(&file).until_delivered().await;
    limit_files(&server.running, open_files(&server.running) + 4);
    let url = place_of(&server.api);
    let before = server.running.count(|_| true);
    let clients: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(&url).unwrap()).collect();
    server.running.line("it tells", |line| line.contains("cannot accept a connection")).await;
    // The client that has a connection is served.
    for _ in 0..10 {
        acknowledged.extend(enqueue(&server.api, &receiver, 1).await);
    }
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let told = server.running.count(|_| true) - before;
    measured("lines of a server without descriptors, in three seconds", told);
    assert!(told <= 20, "{told} lines tell of it");
    drop(clients);
    let since = Instant::now();
    let newcomer = Api::at(&format!("http://{url}"));
    let is_served = async || newcomer.try_enqueue(&receiver.url(), None, "").await.ok().filter(Answer::is_success);
    acknowledged.insert(eventually("a newcomer is served", PATIENCE, is_served).await.id());
    measured("a newcomer is served after descriptors are free", since.elapsed());
    let entries = Ledger::sqlite(&file).until_delivered().await;
    assert_eq!(balance(&acknowledged, &entries, &receiver), 0);
    server.running.stopped().await;
}

fn place_of(api: &Api) -> String {
    api.url().trim_start_matches("http://").to_owned()
}
