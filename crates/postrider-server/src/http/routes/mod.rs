//! The resources under `/v1`, one module each.

mod audit;
mod deliveries;
mod endpoints;
mod events;
mod keys;
mod once;
mod overview;
mod stream;

use utoipa_axum::router::OpenApiRouter;

use super::AppState;

pub(crate) use stream::{Place as StreamPlace, Streams};

pub(super) fn all() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .merge(events::routes())
        .merge(endpoints::routes())
        .merge(deliveries::routes())
        .merge(once::routes())
        .merge(overview::routes())
        .merge(stream::routes())
        .merge(keys::routes())
        .merge(audit::routes())
}
