//! `/v1/audit`.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::audit::AuditEntry;
use crate::api::keys::PageQuery;
use crate::api::{Listing, Problem};
use crate::http::AppState;
use crate::http::auth::Admin;
use crate::http::extract::Query;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Read the audit trail.
///
/// What was done to endpoints, deliveries, claims and keys, by whom, newest first. With a key for all tenants and the header
/// `Postrider-Tenant: *`, of all tenants, and what belongs to none.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(PageQuery),
    responses((status = 200, body = Listing<AuditEntry>)))]
async fn list(
    State(state): State<AppState>,
    Admin(caller): Admin,
    Query(query): Query<PageQuery>,
) -> Result<Json<Listing<AuditEntry>>, Problem> {
    state.service().audit(&caller, &query).await.map(Json)
}
