//! What orchestrators and Prometheus ask for. None of it needs a key, and without one none of it tells anything about a tenant.

use std::time::Duration;

use axum::extract::State;
use axum::response::IntoResponse;
use http::{HeaderMap, header};
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{AppState, auth};
use crate::api::Problem;
use crate::metrics::{CONTENT_TYPE, Scrape};
use crate::service::Tenancy;

/// How long the database may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a scrape waits for the database. Scrapers have little time, and all else can be told without it.
const SCRAPE_PATIENCE: Duration = Duration::from_secs(1);

/// What is here. Whoever looks after the server must be able to when it is busy.
pub(super) const ROUTES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

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
    let health = timeout(PATIENCE, state.service().store().health());
    health.await.map_err(|_| Problem::new(503, "store_busy", "the database does not answer"))?.map_err(|error| {
        tracing::warn!(code = %error.code, "not ready: {}", error.message);
        // Whatever is wrong with the store, it is not for the asker to mend: send requests elsewhere.
        Problem { status: 503, title: "Service Unavailable".to_owned(), ..Problem::from(error) }
    })?;
    Ok("ready\n")
}

/// Figures in Prometheus' text format.
///
/// About everything that this process does, and how many deliveries are where. Of all tenants together. With an API key there is also
/// what became of the attempts at each endpoint that the key is for.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, body = String, content_type = "text/plain")))]
async fn metrics(State(state): State<AppState>, headers: HeaderMap) -> impl IntoResponse {
    let service = state.service();
    let whose = timeout(SCRAPE_PATIENCE, whose(&headers, &state));
    let counting = timeout(SCRAPE_PATIENCE, service.overview_of(None));
    // What is not counted in time is counted at the next scrape.
    let catching_up = timeout(SCRAPE_PATIENCE, service.metrics().endpoints.catch_up(&**service.store()));
    let (overview, health, _, whose) =
        tokio::join!(counting, timeout(SCRAPE_PATIENCE, service.store().health()), catching_up, whose);
    let health = health.ok().and_then(Result::ok);
    let scrape = Scrape {
        overview: overview.ok().and_then(Result::ok),
        store_up: health.is_some(),
        connections: health.and_then(|health| health.connections),
        dispatcher: state.0.monitor.as_ref().map(|monitor| (monitor.totals(), monitor.in_flight())),
        endpoints: whose.ok().flatten().map(|whose| service.metrics().endpoints.seen_by(&whose)).unwrap_or_default(),
    };
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], service.metrics().text(scrape))
}

/// Whose endpoints are told of: those of the key, all where no keys are needed, and nobody's without one. A key that is none is no
/// reason to tell nothing else.
async fn whose(headers: &HeaderMap, state: &AppState) -> Option<Tenancy> {
    if state.config().dev {
        return Some(Tenancy::All);
    }
    let key = auth::recognised(headers, state).await.ok()?;
    Some(key.tenant.map_or(Tenancy::All, Tenancy::One))
}
