//! A database, a server, replicas and a receiver, for one test.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::{DeliveryStatus, DestinationPolicy, Event, EventFilter, PageRequest, Secret, Store as _};
use postrider_conformance::receiver::{Answer, Received, Receiver};
use postrider_conformance::wait::eventually;
use postrider_postgres::testing::TestDatabase;
use rollouts::Rollouts;
use rollouts::notice::{PIPELINE_COMPLETED, PIPELINE_FAILED};
use serde_json::{Value, json};

/// For whatever should happen soon, on a machine that may be very busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const LOOPBACK: &str = "127.0.0.0/8";

pub(crate) struct World {
    pub(crate) receiver: Receiver,
    pub(crate) rollouts: Rollouts,
    secret: Secret,
    server_url: String,
    client: reqwest::Client,
    _server: Process,
    // Dropped last, when nobody uses it any more.
    database: TestDatabase,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::answering(|_, _| Answer::status(200)).await
    }

    pub(crate) async fn answering(script: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let database = TestDatabase::create_empty().await;
        let rollouts = Rollouts::open(database.url(), loopback()).await.unwrap();
        let server = Process::start(database.url(), None, &["server", "--listen", "127.0.0.1:0"]);
        let server_url = server.logged_after("listening on ").await;
        Self {
            receiver: Receiver::start(script).await,
            rollouts,
            secret: Secret::generate(),
            server_url,
            client: reqwest::Client::new(),
            _server: server,
            database,
        }
    }

    /// Another process's view of the same plans.
    pub(crate) async fn another(&self) -> Rollouts {
        Rollouts::open(self.database.url(), loopback()).await.unwrap()
    }

    /// Starts a replica that runs one task at a time, so that tasks are spread.
    pub(crate) fn replica(&self, more: &[&str]) -> Process {
        let mut arguments = vec!["replica", "--poll-interval", "20ms", "--max-running", "1"];
        if !more.contains(&"--lease") {
            arguments.extend(["--lease", "1s"]);
        }
        arguments.extend(more);
        Process::start(self.database.url(), Some(&self.secret), &arguments)
    }

    pub(crate) fn replicas<const COUNT: usize>(&self, more: &[&str]) -> [Process; COUNT] {
        std::array::from_fn(|_| self.replica(more))
    }

    /// Asks the server, and gives the status with the answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.server_url));
        let request = if let Some(body) = body { request.json(&body) } else { request };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    async fn ok(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert!(matches!(status, 200 | 201), "{method} {path}: {status} {answer}");
        answer
    }

    /// Creates a plan of tasks with names and scripts.
    pub(crate) async fn create(&self, tasks: &[(&str, Value)]) -> i64 {
        let task = |(name, script): &(&str, Value)| json!({ "name": name, "script": script });
        let tasks: Vec<Value> = tasks.iter().map(task).collect();
        let plan = json!({ "title": "add a column", "webhook_url": self.receiver.url(), "tasks": tasks });
        self.ok("POST", "/v1/plans", Some(plan)).await["id"].as_i64().unwrap()
    }

    pub(crate) async fn plan(&self, plan: i64) -> Value {
        self.ok("GET", &format!("/v1/plans/{plan}"), None).await
    }

    /// Runs every task that can be.
    pub(crate) async fn run_all(&self, plan: i64) -> Value {
        self.ok("POST", &format!("/v1/plans/{plan}/tasks:batchRun"), Some(json!({}))).await
    }

    pub(crate) async fn run(&self, plan: i64, tasks: &[&str]) -> Value {
        let body = json!({ "tasks": tasks });
        self.ok("POST", &format!("/v1/plans/{plan}/tasks:batchRun"), Some(body)).await
    }

    pub(crate) async fn skip(&self, plan: i64, tasks: &[&str]) -> Value {
        let body = json!({ "tasks": tasks });
        self.ok("POST", &format!("/v1/plans/{plan}/tasks:batchSkip"), Some(body)).await
    }

    /// Waits until a plan stands as `wanted`, such as `a failed, b done`.
    pub(crate) async fn stands(&self, plan: i64, wanted: &str) {
        eventually(&format!("plan {plan} stands: {wanted}"), PATIENCE, async || {
            (standing(&self.plan(plan).await) == wanted).then_some(())
        })
        .await;
    }

    /// Waits until no task of a plan is pending or running, and gives the plan.
    pub(crate) async fn settled(&self, plan: i64) -> Value {
        eventually(&format!("plan {plan} is settled"), PATIENCE, async || {
            let plan = self.plan(plan).await;
            let is_open = |task: &Value| matches!(task["status"].as_str().unwrap(), "pending" | "running");
            (!tasks(&plan).iter().any(is_open)).then_some(plan)
        })
        .await
    }

    /// The events of a plan, oldest first. They are written with what they tell of, so of a plan that is settled there
    /// will be no others.
    pub(crate) async fn events(&self, plan: i64) -> Vec<Event> {
        let page = PageRequest::new(250, None).unwrap();
        let events = self.rollouts.store().events(&EventFilter::default(), &page, 1 << 24).await.unwrap();
        assert!(events.next.is_none(), "a test has so few events that one page has them all");
        let mut events = events.items;
        events.retain(|event| plan_of(&event.payload) == plan);
        events.reverse();
        events
    }

    /// How many failures and completions have arrived of a settled plan, once all of its events have. However often an
    /// event came, by its id it is one.
    pub(crate) async fn told(&self, plan: i64) -> (usize, usize) {
        let events = eventually(&format!("all of plan {plan} is delivered"), PATIENCE, async || {
            let events = self.events(plan).await;
            let deliveries = || events.iter().flat_map(|event| &event.deliveries);
            deliveries().all(|delivery| delivery.status == DeliveryStatus::Delivered).then_some(events)
        })
        .await;
        let arrived = self.arrived(plan);
        let ids = || arrived.keys().map(String::as_str);
        let mut sent: Vec<String> = events.iter().map(|event| event.id.to_string()).collect();
        sent.sort();
        assert!(ids().eq(sent.iter().map(String::as_str)), "what arrived of plan {plan} is not what was enqueued");
        let count = |wanted| arrived.values().filter(|(event_type, _)| event_type == wanted).count();
        let (failed, completed) = (count(PIPELINE_FAILED), count(PIPELINE_COMPLETED));
        assert_eq!(failed + completed, arrived.len());
        (failed, completed)
    }

    /// The ids of events of a plan that the receiver has, with their type and how often they came.
    pub(crate) fn arrived(&self, plan: i64) -> BTreeMap<String, (String, usize)> {
        let mut arrived = BTreeMap::new();
        for request in self.receiver.requests().iter().filter(|request| plan_of(&request.body) == plan) {
            let event_type = request.header("postrider-event-type").to_owned();
            assert_eq!(body(request)["type"], event_type);
            assert!(request.header("webhook-signature").starts_with("v1,"));
            arrived.entry(request.header("webhook-id").to_owned()).or_insert((event_type, 0)).1 += 1;
        }
        arrived
    }

    /// Waits until a replica holds a run of this task, and gives the replica's name.
    pub(crate) async fn held_by(&self, plan: i64, task: &str) -> String {
        eventually(&format!("{task} of plan {plan} is run"), PATIENCE, async || {
            self.owner(plan, task, "status = 'running' and lease_until > clock_timestamp()").await
        })
        .await
    }

    /// The replica that had the last run of a task.
    pub(crate) async fn last_owner(&self, plan: i64, task: &str) -> String {
        self.owner(plan, task, "true").await.expect("the task was run")
    }

    async fn owner(&self, plan: i64, task: &str, condition: &'static str) -> Option<String> {
        let query = format!(
            "select owner from rollouts.task_runs where plan_id = $1 and task = $2 and {condition} order by attempt desc"
        );
        let query = sqlx::query_scalar(sqlx::AssertSqlSafe(query)).bind(plan).bind(task);
        query.fetch_optional(self.rollouts.store().pool()).await.unwrap()
    }
}

/// A process of the real binary, killed with this value.
pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Process {
    fn start(database_url: &str, secret: Option<&Secret>, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rollouts"));
        command.args(arguments).env("ROLLOUTS_DATABASE", database_url).env("ROLLOUTS_ALLOWED_NETWORKS", LOOPBACK);
        command.env_remove("ROLLOUTS_LOG");
        if let Some(secret) = secret {
            command.env("ROLLOUTS_SIGNING_SECRET", secret.reveal());
        }
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().unwrap().extend([line.as_str(), "\n"]);
            }
        });
        Self { child, log }
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line of its log, and gives the word after `mark`.
    pub(crate) async fn logged_after(&self, mark: &str) -> String {
        let word = async || {
            let log = self.log();
            let (_, rest) = log.split_once(mark)?;
            rest.split_whitespace().next().map(str::to_owned)
        };
        eventually(&format!("a process logs `{mark}`"), PATIENCE, word).await
    }

    /// The name under which it holds leases.
    pub(crate) async fn worker(&self) -> String {
        self.logged_after("replica started worker_id=").await
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of process {}\n{}", self.child.id(), self.log());
        }
    }
}

/// Takes the process of this name out of the list.
pub(crate) async fn take(processes: &mut Vec<Process>, worker: &str) -> Process {
    for place in 0..processes.len() {
        if processes[place].worker().await == worker {
            return processes.remove(place);
        }
    }
    panic!("no process is {worker}");
}

fn loopback() -> DestinationPolicy {
    DestinationPolicy::default().allow_networks([LOOPBACK]).unwrap()
}

pub(crate) fn tasks(plan: &Value) -> &Vec<Value> {
    plan["tasks"].as_array().unwrap()
}

/// `a failed, b done`.
pub(crate) fn standing(plan: &Value) -> String {
    let task = |task: &Value| format!("{} {}", task["name"].as_str().unwrap(), task["status"].as_str().unwrap());
    tasks(plan).iter().map(task).collect::<Vec<_>>().join(", ")
}

/// The type of the event that has claimed the plan's current generation.
pub(crate) fn winner(plan: &Value) -> Option<&str> {
    plan["notification"]["winner"]["event_type"].as_str()
}

pub(crate) fn body(request: &Received) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn plan_of(payload: &[u8]) -> i64 {
    serde_json::from_slice::<Value>(payload).unwrap()["plan"]["id"].as_i64().unwrap()
}

pub(crate) fn succeeds() -> Value {
    json!({})
}

pub(crate) fn fails() -> Value {
    json!({ "outcome": "fails" })
}

pub(crate) fn fails_times(times: u32) -> Value {
    json!({ "outcome": { "fails_times": times } })
}

pub(crate) fn taking(mut script: Value, takes: &str) -> Value {
    script["takes"] = json!(takes);
    script
}
