//! Dispatchers that die, that freeze, and that wait for receivers slower than their lease.
//!
//! The receiver of these tests answers when the test says so, which makes "while deliveries are held" a fact rather
//! than a matter of timing. The dispatchers are processes, killed and stopped by the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::{
    Admission, DeliveryDetail, DeliveryFilter, DeliveryId, DeliveryStatus, DestinationPolicy, NewEvent, Store,
};
use postrider_postgres::testing::TestDatabase;
use postrider_sqlite::SqliteStore;
use tokio::runtime::Runtime;

use crate::gate::{Gate, Request};
use crate::support::{DEADLINE, Running, Workplace};

/// Short enough for a test to see it lapse, long enough for a busy machine to renew it in time.
const LEASE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(200);
/// What a busy machine may need on top, to send what was taken over.
const LEEWAY: Duration = Duration::from_secs(5);

/// A database that the test fills and looks into while the binary works on it.
struct Scene {
    runtime: Runtime,
    store: Arc<dyn Store>,
    workplace: Workplace,
    _database: Option<TestDatabase>,
}

impl Scene {
    fn postgres() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let database = runtime.block_on(TestDatabase::create());
        let workplace = Workplace::ready_to_send().with("POSTRIDER_DATABASE", database.url());
        let store = Arc::new(database.store().with_admission(loopback()));
        Self { runtime, store, workplace, _database: Some(database) }
    }

    fn sqlite() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let workplace = Workplace::ready_to_send();
        workplace.run(["migrate"]).succeeds();
        let store = SqliteStore::open(workplace.path().join("postrider.db")).unwrap().with_admission(loopback());
        Self { runtime, store: Arc::new(store), workplace, _database: None }
    }

    /// So many deliveries to this URL, due at once.
    fn enqueue(&self, count: usize, url: &str) -> Vec<DeliveryId> {
        let events = std::iter::repeat_with(|| NewEvent::new("a.b", "{}").to(url)).take(count).collect();
        let enqueued = self.runtime.block_on(self.store.enqueue(events)).unwrap();
        enqueued.iter().map(|enqueued| enqueued.deliveries()[0].id).collect()
    }

    fn dispatch(&self, worker: &str, at_most: usize) -> Running {
        let (lease, poll) = (format!("{}ms", LEASE.as_millis()), format!("{}ms", POLL.as_millis()));
        let at_most = at_most.to_string();
        let options = ["--lease", &lease, "--poll-interval", &poll, "--timeout", "10m", "--worker-id", worker];
        // What fails stays failed for as long as the test takes.
        let limits = ["--max-in-flight-per-destination", &at_most, "--retry-schedule", "1h"];
        self.workplace.start(["dispatch"].into_iter().chain(options).chain(limits))
    }

    fn count(&self, status: DeliveryStatus) -> u64 {
        let filter = DeliveryFilter { status: Some(status), ..DeliveryFilter::default() };
        self.runtime.block_on(self.store.count_deliveries(&filter)).unwrap()
    }

    #[track_caller]
    fn until_all_are(&self, status: DeliveryStatus, count: usize) {
        let count = u64::try_from(count).unwrap();
        until(&format!("all {count} are {status}"), || self.count(status) == count);
    }

    fn details(&self, ids: &[DeliveryId]) -> Vec<DeliveryDetail> {
        let detail = |id: &DeliveryId| self.runtime.block_on(self.store.delivery(*id)).unwrap().unwrap();
        ids.iter().map(detail).collect()
    }

    /// Each was delivered, in exactly one recorded attempt, by this worker or by one of these.
    fn were_delivered_once_by(&self, ids: &[DeliveryId], workers: &[&str]) {
        for detail in self.details(ids) {
            let delivery = &detail.delivery;
            assert_eq!(delivery.status, DeliveryStatus::Delivered, "{detail:?}");
            assert_eq!((delivery.attempt_count, detail.attempts.len()), (1, 1), "{detail:?}");
            assert!(workers.contains(&detail.attempts[0].worker_id.as_str()), "{detail:?}");
            assert_eq!((&delivery.lease_owner, delivery.lease_until), (&None, None), "{detail:?}");
        }
    }
}

fn loopback() -> Admission {
    let destinations = DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).unwrap();
    Admission { destinations, ..Admission::default() }
}

#[track_caller]
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// How often each delivery was asked for.
fn tally(requests: &[Request]) -> BTreeMap<&str, usize> {
    let mut tally = BTreeMap::new();
    for request in requests {
        *tally.entry(request.delivery.as_str()).or_default() += 1;
    }
    tally
}

/// What came after the first `before` requests came in time, and came again under the same event ids.
fn were_taken_over_in_time(requests: &[Request], before: usize, killed: Instant) {
    let (first, again) = requests.split_at(before);
    let last = again.iter().map(|request| request.at).max().unwrap();
    assert!(last - killed < LEASE + POLL + LEEWAY, "taken over after {:?}", last - killed);
    let known: BTreeSet<_> = first.iter().map(|request| (&request.delivery, &request.event)).collect();
    assert!(again.iter().all(|request| known.contains(&(&request.delivery, &request.event))));
}

/// Tells it to stop, and returns what it says that it did.
fn stops(dispatching: Running) -> serde_json::Value {
    dispatching.signal("TERM");
    let totals = dispatching.json_line("the totals", |line| line["message"] == "dispatcher stopped");
    let (code, text) = dispatching.ended();
    assert_eq!(code, Some(0), "{text}");
    totals
}

/// P1 and P11, on Postgres: one of two dispatchers is killed while a receiver holds 200 deliveries.
#[test]
fn what_a_killed_dispatcher_held_is_taken_over_by_the_other_one() {
    const ALL: usize = 200;
    const OF_THE_KILLED: usize = 120;
    let scene = Scene::postgres();
    let gate = Gate::closed();
    let ids = scene.enqueue(ALL, &gate.url);
    let killed = scene.dispatch("killed", OF_THE_KILLED);
    gate.holds(OF_THE_KILLED);
    let surviving = scene.dispatch("surviving", ALL);
    assert!(tally(&gate.holds(ALL)).values().all(|times| *times == 1), "all 200 are held, each once");

    killed.signal("KILL");
    let killed_at = Instant::now();
    let requests = gate.holds(ALL + OF_THE_KILLED);
    were_taken_over_in_time(&requests, ALL, killed_at);
    let tally = tally(&requests);
    assert_eq!(tally.values().filter(|times| **times == 2).count(), OF_THE_KILLED, "{tally:?}");

    gate.open();
    scene.until_all_are(DeliveryStatus::Delivered, ALL);
    scene.were_delivered_once_by(&ids, &["surviving"]);
    assert_eq!(gate.requests().len(), ALL + OF_THE_KILLED, "nothing was sent again for no reason");
    let totals = stops(surviving);
    assert_eq!((&totals["delivered"], &totals["lost"]), (&ALL.into(), &0.into()), "{totals}");
}

/// The same on SQLite, which has one dispatcher at a time: the next one takes over from the file.
#[test]
fn what_a_killed_dispatcher_held_is_taken_over_after_a_restart() {
    const ALL: usize = 200;
    let scene = Scene::sqlite();
    let gate = Gate::closed();
    let ids = scene.enqueue(ALL, &gate.url);
    let killed = scene.dispatch("killed", ALL);
    gate.holds(ALL);

    killed.signal("KILL");
    let killed_at = Instant::now();
    killed.ended();
    let restarted = scene.dispatch("restarted", ALL);
    let requests = gate.holds(2 * ALL);
    were_taken_over_in_time(&requests, ALL, killed_at);
    assert!(tally(&requests).values().all(|times| *times == 2));

    gate.open();
    scene.until_all_are(DeliveryStatus::Delivered, ALL);
    scene.were_delivered_once_by(&ids, &["restarted"]);
    let totals = stops(restarted);
    assert_eq!((&totals["delivered"], &totals["lost"]), (&ALL.into(), &0.into()), "{totals}");
}

/// P4: what a dispatcher that was frozen beyond its lease settles when it wakes up changes nothing, neither while its
/// successor is still at it, nor in what the successor makes of it: the frozen one is told of success, which would be
/// final, and the successor of failure.
#[test]
fn a_dispatcher_that_wakes_up_after_its_lease_changes_nothing() {
    const ALL: usize = 50;
    let scene = Scene::postgres();
    let gate = Gate::answering(|earlier| if earlier == 0 { 200 } else { 500 });
    let ids = scene.enqueue(ALL, &gate.url);
    let frozen = scene.dispatch("frozen", ALL);
    gate.holds(ALL);
    frozen.signal("STOP");
    let successor = scene.dispatch("successor", ALL);
    assert!(tally(&gate.holds(2 * ALL)).values().all(|times| *times == 2));

    gate.open_for(1);
    frozen.signal("CONT");
    let refused = |line: &str| line.contains(r#""code":"lease_lost""#) && line.contains("nothing was changed");
    until("every stale settle is refused", || frozen.count(refused) == ALL);
    for detail in scene.details(&ids) {
        let delivery = &detail.delivery;
        assert_eq!((delivery.status, delivery.attempt_count), (DeliveryStatus::Pending, 0), "{detail:?}");
        assert_eq!(delivery.lease_owner.as_deref(), Some("successor"), "{detail:?}");
        assert_eq!(detail.attempts, [], "{detail:?}");
    }

    gate.open();
    scene.until_all_are(DeliveryStatus::Failed, ALL);
    for detail in scene.details(&ids) {
        let attempts: Vec<_> = detail.attempts.iter().map(|attempt| (attempt.number, &*attempt.worker_id)).collect();
        assert_eq!((detail.delivery.attempt_count, &attempts[..]), (1, &[(1, "successor")][..]), "{detail:?}");
    }
    let totals = stops(frozen);
    assert_eq!((&totals["delivered"], &totals["lost"]), (&0.into(), &ALL.into()), "{totals}");
    let totals = stops(successor);
    assert_eq!((&totals["retried"], &totals["lost"]), (&ALL.into(), &0.into()), "{totals}");
    assert_eq!(gate.requests().len(), 2 * ALL, "nothing was sent a third time");
}

/// P12, on Postgres, where another dispatcher waits for the lease to lapse.
#[test]
fn a_receiver_slower_than_the_lease_is_asked_once_on_postgres() {
    slower_than_the_lease(&Scene::postgres(), &["one", "another"]);
}

/// P12, on SQLite, where the dispatcher itself would take it again.
#[test]
fn a_receiver_slower_than_the_lease_is_asked_once_on_sqlite() {
    slower_than_the_lease(&Scene::sqlite(), &["one"]);
}

fn slower_than_the_lease(scene: &Scene, workers: &[&str]) {
    const ALL: usize = 20;
    const TIMES: i32 = 10;
    let gate = Gate::closed();
    let ids = scene.enqueue(ALL, &gate.url);
    let dispatching: Vec<Running> = workers.iter().map(|worker| scene.dispatch(worker, ALL)).collect();
    gate.holds(ALL);
    let ends = || -> Vec<_> {
        let details = scene.details(&ids);
        details.iter().map(|detail| detail.delivery.lease_until.expect("it stays leased while it is held")).collect()
    };
    let first = ends();
    let span = jiff::SignedDuration::try_from(LEASE).unwrap() * TIMES;
    until("every lease was renewed for ten times its length", || {
        ends().iter().zip(&first).all(|(now, first)| now.duration_since(*first) >= span)
    });
    assert_eq!(gate.requests().len(), ALL, "each is asked for once");
    gate.open();
    scene.until_all_are(DeliveryStatus::Delivered, ALL);
    scene.were_delivered_once_by(&ids, workers);
    let all_totals: Vec<_> = dispatching.into_iter().map(stops).collect();
    let delivered: u64 = all_totals.iter().map(|totals| totals["delivered"].as_u64().unwrap()).sum();
    assert_eq!(delivered, u64::try_from(ALL).unwrap(), "{all_totals:?}");
    assert!(all_totals.iter().all(|totals| totals["lost"] == 0), "{all_totals:?}");
    assert_eq!(gate.requests().len(), ALL, "and never again");
}
