//! A `postrider serve` that runs, and somebody who asks it.

use std::process::Command;
use std::sync::Arc;

use postrider_postgres::testing::TestDatabase;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::{DEADLINE, LOOPBACK, Running, SECRET_KEY, Workplace};

/// A database and a folder to start servers in.
pub(crate) struct Place {
    pub(crate) workplace: Workplace,
    runtime: Arc<Runtime>,
    _database: Option<TestDatabase>,
}

impl Place {
    /// A file in the folder, which is not there yet.
    pub(crate) fn sqlite() -> Self {
        Self { workplace: workplace(), runtime: runtime(), _database: None }
    }

    /// A database of its own, which is empty.
    pub(crate) fn postgres() -> Self {
        let runtime = runtime();
        let database = runtime.block_on(TestDatabase::create_empty());
        let workplace = workplace().with("POSTRIDER_DATABASE", database.url());
        Self { workplace, runtime, _database: Some(database) }
    }

    /// Starts a server on a free port, and waits until it has one.
    #[track_caller]
    pub(crate) fn serve(&self, options: &[&str]) -> Served {
        self.serve_by(self.workplace.command(), options)
    }

    /// The same, by a command whose environment the test has changed.
    #[track_caller]
    pub(crate) fn serve_by(&self, mut command: Command, options: &[&str]) -> Served {
        command.args(["serve", "--listen", "127.0.0.1:0", "--json"]).args(options);
        let running = Running::start(command);
        let started = running.json_line("the start", |line| line["listening"].is_string());
        let url = started["listening"].as_str().unwrap().to_owned();
        Served { running, api: Api::new(&self.runtime, url) }
    }
}

fn workplace() -> Workplace {
    Workplace::new().with(LOOPBACK.0, LOOPBACK.1).with("POSTRIDER_SECRET_KEY", SECRET_KEY)
}

fn runtime() -> Arc<Runtime> {
    Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap())
}

/// Stamps every test out for SQLite and for Postgres.
macro_rules! on_both {
    ($($(#[$doc:meta])* $test:ident)*) => {
        mod sqlite {
            $($(#[$doc])* #[test]
            fn $test() {
                super::$test(&crate::served::Place::sqlite());
            })*
        }

        mod postgres {
            $($(#[$doc])* #[test]
            fn $test() {
                super::$test(&crate::served::Place::postgres());
            })*
        }
    };
}
pub(crate) use on_both;

/// A server that runs.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) api: Api,
}

impl Served {
    /// The key that the first start prints.
    #[track_caller]
    pub(crate) fn first_key(&self) -> String {
        let line = self.running.json_line("the first key", |line| line["first_key"].is_string());
        line["first_key"].as_str().unwrap().to_owned()
    }

    /// The server, asked with the key that its first start prints.
    #[track_caller]
    pub(crate) fn opened(mut self) -> Self {
        self.api.key = Some(self.first_key());
        self
    }

    /// The server, asked with this key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.api.key = Some(key.to_owned());
        self
    }

    /// Asks it to end, and sees that it does, in order.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.running.signal("TERM");
        let (code, text) = self.running.ended();
        assert_eq!(code, Some(0), "{text}");
        text
    }
}

/// Asks a server.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) client: reqwest::Client,
    pub(crate) url: String,
    pub(crate) key: Option<String>,
}

impl Api {
    pub(crate) fn new(runtime: &Arc<Runtime>, url: String) -> Self {
        // A test before may have been the first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { runtime: Arc::clone(runtime), client, url, key: None }
    }

    /// The same server, asked with this key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    fn answer(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        self.runtime.block_on(async {
            let response = request.send().await.expect("the server answers");
            (response.status().as_u16(), response.text().await.expect("the answer has a body"))
        })
    }

    /// The status and the text.
    pub(crate) fn text(&self, path: &str) -> (u16, String) {
        self.answer(self.request(reqwest::Method::GET, path))
    }

    /// The status and the document.
    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        let (status, text) = self.text(path);
        (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path} answers JSON: {error}: {text}")))
    }

    /// Posts a document that is accepted.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.answer(self.request(reqwest::Method::POST, path).json(body));
        assert!((200..300).contains(&status), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Registers an endpoint that wants everything.
    #[track_caller]
    pub(crate) fn register(&self, url: &str) -> Value {
        self.post("/v1/endpoints", &serde_json::json!({ "url": url, "event_types": ["*"] }))
    }

    /// Posts an event, and returns the id of its only delivery.
    #[track_caller]
    pub(crate) fn event(&self) -> String {
        let body = serde_json::json!({ "type": "invoice.paid", "payload": { "invoice": "in_42" } });
        let answer = self.post("/v1/events", &body);
        assert_eq!(answer["deliveries"].as_array().unwrap().len(), 1, "{answer}");
        answer["deliveries"][0]["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a delivery has a status.
    #[track_caller]
    pub(crate) fn until(&self, delivery: &str, status: &str) {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            let (_, answer) = self.get(&format!("/v1/deliveries/{delivery}"));
            if answer["status"] == status {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "it is not {status}: {answer:#}");
            std::thread::yield_now();
        }
    }
}
