//! What orchestrators and Prometheus ask for. None of it needs a key, and none of it tells anything about a tenant.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use crate::api::Problem;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "operations", responses((status = 200, body = String, content_type = "text/plain")))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether requests can be served: the database answers, and its schema is the one that this server knows.
#[utoipa::path(get, path = "/readyz", tag = "operations", responses(
    (status = 200, body = String, content_type = "text/plain"),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "Not now"),
))]
async fn readyz(State(state): State<AppState>) -> Result<&'static str, Problem> {
    if state.is_draining() {
        return Err(Problem::new(503, "draining", "the server is about to stop"));
    }
    state.service().store().health().await?;
    Ok("ready\n")
}

/// Figures in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, body = String, content_type = "text/plain")))]
async fn metrics(State(_state): State<AppState>) -> String {
    String::new()
}
