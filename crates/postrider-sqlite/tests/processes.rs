//! Several processes on one file: who may dispatch, who is woken, and what a crash leaves behind.
//!
//! A test that needs a second process runs itself again, and acts as that process when it finds itself told so.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in its helpers")]
#![expect(clippy::print_stdout, reason = "how the second process tells the first")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider::store::{AttemptResult, ClaimRequest, Operator, Recovered, Settle, Settlement};
use postrider::{
    DeliveryFilter, EnqueueError, Enqueued, EventId, NewEvent, OutcomeKind, Store, StoreErrorCode, Verdict, WorkerId,
};
use postrider_sqlite::rusqlite::Connection;
use postrider_sqlite::testing::TestDatabase;
use postrider_sqlite::{SqliteStore, SqliteTransaction};

const CHILD: &str = "POSTRIDER_TEST_CHILD_DATABASE";
/// What a child says begins with this, to tell it from what the test harness prints.
const SAYS: &str = "child says ";

fn as_child() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

fn say(what: &str) {
    println!("\n{SAYS}{what}");
    std::io::stdout().flush().unwrap();
}

struct Process {
    child: Child,
    said: Box<dyn Iterator<Item = String>>,
}

impl Process {
    fn start(test: &str, database: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(CHILD, database)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said = lines.filter_map(|line| line.strip_prefix(SAYS).map(str::to_owned));
        Self { child, said: Box::new(said) }
    }

    fn hears(&mut self) -> String {
        self.said.next().expect("the child goes on until it is killed")
    }

    /// With SIGKILL: the process does not get to do anything more.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn event() -> NewEvent {
    NewEvent::new("invoice.paid", r#"{"invoice":"in_42"}"#).to("https://hooks.example.com/billing")
}

fn claim_as(worker: &WorkerId) -> ClaimRequest {
    ClaimRequest {
        worker: worker.clone(),
        lease: Duration::from_secs(600),
        limit: 10,
        lane_limit: 10,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    }
}

/// Fifty racers for one subject, ten in each of five processes. All of them have begun when the file is let go.
#[tokio::test]
async fn p10_of_fifty_racers_in_five_processes_one_wins_each_generation() {
    const NAME: &str = "p10_of_fifty_racers_in_five_processes_one_wins_each_generation";
    if let Some(path) = as_child() {
        return race_for_a_subject(&path).await;
    }
    let database = TestDatabase::create().await;
    let store = database.store();
    for generation in 1..=3 {
        let held = Connection::open(database.path()).unwrap();
        held.execute_batch("begin immediate").unwrap();
        let mut racers: Vec<Process> = (0..5).map(|_| Process::start(NAME, database.path())).collect();
        for racer in &mut racers {
            assert_eq!(racer.hears(), "ready");
        }
        held.execute_batch("commit").unwrap();
        let winners: Vec<EventId> = racers
            .iter_mut()
            .flat_map(|racer| (0..10).map(|_| racer.hears()).collect::<Vec<_>>())
            .filter_map(|said| said.strip_prefix("won ").map(|id| id.parse().unwrap()))
            .collect();
        assert_eq!(winners.len(), 1, "generation {generation}");
        let claim = store.once("default", "plan/1").await.unwrap().unwrap();
        assert_eq!((claim.generation, claim.winner.unwrap().event_id), (generation, winners[0]));
        assert_eq!(store.count_deliveries(&DeliveryFilter::default()).await.unwrap(), generation);
        store.reset_once("default", "plan/1", &Operator("kim".to_owned())).await.unwrap();
    }
}

async fn race_for_a_subject(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    say("ready");
    let racers: Vec<_> = (0..10)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                loop {
                    match store.enqueue(vec![event().once("plan/1")]).await {
                        Ok(mut enqueued) => return enqueued.remove(0),
                        // The file is held until the last process is there, however long that takes.
                        Err(EnqueueError::Store(error)) => assert_eq!(error.code, StoreErrorCode::Busy, "{error}"),
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    for racer in racers {
        match racer.await.unwrap() {
            Enqueued::New { event_id, .. } => say(&format!("won {event_id}")),
            other => say(&format!("lost {:?}", other.event_id())),
        }
    }
}

#[tokio::test]
async fn a_process_killed_in_mid_transaction_loses_nothing_that_was_acknowledged() {
    if let Some(path) = as_child() {
        return enqueue_until_killed(&path).await;
    }
    let database = TestDatabase::create().await;
    let name = "a_process_killed_in_mid_transaction_loses_nothing_that_was_acknowledged";
    let mut process = Process::start(name, database.path());
    let mut acknowledged = Vec::new();
    loop {
        match process.hears().as_str() {
            "in the midst of a transaction" => break,
            id => acknowledged.push(id.parse::<EventId>().unwrap()),
        }
    }
    process.kill();
    assert_eq!(acknowledged.len(), 25);
    for id in &acknowledged {
        let event = database.store().event(*id).await.unwrap().expect("an acknowledged event is there");
        assert_eq!(event.deliveries.len(), 1);
    }
    assert_eq!(database.store().count_deliveries(&DeliveryFilter::default()).await.unwrap(), 25, "and nothing else");
    let connection = Connection::open(database.path()).unwrap();
    let check: String = connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let rows: i64 = connection.query_row("select count(*) from invoices", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 0, "the application's own row went with the transaction");
    database.store().enqueue(vec![event()]).await.expect("the dead process holds no lock");
}

async fn enqueue_until_killed(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    for _ in 0..25 {
        say(&store.enqueue(vec![event()]).await.unwrap()[0].event_id().unwrap().to_string());
    }
    let create = |tx: &mut SqliteTransaction<'_>| {
        tx.connection().execute_batch("create table invoices (id text)")?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    store.transaction(create).await.unwrap();
    let never_ends = |tx: &mut SqliteTransaction<'_>| {
        tx.enqueue(event())?;
        tx.connection().execute("insert into invoices values ('in_1')", [])?;
        say("in the midst of a transaction");
        loop {
            std::thread::park();
        }
        #[expect(unreachable_code, reason = "tells the closure's type")]
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    };
    store.transaction(never_ends).await.unwrap();
}

#[tokio::test]
async fn one_process_dispatches_and_when_it_is_killed_the_next_takes_over_its_leases_at_once() {
    if let Some(path) = as_child() {
        return dispatch_until_killed(&path).await;
    }
    let database = TestDatabase::create().await;
    let store = database.store();
    let enqueued = store.enqueue(vec![event()]).await.unwrap();
    let name = "one_process_dispatches_and_when_it_is_killed_the_next_takes_over_its_leases_at_once";
    let mut process = Process::start(name, database.path());
    assert_eq!(process.hears(), "claimed 1");

    let worker = WorkerId::new("successor").unwrap();
    let error = store.start_dispatching(&worker).await.unwrap_err();
    assert_eq!(error.code, StoreErrorCode::Locked);
    let process_id = format!("process {}", process.child.id());
    assert!(error.message.contains(&process_id) && error.message.contains("postrider.db.lock"), "{error}");
    assert_eq!(store.recover(10, 5).await.unwrap(), Recovered::default(), "its lease is good for ten minutes");

    process.kill();
    let _guard = store.start_dispatching(&worker).await.unwrap();
    assert_eq!(store.recover(10, 5).await.unwrap(), Recovered { returned: 1, dead: 0 });
    let detail = store.delivery(enqueued[0].deliveries()[0].id).await.unwrap().unwrap();
    assert_eq!(detail.delivery.abandoned_count, 1);
    assert_eq!(store.claim(&claim_as(&worker)).await.unwrap().claims.len(), 1);
}

async fn dispatch_until_killed(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    let worker = WorkerId::new("predecessor").unwrap();
    let _guard = store.start_dispatching(&worker).await.unwrap();
    let claimed = store.claim(&claim_as(&worker)).await.unwrap().claims.len();
    say(&format!("claimed {claimed}"));
    loop {
        std::thread::park();
    }
}

#[tokio::test]
async fn a_second_dispatcher_is_refused_until_the_first_lets_go() {
    let database = TestDatabase::create().await;
    let other = SqliteStore::open(database.path()).unwrap();
    let worker = WorkerId::random();
    let guard = database.store().start_dispatching(&worker).await.unwrap();
    for store in [database.store(), &other] {
        let error = store.start_dispatching(&worker).await.unwrap_err();
        assert_eq!(error.code, StoreErrorCode::Locked, "{error}");
    }
    drop(guard);
    let _guard = other.start_dispatching(&worker).await.unwrap();
}

#[tokio::test]
async fn starting_to_dispatch_leaves_alone_what_this_process_has_claimed() {
    let database = TestDatabase::create().await;
    let store = database.store();
    store.enqueue(vec![event()]).await.unwrap();
    let (mine, next) = (WorkerId::random(), WorkerId::random());
    let claimed = store.claim(&claim_as(&mine)).await.unwrap();
    let _guard = store.start_dispatching(&next).await.unwrap();
    assert_eq!(store.recover(10, 5).await.unwrap(), Recovered::default());
    let leases = [claimed.claims[0].lease];
    assert_eq!(store.renew(&mine, &leases, Duration::from_secs(60)).await.unwrap(), leases);
}

/// How long a wake-up may take before the test calls it missing; far less than what the waits are told.
const PROMPTLY: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_commit_through_another_handle_wakes_whoever_waits() {
    let database = TestDatabase::create().await;
    let (store, other) = (database.store(), SqliteStore::open(database.path()).unwrap());
    let worker = WorkerId::random();
    assert!(store.claim(&claim_as(&worker)).await.unwrap().claims.is_empty());
    let began = Instant::now();
    let (enqueued, ()) = tokio::join!(other.enqueue(vec![event()]), store.wait_ready(Duration::from_secs(60)));
    enqueued.unwrap();
    assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
    let id = store.claim(&claim_as(&worker)).await.unwrap().claims[0].lease.delivery_id;

    let place = store.announcements_end().await.unwrap();
    assert!(store.announcements(&place, 10).await.unwrap().announcements.is_empty());
    let operator = postrider::store::Operator("olga".to_owned());
    let began = Instant::now();
    let (cancelled, ()) =
        tokio::join!(other.cancel(id, "a test", &operator), store.wait_announced(Duration::from_secs(60)));
    cancelled.unwrap();
    assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
    assert_eq!(store.announcements(&place, 10).await.unwrap().announcements.len(), 1);
}

#[tokio::test]
async fn what_happened_between_a_claim_and_a_wait_ends_the_wait_at_once() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let worker = WorkerId::random();
    store.claim(&claim_as(&worker)).await.unwrap();
    store.enqueue(vec![event()]).await.unwrap();
    let began = Instant::now();
    store.wait_ready(Duration::from_secs(60)).await;
    assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_wait_in_which_nothing_happens_lasts_as_long_as_it_was_told() {
    let database = TestDatabase::create().await;
    let store = database.store();
    let worker = WorkerId::random();
    store.enqueue(vec![event()]).await.unwrap();
    let claims = store.claim(&claim_as(&worker)).await.unwrap().claims;
    let began = Instant::now();
    // Renewing is a commit of our own, in which nothing becomes ready.
    let leases = [claims[0].lease];
    let told = Duration::from_millis(300);
    let (renewed, ()) = tokio::join!(store.renew(&worker, &leases, Duration::from_secs(900)), store.wait_ready(told));
    assert_eq!(renewed.unwrap().len(), 1);
    assert!(began.elapsed() >= told, "{:?}", began.elapsed());
}

/// A settle takes what it needs from what the claim has left in memory. Where there is nothing, because another store made the
/// claim or because the metadata is long, it reads it, and the result is the same.
#[tokio::test]
async fn a_settle_without_its_claim_in_memory_writes_the_same() {
    let database = TestDatabase::create().await;
    let (claiming, other) = (database.store(), SqliteStore::open(database.path()).unwrap());
    let long = "x".repeat(2_000);
    for note in ["short", &long] {
        let noted = event().topic("billing").metadata("note", note);
        claiming.enqueue(vec![noted.clone(), noted]).await.unwrap();
    }
    let worker = WorkerId::new("w1").unwrap();
    let request = ClaimRequest {
        worker: worker.clone(),
        lease: Duration::from_secs(30),
        limit: 10,
        lane_limit: 10,
        in_flight: Vec::new(),
        ahead: Vec::new(),
        after: None,
    };
    let claims = claiming.claim(&request).await.unwrap().claims;
    let end = claiming.announcements_end().await.unwrap();
    for (index, claim) in claims.iter().enumerate() {
        let settle = Settle {
            lease: claim.lease,
            verdict: Verdict::Retry { after: Duration::from_secs(60) },
            attempt: AttemptResult {
                outcome: OutcomeKind::Timeout,
                status_code: None,
                took: Duration::from_millis(5),
                started_ago: Duration::from_millis(5),
                response_excerpt: None,
                error_detail: Some("late".to_owned()),
            },
            disable_endpoint: false,
            disable_after: None,
        };
        let store = if index % 2 == 0 { claiming } else { &other };
        assert_eq!(store.settle(&worker, &[settle]).await.unwrap(), [Settlement::Applied]);
    }
    let told = claiming.announcements(&end, 10).await.unwrap().announcements;
    assert_eq!(told.len(), 4);
    for (claim, told) in claims.iter().zip(&told) {
        let facts = (told.delivery_id, told.event_id, told.attempt_count, told.topic.as_str(), told.tenant.as_str());
        assert_eq!(facts, (claim.lease.delivery_id, claim.event_id, 1, "billing", "default"));
    }
    let notes: Vec<_> = told.iter().map(|told| serde_json::to_value(&told.metadata).unwrap()["note"].clone()).collect();
    assert_eq!(notes, ["short", "short", &long, &long]);
}
