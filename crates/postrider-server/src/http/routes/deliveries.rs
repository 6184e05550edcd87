//! `/v1/deliveries`.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use postrider::DeliveryId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::deliveries::{BulkRetried, BulkRetry, CancelRequest, Delivery, DeliveryDetail, DeliveryQuery};
use crate::api::why::Why;
use crate::api::{Listing, Problem};
use crate::http::AppState;
use crate::http::auth::{Reader, Writer};
use crate::http::body::{Body, OptionalBody};
use crate::http::extract::{Id, NoQuery, Query};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(retry_many))
        .routes(routes!(show))
        .routes(routes!(retry))
        .routes(routes!(cancel))
        .routes(routes!(why))
}

/// List deliveries.
///
/// Newest first.
#[utoipa::path(get, path = "/v1/deliveries", tag = "deliveries", params(DeliveryQuery),
    responses((status = 200, body = Listing<Delivery>)))]
async fn list(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Query(query): Query<DeliveryQuery>,
) -> Result<Json<Listing<Delivery>>, Problem> {
    state.service().deliveries(&caller, &query).await.map(Json)
}

/// Show a delivery with its attempts.
#[utoipa::path(get, path = "/v1/deliveries/{id}", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery's id")),
    responses(
        (status = 200, body = DeliveryDetail),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such delivery"),
    ))]
async fn show(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Id(id): Id<DeliveryId>,
    _: NoQuery,
) -> Result<Json<DeliveryDetail>, Problem> {
    state.service().delivery(&caller, id).await.map(Json)
}

/// Retry a delivery now.
///
/// One that is dead or cancelled starts a new round of attempts; one that waits for its next attempt does not wait any longer.
#[utoipa::path(post, path = "/v1/deliveries/{id}/retry", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery's id")),
    responses(
        (status = 200, body = DeliveryDetail, description = "Due now"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such delivery"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "Its state forbids it: `delivery_already_due`, `delivery_in_flight`, `delivery_already_delivered`"),
    ))]
async fn retry(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<DeliveryId>,
    _: NoQuery,
) -> Result<Json<DeliveryDetail>, Problem> {
    state.service().retry_delivery(&caller, id).await.map(Json)
}

/// Cancel a delivery.
///
/// No more attempts are made. If one is under way, its result is not taken.
#[utoipa::path(post, path = "/v1/deliveries/{id}/cancel", tag = "deliveries",
    request_body(content = Option<CancelRequest>, description = "May be left out"),
    params(("id" = String, Path, description = "The delivery's id")),
    responses(
        (status = 200, body = DeliveryDetail, description = "Cancelled"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such delivery"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is settled already: `delivery_already_settled`"),
    ))]
async fn cancel(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<DeliveryId>,
    _: NoQuery,
    OptionalBody(request): OptionalBody<CancelRequest>,
) -> Result<Json<DeliveryDetail>, Problem> {
    let reason = request.and_then(|request| request.reason);
    state.service().cancel_delivery(&caller, id, reason.as_deref()).await.map(Json)
}

/// Retry many deliveries now.
///
/// The oldest of those that match are made due, up to the limit. With `dry_run` it only tells how many match.
#[utoipa::path(post, path = "/v1/deliveries/retry", tag = "deliveries", request_body = BulkRetry,
    responses((status = 202, body = BulkRetried, description = "Due now")))]
async fn retry_many(
    State(state): State<AppState>,
    Writer(caller): Writer,
    _: NoQuery,
    Body(request): Body<BulkRetry>,
) -> Result<(StatusCode, Json<BulkRetried>), Problem> {
    let retried = state.service().retry_deliveries(&caller, &request).await?;
    Ok((StatusCode::ACCEPTED, Json(retried)))
}

/// Explain a delivery.
///
/// Why it is in the state it is, and what happens next.
#[utoipa::path(get, path = "/v1/deliveries/{id}/why", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery's id")),
    responses(
        (status = 200, body = Why),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such delivery"),
    ))]
async fn why(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Id(id): Id<DeliveryId>,
    _: NoQuery,
) -> Result<Json<Why>, Problem> {
    state.service().why(&caller, id).await.map(Json)
}
