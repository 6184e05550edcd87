//! A server that runs, and somebody who asks it.

use postrider_postgres::testing::TestDatabase;
use postrider_promises::process::{PATIENCE, Running, Workplace};
use reqwest::Method;
use serde_json::Value;

/// A real `postrider serve`, which also dispatches.
pub(crate) struct Place {
    url: String,
    client: reqwest::Client,
    /// A key for all tenants.
    pub(crate) admin: String,
    running: Running,
    _workplace: Workplace,
    _database: Option<TestDatabase>,
}

/// Something to ask.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Value>,
}

impl Request {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: None }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(Method::POST, path) }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Everything that is told by asking, in one text.
    pub(crate) fn text(&self) -> String {
        let headers: Vec<&str> = self.headers.iter().map(|(_, value)| value.as_str()).collect();
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        format!("{} {} {body}", self.path, headers.join(" "))
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code of a problem; nothing where there is none.
    pub(crate) fn code(&self) -> String {
        let problem: Value = serde_json::from_str(&self.text).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }
}

impl Place {
    pub(crate) async fn on_sqlite() -> Self {
        Self::start(Workplace::on_sqlite(), None).await
    }

    pub(crate) async fn on_postgres() -> Self {
        let database = TestDatabase::create_empty().await;
        Self::start(Workplace::on(database.url()), Some(database)).await
    }

    async fn start(workplace: Workplace, database: Option<TestDatabase>) -> Self {
        // Another test of this process may have chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(2 * PATIENCE).build().unwrap();
        let running = workplace.start(["serve", "--listen", "127.0.0.1:0", "--json"]);
        let started = running.json_line("the start", |line| line["listening"].is_string()).await;
        let first_key = running.json_line("the first key", |line| line["first_key"].is_string()).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            url: text(&started["listening"]),
            client,
            admin: text(&first_key["first_key"]),
            running,
            _workplace: workplace,
            _database: database,
        }
    }

    pub(crate) async fn ask(&self, request: &Request, authorization: Option<&str>) -> Answer {
        let response = self.send(request, authorization).await;
        Answer { status: response.status().as_u16(), text: response.text().await.unwrap() }
    }

    /// The same for a stream, of which as much is read as has this marker in it.
    pub(crate) async fn follow(&self, request: &Request, authorization: &str, marker: &str) -> Answer {
        let mut response = self.send(request, Some(authorization)).await;
        let status = response.status().as_u16();
        let mut text = String::new();
        let read = async {
            while let Some(chunk) = response.chunk().await.unwrap() {
                text.push_str(std::str::from_utf8(&chunk).unwrap());
                if text.contains(marker) {
                    break;
                }
            }
        };
        let came = tokio::time::timeout(PATIENCE, read).await;
        assert!(status != 200 || came.is_ok(), "{request:?}: {marker} was not told: {text}");
        Answer { status, text }
    }

    async fn send(&self, request: &Request, authorization: Option<&str>) -> reqwest::Response {
        let url = format!("{}{}", self.url.trim_end_matches('/'), request.path);
        let mut sent = self.client.request(request.method.clone(), url);
        for (name, value) in &request.headers {
            sent = sent.header(name, value);
        }
        if let Some(authorization) = authorization {
            sent = sent.header("authorization", authorization);
        }
        if let Some(body) = &request.body {
            sent = sent.header("content-type", "application/json").body(body.to_string());
        }
        sent.send().await.unwrap_or_else(|error| panic!("{request:?}: {error}"))
    }

    /// Ends the server in order; what it printed is searched for what must not be printed.
    pub(crate) async fn stop(self) {
        self.running.stopped().await;
    }
}
