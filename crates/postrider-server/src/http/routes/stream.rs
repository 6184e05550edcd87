//! `/v1/stream`: announcements as server-sent events.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use http::HeaderMap;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::Problem;
use crate::api::stream::{Announcement, StreamQuery};
use crate::http::AppState;
use crate::http::auth::{self, Reader};
use crate::http::extract::Query;
use crate::service::{Follower, Tenancy, Told};

/// How many streams there may be at once, of all tenants and of one: nobody can take all the places.
const MOST_STREAMS: usize = 256;
const MOST_STREAMS_PER_TENANT: usize = 64;

/// How long a client waits before it connects again.
const RECONNECT_AFTER: Duration = Duration::from_secs(2);

/// How often a comment is sent when there is nothing to tell, so that proxies keep the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How often it is looked whether the key that opened the stream still opens anything.
const KEY_CHECK: Duration = Duration::from_secs(2);

/// How long to wait when the database is away. The client is not sent away: a browser would not come back.
const TROUBLE_PAUSE: Duration = Duration::from_secs(1);

/// The streams that there are, of one server, by tenant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<HashMap<String, usize>>>);

/// A place among them, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    streams: Streams,
    tenant: String,
}

impl Streams {
    fn counts(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().expect("no code panics while it holds this lock")
    }

    pub(crate) fn take(&self, tenancy: &Tenancy) -> Result<Place, Problem> {
        let tenant = tenancy.filter().unwrap_or("*").to_owned();
        let mut counts = self.counts();
        let refuse = |detail| Err(Problem::new(503, "too_many_streams", detail));
        if counts.values().sum::<usize>() >= MOST_STREAMS {
            return refuse(format!("there are {MOST_STREAMS} streams, which is the most"));
        }
        let count = counts.entry(tenant.clone()).or_default();
        if *count >= MOST_STREAMS_PER_TENANT {
            return refuse(format!("there are {MOST_STREAMS_PER_TENANT} streams, which is the most for one tenant"));
        }
        *count += 1;
        Ok(Place { streams: self.clone(), tenant })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.streams.counts();
        if let Some(count) = counts.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.tenant);
            }
        }
    }
}

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(follow)).layer(Extension(Streams::default()))
}

/// Follow announcements.
///
/// Server-sent events: `event` is the fact, `data` the announcement, `id` the place after it. It begins with what is announced
/// from now on, or after the place in `Last-Event-ID`, and goes on until one side closes it. A client that connects again with
/// the last `id` that it has seen misses nothing and gets nothing twice, also after the server was restarted; only what is
/// older than the retention is gone. When there is nothing to tell, a comment is sent every 15 seconds.
#[utoipa::path(get, path = "/v1/stream", tag = "stream",
    params(
        StreamQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "Go on after this place: the `id` of the last event that was seen"),
    ),
    responses(
        (status = 200, body = Announcement, content_type = "text/event-stream", description = "The stream; the schema is that of each event's `data`"),
        (status = 503, body = Problem, content_type = "application/problem+json", description = "There are too many streams (`too_many_streams`), or the server is about to stop (`draining`)"),
    ))]
async fn follow(
    State(state): State<AppState>,
    Extension(streams): Extension<Streams>,
    Reader(caller): Reader,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if state.is_draining() {
        return Err(Problem::new(503, "draining", "the server is about to stop"));
    }
    let taken = streams.take(&caller.tenant)?;
    let follower = state.service().follow(&caller, &query, last_event_id(&headers)?).await?;
    let place = follower.place();
    let opening = placed(Event::default().retry(RECONNECT_AFTER).comment("following"), place.as_deref());
    let now = Instant::now();
    let watch = Watch {
        state,
        headers,
        follower,
        waiting: VecDeque::new(),
        told_place: place,
        heartbeat_at: now + HEARTBEAT,
        key_check_at: now + KEY_CHECK,
        _taken: taken,
    };
    let events = stream::iter([opening]).chain(stream::unfold(watch, Watch::next)).map(Ok::<_, Infallible>);
    Ok(([("x-accel-buffering", "no")], Sse::new(events)).into_response())
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let text = value.to_str().map_err(|_| {
        let detail = "it is not one that this stream has sent";
        Problem::new(422, "last_event_id_invalid", detail).about("Last-Event-ID")
    })?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// One stream. It reads only as fast as its client does.
struct Watch {
    state: AppState,
    /// With the key that opened it.
    headers: HeaderMap,
    follower: Follower,
    /// Read, and not told yet.
    waiting: VecDeque<Told>,
    /// The last place that the client was told.
    told_place: Option<String>,
    heartbeat_at: Instant,
    key_check_at: Instant,
    _taken: Place,
}

impl Watch {
    /// The next event; none when the server stops, or the key was revoked.
    async fn next(mut self) -> Option<(Event, Self)> {
        let draining = self.state.clone();
        let event = tokio::select! {
            biased;
            () = draining.draining() => None,
            event = self.event() => event,
        };
        event.map(|event| (event, self))
    }

    async fn event(&mut self) -> Option<Event> {
        loop {
            if !self.is_welcome().await {
                return None;
            }
            if let Some(told) = self.waiting.pop_front() {
                self.heartbeat_at = Instant::now() + HEARTBEAT;
                return Some(self.told(&told));
            }
            if self.heartbeat_at <= Instant::now() {
                self.heartbeat_at = Instant::now() + HEARTBEAT;
                return Some(self.heartbeat());
            }
            let until = self.heartbeat_at.min(self.key_check_at);
            match self.follower.next(until.saturating_duration_since(Instant::now())).await {
                Ok(told) => self.waiting.extend(told),
                Err(problem) => {
                    tracing::warn!(code = problem.code, "a stream cannot read announcements: {}", problem.detail);
                    tokio::time::sleep(TROUBLE_PAUSE).await;
                }
            }
        }
    }

    async fn is_welcome(&mut self) -> bool {
        if self.state.config().dev || Instant::now() < self.key_check_at {
            return true;
        }
        self.key_check_at = Instant::now() + KEY_CHECK;
        // When the database is away, nobody knows; and then there is nothing to tell either.
        !matches!(auth::recognised(&self.headers, &self.state).await, Err(problem) if problem.status == 401)
    }

    fn told(&mut self, told: &Told) -> Event {
        let data = serde_json::to_string(&told.announcement).expect("an announcement is plain data");
        let event = Event::default().event(&told.announcement.fact).data(data);
        if told.place.is_some() {
            self.told_place.clone_from(&told.place);
        }
        placed(event, told.place.as_deref())
    }

    /// With the place, if what was announced meanwhile was not for this client: it need not be read again.
    fn heartbeat(&mut self) -> Event {
        let place = self.follower.place().filter(|place| self.told_place.as_ref() != Some(place));
        if place.is_some() {
            self.told_place.clone_from(&place);
        }
        placed(Event::default().comment("heartbeat"), place.as_deref())
    }
}

fn placed(event: Event, place: Option<&str>) -> Event {
    match place {
        Some(place) => event.id(place),
        None => event,
    }
}
