//! A receiver that writes down every request and what it answered, and is moody by a seed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use postrider::DeliveryId;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::dice::mixed;
use crate::{canary, load};

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// This status, with a small body.
    Status(u16),
    /// The connection was closed instead.
    Dropped,
}

impl Answer {
    /// Whether it says that the event has arrived.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Status(200..=299))
    }
}

/// What to answer, and how long to take.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    /// What.
    pub answer: Answer,
    /// After how long.
    pub wait: Duration,
}

impl Reply {
    /// This status, at once.
    pub fn status(status: u16) -> Self {
        Self { answer: Answer::Status(status), wait: Duration::ZERO }
    }
}

/// One request as it arrived. Instants are microseconds since 1970.
#[derive(Debug, Clone)]
pub struct Request {
    /// Which of the load's events it is, by its payload; none when the payload is not one of the load's.
    pub number: Option<u64>,
    /// The header `webhook-id`.
    pub event: String,
    /// The header `postrider-delivery-id`.
    pub delivery: Uuid,
    /// The header `postrider-attempt`.
    pub attempt: u32,
    /// The header `webhook-timestamp`, in seconds.
    pub signed_at: i64,
    /// When it was complete.
    pub arrived_at: i64,
    /// Why the signature does not hold, if it does not.
    pub signature_fault: Option<String>,
    /// What it was answered, or was to be answered when its sender went away.
    pub answer: Answer,
}

type Manner = Arc<dyn Fn(u64, u32) -> Reply + Send + Sync>;

/// The receiver. It ends with this value.
pub struct Inbox {
    url: String,
    log: Arc<Mutex<Vec<Request>>>,
    serving: JoinHandle<()>,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Inbox {
    /// Answers by a manner, which gets the event's number and the attempt's.
    pub async fn open(manner: impl Fn(u64, u32) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let serving = tokio::spawn(serve(listener, Arc::clone(&log), Arc::new(manner)));
        Self { url, log, serving }
    }

    /// Mostly well, by a seed: some answers are failures, some come late, some not at all; a few events never succeed.
    pub async fn moody(seed: u64) -> Self {
        Self::open(move |number, attempt| moody(seed, number, attempt)).await
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Everything by now.
    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }

    /// How many by now.
    pub fn count(&self) -> usize {
        self.log.lock().unwrap().len()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn moody(seed: u64, number: u64, attempt: u32) -> Reply {
    if mixed(&[seed, number]).is_multiple_of(23) {
        return Reply::status(500);
    }
    let draw = mixed(&[seed, number, u64::from(attempt)]);
    let wait = Duration::from_millis(match draw % 50 {
        0 => 4_000,
        1..5 => draw / 50 % 700,
        _ => draw / 50 % 20,
    });
    let answer = match draw / 7 % 40 {
        0 => Answer::Status(500),
        1 => Answer::Status(404),
        2 => Answer::Status(302),
        3 => Answer::Status(503),
        4 | 5 => Answer::Dropped,
        6 => Answer::Status(204),
        _ => Answer::Status(200),
    };
    Reply { answer, wait }
}

async fn serve(listener: TcpListener, log: Arc<Mutex<Vec<Request>>>, manner: Manner) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (log, manner) = (Arc::clone(&log), Arc::clone(&manner));
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&log), Arc::clone(&manner)));
            // How a connection ends is the sender's affair: some senders are killed.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// An error makes hyper close the connection.
async fn answer(
    request: http::Request<Incoming>,
    log: Arc<Mutex<Vec<Request>>>,
    manner: Manner,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
    let mut request = read(&head.headers, &body);
    let reply = manner(request.number.unwrap_or_default(), request.attempt);
    request.answer = reply.answer;
    log.lock().unwrap().push(request);
    tokio::time::sleep(reply.wait).await;
    match reply.answer {
        Answer::Dropped => Err(std::io::Error::other("dropped on purpose")),
        Answer::Status(status) => {
            let response = Response::builder().status(status).header("location", "/elsewhere");
            Ok(response.body(Full::from("answered")).expect("a status and a header make a response"))
        }
    }
}

fn read(headers: &HeaderMap, body: &[u8]) -> Request {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let delivery = text("postrider-delivery-id").parse::<DeliveryId>();
    Request {
        number: load::number_of(body),
        event: text("webhook-id").to_owned(),
        delivery: delivery.map_or(Uuid::nil(), |id| id.as_uuid()),
        attempt: text("postrider-attempt").parse().unwrap_or_default(),
        signed_at: text("webhook-timestamp").parse().unwrap_or_default(),
        arrived_at: Timestamp::now().as_microsecond(),
        signature_fault: verify(headers, body).err(),
        answer: Answer::Dropped,
    }
}

fn verify(headers: &HeaderMap, body: &[u8]) -> Result<(), String> {
    let webhook = Webhook::new(canary::SIGNING_SECRET).map_err(|error| error.to_string())?;
    webhook.verify(body, headers).map_err(|error| error.to_string())
}
