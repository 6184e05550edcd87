//! `/live`: tells a page when it is worth asking for itself again, as server-sent events.
//!
//! It carries no data. What is shown comes from the page, which is asked for with the same cookie as before; so there is one
//! place where it is decided who sees what.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use http::HeaderMap;
use tokio::sync::watch;
use tokio::time::timeout;

use super::cookies::Cookies;
use super::pulse::Pulse;
use super::viewer::{Look, Viewer};
use crate::api::Problem;
use crate::http::{AppState, StreamPlace};
use crate::service::Tenancy;

/// How long a browser waits before it connects again.
const RECONNECT_AFTER: Duration = Duration::from_secs(3);

/// How often a comment is sent when nothing happens, so that proxies keep the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) async fn follow(State(state): State<AppState>, look: Look, headers: HeaderMap) -> Result<Response, Problem> {
    if state.is_draining() {
        return Err(Problem::new(503, "draining", "the server is about to stop"));
    }
    let tenancy = look.caller().tenant.clone();
    let taken = state.desk().streams.take(&tenancy)?;
    let pulse = state.desk().pulses.of(&state, &tenancy);
    let mut beats = pulse.beats();
    beats.mark_unchanged();
    let watch = Watch { state, headers, cookies: look.cookies, tenancy, pulse, beats, _taken: taken };
    let opening = Event::default().retry(RECONNECT_AFTER).event("open").data("following");
    let events = stream::iter([opening]).chain(stream::unfold(watch, Watch::next)).map(Ok::<_, Infallible>);
    Ok(([("x-accel-buffering", "no")], Sse::new(events)).into_response())
}

/// One page that is kept up to date.
struct Watch {
    state: AppState,
    /// With the cookies that opened it.
    headers: HeaderMap,
    cookies: Cookies,
    tenancy: Tenancy,
    pulse: Arc<Pulse>,
    beats: watch::Receiver<u64>,
    _taken: StreamPlace,
}

impl Watch {
    /// The next event; none when the server stops, or whoever looks is not signed in any more.
    async fn next(mut self) -> Option<(Event, Self)> {
        let draining = self.state.clone();
        let beat = tokio::select! {
            biased;
            () = draining.draining() => return None,
            beat = timeout(HEARTBEAT, self.beats.changed()) => beat,
        };
        // The browser connects again, and with that begins another pulse.
        if self.pulse.has_ended() || !self.is_welcome().await {
            return None;
        }
        self.pulse.view();
        let event = match beat {
            // With a word in it: browsers pass over events without data.
            Ok(_) => Event::default().event("beat").data("look"),
            Err(_) => Event::default().comment("heartbeat"),
        };
        Some((event, self))
    }

    async fn is_welcome(&self) -> bool {
        match Viewer::recognise(&self.headers, &self.state, self.cookies).await {
            Ok(viewer) => viewer.caller.tenant == self.tenancy,
            // When the database is away, nobody knows.
            Err(problem) => problem.status >= 500,
        }
    }
}
