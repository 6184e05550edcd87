//! Pages for people, and the API's description for programs.

mod docs;
mod example;
mod html;

use std::sync::LazyLock;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use bytes::Bytes;
use http::header;

use super::AppState;

/// Nothing from elsewhere, no scripts, and no styles but the one that is served beside the page.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let mut text = serde_json::to_vec_pretty(&super::openapi()).expect("the document is plain data");
    text.push(b'\n');
    text.into()
});

static DOCS: LazyLock<Bytes> = LazyLock::new(|| {
    let document = serde_json::from_slice(&DOCUMENT).expect("the document is JSON");
    docs::page(&document).into()
});

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone())))
        .route("/docs", get(docs))
        .route("/docs/style.css", get(style))
}

async fn docs() -> impl IntoResponse {
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, PAGE_POLICY)];
    (headers, DOCS.clone())
}

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("style.css"))
}
