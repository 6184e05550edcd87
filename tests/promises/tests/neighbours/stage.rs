//! A database with servers on it, and somebody who asks them.

use std::io::Write as _;

use postrider_postgres::testing::TestDatabase;
use postrider_promises::canary;
use postrider_promises::process::{PATIENCE, Running, Workplace};
use reqwest::Method;
use serde_json::{Value, json};

/// Names a file to which figures are appended, for whoever wants to read them.
const FIGURES_VARIABLE: &str = "POSTRIDER_NEIGHBOUR_FIGURES";

/// Notes a figure that was measured.
pub(crate) fn measured(what: &str, figure: impl std::fmt::Debug) {
    if let Some(path) = std::env::var_os(FIGURES_VARIABLE) {
        let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "{what}: {figure:?}").unwrap();
    }
}

/// Stamps every test out for SQLite and for Postgres.
macro_rules! on_both {
    ($($(#[$doc:meta])* $test:ident)*) => {
        mod sqlite {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::stage::Stage::sqlite()).await;
            })*
        }

        mod postgres {
            $($(#[$doc])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::stage::Stage::postgres().await).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// A database, and a folder to start processes in.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) workplace: Workplace,
    /// None on SQLite.
    pub(crate) database: Option<TestDatabase>,
}

impl Stage {
    /// A file that is not there yet.
    pub(crate) fn sqlite() -> Self {
        Self { workplace: Workplace::on_sqlite(), database: None }
    }

    /// A database that is empty.
    pub(crate) async fn postgres() -> Self {
        let database = TestDatabase::create_empty().await;
        Self { workplace: Workplace::on(database.url()), database: Some(database) }
    }

    /// The same, with one more variable for all processes.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.workplace = self.workplace.with(name, value);
        self
    }

    pub(crate) fn is_postgres(&self) -> bool {
        self.database.is_some()
    }

    /// Starts the first server of this database, which prints a key, and asks with that key.
    pub(crate) async fn serve(&self, options: &[&str]) -> Served {
        let mut served = self.serve_again("", options).await;
        let line = served.running.json_line("the first key", |line| line["first_key"].is_string()).await;
        line["first_key"].as_str().unwrap().clone_into(&mut served.api.key);
        served
    }

    /// Starts another server, and asks with a key that there is.
    pub(crate) async fn serve_again(&self, key: &str, options: &[&str]) -> Served {
        let fixed = ["serve", "--listen", "127.0.0.1:0", "--json"];
        let running = self.workplace.start(fixed.into_iter().chain(options.iter().copied()));
        let started = running.json_line("the start", |line| line["listening"].is_string()).await;
        let api = Api::at(started["listening"].as_str().unwrap(), key);
        Served { running, api }
    }
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) api: Api,
}

/// Asks a server.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: reqwest::Client,
    pub(crate) url: String,
    pub(crate) key: String,
}

impl Api {
    fn at(url: &str, key: &str) -> Self {
        // A test before may have been the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { client, url: url.to_owned(), key: key.to_owned() }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.key)
    }

    /// The status, and the document or text.
    pub(crate) async fn ask(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = request.send().await.expect("the server answers");
        let status = response.status().as_u16();
        let text = response.text().await.expect("the answer has a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// What is there.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask(self.request(Method::GET, path)).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Posts a document that is accepted.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(self.request(Method::POST, path).json(body)).await;
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// Registers an endpoint for events of one type, and returns its id.
    pub(crate) async fn register(&self, url: &str, event_type: &str) -> String {
        let endpoint = self.post("/v1/endpoints", &json!({ "url": url, "event_types": [event_type] })).await;
        endpoint["id"].as_str().unwrap().to_owned()
    }

    /// Enqueues so many events of a type at once, a thousand at a time.
    pub(crate) async fn send(&self, event_type: &str, count: usize) {
        let event = json!({ "type": event_type, "payload": { "canary": canary::PAYLOAD } });
        let mut left = count;
        while left > 0 {
            let now = left.min(1000);
            self.post("/v1/events/batch", &Value::Array(vec![event.clone(); now])).await;
            left -= now;
        }
    }

    /// How many deliveries to an endpoint are in a status.
    pub(crate) async fn count(&self, endpoint: &str, status: &str) -> usize {
        let mut count = 0;
        let mut cursor = String::new();
        loop {
            let page =
                self.get(&format!("/v1/deliveries?limit=250&endpoint_id={endpoint}&status={status}{cursor}")).await;
            count += page["data"].as_array().unwrap().len();
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return count,
            }
        }
    }
}
