//! A server under trial, and somebody who asks it.

use std::io::Write as _;
use std::time::Duration;

use postrider_conformance::wait::eventually;
use postrider_promises::canary;
use postrider_promises::process::{PATIENCE, Running, Workplace};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Names a file to which figures are appended, for whoever wants to read them.
const FIGURES_VARIABLE: &str = "POSTRIDER_HOSTILE_FIGURES";

/// Notes a figure that was measured.
pub(crate) fn measured(what: &str, figure: impl std::fmt::Debug) {
    if let Some(path) = std::env::var_os(FIGURES_VARIABLE) {
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{what}: {figure:?}").unwrap();
    }
}

/// Floods take all that the machine has. What must answer in time is not tried beside them.
static MACHINE: RwLock<()> = RwLock::const_new(());

/// Waits until no flood is under way, and keeps it so.
pub(crate) async fn undisturbed() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// Waits until nobody else needs the machine.
pub(crate) async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

/// How long an attempt may take in these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(6);
/// Of that, for becoming connected.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
/// How late a busy machine may be.
pub(crate) const LEEWAY: Duration = Duration::from_secs(10);

/// A `postrider serve` that dispatches, needs no key, and makes one attempt in an hour.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) url: String,
    client: reqwest::Client,
    workplace: Workplace,
}

impl Served {
    pub(crate) async fn start(workplace: Workplace, options: &[&str]) -> Self {
        let workplace = workplace
            .with("POSTRIDER_TIMEOUT", &format!("{}s", TIMEOUT.as_secs()))
            .with("POSTRIDER_CONNECT_TIMEOUT", &format!("{}s", CONNECT_TIMEOUT.as_secs()))
            .with("POSTRIDER_RETRY_SCHEDULE", "1h")
            .with("POSTRIDER_POLL_INTERVAL", "200ms");
        let fixed = ["serve", "--dev", "--listen", "127.0.0.1:0", "--json"];
        let arguments = fixed.into_iter().chain(options.iter().copied());
        Self::started(Running::start(workplace.command(arguments)), workplace).await
    }

    /// A server that is starting, such as one in unusual circumstances.
    pub(crate) async fn started(mut running: Running, workplace: Workplace) -> Self {
        let started = eventually("the start", PATIENCE, async || {
            assert!(running.has_ended().is_none(), "it did not start: {}", running.text());
            let text = running.text();
            let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["listening"].is_string())
        })
        .await;
        let url = started["listening"].as_str().unwrap().to_owned();
        // A test before may have been the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { running, url, client, workplace }
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        answer(request.body(body)).await
    }

    /// The same with an idempotency key.
    pub(crate) async fn post_keyed(&self, path: &str, key: &str, body: String) -> (u16, Value) {
        let request = self.client.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        answer(request.header("idempotency-key", key).body(body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, value) = answer(self.client.get(format!("{}{path}", self.url))).await;
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    /// What is answered, as it is written.
    pub(crate) async fn text(&self, path: &str) -> String {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.expect("the server answers");
        assert_eq!(response.status(), 200, "{path}");
        response.text().await.expect("the answer has a body")
    }

    /// Tells it to stop, and returns where it worked.
    pub(crate) async fn stopped(self) -> Workplace {
        self.running.stopped().await;
        self.workplace
    }

    /// Registers a receiver for the events of this type, and returns its id.
    pub(crate) async fn endpoint(&self, url: &str, event_type: &str) -> String {
        let body = json!({"url": url, "event_types": [event_type]}).to_string();
        let (status, endpoint) = self.post("/v1/endpoints", body).await;
        assert_eq!(status, 201, "{url}: {endpoint}");
        endpoint["id"].as_str().unwrap().to_owned()
    }

    /// Sends an event of this type, which one endpoint wants, and returns the delivery's id.
    pub(crate) async fn send(&self, event_type: &str) -> String {
        let body = json!({"type": event_type, "payload": {"canary": canary::PAYLOAD}}).to_string();
        self.enqueued(body).await
    }

    /// Sends an event to this URL, and returns the delivery's id.
    pub(crate) async fn send_to(&self, url: &str) -> String {
        let body = json!({"type": "a.b", "payload": {"canary": canary::PAYLOAD}, "destination_url": url}).to_string();
        self.enqueued(body).await
    }

    async fn enqueued(&self, body: String) -> String {
        let (status, event) = self.post("/v1/events", body).await;
        assert_eq!(status, 202, "{event}");
        let deliveries = event["deliveries"].as_array().unwrap();
        assert_eq!(deliveries.len(), 1, "{event}");
        deliveries[0]["id"].as_str().unwrap().to_owned()
    }

    /// Waits until so many attempts of a delivery are recorded, and returns it.
    pub(crate) async fn attempted(&self, delivery: &str, times: usize) -> Value {
        let path = format!("/v1/deliveries/{delivery}");
        eventually(&format!("{times} attempts of {delivery}"), PATIENCE, async || {
            let delivery = self.get(&path).await;
            (delivery["attempts"].as_array().unwrap().len() >= times).then_some(delivery)
        })
        .await
    }

    /// Sends an event to this URL, and returns the outcome of its attempt and why it failed.
    pub(crate) async fn outcome(&self, url: &str) -> (String, String) {
        let delivery = self.attempted(&self.send_to(url).await, 1).await;
        let attempt = &delivery["attempts"][0];
        (attempt["outcome"].as_str().unwrap().to_owned(), text(&attempt["error_detail"]))
    }
}

/// A text, or the empty one where there is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.expect("the server answers");
    let status = response.status().as_u16();
    let text = response.text().await.expect("the answer has a body");
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("it answers JSON: {error}: {text}")))
}
