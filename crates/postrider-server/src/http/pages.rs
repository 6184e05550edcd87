//! Pages for people, and the API's description for programs.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use axum::routing::get;
use http::header;

use super::AppState;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/", get(async || Redirect::temporary("/docs"))).route("/openapi.json", get(document))
}

async fn document(State(state): State<AppState>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], state.0.document.clone())
}
