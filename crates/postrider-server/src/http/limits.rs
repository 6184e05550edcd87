//! How many requests at once, how long each may take, and which are not let in at all.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, Uri, header};

use super::{AppState, operations};
use crate::api::Problem;

/// Longer paths and queries are refused.
const MOST_URI_BYTES: usize = 8 * 1024;

/// A route that goes on for as long as its client wants.
const STREAM: &str = "/v1/stream";

pub(super) async fn limit(State(state): State<AppState>, request: Request, next: Next) -> Response {
    if let Err(problem) = check(&state, &request) {
        return problem.into_response();
    }
    let path = request.uri().path();
    let unlimited = operations::ROUTES.contains(&path);
    let stream = path == STREAM;
    let _permit = match state.0.requests.try_acquire() {
        Ok(permit) => Some(permit),
        Err(_) if unlimited => None,
        Err(_) => return Problem::new(503, "overloaded", "too many requests at once").into_response(),
    };
    if stream {
        return next.run(request).await;
    }
    let limit = state.config().request_timeout;
    tokio::time::timeout(limit, next.run(request)).await.unwrap_or_else(|_| {
        let detail =
            format!("it took longer than {}; what was asked for may still happen", postrider::duration::format(limit));
        Problem::new(503, "request_timeout", detail)
            .hint("repeat it; an event with an idempotency key is not enqueued twice")
            .into_response()
    })
}

fn check(state: &AppState, request: &Request) -> Result<(), Problem> {
    if request.uri().path_and_query().is_some_and(|text| text.as_str().len() > MOST_URI_BYTES) {
        let detail = format!("path and query have more than {MOST_URI_BYTES} bytes");
        return Err(Problem::new(414, "uri_too_long", detail));
    }
    let bytes: usize = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > state.config().max_header_bytes {
        let detail = format!("the headers have more than {} bytes", state.config().max_header_bytes);
        return Err(Problem::new(431, "headers_too_large", detail));
    }
    if state.config().dev { check_local(request.headers(), request.uri()) } else { Ok(()) }
}

/// Without keys, the address is all that protects the server. A page in somebody's browser can reach it under a name
/// that it has made point here, and can send what needs no permission from anywhere: both show in the headers.
fn check_local(headers: &HeaderMap, uri: &Uri) -> Result<(), Problem> {
    let host = match uri.host() {
        Some(host) => Some(host.to_owned()),
        None => headers.get(header::HOST).and_then(|host| host.to_str().ok()).map(without_port),
    };
    if !host.is_some_and(|host| is_loopback(&host)) {
        return Err(Problem::new(403, "host_forbidden", "without keys, only requests for a loopback host are taken")
            .hint("use http://localhost or http://127.0.0.1, or start the server without --dev"));
    }
    let cross_site = headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    let foreign = headers.get_all(header::ORIGIN).iter().any(|origin| !is_local_origin(origin.to_str().ok()));
    if cross_site || foreign {
        return Err(Problem::new(403, "origin_forbidden", "without keys, requests from other sites are not taken"));
    }
    Ok(())
}

fn without_port(host: &str) -> String {
    host.parse::<http::uri::Authority>().map(|authority| authority.host().to_owned()).unwrap_or_default()
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_local_origin(origin: Option<&str>) -> bool {
    let host = origin.and_then(|origin| origin.parse::<Uri>().ok()).and_then(|uri| uri.host().map(str::to_owned));
    host.is_some_and(|host| is_loopback(&host))
}
