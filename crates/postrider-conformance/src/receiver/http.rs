//! A receiver that keeps what it is sent and answers by a script.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{Identity, Served};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, byte for byte.
    pub body: Bytes,
    /// Its HTTP version.
    pub version: Version,
    /// When its last byte was there.
    pub arrived: Instant,
    /// On which connection, counted from 1.
    pub connection: usize,
}

impl Received {
    /// A header's value as text, or the empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// What to answer.
#[derive(Debug, Clone)]
pub struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    gate: Option<Gate>,
}

impl Answer {
    /// An empty answer.
    pub fn status(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("an answer's status has three digits");
        Self { status, headers: HeaderMap::new(), body: Bytes::new(), gate: None }
    }

    /// The same with a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("an answer's header has a valid name");
        self.headers.append(name, HeaderValue::try_from(value).expect("an answer's header has a valid value"));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// The same, once `gate` is open.
    #[must_use]
    pub fn after(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// No answer, ever: the request stays open until its sender gives up.
    pub fn never() -> Self {
        Self::status(200).after(&Gate::new())
    }
}

/// Holds answers back until it is opened. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    /// A closed one.
    #[allow(clippy::new_without_default, reason = "a gate's default is not obvious")]
    pub fn new() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// Lets everyone through, from now on.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    /// Waits until it is open.
    pub async fn passed(&self) {
        let mut receiver = self.0.subscribe();
        receiver.wait_for(|open| *open).await.expect("the gate holds its own sender");
    }
}

type Script = Arc<dyn Fn(&Received, usize) -> Answer + Send + Sync>;

/// The programmable receiver.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    scheme: &'static str,
    log: Arc<Log>,
    _served: Served,
}

impl Receiver {
    /// Answers every request with `status`.
    pub async fn answering(status: u16) -> Self {
        Self::start(move |_, _| Answer::status(status)).await
    }

    /// Answers by `script`, which gets the request and its number, counted from 1.
    pub async fn start(script: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(None, Arc::new(script)).await
    }

    /// The same under TLS. It speaks HTTP/2 if `identity` offers that.
    pub async fn start_tls(
        identity: &Identity,
        script: impl Fn(&Received, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::serve(Some(identity.acceptor()), Arc::new(script)).await
    }

    async fn serve(tls: Option<TlsAcceptor>, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let log = Arc::new(Log::default());
        let served = Served::spawn(accept(listener, tls, Arc::clone(&log), script));
        Self { address, scheme, log, _served: served }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, by address.
    pub fn url(&self) -> String {
        format!("{}://{}/", self.scheme, self.address)
    }

    /// Its URL, by a name that must lead to it.
    pub fn url_as(&self, host: &str) -> String {
        format!("{}://{host}:{}/", self.scheme, self.address.port())
    }

    /// Everything that has arrived.
    pub fn requests(&self) -> Vec<Received> {
        self.log.state().requests.clone()
    }

    /// How many requests have arrived.
    pub fn request_count(&self) -> usize {
        self.log.state().requests.len()
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        self.log.state().connections
    }

    /// How many of them are over.
    pub fn closed_connections(&self) -> usize {
        self.log.state().closed_connections
    }

    /// How many requests are waiting for their answer.
    pub fn open_requests(&self) -> usize {
        self.log.state().open
    }

    /// How many requests have been waiting for their answer at the same time, at most.
    pub fn most_open_requests(&self) -> usize {
        self.log.state().most_open
    }

    /// Waits for `count` requests in all, and gives everything that has arrived. Panics when `patience` is over.
    pub async fn wait_for(&self, count: usize, patience: Duration) -> Vec<Received> {
        self.wait_until(&format!("{count} requests"), patience, |receiver| receiver.request_count() >= count).await;
        self.requests()
    }

    /// Waits until `condition` holds, which is looked at whenever something changes here. Panics when `patience` is over.
    pub async fn wait_until(&self, what: &str, patience: Duration, condition: impl Fn(&Self) -> bool) {
        let mut changes = self.log.changed.subscribe();
        let holds = async {
            while !condition(self) {
                changes.changed().await.expect("the log outlives its receiver");
            }
        };
        if tokio::time::timeout(patience, holds).await.is_err() {
            let state = self.log.state();
            panic!(
                "waited {patience:?} in vain for {what}: {} requests on {} connections have arrived, {} are open",
                state.requests.len(),
                state.connections,
                state.open
            );
        }
    }
}

#[derive(Debug, Default)]
struct Log {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    requests: Vec<Received>,
    connections: usize,
    closed_connections: usize,
    open: usize,
    most_open: usize,
}

impl Log {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the log")
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let value = change(&mut self.state());
        self.changed.send_replace(());
        value
    }
}

/// A connection that was accepted.
struct Connection(Arc<Log>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.change(|state| state.closed_connections += 1);
    }
}

/// A request that has no answer yet. Its sender may go away first, so what ends it is its end.
struct Open(Arc<Log>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.change(|state| state.open -= 1);
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, log: Arc<Log>, script: Script) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((tcp, _)) = listener.accept().await else { continue };
        let connection = log.change(|state| {
            state.connections += 1;
            state.connections
        });
        let _ = tcp.set_nodelay(true);
        let (tls, log, script) = (tls.clone(), Arc::clone(&log), Arc::clone(&script));
        let accepted = Connection(Arc::clone(&log));
        connections.spawn(async move {
            let _accepted = accepted;
            let service = service_fn(move |request| answer(request, connection, Arc::clone(&log), Arc::clone(&script)));
            // How a connection ends is the sender's business, and seen in what it reports.
            let Some(tls) = tls else {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await;
                return;
            };
            let Ok(tls) = tls.accept(tcp).await else { return };
            if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(tls), service)
                    .await;
            } else {
                let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    log: Arc<Log>,
    script: Script,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let received = Received {
        method: head.method,
        path: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: head.headers,
        body,
        version: head.version,
        arrived: Instant::now(),
        connection,
    };
    let number = log.change(|state| {
        state.requests.push(received.clone());
        state.open += 1;
        state.most_open = state.most_open.max(state.open);
        state.requests.len()
    });
    let open = Open(log);
    let answer = script(&received, number);
    if let Some(gate) = &answer.gate {
        gate.passed().await;
    }
    drop(open);
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    Ok(response)
}
