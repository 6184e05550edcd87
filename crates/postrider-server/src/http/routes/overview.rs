//! `/v1/overview`.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::Problem;
use crate::api::overview::Overview;
use crate::http::AppState;
use crate::http::auth::Reader;
use crate::http::extract::NoQuery;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// How everything stands.
///
/// How many deliveries are where, and what happened in the last minute. With a key for all tenants and the header
/// `Postrider-Tenant: *`, of all tenants together.
#[utoipa::path(get, path = "/v1/overview", tag = "overview", responses((status = 200, body = Overview)))]
async fn show(State(state): State<AppState>, Reader(caller): Reader, _: NoQuery) -> Result<Json<Overview>, Problem> {
    state.service().overview(&caller).await.map(Json)
}
