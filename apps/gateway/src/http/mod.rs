//! The gateway over HTTP.

mod object;
mod problem;
mod stream;

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use postrider::event::check_name;
use postrider::store::Operator;
use postrider::{Cursor, InvalidId, Page, Refusal, Store as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;
use uuid::Uuid;

use object::Object;
pub use problem::Problem;

use crate::deliveries::{WebhookDelivery, WebhookDeliveryDetail, WebhookDeliveryFilter};
use crate::sessions::{Session, SessionStatus};
use crate::webhooks::{NewWebhook, Webhook};
use crate::{Gateway, page};

/// What every request works with.
#[derive(Debug, Clone)]
pub(crate) struct App {
    pub(crate) gateway: Arc<Gateway>,
    /// What a caller must show, if anything.
    pub(crate) token: Option<Arc<str>>,
    /// True once the process is to stop, which ends streams.
    pub(crate) stopping: watch::Receiver<bool>,
}

pub(crate) fn routes(app: App) -> Router {
    Router::new()
        .route("/webhooks", get(list_webhooks).post(add_webhook))
        .route("/webhooks/{id}", get(show_webhook).delete(remove_webhook))
        .route("/webhooks/{id}/resume", post(resume_webhook))
        .route("/sessions", get(list_sessions).post(start_session))
        .route("/sessions/{id}", get(show_session).patch(change_session))
        .route("/deliveries", get(list_deliveries))
        .route("/deliveries/{id}", get(show_delivery))
        .route("/deliveries/{id}/reset", post(reset_delivery))
        .route("/topics/gateway:webhooks", get(stream::follow))
        .route_layer(middleware::from_fn_with_state(app.clone(), authorise))
        .route("/healthz", get(health))
        .fallback(|| async { Problem::new(404, "route_unknown", "there is nothing here") })
        .method_not_allowed_fallback(|| async { Problem::new(405, "method_not_allowed", "not possible here") })
        .with_state(app)
}

async fn authorise(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(token) = &app.token else { return next.run(request).await };
    let shown =
        request.headers().get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if shown.is_some_and(|shown| shown.ct_eq(token.as_bytes()).into()) {
        return next.run(request).await;
    }
    Problem::new(401, "token_invalid", "the header Authorization does not have the gateway's token").into_response()
}

async fn health(State(app): State<App>) -> Result<&'static str, Problem> {
    app.gateway.store().health().await?;
    Ok("ok\n")
}

async fn list_webhooks(
    State(app): State<App>,
    Checked(query): Checked<PageQuery>,
) -> Result<Json<List<Webhook>>, Problem> {
    Ok(List::of(app.gateway.webhooks(page(query.limit, query.cursor.as_deref())?).await?))
}

async fn add_webhook(
    State(app): State<App>,
    Acting(operator): Acting,
    Body(new): Body<NewWebhook>,
) -> Result<(StatusCode, Json<Webhook>), Problem> {
    Ok((StatusCode::CREATED, Json(app.gateway.add_webhook(new, &operator).await?)))
}

async fn show_webhook(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Webhook>, Problem> {
    let webhook = app.gateway.webhook(parse(&id)?).await?;
    webhook.map(Json).ok_or_else(not_found)
}

async fn resume_webhook(
    State(app): State<App>,
    Acting(operator): Acting,
    Path(id): Path<String>,
) -> Result<Json<Webhook>, Problem> {
    let id = parse(&id)?;
    app.gateway.resume_webhook(id, &operator).await?;
    app.gateway.webhook(id).await?.map(Json).ok_or_else(not_found)
}

async fn remove_webhook(
    State(app): State<App>,
    Acting(operator): Acting,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let removed = app.gateway.remove_webhook(parse(&id)?, &operator).await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(not_found()) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewSession {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionChange {
    status: SessionStatus,
}

async fn list_sessions(
    State(app): State<App>,
    Checked(query): Checked<PageQuery>,
) -> Result<Json<List<Session>>, Problem> {
    let page = page(query.limit, query.cursor.as_deref())?;
    let items = app.gateway.sessions(page).await?;
    let full = items.len() == page.limit() as usize;
    let next = items.last().filter(|_| full).map(|session| Cursor(session.id));
    Ok(List::of(Page { items, next }))
}

async fn start_session(
    State(app): State<App>,
    Body(new): Body<NewSession>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    check_name("name", "name_invalid", &new.name)?;
    Ok((StatusCode::CREATED, Json(app.gateway.start_session(new.name).await?)))
}

async fn show_session(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Session>, Problem> {
    let session = app.gateway.session(parse(&id)?).await?;
    session.map(Json).ok_or_else(not_found)
}

async fn change_session(
    State(app): State<App>,
    Path(id): Path<String>,
    Body(change): Body<SessionChange>,
) -> Result<Json<Session>, Problem> {
    let id: Uuid = parse(&id)?;
    Ok(Json(app.gateway.set_session_status(id, change.status).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeliveryQuery {
    status: Option<String>,
    webhook_id: Option<String>,
    session_id: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn list_deliveries(
    State(app): State<App>,
    Checked(query): Checked<DeliveryQuery>,
) -> Result<Json<List<WebhookDelivery>>, Problem> {
    let status = query.status.as_deref().map(str::parse).transpose()?;
    let webhook_id = query
        .webhook_id
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|invalid: InvalidId| Refusal::new("webhook_id_invalid", "webhook_id", invalid.to_string()))?;
    let session_id = query
        .session_id
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|_: uuid::Error| Refusal::new("session_id_invalid", "session_id", "it is not a UUID"))?;
    let filter = WebhookDeliveryFilter { status, webhook_id, session_id };
    let page = page(query.limit, query.cursor.as_deref())?;
    Ok(List::of(app.gateway.deliveries(filter, page).await?))
}

async fn show_delivery(State(app): State<App>, Path(id): Path<String>) -> Result<Json<WebhookDeliveryDetail>, Problem> {
    let delivery = app.gateway.delivery(parse(&id)?).await?;
    delivery.map(Json).ok_or_else(not_found)
}

async fn reset_delivery(
    State(app): State<App>,
    Acting(operator): Acting,
    Path(id): Path<String>,
) -> Result<Json<WebhookDeliveryDetail>, Problem> {
    Ok(Json(app.gateway.reset_delivery(parse(&id)?, &operator).await?))
}

fn not_found() -> Problem {
    Problem::new(404, "not_found", "there is no such thing")
}

/// What is not an id names nothing.
fn parse<T: std::str::FromStr>(id: &str) -> Result<T, Problem> {
    id.parse().map_err(|_| not_found())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct List<T> {
    data: Vec<T>,
    next_cursor: Option<String>,
}

impl<T> List<T> {
    fn of(page: Page<T>) -> Json<Self> {
        Json(Self { data: page.items, next_cursor: page.next.map(|cursor| cursor.to_string()) })
    }
}

/// A request's JSON; what is wrong with it is told as a problem.
struct Body<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let Json(Object(body)) = Json::from_request(request, state).await.map_err(|rejection: JsonRejection| {
            let code = match rejection.status() {
                StatusCode::UNSUPPORTED_MEDIA_TYPE => "content_type_unsupported",
                StatusCode::PAYLOAD_TOO_LARGE => "body_too_large",
                StatusCode::UNPROCESSABLE_ENTITY => "body_invalid",
                _ => "json_invalid",
            };
            Problem::new(rejection.status().as_u16(), code, rejection.body_text())
        })?;
        Ok(Self(body))
    }
}

/// A request's query, likewise.
struct Checked<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Checked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::from_request_parts(parts, state).await;
        let query = query.map_err(|invalid: QueryRejection| Problem::new(400, "query_invalid", invalid.body_text()))?;
        Ok(Self(query.0))
    }
}

/// Who acts, for the audit trail: the header `X-Operator`, or `operator`.
struct Acting(Operator);

impl<S: Send + Sync> FromRequestParts<S> for Acting {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let name = text_of(&parts.headers, "x-operator").unwrap_or_else(|| "operator".to_owned());
        check_name("x-operator", "operator_invalid", &name)?;
        Ok(Self(Operator(name)))
    }
}

/// A header's value; what is not text shows as such, and is refused by whoever checks it.
fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
