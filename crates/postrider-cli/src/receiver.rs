//! A receiver for development: takes webhooks on loopback, verifies their signatures, and answers as it is told to.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use postrider::signature::{DEFAULT_TOLERANCE, VerifyError, WEBHOOK_ID};
use postrider::{Secret, SignatureScheme};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Larger bodies are answered with 413. Far above what an engine accepts by default.
const MAX_BODY_BYTES: usize = 16 << 20;

/// One request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) at: Timestamp,
    pub(crate) path: String,
    pub(crate) event_type: Option<String>,
    pub(crate) event_id: Option<String>,
    pub(crate) delivery_id: Option<String>,
    pub(crate) attempt: Option<u32>,
    pub(crate) verification: Verification,
    pub(crate) body: Bytes,
    /// What it is answered with.
    pub(crate) status: StatusCode,
}

/// Whether a request is genuine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verification {
    /// One of the secrets signed it.
    Verified,
    /// None did.
    Invalid(VerifyError),
    /// It has no signature.
    Unsigned,
    /// There is no secret to verify with.
    Unchecked,
}

impl Verification {
    /// Its name.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Invalid(_) => "invalid",
            Self::Unsigned => "unsigned",
            Self::Unchecked => "unchecked",
        }
    }
}

/// What to answer to an arrival that is not refused.
pub(crate) type Answer = Box<dyn Fn(&Arrival) -> StatusCode + Send + Sync>;

/// How a receiver behaves.
pub(crate) struct Behaviour {
    /// What may have signed. Without any, nothing is verified.
    pub(crate) secrets: Vec<Secret>,
    /// How.
    pub(crate) scheme: SignatureScheme,
    /// What to answer. What is not genuine gets a 401 without being asked about.
    pub(crate) answer: Answer,
    /// How long to wait before the answer.
    pub(crate) delay: Duration,
}

/// A receiver that is bound to its port.
pub(crate) struct Receiver {
    listener: TcpListener,
    address: SocketAddr,
}

impl Receiver {
    /// Takes a port on loopback; 0 takes a free one.
    pub(crate) async fn bind(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where to send to.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Takes what arrives and tells it, for ever.
    pub(crate) async fn serve(self, behaviour: Behaviour, arrivals: mpsc::Sender<Arrival>) {
        let behaviour = Arc::new(behaviour);
        loop {
            let Ok((stream, _)) = self.listener.accept().await else {
                // Out of file descriptors, most likely: connections that end will free some.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (behaviour, arrivals) = (Arc::clone(&behaviour), arrivals.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let (behaviour, arrivals) = (Arc::clone(&behaviour), arrivals.clone());
                    async move { Ok::<_, Infallible>(receive(request, &behaviour, &arrivals).await) }
                });
                // How a connection ends is the sender's affair.
                let _ = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    }
}

async fn receive(
    request: Request<Incoming>,
    behaviour: &Behaviour,
    arrivals: &mpsc::Sender<Arrival>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => return answer(StatusCode::PAYLOAD_TOO_LARGE),
    };
    let arrival = behaviour.judge(head.uri.path(), &head.headers, body);
    let status = arrival.status;
    // Told before it is answered, so that a sender that gives up during the delay is seen too.
    let _ = arrivals.send(arrival).await;
    tokio::time::sleep(behaviour.delay).await;
    answer(status)
}

fn answer(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{status}\n"))));
    *response.status_mut() = status;
    response
}

impl Behaviour {
    fn judge(&self, path: &str, headers: &HeaderMap, body: Bytes) -> Arrival {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let at = Timestamp::now();
        let verification = self.verify(headers, &body, at);
        let prefixed = |name: fn(&postrider::signature::HeaderPrefix) -> http::HeaderName| match &self.scheme {
            SignatureScheme::Standard => None,
            SignatureScheme::HmacSha256Hex { header_prefix, .. } => text(name(header_prefix).as_str()),
        };
        let mut arrival = Arrival {
            at,
            path: path.to_owned(),
            event_type: text("postrider-event-type")
                .or_else(|| prefixed(postrider::signature::HeaderPrefix::event_type)),
            event_id: text(WEBHOOK_ID.as_str()).or_else(|| prefixed(postrider::signature::HeaderPrefix::event_id)),
            delivery_id: text("postrider-delivery-id"),
            attempt: text("postrider-attempt").and_then(|number| number.parse().ok()),
            verification,
            body,
            status: StatusCode::UNAUTHORIZED,
        };
        if matches!(arrival.verification, Verification::Verified | Verification::Unchecked) {
            arrival.status = (self.answer)(&arrival);
        }
        arrival
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], at: Timestamp) -> Verification {
        if self.secrets.is_empty() {
            return Verification::Unchecked;
        }
        match self.scheme.verify_headers(&self.secrets, headers, body, at.as_second(), DEFAULT_TOLERANCE) {
            Ok(()) => Verification::Verified,
            Err(_) if !self.scheme.header_names().iter().any(|name| headers.contains_key(name)) => {
                Verification::Unsigned
            }
            Err(error) => Verification::Invalid(error),
        }
    }
}
