//! Processes that serve and dispatch, somebody who asks them, and somebody who keeps them busy.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_conformance::receiver::{self, Gate, Receiver};
use postrider_conformance::wait::{eventually, within};
use postrider_postgres::testing::TestDatabase;
use postrider_promises::canary;
use postrider_promises::process::{PATIENCE, Running, Workplace};
use postrider_promises::proxy::Proxy;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::books::Ledger;

/// Names a file to which figures are appended, for whoever wants to read them.
const FIGURES_VARIABLE: &str = "POSTRIDER_FAULT_FIGURES";

/// Notes a figure that was measured.
pub(crate) fn measured(what: &str, figure: impl std::fmt::Debug) {
    if let Some(path) = std::env::var_os(FIGURES_VARIABLE) {
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{what}: {figure:?}").unwrap();
    }
}

/// The lease of every dispatcher here: short, so that it can run out in a test.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// A workplace on this database, with short leases.
pub(crate) fn workplace(database: &str) -> Workplace {
    Workplace::on(database)
        .with("POSTRIDER_LEASE", "2s")
        .with("POSTRIDER_POLL_INTERVAL", "200ms")
        .with("POSTRIDER_RETRY_SCHEDULE", "1s")
        .with("POSTRIDER_TIMEOUT", "30s")
}

/// A database on the server that tests share, by way of a wire of its own.
#[derive(Debug)]
pub(crate) struct Wired {
    pub(crate) proxy: Proxy,
    database: TestDatabase,
}

impl Wired {
    pub(crate) async fn new() -> Self {
        let database = TestDatabase::create().await;
        let server: PgConnectOptions = database.url().parse().unwrap();
        Self { proxy: Proxy::to(server.get_port()).await, database }
    }

    /// Over the wire.
    pub(crate) fn url(&self) -> String {
        self.proxy.url_of(self.database.url())
    }

    /// Past the wire.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::Postgres(self.database.url().to_owned())
    }

    /// A connection past the wire.
    pub(crate) async fn connect(&self) -> PgConnection {
        PgConnection::connect(self.database.url()).await.unwrap()
    }
}

/// A receiver that keeps its first so many requests waiting until the gate is opened.
pub(crate) async fn holding(first: usize) -> (Receiver, Gate) {
    let gate = Gate::new();
    let own = gate.clone();
    let receiver = Receiver::start(move |_, number| {
        let answer = receiver::Answer::status(204);
        if number <= first { answer.after(&own) } else { answer }
    })
    .await;
    (receiver, gate)
}

/// A process that answers over HTTP.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) api: Api,
}

/// Starts a server without keys, and waits for its address.
pub(crate) async fn serve(workplace: &Workplace, options: &[&str]) -> Served {
    let fixed = ["serve", "--dev", "--listen", "127.0.0.1:0", "--json"];
    served(Running::start(workplace.command(fixed.into_iter().chain(options.iter().copied())))).await
}

/// A server that was started in another way.
pub(crate) async fn served(running: Running) -> Served {
    let started = running.json_line("the start", |line| line["listening"].is_string()).await;
    let api = Api::at(started["listening"].as_str().unwrap());
    Served { running, api }
}

/// Starts a dispatcher that says how it is.
pub(crate) async fn dispatch(workplace: &Workplace, options: &[&str]) -> Served {
    let fixed = ["dispatch", "--listen", "127.0.0.1:0", "--json"];
    let running = workplace.start(fixed.into_iter().chain(options.iter().copied()));
    let is_start = |line: &Value| line["url"].is_string() || line["fields"]["url"].is_string();
    let started = running.json_line("the start", is_start).await;
    let url = started["url"].as_str().or(started["fields"]["url"].as_str()).unwrap();
    let api = Api::at(url);
    Served { running, api }
}

/// Somebody who asks.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: reqwest::Client,
    url: String,
}

/// What was answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Value,
    pub(crate) took: Duration,
}

impl Answer {
    /// The code of a problem.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The id of what was enqueued.
    #[track_caller]
    pub(crate) fn id(&self) -> String {
        assert!(self.is_success(), "{self:?}");
        self.body["id"].as_str().unwrap_or_else(|| panic!("{self:?} has an id")).to_owned()
    }

    /// It is a refusal that a client can do something about: not now, and when to come again.
    #[track_caller]
    pub(crate) fn must_be_unavailable(&self, codes: &[&str]) {
        assert_eq!(self.status, 503, "{self:?}");
        assert!(codes.contains(&self.code()), "one of {codes:?}: {self:?}");
        assert!(self.retry_after.is_some(), "it says when to come again: {self:?}");
    }
}

impl Api {
    pub(crate) fn at(url: &str) -> Self {
        // Another test may have chosen the same before; nothing here is encrypted.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE * 2).build().unwrap();
        Self { client, url: url.to_owned() }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(self.client.get(format!("{}{path}", self.url))).await.unwrap()
    }

    /// Enqueues one event, whose payload must not be printed by anybody.
    pub(crate) async fn enqueue(&self, destination: &str, key: Option<&str>) -> Answer {
        self.try_enqueue(destination, key, "").await.unwrap()
    }

    /// The same, with that much more in its payload; an error when the server cannot be asked at all.
    pub(crate) async fn try_enqueue(
        &self,
        destination: &str,
        key: Option<&str>,
        filling: &str,
    ) -> reqwest::Result<Answer> {
        let payload = json!({ "canary": canary::PAYLOAD, "filling": filling });
        let event = json!({ "type": "fault.tried", "payload": payload, "destination_url": destination });
        let mut request = self.client.post(format!("{}/v1/events", self.url)).json(&event);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.ask(request).await
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> reqwest::Result<Answer> {
        let began = tokio::time::Instant::now();
        let response = request.send().await?;
        let status = response.status().as_u16();
        let header = response.headers().get("retry-after");
        let retry_after = header.map(|value| value.to_str().unwrap().to_owned());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Answer { status, retry_after, body, took: began.elapsed() })
    }

    /// Waits until it says that it is ready.
    pub(crate) async fn until_ready(&self) {
        let is_ready = async || (self.get("/readyz").await.status == 200).then_some(());
        eventually("/readyz says 200", PATIENCE, is_ready).await;
    }

    /// Waits until it says that it is not ready, and why. The first to ask may find a connection that has just broken.
    pub(crate) async fn until_not_ready(&self, code: &str) -> Answer {
        let is_not =
            async || Some(self.get("/readyz").await).filter(|answer| answer.status == 503 && answer.code() == code);
        let answer = eventually(&format!("/readyz says 503 and {code}"), PATIENCE, is_not).await;
        answer.must_be_unavailable(&[code]);
        answer
    }
}

/// Clients that enqueue one event after the other. Each has a key; what was not acknowledged is sent again.
#[derive(Debug)]
pub(crate) struct Load {
    clients: JoinSet<()>,
    stop: watch::Sender<bool>,
    notes: Arc<Mutex<Notes>>,
}

/// What they were told.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Under each key, the event that was acknowledged.
    pub(crate) acknowledged: BTreeMap<String, String>,
    pub(crate) refusals: Vec<Answer>,
    /// Requests that broke off without an answer.
    pub(crate) broken: usize,
}

impl Notes {
    pub(crate) fn ids(&self) -> BTreeSet<String> {
        self.acknowledged.values().cloned().collect()
    }
}

/// How long a client rests after an answer.
const REST: Duration = Duration::from_millis(10);

impl Load {
    pub(crate) fn start(api: &Api, destination: &str, clients: usize) -> Self {
        let (notes, stop) = (Arc::default(), watch::Sender::new(false));
        let clients = (0..clients)
            .map(|_| client(api.clone(), destination.to_owned(), Arc::clone(&notes), stop.subscribe()))
            .collect();
        Self { clients, stop, notes }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.notes.lock().unwrap().acknowledged.len()
    }

    pub(crate) fn refused(&self) -> usize {
        self.notes.lock().unwrap().refusals.len()
    }

    /// Waits until so many more are acknowledged.
    pub(crate) async fn goes_on(&self, more: usize) {
        let before = self.acknowledged();
        let has_more = async || (self.acknowledged() >= before + more).then_some(());
        eventually("more events are acknowledged", PATIENCE, has_more).await;
    }

    /// Waits until so many more are refused.
    pub(crate) async fn is_refused(&self, more: usize) {
        let before = self.refused();
        let has_more = async || (self.refused() >= before + more).then_some(());
        eventually("more events are refused", PATIENCE, has_more).await;
    }

    /// Ends it in the midst, because the server is gone, and returns what was acknowledged.
    pub(crate) fn breaks_off(self) -> BTreeSet<String> {
        drop(self.clients);
        self.notes.lock().unwrap().ids()
    }

    /// Ends it: each client sends what it is at until it is acknowledged.
    pub(crate) async fn ends(mut self) -> Notes {
        self.stop.send_replace(true);
        let all = async { while self.clients.join_next().await.transpose().unwrap().is_some() {} };
        within("every client is done", PATIENCE, all).await;
        std::mem::take(&mut self.notes.lock().unwrap())
    }
}

async fn client(api: Api, destination: String, notes: Arc<Mutex<Notes>>, stopping: watch::Receiver<bool>) {
    loop {
        let key = Uuid::new_v4().to_string();
        loop {
            match api.try_enqueue(&destination, Some(&key), "").await {
                Ok(answer) if answer.is_success() => {
                    notes.lock().unwrap().acknowledged.insert(key, answer.id());
                    break;
                }
                Ok(answer) => notes.lock().unwrap().refusals.push(answer),
                Err(_) => notes.lock().unwrap().broken += 1,
            }
            tokio::time::sleep(REST * 5).await;
        }
        if *stopping.borrow() {
            return;
        }
        tokio::time::sleep(REST).await;
    }
}
