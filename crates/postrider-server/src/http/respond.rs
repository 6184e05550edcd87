//! Problems as answers.

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::api::Problem;

/// The media type of every problem.
pub(super) const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The problem itself goes along, so that what is outside can add the request's id to it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).expect("a problem is plain data");
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response.extensions_mut().insert(self);
        response
    }
}

pub(crate) async fn unknown_route(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(64).collect();
    Problem::new(404, "route_unknown", format!("there is nothing at `{path}`")).hint("see /docs for what there is")
}

pub(super) async fn method_not_allowed(request: Request) -> Problem {
    let detail = format!("{} is not possible here", request.method());
    Problem::new(405, "method_not_allowed", detail).hint("the header Allow names the methods that are")
}
