//! `/v1/endpoints`.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use postrider::EndpointId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::endpoints::{
    Endpoint, EndpointPatch, EndpointQuery, EndpointWithSecret, NewEndpoint, PauseRequest, RotateRequest,
};
use crate::api::events::EnqueuedEvent;
use crate::api::{Listing, Problem};
use crate::http::AppState;
use crate::http::auth::{Reader, Writer};
use crate::http::body::{Body, OptionalBody};
use crate::http::extract::{Id, NoQuery, Query};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, update, remove))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(rotate_secret))
        .routes(routes!(test))
}

/// List endpoints.
///
/// Newest first. Secrets are never shown.
#[utoipa::path(get, path = "/v1/endpoints", tag = "endpoints", params(EndpointQuery),
    responses((status = 200, body = Listing<Endpoint>)))]
async fn list(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Query(query): Query<EndpointQuery>,
) -> Result<Json<Listing<Endpoint>>, Problem> {
    state.service().endpoints(&caller, &query).await.map(Json)
}

/// Register an endpoint.
///
/// From now on it gets every event whose type it wants. The answer has the secret with which its payloads are signed; it is
/// not shown again.
#[utoipa::path(post, path = "/v1/endpoints", tag = "endpoints", request_body = NewEndpoint,
    responses((status = 201, body = EndpointWithSecret, description = "Registered")))]
async fn create(
    State(state): State<AppState>,
    Writer(caller): Writer,
    _: NoQuery,
    Body(new): Body<NewEndpoint>,
) -> Result<(StatusCode, Json<EndpointWithSecret>), Problem> {
    let created = state.service().create_endpoint(&caller, new).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Show an endpoint.
#[utoipa::path(get, path = "/v1/endpoints/{id}", tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id")),
    responses(
        (status = 200, body = Endpoint),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such endpoint"),
    ))]
async fn show(
    State(state): State<AppState>,
    Reader(caller): Reader,
    Id(id): Id<EndpointId>,
    _: NoQuery,
) -> Result<Json<Endpoint>, Problem> {
    state.service().endpoint(&caller, id).await.map(Json)
}

/// Change an endpoint.
///
/// What is left out stays as it is; null is the server's default again. Deliveries that exist keep their destination, and are
/// signed and treated by the new settings. For the secret there is `rotate-secret`.
#[utoipa::path(patch, path = "/v1/endpoints/{id}", tag = "endpoints", request_body = EndpointPatch,
    params(("id" = String, Path, description = "The endpoint's id")),
    responses(
        (status = 200, body = Endpoint, description = "Changed"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such endpoint"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "Others keep changing it (`endpoint_changed`), or its settings cannot be read (`endpoint_unreadable`)"),
    ))]
async fn update(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<EndpointId>,
    _: NoQuery,
    Body(patch): Body<EndpointPatch>,
) -> Result<Json<Endpoint>, Problem> {
    state.service().update_endpoint(&caller, id, patch).await.map(Json)
}

/// Remove an endpoint.
///
/// Nothing is sent to it any more. Its deliveries that wait are cancelled; its history stays.
#[utoipa::path(delete, path = "/v1/endpoints/{id}", tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id")),
    responses(
        (status = 204, description = "Removed"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such endpoint"),
    ))]
async fn remove(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<EndpointId>,
    _: NoQuery,
) -> Result<StatusCode, Problem> {
    state.service().remove_endpoint(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause an endpoint.
///
/// Its deliveries wait, and new ones join them, until it is resumed. An attempt under way is not interrupted.
#[utoipa::path(post, path = "/v1/endpoints/{id}/pause", tag = "endpoints",
    request_body(content = Option<PauseRequest>, description = "May be left out"),
    params(("id" = String, Path, description = "The endpoint's id")),
    responses(
        (status = 200, body = Endpoint, description = "Paused"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such endpoint"),
    ))]
async fn pause(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<EndpointId>,
    _: NoQuery,
    OptionalBody(request): OptionalBody<PauseRequest>,
) -> Result<Json<Endpoint>, Problem> {
    let reason = request.and_then(|request| request.reason);
    state.service().pause_endpoint(&caller, id, reason.as_deref()).await.map(Json)
}

/// Resume an endpoint.
///
/// What has waited is delivered. It also brings back an endpoint that was disabled, because it answered with 410 or failed
/// for too long.
#[utoipa::path(post, path = "/v1/endpoints/{id}/resume", tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id")),
    responses(
        (status = 200, body = Endpoint, description = "Resumed"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such endpoint"),
    ))]
async fn resume(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<EndpointId>,
    _: NoQuery,
) -> Result<Json<Endpoint>, Problem> {
    state.service().resume_endpoint(&caller, id).await.map(Json)
}

/// Replace an endpoint's secret.
///
/// The new one signs from now on, and the old one beside it for the overlap, so that the receiver can change over in its own
/// time. The answer has the new secret; it is not shown again.
#[utoipa::path(post, path = "/v1/endpoints/{id}/rotate-secret", tag = "endpoints",
    request_body(content = Option<RotateRequest>, description = "May be left out"),
    params(("id" = String, Path, description = "The endpoint's id")),
    responses(
        (status = 200, body = EndpointWithSecret, description = "Replaced"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such endpoint"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "Others keep changing it (`endpoint_changed`), or its settings cannot be read (`endpoint_unreadable`)"),
    ))]
async fn rotate_secret(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<EndpointId>,
    _: NoQuery,
    OptionalBody(request): OptionalBody<RotateRequest>,
) -> Result<Json<EndpointWithSecret>, Problem> {
    state.service().rotate_secret(&caller, id, &request.unwrap_or_default()).await.map(Json)
}

/// Send a test event to an endpoint.
///
/// An event of the type `postrider.test` is enqueued for this endpoint alone, whatever event types it wants. It is signed,
/// retried and recorded like any other.
#[utoipa::path(post, path = "/v1/endpoints/{id}/test", tag = "endpoints",
    params(("id" = String, Path, description = "The endpoint's id")),
    responses(
        (status = 202, body = EnqueuedEvent, description = "Enqueued"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such endpoint"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is disabled (`endpoint_disabled`)"),
    ))]
async fn test(
    State(state): State<AppState>,
    Writer(caller): Writer,
    Id(id): Id<EndpointId>,
    _: NoQuery,
) -> Result<(StatusCode, Json<EnqueuedEvent>), Problem> {
    let enqueued = state.service().test_endpoint(&caller, id).await?;
    Ok((StatusCode::ACCEPTED, Json(enqueued)))
}
