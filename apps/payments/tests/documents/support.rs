//! The binary's processes, a database of its own for each test, and an EVM node.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_conformance::receiver::Receiver;
use postrider_conformance::wait::{eventually, within};
use postrider_postgres::testing::TestDatabase;
use serde_json::{Value, json};
use sqlx::{PgPool, Row as _};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use uuid::Uuid;

/// Processes start slowly on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const SECRET: &str = "a secret between two parties";
pub(crate) const AMOUNT: u128 = 1_000_000_000_000_000_000;

/// One test's database, migrated by the binary itself, and what runs on it.
pub(crate) struct World {
    database: TestDatabase,
}

impl World {
    pub(crate) async fn new() -> Self {
        let world = Self { database: TestDatabase::create_empty().await };
        // Every command applies missing migrations.
        let (status, output) = world.command(&["legacy", "list"], &[]).await;
        assert!(status.success(), "{output}");
        world
    }

    pub(crate) fn url(&self) -> &str {
        self.database.url()
    }

    pub(crate) fn store(&self) -> postrider_postgres::PostgresStore {
        self.database.store()
    }

    pub(crate) fn pool(&self) -> PgPool {
        self.database.store().pool().clone()
    }

    /// Starts one of the runtimes with what it needs for a quick test, and these variables besides.
    pub(crate) fn start(&self, runtime: &str, variables: &[(&str, &str)]) -> Process {
        let usual: &[(&str, &str)] = match runtime {
            "server" => &[("PAYMENTS_LISTEN", "127.0.0.1:0"), HOSTS, NETWORKS],
            "reconciler" => &[
                ("PAYMENTS_RECONCILE_INTERVAL", "50ms"),
                ("PAYMENTS_RPC_TIMEOUT", "2s"),
                ("PAYMENTS_RECONCILE_LEASE", "5s"),
            ],
            "webhook-dispatcher" => &[
                ("PAYMENTS_WEBHOOK_HMAC_SECRET", SECRET),
                ("PAYMENTS_WEBHOOK_RETRY_INITIAL", "50ms"),
                ("PAYMENTS_WEBHOOK_RETRY_MAX", "100ms"),
                ("PAYMENTS_WEBHOOK_MAX_ATTEMPTS", "3"),
                ("PAYMENTS_WEBHOOK_POLL_INTERVAL", "100ms"),
                HOSTS,
                NETWORKS,
            ],
            other => panic!("{other} is not a runtime"),
        };
        let mut all = vec![("PAYMENTS_DATABASE_URL", self.url())];
        all.extend(usual.iter().chain(variables));
        Process::start(env!("CARGO_BIN_EXE_payments"), &[runtime], &all)
    }

    pub(crate) fn reconciler(&self, anvil: &Anvil, variables: &[(&str, &str)]) -> Process {
        let mut all = vec![("PAYMENTS_RPC_URL", anvil.url.as_str())];
        all.extend(variables);
        self.start("reconciler", &all)
    }

    pub(crate) async fn server(&self) -> Api {
        let process = self.start("server", &[]);
        let url = process.listening().await;
        Api { url, process }
    }

    /// Runs a command to its end, and gives what it said in all.
    pub(crate) async fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (ExitStatus, String) {
        let mut all = vec![("PAYMENTS_DATABASE_URL", self.url()), HOSTS, NETWORKS];
        all.extend(variables);
        let mut process = Process::start(env!("CARGO_BIN_EXE_payments"), arguments, &all);
        let status = process.ended().await;
        (status, process.log())
    }

    /// A request as the server would write it, to this receiver.
    pub(crate) async fn request(&self, webhook_url: Option<&str>) -> Request {
        self.request_until(webhook_url, Duration::from_secs(3600)).await
    }

    pub(crate) async fn request_until(&self, webhook_url: Option<&str>, expires_in: Duration) -> Request {
        let address = address();
        let statement = "insert into payments.requests (address, amount_wei, webhook_url, expires_at) \
                         values ($1, $2::text::numeric, $3, clock_timestamp() + $4 * interval '1 ms') returning id";
        let row = sqlx::query(statement)
            .bind(&address)
            .bind(AMOUNT.to_string())
            .bind(webhook_url)
            .bind(i64::try_from(expires_in.as_millis()).unwrap())
            .fetch_one(&self.pool())
            .await
            .unwrap();
        Request { id: row.get("id"), address }
    }

    pub(crate) async fn status(&self, id: Uuid) -> String {
        let query = sqlx::query_scalar("select status from payments.requests where id = $1");
        query.bind(id).fetch_one(&self.pool()).await.unwrap()
    }

    pub(crate) async fn becomes(&self, id: Uuid, status: &str) {
        let what = format!("{id} to become {status}");
        eventually(&what, PATIENCE, async || (self.status(id).await == status).then_some(())).await;
    }

    /// The bodies of the events of one request, in the order in which they were written.
    pub(crate) async fn events(&self, id: Uuid) -> Vec<Value> {
        let statement = "select convert_from(payload, 'UTF8') from postrider.events \
                         where metadata ->> 'payment_request_id' = $1 order by id";
        let bodies: Vec<String> =
            sqlx::query_scalar(statement).bind(id.to_string()).fetch_all(&self.pool()).await.unwrap();
        bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
    }

    /// The transitions that the events of one request tell of.
    pub(crate) async fn told(&self, id: Uuid) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.events(id).await.iter().map(|body| (text(&body["previous_status"]), text(&body["new_status"]))).collect()
    }

    pub(crate) async fn count(&self, what: &'static str) -> i64 {
        let statement = sqlx::AssertSqlSafe(format!("select count(*) from {what}"));
        sqlx::query_scalar(statement).fetch_one(&self.pool()).await.unwrap()
    }

    pub(crate) async fn eventually_counts(&self, what: &'static str, expected: i64) {
        let condition = async || (self.count(what).await == expected).then_some(());
        eventually(&format!("{expected} rows in {what}"), PATIENCE, condition).await;
    }
}

const HOSTS: (&str, &str) = ("PAYMENTS_WEBHOOK_ALLOWED_HOSTS", "127.0.0.1, hooks.example.com, *.good.com");
const NETWORKS: (&str, &str) = ("PAYMENTS_WEBHOOK_ALLOWED_NETWORKS", "127.0.0.0/8");

pub(crate) struct Request {
    pub(crate) id: Uuid,
    pub(crate) address: String,
}

/// An address that nobody else has.
pub(crate) fn address() -> String {
    let random = Uuid::new_v4().simple().to_string();
    format!("0x{random}{}", &random[..8])
}

/// The HTTP API.
pub(crate) struct Api {
    pub(crate) url: String,
    pub(crate) process: Process,
}

impl Api {
    /// Asks for a payment request with these fields changed; `null` leaves a field out.
    pub(crate) async fn create(&self, changes: Value) -> (u16, Value) {
        let mut body = json!({"address": address(), "amount_wei": AMOUNT.to_string(),
            "webhook_url": "https://hooks.example.com/payments"});
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                body.as_object_mut().unwrap().remove(name);
            } else {
                body[name] = value.clone();
            }
        }
        let response = client().post(format!("{}/v1/payment-requests", self.url)).json(&body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let response = client().get(format!("{}{path}", self.url)).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// A process, with everything that it has said. It ends with this value.
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<tokio::task::JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let readers = vec![
            tokio::spawn(read(child.stdout.take().unwrap(), Arc::clone(&lines))),
            tokio::spawn(read(child.stderr.take().unwrap(), Arc::clone(&lines))),
        ];
        Self { child, lines, readers }
    }

    pub(crate) fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    pub(crate) fn lines_with(&self, parts: &[&str]) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
    }

    /// Waits for a line with all these parts.
    pub(crate) async fn says(&self, parts: &[&str]) -> String {
        let what = format!("a line with {parts:?}");
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(line) = self.lines_with(parts).pop() {
                return line;
            }
            assert!(tokio::time::Instant::now() < deadline, "waited in vain for {what} in:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn listening(&self) -> String {
        let line = self.says(&["listening url="]).await;
        line.split_once("url=").unwrap().1.split_whitespace().next().unwrap().to_owned()
    }

    /// Ends it as a crash does.
    pub(crate) async fn kill_9(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends a signal by name, such as `STOP`.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().await.unwrap().success());
    }

    /// Asks it to stop, and waits until it has.
    pub(crate) async fn stop(&mut self) -> ExitStatus {
        self.signal("TERM").await;
        self.ended().await
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let status = within("the process to end", PATIENCE, self.child.wait()).await.unwrap();
        for reader in self.readers.drain(..) {
            reader.await.unwrap();
        }
        status
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

async fn read(from: impl AsyncRead + Unpin, lines: Arc<Mutex<Vec<String>>>) {
    let mut from = BufReader::new(from).lines();
    while let Ok(Some(line)) = from.next_line().await {
        lines.lock().unwrap().push(line);
    }
}

/// A real EVM node that mines only when it is told to.
pub(crate) struct Anvil {
    pub(crate) url: String,
    process: Process,
}

impl Anvil {
    pub(crate) async fn start() -> Self {
        Self::start_on(0).await
    }

    /// On this port, or on a free one.
    pub(crate) async fn start_on(port: u16) -> Self {
        let variable = "POSTRIDER_TEST_ANVIL";
        let program = std::env::var(variable)
            .unwrap_or_else(|_| panic!("{variable} is not set; it names an EVM node, see scripts/with-anvil"));
        let port = port.to_string();
        let arguments = ["--host", "127.0.0.1", "--port", &port, "--no-mining", "--accounts", "1"];
        let home = std::env::temp_dir();
        let process = Process::start(&program, &arguments, &[("HOME", home.to_str().unwrap())]);
        let line = process.says(&["Listening on 127.0.0.1:"]).await;
        let url = format!("http://{}", line.trim().trim_start_matches("Listening on "));
        let anvil = Self { url, process };
        // Deep enough for every confirmation that a test asks for.
        anvil.mine(10).await;
        anvil
    }

    pub(crate) async fn kill(mut self) {
        self.process.kill_9().await;
    }

    pub(crate) async fn pay(&self, address: &str, amount: u128) {
        self.call("anvil_setBalance", json!([address, format!("{amount:#x}")])).await;
    }

    pub(crate) async fn mine(&self, blocks: u64) {
        self.call("anvil_mine", json!([format!("{blocks:#x}")])).await;
    }

    async fn call(&self, method: &str, params: Value) {
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let response = client().post(&self.url).json(&question).send().await.unwrap();
        let answer: Value = response.json().await.unwrap();
        assert!(answer.get("error").is_none(), "{method}: {answer}");
    }
}

/// The bodies that a receiver got.
pub(crate) fn bodies(receiver: &Receiver) -> Vec<Value> {
    receiver.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}
