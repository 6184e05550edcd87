//! The database is there and does not answer, or answers late.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use postrider_conformance::receiver::Receiver;
use postrider_conformance::wait::eventually;
use postrider_promises::cluster::Cluster;
use postrider_promises::process::PATIENCE;
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use crate::books::{Ledger, balance};
use crate::stage::{Api, LEASE, Load, Wired, dispatch, holding, measured, serve, workplace};

/// No statement is waited for longer than this: half a minute, and the time to get another connection.
const LONGEST_WAIT: Duration = Duration::from_secs(45);

/// P25: connections go dead without a word, as when a firewall forgets them, or backends hang while the server as a whole
/// is well. They are given up, and everybody gets new ones: the dispatcher, and whoever enqueues.
///
/// Both at once, each on a database of its own: each takes the half minute after which an answer is given up.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_went_dead_and_backends_that_hang_are_given_up() {
    tokio::join!(connections_went_dead(), backends_hang());
}

async fn connections_went_dead() {
    let wired = Wired::new().await;
    let place = workplace(&wired.url());
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let dispatcher = dispatch(&place, &[]).await;
    let load = Load::start(&server.api, &receiver.url(), 8);
    load.goes_on(50).await;
    wired.proxy.silence();
    let since = Instant::now();
    load.goes_on(50).await;
    measured("acknowledged again after all connections went dead", since.elapsed());
    let arrived = receiver.request_count();
    receiver.wait_for(arrived + 50, PATIENCE).await;
    measured("delivering again after all connections went dead", since.elapsed());
    assert!(since.elapsed() < LONGEST_WAIT, "{:?}", since.elapsed());
    let (asked, ready, ready_too) =
        tokio::join!(server.api.get("/v1/deliveries"), server.api.get("/readyz"), dispatcher.api.get("/readyz"));
    assert_eq!((asked.status, ready.status, ready_too.status), (200, 200, 200), "{asked:?} {ready:?} {ready_too:?}");
    let notes = load.ends().await;
    let entries = wired.ledger().until_delivered().await;
    let repeated = balance(&notes.ids(), &entries, &receiver);
    measured("sent twice because all connections went dead", repeated);
    for refusal in &notes.refusals {
        refusal.must_be_unavailable(&["store_unavailable", "store_busy", "request_timeout"]);
    }
    dispatcher.running.stopped().await;
    server.running.stopped().await;
}

/// P25: whoever asks while nothing passes at all is told so in time, and nobody has to be restarted afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_answer_is_told_of_and_recovered_from() {
    let wired = Wired::new().await;
    let place = workplace(&wired.url()).with("POSTRIDER_REQUEST_TIMEOUT", "3s");
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &[]).await;
    let load = Load::start(&server.api, &receiver.url(), 8);
    load.goes_on(50).await;
    wired.proxy.hold_up(true);
    let (ready, asked) = tokio::join!(server.api.get("/readyz"), server.api.get("/v1/deliveries"));
    ready.must_be_unavailable(&["request_timeout", "store_busy", "store_unavailable"]);
    asked.must_be_unavailable(&["request_timeout", "store_busy", "store_unavailable"]);
    load.is_refused(8).await;
    // Twenty more who ask and give up, twice as many as there are connections.
    let mut askers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let api = server.api.clone();
        askers.spawn(async move { api.get("/v1/deliveries").await.status });
    }
    assert!(askers.join_all().await.into_iter().all(|status| status == 503));
    wired.proxy.hold_up(false);
    let since = Instant::now();
    load.goes_on(50).await;
    measured("acknowledged again after nothing had passed", since.elapsed());
    server.api.until_ready().await;
    assert_eq!(server.api.get("/v1/deliveries").await.status, 200);
    let notes = load.ends().await;
    let entries = wired.ledger().until_delivered().await;
    balance(&notes.ids(), &entries, &receiver);
    server.running.stopped().await;
}

/// Stops a process, and lets it go on at the end.
struct Frozen(i32);

impl Frozen {
    fn new(pid: i32) -> Self {
        signal("STOP", pid);
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        signal("CONT", self.0);
    }
}

fn signal(name: &str, pid: i32) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success());
}

/// Stops backends between two statements: one that is stopped within a statement may hold a lock of the server's own, such as
/// the one on its log, and then the whole server hangs.
async fn freeze_three(connection: &mut PgConnection) -> Vec<Frozen> {
    let idle = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() \
                and state = 'idle'";
    eventually("backends that are stopped while they are idle", PATIENCE, async || {
        let found: Vec<i32> = sqlx::query_scalar(idle).fetch_all(&mut *connection).await.unwrap();
        let frozen: Vec<Frozen> = found.into_iter().take(3).map(Frozen::new).collect();
        // One that had begun a statement has said so before.
        let still: Vec<i32> = sqlx::query_scalar(idle).fetch_all(&mut *connection).await.unwrap();
        (!frozen.is_empty() && frozen.iter().all(|Frozen(pid)| still.contains(pid))).then_some(frozen)
    })
    .await
}

async fn backends_hang() {
    // A server of its own: others on it could not even drop a database while some of its backends hang.
    let cluster = Cluster::start(&[]);
    let place = workplace(&cluster.url());
    let receiver = Receiver::answering(204).await;
    let server = serve(&place, &[]).await;
    let load = Load::start(&server.api, &receiver.url(), 4);
    load.goes_on(50).await;
    let mut connection = PgConnection::connect(&cluster.url()).await.unwrap();
    let frozen = freeze_three(&mut connection).await;
    let since = Instant::now();
    load.goes_on(100).await;
    measured("a hundred more acknowledged while three backends hang", since.elapsed());
    let arrived = receiver.request_count();
    receiver.wait_for(arrived + 50, PATIENCE).await;
    measured("fifty more delivered while three backends hang", since.elapsed());
    assert!(since.elapsed() < LONGEST_WAIT, "{:?}", since.elapsed());
    let notes = load.ends().await;
    drop(frozen);
    let entries = Ledger::Postgres(cluster.url()).until_delivered().await;
    balance(&notes.ids(), &entries, &receiver);
    server.running.stopped().await;
}

/// P12: a slow way to the database is no reason for a lease to lapse.
#[tokio::test(flavor = "multi_thread")]
async fn leases_hold_over_a_slow_wire() {
    const HELD: usize = 30;
    let wired = Wired::new().await;
    let place = workplace(&wired.url());
    let (receiver, gate) = holding(usize::MAX).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    wired.proxy.delay(Duration::from_millis(200));
    let dispatchers = [dispatch(&place, &[]).await, dispatch(&place, &[]).await];
    let acknowledged = enqueue(&server.api, &receiver, HELD).await;
    receiver.wait_for(HELD, PATIENCE).await;
    // There is nothing to wait for but the time in which a lease would lapse.
    tokio::time::sleep(LEASE * 4).await;
    gate.open();
    let entries = wired.ledger().until_delivered().await;
    assert_eq!(balance(&acknowledged, &entries, &receiver), 0, "no lease lapsed");
    wired.proxy.delay(Duration::ZERO);
    for dispatcher in dispatchers {
        let text = dispatcher.running.stopped().await;
        assert!(!text.contains("took back expired leases"), "{text}");
    }
    server.running.stopped().await;
}

async fn enqueue(api: &Api, receiver: &Receiver, count: usize) -> BTreeSet<String> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let (api, url) = (api.clone(), receiver.url());
        tasks.spawn(async move { api.enqueue(&url, None).await.id() });
    }
    tasks.join_all().await.into_iter().collect()
}

/// P25, P26: somebody locks a table for longer than the lease. Nothing is lost, no statements pile up in the server, and
/// work goes on when the lock is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_somebody_keeps_locked_is_waited_for() {
    const HELD: usize = 20;
    let wired = Wired::new().await;
    let place = workplace(&wired.url());
    let (receiver, gate) = holding(HELD).await;
    let server = serve(&place, &["--no-dispatch"]).await;
    let dispatcher = dispatch(&place, &[]).await;
    let load = Load::start(&server.api, &receiver.url(), 4);
    receiver.wait_for(HELD, PATIENCE).await;
    let mut locker = wired.connect().await;
    let mut transaction = locker.begin().await.unwrap();
    sqlx::query("lock table postrider.leases, postrider.deliveries in access exclusive mode")
        .execute(&mut *transaction)
        .await
        .unwrap();
    let held: i64 =
        sqlx::query_scalar("select count(*) from postrider.leases").fetch_one(&mut *transaction).await.unwrap();
    gate.open();
    load.is_refused(4).await;
    // The point is to hold it for longer than the lease; there is nothing to wait for but the time.
    tokio::time::sleep(LEASE * 4).await;
    let mut watcher = wired.connect().await;
    let connections = count_backends(&mut watcher).await;
    measured("connections while a table was locked for four leases", connections);
    assert!(connections <= 2 * 12 + 2, "{connections}: statements that were given up are still waiting");
    transaction.rollback().await.unwrap();
    let since = Instant::now();
    load.goes_on(20).await;
    measured("acknowledged again after a lock", since.elapsed());
    let notes = load.ends().await;
    let entries = wired.ledger().until_delivered().await;
    measured("everything delivered after a lock", since.elapsed());
    let repeated = balance(&notes.ids(), &entries, &receiver);
    measured("sent twice because of a lock, and how many were in flight", (repeated, held));
    assert!(repeated <= usize::try_from(held).unwrap(), "{held} were in flight, and {repeated} were sent again");
    for refusal in &notes.refusals {
        refusal.must_be_unavailable(&["store_contended", "store_busy"]);
    }
    dispatcher.running.stopped().await;
    server.running.stopped().await;
}

async fn count_backends(connection: &mut PgConnection) -> i64 {
    let count = "select count(*) from pg_stat_activity where datname = current_database()";
    sqlx::query_scalar(count).fetch_one(connection).await.unwrap()
}

/// P23: while fifty sends hang, no transaction is open: not at any of a thousand looks, across several heartbeats, other
/// than for the moment that a statement takes.
#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_is_open_while_sends_hang() {
    const HELD: usize = 50;
    let wired = Wired::new().await;
    let place = workplace(&wired.url());
    let (receiver, gate) = holding(usize::MAX).await;
    let server = serve(&place, &[]).await;
    let acknowledged = enqueue(&server.api, &receiver, HELD).await;
    receiver.wait_for(HELD, PATIENCE).await;
    let mut watcher = wired.connect().await;
    let until = Instant::now() + LEASE * 2;
    let (mut looks, mut busy) = (0_u32, 0_u32);
    while Instant::now() < until {
        assert_eq!(receiver.open_requests(), HELD);
        let open: Vec<(String, f64, String)> = sqlx::query_as(
            "select state, extract(epoch from clock_timestamp() - xact_start)::float8, left(query, 60) \
             from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() \
             and backend_type = 'client backend' and xact_start is not null",
        )
        .fetch_all(&mut watcher)
        .await
        .unwrap();
        looks += 1;
        busy += u32::from(!open.is_empty());
        for (state, seconds, query) in open {
            assert_eq!(state, "active", "a transaction waits for something that is not the database: {query}");
            assert!(seconds < 1.0, "a transaction is open for {seconds} s: {query}");
        }
    }
    measured("looks at pg_stat_activity while fifty sends hung, and how many saw a statement", (looks, busy));
    assert!(busy * 2 < looks, "{busy} of {looks} looks saw a transaction");
    gate.open();
    let entries = wired.ledger().until_delivered().await;
    assert_eq!(balance(&acknowledged, &entries, &receiver), 0);
    let idle = async || {
        let open: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'",
        )
        .fetch_one(&mut watcher)
        .await
        .unwrap();
        (open == 0).then_some(())
    };
    eventually("no transaction is left open", PATIENCE, idle).await;
    server.running.stopped().await;
}
