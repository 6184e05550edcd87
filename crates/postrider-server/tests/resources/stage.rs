//! A server on a database of its own, and somebody who asks it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use postrider::store::Operator;
use postrider::{
    Admission, DestinationPolicy, Dispatcher, KeyToken, Keyring, NewApiKey, RetryPolicy, Scope, SecretKey, Store,
};
use postrider_conformance::receiver::Received;
use postrider_conformance::wait::{PATIENCE, eventually, within};
use postrider_postgres::PostgresStore;
use postrider_postgres::testing::TestDatabase;
use postrider_server::{Server, ServerConfig, Service, ServiceSettings};
use postrider_sqlite::SqliteStore;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The server, and what is around it.
pub(crate) struct Stage {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) admin: String,
    database: Database,
    /// In the place of the database's own.
    keyring: Option<Keyring>,
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
    stop: watch::Sender<bool>,
    running: Vec<JoinHandle<()>>,
    dispatching: bool,
    /// With which the dashboard knows who is signed in, also after a restart.
    session_keys: Keyring,
}

/// Where the server keeps everything.
enum Database {
    Sqlite { directory: tempfile::TempDir, keyring: Keyring },
    Postgres(Box<TestDatabase>),
}

impl Database {
    async fn create() -> Self {
        if crate::ON_POSTGRES {
            return Self::Postgres(Box::new(TestDatabase::create().await));
        }
        Self::Sqlite { directory: tempfile::tempdir().unwrap(), keyring: Keyring::new([SecretKey::generate()]) }
    }

    /// A store on it, as a process that has just started has one.
    async fn open(&self, other_keyring: Option<&Keyring>) -> Arc<dyn Store> {
        match self {
            Self::Sqlite { directory, keyring } => {
                let store = SqliteStore::open(directory.path().join("postrider.db")).unwrap();
                let store = store.with_admission(admission()).with_keyring(other_keyring.unwrap_or(keyring).clone());
                store.migrate().await.unwrap();
                Arc::new(store)
            }
            Self::Postgres(database) => {
                let store = PostgresStore::connect(database.url()).await.unwrap();
                let keyring = other_keyring.cloned().unwrap_or_else(|| database.keyring());
                Arc::new(store.with_admission(admission()).with_keyring(keyring))
            }
        }
    }
}

impl Stage {
    /// A server without a dispatcher: what is enqueued stays where it is.
    pub(crate) async fn quiet() -> Self {
        Self::start(false).await
    }

    /// A server that also delivers. Failures are tried again after 20 ms, three times in all.
    pub(crate) async fn dispatching() -> Self {
        Self::start(true).await
    }

    async fn start(dispatching: bool) -> Self {
        let database = Database::create().await;
        let store = database.open(None).await;
        let (stop, _) = watch::channel(false);
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut stage = Self {
            store,
            admin: String::new(),
            database,
            keyring: None,
            base: String::new(),
            client,
            stop,
            running: Vec::new(),
            dispatching,
            session_keys: Keyring::new([SecretKey::generate()]),
        };
        stage.admin = stage.key(None, Scope::Admin).await;
        stage.open("127.0.0.1:0").await;
        stage
    }

    async fn open(&mut self, address: &str) {
        let settings = ServiceSettings { admission: admission(), retry_policy: policy(), ..ServiceSettings::default() };
        let service = Service::new(Arc::clone(&self.store), settings);
        let listener = TcpListener::bind(address).await.unwrap();
        self.base = format!("http://{}", listener.local_addr().unwrap());
        let config = ServerConfig {
            drain_timeout: Duration::from_secs(5),
            session_keys: self.session_keys.clone(),
            ..ServerConfig::default()
        };
        let server = Server::new(service, config);
        let stopped = || {
            let mut stop = self.stop.subscribe();
            async move { drop(stop.wait_for(|stop| *stop).await) }
        };
        let running = server.run(listener, stopped());
        self.running.push(tokio::spawn(async move { running.await.unwrap() }));
        if self.dispatching {
            let dispatcher = Dispatcher::builder(Arc::clone(&self.store))
                .destinations(admission().destinations)
                .retry_policy(policy())
                .poll_interval(Duration::from_millis(100))
                .build()
                .unwrap();
            let running = dispatcher.run(stopped());
            self.running.push(tokio::spawn(async move { _ = running.await.unwrap() }));
        }
    }

    /// Ends the server and the dispatcher, and returns when they have ended.
    pub(crate) async fn stop(&mut self) {
        self.stop.send_replace(true);
        for running in self.running.drain(..) {
            within("the server ends", PATIENCE, running).await.unwrap();
        }
    }

    /// Another server on the same database and the same port.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.stop.send_replace(false);
        self.store = self.database.open(self.keyring.as_ref()).await;
        let address = self.base.trim_start_matches("http://").to_owned();
        self.open(&address).await;
    }

    /// The same, but with another key to encrypt secrets with.
    pub(crate) async fn restart_with_another_secret_key(&mut self) {
        self.keyring = Some(Keyring::new([SecretKey::generate()]));
        self.restart().await;
    }

    /// A new key of one tenant, or of all.
    pub(crate) async fn key(&self, tenant: Option<&str>, scope: Scope) -> String {
        let token = KeyToken::generate();
        let key = NewApiKey {
            name: format!("{} {scope}", tenant.unwrap_or("everybody's")),
            tenant: tenant.map(str::to_owned),
            scope,
            digest: token.digest(),
            only_first: false,
        };
        self.store.create_key(key, &Operator("test".to_owned())).await.unwrap().unwrap();
        token.reveal().to_owned()
    }

    /// The answer to a request with the admin's key.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.ask_with(&self.admin, method, path, body).await
    }

    /// The answer to a request with this key.
    pub(crate) async fn ask_with(&self, key: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.send(Ask::new(method, path).key(key).maybe_json(body)).await
    }

    /// The answer to a request, which must be this.
    pub(crate) async fn expect(&self, status: u16, method: &str, path: &str, body: Option<Value>) -> Value {
        let answer = self.ask(method, path, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        answer.body
    }

    /// The answer to any request.
    pub(crate) async fn send(&self, ask: Ask) -> Answer {
        let what = format!("an answer to {} {}", ask.method, ask.path);
        let (parts, body) = within(&what, PATIENCE, self.open_answer(ask)).await;
        let bytes = within(&what, PATIENCE, body.collect()).await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into(),
            body,
        }
    }

    /// The head of an answer, and its body as it comes.
    pub(crate) async fn open_answer(&self, ask: Ask) -> (http::response::Parts, Incoming) {
        let mut request = Request::builder().method(ask.method).uri(format!("{}{}", self.base, ask.path));
        *request.headers_mut().unwrap() = ask.headers;
        let request = request.body(Full::new(ask.body)).unwrap();
        self.client.request(request).await.unwrap().into_parts()
    }

    /// Registers an endpoint and returns it.
    pub(crate) async fn endpoint(&self, body: Value) -> Value {
        self.expect(201, "POST", "/v1/endpoints", Some(body)).await
    }

    /// Enqueues an event and returns the answer.
    pub(crate) async fn event(&self, event_type: &str, payload: Value) -> Value {
        self.expect(202, "POST", "/v1/events", Some(json!({"type": event_type, "payload": payload}))).await
    }

    /// Waits until a delivery is in this status, and returns it.
    pub(crate) async fn delivery_in(&self, id: &str, status: &str) -> Value {
        let path = format!("/v1/deliveries/{id}");
        eventually(&format!("{id} is {status}"), PATIENCE, async || {
            let delivery = self.expect(200, "GET", &path, None).await;
            (delivery["status"] == status).then_some(delivery)
        })
        .await
    }
}

fn admission() -> Admission {
    Admission {
        destinations: DestinationPolicy::default().allow_networks(["127.0.0.0/8"]).unwrap(),
        bare_destinations: false,
        ..Admission::default()
    }
}

fn policy() -> RetryPolicy {
    RetryPolicy::schedule([Duration::from_millis(20)], 3).unwrap()
}

/// A request.
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Ask {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let method = method.parse().unwrap();
        Self { method, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn tenant(self, tenant: &str) -> Self {
        self.header("postrider-tenant", tenant)
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string().into();
        self.header("content-type", "application/json")
    }

    #[allow(dead_code, reason = "only the dashboard has forms")]
    pub(crate) fn form(mut self, body: String) -> Self {
        self.body = body.into();
        self.header("content-type", "application/x-www-form-urlencoded")
    }

    pub(crate) fn maybe_json(self, body: Option<Value>) -> Self {
        match body {
            Some(body) => self.json(&body),
            None => self,
        }
    }
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    /// The status and the code of a problem, after a look at its shape.
    pub(crate) fn problem(&self) -> (u16, &str) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.text);
        assert_eq!(self.body["status"], self.status, "{}", self.text);
        let title = StatusCode::from_u16(self.status).unwrap().canonical_reason().unwrap();
        assert_eq!(self.body["title"], title, "{}", self.text);
        (self.status, self.body["code"].as_str().unwrap())
    }
}

/// A text in an answer.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is a text"))
}

/// Whether a receiver with this secret would take the request, by the reference library.
pub(crate) fn verified(secret: &Value, request: &Received) -> bool {
    let webhook = standardwebhooks::Webhook::new(text(secret)).unwrap();
    webhook.verify(&request.body, &request.headers).is_ok()
}
