//! The stylesheet, the script and the icon. Their addresses name their content, so that a browser may keep them for ever.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::LazyLock;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header;

use crate::http::AppState;

const STYLE: &str = concat!(include_str!("assets/style.css"), "\n", include_str!("assets/narrow.css"));
const SCRIPT: &str = include_str!("assets/script.js");
const ICON: &str = include_str!("assets/icon.svg");

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    (STYLE, SCRIPT, ICON).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
});

/// The address of an asset.
pub(super) fn address(name: &str) -> String {
    format!("/assets/{name}?v={}", *VERSION)
}

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/assets/style.css", get(async || served("text/css; charset=utf-8", STYLE)))
        .route("/assets/script.js", get(async || served("text/javascript; charset=utf-8", SCRIPT)))
        .route("/assets/icon.svg", get(async || served("image/svg+xml", ICON)))
}

fn served(content_type: &'static str, content: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")], content)
}
