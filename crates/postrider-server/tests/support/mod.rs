//! A server on a loopback port, on a database of its own, and somebody to ask it.
#![allow(clippy::unwrap_used, dead_code, reason = "a panic is how a test fails; not every test needs everything")]

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Once};

use postrider::{NewApiKey, Scope, Store};
use postrider_conformance::wait::{PATIENCE, within};
use postrider_server::{Server, ServerConfig, Service, ServiceSettings};
use postrider_sqlite::SqliteStore;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// What can be set before a server starts.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) config: ServerConfig,
    pub(crate) settings: ServiceSettings,
    pub(crate) monitor: Option<postrider::Monitor>,
}

/// A server that runs until it is dropped or stopped.
pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    pub(crate) service: Service,
    pub(crate) store: Arc<dyn Store>,
    /// A key for everything.
    pub(crate) admin: String,
    client: Client,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<io::Result<()>>>,
    _database: Box<dyn Any + Send + Sync>,
}

/// An SQLite store in a folder of its own, which goes with the second value.
pub(crate) async fn sqlite() -> (SqliteStore, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("postrider.db")).unwrap();
    let store = store.with_keyring(postrider_conformance::keyring());
    store.migrate().await.unwrap();
    (store, folder)
}

/// A client that asks loopback addresses and nobody else.
pub(crate) fn client() -> Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Setup)) -> Self {
        let (store, folder) = sqlite().await;
        Self::start_on(Arc::new(store), folder, change).await
    }

    /// On a Postgres database of its own.
    pub(crate) async fn start_on_postgres() -> Self {
        let database = postrider_postgres::testing::TestDatabase::create().await;
        let store = Arc::new(database.store());
        Self::start_on(store, database, |_| {}).await
    }

    pub(crate) async fn start_on(
        store: Arc<dyn Store>,
        database: impl Any + Send + Sync,
        change: impl FnOnce(&mut Setup),
    ) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let service = Service::new(Arc::clone(&store), setup.settings);
        let first = service.ensure_first_key().await;
        let admin = first.ok().flatten().map(|key| key.reveal().to_owned()).unwrap_or_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::new(service.clone(), setup.config).dispatcher_monitor(setup.monitor);
        let task = tokio::spawn(server.run(listener, async move {
            let _ = stopped.await;
        }));
        let client = client();
        Self {
            address,
            service,
            store,
            admin,
            client,
            stop: Some(stop),
            task: Some(task),
            _database: Box::new(database),
        }
    }

    /// Tells the server to stop, without waiting for it.
    pub(crate) fn tell_to_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(&mut self) {
        let task = self.task.take().unwrap();
        within("the server stops", PATIENCE, task).await.unwrap().unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A request without a key.
    pub(crate) fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, self.url(path))
    }

    /// A request with the key for everything.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.admin)
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> (u16, Value) {
        answer(self.request(Method::POST, path).header("content-type", "application/json").body(body)).await
    }

    /// Enqueues an event under an idempotency key.
    pub(crate) async fn post_under(&self, key: &str, body: &str) -> (u16, Value) {
        let request = self.request(Method::POST, "/v1/events").header("content-type", "application/json");
        answer(request.header("idempotency-key", key).body(body.to_owned())).await
    }

    /// A key of this scope, for one tenant or for all.
    pub(crate) async fn key(&self, tenant: Option<&str>, scope: Scope) -> String {
        let token = postrider::KeyToken::generate();
        let key = NewApiKey {
            name: "test".to_owned(),
            tenant: tenant.map(str::to_owned),
            scope,
            digest: token.digest(),
            only_first: false,
        };
        self.store.create_key(key, &postrider::store::Operator("test".to_owned())).await.unwrap().unwrap();
        token.reveal().to_owned()
    }

    /// The value of one line of the metrics, which is a whole number; 0 when there is no such line.
    pub(crate) async fn metric(&self, line: &str) -> u64 {
        let text = self.bare(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
        let found = text.lines().find_map(|candidate| {
            let number = candidate.strip_prefix(line)?.trim();
            number.split('.').next()?.parse().ok()
        });
        found.unwrap_or_default()
    }

    /// Sends bytes as they are, and reads until the server closes the connection.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Raw {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may answer and close before everything was sent.
        let _ = stream.write_all(bytes).await;
        Raw::read(&mut stream).await
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Status and JSON body; null when there is none.
pub(crate) async fn answer(request: RequestBuilder) -> (u16, Value) {
    read(request.send().await.unwrap()).await
}

pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let bytes = response.bytes().await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Raw {
    pub(crate) async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A reset after the answer is the same as its end.
        let _ = within("the server answers and closes", PATIENCE, stream.read_to_end(&mut bytes)).await;
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
        let mut body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        // Whoever sends two requests gets two answers; the tests look at the first.
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
        body.truncate(length.unwrap_or(body.len()));
        Self { status, head, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}
