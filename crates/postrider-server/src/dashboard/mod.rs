//! The dashboard: what the API knows, for people.
//!
//! Pages are made on the server and work without a script: every link is a link, every action is a form. A small script adds
//! what only a script can: it asks for the same page again when something happened, counts down, and copies. So there is one
//! place that decides what is shown, and nothing in the browser that could disagree with it.
//!
//! A request goes through [`shell`], which turns problems into pages, sends whoever is not signed in to the door, and sets the
//! headers that keep a page to itself. Handlers take a [`Look`](viewer::Look) to show something, or a
//! [`Form`](form::Form) of the scope that they need to change something; both work on the service, as the API's routes do.

mod assets;
mod audit;
mod cookies;
mod dead;
mod deliveries;
mod delivery;
mod endpoint;
mod endpoint_form;
mod endpoints;
mod events;
mod flash;
mod form;
mod history;
mod json_view;
mod keys;
mod layout;
mod live;
mod once;
mod overview;
mod parts;
mod plot;
mod pulse;
mod query;
mod session;
mod shell;
mod sign_in;
mod throttle;
mod time;
mod viewer;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use postrider::{Keyring, SecretKey};
use uuid::Uuid;

use crate::http::{AppState, Streams};
use crate::server::ServerConfig;
use pulse::Pulses;
use throttle::Throttle;

pub(crate) use shell::{nowhere, tell_people};

/// What the dashboard of one server remembers. None of it must be shared between servers: whoever signed in at one of several
/// is known to all that have the same keys.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Seal sessions and notices.
    keys: Keyring,
    /// In the place of a session's, where nobody signs in.
    dev_token: String,
    throttle: Throttle,
    pulses: Pulses,
    streams: Streams,
}

impl Desk {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let keys = if config.session_keys.is_empty() {
            Keyring::new([SecretKey::generate()])
        } else {
            config.session_keys.clone()
        };
        Self {
            keys,
            dev_token: random_token(),
            throttle: Throttle::default(),
            pulses: Pulses::default(),
            streams: Streams::default(),
        }
    }
}

/// A text that nobody can guess.
fn random_token() -> String {
    Uuid::new_v4().simple().to_string()
}

pub(crate) fn routes() -> Router<AppState> {
    Router::new()
        .route("/", get(overview::show))
        .route("/deliveries", get(deliveries::list))
        .route("/deliveries/{id}", get(delivery::show))
        .route("/deliveries/{id}/retry", post(delivery::retry))
        .route("/deliveries/{id}/cancel", post(delivery::cancel))
        .route("/find", get(deliveries::find))
        .route("/dead", get(dead::list))
        .route("/dead/retry", post(dead::retry_some))
        .route("/dead/retry-all", post(dead::retry_all))
        .route("/endpoints", get(endpoints::list).post(endpoints::create))
        .route("/endpoints/new", get(endpoints::new))
        .route("/endpoints/{id}", get(endpoint::show).post(endpoint::update))
        .route("/endpoints/{id}/edit", get(endpoint::edit))
        .route("/endpoints/{id}/pause", post(endpoint::pause))
        .route("/endpoints/{id}/resume", post(endpoint::resume))
        .route("/endpoints/{id}/rotate-secret", post(endpoint::rotate))
        .route("/endpoints/{id}/test", post(endpoint::test))
        .route("/endpoints/{id}/remove", post(endpoint::remove))
        .route("/events", get(events::list).post(events::send))
        .route("/events/new", get(events::new))
        .route("/events/{id}", get(events::show))
        .route("/events/{id}/payload", get(events::payload))
        .route("/once", get(once::show))
        .route("/once/reset", post(once::reset))
        .route("/audit", get(audit::list))
        .route("/keys", get(keys::list).post(keys::create))
        .route("/keys/{id}/revoke", post(keys::revoke))
        .route("/live", get(live::follow))
        .route("/sign-in", get(sign_in::show).post(sign_in::sign_in))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/tenant", post(sign_in::choose_tenant))
        .layer(from_fn(shell::shell))
        .merge(assets::routes())
}
