//! `/v1/keys`.

use axum::Json;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use postrider::KeyId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::keys::{CreatedKey, Key, NewKey, PageQuery};
use crate::api::{Listing, Problem};
use crate::http::AppState;
use crate::http::auth::{self, Admin};
use crate::http::body::Body;
use crate::http::extract::{Id, NoQuery, Query};
use crate::service::Tenancy;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

/// List keys.
///
/// Newest first, also revoked ones, and never the keys themselves. A key for all tenants sees every key, unless the header
/// `Postrider-Tenant` names a tenant.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(PageQuery),
    responses((status = 200, body = Listing<Key>)))]
async fn list(
    State(state): State<AppState>,
    Admin(mut caller): Admin,
    Query(query): Query<PageQuery>,
    headers: HeaderMap,
) -> Result<Json<Listing<Key>>, Problem> {
    // Without the header it would be the default tenant, in which the caller's own key is not to be found.
    if caller.any_tenant && !headers.contains_key(auth::TENANT) {
        caller.tenant = Tenancy::All;
    }
    state.service().keys(&caller, &query).await.map(Json)
}

/// Make a key.
///
/// The answer has the key; it is not shown again. A key for one tenant makes keys for that tenant only.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = NewKey,
    responses((status = 201, body = CreatedKey, description = "Made")))]
async fn create(
    State(state): State<AppState>,
    Admin(caller): Admin,
    _: NoQuery,
    Body(new): Body<NewKey>,
) -> Result<(StatusCode, Json<CreatedKey>), Problem> {
    let created = state.service().create_key(&caller, &new).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Revoke a key.
///
/// It opens nothing any more, and streams that were opened with it end.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys",
    params(("id" = String, Path, description = "The key's id")),
    responses(
        (status = 204, description = "Revoked"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such key, or it is revoked already"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is the key that asks (`key_in_use`)"),
    ))]
async fn revoke(
    State(state): State<AppState>,
    Admin(caller): Admin,
    Id(id): Id<KeyId>,
    _: NoQuery,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let own = if state.config().dev { None } else { Some(auth::recognised(&headers, &state).await?.id) };
    state.service().revoke_key(&caller, id, own).await?;
    Ok(StatusCode::NO_CONTENT)
}
