//! What every request and every answer has: an id, a line in the log, a place in the metrics, safe headers.

use std::fmt;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use postrider::KeyId;
use uuid::Uuid;

use super::{AppState, operations};
use crate::api::Problem;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MOST_ID_BYTES: usize = 128;

/// What is found out about a request on its way in, for its line in the log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Noted>>);

#[derive(Debug, Clone, Default)]
struct Noted {
    key: Option<KeyId>,
    tenant: Option<String>,
}

impl Notes {
    fn note(&self, change: impl FnOnce(&mut Noted)) {
        change(&mut self.0.lock().expect("no code panics while it holds this lock"));
    }

    pub(crate) fn key(&self, id: KeyId) {
        self.note(|noted| noted.key = Some(id));
    }

    pub(crate) fn tenant(&self, tenant: &str) {
        self.note(|noted| noted.tenant = Some(tenant.to_owned()));
    }
}

/// Who is at the other end of a request's connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Goes with an answer whose request a page makes by itself, again and again: its line is only for whoever looks closely.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Routine;

/// Goes with a problem that is to be told to somebody in front of a page, and not to a program.
#[derive(Clone)]
pub(crate) struct Teller(pub(crate) Arc<dyn Fn(&Problem) -> Response + Send + Sync>);

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Teller")
    }
}

/// Makes a page of a problem.
pub(super) type TellPeople = fn(&Problem) -> Response;

/// Whether an answer is read by somebody in front of a browser: who asks for a page, and for nothing of the API.
pub(crate) fn is_for_people(headers: &HeaderMap, uri: &Uri) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let html = { accepted }.any(|accept| accept.split(',').any(|range| range.trim_start().starts_with("text/html")));
    let path = uri.path();
    html && path != "/v1" && !path.starts_with("/v1/") && !operations::ROUTES.contains(&path)
}

pub(super) async fn edge(
    State((state, tell_people)): State<(AppState, Option<TellPeople>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let id = request_id(request.headers());
    let tell_people = tell_people.filter(|_| is_for_people(request.headers(), request.uri()));
    let (method, version) = (request.method().clone(), request.version());
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let notes = Notes::default();
    request.extensions_mut().insert(notes.clone());
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answered.unwrap_or_else(|_| {
        tracing::error!(request_id = id, %method, route, "a request's handler has panicked");
        Problem::new(500, "internal", "something went wrong in the server").into_response()
    });
    let mut code = None;
    if let Some(mut problem) = response.extensions_mut().remove::<Problem>() {
        problem.request_id = Some(id.clone());
        if let Some(cause) = &problem.cause {
            tracing::warn!(request_id = id, code = problem.code, "a request failed: {cause}");
        }
        code = Some(problem.code.clone());
        let (mut parts, _) = response.into_parts();
        let told = match (parts.extensions.remove(), tell_people) {
            (Some(Teller(tell)), _) => Some(tell(&problem)),
            (None, Some(tell)) => Some(tell(&problem)),
            (None, None) => None,
        };
        response = if let Some(mut told) = told {
            // What is possible is said to whoever asks for what is not, whatever the answer looks like.
            if let Some(allow) = parts.headers.remove(header::ALLOW) {
                told.headers_mut().insert(header::ALLOW, allow);
            }
            told
        } else {
            parts.headers.remove(header::CONTENT_LENGTH);
            let body = serde_json::to_vec(&problem).expect("a problem is plain data");
            Response::from_parts(parts, body.into())
        };
    }
    let took = began.elapsed();
    let status = response.status().as_u16();
    let Noted { key, tenant } = notes.0.lock().expect("no code panics while it holds this lock").clone();
    let routine = response.extensions().get::<Routine>().is_some();
    let line = Line { id: &id, method: &method, route: route.as_deref(), status, took, code, key, tenant, routine };
    line.tell();
    state.service().metrics().answered(route.as_deref(), &method, response.status(), took);
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    protect(response.headers_mut());
    // Whoever asks again should ask somebody else. (HTTP/2 has its own way to say so.)
    if version < Version::HTTP_2 && state.is_draining() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A request's line in the log.
struct Line<'a> {
    id: &'a str,
    method: &'a Method,
    route: Option<&'a str>,
    status: u16,
    took: Duration,
    code: Option<String>,
    key: Option<KeyId>,
    tenant: Option<String>,
    routine: bool,
}

impl Line<'_> {
    fn tell(&self) {
        let Self { id, method, route, status, code, tenant, .. } = self;
        let duration_ms = (self.took.as_secs_f64() * 100_000.0).round() / 100.0;
        let key = self.key.map(tracing::field::display);
        // Probes and scrapes come every few seconds and say nothing while all is well.
        let probe = *status < 300 && route.is_some_and(|route| operations::ROUTES.contains(&route));
        if probe || self.routine {
            tracing::debug!(request_id = id, %method, route, status, duration_ms, "request");
        } else {
            tracing::info!(request_id = id, %method, route, status, duration_ms, code, key, tenant, "request");
        }
    }
}

/// The client's own id if it is a plain word, so that its log and ours can be joined; otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    let plain = |id: &&str| {
        let bytes = id.bytes();
        (1..=MOST_ID_BYTES).contains(&id.len()) && { bytes }.all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(plain);
    given.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// Pages may allow themselves more; what they have set stays.
fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
