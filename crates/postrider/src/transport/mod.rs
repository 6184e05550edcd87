//! The one thing here that speaks to receivers: a POST, and what came of it.
//!
//! A receiver is a stranger's program. It may refuse, stall, drip, flood, lie about lengths, or be a name that points
//! into our own network. None of that is an error of ours, so [`Transport::post`] cannot fail: whatever happens is an
//! [`Outcome`], and it is known before the post's one deadline has passed, whatever the receiver does.
//!
//! # What is dialled
//!
//! The URL is checked by the policy of this transport, since it may be another than the one under which the URL was stored;
//! a transport's policy never changes, so it remembers what it has accepted. A new connection
//! resolves the name, checks **every** address of the answer, and dials those very addresses: the name is not looked up a
//! second time, so an answer that changes in between has no effect. If one address of an answer is refused, the whole
//! answer is: an honest name does not mix public and private addresses, and dialling "the good one" of a mixed answer
//! would let its owner find out which one that is. TLS still asks for and verifies the name. Redirects are not followed,
//! and the proxy variables of the environment are not read, because both would send the bytes somewhere unchecked.
//!
//! # What is bounded
//!
//! | what | by |
//! |---|---|
//! | everything, from the lookup to the last byte that is kept | [`Post::timeout`] |
//! | lookup, TCP and TLS together | [`TransportConfig::connect_timeout`] |
//! | a response's head | 64 KiB and 100 fields (HTTP/2: 16 KiB) |
//! | interim (1xx) responses | 256 KiB on one connection without a request in between (HTTP/2: about a thousand) |
//! | pings, settings, and what else nobody asked for in HTTP/2 | about a thousand frames for each request |
//! | a response's body | [`TransportConfig::kept_response_bytes`], and a little more that is read and thrown away |
//! | idle connections | [`TransportConfig::max_idle_per_destination`], for four seconds |
//!
//! Bodies are never decompressed: nothing asks for compression, and the excerpt of a compressed answer is noise.
//!
//! # Kept connections
//!
//! A connection is used again if the response was read to its end. The receiver may close it just as the next request is
//! handed to it. If no byte of the request had been written, the request is put on another connection, and the attempt
//! does not notice; a look at the socket right before the first byte makes that the common case. Once a byte was written
//! the receiver may have acted on it, and sending it again is the retry schedule's business: a closing that is still on its
//! way to us then is a failed attempt. It is kept rare by letting idle connections go after four seconds, before the five
//! after which many servers close theirs.

mod balance;
mod body;
mod connector;
mod failure;
mod known;
mod progress;
mod resolver;
mod stream;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, DATE, HOST, HeaderMap, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING};
use http::{Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use crate::destination::DestinationPolicy;
use crate::outcome::{Outcome, Phase, Response};
use crate::refusal::Refusal;

use body::RequestBody;
use connector::Connector;
pub use failure::Exhausted;
use known::KnownUrls;
use progress::Progress;
pub use tls::roots_from;

/// The longest head of an HTTP/1 response.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most fields in a response's head.
const MAX_HEAD_FIELDS: usize = 100;
/// The longest head of an HTTP/2 response, as HTTP/2 counts it.
const MAX_HTTP2_HEAD_BYTES: u32 = 16 * 1024;
/// How much a receiver may send ahead of our reading, per HTTP/2 stream and per HTTP/2 connection.
const HTTP2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// How often an HTTP/2 connection is asked whether it still lives. A dead HTTP/1 connection dies with its request's
/// deadline; a dead HTTP/2 connection would take every later request down with it.
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(5);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection is kept. See the module's text on kept connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// How to reach receivers.
#[derive(Debug, Clone)]
pub struct TransportConfig {
    /// Which destinations may be dialled.
    pub destinations: DestinationPolicy,
    /// How long looking up the name, connecting and negotiating TLS may take together.
    pub connect_timeout: Duration,
    /// How much of a response's body is kept, in bytes.
    pub kept_response_bytes: usize,
    /// Certificate authorities to trust besides the system's. [`roots_from`] reads them from a file's bytes.
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// Name servers to ask. If there are none, `/etc/hosts` and `/etc/resolv.conf` say what to do, as they are at the start;
    /// if there are, those two files are not read.
    pub name_servers: Vec<SocketAddr>,
    /// How many unused connections are kept per destination.
    pub max_idle_per_destination: usize,
}

impl Default for TransportConfig {
    fn default() -> Self {
        Self {
            destinations: DestinationPolicy::default(),
            connect_timeout: Duration::from_secs(5),
            kept_response_bytes: 4096,
            extra_roots: Vec::new(),
            name_servers: Vec::new(),
            max_idle_per_destination: 128,
        }
    }
}

/// A transport that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The system's name servers are not known.
    #[error(
        "cannot read the system's name servers from /etc/resolv.conf: {reason}; repair it or configure name servers"
    )]
    NameServers {
        /// What is wrong with the file.
        reason: String,
    },
    /// A certificate authority cannot be read.
    #[error("cannot read certificate authority number {number}: {reason}; give X.509 certificates as PEM or DER")]
    Root {
        /// Which, counted from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A timeout that no connection could meet.
    #[error("connect_timeout must be more than zero")]
    ZeroConnectTimeout,
    /// The TLS library does not take its configuration.
    #[error("cannot configure TLS: {reason}")]
    Tls {
        /// What it says.
        reason: String,
    },
}

/// One request. `Debug` shows neither its headers nor its body, which hold signatures and payloads.
#[derive(Clone)]
pub struct Post {
    /// Where to.
    pub url: String,
    /// What to send beside `Host` and `Content-Length`, which are the transport's own.
    pub headers: HeaderMap,
    /// What to send, byte for byte.
    pub body: Bytes,
    /// The one deadline, over everything.
    pub timeout: Duration,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Post")
            .field("url", &self.url)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Sends posts. Clones share connections.
#[derive(Clone)]
pub struct Transport {
    client: Client<Connector, RequestBody>,
    destinations: Arc<DestinationPolicy>,
    known: Arc<KnownUrls>,
    kept_response_bytes: usize,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("kept_response_bytes", &self.kept_response_bytes).finish_non_exhaustive()
    }
}

impl Transport {
    /// Reads the system's name servers and certificate authorities, and dials nothing.
    pub fn new(config: TransportConfig) -> Result<Self, TransportError> {
        if config.connect_timeout.is_zero() {
            return Err(TransportError::ZeroConnectTimeout);
        }
        let destinations = Arc::new(config.destinations);
        let connector = Connector::new(
            Arc::clone(&destinations),
            resolver::resolver(&config.name_servers, config.connect_timeout)?,
            tls::client_config(config.extra_roots)?,
            config.connect_timeout,
            config.kept_response_bytes,
        );
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(config.max_idle_per_destination)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .http1_max_headers(MAX_HEAD_FIELDS)
            .http2_max_header_list_size(MAX_HTTP2_HEAD_BYTES)
            .http2_initial_stream_window_size(HTTP2_STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(HTTP2_CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(HTTP2_PING_INTERVAL)
            .http2_keep_alive_timeout(HTTP2_PING_TIMEOUT)
            .retry_canceled_requests(true)
            .build(connector);
        let known = Arc::default();
        Ok(Self { client, destinations, known, kept_response_bytes: config.kept_response_bytes })
    }

    /// Sends `post` once and tells what came of it, at the latest when its timeout has passed.
    pub async fn post(&self, post: Post) -> Outcome {
        self.try_post(|| Ok(post.clone()), SystemTime::now())
            .await
            .unwrap_or_else(|exhausted| Outcome::Connect { detail: exhausted.to_string() })
    }

    /// The same for whoever can wait: if there is no file descriptor to be had, nothing was tried. And for whoever has a
    /// better clock than this machine's: a receiver that asks us to wait until an instant is measured by `now`. And for whoever
    /// can make the same post again, which costs less than a copy of each for the few that are put on another connection.
    pub async fn try_post(
        &self,
        make: impl Fn() -> Result<Post, Refusal>,
        now: SystemTime,
    ) -> Result<Outcome, Exhausted> {
        let started = Instant::now();
        let clock = || now + started.elapsed();
        let progress = Progress::default();
        let (mut request, timeout) = match self.request(&make, &progress) {
            Ok(first) => first,
            Err(refusal) => return Ok(Outcome::Blocked(refusal)),
        };
        let exchange = async {
            loop {
                // Each turn uses up a kept connection, of which there are few, or is the last.
                if let Some(outcome) = self.exchange(request, &progress, clock).await? {
                    return Ok(outcome);
                }
                request = match self.request(&make, &progress) {
                    Ok((again, _)) => again,
                    Err(refusal) => return Ok(Outcome::Blocked(refusal)),
                };
            }
        };
        match tokio::time::timeout_at(started + timeout, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Ok(Outcome::Timeout { during: progress.phase() }),
        }
    }

    /// What goes out, and how long it may take.
    fn request(
        &self,
        make: impl Fn() -> Result<Post, Refusal>,
        progress: &Progress,
    ) -> Result<(Request<RequestBody>, Duration), Refusal> {
        let Post { url, mut headers, body, timeout } = make()?;
        let uri = self.checked_uri(&url)?;
        // A second opinion on where the body ends, or on whom it is for, is how requests are smuggled.
        headers.remove(HOST);
        headers.remove(TRANSFER_ENCODING);
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let mut request = Request::new(RequestBody::new(body, progress.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        Ok((request, timeout))
    }

    fn checked_uri(&self, url: &str) -> Result<Uri, Refusal> {
        if let Some(uri) = self.known.get(url) {
            return Ok(uri);
        }
        let uri = self.check(url)?;
        self.known.add(url, &uri);
        Ok(uri)
    }

    fn check(&self, url: &str) -> Result<Uri, Refusal> {
        let destination = self.destinations.check_url(url)?;
        Uri::try_from(destination.url().as_str()).map_err(|error| {
            Refusal::new(
                "destination_url_invalid",
                "destination_url",
                format!("the URL cannot be sent over HTTP: {error}"),
            )
        })
    }

    /// Sends the request on one connection; nothing if that connection was over before a byte was written to it.
    async fn exchange(
        &self,
        request: Request<RequestBody>,
        progress: &Progress,
        clock: impl Fn() -> SystemTime,
    ) -> Result<Option<Outcome>, Exhausted> {
        match progress.follow(self.client.request(request)).await {
            Ok(response) => {
                progress.enter(Phase::Reading);
                Ok(Some(self.read(response, clock()).await))
            }
            Err(error) if failure::is_stale(&error) => Ok(None),
            Err(error) => match Exhausted::cause_of(&error) {
                Some(exhausted) => Err(exhausted),
                None => Ok(Some(failure::before_response(&error))),
            },
        }
    }

    async fn read(&self, response: http::Response<Incoming>, now: SystemTime) -> Outcome {
        let (head, incoming) = response.into_parts();
        if head.headers.contains_key(CONTENT_LENGTH) && head.headers.contains_key(TRANSFER_ENCODING) {
            // Dropping the body unread closes the connection, whose next bytes could belong to anything.
            return Outcome::Protocol {
                detail: "the response has both Content-Length and Transfer-Encoding".to_owned(),
            };
        }
        let retry_after = retry_after(head.status, &head.headers, now);
        match body::read_excerpt(incoming, self.kept_response_bytes).await {
            Ok(excerpt) => Outcome::Response(Response { status: head.status.as_u16(), retry_after, excerpt }),
            Err(error) => failure::within_response(&error),
        }
    }
}

/// How long the receiver asks us to wait, where that means anything.
fn retry_after(status: StatusCode, headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    if !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return None;
    }
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    crate::retry_after::retry_after(value, date, now)
}
