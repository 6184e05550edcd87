//! `/v1/once`.
//!
//! Subjects often have slashes in them (`plan/123`). They may be written as they are or escaped (`plan%2F123`): everything
//! after `/v1/once/` is the subject, but for the `/reset` at the end of a POST.

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, routing};
use http::header;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::api::once::{OnceClaim, OnceQuery};
use crate::api::{Listing, Problem};
use crate::http::AppState;
use crate::http::auth::{Reader, Writer};
use crate::http::extract::{NoQuery, Query, Segment};
use crate::http::respond;

const RESET: &str = "/reset";

/// Described as if subjects had no slashes, since a description has no other way to say it.
#[derive(OpenApi)]
#[openapi(paths(list, show, reset))]
struct Described;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    let wild = OpenApiRouter::with_openapi(Described::openapi());
    wild.route("/v1/once", routing::get(list)).route("/v1/once/{*subject}", routing::get(show).post(reset))
}

/// List subjects.
///
/// By name, in the order in which the database sorts them; those of several tenants by tenant. Also such as nobody has claimed in
/// their current generation.
#[utoipa::path(get, path = "/v1/once", tag = "once", params(OnceQuery),
    responses((status = 200, body = Listing<OnceClaim>)))]
async fn list(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Query(query): Query<OnceQuery>,
) -> Result<Json<Listing<OnceClaim>>, Problem> {
    state.service().once_claims(&caller, &query).await.map(Json)
}

/// Show a subject.
///
/// In which generation it is, and which event has claimed it.
#[utoipa::path(get, path = "/v1/once/{subject}", tag = "once",
    params(("subject" = String, Path, description = "The subject; its slashes may be escaped, and need not be", example = "plan/123", min_length = 1, max_length = 255)),
    responses(
        (status = 200, body = OnceClaim),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "It was never claimed nor reset"),
    ))]
async fn show(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Segment(subject): Segment,
    _: NoQuery,
) -> Result<Json<OnceClaim>, Problem> {
    state.service().once(&caller, &subject).await.map(Json)
}

/// Reset a subject.
///
/// Begins its next generation, in which it can be claimed again, once. Also possible for a subject that nobody has claimed.
#[utoipa::path(post, path = "/v1/once/{subject}/reset", tag = "once",
    params(("subject" = String, Path, description = "The subject; its slashes may be escaped, and need not be", example = "plan/123", min_length = 1, max_length = 255)),
    responses((status = 200, body = OnceClaim, description = "The next generation")))]
async fn reset(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Segment(path): Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    // An escaped `/reset` would be part of the subject.
    let subject = path.strip_suffix(RESET).filter(|_| request.uri().path().ends_with(RESET));
    let Some(subject) = subject else {
        return Ok(([(header::ALLOW, "GET,HEAD")], respond::method_not_allowed(request).await).into_response());
    };
    Ok(Json(state.service().reset_once(&caller, subject).await?).into_response())
}
