//! Processes under trial, on a database under trial, and a record of what was done to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use jiff::Timestamp;
use postrider_conformance::wait::eventually;
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use postrider_sqlite::SqliteStore;

use crate::checker::{self, Evidence, Fault, Kind, Terms, Verdict};
use crate::cluster::{Cluster, Stop};
use crate::evidence::Source;
use crate::inbox::Inbox;
use crate::load::{Load, loopback};
use crate::process::{PATIENCE, Running, Workplace};

/// The feature's variable; its name is written out because only the build under trial knows it.
const FAILPOINTS: &str = "POSTRIDER_FAILPOINTS";

/// Microseconds since 1970.
pub fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Short enough for a trial to see leases lapse, long enough for a busy machine to renew them.
pub fn terms() -> Terms {
    Terms {
        lease: Duration::from_secs(3),
        poll: Duration::from_millis(200),
        schedule: [200, 500, 900].map(Duration::from_millis).to_vec(),
        max_attempts: 4,
        // Many, because these trials crash dispatchers without end: nothing is to become a suspect, which would be sent
        // alone and slowly. What that does is tried by itself.
        max_abandoned: 100,
        leeway: Duration::from_secs(8),
    }
}

/// Where the database is.
#[derive(Debug)]
pub enum Ground {
    /// A database on the server that tests share.
    Shared(Box<TestDatabase>),
    /// A server of the trial's own, which may be stopped.
    Own(Arc<Cluster>),
    /// An SQLite file.
    File,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `postrider serve`: the API and a dispatcher.
    Serve,
    /// `postrider dispatch`.
    Dispatch,
}

/// A process under trial.
#[derive(Debug)]
pub struct Member {
    /// Under which name it holds leases.
    pub worker: String,
    /// What it does.
    pub role: Role,
    /// Where it may end by itself.
    pub failpoints: Option<String>,
    /// The process.
    pub running: Running,
    /// Since when.
    pub started_at: i64,
    frozen_at: Option<i64>,
}

/// How to start one.
#[derive(Debug, Clone, Default)]
pub struct Start {
    /// Where it may end by itself.
    pub failpoints: Option<String>,
    /// More variables.
    pub variables: Vec<(String, String)>,
    /// More arguments.
    pub arguments: Vec<String>,
}

impl Start {
    /// With this place armed.
    pub fn ending_at(failpoints: &str) -> Self {
        Self { failpoints: Some(failpoints.to_owned()), ..Self::default() }
    }
}

/// All that a trial needs.
#[derive(Debug)]
pub struct Arena {
    /// Where the database is.
    pub ground: Ground,
    /// What the dispatchers are told.
    pub terms: Terms,
    /// Who receives.
    pub inbox: Inbox,
    /// What is enqueued.
    pub load: Arc<Load>,
    /// The database, for the checker.
    pub source: Source,
    workplace: Workplace,
    faults: Arc<Mutex<Vec<Fault>>>,
    places: Mutex<BTreeMap<String, u32>>,
    starts: Mutex<u32>,
}

impl Arena {
    /// A migrated database that is observed, without processes.
    pub async fn open(ground: Ground, inbox: Inbox, terms: Terms) -> Self {
        let (workplace, source) = match &ground {
            Ground::Shared(database) => (Workplace::on(database.url()), Source::Postgres(database.url().to_owned())),
            Ground::Own(cluster) => (Workplace::on(&cluster.url()), Source::Postgres(cluster.url())),
            Ground::File => {
                let workplace = Workplace::on("sqlite://postrider.db");
                let source = Source::Sqlite(workplace.sqlite_file());
                (workplace, source)
            }
        };
        let (code, text) = workplace.run(["migrate"]);
        assert_eq!(code, Some(0), "{text}");
        source.observe().await;
        if let Source::Postgres(url) = &source {
            // The SQL functions accept by these rules before the first dispatcher has said so.
            let store = PostgresStore::connect(url).await.unwrap().with_admission(loopback());
            store.publish_admission().await.unwrap();
        }
        let load = Arc::new(Load::new(inbox.url()));
        let faults = Arc::<Mutex<Vec<Fault>>>::default();
        watch_for_starvation(Arc::downgrade(&faults), terms.lease / 4);
        let (places, starts) = (Mutex::default(), Mutex::default());
        Self { ground, terms, inbox, load, source, workplace, faults, places, starts }
    }

    /// On a database of the server that tests share.
    pub async fn on_postgres(inbox: Inbox, terms: Terms) -> Self {
        Self::open(Ground::Shared(Box::new(TestDatabase::create_empty().await)), inbox, terms).await
    }

    /// On a file.
    pub async fn on_sqlite(inbox: Inbox, terms: Terms) -> Self {
        Self::open(Ground::File, inbox, terms).await
    }

    /// Whether it is an SQLite file, which has one dispatcher at a time.
    pub fn is_sqlite(&self) -> bool {
        matches!(self.ground, Ground::File)
    }

    /// Where the processes run.
    pub fn workplace(&self) -> &Workplace {
        &self.workplace
    }

    /// A store of the trial's own, as an application beside the processes would have one.
    pub async fn postgres(&self) -> PostgresStore {
        let Source::Postgres(url) = &self.source else { panic!("this arena is on SQLite") };
        PostgresStore::connect(url).await.unwrap().with_admission(loopback())
    }

    /// The same on a file.
    pub fn sqlite(&self) -> SqliteStore {
        SqliteStore::open(self.sqlite_file()).unwrap().with_admission(loopback())
    }

    fn sqlite_file(&self) -> PathBuf {
        self.workplace.sqlite_file()
    }

    /// Writes down something that was done.
    pub fn record(&self, at: i64, worker: Option<&str>, kind: Kind) {
        let fault = Fault { at, until: now(), worker: worker.map(str::to_owned), kind };
        self.faults.lock().unwrap().push(fault);
    }

    /// What was done so far.
    pub fn faults(&self) -> Vec<Fault> {
        self.faults.lock().unwrap().clone()
    }

    /// Whether the database was ever away.
    pub fn database_was_away(&self) -> bool {
        let is_away = |fault: &Fault| matches!(fault.kind, Kind::DatabaseFast | Kind::DatabaseImmediate);
        self.faults.lock().unwrap().iter().any(is_away)
    }

    /// How many faults there were so far, without starts and orderly ends.
    pub fn injected(&self) -> usize {
        let is_fault = |fault: &&Fault| !matches!(fault.kind, Kind::Started | Kind::Terminated | Kind::Starved);
        self.faults.lock().unwrap().iter().filter(is_fault).count()
    }

    /// How often a process ended at which named place.
    pub fn places(&self) -> BTreeMap<String, u32> {
        self.places.lock().unwrap().clone()
    }

    /// Writes down at which named place a process ended, if it did, by what it printed.
    pub fn ended_at_a_place(&self, text: &str) -> bool {
        let told = text.lines().find(|line| line.contains("failpoint reached"));
        let Some(place) = told.map(|line| line.split_once(r#""place":""#).map_or("", |(_, rest)| rest)) else {
            return false;
        };
        let place = place.split('"').next().unwrap_or_default().to_owned();
        *self.places.lock().unwrap().entry(place).or_default() += 1;
        true
    }

    /// Starts a process.
    pub fn start(&self, role: Role, start: Start) -> Member {
        let number = {
            let mut starts = self.starts.lock().unwrap();
            *starts += 1;
            *starts
        };
        let worker = format!("worker-{number}");
        let mut command = self.workplace.command([if role == Role::Serve { "serve" } else { "dispatch" }]);
        command.stdin(Stdio::null()).args(self.options(&worker, &start.arguments)).args(&start.arguments);
        if role == Role::Serve {
            command.args(["--listen", "127.0.0.1:0", "--dev", "--json"]);
        }
        if let Some(failpoints) = &start.failpoints {
            command.env(FAILPOINTS, failpoints);
        }
        command.env("POSTRIDER_LOG_FORMAT", "json").envs(start.variables);
        let started_at = now();
        self.record(started_at, Some(&worker), Kind::Started);
        let running = Running::start(command);
        Member { worker, role, failpoints: start.failpoints, running, started_at, frozen_at: None }
    }

    /// What every process is told, but for what this one is told otherwise.
    fn options(&self, worker: &str, otherwise: &[String]) -> Vec<String> {
        let terms = &self.terms;
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        let schedule: Vec<String> = terms.schedule.iter().copied().map(millis).collect();
        let options = [
            ("--worker-id", worker.to_owned()),
            ("--lease", millis(terms.lease)),
            ("--poll-interval", millis(terms.poll)),
            ("--timeout", "10s".to_owned()),
            ("--retry-schedule", schedule.join(",")),
            ("--max-attempts", terms.max_attempts.to_string()),
            ("--max-abandoned", terms.max_abandoned.to_string()),
            ("--drain-timeout", "5s".to_owned()),
        ];
        let usual = options.into_iter().filter(|(name, _)| !otherwise.iter().any(|other| other == name));
        usual.flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    /// Kills it, as a power failure would.
    pub async fn kill(&self, member: Member) {
        let (at, worker) = (now(), member.worker);
        member.running.killed().await;
        if let Some(frozen_at) = member.frozen_at {
            self.record(frozen_at, Some(&worker), Kind::Frozen);
        }
        self.record(at, Some(&worker), Kind::Killed);
    }

    /// Stops it in the midst of whatever it does.
    pub fn freeze(&self, member: &mut Member) {
        member.frozen_at = Some(now());
        member.running.signal("STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self, member: &mut Member) {
        if let Some(at) = member.frozen_at.take() {
            member.running.signal("CONT");
            self.record(at, Some(&member.worker), Kind::Frozen);
        }
    }

    /// Asks it to end, waits for that, and returns how long it took and what it printed. It may end at a named place
    /// instead, if one is armed.
    pub async fn terminate(&self, mut member: Member) -> (Duration, String) {
        self.thaw(&mut member);
        let (at, started_at, worker) = (now(), member.started_at, member.worker);
        let began = std::time::Instant::now();
        if member.running.has_ended().is_none() {
            member.running.signal("TERM");
        }
        let (code, text) = member.running.ended().await;
        let took = began.elapsed();
        let by_failpoint = self.ended_at_a_place(&text);
        assert!(code == Some(0) || by_failpoint, "{worker} ended with {code:?}: {text}");
        if by_failpoint {
            self.record(started_at, Some(&worker), Kind::Failpoint);
        } else {
            self.record(at, Some(&worker), Kind::Terminated);
        }
        (took, text)
    }

    /// Waits until a process ends at its named place, and returns what it printed.
    pub async fn ends_at_its_place(&self, member: Member) -> String {
        let at = now();
        let worker = member.worker.clone();
        let (code, text) = member.running.ended().await;
        assert!(code.is_none() && self.ended_at_a_place(&text), "{worker} ended with {code:?}: {text}");
        self.record(at, Some(&worker), Kind::Failpoint);
        text
    }

    /// Stops the database, and starts it again after a while.
    pub async fn interrupt_database(&self, how: Stop, away: Duration) {
        let Ground::Own(cluster) = &self.ground else { panic!("only a server of the trial's own may be stopped") };
        let at = now();
        let stopped = Arc::clone(cluster);
        tokio::task::spawn_blocking(move || stopped.stop(how)).await.unwrap();
        tokio::time::sleep(away).await;
        let started = Arc::clone(cluster);
        tokio::task::spawn_blocking(move || started.start_again()).await.unwrap();
        let kind = if matches!(how, Stop::Fast) { Kind::DatabaseFast } else { Kind::DatabaseImmediate };
        self.record(at, None, kind);
    }

    /// Waits until every delivery is settled.
    pub async fn all_settled(&self) {
        let settled = async || (self.source.unsettled().await == Ok(0)).then_some(());
        eventually("every delivery is settled", PATIENCE * 3, settled).await;
    }

    /// The evidence, once everything has ended.
    pub async fn evidence(&self) -> Evidence {
        Evidence {
            terms: self.terms.clone(),
            ledger: self.load.ledger(),
            requests: self.inbox.requests(),
            rows: self.source.rows().await,
            faults: self.faults(),
        }
    }

    /// Judges it.
    pub async fn judged(&self) -> Verdict {
        checker::judge(&self.evidence().await)
    }
}

/// Writes down when the machine was too busy to let this process run: then it did not let the others renew their leases
/// either. Ends with what it writes into.
fn watch_for_starvation(faults: Weak<Mutex<Vec<Fault>>>, bearable: Duration) {
    const NAP: Duration = Duration::from_millis(20);
    std::thread::spawn(move || {
        while let Some(faults) = faults.upgrade() {
            let at = now();
            let began = std::time::Instant::now();
            std::thread::sleep(NAP);
            if began.elapsed() > NAP + bearable {
                let fault = Fault { at, until: now(), worker: None, kind: Kind::Starved };
                faults.lock().unwrap().push(fault);
            }
        }
    });
}
