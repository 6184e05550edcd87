//! Dispatchers whose clocks are wrong (P24): every instant is the database's, so that they differ in nothing from others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use postrider::{Admission, DeliveryId, DestinationPolicy, NewEvent, Secret, SignatureScheme, Store as _};
use postrider_conformance::receiver::{Answer, Gate, Hostile, Received, Receiver};
use postrider_conformance::wait::eventually;
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use postrider_promises::canary;
use postrider_promises::faketime::{Clock, with_clock};
use postrider_promises::process::{PATIENCE, Running, Workplace};

use crate::stage::{measured, undisturbed};

const HOUR: Duration = Duration::from_secs(3_600);
/// Whoever takes a second for half of one renews in time; whoever is an hour off would not renew at all.
const LEASE: Duration = Duration::from_secs(5);
/// How long the slow receiver holds its requests: for more than two leases.
const HOLD: Duration = Duration::from_secs(12);
const FIRST_DELAY: Duration = Duration::from_millis(1_500);
/// How late a busy machine may do what is due.
const LEEWAY: Duration = Duration::from_secs(10);

struct Scene {
    database: TestDatabase,
    store: PostgresStore,
    workplace: Workplace,
}

impl Scene {
    async fn new() -> Self {
        let database = TestDatabase::create().await;
        let destinations = DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).unwrap();
        let store = database.store().with_admission(Admission { destinations, ..Admission::default() });
        let workplace = Workplace::on(database.url())
            .with("POSTRIDER_LEASE", &format!("{}s", LEASE.as_secs()))
            .with("POSTRIDER_POLL_INTERVAL", "200ms")
            .with("POSTRIDER_TIMEOUT", "1m")
            // By a clock that is an hour ahead, everything is too old to be kept.
            .with("POSTRIDER_RETENTION", "1h")
            .with("POSTRIDER_RETRY_SCHEDULE", &format!("{}ms,1h", FIRST_DELAY.as_millis()))
            .with("POSTRIDER_MAX_IN_FLIGHT", "8");
        Self { database, store, workplace }
    }

    async fn dispatch(&self, worker: &'static str, clock: Clock) -> Dispatching {
        let running = Running::start(with_clock(self.workplace.command(["dispatch", "--worker-id", worker]), clock));
        let line = running.line("the start", |line| line.contains("dispatching from")).await;
        Dispatching { worker, clock, running, began: (instant(&line), Instant::now()) }
    }

    async fn enqueue(&self, count: usize, url: &str) -> Vec<DeliveryId> {
        let event = NewEvent::new("a.b", format!(r#"{{"canary":"{}"}}"#, canary::PAYLOAD)).to(url);
        let enqueued = self.store.enqueue(vec![event; count]).await.unwrap();
        enqueued.iter().map(|enqueued| enqueued.deliveries()[0].id).collect()
    }

    async fn query<T>(&self, statement: &'static str) -> T
    where
        T: for<'a> sqlx::Decode<'a, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        use sqlx::Connection as _;
        let mut connection = sqlx::PgConnection::connect(self.database.url()).await.unwrap();
        sqlx::query_scalar(statement).fetch_one(&mut connection).await.unwrap()
    }

    async fn until(&self, what: &str, statement: &'static str) {
        eventually(what, PATIENCE, async || self.query::<bool>(statement).await.then_some(())).await;
    }
}

/// A dispatcher with its clock, and when it began by that clock and by ours.
struct Dispatching {
    worker: &'static str,
    clock: Clock,
    running: Running,
    began: (Timestamp, Instant),
}

impl Dispatching {
    /// Tells it to stop, and sees that its clock was as wrong as it was meant to be: what it logs is its own time.
    async fn stopped(self) {
        let text = self.running.stopped().await;
        let (now, lived) = (Timestamp::now(), self.began.1.elapsed());
        let ended = instant(text.lines().rfind(|line| line.contains("dispatcher stopped")).unwrap());
        let (off, clocked) = (ended.duration_since(now).as_secs(), ended.duration_since(self.began.0).as_secs_f64());
        let as_meant = match self.clock {
            Clock::Right => off.abs() < 60,
            Clock::Off(seconds) => (off - seconds).abs() < 60,
            // A busy machine may have read its first line late.
            Clock::Fast(times) => clocked > 0.7 * f64::from(times) * lived.as_secs_f64(),
        };
        assert!(as_meant, "{}: the clock was {off} s off, and {clocked} s passed in {lived:?}", self.worker);
    }
}

/// When a line was logged, by the clock of who logged it.
fn instant(line: &str) -> Timestamp {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line["timestamp"].as_str().unwrap().parse().unwrap()
}

/// Answers with this status after this long.
async fn slow(status: u16, hold: Duration) -> Receiver {
    Receiver::start(move |_, _| {
        let gate = Gate::new();
        let opened = gate.clone();
        tokio::spawn(async move {
            tokio::time::sleep(hold).await;
            opened.open();
        });
        Answer::status(status).after(&gate)
    })
    .await
}

/// Every request was signed at the time at which it came, by this machine's clock, which is right.
fn were_signed_in_time(requests: &[Received]) {
    let now = (Timestamp::now().as_second(), Instant::now());
    let secrets = [Secret::parse(canary::SIGNING_SECRET).unwrap()];
    for request in requests {
        let arrived = now.0 - i64::try_from((now.1 - request.arrived).as_secs()).unwrap();
        let scheme = SignatureScheme::Standard;
        scheme.verify_headers(&secrets, &request.headers, &request.body, arrived, LEEWAY).unwrap_or_else(|error| {
            panic!("{error}: signed at {}, arrived at {arrived}", request.header("webhook-timestamp"))
        });
    }
}

/// The requests of each delivery, in their order.
fn by_delivery(requests: &[Received]) -> BTreeMap<&str, Vec<&Received>> {
    let mut deliveries = BTreeMap::<_, Vec<_>>::new();
    for request in requests {
        deliveries.entry(request.header("postrider-delivery-id")).or_default().push(request);
    }
    deliveries
}

/// P24 and P8: dispatchers an hour ahead, an hour behind, at double speed and with a right clock share the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p24_a_wrong_clock_has_no_effect() {
    const FAILING: usize = 160;
    const SLOW: usize = 12;
    let _machine = undisturbed().await;
    let scene = Scene::new().await;
    let clocks = [
        ("ahead", Clock::Off(3_600)),
        ("behind", Clock::Off(-3_600)),
        ("double", Clock::Fast(2)),
        ("right", Clock::Right),
    ];
    let mut dispatching = Vec::new();
    for (worker, clock) in clocks {
        dispatching.push(scene.dispatch(worker, clock).await);
    }
    let (failing, holding) = (slow(500, Duration::from_millis(300)).await, slow(200, HOLD).await);
    scene.enqueue(SLOW, &holding.url()).await;
    scene.enqueue(FAILING, &failing.url()).await;

    let mut longest_lease = Duration::ZERO;
    let done = "select count(*) = 0 from postrider.deliveries where status <> 'delivered' and attempt_count < 2";
    eventually("everybody's attempts", PATIENCE, async || {
        let left = "select coalesce(extract(epoch from max(lease_until) - clock_timestamp()), 0)::float8 from postrider.leases";
        let left = Duration::try_from_secs_f64(scene.query(left).await).unwrap_or_default();
        longest_lease = longest_lease.max(left);
        scene.query::<bool>(done).await.then_some(())
    })
    .await;
    assert!(longest_lease <= LEASE, "a lease was granted for {longest_lease:?}");

    let (failing, holding) = (failing.requests(), holding.requests());
    were_signed_in_time(&failing);
    were_signed_in_time(&holding);
    // Nobody took a lease that somebody held, and nobody lost one: each was sent once per attempt.
    assert_eq!(by_delivery(&holding).len(), SLOW);
    assert_eq!(holding.len(), SLOW, "a delivery was sent twice while its lease was held");
    let mut latest = Duration::ZERO;
    for (delivery, requests) in by_delivery(&failing) {
        let attempts: Vec<_> = requests.iter().map(|request| request.header("postrider-attempt")).collect();
        assert_eq!(attempts, ["1", "2"], "{delivery}");
        let between = requests[1].arrived - requests[0].arrived;
        assert!(between >= FIRST_DELAY, "{delivery} came again after {between:?}");
        latest = latest.max(between);
    }
    scene
        .until(
            "each retry exactly its delay after the settle, by the database's clock",
            "select bool_and(next_attempt_at - last_attempted_at = interval '1 hour')
             from postrider.deliveries where status = 'failed'",
        )
        .await;
    let early_or_late = "select count(*) from postrider.attempts
        where started_at not between clock_timestamp() - interval '3 minutes' and clock_timestamp()";
    assert_eq!(scene.query::<i64>(early_or_late).await, 0, "attempts are recorded at the time of the database");
    let abandoned = "select count(*) from postrider.deliveries where abandoned_count > 0";
    assert_eq!(scene.query::<i64>(abandoned).await, 0, "no lease lapsed");
    let kept = "select count(*) from postrider.events";
    assert_eq!(scene.query::<i64>(kept).await, i64::try_from(FAILING + SLOW).unwrap(), "nothing was tidied away early");
    let workers: String =
        scene.query("select string_agg(distinct worker_id, ',' order by worker_id) from postrider.attempts").await;
    assert_eq!(
        workers.split(',').collect::<BTreeSet<_>>(),
        clocks.map(|(worker, _)| worker).into(),
        "all of them worked"
    );
    measured(
        "wrong clocks",
        (failing.len() + holding.len(), "attempts; longest lease", longest_lease, "latest retry", latest),
    );
    for dispatcher in dispatching {
        dispatcher.stopped().await;
    }
}

/// P24: a receiver asks to be left alone until an instant, and does not say what time it has. The database's clock says
/// how long that is, whatever the dispatcher's says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p24_an_instant_that_a_receiver_names_is_measured_by_the_databases_clock() {
    let _machine = undisturbed().await;
    let scene = Scene::new().await;
    for (worker, clock) in [("ahead", Clock::Off(3_600)), ("behind", Clock::Off(-3_600))] {
        let until = (Timestamp::now() + 3 * HOUR).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let answer = format!("HTTP/1.1 503 Later\r\nRetry-After: {until}\r\nContent-Length: 0\r\n\r\n");
        let receiver = Hostile::answering(answer).await;
        let dispatching = scene.dispatch(worker, clock).await;
        let delivery = scene.enqueue(1, &receiver.url()).await[0];
        let delivery = eventually("the attempt", PATIENCE, async || {
            let detail = scene.store.delivery(delivery).await.unwrap().unwrap();
            (detail.delivery.attempt_count == 1).then_some(detail.delivery)
        })
        .await;
        let waits =
            delivery.next_attempt_at.unwrap().duration_since(delivery.last_attempted_at.unwrap()).unsigned_abs();
        assert!(waits <= 3 * HOUR && 3 * HOUR <= waits + PATIENCE, "{worker}: it waits for {waits:?}");
        dispatching.stopped().await;
    }
}
