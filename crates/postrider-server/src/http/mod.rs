//! The API over HTTP: which routes there are, who may use them, within which limits, and how errors are told.
//!
//! A request goes through [`edge`] (its id, its line in the log, panics, the headers of every answer), then
//! [`limits`] (how many at once, how long), and then to its route, whose extractors let in only who has a key
//! of the scope that it needs, and only what it understands.

mod auth;
mod body;
mod edge;
mod extract;
mod limits;
mod openapi;
mod operations;
mod pages;
mod respond;
mod routes;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use postrider::Monitor;
use tokio::sync::{Semaphore, watch};
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::dashboard::{self, Desk};
use crate::server::ServerConfig;
use crate::service::Service;

// What the dashboard has in common with the API.
pub(crate) use auth::caller_with;
pub(crate) use body::read as read_body;
pub(crate) use edge::{Notes, Peer, Routine, Teller, is_for_people};
pub(crate) use extract::Id;
pub(crate) use respond::unknown_route;
pub(crate) use routes::{StreamPlace, Streams};

/// What every route has at hand.
#[derive(Debug, Clone)]
pub(crate) struct AppState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    service: Service,
    config: ServerConfig,
    monitor: Option<Monitor>,
    draining: watch::Receiver<bool>,
    requests: Semaphore,
    /// In pages of [`body::PAGE_BYTES`].
    body_room: Arc<Semaphore>,
    desk: Desk,
}

impl AppState {
    pub(crate) fn new(
        service: Service,
        config: ServerConfig,
        monitor: Option<Monitor>,
        draining: watch::Receiver<bool>,
    ) -> Self {
        let requests = Semaphore::new(config.max_requests);
        let body_room = Arc::new(Semaphore::new(config.max_body_bytes_held / body::PAGE_BYTES));
        let desk = Desk::new(&config);
        Self(Arc::new(Shared { service, config, monitor, draining, requests, body_room, desk }))
    }

    pub(crate) fn service(&self) -> &Service {
        &self.0.service
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    /// What the dashboard remembers.
    pub(crate) fn desk(&self) -> &Desk {
        &self.0.desk
    }

    /// Whether the server is about to stop.
    pub(crate) fn is_draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// Returns when the server is about to stop: whatever would go on for ever ends then.
    pub(crate) async fn draining(&self) {
        let mut draining = self.0.draining.clone();
        // If the server is gone, it is not there to be waited for either.
        let _ = draining.wait_for(|draining| *draining).await;
    }
}

/// The whole API, and the dashboard.
pub(crate) fn api(state: AppState) -> Router {
    let pages = pages::routes().merge(dashboard::routes());
    let router = documented().split_for_parts().0.merge(pages).fallback(dashboard::nowhere);
    finish(router, state, Some(dashboard::tell_people))
}

/// What orchestrators and Prometheus ask for, and nothing else.
pub(crate) fn operations_only(state: AppState) -> Router {
    finish(operations::routes().split_for_parts().0.fallback(respond::unknown_route), state, None)
}

/// With `tell_people`, whoever looks with a browser at what is not of the API is told of problems in a page.
fn finish(router: Router<AppState>, state: AppState, tell_people: Option<edge::TellPeople>) -> Router {
    router
        .method_not_allowed_fallback(respond::method_not_allowed)
        .layer(from_fn_with_state(state.clone(), limits::limit))
        .layer(from_fn_with_state((state.clone(), tell_people), edge::edge))
        .with_state(state)
}

fn documented() -> OpenApiRouter<AppState> {
    routes::all().merge(operations::routes())
}

/// The API's description: `OpenAPI` 3.1, complete.
pub fn openapi() -> OpenApi {
    openapi::complete(documented().into_openapi())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use axum::body::Body;
    use axum::routing::get;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::Service as _;

    use super::*;
    use crate::api::Problem;
    use crate::service::ServiceSettings;

    #[tokio::test]
    async fn a_handler_that_panics_is_answered_for() {
        let folder = tempfile::tempdir().unwrap();
        let store = postrider_sqlite::SqliteStore::open(folder.path().join("postrider.db")).unwrap();
        let service = Service::new(Arc::new(store), ServiceSettings::default());
        let state = AppState::new(service, ServerConfig::default(), None, watch::channel(false).1);
        let boom = async || -> &'static str { panic!("a canary in the panic") };
        let mut router = finish(Router::new().route("/boom", get(boom)), state, None);
        let response = router.call(Request::get("/boom").body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.code, "internal");
        assert!(problem.request_id.is_some() && !problem.detail.contains("canary"));
    }
}
