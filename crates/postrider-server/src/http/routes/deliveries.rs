//! `/v1/deliveries`.

use utoipa_axum::router::OpenApiRouter;

use crate::http::AppState;

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
}
