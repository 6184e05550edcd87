//! What people ask for, over HTTP.

use std::future::Future;

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

use crate::error::Error;
use crate::object::Object;
use crate::plan::{NewPlan, Plan};
use crate::rollouts::Rollouts;

/// Serves until `shutdown`.
pub async fn serve(
    rollouts: Rollouts,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/healthz", get(async || "ok"))
        .route("/v1/plans", post(create_plan))
        .route("/v1/plans/{id}", get(show_plan))
        .route("/v1/plans/{id}/tasks:batchRun", post(batch_run_tasks))
        .route("/v1/plans/{id}/tasks:batchSkip", post(batch_skip_tasks))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this address"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this address has other methods")
        })
        .with_state(rollouts);
    axum::serve(listener, routes).with_graceful_shutdown(shutdown).await
}

type Id = Result<Path<i64>, PathRejection>;
type Body<T> = Result<Json<Object<T>>, JsonRejection>;

async fn create_plan(
    State(rollouts): State<Rollouts>,
    body: Body<NewPlan>,
) -> Result<(StatusCode, Json<Plan>), Problem> {
    let Json(Object(plan)) = body?;
    Ok((StatusCode::CREATED, Json(rollouts.create(&plan).await?)))
}

async fn show_plan(State(rollouts): State<Rollouts>, id: Id) -> Result<Json<Plan>, Problem> {
    let Path(id) = id?;
    Ok(Json(rollouts.plan(id).await?))
}

/// Without names: all tasks that were not started or have failed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchRunTasks {
    tasks: Option<Vec<String>>,
}

async fn batch_run_tasks(
    State(rollouts): State<Rollouts>,
    id: Id,
    body: Body<BatchRunTasks>,
) -> Result<Json<Plan>, Problem> {
    let (Path(id), Json(Object(request))) = (id?, body?);
    Ok(Json(rollouts.batch_run_tasks(id, request.tasks.as_deref()).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchSkipTasks {
    tasks: Vec<String>,
}

async fn batch_skip_tasks(
    State(rollouts): State<Rollouts>,
    id: Id,
    body: Body<BatchSkipTasks>,
) -> Result<Json<Plan>, Problem> {
    let (Path(id), Json(Object(request))) = (id?, body?);
    Ok(Json(rollouts.batch_skip_tasks(id, &request.tasks).await?))
}

/// What is answered instead.
#[derive(Debug)]
struct Problem {
    status: StatusCode,
    code: &'static str,
    detail: String,
}

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }
}

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), "body_invalid", rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(_: PathRejection) -> Self {
        Self::new(StatusCode::NOT_FOUND, "plan_not_found", "plans are numbered")
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => Self::new(StatusCode::UNPROCESSABLE_ENTITY, refusal.code, refusal.detail),
            Error::Conflict(refusal) => Self::new(StatusCode::CONFLICT, refusal.code, refusal.detail),
            Error::PlanNotFound(_) => Self::new(StatusCode::NOT_FOUND, "plan_not_found", error.to_string()),
            Error::Database(_) | Error::Store(_) => {
                tracing::error!("a request failed: {error}");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "database_failed", "the database failed; try again")
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({ "status": self.status.as_u16(), "code": self.code, "detail": self.detail });
        let headers = [("content-type", "application/problem+json")];
        (self.status, headers, body.to_string()).into_response()
    }
}
